// ggml_encode_avx2.c — ggml_encode.h for AVX2. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#define ENCODERS rn_ggml_encoders_avx2
#include "tensor/ggml_encoders.h"

#endif
