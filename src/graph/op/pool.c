// pool.c — the largest, the mean or the p-norm of windows over 1 to 3 spatial axes, dilated, with a
// last window that reaches beyond the image where it is asked for; of any plain dtype.
//
// Padding counts as nothing but in means that count it: then what lies within the padded image
// divides. max_pool and avg_pool are the ops of f32 and two axes: rn_op_pool_values makes
// those.
#include "graph/op/spatial.h"

#include <math.h>
#include <stdio.h>

static rn_spatial_windows windows_of(const rn_pool_attrs *a) {
    return (rn_spatial_windows){
        a->stride, a->dilation, a->pad_before, a->pad_after, {a->size[0], a->size[1], a->size[2]},
        a->ceil};
}

static rn_status shape(rn_shaping *s) {
    const rn_pool_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape;
    RN_TRY(rn_spatial_want_image(s, 0));
    if ((unsigned)attrs->function > RN_POOL_LP)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    if (attrs->function != RN_POOL_MAX) RN_TRY(rn_shape_want_float(s, 0));
    if (attrs->function == RN_POOL_LP && attrs->p == 0) return rn_shape_fail(s, "p is 0");
    rn_spatial_windows windows = windows_of(attrs);
    RN_TRY(rn_spatial_shape(s, x, &windows, x.dims[x.rank - 1], &s->out[0].shape));
    s->out[0].dtype = s->in[0].dtype;
    s->out[1] = s->out[0];
    s->out[1].dtype = RN_DTYPE_I64;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    const rn_pool_attrs *a = call->attrs;
    double elements = 1;
    for (uint32_t i = 0; i < RN_MAX_SPATIAL; i++)
        if (a->size[i]) elements *= a->size[i];
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->outputs[0]) * elements;
}

// Elements of the window at `at` that lie within the padded image.
static uint64_t count_padded(const rn_spatial *s, const rn_pool_attrs *a,
                             const uint64_t at[RN_MAX_SPATIAL]) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint64_t end = s->in[i] + s->before[i] + a->pad_after[i], begin = at[i] * s->stride[i];
        uint64_t fit = begin < end ? (end - 1 - begin) / s->dilation[i] + 1 : 0;
        count *= fit < s->size[i] ? fit : s->size[i];
    }
    return count;
}

// The pixel's number where the first spatial axis counts fastest.
static uint64_t turn(const rn_spatial *s, uint64_t pixel) {
    uint64_t index[RN_MAX_SPATIAL], turned = 0;
    for (uint32_t i = RN_MAX_SPATIAL; i-- > 0; pixel /= s->in[i])
        index[i] = pixel % s->in[i];
    for (uint32_t i = RN_MAX_SPATIAL; i-- > 0;)
        turned = turned * s->in[i] + index[i];
    return turned;
}

typedef struct window {
    const rn_call *call;
    rn_spatial s;
    uint64_t at[RN_MAX_SPATIAL];
    uint64_t n, index; // image, and which of all windows
} window;

// The largest element of a channel; the first of equals, a NaN before all.
static void take_largest(const window *w, uint64_t c) {
    const rn_pool_attrs *a = w->call->attrs;
    const rn_tensor *x = &w->call->inputs[0];
    int64_t *places = w->call->outputs[1].data; // or NULL
    bool real = rn_number_is_float(rn_number_of(x->dtype)), any = false;
    bool is_signed = rn_number_of(x->dtype) == RN_NUMBER_I64;
    uint64_t pixels = rn_spatial_pixels(w->s.in), pixel, best = 0;
    double largest = -INFINITY;
    int64_t whole = 0;
    for (uint64_t e = 0; e < rn_spatial_pixels(w->s.size); e++) {
        if (!rn_spatial_find(&w->s, w->at, e, &pixel)) continue;
        uint64_t from = (w->n * pixels + pixel) * w->s.in_channels + c;
        double value = real ? rn_real_at(x, from) : 0;
        int64_t element = real ? 0 : rn_integer_at(x, from);
        bool larger = real        ? value > largest || (isnan(value) && !isnan(largest))
                      : is_signed ? element > whole
                                  : (uint64_t)element > (uint64_t)whole;
        if (any && !larger) continue;
        any = true, best = pixel, largest = value, whole = element;
    }
    uint64_t to = w->index * w->s.in_channels + c;
    if (real)
        rn_real_put(&w->call->outputs[0], to, largest);
    else
        rn_numbers_store(&w->call->outputs[0], to, 1, &(rn_numbers){.i64 = {whole}});
    if (places)
        places[to] = (int64_t)((w->n * w->s.in_channels + c) * pixels +
                               (a->column_major ? turn(&w->s, best) : best));
}

static void take_mean(const window *w, uint64_t c) {
    const rn_pool_attrs *a = w->call->attrs;
    double sum = 0;
    uint64_t count = 0, pixel, pixels = rn_spatial_pixels(w->s.in);
    for (uint64_t e = 0; e < rn_spatial_pixels(w->s.size); e++) {
        if (!rn_spatial_find(&w->s, w->at, e, &pixel)) continue;
        double x = rn_real_at(&w->call->inputs[0], (w->n * pixels + pixel) * w->s.in_channels + c);
        sum += a->function == RN_POOL_LP ? pow(fabs(x), a->p) : x;
        count++;
    }
    if (a->count_pad) count = count_padded(&w->s, a, w->at);
    int64_t *places = w->call->outputs[1].data; // or NULL; means have none
    if (places) places[w->index * w->s.in_channels + c] = 0;
    double y = a->function == RN_POOL_LP ? pow(sum, 1.0 / a->p) : sum / (double)count;
    rn_real_put(&w->call->outputs[0], w->index * w->s.in_channels + c, y);
}

static void pool(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_pool_attrs *attrs = call->attrs;
    rn_spatial_windows windows = windows_of(attrs);
    window w = {.call = call, .index = index};
    w.s = rn_spatial_of(call->inputs[0].shape, call->outputs[0].shape, &windows);
    uint64_t places = rn_spatial_pixels(w.s.out);
    w.n = index / places;
    rn_spatial_place(&w.s, index % places, w.at);
    for (uint64_t c = 0; c < w.s.in_channels; c++)
        (attrs->function == RN_POOL_MAX ? take_largest : take_mean)(&w, c);
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t windows = rn_tensor_elements(&call->outputs[0]) / y.dims[y.rank - 1];
    rn_call_each(call, windows, pool, (void *)(uintptr_t)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"max", "average", "lp"};
    const rn_pool_attrs *a = attrs;
    char windows[96];
    rn_spatial_print(a->stride, a->dilation, windows, sizeof windows);
    snprintf(out, bytes, "%s, %u %u %u, %s", names[a->function], a->size[0], a->size[1], a->size[2],
             windows);
}

extern const rn_op_info rn_pool_op;
const rn_op_info rn_pool_op = {
    .name = "pool",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 2,
    .optional_outputs = 1u << 1,
    .attrs_bytes = sizeof(rn_pool_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_pool(rn_graph *g, rn_value x, rn_pool_attrs attrs) {
    return rn_graph_add(g, RN_OP_POOL, &x, 1, &attrs);
}

// Windows that avg_pool and max_pool have: two axes, not dilated, none beyond the padded image, and
// padding less than the window.
static bool is_simple(const rn_graph *g, rn_value x, const rn_pool_attrs *a) {
    if (rn_graph_dtype(g, x) != RN_DTYPE_F32 || rn_graph_value(g, x)->shape.rank != 4) return false;
    bool padded = false;
    for (uint32_t i = 0; i < 2; i++) {
        padded |= a->pad_before[i] || a->pad_after[i];
        if (a->dilation[i] > 1 || a->pad_before[i] >= a->size[i] || a->pad_after[i] >= a->size[i])
            return false;
    }
    bool mean = a->function == RN_POOL_AVERAGE && (a->count_pad || !padded);
    return !a->ceil && (mean || a->function == RN_POOL_MAX);
}

rn_value rn_op_pool_values(rn_graph *g, rn_value x, rn_pool_attrs a) {
    if (!is_simple(g, x, &a)) return rn_op_pool(g, x, a);
    rn_pool2d_attrs simple = {.size_h = a.size[0],
                              .size_w = a.size[1],
                              .stride_h = a.stride[0] ? a.stride[0] : 1,
                              .stride_w = a.stride[1] ? a.stride[1] : 1,
                              .pad_top = a.pad_before[0],
                              .pad_left = a.pad_before[1],
                              .pad_bottom = a.pad_after[0],
                              .pad_right = a.pad_after[1]};
    return a.function == RN_POOL_MAX ? rn_op_max_pool(g, x, simple) : rn_op_avg_pool(g, x, simple);
}
