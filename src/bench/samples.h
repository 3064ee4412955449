// samples.h — times of runs, streamed: how much is held does not depend on how many there are.
//
//     rn_samples *samples;
//     RN_TRY(rn_samples_create(&samples));
//     rn_samples_add(samples, ns);
//     double p99 = rn_samples_quantile(samples, 0.99);
//     rn_samples_destroy(samples);
//
// Count, sum, smallest and largest are exact. The first 4096 samples are kept as they are, and
// while there are no more, quantiles are exact, too. Behind that they come from a histogram whose
// buckets are 1/512 of an octave's beginning wide, so that a bucket's middle is within 1/1024 of
// what fell into it.
#ifndef RN_BENCH_SAMPLES_H
#define RN_BENCH_SAMPLES_H

#include <ration/bench.h>

enum {
    RN_SAMPLES_EXACT = 4096,
    RN_SAMPLES_OCTAVES = 50, // 1 ns to 2^50 ns, 13 days
    RN_SAMPLES_STEPS = 512
};

typedef struct rn_samples {
    uint64_t count;
    double sum, lost; // lost: what rounding took from the sum (Kahan)
    double min, max;
    uint32_t kept, sorted; // of `exact`: filled; in order
    double exact[RN_SAMPLES_EXACT];
    uint32_t buckets[RN_SAMPLES_OCTAVES * RN_SAMPLES_STEPS];
} rn_samples;

RN_MUST_USE rn_status rn_samples_create(rn_samples **out);
void rn_samples_destroy(rn_samples *samples); // NULL-safe
// What is no number, or not above 0, counts as the smallest there is.
void rn_samples_add(rn_samples *samples, double ns);
// The sample of that rank: the smallest with a share of `share` at or below it. NAN: there are
// none.
double rn_samples_quantile(rn_samples *samples, double share);

typedef struct rn_interval {
    double low, high;
} rn_interval;
// 95 % confidence interval of the median by order statistics, which assumes nothing of how the
// times are distributed. Below 6 samples there is none of that confidence: smallest and largest.
rn_interval rn_samples_median_interval(rn_samples *samples);
// Student's for a mean of n values: two-sided, 95 % and 99.9 %, n - 1 degrees of freedom.
double rn_student_95(uint64_t degrees);
double rn_student_999(uint64_t degrees);
// 95 % confidence interval of what several processes measure, of the logarithms of their medians;
// with n = 2 and more. out_between: their standard deviation.
rn_interval rn_samples_of_processes(const double *logs /* (n) */, uint64_t n, double *out_between);
// Whether the median's interval is at most `share` of it wide.
bool rn_samples_is_narrow(rn_samples *samples, double share);
// All of it into a result, but for warm-up and loop_s.
void rn_samples_summary(rn_samples *samples, rn_bench_latency *out);

// ---- when it is enough --------------------------------------------------------------------------

// Decides, sample by sample, which runs are warm-up and which is the last.
typedef struct rn_sampling_rule {
    uint64_t samples; // so many; 0: until the interval is narrow, or the time is over
    double interval;  // share of the median
    double seconds;   // for the samples
} rn_sampling_rule;

typedef struct rn_sampling_state {
    rn_sampling_rule rule;
    bool measuring, steady; // warm-up is over; because times no longer fell
    uint64_t warm_up;
    double warm_ns;         // in all
    double best, last_best; // of this window of runs, of the one before
    double spent_ns;        // by samples
    uint64_t next_look;     // at the interval, at so many samples
} rn_sampling_state;

void rn_sampling_begin(rn_sampling_state *state, const rn_sampling_rule *rule);
// A run took so long: whether it counts, and was added.
bool rn_sampling_take(rn_sampling_state *state, rn_samples *samples, double ns);
// Whether another run is wanted.
bool rn_sampling_wants(rn_sampling_state *state, rn_samples *samples);

#endif
