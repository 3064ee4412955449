// flash_forward.cu — softmax(q kᵀ * scale) v over (B, T, H, D) in bf16 or f16 on matrix units, by
// the online softmax: scores of a tile are made while the values of the tile before are added.
//
// A block has 128 queries of a head and goes through the tiles of 128 keys (64 of heads above 128
// dims) that any of them sees.
#include "flash.cuh"

namespace rn_flash {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum : int { STAGES = 2 };

template <int D> struct forward_memory {
    static constexpr int KEYS = D > 128 ? 64 : 128;
    static constexpr int TILE = tile_bytes<D>(KEYS);
    static constexpr int K = tile_bytes<D>(BLOCK_ROWS); // the results lie at 0
    static constexpr int V = K + STAGES * TILE;
    static constexpr int BARRIERS = V + STAGES * TILE;
    static constexpr int REACH = BARRIERS + 4 * STAGES * 8;
    static constexpr int BYTES = REACH + 32 + 1024;
};

// What a thread knows of its two rows, g and g + 8.
struct forward_rows {
    float top[2], sum[2];
    span seen[2];
};

// The first keys of the block's documents: of the warps' 32 queries each, (4, 2): lowest, highest.
static __device__ __forceinline__ void measure_documents(const rn_flash_args &a, int *reach,
                                                         uint32_t b, int first) {
    if (threadIdx.x >= BLOCK_ROWS) return;
    int t = first + threadIdx.x, document = find_document(a, b, t);
    int low = __reduce_min_sync(~0u, t < (int)a.queries ? document : 0x7fffffff);
    int high = __reduce_max_sync(~0u, document);
    if (threadIdx.x % 32 == 0) {
        reach[threadIdx.x / 32 * 2] = low;
        reach[threadIdx.x / 32 * 2 + 1] = high;
    }
}

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

// Tiles [begin, end) of keys, for the block.
template <int D>
static __device__ __forceinline__ void bring_keys(const rn_flash_args &a, uint32_t memory,
                                                  uint32_t b, uint32_t kv_head, int begin,
                                                  int end) {
    using m = forward_memory<D>;
    constexpr int KEYS = m::KEYS;
    ring<STAGES> k = {memory + m::BARRIERS}, v = {memory + m::BARRIERS + 16 * STAGES};
    size_t stride = (size_t)a.kv_heads * a.head_dim * 2;
    size_t at = ((size_t)b * a.keys * a.kv_heads + kv_head) * a.head_dim * 2;
    int pieces = a.head_dim / 8;
    for (int i = 0; begin + i < end; i++) {
        int key = (begin + i) * KEYS, rows = (int)a.keys - key, stage = i % STAGES * m::TILE;
        size_t here = at + key * stride;
        k.await_free(i);
        bring<D, KEYS>(memory + m::K + stage, (const uint8_t *)a.k + here, stride, rows, pieces);
        k.fill(i);
        v.await_free(i);
        bring<D, KEYS>(memory + m::V + stage, (const uint8_t *)a.v + here, stride, rows, pieces);
        v.fill(i);
    }
}

template <int D, bool BF16>
static __device__ __forceinline__ void attend_queries(const rn_flash_args &a, uint8_t *memory,
                                                      uint32_t b, uint32_t head, int t, int begin,
                                                      int end, int highest) {
    using m = forward_memory<D>;
    constexpr int KEYS = m::KEYS;
    uint32_t place = rn_shared_address(memory);
    ring<STAGES> k = {place + m::BARRIERS}, v = {place + m::BARRIERS + 16 * STAGES};
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, pieces = a.head_dim / 8;
    int group_t = t + threadIdx.x / GROUP * 64, low = t + row + lane / 4; // its queries
    size_t stride = (size_t)a.heads * a.head_dim;
    size_t at = ((size_t)b * a.queries * a.heads + head) * a.head_dim + (size_t)low * stride;
    uint32_t q[D / 16][4], p[KEYS / 16][4];
    float o[D / 2], s[KEYS / 2], scale = a.scale * RN_LOG2_E, shrink[2];
    forward_rows r = {
        {RN_NO_SCORE, RN_NO_SCORE}, {0, 0}, {find_span(a, b, low), find_span(a, b, low + 8)}};
    load_rows<D>(q, (const uint8_t *)a.q + at * 2, stride * 2, (int)a.queries - low, pieces);
    clear(o);
    // Tiles that all 64 queries see as a whole lie within these keys.
    int whole = max(find_span(a, group_t + 63).first, highest),
        whole_end = find_span(a, group_t).end;
    int count = end - begin;
    if (count > 0) {
        k.await_full(0);
        multiply_rows<BF16, D, KEYS>(s, q, place + m::K);
        rn_wgmma_wait<0>();
        rn_wgmma_hold(s);
        k.free(0);
        if (begin * KEYS < whole || begin * KEYS + KEYS > whole_end) hide(s, r, begin * KEYS);
        soften(s, r, scale, shrink);
        round_sums<BF16>(p, s);
    }
    for (int i = 1; i < count; i++) {
        int key = (begin + i) * KEYS;
        k.await_full(i);
        multiply_rows<BF16, D, KEYS>(s, q, place + m::K + i % STAGES * m::TILE);
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
    if (count > 0) {
        v.await_full(count - 1);
        add_product<BF16, D, KEYS>(o, p, place + m::V + (count - 1) % STAGES * m::TILE);
        rn_wgmma_wait<0>();
        rn_wgmma_hold(o);
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
            a.out_logsumexp[((size_t)b * a.heads + head) * a.queries + query] =
                fmaf(r.top[half], a.scale, logf(sum));
    }
    scale_rows(o, inverse);
    at -= lane / 4 * stride;
    write_rows<D>(o, memory + row * 128, BLOCK_ROWS * 128, a.out_type,
                  (uint8_t *)a.out + (at << (a.out_type == RN_PLAIN_F32 ? 2 : 1)), stride,
                  (int)a.queries - t - row, pieces);
}

// Grid (B x H, tiles of 128 queries): the last queries see most, they come first.
template <int D, bool BF16> static __device__ __forceinline__ void attend(const rn_flash_args &a) {
    extern __shared__ __align__(1024) uint8_t flash_memory[];
    using m = forward_memory<D>;
    uint8_t *memory = align_memory(flash_memory);
    uint32_t place = rn_shared_address(memory);
    uint32_t b = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
    int t = (gridDim.y - 1 - blockIdx.y) * BLOCK_ROWS, *reach = (int *)(memory + m::REACH);
    let_next_begin();
    wait_before();
    measure_documents(a, reach, b, t);
    if (threadIdx.x == 0) {
        ring<STAGES>{place + m::BARRIERS}.begin();
        ring<STAGES>{place + m::BARRIERS + 16 * STAGES}.begin();
        rn_barriers_publish();
    }
    __syncthreads();
    int lowest = min(min(reach[0], reach[2]), min(reach[4], reach[6]));
    int first = max(find_span(a, t).first, lowest);
    int last = find_span(a, min(t + BLOCK_ROWS, (int)a.queries) - 1).end;
    constexpr int KEYS = m::KEYS;
    int begin = first / KEYS, end = max((last + KEYS - 1) / KEYS, begin);
    if (threadIdx.x >= 2 * GROUP) {
        rn_registers_less<FEW_REGISTERS>();
        bring_keys<D>(a, place, b, head / (a.heads / a.kv_heads), begin, end);
    } else {
        rn_registers_more<MANY_REGISTERS>();
        int group = threadIdx.x / GROUP;
        attend_queries<D, BF16>(a, memory, b, head, t, begin, end,
                                max(reach[4 * group + 1], reach[4 * group + 3]));
    }
}

// As kernels.def says.
static_assert(forward_memory<64>::BYTES == 83040 && forward_memory<128>::BYTES == 164960 &&
                  forward_memory<160>::BYTES == 148576,
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
RN_FLASH(64, f16, false)
RN_FLASH(96, f16, false)
RN_FLASH(128, f16, false)
RN_FLASH(160, f16, false)
