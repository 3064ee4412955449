// norms_grad.cu — the gradients of softmax and of norms, of f32, bf16 and f16 in any mix, computed
// in f32 (graph/op/rmsnorm_grad.c, layernorm_grad.c, softmax_grad.c).
//
// A team of lanes takes the rows of its part one after the other. Lane and column belong together
// in all rows, so that sums over rows need no one else's: they grow in shared memory (in the
// workspace where that is too small), in the order of the rows, and norm_total adds the parts.
#include "row_team.cuh"

enum { DEEP = 2 }; // eights of x and of dy in flight: rows of up to 4096 elements are read once

// Where the running sums of this lane's columns are: d weight's, and `width` behind them d bias'.
template <int Lanes, bool Whole> struct running_sums {
    float *sums; // of the team; NULL: none are wanted
    uint32_t width, count;

    // The lane clears its own.
    __device__ __forceinline__ void begin(const rn_norm_grad_args &a, uint32_t kinds,
                                          uint64_t part) {
        extern __shared__ float shared[];
        uint64_t place = a.in_shared ? rn_team<Lanes>::number() : part;
        width = a.width, count = kinds;
        sums = a.partial ? (a.in_shared ? shared : a.partial) + place * kinds * a.width : NULL;
        for (uint32_t e = rn_team<Lanes>::lane(); sums && 8 * e < width; e += Lanes)
            for (uint32_t i = 8 * e; i < 8 * e + 8 && i < width; i++)
                for (uint32_t kind = 0; kind < kinds; kind++)
                    sums[kind * width + i] = 0;
    }
    __device__ __forceinline__ void add(uint32_t kind, uint32_t eight, const rn_eight &x) const {
        float *to = sums + kind * width + 8 * eight;
        if (Whole || (width % 4 == 0 && 8 * eight + 8 <= width)) {
            float4 low = ((const float4 *)to)[0], high = ((const float4 *)to)[1];
            ((float4 *)to)[0] =
                make_float4(low.x + x.v[0], low.y + x.v[1], low.z + x.v[2], low.w + x.v[3]);
            ((float4 *)to)[1] =
                make_float4(high.x + x.v[4], high.y + x.v[5], high.z + x.v[6], high.w + x.v[7]);
            return;
        }
        float v0 = x.v[0], v1 = x.v[1], v2 = x.v[2], v3 = x.v[3];
        float v4 = x.v[4], v5 = x.v[5], v6 = x.v[6], v7 = x.v[7];
#pragma unroll 1
        for (uint32_t j = 0; 8 * eight + j < width && j < 8; j++) {
            to[j] += v0;
            v0 = v1, v1 = v2, v2 = v3, v3 = v4, v4 = v5, v5 = v6, v6 = v7;
        }
    }
    __device__ __forceinline__ void end(const rn_norm_grad_args &a, uint64_t part) const {
        float *to = a.partial + part * count * width;
        for (uint32_t e = rn_team<Lanes>::lane(); a.in_shared && 8 * e < width; e += Lanes)
            for (uint32_t i = 8 * e; i < 8 * e + 8 && i < width; i++)
                for (uint32_t kind = 0; kind < count; kind++)
                    to[kind * width + i] = sums[kind * width + i];
    }
};

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

template <int Lanes, bool Layer, uint32_t Type>
__device__ __forceinline__ void norm_rows(const rn_norm_grad_args &a) {
    __shared__ float warps[RN_ROWS_THREADS / 32];
    const uint32_t x_type = Type ? Type : a.x_type, dy_type = Type ? Type : a.dy_type;
    const uint32_t dx_type = Type ? Type : a.dx_type;
    uint64_t number = (uint64_t)blockIdx.x * rn_team<Lanes>::rows + rn_team<Lanes>::number();
    uint64_t begin = number * a.part, end = begin + a.part < a.rows ? begin + a.part : a.rows;
    bool given = number < a.parts;
    running_sums<Lanes, Type != 0> running;
    if (given) running.begin(a, Layer ? 2 : 1, number);
    rn_row<Type != 0> weight(a.weight_type, a.weight, 0, a.width);
    // Teams of a warp go on by themselves; a team of a block is all there is.
    for (uint64_t row = begin; given && row < end; row++) {
        rn_row<Type != 0> x(x_type, a.x, row, a.width), dy(dy_type, a.dy, row, a.width);
        rn_row<Type != 0> dx(dx_type, a.dx, row, a.width);
        rn_held<Lanes, DEEP> held_x, held_dy;
        float mean = Layer ? a.mean[row] : 0, rstd = a.rstd[row], dot = 0, sum = 0;
        each_two(held_x, held_dy, x, dy, false, [&](rn_eight u, rn_eight g, uint32_t eight) {
            normalise<Layer>(&u, x.count(eight), mean, rstd);
            weigh(a, weight, eight, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                dot = __fmaf_rn(g.v[j], u.v[j], dot);
                if (Layer) sum = __fadd_rn(sum, g.v[j]);
            }
        });
        float slope = __fdiv_rn(rn_team<Lanes>::sum(dot, warps), (float)a.width), level = 0;
        if (Layer) level = __fdiv_rn(rn_team<Lanes>::sum(sum, warps), (float)a.width);
        each_two(held_x, held_dy, x, dy, true, [&](rn_eight u, rn_eight g, uint32_t eight) {
            normalise<Layer>(&u, x.count(eight), mean, rstd);
            if (Layer && running.sums) running.add(1, eight, g);
            rn_eight product;
#pragma unroll
            for (int j = 0; j < 8; j++)
                product.v[j] = __fmul_rn(g.v[j], u.v[j]);
            if (running.sums) running.add(0, eight, product);
            if (!a.dx) return;
            weigh(a, weight, eight, &g);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float rest = Layer ? __fsub_rn(g.v[j], level) : g.v[j];
                u.v[j] = __fmul_rn(rstd, __fmaf_rn(-u.v[j], slope, rest));
            }
            dx.store(eight, u);
        });
    }
    if (given && running.sums) running.end(a, number);
}

#define RN_NORM_GRAD(NAME, LAYER, TYPE, BLOCKS)                                                    \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, BLOCKS)                          \
        NAME(const __grid_constant__ rn_norm_grad_args a) {                                        \
        rn_begin();                                                                                \
        if (a.lanes == 32)                                                                         \
            norm_rows<32, LAYER, TYPE>(a);                                                         \
        else                                                                                       \
            norm_rows<RN_ROWS_THREADS, LAYER, TYPE>(a);                                            \
    }
RN_NORM_GRAD(rn_rmsnorm_grad_any, false, RN_PLAIN_NONE, 1)
RN_NORM_GRAD(rn_rmsnorm_grad_bf16, false, RN_PLAIN_BF16, 3)
RN_NORM_GRAD(rn_layernorm_grad_any, true, RN_PLAIN_NONE, 1)
RN_NORM_GRAD(rn_layernorm_grad_bf16, true, RN_PLAIN_BF16, 3)

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

template <int Lanes> __device__ __forceinline__ void softmax_rows(const rn_norm_grad_args &a) {
    __shared__ float warps[RN_ROWS_THREADS / 32];
    const uint32_t teams = rn_team<Lanes>::rows;
    for (uint64_t first = (uint64_t)blockIdx.x * teams; first < a.rows;
         first += (uint64_t)gridDim.x * teams) {
        uint64_t row = first + rn_team<Lanes>::number();
        bool given = row < a.rows;
        rn_row<false> y(a.x_type, a.x, given ? row : first, a.width);
        rn_row<false> dy(a.dy_type, a.dy, given ? row : first, a.width);
        rn_row<false> dx(a.dx_type, a.dx, given ? row : first, a.width);
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
        softmax_rows<32>(a);
    else
        softmax_rows<RN_ROWS_THREADS>(a);
}
