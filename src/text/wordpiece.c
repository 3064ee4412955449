// wordpiece.c — see wordpiece.h. No token is longer than `longest`, so each place of a word is
// looked at a bounded number of times, however long the word is.
#include "text/wordpiece.h"

#include "base/checked.h"
#include "text/utf8_step.h"

enum { SPELLING_MOST = 4096 + 8 }; // bytes of a token, as rn_tokenizer_put allows, with a prefix

rn_status rn_wordpiece_finish(rn_wordpiece *w) {
    const rn_vocab *vocab = w->vocab;
    if (!rn_vocab_has(vocab, w->unknown))
        return rn_fail(RN_CORRUPT, "there is no token for unknown words");
    for (uint32_t id = 0; id < vocab->count; id++)
        w->longest = rn_max_u64(w->longest, rn_vocab_text(vocab, id).bytes);
    if (w->longest > SPELLING_MOST)
        return rn_fail(RN_CORRUPT, "a token of %zu bytes is too long", w->longest);
    return RN_OK;
}

static bool is_too_long(const rn_wordpiece *w, rn_str word) {
    size_t characters = 0;
    for (size_t i = 0; i < word.bytes; i++)
        characters += ((uint8_t)word.data[i] & 0xC0) != 0x80;
    return w->most_characters && characters > w->most_characters;
}

// The longest token that is the front of `text` behind the prefix; *out_bytes: how much it takes.
static uint32_t find_longest(const rn_wordpiece *w, rn_str prefix, rn_str text, size_t *out_bytes) {
    char spelling[SPELLING_MOST];
    if (w->longest <= prefix.bytes) return RN_NO_TOKEN;
    size_t bytes = rn_min_u64(text.bytes, w->longest - prefix.bytes);
    if (prefix.bytes) memcpy(spelling, prefix.data, prefix.bytes);
    memcpy(spelling + prefix.bytes, text.data, bytes);
    for (; bytes > 0; bytes--) {
        bool whole = bytes == text.bytes || ((uint8_t)text.data[bytes] & 0xC0) != 0x80;
        if (!whole) continue;
        uint32_t id = rn_vocab_find(w->vocab, (rn_str){spelling, prefix.bytes + bytes});
        if (id == RN_NO_TOKEN || rn_vocab_is_reserved(w->vocab, id)) continue;
        *out_bytes = bytes;
        return id;
    }
    return RN_NO_TOKEN;
}

rn_status rn_wordpiece_encode(const rn_wordpiece *w, rn_str word, rn_tokens *out) {
    size_t before = out->count, taken = 0;
    if (is_too_long(w, word)) return rn_tokens_push(out, w->unknown);
    for (size_t at = 0; at < word.bytes; at += taken) {
        rn_str rest = {word.data + at, word.bytes - at};
        uint32_t id = find_longest(w, at == 0 ? w->begin : w->next, rest, &taken);
        if (id == RN_NO_TOKEN) {
            out->count = before;
            return rn_tokens_push(out, w->unknown);
        }
        RN_TRY(rn_tokens_push(out, id));
    }
    return RN_OK;
}
