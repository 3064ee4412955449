// winograd.h — 3x3 convolutions with a stride of 1, four by four outputs at a time: Winograd's
// F(4x4, 3x3), a quarter of the multiply-adds.
//
//     Y = A' [ (G w G') * (B' x B) ] A       x: 6x6 pixels, w: 3x3 taps, *: element by element
//
// The 36 elements are 36 products of matrices, (pixels' channels) by (channels, outputs): tiles of
// tile.h over transformed pixels and weights. Weights are transformed in each run, a strip of
// outputs at a time, so that they lie in memory as for any other convolution and nothing larger is
// held. The points are 0, +-sqrt(1/2), +-sqrt(2) and infinity: the error is about twice that of a
// chain of f32 sums (with 1 and 2 it is ten times).
//
// A sum of an element is one chain in the order of channels, and how an image is cut depends on its
// size alone: images beside it, bands of outputs and threads do not change a bit. A number that is
// not finite spoils all outputs of the pixels that are transformed with it.
#ifndef RN_BACKEND_CPU_WINOGRAD_H
#define RN_BACKEND_CPU_WINOGRAD_H

#include "backend/cpu/conv.h"

enum {
    RN_WINOGRAD_OUT = 4, // outputs of a square, in each direction
    RN_WINOGRAD_IN = 6,  // pixels that they see
    RN_WINOGRAD_ELEMENTS = RN_WINOGRAD_IN * RN_WINOGRAD_IN,
};

// Whether it is one of these and takes less time than multiplying windows; does not depend on how
// many images or outputs there are.
bool rn_winograd_fits(const rn_conv *conv);
// Multiply-adds that take as long, transforms included, over those of the windows; 1 where it does
// not fit.
double rn_winograd_share(const rn_conv *conv);

// As rn_conv_workspace and rn_conv_run, of a convolution that fits.
uint64_t rn_winograd_workspace(const rn_conv *conv, uint32_t threads);
void rn_winograd_run(const rn_conv *conv, const rn_call *call, void *workspace);

// ---- transforms, of each level ------------------------------------------------------------------

// Where the outputs of a square go; at the ends of an image some of them are not there.
typedef struct rn_winograd_square {
    float *y;
    size_t row, pixel; // floats from one to the next
    size_t rows, cols; // 1 .. 4
} rn_winograd_square;

// n is a multiple of 16. Elements are `plane` floats apart.
typedef struct rn_winograd_set {
    // x: 36 pixels of n channels
    void (*input)(const float *const *x, size_t n, float *to, size_t plane);
    // w: 9 taps of n numbers, `step` floats apart
    void (*weight)(const float *w, size_t step, size_t n, float *to, size_t plane);
    // bias (n) and clamp may be NULL
    void (*output)(const float *from, size_t plane, size_t n, const float *bias,
                   const rn_clamp_attrs *clamp, const rn_winograd_square *square);
} rn_winograd_set;

extern const rn_winograd_set rn_winograd_portable, rn_winograd_avx2, rn_winograd_avx512;

#endif
