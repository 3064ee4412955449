// token_masks.h — which tokens of a vocabulary may come next, as bits, for states of a JSON
// machine.
//
// All tokens are walked in order of their bytes, so that what two have in common is walked once:
//
//     "    "a    "ab    "b         state behind " ─▶ behind "a ─▶ behind "ab;  then back to " for
//     "b
//
// Where one byte is refused, all that begin so are passed over. Inside of strings nearly every
// token is allowed: those that are nothing but characters of a string are known beforehand, and
// only the others are walked. Masks are kept for the next time that a state is met: by the same
// text, or by another request with the same schema.
//
// rn_vocabulary_create takes all the memory that will ever be needed; the tokens are sorted when a
// mask is first asked for.
#ifndef RN_TEXT_TOKEN_MASKS_H
#define RN_TEXT_TOKEN_MASKS_H

#include "text/constraint/json_machine.h"

#include <ration/constraint.h>

// Words of a mask: a bit for each token.
size_t rn_token_masks_words(const rn_vocabulary *vocabulary);
// Fills `out` (words). False: no token may come.
bool rn_token_masks_fill(rn_vocabulary *vocabulary, rn_json_machine *machine,
                         const rn_json_state *state, uint32_t *out);
// Goes on behind a token. False: it may not come.
bool rn_token_masks_advance(const rn_vocabulary *vocabulary, rn_json_machine *machine,
                            rn_json_state *state, uint32_t token);

#endif
