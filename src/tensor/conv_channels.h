// conv_channels.h — a convolution's 16-bit weight (O, C, KH, KW) as GPUs read it: (O, KH, KW, C),
// the channels innermost, as images have them. As many bytes as in the file.
#ifndef RN_TENSOR_CONV_CHANNELS_H
#define RN_TENSOR_CONV_CHANNELS_H

#include "tensor/layout.h"

// Takes the file's bytes piece by piece. Holds no memory.
typedef struct rn_channels_packer {
    uint64_t channels, taps; // taps: KH * KW
    uint8_t *target;
    uint64_t done, total; // bytes taken, bytes of the tensor
} rn_channels_packer;

#endif
