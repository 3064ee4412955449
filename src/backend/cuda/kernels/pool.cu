// pool.cu — pools of images and their gradients: a thread an element.
#include "begin.cuh"
#include "half_io.cuh"
#include "pool_args.h"

namespace {

struct window {
    uint32_t first_h, end_h, first_w, end_w; // within the image
};

__device__ __forceinline__ window find_window(const rn_pool_args &a, uint32_t oh, uint32_t ow) {
    int h = (int)(oh * a.stride_h) - (int)a.pad_top, w = (int)(ow * a.stride_w) - (int)a.pad_left;
    return {(uint32_t)max(h, 0), (uint32_t)min(h + (int)a.size_h, (int)a.h), (uint32_t)max(w, 0),
            (uint32_t)min(w + (int)a.size_w, (int)a.w)};
}

__device__ __forceinline__ uint64_t pixel_at(const rn_pool_args &a, uint32_t n, uint32_t h,
                                             uint32_t w, uint32_t c) {
    return (((uint64_t)n * a.h + h) * a.w + w) * a.c + c;
}

// The first largest of a window; a NaN is larger than any number.
__device__ __forceinline__ uint64_t pick(const rn_pool_args &a, const window &v, uint32_t n,
                                         uint32_t c, float *out) {
    uint64_t best = pixel_at(a, n, v.first_h, v.first_w, c);
    float top = rn_load_one(a.x_type, a.x, best);
    for (uint32_t h = v.first_h; h < v.end_h; h++)
        for (uint32_t w = v.first_w; w < v.end_w; w++) {
            uint64_t at = pixel_at(a, n, h, w, c);
            float x = rn_load_one(a.x_type, a.x, at);
            if (x > top || (x != x && top == top)) top = x, best = at;
        }
    *out = top;
    return best;
}

struct place {
    uint32_t n, h, w, c;
};

__device__ __forceinline__ place find_place(uint64_t i, uint32_t h, uint32_t w, uint32_t c) {
    place p;
    p.c = (uint32_t)(i % c), i /= c;
    p.w = (uint32_t)(i % w), i /= w;
    p.h = (uint32_t)(i % h);
    p.n = (uint32_t)(i / h);
    return p;
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_pool(const __grid_constant__ rn_pool_args a) {
    rn_begin();
    uint64_t all = (uint64_t)a.n * a.out_h * a.out_w * a.c;
    for (uint64_t i = rn_thread(); i < all; i += rn_threads()) {
        place p = find_place(i, a.out_h, a.out_w, a.c);
        window v = find_window(a, p.h, p.w);
        float y = 0;
        if (a.is_max) {
            pick(a, v, p.n, p.c, &y);
        } else {
            double sum = 0;
            for (uint32_t h = v.first_h; h < v.end_h; h++)
                for (uint32_t w = v.first_w; w < v.end_w; w++)
                    sum += rn_load_one(a.x_type, a.x, pixel_at(a, p.n, h, w, p.c));
            y = (float)(sum / ((double)a.size_h * a.size_w));
        }
        rn_store_one(a.out_type, a.out, i, y);
    }
}

// Each pixel looks at the windows that hold it.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_pool_grad(const __grid_constant__ rn_pool_args a) {
    rn_begin();
    uint64_t all = (uint64_t)a.n * a.h * a.w * a.c;
    for (uint64_t i = rn_thread(); i < all; i += rn_threads()) {
        place p = find_place(i, a.h, a.w, a.c);
        uint32_t h = p.h + a.pad_top, w = p.w + a.pad_left;
        uint32_t first_h = h < a.size_h ? 0 : (h - a.size_h) / a.stride_h + 1;
        uint32_t first_w = w < a.size_w ? 0 : (w - a.size_w) / a.stride_w + 1;
        double sum = 0;
        for (uint32_t oh = first_h; oh <= h / a.stride_h && oh < a.out_h; oh++)
            for (uint32_t ow = first_w; ow <= w / a.stride_w && ow < a.out_w; ow++) {
                float top;
                if (a.is_max && pick(a, find_window(a, oh, ow), p.n, p.c, &top) != i) continue;
                uint64_t at = (((uint64_t)p.n * a.out_h + oh) * a.out_w + ow) * a.c + p.c;
                sum += rn_load_one(a.dy_type, a.dy, at);
            }
        if (!a.is_max) sum /= (double)a.size_h * a.size_w;
        rn_store_one(a.out_type, a.out, i, (float)sum);
    }
}
