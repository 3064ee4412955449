// convert_avx2.c — convert.h's kernels in AVX2. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#include "tensor/vector_avx2.h"

#define CONVERT_TABLE rn_convert_avx2
#include "tensor/convert_vector.h"

#endif
