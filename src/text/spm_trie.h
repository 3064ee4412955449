// spm_trie.h — texts to ids, walked byte by byte: all the texts that begin at a place in one pass.
//
// A double array: the child of `node` by a byte is the unit base ^ byte, if that names `node` as
// its parent. Units come in blocks of 256, so that a step never leaves the array.
#ifndef RN_TEXT_SPM_TRIE_H
#define RN_TEXT_SPM_TRIE_H

#include "base/alloc.h"

#include <ration/tokenizer.h>

typedef struct rn_spm_unit {
    uint32_t base;
    uint32_t parent;
    uint32_t id; // of the text that ends here, or RN_NO_TOKEN
    union {      // of that text, for whoever builds on the trie
        uint32_t rank;
        float weight;
    };
} rn_spm_unit;

typedef struct rn_spm_trie {
    const rn_allocator *from;
    rn_spm_unit *units; // (capacity); [0] is the root
    size_t count, capacity;
} rn_spm_trie;

typedef struct rn_spm_key {
    rn_str text;
    uint32_t id;
    uint64_t head; // set by the build: the first bytes, as they order
} rn_spm_key;

#define RN_SPM_ROOT    0u
#define RN_SPM_NOWHERE UINT32_MAX

// Sorts the keys, which may be empty in number, not in text. RN_CORRUPT: a text twice.
// On failure there is nothing to free.
RN_MUST_USE rn_status rn_spm_trie_build(rn_spm_trie *trie, const rn_allocator *from,
                                        rn_spm_key *keys, size_t count);
void rn_spm_trie_free(rn_spm_trie *trie);

// Whether a text ends at this unit; false for units that are free.
static inline bool rn_spm_trie_is_text(const rn_spm_unit *unit) {
    return unit->id != RN_NO_TOKEN && unit->parent != RN_SPM_NOWHERE;
}
static inline uint32_t rn_spm_trie_step(const rn_spm_trie *trie, uint32_t node, char byte) {
    uint32_t next = trie->units[node].base ^ (unsigned char)byte;
    return trie->units[next].parent == node ? next : RN_SPM_NOWHERE;
}
// The node after all of `text`, or RN_SPM_NOWHERE.
static inline uint32_t rn_spm_trie_walk(const rn_spm_trie *trie, uint32_t node, const char *text,
                                        size_t bytes) {
    for (size_t i = 0; i < bytes && node != RN_SPM_NOWHERE; i++)
        node = rn_spm_trie_step(trie, node, text[i]);
    return node;
}
// The id of exactly this text, or RN_NO_TOKEN.
uint32_t rn_spm_trie_find(const rn_spm_trie *trie, rn_str text);
// Length of the longest text of the trie that stands at text[0], or 0.
size_t rn_spm_trie_longest(const rn_spm_trie *trie, const char *text, size_t bytes);

#endif
