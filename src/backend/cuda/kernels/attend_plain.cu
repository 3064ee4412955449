// attend_plain.cu — attention over KV pages of f32 and q8_0, and of f16 with a D that attend.cu has
// no kernel for; everything in f32. What is new has been appended before (rn_attend_append).
//
//     few    one block a (row, up to 32 heads of a group, chunk)
//     many   one block for 32 (row, head) pairs that share a key head, and all their chunks
#include "attend_plain.cuh"

namespace rn_att {

static __device__ __forceinline__ float widen(const rn_attend_args &a, size_t row, uint32_t d) {
    if (a.kv_type == 0) return ((const float *)a.kv)[row * a.head_dim + d];
    if (a.kv_type == 1) return __half2float(((const __half *)a.kv)[row * a.head_dim + d]);
    const uint8_t *block = (const uint8_t *)a.kv + (row * (a.head_dim / 32) + d / 32) * 34;
    return __fmul_rn((float)(int8_t)block[2 + d % 32], __half2float(*(const __half *)block));
}

// The rows of a tile, `behind` rows after those of its keys; zeros where nobody looks, NaN for the
// keys that are missing.
static __device__ __forceinline__ void load_tile(const rn_attend_args &a, const plain_desk &d,
                                                 const uint32_t *offset, uint32_t behind) {
    for (uint32_t key = threadIdx.x / 32; key < TILE; key += WARPS) {
        uint32_t row = offset[key];
        float none = row == LOST && behind == 0 ? __int_as_float(0x7fc00000) : 0.0f;
        for (uint32_t i = threadIdx.x % 32; i < d.dims; i += 32)
            d.tile[key * (d.dims + 1) + i] = row >= LOST ? none : widen(a, (size_t)row + behind, i);
    }
}

// Queries of a block: slot s is row s / heads, head s % heads of it.
struct plain_place {
    uint32_t row, rows, head, heads, kv_head;
};

static __device__ __forceinline__ void load_queries(const rn_attend_args &a, const plain_desk &d,
                                                    const plain_place &w) {
    uint32_t pairs = (d.dims + 1) / 2;
    for (uint32_t i = threadIdx.x; i < w.rows * pairs; i += RN_PLAIN_THREADS) {
        uint32_t r = i / pairs, pair = i % pairs, row = w.row + r;
        if (row >= a.rows) continue;
        rotation turned = find_rotation(a.rope, a.position[row], pair);
        uint2 at = find_pair(a.rope, pair);
        const float *q = a.q + ((size_t)row * a.heads + w.head) * d.dims;
        float *target = d.q + r * w.heads * d.dims;
        for (uint32_t h = 0; h < w.heads; h++, q += d.dims, target += d.dims) {
            bool two = at.y < d.dims;
            float2 x = turn(a.rope, turned, pair, make_float2(q[at.x], two ? q[at.y] : 0));
            target[at.x] = x.x;
            if (two) target[at.y] = x.y;
        }
    }
}

// The keys [all.first, all.end) of one tile, of which slot i sees seen[i].
// A score that the scale has still to come to.
static __device__ __forceinline__ float cap_score(float s, const rn_attend_args &a) {
    float capped = __fmul_rn(tanhf(__fdiv_rn(__fmul_rn(s, a.scale), a.cap)), a.cap);
    return __fdiv_rn(capped, a.scale);
}

template <int N>
static __device__ __forceinline__ void
add_tile(const rn_attend_args &a, const plain_desk &d, const plain_place &w, uint32_t *offset,
         uint32_t sequence, uint32_t tile, key_range all, const key_range (&seen)[EACH],
         plain_sum<N> (&sum)[EACH]) {
    uint32_t lane = threadIdx.x % 32, key = tile * TILE + threadIdx.x;
    __syncthreads();
    if (threadIdx.x < TILE)
        offset[threadIdx.x] =
            key >= all.first && key < all.end ? find_row(a, sequence, key, w.kv_head) : NOWHERE;
    __syncthreads();
    load_tile(a, d, offset, 0);
    __syncthreads();
    float s[EACH][2], scale = a.scale * 1.4426950408889634f;
    find_scores(d, s);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (i >= d.active) continue;
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t at = tile * TILE + lane + 32 * j;
            bool visible = at >= seen[i].first && at < seen[i].end;
            if (a.cap != 0) s[i][j] = cap_score(s[i][j], a);
            s[i][j] = visible ? __fmul_rn(s[i][j], scale) : RN_NO_SCORE;
        }
        soften(d, i, s[i][0], s[i][1], sum[i]);
    }
    __syncthreads();
    load_tile(a, d, offset, a.kv_heads * a.page_tokens);
    __syncthreads();
    add_values(d, sum);
}

template <int N>
static __device__ __forceinline__ void write_chunk(const rn_attend_args &a, const plain_place &w,
                                                   uint32_t chunk, uint32_t slot,
                                                   const plain_sum<N> &sum) {
    uint32_t lane = threadIdx.x % 32, head = w.head + slot % w.heads, row = w.row + slot / w.heads;
    float *out = find_partial(a, row, head, chunk);
#pragma unroll
    for (int j = 0; j < N; j++)
        if (lane + 32 * j < a.head_dim) out[lane + 32 * j] = sum.value[j];
    if (lane == 0) *find_measure(a, row, head, chunk) = make_float2(sum.top, sum.sum);
}

// FEW: grid (blocks that share a row's chunks, key heads x parts of 32 heads of a group, rows).
// Else: grid (heads / heads of a block, tiles of rows).
template <bool FEW>
static __device__ __forceinline__ plain_place find_place(const rn_attend_args &a) {
    uint32_t group = a.heads / a.kv_heads;
    if (!FEW) {
        uint32_t heads = share_heads(group), head = blockIdx.x * heads, rows = SLOTS / heads;
        return {(gridDim.y - 1 - blockIdx.y) * rows, rows, head, heads, head / group};
    }
    uint32_t parts = (group + SLOTS - 1) / SLOTS, kv_head = blockIdx.y / parts;
    uint32_t first = blockIdx.y % parts * SLOTS;
    return {blockIdx.z, 1, kv_head * group + first, min(group - first, (uint32_t)SLOTS), kv_head};
}

template <int N, bool FEW>
static __device__ __forceinline__ void attend_plain(const rn_attend_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    __shared__ uint32_t offset[TILE];
    let_next_begin();
    wait_before();
    plain_place w = find_place<FEW>(a);
    plain_desk d = open_desk(plain_memory, a.head_dim, w.rows * w.heads);
    uint32_t lane = threadIdx.x % 32, mine = w.row + lane;
    bool given = lane < w.rows && mine < a.rows; // lane r knows row r of the block
    int32_t sequence = given ? a.sequence[mine] : -1;
    key_range keys = find_keys(a, sequence, given ? a.position[mine] : 0);
    float blank = keys.end > 0 ? 0.0f : find_blank(sequence);
    load_queries(a, d, w);
    plain_sum<N> total[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        clear(total[i]);
    bool alone = true;
    for (uint32_t left; (left = __ballot_sync(~0u, keys.end > 0)) != 0;) { // a sequence at a time
        int32_t current = __shfl_sync(~0u, sequence, __ffs(left) - 1);
        bool mine_now = sequence == current && keys.end > 0;
        key_range all = {__reduce_min_sync(~0u, mine_now ? keys.first : NOWHERE),
                         __reduce_max_sync(~0u, mine_now ? keys.end : 0)};
        key_range seen[EACH];
        for (uint32_t i = 0; i < EACH; i++) {
            uint32_t r = slot_of(i) / w.heads % 32;
            bool same = __shfl_sync(~0u, (int)mine_now, r);
            seen[i] = {__shfl_sync(~0u, keys.first, r), __shfl_sync(~0u, keys.end, r)};
            if (!same) seen[i] = {0, 0};
        }
        if (mine_now) keys.end = 0;
        uint32_t chunk = all.first / CHUNK, end = (all.end - 1) / CHUNK + 1;
        if (FEW) alone = end - chunk == 1;
        for (chunk += FEW ? blockIdx.x : 0; chunk < end; chunk += FEW ? gridDim.x : 1) {
            plain_sum<N> sum[EACH];
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++)
                clear(sum[i]);
            uint32_t from = max(chunk * CHUNK, all.first) / TILE;
            uint32_t to = (min((chunk + 1) * CHUNK, all.end) + TILE - 1) / TILE;
            for (uint32_t tile = from; tile < to; tile++)
                add_tile(a, d, w, offset, (uint32_t)current, tile, all, seen, sum);
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++) {
                if (i >= d.active) continue;
                if (!alone) write_chunk(a, w, chunk, slot_of(i), sum[i]);
                join(total[i], sum[i]);
            }
        }
    }
    if (!alone || (FEW && blockIdx.x > 0)) return;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t row = w.row + slot_of(i) / w.heads, head = w.head + slot_of(i) % w.heads;
        total[i].sum = __fadd_rn(total[i].sum, __shfl_sync(~0u, blank, (row - w.row) % 32));
        if (i < d.active && row < a.rows)
            write_result(total[i], a.out + ((size_t)row * a.heads + head) * d.dims, d.dims);
    }
}

} // namespace rn_att

#define RN_ATTEND_PLAIN(D)                                                                         \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attend_plain_few_##D(const __grid_constant__ rn_attend_args a) {                        \
        rn_att::attend_plain<D / 32, true>(a);                                                     \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attend_plain_many_##D(const __grid_constant__ rn_attend_args a) {                       \
        rn_att::attend_plain<D / 32, false>(a);                                                    \
    }
RN_ATTEND_PLAIN(64)
RN_ATTEND_PLAIN(128)
RN_ATTEND_PLAIN(256)
