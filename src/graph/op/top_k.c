// top_k.c — the largest or smallest elements along an axis, in order, and where they lie.
//
// A heap of `count` places, the worst of them on top, and the axis once past it: O(length log
// count), in the places of the result.
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_top_k_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->axis));
    rn_shape x = s->in[0].shape;
    if (x.dims[attrs->axis] == RN_ROWS || attrs->count == 0 || attrs->count > x.dims[attrs->axis])
        return rn_shape_fail(s, "axis %u has no %llu elements", attrs->axis,
                             (unsigned long long)attrs->count);
    x.dims[attrs->axis] = attrs->count;
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = s->out[1].shape = x;
    s->out[1].dtype = RN_DTYPE_I64;
    return RN_OK;
}

// One line of elements, and the heap of its places.
typedef struct line {
    const rn_tensor *x;
    uint64_t at, step; // in elements
    int64_t *heap;     // (count), `heap_step` apart
    uint64_t heap_step, count;
    bool smallest;
} line;

#define BEFORE(field)                                                                              \
    do {                                                                                           \
        bool p_nan = p.field[0] != p.field[0], q_nan = q.field[0] != q.field[0];                   \
        if (p_nan != q_nan) return p_nan != l->smallest;                                           \
        if (!p_nan && p.field[0] != q.field[0]) return (p.field[0] < q.field[0]) == l->smallest;   \
        return a < b;                                                                              \
    } while (0)

// Whether place a of the axis comes before place b in the result.
static bool before(const line *l, int64_t a, int64_t b) {
    rn_numbers p, q;
    rn_numbers_load(l->x, l->at + (uint64_t)a * l->step, 1, 1, &p);
    rn_numbers_load(l->x, l->at + (uint64_t)b * l->step, 1, 1, &q);
    switch (rn_number_of(l->x->dtype)) {
    case RN_NUMBER_F32:
        BEFORE(f32);
    case RN_NUMBER_F64:
        BEFORE(f64);
    case RN_NUMBER_I64:
        BEFORE(i64);
    default:
        BEFORE(u64);
    }
}

// Lets the place at the top of the first `count` sink to where both below it come before it.
static void sink(const line *l, uint64_t top, uint64_t count) {
    for (uint64_t child; (child = 2 * top + 1) < count; top = child) {
        int64_t *a = &l->heap[child * l->heap_step], *up = &l->heap[top * l->heap_step];
        if (child + 1 < count && before(l, *a, a[l->heap_step])) a += l->heap_step, child++;
        if (!before(l, *up, *a)) return;
        int64_t swap = *up;
        *up = *a;
        *a = swap;
    }
}

static void choose(const line *l, uint64_t length) {
    for (uint64_t i = 0; i < l->count; i++)
        l->heap[i * l->heap_step] = (int64_t)i;
    for (uint64_t i = l->count / 2; i-- > 0;)
        sink(l, i, l->count);
    for (uint64_t i = l->count; i < length; i++)
        if (before(l, (int64_t)i, l->heap[0])) {
            l->heap[0] = (int64_t)i;
            sink(l, 0, l->count);
        }
    for (uint64_t end = l->count; end-- > 1;) { // the worst goes to the end, again and again
        int64_t worst = l->heap[0];
        l->heap[0] = l->heap[end * l->heap_step];
        l->heap[end * l->heap_step] = worst;
        sink(l, 0, end);
    }
}

static rn_status reference(const rn_call *call) {
    const rn_top_k_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_axis_cut cut = rn_axis_cut_of(x->shape, attrs->axis);
    uint64_t size = rn_element_bytes(x), count = attrs->count;
    int64_t *places = call->outputs[1].data; // (outer, count, inner)
    for (uint64_t o = 0; o < cut.outer; o++)
        for (uint64_t i = 0; i < cut.inner; i++) {
            uint64_t to = o * count * cut.inner + i;
            line l = {x,
                      o * cut.length * cut.inner + i,
                      cut.inner,
                      places + to,
                      cut.inner,
                      count,
                      attrs->smallest};
            choose(&l, cut.length);
            for (uint64_t k = 0; k < count; k++, to += cut.inner)
                memcpy((char *)y->data + to * size,
                       (const char *)x->data + (l.at + (uint64_t)places[to] * l.step) * size, size);
        }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_top_k_attrs *a = attrs;
    snprintf(out, bytes, "the %llu %s, axis %u", (unsigned long long)a->count,
             a->smallest ? "smallest" : "largest", a->axis);
}

extern const rn_op_info rn_top_k_op;
const rn_op_info rn_top_k_op = {
    .name = "top_k",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 2,
    .attrs_bytes = sizeof(rn_top_k_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_move_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_top_k(rn_graph *g, rn_value x, rn_top_k_attrs attrs) {
    return rn_graph_add(g, RN_OP_TOP_K, &x, 1, &attrs);
}
