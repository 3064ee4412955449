// Convolutions and their gradients: chains in a fixed order over windows that are never laid out.
#include "support.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/winograd.h"
#include "base/cpu.h"
#include "graph/op/grads.h"
#include "tensor/conv_panels.h"
#include "tensor/small_float.h"

#include <math.h>

enum { GUARD = 64 };

typedef struct conv {
    uint64_t images, height, width, channels, outputs, kernel_h, kernel_w, rows, cols;
    rn_conv2d_attrs attrs;
    rn_dtype dtype; // of w
    bool biased, panels;
    uint32_t threads;
    float *x, *w, *bias, *y; // w as numbers
    uint16_t *halves;        // w as f16 or bf16
} conv;

static uint32_t seed = 7;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static float *make(uint64_t floats) {
    float *data = malloc(floats ? floats * sizeof *data : 1);
    for (uint64_t i = 0; i < floats; i++)
        data[i] = (float)draw(257) / 128 - 1; // f16 and bf16 hold them exactly
    return data;
}

static uint64_t x_count(const conv *c) {
    return c->images * c->height * c->width * c->channels;
}
static uint64_t w_count(const conv *c) {
    return c->outputs * c->channels * c->kernel_h * c->kernel_w;
}
static uint64_t y_count(const conv *c) {
    return c->images * c->rows * c->cols * c->outputs;
}

static conv draw_conv(uint32_t n) {
    conv c = {.images = 1 + draw(3),
              .height = 1 + draw(20),
              .width = 1 + draw(33),
              .channels = 1 + draw(n % 4 ? 8 : 40),
              .outputs = 1 + draw(n % 3 ? 20 : 70),
              .kernel_h = 1 + draw(5),
              .kernel_w = 1 + draw(5),
              .attrs = {1 + draw(3), 1 + draw(3), draw(3), draw(3), draw(3), draw(3)},
              .dtype = RN_DTYPE_F32,
              .biased = n % 2,
              .threads = 1 + draw(3)};
    if (c.kernel_h > c.height) c.kernel_h = c.height;
    if (c.kernel_w > c.width) c.kernel_w = c.width;
    return c;
}

static void fill(conv *c) {
    const rn_conv2d_attrs *a = &c->attrs;
    c->rows = (c->height + a->pad_top + a->pad_bottom - c->kernel_h) / a->stride_h + 1;
    c->cols = (c->width + a->pad_left + a->pad_right - c->kernel_w) / a->stride_w + 1;
    c->x = make(x_count(c));
    c->w = make(w_count(c));
    c->bias = c->biased ? make(c->outputs) : NULL;
    c->y = make(y_count(c));
    c->halves = malloc(w_count(c) * sizeof *c->halves);
    if (c->dtype != RN_DTYPE_F32)
        assert_ok(rn_dtype_from_f32(c->dtype, c->w, c->halves, w_count(c)));
}

static void drop(conv *c) {
    free(c->x), free(c->w), free(c->bias), free(c->y), free(c->halves);
}

// ---- running ------------------------------------------------------------------------------------

static rn_tensor x_tensor(const conv *c) {
    return (rn_tensor){c->x, RN_DTYPE_F32, RN_LAYOUT_PLAIN,
                       RN_SHAPE(c->images, c->height, c->width, c->channels)};
}
static rn_tensor y_tensor(const conv *c) {
    return (rn_tensor){c->y, RN_DTYPE_F32, RN_LAYOUT_PLAIN,
                       RN_SHAPE(c->images, c->rows, c->cols, c->outputs)};
}
static rn_tensor w_tensor(const conv *c) {
    void *data = c->dtype == RN_DTYPE_F32 ? (void *)c->w : (void *)c->halves;
    return (rn_tensor){data, c->dtype, RN_LAYOUT_PLAIN,
                       RN_SHAPE(c->outputs, c->channels, c->kernel_h, c->kernel_w)};
}

// In pieces of odd lengths.
static void *to_panels(const conv *c) {
    uint64_t bytes = 0, at = 0, total = w_count(c) * (c->dtype == RN_DTYPE_F32 ? 4 : 2);
    const uint8_t *from = w_tensor(c).data;
    rn_conv_packer packer;
    assert_true(rn_layout_bytes(RN_LAYOUT_CONV_PANELS, c->dtype, c->outputs,
                                w_count(c) / c->outputs, &bytes));
    void *panels = aligned_alloc(64, bytes);
    memset(panels, 0xFF, bytes);
    assert_ok(rn_conv_packer_begin(&packer, c->dtype, c->outputs, c->channels,
                                   c->kernel_h * c->kernel_w, panels));
    while (at < total) {
        uint64_t some = 1 + draw(500);
        if (some > total - at) some = total - at;
        assert_false(rn_conv_packer_is_done(&packer));
        assert_ok(rn_conv_packer_take(&packer, at, from + at, some));
        at += some;
    }
    assert_true(rn_conv_packer_is_done(&packer));
    return panels;
}

// Bytes that are exactly as many as asked for, with guards behind them.
static void run_call(rn_call *call, uint32_t threads) {
    const rn_kernel *kernel = &rn_cpu_kernels[call->op];
    rn_workers *workers = NULL;
    if (threads > 1) assert_ok(rn_workers_create(threads, &rn_system_allocator, &workers));
    call->workers = workers;
    call->threads = threads;
    call->workspace_bytes = kernel->workspace(call);
    uint8_t *workspace = aligned_alloc(64, (call->workspace_bytes + GUARD + 63) / 64 * 64);
    memset(workspace, 0xFF, call->workspace_bytes + GUARD); // NaN, if it is read
    call->workspace = workspace;
    assert_ok(kernel->run(call));
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(0xFF, workspace[call->workspace_bytes + (uint64_t)i]);
    free(workspace);
    rn_workers_destroy(workers);
}

static void run_forward(const conv *c) {
    rn_tensor in[] = {x_tensor(c),
                      w_tensor(c),
                      {c->bias, c->biased ? RN_DTYPE_F32 : RN_DTYPE_NONE, RN_LAYOUT_PLAIN,
                       RN_SHAPE(c->outputs)}},
              out = y_tensor(c);
    if (c->panels) {
        in[1].layout = RN_LAYOUT_CONV_PANELS;
        in[1].data = to_panels(c);
    }
    rn_call call = {.op = RN_OP_CONV2D,
                    .attrs = &c->attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1};
    run_call(&call, c->threads);
    if (c->panels) free(in[1].data);
}

// y holds dy; fills x.
static void run_grad_input(const conv *c) {
    rn_tensor in[] = {w_tensor(c), y_tensor(c)}, out = x_tensor(c);
    rn_conv2d_grad_input_attrs attrs = {c->attrs, out.shape};
    rn_call call = {.op = RN_OP_CONV2D_GRAD_INPUT,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 2,
                    .output_count = 1};
    run_call(&call, c->threads);
}

// y holds dy; fills w.
static void run_grad_weight(const conv *c) {
    rn_tensor in[] = {x_tensor(c), y_tensor(c)}, out = w_tensor(c);
    rn_conv2d_grad_weight_attrs attrs = {c->attrs, c->kernel_h, c->kernel_w};
    rn_call call = {.op = RN_OP_CONV2D_GRAD_WEIGHT,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 2,
                    .output_count = 1};
    run_call(&call, c->threads);
}

// ---- what it must be ----------------------------------------------------------------------------

// A sum as the level makes it, and in double.
typedef struct sums {
    bool fused;
    float chain;
    double exact, size;
    uint64_t terms;
} sums;

static void add(sums *s, float a, float b) {
    s->chain = s->fused ? fmaf(a, b, s->chain) : s->chain + a * b;
    s->exact += (double)a * b;
    s->size += fabs((double)a * b);
    s->terms++;
}

static sums begin_sums(void) {
    return (sums){.fused = rn_cpu_level_get() != RN_CPU_PORTABLE};
}

static void check_sums(const sums *s, float got) {
    assert_memory_equal(&s->chain, &got, sizeof got);
    assert_true(fabs(got - s->exact) <= 0x1p-24 * (double)(2 * s->terms + 1) * s->size);
}

static float x_at(const conv *c, uint64_t n, uint64_t h, uint64_t w, uint64_t channel) {
    if (h >= c->height || w >= c->width) return 0; // above and before the image they wrap
    return c->x[((n * c->height + h) * c->width + w) * c->channels + channel];
}

static float y_at(const conv *c, uint64_t n, uint64_t row, uint64_t col, uint64_t output) {
    return c->y[((n * c->rows + row) * c->cols + col) * c->outputs + output];
}

static uint64_t w_place(const conv *c, uint64_t o, uint64_t channel, uint64_t kh, uint64_t kw) {
    return ((o * c->channels + channel) * c->kernel_h + kh) * c->kernel_w + kw;
}

static void check_output(const conv *c, uint64_t n, uint64_t row, uint64_t col, uint64_t o) {
    sums s = begin_sums();
    for (uint64_t kh = 0; kh < c->kernel_h; kh++)
        for (uint64_t kw = 0; kw < c->kernel_w; kw++)
            for (uint64_t i = 0; i < c->channels; i++)
                add(&s,
                    x_at(c, n, row * c->attrs.stride_h + kh - c->attrs.pad_top,
                         col * c->attrs.stride_w + kw - c->attrs.pad_left, i),
                    c->w[w_place(c, o, i, kh, kw)]);
    if (c->biased) {
        s.chain += c->bias[o];
        s.exact += c->bias[o];
        s.size += fabs((double)c->bias[o]);
    }
    check_sums(&s, y_at(c, n, row, col, o));
}

static void check_forward(const conv *c) {
    for (uint64_t i = 0; i < y_count(c); i++)
        check_output(c, i / c->outputs / c->cols / c->rows, i / c->outputs / c->cols % c->rows,
                     i / c->outputs % c->cols, i % c->outputs);
}

// Taps backwards, so outputs forwards; then over the output channels.
static void check_dx(const conv *c, uint64_t n, uint64_t h, uint64_t w, uint64_t i) {
    const rn_conv2d_attrs *a = &c->attrs;
    sums s = begin_sums();
    for (uint64_t kh = c->kernel_h; kh-- > 0;)
        for (uint64_t kw = c->kernel_w; kw-- > 0;) {
            uint64_t up = h + a->pad_top, left = w + a->pad_left;
            if (up < kh || left < kw || (up - kh) % a->stride_h || (left - kw) % a->stride_w)
                continue;
            uint64_t row = (up - kh) / a->stride_h, col = (left - kw) / a->stride_w;
            if (row >= c->rows || col >= c->cols) continue;
            for (uint64_t o = 0; o < c->outputs; o++)
                add(&s, y_at(c, n, row, col, o), c->w[w_place(c, o, i, kh, kw)]);
        }
    check_sums(&s, x_at(c, n, h, w, i));
}

static void check_grad_input(const conv *c) {
    for (uint64_t i = 0; i < x_count(c); i++)
        check_dx(c, i / c->channels / c->width / c->height, i / c->channels / c->width % c->height,
                 i / c->channels % c->width, i % c->channels);
}

static void check_dw(const conv *c, uint64_t o, uint64_t i, uint64_t kh, uint64_t kw) {
    sums s = begin_sums();
    for (uint64_t n = 0; n < c->images; n++)
        for (uint64_t row = 0; row < c->rows; row++)
            for (uint64_t col = 0; col < c->cols; col++)
                add(&s, y_at(c, n, row, col, o),
                    x_at(c, n, row * c->attrs.stride_h + kh - c->attrs.pad_top,
                         col * c->attrs.stride_w + kw - c->attrs.pad_left, i));
    check_sums(&s, c->w[w_place(c, o, i, kh, kw)]);
}

static void check_grad_weight(const conv *c) {
    uint64_t taps = c->kernel_h * c->kernel_w;
    for (uint64_t i = 0; i < w_count(c); i++)
        check_dw(c, i / taps / c->channels, i / taps % c->channels, i % taps / c->kernel_w,
                 i % c->kernel_w);
}

static void each_level(void (*test)(void)) {
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        if ((int)rn_cpu_level_get() == level) test();
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

// ---- tests --------------------------------------------------------------------------------------

static void try_forward(void) {
    const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_BF16};
    for (uint32_t n = 0; n < 30; n++) {
        conv c = draw_conv(n);
        c.panels = n % 3 == 1;
        c.dtype = dtypes[n / 3 % 3];
        fill(&c);
        run_forward(&c);
        check_forward(&c);
        drop(&c);
    }
}

static void forward_is_a_chain_over_the_window(void **state) {
    (void)state;
    each_level(try_forward);
}

// Models' shapes, smaller: halves of tiles, deep windows, pixels 4 KiB apart, 1x1 with a stride.
static void try_models(void) {
    const conv shapes[] = {
        {1, 7, 7, 40, 32, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_F32, true, true, .threads = 2},
        {2, 5, 7, 300, 17, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_F32, false, true, .threads = 2},
        {1,
         2,
         16,
         1024,
         3,
         1,
         1,
         0,
         0,
         {1, 1, 0, 0, 0, 0},
         RN_DTYPE_F32,
         false,
         true,
         .threads = 1},
        {1, 4, 17, 512, 3, 2, 3, 0, 0, {2, 2, 0, 1, 0, 1}, RN_DTYPE_F32, true, false, .threads = 2},
        {1, 30, 30, 3, 20, 7, 7, 0, 0, {2, 2, 3, 3, 3, 3}, RN_DTYPE_F32, false, true, .threads = 2},
        {2, 9, 14, 70, 40, 1, 1, 0, 0, {2, 2, 0, 0, 0, 0}, RN_DTYPE_F32, false, true, .threads = 3},
        {1, 3, 3, 4, 4, 3, 3, 0, 0, {1, 1, 5, 6, 4, 7}, RN_DTYPE_F32, true, true, .threads = 1},
    };
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        conv c = shapes[i];
        fill(&c);
        run_forward(&c);
        check_forward(&c);
        drop(&c);
    }
}

static void shapes_of_models_are_chains_too(void **state) {
    (void)state;
    each_level(try_models);
}

// More outputs than are packed at once.
static void try_many_outputs(void) {
    conv c = {1,    4,     3,           600, 200, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_F32,
              true, false, .threads = 2};
    fill(&c);
    run_forward(&c);
    check_forward(&c);
    drop(&c);
}

static void weights_are_packed_part_by_part(void **state) {
    (void)state;
    each_level(try_many_outputs);
}

static void try_grad_input(void) {
    for (uint32_t n = 0; n < 30; n++) {
        conv c = draw_conv(n);
        c.dtype = n % 5 ? RN_DTYPE_F32 : RN_DTYPE_BF16;
        fill(&c);
        run_grad_input(&c);
        check_grad_input(&c);
        drop(&c);
    }
}

static void the_gradient_of_x_is_a_chain_over_outputs(void **state) {
    (void)state;
    each_level(try_grad_input);
}

static void try_grad_weight(void) {
    for (uint32_t n = 0; n < 30; n++) {
        conv c = draw_conv(n);
        fill(&c);
        run_grad_weight(&c);
        check_grad_weight(&c);
        drop(&c);
    }
}

static void the_gradient_of_w_is_a_chain_over_pixels(void **state) {
    (void)state;
    each_level(try_grad_weight);
}

static void compare_threads(void) {
    for (uint32_t n = 0; n < 12; n++) {
        conv c = draw_conv(n);
        c.threads = 1;
        fill(&c);
        float *y = c.y;
        run_forward(&c);
        c.y = make(y_count(&c));
        c.threads = 2;
        run_forward(&c);
        assert_memory_equal(y, c.y, y_count(&c) * sizeof *y);
        free(y);
        float *x = c.x, *w = c.w;
        c.x = make(x_count(&c));
        run_grad_input(&c);
        float *dx = c.x;
        c.x = make(x_count(&c));
        c.threads = 1;
        run_grad_input(&c);
        assert_memory_equal(dx, c.x, x_count(&c) * sizeof *dx);
        c.w = make(w_count(&c));
        run_grad_weight(&c);
        float *dw = c.w;
        c.w = make(w_count(&c));
        c.threads = 2;
        run_grad_weight(&c);
        assert_memory_equal(dw, c.w, w_count(&c) * sizeof *dw);
        free(x), free(w), free(dx), free(dw);
        drop(&c);
    }
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    each_level(compare_threads);
}

static void compare_images(void) {
    conv c = {5,    9,    12,          10, 20, 3, 3, 0, 0, {1, 2, 1, 1, 1, 1}, RN_DTYPE_F32,
              true, true, .threads = 2};
    fill(&c);
    run_forward(&c);
    for (uint64_t n = 0; n < c.images; n++) {
        conv one = c;
        one.images = 1;
        one.x = c.x + n * c.height * c.width * c.channels;
        one.y = make(y_count(&one));
        run_forward(&one);
        assert_memory_equal(c.y + n * y_count(&one), one.y, y_count(&one) * sizeof *one.y);
        free(one.y);
    }
    drop(&c);
}

static void an_image_has_the_same_bits_alone(void **state) {
    (void)state;
    each_level(compare_images);
}

// ---- Winograd's squares -------------------------------------------------------------------------

// Sizes that are no multiples of 4, padding of all kinds, a strip that is not full, images that
// share a block.
static const conv winograd_shapes[] = {
    {3, 14, 13, 48, 48, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_F32, true, true, .threads = 2},
    {1, 12, 18, 64, 16, 3, 3, 0, 0, {1, 1, 0, 2, 3, 0}, RN_DTYPE_F32, false, true, .threads = 3},
    {1, 16, 16, 512, 32, 3, 3, 0, 0, {1, 1, 0, 0, 0, 0}, RN_DTYPE_F32, true, true, .threads = 2},
    {2, 13, 12, 80, 32, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_F16, true, true, .threads = 2},
    {1, 12, 12, 48, 16, 3, 3, 0, 0, {1, 1, 1, 1, 1, 1}, RN_DTYPE_BF16, false, true, .threads = 2},
};

static bool fits_winograd(const conv *c) {
    rn_conv whole = {.images = c->images,
                     .height = c->height,
                     .width = c->width,
                     .channels = c->channels,
                     .taps_h = c->kernel_h,
                     .taps_w = c->kernel_w,
                     .stride_h = c->attrs.stride_h,
                     .stride_w = c->attrs.stride_w,
                     .rows = c->rows,
                     .cols = c->cols,
                     .outputs = c->outputs};
    return rn_winograd_fits(&whole);
}

// Of the size of a chain's error. Outputs at the border see as much of it as the others.
static void check_near(const conv *c, uint64_t n, uint64_t row, uint64_t col, uint64_t o) {
    double exact = c->biased ? c->bias[o] : 0, size = 1;
    for (uint64_t i = 0; i < 9 * c->channels; i++) {
        uint64_t kh = i % 9 / 3, kw = i % 3;
        double term =
            (double)x_at(c, n, row + kh - c->attrs.pad_top, col + kw - c->attrs.pad_left, i / 9) *
            c->w[w_place(c, o, i / 9, kh, kw)];
        exact += term;
        size += fabs((double)c->w[w_place(c, o, i / 9, kh, kw)]); // pixels are within 1
    }
    assert_true(fabs(y_at(c, n, row, col, o) - exact) <= 2e-7 * size);
}

static void check_squares(const conv *c) {
    for (uint64_t i = 0; i < y_count(c); i += 1 + draw(5))
        check_near(c, i / c->outputs / c->cols / c->rows, i / c->outputs / c->cols % c->rows,
                   i / c->outputs % c->cols, i % c->outputs);
}

// The same bits from another layout, another number of threads, and for each image alone.
static void check_same(const conv *c) {
    conv other = *c;
    other.panels = false;
    other.threads = 1;
    other.images = 1;
    for (uint64_t n = 0; n < c->images; n++) {
        other.x = c->x + n * c->height * c->width * c->channels;
        other.y = make(y_count(&other));
        run_forward(&other);
        assert_memory_equal(c->y + n * y_count(&other), other.y, y_count(&other) * sizeof(float));
        free(other.y);
    }
}

static void try_squares(void) {
    for (uint32_t i = 0; i < sizeof winograd_shapes / sizeof *winograd_shapes; i++) {
        conv c = winograd_shapes[i];
        fill(&c);
        assert_true(fits_winograd(&c));
        run_forward(&c);
        check_squares(&c);
        check_same(&c);
        drop(&c);
    }
}

static void large_images_go_by_squares_near_the_exact_sums(void **state) {
    (void)state;
    each_level(try_squares);
}

// dx of a convolution is one itself, of dy: with taps backwards it must be near, too.
static void try_grad_squares(void) {
    conv c = {.images = 1,
              .height = 13,
              .width = 14,
              .channels = 16,
              .outputs = 64,
              .kernel_h = 3,
              .kernel_w = 3,
              .attrs = {1, 1, 1, 1, 1, 1},
              .dtype = RN_DTYPE_F32,
              .threads = 2};
    fill(&c);
    run_grad_input(&c);
    for (uint64_t at = 0; at < x_count(&c); at += 3) {
        uint64_t h = at / c.channels / c.width, w = at / c.channels % c.width, i = at % c.channels;
        double exact = 0, size = 0;
        for (uint64_t k = 0; k < 9 * c.outputs; k++) {
            uint64_t row = h + 1 - k % 9 / 3, col = w + 1 - k % 3; // before the image they wrap
            double tap = c.w[w_place(&c, k / 9, i, k % 9 / 3, k % 3)];
            if (row < c.rows && col < c.cols) exact += y_at(&c, 0, row, col, k / 9) * tap;
            size += fabs(tap);
        }
        assert_true(fabs(c.x[at] - exact) <= 2e-7 * size);
    }
    drop(&c);
}

static void so_does_the_gradient_of_x(void **state) {
    (void)state;
    each_level(try_grad_squares);
}

static void clamped_squares_are_the_same_within_two_ends(void **state) {
    (void)state;
    conv c = winograd_shapes[0];
    fill(&c);
    run_forward(&c);
    rn_conv_clamp_attrs attrs = {
        .conv = {.groups = 1, .stride = {1, 1}, .pad_before = {1, 1}, .pad_after = {1, 1}},
        .clamp = {-0.5f, 3}};
    float *within = make(y_count(&c));
    rn_tensor in[] = {x_tensor(&c),
                      w_tensor(&c),
                      {c.bias, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(c.outputs)}},
              out = y_tensor(&c);
    out.data = within;
    rn_call call = {.op = RN_OP_CONV_CLAMP,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1};
    run_call(&call, 2);
    for (uint64_t i = 0; i < y_count(&c); i++)
        assert_true(within[i] == fmaxf(-0.5f, fminf(3, c.y[i])));
    free(within);
    drop(&c);
}

static uint64_t workspace_of(rn_op op, const conv *c) {
    rn_tensor x = x_tensor(c), y = y_tensor(c), w = w_tensor(c), none = {.dtype = RN_DTYPE_NONE};
    rn_conv2d_grad_input_attrs dx = {c->attrs, x.shape};
    rn_conv2d_grad_weight_attrs dw = {c->attrs, c->kernel_h, c->kernel_w};
    rn_tensor in[] = {x, w, none, w, y, x, y}, out[] = {y, x, w};
    int kind = op == RN_OP_CONV2D ? 0 : op == RN_OP_CONV2D_GRAD_INPUT ? 1 : 2;
    const void *attrs[] = {&c->attrs, &dx, &dw};
    rn_call call = {.op = op,
                    .attrs = attrs[kind],
                    .inputs = in + (const int[]){0, 3, 5}[kind],
                    .outputs = out + kind,
                    .input_count = kind ? 2 : 3,
                    .output_count = 1,
                    .threads = c->threads};
    return rn_cpu_kernels[op].workspace(&call);
}

// A plan is made for the most images; a run may bring fewer.
static void fewer_images_never_need_more_workspace(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 300; n++) {
        conv most = draw_conv(n);
        most.images = 1 + draw(40);
        if (n % 5 == 0) most.channels = 64, most.outputs = 32; // by squares, where it is 3x3
        if (n % 5 == 0) most.kernel_h = most.kernel_w = 3, most.attrs.stride_h = 1;
        if (n % 10 == 0) most.attrs.stride_w = 1;
        most.rows = 1 + draw(20), most.cols = 1 + draw(20);
        conv fewer = most;
        fewer.images = 1 + draw((uint32_t)most.images);
        for (rn_op op = RN_OP_CONV2D; op <= RN_OP_CONV2D_GRAD_WEIGHT; op++)
            assert_true(workspace_of(op, &fewer) <= workspace_of(op, &most));
    }
}

static void pieces_out_of_order_are_refused(void **state) {
    (void)state;
    float w[8] = {0}, panels[16 * 4];
    rn_conv_packer packer;
    assert_ok(rn_conv_packer_begin(&packer, RN_DTYPE_F32, 2, 4, 1, panels));
    assert_fails(RN_INVALID, rn_conv_packer_take(&packer, 4, w, 4));
    assert_fails(RN_INVALID, rn_conv_packer_take(&packer, 0, w, sizeof w + 1));
    assert_ok(rn_conv_packer_take(&packer, 0, w, sizeof w));
    assert_true(rn_conv_packer_is_done(&packer));
    assert_fails(RN_INVALID,
                 rn_conv_packer_begin(&packer, RN_DTYPE_F32, UINT64_MAX / 2, 1 << 20, 9, panels));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_a_chain_over_the_window),
        cmocka_unit_test(shapes_of_models_are_chains_too),
        cmocka_unit_test(weights_are_packed_part_by_part),
        cmocka_unit_test(the_gradient_of_x_is_a_chain_over_outputs),
        cmocka_unit_test(the_gradient_of_w_is_a_chain_over_pixels),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(an_image_has_the_same_bits_alone),
        cmocka_unit_test(large_images_go_by_squares_near_the_exact_sums),
        cmocka_unit_test(so_does_the_gradient_of_x),
        cmocka_unit_test(clamped_squares_are_the_same_within_two_ends),
        cmocka_unit_test(fewer_images_never_need_more_workspace),
        cmocka_unit_test(pieces_out_of_order_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
