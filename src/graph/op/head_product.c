// head_product.c — each head's rows by the head's own matrix: what latent attention does to queries
// and to what was attended.
//
//     w: | head 0 | head 1 | ... |   each (N, K), one behind the other
//     y[r, h] = x[r, h] wᵀ with rows [first, first + count) of head h's matrix, or, transposed,
//     y[r, h] = x[r, h] w  with the same rows
//
// What a product of a row is, is matmul's affair (op/matmul.c), whose transpose_w the latter is.
#include "graph/op/head_product.h"

#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "graph/quantized_product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { X, W, INPUTS };

// The sizes of a call: rows of a matrix, those that count, what goes in and what comes out.
typedef struct sizes {
    uint64_t record, count, in, out;
} sizes;

static bool find_sizes(const rn_head_product_attrs *a, rn_shape x, rn_shape w, sizes *out) {
    uint64_t heads = x.dims[1];
    if (heads == 0 || w.dims[0] % heads || a->first >= w.dims[0] / heads) return false;
    out->record = w.dims[0] / heads;
    out->count = a->count ? a->count : out->record - a->first;
    out->in = a->transposed ? out->count : w.dims[1];
    out->out = a->transposed ? w.dims[1] : out->count;
    return out->count <= out->record - a->first;
}

static rn_status shape(rn_shaping *s) {
    const rn_head_product_attrs *a = s->attrs;
    rn_shape x = s->in[X].shape, w = s->in[W].shape;
    rn_dtype dtype = s->in[W].dtype;
    sizes of;
    RN_TRY(rn_shape_want(s, X, RN_DTYPE_F32));
    if (!rn_plain_readable(dtype))
        return rn_shape_fail(s, "products with %s weights are not possible",
                             rn_dtype_get(dtype)->name);
    if (!rn_plain_in_one_piece(dtype))
        return rn_shape_fail(s, "a stack of %s is not built: its scales stand apart",
                             rn_dtype_get(dtype)->name);
    if (x.rank != 3 || w.rank != 2) return rn_shape_fail(s, "x is (rows, H, K), w (H * N, K)");
    if (!find_sizes(a, x, w, &of))
        return rn_shape_fail(s, "w has no %llu matrices with %llu rows from %llu on",
                             (unsigned long long)x.dims[1], (unsigned long long)a->count,
                             (unsigned long long)a->first);
    if (of.in != x.dims[2])
        return rn_shape_fail(s, "the inner axes differ: %llu in x and %llu in w",
                             (unsigned long long)x.dims[2], (unsigned long long)of.in);
    s->out[0].shape = RN_SHAPE(x.dims[0], x.dims[1], of.out);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    const rn_head_product_attrs *a = call->attrs;
    const rn_tensor *x = &call->inputs[X], *w = &call->inputs[W], *y = &call->outputs[0];
    sizes of;
    if (!find_sizes(a, x->shape, w->shape, &of)) return;
    out->flops += 2.0 * (double)rn_tensor_elements(y) * (double)of.in;
    out->read_bytes += (double)rn_tensor_bytes(x) +
                       (double)rn_tensor_bytes(w) * (double)of.count / (double)of.record;
    out->write_bytes += (double)rn_tensor_bytes(y);
}

rn_tensor rn_head_matrix(const rn_call *call, uint64_t head) {
    const rn_head_product_attrs *a = call->attrs;
    const rn_tensor *w = &call->inputs[W];
    uint64_t heads = call->inputs[X].shape.dims[1], record = w->shape.dims[0] / heads;
    uint64_t row_bytes = rn_tensor_bytes(w) / rn_max_u64(w->shape.dims[0], 1);
    rn_tensor matrix = *w;
    matrix.shape.dims[0] = a->count ? a->count : record - a->first;
    if (w->data) matrix.data = (uint8_t *)w->data + (head * record + a->first) * row_bytes;
    return matrix;
}

// ---- reference ----------------------------------------------------------------------------------

static bool is_rounded(const rn_call *call) {
    const rn_head_product_attrs *a = call->attrs;
    return rn_product_is_quantized(call->inputs[W].dtype) && !a->unquantised_activations &&
           !a->transposed;
}

// A rounded row of x, or a widened one of w.
static uint64_t workspace(const rn_call *call) {
    uint64_t k = call->inputs[W].shape.dims[1];
    return is_rounded(call) ? rn_quantized_row_bytes(k) : rn_round_up(k * sizeof(float), 64);
}

// y (K) = x (N) by the rows of w (N, K).
static void multiply_across(const rn_call *call, const rn_plain_matrix *w, const float *x,
                            float *y) {
    memset(y, 0, w->cols * sizeof *y);
    for (uint64_t n = 0; n < w->rows; n++) {
        const float *row = rn_plain_row(w, n, call->workspace);
        for (uint64_t k = 0; k < w->cols; k++)
            y[k] = fmaf(x[n], row[k], y[k]);
    }
}

static void multiply(const rn_call *call, const rn_plain_matrix *w, const float *x, float *y) {
    rn_quantized_row q = {0};
    if (is_rounded(call)) {
        q = rn_quantized_row_at(call->workspace, w->cols);
        rn_quantize_row(x, w->cols, q);
    }
    for (uint64_t n = 0; n < w->rows; n++) {
        if (q.q) {
            y[n] = rn_quantized_product(w->dtype, q, w->data + n * w->row_bytes, 1, w->cols);
            continue;
        }
        const float *row = rn_plain_row(w, n, call->workspace);
        y[n] = 0;
        for (uint64_t k = 0; k < w->cols; k++)
            y[n] = fmaf(x[k], row[k], y[n]);
    }
}

static rn_status reference(const rn_call *call) {
    const rn_head_product_attrs *a = call->attrs;
    rn_shape x = call->inputs[X].shape, y = call->outputs[0].shape;
    for (uint64_t i = 0; i < x.dims[0] * x.dims[1]; i++) {
        rn_tensor matrix = rn_head_matrix(call, i % x.dims[1]);
        rn_plain_matrix w;
        RN_TRY(rn_plain_matrix_of(&matrix, &w));
        (a->transposed ? multiply_across
                       : multiply)(call, &w, (const float *)call->inputs[X].data + i * x.dims[2],
                                   (float *)call->outputs[0].data + i * y.dims[2]);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_head_product_attrs *a = attrs;
    char rows[64] = "all rows";
    if (a->first || a->count)
        snprintf(rows, sizeof rows, "rows from %llu, %llu of them", (unsigned long long)a->first,
                 (unsigned long long)a->count);
    snprintf(out, bytes, "%s%s%s", rows, a->transposed ? ", transposed" : "",
             a->unquantised_activations ? ", x as it is" : "");
}

extern const rn_op_info rn_head_product_op;
const rn_op_info rn_head_product_op = {
    .name = "head_product",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_head_product_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_head_product(rn_graph *g, rn_value x, rn_value w, rn_head_product_attrs attrs) {
    return rn_graph_add(g, RN_OP_HEAD_PRODUCT, (rn_value[]){x, w}, INPUTS, &attrs);
}
