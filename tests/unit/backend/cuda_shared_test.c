// cuda_shared_test.c — GPUs with less shared memory a block than an H200: which kernels serve
// there, and that what none serves is refused. Over a driver of our own: nothing is computed.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/cost.h"
#include "backend/cuda/rows.h"

#include <stdio.h>
#include <stdlib.h>

enum { AMPERE = 163 << 10, ADA = 99 << 10, HOPPER = 227 << 10 }; // sm_80, sm_89, sm_90

static fake_cuda *fake;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1}, without_90a = {&image, 1, true};
static rn_device *device;
static rn_device_memory memory;
static rn_queue *queue;
static char launched[256]; // "rn_pack rn_product_mma_f16 ": by one run

static void on_launch(void *self, const fake_launch *launch) {
    size_t used = strlen(launched);
    (void)self;
    snprintf(launched + used, sizeof launched - used, "%s ", launch->name);
}

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    rn_cuda_images_replace(&with_kernels);
    return fake ? 0 : -1;
}

static void open_device(int capability, int shared_most) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = 1 << 20};
    fake->capability = capability;
    fake->shared_most = shared_most;
    fake->shared_fixed = 256; // plain attention has some of its own
    fake->on_launch = on_launch;
    assert_ok(rn_cuda_device_create(0, 1, &device));
    assert_ok(rn_device_memory_take(device, purposes, &memory));
    assert_ok(device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &queue));
}

static void close_device(void) {
    rn_queue_destroy(queue);
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
}

// Everything lies at the same place: nobody looks.
static rn_status run(rn_call call, rn_tensor *inputs, rn_tensor *outputs) {
    call.inputs = inputs;
    call.outputs = outputs;
    for (uint32_t i = 0; i < call.input_count; i++)
        inputs[i].data = rn_tensor_given(&inputs[i]) ? memory.base : NULL;
    for (uint32_t i = 0; i < call.output_count; i++)
        outputs[i].data = memory.base;
    call.workspace = memory.base;
    launched[0] = 0;
    rn_queue_launch(queue, &rn_cuda_kernels[call.op], &call);
    rn_status status = rn_queue_finish(queue);
    rn_queue_reset(queue);
    return status;
}

static rn_tensor tensor(rn_dtype dtype, rn_shape shape) {
    return (rn_tensor){NULL, dtype, RN_LAYOUT_PLAIN, shape};
}

static rn_status attend(uint64_t rows, uint64_t dims) {
    const rn_attention_attrs attrs = {0};
    rn_tensor in[] = {tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4, dims)),
                      tensor(RN_DTYPE_F16, RN_SHAPE(2, 2, 2, 64, dims)),
                      tensor(RN_DTYPE_I32, RN_SHAPE(rows)), tensor(RN_DTYPE_I32, RN_SHAPE(rows)),
                      tensor(RN_DTYPE_I32, RN_SHAPE(1, 2))};
    rn_tensor out = tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4, dims));
    return run(
        (rn_call){
            .op = RN_OP_PAGED_ATTENTION, .attrs = &attrs, .input_count = 5, .output_count = 1},
        in, &out);
}

static rn_status attend_and_append(uint64_t rows, bool steady) {
    const rn_attend_attrs attrs = {.rope = {.base = 10000}, .steady_places = steady};
    rn_tensor kv = tensor(RN_DTYPE_F16, RN_SHAPE(2, 2, 2, 64, 128)),
              places = tensor(RN_DTYPE_I32, RN_SHAPE(rows));
    rn_tensor in[] = {tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4, 128)),
                      tensor(RN_DTYPE_F32, RN_SHAPE(rows, 2, 128)),
                      tensor(RN_DTYPE_F32, RN_SHAPE(rows, 2, 128)),
                      kv,
                      places,
                      places,
                      tensor(RN_DTYPE_I32, RN_SHAPE(1, 2))};
    rn_tensor out[] = {kv, tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4, 128))};
    return run((rn_call){.op = RN_OP_ATTEND, .attrs = &attrs, .input_count = 7, .output_count = 2},
               in, out);
}

static rn_status multiply(uint64_t rows, rn_dtype dtype) {
    const rn_matmul_attrs attrs = {0};
    rn_tensor in[] = {
        tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4096)), tensor(dtype, RN_SHAPE(4096, 4096)), {0}};
    rn_tensor out = tensor(RN_DTYPE_F32, RN_SHAPE(rows, 4096));
    in[1].layout = RN_LAYOUT_TILES;
    return run((rn_call){.op = RN_OP_MATMUL, .attrs = &attrs, .input_count = 3, .output_count = 1},
               in, &out);
}

static void products_of_any_rows_are_served(void **state) {
    static const rn_dtype types[] = {RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_Q4_0};
    static const int shared[] = {AMPERE, ADA};
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_device(i ? 89 : 80, shared[i]);
        for (int type = 0; type < 4; type++)
            for (uint64_t rows = 1; rows < 600; rows = rows * 3 + 1)
                assert_ok(multiply(rows, types[type]));
        assert_ok(multiply(1, RN_DTYPE_F16));
        assert_string_equal("rn_product_few_f16_1 ", launched);
        assert_ok(multiply(100, RN_DTYPE_F16));
        assert_string_equal("rn_pack rn_product_mma_f16 ", launched);
        close_device();
    }
}

// Few rows and many of one model go to kernels of one kind: a row's bits are the same.
static void attention_goes_where_shared_memory_lets_it(void **state) {
    static const struct {
        int shared_most;
        uint64_t dims;
        const char *few, *many;
    } cases[] = {
        {HOPPER, 256, "rn_attend_few_256 ", "rn_attend_many_256 "},
        {AMPERE, 128, "rn_attend_few_128 ", "rn_attend_many_128 "},
        {AMPERE, 256, "rn_attend_plain_few_256 ", "rn_attend_plain_many_256 "},
        {ADA, 64, "rn_attend_few_64 ", "rn_attend_many_64 "},
        {ADA, 96, "rn_attend_few_96 ", "rn_attend_many_96 "},
        {ADA, 128, "rn_attend_plain_few_128 ", "rn_attend_plain_many_128 "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_device(80, cases[i].shared_most);
        assert_ok(attend(1, cases[i].dims));
        assert_string_equal(cases[i].few, launched);
        assert_ok(attend(500, cases[i].dims));
        assert_string_equal(cases[i].many, launched);
        close_device();
    }
}

// A kernel that appends by itself looks at its places before the kernels ahead of it have ended.
static void places_that_the_run_makes_are_appended_to_by_a_launch_of_its_own(void **state) {
    (void)state;
    open_device(90, HOPPER);
    assert_ok(attend_and_append(1, true));
    assert_string_equal("rn_attend_few_128 ", launched);
    assert_ok(attend_and_append(1, false));
    assert_string_equal("rn_attend_append rn_attend_few_128 ", launched);
    assert_ok(attend_and_append(500, true));
    assert_string_equal("rn_attend_append rn_attend_many_128 ", launched);
    close_device();
}

static void what_no_kernel_has_room_for_is_refused_with_numbers(void **state) {
    (void)state;
    open_device(89, ADA);
    assert_fails(RN_UNSUPPORTED, attend(1, 256));
    assert_non_null(strstr(rn_last_error()->message, "bytes of shared memory, a block of cuda:0 "
                                                     "has 101120"));
    assert_string_equal("", launched);
    close_device();
}

// The code for sm_90a is then not there: nothing may be launched as if it were.
static void a_driver_that_compiles_ptx_is_taken_for_an_older_device(void **state) {
    (void)state;
    for (int forced = 0; forced < 2; forced++) {
        assert_int_equal(0, setenv("CUDA_FORCE_PTX_JIT", forced ? "1" : "0", 1));
        open_device(90, HOPPER);
        assert_ok(multiply(100, RN_DTYPE_F16));
        assert_int_equal(forced, strstr(launched, "rn_product_mma_f16") != NULL);
        assert_int_equal(forced, device->caps.own[RN_CUDA_MULTIPROCESSORS] == 0);
        close_device();
    }
    unsetenv("CUDA_FORCE_PTX_JIT");
}

static void a_build_without_sm_90a_takes_hopper_for_an_older_device(void **state) {
    (void)state;
    rn_cuda_images_replace(&without_90a);
    open_device(90, HOPPER);
    assert_ok(multiply(1, RN_DTYPE_F8_B128));
    assert_int_equal(0, device->caps.own[RN_CUDA_MULTIPROCESSORS]);
    assert_ok(multiply(100, RN_DTYPE_F8_B128));
    assert_non_null(strstr(launched, "rn_product_mma_f8"));
    close_device();
    rn_cuda_images_replace(&with_kernels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_any_rows_are_served),
        cmocka_unit_test(a_driver_that_compiles_ptx_is_taken_for_an_older_device),
        cmocka_unit_test(a_build_without_sm_90a_takes_hopper_for_an_older_device),
        cmocka_unit_test(attention_goes_where_shared_memory_lets_it),
        cmocka_unit_test(places_that_the_run_makes_are_appended_to_by_a_launch_of_its_own),
        cmocka_unit_test(what_no_kernel_has_room_for_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
