// recurrent.cu — short convolutions and the gated delta rule. Rows of a sequence follow one
// another: a thread takes its channel, or its column of a head's state, through all rows in their
// order, with the reference's sums, one rounding an operation. So neither the rows beside a row nor
// the grid change a bit.
//
// A row of sequence -1 gives zeros. Rows are not looked at on the host: one whose sequence or
// position cannot be gives NaN and changes no state.
#include "activation.cuh"
#include "begin.cuh"
#include "recurrent_args.h"

__device__ __forceinline__ bool is_known(const rn_rows_args &run, int32_t sequence,
                                         int32_t position) {
    return sequence >= 0 && (uint64_t)sequence < run.sequences && position >= 0;
}

__device__ __forceinline__ float unknown_value(int32_t sequence) {
    return sequence == -1 ? 0.0f : __uint_as_float(0x7fc00000);
}

extern "C" __global__ void rn_short_conv(const __grid_constant__ rn_short_conv_args a) {
    rn_begin();
    for (uint64_t c = rn_thread(); c < a.channels; c += rn_threads()) {
        const float *weight = a.weight + c * (a.slots + 1);
        for (uint64_t row = 0; row < a.run.rows; row++) {
            int32_t sequence = a.run.sequence[row], position = a.run.position[row];
            float last = a.x[row * a.channels + c], sum = 0;
            if (!is_known(a.run, sequence, position)) {
                a.y[row * a.channels + c] = unknown_value(sequence);
                continue;
            }
            float *state = a.state + (uint64_t)sequence * a.slots * a.channels + c;
            uint32_t slot = (uint32_t)position % a.slots;
            for (uint32_t t = 0; t < a.slots; t++) {
                uint32_t at = slot + t < a.slots ? slot + t : slot + t - a.slots;
                if ((uint64_t)position + t >= a.slots)
                    sum = __fadd_rn(sum, __fmul_rn(weight[t], state[at * a.channels]));
            }
            a.y[row * a.channels + c] = __fadd_rn(sum, __fmul_rn(weight[a.slots], last));
            state[slot * a.channels] = last;
        }
    }
}

// The sum of squares of x (n), in double, for the whole block.
__device__ double sum_squares(const float *x, uint32_t n, double *warps /* shared, (4) */) {
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += RN_DELTA_THREADS)
        sum = __dadd_rn(sum, __dmul_rn(x[i], x[i]));
    for (int step = 16; step > 0; step /= 2)
        sum = __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = __dadd_rn(__dadd_rn(warps[0], warps[1]), __dadd_rn(warps[2], warps[3]));
    __syncthreads();
    return sum;
}

// Query and key of the block's head, scaled, in shared memory.
__device__ void load_keys(const rn_delta_args &a, uint64_t row, uint32_t head, float *q, float *k) {
    __shared__ double warps[RN_DELTA_THREADS / 32];
    uint32_t key = a.keys_in_turn ? head % a.key_heads : head / (a.heads / a.key_heads);
    const float *from = a.qkv + row * a.width + (uint64_t)key * a.key_dim;
    const float *from_k = from + (uint64_t)a.key_heads * a.key_dim;
    double qq = sum_squares(from, a.key_dim, warps), kk = sum_squares(from_k, a.key_dim, warps);
    float q_scale = (float)__drcp_rn(__dsqrt_rn(__dadd_rn(qq, a.eps)));
    float k_scale = (float)__drcp_rn(__dsqrt_rn(__dadd_rn(kk, a.eps)));
    q_scale = __fdiv_rn(q_scale, a.q_scale);
    for (uint32_t i = threadIdx.x; i < a.key_dim; i += RN_DELTA_THREADS) {
        q[i] = __fmul_rn(from[i], q_scale);
        k[i] = __fmul_rn(from_k[i], k_scale);
    }
    __syncthreads();
}

// One column of a state, one row further; returns what it says.
__device__ float follow(const rn_delta_args &a, float *column, const float *q, const float *k,
                        float v, float decay, float beta, bool begins) {
    float known = 0, y = 0;
    for (uint32_t i = 0; !begins && i < a.key_dim; i++)
        known = __fadd_rn(known,
                          __fmul_rn(__fmul_rn(decay, column[(uint64_t)i * a.value_dim]), k[i]));
    float change = __fmul_rn(beta, __fsub_rn(v, known));
    for (uint32_t i = 0; i < a.key_dim; i++) {
        float *at = &column[(uint64_t)i * a.value_dim];
        float kept = begins ? 0.0f : __fmul_rn(decay, *at);
        float s = __fadd_rn(kept, __fmul_rn(k[i], change));
        *at = s;
        y = __fadd_rn(y, __fmul_rn(s, q[i]));
    }
    return y;
}

extern "C" __global__ void __launch_bounds__(RN_DELTA_THREADS)
    rn_delta_rule(const __grid_constant__ rn_delta_args a) {
    extern __shared__ float shared[];
    float *q = shared, *k = shared + a.key_dim;
    uint32_t head = blockIdx.x, column = blockIdx.y * RN_DELTA_THREADS + threadIdx.x;
    rn_begin();
    float rate = a.rate[head], bias = a.bias[head];
    for (uint64_t row = 0; row < a.run.rows; row++) {
        int32_t sequence = a.run.sequence[row], position = a.run.position[row];
        uint64_t at = row * a.heads + head;
        if (!is_known(a.run, sequence, position)) {
            if (column < a.value_dim) a.y[at * a.value_dim + column] = unknown_value(sequence);
            continue;
        }
        load_keys(a, row, head, q, k);
        float x = __fadd_rn(a.a[at], bias), softplus = x > 20.0f ? x : log1pf(expf(x));
        float decay = expf(__fmul_rn(rate, softplus)), beta = rn_sigmoid(a.b[at]);
        uint64_t state = (uint64_t)sequence * a.heads + head;
        uint64_t values = row * a.width + 2ull * a.key_heads * a.key_dim + (uint64_t)head * a.value_dim;
        if (column < a.value_dim)
            a.y[at * a.value_dim + column] =
                follow(a, a.state + state * a.key_dim * a.value_dim + column, q, k,
                       a.qkv[values + column], decay, beta, position == 0);
        __syncthreads();
    }
}
