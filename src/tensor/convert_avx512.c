// convert_avx512.c — convert.h's kernels in AVX-512. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#include "tensor/vector_avx512.h"

#define CONVERT_TABLE rn_convert_avx512
#include "tensor/convert_vector.h"

#endif
