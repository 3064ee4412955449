// ggml_codebooks.h — ggml's codebook kinds (iq1, iq2, iq3) as small integers under scales.
//
// A superblock of 256 is eight parts of 32 numbers. A part is 32 bytes and two odd scales, the
// first for numbers 0 to 15, the other for 16 to 31:
//
//     number = unit * scale * byte          all three products are exact in f32
//
// where the unit is the superblock's f16 scale times a power of two. So these kinds have one
// meaning for dequantisation and for products with rounded activations. Any thread, no alignment.
#ifndef RN_TENSOR_GGML_CODEBOOKS_H
#define RN_TENSOR_GGML_CODEBOOKS_H

#include <ration/tensor.h>

#define RN_CODEBOOK_PARTS 8 // of a superblock

typedef struct rn_codebook_part {
    int8_t q[32];
    int32_t scales[2]; // 1, 3, ... 31
} rn_codebook_part;

bool rn_codebook_is(rn_dtype dtype);
uint16_t rn_codebook_scale(rn_dtype dtype, const uint8_t *superblock); // the f16
float rn_codebook_unit(rn_dtype dtype, const uint8_t *superblock);
void rn_codebook_read(rn_dtype dtype, const uint8_t *superblock, int part, rn_codebook_part *out);

// The tables, a byte a number: 8, 25 or 43; iq1: 0, 8 or 16; iq3_xxs: 4 to 62; iq3_s: 1 to 15.
extern const uint64_t rn_codebook_iq2_xxs[256], rn_codebook_iq2_xs[512], rn_codebook_iq2_s[1024],
    rn_codebook_iq1[2048];
extern const uint32_t rn_codebook_iq3_xxs[256], rn_codebook_iq3_s[512];

#endif
