// number.h — elements of any plain dtype as numbers of one of four kinds, a few hundred at a time:
// what the ops of any dtype compute in.
//
// f32, f16, bf16 and the fp8 types are computed in f32 and rounded once, f64 in f64. Whole numbers
// and bool are computed in 64 bits and stored by their low bits: they wrap, as in C and NumPy.
#ifndef RN_GRAPH_OP_NUMBER_H
#define RN_GRAPH_OP_NUMBER_H

#include "graph/op.h"
#include "graph/op/walk.h"

typedef enum rn_number {
    RN_NUMBER_NONE, // a dtype that is no number: blocks, complex
    RN_NUMBER_F32,
    RN_NUMBER_F64,
    RN_NUMBER_I64, // i8 to i64, bool
    RN_NUMBER_U64  // u8 to u64
} rn_number;

enum { RN_NUMBERS = 256 };
typedef union rn_numbers {
    float f32[RN_NUMBERS];
    double f64[RN_NUMBERS];
    int64_t i64[RN_NUMBERS];
    uint64_t u64[RN_NUMBERS];
} rn_numbers;

rn_number rn_number_of(rn_dtype dtype);
static inline bool rn_number_is_float(rn_number number) {
    return number == RN_NUMBER_F32 || number == RN_NUMBER_F64;
}

// `n` (at most RN_NUMBERS) elements from element `at` on, `step` elements apart.
void rn_numbers_load(const rn_tensor *from, uint64_t at, uint64_t step, uint64_t n,
                     rn_numbers *out);
// To `n` neighbours from element `at` on. bool: whether it is not 0.
void rn_numbers_store(const rn_tensor *to, uint64_t at, uint64_t n, const rn_numbers *from);

// One element, as each kind; of f64 from whole numbers rounds.
double rn_number_at(const rn_tensor *from, uint64_t at);
int64_t rn_integer_at(const rn_tensor *from, uint64_t at);

// So, at once where it is f32.
static inline double rn_real_at(const rn_tensor *from, uint64_t at) {
    return from->dtype == RN_DTYPE_F32 ? (double)((const float *)from->data)[at]
                                       : rn_number_at(from, at);
}
// Stores a number made in double: floats round, whole numbers are cut off and wrap.
void rn_real_put(const rn_tensor *to, uint64_t at, double value);

// Refuses unless input i is a number of whole bytes.
rn_status rn_shape_want_number(const rn_shaping *s, uint32_t input);
// The same and a float.
rn_status rn_shape_want_float(const rn_shaping *s, uint32_t input);
// Refuses unless input i is i32 or i64.
rn_status rn_shape_want_index(const rn_shaping *s, uint32_t input);
// An axis that exists.
rn_status rn_shape_want_axis(const rn_shaping *s, uint32_t input, uint32_t axis);

// An index into an axis of `length`: negative ones count from its end. RN_INVALID beyond it.
rn_status rn_index_at(const rn_call *call, uint32_t input, uint64_t at, uint64_t length,
                      uint64_t *out);

// Where row `row` (along the last axis of `shape`) begins in a tensor of these strides.
uint64_t rn_row_begin(rn_shape shape, uint64_t row, const rn_strides *strides);

// A tensor cut at an axis: (outer, length, inner).
typedef struct rn_axis_cut {
    uint64_t outer, length, inner;
} rn_axis_cut;
rn_axis_cut rn_axis_cut_of(rn_shape shape, uint32_t axis);

#endif
