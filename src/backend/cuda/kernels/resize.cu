// resize.cu — one axis to another length; a thread has an element of the result. Places and weights
// are in double and in the order of graph/op/resize.h, whose functions these are.
#include "begin.cuh"
#include "half_io.cuh"
#include "resize_args.h"

namespace {

enum { NEAREST, LINEAR, CUBIC };                                                     // functions
enum { HALF_PIXEL, SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, CROP }; // coordinates
enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };                                     // nearest

__device__ double find_place(const rn_resize_args &a, double at) {
    double length = (double)a.length, wide = a.scale * length, last = length - 1;
    switch (a.coordinates) {
    case ALIGN_CORNERS:
        return wide == 1 ? 0 : at * last / (wide - 1);
    case ASYMMETRIC:
        return at / a.scale;
    case CROP:
        at = wide == 1 ? (a.to - a.from) * last / 2 : at * (a.to - a.from) * last / (wide - 1);
        return at + a.from * last;
    case PYTORCH_HALF_PIXEL:
        if (wide == 1) return -0.5;
        break;
    case SYMMETRIC:
        return length / 2 * (1 - (double)a.made / wide) + (at + 0.5) / a.scale - 0.5;
    }
    return (at + 0.5) / a.scale - 0.5;
}

__device__ double round_place(const rn_resize_args &a, double place) {
    if (a.nearest == PREFER_FLOOR) return ceil(place - 0.5);
    if (a.nearest == PREFER_CEIL) return floor(place + 0.5);
    return a.nearest == FLOOR ? floor(place) : ceil(place);
}

__device__ double weigh(const rn_resize_args &a, int64_t at, double place, double shrink) {
    double k = a.cubic, d = fabs(((double)at - place) * shrink);
    if (a.exclude_outside && (at < 0 || at >= (int64_t)a.length)) return 0;
    if (a.function == LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((k + 2) * d - (k + 3)) * d * d + 1;
    return d < 2 ? ((k * d - 5 * k) * d + 8 * k) * d - 4 * k : 0;
}

// Beyond its ends x goes on with its first and last element.
__device__ uint64_t hold_within(const rn_resize_args &a, int64_t at) {
    int64_t last = (int64_t)a.length - 1;
    return (uint64_t)(at < 0 ? 0 : at > last ? last : at);
}

// Element `from` + place * inner of x for each of the taps.
__device__ double mix(const rn_resize_args &a, double place, uint64_t from) {
    double reach = a.function == CUBIC ? 2 : 1, shrink = a.antialias && a.scale < 1 ? a.scale : 1;
    int64_t first = (int64_t)ceil(place - reach / shrink);
    int64_t last = (int64_t)floor(place + reach / shrink);
    double total = 0, sum = 0;
    for (int64_t at = first; at <= last; at++)
        total += weigh(a, at, place, shrink);
    for (int64_t at = first; at <= last; at++)
        sum += weigh(a, at, place, shrink) / total *
               (double)rn_load_one(a.type, a.x, from + hold_within(a, at) * a.inner);
    return sum;
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_resize(const __grid_constant__ rn_resize_args a) {
    rn_begin();
    uint64_t count = a.outer * a.made * a.inner;
    for (uint64_t i = rn_thread(); i < count; i += rn_threads()) {
        uint64_t inner = i % a.inner, index = i / a.inner % a.made, outer = i / a.inner / a.made;
        uint64_t from = outer * a.length * a.inner + inner;
        double place = find_place(a, (double)index);
        bool filled = a.coordinates == CROP && !(place >= 0 && place <= (double)a.length - 1);
        if (a.width > 0) { // nearest, uncropped
            uint64_t at = from + hold_within(a, (int64_t)round_place(a, place)) * a.inner;
            if (a.width == 8) ((uint64_t *)a.y)[i] = ((const uint64_t *)a.x)[at];
            if (a.width == 4) ((uint32_t *)a.y)[i] = ((const uint32_t *)a.x)[at];
            if (a.width == 2) ((uint16_t *)a.y)[i] = ((const uint16_t *)a.x)[at];
            if (a.width == 1) ((uint8_t *)a.y)[i] = ((const uint8_t *)a.x)[at];
            continue;
        }
        double value = a.fill;
        if (!filled && a.function == NEAREST)
            value = rn_load_one(a.type, a.x,
                                from + hold_within(a, (int64_t)round_place(a, place)) * a.inner);
        else if (!filled)
            value = mix(a, place, from);
        rn_store_one(a.type, a.y, i, (float)value);
    }
}
