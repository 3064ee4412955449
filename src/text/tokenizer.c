// tokenizer.c — encoding: added tokens are found first, the stretches between them are normalised,
// cut into words and encoded word by word. All memory of a call is its own, so threads share a
// tokenizer.
#include "text/tokenizer_parts.h"

#include "base/checked.h"
#include "memory/account.h"
#include "text/byte_letters.h"
#include "text/utf8_step.h"

// ---- lists of ids -----------------------------------------------------------------------

static rn_status grow(rn_tokens *tokens) {
    size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
    void *block;
    if (capacity > SIZE_MAX / sizeof *tokens->ids) return rn_fail(RN_NO_MEMORY, "too many tokens");
    RN_TRY(rn_alloc(RN_HOST_OTHER, capacity * sizeof *tokens->ids, &block));
    if (tokens->count) memcpy(block, tokens->ids, tokens->count * sizeof *tokens->ids);
    rn_free(RN_HOST_OTHER, tokens->ids, tokens->capacity * sizeof *tokens->ids);
    tokens->ids = block;
    tokens->capacity = capacity;
    return RN_OK;
}

rn_status rn_tokens_push(rn_tokens *tokens, uint32_t id) {
    if (tokens->count == tokens->capacity) RN_TRY(grow(tokens));
    tokens->ids[tokens->count++] = id;
    return RN_OK;
}

void rn_tokens_free(rn_tokens *tokens) {
    rn_free(RN_HOST_OTHER, tokens->ids, tokens->capacity * sizeof *tokens->ids);
    *tokens = (rn_tokens){0};
}

// ---- one call ---------------------------------------------------------------------------

typedef struct encoding {
    const rn_tokenizer *tokenizer;
    rn_tokens *out;
    rn_str text;    // all of it
    rn_taint taint; // of `text`
    bool special;
    bool first; // the next word is the text's first
    rn_normalizing normalizing;
    rn_normalizing apart_normalizing; // of one run at a time, see normalize_apart
    rn_buffer apart, apart_taint;
    rn_cutting cutting;
    rn_bpe_scratch scratch;
} encoding;

static rn_status encode_spm(encoding *e, rn_str text, bool first) {
    rn_prefix prefix = e->tokenizer->spm_prefix;
    bool put = prefix == RN_PREFIX_ALWAYS || (prefix == RN_PREFIX_FIRST && first);
    return rn_spm_encode(e->tokenizer->spm, text, put, e->out);
}

static rn_status encode_word(void *self, rn_str word) {
    encoding *e = self;
    bool first = e->first;
    e->first = false;
    if (e->tokenizer->spm) return encode_spm(e, word, first);
    if (e->tokenizer->wordpiece.vocab)
        return rn_wordpiece_encode(&e->tokenizer->wordpiece, word, e->out);
    return rn_bpe_encode(&e->tokenizer->bpe, word, &e->scratch, e->out);
}

// What is looked for in a stretch of text, and what is done with the rest.
typedef rn_status (*plain_text)(encoding *e, rn_str text, bool first);

static rn_status split_added(encoding *e, const rn_added *added, rn_str text, rn_taint taint,
                             bool first, plain_text plain) {
    for (size_t at = 0; at < text.bytes;) {
        rn_added_match match = rn_added_find(added, text, taint, at, e->special);
        size_t end = match.token ? match.start : text.bytes;
        if (end > at) RN_TRY(plain(e, (rn_str){text.data + at, end - at}, first && at == 0));
        if (!match.token) break;
        RN_TRY(rn_tokens_push(e->out, match.token->id));
        at = match.end;
    }
    return RN_OK;
}

static rn_status encode_normalized(encoding *e, rn_str text, bool first) {
    e->first = first;
    return rn_cut(&e->cutting, text, first);
}

static rn_status append_bits(rn_buffer *taint, size_t at, size_t count, bool tainted) {
    for (size_t end = at + count; at < end; at++) {
        if (at / 8 == taint->bytes) RN_TRY(rn_buffer_append(taint, "", 1));
        rn_taint_put((uint8_t *)taint->data, at, tainted);
    }
    return RN_OK;
}

// The text with its runs (bytes that the template wrote, bytes of a message) normalised one by one,
// so that each byte of the result has one author. A character with a tainted byte is tainted.
static rn_status normalize_apart(encoding *e, rn_str text, rn_taint taint, bool begins) {
    e->apart.bytes = e->apart_taint.bytes = 0;
    for (size_t at = 0, end; at < text.bytes; at = end) {
        bool tainted = rn_taint_at(taint, at);
        end = rn_taint_run(taint, at, text.bytes);
        while (end < text.bytes && ((uint8_t)text.data[end] & 0xC0) == 0x80) {
            tainted = true;
            end++;
        }
        rn_str run = {text.data + at, end - at};
        RN_TRY(rn_normalize(&e->tokenizer->normalizer, &e->apart_normalizing, run,
                            begins && at == 0, &run));
        RN_TRY(append_bits(&e->apart_taint, e->apart.bytes, run.bytes, tainted));
        RN_TRY(rn_buffer_append(&e->apart, run.data, run.bytes));
    }
    return RN_OK;
}

static bool has_special(const rn_added *added, rn_str text) {
    rn_added_match match = {0};
    do
        match = rn_added_find(added, text, (rn_taint){0}, match.end, true);
    while (match.token && !match.token->special);
    return match.token;
}

// Normalises, and finds out who wrote what of the result. That matters only where special tokens
// are looked for in it. Usually the runs' normal forms, one behind the other, are the text's. Where
// they are not (a mark at the front of a message would join the template's last letter), and there
// is a special token in either, what is normalised apart counts: nobody's text reaches across the
// border then, neither to make a special token nor to spoil the template's.
static rn_status normalize_tainted(encoding *e, rn_str *io, rn_taint *io_taint, bool begins) {
    const rn_tokenizer *tokenizer = e->tokenizer;
    const rn_added *added = &tokenizer->added_normalized;
    rn_str text = *io, apart;
    bool matters = e->special && added->any_special && rn_taint_any(*io_taint, 0, text.bytes);
    RN_TRY(rn_normalize(&tokenizer->normalizer, &e->normalizing, text, begins, io));
    if (matters) RN_TRY(normalize_apart(e, text, *io_taint, begins));
    *io_taint = (rn_taint){0};
    if (!matters) return RN_OK;
    apart = (rn_str){e->apart.data, e->apart.bytes};
    if (has_special(added, apart) || has_special(added, *io)) {
        *io = apart;
        *io_taint = (rn_taint){(const uint8_t *)e->apart_taint.data, 0};
    }
    return RN_OK;
}

static rn_status encode_valid(encoding *e, rn_str text, bool first, bool begins) {
    rn_taint taint = rn_taint_from(e->taint, (size_t)(text.data - e->text.data));
    RN_TRY(normalize_tainted(e, &text, &taint, begins));
    return split_added(e, &e->tokenizer->added_normalized, text, taint, first, encode_normalized);
}

// Expressions and normalisers want UTF-8; bytes that are not are words of their own.
static rn_status encode_stretch(encoding *e, rn_str text, bool first) {
    for (size_t at = 0, end; at < text.bytes; at = end) {
        rn_str rest = {text.data + at, text.bytes - at};
        end = at + rn_utf8_valid_run(rest);
        rest.bytes = end - at;
        if (rest.bytes) RN_TRY(encode_valid(e, rest, first && at == 0, at == 0));
        if (end < text.bytes) RN_TRY(encode_word(e, (rn_str){text.data + end++, 1}));
    }
    return RN_OK;
}

static rn_status push_list(rn_tokens *out, const uint32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++)
        RN_TRY(rn_tokens_push(out, ids[i]));
    return RN_OK;
}

// SentencePiece does everything itself, unless the file has steps of its own.
static bool is_plain_spm(const rn_tokenizer *tokenizer) {
    return tokenizer->spm && tokenizer->cutter.count == 0 && tokenizer->normalizer.count == 0 &&
           tokenizer->added_normalized.count == 0;
}

static rn_status encode_all(encoding *e, rn_str text, uint32_t flags) {
    const rn_tokenizer *tokenizer = e->tokenizer;
    plain_text plain = is_plain_spm(tokenizer) ? encode_spm : encode_stretch;
    if (flags & (RN_ENCODE_BEGIN | RN_ENCODE_FIRST))
        RN_TRY(push_list(e->out, tokenizer->before, tokenizer->before_count));
    RN_TRY(split_added(e, &tokenizer->added, text, e->taint, true, plain));
    if (flags & RN_ENCODE_FIRST)
        return push_list(e->out, tokenizer->between, tokenizer->between_count);
    return flags & (RN_ENCODE_BEGIN | RN_ENCODE_SECOND)
               ? push_list(e->out, tokenizer->after, tokenizer->after_count)
               : RN_OK;
}

static rn_status encode_text(const rn_tokenizer *tokenizer, rn_str text, rn_taint taint,
                             uint32_t flags, rn_tokens *out) {
    encoding e = {.tokenizer = tokenizer,
                  .out = out,
                  .text = text,
                  .taint = taint,
                  .special = flags & RN_ENCODE_SPECIAL};
    size_t before = out->count;
    rn_normalizing_init(&e.normalizing, tokenizer->from);
    rn_normalizing_init(&e.apart_normalizing, tokenizer->from);
    rn_buffer_init(&e.apart, tokenizer->from, SIZE_MAX);
    rn_buffer_init(&e.apart_taint, tokenizer->from, SIZE_MAX);
    rn_cutting_init(&e.cutting, &tokenizer->cutter, tokenizer->from);
    e.cutting.word = encode_word;
    e.cutting.self = &e;
    rn_status s = RN_OK;
    if (!tokenizer->spm && !tokenizer->wordpiece.vocab)
        s = rn_bpe_scratch_prepare(&tokenizer->bpe, &e.scratch, text.bytes);
    if (s == RN_OK) s = encode_all(&e, text, flags);
    rn_normalizing_free(&e.normalizing);
    rn_normalizing_free(&e.apart_normalizing);
    rn_buffer_free(&e.apart);
    rn_buffer_free(&e.apart_taint);
    rn_cutting_free(&e.cutting);
    rn_bpe_scratch_free(&tokenizer->bpe, &e.scratch);
    if (s != RN_OK) out->count = before;
    return s;
}

rn_status rn_tokenizer_encode(const rn_tokenizer *tokenizer, rn_str text, uint32_t flags,
                              rn_tokens *out) {
    return encode_text(tokenizer, text, (rn_taint){0}, flags, out);
}

rn_status rn_tokenizer_encode_tainted(const rn_tokenizer *tokenizer, rn_str text, rn_taint taint,
                                      rn_tokens *out) {
    return encode_text(tokenizer, text, taint, RN_ENCODE_SPECIAL, out);
}

// ---- what it knows ----------------------------------------------------------------------

const rn_tokenizer_info *rn_tokenizer_get_info(const rn_tokenizer *tokenizer) {
    return &tokenizer->info;
}

uint32_t rn_tokenizer_find(const rn_tokenizer *tokenizer, rn_str text) {
    const rn_added_token *added = rn_added_get(&tokenizer->added, text);
    if (!added) added = rn_added_get(&tokenizer->added_normalized, text);
    if (added) return added->id;
    if (tokenizer->spm || !tokenizer->bpe.by_bytes) return rn_vocab_find(&tokenizer->vocab, text);
    char bytes[1024];
    size_t count;
    if (text.bytes > sizeof bytes || !rn_utf8_valid(text) ||
        !rn_letters_to_bytes(text, bytes, &count))
        return RN_NO_TOKEN;
    return rn_vocab_find(&tokenizer->vocab, (rn_str){bytes, count});
}

bool rn_tokenizer_is_special(const rn_tokenizer *tokenizer, uint32_t id) {
    return rn_vocab_has(&tokenizer->vocab, id) && tokenizer->vocab.flags[id] & RN_TOKEN_SPECIAL;
}

bool rn_tokenizer_is_end(const rn_tokenizer *tokenizer, uint32_t id) {
    return rn_vocab_has(&tokenizer->vocab, id) && tokenizer->vocab.flags[id] & RN_TOKEN_END;
}

rn_str rn_tokenizer_bytes(const rn_tokenizer *tokenizer, uint32_t id, bool special) {
    if (!special && rn_tokenizer_is_special(tokenizer, id)) return (rn_str){0};
    return rn_vocab_shown(&tokenizer->vocab, id);
}
