// pace.h — how many rows of prompts a step may have beside running answers, by measured time.
//
// Whoever reads a running answer waits for a whole step, so a step with prompt rows must not take
// longer than the longest gap between two tokens that was asked for:
//
//     |── a step of tokens only ──|── prompt rows × time of a row ──| margin |
//     0                                                                     gap
//
// Both times are learnt from the steps themselves. A row that took longer than expected counts more
// than one that took less: a chunk that is too long is seen by everybody, one that is too short
// only by the prompt. Prompts get an eighth of the gap in any case, so they go on; where the first
// part alone is longer than the gap (weights are streamed, many answers at once), half of that
// part.
#ifndef RN_GENERATE_PACE_H
#define RN_GENERATE_PACE_H

#include <stdint.h>

// {.gap_ns = n} begins; a gap of 0 limits nothing.
typedef struct rn_pace {
    uint64_t gap_ns;
    double token_ns; // of a step of tokens only; 0: none was measured
    double row_ns;   // that a prompt row adds to a step; 0: none was measured
} rn_pace;

// A step with so many rows of prompts took so long.
void rn_pace_learn(rn_pace *pace, uint32_t prompt_rows, uint64_t step_ns);
// Rows of prompts that keep the next step within the gap: at least 1. UINT32_MAX: no limit, or
// nothing is known yet.
uint32_t rn_pace_rows(const rn_pace *pace);

#endif
