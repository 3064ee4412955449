// matmul_widened.c — some rows of the weight at a time are widened into the workspace, by all
// threads, and multiplied from there.
//
// Where w is (K, N) its rows are k's: each block goes on with the sums of the one before. Where it
// is (N, K) they are columns of y.
#include "backend/cpu/matmul_widened.h"

#include "backend/cpu/gemm.h"
#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "tensor/panels.h"

enum { WIDENED_FLOATS = 1 << 18, LEAST_ROWS = 16 };

typedef struct widening {
    bool packed;
    rn_panels panels;
    rn_plain_matrix plain;
    const void *data;
    uint64_t first, cols;
    float *to; // (rows, cols)
} widening;

static rn_status read_weight(const rn_tensor *w, widening *out) {
    *out = (widening){
        .packed = w->layout == RN_LAYOUT_PANELS, .data = w->data, .cols = w->shape.dims[1]};
    if (!out->packed) return rn_plain_matrix_of(w, &out->plain);
    if (!rn_panels_of(w->dtype, w->shape.dims[0], w->shape.dims[1], &out->panels))
        return rn_fail(RN_UNSUPPORTED, "a weight %s of %s has no panels",
                       rn_shape_format(w->shape).text, rn_dtype_get(w->dtype)->name);
    return RN_OK;
}

static void widen_row(void *arg, size_t row) {
    const widening *w = arg;
    float *to = w->to + row * w->cols;
    if (w->packed)
        rn_panels_unpack_row(&w->panels, w->data, w->first + row, to);
    else
        (void)rn_plain_row(&w->plain, w->first + row, to);
}

// The product of one block of rows, for one x; all but where things are.
typedef struct product {
    rn_gemm gemm;
    size_t batches, rows; // rows of w at once
} product;

static product read_call(const rn_call *call) {
    const rn_matmul_attrs *a = call->attrs;
    const rn_shape *x = &call->inputs[0].shape, *w = &call->inputs[1].shape;
    uint64_t n = w->dims[a->transpose_w ? 1 : 0], k = w->dims[a->transpose_w ? 0 : 1];
    uint64_t fit = rn_max_u64(WIDENED_FLOATS / rn_max_u64(w->dims[1], 1), LEAST_ROWS);
    product p = {.batches = 1, .rows = rn_min_u64(w->dims[0], fit)};
    uint64_t m = x->dims[x->rank - (a->transpose_x ? 1 : 2)];
    for (uint32_t i = 0; i + 2 < x->rank; i++)
        p.batches *= x->dims[i];
    if (!a->transpose_x) m *= p.batches, p.batches = 1;
    p.gemm = (rn_gemm){.m = m,
                       .n = a->transpose_w ? n : p.rows,
                       .k = a->transpose_w ? p.rows : k,
                       .a = {NULL, a->transpose_x ? 1 : k, a->transpose_x ? m : 1},
                       .b = {NULL, a->transpose_w ? 1 : k, a->transpose_w ? n : 1},
                       .c_row = n};
    return p;
}

// Rows [first, first + count) of w are widened; they are k's or columns.
static void multiply_block(const rn_call *call, const product *p, const widening *w, size_t count,
                           void *workspace) {
    const rn_matmul_attrs *a = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0], *bias = &call->inputs[2];
    uint64_t k = call->inputs[1].shape.dims[a->transpose_w ? 0 : 1];
    rn_gemm g = p->gemm;
    bool biased = call->input_count > 2 && rn_tensor_given(bias);
    g.b.data = w->to;
    for (size_t batch = 0; batch < p->batches; batch++) {
        g.a.data = (const float *)x->data + batch * g.m * k;
        g.c = (float *)y->data + batch * g.m * g.c_row;
        g.bias = biased ? bias->data : NULL;
        if (a->transpose_w) {
            g.k = count;
            g.a.data += w->first * g.a.k_step;
            g.resume = w->first > 0;
            if (w->first + count < k) g.bias = NULL;
        } else {
            g.n = count;
            g.c += w->first;
            if (g.bias) g.bias += w->first;
        }
        rn_gemm_run(&g, call, workspace);
    }
}

rn_status rn_cpu_widened_matmul(const rn_call *call) {
    product p = read_call(call);
    uint64_t rows = call->inputs[1].shape.dims[0];
    widening w;
    RN_TRY(read_weight(&call->inputs[1], &w));
    w.to = call->workspace;
    char *rest = (char *)call->workspace + rn_round_up(p.rows * w.cols * sizeof(float), 64);
    for (; w.first < rows; w.first += p.rows) {
        size_t count = rn_min_u64(p.rows, rows - w.first);
        rn_call_each(call, count, widen_row, &w);
        multiply_block(call, &p, &w, count, rest);
    }
    return RN_OK;
}

uint64_t rn_cpu_widened_matmul_workspace(const rn_call *call) {
    product p = read_call(call);
    uint64_t floats = p.rows * call->inputs[1].shape.dims[1];
    return rn_round_up(floats * sizeof(float), 64) + rn_gemm_workspace(&p.gemm, call->threads);
}
