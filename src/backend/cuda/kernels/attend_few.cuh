// attend_few.cuh — a block for one row, the heads of one group and one chunk of 256 keys.
//
// The group's heads are the 16 rows of a fragment. First each warp scores 32 of the keys, then each
// takes some of the dims through all tiles of values: the order in which an element is summed is
// that of attend_many.cuh, where one warp does both.
#pragma once

#include "attend_fragment.cuh"

namespace rn_att {

enum : int { FEW_THREADS = 256, FEW_WARPS = 8 };

template <int D> struct few_memory {
    static constexpr bool both = D <= 128; // keys and values fit beside each other
    __half k[CHUNK][D + 8];                // padded: the rows of a matrix lie in different banks
    __half v[both ? CHUNK : 1][D + 8];
    __half q[16][D + 8];
    __half p[16][CHUNK + 8];
    float top[FEW_WARPS][16];    // of the 32 keys of a warp
    float sum[FEW_WARPS][16][4]; // of each of the four lanes that share a row
    rotation rotations[D / 2];   // of the row's position
    uint32_t offset[CHUNK];      // find_row of each key
    int32_t source[CHUNK];       // the row of this call that makes the key; -1: none
    uint32_t fresh[CHUNK];       // the keys with a source
    uint32_t fresh_count;
};

struct few_place {
    uint32_t row, sequence, kv_head, head, head_count;
    bool writes; // this block appends the row's key and value
    key_range keys;
};

// Which keys of the chunk lie where, and which of them are made in this very call.
template <int D>
static __device__ __forceinline__ void find_chunk(const rn_attend_args &a, few_memory<D> &m,
                                                  const few_place &w, uint32_t begin) {
    uint32_t key = begin + threadIdx.x;
    bool seen = key >= w.keys.first && key < w.keys.end;
    m.offset[threadIdx.x] = seen ? find_row(a, w.sequence, key, w.kv_head) : NOWHERE;
    m.source[threadIdx.x] = -1;
    if (threadIdx.x == 0) m.fresh_count = 0;
    __syncthreads();
    if (!a.k) return;
    for (uint32_t t = threadIdx.x; t < a.rows; t += FEW_THREADS) {
        uint32_t at = (uint32_t)a.position[t] - begin;
        if ((uint32_t)a.sequence[t] == w.sequence && at < CHUNK && m.offset[at] < LOST)
            atomicMax(&m.source[at], (int32_t)t); // of rows for one place the last one counts
    }
    __syncthreads();
    if (m.source[threadIdx.x] >= 0) m.fresh[atomicAdd(&m.fresh_count, 1)] = threadIdx.x;
}

// Keys (or values, `behind` rows further on) [first, end) of the chunk, but for the fresh ones.
template <int D>
static __device__ __forceinline__ void fetch_chunk(const rn_attend_args &a, const few_memory<D> &m,
                                                   __half (*target)[D + 8], uint32_t behind,
                                                   uint32_t first, uint32_t end) {
    const __half *kv = (const __half *)a.kv;
    for (uint32_t i = first * (D / 8) + threadIdx.x; i < end * (D / 8); i += FEW_THREADS) {
        uint32_t key = i / (D / 8), piece = i % (D / 8), row = m.offset[key];
        if (m.source[key] >= 0) continue;
        if (row == LOST) {
            fill_piece(&target[key][piece * 8]);
            continue;
        }
        bool given = row != NOWHERE;
        const __half *from = given ? kv + (size_t)(row + behind) * D + piece * 8 : kv;
        copy_piece(&target[key][piece * 8], from, given);
    }
    end_copies();
}

// What this call brings to a chunk, line by line of D: the queries of the heads, then of each fresh
// key its key and its value. Items are pairs of dims; a thread asks for several before it uses one,
// since nothing but the way to memory takes time here.
enum : uint32_t { NEW_QUERIES = 1, NEW_KEYS = 2, NEW_VALUES = 4 };

template <int D>
static __device__ __forceinline__ void place_item(const rn_attend_args &a, few_memory<D> &m,
                                                  const few_place &w, uint32_t begin, uint32_t line,
                                                  uint32_t pair, float2 x) {
    bool query = line < w.head_count, value = !query && (line - w.head_count) % 2;
    uint2 at = value ? make_uint2(2 * pair, 2 * pair + 1) : find_pair(a.rope, pair);
    if (query) {
        x = turn(a.rope, m.rotations[pair], pair, x);
        m.q[line][at.x] = round_query(x.x);
        m.q[line][at.y] = round_query(x.y);
        return;
    }
    uint32_t key = m.fresh[(line - w.head_count) / 2], position = begin + key;
    bool own = position == w.keys.end - 1;
    if (!value)
        x = turn(a.rope, own ? m.rotations[pair] : find_rotation(a.rope, (int32_t)position, pair),
                 pair, x);
    __half low = __float2half_rn(x.x), high = __float2half_rn(x.y);
    __half *target = value && few_memory<D>::both ? m.v[key] : m.k[key];
    target[at.x] = low;
    target[at.y] = high;
    if (!w.writes || m.source[key] != (int32_t)w.row) return;
    size_t row = (size_t)m.offset[key] + (value ? a.kv_heads * a.page_tokens : 0);
    __half *page = (__half *)a.kv + row * D;
    page[at.x] = low;
    page[at.y] = high;
}

template <int D>
static __device__ __forceinline__ void place_new(const rn_attend_args &a, few_memory<D> &m,
                                                 const few_place &w, uint32_t begin,
                                                 uint32_t which) {
    constexpr int AHEAD = 4;
    uint32_t lines = w.head_count + 2 * m.fresh_count;
    for (uint32_t i = threadIdx.x; i < lines * (D / 2); i += AHEAD * FEW_THREADS) {
        float2 x[AHEAD];
        bool given[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t item = i + j * FEW_THREADS, line = item / (D / 2), pair = item % (D / 2);
            bool query = line < w.head_count, value = !query && (line - w.head_count) % 2;
            given[j] = line < lines && (which & (query   ? NEW_QUERIES
                                                 : value ? NEW_VALUES
                                                         : NEW_KEYS));
            if (!given[j]) continue;
            const float *from = a.q + ((size_t)w.row * a.heads + w.head + line) * D;
            if (!query) {
                uint32_t row = (uint32_t)m.source[m.fresh[(line - w.head_count) / 2]];
                from = (value ? a.v : a.k) + ((size_t)row * a.kv_heads + w.kv_head) * D;
            }
            uint2 at = value ? make_uint2(2 * pair, 2 * pair + 1) : find_pair(a.rope, pair);
            x[j] = make_float2(from[at.x], from[at.y]);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t item = i + j * FEW_THREADS;
            if (given[j]) place_item(a, m, w, begin, item / (D / 2), item % (D / 2), x[j]);
        }
    }
}

// The warp's 32 keys against the 16 queries.
template <int D>
static __device__ __forceinline__ void find_scores(const few_memory<D> &m, float (&s)[4][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const __half *q = &m.q[lane % 16][lane / 16 * 8];
    const __half *k = &m.k[32 * warp + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t x[4];
        load_matrices(x, q + d);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            uint32_t y[4];
            load_matrices(y, k + n * 8 * (D + 8) + d);
            multiply(s[n], x, y[0], y[1]);
            multiply(s[n + 1], x, y[2], y[3]);
        }
    }
}

// The largest score of tiles [0, tile) that row `row` of the fragment sees.
template <int D>
static __device__ __forceinline__ float find_top(const few_memory<D> &m, uint32_t row,
                                                 uint32_t tile) {
    float top = RN_NO_SCORE;
    for (uint32_t i = 0; i < 2 * tile; i++)
        top = fmaxf(top, m.top[i][row]);
    return top;
}

template <int D>
static __device__ __forceinline__ void soften(few_memory<D> &m, const float (&s)[4][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4;
    float low = find_base(find_top(m, row, warp / 2 + 1));
    float high = find_base(find_top(m, row + 8, warp / 2 + 1)), low_sum = 0, high_sum = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float p[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[i] = power_of_two(__fadd_rn(s[n][i], i < 2 ? -low : -high));
        low_sum = __fadd_rn(__fadd_rn(low_sum, p[0]), p[1]);
        high_sum = __fadd_rn(__fadd_rn(high_sum, p[2]), p[3]);
        uint32_t column = 32 * warp + 8 * n + lane % 4 * 2;
        *(uint32_t *)&m.p[row][column] = pack_two(p[0], p[1]);
        *(uint32_t *)&m.p[row + 8][column] = pack_two(p[2], p[3]);
    }
    m.sum[warp][row][lane % 4] = low_sum;
    m.sum[warp][row + 8][lane % 4] = high_sum;
}

// One tile of the chunk, for the dims [8 (warp + 8 n), + 8) of this warp.
template <int D>
static __device__ __forceinline__ void add_tile(const few_memory<D> &m,
                                                const __half (*values)[D + 8],
                                                holding<(D + 63) / 64> &h, uint32_t tile) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, c = lane % 4;
    const auto *top = &m.top[2 * tile];
    float low_top = fmaxf(h.low_top, fmaxf(top[0][row], top[1][row]));
    float high_top = fmaxf(h.high_top, fmaxf(top[0][row + 8], top[1][row + 8]));
    float low = power_of_two(h.low_top - find_base(low_top));
    float high = power_of_two(h.high_top - find_base(high_top));
    const auto *sum = &m.sum[2 * tile];
    h.low_sum = fmaf(h.low_sum, low, __fadd_rn(sum[0][row][c], sum[1][row][c]));
    h.high_sum = fmaf(h.high_sum, high, __fadd_rn(sum[0][row + 8][c], sum[1][row + 8][c]));
    h.low_top = low_top;
    h.high_top = high_top;
    shrink(h, low, high);
#pragma unroll
    for (int k = 0; k < (int)TILE; k += 32) {
        uint32_t x[2][4];
        const __half *p = &m.p[lane % 16][TILE * tile + k + lane / 16 * 8];
        load_matrices(x[0], p);
        load_matrices(x[1], p + 16);
#pragma unroll
        for (int n = 0; n < (D + 63) / 64; n++) {
            if (8 * (warp + 8 * n) >= D) continue;
            uint32_t y[4];
            load_transposed(y, &values[TILE * tile + k + lane][8 * (warp + 8 * n)]);
            multiply(h.value[n], x[0], y[0], y[1]);
            multiply(h.value[n], x[1], y[2], y[3]);
        }
    }
}

template <int D>
static __device__ __forceinline__ void write_chunk(const rn_attend_args &a, const few_place &w,
                                                   holding<(D + 63) / 64> &h, uint32_t chunk,
                                                   bool alone) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int half = 0; half < 2; half++) {
        uint32_t row = lane / 4 + 8 * half, head = w.head + row;
        if (row >= w.head_count) continue;
        float top = half ? h.high_top : h.low_top, sum = half ? h.high_sum : h.low_sum;
        float inverse = find_inverse(sum);
        float *out = alone ? a.out + ((size_t)w.row * a.heads + head) * D
                           : find_partial(a, w.row, head, chunk);
#pragma unroll
        for (int n = 0; n < (D + 63) / 64; n++) {
            uint32_t d = 8 * (warp + 8 * n) + lane % 4 * 2;
            if (d >= D) continue;
            float x = h.value[n][2 * half], y = h.value[n][2 * half + 1];
            if (alone) x = finish(x, inverse), y = finish(y, inverse);
            *(float2 *)(out + d) = make_float2(x, y);
        }
        if (!alone && warp == 0 && lane % 4 == 0)
            *find_measure(a, w.row, head, chunk) = make_float2(top, sum);
    }
}

// Keys in order, values after them: first the copies of what older calls appended, which need not
// wait for the kernels before this one where this call does its own appending. (A kernel that
// appended to the same pages belongs to an earlier run, and a run begins with copies.)
template <int D>
static __device__ __forceinline__ void attend_chunk(const rn_attend_args &a, few_memory<D> &m,
                                                    const few_place &w, uint32_t chunk, bool first,
                                                    bool alone) {
    constexpr bool both = few_memory<D>::both;
    uint32_t begin = chunk * CHUNK, behind = a.kv_heads * a.page_tokens;
    uint32_t from = w.keys.first > begin ? (w.keys.first - begin) / TILE : 0;
    uint32_t to = (min(w.keys.end - begin, (uint32_t)CHUNK) + TILE - 1) / TILE; // tiles [from, to)
    __half(*values)[D + 8] = both ? m.v : m.k;
    find_chunk(a, m, w, begin);
    fetch_chunk<D>(a, m, m.k, 0, from * TILE, to * TILE);
    if (both) fetch_chunk<D>(a, m, m.v, behind, from * TILE, to * TILE);
    wait_before();
    __syncthreads();
    place_new(a, m, w, begin,
              (first ? NEW_QUERIES : 0u) | NEW_KEYS | (both ? (uint32_t)NEW_VALUES : 0u));
    await_copies<both ? 1 : 0>();
    __syncthreads();

    float s[4][4] = {};
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool busy = warp / 2 >= from && warp / 2 < to;
    float low = RN_NO_SCORE, high = RN_NO_SCORE;
    if (busy) find_scores(m, s);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t key = begin + 32 * warp + 8 * n + lane % 4 * 2;
        mask_scores(s[n], a.scale * 1.4426950408889634f, key, w.keys, w.keys);
        low = fmaxf(low, fmaxf(s[n][0], s[n][1]));
        high = fmaxf(high, fmaxf(s[n][2], s[n][3]));
    }
    for (int i = 1; i <= 2; i++) {
        low = fmaxf(low, __shfl_xor_sync(~0u, low, i));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    if (lane % 4 == 0) m.top[warp][lane / 4] = low, m.top[warp][lane / 4 + 8] = high;
    __syncthreads();
    if (!both) { // the keys have been read: values take their place
        fetch_chunk<D>(a, m, m.k, behind, from * TILE, to * TILE);
        place_new(a, m, w, begin, NEW_VALUES);
    }
    if (busy) soften(m, s);
    await_copies<0>();
    __syncthreads();

    holding<(D + 63) / 64> h;
    clear(h);
    for (uint32_t tile = from; tile < to; tile++)
        add_tile<D>(m, values, h, tile);
    sum_lanes(h);
    write_chunk<D>(a, w, h, chunk, alone);
}

// Grid (blocks that share a row's chunks, key heads x parts of 16 heads of a group, rows).
template <int D> static __device__ __forceinline__ void attend_few(const rn_attend_args &a) {
    extern __shared__ __align__(16) uint8_t memory[];
    few_memory<D> &m = *reinterpret_cast<few_memory<D> *>(memory);
    uint32_t group = a.heads / a.kv_heads, parts = (group + 15) / 16, part = blockIdx.y % parts;
    let_next_begin();
    if (!a.k) wait_before();
    uint32_t row = blockIdx.z, kv_head = blockIdx.y / parts;
    int32_t sequence = a.sequence[row];
    few_place w = {row,
                   (uint32_t)sequence,
                   kv_head,
                   kv_head * group + part * 16,
                   min(group - part * 16, 16u),
                   part == 0,
                   find_keys(a, sequence, a.position[row])};
    if (w.keys.end == 0) {
        wait_before();
        float *out = a.out + ((size_t)row * a.heads + w.head) * D;
        for (uint32_t i = threadIdx.x; blockIdx.x == 0 && i < w.head_count * D; i += FEW_THREADS)
            out[i] = finish(0.0f, find_blank(sequence)); // as many rows have it, to the bit
        return;
    }
    for (uint32_t i = threadIdx.x; i < D / 2; i += FEW_THREADS)
        m.rotations[i] = find_rotation(a.rope, (int32_t)w.keys.end - 1, i);
    for (uint32_t i = threadIdx.x; i < (16 - w.head_count) * (D / 2); i += FEW_THREADS)
        *(uint32_t *)&m.q[w.head_count + i / (D / 2)][i % (D / 2) * 2] = 0;
    uint32_t chunk = w.keys.first / CHUNK, end = (w.keys.end - 1) / CHUNK + 1;
    bool alone = end - chunk == 1, first = true;
    for (chunk += blockIdx.x; chunk < end; chunk += gridDim.x, first = false) {
        if (!first) __syncthreads();
        attend_chunk<D>(a, m, w, chunk, first, alone);
    }
    wait_before();
}

} // namespace rn_att
