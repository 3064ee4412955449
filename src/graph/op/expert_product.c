// expert_product.c — rows by the matrices of the experts that they chose, one matrix a choice.
//
//     ids (rows, k)   w: | expert 0 | expert 1 | ... |   each (N, K), one behind the other
//     y[r, i] = x[r] wᵀ of expert ids[r, i] + its bias   (x[r, i] where each choice has its own
//     row)
//
// What a product of a row is, is matmul's affair (op/matmul.c): rounded activations for quantised
// weights, one chain of fmaf otherwise. Every row of y depends on its own row of x and ids alone,
// so kernels may gather rows by expert as they like, and neither batch nor chunk changes a bit.
#include "graph/op.h"

#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "graph/quantized_product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { X, IDS, W, BIAS, INPUTS };

static bool read_rows(const rn_expert_product_attrs *a, uint64_t rows, uint64_t *out_record,
                      uint64_t *out_count) {
    if (a->experts == 0 || rows == 0 || rows % a->experts) return false;
    *out_record = rows / a->experts;
    if (a->first >= *out_record) return false;
    *out_count = a->count ? a->count : *out_record - a->first;
    return *out_count <= *out_record - a->first;
}

static rn_status check_operands(const rn_shaping *s) {
    rn_shape x = s->in[X].shape, ids = s->in[IDS].shape, w = s->in[W].shape;
    RN_TRY(rn_shape_want(s, X, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, IDS, RN_DTYPE_I32));
    if (!rn_plain_readable(s->in[W].dtype))
        return rn_shape_fail(s, "products with %s weights are not possible",
                             rn_dtype_get(s->in[W].dtype)->name);
    if (!rn_plain_in_one_piece(s->in[W].dtype))
        return rn_shape_fail(s, "a stack of %s is not built: its scales stand apart",
                             rn_dtype_get(s->in[W].dtype)->name);
    if (ids.rank != 2 || w.rank != 2 || x.rank < 2 || x.rank > 3)
        return rn_shape_fail(s, "x is (rows, K) or (rows, k, K), ids (rows, k), w (E * N, K)");
    if (x.dims[0] != ids.dims[0] || (x.rank == 3 && x.dims[1] != ids.dims[1]))
        return rn_shape_fail(s, "x and ids have other rows");
    if (x.dims[x.rank - 1] != w.dims[1])
        return rn_shape_fail(s, "the inner axes differ: K is %llu in x and %llu in w",
                             (unsigned long long)x.dims[x.rank - 1], (unsigned long long)w.dims[1]);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_expert_product_attrs *a = s->attrs;
    uint64_t record = 0, count = 0;
    RN_TRY(check_operands(s));
    if (!read_rows(a, s->in[W].shape.dims[0], &record, &count))
        return rn_shape_fail(s, "w has no %u matrices with rows %llu to %llu", a->experts,
                             (unsigned long long)a->first,
                             (unsigned long long)(a->first + a->count));
    if (s->in[BIAS].dtype != RN_DTYPE_NONE) {
        RN_TRY(rn_shape_want(s, BIAS, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[BIAS].shape, RN_SHAPE(a->experts, record)))
            return rn_shape_fail(s, "bias must be (E, N)");
    }
    rn_shape ids = s->in[IDS].shape;
    s->out[0].shape = RN_SHAPE(ids.dims[0], ids.dims[1], count);
    return RN_OK;
}

bool rn_call_experts(const rn_call *call, rn_expert_call *out) {
    if (!rn_op_is(call->op, RN_TRAIT_EXPERTS)) return false;
    const rn_expert_product_attrs *a = call->attrs;
    *out = (rn_expert_call){.x = X,
                            .ids = IDS,
                            .weight = W,
                            .bias = rn_tensor_given(&call->inputs[BIAS]) ? BIAS : RN_NO_INPUT,
                            .experts = a->experts,
                            .first = a->first,
                            .unquantised_activations = a->unquantised_activations};
    return read_rows(a, call->inputs[W].shape.dims[0], &out->record_rows, &out->count);
}

// Of the weight at most as many matrices as there are choices.
static void cost(const rn_call *call, rn_cost *out) {
    rn_expert_call e;
    if (!rn_call_experts(call, &e)) return;
    const rn_tensor *w = &call->inputs[W], *y = &call->outputs[0];
    double choices = (double)rn_tensor_elements(&call->inputs[IDS]);
    double part = (double)e.count / (double)e.record_rows / (double)e.experts;
    double touched = fmin(choices, e.experts);
    out->flops += 2.0 * (double)rn_tensor_elements(y) * (double)w->shape.dims[1];
    out->read_bytes += (double)rn_tensor_bytes(&call->inputs[X]) +
                       (double)rn_tensor_bytes(&call->inputs[IDS]) +
                       (double)rn_tensor_bytes(w) * part * touched;
    out->write_bytes += (double)rn_tensor_bytes(y);
}

// ---- reference ----------------------------------------------------------------------------------

static bool is_rounded(const rn_call *call) {
    const rn_expert_product_attrs *a = call->attrs;
    return rn_product_is_quantized(call->inputs[W].dtype) && !a->unquantised_activations;
}

// A rounded row of x, or a widened one of w.
static uint64_t workspace(const rn_call *call) {
    uint64_t k = call->inputs[W].shape.dims[1];
    return is_rounded(call) ? rn_quantized_row_bytes(k) : rn_round_up(k * sizeof(float), 64);
}

static float multiply_row(const float *x, const float *w, uint64_t k) {
    float acc = 0;
    for (uint64_t i = 0; i < k; i++)
        acc = fmaf(x[i], w[i], acc);
    return acc;
}

// x (K) by rows [row, row + count) of w.
static void multiply(const rn_call *call, const rn_plain_matrix *w, const float *x, uint64_t row,
                     uint64_t count, float *y) {
    rn_quantized_row q = {0};
    if (is_rounded(call)) {
        q = rn_quantized_row_at(call->workspace, w->cols);
        rn_quantize_row(x, w->cols, q);
    }
    for (uint64_t n = 0; n < count; n++)
        y[n] =
            q.q ? rn_quantized_product(w->dtype, q, w->data + (row + n) * w->row_bytes, 1, w->cols)
                : multiply_row(x, rn_plain_row(w, row + n, call->workspace), w->cols);
}

// Where the expert's rows lie, waiting for them where they are on their way.
static rn_status find_matrix(const rn_expert_slots *slots, uint32_t expert, rn_plain_matrix *w,
                             bool *out_there) {
    if (slots->pending && slots->pending[expert]) RN_TRY(slots->wait(slots->self, expert));
    w->data = slots->matrix[expert];
    *out_there = w->data != NULL;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[X], *ids = &call->inputs[IDS];
    rn_plain_matrix w;
    rn_expert_call e;
    if (!rn_call_experts(call, &e)) return rn_fail(RN_INTERNAL, "no product of experts");
    RN_TRY(rn_plain_matrix_of(&call->inputs[W], &w));
    uint64_t choices = ids->shape.dims[1], shared = x->shape.rank == 2 ? choices : 1;
    for (uint64_t i = 0; i < rn_tensor_elements(ids); i++) {
        int32_t id = ((const int32_t *)ids->data)[i];
        float *y = (float *)call->outputs[0].data + i * e.count;
        if (id >= (int32_t)e.experts) return rn_fail(RN_INVALID, "there is no expert %d", id);
        if (id < 0) memset(y, 0, e.count * sizeof *y);
        if (id < 0) continue;
        uint64_t row = (uint64_t)id * e.record_rows + e.first;
        if (call->slots) {
            bool there = false;
            RN_TRY(find_matrix(call->slots, (uint32_t)id, &w, &there));
            if (!there) continue;
            row = 0;
        }
        multiply(call, &w, (const float *)x->data + i / shared * w.cols, row, e.count, y);
        const float *bias = call->inputs[BIAS].data; // (E, N)
        for (uint64_t n = 0; bias && n < e.count; n++)
            y[n] += bias[(uint64_t)id * e.record_rows + e.first + n];
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_expert_product_attrs *a = attrs;
    char rows[64] = "";
    if (a->first || a->count)
        snprintf(rows, sizeof rows, ", rows from %llu, %llu of them", (unsigned long long)a->first,
                 (unsigned long long)a->count);
    snprintf(out, bytes, "%u experts%s%s", a->experts, rows,
             a->unquantised_activations ? ", x as it is" : "");
}

extern const rn_op_info rn_expert_product_op;
const rn_op_info rn_expert_product_op = {
    .name = "expert_product",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << BIAS,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_expert_product_attrs),
    .traits = RN_TRAIT_EXPERTS | RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_expert_product(rn_graph *g, rn_value x, rn_value ids, rn_value w, rn_value bias,
                              rn_expert_product_attrs attrs) {
    return rn_graph_add(g, RN_OP_EXPERT_PRODUCT, (rn_value[]){x, ids, w, bias}, INPUTS, &attrs);
}
