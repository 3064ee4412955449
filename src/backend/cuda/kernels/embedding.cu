// embedding.cu — rows of a table by their numbers, as f32, bf16 or f16, and the table's gradient.
// Blocks (cols, ids): a block's threads take a piece of a row, four columns each where they can.
#include "begin.cuh"
#include "plain.cuh"
#include "training_args.h"

__device__ __forceinline__ float4 read_four(const rn_plain_args &t, uint64_t i, uint64_t row) {
    if (t.type == RN_PLAIN_F32) return *(const float4 *)(t.data + i * 4);
    if (t.type == RN_PLAIN_F16 || t.type == RN_PLAIN_BF16) {
        uint2 two = *(const uint2 *)(t.data + i * 2);
        if (t.type == RN_PLAIN_BF16)
            return make_float4(rn_widen_bf16(two.x & 0xffff), rn_widen_bf16(two.x >> 16),
                               rn_widen_bf16(two.y & 0xffff), rn_widen_bf16(two.y >> 16));
        return make_float4(rn_widen_f16(two.x & 0xffff), rn_widen_f16(two.x >> 16),
                           rn_widen_f16(two.y & 0xffff), rn_widen_f16(two.y >> 16));
    }
    float v[4];
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
        float one = rn_plain_at(t, i + j, row);
        v[0] = j == 0 ? one : v[0], v[1] = j == 1 ? one : v[1];
        v[2] = j == 2 ? one : v[2], v[3] = j == 3 ? one : v[3];
    }
    return make_float4(v[0], v[1], v[2], v[3]);
}

__device__ __forceinline__ void store_four(uint32_t type, void *y, uint64_t i, float4 v) {
    if (type == RN_PLAIN_F32)
        *(float4 *)((float *)y + i) = v;
    else
        *(uint2 *)((uint16_t *)y + i) =
            make_uint2(rn_narrow_two(type, v.x, v.y), rn_narrow_two(type, v.z, v.w));
}

extern "C" __global__ void rn_embedding(const __grid_constant__ rn_embedding_args a) {
    rn_begin();
    const float nan = __uint_as_float(0x7fc00000);
    uint64_t cols = a.table.cols, width = a.fours ? 4 : 1;
    for (uint64_t id = blockIdx.y; id < a.count; id += gridDim.y) {
        int32_t row = a.ids[id];
        bool known = row >= 0 && (uint64_t)row < a.table.rows;
        for (uint64_t c = rn_thread() * width; c < cols; c += rn_threads() * width) {
            uint64_t from = (uint64_t)row * cols + c, to = id * cols + c;
            if (a.fours)
                store_four(a.y_type, a.y, to,
                           known ? read_four(a.table, from, row) : make_float4(nan, nan, nan, nan));
            else
                rn_store_one(a.y_type, a.y, to, known ? rn_plain_at(a.table, from, row) : nan);
        }
    }
}

// ---- the gradient -------------------------------------------------------------------------------

// The place of each id among all: how many are smaller, or equal and before it. A warp has eight
// ids and goes along all of them, a lane every 32nd.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_embedding_order(const __grid_constant__ rn_embedding_grad_args a) {
    rn_begin();
    uint64_t first = rn_thread() / 32 * 8;
    uint32_t lane = threadIdx.x % 32, before[8], count = (uint32_t)a.count;
    int32_t mine[8];
    if (first >= a.count) return;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        before[j] = 0;
        mine[j] = first + j < a.count ? a.ids[first + j] : 0;
    }
#pragma unroll 4
    for (uint32_t i = lane; i < count; i += 32) {
        int32_t id = a.ids[i];
#pragma unroll
        for (int j = 0; j < 8; j++)
            before[j] += id < mine[j] || (id == mine[j] && i < (uint32_t)first + j);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t at = __reduce_add_sync(0xffffffffu, before[j]);
        if (lane == j && first + j < a.count) a.order[at] = (uint32_t)first + j;
    }
}

// Blocks (places in order, columns by 8 * RN_ROWS_THREADS). An id that is no row has no gradient.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_embedding_grad(const __grid_constant__ rn_embedding_grad_args a) {
    rn_begin();
    uint32_t column = 8 * (blockIdx.y * RN_ROWS_THREADS + threadIdx.x);
    bool aligned = a.cols % 8 == 0 && rn_is_aligned(a.dy, 16) && rn_is_aligned(a.d_table, 16);
    if (column >= a.cols) return;
    uint32_t count = a.cols - column;
    for (uint64_t at = blockIdx.x; at < a.count; at += gridDim.x) {
        int32_t id = a.ids[a.order[at]];
        if (id < 0 || (uint64_t)id >= a.rows || (at > 0 && a.ids[a.order[at - 1]] == id)) continue;
        rn_eight sum = {{0, 0, 0, 0, 0, 0, 0, 0}};
        for (uint64_t next = at; next < a.count; next++) {
            uint32_t place = a.order[next];
            if (a.ids[place] != id) break;
            rn_eight dy = rn_load_up_to_eight(a.dy_type, a.dy, (uint64_t)place * a.cols + column,
                                              count, aligned);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum.v[j] = __fadd_rn(sum.v[j], dy.v[j]);
        }
        rn_store_up_to_eight(a.d_type, a.d_table, (uint64_t)id * a.cols + column, count, aligned,
                             sum);
    }
}
