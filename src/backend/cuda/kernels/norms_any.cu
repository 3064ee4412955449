// norms_any.cu — softmax, layer norm, RMS norm and rope of f32, bf16 and f16 in any mix, computed
// in f32: what norms.cu is for f32 alone. A row's bits depend on nothing but the row.
//
// There are kernels of their own for x and y of bf16 in whole eights: what is known beforehand
// needs no registers, and with fewer of them more rows are under way at once. Rows of a head's size
// share a warp, rows of a model's width have one each, without a barrier.
#include "norm.cuh"
#include "row_team.cuh"

// Eights in flight: rows of up to 4096 elements are read once. BLOCKS: of a multiprocessor at once.
enum { DEEP = 2, BLOCKS = 5 };

// take(x, eight) for each eight of the row that this lane has, from what is held or once more.
template <int Lanes, bool Whole, class Take>
__device__ __forceinline__ void each_eight(rn_held<Lanes, DEEP> &held, const rn_row<Whole> &row,
                                           bool again, Take take) {
    uint32_t chunks = held.chunks(row.width);
    for (uint32_t c = 0; c < chunks; c++) {
        if (!again || chunks > 1) held.fetch(row, c);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            if (8 * held.place(c, k) < row.width)
                take(rn_widen_eight(row.type, held.raw[k]), held.place(c, k));
    }
}

// run(row number, whether there is such a row, what is held of it) for the rows of this block's
// teams. Ahead: the next row's elements are fetched while run works on this one's.
template <int Lanes, bool Ahead, class Run>
__device__ __forceinline__ void each_row(const rn_norm_args &a, uint32_t x_type, Run run) {
    const uint32_t teams = rn_team<Lanes>::rows;
    uint64_t first = (uint64_t)blockIdx.x * teams, step = (uint64_t)gridDim.x * teams;
    uint64_t row = first + rn_team<Lanes>::number();
    rn_held<Lanes, DEEP> held, next;
    bool one = Ahead && held.chunks(a.width) == 1;
    if (one && row < a.rows) next.fetch(rn_row<Ahead>(x_type, a.x, row, a.width), 0);
    for (; first < a.rows; first += step, row += step) {
        if (one) held = next;
        if (one && row + step < a.rows)
            next.fetch(rn_row<Ahead>(x_type, a.x, row + step, a.width), 0);
        run(row < a.rows ? row : first, row < a.rows, one, held);
    }
}

// The two kernels of an op: for any types, and for bf16 in whole eights.
#define RN_ROW_KERNEL(NAME, OP, TYPE, ...)                                                         \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        NAME(const __grid_constant__ rn_norm_args a) {                                             \
        rn_begin();                                                                                \
        if (a.lanes == 32)                                                                         \
            OP##_rows<32, TYPE>(a);                                                                \
        else                                                                                       \
            OP##_rows<RN_ROWS_THREADS, TYPE>(a);                                                   \
    }
#define RN_ROW_KERNELS(OP, BLOCKS_OF_BF16)                                                         \
    RN_ROW_KERNEL(rn_##OP##_any, OP, RN_PLAIN_NONE, RN_ROWS_THREADS)                               \
    RN_ROW_KERNEL(rn_##OP##_bf16, OP, RN_PLAIN_BF16, RN_ROWS_THREADS, BLOCKS_OF_BF16)

// ---- RMS norm -----------------------------------------------------------------------------------

template <int Lanes, uint32_t Type>
__device__ __forceinline__ void rmsnorm_rows(const rn_norm_args &a) {
    const uint32_t x_type = Type ? Type : a.x_type, y_type = Type ? Type : a.y_type;
    __shared__ float warps[RN_ROWS_THREADS / 32];
    each_row<Lanes, Type != 0>(
        a, x_type, [&](uint64_t number, bool given, bool fetched, rn_held<Lanes, DEEP> &held) {
            rn_row<Type != 0> x(x_type, a.x, number, a.width), y(y_type, a.y, number, a.width);
            rn_row<Type != 0> weight(a.weight_type, a.weight, 0, a.width);
            float sum = 0;
            each_eight(held, x, fetched, [&](const rn_eight &v, uint32_t) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum = __fmaf_rn(v.v[j], v.v[j], sum);
            });
            float scale = rn_norm_scale(rn_team<Lanes>::sum(sum, warps), a.width, a.eps);
            if (!given) return;
            each_eight(held, x, true, [&](rn_eight v, uint32_t eight) {
                rn_eight w = {{1, 1, 1, 1, 1, 1, 1, 1}};
                if (a.weight) w = weight.load(eight);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    v.v[j] = rn_norm_apply(v.v[j], scale, w.v[j]);
                y.store(eight, v);
            });
            if (rn_team<Lanes>::lane() == 0 && a.rstd) a.rstd[number] = scale;
        });
}

RN_ROW_KERNELS(rmsnorm, BLOCKS)

enum { NARROW_ROWS = 4 }; // of a thread, fetched together

// Rows of up to 8 * Lanes elements, Lanes threads each; a thread's weights stay in its registers.
template <int Lanes> __device__ __forceinline__ void rmsnorm_narrow(const rn_norm_args &a) {
    const uint32_t eight = threadIdx.x % Lanes;
    const bool there = 8 * eight < a.width;
    uint64_t first = rn_thread() / Lanes, step = rn_threads() / Lanes;
    rn_eight w = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (a.weight && there) w = rn_load_eight(a.weight_type, a.weight, 8 * eight);
    for (; first - threadIdx.x / Lanes < a.rows; first += NARROW_ROWS * step) { // of whole blocks
        rn_raw_eight raw[NARROW_ROWS] = {};
#pragma unroll
        for (int r = 0; r < NARROW_ROWS; r++)
            if (there && first + r * step < a.rows)
                raw[r] =
                    rn_fetch_eight(RN_PLAIN_BF16, a.x, (first + r * step) * a.width + 8 * eight);
#pragma unroll
        for (int r = 0; r < NARROW_ROWS; r++) {
            rn_eight v = rn_widen_eight(RN_PLAIN_BF16, raw[r]);
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum = __fmaf_rn(v.v[j], v.v[j], sum);
            sum = rn_team<32>::fold_lanes<Lanes>(sum,
                                                 [](float p, float q) { return __fadd_rn(p, q); });
            float scale = rn_norm_scale(sum, a.width, a.eps);
            uint64_t row = first + r * step;
            if (row >= a.rows) continue;
#pragma unroll
            for (int j = 0; j < 8; j++)
                v.v[j] = rn_norm_apply(v.v[j], scale, w.v[j]);
            if (there) rn_store_eight(RN_PLAIN_BF16, a.y, row * a.width + 8 * eight, v);
            if (eight == 0 && a.rstd) a.rstd[row] = scale;
        }
    }
}

#define RN_RMSNORM_NARROW(LANES)                                                                   \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_rmsnorm_narrow_##LANES(const __grid_constant__ rn_norm_args a) {                        \
        rn_begin();                                                                                \
        rmsnorm_narrow<LANES>(a);                                                                  \
    }
RN_RMSNORM_NARROW(8)
RN_RMSNORM_NARROW(16)
RN_RMSNORM_NARROW(32)

// ---- layer norm ---------------------------------------------------------------------------------

// The sum of (x - mean)^2 over what the eight has.
__device__ __forceinline__ float add_squares(const rn_eight &v, uint32_t count, float mean,
                                             float sum) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float apart = j < (int)count ? __fsub_rn(v.v[j], mean) : 0;
        sum = __fmaf_rn(apart, apart, sum);
    }
    return sum;
}

template <int Lanes, uint32_t Type>
__device__ __forceinline__ void layernorm_rows(const rn_norm_args &a) {
    const uint32_t x_type = Type ? Type : a.x_type, y_type = Type ? Type : a.y_type;
    __shared__ float warps[RN_ROWS_THREADS / 32];
    each_row<Lanes, Type != 0>(
        a, x_type, [&](uint64_t number, bool given, bool fetched, rn_held<Lanes, DEEP> &held) {
            rn_row<Type != 0> x(x_type, a.x, number, a.width), y(y_type, a.y, number, a.width);
            rn_row<Type != 0> weight(a.weight_type, a.weight, 0, a.width),
                bias(a.bias_type, a.bias, 0, a.width);
            float sum = 0, squares = 0;
            each_eight(held, x, fetched, [&](const rn_eight &v, uint32_t) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum = __fadd_rn(sum, v.v[j]);
            });
            float mean = __fdiv_rn(rn_team<Lanes>::sum(sum, warps), (float)a.width);
            each_eight(held, x, true, [&](const rn_eight &v, uint32_t eight) {
                squares = add_squares(v, x.count(eight), mean, squares);
            });
            float rstd = rn_norm_scale(rn_team<Lanes>::sum(squares, warps), a.width, a.eps);
            if (!given) return;
            each_eight(held, x, true, [&](rn_eight v, uint32_t eight) {
                rn_eight w = {{1, 1, 1, 1, 1, 1, 1, 1}}, b = {{0, 0, 0, 0, 0, 0, 0, 0}};
                if (a.weight) w = weight.load(eight);
                if (a.bias) b = bias.load(eight);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    v.v[j] = __fmaf_rn(__fmul_rn(__fsub_rn(v.v[j], mean), rstd), w.v[j], b.v[j]);
                y.store(eight, v);
            });
            if (rn_team<Lanes>::lane() == 0 && a.mean) a.mean[number] = mean;
            if (rn_team<Lanes>::lane() == 0 && a.rstd) a.rstd[number] = rstd;
        });
}

RN_ROW_KERNELS(layernorm, BLOCKS - 1)

// A warp a row of up to 256 * Deep elements, which it holds.
template <int Deep> __device__ __forceinline__ void layernorm_warp(const rn_norm_args &a) {
    auto add = [](float p, float q) { return __fadd_rn(p, q); };
    const uint32_t lane = threadIdx.x % 32, eights = a.width / 8;
    uint64_t row = rn_thread() / 32, step = rn_threads() / 32;
    for (; row < a.rows; row += step) {
        rn_raw_eight raw[Deep] = {};
        float sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < Deep; k++)
            if (32 * k + lane < eights)
                raw[k] = rn_fetch_eight(RN_PLAIN_BF16, a.x, row * a.width + 8 * (32 * k + lane));
#pragma unroll
        for (int k = 0; k < Deep; k++) {
            rn_eight v = rn_widen_eight(RN_PLAIN_BF16, raw[k]); // zeros where there is nothing
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum = __fadd_rn(sum, v.v[j]);
        }
        float mean = __fdiv_rn(rn_team<32>::fold_lanes(sum, add), (float)a.width);
#pragma unroll
        for (int k = 0; k < Deep; k++)
            squares = add_squares(rn_widen_eight(RN_PLAIN_BF16, raw[k]),
                                  32 * k + lane < eights ? 8 : 0, mean, squares);
        float rstd = rn_norm_scale(rn_team<32>::fold_lanes(squares, add), a.width, a.eps);
#pragma unroll
        for (int k = 0; k < Deep; k++) {
            uint32_t at = 8 * (32 * k + lane);
            if (at >= a.width) continue;
            rn_eight v = rn_widen_eight(RN_PLAIN_BF16, raw[k]);
            rn_eight w = {{1, 1, 1, 1, 1, 1, 1, 1}}, b = {{0, 0, 0, 0, 0, 0, 0, 0}};
            if (a.weight) w = rn_load_eight(a.weight_type, a.weight, at);
            if (a.bias) b = rn_load_eight(a.bias_type, a.bias, at);
#pragma unroll
            for (int j = 0; j < 8; j++)
                v.v[j] = __fmaf_rn(__fmul_rn(__fsub_rn(v.v[j], mean), rstd), w.v[j], b.v[j]);
            rn_store_eight(RN_PLAIN_BF16, a.y, row * a.width + at, v);
        }
        if (lane == 0 && a.mean) a.mean[row] = mean;
        if (lane == 0 && a.rstd) a.rstd[row] = rstd;
    }
}

#define RN_LAYERNORM_WARP(DEEP_OF_ROW)                                                             \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_layernorm_warp_##DEEP_OF_ROW(const __grid_constant__ rn_norm_args a) {                  \
        rn_begin();                                                                                \
        layernorm_warp<DEEP_OF_ROW>(a);                                                            \
    }
RN_LAYERNORM_WARP(3)
RN_LAYERNORM_WARP(5)
RN_LAYERNORM_WARP(8)

// ---- softmax ------------------------------------------------------------------------------------

// e^x; quick for results of 16 bits.
template <bool Quick> __device__ __forceinline__ float power(float x) {
    return Quick ? __expf(x) : expf(x);
}

template <int Lanes, uint32_t Type>
__device__ __forceinline__ void softmax_rows(const rn_norm_args &a) {
    const uint32_t x_type = Type ? Type : a.x_type, y_type = Type ? Type : a.y_type;
    __shared__ float warps[RN_ROWS_THREADS / 32];
    each_row<Lanes, Type != 0>(
        a, x_type, [&](uint64_t number, bool given, bool fetched, rn_held<Lanes, DEEP> &held) {
            rn_row<Type != 0> x(x_type, a.x, number, a.width), y(y_type, a.y, number, a.width);
            float top = -INFINITY, sum = 0;
            each_eight(held, x, fetched, [&](const rn_eight &v, uint32_t eight) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (j < (int)x.count(eight)) top = fmaxf(top, v.v[j]);
            });
            top = rn_team<Lanes>::fold(top, warps, [](float p, float q) { return fmaxf(p, q); });
            each_eight(held, x, true, [&](const rn_eight &v, uint32_t eight) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (j < (int)x.count(eight))
                        sum = __fadd_rn(sum, power<Type != 0>(__fsub_rn(v.v[j], top)));
            });
            sum = rn_team<Lanes>::sum(sum, warps);
            float share = __frcp_rn(sum);
            if (!given) return;
            each_eight(held, x, true, [&](rn_eight v, uint32_t eight) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    v.v[j] = power<Type != 0>(__fsub_rn(v.v[j], top)) * share;
                y.store(eight, v);
            });
        });
}

RN_ROW_KERNELS(softmax, BLOCKS)

// ---- rope ---------------------------------------------------------------------------------------

// The angle is made and brought to half a turn in double; what is left is small enough for f32.
__device__ __forceinline__ void turn_by(const rn_rope_args &a, int32_t position, uint32_t pair,
                                        float *out_cosine, float *out_sine) {
    const double turn = 6.283185307179586, rest = 2.4492935982947064e-16; // 2 pi, in two parts
    double frequency = a.frequency[pair];
    if (a.divisors) frequency = __ddiv_rn(frequency, a.divisors[pair]);
    double angle = __dmul_rn(position, frequency), turns = rint(angle / turn);
    float sine, cosine, factor = (float)a.factor;
    sincosf((float)fma(-turns, rest, fma(-turns, turn, angle)), &sine, &cosine);
    *out_cosine = cosine * factor;
    *out_sine = (a.inverse ? -sine : sine) * factor;
}

// Pairs u[j], v[j] turned by the angles of pairs first, first + 1, ...
__device__ __forceinline__ void turn_eight(rn_eight *u, rn_eight *v, const float *cosines,
                                           const float *sines) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float p = u->v[j], q = v->v[j];
        u->v[j] = p * cosines[j] - q * sines[j];
        v->v[j] = q * cosines[j] + p * sines[j];
    }
}

// Four pairs of neighbours.
__device__ __forceinline__ void turn_neighbours(rn_eight *x, const float *cosines,
                                                const float *sines) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float p = x->v[2 * j], q = x->v[2 * j + 1];
        x->v[2 * j] = p * cosines[j] - q * sines[j];
        x->v[2 * j + 1] = q * cosines[j] + p * sines[j];
    }
}

// Whole eights of a token's heads. Angles are in shared memory.
__device__ __forceinline__ void turn_eights(const rn_rope_args &a, uint64_t token,
                                            const float *cosines, const float *sines) {
    uint32_t half = a.dims / 16, each = a.neighbours ? a.dims / 8 : half;
    uint64_t at = token * a.heads * a.head_dim;
    for (uint32_t i = threadIdx.x; i < a.heads * each; i += blockDim.x) {
        uint32_t head = i / each, eight = i - head * each;
        uint64_t first = at + head * a.head_dim + 8 * eight, second = first + 8 * half;
        rn_eight u = rn_load_eight(a.x_type, a.x, first);
        if (a.neighbours) {
            turn_neighbours(&u, cosines + 4 * eight, sines + 4 * eight);
        } else {
            rn_eight v = rn_load_eight(a.x_type, a.x, second);
            turn_eight(&u, &v, cosines + 8 * eight, sines + 8 * eight);
            rn_store_eight(a.y_type, a.y, second, v);
        }
        rn_store_eight(a.y_type, a.y, first, u);
    }
}

__device__ __forceinline__ void turn_pairs(const rn_rope_args &a, uint64_t token,
                                           const float *cosines, const float *sines) {
    uint32_t pairs = a.dims / 2;
    for (uint32_t i = threadIdx.x; i < a.heads * pairs; i += blockDim.x) {
        uint32_t head = i / pairs, pair = i - head * pairs;
        uint64_t first = (token * a.heads + head) * a.head_dim + (a.neighbours ? 2 * pair : pair);
        uint64_t second = first + (a.neighbours ? 1 : pairs);
        float u = rn_load_one(a.x_type, a.x, first), v = rn_load_one(a.x_type, a.x, second);
        float c = cosines[pair], s = sines[pair];
        rn_store_one(a.y_type, a.y, first, u * c - v * s);
        rn_store_one(a.y_type, a.y, second, v * c + u * s);
    }
}

enum { TOKENS = 4 }; // of a block at once: their angles are made side by side

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, BLOCKS)
    rn_rope_any(const __grid_constant__ rn_rope_args a) {
    __shared__ float cosines[TOKENS][RN_ROPE_PAIRS], sines[TOKENS][RN_ROPE_PAIRS];
    rn_begin();
    uint32_t pairs = a.dims / 2, rest = a.head_dim - a.dims;
    for (uint64_t first = (uint64_t)blockIdx.x * TOKENS; first < a.tokens;
         first += (uint64_t)gridDim.x * TOKENS) {
        uint32_t count = a.tokens - first < TOKENS ? (uint32_t)(a.tokens - first) : TOKENS;
        for (uint32_t i = threadIdx.x; i < count * pairs; i += blockDim.x) {
            uint32_t t = i / pairs, pair = i - t * pairs;
            turn_by(a, rn_rope_position(a, first + t, pair), pair, &cosines[t][pair],
                    &sines[t][pair]);
        }
        __syncthreads();
        for (uint32_t t = 0; t < count; t++) {
            uint64_t token = first + t;
            if (a.eights)
                turn_eights(a, token, cosines[t], sines[t]);
            else
                turn_pairs(a, token, cosines[t], sines[t]);
            for (uint32_t i = threadIdx.x; a.x != a.y && i < a.heads * rest; i += blockDim.x) {
                uint64_t at = (token * a.heads + i / rest) * a.head_dim + a.dims + i % rest;
                rn_store_one(a.y_type, a.y, at, rn_load_one(a.x_type, a.x, at));
            }
        }
        __syncthreads();
    }
}
