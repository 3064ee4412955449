// product_mma.cu — products of more than one row by mma.sync: for devices without wgmma, and the
// measure of bits for all others.
//
// A warp has a tile of 16 rows and 32 tokens. Both operands are read as lanes want them: weights
// from tiles, activations word by word from the packed core matrices.
#include "args.h"
#include "begin.cuh"
#include "forms.cuh"
#include "product_finish.cuh"
#include "product_many.h"

enum { RN_MMA_EIGHTS = RN_MMA_TOKENS / 8 };

// One tile of 128 columns onto `sum`. `b` is this lane's word of the warp's first core matrix.
template <class form>
__device__ __forceinline__ void add_tile(const uint8_t *tile, const uint8_t *b, uint64_t chunk,
                                         uint32_t eights, uint32_t lane,
                                         float sum[RN_MMA_EIGHTS][4]) {
    uint4 v[form::VECTORS + form::EXTRAS];
#pragma unroll
    for (int i = 0; i < form::VECTORS + form::EXTRAS; i++)
        v[i] = rn_form_stream<form>(tile, i, lane);
#pragma unroll
    for (int step = 0; step < 8; step++) {
        uint32_t fragment[4];
        form::widen(v, v + form::VECTORS, step, fragment);
        const uint8_t *at = b + step / 4 * chunk + step % 4 * 256;
#pragma unroll
        for (int i = 0; i < RN_MMA_EIGHTS; i++) {
            bool alive = i < eights;
            uint32_t first = alive ? __ldcg((const uint32_t *)(at + i * 1024)) : 0;
            uint32_t second = alive ? __ldcg((const uint32_t *)(at + i * 1024 + 128)) : 0;
            rn_mma<form::BF16>(sum[i], fragment, first, second);
        }
    }
}

// The sums of a row tile (all of its columns) and 32 tokens.
template <class form>
__device__ __forceinline__ void sum_rows(const rn_product_args &a, uint32_t which, uint32_t row,
                                         uint32_t token, float total[RN_MMA_EIGHTS][4]) {
    uint32_t lane = threadIdx.x % 32, tiles = (a.cols + 127) / 128, all = (a.rows + 7) / 8;
    uint32_t eights = all - token / 8;
    uint64_t chunk = (uint64_t)all * 1024;
    const uint8_t *weight =
        a.weights[which].tiles + (uint64_t)(row / 16) * tiles * form::TILE_BYTES;
    const uint8_t *b = (const uint8_t *)a.packed + (uint64_t)(token / 8) * 1024 + lane * 4;
    for (int i = 0; i < RN_MMA_EIGHTS * 4; i++)
        total[i / 4][i % 4] = -0.0f; // plus anything is just that
    for (uint32_t first = 0; first < tiles; first += RN_PRODUCT_SEGMENT / 128) {
        float sum[RN_MMA_EIGHTS][4] = {};
        uint32_t end = min(first + RN_PRODUCT_SEGMENT / 128, tiles);
        for (uint32_t tile = first; tile < end; tile++)
            add_tile<form>(weight + (uint64_t)tile * form::TILE_BYTES, b + 2 * tile * chunk, chunk,
                           eights, lane, sum);
        for (int i = 0; i < RN_MMA_EIGHTS * 4; i++)
            total[i / 4][i % 4] = __fadd_rn(total[i / 4][i % 4], sum[i / 4][i % 4]);
    }
}

// Grid: tokens / 32, row tiles / 4; 128 threads.
template <int FORM> __device__ __forceinline__ void multiply(const rn_product_args &a) {
    using form = rn_form<FORM>;
    rn_begin();
    uint32_t lane = threadIdx.x % 32, token = blockIdx.x * RN_MMA_TOKENS;
    uint32_t group = blockIdx.y * 4 + threadIdx.x / 32;
    rn_rows_found at = a.gated ? rn_rows_found{0, group * 16} : rn_rows_find(a, group, 16);
    const rn_product_weight &w = a.weights[at.which];
    if (at.row >= w.rows) return;
    float total[RN_MMA_EIGHTS][4], up[RN_MMA_EIGHTS][4] = {};
    sum_rows<form>(a, at.which, at.row, token, total);
    if (a.gated) sum_rows<form>(a, 1, at.row, token, up);
    for (int i = 0; i < RN_MMA_EIGHTS; i++)
        for (int e = 0; e < 4; e++) {
            uint32_t row = at.row + lane / 4 + e / 2 * 8;
            uint32_t mine = token + 8 * i + lane % 4 * 2 + e % 2;
            if (row >= w.rows || mine >= a.rows) continue;
            float value = rn_finish_row(rn_row_finish_of(w, row), total[i][e]);
            if (a.gated) {
                rn_row_finish finish = rn_row_finish_of(a.weights[1], row);
                value = rn_finish_gate(a, value, rn_finish_row(finish, up[i][e]));
            }
            rn_finish_put(a, at.which, mine, row, value);
        }
}

#define RN_PRODUCT_MMA(form, FORM)                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                              \
        rn_product_mma_##form(const __grid_constant__ rn_product_args a) {                         \
        multiply<RN_TILE_##FORM>(a);                                                               \
    }
RN_PRODUCT_MMA(f16, F16)
RN_PRODUCT_MMA(bf16, BF16)
RN_PRODUCT_MMA(q8, Q8)
RN_PRODUCT_MMA(i8, I8)
RN_PRODUCT_MMA(q4, Q4)
RN_PRODUCT_MMA(a4, A4)
RN_PRODUCT_MMA(n4, N4)
RN_PRODUCT_MMA(q6, Q6)
RN_PRODUCT_MMA(a5, A5)
RN_PRODUCT_MMA(i4, I4)
RN_PRODUCT_MMA(f4, F4)
RN_PRODUCT_MMA(q3, Q3)
RN_PRODUCT_MMA(a2, A2)
RN_PRODUCT_MMA(f8, F8)
RN_PRODUCT_MMA(v4, V4)
RN_PRODUCT_MMA(c2, C2)
RN_PRODUCT_MMA(c3, C3)
