// train_tiny_bpe.h — a small byte-level BPE tokenizer, learned from text: words are counted, and
// the pair of tokens that stands side by side most often becomes a token, again and again.
//
// Text is cut into words as GPT-2's expression does (ByteLevel with use_regex in tokenizer.json),
// for ASCII text. Token 0 is <|endoftext|>, tokens 1 to 256 are the bytes, the rest are merges.
#ifndef RN_EXAMPLES_TRAIN_TINY_BPE_H
#define RN_EXAMPLES_TRAIN_TINY_BPE_H

#include <ration/ration.h>

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    BPE_END = 0, // <|endoftext|>
    BPE_FIRST_MERGE = 257,
    BPE_MOST_TOKENS = 2048,
    BPE_WORD_BYTES = 32,
    BPE_SLOTS = 8192 // of the table of words, a power of two, much larger than their number
};

typedef struct bpe_word {
    char text[BPE_WORD_BYTES];
    uint16_t ids[BPE_WORD_BYTES]; // (count)
    uint8_t bytes, count;
    uint64_t uses;
} bpe_word;

typedef struct bpe {
    uint32_t token_count;
    uint16_t pairs[BPE_MOST_TOKENS][2]; // of merges
    bpe_word words[BPE_SLOTS];
    uint64_t pair_uses[BPE_MOST_TOKENS][BPE_MOST_TOKENS];
} bpe;

// ---- words --------------------------------------------------------------------------------------

static inline size_t bpe_span(const char *text, int (*is)(int)) {
    size_t n = 0;
    while (text[n] && is((unsigned char)text[n]))
        n++;
    return n;
}

// 's 't 're 've 'm 'll 'd
static inline size_t bpe_contraction(const char *text) {
    static const char *const ends[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strncmp(text, ends[i], strlen(ends[i])) == 0) return strlen(ends[i]);
    return 0;
}

// The bytes of the first word of a text that is not empty.
static inline size_t bpe_cut(const char *text) {
    size_t blank = text[0] == ' ', n = bpe_contraction(text);
    if (n > 0) return n;
    if ((n = bpe_span(text + blank, isalpha)) > 0) return blank + n;
    if ((n = bpe_span(text + blank, isdigit)) > 0) return blank + n;
    if ((n = bpe_span(text + blank, ispunct)) > 0) return blank + n;
    n = bpe_span(text, isspace);
    return n > 1 && text[n] ? n - 1 : n; // the last one goes with what follows
}

static inline void bpe_merge(bpe_word *w, uint16_t left, uint16_t right, uint16_t merged) {
    uint8_t kept = 0;
    for (uint8_t i = 0; i < w->count; i++) {
        bool both = i + 1 < w->count && w->ids[i] == left && w->ids[i + 1] == right;
        w->ids[kept++] = both ? merged : w->ids[i];
        i = (uint8_t)(i + both);
    }
    w->count = kept;
}

// The word with its tokens, which is made where it is new.
static inline bpe_word *bpe_look_up(bpe *b, const char *text, size_t bytes) {
    uint32_t slot = 2166136261u;
    assert(bytes <= BPE_WORD_BYTES);
    for (size_t i = 0; i < bytes; i++)
        slot = (slot ^ (unsigned char)text[i]) * 16777619u;
    for (;; slot++) {
        bpe_word *w = &b->words[slot % BPE_SLOTS];
        if (w->bytes == bytes && memcmp(w->text, text, bytes) == 0) return w;
        if (w->bytes > 0) continue;
        memcpy(w->text, text, bytes);
        w->bytes = w->count = (uint8_t)bytes;
        for (size_t i = 0; i < bytes; i++)
            w->ids[i] = (uint16_t)(1 + (unsigned char)text[i]);
        for (uint32_t m = BPE_FIRST_MERGE; m < b->token_count; m++)
            bpe_merge(w, b->pairs[m][0], b->pairs[m][1], (uint16_t)m);
        return w;
    }
}

// ---- learning -----------------------------------------------------------------------------------

static inline void bpe_begin(bpe *b) {
    memset(b, 0, sizeof *b);
    b->token_count = BPE_FIRST_MERGE;
}

static inline void bpe_count(bpe *b, const char *text) {
    for (size_t n; *text; text += n) {
        n = bpe_cut(text);
        bpe_look_up(b, text, n)->uses++;
    }
}

// Every place k at which two tokens of a word w stand side by side.
#define BPE_EACH_PAIR(b, w, k)                                                                     \
    for (bpe_word *w = (b)->words; w < (b)->words + BPE_SLOTS; w++)                                \
        for (uint16_t *k = w->ids; k + 1 < w->ids + w->count; k++)

// The most frequent pair becomes a token; of equals, the first by number. False: there is none.
static inline bool bpe_learn_one(bpe *b) {
    uint64_t most = 0;
    uint16_t left = 0, right = 0, merged = (uint16_t)b->token_count;
    BPE_EACH_PAIR(b, w, k) b->pair_uses[k[0]][k[1]] = 0;
    BPE_EACH_PAIR(b, w, k) b->pair_uses[k[0]][k[1]] += w->uses;
    BPE_EACH_PAIR(b, w, k) {
        uint64_t uses = b->pair_uses[k[0]][k[1]];
        bool before = k[0] < left || (k[0] == left && k[1] < right);
        if (uses > most || (uses == most && before)) most = uses, left = k[0], right = k[1];
    }
    if (most == 0) return false;
    b->pairs[merged][0] = left;
    b->pairs[merged][1] = right;
    for (bpe_word *w = b->words; w < b->words + BPE_SLOTS; w++)
        bpe_merge(w, left, right, merged);
    b->token_count++;
    return true;
}

// From what was counted, up to `tokens` of them.
static inline void bpe_learn(bpe *b, uint32_t tokens) {
    assert(tokens <= BPE_MOST_TOKENS);
    while (b->token_count < tokens && bpe_learn_one(b)) {
    }
}

// ---- encoding -----------------------------------------------------------------------------------

// At most `most` tokens; returns how many.
static inline size_t bpe_encode(bpe *b, const char *text, int32_t *out, size_t most) {
    size_t count = 0;
    for (size_t n; *text && count < most; text += n) {
        n = bpe_cut(text);
        const bpe_word *w = bpe_look_up(b, text, n);
        for (uint8_t i = 0; i < w->count && count < most; i++)
            out[count++] = w->ids[i];
    }
    return count;
}

// ---- tokenizer.json -----------------------------------------------------------------------------

// A byte as GPT-2 spells it: printable ones as they are, the others from U+0100 on.
static inline uint32_t bpe_spell(unsigned char byte) {
    uint32_t others = 0;
    for (uint32_t c = 0;; c++) {
        bool plain = (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
        if (c == byte) return plain ? c : 256 + others;
        others += !plain;
    }
}

// Appends a token's spelling as UTF-8.
static inline void bpe_name(const bpe *b, uint32_t id, char *out) {
    size_t end = strlen(out);
    if (id >= BPE_FIRST_MERGE) {
        bpe_name(b, b->pairs[id][0], out);
        bpe_name(b, b->pairs[id][1], out);
        return;
    }
    if (id == BPE_END) {
        strcpy(out + end, "<|endoftext|>");
        return;
    }
    uint32_t c = bpe_spell((unsigned char)(id - 1));
    if (c >= 0x80) out[end++] = (char)(0xc0 | c >> 6);
    out[end++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
    out[end] = 0;
}

static inline void bpe_write_special(rn_json *json) {
    rn_json_array(json, "added_tokens");
    rn_json_object(json, NULL);
    rn_json_u64(json, "id", BPE_END);
    rn_json_string(json, "content", "<|endoftext|>");
    static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        rn_json_bool(json, no[i], false);
    rn_json_bool(json, "special", true);
    rn_json_end(json);
    rn_json_end(json);
}

// {"SpecialToken" or "Sequence": {"id": id, "type_id": type}}
static inline void bpe_write_part(rn_json *json, const char *kind, const char *id, uint64_t type) {
    rn_json_object(json, NULL);
    rn_json_object(json, kind);
    rn_json_string(json, "id", id);
    rn_json_u64(json, "type_id", type);
    rn_json_end(json);
    rn_json_end(json);
}

// A text begins with <|endoftext|>.
static inline void bpe_write_template(rn_json *json) {
    rn_json_object(json, "post_processor");
    rn_json_string(json, "type", "TemplateProcessing");
    rn_json_array(json, "single");
    bpe_write_part(json, "SpecialToken", "<|endoftext|>", 0);
    bpe_write_part(json, "Sequence", "A", 0);
    rn_json_end(json);
    rn_json_array(json, "pair");
    bpe_write_part(json, "SpecialToken", "<|endoftext|>", 0);
    bpe_write_part(json, "Sequence", "A", 0);
    bpe_write_part(json, "Sequence", "B", 1);
    rn_json_end(json);
    rn_json_object(json, "special_tokens");
    rn_json_object(json, "<|endoftext|>");
    rn_json_string(json, "id", "<|endoftext|>");
    rn_json_array(json, "ids");
    rn_json_u64(json, NULL, BPE_END);
    rn_json_end(json);
    rn_json_array(json, "tokens");
    rn_json_string(json, NULL, "<|endoftext|>");
    rn_json_end(json);
    for (int i = 0; i < 3; i++)
        rn_json_end(json);
}

// The pre-tokenizer or decoder.
static inline void bpe_write_bytes(rn_json *json, const char *key) {
    rn_json_object(json, key);
    rn_json_string(json, "type", "ByteLevel");
    rn_json_bool(json, "add_prefix_space", false);
    rn_json_bool(json, "trim_offsets", true);
    rn_json_bool(json, "use_regex", true);
    rn_json_end(json);
}

static inline void bpe_write_model(const bpe *b, rn_json *json) {
    char name[4 * BPE_WORD_BYTES + 2];
    rn_json_object(json, "model");
    rn_json_string(json, "type", "BPE");
    rn_json_bool(json, "fuse_unk", false);
    rn_json_bool(json, "byte_fallback", false);
    rn_json_object(json, "vocab");
    for (uint32_t i = 0; i < b->token_count; i++) {
        name[0] = 0;
        bpe_name(b, i, name);
        rn_json_u64(json, name, i);
    }
    rn_json_end(json);
    rn_json_array(json, "merges");
    for (uint32_t i = BPE_FIRST_MERGE; i < b->token_count; i++) {
        name[0] = 0;
        bpe_name(b, b->pairs[i][0], name);
        strcat(name, " ");
        bpe_name(b, b->pairs[i][1], name);
        rn_json_string(json, NULL, name);
    }
    rn_json_end(json);
    rn_json_end(json);
}

static inline rn_status bpe_write(const bpe *b, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "version", "1.0");
    rn_json_null(&json, "truncation");
    rn_json_null(&json, "padding");
    bpe_write_special(&json);
    rn_json_null(&json, "normalizer");
    bpe_write_bytes(&json, "pre_tokenizer");
    bpe_write_template(&json);
    bpe_write_bytes(&json, "decoder");
    bpe_write_model(b, &json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

#endif
