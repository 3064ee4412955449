// attend.cu — attention over KV pages of f16, by the matrix units: D 64, 96, 128, 256.
//
//     append   rope of k, and k and v to their pages
//     few      one block a (row, key head, chunk of 256 keys): the heads of a group are the 16 rows
//              of a fragment; appends by itself
//     merge    puts a row's chunks together
//     many     one block for 64 (row, head) pairs that share a key head, and all their chunks
//
// Which of few and many is launched is a matter of speed (backend/cuda/attend.c): an element of the
// result is made by the same instructions on the same operands in both. A score is summed over d in
// steps of 16; within a tile of 64 keys, lane l % 4 sums the powers of keys 2 (l % 4) + {0, 1} of
// each eight, the tile's halves apart; a value's sum goes over the tile's keys in steps of 16.
//
// A key that a row does not see counts as exactly nothing as long as values are finite: an infinity
// or NaN among a sequence's values may show in other rows of the sequence, never in other
// sequences. A key whose page is missing is NaN, and so are the rows that see it.
#include "attend_few.cuh"
#include "attend_many.cuh"

// The bytes of shared memory that kernels.def asks for.
#define RN_ATTEND(D, FEW_BYTES, MANY_BYTES)                                                        \
    static_assert(sizeof(rn_att::few_memory<D>) == FEW_BYTES, "kernels.def");                      \
    static_assert(sizeof(rn_att::many_memory<D>) == MANY_BYTES, "kernels.def");                    \
    extern "C" __global__ void __launch_bounds__(rn_att::FEW_THREADS, rn_att::few_share<D>)        \
        rn_attend_few_##D(const __grid_constant__ rn_attend_args a) {                              \
        rn_att::attend_few<D>(a);                                                                  \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(rn_att::MANY_THREADS, D <= 128 ? 2 : 1)           \
        rn_attend_many_##D(const __grid_constant__ rn_attend_args a) {                             \
        rn_att::attend_many<D>(a);                                                                 \
    }
RN_ATTEND(64, 90500, 55184)
RN_ATTEND(96, 71236, 79824)
RN_ATTEND(128, 88836, 104464)
RN_ATTEND(256, 159236, 168704)

// A row's chunks in order: grid (heads, rows), a thread a dim. A row of one chunk is there already.
extern "C" __global__ void __launch_bounds__(256)
    rn_attend_merge(const __grid_constant__ rn_attend_args a) {
    using namespace rn_att;
    let_next_begin();
    uint32_t head = blockIdx.x, row = blockIdx.y, d = threadIdx.x;
    if (!a.k) wait_before();
    key_range keys = find_keys(a, a.sequence[row], a.position[row]);
    uint32_t first = keys.first / CHUNK, end = (keys.end + CHUNK - 1) / CHUNK;
    wait_before();
    if (d >= a.head_dim || end - first < 2 || keys.end == 0) return;
    float top = RN_NO_SCORE, sum = 0, value = 0;
    for (uint32_t at = first; at < end; at += 8) {
        uint32_t count = min(end - at, 8u);
        float2 measure[8];
        float part[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            if (i < count) {
                measure[i] = __ldcg(find_measure(a, row, head, at + i));
                part[i] = __ldcg(&find_partial(a, row, head, at + i)[d]);
            }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            if (i < count && measure[i].y != 0)
                value = join_value(join(top, sum, measure[i].x, measure[i].y), value, part[i]);
    }
    a.out[((size_t)row * a.heads + head) * a.head_dim + d] = finish(value, find_inverse(sum));
}

// ---- appending ----------------------------------------------------------------------------------

namespace rn_att {

// x (D) of the warp to row `row` of the pages.
static __device__ __forceinline__ void store_row(const rn_attend_args &a, const float *x,
                                                 size_t row) {
    uint32_t lane = threadIdx.x % 32, dims = a.head_dim;
    for (uint32_t d = lane; a.kv_type == 0 && d < dims; d += 32)
        ((float *)a.kv)[row * dims + d] = x[d];
    for (uint32_t d = lane; a.kv_type == 1 && d < dims; d += 32)
        ((__half *)a.kv)[row * dims + d] = __float2half_rn(x[d]);
    uint8_t *block = (uint8_t *)a.kv + row * (dims / 32 * 34);
    for (uint32_t d = lane; a.kv_type == 2 && d < dims; d += 32, block += 34) {
        uint32_t peak = __reduce_max_sync(~0u, __float_as_uint(x[d]) & 0x7fffffffu);
        float scale = __fdiv_rn(__uint_as_float(peak), 127.0f);
        float y = __fmul_rn(x[d], scale != 0 ? __fdiv_rn(1.0f, scale) : 0.0f);
        // half away from zero: what is below one half must not be carried over by the addition
        int32_t q = fabsf(y) < 256 ? (int32_t)__fadd_rn(y, copysignf(0x1.fffffep-2f, y)) : 0;
        if (lane == 0) *(__half *)block = __float2half_rn(scale);
        block[2 + lane] = (uint8_t)q;
    }
}

} // namespace rn_att

// A warp a (row, key head); rows of nobody and pages that are none are left out.
extern "C" __global__ void __launch_bounds__(128)
    rn_attend_append(const __grid_constant__ rn_attend_args a) {
    using namespace rn_att;
    __shared__ float line[4][2][RN_ROPE_MOST];
    wait_before();
    let_next_begin();
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dims = a.head_dim;
    uint32_t index = blockIdx.x * 4 + warp, row = index / a.kv_heads, head = index % a.kv_heads;
    if (row >= a.rows) return;
    int32_t sequence = a.sequence[row], position = a.position[row];
    if (find_keys(a, sequence, position).end == 0) return;
    uint32_t place = find_row(a, (uint32_t)sequence, (uint32_t)position, head);
    if (place == LOST) return;
    const float *k = a.k + (size_t)index * dims, *v = a.v + (size_t)index * dims;
    for (uint32_t pair = lane; 2 * pair < dims; pair += 32) {
        uint2 at = find_pair(a.rope, pair);
        bool two = at.y < dims; // an odd D has a single one at its end, which is never turned
        rotation r = find_rotation(a.rope, position, pair);
        float2 x = turn(a.rope, r, pair, make_float2(k[at.x], two ? k[at.y] : 0));
        line[warp][0][at.x] = x.x;
        if (two) line[warp][0][at.y] = x.y;
    }
    for (uint32_t d = lane; d < dims; d += 32)
        line[warp][1][d] = v[d];
    __syncwarp();
    store_row(a, line[warp][0], place);
    store_row(a, line[warp][1], (size_t)place + a.kv_heads * a.page_tokens);
}
