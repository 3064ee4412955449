// conv_weights.h — panels of a convolution's plain weight, made in a kernel's workspace: weights
// that are being trained.
#ifndef RN_BACKEND_CPU_CONV_WEIGHTS_H
#define RN_BACKEND_CPU_CONV_WEIGHTS_H

#include "graph/op.h"

// Taps of a kernel that lie `step` apart, in the order in which they are wanted: tap (i, j) is
// (first_h + i * step_h, first_w + j * step_w).
typedef struct rn_conv_taps {
    size_t count_h, count_w;
    ptrdiff_t first_h, first_w, step_h, step_w;
} rn_conv_taps;

typedef struct rn_conv_weights {
    const rn_tensor *w; // (O, C, KH, KW): f32, f16 or bf16
    rn_conv_taps taps;
    bool
        by_channel; // panels of 16 input channels over (i, j, o), else of 16 outputs over (i, j, c)
    size_t first;   // of the channels or outputs in `panels`, a multiple of 16
    size_t count;
    float *panels; // (count / 16, taps * (O or C), 16)
} rn_conv_weights;

// Floats of the panels.
uint64_t rn_conv_weights_floats(const rn_conv_weights *weights);
// On the call's workers.
void rn_conv_weights_pack(const rn_conv_weights *weights, const rn_call *call);

#endif
