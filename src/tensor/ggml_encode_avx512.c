// ggml_encode_avx512.c — ggml_encode.h for AVX-512. Called only when base/cpu.h says so.
#if defined(__x86_64__)

#define ENCODERS rn_ggml_encoders_avx512
#include "tensor/ggml_encoders.h"

#endif
