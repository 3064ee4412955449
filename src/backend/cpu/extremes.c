// extremes.c — the largest and the least f32 of rows: axes at the end are reduced, or all of them.
// Threads share out rows, or pieces of the one there is. Of equals the first counts, as in the
// reference: that is a matter of the sign of 0.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"

enum { PIECES = 64, PIECE = 16384 };

typedef struct rows {
    const float *x; // (count, n)
    float *y;       // (count)
    uint64_t n;
    float (*of)(const float *x, uint64_t n);
} rows;

static float one(const rows *r, const float *x, uint64_t n) {
    float found = r->of(x, n);
    for (uint64_t i = 0; found == 0 && i < n; i++)
        if (x[i] == 0) return x[i];
    return found;
}

static void reduce_row(void *arg, size_t index) {
    const rows *r = arg;
    r->y[index] = one(r, r->x + index * r->n, r->n);
}

// One row: its pieces are rows, but for the last one's length.
typedef struct pieces {
    rows row;
    uint64_t length;
    float found[PIECES];
} pieces;

static void reduce_piece(void *arg, size_t index) {
    pieces *p = arg;
    uint64_t first = index * p->length;
    p->found[index] = one(&p->row, p->row.x + first, rn_min_u64(p->length, p->row.n - first));
}

static void reduce_one(const rn_call *call, rows r) {
    pieces p = {.row = r, .length = rn_max_u64(PIECE, rn_div_up(r.n, PIECES))};
    uint64_t count = rn_div_up(r.n, p.length);
    rn_call_each(call, count, reduce_piece, &p);
    r.y[0] = one(&r, p.found, count);
}

// Elements of a row where the reduced axes are the last ones; 0 where they are not.
static uint64_t row_of(rn_shape shape, uint32_t axes) {
    uint64_t n = 1;
    uint32_t i = shape.rank;
    while (i > 0 && axes >> (i - 1) & 1)
        n *= shape.dims[--i];
    for (; i > 0; i--)
        if (axes >> (i - 1) & 1 && shape.dims[i - 1] != 1) return 0;
    return n;
}

static rn_status reduce(const rn_call *call, uint32_t axes,
                        float (*of)(const float *x, uint64_t n)) {
    uint64_t elements = rn_tensor_elements(&call->inputs[0]);
    rows r = {call->inputs[0].data, call->outputs[0].data, row_of(call->inputs[0].shape, axes), of};
    if (r.n == 0 || elements == 0) return rn_op_get(call->op)->reference(call);
    if (r.n == elements)
        reduce_one(call, r);
    else
        rn_call_each(call, elements / r.n, reduce_row, &r);
    return RN_OK;
}

rn_status rn_cpu_max(const rn_call *call) {
    return reduce(call, ((const rn_reduce_attrs *)call->attrs)->axes, rn_spans_get()->largest);
}

rn_status rn_cpu_reduce(const rn_call *call) {
    const rn_reduce_as_attrs *attrs = call->attrs;
    if (call->inputs[0].dtype == RN_DTYPE_F32 && attrs->function == RN_REDUCE_MIN)
        return reduce(call, attrs->over.axes, rn_spans_get()->least);
    return rn_op_get(call->op)->reference(call);
}
