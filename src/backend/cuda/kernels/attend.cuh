// attend.cuh — what the attention kernels share: pages, rotations, softmax.
//
// Every step that decides a row's bits stands here once, so that one row alone and a prompt's tile
// take the same instructions: rounding is spelled out (__fmul_rn, fmaf), nothing is left to
// contraction.
#pragma once

#include "args.h"

#include <cuda_fp16.h>

namespace rn_att {

// Where a key lies if not in a page: its row must not look, or the table names no page. Numbers of
// rows are below both.
enum : uint32_t { NOWHERE = 0xffffffffu, LOST = 0xfffffffeu };
enum : uint32_t { CHUNK = RN_ATTEND_CHUNK, TILE = RN_ATTEND_TILE };

#define RN_NO_SCORE (-__int_as_float(0x7f800000)) // -inf

// ---- the order of kernels -----------------------------------------------------------------------

// All that the kernels before this one made is there. Blocks that have nothing to do may leave
// without it as long as some block of the grid waits: a grid has ended when all of its blocks have.
static __device__ __forceinline__ void wait_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel behind may begin (and then waits itself), and fetches its weights while this one
// works. The first kernel of an operation calls it behind its wait: while blocks of the product
// before still lie on some multiprocessors, those of the next would be placed unevenly, two on some
// of the others. None overtakes: each waits until the grid before it has ended and what that wrote
// is seen, and that grid has waited in the same way before it ended.
static __device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- pages --------------------------------------------------------------------------------------

struct key_range {
    uint32_t first, end; // end 0: none
};

// The keys that a row sees; none for a row of nobody, or one that tables do not hold.
static __device__ __forceinline__ key_range find_keys(const rn_attend_args &a, int32_t sequence,
                                                      int32_t position) {
    if (sequence < 0 || (uint32_t)sequence >= a.sequences || position < 0 ||
        (uint32_t)position >= a.table_pages * a.page_tokens)
        return {0, 0};
    uint32_t end = (uint32_t)position + 1;
    return {a.window && end > a.window ? end - a.window : 0, end};
}

// What a row without keys gets: nothing for a row of nobody; one that tables do not hold is a
// mistake, and never a plausible number.
static __device__ __forceinline__ float find_blank(int32_t sequence) {
    return sequence == -1 ? 0.0f : __int_as_float(0x7fc00000);
}

// The number of a key's row of D elements among all of kv; LOST where the table names no page.
// Its value's row is kv_heads * page_tokens behind it.
static __device__ __forceinline__ uint32_t find_row(const rn_attend_args &a, uint32_t sequence,
                                                    uint32_t position, uint32_t kv_head) {
    uint32_t index = position / a.page_tokens;
    int32_t page = a.pages[(size_t)sequence * a.table_pages + index];
    if (page < 0 || (uint32_t)page >= a.page_count) return LOST;
    return ((uint32_t)page * 2 * a.kv_heads + kv_head) * a.page_tokens +
           (position - index * a.page_tokens);
}

// ---- what a block works on and leaves -----------------------------------------------------------

// How many heads of a group a block for many rows works on.
static __device__ __forceinline__ uint32_t share_heads(uint32_t group) {
    return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
}

// Partial results: values (rows, H, chunks, D), then (top, sum) of each.
static __device__ __forceinline__ float *find_partial(const rn_attend_args &a, uint32_t row,
                                                      uint32_t head, uint32_t chunk) {
    return a.partial + (((size_t)row * a.heads + head) * a.chunks + chunk) * a.head_dim;
}

static __device__ __forceinline__ float2 *find_measure(const rn_attend_args &a, uint32_t row,
                                                       uint32_t head, uint32_t chunk) {
    float *behind = a.partial + (size_t)a.rows * a.heads * a.chunks * a.head_dim;
    return (float2 *)behind + ((size_t)row * a.heads + head) * a.chunks + chunk;
}

// ---- rotations ----------------------------------------------------------------------------------

struct rotation {
    float cosine, sine;
};

// Pair i of a head turns by a whole number of turns and a rest: only the rest counts, and it is
// found in double, so that far positions turn as exactly as near ones.
static __device__ __forceinline__ rotation find_rotation(const rn_rope_table &rope,
                                                         int32_t position, uint32_t pair) {
    if (2 * pair >= rope.dims) return {1, 0};
    double turns = __dmul_rn(position, rope.turns[pair]);
    rotation r;
    sincospif((float)(2 * __dadd_rn(turns, -rint(turns))), &r.sine, &r.cosine);
    r.cosine = __fmul_rn(r.cosine, rope.factor);
    r.sine = __fmul_rn(rope.inverse ? -r.sine : r.sine, rope.factor);
    return r;
}

// The dims of pair i, those that are not turned included.
static __device__ __forceinline__ uint2 find_pair(const rn_rope_table &rope, uint32_t pair) {
    if (rope.neighbours || 2 * pair >= rope.dims) return make_uint2(2 * pair, 2 * pair + 1);
    return make_uint2(pair, pair + rope.dims / 2);
}

static __device__ __forceinline__ float2 turn(const rn_rope_table &rope, rotation r, uint32_t pair,
                                              float2 x) {
    if (2 * pair >= rope.dims) return x;
    return make_float2(__fsub_rn(__fmul_rn(x.x, r.cosine), __fmul_rn(x.y, r.sine)),
                       __fadd_rn(__fmul_rn(x.y, r.cosine), __fmul_rn(x.x, r.sine)));
}

// A query as the matrix units take it: within f16's range, a NaN stays one.
static __device__ __forceinline__ __half round_query(float x) {
    return __float2half_rn(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

// ---- softmax ------------------------------------------------------------------------------------

static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What exponents are taken relative to: 0 while nothing was seen.
static __device__ __forceinline__ float find_base(float top) {
    return top == RN_NO_SCORE ? 0.0f : top;
}

// What two parts of a row's keys are multiplied by when they are put together.
struct blend {
    float left, right;
};

// Scores are in powers of two. A part that saw nothing (top -inf, sum 0, values 0) changes nothing,
// to the last bit.
static __device__ __forceinline__ blend join(float &top, float &sum, float other_top,
                                             float other_sum) {
    float both = fmaxf(top, other_top), base = find_base(both);
    blend b = {power_of_two(top - base), power_of_two(other_top - base)};
    sum = fmaf(other_sum, b.right, __fmul_rn(sum, b.left));
    top = both;
    return b;
}

static __device__ __forceinline__ float join_value(blend b, float value, float other) {
    return fmaf(other, b.right, __fmul_rn(value, b.left));
}

static __device__ __forceinline__ float find_inverse(float sum) {
    return sum == 0 ? 0.0f : __frcp_rn(sum);
}

// + 0: a zero has no sign, which would tell of keys that were not seen.
static __device__ __forceinline__ float finish(float value, float inverse) {
    return __fadd_rn(__fmul_rn(value, inverse), 0.0f);
}

} // namespace rn_att
