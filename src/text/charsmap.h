// charsmap.h — SentencePiece's precompiled replacements: the longest rule that stands at a place
// gives the text that stands there instead.
//
//     bytes of the trie (u32) | trie: darts-clone units (u32 each) | replacements, each NUL-ended
#ifndef RN_TEXT_CHARSMAP_H
#define RN_TEXT_CHARSMAP_H

#include "base/alloc.h"

#include <ration/text.h>

typedef struct rn_charsmap {
    const rn_allocator *from;
    char *blob; // (bytes + 1): as it was given, and a NUL
    size_t bytes;
    size_t unit_count;
    bool starts[256];       // bytes that a rule can begin with
    bool starts_ascii[256]; // ... one of this byte alone, or with ASCII after it
} rn_charsmap;

#define RN_CHARSMAP_LONGEST 1024 // bytes of a replacement; Unicode's longest has 33

// Copies and checks everything, so that lookups need no checks. {0}: an empty map. RN_CORRUPT says
// what is wrong; RN_UNSUPPORTED: a replacement is too long. On failure there is nothing to free.
RN_MUST_USE rn_status rn_charsmap_init(rn_charsmap *map, const rn_allocator *from, rn_str blob);
void rn_charsmap_free(rn_charsmap *map);
// Bytes of the longest rule at text[0] and what to put there (maybe nothing); 0: no rule.
size_t rn_charsmap_find(const rn_charsmap *map, rn_str text, rn_str *out);

#endif
