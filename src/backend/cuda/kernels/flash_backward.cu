// flash_backward.cu — the gradients of attention in bf16 or f16 on matrix units, with every
// probability made again from the logsumexp:
//
//     p = 2^(score - base)      ds = p * (dy vᵀ - delta)
//     dv = pᵀ dy                dq = scale * ds k             dk = scale * dsᵀ q
//
// Nothing is added up by several blocks, so that sums have one order: one kernel has 128 queries of
// a head and goes through keys for dq, another has 128 keys of a key head and goes through the
// heads that share it and through their queries for dk and dv. Scores are so made twice, which
// costs two products of seven. The second has its keys as rows: p and ds then are in registers as
// its products want them.
#include "flash.cuh"

namespace rn_flash {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- dq -----------------------------------------------------------------------------------------

template <int D> static constexpr int dq_keys = is_wide<D> ? 32 : 64;
// Queries of 64 dims would be as many registers as ds: ptxas 13.0 then gives both the same ones.
template <int D> static constexpr bool keeps_queries = is_wide<D> || D == 64; // where they lie

template <int D> struct dq_memory {
    static constexpr int DQ_KEYS = dq_keys<D>;
    static constexpr int DQ_STAGES = is_wide<D> ? 2 : 3;
    static constexpr int TURNS = is_wide<D> ? 1 : 2; // of dy
    static constexpr int TILE = tile_bytes<D>(DQ_KEYS);
    static constexpr int ROWS = tile_bytes<D>(BLOCK_ROWS);
    static constexpr int Q = 0;
    static constexpr int DY = ROWS; // and then dq
    static constexpr int K = DY + TURNS * ROWS;
    static constexpr int V = K + DQ_STAGES * TILE;
    static constexpr int K_RING = V + DQ_STAGES * TILE;
    static constexpr int V_RING = K_RING + 2 * DQ_STAGES * 8;
    static constexpr int Q_RING = V_RING + 2 * DQ_STAGES * 8;
    static constexpr int DY_RING = Q_RING + 2 * 8;
    static constexpr int BYTES = DY_RING + 2 * TURNS * 8 + 1024;
};

// The queries of each round with their dy, and the tiles of keys that they see.
template <int D>
static __device__ __forceinline__ void bring_for_dq(const rn_flash_args &a, uint32_t memory) {
    using m = dq_memory<D>;
    constexpr int DQ_KEYS = m::DQ_KEYS, DQ_STAGES = m::DQ_STAGES;
    ring<DQ_STAGES> k = {memory + m::K_RING}, v = {memory + m::V_RING};
    ring<1> q = {memory + m::Q_RING};
    ring<m::TURNS> dy = {memory + m::DY_RING};
    int pieces = a.head_dim / 8;
    size_t stride = (size_t)a.kv_heads * a.head_dim * 2, wide = (size_t)a.heads * a.head_dim * 2;
    uint32_t rounds = count_rounds(a), n = 0, i = 0; // blocks, tiles of keys so far
    for (uint32_t round = 0; round < rounds; round++) {
        query_block block;
        if (!find_block(a, round, block)) continue;
        size_t at = (((size_t)block.b * a.queries + block.t) * a.heads + block.head) * a.head_dim;
        int given = (int)a.queries - block.t;
        q.await_free(n);
        bring<D, BLOCK_ROWS>(memory + m::Q, (const uint8_t *)a.q + at * 2, wide, given, pieces);
        q.fill(n);
        dy.await_free(n);
        bring<D, BLOCK_ROWS>(memory + m::DY + n % m::TURNS * m::ROWS,
                             (const uint8_t *)a.dy + at * 2, wide, given, pieces);
        dy.fill(n++);
        uint32_t kv_head = block.head / (a.heads / a.kv_heads);
        at = ((size_t)block.b * a.keys * a.kv_heads + kv_head) * a.head_dim * 2;
        span tiles = find_tiles<DQ_KEYS>(a, block);
        for (int tile = tiles.first; tile < tiles.end; tile++, i++) {
            int rows = (int)a.keys - tile * DQ_KEYS, stage = i % DQ_STAGES * m::TILE;
            size_t here = at + (size_t)tile * DQ_KEYS * stride;
            k.await_free(i);
            bring<D, DQ_KEYS>(memory + m::K + stage, (const uint8_t *)a.k + here, stride, rows,
                              pieces);
            k.fill(i);
            v.await_free(i);
            bring<D, DQ_KEYS>(memory + m::V + stage, (const uint8_t *)a.v + here, stride, rows,
                              pieces);
            v.fill(i);
        }
    }
}

// Scores become p, and then ds; queries are rows.
struct dq_rows {
    float base[2], delta[2];
    span seen[2];
};

template <int N>
static __device__ __forceinline__ void soften(float (&s)[N], const dq_rows &r, float scale, int key,
                                              bool whole) {
    key += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < N; i++) {
        int half = i / 2 % 2;
        s[i] = power_of_two(fmaf(s[i], scale, -r.base[half]));
        if (!whole && !is_seen(r.seen[half], key + i / 4 * 8 + i % 2)) s[i] = 0;
    }
}

// Block number n; the tiles of keys before its own were `from`, which it moves on.
template <int D, bool BF16>
static __device__ __forceinline__ void make_dq(const rn_flash_args &a, uint8_t *memory,
                                               const query_block &block, uint32_t n,
                                               uint32_t &from) {
    using m = dq_memory<D>;
    constexpr int DQ_KEYS = m::DQ_KEYS, DQ_STAGES = m::DQ_STAGES;
    uint32_t place = rn_shared_address(memory), b = block.b;
    ring<DQ_STAGES> k = {place + m::K_RING}, v = {place + m::V_RING};
    ring<1> queries = {place + m::Q_RING};
    ring<m::TURNS> gradients = {place + m::DY_RING};
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, group_row = threadIdx.x / GROUP * 64;
    int low = block.t + row + lane / 4, group_t = block.t + group_row;
    size_t of_row = ((size_t)b * a.heads + block.head) * a.padded + low;
    uint32_t ds[DQ_KEYS / 16][4];
    held_rows<D, keeps_queries<D>> q;
    uint32_t dy = m::DY + n % m::TURNS * m::ROWS, begin = from, end;
    float dq[D / 2], s[DQ_KEYS / 2], dp[DQ_KEYS / 2], scale = a.scale * RN_LOG2_E;
    dq_rows r = {{a.base[of_row], a.base[of_row + 8]},
                 {a.delta[of_row], a.delta[of_row + 8]},
                 {find_span(a, b, low), find_span(a, b, low + 8)}};
    span tiles = find_tiles<DQ_KEYS>(a, block);
    // Tiles that all 64 queries see as a whole lie within these keys.
    int whole = max(find_span(a, group_t + 63).first, measure_documents(a, b, group_t, 64).y);
    int whole_end = find_span(a, group_t).end, key = tiles.first * DQ_KEYS;
    end = begin + (tiles.end - tiles.first);
    from = end;
    queries.await_full(n);
    q.load(memory + m::Q);
    if (!keeps_queries<D>) queries.free(n);
    gradients.await_full(n);
    clear(dq);
    for (uint32_t i = begin; i < end; i++, key += DQ_KEYS) {
        k.await_full(i);
        q.template multiply<BF16, DQ_KEYS>(s, place + m::K + i % DQ_STAGES * m::TILE);
        v.await_full(i);
        multiply_rows<BF16, D, DQ_KEYS>(dp, place + dy + group_row * 128,
                                        place + m::V + i % DQ_STAGES * m::TILE);
        rn_wgmma_wait<1>(); // ds k of the tile before has ended, too
        rn_wgmma_hold(s);
        if (i > begin) k.free(i - 1);
        soften(s, r, scale, key, key >= whole && key + DQ_KEYS <= whole_end);
        rn_wgmma_wait<0>();
        rn_wgmma_hold(dp);
        v.free(i);
#pragma unroll
        for (int j = 0; j < DQ_KEYS / 2; j++)
            s[j] *= dp[j] - r.delta[j / 2 % 2];
        round_sums<BF16>(ds, s);
        add_product<BF16, D, DQ_KEYS>(dq, ds, place + m::K + i % DQ_STAGES * m::TILE);
    }
    rn_wgmma_wait<0>();
    rn_wgmma_hold(dq);
    if (end > begin) k.free(end - 1);
    if (keeps_queries<D>) queries.free(n);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        dq[i] *= a.scale;
    size_t stride = (size_t)a.heads * a.head_dim;
    size_t at = (((size_t)b * a.queries + block.t + row) * a.heads + block.head) * a.head_dim;
    write_rows<D>(dq, memory + dy + row * 128, BLOCK_ROWS * 128, a.out_type,
                  (uint8_t *)a.out + (at << (a.out_type == RN_PLAIN_F32 ? 2 : 1)), stride,
                  (int)a.queries - block.t - row, a.head_dim / 8);
    __syncwarp();
    gradients.free(n);
}

template <int D, bool BF16>
static __device__ __forceinline__ void flash_dq(const rn_flash_args &a) {
    extern __shared__ __align__(1024) uint8_t flash_memory[];
    using m = dq_memory<D>;
    constexpr int DQ_STAGES = m::DQ_STAGES;
    uint8_t *memory = align_memory(flash_memory);
    uint32_t place = rn_shared_address(memory);
    let_next_begin();
    if (threadIdx.x == 0) {
        ring<DQ_STAGES>{place + m::K_RING}.begin();
        ring<DQ_STAGES>{place + m::V_RING}.begin();
        ring<1>{place + m::Q_RING}.begin();
        ring<m::TURNS>{place + m::DY_RING}.begin();
        rn_barriers_publish();
    }
    __syncthreads();
    wait_before();
    if (threadIdx.x >= 2 * GROUP) {
        rn_registers_less<FEW_REGISTERS>();
        bring_for_dq<D>(a, place);
        return;
    }
    rn_registers_more<MANY_REGISTERS>();
    uint32_t rounds = count_rounds(a), n = 0, from = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        query_block block;
        if (find_block(a, round, block)) make_dq<D, BF16>(a, memory, block, n++, from);
    }
}

// ---- dk, dv -------------------------------------------------------------------------------------

enum : int { KV_STAGES = 2 };

template <int D> struct kv_memory {
    static constexpr int TILE = is_wide<D> ? 32 : 64; // queries
    static constexpr int Q = tile_bytes<D>(TILE);
    static constexpr int ROWS = 2 * Q;                  // base and delta of the tile's queries
    static constexpr int STAGE = ROWS + 1024;           // q, dy, base, delta
    static constexpr int K = 0;                         // and then dk
    static constexpr int V = tile_bytes<D>(BLOCK_ROWS); // and then dv
    static constexpr int STAGES = 2 * V;
    static constexpr int BARRIERS = STAGES + KV_STAGES * STAGE;
    static constexpr int OWN = BARRIERS + 2 * KV_STAGES * 8; // the barrier of k and v
    static constexpr int BYTES = OWN + 8 + 1024;
};

// The lowest and the highest first key of the documents of the tile with query t.
static __device__ __forceinline__ int2 find_reach(const rn_flash_args &a, uint32_t b, int t) {
    if (!a.documents) return make_int2(0, 0);
    return ((const int2 *)a.reach)[(size_t)b * (a.padded / RN_FLASH_TILE) + t / RN_FLASH_TILE];
}

// The tiles of queries [begin, end) that see any key of [key, end_key), but for documents.
template <int TILE>
static __device__ __forceinline__ span find_tiles(const rn_flash_args &a, int key, int end_key) {
    if (!a.causal && a.window == 0) return {0, ((int)a.queries + TILE - 1) / TILE};
    int behind = (int)a.keys - (int)a.queries, first = max(key - behind, 0);
    int64_t end = a.queries;
    if (a.window) end = min(end, (int64_t)end_key - 1 + a.window - behind);
    return {first / TILE, (int)((end + TILE - 1) / TILE)};
}

// The tiles of the heads that share the block's keys, head by head, but for those whose documents
// begin behind the keys.
struct walk {
    uint32_t head, tile; // head: in its group
};

template <int TILE>
static __device__ __forceinline__ void skip_tiles(const rn_flash_args &a, walk &w, uint32_t b,
                                                  span tiles, int end_key) {
    for (;;) {
        if ((int)w.tile >= tiles.end) {
            w.tile = tiles.first;
            w.head++;
        }
        if (w.head >= a.heads / a.kv_heads || find_reach(a, b, w.tile * TILE).x < end_key) return;
        w.tile++;
    }
}

template <int D>
static __device__ __forceinline__ void bring_queries(const rn_flash_args &a, uint32_t memory,
                                                     uint32_t b, uint32_t kv_head, int key,
                                                     span tiles, int end_key) {
    using m = kv_memory<D>;
    constexpr int TILE = m::TILE;
    ring<KV_STAGES> full = {memory + m::BARRIERS};
    uint32_t group = a.heads / a.kv_heads;
    int pieces = a.head_dim / 8, thread = threadIdx.x % GROUP;
    size_t stride = (size_t)a.kv_heads * a.head_dim * 2;
    size_t at = (((size_t)b * a.keys + key) * a.kv_heads + kv_head) * a.head_dim * 2;
    bring<D, BLOCK_ROWS>(memory + m::K, (const uint8_t *)a.k + at, stride, (int)a.keys - key,
                         pieces);
    bring<D, BLOCK_ROWS>(memory + m::V, (const uint8_t *)a.v + at, stride, (int)a.keys - key,
                         pieces);
    rn_ring_arrive(memory + m::OWN);
    stride = (size_t)a.heads * a.head_dim * 2;
    walk w = {tiles.first < tiles.end ? 0 : group, (uint32_t)tiles.first};
    skip_tiles<TILE>(a, w, b, tiles, end_key);
    for (int i = 0; w.head < group; i++) {
        int t = w.tile * TILE, rows = (int)a.queries - t;
        uint32_t stage = memory + m::STAGES + i % KV_STAGES * m::STAGE;
        uint32_t head = kv_head * group + w.head;
        at = (((size_t)b * a.queries + t) * a.heads + head) * a.head_dim * 2;
        full.await_free(i);
        bring<D, TILE>(stage, (const uint8_t *)a.q + at, stride, rows, pieces);
        bring<D, TILE>(stage + m::Q, (const uint8_t *)a.dy + at, stride, rows, pieces);
        if (thread < 2 * TILE / 4) {
            const float *from = thread < TILE / 4 ? a.base : a.delta;
            from += ((size_t)b * a.heads + head) * a.padded + t + thread % (TILE / 4) * 4;
            rn_ring_copy(stage + m::ROWS + thread * 16, from, true);
        }
        full.fill(i);
        w.tile++;
        skip_tiles<TILE>(a, w, b, tiles, end_key);
    }
}

// Scores of keys become p; queries are columns. `base`: this thread's first.
template <int N>
static __device__ __forceinline__ void soften(float (&s)[N], const float *base, float scale) {
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        float2 of = *(const float2 *)(base + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[4 * j + i] = power_of_two(fmaf(s[4 * j + i], scale, i % 2 ? -of.y : -of.x));
    }
}

template <int N>
static __device__ __forceinline__ void hide(const rn_flash_args &a, float (&s)[N], uint32_t b,
                                            int key, int t) {
#pragma unroll
    for (int j = 0; j < N / 4; j++)
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            span seen = find_span(a, b, t + 8 * j + odd);
            if (!is_seen(seen, key)) s[4 * j + odd] = 0;
            if (!is_seen(seen, key + 8)) s[4 * j + 2 + odd] = 0;
        }
}

// Of wide heads there are registers for one of both at a time.
template <int D, bool BF16, bool DK, bool DV>
static __device__ __forceinline__ void make_dkv(const rn_flash_args &a, uint8_t *memory, uint32_t b,
                                                uint32_t kv_head, int key, span tiles,
                                                int end_key) {
    using m = kv_memory<D>;
    constexpr int TILE = m::TILE;
    uint32_t place = rn_shared_address(memory), group = a.heads / a.kv_heads;
    ring<KV_STAGES> full = {place + m::BARRIERS};
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, pieces = a.head_dim / 8;
    int group_row = threadIdx.x / GROUP * 64, column = 2 * (lane % 4);
    uint32_t k = place + m::K + group_row * 128, v = place + m::V + group_row * 128;
    uint32_t p[TILE / 16][4], ds[TILE / 16][4];
    float dk[D / 2], dv[D / 2], s[TILE / 2], dp[TILE / 2], scale = a.scale * RN_LOG2_E;
    clear(dk);
    clear(dv);
    rn_barrier_wait(place + m::OWN, 0);
    rn_panel_publish();
    walk w = {tiles.first < tiles.end ? 0 : group, (uint32_t)tiles.first};
    skip_tiles<TILE>(a, w, b, tiles, end_key);
    for (int i = 0; w.head < group; i++) {
        int stage = m::STAGES + i % KV_STAGES * m::STAGE, t = w.tile * TILE;
        int whole = max(find_span(a, t + TILE - 1).first, find_reach(a, b, t).y);
        const float *rows = (const float *)(memory + stage + m::ROWS) + column;
        full.await_full(i);
        multiply_rows<BF16, D, TILE>(s, k, place + stage);
        if constexpr (DK) multiply_rows<BF16, D, TILE>(dp, v, place + stage + m::Q);
        rn_wgmma_wait<DK>();
        rn_wgmma_hold(s);
        soften(s, rows, scale);
        if (key + group_row < whole || key + group_row + 64 > find_span(a, t).end)
            hide(a, s, b, key + row + lane / 4, t + column);
        if constexpr (DV) {
            round_sums<BF16>(p, s);
            add_product<BF16, D, TILE>(dv, p, place + stage + m::Q);
        }
        if constexpr (DK) {
            rn_wgmma_wait<DV>();
            rn_wgmma_hold(dp);
#pragma unroll
            for (int j = 0; j < TILE / 8; j++) {
                float2 delta = *(const float2 *)(rows + TILE + 8 * j);
#pragma unroll
                for (int n = 0; n < 4; n++)
                    s[4 * j + n] *= dp[4 * j + n] - (n % 2 ? delta.y : delta.x);
            }
            round_sums<BF16>(ds, s);
            add_product<BF16, D, TILE>(dk, ds, place + stage);
        }
        w.tile++;
        skip_tiles<TILE>(a, w, b, tiles, end_key);
        rn_wgmma_wait<0>();
        if constexpr (DK) rn_wgmma_hold(dk);
        if constexpr (DV) rn_wgmma_hold(dv);
        full.free(i);
    }
#pragma unroll
    for (int j = 0; j < D / 2; j++)
        dk[j] *= a.scale;
    size_t stride = (size_t)a.kv_heads * a.head_dim;
    size_t at = (((size_t)b * a.keys + key + row) * a.kv_heads + kv_head) * a.head_dim;
    int left = (int)a.keys - key - row;
    if (DK && a.dk)
        write_rows<D>(dk, memory + m::K + row * 128, BLOCK_ROWS * 128, a.dk_type,
                      (uint8_t *)a.dk + (at << (a.dk_type == RN_PLAIN_F32 ? 2 : 1)), stride, left,
                      pieces);
    if (DV && a.dv)
        write_rows<D>(dv, memory + m::V + row * 128, BLOCK_ROWS * 128, a.dv_type,
                      (uint8_t *)a.dv + (at << (a.dv_type == RN_PLAIN_F32 ? 2 : 1)), stride, left,
                      pieces);
}

// Grid (B x HK, tiles of 128 keys): the first keys are seen by most, they come first.
template <int D, bool BF16, bool DK, bool DV>
static __device__ __forceinline__ void make_for_keys(const rn_flash_args &a) {
    extern __shared__ __align__(1024) uint8_t flash_memory[];
    using m = kv_memory<D>;
    uint8_t *memory = align_memory(flash_memory);
    uint32_t place = rn_shared_address(memory);
    uint32_t b = blockIdx.x / a.kv_heads, kv_head = blockIdx.x % a.kv_heads;
    int key = blockIdx.y * BLOCK_ROWS, end_key = min(key + BLOCK_ROWS, (int)a.keys);
    let_next_begin();
    wait_before();
    if (threadIdx.x == 0) {
        ring<KV_STAGES>{place + m::BARRIERS}.begin();
        rn_barrier_begin(place + m::OWN, GROUP);
        rn_barriers_publish();
    }
    __syncthreads();
    span tiles = find_tiles<m::TILE>(a, key, end_key);
    if (threadIdx.x >= 2 * GROUP) {
        rn_registers_less<FEW_REGISTERS>();
        bring_queries<D>(a, place, b, kv_head, key, tiles, end_key);
    } else {
        rn_registers_more<MANY_REGISTERS>();
        make_dkv<D, BF16, DK, DV>(a, memory, b, kv_head, key, tiles, end_key);
    }
}

template <int D, bool BF16>
static __device__ __forceinline__ void flash_dkv(const rn_flash_args &a) {
    make_for_keys<D, BF16, true, true>(a);
}
template <int D, bool BF16>
static __device__ __forceinline__ void flash_dk(const rn_flash_args &a) {
    make_for_keys<D, BF16, true, false>(a);
}
template <int D, bool BF16>
static __device__ __forceinline__ void flash_dv(const rn_flash_args &a) {
    make_for_keys<D, BF16, false, true>(a);
}

// As kernels.def says.
static_assert(dq_memory<64>::BYTES == 99472 && dq_memory<128>::BYTES == 197776 &&
                  dq_memory<256>::BYTES == 197728,
              "");
static_assert(kv_memory<64>::BYTES == 68648 && kv_memory<128>::BYTES == 134184 &&
                  kv_memory<256>::BYTES == 199720,
              "");

#endif

} // namespace rn_flash

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RN_FLASH_BODY(what, D, is_bf16) rn_flash::flash_##what<D, is_bf16>(a)
#else
#define RN_FLASH_BODY(what, D, is_bf16) (void)a
#endif
#define RN_FLASH_KERNEL(what, D, type, is_bf16)                                                    \
    extern "C" __global__ void __launch_bounds__(RN_FLASH_THREADS, 1)                              \
        rn_flash_##what##_##type##_##D(const __grid_constant__ rn_flash_args a) {                  \
        RN_FLASH_BODY(what, D, is_bf16);                                                           \
    }
#define RN_FLASH(D)                                                                                \
    RN_FLASH_KERNEL(dq, D, bf16, true)                                                             \
    RN_FLASH_KERNEL(dkv, D, bf16, true)                                                            \
    RN_FLASH_KERNEL(dq, D, f16, false)                                                             \
    RN_FLASH_KERNEL(dkv, D, f16, false)
RN_FLASH(64)
RN_FLASH(96)
RN_FLASH(128)
RN_FLASH_KERNEL(dq, 256, bf16, true)
RN_FLASH_KERNEL(dq, 256, f16, false)
RN_FLASH_KERNEL(dk, 256, bf16, true)
RN_FLASH_KERNEL(dk, 256, f16, false)
RN_FLASH_KERNEL(dv, 256, bf16, true)
RN_FLASH_KERNEL(dv, 256, f16, false)
