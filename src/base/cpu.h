// cpu.h — which of ration's instruction levels this process uses.
//
// Kernels come in up to three versions that give identical bits; a table of them is picked by the
// level. The level is what the processor has, lowered by the environment variable
// RATION_CPU=portable|avx2|avx512 (a constraint for more than the processor has is cut down; any
// other text is ignored).
#ifndef RN_BASE_CPU_H
#define RN_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef enum rn_cpu_level {
    RN_CPU_PORTABLE, // plain C
    RN_CPU_AVX2,     // AVX2, FMA, F16C
    RN_CPU_AVX512,   // AVX-512 F, BW, DQ, VL on top of it
    RN_CPU_LEVEL_COUNT
} rn_cpu_level;

// Found once, then one relaxed load. Any thread.
rn_cpu_level rn_cpu_level_get(void);
// For tests: from now on this level, or the best below it that the processor has.
void rn_cpu_level_force(rn_cpu_level level);
// Whether the level in use is AVX-512 and the processor multiplies bytes, too (AVX-512 VNNI).
bool rn_cpu_has_vnni(void);
// Whether the level in use is AVX2 and the processor multiplies bytes (AVX-VNNI).
bool rn_cpu_has_avxvnni(void);
// Whether the level in use is AVX-512 and there is a matrix unit for bytes (AMX) that the system
// lets this process use: the first call asks for it.
bool rn_cpu_has_amx(void);
// Brings the bytes out of all caches, so that the next to read them waits for memory; nothing where
// the processor has no instruction for it.
void rn_cpu_flush(const void *bytes, size_t count);
// "portable", "avx2", "avx512"; never NULL.
const char *rn_cpu_level_name(rn_cpu_level level);

#endif
