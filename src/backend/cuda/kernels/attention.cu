// attention.cu — softmax(q kᵀ * scale + mask) v over (B, T, H, D), in f32, scores never held: a
// block takes 32 queries of a head through the tiles of 64 keys that they see.
#include "attend_plain.cuh"

namespace rn_att {

// Query t stands at key t + S - T.
static __device__ __forceinline__ key_range find_keys(const rn_attention_args &a, uint32_t t) {
    if (!a.causal && a.window == 0) return {0, a.keys};
    int64_t at = (int64_t)t + a.keys - a.queries;
    if (at < 0) return {0, 0};
    uint32_t end = (uint32_t)at + 1;
    return {a.window && end > a.window ? end - a.window : 0, end};
}

static __device__ __forceinline__ void load_tile(const rn_attention_args &a, const plain_desk &d,
                                                 const float *x, uint32_t tile) {
    size_t stride = (size_t)a.kv_heads * d.dims;
    for (uint32_t i = threadIdx.x / 32; i < TILE; i += WARPS) {
        uint32_t key = tile * TILE + i;
        for (uint32_t j = threadIdx.x % 32; j < d.dims; j += 32)
            d.tile[i * (d.dims + 1) + j] = key < a.keys ? x[key * stride + j] : 0;
    }
}

// The scores of query t with keys `key` and `key` + 32, as powers of two.
static __device__ __forceinline__ void mask_scores(const rn_attention_args &a, const float *mask,
                                                   uint32_t b, uint32_t t, uint32_t key,
                                                   float (&s)[2]) {
    key_range seen = find_keys(a, t);
    int32_t document = a.documents ? a.documents[(size_t)b * a.queries + t] : 0;
    if (document > 0) seen.first = max(seen.first, (uint32_t)document);
    for (uint32_t j = 0; j < 2; j++, key += 32) {
        float score = __fmul_rn(s[j], a.scale);
        bool visible = key >= seen.first && key < seen.end;
        if (visible && mask) score = __fadd_rn(score, mask[(size_t)t * a.keys + key]);
        s[j] = visible ? __fmul_rn(score, 1.4426950408889634f) : RN_NO_SCORE;
    }
}

// Grid (B x H, tiles of 32 queries).
template <int N> static __device__ __forceinline__ void attend_all(const rn_attention_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    let_next_begin();
    wait_before();
    uint32_t first = blockIdx.y * SLOTS, count = min(a.queries - first, (uint32_t)SLOTS);
    uint32_t b = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
    uint32_t kv_head = head / (a.heads / a.kv_heads), lane = threadIdx.x % 32;
    plain_desk d = open_desk(plain_memory, a.head_dim, count);
    size_t at_query = (((size_t)b * a.queries + first) * a.heads + head) * d.dims;
    size_t at_key = ((size_t)b * a.keys * a.kv_heads + kv_head) * d.dims;
    const float *mask = a.mask;
    if (mask && a.mask_of_batch) mask += (size_t)b * a.queries * a.keys;
    for (uint32_t i = threadIdx.x / 32; i < count; i += WARPS)
        for (uint32_t j = lane; j < d.dims; j += 32)
            d.q[i * d.dims + j] = a.q[at_query + (size_t)i * a.heads * d.dims + j];
    plain_sum<N> sum[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        clear(sum[i]);
    // later queries see later keys
    uint32_t tile = find_keys(a, first).first / TILE;
    uint32_t end = (find_keys(a, first + count - 1).end + TILE - 1) / TILE;
    for (; tile < end; tile++) {
        __syncthreads();
        load_tile(a, d, a.k + at_key, tile);
        __syncthreads();
        float s[EACH][2];
        find_scores(d, s);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (i >= d.active) continue;
            mask_scores(a, mask, b, first + slot_of(i), tile * TILE + lane, s[i]);
            soften(d, i, s[i][0], s[i][1], sum[i]);
        }
        __syncthreads();
        load_tile(a, d, a.v + at_key, tile);
        __syncthreads();
        add_values(d, sum);
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (i >= d.active) continue;
        uint32_t slot = slot_of(i);
        write_result(sum[i], a.out + at_query + (size_t)slot * a.heads * d.dims, d.dims);
        if (a.logsumexp && lane == 0)
            a.logsumexp[((size_t)b * a.heads + head) * a.queries + first + slot] =
                fmaf(sum[i].top, 0.6931471805599453f, logf(sum[i].sum));
    }
}

} // namespace rn_att

#define RN_ATTENTION(D)                                                                            \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attention_##D(const __grid_constant__ rn_attention_args a) {                            \
        rn_att::attend_all<D / 32>(a);                                                             \
    }
RN_ATTENTION(64)
RN_ATTENTION(128)
RN_ATTENTION(256)
