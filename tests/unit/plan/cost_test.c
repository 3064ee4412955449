// cost_test.c — seconds of a call, from rates that make them easy to count.
#include "plan_fixture.h"

#include <math.h>

// 1 byte/ns of memory, 1 flop/ns, 4 quantised ones; a microsecond a step.
static rn_device_caps caps_of(bool fuses) {
    rn_device_caps caps = paper_caps();
    caps.flops = 1e9;
    caps.quantized_flops = 4e9;
    caps.memory_bytes_second = 1e9;
    caps.step_seconds = 1e-6;
    caps.product_rows = 8;
    caps.fuses = fuses;
    return caps;
}

static void assert_near(double expected, double seconds) {
    if (fabs(seconds - expected) > 1e-9 * expected)
        fail_msg("%.12g s, not %.12g", seconds, expected);
}

// y (rows, n) = x (rows, k) wT
typedef struct product {
    rn_tensor tensors[4];
    rn_matmul_attrs attrs;
    rn_call call;
} product;

static const rn_call *make_product(product *p, uint64_t rows, uint64_t n, uint64_t k,
                                   rn_dtype dtype, rn_layout layout) {
    *p = (product){0};
    p->tensors[0] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, k)};
    p->tensors[1] = (rn_tensor){.dtype = dtype, .layout = layout, .shape = RN_SHAPE(n, k)};
    p->tensors[3] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, n)};
    p->call = (rn_call){.op = RN_OP_MATMUL,
                        .attrs = &p->attrs,
                        .inputs = p->tensors,
                        .outputs = p->tensors + 3,
                        .input_count = 3,
                        .output_count = 1};
    return &p->call;
}

// ---- the CPU ------------------------------------------------------------------------------------

static void a_product_is_bound_by_arithmetic_or_by_memory(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 2, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN);
    double flops = 2.0 * 2 * 64 * 128, bytes = 4.0 * (2 * 128 + 64 * 128 + 2 * 64);
    assert_true(rn_cost_call(&caps, call) == flops / 1e9 * (1 + 8.0 / 2) + 1e-6);
    caps.flops = 1e15;
    assert_true(rn_cost_call(&caps, call) == bytes / 1e9 + 1e-6);
}

static void quantised_weights_go_to_other_units_unless_activations_stay(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 8, 64, 128, RN_DTYPE_Q8_0, RN_LAYOUT_PLAIN);
    double flops = 2.0 * 8 * 64 * 128;
    assert_true(rn_cost_call(&caps, call) == flops / 4e9 * 2 + 1e-6);
    p.attrs.plain_activations = true;
    assert_true(rn_cost_call(&caps, call) == flops / 1e9 * 2 + 1e-6);
}

// x (K, M): its rows are not the result's.
static void the_rows_of_a_product_are_the_results(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 4, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN);
    p.attrs.transpose_x = true;
    p.tensors[0].shape = RN_SHAPE(128, 4);
    assert_true(rn_cost_call(&caps, call) == 2.0 * 4 * 64 * 128 / 1e9 * 3 + 1e-6);
}

// ---- tiles --------------------------------------------------------------------------------------

static void one_row_brings_tiles_and_costs_one_launch(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 1, 60, 100, RN_DTYPE_F16, RN_LAYOUT_TILES);
    double tiles = 4 * 4096, rest = 4 * (100 + 60); // 64 rows of 128 columns
    assert_near((tiles + rest + 2 * 60 * 100) / 1e9 + 1e-6, rn_cost_call(&caps, call));
}

static void more_rows_are_packed_before_and_add_their_arithmetic(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 5, 64, 128, RN_DTYPE_BF16, RN_LAYOUT_TILES);
    double tiles = 4 * 4096, rest = 4 * 5 * (128 + 64);
    assert_near((tiles + rest + 5 * 2 * 64 * 128) / 1e9 + 2e-6, rn_cost_call(&caps, call));
}

static void quantised_tiles_take_as_long_as_unpacking_them(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 1, 64, 128, RN_DTYPE_Q4_0, RN_LAYOUT_TILES);
    double weights = 64 * 128, tiles = 4 * 1152, rest = 4 * (128 + 64);
    double arithmetic = 2 * weights / 4e9;
    assert_near((tiles + rest) / 1e9 + arithmetic + 1e-6, rn_cost_call(&caps, call));
    caps.unpack_weights_second = 1e12; // faster than memory
    assert_near((tiles + rest) / 1e9 + arithmetic + 1e-6, rn_cost_call(&caps, call));
    caps.unpack_weights_second = 1e9;
    assert_near((weights + rest) / 1e9 + arithmetic + 1e-6, rn_cost_call(&caps, call));
    // q6_k is 16 bits wide there: nothing to unpack.
    call = make_product(&p, 1, 16, 256, RN_DTYPE_Q6_K, RN_LAYOUT_TILES);
    caps.unpack_weights_second = 1;
    assert_near((2 * 4096 + 4 * (256 + 16) + 2 * 16 * 256) / 1e9 + 1e-6, rn_cost_call(&caps, call));
}

// Queries, keys and values: one launch for each form.
static void three_weights_of_one_form_are_one_launch(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    rn_project_attrs attrs = {.eps = 1e-5f};
    rn_tensor none = {.dtype = RN_DTYPE_NONE}, t[11];
    rn_call call = {.op = RN_OP_PROJECT_THREE,
                    .attrs = &attrs,
                    .inputs = t,
                    .outputs = t + 8,
                    .input_count = 8,
                    .output_count = 3};
    t[0] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 128)};
    t[1] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(128)};
    for (int i = 0; i < 3; i++) {
        t[2 + 2 * i] = (rn_tensor){
            .dtype = RN_DTYPE_F16, .layout = RN_LAYOUT_TILES, .shape = RN_SHAPE(16, 128)};
        t[3 + 2 * i] = none;
        t[8 + i] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 16)};
    }
    double rest = 4 * (2 * 128 + 3 * 16), tile = 4096 + 2 * 16 * 128;
    assert_near((3 * tile + rest) / 1e9 + 1e-6, rn_cost_call(&caps, &call));
    t[6].dtype = RN_DTYPE_Q8_0;
    double other = 2176 + 2 * 16 * 128 / 4.0;
    assert_near((2 * tile + other + rest) / 1e9 + 2e-6, rn_cost_call(&caps, &call));
}

// ---- attention ----------------------------------------------------------------------------------

static void attention_of_its_own_is_three_launches(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true), unfused = caps_of(false);
    rn_attend_attrs attrs = {0};
    rn_tensor t[9] = {
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 4, 8)},       // q
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 2, 8)},       // k
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 2, 8)},       // v
        {.dtype = RN_DTYPE_F16, .shape = RN_SHAPE(3, 2, 2, 4, 8)}, // pages
        {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(1)},             // sequence
        {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(1)},             // position
        {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(1, 3)},          // page table
        {.dtype = RN_DTYPE_F16, .shape = RN_SHAPE(3, 2, 2, 4, 8)},
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 4, 8)},
    };
    rn_call call = {.op = RN_OP_ATTEND,
                    .attrs = &attrs,
                    .inputs = t,
                    .outputs = t + 7,
                    .input_count = 7,
                    .output_count = 2};
    assert_near(rn_cost_call(&unfused, &call) + 2e-6, rn_cost_call(&caps, &call));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_bound_by_arithmetic_or_by_memory),
        cmocka_unit_test(quantised_weights_go_to_other_units_unless_activations_stay),
        cmocka_unit_test(the_rows_of_a_product_are_the_results),
        cmocka_unit_test(one_row_brings_tiles_and_costs_one_launch),
        cmocka_unit_test(more_rows_are_packed_before_and_add_their_arithmetic),
        cmocka_unit_test(quantised_tiles_take_as_long_as_unpacking_them),
        cmocka_unit_test(three_weights_of_one_form_are_one_launch),
        cmocka_unit_test(attention_of_its_own_is_three_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
