// varlen.cu — attention within each of several texts whose rows lie one behind the other, in f32,
// without a KV cache (graph/op/varlen_attention.c).
//
// A block takes 32 rows of a head. Those of one text go through its tiles of 64 keys together, the
// next text's after them: a short text costs what its own keys cost. Keys are counted from the
// beginning of the text, so a text's bits do not depend on what it is packed with. A span that
// cannot be gives NaN: spans are not looked at on the host.
#include "attend_plain.cuh"

namespace rn_att {

struct text_rows {
    uint32_t row, count;  // of the run, in this block
    uint32_t begin, keys; // the text: its first row, its rows
    bool is_wrong;
};

static __device__ __forceinline__ text_rows find_text(const rn_varlen_args &a, uint32_t row,
                                                      uint32_t end) {
    int32_t begin = a.span[2 * row], stop = a.span[2 * row + 1];
    bool is_empty = begin == stop;
    bool holds = begin >= 0 && (uint32_t)begin <= row && stop > (int64_t)row &&
                 (uint32_t)stop <= a.rows;
    text_rows text = {row, 1, (uint32_t)begin, (uint32_t)stop - (uint32_t)begin,
                      !is_empty && !holds};
    if (is_empty || !holds) {
        text.begin = text.keys = 0;
        return text;
    }
    while (row + text.count < end && a.span[2 * (row + text.count)] == begin &&
           a.span[2 * (row + text.count) + 1] == stop)
        text.count++;
    return text;
}

// The keys that the query at position `at` of a text sees.
static __device__ __forceinline__ key_range find_keys(const rn_varlen_args &a, uint32_t keys,
                                                      uint32_t at) {
    key_range seen = {0, a.causal ? at + 1 : keys};
    if (keys == 0) return {0, 0};
    if (a.window == 0) return seen;
    if (at + 1 > a.window) seen.first = at + 1 - a.window;
    if (seen.end > at && seen.end - at > a.window) seen.end = at + a.window;
    return seen;
}

static __device__ __forceinline__ void load_tile(const rn_varlen_args &a, const plain_desk &d,
                                                 const float *x, uint32_t keys, uint32_t tile) {
    size_t stride = (size_t)a.kv_heads * d.dims;
    for (uint32_t i = threadIdx.x / 32; i < TILE; i += WARPS) {
        uint32_t key = tile * TILE + i;
        for (uint32_t j = threadIdx.x % 32; j < d.dims; j += 32)
            d.tile[i * (d.dims + 1) + j] = key < keys ? x[key * stride + j] : 0;
    }
}

static __device__ __forceinline__ float find_bias(const rn_varlen_args &a, const float *bias,
                                                  uint32_t at, uint32_t key) {
    uint32_t distance = min(key > at ? key - at : at - key, a.reach);
    return bias[key > at ? a.reach + distance : a.reach - distance];
}

// The scores of the query at position `at` with keys `key` and `key` + 32, as powers of two.
static __device__ __forceinline__ void mask_scores(const rn_varlen_args &a, const float *bias,
                                                   key_range seen, uint32_t at, uint32_t key,
                                                   float (&s)[2]) {
    for (uint32_t j = 0; j < 2; j++, key += 32) {
        float score = __fmul_rn(s[j], a.scale);
        bool visible = key >= seen.first && key < seen.end;
        if (a.cap != 0) score = __fmul_rn(tanhf(__fdiv_rn(score, a.cap)), a.cap);
        if (visible && bias) score = __fadd_rn(score, find_bias(a, bias, at, key));
        s[j] = visible ? __fmul_rn(score, 1.4426950408889634f) : RN_NO_SCORE;
    }
}

// Rows of one text: all of its tiles that one of them sees, in order.
template <int N>
static __device__ __forceinline__ void attend_text(const rn_varlen_args &a, const text_rows &text,
                                                   uint32_t head, plain_desk d) {
    uint32_t lane = threadIdx.x % 32, at = text.row - text.begin; // of the first row
    size_t at_query = ((size_t)text.row * a.heads + head) * d.dims, step = (size_t)a.heads * d.dims;
    size_t at_key = ((size_t)text.begin * a.kv_heads + head / (a.heads / a.kv_heads)) * d.dims;
    const float *bias = a.bias ? a.bias + (size_t)head * (2 * a.reach + 1) : nullptr;
    __syncthreads(); // the text before has been read
    for (uint32_t i = threadIdx.x / 32; i < text.count; i += WARPS)
        for (uint32_t j = lane; j < d.dims; j += 32)
            d.q[i * d.dims + j] = a.q[at_query + i * step + j];
    plain_sum<N> sum[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        clear(sum[i]);
    // later queries see later keys
    uint32_t tile = find_keys(a, text.keys, at).first / TILE;
    uint32_t end = (find_keys(a, text.keys, at + text.count - 1).end + TILE - 1) / TILE;
    for (; tile < end; tile++) {
        __syncthreads();
        load_tile(a, d, a.k + at_key, text.keys, tile);
        __syncthreads();
        float s[EACH][2];
        find_scores(d, s);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (i >= d.active) continue;
            uint32_t query = at + slot_of(i);
            mask_scores(a, bias, find_keys(a, text.keys, query), query, tile * TILE + lane, s[i]);
            soften(d, i, s[i][0], s[i][1], sum[i]);
        }
        __syncthreads();
        load_tile(a, d, a.v + at_key, text.keys, tile);
        __syncthreads();
        add_values(d, sum);
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (i >= d.active) continue;
        if (text.is_wrong) sum[i].sum = __int_as_float(0x7fc00000);
        write_result(sum[i], a.out + at_query + slot_of(i) * step, d.dims);
    }
}

// Grid (H, tiles of 32 rows).
template <int N> static __device__ __forceinline__ void attend_texts(const rn_varlen_args &a) {
    extern __shared__ __align__(16) float plain_memory[];
    let_next_begin();
    wait_before();
    uint32_t row = blockIdx.y * SLOTS, end = min(row + SLOTS, a.rows);
    while (row < end) {
        text_rows text = find_text(a, row, end);
        attend_text<N>(a, text, blockIdx.x, open_desk(plain_memory, a.head_dim, text.count));
        row += text.count;
    }
}

} // namespace rn_att

#define RN_VARLEN(D)                                                                               \
    extern "C" __global__ void __launch_bounds__(RN_PLAIN_THREADS)                                 \
        rn_varlen_##D(const __grid_constant__ rn_varlen_args a) {                                  \
        rn_att::attend_texts<D / 32>(a);                                                           \
    }
RN_VARLEN(64)
RN_VARLEN(128)
RN_VARLEN(256)
