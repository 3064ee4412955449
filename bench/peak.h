// peak.h — the most f32 multiply-adds a second that a number of threads can do, by a loop that
// touches no memory; and a clock. For the benchmarks of products.
#ifndef RN_BENCH_PEAK_H
#define RN_BENCH_PEAK_H

#include "base/workers.h"

#include <time.h>

static inline double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
#include <immintrin.h>

enum { PEAK_ROUNDS = 100000, PEAK_SUMS = 24 };

// 24 independent sums: more than latency times throughput of any processor.
__attribute__((target("avx512f"))) static void peak_avx512(void *arg, size_t index) {
    __m512 sums[PEAK_SUMS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int i = 0; i < PEAK_SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < PEAK_ROUNDS; n++)
#pragma GCC unroll 24
        for (int i = 0; i < PEAK_SUMS; i++)
            sums[i] = _mm512_fmadd_ps(sums[i], x, y);
    for (int i = 0; i < PEAK_SUMS; i++)
        ((volatile float *)arg)[index] = _mm512_cvtss_f32(sums[i]);
}

// 12 sums and two constants in 16 registers.
__attribute__((target("avx2,fma"))) static void peak_avx2(void *arg, size_t index) {
    __m256 sums[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int i = 0; i < 12; i++)
        sums[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < PEAK_ROUNDS * 2; n++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sums[i] = _mm256_fmadd_ps(sums[i], x, y);
    for (int i = 0; i < 12; i++)
        ((volatile float *)arg)[index] = _mm256_cvtss_f32(sums[i]);
}

// GFLOP/s, a multiply-add counting two; the best of many rounds.
static inline double peak_gflops(rn_workers *workers, double seconds) {
    static float sink[1024];
    const int wide = __builtin_cpu_supports("avx512f");
    size_t threads = rn_workers_count(workers);
    double begin = wall_seconds(), best = 1e9;
    do {
        double start = wall_seconds();
        rn_workers_run(workers, threads, wide ? peak_avx512 : peak_avx2, sink);
        double passed = wall_seconds() - start;
        best = passed < best ? passed : best;
    } while (wall_seconds() - begin < seconds);
    return (double)threads * PEAK_ROUNDS * PEAK_SUMS * (wide ? 32 : 16) / best * 1e-9;
}
#else
static inline double peak_gflops(rn_workers *workers, double seconds) {
    (void)workers, (void)seconds;
    return 1; // unknown
}
#endif

#endif
