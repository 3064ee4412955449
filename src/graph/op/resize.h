// resize.h — which elements of an axis an element of the resized axis is made of, and how much of
// each: for the reference loop, and for those who write it in another way.
#ifndef RN_GRAPH_OP_RESIZE_H
#define RN_GRAPH_OP_RESIZE_H

#include <ration/graph.h>

#include <math.h>

static inline double rn_resize_scale(const rn_resize_attrs *a, uint64_t length) {
    return a->scale > 0 ? a->scale : (double)a->length / (double)length;
}

// Where element i of the result lies in x, whose axis is `length` long.
static inline double rn_resize_place(const rn_resize_attrs *a, uint64_t i, uint64_t length) {
    double scale = rn_resize_scale(a, length), wide = scale * (double)length,
           last = (double)length - 1;
    double at = (double)i;
    switch (a->coordinates) {
    case RN_RESIZE_ALIGN_CORNERS:
        return wide == 1 ? 0 : at * last / (wide - 1);
    case RN_RESIZE_ASYMMETRIC:
        return at / scale;
    case RN_RESIZE_CROP:
        at = wide == 1 ? (a->to - a->from) * last / 2 : at * (a->to - a->from) * last / (wide - 1);
        return at + a->from * last;
    case RN_RESIZE_PYTORCH_HALF_PIXEL:
        if (wide == 1) return -0.5;
        break;
    case RN_RESIZE_HALF_PIXEL_SYMMETRIC:
        return (double)length / 2 * (1 - (double)a->length / wide) + (at + 0.5) / scale - 0.5;
    case RN_RESIZE_HALF_PIXEL:
        break;
    }
    return (at + 0.5) / scale - 0.5;
}

static inline double rn_resize_round(rn_resize_nearest nearest, double place) {
    switch (nearest) {
    case RN_RESIZE_ROUND_PREFER_FLOOR:
        return ceil(place - 0.5);
    case RN_RESIZE_ROUND_PREFER_CEIL:
        return floor(place + 0.5);
    case RN_RESIZE_FLOOR:
        return floor(place);
    case RN_RESIZE_CEIL:
        break;
    }
    return ceil(place);
}

// The weight of a tap at distance d.
static inline double rn_resize_weigh(const rn_resize_attrs *a, double d) {
    double k = a->cubic;
    d = fabs(d);
    if (a->function == RN_RESIZE_LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((k + 2) * d - (k + 3)) * d * d + 1;
    return d < 2 ? ((k * d - 5 * k) * d + 8 * k) * d - 4 * k : 0;
}

// The taps of one element: `count` from `first` on, which may lie outside of x.
typedef struct rn_resize_taps {
    const rn_resize_attrs *attrs;
    uint64_t length;
    double place, shrink, total;
    int64_t first, count;
    bool filled; // CROP, outside of x
} rn_resize_taps;

static inline double rn_resize_weight(const rn_resize_taps *t, int64_t tap) {
    int64_t at = t->first + tap;
    if (t->attrs->function == RN_RESIZE_NEAREST) return 1;
    if (t->attrs->exclude_outside && (at < 0 || at >= (int64_t)t->length)) return 0;
    return rn_resize_weigh(t->attrs, ((double)at - t->place) * t->shrink);
}

static inline rn_resize_taps rn_resize_taps_of(const rn_resize_attrs *a, uint64_t i,
                                               uint64_t length) {
    rn_resize_taps t = {
        .attrs = a, .length = length, .place = rn_resize_place(a, i, length), .shrink = 1};
    double scale = rn_resize_scale(a, length), reach = a->function == RN_RESIZE_CUBIC ? 2 : 1;
    t.filled = a->coordinates == RN_RESIZE_CROP && !(t.place >= 0 && t.place <= (double)length - 1);
    if (a->antialias && scale < 1) t.shrink = scale;
    t.count = 1;
    if (a->function == RN_RESIZE_NEAREST) {
        t.first = (int64_t)rn_resize_round(a->nearest, t.place);
    } else {
        t.first = (int64_t)ceil(t.place - reach / t.shrink);
        t.count = (int64_t)floor(t.place + reach / t.shrink) - t.first + 1;
    }
    for (int64_t tap = 0; tap < t.count; tap++)
        t.total += rn_resize_weight(&t, tap);
    return t;
}

static inline uint64_t rn_resize_tap(const rn_resize_taps *t, int64_t tap) {
    int64_t at = t->first + tap, last = (int64_t)t->length - 1;
    return (uint64_t)(at < 0 ? 0 : at > last ? last : at);
}

#endif
