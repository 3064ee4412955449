// tensor_trace.h — allocations and frees shaped like those of a transformer, the same every time.
//
// Made, not recorded. A model of 8 layers is trained and serves requests by turns, each step with
// another sequence length (log-uniform, so sizes repeat within a step and differ between steps).
// Weights and optimiser state live long, activations are freed in reverse, gradients at the end of
// the step, and each token of a request replaces its keys and values by longer ones. Blocks are of
// 128 B to 64 MiB.
#ifndef RN_BENCH_TENSOR_TRACE_H
#define RN_BENCH_TENSOR_TRACE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct op {
    uint32_t slot;
    uint32_t bytes; // 0: free
} op;

typedef struct trace {
    op *ops; // (capacity)
    size_t count, capacity;
    uint32_t *idle, idle_count, slot_count; // slots to use again
    uint32_t *sizes;                        // by slot
    uint64_t live_bytes, peak_bytes, seed;
} trace;

enum { LAYERS = 8, WIDTH = 512, HEADS = 8, VOCAB = 8192, MAX_LENGTH = 1448, SESSIONS = 6 };
enum { MAX_SLOTS = 1 << 16 };

static double uniform(trace *t) { // xorshift64*
    t->seed ^= t->seed >> 12, t->seed ^= t->seed << 25, t->seed ^= t->seed >> 27;
    return (double)((t->seed * 0x2545f4914f6cdd1dull) >> 11) * 0x1p-53;
}

static uint32_t pick_length(trace *t, double low, double high) {
    return (uint32_t)(low * exp(uniform(t) * log(high / low)));
}

static void push(trace *t, uint32_t slot, uint32_t bytes) {
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? t->capacity * 2 : 4096;
        t->ops = realloc(t->ops, t->capacity * sizeof(op));
    }
    t->ops[t->count++] = (op){slot, bytes};
}

static uint32_t take(trace *t, uint64_t floats) {
    uint32_t slot = t->idle_count ? t->idle[--t->idle_count] : t->slot_count++;
    t->sizes[slot] = (uint32_t)(floats * 4);
    t->live_bytes += t->sizes[slot];
    if (t->live_bytes > t->peak_bytes) t->peak_bytes = t->live_bytes;
    push(t, slot, t->sizes[slot]);
    return slot;
}

static void drop(trace *t, uint32_t slot) {
    t->live_bytes -= t->sizes[slot];
    t->idle[t->idle_count++] = slot;
    push(t, slot, 0);
}

// Weights of a layer in floats: norm, qkv, projection, norm, up, down.
enum { SQUARE = WIDTH * WIDTH, WEIGHTS = 6 };
static const uint32_t weight_floats[WEIGHTS] = {WIDTH, 3 * SQUARE, SQUARE,
                                                WIDTH, 4 * SQUARE, 4 * SQUARE};

static void take_weights(trace *t, uint32_t *out) { // (LAYERS * WEIGHTS + 1)
    for (int i = 0; i < LAYERS * WEIGHTS; i++)
        out[i] = take(t, weight_floats[i % WEIGHTS]);
    out[LAYERS * WEIGHTS] = take(t, VOCAB * WIDTH);
}

static void drop_all(trace *t, const uint32_t *slots, int count) {
    for (int i = 0; i < count; i++)
        drop(t, slots[i]);
}

// What a layer's forward pass keeps for the backward pass, in the order it is made. Temporaries
// come and go between.
enum { SAVED = 11 };
static void layer_forward(trace *t, uint64_t length, uint32_t *saved) {
    uint64_t act = length * WIDTH, scores = length * length * HEADS;
    int n = 0;
    saved[n++] = take(t, length); // mean, then 1/deviation
    saved[n++] = take(t, length);
    saved[n++] = take(t, act);     // norm
    saved[n++] = take(t, 3 * act); // qkv
    uint32_t raw = take(t, scores);
    saved[n++] = take(t, scores); // softmax
    drop(t, raw);
    saved[n++] = take(t, act); // context
    uint32_t projected = take(t, act);
    saved[n++] = take(t, act); // residual
    drop(t, projected);
    saved[n++] = take(t, act);     // norm
    saved[n++] = take(t, 4 * act); // up
    saved[n++] = take(t, 4 * act); // gelu
    uint32_t down = take(t, act);
    saved[n++] = take(t, act); // residual
    drop(t, down);
}

// Frees what was saved in reverse; each step makes the gradient of its input and drops that of its
// output.
static void layer_backward(trace *t, const uint32_t *saved, uint32_t *flow, uint32_t *gradients) {
    static const int weight_of[SAVED] = {-1, -1, 0, 1, -1, 2, -1, 3, 4, -1, 5};
    for (int i = SAVED; i-- > 0;) {
        uint32_t gradient = take(t, t->sizes[saved[i]] / 4);
        if (weight_of[i] >= 0) gradients[weight_of[i]] = take(t, weight_floats[weight_of[i]]);
        drop(t, *flow);
        drop(t, saved[i]);
        *flow = gradient;
    }
}

// moments: 2 * (LAYERS * WEIGHTS + 1), or none yet.
static void train_step(trace *t, uint32_t *moments) {
    uint64_t length = pick_length(t, 32, MAX_LENGTH);
    uint32_t saved[LAYERS][SAVED], gradients[LAYERS * WEIGHTS + 1];
    uint32_t embedded = take(t, length * WIDTH);
    for (int l = 0; l < LAYERS; l++)
        layer_forward(t, length, saved[l]);
    uint32_t logits = take(t, length * VOCAB), loss = take(t, 256);
    uint32_t flow = take(t, length * VOCAB);
    drop(t, logits);
    for (int l = LAYERS; l-- > 0;)
        layer_backward(t, saved[l], &flow, &gradients[l * WEIGHTS]);
    gradients[LAYERS * WEIGHTS] = take(t, VOCAB * WIDTH);
    drop(t, flow), drop(t, embedded), drop(t, loss);
    if (moments[0] == UINT32_MAX) {
        take_weights(t, moments);
        take_weights(t, moments + LAYERS * WEIGHTS + 1);
    }
    for (int i = 0; i <= LAYERS * WEIGHTS; i++) // update = m / (sqrt(v) + eps)
        drop(t, take(t, t->sizes[moments[i]] / 4));
    drop_all(t, gradients, LAYERS * WEIGHTS + 1);
}

typedef struct session {
    uint64_t length, end;
    uint32_t cache[LAYERS * 2]; // keys and values
} session;

static void serve_step(trace *t, session *s) { // the prompt first, then a token a call
    uint64_t fresh = s->length ? 1 : pick_length(t, 16, MAX_LENGTH / 2), act = fresh * WIDTH;
    uint64_t length = s->length + fresh;
    if (!s->length) s->end = length + pick_length(t, 4, 200);
    for (int l = 0; l < LAYERS; l++) {
        uint32_t norm = take(t, act), qkv = take(t, 3 * act);
        for (int i = 0; i < 2; i++) { // the longer one is made before the old one goes
            uint32_t longer = take(t, length * WIDTH);
            if (s->length) drop(t, s->cache[2 * l + i]);
            s->cache[2 * l + i] = longer;
        }
        uint32_t scores = take(t, fresh * length * HEADS), context = take(t, act);
        drop(t, scores), drop(t, qkv), drop(t, norm);
        uint32_t up = take(t, 4 * act), gelu = take(t, 4 * act);
        drop(t, up);
        uint32_t down = take(t, act);
        drop(t, gelu), drop(t, context), drop(t, down);
    }
    drop(t, take(t, VOCAB));
    s->length = length;
    if (length < s->end) return;
    drop_all(t, s->cache, LAYERS * 2);
    s->length = 0;
}

static void make_trace(trace *t, size_t operations, uint64_t seed) { // seed > 0
    enum { COUNT = LAYERS * WEIGHTS + 1 };
    uint32_t weights[COUNT], moments[2 * COUNT];
    session sessions[SESSIONS] = {{0}};
    *t = (trace){.seed = seed, .idle = calloc(MAX_SLOTS, 4), .sizes = calloc(MAX_SLOTS, 4)};
    moments[0] = UINT32_MAX;
    take_weights(t, weights);
    while (t->count < operations) {
        train_step(t, moments);
        for (int i = 0; i < 4; i++)
            serve_step(t, &sessions[(int)(uniform(t) * SESSIONS)]);
    }
    for (int i = 0; i < SESSIONS; i++)
        if (sessions[i].length) drop_all(t, sessions[i].cache, LAYERS * 2);
    drop_all(t, moments, 2 * COUNT);
    drop_all(t, weights, COUNT);
}

#endif
