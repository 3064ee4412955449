// vocab.h — the tokens of a tokenizer: id to text and back, each text once in a pool.
//
//     pool  ...the| the|ing|<|eot_id|>...      texts[id] = {offset, bytes}
//     slots {hash, id + 1} ...                 sealed: text -> id
//
// Texts of byte-level vocabularies are raw bytes, others as the file spells them. What a token adds
// to a text is its text, unless rn_vocab_show says otherwise ("▁the" shows " the").
#ifndef RN_TEXT_VOCAB_H
#define RN_TEXT_VOCAB_H

#include "base/buffer.h"
#include "base/str.h"

#include <ration/tokenizer.h>

// Larger than any vocabulary in the wild; a file that asks for more is refused.
#define RN_VOCAB_MAX ((uint32_t)1 << 21)

enum {
    RN_TOKEN_EXISTS = 1,
    RN_TOKEN_SPECIAL = 2,
    RN_TOKEN_END = 4,
    RN_TOKEN_APART = 8,  // not found by its text here: an added token, found in the text as it is
    RN_TOKEN_ADDED = 16, // found in the text before it is cut
};

typedef struct rn_vocab_span {
    uint32_t offset, bytes; // in the pool
} rn_vocab_span;

typedef struct rn_vocab_slot {
    uint32_t hash, next_id; // id + 1; 0 is an empty slot
} rn_vocab_slot;

typedef struct rn_vocab {
    const rn_allocator *from;
    rn_buffer pool;
    rn_vocab_span *texts, *shown; // (capacity); shown is NULL until something differs
    uint8_t *flags;               // (capacity)
    size_t count, capacity;       // count: largest id + 1
    rn_vocab_slot *slots;         // (slot_count)
    size_t slot_count;
    uint64_t seed;
} rn_vocab;

void rn_vocab_init(rn_vocab *vocab, const rn_allocator *from);
void rn_vocab_free(rn_vocab *vocab);

// Adds a token. RN_CORRUPT: the id is taken or out of range.
RN_MUST_USE rn_status rn_vocab_put(rn_vocab *vocab, uint64_t id, rn_str text, uint8_t flags);
// Builds the map. RN_CORRUPT: two tokens have the same text.
RN_MUST_USE rn_status rn_vocab_seal(rn_vocab *vocab);
// The id of a token that is not APART, or RN_NO_TOKEN. Sealed vocabularies only.
uint32_t rn_vocab_find(const rn_vocab *vocab, rn_str text);

// A text in two words, which with its length say all of it where it has up to 16 bytes, and a hash.
typedef struct rn_vocab_key {
    uint64_t a, b;
    uint32_t hash;
} rn_vocab_key;
rn_vocab_key rn_vocab_key_of(const rn_vocab *vocab, rn_str text);
// The same as rn_vocab_find, the text's hash being known.
uint32_t rn_vocab_find_hashed(const rn_vocab *vocab, rn_str text, uint32_t hash);

static inline bool rn_vocab_has(const rn_vocab *vocab, uint64_t id) {
    return id < vocab->count && vocab->flags[id] & RN_TOKEN_EXISTS;
}
// A special token that is looked for before text is cut: text is never cut into it.
static inline bool rn_vocab_is_reserved(const rn_vocab *vocab, uint64_t id) {
    const uint8_t both = RN_TOKEN_SPECIAL | RN_TOKEN_ADDED;
    return id < vocab->count && (vocab->flags[id] & both) == both;
}
// Empty for ids that do not exist.
rn_str rn_vocab_text(const rn_vocab *vocab, uint32_t id);
RN_MUST_USE rn_status rn_vocab_show(rn_vocab *vocab, uint32_t id, rn_str bytes);
rn_str rn_vocab_shown(const rn_vocab *vocab, uint32_t id);

#endif
