// stablehlo_sample.c — images at places that a grid names: along each spatial axis a place has one,
// two or four pixels with weights, and every combination of them is gathered, weighed and added.
#include "exchange/stablehlo_ops.h"

enum { TAPS = 4 };

typedef struct axis_taps {
    int count;
    rn_hlo_value pixel[TAPS], weight[TAPS]; // i64, f32 or f64 (N, S'...)
    rn_hlo_value inside[TAPS];              // i1: something is there; none: always
} axis_taps;

static rn_hlo_value with(rn_hlo *h, const char *name, rn_hlo_value x, double number) {
    return rn_hlo_binary(h, name, x, rn_hlo_like(h, x, number));
}

// Mirrored at both ends until it is between them.
static rn_hlo_value reflect(rn_hlo *h, rn_hlo_value x, double low, double high) {
    double range = high - low;
    if (!(range > 0)) return rn_hlo_like(h, x, low);
    rn_hlo_value below = rn_hlo_compare(h, "LT", x, rn_hlo_like(h, x, low));
    rn_hlo_value above = rn_hlo_compare(h, "GT", x, rn_hlo_like(h, x, high));
    rn_hlo_value beyond =
        rn_hlo_select(h, below, with(h, "subtract", rn_hlo_unary(h, "negate", x), -low),
                      with(h, "subtract", x, high));
    rn_hlo_value times = rn_hlo_unary(h, "floor", with(h, "divide", beyond, range));
    rn_hlo_value rest = rn_hlo_binary(h, "subtract", beyond, with(h, "multiply", times, range));
    rn_hlo_value odd =
        rn_hlo_compare(h, "NE", with(h, "remainder", times, 2), rn_hlo_like(h, times, 0));
    // From the end that it went beyond, or from the other.
    rn_hlo_value from_low = rn_hlo_binary(h, "xor", below, odd);
    rn_hlo_value turned = rn_hlo_select(h, from_low, with(h, "add", rest, low),
                                        with(h, "add", rn_hlo_unary(h, "negate", rest), high));
    return rn_hlo_select(h, rn_hlo_binary(h, "or", below, above), turned, x);
}

static void find_pixel(rn_hlo *h, const rn_grid_sample_attrs *a, rn_hlo_value at, double low,
                       double high, uint64_t length, axis_taps *t, int tap) {
    double last = (double)length - 1;
    if (a->padding == RN_GRID_ZEROS)
        t->inside[tap] = rn_hlo_binary(h, "and", rn_hlo_compare(h, "GE", at, rn_hlo_like(h, at, 0)),
                                       rn_hlo_compare(h, "LE", at, rn_hlo_like(h, at, last)));
    if (a->padding == RN_GRID_REFLECTION) at = reflect(h, at, low, high);
    at = with(h, "minimum", with(h, "maximum", at, 0), last);
    t->pixel[tap] = rn_hlo_truncate(h, at, RN_DTYPE_I64);
}

// The weight of a tap at distance d of a cubic with -0.75.
static rn_hlo_value cubic(rn_hlo *h, rn_hlo_value d) {
    const double k = -0.75;
    d = rn_hlo_unary(h, "abs", d);
    rn_hlo_value near = with(h, "add", with(h, "multiply", d, k + 2), -(k + 3));
    near = rn_hlo_binary(h, "multiply", rn_hlo_binary(h, "multiply", near, d), d);
    near = with(h, "add", near, 1);
    rn_hlo_value far = with(h, "add", with(h, "multiply", d, k), -5 * k);
    far = with(h, "add", rn_hlo_binary(h, "multiply", far, d), 8 * k);
    far = with(h, "add", rn_hlo_binary(h, "multiply", far, d), -4 * k);
    rn_hlo_value is_far = rn_hlo_compare(h, "LT", d, rn_hlo_like(h, d, 2));
    far = rn_hlo_select(h, is_far, far, rn_hlo_like(h, d, 0));
    return rn_hlo_select(h, rn_hlo_compare(h, "LE", d, rn_hlo_like(h, d, 1)), near, far);
}

// Of places (N, S'...), -1 to 1, along an axis of `length`.
static axis_taps taps_of(rn_hlo *h, const rn_grid_sample_attrs *a, rn_hlo_value place,
                         uint64_t length) {
    axis_taps t = {.count = 1};
    double n = (double)length, low = a->align_corners ? 0 : -0.5;
    double high = a->align_corners ? n - 1 : n - 0.5;
    rn_hlo_value at = with(h, "add", place, 1);
    if (a->align_corners)
        at = with(h, "multiply", at, (n - 1) / 2);
    else
        at = with(h, "divide", with(h, "add", with(h, "multiply", at, n), -1), 2);
    if (a->function == RN_RESIZE_NEAREST) at = rn_hlo_unary(h, "round_nearest_even", at);
    if (a->padding == RN_GRID_BORDER) {
        rn_hlo_value within = with(h, "minimum", with(h, "maximum", at, 0), n - 1);
        rn_hlo_value out =
            rn_hlo_binary(h, "or", rn_hlo_compare(h, "LT", at, rn_hlo_like(h, at, low)),
                          rn_hlo_compare(h, "GT", at, rn_hlo_like(h, at, high)));
        at = rn_hlo_select(h, out, within, at);
    }
    if (a->padding == RN_GRID_REFLECTION) at = reflect(h, at, low, high);
    if (a->function == RN_RESIZE_NEAREST) {
        find_pixel(h, a, at, low, high, length, &t, 0);
        t.weight[0] = rn_hlo_like(h, at, 1);
        return t;
    }
    bool smooth = a->function == RN_RESIZE_CUBIC;
    rn_hlo_value first = with(h, "subtract", rn_hlo_unary(h, "floor", at), smooth);
    t.count = smooth ? 4 : 2;
    for (int i = 0; i < t.count; i++) {
        rn_hlo_value tap = with(h, "add", first, i);
        rn_hlo_value away = rn_hlo_binary(h, "subtract", at, tap);
        find_pixel(h, a, tap, low, high, length, &t, i);
        t.weight[i] = smooth ? cubic(h, away)
                             : rn_hlo_binary(h, "subtract", rn_hlo_like(h, away, 1),
                                             rn_hlo_unary(h, "abs", away));
    }
    return t;
}

// One combination of taps: the pixels of all places, weighed: (N, S'..., C).
static rn_hlo_value gather_taps(rn_hlo *h, rn_hlo_value x, const axis_taps *taps,
                                const int *which) {
    rn_shape places = taps[0].weight[0].shape, shape = places;
    uint32_t rank = x.shape.rank - 2;
    rn_hlo_value index[1 + RN_MAX_SPATIAL], weight = {0}, inside = {0};
    uint64_t axes[RN_MAX_RANK];
    index[0] = rn_hlo_iota(h, RN_DTYPE_I64, places, 0);
    for (uint32_t i = 0; i < rank; i++) {
        const axis_taps *t = &taps[i];
        rn_hlo_value w = t->weight[which[i]], here = t->inside[which[i]];
        index[1 + i] = t->pixel[which[i]];
        weight = weight.id ? rn_hlo_binary(h, "multiply", weight, w) : w;
        inside = inside.id && here.id ? rn_hlo_binary(h, "and", inside, here) : here;
    }
    if (inside.id) weight = rn_hlo_select(h, inside, weight, rn_hlo_like(h, weight, 0));
    shape.dims[shape.rank++] = x.shape.dims[x.shape.rank - 1];
    for (uint32_t i = 0; i < places.rank; i++)
        axes[i] = i;
    rn_hlo_value y = rn_hlo_take_places(h, x, index, 1 + rank);
    return rn_hlo_binary(h, "multiply", y, rn_hlo_broadcast(h, weight, shape, axes));
}

RN_HLO_EMITTER(grid_sample) {
    const rn_grid_sample_attrs *a = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    rn_hlo_value grid = rn_hlo_convert(h, in[1], x.dtype), sum = {0};
    uint32_t rank = x.shape.rank - 2, last = grid.shape.rank - 1;
    rn_shape places = grid.shape;
    axis_taps taps[RN_MAX_SPATIAL];
    int total = 1;
    places.rank--;
    for (uint32_t i = 0; i < rank; i++) {
        rn_hlo_value place = rn_hlo_slice(h, grid, last, rank - 1 - i, 1);
        taps[i] = taps_of(h, a, rn_hlo_reshape(h, place, places), x.shape.dims[1 + i]);
        total *= taps[i].count;
    }
    for (int e = 0; e < total && h->status == RN_OK; e++) {
        int left = e, which[RN_MAX_SPATIAL];
        for (uint32_t i = rank; i-- > 0; left /= taps[i].count)
            which[i] = left % taps[i].count;
        rn_hlo_value one = gather_taps(h, x, taps, which);
        sum = sum.id ? rn_hlo_binary(h, "add", sum, one) : one;
    }
    out[0] = rn_hlo_result(h, call, sum);
}
