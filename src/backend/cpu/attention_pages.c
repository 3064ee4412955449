// attention_pages.c — which level has kernels that read pages.
#include "backend/cpu/attention_pages.h"

#include "base/cpu.h"

const rn_page_kernels *rn_page_kernels_get(void) {
#if defined(__x86_64__)
    if (rn_cpu_level_get() == RN_CPU_AVX512) return &rn_page_avx512;
#endif
    return NULL;
}
