// labels: gpu
// cuda_half_test.c — products in 16 bits and the loss of a head without its logits on the first
// GPU: nearly what the reference says of the same (rounded) inputs, the same bits twice, by
// cuBLASLt and by our own kernel. Weights of every kind are read both ways round.
#include "support.h"

#include "backend/cuda/rows.h"
#include "graph/halves.h"
#include "graph/linear_loss.h"
#include "graph/plain_matrix.h"
#include "gpu.h"

#include <math.h>

enum { MOST = 1 << 18, BLOCK_BYTES = 128 << 20 };

static test_gpu gpu;

static int with_library(void **state) {
    (void)state;
    return test_gpu_open(&gpu, BLOCK_BYTES);
}

static int without_library(void **state) {
    (void)state;
    return setenv("RATION_CUBLASLT", "none", 1) || test_gpu_open(&gpu, BLOCK_BYTES);
}

static int end(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

// ---- tensors ------------------------------------------------------------------------------------

static float numbers[MOST];

static void make(rn_tensor *t, rn_dtype dtype, rn_shape shape, uint32_t seed, float size) {
    *t = (rn_tensor){NULL, dtype, RN_LAYOUT_PLAIN, shape};
    uint64_t count = rn_tensor_elements(t);
    assert_true(count <= MOST);
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = ((float)(seed >> 8) / (1 << 23) - 1) * size;
    }
    t->data = calloc(1, rn_tensor_bytes(t) + 64);
    assert_non_null(t->data);
    if (dtype == RN_DTYPE_I32)
        for (uint64_t i = 0; i < count; i++)
            ((int32_t *)t->data)[i] = i % 5 == 3 ? -100 : (int32_t)((i * 7919) % (uint64_t)size);
    else if (rn_dtype_get(dtype)->is_float || dtype == RN_DTYPE_Q8_0 || dtype == RN_DTYPE_Q4_K ||
             dtype == RN_DTYPE_Q6_K)
        assert_ok(rn_dtype_from_f32(dtype, numbers, t->data, count));
    else // any bytes are codes; scales of one part are small floats
        for (uint64_t i = 0; i < rn_tensor_bytes(t); i++)
            ((uint8_t *)t->data)[i] = i % 4 == 3 ? 0x3c : (uint8_t)(i * 37 + seed);
}

static void widen(const rn_tensor *t, float *out) {
    assert_ok(rn_dtype_to_f32(t->dtype, t->data, out, rn_tensor_elements(t)));
}

// Of the largest: `roundings` of 2^-8 of it.
static void compare(const rn_tensor *is, const rn_tensor *must, double roundings,
                    const char *what) {
    static float a[MOST], b[MOST];
    double largest = 0, off = 0;
    widen(is, a);
    widen(must, b);
    for (uint64_t i = 0; i < rn_tensor_elements(must); i++) {
        largest = fmax(largest, fabs(b[i]));
        off = fmax(off, fabs(a[i] - b[i]));
        if (isnan(a[i]) != isnan(b[i])) fail_msg("%s: element %llu", what, (unsigned long long)i);
    }
    if (off > roundings / 256 * largest)
        fail_msg("%s: off by %g, the largest is %g", what, off, largest);
}

// Runs it on the GPU twice and by reference, and compares all outputs.
static void check(rn_call *call, rn_tensor *outputs, double roundings, const char *what) {
    const rn_kernel *kernel = &rn_cuda_kernels[call->op];
    rn_tensor wanted[3] = {0}, first[3] = {0};
    uint64_t reference_bytes = rn_reference_workspace(call), bytes = kernel->workspace(call);
    void *workspace = calloc(1, (reference_bytes > bytes ? reference_bytes : bytes) + 64);
    assert_non_null(workspace);
    call->workspace = workspace;
    call->workspace_bytes = reference_bytes;
    assert_ok(rn_reference_run(call));
    for (uint32_t i = 0; i < call->output_count; i++) {
        wanted[i] = first[i] = outputs[i];
        wanted[i].data = outputs[i].data;
        outputs[i].data = calloc(1, rn_tensor_bytes(&outputs[i]) + 64);
        first[i].data = malloc(rn_tensor_bytes(&outputs[i]));
    }
    call->workspace_bytes = bytes;
    for (int turn = 0; turn < 2; turn++) {
        assert_ok(test_offload_run(&gpu.offload, kernel, call));
        for (uint32_t i = 0; i < call->output_count; i++) {
            if (turn)
                assert_memory_equal(first[i].data, outputs[i].data, rn_tensor_bytes(&first[i]));
            memcpy(first[i].data, outputs[i].data, rn_tensor_bytes(&first[i]));
        }
    }
    for (uint32_t i = 0; i < call->output_count; i++) {
        compare(&outputs[i], &wanted[i], roundings, what);
        free(wanted[i].data);
        free(first[i].data);
        free(outputs[i].data);
    }
    free(workspace);
}

// ---- products -----------------------------------------------------------------------------------

typedef struct product_case {
    uint64_t batch, m, n, k;
    rn_dtype x, w, y;
    bool bias, w_batches;
} product_case;

static const product_case products[] = {
    {1, 64, 64, 64, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16},
    {1, 5, 7, 3, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_F32},
    {1, 129, 130, 131, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16},
    {1, 33, 16, 256, RN_DTYPE_F16, RN_DTYPE_F16, RN_DTYPE_F16, true},
    {1, 33, 48, 64, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16, true},
    {1, 33, 48, 64, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_F32, true},
    {1, 1, 40, 24, RN_DTYPE_BF16, RN_DTYPE_F32, RN_DTYPE_BF16},
    {3, 17, 24, 32, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16},
    {3, 17, 24, 32, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_F32, false, true},
    {1, 16, 300, 16, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16},        // a low-rank addition
    {2, 96, 160, 128, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16, true}, // as images are
    {1, 300, 328, 72, RN_DTYPE_F16, RN_DTYPE_F16, RN_DTYPE_F16, true},
    {2, 77, 136, 1024, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_F32}, // in parts
    {1, 64, 64, 128, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_BF16},
    {1, 64, 256, 256, RN_DTYPE_BF16, RN_DTYPE_Q4_K, RN_DTYPE_BF16},
    {1, 20, 256, 256, RN_DTYPE_BF16, RN_DTYPE_Q6_K, RN_DTYPE_F32},
    {1, 64, 128, 128, RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_F32},
    {1, 20, 128, 192, RN_DTYPE_BF16, RN_DTYPE_NF4, RN_DTYPE_BF16},
    {1, 20, 128, 192, RN_DTYPE_F16, RN_DTYPE_NF4, RN_DTYPE_F32},
    {1, 20, 128, 128, RN_DTYPE_BF16, RN_DTYPE_INT8, RN_DTYPE_BF16},
    {1, 20, 128, 128, RN_DTYPE_BF16, RN_DTYPE_INT4, RN_DTYPE_BF16},
};

// x or w may be stored the other way round. Rounding of y (none in f32), and of w where it is not
// of x's type.
static void run_product(const product_case *c, bool turn_x, bool turn_w) {
    rn_tensor t[4] = {0};
    char what[128];
    snprintf(what, sizeof what, "(%d x %d x %d) %s by %s to %s%s%s", (int)c->m, (int)c->n,
             (int)c->k, rn_dtype_get(c->x)->name, rn_dtype_get(c->w)->name,
             rn_dtype_get(c->y)->name, turn_x ? ", x turned" : "", turn_w ? ", w turned" : "");
    make(&t[0], c->x, turn_x ? RN_SHAPE(c->batch, c->k, c->m) : RN_SHAPE(c->batch, c->m, c->k), 1,
         1);
    rn_shape w = turn_w ? RN_SHAPE(c->k, c->n) : RN_SHAPE(c->n, c->k);
    if (c->w_batches) w = RN_SHAPE(c->batch, w.dims[0], w.dims[1]);
    make(&t[1], c->w, w, 2, 1);
    if (c->bias) make(&t[2], RN_DTYPE_F32, RN_SHAPE(c->n), 3, 1);
    make(&t[3], c->y, RN_SHAPE(c->batch, c->m, c->n), 4, 1);
    rn_matmul_attrs attrs = {
        .transpose_x = turn_x, .transpose_w = turn_w, .unquantised_activations = true};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = t,
                    .outputs = &t[3],
                    .input_count = 3,
                    .output_count = 1,
                    .threads = 1};
    check(&call, &t[3], (c->y != RN_DTYPE_F32) + (c->w != c->x) + 0.1, what);
    for (int i = 0; i < 3; i++)
        free(t[i].data);
}

static void products_agree_with_the_reference(void **state) {
    (void)state;
    if (!gpu.device) {
        print_message("skipped: %s\n", gpu.reason.message);
        skip();
    }
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int turns = 0; turns < 4; turns++)
            run_product(&products[i], turns & 1, turns & 2);
}

// The addend is of y's type, or not; a bias beside it, or none.
static void sums_agree_with_the_reference(void **state) {
    static const struct {
        uint64_t images, m, n, k;
        rn_dtype x, addend;
        bool bias;
    } cases[] = {
        {2, 96, 160, 128, RN_DTYPE_BF16, RN_DTYPE_BF16, true},
        {1, 100, 96, 64, RN_DTYPE_F16, RN_DTYPE_F16, false},
        {2, 70, 72, 1024, RN_DTYPE_BF16, RN_DTYPE_BF16, true}, // in parts
        {1, 40, 60, 24, RN_DTYPE_BF16, RN_DTYPE_BF16, true},
        {2, 96, 160, 128, RN_DTYPE_BF16, RN_DTYPE_F32, true},
    };
    (void)state;
    if (!gpu.device) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_tensor t[5] = {0};
        rn_matmul_attrs attrs = {0};
        rn_shape y = RN_SHAPE(cases[i].images, cases[i].m, cases[i].n);
        make(&t[0], cases[i].x, RN_SHAPE(cases[i].images, cases[i].m, cases[i].k), 1, 1);
        make(&t[1], cases[i].x, RN_SHAPE(cases[i].n, cases[i].k), 2, 1);
        make(&t[2], cases[i].addend, y, 3, 4);
        if (cases[i].bias) make(&t[3], RN_DTYPE_F32, RN_SHAPE(cases[i].n), 4, 1);
        make(&t[4], cases[i].x, y, 5, 1);
        rn_call call = {.op = RN_OP_MATMUL_ADD,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = &t[4],
                        .input_count = cases[i].bias ? 4 : 3,
                        .output_count = 1,
                        .threads = 1};
        check(&call, &t[4], 2.1, "a sum");
        for (int j = 0; j < 4; j++)
            free(t[j].data);
    }
}

// ---- losses -------------------------------------------------------------------------------------

// Chunks are of 1024 rows. Logits are rounded, and d logits, and the gradients: three roundings, of
// which those of d logits average out; the loss is of rows' differences of rounded logits.
static void losses_agree_with_the_reference(void **state) {
    static const struct {
        uint64_t n, d, v;
        rn_dtype x, w, dw;
    } cases[] = {
        {40, 64, 200, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16},
        {40, 64, 203, RN_DTYPE_BF16, RN_DTYPE_F32, RN_DTYPE_F32},
        {1300, 16, 120, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_F32},
        {1300, 16, 77, RN_DTYPE_F32, RN_DTYPE_F32, RN_DTYPE_F32},
        {33, 256, 96, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_F32},
    };
    (void)state;
    if (!gpu.device) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_tensor t[6] = {0};
        rn_scalar scale = {.f64 = 1.0 / 16};
        rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = i % 2 ? RN_NO_SCALAR : 0};
        make(&t[0], cases[i].x, RN_SHAPE(cases[i].n, cases[i].d), 1, 1);
        make(&t[1], cases[i].w, RN_SHAPE(cases[i].v, cases[i].d), 2, 0.3f);
        make(&t[2], RN_DTYPE_I32, RN_SHAPE(cases[i].n), 3, (float)cases[i].v);
        make(&t[3], RN_DTYPE_F32, RN_SCALAR, 4, 1);
        make(&t[4], cases[i].x, RN_SHAPE(cases[i].n, cases[i].d), 5, 1);
        make(&t[5], cases[i].dw, RN_SHAPE(cases[i].v, cases[i].d), 6, 1);
        rn_call call = {.op = RN_OP_LINEAR_CROSS_ENTROPY,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = &t[3],
                        .input_count = 3,
                        .output_count = 3,
                        .scalars = &scale,
                        .threads = 1};
        char what[64];
        snprintf(what, sizeof what, "loss of (%d x %d x %d)", (int)cases[i].n, (int)cases[i].v,
                 (int)cases[i].d);
        check(&call, &t[3], cases[i].x == RN_DTYPE_F32 ? 0.01 : 3, what);
        for (int j = 0; j < 3; j++)
            free(t[j].data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_reference),
        cmocka_unit_test(sums_agree_with_the_reference),
        cmocka_unit_test(losses_agree_with_the_reference),
    };
    int failed = cmocka_run_group_tests_name("cuBLASLt", tests, with_library, end);
    return failed + cmocka_run_group_tests_name("own kernels", tests, without_library, end);
}
