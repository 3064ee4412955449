// matmul.c — y = X W + bias, where X (M, K) is x or its transpose and W (K, N) is w's transpose, or
// w itself with transpose_w.
//
// What a product is depends on the weight's dtype. The sum over k is in f32, in order, by fmaf;
// the bias is added at the end.
//
//     w is a kind of tensor/kinds.h       graph/quantized_product.h: activations are rounded, too
//     anything else that is readable      w is widened to f32, activations are as they are
//
// The first line is for w as (N, K) and x as (M, K), which is how models use weights. In any other
// form (the gradient with respect to x reads w as (K, N)), and with unquantised_activations, a
// quantised w is widened, and activations are not rounded.
#include "graph/op.h"

#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "graph/quantized_product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- shapes -------------------------------------------------------------------------------------

// The three sizes of a product, and how many there are of it.
typedef struct sizes {
    uint64_t batch, m, n, k;
} sizes;

static uint64_t axis(rn_shape shape, uint32_t from_end) {
    return shape.dims[shape.rank - from_end];
}

static sizes find_sizes(const rn_matmul_attrs *a, rn_shape x, rn_shape w) {
    sizes s = {.batch = 1,
               .m = axis(x, a->transpose_x ? 1 : 2),
               .k = axis(x, a->transpose_x ? 2 : 1),
               .n = axis(w, a->transpose_w ? 1 : 2)};
    for (uint32_t i = 0; i + 2 < x.rank; i++)
        s.batch *= x.dims[i];
    return s;
}

static rn_status check_ranks(const rn_shaping *s) {
    rn_shape x = s->in[0].shape, w = s->in[1].shape;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    if (!rn_plain_readable(s->in[1].dtype))
        return rn_shape_fail(s, "products with %s weights are not possible",
                             rn_dtype_get(s->in[1].dtype)->name);
    if (x.rank < 2 || w.rank < 2) return rn_shape_fail(s, "x and w need two axes at least");
    if (w.rank == 2) return RN_OK;
    if (!rn_dtype_get(s->in[1].dtype)->is_float)
        return rn_shape_fail(s, "a quantised w has two axes");
    if (w.rank != x.rank)
        return rn_shape_fail(s, "w needs two axes, or as many as x, which has %u", x.rank);
    for (uint32_t i = 0; i + 2 < x.rank; i++)
        if (w.dims[i] != x.dims[i] && w.dims[i] != 1)
            return rn_shape_fail(s, "axis %u of w must be 1 or that of x", i);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_matmul_attrs *a = s->attrs;
    rn_shape x = s->in[0].shape, w = s->in[1].shape;
    RN_TRY(check_ranks(s));
    sizes of = find_sizes(a, x, w);
    if (of.k != axis(w, a->transpose_w ? 2 : 1))
        return rn_shape_fail(s, "the inner axes differ: K is %llu in x and %llu in w",
                             (unsigned long long)of.k,
                             (unsigned long long)axis(w, a->transpose_w ? 2 : 1));
    if (s->in[2].dtype != RN_DTYPE_NONE) {
        RN_TRY(rn_shape_want(s, 2, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(of.n)))
            return rn_shape_fail(s, "bias must be (N), N is %llu", (unsigned long long)of.n);
    }
    s->out[0].shape = x;
    s->out[0].shape.dims[x.rank - 2] = of.m;
    s->out[0].shape.dims[x.rank - 1] = of.n;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    sizes of = find_sizes(call->attrs, call->inputs[0].shape, call->inputs[1].shape);
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)of.batch * (double)of.m * (double)of.n * (double)of.k;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_matmul_attrs *a = attrs;
    const char *texts[3] = {a->transpose_x ? "x transposed" : "", a->transpose_w ? "w (K, N)" : "",
                            a->unquantised_activations ? "x as it is" : ""};
    if (bytes) *out = 0;
    for (size_t i = 0, at = 0; i < 3 && at < bytes; i++)
        if (*texts[i])
            at += (size_t)snprintf(out + at, bytes - at, "%s%s", at ? ", " : "", texts[i]);
}

// ---- gradient -----------------------------------------------------------------------------------

// dX = dy Wᵀ; where x is the transpose of X, so is its gradient.
static rn_value gradient_of_x(rn_backward *b, const rn_matmul_attrs *a) {
    rn_matmul_attrs as = {.transpose_w = !a->transpose_w};
    rn_value dx =
        rn_op_matmul_as(b->graph, b->out_gradients[0], b->node.inputs[1], RN_NO_VALUE, as);
    if (!a->transpose_x || dx == RN_NO_VALUE) return dx;
    uint32_t rank = rn_graph_value(b->graph, dx)->shape.rank;
    uint8_t axes[RN_MAX_RANK];
    for (uint32_t i = 0; i < rank && i < RN_MAX_RANK; i++)
        axes[i] = (uint8_t)(i + 2 < rank ? i : i == rank - 1 ? rank - 2 : rank - 1);
    return rn_op_permute(b->graph, dx, axes);
}

// (..., M, C) as (all rows, C), so that one product sums over all of them.
static rn_value flatten(rn_graph *g, rn_value value) {
    if (value == RN_NO_VALUE) return value;
    rn_shape from = rn_graph_value(g, value)->shape;
    return rn_op_reshape(g, value, RN_SHAPE(0, from.dims[from.rank - 1]));
}

// dW = Xᵀ dy, or its transpose. A w of two axes has served all batches: their sum.
static rn_value gradient_of_w(rn_backward *b, const rn_matmul_attrs *a) {
    rn_graph *g = b->graph;
    rn_value x = b->node.inputs[0], w = b->node.inputs[1], dy = b->out_gradients[0];
    rn_shape of_x = rn_graph_value(g, x)->shape;
    bool one_w = rn_graph_value(g, w)->shape.rank == 2;
    // ROWS times an axis is no axis: then the batches' gradients are made and summed.
    if (one_w && of_x.rank > 2 && !a->transpose_x && of_x.dims[0] != RN_ROWS) {
        x = flatten(g, x);
        dy = flatten(g, dy);
    }
    rn_value dw = a->transpose_w
                      ? rn_op_matmul_as(
                            g, x, dy, RN_NO_VALUE,
                            (rn_matmul_attrs){.transpose_x = !a->transpose_x, .transpose_w = true})
                      : rn_op_matmul_as(
                            g, dy, x, RN_NO_VALUE,
                            (rn_matmul_attrs){.transpose_x = true, .transpose_w = !a->transpose_x});
    return rn_graph_unbroadcast(g, dw, w);
}

static rn_status gradient(rn_backward *b) {
    const rn_matmul_attrs *a = b->node.attrs;
    if (b->wanted[0]) b->in_gradients[0] = gradient_of_x(b, a);
    if (b->wanted[1]) b->in_gradients[1] = gradient_of_w(b, a);
    if (b->wanted[2]) {
        uint32_t rank = rn_graph_value(b->graph, b->out_gradients[0])->shape.rank;
        b->in_gradients[2] =
            rn_op_sum(b->graph, b->out_gradients[0], (1u << (rank - 1)) - 1, false);
    }
    return RN_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// Work is cut into `pieces`, each with its own scratch of scratch_bytes.
typedef struct product {
    sizes of;
    rn_plain_matrix w;     // of all batches
    uint64_t w_row;        // where this batch begins in it
    const float *x;        // of this batch
    const float *bias;     // (N) or NULL
    float *y;              // (M, N) of this batch
    uint64_t x_row, x_col; // X[m][k] is x[m * x_row + k * x_col]
    uint64_t pieces, scratch_bytes;
    uint8_t *scratch;
    rn_quantized_row row; // one row of x, rounded
    uint64_t m;           // which
} product;

static uint64_t count_pieces(const rn_call *call) {
    return call->threads ? call->threads : 1;
}

static bool is_quantized(const rn_call *call) {
    const rn_matmul_attrs *a = call->attrs;
    return rn_product_is_quantized(call->inputs[1].dtype) && !a->transpose_w && !a->transpose_x &&
           !a->unquantised_activations;
}

// One widened row of w for each piece.
static uint64_t scratch_bytes(const rn_call *call) {
    const rn_tensor *w = &call->inputs[1];
    return w->dtype == RN_DTYPE_F32 ? 0 : rn_round_up(axis(w->shape, 1) * sizeof(float), 64);
}

static uint64_t workspace(const rn_call *call) {
    if (is_quantized(call)) return rn_quantized_row_bytes(axis(call->inputs[1].shape, 1));
    return scratch_bytes(call) * count_pieces(call);
}

static float *scratch_of(const product *p, size_t piece) {
    return (float *)(void *)(p->scratch + piece * p->scratch_bytes);
}

// w as (N, K): column n of y is made of row n of w.
static void multiply_columns(void *arg, size_t piece) {
    const product *p = arg;
    for (uint64_t n = piece * p->of.n / p->pieces; n < (piece + 1) * p->of.n / p->pieces; n++) {
        const float *w = rn_plain_row(&p->w, p->w_row + n, scratch_of(p, piece)); // (K)
        for (uint64_t m = 0; m < p->of.m; m++) {
            float acc = 0;
            for (uint64_t k = 0; k < p->of.k; k++)
                acc = fmaf(p->x[m * p->x_row + k * p->x_col], w[k], acc);
            p->y[m * p->of.n + n] = p->bias ? acc + p->bias[n] : acc;
        }
    }
}

// w as (K, N): row k of w adds to every row of y.
static void multiply_rows(void *arg, size_t piece) {
    const product *p = arg;
    uint64_t n_count = p->of.n, first = piece * p->of.m / p->pieces;
    uint64_t end = (piece + 1) * p->of.m / p->pieces;
    memset(p->y + first * n_count, 0, (end - first) * n_count * sizeof(float));
    for (uint64_t k = 0; k < p->of.k && first < end; k++) {
        const float *w = rn_plain_row(&p->w, p->w_row + k, scratch_of(p, piece)); // (N)
        for (uint64_t m = first; m < end; m++) {
            float x = p->x[m * p->x_row + k * p->x_col], *y = p->y + m * n_count;
            for (uint64_t n = 0; n < n_count; n++)
                y[n] = fmaf(x, w[n], y[n]);
        }
    }
    for (uint64_t i = first * n_count; p->bias && i < end * n_count; i++)
        p->y[i] += p->bias[i % n_count];
}

static void multiply_quantized(void *arg, size_t piece) {
    const product *p = arg;
    for (uint64_t n = piece * p->of.n / p->pieces; n < (piece + 1) * p->of.n / p->pieces; n++) {
        float acc = rn_quantized_product(p->w.dtype, p->row, p->w.data + n * p->w.row_bytes,
                                         p->w.scale ? p->w.scale[n] : 1, p->of.k);
        p->y[p->m * p->of.n + n] = p->bias ? acc + p->bias[n] : acc;
    }
}

static void run_quantized(const rn_call *call, product *p) {
    p->row = rn_quantized_row_at(call->workspace, p->of.k);
    for (p->m = 0; p->m < p->of.m; p->m++) {
        rn_quantize_row(p->x + p->m * p->x_row, p->of.k, p->row);
        rn_call_each(call, p->pieces, multiply_quantized, p);
    }
}

// Which of w's matrices serves batch `batch` of x: an axis of 1 serves all.
static uint64_t find_batch(rn_shape x, rn_shape w, uint64_t batch) {
    uint64_t at = 0, stride = 1;
    if (w.rank == 2) return 0;
    for (uint32_t i = x.rank - 2; i-- > 0; batch /= x.dims[i]) {
        if (w.dims[i] != 1) at += batch % x.dims[i] * stride;
        stride *= w.dims[i];
    }
    return at;
}

static rn_status reference(const rn_call *call) {
    const rn_matmul_attrs *a = call->attrs;
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    sizes of = find_sizes(a, x->shape, w->shape);
    if (w->shape.rank == 2 && !a->transpose_x) { // all batches are rows of one product
        of.m *= of.batch;
        of.batch = 1;
    }
    product p = {.of = of,
                 .bias = call->inputs[2].data,
                 .x_row = a->transpose_x ? 1 : of.k,
                 .x_col = a->transpose_x ? of.m : 1,
                 .pieces = count_pieces(call),
                 .scratch_bytes = scratch_bytes(call),
                 .scratch = call->workspace};
    RN_TRY(rn_plain_matrix_of(w, &p.w));
    for (uint64_t batch = 0; batch < of.batch; batch++) {
        p.x = (const float *)x->data + batch * of.m * of.k;
        p.y = (float *)call->outputs[0].data + batch * of.m * of.n;
        p.w_row = find_batch(x->shape, w->shape, batch) * axis(w->shape, 2);
        if (is_quantized(call))
            run_quantized(call, &p);
        else
            rn_call_each(call, p.pieces, a->transpose_w ? multiply_rows : multiply_columns, &p);
    }
    return RN_OK;
}

static bool describe_product(const rn_call *call, uint32_t index, rn_product *out) {
    const rn_matmul_attrs *a = call->attrs;
    *out = (rn_product){.x = 0,
                        .weight = 1,
                        .bias = rn_tensor_given(&call->inputs[2]) ? 2 : RN_NO_INPUT,
                        .norm = RN_NO_INPUT,
                        .residual = RN_NO_INPUT,
                        .transposed = a->transpose_x || a->transpose_w,
                        .unquantised_activations = a->unquantised_activations};
    return index == 0;
}

extern const rn_op_info rn_matmul_op;
const rn_op_info rn_matmul_op = {
    .name = "matmul",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << 2,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_matmul_attrs),
    .traits = RN_TRAIT_PRODUCT,
    .product = describe_product,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_matmul_as(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                         rn_matmul_attrs attrs) {
    return rn_graph_add(g, RN_OP_MATMUL, (rn_value[]){x, w, bias}, 3, &attrs);
}

rn_value rn_op_matmul(rn_graph *g, rn_value x, rn_value w, rn_value bias) {
    return rn_op_matmul_as(g, x, w, bias, (rn_matmul_attrs){0});
}
