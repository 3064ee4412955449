// attend_few.cuh — a block for one row, the heads of one group and one chunk of 256 keys.
//
// The group's heads are the 16 rows of a fragment. First each warp scores 32 of the keys, then each
// takes some of the dims through all tiles of values: the order in which an element is summed is
// that of attend_many.cuh, where one warp does both.
//
// A block is small, so that it may lie on a multiprocessor beside a block of the product before it
// or behind it: its tiles of keys and values share a few slots of shared memory. Where a chunk's
// keys and values do not fit together, the values take the keys' place, and wait for it in
// registers, so that everything that older calls appended is still on its way before the kernel
// before has ended. Heads of 256 have no registers for that: their values wait in the L2.
#pragma once

#include "attend_fragment.cuh"

namespace rn_att {

enum : int { FEW_THREADS = 256, FEW_WARPS = 8 };

// A block takes one in so many of a multiprocessor's registers: a product's block beside it has at
// least half of them. None lies beside heads of 256.
template <int D> constexpr int few_share = D <= 64 ? 4 : D <= 128 ? 2 : 1;

template <int D> struct few_memory {
    static constexpr uint32_t slots = D <= 64 ? 8 : 4; // of a tile; a chunk's keys have room in any
    static constexpr bool held = D <= 128;             // values wait in registers
    __half rows[slots * TILE][D + 8]; // padded: the rows of a matrix lie in different banks
    __half q[16][D + 8];
    __half p[16][CHUNK + 8];
    __half own[D];               // the row's value, until it has a place
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

// The tiles [from, to) of a chunk that its row sees: the keys from the first slot on, the values
// behind them or, where they do not fit together, in their place.
struct few_tiles {
    uint32_t begin; // position of the chunk's first key
    uint32_t from, to;
    uint32_t own; // the row's own key in the chunk, where this call makes it; else NOWHERE
    bool together;
};

template <int D>
static __device__ __forceinline__ few_tiles find_tiles(const few_memory<D> &m, const few_place &w,
                                                       uint32_t begin) {
    uint32_t from = w.keys.first > begin ? (w.keys.first - begin) / TILE : 0;
    uint32_t to = (min(w.keys.end - begin, (uint32_t)CHUNK) + TILE - 1) / TILE;
    uint32_t last = w.keys.end - 1 - begin;
    bool own = last < CHUNK && m.source[last] >= 0, all = few_memory<D>::slots >= 2 * CHUNK / TILE;
    return {begin, from, to, own ? last : NOWHERE, all || 2 * (to - from) <= few_memory<D>::slots};
}

// Where in m.rows a tile's keys or values begin.
static __device__ __forceinline__ uint32_t find_slot(const few_tiles &t, uint32_t tile,
                                                     bool value) {
    return (tile - t.from + (value && t.together ? t.to - t.from : 0)) * TILE;
}

// ---- what older calls appended ------------------------------------------------------------------

template <int D>
static __device__ __forceinline__ const __half *find_piece(const rn_attend_args &a, uint32_t row,
                                                           uint32_t piece, bool value) {
    return (const __half *)a.kv + ((size_t)row + (value ? a.kv_heads * a.page_tokens : 0)) * D +
           piece * 8;
}

// The tiles to their slots, but for the fresh keys.
template <int D>
static __device__ __forceinline__ void fetch_tiles(const rn_attend_args &a, few_memory<D> &m,
                                                   const few_tiles &t, bool value) {
    uint32_t first = t.from * TILE, keys = t.to * TILE - first;
    __half(*target)[D + 8] = &m.rows[find_slot(t, t.from, value)];
    for (uint32_t i = threadIdx.x; i < keys * (D / 8); i += FEW_THREADS) {
        uint32_t key = i / (D / 8), piece = i % (D / 8), row = m.offset[first + key];
        if (m.source[first + key] >= 0) continue;
        if (row == LOST) {
            fill_piece(&target[key][piece * 8]);
            continue;
        }
        bool given = row != NOWHERE;
        copy_piece(&target[key][piece * 8],
                   given ? find_piece<D>(a, row, piece, value) : (const __half *)a.kv, given);
    }
}

// What a thread holds of the values: the pieces that it would copy.
template <int D> struct few_held {
    static constexpr uint32_t count = CHUNK * (D / 8) / FEW_THREADS;
    uint4 piece[count];
    uint32_t given; // bits: pieces that go to their slot
};

template <int D>
static __device__ __forceinline__ void hold_values(const rn_attend_args &a, const few_memory<D> &m,
                                                   const few_tiles &t, few_held<D> &held) {
    uint32_t first = t.from * TILE, keys = t.to * TILE - first;
    held.given = 0;
#pragma unroll
    for (uint32_t j = 0; j < held.count; j++) {
        uint32_t i = threadIdx.x + j * FEW_THREADS, key = i / (D / 8), piece = i % (D / 8);
        bool given = key < keys && m.source[first + key] < 0;
        uint32_t row = given ? m.offset[first + key] : NOWHERE, blank = row == LOST ? ~0u : 0u;
        held.given |= (uint32_t)given << j;
        held.piece[j] = row < LOST ? __ldcg((const uint4 *)find_piece<D>(a, row, piece, true))
                                   : make_uint4(blank, blank, blank, blank);
    }
}

template <int D>
static __device__ __forceinline__ void store_values(few_memory<D> &m, const few_held<D> &held) {
#pragma unroll
    for (uint32_t j = 0; j < held.count; j++) {
        uint32_t i = threadIdx.x + j * FEW_THREADS, key = i / (D / 8), piece = i % (D / 8);
        if (held.given >> j & 1) *(uint4 *)&m.rows[key][piece * 8] = held.piece[j];
    }
}

// Values that are not held come as far as the L2.
template <int D>
static __device__ __forceinline__ void prefetch_values(const rn_attend_args &a,
                                                       const few_memory<D> &m, const few_tiles &t) {
    constexpr uint32_t LINE = 128 / sizeof(__half), LINES = (D + LINE - 1) / LINE;
    for (uint32_t i = t.from * TILE * LINES + threadIdx.x; i < t.to * TILE * LINES;
         i += FEW_THREADS) {
        uint32_t key = i / LINES, row = m.offset[key];
        if (row < LOST && m.source[key] < 0)
            prefetch_line(find_piece<D>(a, row, i % LINES * (LINE / 8), true));
    }
}

// ---- what this call brings ----------------------------------------------------------------------

// Line by line of D: the queries of the heads, then of each fresh key its key and its value. Items
// are pairs of dims; a thread asks for several before it uses one, since nothing but the way to
// memory takes time here.
enum : uint32_t { NEW_QUERIES = 1, NEW_KEYS = 2, NEW_VALUES = 4, OWN_VALUE = 8 };

template <int D>
static __device__ __forceinline__ void place_item(const rn_attend_args &a, few_memory<D> &m,
                                                  const few_place &w, const few_tiles &t,
                                                  uint32_t line, uint32_t pair, float2 x) {
    bool query = line < w.head_count, value = !query && (line - w.head_count) % 2;
    uint2 at = value ? make_uint2(2 * pair, 2 * pair + 1) : find_pair(a.rope, pair);
    if (query) {
        x = turn(a.rope, m.rotations[pair], pair, x);
        m.q[line][at.x] = round_query(x.x);
        m.q[line][at.y] = round_query(x.y);
        return;
    }
    uint32_t key = m.fresh[(line - w.head_count) / 2], position = t.begin + key;
    bool own = key == t.own;
    if (!value)
        x = turn(a.rope, own ? m.rotations[pair] : find_rotation(a.rope, (int32_t)position, pair),
                 pair, x);
    __half low = __float2half_rn(x.x), high = __float2half_rn(x.y);
    __half *target = m.rows[find_slot(t, key / TILE, value) + key % TILE];
    if (value && own && !t.together) target = m.own;
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
                                                 const few_place &w, const few_tiles &t,
                                                 uint32_t which) {
    constexpr int AHEAD = D > 64 && few_memory<D>::held ? 3 : 4; // beside the values that are held
    uint32_t lines = w.head_count + 2 * m.fresh_count;
    for (uint32_t i = threadIdx.x; i < lines * (D / 2); i += AHEAD * FEW_THREADS) {
        float2 x[AHEAD];
        uint32_t from[AHEAD]; // row of D of q, k or v; NOWHERE: not wanted
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t item = i + j * FEW_THREADS, line = item / (D / 2), pair = item % (D / 2);
            bool query = line < w.head_count, value = !query && (line - w.head_count) % 2;
            uint32_t key = query || line >= lines ? 0 : m.fresh[(line - w.head_count) / 2];
            uint32_t kind = query          ? NEW_QUERIES
                            : !value       ? NEW_KEYS
                            : key == t.own ? OWN_VALUE
                                           : NEW_VALUES;
            from[j] = NOWHERE;
            if (line >= lines || !(which & kind)) continue;
            from[j] = query ? w.row * a.heads + w.head + line
                            : (uint32_t)m.source[key] * a.kv_heads + w.kv_head;
            const float *row = (query ? a.q : value ? a.v : a.k) + (size_t)from[j] * D;
            uint2 at = value ? make_uint2(2 * pair, 2 * pair + 1) : find_pair(a.rope, pair);
            x[j] = make_float2(__ldcg(&row[at.x]), __ldcg(&row[at.y]));
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t item = i + j * FEW_THREADS;
            if (from[j] != NOWHERE) place_item(a, m, w, t, item / (D / 2), item % (D / 2), x[j]);
        }
    }
}

// The keys have been read: values take their place. Fresh ones but the row's own are read here, one
// way to memory more: a row that decodes has none.
template <int D>
static __device__ __forceinline__ void settle_values(const rn_attend_args &a, few_memory<D> &m,
                                                     const few_place &w, const few_tiles &t,
                                                     const few_held<D> &held) {
    if (few_memory<D>::held) {
        store_values(m, held);
    } else {
        fetch_tiles(a, m, t, true);
        end_copies();
    }
    if (t.own != NOWHERE && threadIdx.x < D / 8)
        *(uint4 *)&m.rows[t.own - t.from * TILE][threadIdx.x * 8] =
            *(const uint4 *)&m.own[threadIdx.x * 8];
    if (m.fresh_count > (t.own != NOWHERE)) place_new(a, m, w, t, NEW_VALUES);
}

// ---- scores and values --------------------------------------------------------------------------

// The warp's 32 keys against the 16 queries.
template <int D>
static __device__ __forceinline__ void find_scores(const few_memory<D> &m,
                                                   const __half (*keys)[D + 8], float (&s)[4][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const __half *q = &m.q[lane % 16][lane / 16 * 8];
    const __half *k = &keys[32 * (warp % 2) + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
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
            load_transposed(y, &values[k + lane][8 * (warp + 8 * n)]);
            multiply(h.value[n], x[0], y[0], y[1]);
            multiply(h.value[n], x[1], y[2], y[3]);
        }
    }
}

template <int D>
static __device__ __forceinline__ void write_chunk(const rn_attend_args &a, const few_place &w,
                                                   holding<(D + 63) / 64> &h, uint32_t chunk) {
    bool alone = w.keys.first / CHUNK == (w.keys.end - 1) / CHUNK; // no other chunk to merge with
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

// Copies, or loads into registers, of what older calls appended: these need not wait for the
// kernels before this one where this call does its own appending. (A kernel that appended to the
// same pages belongs to an earlier run, and a run begins with copies.)
template <int D>
static __device__ __forceinline__ void fetch_chunk(const rn_attend_args &a, few_memory<D> &m,
                                                   const few_tiles &t, few_held<D> &held) {
    fetch_tiles(a, m, t, false);
    end_copies();
    if (t.together) fetch_tiles(a, m, t, true);
    end_copies();
    if (!t.together && few_memory<D>::held) hold_values(a, m, t, held);
    if (!t.together && !few_memory<D>::held) prefetch_values(a, m, t);
}

// The warp's 32 keys, as powers of two, and their largest to m.top.
template <int D>
static __device__ __forceinline__ void score_chunk(const rn_attend_args &a, few_memory<D> &m,
                                                   const few_place &w, const few_tiles &t,
                                                   float (&s)[4][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, mine = warp / 2;
    if (mine >= t.from && mine < t.to) find_scores(m, &m.rows[find_slot(t, mine, false)], s);
    float low = RN_NO_SCORE, high = RN_NO_SCORE;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t key = t.begin + 32 * warp + 8 * n + lane % 4 * 2;
        mask_scores(s[n], a.scale * 1.4426950408889634f, key, w.keys, w.keys);
        low = fmaxf(low, fmaxf(s[n][0], s[n][1]));
        high = fmaxf(high, fmaxf(s[n][2], s[n][3]));
    }
    for (int i = 1; i <= 2; i++) {
        low = fmaxf(low, __shfl_xor_sync(~0u, low, i));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    if (lane % 4 == 0) m.top[warp][lane / 4] = low, m.top[warp][lane / 4 + 8] = high;
}

// Keys in order, values after them.
template <int D>
static __device__ __forceinline__ void attend_chunk(const rn_attend_args &a, few_memory<D> &m,
                                                    const few_place &w, uint32_t chunk,
                                                    bool first) {
    find_chunk(a, m, w, chunk * CHUNK);
    few_tiles t = find_tiles(m, w, chunk * CHUNK);
    few_held<D> held;
    fetch_chunk(a, m, t, held);
    wait_before();
    let_next_begin();
    __syncthreads();
    place_new(a, m, w, t,
              (first ? NEW_QUERIES : 0u) | NEW_KEYS | OWN_VALUE | (t.together ? NEW_VALUES : 0u));
    await_copies<1>();
    __syncthreads();

    float s[4][4] = {};
    score_chunk(a, m, w, t, s);
    __syncthreads();
    if (!t.together) settle_values(a, m, w, t, held);
    uint32_t mine = threadIdx.x / 64;
    if (mine >= t.from && mine < t.to) soften(m, s);
    await_copies<0>();
    __syncthreads();

    holding<(D + 63) / 64> h;
    clear(h);
    for (uint32_t tile = t.from; tile < t.to; tile++)
        add_tile<D>(m, &m.rows[find_slot(t, tile, true)], h, tile);
    sum_lanes(h);
    write_chunk<D>(a, w, h, chunk);
}

// Grid (blocks that share a row's chunks, key heads x parts of 16 heads of a group, rows).
template <int D> static __device__ __forceinline__ void attend_few(const rn_attend_args &a) {
    extern __shared__ __align__(16) uint8_t memory[];
    few_memory<D> &m = *reinterpret_cast<few_memory<D> *>(memory);
    uint32_t group = a.heads / a.kv_heads, parts = (group + 15) / 16, part = blockIdx.y % parts;
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
    // A block without a chunk leaves its room at once: the first block of every row waits, and the
    // grid neither ends nor lets the next one begin before that.
    uint32_t chunk = w.keys.first / CHUNK + blockIdx.x;
    if (chunk * CHUNK >= w.keys.end) return;
    for (uint32_t i = threadIdx.x; i < D / 2; i += FEW_THREADS)
        m.rotations[i] = find_rotation(a.rope, (int32_t)w.keys.end - 1, i);
    for (uint32_t i = threadIdx.x; i < (16 - w.head_count) * (D / 2); i += FEW_THREADS)
        *(uint32_t *)&m.q[w.head_count + i / (D / 2)][i % (D / 2) * 2] = 0;
    for (bool first = true; chunk * CHUNK < w.keys.end; chunk += gridDim.x, first = false) {
        if (!first) __syncthreads();
        attend_chunk<D>(a, m, w, chunk, first);
    }
}

} // namespace rn_att
