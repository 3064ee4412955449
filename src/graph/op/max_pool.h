// max_pool.h — which pixel of a window is its maximum: one rule for max_pool and its gradient.
#ifndef RN_GRAPH_OP_MAX_POOL_H
#define RN_GRAPH_OP_MAX_POOL_H

#include "graph/window.h"

#include <math.h>

// The index, within image (H, W, C), of the first largest element of a window; a NaN is larger than
// any number. Padding is never chosen.
static inline uint64_t rn_max_pool_pick(const float *image, rn_shape x, rn_window_range high,
                                        rn_window_range wide, uint64_t channel) {
    uint64_t best = (high.first * x.dims[2] + wide.first) * x.dims[3] + channel;
    for (uint64_t h = high.first; h < high.end; h++)
        for (uint64_t w = wide.first; w < wide.end; w++) {
            uint64_t at = (h * x.dims[2] + w) * x.dims[3] + channel;
            if (image[at] > image[best] || (isnan(image[at]) && !isnan(image[best]))) best = at;
        }
    return best;
}

#endif
