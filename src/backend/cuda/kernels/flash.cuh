// flash.cuh — what the kernels of attention on matrix units share, forward and backward.
//
// A block has three warpgroups. Two multiply: each has 64 rows of its own (queries, or keys where
// their gradients are made), whose sums stay in its registers. The third brings the tiles of the
// other side into a ring of stages. Barriers say which stages are full and which are free again.
//
// Sums are in f32, in an order that follows from shapes, documents and attributes alone; scores and
// their gradients are rounded to 16 bits where they are multiplied again. Exponents are of two.
#ifndef RN_CUDA_KERNELS_FLASH_CUH
#define RN_CUDA_KERNELS_FLASH_CUH

#include "attend.cuh"
#include "flash_args.h"
#include "half_io.cuh"
#include "panel.cuh"
#include "ring.cuh"

namespace rn_flash {

using rn_att::find_base;
using rn_att::let_next_begin;
using rn_att::power_of_two;
using rn_att::wait_before;

#define RN_LOG2_E 1.4426950408889634f
#define RN_LN_2   0.6931471805599453f

// ---- who sees whom ------------------------------------------------------------------------------

struct span {
    int first, end; // keys
};

// The keys that query t sees, but for documents; both never fall as t rises.
static __device__ __forceinline__ span find_span(const rn_flash_args &a, int t) {
    if (!a.causal && a.window == 0) return {0, (int)a.keys};
    int end = t + (int)a.keys - (int)a.queries + 1;
    if (end <= 0) return {0, 0};
    return {a.window && (uint32_t)end > a.window ? end - (int)a.window : 0, end};
}

static __device__ __forceinline__ int find_document(const rn_flash_args &a, uint32_t b, int t) {
    return a.documents && t < (int)a.queries ? a.documents[(size_t)b * a.queries + t] : 0;
}

static __device__ __forceinline__ span find_span(const rn_flash_args &a, uint32_t b, int t) {
    span s = find_span(a, t);
    return {max(s.first, find_document(a, b, t)), min(s.end, (int)a.keys)};
}

static __device__ __forceinline__ bool is_seen(span s, int key) {
    return key >= s.first && key < s.end;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- a block ------------------------------------------------------------------------------------

enum : int {
    BLOCK_ROWS = RN_FLASH_ROWS,
    GROUP = 128,               // threads of a warpgroup
    FEW_REGISTERS = 40,        // of a thread that brings tiles
    MANY_REGISTERS = 232,      // of one that multiplies
    ARRIVALS = 2 * GROUP / 32, // of a stage that is free: each warp that multiplies
};

template <int D> static constexpr int panels = (D + 63) / 64;
// Wide heads: sums take so many registers that the other operands stay in shared memory.
template <int D> static constexpr bool is_wide = D > 128;
template <int D> static constexpr int tile_bytes(int rows) {
    return panels<D> * rows * 128;
}

// Shared memory begins at a multiple of 1024 bytes.
static __device__ __forceinline__ uint8_t *align_memory(uint8_t *memory) {
    return memory + ((1024 - rn_shared_address(memory) % 1024) & 1023);
}

// The barriers of a ring: full ones, then those that are free.
template <int STAGES> struct ring {
    uint32_t barriers; // (2, STAGES) of 8 bytes each

    __device__ __forceinline__ void begin() const {
        for (int i = 0; i < STAGES; i++) {
            rn_barrier_begin(barriers + 8 * i, GROUP);
            rn_barrier_begin(barriers + 8 * (STAGES + i), ARRIVALS);
        }
    }
    __device__ __forceinline__ void await_free(uint32_t i) const {
        rn_barrier_wait(barriers + 8 * (STAGES + i % STAGES), (i / STAGES & 1) ^ 1);
    }
    __device__ __forceinline__ void fill(uint32_t i) const {
        rn_ring_arrive(barriers + 8 * (i % STAGES));
    }
    __device__ __forceinline__ void await_full(uint32_t i) const {
        rn_barrier_wait(barriers + 8 * (i % STAGES), i / STAGES & 1);
        rn_panel_publish(); // copies of threads, read by the matrix units
    }
    __device__ __forceinline__ void free(uint32_t i) const {
        if (threadIdx.x % 32 == 0) rn_barrier_arrive(barriers + 8 * (STAGES + i % STAGES));
    }
};

// ---- blocks of queries --------------------------------------------------------------------------

// What a block works on: 128 queries of a head.
struct query_block {
    uint32_t b, head;
    int t; // the first query
};

// The lowest and the highest first key of the documents of `rows` queries (whole 32s), by a warp.
static __device__ __forceinline__ int2 measure_documents(const rn_flash_args &a, uint32_t b,
                                                         int first, int rows) {
    int low = 0x7fffffff, high = 0;
    if (!a.documents) return make_int2(0, 0);
    for (int t = first + threadIdx.x % 32; t < first + rows && t < (int)a.queries; t += 32) {
        int document = a.documents[(size_t)b * a.queries + t];
        low = min(low, document);
        high = max(high, document);
    }
    return make_int2(__reduce_min_sync(~0u, low), __reduce_max_sync(~0u, high));
}

// A grid is as large as the device, and its blocks take turns: forth in one round and back in the
// next, since the last queries see most keys and come first. False: there is none in this round.
static __device__ __forceinline__ bool find_block(const rn_flash_args &a, uint32_t round,
                                                  query_block &out) {
    uint32_t heads = a.batch * a.heads, tiles = (a.queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    uint32_t turn = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    uint64_t at = (uint64_t)round * gridDim.x + turn;
    if (at >= (uint64_t)heads * tiles) return false;
    uint32_t head = (uint32_t)(at % heads);
    out = {head / a.heads, head % a.heads, (int)(tiles - 1 - (uint32_t)(at / heads)) * BLOCK_ROWS};
    return true;
}

static __device__ __forceinline__ uint32_t count_rounds(const rn_flash_args &a) {
    uint64_t blocks = (uint64_t)a.batch * a.heads * ((a.queries + BLOCK_ROWS - 1) / BLOCK_ROWS);
    return (uint32_t)((blocks + gridDim.x - 1) / gridDim.x);
}

// The tiles of KEYS keys that any query of the block sees.
template <int KEYS>
static __device__ __forceinline__ span find_tiles(const rn_flash_args &a, const query_block &q) {
    int lowest = measure_documents(a, q.b, q.t, BLOCK_ROWS).x;
    int first = max(find_span(a, q.t).first, lowest);
    int last = find_span(a, min(q.t + BLOCK_ROWS, (int)a.queries) - 1).end;
    return {first / KEYS, max((last + KEYS - 1) / KEYS, first / KEYS)};
}

// ---- tiles from global memory -------------------------------------------------------------------

// ROWS rows of D elements to panels, by a warpgroup. `rows` and `pieces` (of 8 elements) are given;
// behind them come zeros. `stride`: bytes from row to row.
template <int D, int ROWS>
static __device__ __forceinline__ void bring(uint32_t target, const uint8_t *source, size_t stride,
                                             int rows, int pieces) {
    constexpr int PIECES = 8 * panels<D>, STEP = GROUP / PIECES;
    int thread = threadIdx.x % GROUP, piece = thread % PIECES;
    if (D % 64 && piece >= D / 8) return;
    target += piece / 8 * ROWS * 128;
#pragma unroll 4
    for (int row = thread / PIECES; row < ROWS; row += STEP) {
        bool given = row < rows && piece < pieces;
        rn_ring_copy(target + row * 128 + ((piece ^ row) & 7) * 16,
                     given ? source + row * stride + piece * 16 : source, given);
    }
}

// The warp's 16 rows of a tile of BLOCK_ROWS as the instruction wants its a; `tile`: its first row.
template <int D>
static __device__ __forceinline__ void load_rows(uint32_t (&x)[D / 16][4], const uint8_t *tile) {
    int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int piece = 2 * i + j / 2;
            x[i][j] =
                *(const uint32_t *)(tile + piece / 8 * BLOCK_ROWS * 128 + (g + j % 2 * 8) * 128 +
                                    ((piece ^ g) & 7) * 16 + lane % 4 * 4);
        }
}

// ---- registers ----------------------------------------------------------------------------------

template <int N> static __device__ __forceinline__ void clear(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = 0;
}

// Sums (64 x N) as the next product's a.
template <bool BF16, int N>
static __device__ __forceinline__ void round_sums(uint32_t (&to)[N / 8][4], const float (&x)[N]) {
    constexpr uint32_t type = BF16 ? RN_PLAIN_BF16 : RN_PLAIN_F16;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            to[i][j] = rn_narrow_two(type, x[8 * i + 2 * j], x[8 * i + 2 * j + 1]);
}

// A warp's 16 rows of sums (16 x D) to memory, through `desk` where they are rounded: rows of 128
// bytes of panels that lie `panel_bytes` apart, the first of which is the warp's. `out`: the warp's
// first row; `stride`: elements from row to row.
template <int D>
static __device__ __forceinline__ void write_rows(const float (&x)[D / 2], uint8_t *desk,
                                                  int panel_bytes, uint32_t type, void *out,
                                                  size_t stride, int rows, int pieces) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (type == RN_PLAIN_F32) {
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (j < pieces && g + 8 * half < rows)
                    *(float2 *)((float *)out + (g + 8 * half) * stride + 8 * j + 2 * t) =
                        make_float2(x[4 * j + 2 * half], x[4 * j + 2 * half + 1]);
        return;
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *(uint32_t *)(desk + j / 8 * panel_bytes + (g + 8 * half) * 128 + ((j ^ g) & 7) * 16 +
                          4 * t) =
                rn_narrow_two(type, x[4 * j + 2 * half], x[4 * j + 2 * half + 1]);
    __syncwarp();
    constexpr int PIECES = 8 * panels<D>;
#pragma unroll 4
    for (int i = lane; i < 16 * PIECES; i += 32) {
        int row = i / PIECES, piece = i % PIECES;
        if (row < rows && piece < pieces)
            *(uint4 *)((uint16_t *)out + row * stride + 8 * piece) =
                *(const uint4 *)(desk + piece / 8 * panel_bytes + row * 128 +
                                 ((piece ^ row) & 7) * 16);
    }
}

// ---- products -----------------------------------------------------------------------------------

// s (64 x N) = a bᵀ, b (N rows, D) in panels at `b`.
template <bool BF16, int D, int N>
static __device__ __forceinline__ void multiply_rows(float (&s)[N / 2],
                                                     const uint32_t (&a)[D / 16][4], uint32_t b) {
    rn_wgmma_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        rn_panel_multiply<BF16, false>(s, a[i], rn_panel_along(b + i / 4 * N * 128 + i % 4 * 32),
                                       i > 0);
    rn_wgmma_commit();
}

// The same with a's 64 rows in panels of BLOCK_ROWS rows.
template <bool BF16, int D, int N>
static __device__ __forceinline__ void multiply_rows(float (&s)[N / 2], uint32_t a, uint32_t b) {
    rn_wgmma_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        rn_panel_multiply<BF16>(s, rn_panel_along(a + i / 4 * BLOCK_ROWS * 128 + i % 4 * 32),
                                rn_panel_along(b + i / 4 * N * 128 + i % 4 * 32), i > 0);
    rn_wgmma_commit();
}

// BLOCK_ROWS rows that are multiplied again and again: a warp's 16 in its registers, which are free
// where they came from then, or of wide heads a warpgroup's 64 where they lie.
template <int D, bool WIDE = is_wide<D>> struct held_rows {
    uint32_t rows[D / 16][4];
    __device__ __forceinline__ void load(const uint8_t *tile) {
        load_rows<D>(rows, tile + threadIdx.x / 32 * 16 * 128);
        __syncwarp();
    }
    template <bool BF16, int N>
    __device__ __forceinline__ void multiply(float (&s)[N / 2], uint32_t b) const {
        multiply_rows<BF16, D, N>(s, rows, b);
    }
};
template <int D> struct held_rows<D, true> {
    uint32_t place;
    __device__ __forceinline__ void load(const uint8_t *tile) {
        place = rn_shared_address(tile) + threadIdx.x / GROUP * 64 * 128;
    }
    template <bool BF16, int N>
    __device__ __forceinline__ void multiply(float (&s)[N / 2], uint32_t b) const {
        multiply_rows<BF16, D, N>(s, place, b);
    }
};

// 128 columns of wider sums.
template <int N> static __device__ __forceinline__ float (&side_of(float (&x)[N], int side))[64] {
    return *reinterpret_cast<float(*)[64]>(&x[64 * side]);
}

// x (64 x D) += p b, b (N rows, D) in panels at `b`.
template <bool BF16, int D, int N>
static __device__ __forceinline__ void add_product(float (&x)[D / 2],
                                                   const uint32_t (&p)[N / 16][4], uint32_t b) {
    rn_wgmma_begin();
#pragma unroll
    for (int i = 0; i < N / 16; i++) {
        uint64_t place = rn_panel_across(b + i * 2048, N * 128);
        if constexpr (D <= 160) {
            rn_panel_multiply<BF16, true>(x, p[i], place, 1);
        } else {
            rn_panel_multiply<BF16, true>(side_of(x, 0), p[i], place, 1);
            rn_panel_multiply<BF16, true>(side_of(x, 1), p[i],
                                          rn_panel_across(b + 2 * N * 128 + i * 2048, N * 128), 1);
        }
    }
    rn_wgmma_commit();
}

#endif

} // namespace rn_flash

#endif
