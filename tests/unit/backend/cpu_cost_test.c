// cpu_cost_test.c — what plans for the CPU expect of products: every kind of weight is known, and
// what the seconds depend on.
#include "support.h"

#include "../tensor/levels.h"
#include "backend/cpu/cpu.h"
#include "graph/quantized_product.h"
#include "tensor/panels.h"

enum { N = 512, K = 1024 };

// Of y (rows, N) = x (rows, K) wT.
static double seconds_of(const rn_device_caps *caps, rn_dtype dtype, uint64_t rows) {
    rn_matmul_attrs attrs = {0};
    rn_tensor in[3] = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, K)},
                       {.dtype = dtype, .layout = RN_LAYOUT_PANELS, .shape = RN_SHAPE(N, K)}};
    rn_tensor out = {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, N)};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1,
                    .threads = 1};
    return rn_cost_call(caps, &call, (rn_workload){0});
}

static rn_device_caps paper_caps(void) {
    rn_device_caps caps = *rn_cpu_caps();
    caps.flops = 50e9;
    caps.quantized_flops = 200e9;
    caps.memory_bytes_second = 1e18;
    caps.step_seconds = 0;
    return caps;
}

// A kind without a row in the table would be counted as if its bits cost nothing to cut.
static void every_kind_of_panels_is_known(void **unused) {
    (void)unused;
    rn_device_caps caps = paper_caps();
    caps.product_rows = 1e9; // what the common rates count with alone
    for_each_level(level) for (int d = 0; d < RN_DTYPE_COUNT; d++) {
        uint64_t bytes;
        if (!rn_panels_bytes((rn_dtype)d, N, K, &bytes)) continue;
        if (!(seconds_of(&caps, (rn_dtype)d, 1) < 1e-3))
            fail_msg("%s, %s: %g s", rn_dtype_get((rn_dtype)d)->name, rn_cpu_level_name(level),
                     seconds_of(&caps, (rn_dtype)d, 1));
    }
}

// Of bytes, which are multiplied as bytes: in less time than f32, and more rows in more.
static void products_of_bytes_are_counted_as_such(void **unused) {
    (void)unused;
    rn_device_caps caps = paper_caps();
    caps.memory_bytes_second = 1e12; // only to be finite: no weight of these waits for it
    for_each_level(level) for (uint64_t rows = 32; rows <= 1024; rows *= 2) {
        double seconds[2];
        for (uint64_t i = 0; i < 2; i++) {
            rn_tensor in[4] = {{.dtype = RN_DTYPE_U8, .shape = RN_SHAPE(rows << i, K)},
                               {.dtype = RN_DTYPE_I8, .shape = RN_SHAPE(K, N)}};
            rn_tensor out = {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(rows << i, N)};
            rn_call call = {.op = RN_OP_PRODUCT,
                            .inputs = in,
                            .outputs = &out,
                            .input_count = 4,
                            .output_count = 1,
                            .threads = 1};
            seconds[i] = rn_cost_call(&caps, &call, (rn_workload){0});
        }
        assert_true(seconds[1] > seconds[0] && seconds[1] < 2.5 * seconds[0]);
        assert_true(seconds[0] < seconds_of(&caps, RN_DTYPE_F32, rows));
    }
}

static void more_rows_take_longer_but_not_much_more_each(void **unused) {
    (void)unused;
    rn_device_caps caps = paper_caps();
    for_each_level(level) for (int d = 0; d < RN_DTYPE_COUNT; d++) {
        uint64_t bytes;
        if (!rn_panels_bytes((rn_dtype)d, N, K, &bytes)) continue;
        double before = seconds_of(&caps, (rn_dtype)d, 1);
        for (uint64_t rows = 2; rows <= 1024; rows *= 2) {
            double seconds = seconds_of(&caps, (rn_dtype)d, rows);
            assert_true(seconds > before && seconds < 2.5 * before);
            before = seconds;
        }
    }
}

static void slow_memory_is_what_one_row_waits_for(void **unused) {
    (void)unused;
    rn_device_caps caps = paper_caps();
    caps.memory_bytes_second = 1e6;
    double fp = seconds_of(&caps, RN_DTYPE_F16, 1), q8 = seconds_of(&caps, RN_DTYPE_Q8_0, 1);
    double q4 = seconds_of(&caps, RN_DTYPE_Q4_1, 1), q2 = seconds_of(&caps, RN_DTYPE_Q2_K, 1);
    assert_true(fp > 1.8 * q8 && q8 > 1.6 * q4 && q4 > 1.8 * q2);
}

static double conv_seconds(const rn_device_caps *caps, uint64_t images, uint64_t size) {
    rn_conv2d_attrs attrs = {1, 1, 1, 1, 1, 1};
    rn_tensor in[3] = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(images, size, size, 128)},
                       {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(128, 128, 3, 3)}};
    rn_tensor out = {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(images, size, size, 128)};
    rn_call call = {.op = RN_OP_CONV2D,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1,
                    .threads = 1};
    return rn_cost_call(caps, &call, (rn_workload){0});
}

// Weights are transformed once for all images; small ones are not worth it.
static void squares_of_a_large_image_are_counted_as_fewer_products(void **unused) {
    (void)unused;
    rn_device_caps caps = paper_caps();
    double pixel = 2.0 * 9 * 128 * 128 / caps.flops;
    assert_float_equal(conv_seconds(&caps, 1, 7) / (49 * pixel), 1, 1e-6);
    double one = conv_seconds(&caps, 1, 28) / (28 * 28 * pixel);
    double eight = conv_seconds(&caps, 8, 28) / (8 * 28 * 28 * pixel);
    assert_true(one > 0.25 && one < 0.5);
    assert_true(eight > 0.25 && eight < one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_bytes_are_counted_as_such),
        cmocka_unit_test(every_kind_of_panels_is_known),
        cmocka_unit_test(more_rows_take_longer_but_not_much_more_each),
        cmocka_unit_test(squares_of_a_large_image_are_counted_as_fewer_products),
        cmocka_unit_test(slow_memory_is_what_one_row_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
