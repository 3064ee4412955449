// figures.h — a row a figure: results are written, read and listed by the same tables.
#ifndef RN_BENCH_FIGURES_H
#define RN_BENCH_FIGURES_H

#include <ration/bench.h>

typedef enum rn_figure_kind {
    RN_FIGURE_TEXT,
    RN_FIGURE_COUNT,
    RN_FIGURE_SIGNED,
    RN_FIGURE_REAL,
    RN_FIGURE_REALS,
    RN_FIGURE_FLAG,
    RN_FIGURE_OUTCOME
} rn_figure_kind;

typedef struct rn_figure {
    const char *object; // of the result: "latency"; NULL: the result itself
    const char *key;
    rn_figure_kind kind;
    size_t offset, bytes; // in the struct
} rn_figure;

typedef struct rn_figures {
    const rn_figure *rows; // (count); those of one object stand together
    size_t count;
} rn_figures;

extern const rn_figures rn_figures_of_result; // rn_bench_result
extern const rn_figures rn_figures_of_run;    // rn_bench_results
extern const rn_figures rn_figures_of_text;   // rn_bench_text

// Unknown, all of them.
void rn_figures_clear(const rn_figures *figures, void *base);

#endif
