// labels: gpu
// cuda_conv_test.c — convolutions and their gradients on the first GPU against the reference of the
// same inputs: of 16 bits on matrix units, of f32 and odd shapes plainly; the same bits twice.
//
// Weights have numbers that 16 bits hold, whatever their type is. Both sides sum in f32 or better,
// so f32 results are off by 1e-5 of the largest, and halves by one rounding more.
#include "support.h"

#include "backend/cuda/rows.h"
#include "graph/halves.h"
#include "graph/op/grads.h"
#include "offload_run.h"

#include <ration/cuda.h>

#include <math.h>

static rn_device *gpu; // NULL: none
static test_offload offload;
static rn_error_info reason;

static int open_gpu(void **state) {
    (void)state;
    rn_status s = rn_cuda_device_create(0, 1, &gpu);
    if (s == RN_OK) return test_offload_open(gpu, 128 << 20, &offload) != RN_OK;
    gpu = NULL;
    reason = *rn_last_error();
    return s != RN_UNSUPPORTED && s != RN_NOT_FOUND;
}

static int close_gpu(void **state) {
    (void)state;
    if (!gpu) return 0;
    test_offload_close(&offload);
    rn_device_destroy(gpu);
    return 0;
}

// ---- tensors ------------------------------------------------------------------------------------

static rn_tensor make(rn_dtype dtype, rn_shape shape, uint32_t seed, float size) {
    rn_tensor t = {NULL, dtype, RN_LAYOUT_PLAIN, shape};
    uint64_t count = rn_tensor_elements(&t);
    float *numbers = malloc(count * sizeof *numbers + 64);
    t.data = calloc(1, rn_tensor_bytes(&t) + 64);
    assert_true(numbers && t.data);
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = ((float)(seed >> 25) / 64 - 1) * size; // seven bits
    }
    assert_ok(rn_dtype_from_f32(dtype, numbers, t.data, count));
    free(numbers);
    return t;
}

static void compare(const rn_tensor *is, const rn_tensor *must, const char *what) {
    uint64_t n = rn_tensor_elements(must);
    float *a = malloc(2 * n * sizeof *a), *b = a + n, largest = 0;
    assert_non_null(a);
    assert_ok(rn_dtype_to_f32(is->dtype, is->data, a, n));
    assert_ok(rn_dtype_to_f32(must->dtype, must->data, b, n));
    float step = must->dtype == RN_DTYPE_BF16  ? 0x1p-7f
                 : must->dtype == RN_DTYPE_F16 ? 0x1p-10f
                                               : 0;
    for (uint64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(b[i]));
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= step * fabsf(b[i]) + 1e-5f * largest))
            fail_msg("%s: element %llu of %s is %g, not %g (the largest is %g)", what,
                     (unsigned long long)i, rn_shape_format(must->shape).text, (double)a[i],
                     (double)b[i], (double)largest);
    free(a);
}

// On the GPU twice, and by reference.
static void check(rn_call *call, const char *what) {
    const rn_kernel *kernel = &rn_cuda_kernels[call->op];
    uint64_t here = rn_reference_workspace(call), there = kernel->workspace(call);
    rn_tensor y = call->outputs[0], first = y;
    void *workspace = calloc(1, (here > there ? here : there) + 64);
    first.data = calloc(1, rn_tensor_bytes(&y) + 64);
    y.data = calloc(1, rn_tensor_bytes(&y) + 64);
    assert_true(workspace && first.data && y.data);
    call->workspace = workspace;
    call->workspace_bytes = here;
    assert_ok(rn_reference_run(call));
    rn_tensor must = call->outputs[0];
    call->outputs = &y;
    call->workspace_bytes = there;
    for (int turn = 0; turn < 2; turn++) {
        if (test_offload_run(&offload, kernel, call) != RN_OK)
            fail_msg("%s: %s", what, rn_last_error()->message);
        if (turn) assert_memory_equal(first.data, y.data, rn_tensor_bytes(&y));
        memcpy(first.data, y.data, rn_tensor_bytes(&y));
    }
    compare(&y, &must, what);
    free(workspace);
    free(first.data);
    free(y.data);
}

// The same bits from weights that were packed beforehand, where the device would have them so.
static void check_packed(rn_call *call, const char *what) {
    const rn_kernel *kernel = &rn_cuda_kernels[call->op];
    rn_tensor in[3] = {call->inputs[0], call->inputs[1], call->inputs[2]};
    rn_tensor y[2] = {call->outputs[0], call->outputs[0]};
    rn_packer_room room;
    rn_call packed = *call;
    if (!rn_cuda_conv_wants_channels(call, 1)) return;
    in[1].layout = RN_LAYOUT_CONV_CHANNELS;
    in[1].data = calloc(1, rn_tensor_bytes(&call->inputs[1]) + 64);
    assert_ok(in[1].layout->begin(&room, in[1].dtype, in[1].shape.dims, 4, NULL, in[1].data));
    assert_ok(in[1].layout->take(&room, RN_COMPONENT_DATA, 0, call->inputs[1].data,
                                 rn_tensor_bytes(&call->inputs[1])));
    packed.inputs = in;
    for (int i = 0; i < 2; i++) {
        rn_call *one = i ? &packed : call;
        y[i].data = calloc(1, rn_tensor_bytes(&y[i]) + 64);
        one->outputs = &y[i];
        one->workspace_bytes = kernel->workspace(one);
        one->workspace = calloc(1, one->workspace_bytes + 64);
        if (test_offload_run(&offload, kernel, one) != RN_OK)
            fail_msg("%s, packed: %s", what, rn_last_error()->message);
        free(one->workspace);
    }
    assert_memory_equal(y[0].data, y[1].data, rn_tensor_bytes(&y[0]));
    free(y[0].data);
    free(y[1].data);
    free(in[1].data);
}

// ---- convolutions -------------------------------------------------------------------------------

typedef struct conv_case {
    uint64_t n, h, w, c, o, kernel_h, kernel_w;
    uint32_t stride, top, left, bottom, right;
    rn_dtype x, weight, y;
    bool bias;
    uint32_t groups, dilation;
} conv_case;

#define BF RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16
#define HF RN_DTYPE_F16, RN_DTYPE_F16, RN_DTYPE_F16
#define F3 RN_DTYPE_F32, RN_DTYPE_F32, RN_DTYPE_F32
static const conv_case cases[] = {
    {2, 16, 16, 64, 160, 3, 3, 1, 1, 1, 1, 1, BF, true},
    {1, 33, 17, 72, 40, 3, 3, 1, 1, 1, 1, 1, HF, true},
    {2, 9, 9, 128, 64, 3, 3, 2, 1, 1, 1, 1, BF, false},
    {1, 16, 16, 64, 32, 3, 3, 2, 0, 0, 1, 1, BF, true}, // as a VAE's encoder halves its images
    {1, 8, 8, 640, 96, 3, 3, 1, 1, 1, 1, 1, BF, true},  // few pixels, long sums: in parts
    {2, 4, 4, 320, 200, 3, 3, 1, 1, 1, 1, 1, RN_DTYPE_BF16, RN_DTYPE_F32, RN_DTYPE_F32, true},
    {1, 20, 24, 4, 64, 3, 3, 1, 1, 1, 1, 1, BF, true}, // channels that are no eights
    {1, 20, 24, 9, 40, 3, 3, 1, 1, 1, 1, 1, BF, false},
    {1, 20, 24, 64, 4, 3, 3, 1, 1, 1, 1, 1, BF, true},
    {2, 12, 12, 64, 128, 1, 1, 1, 0, 0, 0, 0, BF, true},
    {2, 11, 12, 64, 72, 1, 1, 2, 0, 0, 0, 0, BF, false},
    {1, 32, 32, 3, 64, 7, 7, 2, 3, 3, 3, 3, RN_DTYPE_F16, RN_DTYPE_F32, RN_DTYPE_F16, true},
    {1, 70, 65, 16, 24, 3, 3, 1, 1, 1, 1, 1, BF, true}, // boxes of 256
    {3, 7, 5, 24, 16, 2, 3, 1, 0, 2, 1, 0, BF, true},
    {2, 14, 14, 64, 64, 3, 3, 1, 1, 1, 1, 1, F3, true},
    {1, 15, 13, 5, 7, 3, 3, 2, 1, 0, 1, 2, F3, true},
    {1, 32, 32, 3, 64, 7, 7, 2, 3, 3, 3, 3, F3, false},
    {1, 6, 6, 16, 24, 3, 3, 1, 1, 1, 1, 1, RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_BF16, true},
    // groups, dilation: conv
    {2, 10, 10, 32, 48, 3, 3, 1, 2, 2, 2, 2, BF, true, 2, 2},
    {1, 12, 12, 128, 160, 3, 3, 2, 1, 1, 1, 1, BF, true, 4, 1},
    {1, 12, 12, 24, 24, 3, 3, 1, 1, 1, 1, 1, BF, true, 24, 1},
    {2, 9, 12, 20, 40, 3, 3, 2, 1, 1, 1, 1, F3, true, 20, 1},
    {1, 12, 12, 64, 64, 3, 3, 1, 3, 3, 3, 3, HF, false, 1, 3},
};

static void run_case(const conv_case *c) {
    rn_conv2d_attrs two = {c->stride, c->stride, c->top, c->left, c->bottom, c->right};
    rn_conv_attrs any = {.groups = c->groups,
                         .stride = {c->stride, c->stride},
                         .dilation = {c->dilation, c->dilation},
                         .pad_before = {c->top, c->left},
                         .pad_after = {c->bottom, c->right}};
    uint64_t groups = c->groups ? c->groups : 1, spread = c->dilation ? c->dilation : 1;
    uint64_t oh = (c->h + c->top + c->bottom - spread * (c->kernel_h - 1) - 1) / c->stride + 1;
    uint64_t ow = (c->w + c->left + c->right - spread * (c->kernel_w - 1) - 1) / c->stride + 1;
    float size = 1 / sqrtf((float)(c->c / groups * c->kernel_h * c->kernel_w));
    rn_tensor in[3] = {make(c->x, RN_SHAPE(c->n, c->h, c->w, c->c), 1, 1),
                       make(c->weight, RN_SHAPE(c->o, c->c / groups, c->kernel_h, c->kernel_w), 2,
                            size < 0.1f ? 0.0625f : 0.25f),
                       {0}};
    rn_tensor y = make(c->y, RN_SHAPE(c->n, oh, ow, c->o), 3, 1);
    bool is_any = c->groups > 0;
    if (c->bias) in[2] = make(is_any ? c->x : RN_DTYPE_F32, RN_SHAPE(c->o), 4, 1);
    rn_call call = {.op = is_any ? RN_OP_CONV : RN_OP_CONV2D,
                    .attrs = is_any ? (const void *)&any : &two,
                    .inputs = in,
                    .outputs = &y,
                    .input_count = 3,
                    .output_count = 1,
                    .threads = 1};
    char what[160];
    snprintf(what, sizeof what, "%llu x %llu x %llu x %llu to %llu, %llu x %llu / %u, %s",
             (unsigned long long)c->n, (unsigned long long)c->h, (unsigned long long)c->w,
             (unsigned long long)c->c, (unsigned long long)c->o, (unsigned long long)c->kernel_h,
             (unsigned long long)c->kernel_w, c->stride, rn_dtype_get(c->x)->name);
    check(&call, what);
    check_packed(&call, what);
    call.outputs = &y;
    if (!is_any) {
        rn_tensor dy = make(c->x, y.shape, 5, 1), dx = make(c->y, in[0].shape, 6, 1);
        rn_tensor dw = make(RN_DTYPE_F32, in[1].shape, 7, 1);
        rn_conv2d_grad_input_attrs by_x = {two, in[0].shape};
        rn_conv2d_grad_weight_attrs by_w = {two, c->kernel_h, c->kernel_w};
        rn_tensor of_x[2] = {in[1], dy}, of_w[2] = {in[0], dy};
        rn_call grad = {.op = RN_OP_CONV2D_GRAD_INPUT,
                        .attrs = &by_x,
                        .inputs = of_x,
                        .outputs = &dx,
                        .input_count = 2,
                        .output_count = 1,
                        .threads = 1};
        char which[192];
        snprintf(which, sizeof which, "by x: %s", what);
        check(&grad, which);
        grad = (rn_call){.op = RN_OP_CONV2D_GRAD_WEIGHT,
                         .attrs = &by_w,
                         .inputs = of_w,
                         .outputs = &dw,
                         .input_count = 2,
                         .output_count = 1,
                         .threads = 1};
        snprintf(which, sizeof which, "by w: %s", what);
        check(&grad, which);
        free(dy.data);
        free(dx.data);
        free(dw.data);
    }
    for (int i = 0; i < 3; i++)
        free(in[i].data);
    free(y.data);
}

static void convolutions_agree_with_the_reference(void **state) {
    (void)state;
    if (!gpu) skip_because("no GPU: %s", reason.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
