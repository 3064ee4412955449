// samples.c — see samples.h: a fixed array, a fixed histogram; and when there are enough of them.
#include "bench/samples.h"

#include "base/alloc.h"
#include "memory/account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

rn_status rn_samples_create(rn_samples **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_samples), &block));
    *out = block;
    return RN_OK;
}

void rn_samples_destroy(rn_samples *samples) {
    rn_free(RN_HOST_OTHER, samples, sizeof *samples);
}

// ---- buckets ------------------------------------------------------------------------------------

static size_t bucket_of(double ns) {
    int exponent;
    double fraction = frexp(ns, &exponent); // [0.5, 1)
    if (exponent < 1) return 0;
    if (exponent > RN_SAMPLES_OCTAVES) return RN_SAMPLES_OCTAVES * RN_SAMPLES_STEPS - 1;
    return (size_t)(exponent - 1) * RN_SAMPLES_STEPS +
           (size_t)((fraction - 0.5) * 2 * RN_SAMPLES_STEPS);
}

static double middle_of(size_t bucket) {
    double begin = ldexp(1, (int)(bucket / RN_SAMPLES_STEPS));
    return begin * (1 + ((double)(bucket % RN_SAMPLES_STEPS) + 0.5) / RN_SAMPLES_STEPS);
}

void rn_samples_add(rn_samples *s, double ns) {
    if (!(ns > 0)) ns = 1e-3; // a clock that stood still
    if (s->count == 0 || ns < s->min) s->min = ns;
    if (s->count == 0 || ns > s->max) s->max = ns;
    double term = ns - s->lost, sum = s->sum + term;
    s->lost = (sum - s->sum) - term;
    s->sum = sum;
    s->count++;
    if (s->kept < RN_SAMPLES_EXACT) s->exact[s->kept++] = ns;
    uint32_t *bucket = &s->buckets[bucket_of(ns)];
    if (*bucket < UINT32_MAX) ++*bucket;
}

// ---- order --------------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The sample of rank 1 to count.
static double at_rank(rn_samples *s, uint64_t rank) {
    if (s->count == 0) return NAN;
    if (rank <= 1) return s->min;
    if (rank >= s->count) return s->max;
    if (s->count <= RN_SAMPLES_EXACT) {
        if (s->sorted != s->kept) qsort(s->exact, s->kept, sizeof *s->exact, compare);
        s->sorted = s->kept;
        return s->exact[rank - 1];
    }
    size_t bucket = 0;
    for (uint64_t below = s->buckets[0];
         below < rank && bucket + 1 < RN_SAMPLES_OCTAVES * RN_SAMPLES_STEPS;)
        below += s->buckets[++bucket];
    double middle = middle_of(bucket);
    return middle < s->min ? s->min : middle > s->max ? s->max : middle;
}

double rn_samples_quantile(rn_samples *s, double share) {
    return at_rank(s, (uint64_t)ceil(share * (double)s->count));
}

rn_interval rn_samples_median_interval(rn_samples *s) {
    double half = (double)s->count / 2, spread = 1.96 * sqrt((double)s->count) / 2;
    if (s->count < 6) return (rn_interval){at_rank(s, 1), at_rank(s, s->count)};
    double low = floor(half - spread), high = ceil(half + 1 + spread);
    return (rn_interval){at_rank(s, low < 1 ? 1 : (uint64_t)low), at_rank(s, (uint64_t)high)};
}

// Of 1 to 10 degrees; behind that the normal distribution's and what is left of the difference,
// within 0.05 of the true value.
static double student(const double few[10], double normal, double difference, uint64_t degrees) {
    if (degrees == 0) return INFINITY;
    return degrees <= 10 ? few[degrees - 1] : normal + difference / (double)degrees;
}

double rn_student_95(uint64_t degrees) {
    static const double few[10] = {12.706, 4.303, 3.182, 2.776, 2.571,
                                   2.447,  2.365, 2.306, 2.262, 2.228};
    return student(few, 1.960, 2.6, degrees);
}

double rn_student_999(uint64_t degrees) {
    static const double few[10] = {636.62, 31.599, 12.924, 8.610, 6.869,
                                   5.959,  5.408,  5.041,  4.781, 4.587};
    return student(few, 3.291, 12.5, degrees);
}

rn_interval rn_samples_of_processes(const double *logs, uint64_t n, double *out_between) {
    double mean = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++)
        mean += logs[i] / (double)n;
    for (uint64_t i = 0; i < n; i++)
        squares += (logs[i] - mean) * (logs[i] - mean);
    *out_between = sqrt(squares / (double)(n - 1));
    double margin = rn_student_95(n - 1) * *out_between / sqrt((double)n);
    return (rn_interval){exp(mean - margin), exp(mean + margin)};
}

bool rn_samples_is_narrow(rn_samples *s, double share) {
    rn_interval i = rn_samples_median_interval(s);
    return s->count >= 6 && i.high - i.low <= share * rn_samples_quantile(s, 0.5);
}

void rn_samples_summary(rn_samples *s, rn_bench_latency *out) {
    rn_interval median = rn_samples_median_interval(s);
    out->samples = s->count;
    if (s->count == 0) return;
    out->min_s = s->min * 1e-9;
    out->floors_s[0] = rn_samples_quantile(s, 0.05) * 1e-9;
    out->p50_s = rn_samples_quantile(s, 0.5) * 1e-9;
    out->p50_low_s = median.low * 1e-9;
    out->p50_high_s = median.high * 1e-9;
    out->p90_s = rn_samples_quantile(s, 0.9) * 1e-9;
    out->p99_s = rn_samples_quantile(s, 0.99) * 1e-9;
    out->max_s = s->max * 1e-9;
    out->total_s = s->sum * 1e-9;
    out->mean_s = out->total_s / (double)s->count;
}

// ---- when it is enough --------------------------------------------------------------------------

// Warm-up goes by windows of runs: once the best of a window is not 2 % below that of the one
// before, times no longer fall. It has a quarter of the samples' time at most, and a run at least.
enum { WINDOW = 4, LEAST_SAMPLES = 16, MOST_WARM_UP = 4096 };

void rn_sampling_begin(rn_sampling_state *state, const rn_sampling_rule *rule) {
    *state = (rn_sampling_state){.rule = *rule, .next_look = LEAST_SAMPLES};
}

static void warm_up(rn_sampling_state *w, double ns) {
    w->warm_up++;
    w->warm_ns += ns;
    bool begins = w->warm_up % WINDOW == 1;
    if (begins || ns < w->best) w->best = ns;
    bool ends = w->warm_up % WINDOW == 0;
    w->steady = ends && w->warm_up > WINDOW && w->best > 0.98 * w->last_best;
    if (ends) w->last_best = w->best;
    // Of very short runs a window says little: caches, clocks and predictors need their time.
    if (w->warm_ns < 0.02 * w->rule.seconds * 1e9 && w->warm_up < MOST_WARM_UP) w->steady = false;
    bool over = w->warm_ns >= 0.25 * w->rule.seconds * 1e9 || w->warm_up >= MOST_WARM_UP;
    w->measuring = w->steady || over;
}

bool rn_sampling_take(rn_sampling_state *state, rn_samples *samples, double ns) {
    if (!state->measuring) {
        warm_up(state, ns);
        return false;
    }
    rn_samples_add(samples, ns);
    state->spent_ns += ns;
    return true;
}

// The interval is looked at after 16 samples, 20, 25, 31 ...: sorting costs next to nothing. A
// tenth of the time is spent in any case: a moment's samples agree with each other, not with the
// next's.
bool rn_sampling_wants(rn_sampling_state *state, rn_samples *samples) {
    if (!state->measuring || samples->count == 0) return true;
    if (state->rule.samples) return samples->count < state->rule.samples;
    if (state->spent_ns >= state->rule.seconds * 1e9) return false;
    if (samples->count < state->next_look || state->spent_ns < state->rule.seconds * 1e8)
        return true;
    state->next_look = samples->count + samples->count / 4;
    return !rn_samples_is_narrow(samples, state->rule.interval);
}
