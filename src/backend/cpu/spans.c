// spans.c — the table for the level at hand.
#include "backend/cpu/spans.h"

#include "base/cpu.h"

const rn_spans *rn_spans_get(void) {
#if defined(__x86_64__)
    static const rn_spans *const tables[RN_CPU_LEVEL_COUNT] = {
        [RN_CPU_PORTABLE] = &rn_spans_portable,
        [RN_CPU_AVX2] = &rn_spans_avx2,
        [RN_CPU_AVX512] = &rn_spans_avx512,
    };
    return tables[rn_cpu_level_get()];
#else
    return &rn_spans_portable;
#endif
}
