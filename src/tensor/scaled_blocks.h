// scaled_blocks.h — ration's own blocks, for quantised checkpoints that ggml has no exact block
// for: each has an f32 scale. No file holds them; io/weight_forms.h makes them of a checkpoint's
// tensors.
//
//     f8_b128  scale f32 | 128 e4m3                            number = e4m3 * scale
//     f8_b32   scale f32 | 32 e4m3                             the same
//     fp4_b64  scale f32 | ggml's nvfp4 of 64: 4 e4m3, 32      number = (e2m1 * e4m3) * scale
//     u4_b32   scale f32 | zero u8 | 16 bytes                  number = (q - zero) * scale
//
// In u4_b32 byte j holds element j in its low nibble and element j + 16 in its high one.
#ifndef RN_TENSOR_SCALED_BLOCKS_H
#define RN_TENSOR_SCALED_BLOCKS_H

#include "tensor/convert.h"

// Whole blocks; no alignment, any thread.
rn_widen_kernel rn_widen_f8_b128, rn_widen_f8_b32, rn_widen_fp4_b64, rn_widen_u4_b32;

#endif
