// random.cu — random numbers by place (graph/philox.h): Philox4x32-10, the same words as the
// host's.
#include "begin.cuh"
#include "half_io.cuh"
#include "training_args.h"

// Block `counter` of the stream.
__device__ __forceinline__ uint4 philox_block(const rn_random_args &a, uint64_t counter) {
    uint32_t k0 = (uint32_t)a.seed, k1 = (uint32_t)(a.seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = a.stream, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53 * c0, q = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ __forceinline__ float unit(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

// make(words, x) for each eight: words of its eight elements, x where there is one.
template <class Make> __device__ __forceinline__ void fill(const rn_random_args &a, Make make) {
    bool aligned = rn_is_aligned(a.y, 16) && (!a.x || rn_is_aligned(a.x, 16));
    for (uint64_t i = rn_thread(); 8 * i < a.n; i += rn_threads()) {
        uint32_t count = a.n - 8 * i < 8 ? (uint32_t)(a.n - 8 * i) : 8;
        rn_eight x = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (a.x) x = rn_load_up_to_eight(a.x_type, a.x, 8 * i, count, aligned);
        uint4 low = philox_block(a, 2 * i), high = philox_block(a, 2 * i + 1);
        uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        make(words, &x);
        rn_store_up_to_eight(a.y_type, a.y, 8 * i, count, aligned, x);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_dropout(const __grid_constant__ rn_random_args a) {
    rn_begin();
    // A result of 16 bits does not show how the quotient was rounded to 32.
    bool exact = a.y_type == RN_PLAIN_F32;
    float inverse = __frcp_rn(a.high);
    fill(a, [&](const uint32_t *words, rn_eight *x) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float kept = exact ? __fdiv_rn(x->v[j], a.high) : x->v[j] * inverse;
            x->v[j] = unit(words[j]) < a.low ? 0.0f : kept;
        }
    });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_random_uniform(const __grid_constant__ rn_random_args a) {
    rn_begin();
    fill(a, [&](const uint32_t *words, rn_eight *x) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float y = __fadd_rn(a.low, __fmul_rn(__fsub_rn(a.high, a.low), unit(words[j])));
            x->v[j] = y >= a.high ? nextafterf(a.high, a.low) : y; // the sum was rounded up
        }
    });
}

// Box-Muller: words 2 j and 2 j + 1 make two elements.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_random_normal(const __grid_constant__ rn_random_args a) {
    rn_begin();
    fill(a, [&](const uint32_t *words, rn_eight *x) {
#pragma unroll 1
        for (int j = 0; j < 4; j++) {
            double p = __dmul_rn((double)(words[2 * j] >> 8) + 1, 0x1p-24), sine, cosine;
            double q = (double)(words[2 * j + 1] >> 8) * 0x1p-24;
            double radius = sqrt(-2 * log(p));
            sincos(2 * 3.141592653589793 * q, &sine, &cosine);
            x->v[2 * j] = __fadd_rn(a.low, __fmul_rn(a.high, (float)(radius * cosine)));
            x->v[2 * j + 1] = __fadd_rn(a.low, __fmul_rn(a.high, (float)(radius * sine)));
        }
    });
}
