// quant_avx2.c — quant_kernels.h in AVX2. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#include "tensor/vector_avx2.h"

#define QUANT_TABLE rn_quant_avx2
#include "tensor/quant_vector.h"

#endif
