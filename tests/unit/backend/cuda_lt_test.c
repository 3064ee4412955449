// Products of 16-bit matrices by cuBLASLt, over a library of our own that has its functions
// (fake_cuda/fake_lt.c) and a driver of our own: all transposes, batches, bias, sums in place, what
// is kept of a shape, and what happens without the library.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/rows.h"
#include "base/checked.h"

#include <ration/tensor.h>

#include <dlfcn.h>
#include <math.h>

typedef struct fake_lt {
    uint64_t asked, run, alive, workspace_bytes;
    uint32_t alignment;
    void (*wait)(void *stream);
    uint64_t added, added_in_place;
} fake_lt;
typedef fake_lt *(*fake_lt_get_fn)(void);

static fake_cuda *fake;
static fake_lt *lt;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1};
static rn_device *device;
static rn_cuda_stream stream;

static int start(void **state) {
    static const char path[] = RN_BIN_DIR "/../lib/fake_lt.so";
    fake_lt_get_fn get = NULL;
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "fake_lt_get") : NULL;
    if (!fake || !symbol) return -1;
    memcpy(&get, &symbol, sizeof get);
    lt = get();
    fake->capacity_bytes = (uint64_t)256 << 20;
    fake->device_count = 1;
    fake->has_vmm = fake->has_words = true;
    fake->capability = 90;
    rn_cuda_images_replace(&with_kernels);
    return setenv("RATION_CUBLASLT", path, 1);
}

static int each(void **state) {
    (void)state;
    *lt = (fake_lt){0};
    if (rn_cuda_device_create(0, 1, &device) != RN_OK) return -1;
    rn_gpu *gpu = rn_gpu_of(device);
    stream = (rn_cuda_stream){.gpu = gpu, .handle = gpu->streams[0]};
    return rn_cuda_enter(&stream.gpu->cuda) == RN_OK ? 0 : -1;
}

static int clean(void **state) {
    (void)state;
    rn_cuda_leave(&stream.gpu->cuda);
    rn_device_destroy(device);
    return lt->alive == 0 && rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0 ? 0 : -1;
}

// ---- a product and its meaning ------------------------------------------------------------------

enum { MOST = 4096 };

typedef struct made {
    float x[MOST], w[MOST], bias[MOST], y[MOST], want[MOST]; // what the 16 bits mean
    _Alignas(64) uint16_t x16[MOST], w16[MOST], y16[MOST];
    rn_tensor tensors[4];
    rn_matmul_attrs attrs;
    rn_call call;
} made;

static void fill(float *to, uint16_t *as, uint64_t count, uint32_t seed) {
    for (uint64_t i = 0; i < count; i++)
        to[i] = (float)((int)((i * 7 + seed * 13) % 31) - 15) / 8; // exact in bf16
    if (as) assert_ok(rn_dtype_from_f32(RN_DTYPE_BF16, to, as, count));
}

// x (batch, m, k) or (batch, k, m); w (n, k) or (k, n), `w_batch` of them.
static void make(made *p, bool turn_x, bool turn_w, uint64_t batch, uint64_t w_batch, bool bias,
                 rn_dtype out) {
    enum { M = 5, N = 6, K = 8 };
    memset(p, 0, sizeof *p);
    fill(p->x, p->x16, batch * M * K, 1);
    fill(p->w, p->w16, w_batch * N * K, 2);
    fill(p->bias, NULL, N, 3);
    p->attrs = (rn_matmul_attrs){.transpose_x = turn_x, .transpose_w = turn_w};
    p->tensors[0] = (rn_tensor){p->x16, RN_DTYPE_BF16, RN_LAYOUT_PLAIN,
                                turn_x ? RN_SHAPE(batch, K, M) : RN_SHAPE(batch, M, K)};
    p->tensors[1] = (rn_tensor){p->w16, RN_DTYPE_BF16, RN_LAYOUT_PLAIN,
                                turn_w ? RN_SHAPE(K, N) : RN_SHAPE(N, K)};
    if (w_batch > 1)
        p->tensors[1].shape = turn_w ? RN_SHAPE(w_batch, K, N) : RN_SHAPE(w_batch, N, K);
    if (bias) p->tensors[2] = (rn_tensor){p->bias, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(N)};
    p->tensors[3] = (rn_tensor){out == RN_DTYPE_F32 ? (void *)p->y : p->y16, out, RN_LAYOUT_PLAIN,
                                RN_SHAPE(batch, M, N)};
    p->call = (rn_call){.op = RN_OP_MATMUL,
                        .attrs = &p->attrs,
                        .inputs = p->tensors,
                        .outputs = &p->tensors[3],
                        .input_count = 3,
                        .output_count = 1,
                        .stream = &stream};
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t m = 0; m < M; m++)
            for (uint64_t n = 0; n < N; n++) {
                const float *x = p->x + b * M * K, *w = p->w + (w_batch > 1 ? b * N * K : 0);
                float sum = bias ? p->bias[n] : 0;
                for (uint64_t k = 0; k < K; k++)
                    sum += x[turn_x ? k * M + m : m * K + k] * w[turn_w ? k * N + n : n * K + k];
                p->want[(b * M + m) * N + n] = sum;
            }
}

static void run(made *p) {
    p->call.workspace_bytes = rn_cuda_matmul_workspace(&p->call);
    p->call.workspace = aligned_alloc(256, rn_round_up(p->call.workspace_bytes, 256));
    assert_non_null(p->call.workspace);
    assert_ok(rn_cuda_matmul(&p->call));
    free(p->call.workspace);
}

// The numbers are multiples of 1/64 and small: f32 has them exactly.
static void check(made *p, float times) {
    uint64_t count = rn_tensor_elements(&p->tensors[3]);
    if (p->tensors[3].dtype == RN_DTYPE_BF16)
        assert_ok(rn_dtype_to_f32(RN_DTYPE_BF16, p->y16, p->y, count));
    for (uint64_t i = 0; i < count; i++) {
        float want = p->want[i] * times, most = fabsf(want) / 256; // bf16: one rounding
        if (p->tensors[3].dtype == RN_DTYPE_F32) most = 0;
        assert_true(fabsf(p->y[i] - want) <= most);
    }
}

static made product;

static void every_form_of_a_product_is_right(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        uint64_t batch = form & 4 ? 3 : 1;
        make(&product, form & 1, form & 2, batch, form & 8 ? batch : 1, false, RN_DTYPE_F32);
        run(&product);
        check(&product, 1);
    }
    assert_int_equal(16, lt->run);
}

static void outputs_are_rounded_once(void **state) {
    (void)state;
    make(&product, false, true, 2, 1, false, RN_DTYPE_BF16);
    run(&product);
    check(&product, 1);
}

static void bias_is_added(void **state) {
    (void)state;
    make(&product, false, false, 1, 1, true, RN_DTYPE_F32);
    run(&product);
    check(&product, 1);
}

static void products_add_up_in_place(void **state) {
    (void)state;
    make(&product, true, true, 1, 1, false, RN_DTYPE_F32);
    run(&product);
    product.call.workspace_bytes = rn_cuda_matmul_workspace(&product.call);
    product.call.workspace = aligned_alloc(256, rn_round_up(product.call.workspace_bytes, 256));
    for (int i = 0; i < 2; i++)
        assert_ok(rn_cuda_matmul_half_add(&product.call, product.y));
    free(product.call.workspace);
    check(&product, 3);
}

static void wait_for(void *handle) {
    assert_int_equal(0, stream.gpu->cuda.driver->stream_synchronize(handle));
}

// The library adds with other bits out of place than in place, so the addend is copied first: both
// are one call of it.
static void products_are_added_in_place_wherever_the_addend_is(void **state) {
    static float other[MOST];
    (void)state;
    lt->wait = wait_for;
    make(&product, true, true, 1, 1, false, RN_DTYPE_F32);
    uint64_t count = rn_tensor_elements(&product.tensors[3]);
    for (uint64_t i = 0; i < count; i++)
        other[i] = product.want[i] * 2;
    product.call.workspace_bytes = rn_cuda_matmul_workspace(&product.call);
    product.call.workspace = aligned_alloc(256, rn_round_up(product.call.workspace_bytes, 256));
    assert_ok(rn_cuda_matmul_half_add(&product.call, other));
    check(&product, 3);
    memcpy(product.y, other, sizeof other);
    assert_ok(rn_cuda_matmul_half_add(&product.call, product.y));
    check(&product, 3);
    assert_int_equal(2, lt->added);
    assert_int_equal(2, lt->added_in_place);
    assert_int_equal(1, lt->asked); // one and the same shape
    free(product.call.workspace);
}

static void shape_is_asked_for_once(void **state) {
    (void)state;
    make(&product, false, false, 1, 1, false, RN_DTYPE_F32);
    run(&product);
    run(&product);
    assert_int_equal(1, lt->asked);
    assert_int_equal(16, lt->alignment);
    product.tensors[0].data = product.x16 + 1; // another alignment is another product
    run(&product);
    assert_int_equal(2, lt->asked);
    assert_int_equal(2, lt->alignment);
    assert_int_equal(3, lt->run);
}

static void workspace_grows_with_rows_up_to_a_limit(void **state) {
    (void)state;
    uint64_t before = 0;
    for (uint64_t m = 1; m < (uint64_t)1 << 40; m *= 3) {
        uint64_t bytes = rn_lt_workspace(m, 4096, 1);
        assert_true(bytes >= before && bytes > 0 && bytes <= ((uint64_t)32 << 20) + 256);
        before = bytes;
    }
    assert_int_equal(((uint64_t)32 << 20) + 256, before);
}

// What is not there, or does not serve a product, is our own kernel's work.
static void kernel_of_our_own_serves_the_rest(void **state) {
    (void)state;
    uint64_t launches = fake->launch_count;
    make(&product, false, false, 1, 1, false, RN_DTYPE_F32);
    product.tensors[0].shape = RN_SHAPE(1, 5, 7);
    product.tensors[1].shape = RN_SHAPE(6, 7);
    run(&product);
    assert_int_equal(0, lt->run);
    assert_int_equal(launches + 1, fake->launch_count);
}

static void missing_library_is_no_error(void **state) {
    (void)state;
    const char *path = getenv("RATION_CUBLASLT");
    uint64_t launches = fake->launch_count;
    assert_int_equal(0, setenv("RATION_CUBLASLT", "none", 1));
    make(&product, false, false, 1, 1, false, RN_DTYPE_F32);
    run(&product);
    assert_int_equal(0, lt->asked);
    assert_int_equal(launches + 1, fake->launch_count);
    assert_int_equal(0, setenv("RATION_CUBLASLT", path, 1));
}

// Quantised weights are rounded to x's type slice by slice: launches before each product.
static void other_weights_are_rounded_first(void **state) {
    (void)state;
    uint64_t launches = fake->launch_count;
    make(&product, false, true, 1, 1, false, RN_DTYPE_F32);
    product.tensors[1].dtype = RN_DTYPE_F32;
    product.tensors[1].data = product.w;
    assert_true(rn_cuda_matmul_workspace(&product.call) >= rn_lt_workspace(5, 6, 1) + 6 * 8 * 2);
    run(&product);
    assert_int_equal(launches + 1, fake->launch_count);
    assert_int_equal(1, lt->run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_form_of_a_product_is_right, each, clean),
        cmocka_unit_test_setup_teardown(outputs_are_rounded_once, each, clean),
        cmocka_unit_test_setup_teardown(bias_is_added, each, clean),
        cmocka_unit_test_setup_teardown(products_add_up_in_place, each, clean),
        cmocka_unit_test_setup_teardown(products_are_added_in_place_wherever_the_addend_is, each,
                                        clean),
        cmocka_unit_test_setup_teardown(shape_is_asked_for_once, each, clean),
        cmocka_unit_test_setup_teardown(kernel_of_our_own_serves_the_rest, each, clean),
        cmocka_unit_test_setup_teardown(missing_library_is_no_error, each, clean),
        cmocka_unit_test_setup_teardown(other_weights_are_rounded_first, each, clean),
        cmocka_unit_test(workspace_grows_with_rows_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
