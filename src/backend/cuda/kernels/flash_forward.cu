// flash_forward.cu — softmax(q kᵀ * scale) v over (B, T, H, D) in bf16 or f16 on matrix units, by
// the online softmax: scores of a tile are made while the values of the tile before are added.
//
// A block has 128 queries of a head at a time and goes through the tiles of 128 keys that any of
// them sees. While it writes what came out, the next queries and their first keys are brought.
#include "flash.cuh"

namespace rn_flash {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum : int { STAGES = 2 };

// Wide heads leave shared memory for half as many keys; queries lie where the results will.
template <int D> static constexpr int tile_keys = is_wide<D> ? 64 : 128;

template <int D> struct forward_memory {
    static constexpr int TILE = tile_bytes<D>(tile_keys<D>);
    static constexpr int Q = is_wide<D> ? 0 : tile_bytes<D>(BLOCK_ROWS); // the results lie at 0
    static constexpr int K = Q + tile_bytes<D>(BLOCK_ROWS);
    static constexpr int V = K + STAGES * TILE;
    static constexpr int K_RING = V + STAGES * TILE;
    static constexpr int V_RING = K_RING + 2 * STAGES * 8;
    static constexpr int Q_RING = V_RING + 2 * STAGES * 8;
    static constexpr int BYTES = Q_RING + 2 * 8 + 1024;
};

// What a thread knows of its two rows, g and g + 8.
struct forward_rows {
    float top[2], sum[2];
    span seen[2];
};

template <int N>
static __device__ __forceinline__ void hide(float (&s)[N], const forward_rows &r, int key) {
    key += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!is_seen(r.seen[i / 2 % 2], key + i / 4 * 8 + i % 2)) s[i] = RN_NO_SCORE;
}

// Scores become powers, and what earlier tiles summed is to be multiplied by `shrink`.
template <int N>
static __device__ __forceinline__ void soften(float (&s)[N], forward_rows &r, float scale,
                                              float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = s[2 * half];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i / 2 % 2 == half) top = fmaxf(top, s[i]);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(top, r.top[half]);
        float base = find_base(top) * scale, sum = 0;
        shrink[half] = power_of_two(fmaf(r.top[half], scale, -base));
        r.top[half] = top;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i / 2 % 2 == half) {
                s[i] = power_of_two(fmaf(s[i], scale, -base));
                sum += s[i];
            }
        r.sum[half] = fmaf(r.sum[half], shrink[half], sum);
    }
}

template <int N>
static __device__ __forceinline__ void scale_rows(float (&x)[N], const float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] *= by[i / 2 % 2];
}

// The queries of each round, and the tiles of keys that they see.
template <int D>
static __device__ __forceinline__ void bring_all(const rn_flash_args &a, uint32_t memory) {
    using m = forward_memory<D>;
    constexpr int KEYS = tile_keys<D>;
    ring<STAGES> k = {memory + m::K_RING}, v = {memory + m::V_RING};
    ring<1> q = {memory + m::Q_RING};
    int pieces = a.head_dim / 8;
    size_t stride = (size_t)a.kv_heads * a.head_dim * 2;
    uint32_t rounds = count_rounds(a), n = 0, i = 0; // blocks, tiles of keys so far
    for (uint32_t round = 0; round < rounds; round++) {
        query_block block;
        if (!find_block(a, round, block)) continue;
        size_t at = (((size_t)block.b * a.queries + block.t) * a.heads + block.head) * a.head_dim;
        q.await_free(n);
        bring<D, BLOCK_ROWS>(memory + m::Q, (const uint8_t *)a.q + at * 2,
                             (size_t)a.heads * a.head_dim * 2, (int)a.queries - block.t, pieces);
        q.fill(n++);
        uint32_t kv_head = block.head / (a.heads / a.kv_heads);
        at = ((size_t)block.b * a.keys * a.kv_heads + kv_head) * a.head_dim * 2;
        span tiles = find_tiles<KEYS>(a, block);
        for (int tile = tiles.first; tile < tiles.end; tile++, i++) {
            int rows = (int)a.keys - tile * KEYS, stage = i % STAGES * m::TILE;
            size_t here = at + (size_t)tile * KEYS * stride;
            k.await_free(i);
            bring<D, KEYS>(memory + m::K + stage, (const uint8_t *)a.k + here, stride, rows,
                           pieces);
            k.fill(i);
            v.await_free(i);
            bring<D, KEYS>(memory + m::V + stage, (const uint8_t *)a.v + here, stride, rows,
                           pieces);
            v.fill(i);
        }
    }
}

// Block number n; the tiles of keys before its own were `from`, which it moves on.
template <int D, bool BF16>
static __device__ __forceinline__ void attend_block(const rn_flash_args &a, uint8_t *memory,
                                                    const query_block &block, uint32_t n,
                                                    uint32_t &from) {
    using m = forward_memory<D>;
    constexpr int KEYS = tile_keys<D>;
    uint32_t place = rn_shared_address(memory);
    ring<STAGES> k = {place + m::K_RING}, v = {place + m::V_RING};
    ring<1> queries = {place + m::Q_RING};
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, pieces = a.head_dim / 8;
    int group_t = block.t + threadIdx.x / GROUP * 64, low = block.t + row + lane / 4;
    uint32_t p[KEYS / 16][4], b = block.b, i = from;
    held_rows<D> q;
    float o[D / 2], s[KEYS / 2], scale = a.scale * RN_LOG2_E, shrink[2];
    forward_rows r = {
        {RN_NO_SCORE, RN_NO_SCORE}, {0, 0}, {find_span(a, b, low), find_span(a, b, low + 8)}};
    span tiles = find_tiles<KEYS>(a, block);
    // Tiles that all 64 queries see as a whole lie within these keys.
    int whole = max(find_span(a, group_t + 63).first, measure_documents(a, b, group_t, 64).y);
    int whole_end = find_span(a, group_t).end, key = tiles.first * KEYS;
    uint32_t end = from + (tiles.end - tiles.first);
    from = end;
    queries.await_full(n);
    q.load(memory + m::Q);
    if (!is_wide<D>) queries.free(n);
    clear(o);
    if (i < end) {
        k.await_full(i);
        q.template multiply<BF16, KEYS>(s, place + m::K + i % STAGES * m::TILE);
        rn_wgmma_wait<0>();
        rn_wgmma_hold(s);
        k.free(i);
        if (key < whole || key + KEYS > whole_end) hide(s, r, key);
        soften(s, r, scale, shrink);
        round_sums<BF16>(p, s);
        for (i++, key += KEYS; i < end; i++, key += KEYS) {
            k.await_full(i);
            q.template multiply<BF16, KEYS>(s, place + m::K + i % STAGES * m::TILE);
            v.await_full(i - 1);
            add_product<BF16, D, KEYS>(o, p, place + m::V + (i - 1) % STAGES * m::TILE);
            rn_wgmma_wait<1>();
            rn_wgmma_hold(s);
            k.free(i);
            if (key < whole || key + KEYS > whole_end) hide(s, r, key);
            soften(s, r, scale, shrink);
            rn_wgmma_wait<0>();
            rn_wgmma_hold(o);
            v.free(i - 1);
            scale_rows(o, shrink);
            round_sums<BF16>(p, s);
        }
        v.await_full(i - 1);
        add_product<BF16, D, KEYS>(o, p, place + m::V + (i - 1) % STAGES * m::TILE);
        rn_wgmma_wait<0>();
        rn_wgmma_hold(o);
        v.free(i - 1);
    }
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = r.sum[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        inverse[half] = sum == 0 ? 0 : 1 / sum;
        int query = low + 8 * half;
        if (a.out_logsumexp && lane % 4 == 0 && query < (int)a.queries)
            a.out_logsumexp[((size_t)b * a.heads + block.head) * a.queries + query] =
                fmaf(r.top[half], a.scale, logf(sum));
    }
    scale_rows(o, inverse);
    size_t stride = (size_t)a.heads * a.head_dim;
    size_t at = (((size_t)b * a.queries + block.t + row) * a.heads + block.head) * a.head_dim;
    write_rows<D>(o, memory + row * 128, BLOCK_ROWS * 128, a.out_type,
                  (uint8_t *)a.out + (at << (a.out_type == RN_PLAIN_F32 ? 2 : 1)), stride,
                  (int)a.queries - block.t - row, pieces);
    __syncwarp();
    if (is_wide<D>) queries.free(n);
}

template <int D, bool BF16> static __device__ __forceinline__ void attend(const rn_flash_args &a) {
    extern __shared__ __align__(1024) uint8_t flash_memory[];
    using m = forward_memory<D>;
    uint8_t *memory = align_memory(flash_memory);
    uint32_t place = rn_shared_address(memory);
    let_next_begin();
    if (threadIdx.x == 0) {
        ring<STAGES>{place + m::K_RING}.begin();
        ring<STAGES>{place + m::V_RING}.begin();
        ring<1>{place + m::Q_RING}.begin();
        rn_barriers_publish();
    }
    __syncthreads();
    wait_before();
    if (threadIdx.x >= 2 * GROUP) {
        rn_registers_less<FEW_REGISTERS>();
        bring_all<D>(a, place);
        return;
    }
    rn_registers_more<MANY_REGISTERS>();
    uint32_t rounds = count_rounds(a), n = 0, from = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        query_block block;
        if (find_block(a, round, block)) attend_block<D, BF16>(a, memory, block, n++, from);
    }
}

// As kernels.def says.
static_assert(forward_memory<64>::BYTES == 99408 && forward_memory<128>::BYTES == 197712 &&
                  forward_memory<160>::BYTES == 148560 && forward_memory<256>::BYTES == 197712,
              "");

#endif

} // namespace rn_flash

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RN_FLASH_BODY(D, is_bf16) rn_flash::attend<D, is_bf16>(a)
#else
#define RN_FLASH_BODY(D, is_bf16) (void)a
#endif
#define RN_FLASH(D, type, is_bf16)                                                                 \
    extern "C" __global__ void __launch_bounds__(RN_FLASH_THREADS, 1)                              \
        rn_flash_##type##_##D(const __grid_constant__ rn_flash_args a) {                           \
        RN_FLASH_BODY(D, is_bf16);                                                                 \
    }
RN_FLASH(64, bf16, true)
RN_FLASH(96, bf16, true)
RN_FLASH(128, bf16, true)
RN_FLASH(160, bf16, true)
RN_FLASH(256, bf16, true)
RN_FLASH(64, f16, false)
RN_FLASH(96, f16, false)
RN_FLASH(128, f16, false)
RN_FLASH(160, f16, false)
RN_FLASH(256, f16, false)
