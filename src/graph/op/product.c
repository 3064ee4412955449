// product.c — a (..., M, K) by b (..., K, N) of any plain dtype, batches stretched by NumPy's rule.
//
// Floats are summed in double and rounded once; whole numbers wrap. i8 and u8 have zero points that
// are taken away first, and sums of i32. f32 is matmul's: rn_op_product
// makes that, with the batches stretched first where they differ.
#include "graph/op/number.h"

enum { A, B, A_ZERO, B_ZERO, INPUTS };

static bool is_byte(rn_dtype dtype) {
    return dtype == RN_DTYPE_I8 || dtype == RN_DTYPE_U8;
}

static rn_shape batches_of(rn_shape shape) {
    shape.rank -= 2;
    return shape;
}

// One for all, or one a row or column.
static rn_status check_zero(const rn_shaping *s, uint32_t zero, uint64_t length) {
    rn_dtype dtype = s->in[zero].dtype;
    if (dtype == RN_DTYPE_NONE) return RN_OK;
    if (!is_byte(s->in[zero - A_ZERO].dtype)) return rn_shape_fail(s, "zeros are for i8 and u8");
    RN_TRY(rn_shape_want(s, zero, s->in[zero - A_ZERO].dtype));
    rn_shape shape = s->in[zero].shape;
    if (rn_shape_elements(shape, 2) == 1 || rn_shape_equal(shape, RN_SHAPE(length))) return RN_OK;
    return rn_shape_fail(s, "zeros are one for all, or (%llu)", (unsigned long long)length);
}

static rn_status shape(rn_shaping *s) {
    bool bytes = is_byte(s->in[A].dtype) && is_byte(s->in[B].dtype);
    rn_shape a = s->in[0].shape, b = s->in[1].shape, *out = &s->out[0].shape;
    RN_TRY(rn_shape_want_number(s, 0));
    if (!bytes) RN_TRY(rn_shape_want(s, 1, s->in[0].dtype));
    if (a.rank < 2 || b.rank < 2) return rn_shape_fail(s, "matrices have two axes or more");
    if (a.dims[a.rank - 1] != b.dims[b.rank - 2]) return rn_shape_fail(s, "the inner axes differ");
    if (b.dims[0] == RN_ROWS && b.rank == 2) return rn_shape_fail(s, "rows cannot be summed over");
    if (!rn_shape_join(batches_of(a), batches_of(b), out))
        return rn_shape_fail(s, "the batches do not broadcast");
    out->dims[out->rank++] = a.dims[a.rank - 2];
    out->dims[out->rank++] = b.dims[b.rank - 1];
    s->out[0].dtype = bytes ? RN_DTYPE_I32 : s->in[0].dtype;
    RN_TRY(check_zero(s, A_ZERO, a.dims[a.rank - 2]));
    return check_zero(s, B_ZERO, b.dims[b.rank - 1]);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape a = call->inputs[0].shape;
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->outputs[0]) * (double)a.dims[a.rank - 1];
}

// Of row or column `at`.
static uint64_t zero_at(const rn_tensor *zero, uint64_t at) {
    if (!rn_tensor_given(zero)) return 0;
    return (uint64_t)rn_integer_at(zero, rn_tensor_elements(zero) == 1 ? 0 : at);
}

// A row of a (k), by a column of b (k), n apart. Element `to` is in row to / n, column to % n.
static void dot(const rn_call *call, uint64_t a_at, uint64_t b_at, uint64_t k, uint64_t n,
                uint64_t to) {
    rn_shape y = call->outputs[0].shape;
    uint64_t a_zero = zero_at(&call->inputs[A_ZERO], to / n % y.dims[y.rank - 2]);
    uint64_t b_zero = zero_at(&call->inputs[B_ZERO], to % n);
    const rn_tensor *a = &call->inputs[0], *b = &call->inputs[1];
    rn_number number = rn_number_of(a->dtype);
    rn_numbers p, q, sum = {.u64 = {0}};
    double real = 0;
    for (uint64_t i = 0; i < k; i += RN_NUMBERS) {
        uint64_t count = k - i < RN_NUMBERS ? k - i : RN_NUMBERS;
        rn_numbers_load(a, a_at + i, 1, count, &p);
        rn_numbers_load(b, b_at + i * n, n, count, &q);
        for (uint64_t j = 0; j < count; j++)
            if (number == RN_NUMBER_F32)
                real += (double)p.f32[j] * q.f32[j];
            else if (number == RN_NUMBER_F64)
                real += p.f64[j] * q.f64[j];
            else
                sum.u64[0] += (p.u64[j] - a_zero) * (q.u64[j] - b_zero);
    }
    if (rn_number_is_float(number))
        rn_real_put(&call->outputs[0], to, real);
    else
        rn_numbers_store(&call->outputs[0], to, 1, &sum);
}

// Row `index` of all rows of the result.
static void make_row(void *arg, size_t index) {
    const rn_call *call = arg;
    rn_shape a = call->inputs[0].shape, b = call->inputs[1].shape, y = call->outputs[0].shape;
    uint64_t m = y.dims[y.rank - 2], n = y.dims[y.rank - 1], k = a.dims[a.rank - 1];
    rn_shape batches = batches_of(y), inner = batches;
    rn_strides as = rn_strides_stretched(batches_of(a), batches);
    rn_strides bs = rn_strides_stretched(batches_of(b), batches);
    inner.dims[inner.rank++] = 1; // a batch is a row of one element
    uint64_t batch = index / m, a_at = rn_row_begin(inner, batch, &as) * m * k + index % m * k;
    uint64_t b_at = rn_row_begin(inner, batch, &bs) * k * n;
    for (uint64_t j = 0; j < n; j++)
        dot(call, a_at, b_at + j, k, n, index * n + j);
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t n = y.dims[y.rank - 1], elements = rn_tensor_elements(&call->outputs[0]);
    if (elements) rn_call_each(call, elements / n, make_row, (void *)(uintptr_t)call);
    return RN_OK;
}

extern const rn_op_info rn_product_op;
const rn_op_info rn_product_op = {
    .name = "product",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << A_ZERO | 1u << B_ZERO,
    .output_count = 1,
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
};

// Batches of f32 that matmul takes as they are: none in b, or the same in both.
static bool suits_matmul(rn_shape a, rn_shape b) {
    return b.rank == 2 || (a.rank == b.rank && rn_shape_equal(batches_of(a), batches_of(b)));
}

static rn_value stretch(rn_graph *g, rn_value x, rn_shape batches) {
    rn_shape own = rn_graph_value(g, x)->shape, to = batches;
    to.dims[to.rank++] = own.dims[own.rank - 2];
    to.dims[to.rank++] = own.dims[own.rank - 1];
    return rn_shape_equal(own, to) ? x : rn_op_broadcast(g, x, to);
}

rn_value rn_op_product(rn_graph *g, rn_value a, rn_value b) {
    rn_matmul_attrs transposed = {.transpose_w = true};
    rn_shape batches;
    if (rn_graph_dtype(g, a) == RN_DTYPE_F32 && rn_graph_dtype(g, b) == RN_DTYPE_F32) {
        rn_shape p = rn_graph_value(g, a)->shape, q = rn_graph_value(g, b)->shape;
        bool matrices = p.rank >= 2 && q.rank >= 2;
        if (matrices && !suits_matmul(p, q) &&
            rn_shape_join(batches_of(p), batches_of(q), &batches)) {
            a = stretch(g, a, batches);
            b = stretch(g, b, batches);
        }
        if (matrices) return rn_op_matmul_as(g, a, b, RN_NO_VALUE, transposed);
    }
    return rn_op_product_integer(g, a, b, RN_NO_VALUE, RN_NO_VALUE);
}

rn_value rn_op_product_integer(rn_graph *g, rn_value a, rn_value b, rn_value a_zero,
                               rn_value b_zero) {
    return rn_graph_add(g, RN_OP_PRODUCT, (rn_value[]){a, b, a_zero, b_zero}, INPUTS, NULL);
}
