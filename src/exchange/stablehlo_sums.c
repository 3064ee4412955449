// stablehlo_sums.c — operations that sum or repeat: reductions, products, loops.
#include "exchange/stablehlo_build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- reductions ---------------------------------------------------------------------------------

rn_hlo_text rn_hlo_combine(const char *name, rn_dtype dtype) {
    rn_hlo_text out;
    const char *e = rn_hlo_element(dtype);
    snprintf(out.text, sizeof out.text,
             "({ ^bb0(%%a: tensor<%s>, %%b: tensor<%s>): %%c = \"stablehlo.%s\"(%%a, %%b) : "
             "(tensor<%s>, tensor<%s>) -> tensor<%s> \"stablehlo.return\"(%%c) : "
             "(tensor<%s>) -> () })",
             e, e, name, e, e, e, e);
    return out;
}

// The smallest and the largest whole number of a type.
static int64_t lowest(rn_dtype dtype) {
    uint16_t bytes = rn_dtype_get(dtype)->block_bytes;
    if (rn_hlo_element(dtype)[0] == 'u' || dtype == RN_DTYPE_BOOL) return 0;
    return bytes == 8 ? INT64_MIN : -((int64_t)1 << (8 * bytes - 1));
}

static int64_t highest(rn_dtype dtype) {
    uint16_t bytes = rn_dtype_get(dtype)->block_bytes;
    if (dtype == RN_DTYPE_BOOL) return 1;
    if (dtype == RN_DTYPE_U64) return -1; // printed without a sign
    if (bytes == 8) return INT64_MAX;
    return ((int64_t)1 << (8 * bytes - (rn_hlo_element(dtype)[0] == 'u' ? 0 : 1))) - 1;
}

rn_hlo_value rn_hlo_neutral(rn_hlo *h, const char *name, rn_dtype dtype) {
    bool max = strcmp(name, "maximum") == 0, min = strcmp(name, "minimum") == 0;
    bool one = strcmp(name, "multiply") == 0 || strcmp(name, "and") == 0;
    if (!rn_hlo_element(dtype)) return rn_hlo_new(h, dtype, RN_SCALAR); // which refuses
    if (rn_dtype_get(dtype)->is_float)
        return rn_hlo_float(h, dtype, max ? -INFINITY : min ? INFINITY : one ? 1 : 0, RN_SCALAR);
    int64_t number = max ? lowest(dtype) : min ? highest(dtype) : one ? 1 : 0;
    return rn_hlo_whole(h, dtype, number, RN_SCALAR);
}

rn_hlo_value rn_hlo_reduce(rn_hlo *h, const char *name, rn_hlo_value x, uint32_t axes, bool keep) {
    char attributes[300];
    uint64_t gone[RN_MAX_RANK];
    uint32_t count = 0;
    rn_shape shape = {0}, kept = x.shape;
    for (uint32_t i = 0; i < x.shape.rank; i++)
        if (axes >> i & 1) {
            gone[count++] = i;
            kept.dims[i] = 1;
        } else {
            shape.dims[shape.rank++] = x.shape.dims[i];
        }
    if (count == 0) return x;
    snprintf(attributes, sizeof attributes, "dimensions = %s", rn_hlo_array(gone, count).text);
    rn_hlo_value first = rn_hlo_neutral(h, name, x.dtype);
    if (h->status != RN_OK) return first;
    rn_hlo_value y = rn_hlo_op(h, "stablehlo.reduce", (rn_hlo_value[]){x, first}, 2,
                               rn_hlo_combine(name, x.dtype).text, attributes, x.dtype, shape);
    return keep ? rn_hlo_reshape(h, y, kept) : y;
}

// ---- products -----------------------------------------------------------------------------------

rn_hlo_value rn_hlo_operand(rn_hlo *h, rn_hlo_value x) {
    rn_dtype dtype = h->options->products;
    if (!rn_dtype_get(x.dtype)->is_float || x.dtype == RN_DTYPE_F64) return x;
    return rn_hlo_convert(h, x, dtype == RN_DTYPE_NONE ? RN_DTYPE_F32 : dtype);
}

// Of f32 the highest: an accelerator would round operands to 10 bits otherwise.
const char *rn_hlo_precision(rn_hlo_value operand) {
    if (operand.dtype == RN_DTYPE_F32)
        return "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";
    return "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]";
}

static bool is_among(const uint64_t *axes, uint32_t count, uint64_t axis) {
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] == axis) return true;
    return false;
}

static void add_others(rn_shape *out, rn_shape from, const uint64_t *batch, uint32_t batch_count,
                       const uint64_t *sum, uint32_t sum_count) {
    for (uint32_t i = 0; i < from.rank && out->rank < RN_MAX_RANK; i++)
        if (!is_among(batch, batch_count, i) && !is_among(sum, sum_count, i))
            out->dims[out->rank++] = from.dims[i];
}

rn_hlo_value rn_hlo_product(rn_hlo *h, rn_hlo_value a, rn_hlo_value b, const rn_hlo_dot *axes) {
    char attributes[1400];
    rn_shape shape = {0};
    a = rn_hlo_operand(h, a);
    b = rn_hlo_operand(h, b);
    for (uint32_t i = 0; i < axes->batch_count; i++)
        shape.dims[shape.rank++] = a.shape.dims[axes->batch_a[i]];
    add_others(&shape, a.shape, axes->batch_a, axes->batch_count, axes->sum_a, axes->sum_count);
    add_others(&shape, b.shape, axes->batch_b, axes->batch_count, axes->sum_b, axes->sum_count);
    snprintf(attributes, sizeof attributes,
             "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, "
             "rhs_batching_dimensions = %s, lhs_contracting_dimensions = %s, "
             "rhs_contracting_dimensions = %s>, %s",
             rn_hlo_numbers(axes->batch_a, axes->batch_count).text,
             rn_hlo_numbers(axes->batch_b, axes->batch_count).text,
             rn_hlo_numbers(axes->sum_a, axes->sum_count).text,
             rn_hlo_numbers(axes->sum_b, axes->sum_count).text, rn_hlo_precision(a));
    bool narrow = a.dtype == RN_DTYPE_F16 || a.dtype == RN_DTYPE_BF16;
    return rn_hlo_op(h, "stablehlo.dot_general", (rn_hlo_value[]){a, b}, 2, NULL, attributes,
                     narrow ? RN_DTYPE_F32 : a.dtype, shape);
}

// ---- loops --------------------------------------------------------------------------------------

// "%v8: tensor<i32>, %v9: ..." of a region's arguments, which are the loop's values from now on.
static void print_arguments(rn_hlo *h, rn_hlo_loop *loop) {
    loop->index = rn_hlo_new(h, RN_DTYPE_I32, RN_SCALAR);
    rn_hlo_print(h, "%*s^bb0(%s: tensor<i32>", (int)(4 + 2 * h->depth), "",
                 rn_hlo_name(loop->index).text);
    for (uint32_t i = 0; i < loop->count; i++) {
        loop->carried[i] = rn_hlo_new(h, loop->carried[i].dtype, loop->carried[i].shape);
        rn_hlo_print(h, ", %s: %s", rn_hlo_name(loop->carried[i]).text,
                     rn_hlo_type(loop->carried[i].dtype, loop->carried[i].shape).text);
    }
    rn_hlo_print(h, "):\n");
}

static void print_types(rn_hlo *h, const rn_hlo_loop *loop) {
    rn_hlo_print(h, "(tensor<i32>");
    for (uint32_t i = 0; i < loop->count; i++)
        rn_hlo_print(h, ", %s", rn_hlo_type(loop->carried[i].dtype, loop->carried[i].shape).text);
    rn_hlo_print(h, ")");
}

rn_hlo_loop rn_hlo_loop_begin(rn_hlo *h, uint64_t trips, const rn_hlo_value *start,
                              uint32_t count) {
    rn_hlo_loop loop = {.count = count};
    rn_hlo_value zero = rn_hlo_whole(h, RN_DTYPE_I32, 0, RN_SCALAR);
    loop.result = rn_hlo_new(h, RN_DTYPE_I32, RN_SCALAR).id;
    memcpy(loop.carried, start, count * sizeof *start);
    rn_hlo_print(h, "%*s%%v%u:%u = \"stablehlo.while\"(%s", (int)(4 + 2 * h->depth), "",
                 loop.result, count + 1, rn_hlo_name(zero).text);
    for (uint32_t i = 0; i < count; i++)
        rn_hlo_print(h, ", %s", rn_hlo_name(start[i]).text);
    rn_hlo_print(h, ") ({\n");
    print_arguments(h, &loop);
    h->depth++;
    rn_hlo_value last = rn_hlo_whole(h, RN_DTYPE_I32, (int64_t)trips, RN_SCALAR);
    rn_hlo_value more = rn_hlo_compare(h, "LT", loop.index, last);
    rn_hlo_print(h, "%*s\"stablehlo.return\"(%s) : (tensor<i1>) -> ()\n", (int)(4 + 2 * h->depth),
                 "", rn_hlo_name(more).text);
    h->depth--;
    rn_hlo_print(h, "%*s}, {\n", (int)(4 + 2 * h->depth), "");
    print_arguments(h, &loop);
    h->depth++;
    return loop;
}

void rn_hlo_loop_end(rn_hlo *h, rn_hlo_loop *loop, const rn_hlo_value *next, rn_hlo_value *out) {
    rn_hlo_value one = rn_hlo_whole(h, RN_DTYPE_I32, 1, RN_SCALAR);
    rn_hlo_value index = rn_hlo_binary(h, "add", loop->index, one);
    rn_hlo_print(h, "%*s\"stablehlo.return\"(%s", (int)(4 + 2 * h->depth), "",
                 rn_hlo_name(index).text);
    for (uint32_t i = 0; i < loop->count; i++)
        rn_hlo_print(h, ", %s", rn_hlo_name(next[i]).text);
    rn_hlo_print(h, ") : ");
    print_types(h, loop);
    rn_hlo_print(h, " -> ()\n");
    h->depth--;
    rn_hlo_print(h, "%*s}) : ", (int)(4 + 2 * h->depth), "");
    print_types(h, loop);
    rn_hlo_print(h, " -> ");
    print_types(h, loop);
    rn_hlo_print(h, "\n");
    for (uint32_t i = 0; i < loop->count; i++) {
        out[i] = loop->carried[i];
        out[i].id = loop->result;
        out[i].part = i + 2;
    }
}
