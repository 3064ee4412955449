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

// ---- JSON, one item a line ----------------------------------------------------------------------

typedef struct json_text {
    rn_sink sink;
    rn_status status; // of the first write that failed; later ones do nothing
    int depth;
    bool has_items;   // what is open, so far
    char closing[16]; // (depth)
} json_text;

static inline void json_put(json_text *json, const char *text) {
    if (json->status == RN_OK) json->status = rn_sink_write(json->sink, text, strlen(text));
}

static inline void json_quote(json_text *json, const char *text) {
    json_put(json, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') json_put(json, "\\");
        json_put(json, (char[]){*text, 0});
    }
    json_put(json, "\"");
}

static inline void json_line(json_text *json) {
    json_put(json, "\n");
    for (int i = 0; i < json->depth; i++)
        json_put(json, "  ");
}

// What stands before a value; `key` is NULL in arrays and for the outermost.
static inline void json_item(json_text *json, const char *key) {
    if (json->has_items) json_put(json, ",");
    if (json->depth) json_line(json);
    json->has_items = true;
    if (!key) return;
    json_quote(json, key);
    json_put(json, ": ");
}

// bracket: "{" or "[".
static inline void json_open(json_text *json, const char *key, const char *bracket) {
    json_item(json, key);
    json_put(json, bracket);
    json->closing[json->depth++] = *bracket == '{' ? '}' : ']';
    json->has_items = false;
}

// Nothing that is closed here is empty.
static inline void json_close(json_text *json) {
    json->depth--;
    json_line(json);
    json_put(json, (char[]){json->closing[json->depth], 0});
    json->has_items = true;
}

static inline void json_plain(json_text *json, const char *key, const char *value) {
    json_item(json, key);
    json_put(json, value);
}

static inline void json_string(json_text *json, const char *key, const char *value) {
    json_item(json, key);
    json_quote(json, value);
}

static inline void json_number(json_text *json, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    json_plain(json, key, text);
}

// ---- tokenizer.json -----------------------------------------------------------------------------

static inline void bpe_write_special(json_text *json) {
    json_open(json, "added_tokens", "[");
    json_open(json, NULL, "{");
    json_number(json, "id", BPE_END);
    json_string(json, "content", "<|endoftext|>");
    static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        json_plain(json, no[i], "false");
    json_plain(json, "special", "true");
    json_close(json);
    json_close(json);
}

// {"SpecialToken" or "Sequence": {"id": id, "type_id": type}}
static inline void bpe_write_part(json_text *json, const char *kind, const char *id,
                                  uint64_t type) {
    json_open(json, NULL, "{");
    json_open(json, kind, "{");
    json_string(json, "id", id);
    json_number(json, "type_id", type);
    json_close(json);
    json_close(json);
}

// A text begins with <|endoftext|>.
static inline void bpe_write_template(json_text *json) {
    json_open(json, "post_processor", "{");
    json_string(json, "type", "TemplateProcessing");
    json_open(json, "single", "[");
    bpe_write_part(json, "SpecialToken", "<|endoftext|>", 0);
    bpe_write_part(json, "Sequence", "A", 0);
    json_close(json);
    json_open(json, "pair", "[");
    bpe_write_part(json, "SpecialToken", "<|endoftext|>", 0);
    bpe_write_part(json, "Sequence", "A", 0);
    bpe_write_part(json, "Sequence", "B", 1);
    json_close(json);
    json_open(json, "special_tokens", "{");
    json_open(json, "<|endoftext|>", "{");
    json_string(json, "id", "<|endoftext|>");
    json_open(json, "ids", "[");
    json_number(json, NULL, BPE_END);
    json_close(json);
    json_open(json, "tokens", "[");
    json_string(json, NULL, "<|endoftext|>");
    json_close(json);
    for (int i = 0; i < 3; i++)
        json_close(json);
}

// The pre-tokenizer or decoder.
static inline void bpe_write_bytes(json_text *json, const char *key) {
    json_open(json, key, "{");
    json_string(json, "type", "ByteLevel");
    json_plain(json, "add_prefix_space", "false");
    json_plain(json, "trim_offsets", "true");
    json_plain(json, "use_regex", "true");
    json_close(json);
}

static inline void bpe_write_model(const bpe *b, json_text *json) {
    char name[4 * BPE_WORD_BYTES + 2];
    json_open(json, "model", "{");
    json_string(json, "type", "BPE");
    json_plain(json, "fuse_unk", "false");
    json_plain(json, "byte_fallback", "false");
    json_open(json, "vocab", "{");
    for (uint32_t i = 0; i < b->token_count; i++) {
        name[0] = 0;
        bpe_name(b, i, name);
        json_number(json, name, i);
    }
    json_close(json);
    json_open(json, "merges", "[");
    for (uint32_t i = BPE_FIRST_MERGE; i < b->token_count; i++) {
        name[0] = 0;
        bpe_name(b, b->pairs[i][0], name);
        strcat(name, " ");
        bpe_name(b, b->pairs[i][1], name);
        json_string(json, NULL, name);
    }
    json_close(json);
    json_close(json);
}

static inline rn_status bpe_write(const bpe *b, rn_sink sink) {
    json_text json = {.sink = sink};
    json_open(&json, NULL, "{");
    json_string(&json, "version", "1.0");
    json_plain(&json, "truncation", "null");
    json_plain(&json, "padding", "null");
    bpe_write_special(&json);
    json_plain(&json, "normalizer", "null");
    bpe_write_bytes(&json, "pre_tokenizer");
    bpe_write_template(&json);
    bpe_write_bytes(&json, "decoder");
    bpe_write_model(b, &json);
    json_close(&json);
    json_put(&json, "\n");
    return json.status;
}

#endif
