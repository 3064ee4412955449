// speculate.h — drafts of the next tokens from the text itself: what followed when its last few
// tokens stood there before. Pure functions; whether a draft was right, the model says.
#ifndef RN_MODEL_SPECULATE_H
#define RN_MODEL_SPECULATE_H

#include <stddef.h>
#include <stdint.h>

// Looks for the last earlier occurrence of the last 3 tokens (then 2) and writes what followed it
// to tokens[count ...], at most `most`; where that runs into the end of the text, the draft repeats
// itself. Returns how many: 0 or most.
uint32_t rn_draft_find(uint32_t *tokens /* (count + most) */, size_t count, uint32_t most);

// How many to draft next time, at most `most`: twice as many where all were right, else one more
// than were.
uint32_t rn_draft_adapt(uint32_t length, uint32_t drafted, uint32_t accepted, uint32_t most);

#endif
