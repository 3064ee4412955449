// ranks.h — by how much one set of figures is above another, from their order alone.
//
// Nothing is assumed of how the figures are distributed, and a few that are far off count no more
// than that they are: times of processes that others disturb have a long tail to one side.
#ifndef RN_BENCH_RANKS_H
#define RN_BENCH_RANKS_H

#include "bench/samples.h"

enum { RN_RANKS_MOST = RN_BENCH_PROCESSES }; // of a set

// Of `count` figures, at least one, which are put in order.
double rn_median(double *figures /* (count) */, size_t count);

// The number k such that the interval from the k-th smallest to the k-th largest of all n * m
// differences between two sets has at least that confidence: Mann and Whitney's U is below k with
// at most half of what is left, counted exactly. 0: so few figures have no such interval. n, m: at
// most RN_RANKS_MOST.
size_t rn_ranks_of_interval(size_t n, size_t m, double confidence);

// Hodges and Lehmann's estimate: the median of all differences after[j] - before[i]; with its
// confidence interval. False: there are too few for one, or too many.
bool rn_ranks_shift(const double *before /* (n) */, size_t n, const double *after /* (m) */,
                    size_t m, double confidence, double *out_shift, rn_interval *out_interval);

// The same of n pairs, by Wilcoxon's sum of signed ranks: of the n * (n + 1) / 2 means of two
// differences (each with itself, too), the k-th smallest and the k-th largest; their median.
size_t rn_ranks_of_pairs(size_t n, double confidence);
bool rn_ranks_pairs(const double *differences /* (n) */, size_t n, double confidence,
                    double *out_shift, rn_interval *out_interval);

#endif
