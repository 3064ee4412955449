// bpe.h — byte pair encoding of one word: begin with its bytes or characters, join the pair of the
// lowest rank until none is left.
#ifndef RN_TEXT_BPE_H
#define RN_TEXT_BPE_H

#include "text/merges.h"
#include "text/vocab.h"

#include <stdatomic.h>

typedef struct rn_bpe {
    const rn_allocator *from;
    const rn_vocab *vocab; // borrowed
    rn_merges merges;
    bool by_bytes;      // words begin as bytes; otherwise as UTF-8 characters
    bool ignore_merges; // a word that is a token is that token
    bool byte_fallback; // characters without a token are spelled in byte tokens
    bool fuse_unknown;  // neighbouring unknown characters are one unknown token
    bool cut_at_blank;  // by characters: no token reaches over a blank (U+2581), so cut there first
    uint32_t unknown;   // or RN_NO_TOKEN: unknown characters are left out
    char suffix[8];     // by bytes: what a word's last symbol is spelled with ("</w>"), or ""
    size_t suffix_bytes;    // of suffix
    uint32_t byte_ids[256]; // by bytes: the bytes' tokens; else those of byte_fallback; or none
    uint32_t last_ids[256]; // with the suffix
    _Atomic uint8_t *whole; // (whole_count) by id: whether the token's own text encodes as it
    size_t whole_count;
} rn_bpe;

// What long words need; {0} is empty. One for each call.
typedef struct rn_bpe_symbol {
    uint32_t id, previous, next;
    uint32_t rank, into; // of the pair that begins here
} rn_bpe_symbol;
// A word that was met before and its tokens.
#define RN_BPE_WORD_TOKENS 3
typedef struct rn_bpe_word {
    uint64_t a, b; // rn_vocab_key
    uint32_t ids[RN_BPE_WORD_TOKENS];
    uint8_t bytes, count; // bytes 0: an empty place
} rn_bpe_word;
typedef struct rn_bpe_scratch {
    rn_bpe_word *words; // (word_count), a power of two, by hash; the last one to come stays
    size_t word_count;
    rn_bpe_symbol *symbols; // (capacity)
    uint64_t *heap;         // (2 * capacity): rank << 32 | symbol
    size_t capacity;
} rn_bpe_scratch;
// Makes room for words, where so much text is worth it.
RN_MUST_USE rn_status rn_bpe_scratch_prepare(const rn_bpe *bpe, rn_bpe_scratch *scratch,
                                             size_t text_bytes);
void rn_bpe_scratch_free(const rn_bpe *bpe, rn_bpe_scratch *scratch);

// After the vocabulary is sealed, the switches above are set and the merges are filled: finds the
// bytes' tokens and makes `whole`.
RN_MUST_USE rn_status rn_bpe_finish(rn_bpe *bpe);
void rn_bpe_free(rn_bpe *bpe);

// Appends the word's tokens. May be called from several threads.
RN_MUST_USE rn_status rn_bpe_encode(const rn_bpe *bpe, rn_str word, rn_bpe_scratch *scratch,
                                    rn_tokens *out);

#endif
