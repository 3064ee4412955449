// attention_grad.cu — the gradients of attention (graph/op/attention_grad.c) in f32, whatever the
// tensors' types, for heads of any size; and what every form of them is prepared by.
//
// As on matrix units (flash_backward.cu) nothing is added up by several blocks: one kernel has 32
// queries of a head and goes through tiles of 64 keys for dq, another has 32 keys of a key head and
// goes through tiles of 64 queries of each head that shares it for dk and dv.
#include "attention_plain.cuh"
#include "begin.cuh"

namespace rn_att {

// ---- what is prepared ---------------------------------------------------------------------------

enum : uint32_t { PREPARE_ROWS = RN_FLASH_TILE, LANES = 16, TEAMS = 256 / LANES };

// delta and base of 64 queries of a head: 16 lanes a query. The first head's block also measures
// the tile's documents.
static __device__ __forceinline__ void prepare(const rn_flash_args &a) {
    uint32_t lane = threadIdx.x % LANES, tiles = a.padded / PREPARE_ROWS;
    uint32_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % a.heads;
    uint32_t b = blockIdx.x / tiles / a.heads, first = tile * PREPARE_ROWS + threadIdx.x / LANES;
    size_t of_head = (size_t)b * a.heads + head;
    bool aligned = a.head_dim % 8 == 0 && rn_is_aligned(a.y, 16) && rn_is_aligned(a.dy, 16);
    float delta[PREPARE_ROWS / TEAMS] = {};
    for (uint32_t j = 8 * lane; j < a.head_dim; j += 8 * LANES) {
        rn_raw_eight y[PREPARE_ROWS / TEAMS], dy[PREPARE_ROWS / TEAMS];
#pragma unroll
        for (uint32_t i = 0; i < PREPARE_ROWS / TEAMS; i++) {
            uint32_t t = first + i * TEAMS, left = t < a.queries ? a.head_dim - j : 0;
            size_t at = (((size_t)b * a.queries + t) * a.heads + head) * a.head_dim + j;
            y[i] = rn_fetch_up_to_eight(a.y_type, a.y, at, left, aligned);
            dy[i] = rn_fetch_up_to_eight(a.dy_type, a.dy, at, left, aligned);
        }
#pragma unroll
        for (uint32_t i = 0; i < PREPARE_ROWS / TEAMS; i++) {
            rn_eight u = rn_widen_eight(a.y_type, y[i]), v = rn_widen_eight(a.dy_type, dy[i]);
#pragma unroll
            for (int n = 0; n < 8; n++)
                delta[i] = fmaf(u.v[n], v.v[n], delta[i]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < PREPARE_ROWS / TEAMS; i++) {
        uint32_t t = first + i * TEAMS;
        float base = __int_as_float(0x7f800000), total = RN_NO_SCORE;
#pragma unroll
        for (int m = LANES / 2; m; m /= 2)
            delta[i] = __fadd_rn(delta[i], __shfl_xor_sync(~0u, delta[i], m));
        if (lane != 0) continue;
        if (t < a.queries) total = a.logsumexp[of_head * a.queries + t];
        if (total != RN_NO_SCORE) base = __fmul_rn(total, 1.4426950408889634f);
        a.base[of_head * a.padded + t] = base;
        a.delta[of_head * a.padded + t] = delta[i];
    }
    if (!a.documents || head != 0 || threadIdx.x >= 32) return;
    int low = 0x7fffffff, high = 0;
    for (uint32_t i = threadIdx.x; i < PREPARE_ROWS; i += 32) {
        uint32_t t = tile * PREPARE_ROWS + i;
        if (t >= a.queries) continue;
        int document = max(a.documents[(size_t)b * a.queries + t], 0);
        low = min(low, document);
        high = max(high, document);
    }
    low = __reduce_min_sync(~0u, low);
    high = __reduce_max_sync(~0u, high);
    int32_t *reach = a.reach + ((size_t)b * tiles + tile) * 2;
    if (threadIdx.x == 0) reach[0] = low, reach[1] = high;
}

// ---- dq -----------------------------------------------------------------------------------------

// The block's second rows (SLOTS, D) lie behind what RN_PLAIN_BYTES counts.
static __device__ __forceinline__ plain_desk second_desk(const plain_desk &d) {
    plain_desk second = d;
    second.q = d.p + SLOTS * TILE;
    return second;
}

// Grid (B x H, tiles of 32 queries).
template <int N> static __device__ __forceinline__ void make_dq(const rn_flash_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    let_next_begin();
    wait_before();
    uint32_t first = blockIdx.y * SLOTS, count = min(a.queries - first, (uint32_t)SLOTS);
    uint32_t b = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
    uint32_t kv_head = head / (a.heads / a.kv_heads), lane = threadIdx.x % 32;
    plain_desk d = open_desk(plain_memory, a.head_dim, count), grad = second_desk(d);
    size_t stride = (size_t)a.heads * d.dims, of_keys = (size_t)a.kv_heads * d.dims;
    size_t at_query = (((size_t)b * a.queries + first) * a.heads + head) * d.dims;
    size_t at_key = ((size_t)b * a.keys * a.kv_heads + kv_head) * d.dims;
    size_t at_row = ((size_t)b * a.heads + head) * a.padded + first;
    const float *mask = find_mask(a, b);
    load_slots(d.q, a.q, a.q_type, at_query, stride, d.dims, count);
    load_slots(grad.q, a.dy, a.dy_type, at_query, stride, d.dims, count);
    plain_sum<N> sum[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        clear(sum[i]);
    uint32_t tile = find_keys(a, first).first / TILE; // later queries see later keys
    uint32_t end = (find_keys(a, first + count - 1).end + TILE - 1) / TILE;
    for (; tile < end; tile++) {
        float s[EACH][2], dp[EACH][2];
        __syncthreads();
        load_tile(d, a.v, a.v_type, at_key, of_keys, tile, a.keys);
        __syncthreads();
        find_scores(grad, dp);
        __syncthreads();
        load_tile(d, a.k, a.k_type, at_key, of_keys, tile, a.keys);
        __syncthreads();
        find_scores(d, s);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (i >= d.active) continue;
            uint32_t slot = slot_of(i);
            float base = a.base[at_row + slot], delta = a.delta[at_row + slot];
            mask_scores(a, mask, b, first + slot, tile * TILE + lane, s[i]);
            for (uint32_t j = 0; j < 2; j++) {
                float p = power_of_two(__fadd_rn(s[i][j], -base));
                d.p[slot * TILE + lane + 32 * j] = p == 0 ? 0 : p * (dp[i][j] - delta);
            }
        }
        __syncwarp();
        add_values(d, sum);
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        if (i < d.active)
            write_slot(sum[i], a.scale, a.out, a.out_type, at_query + slot_of(i) * stride, d.dims);
}

// ---- dk, dv -------------------------------------------------------------------------------------

struct key_block {
    uint32_t b, first; // the block's first key
    const float *mask;
};

// p (or, with `dp`, the gradients of scores) of the block's keys and the tile's queries; `s` and
// `dp` are products of rows.
static __device__ __forceinline__ void weigh(const rn_flash_args &a, const plain_desk &d,
                                             const key_block &k, size_t at_row, uint32_t tile,
                                             const float (&s)[EACH][2], float (*dp)[2]) {
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        uint32_t column = threadIdx.x % 32 + 32 * j, t = tile * TILE + column;
        float base = t < a.queries ? a.base[at_row + t] : 0;
        float delta = t < a.queries ? a.delta[at_row + t] : 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (i >= d.active) continue;
            float score = t < a.queries
                              ? mask_score(a, k.mask, k.b, t, k.first + slot_of(i), s[i][j])
                              : RN_NO_SCORE;
            float p = power_of_two(__fadd_rn(score, -base));
            d.p[slot_of(i) * TILE + column] = !dp ? p : p == 0 ? 0 : p * (dp[i][j] - delta);
        }
    }
    __syncwarp();
}

// Grid (B x HK, tiles of 32 keys).
template <int N> static __device__ __forceinline__ void make_dkv(const rn_flash_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    let_next_begin();
    wait_before();
    uint32_t first = blockIdx.y * SLOTS, count = min(a.keys - first, (uint32_t)SLOTS);
    uint32_t b = blockIdx.x / a.kv_heads, kv_head = blockIdx.x % a.kv_heads;
    uint32_t group = a.heads / a.kv_heads;
    plain_desk d = open_desk(plain_memory, a.head_dim, count), values = second_desk(d);
    size_t stride = (size_t)a.heads * d.dims, of_keys = (size_t)a.kv_heads * d.dims;
    size_t at_key = (((size_t)b * a.keys + first) * a.kv_heads + kv_head) * d.dims;
    key_block block = {b, first, find_mask(a, b)};
    load_slots(d.q, a.k, a.k_type, at_key, of_keys, d.dims, count);
    load_slots(values.q, a.v, a.v_type, at_key, of_keys, d.dims, count);
    plain_sum<N> dk[EACH], dv[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        clear(dk[i]);
        clear(dv[i]);
    }
    // Queries before `from` do not see the first key yet; masks and windows decide the rest.
    int64_t from = a.causal || a.window ? (int64_t)first + a.queries - a.keys : 0;
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        size_t at_query = ((size_t)b * a.queries * a.heads + head) * d.dims;
        size_t at_row = ((size_t)b * a.heads + head) * a.padded;
        for (uint32_t tile = from > 0 ? (uint32_t)from / TILE : 0; tile * TILE < a.queries;
             tile++) {
            float s[EACH][2], dp[EACH][2];
            if (a.window && find_keys(a, tile * TILE).first >= first + count) break;
            __syncthreads();
            load_tile(d, a.q, a.q_type, at_query, stride, tile, a.queries);
            __syncthreads();
            find_scores(d, s);
            __syncthreads();
            load_tile(d, a.dy, a.dy_type, at_query, stride, tile, a.queries);
            __syncthreads();
            find_scores(values, dp);
            weigh(a, d, block, at_row, tile, s, NULL);
            add_values(d, dv);
            __syncthreads();
            load_tile(d, a.q, a.q_type, at_query, stride, tile, a.queries);
            __syncthreads();
            weigh(a, d, block, at_row, tile, s, dp);
            add_values(d, dk);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        size_t at = at_key + slot_of(i) * of_keys;
        if (i < d.active && a.dk) write_slot(dk[i], a.scale, a.dk, a.dk_type, at, d.dims);
        if (i < d.active && a.dv) write_slot(dv[i], 1, a.dv, a.dv_type, at, d.dims);
    }
}

} // namespace rn_att

// Grid (B x H x tiles of 64 queries).
extern "C" __global__ void __launch_bounds__(256)
    rn_flash_prepare(const __grid_constant__ rn_flash_args a) {
    rn_begin();
    rn_att::prepare(a);
}

#define RN_ATTENTION_GRAD(D)                                                                       \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attention_dq_##D(const __grid_constant__ rn_flash_args a) {                             \
        rn_att::make_dq<D / 32>(a);                                                                \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_attention_dkv_##D(const __grid_constant__ rn_flash_args a) {                            \
        rn_att::make_dkv<D / 32>(a);                                                               \
    }
RN_ATTENTION_GRAD(64)
RN_ATTENTION_GRAD(128)
RN_ATTENTION_GRAD(256)
