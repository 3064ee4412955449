// quant_avx512.c — quant_kernels.h in AVX-512. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#include "tensor/vector_avx512.h"

#define QUANT_TABLE rn_quant_avx512
#include "tensor/quant_vector.h"

#endif
