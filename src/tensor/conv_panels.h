// conv_panels.h — a convolution's f32, f16 or bf16 weight (O, C, KH, KW) as the CPU's kernels
// read it.
//
//     panel 0: outputs 0..15   panel 1: outputs 16..31   ...   last: filled up with zeros
//     a panel: for each kh, kw, c (c fastest) 16 numbers, one an output
//
// So that a product runs linearly through memory, a vector lane is an output channel, and k is in
// the order in which an (N, H, W, C) image holds a window.
#ifndef RN_TENSOR_CONV_PANELS_H
#define RN_TENSOR_CONV_PANELS_H

#include "tensor/layout.h"

// False where it overflows, or the dtype has none.
bool rn_conv_panels_bytes(rn_dtype dtype, uint64_t outputs, uint64_t channels, uint64_t taps,
                          uint64_t *out_bytes);

// Takes the file's bytes, in the order (O, C, KH, KW), piece by piece. Holds no memory.
typedef struct rn_conv_packer {
    uint64_t outputs, channels, taps; // taps: KH * KW
    uint64_t width;                   // bytes of a number
    uint8_t *target;                  // (rn_conv_panels_bytes), 64-byte aligned
    uint64_t done, total;             // bytes taken, bytes of the file's tensor
} rn_conv_packer;

// RN_INVALID where rn_conv_panels_bytes is false. Clears the lanes that have no output.
RN_MUST_USE rn_status rn_conv_packer_begin(rn_conv_packer *packer, rn_dtype dtype, uint64_t outputs,
                                           uint64_t channels, uint64_t taps, void *target);
// Pieces come in order and may have any length and alignment; RN_INVALID for any other.
RN_MUST_USE rn_status rn_conv_packer_take(rn_conv_packer *packer, uint64_t offset, const void *data,
                                          uint64_t bytes);
bool rn_conv_packer_is_done(const rn_conv_packer *packer);

#endif
