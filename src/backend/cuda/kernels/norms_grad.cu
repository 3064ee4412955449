// norms_grad.cu — the gradients of softmax and of norms, of f32, bf16 and f16 in any mix, computed
// in f32 (graph/op/rmsnorm_grad.c, layernorm_grad.c, softmax_grad.c).
//
// Of bf16 in whole eights one pass makes everything: a team of lanes takes the rows of its part one
// after the other, the next one's elements under way meanwhile; lane and column belong together in
// all rows, so that sums over rows grow in registers. Of all others one kernel makes dx and one the
// sums. norm_total adds the parts' sums.
#include "row_team.cuh"

enum { DEEP = 2 }; // eights of x and of dy that a lane holds

// take(x, dy, eight) for each eight of the row that this lane has, from what is held or once more.
template <int Lanes, bool Whole, class Take>
__device__ __forceinline__ void each_two(rn_held<Lanes, DEEP> &held_x,
                                         rn_held<Lanes, DEEP> &held_dy, const rn_row<Whole> &x,
                                         const rn_row<Whole> &dy, bool again, Take take) {
    uint32_t chunks = held_x.chunks(x.width);
    for (uint32_t c = 0; c < chunks; c++) {
        if (!again || chunks > 1) held_x.fetch(x, c), held_dy.fetch(dy, c);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            if (8 * held_x.place(c, k) < x.width)
                take(rn_widen_eight(x.type, held_x.raw[k]), rn_widen_eight(dy.type, held_dy.raw[k]),
                     held_x.place(c, k));
    }
}

// dy becomes g = dy weight.
template <bool Whole>
__device__ __forceinline__ void weigh(const rn_norm_grad_args &a, const rn_row<Whole> &weight,
                                      uint32_t eight, rn_eight *dy) {
    if (!a.weight) return;
    rn_eight w = weight.load(eight);
#pragma unroll
    for (int j = 0; j < 8; j++)
        dy->v[j] = __fmul_rn(dy->v[j], w.v[j]);
}

// x becomes u = (x - mean) rstd; behind the row's end it is 0, as dy is.
template <bool Layer>
__device__ __forceinline__ void normalise(rn_eight *x, uint32_t count, float mean, float rstd) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (Layer) x->v[j] = j < (int)count ? __fsub_rn(x->v[j], mean) : 0;
        x->v[j] = __fmul_rn(x->v[j], rstd);
    }
}

// ---- any types ----------------------------------------------------------------------------------

// dx, a team a row.
template <int Lanes, bool Layer>
__device__ __forceinline__ void norm_rows(const rn_norm_grad_args &a) {
    __shared__ float shared[2][2 * RN_ROWS_THREADS / 32];
    const uint32_t teams = rn_team<Lanes>::rows;
    rn_row<false> weight(a.weight_type, a.weight, 0, a.width);
    uint32_t turn = 0;
    for (uint64_t first = (uint64_t)blockIdx.x * teams; first < a.rows;
         first += (uint64_t)gridDim.x * teams, turn ^= 1) {
        uint64_t row = first + rn_team<Lanes>::number();
        if (row >= a.rows) continue; // teams of a warp only: a block's has all its rows
        rn_row<false> x(a.x_type, a.x, row, a.width), dy(a.dy_type, a.dy, row, a.width);
        rn_row<false> dx(a.dx_type, a.dx, row, a.width);
        rn_held<Lanes, DEEP> held_x, held_dy;
        float mean = Layer ? a.mean[row] : 0, rstd = a.rstd[row], dot = 0, sum = 0;
        each_two(held_x, held_dy, x, dy, false, [&](rn_eight u, rn_eight g, uint32_t eight) {
            normalise<Layer>(&u, x.count(eight), mean, rstd);
            weigh(a, weight, eight, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                dot = __fmaf_rn(g.v[j], u.v[j], dot);
                sum = __fadd_rn(sum, g.v[j]);
            }
        });
        rn_team<Lanes>::sum_two(&dot, &sum, shared[turn]);
        float slope = __fdiv_rn(dot, (float)a.width), level = __fdiv_rn(sum, (float)a.width);
        each_two(held_x, held_dy, x, dy, true, [&](rn_eight u, rn_eight g, uint32_t eight) {
            normalise<Layer>(&u, x.count(eight), mean, rstd);
            weigh(a, weight, eight, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float rest = Layer ? __fsub_rn(g.v[j], level) : g.v[j];
                u.v[j] = __fmul_rn(rstd, __fmaf_rn(-u.v[j], slope, rest));
            }
            dx.store(eight, u);
        });
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_norm_grad_any(const __grid_constant__ rn_norm_grad_args a) {
    rn_begin();
    if (a.mean && a.lanes == 32)
        norm_rows<32, true>(a);
    else if (a.mean)
        norm_rows<RN_ROWS_THREADS, true>(a);
    else if (a.lanes == 32)
        norm_rows<32, false>(a);
    else
        norm_rows<RN_ROWS_THREADS, false>(a);
}

// The sums of a part's rows, eight columns a thread. Blocks (columns, parts).
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_norm_columns(const __grid_constant__ rn_norm_grad_args a) {
    rn_begin();
    uint32_t eight = (uint32_t)rn_thread(), kinds = a.mean ? 2 : 1;
    uint64_t begin = blockIdx.y * a.part, end = begin + a.part < a.rows ? begin + a.part : a.rows;
    rn_eight weights = {{0, 0, 0, 0, 0, 0, 0, 0}}, biases = weights;
    if (8 * eight >= a.width) return;
    for (uint64_t row = begin; row < end; row++) {
        rn_row<false> x(a.x_type, a.x, row, a.width), dy(a.dy_type, a.dy, row, a.width);
        rn_eight u = x.load(eight), g = dy.load(eight);
        float mean = a.mean ? a.mean[row] : 0, rstd = a.rstd[row];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u.v[j] = __fmul_rn(__fsub_rn(u.v[j], mean), rstd);
            weights.v[j] = __fmaf_rn(g.v[j], u.v[j], weights.v[j]);
            biases.v[j] = __fadd_rn(biases.v[j], g.v[j]);
        }
    }
    rn_row<false> sums(RN_PLAIN_F32, a.partial, (uint64_t)blockIdx.y * kinds, a.width);
    sums.store(eight, weights);
    rn_row<false> more(RN_PLAIN_F32, a.partial, (uint64_t)blockIdx.y * kinds + 1, a.width);
    if (a.mean) more.store(eight, biases);
}

// ---- bf16 in whole eights -----------------------------------------------------------------------

// A row of x and dy as this lane has it.
template <int Lanes, bool Layer> struct lane_row {
    uint4 x[DEEP], dy[DEEP];
    float mean, rstd;

    __device__ __forceinline__ void fetch(const rn_norm_grad_args &a, uint64_t row) {
        mean = Layer ? a.mean[row] : 0, rstd = a.rstd[row];
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            uint32_t eight = k * Lanes + rn_team<Lanes>::lane();
            if (8 * eight >= a.width) continue;
            x[k] = *rn_place_of(RN_PLAIN_BF16, a.x, row * a.width + 8 * eight);
            dy[k] = *rn_place_of(RN_PLAIN_BF16, a.dy, row * a.width + 8 * eight);
        }
    }
    // u and dy of eight k.
    __device__ __forceinline__ void widen(int k, rn_eight *u, rn_eight *g) const {
        *u = rn_widen_eight(RN_PLAIN_BF16, rn_raw_eight{x[k], make_uint4(0, 0, 0, 0)});
        *g = rn_widen_eight(RN_PLAIN_BF16, rn_raw_eight{dy[k], make_uint4(0, 0, 0, 0)});
        normalise<Layer>(u, 8, mean, rstd);
    }
};

__device__ __forceinline__ rn_eight load_weight(const rn_norm_grad_args &a, uint32_t eight) {
    if (!a.weight || 8 * eight >= a.width) return rn_eight{{1, 1, 1, 1, 1, 1, 1, 1}};
    return rn_load_eight(a.weight_type, a.weight, 8 * eight);
}

// Held: there are registers for the weights and for the row ahead.
template <int Lanes, bool Layer, bool Held>
__device__ __forceinline__ void norm_parts(const rn_norm_grad_args &a) {
    __shared__ float shared[2][2 * rn_team<Lanes>::warps];
    uint64_t part = (uint64_t)blockIdx.x * rn_team<Lanes>::rows + rn_team<Lanes>::number();
    uint64_t row = part * a.part, end = row + a.part < a.rows ? row + a.part : a.rows;
    const uint32_t first = rn_team<Lanes>::lane(), kinds = Layer ? 2 : 1;
    rn_eight weights[DEEP], biases[DEEP], held[DEEP];
    lane_row<Lanes, Layer> now, next;
    if (part >= a.parts) return; // a team of a warp, or all of the block
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        weights[k] = biases[k] = rn_eight{{0, 0, 0, 0, 0, 0, 0, 0}};
        if (Held) held[k] = load_weight(a, k * Lanes + first);
    }
    if (Held) next.fetch(a, row);
    for (uint32_t turn = 0; row < end; row++, turn ^= 1) {
        if (Held)
            now = next;
        else
            now.fetch(a, row);
        if (Held && row + 1 < end) next.fetch(a, row + 1);
        float dot = 0, sum = 0;
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            if (8 * (k * Lanes + first) >= a.width) continue;
            rn_eight u, g, w = Held ? held[k] : load_weight(a, k * Lanes + first);
            now.widen(k, &u, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                weights[k].v[j] = __fmaf_rn(g.v[j], u.v[j], weights[k].v[j]);
                if (Layer) biases[k].v[j] = __fadd_rn(biases[k].v[j], g.v[j]);
                g.v[j] = __fmul_rn(g.v[j], w.v[j]);
                dot = __fmaf_rn(g.v[j], u.v[j], dot);
                if (Layer) sum = __fadd_rn(sum, g.v[j]);
            }
        }
        rn_team<Lanes>::sum_two(&dot, &sum, shared[turn]);
        float slope = __fdiv_rn(dot, (float)a.width), level = __fdiv_rn(sum, (float)a.width);
#pragma unroll
        for (int k = 0; a.dx && k < DEEP; k++) {
            uint32_t eight = k * Lanes + first;
            if (8 * eight >= a.width) continue;
            rn_eight u, g, w = Held ? held[k] : load_weight(a, eight);
            now.widen(k, &u, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float rest = __fmul_rn(g.v[j], w.v[j]);
                if (Layer) rest = __fsub_rn(rest, level);
                u.v[j] = __fmul_rn(now.rstd, __fmaf_rn(-u.v[j], slope, rest));
            }
            rn_store_eight(RN_PLAIN_BF16, a.dx, row * a.width + 8 * eight, u);
        }
    }
#pragma unroll
    for (int k = 0; a.partial && k < DEEP; k++) {
        uint64_t at = part * kinds * a.width + 8 * (k * Lanes + first);
        if (8 * (k * Lanes + first) >= a.width) continue;
        rn_store_eight(RN_PLAIN_F32, a.partial, at, weights[k]);
        if (Layer) rn_store_eight(RN_PLAIN_F32, a.partial, at + a.width, biases[k]);
    }
}

#define RN_NORM_PARTS(NAME, LANES, LAYER, HELD, BLOCKS)                                            \
    extern "C" __global__ void __launch_bounds__(rn_team<LANES>::threads, BLOCKS)                  \
        NAME(const __grid_constant__ rn_norm_grad_args a) {                                        \
        rn_begin();                                                                                \
        norm_parts<LANES, LAYER, HELD>(a);                                                         \
    }
RN_NORM_PARTS(rn_rmsnorm_grad_32, 32, false, true, 2)
RN_NORM_PARTS(rn_rmsnorm_grad_256, 256, false, true, 2)
RN_NORM_PARTS(rn_rmsnorm_grad_512, 512, false, true, 1)
RN_NORM_PARTS(rn_rmsnorm_grad_1024, 1024, false, false, 1)
RN_NORM_PARTS(rn_layernorm_grad_32, 32, true, true, 2)
RN_NORM_PARTS(rn_layernorm_grad_256, 256, true, true, 2)
RN_NORM_PARTS(rn_layernorm_grad_512, 512, true, true, 1)
RN_NORM_PARTS(rn_layernorm_grad_1024, 1024, true, false, 1)

// ---- sums of all parts --------------------------------------------------------------------------

// The parts' sums, in double: lane l adds parts l, l + 32, ... in order, then lanes in order.
// Blocks of 32 columns by 32 lanes; the grid's second axis is the kind of sum.
extern "C" __global__ void __launch_bounds__(1024)
    rn_norm_total(const __grid_constant__ rn_norm_grad_args a) {
    __shared__ double lanes[32][33];
    rn_begin();
    uint32_t column = threadIdx.x % 32, lane = threadIdx.x / 32, kinds = gridDim.y;
    uint64_t at = (uint64_t)blockIdx.x * 32 + column;
    void *to = blockIdx.y ? a.d_bias : a.d_weight;
    double sum = 0;
    for (uint64_t part = lane; at < a.width && part < a.parts; part += 32)
        sum = __dadd_rn(sum, a.partial[(part * kinds + blockIdx.y) * a.width + at]);
    lanes[lane][column] = sum;
    __syncthreads();
    if (lane > 0 || at >= a.width || !to) return;
    for (int i = 1; i < 32; i++)
        sum = __dadd_rn(sum, lanes[i][column]);
    rn_store_one(blockIdx.y ? a.d_bias_type : a.d_weight_type, to, at, (float)sum);
}

// ---- softmax ------------------------------------------------------------------------------------

template <int Lanes, uint32_t Type>
__device__ __forceinline__ void softmax_rows(const rn_norm_grad_args &a) {
    const uint32_t y_type = Type ? Type : a.x_type, dy_type = Type ? Type : a.dy_type;
    const uint32_t dx_type = Type ? Type : a.dx_type;
    __shared__ float warps[RN_ROWS_THREADS / 32];
    const uint32_t teams = rn_team<Lanes>::rows;
    for (uint64_t first = (uint64_t)blockIdx.x * teams; first < a.rows;
         first += (uint64_t)gridDim.x * teams) {
        uint64_t row = first + rn_team<Lanes>::number();
        bool given = row < a.rows;
        rn_row<Type != 0> y(y_type, a.x, given ? row : first, a.width);
        rn_row<Type != 0> dy(dy_type, a.dy, given ? row : first, a.width);
        rn_row<Type != 0> dx(dx_type, a.dx, given ? row : first, a.width);
        rn_held<Lanes, DEEP> held_y, held_dy;
        float dot = 0;
        each_two(held_y, held_dy, y, dy, false,
                 [&](const rn_eight &p, const rn_eight &g, uint32_t) {
#pragma unroll
                     for (int j = 0; j < 8; j++)
                         dot = __fmaf_rn(p.v[j], g.v[j], dot);
                 });
        dot = rn_team<Lanes>::sum(dot, warps);
        if (!given) continue; // teams of a warp only: a block's has all its rows
        each_two(held_y, held_dy, y, dy, true, [&](rn_eight p, const rn_eight &g, uint32_t eight) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                p.v[j] = __fmul_rn(p.v[j], __fsub_rn(g.v[j], dot));
            dx.store(eight, p);
        });
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_softmax_grad_any(const __grid_constant__ rn_norm_grad_args a) {
    rn_begin();
    if (a.lanes == 32)
        softmax_rows<32, RN_PLAIN_NONE>(a);
    else
        softmax_rows<RN_ROWS_THREADS, RN_PLAIN_NONE>(a);
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, 4)
    rn_softmax_grad_bf16(const __grid_constant__ rn_norm_grad_args a) {
    rn_begin();
    if (a.lanes == 32)
        softmax_rows<32, RN_PLAIN_BF16>(a);
    else
        softmax_rows<RN_ROWS_THREADS, RN_PLAIN_BF16>(a);
}
