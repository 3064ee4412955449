// sampler_scan.c — lanes side by side where all logits are touched, a heap where only some are.
//
// The exponential is our own: a polynomial on [-ln2/2, ln2/2] and a shift of the exponent (as
// Cephes' expf, about 1e-7 relative), so that a sum over 128k logits takes 0.2 ms (one core, SSE2).
#include "text/sampler_scan.h"

#include "base/checked.h"

#include <math.h>
#include <string.h>

enum { LANES = 4, CHAINS = 4, BLOCK = 1024, PIECE = 256 };

typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

static floats load(const float *from) {
    floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

static floats blend(ints mask, floats yes, floats no) {
    return (floats)(((ints)yes & mask) | ((ints)no & ~mask));
}

// The last, incomplete lanes, filled up with what changes neither the largest nor a sum.
static void fill_rest(const float *logits, size_t count, size_t lanes, float *rest) {
    for (size_t i = 0; i < lanes; i++)
        rest[i] = i < count ? logits[i] : -INFINITY;
}

// ---- the largest --------------------------------------------------------------------------------

// In chains that do not wait for each other's comparisons: one alone takes three times as long.
typedef struct largest {
    floats value[CHAINS];
    ints nan; // all ones in a lane that saw one
} largest;

static inline void look_at(largest *p, const float *logits) {
    for (int i = 0; i < CHAINS; i++) {
        floats x = load(logits + i * LANES);
        p->value[i] = blend(x > p->value[i], x, p->value[i]);
        p->nan |= x != x;
    }
}

// The largest of at most BLOCK logits.
static float find_in_block(const float *logits, size_t count, bool *nan) {
    enum { STEP = CHAINS * LANES };
    float rest[STEP], value = -INFINITY;
    size_t whole = count / STEP * STEP;
    largest p = {.nan = {0}};
    for (int i = 0; i < CHAINS; i++)
        p.value[i] = (floats){0} - INFINITY;
    for (size_t i = 0; i < whole; i += STEP)
        look_at(&p, logits + i);
    fill_rest(logits + whole, count - whole, STEP, rest);
    look_at(&p, rest);
    for (int i = 0; i < STEP; i++)
        if (p.value[i / LANES][i % LANES] > value) value = p.value[i / LANES][i % LANES];
    for (int i = 0; i < LANES; i++)
        *nan |= p.nan[i] != 0;
    return value;
}

rn_logits_peak rn_logits_find_peak(const float *logits, size_t count) {
    rn_logits_peak best = {.value = -INFINITY};
    size_t at = 0; // of the first block that has the largest
    for (size_t i = 0; i < count; i += BLOCK) {
        float value = find_in_block(logits + i, rn_min_u64(BLOCK, count - i), &best.has_nan);
        if (value > best.value) {
            best.value = value;
            at = i;
        }
    }
    while (!best.has_nan && logits[at] != best.value)
        at++;
    best.token = (uint32_t)at;
    return best;
}

// ---- softmax ------------------------------------------------------------------------------------

// exp(x) for x <= 0.
static floats exponential(floats x) {
    const floats shift = (floats){0} + 0x1.8p23f; // rounds to whole numbers
    floats n = x * 1.44269504f + shift;
    words power = (words)n - (words)shift; // the whole number, from the low bits
    n -= shift;
    floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
    floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    floats scale = (floats)((power + 127u) << 23);
    return (floats)((ints)(y * scale) & (x > -87.0f));
}

static floats weigh_lanes(const float *logits, float peak, float scale, float *weights) {
    floats y = exponential((load(logits) - peak) * scale);
    if (weights) memcpy(weights, &y, sizeof y);
    return y;
}

// At most PIECE logits: few enough that a sum in floats is as good as its terms.
static double weigh_piece(const float *logits, size_t count, float peak, float scale,
                          float *weights) {
    float rest[LANES], last[LANES];
    size_t whole = count / LANES * LANES;
    floats sums = {0};
    double sum = 0;
    for (size_t i = 0; i < whole; i += LANES)
        sums += weigh_lanes(logits + i, peak, scale, weights ? weights + i : NULL);
    if (whole < count) {
        fill_rest(logits + whole, count - whole, LANES, rest);
        sums += weigh_lanes(rest, peak, scale, last);
        if (weights) memcpy(weights + whole, last, (count - whole) * sizeof *last);
    }
    for (int i = 0; i < LANES; i++)
        sum += (double)sums[i];
    return sum;
}

double rn_logits_weigh(const float *logits, size_t count, float peak, float scale, float *weights) {
    double sum = 0;
    for (size_t i = 0; i < count; i += PIECE)
        sum += weigh_piece(logits + i, rn_min_u64(PIECE, count - i), peak, scale,
                           weights ? weights + i : NULL);
    return sum;
}

// ---- the k best ---------------------------------------------------------------------------------

static bool is_worse(const rn_candidate_token *a, const rn_candidate_token *b) {
    return a->value < b->value || (a->value == b->value && a->token > b->token);
}

// A heap with the worst on top: `item` finds its place from the top down.
static void sift(rn_candidate_token *heap, size_t count, rn_candidate_token item, size_t at) {
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_worse(&heap[child + 1], &heap[child])) child++;
        if (!is_worse(&heap[child], &item)) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

// Nearly every logit is refused by one comparison with the worst of the best so far. Then the worst
// goes to the end, again and again.
void rn_logits_select(const float *logits, size_t count, size_t k, rn_candidate_token *out) {
    for (size_t i = 0; i < k; i++)
        out[i] = (rn_candidate_token){(uint32_t)i, logits[i]};
    for (size_t i = k / 2; i-- > 0;)
        sift(out, k, out[i], i);
    for (size_t i = k; k && i < count; i++)
        if (logits[i] > out[0].value) sift(out, k, (rn_candidate_token){(uint32_t)i, logits[i]}, 0);
    for (size_t left = k; left > 1; left--) {
        rn_candidate_token worst = out[0], last = out[left - 1];
        sift(out, left - 1, last, 0);
        out[left - 1] = worst;
    }
}
