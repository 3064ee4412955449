// pace.c — see pace.h.
#include "generate/pace.h"

enum {
    MARGIN = 8,   // 1/8 of the gap is left for what no step's time foretells
    LEAST = 8,    // 1/8 of the gap is for prompts in any case
    SETTLING = 4, // a quarter of the way to a measured value, where it is better than expected
    ALARM = 2     // ... half of it, where it is worse
};

// Towards what was measured, faster where that is worse; the first counts as it is.
static double follow(double known, double measured) {
    if (known <= 0) return measured;
    return known + (measured - known) / (measured >= known ? ALARM : SETTLING);
}

void rn_pace_learn(rn_pace *pace, uint32_t prompt_rows, uint64_t step_ns) {
    double ns = (double)step_ns;
    if (prompt_rows == 0) {
        // Steps of tokens differ by how many answers run: the mean of the last few will do.
        pace->token_ns += (ns - pace->token_ns) / (pace->token_ns > 0 ? SETTLING : 1);
        return;
    }
    double rest = ns - pace->token_ns;
    // A short chunk whose step was hardly longer than one without says little; never that rows are
    // free.
    double row = (rest > ns / MARGIN ? rest : ns / MARGIN) / prompt_rows;
    pace->row_ns = follow(pace->row_ns, row);
}

uint32_t rn_pace_rows(const rn_pace *pace) {
    if (pace->gap_ns == 0 || pace->row_ns <= 0) return UINT32_MAX;
    double gap = (double)pace->gap_ns, least = gap / LEAST;
    double left = gap - gap / MARGIN - pace->token_ns;
    // No step keeps to it: then one with prompts takes half as long again as one without.
    if (pace->token_ns >= gap) left = pace->token_ns / 2;
    double rows = (left > least ? left : least) / pace->row_ns;
    if (rows < 1) return 1;
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}
