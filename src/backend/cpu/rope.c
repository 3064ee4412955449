// rope.c — turns the pairs of each head by the angles of its token's position.
//
// Angles, and the sines and cosines of them, are in double and cost more than the turning itself.
// So a thread makes them once for all heads of a token, and keeps them while the tokens of the
// other sequences of the batch stand at the same position.
//
// As the turning sees them, y = x * cosines + (x with its pairs swapped) * sines:
//
//     halves      cosines c0 c1 .. | c0 c1 ..      sines -s0 -s1 .. | s0 s1 ..
//     neighbours  cosines c0 c0 c1 c1 ..           sines -s0 s0 -s1 s1 ..
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/rope_frequencies.h"

#include <math.h>
#include <string.h>

enum { TASK_TOKENS = 8 };

typedef struct rotation {
    const rn_call *call;
    uint64_t tokens, batches; // of a sequence; sequences
    uint64_t heads, head_dim, dims;
    const double *frequencies; // (dims / 2)
    double factor;
} rotation;

// Workspace: frequencies, and for each thread (dims) cosines and (dims) sines.
static uint64_t frequency_bytes(uint64_t dims) {
    return rn_round_up(dims / 2 * sizeof(double), 64);
}

static uint64_t slot_bytes(uint64_t dims) {
    return rn_round_up(2 * dims * sizeof(float), 64);
}

uint64_t rn_cpu_rope_workspace(const rn_call *call) {
    rn_shape x = call->inputs[0].shape;
    uint64_t dims = rn_rope_dims(call->attrs, x.dims[x.rank - 1]);
    return frequency_bytes(dims) + call->threads * slot_bytes(dims);
}

static void find_angles(const rotation *r, uint64_t token, float *cosines, float *sines) {
    const rn_rope_attrs *a = r->call->attrs;
    bool halves = a->pairing == RN_ROPE_HALVES;
    rn_rope_places places = rn_rope_places_of(a, r->call->inputs[1].data, token);
    for (uint64_t i = 0; i < r->dims / 2; i++) {
        uint64_t first = halves ? i : 2 * i, second = halves ? i + r->dims / 2 : 2 * i + 1;
        double angle = rn_rope_place(&places, i) * r->frequencies[i];
        float sine = (float)(sin(angle) * r->factor);
        if (a->inverse) sine = -sine;
        cosines[first] = cosines[second] = (float)(cos(angle) * r->factor);
        sines[first] = -sine;
        sines[second] = sine;
    }
}

// Whether two tokens stand at the same positions.
static bool stands_as(const rotation *r, uint64_t a, uint64_t b) {
    const int32_t *positions = r->call->inputs[1].data; // (batches, tokens, each)
    uint32_t sections = rn_rope_section_count(r->call->attrs), each = sections ? sections : 1;
    return memcmp(positions + a * each, positions + b * each, each * sizeof *positions) == 0;
}

static void turn_token(const rotation *r, uint64_t token, const float *cosines,
                       const float *sines) {
    const rn_spans *s = rn_spans_get();
    const rn_rope_attrs *a = r->call->attrs;
    uint64_t at = token * r->heads * r->head_dim;
    const float *x = (const float *)r->call->inputs[0].data + at; // (heads, head_dim)
    float *y = (float *)r->call->outputs[0].data + at;
    for (uint64_t h = 0; h < r->heads; h++, x += r->head_dim, y += r->head_dim) {
        if (a->pairing == RN_ROPE_HALVES)
            s->turn_halves(x, cosines, sines, y, r->dims / 2);
        else
            s->turn_neighbours(x, cosines, sines, y, r->dims);
        if (x != y) memcpy(y + r->dims, x + r->dims, (r->head_dim - r->dims) * sizeof *y);
    }
}

// A few tokens of every sequence.
static void turn_some(void *arg, uint32_t slot, size_t index) {
    const rotation *r = arg;
    float *cosines = (float *)((char *)r->call->workspace + frequency_bytes(r->dims) +
                               slot * slot_bytes(r->dims));
    uint64_t end = rn_min_u64((index + 1) * TASK_TOKENS, r->tokens);
    for (uint64_t t = index * TASK_TOKENS; t < end; t++)
        for (uint64_t b = 0; b < r->batches; b++) {
            uint64_t token = b * r->tokens + t;
            if (b == 0 || !stands_as(r, token, token - r->tokens))
                find_angles(r, token, cosines, cosines + r->dims);
            turn_token(r, token, cosines, cosines + r->dims);
        }
}

rn_status rn_cpu_rope(const rn_call *call) {
    rn_shape x = call->inputs[0].shape;
    rotation r = {.call = call,
                  .tokens = x.rank > 2 ? x.dims[x.rank - 3] : 1,
                  .heads = x.dims[x.rank - 2],
                  .head_dim = x.dims[x.rank - 1],
                  .frequencies = call->workspace};
    if (r.tokens == 0) return RN_OK;
    r.batches = rn_tensor_elements(&call->inputs[0]) / (r.tokens * r.heads * r.head_dim);
    r.dims = rn_rope_dims(call->attrs, r.head_dim);
    rn_rope_frequencies(call->attrs, r.head_dim, call->workspace, &r.factor);
    if (call->input_count > 2) rn_rope_divide(&call->inputs[2], r.dims, call->workspace);
    rn_share(call, rn_div_up(r.tokens, TASK_TOKENS), turn_some, &r);
    return RN_OK;
}
