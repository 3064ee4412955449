// attention.cu — softmax(q kᵀ * scale + mask) v over (B, T, H, D), in f32 whatever the tensors'
// types, scores never held: a block takes 32 queries of a head through the tiles of 64 keys that
// they see.
#include "attention_plain.cuh"

namespace rn_att {

// Grid (B x H, tiles of 32 queries).
template <int N> static __device__ __forceinline__ void attend_all(const rn_flash_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    let_next_begin();
    wait_before();
    uint32_t first = blockIdx.y * SLOTS, count = min(a.queries - first, (uint32_t)SLOTS);
    uint32_t b = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
    uint32_t kv_head = head / (a.heads / a.kv_heads), lane = threadIdx.x % 32;
    plain_desk d = open_desk(plain_memory, a.head_dim, count);
    size_t at_query = (((size_t)b * a.queries + first) * a.heads + head) * d.dims;
    size_t at_key = ((size_t)b * a.keys * a.kv_heads + kv_head) * d.dims;
    const float *mask = find_mask(a, b);
    load_slots(d.q, a.q, a.q_type, at_query, (size_t)a.heads * d.dims, d.dims, count);
    plain_sum<N> sum[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        clear(sum[i]);
    // later queries see later keys
    uint32_t tile = find_keys(a, first).first / TILE;
    uint32_t end = (find_keys(a, first + count - 1).end + TILE - 1) / TILE;
    for (; tile < end; tile++) {
        __syncthreads();
        load_tile(d, a.k, a.k_type, at_key, (size_t)a.kv_heads * d.dims, tile, a.keys);
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
        load_tile(d, a.v, a.v_type, at_key, (size_t)a.kv_heads * d.dims, tile, a.keys);
        __syncthreads();
        add_values(d, sum);
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (i >= d.active) continue;
        uint32_t slot = slot_of(i);
        write_slot(sum[i], find_inverse(sum[i].sum), a.out, a.out_type,
                   at_query + (size_t)slot * a.heads * d.dims, d.dims);
        if (a.out_logsumexp && lane == 0)
            a.out_logsumexp[((size_t)b * a.heads + head) * a.queries + first + slot] =
                fmaf(sum[i].top, 0.6931471805599453f, logf(sum[i].sum));
    }
}

} // namespace rn_att

#define RN_ATTENTION(D)                                                                            \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attention_##D(const __grid_constant__ rn_flash_args a) {                                \
        rn_att::attend_all<D / 32>(a);                                                             \
    }
RN_ATTENTION(64)
RN_ATTENTION(128)
RN_ATTENTION(256)
