// embedding.cu — rows of a table by their numbers, widened to f32. Blocks (cols, ids): a block's
// threads take a piece of a row, four columns each where they can.
#include "begin.cuh"
#include "plain.cuh"

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
                *(float4 *)(a.y + to) =
                    known ? read_four(a.table, from, row) : make_float4(nan, nan, nan, nan);
            else
                a.y[to] = known ? rn_plain_at(a.table, from, row) : nan;
        }
    }
}
