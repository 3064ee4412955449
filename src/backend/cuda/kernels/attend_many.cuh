// attend_many.cuh — a block for 64 (row, head) pairs that share a key head, and all their chunks.
//
// A warp has 16 pairs. Tiles of keys and values come in while the tile before is worked on; a chunk
// that has ended is added to those before it in shared memory.
#pragma once

#include "attend_fragment.cuh"

namespace rn_att {

// Pair `pair` of q (heads, D) of one row, turned and rounded: `count` heads from `head` on,
// `stride` elements apart in target.
template <int D>
static __device__ __forceinline__ void load_query(const rn_attend_args &a, uint32_t row,
                                                  int32_t position, uint32_t head, uint32_t count,
                                                  uint32_t pair, __half *target, uint32_t stride) {
    const float *q = a.q + ((size_t)row * a.heads + head) * D;
    rotation r = find_rotation(a.rope, position, pair);
    uint2 at = find_pair(a.rope, pair);
    for (uint32_t h = 0; h < count; h++, q += D, target += stride) {
        float2 x = turn(a.rope, r, pair, make_float2(q[at.x], q[at.y]));
        target[at.x] = round_query(x.x);
        target[at.y] = round_query(x.y);
    }
}

enum : int { MANY_THREADS = 128, PAIRS = 64 }; // (row, head) of a block: 16 a warp

template <int D> struct many_memory {
    static constexpr int stages = D <= 128 ? 2 : 1;
    static constexpr bool keeps_query = D > 128; // else queries stay in registers
    __half k[stages][TILE][D + 8], v[stages][TILE][D + 8];
    __half q[keeps_query ? PAIRS : 1][D + 8];
    union {
        __half q[PAIRS][D + 8];           // at first
        float value[D / 2][MANY_THREADS]; // the chunks before this one: each thread's own column
    } total;
    uint32_t offset[4][TILE]; // find_row of the keys of tile t: [t % 4]
    int32_t sequence[PAIRS];
    key_range keys[PAIRS];
};

template <int D>
static __device__ __forceinline__ void fetch_tile(const rn_attend_args &a, many_memory<D> &m,
                                                  uint32_t tile) {
    const __half *kv = (const __half *)a.kv;
    size_t behind = (size_t)a.kv_heads * a.page_tokens * D;
    uint32_t stage = tile % many_memory<D>::stages;
#pragma unroll
    for (uint32_t j = 0; j < TILE * (D / 8) / MANY_THREADS; j++) {
        uint32_t i = threadIdx.x + j * MANY_THREADS, key = i / (D / 8), piece = i % (D / 8);
        uint32_t row = m.offset[tile % 4][key];
        bool given = row < LOST;
        const __half *from = given ? kv + (size_t)row * D + piece * 8 : kv;
        if (row == LOST)
            fill_piece(&m.k[stage][key][piece * 8]);
        else
            copy_piece(&m.k[stage][key][piece * 8], from, given);
        copy_piece(&m.v[stage][key][piece * 8], given ? from + behind : kv, given);
    }
    end_copies();
}

// A thread's view of the rows of its block that belong to one sequence.
struct pass {
    uint32_t sequence;
    key_range all, low, high; // of all rows, of this thread's two rows
    key_range warp;           // of the warp's rows together
    key_range whole;          // what all of the warp's rows see
};

static __device__ __forceinline__ void find_offset(const rn_attend_args &a, const pass &p,
                                                   uint32_t kv_head, uint32_t tile,
                                                   uint32_t (*offset)[TILE]) {
    uint32_t i = threadIdx.x % TILE, key = tile * TILE + i;
    bool seen = key >= p.all.first && key < p.all.end;
    offset[tile % 4][i] = seen ? find_row(a, p.sequence, key, kv_head) : NOWHERE;
}

// 16 queries of a warp against the 64 keys of a tile.
template <int D>
static __device__ __forceinline__ void find_scores(const many_memory<D> &m, uint32_t stage,
                                                   const uint32_t (&q)[D / 16][4],
                                                   float (&s)[8][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const __half *k = &m.k[stage][lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t x[4];
        if (many_memory<D>::keeps_query) {
            load_matrices(x, &m.q[16 * warp + lane % 16][lane / 16 * 8 + 16 * i]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = q[i][j];
        }
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t y[4];
            load_matrices(y, k + n * 8 * (D + 8) + 16 * i);
            multiply(s[n], x, y[0], y[1]);
            multiply(s[n + 1], x, y[2], y[3]);
        }
    }
}

// Scores become powers; sums and values are scaled to the new top.
template <int N> static __device__ __forceinline__ void soften(float (&s)[8][4], holding<N> &h) {
    float low = h.low_top, high = h.high_top;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        low = fmaxf(low, fmaxf(s[n][0], s[n][1]));
        high = fmaxf(high, fmaxf(s[n][2], s[n][3]));
    }
#pragma unroll
    for (int i = 1; i <= 2; i++) {
        low = fmaxf(low, __shfl_xor_sync(~0u, low, i));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    float low_base = find_base(low), high_base = find_base(high);
    float low_shrink = power_of_two(h.low_top - low_base);
    float high_shrink = power_of_two(h.high_top - high_base);
    float low_sum[2] = {0, 0}, high_sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = power_of_two(__fadd_rn(s[n][i], i < 2 ? -low_base : -high_base));
        low_sum[n / 4] = __fadd_rn(__fadd_rn(low_sum[n / 4], s[n][0]), s[n][1]);
        high_sum[n / 4] = __fadd_rn(__fadd_rn(high_sum[n / 4], s[n][2]), s[n][3]);
    }
    h.low_sum = fmaf(h.low_sum, low_shrink, __fadd_rn(low_sum[0], low_sum[1]));
    h.high_sum = fmaf(h.high_sum, high_shrink, __fadd_rn(high_sum[0], high_sum[1]));
    h.low_top = low;
    h.high_top = high;
    // a multiplication by one changes nothing
    if (__any_sync(~0u, low_shrink != 1 || high_shrink != 1)) shrink(h, low_shrink, high_shrink);
}

template <int D>
static __device__ __forceinline__ void add_values(const __half (*values)[D + 8],
                                                  const float (&p)[8][4], holding<D / 8> &h) {
    uint32_t lane = threadIdx.x % 32;
    const __half *v = &values[lane % 16][lane / 16 * 8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint32_t x[4] = {
            pack_two(p[2 * k][0], p[2 * k][1]), pack_two(p[2 * k][2], p[2 * k][3]),
            pack_two(p[2 * k + 1][0], p[2 * k + 1][1]), pack_two(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t y[4];
            load_transposed(y, v + k * 16 * (D + 8) + n * 8);
            multiply(h.value[n], x, y[0], y[1]);
            multiply(h.value[n + 1], x, y[2], y[3]);
        }
    }
}

template <int D>
static __device__ __forceinline__ void add_tile(const rn_attend_args &a, const many_memory<D> &m,
                                                const pass &p, const uint32_t (&q)[D / 16][4],
                                                holding<D / 8> &h, uint32_t tile) {
    uint32_t begin = tile * TILE, lane = threadIdx.x % 32;
    uint32_t stage = tile % many_memory<D>::stages;
    if (p.warp.end <= begin || p.warp.first >= begin + TILE) return; // nobody here sees it
    float s[8][4] = {};
    find_scores<D>(m, stage, q, s);
    float scale = a.scale * 1.4426950408889634f;
    bool whole = p.whole.first <= begin && p.whole.end >= begin + TILE;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if (whole) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = __fmul_rn(s[n][i], scale);
        } else {
            mask_scores(s[n], scale, begin + 8 * n + lane % 4 * 2, p.low, p.high);
        }
    }
    soften(s, h);
    add_values<D>(m.v[stage], s, h);
}

// The chunks so far: what was summed of them, the values in shared memory.
struct sum_so_far {
    float low_top, high_top, low_sum, high_sum;
    uint32_t chunks;
};

// A chunk has ended: adds it to those before it and leaves h empty. `last`: the whole sum stays in
// h instead.
template <int D>
static __device__ __forceinline__ void end_chunk(many_memory<D> &m, sum_so_far &t,
                                                 holding<D / 8> &h, bool last) {
    float *value = &m.total.value[0][threadIdx.x];
    sum_lanes(h);
    blend low = {0, 1}, high = {0, 1};
    if (t.chunks > 0) {
        low = join(t.low_top, t.low_sum, h.low_top, h.low_sum);
        high = join(t.high_top, t.high_sum, h.high_top, h.high_sum);
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            h.value[i / 4][i % 4] =
                join_value(i % 4 < 2 ? low : high, value[i * MANY_THREADS], h.value[i / 4][i % 4]);
    } else {
        t.low_top = h.low_top, t.high_top = h.high_top;
        t.low_sum = h.low_sum, t.high_sum = h.high_sum;
    }
    t.chunks++;
    if (last) return;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        value[i * MANY_THREADS] = h.value[i / 4][i % 4];
    clear(h);
}

// The rows of the block that are left: takes those of the first one's sequence. Every warp finds
// the same. False: none is left.
template <int D>
static __device__ __forceinline__ bool find_pass(const many_memory<D> &m, uint32_t rows,
                                                 bool (&left)[2], pass &p) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t low = __ballot_sync(~0u, left[0]), high = __ballot_sync(~0u, left[1]);
    if (!low && !high) return false;
    int32_t sequence = m.sequence[low ? __ffs(low) - 1 : 31 + __ffs(high)];
    p.sequence = (uint32_t)sequence;
    p.all = {NOWHERE, 0};
    for (int i = 0; i < 2; i++) {
        key_range r = m.keys[lane + 32 * i];
        if (!left[i] || m.sequence[lane + 32 * i] != sequence) continue;
        p.all = {min(p.all.first, r.first), max(p.all.end, r.end)};
        left[i] = false;
    }
    p.all = {__reduce_min_sync(~0u, p.all.first), __reduce_max_sync(~0u, p.all.end)};
    uint32_t slot = (16 * warp + lane / 4) % rows, next = (16 * warp + lane / 4 + 8) % rows;
    p.low = m.sequence[slot] == sequence ? m.keys[slot] : key_range{0, 0};
    p.high = m.sequence[next] == sequence ? m.keys[next] : key_range{0, 0};
    bool any_low = p.low.end > 0, any_high = p.high.end > 0;
    p.warp.first = min(any_low ? p.low.first : NOWHERE, any_high ? p.high.first : NOWHERE);
    p.warp.first = __reduce_min_sync(~0u, p.warp.first);
    p.warp.end = __reduce_max_sync(~0u, max(p.low.end, p.high.end));
    p.whole.first = __reduce_max_sync(~0u, max(p.low.first, p.high.first));
    p.whole.end = __reduce_min_sync(~0u, min(p.low.end, p.high.end));
    return true;
}

template <int D>
static __device__ __forceinline__ void
attend_pass(const rn_attend_args &a, many_memory<D> &m, const pass &p, uint32_t kv_head,
            const uint32_t (&q)[D / 16][4], holding<D / 8> &h, sum_so_far &t, bool &open) {
    constexpr int stages = many_memory<D>::stages;
    uint32_t first = p.all.first / TILE, end = (p.all.end + TILE - 1) / TILE;
    __syncthreads();
    find_offset(a, p, kv_head, first + threadIdx.x / TILE, m.offset);
    __syncthreads();
    if (stages == 2) fetch_tile(a, m, first);
    for (uint32_t tile = first; tile < end; tile++) {
        if (stages == 1) fetch_tile(a, m, tile);
        await_copies<0>();
        __syncthreads();
        if (stages == 2 && tile + 1 < end) fetch_tile(a, m, tile + 1);
        if (threadIdx.x < TILE) find_offset(a, p, kv_head, tile + 2, m.offset);
        if (open && (tile == first || tile * TILE % CHUNK == 0)) end_chunk(m, t, h, false);
        open = true;
        add_tile<D>(a, m, p, q, h, tile);
        if (stages == 1) __syncthreads();
    }
}

// The block's queries, each thread one pair of dims of several rows.
template <int D>
static __device__ __forceinline__ void load_queries(const rn_attend_args &a, __half (*q)[D + 8],
                                                    uint32_t row, uint32_t rows, uint32_t head,
                                                    uint32_t heads) {
    for (uint32_t i = threadIdx.x; i < rows * (D / 2); i += MANY_THREADS) {
        uint32_t r = i / (D / 2), pair = i % (D / 2), at = row + r;
        if (at < a.rows)
            load_query<D>(a, at, a.position[at], head, heads, pair, q[r], rows * (D + 8));
        for (uint32_t h = 0; at >= a.rows && h < heads; h++)
            *(uint32_t *)&q[h * rows + r][2 * pair] = 0;
    }
}

template <int D>
static __device__ __forceinline__ void write_rows(const rn_attend_args &a, const many_memory<D> &m,
                                                  const sum_so_far &t, const holding<D / 8> &h,
                                                  uint32_t row, uint32_t rows, uint32_t head) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t slot = 16 * warp + lane / 4 + 8 * half, r = slot % rows, at = row + r;
        if (at >= a.rows) continue;
        float inverse = find_inverse(half ? t.high_sum : t.low_sum);
        if (m.keys[r].end == 0) inverse = find_blank(m.sequence[r]);
        float *out = a.out + ((size_t)at * a.heads + head + slot / rows) * D + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(float2 *)(out + 8 * n) = make_float2(finish(h.value[n][2 * half], inverse),
                                                   finish(h.value[n][2 * half + 1], inverse));
    }
}

// Grid (heads / heads of a block, tiles of rows). Pair `slot` of a block is head slot / rows, row
// slot % rows. The rows of a tile may be of any sequences and in any order: those of one sequence
// are worked on together, which for a prompt is all of them.
template <int D> static __device__ __forceinline__ void attend_many(const rn_attend_args &a) {
    extern __shared__ __align__(16) uint8_t memory[];
    many_memory<D> &m = *reinterpret_cast<many_memory<D> *>(memory);
    uint32_t group = a.heads / a.kv_heads, heads = share_heads(group), rows = PAIRS / heads;
    uint32_t head = blockIdx.x * heads, kv_head = head / group;
    uint32_t row = (gridDim.y - 1 - blockIdx.y) * rows; // the last rows see most: they come first
    let_next_begin();
    wait_before();
    if (threadIdx.x < PAIRS) {
        uint32_t at = row + threadIdx.x;
        bool given = threadIdx.x < rows && at < a.rows;
        int32_t sequence = given ? a.sequence[at] : -1;
        m.sequence[threadIdx.x] = sequence;
        m.keys[threadIdx.x] = find_keys(a, sequence, given ? a.position[at] : 0);
    }
    load_queries<D>(a, many_memory<D>::keeps_query ? m.q : m.total.q, row, rows, head, heads);
    __syncthreads();

    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, q[D / 16][4] = {};
    if (!many_memory<D>::keeps_query)
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            load_matrices(q[i], &m.total.q[16 * warp + lane % 16][lane / 16 * 8 + 16 * i]);
    bool left[2] = {m.keys[lane].end > 0, m.keys[lane + 32].end > 0}, open = false;
    holding<D / 8> h;
    sum_so_far t = {RN_NO_SCORE, RN_NO_SCORE, 0, 0, 0};
    clear(h);
    for (pass p; find_pass(m, rows, left, p);)
        attend_pass<D>(a, m, p, kv_head, q, h, t, open);
    if (open) end_chunk(m, t, h, true);
    write_rows<D>(a, m, t, h, row, rows, head);
}

} // namespace rn_att
