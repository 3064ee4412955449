// added_tokens.h — tokens that are found in the text itself, before anything is cut.
#ifndef RN_TEXT_ADDED_TOKENS_H
#define RN_TEXT_ADDED_TOKENS_H

#include "base/str.h"
#include "base/alloc.h"
#include "text/taint.h"

typedef struct rn_added_token {
    rn_str content; // borrowed
    uint32_t id;
    bool special;        // found only where the caller allows special tokens
    bool lstrip, rstrip; // takes the white space at its side, too
    bool single_word;    // not within a word
    bool normalized;     // looked for in normalised text
} rn_added_token;

// Sorted by content; filled by rn_added_add, then rn_added_seal.
typedef struct rn_added {
    const rn_allocator *from;
    rn_added_token *tokens; // (count), room for capacity
    size_t count, capacity;
    bool begins[256];  // some content begins with this byte
    bool any_ordinary; // one is not special
    bool any_special;
} rn_added;

RN_MUST_USE rn_status rn_added_add(rn_added *added, rn_added_token token);
RN_MUST_USE rn_status rn_added_seal(rn_added *added);
void rn_added_free(rn_added *added);
// The token with this content, or NULL.
const rn_added_token *rn_added_get(const rn_added *added, rn_str content);

typedef struct rn_added_match {
    const rn_added_token *token; // NULL: none
    size_t start, end;           // in the text, stripped white space included
} rn_added_match;
// The leftmost, there the longest, at `at` or behind it. Special tokens are found where `special`,
// and none of their bytes is tainted; an ordinary token that is partly tainted does not take a
// piece of one ("<" of a message and "<|im_end|>" of the template are no "<<").
rn_added_match rn_added_find(const rn_added *added, rn_str text, rn_taint taint, size_t at,
                             bool special);

#endif
