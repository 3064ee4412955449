// stablehlo_build.h — writes StableHLO one operation at a time, in the generic form, and knows the
// type of every value that it has written.
//
//     rn_hlo_value e = rn_hlo_unary(h, "exponential", x);
//     rn_hlo_value sum = rn_hlo_reduce(h, "add", e, 1u << axis, true);
//     rn_hlo_value y = rn_hlo_binary(h, "divide", e, rn_hlo_expand(h, sum, e.shape));
//
// The first failure is kept in `status`; what is written behind it does not matter. The generic
// form is the one whose spelling does not change from version to version.
#ifndef RN_EXCHANGE_STABLEHLO_BUILD_H
#define RN_EXCHANGE_STABLEHLO_BUILD_H

#include "exchange/stablehlo.h"

// %v7, or %v7#1 where it is result 1 of several. id 0: none.
typedef struct rn_hlo_value {
    uint32_t id;
    uint32_t part; // 1 + the number of the result; 0: the operation has one
    rn_dtype dtype;
    rn_shape shape; // concrete
    bool turned;    // an argument: rn_stablehlo_entry.turned
} rn_hlo_value;

typedef struct rn_hlo {
    rn_sink sink;
    rn_status status; // the first failure
    const rn_stablehlo_options *options;
    rn_arena *memory;            // for as long as the module is written
    const rn_hlo_value *scalars; // (scalars of the graph)
    const char *name;            // of the node that is being written
    uint32_t last_id;
    uint32_t depth; // of regions
} rn_hlo;

// ---- text ---------------------------------------------------------------------------------------

void rn_hlo_print(rn_hlo *h, const char *format, ...) RN_PRINTF(2, 3);
// RN_UNSUPPORTED: "<node>: <message>".
void rn_hlo_refuse(rn_hlo *h, const char *format, ...) RN_PRINTF(2, 3);
// "bf16", "i1"; NULL where StableHLO (or those who compile it) has no such type.
const char *rn_hlo_element(rn_dtype dtype);
typedef struct rn_hlo_text {
    char text[240];
} rn_hlo_text;
rn_hlo_text rn_hlo_type(rn_dtype dtype, rn_shape shape);             // "tensor<2x3xf32>"
rn_hlo_text rn_hlo_name(rn_hlo_value value);                         // "%v7"
rn_hlo_text rn_hlo_numbers(const uint64_t *numbers, uint32_t count); // "[0, 1]"
rn_hlo_text rn_hlo_array(const uint64_t *numbers, uint32_t count);   // "array<i64: 0, 1>"

// ---- any operation ------------------------------------------------------------------------------

// A value that has no line yet.
rn_hlo_value rn_hlo_new(rn_hlo *h, rn_dtype dtype, rn_shape shape);
// %v7 = "<name>"(<operands>) <regions> {<attributes>} : (<types>) -> <type>; name with its dialect.
rn_hlo_value rn_hlo_op(rn_hlo *h, const char *name, const rn_hlo_value *operands, uint32_t count,
                       const char *regions, const char *attributes, rn_dtype dtype, rn_shape shape);

// ---- numbers ------------------------------------------------------------------------------------

rn_hlo_value rn_hlo_float(rn_hlo *h, rn_dtype dtype, double number,
                          rn_shape shape); // every element
rn_hlo_value rn_hlo_whole(rn_hlo *h, rn_dtype dtype, int64_t number, rn_shape shape);
// The number in whatever dtype x has, and its shape.
rn_hlo_value rn_hlo_like(rn_hlo *h, rn_hlo_value x, double number);
rn_hlo_value rn_hlo_bytes(rn_hlo *h, rn_dtype dtype, rn_shape shape, const void *data);
rn_hlo_value rn_hlo_iota(rn_hlo *h, rn_dtype dtype, rn_shape shape, uint32_t axis);

// ---- element by element -------------------------------------------------------------------------

rn_hlo_value rn_hlo_unary(rn_hlo *h, const char *name, rn_hlo_value x);
rn_hlo_value rn_hlo_binary(rn_hlo *h, const char *name, rn_hlo_value a, rn_hlo_value b);
rn_hlo_value rn_hlo_compare(rn_hlo *h, const char *how, rn_hlo_value a, rn_hlo_value b); // "LT"
rn_hlo_value rn_hlo_select(rn_hlo *h, rn_hlo_value which, rn_hlo_value yes, rn_hlo_value no);
rn_hlo_value rn_hlo_convert(rn_hlo *h, rn_hlo_value x, rn_dtype dtype);
// f16 and bf16 as f32: what ops compute in.
rn_hlo_value rn_hlo_widen(rn_hlo *h, rn_hlo_value x);

// ---- moving -------------------------------------------------------------------------------------

rn_hlo_value rn_hlo_reshape(rn_hlo *h, rn_hlo_value x, rn_shape shape);
// Axis i of x is axis axes[i] of the result; an axis of 1 may become any.
rn_hlo_value rn_hlo_broadcast(rn_hlo *h, rn_hlo_value x, rn_shape shape, const uint64_t *axes);
rn_hlo_value rn_hlo_expand(rn_hlo *h, rn_hlo_value x, rn_shape shape);          // NumPy's rule
rn_hlo_value rn_hlo_transpose(rn_hlo *h, rn_hlo_value x, const uint64_t *axes); // as rn_op_permute
rn_hlo_value rn_hlo_slice(rn_hlo *h, rn_hlo_value x, uint32_t axis, uint64_t start, uint64_t count);
rn_hlo_value rn_hlo_concat(rn_hlo *h, const rn_hlo_value *parts, uint32_t count, uint32_t axis);
// Those of an axis that ids name: x's shape with ids' in the axis's place. Ids beyond the ends are
// those of the ends.
rn_hlo_value rn_hlo_take(rn_hlo *h, rn_hlo_value x, rn_hlo_value ids, uint32_t axis);
// By the letter of C where floats become whole numbers: towards 0, the nearest end where there is
// no such number, 0 for NaN.
rn_hlo_value rn_hlo_truncate(rn_hlo *h, rn_hlo_value x, rn_dtype dtype);
// y[i][j] = x[indices[i][j]][j] for axis 0; indices of x's rank, none negative.
rn_hlo_value rn_hlo_take_elements(rn_hlo *h, rn_hlo_value x, rn_hlo_value indices, uint32_t axis);
// What lies in x at places: an index into each of the first `count` axes, all i64 of one shape.
rn_hlo_value rn_hlo_take_places(rn_hlo *h, rn_hlo_value x, const rn_hlo_value *indices,
                                uint32_t count);
rn_hlo_value rn_hlo_reverse(rn_hlo *h, rn_hlo_value x, uint32_t axis);
// One element of a vector, or one index of axis 0, which stays as an axis of 1.
rn_hlo_value rn_hlo_pick(rn_hlo *h, rn_hlo_value x, rn_hlo_value index);
// x with `update` at index `index` of axis 0.
rn_hlo_value rn_hlo_place(rn_hlo *h, rn_hlo_value x, rn_hlo_value update, rn_hlo_value index);

// ---- summing ------------------------------------------------------------------------------------

// "add", "maximum", "minimum", "multiply", "and", "or" over the axes of the mask. keep: as axes
// of 1.
rn_hlo_value rn_hlo_reduce(rn_hlo *h, const char *name, rn_hlo_value x, uint32_t axes, bool keep);
// The number that such a reduction begins with.
rn_hlo_value rn_hlo_neutral(rn_hlo *h, const char *name, rn_dtype dtype);
// "({ ^bb0(%a: ...): ... })" for an operation that combines two scalars by `name`.
rn_hlo_text rn_hlo_combine(const char *name, rn_dtype dtype);

// The same for pairs (number, index), for the largest (smallest) number and where it lies: a stays
// where it beats b, or where neither does and its index does. NaN beats every number, and the first
// NaN stays.
void rn_hlo_print_beats(rn_hlo *h, rn_dtype dtype, rn_dtype index, bool smallest, bool last);

typedef struct rn_hlo_dot {
    uint64_t batch_a[RN_MAX_RANK], batch_b[RN_MAX_RANK], sum_a[2], sum_b[2];
    uint32_t batch_count, sum_count;
} rn_hlo_dot;
// A product as the options say: batch axes, the others of a, the others of b. f32 of floats.
rn_hlo_value rn_hlo_product(rn_hlo *h, rn_hlo_value a, rn_hlo_value b, const rn_hlo_dot *axes);
// An operand of a product as the options say, and what is written for the precision of both.
rn_hlo_value rn_hlo_operand(rn_hlo *h, rn_hlo_value x);
const char *rn_hlo_precision(rn_hlo_value operand);

// ---- loops --------------------------------------------------------------------------------------

enum { RN_HLO_CARRIED = 4 };
// for (index = 0; index < trips; index++): what is written between begin and end is the body.
typedef struct rn_hlo_loop {
    rn_hlo_value index; // i32, within the body
    rn_hlo_value carried[RN_HLO_CARRIED];
    uint32_t count, result;
} rn_hlo_loop;
rn_hlo_loop rn_hlo_loop_begin(rn_hlo *h, uint64_t trips, const rn_hlo_value *start, uint32_t count);
// carried becomes `next`; behind the loop, out[i] is what carried[i] has become.
void rn_hlo_loop_end(rn_hlo *h, rn_hlo_loop *loop, const rn_hlo_value *next, rn_hlo_value *out);

#endif
