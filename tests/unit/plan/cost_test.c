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

static double seconds_of(const rn_device_caps *caps, const rn_call *call) {
    return rn_cost_call(caps, call, (rn_workload){0});
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
    assert_true(seconds_of(&caps, call) == flops / 1e9 * (1 + 8.0 / 2) + 1e-6);
    caps.flops = 1e15;
    assert_true(seconds_of(&caps, call) == bytes / 1e9 + 1e-6);
}

static void quantised_weights_go_to_other_units_unless_activations_stay(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 8, 64, 128, RN_DTYPE_Q8_0, RN_LAYOUT_PLAIN);
    double flops = 2.0 * 8 * 64 * 128;
    assert_true(seconds_of(&caps, call) == flops / 4e9 * 2 + 1e-6);
    p.attrs.plain_activations = true;
    assert_true(seconds_of(&caps, call) == flops / 1e9 * 2 + 1e-6);
}

// x (K, M): its rows are not the result's.
static void the_rows_of_a_product_are_the_results(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 4, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN);
    p.attrs.transpose_x = true;
    p.tensors[0].shape = RN_SHAPE(128, 4);
    assert_true(seconds_of(&caps, call) == 2.0 * 4 * 64 * 128 / 1e9 * 3 + 1e-6);
}

// ---- tiles --------------------------------------------------------------------------------------

static void one_row_brings_tiles_and_costs_one_launch(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 1, 60, 100, RN_DTYPE_F16, RN_LAYOUT_TILES);
    double tiles = 4 * 4096, rest = 4 * (100 + 60); // 64 rows of 128 columns
    assert_near((tiles + rest + 2 * 60 * 100) / 1e9 + 1e-6, seconds_of(&caps, call));
}

static void more_rows_are_packed_before_and_add_their_arithmetic(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 5, 64, 128, RN_DTYPE_BF16, RN_LAYOUT_TILES);
    double tiles = 4 * 4096, rest = 4 * 5 * (128 + 64);
    assert_near((tiles + rest + 5 * 2 * 64 * 128) / 1e9 + 2e-6, seconds_of(&caps, call));
}

static void quantised_tiles_take_as_long_as_unpacking_them(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 1, 64, 128, RN_DTYPE_Q4_0, RN_LAYOUT_TILES);
    double weights = 64 * 128, tiles = 4 * 1152, rest = 4 * (128 + 64);
    double arithmetic = 2 * weights / 4e9;
    assert_near((tiles + rest) / 1e9 + arithmetic + 1e-6, seconds_of(&caps, call));
    caps.unpack_weights_second = 1e12; // faster than memory
    assert_near((tiles + rest) / 1e9 + arithmetic + 1e-6, seconds_of(&caps, call));
    caps.unpack_weights_second = 1e9;
    assert_near((weights + rest) / 1e9 + arithmetic + 1e-6, seconds_of(&caps, call));
    // 16 bits: nothing to unpack.
    call = make_product(&p, 1, 16, 256, RN_DTYPE_F16, RN_LAYOUT_TILES);
    caps.unpack_weights_second = 1;
    assert_near((2 * 4096 + 4 * (256 + 16) + 2 * 16 * 256) / 1e9 + 1e-6, seconds_of(&caps, call));
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
    assert_near((3 * tile + rest) / 1e9 + 1e-6, seconds_of(&caps, &call));
    t[6].dtype = RN_DTYPE_Q8_0;
    double other = 2176 + 2 * 16 * 128 / 4.0;
    assert_near((2 * tile + other + rest) / 1e9 + 2e-6, seconds_of(&caps, &call));
}

// Each has a rate of its own.
static void weights_of_eight_bits_are_unpacked_at_another_rate(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    const rn_call *call = make_product(&p, 1, 64, 128, RN_DTYPE_Q8_0, RN_LAYOUT_TILES);
    double weights = 64 * 128, rest = 4 * (128 + 64), arithmetic = 2 * weights / 4e9;
    caps.unpack_weights_second = 1; // of four bits
    caps.unpack_bytes_second = 0.5e9;
    assert_near(weights / 0.5e9 + rest / 1e9 + arithmetic + 1e-6, seconds_of(&caps, call));
    call = make_product(&p, 1, 64, 128, RN_DTYPE_Q4_0, RN_LAYOUT_TILES);
    caps.unpack_weights_second = 0.25e9;
    caps.unpack_bytes_second = 1;
    assert_near(weights / 0.25e9 + rest / 1e9 + arithmetic + 1e-6, seconds_of(&caps, call));
}

// A head that is also the table of embeddings: rows of it are looked up, nothing is multiplied.
static void a_lookup_in_tiles_is_no_product(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    rn_tensor t[3] = {
        {.dtype = RN_DTYPE_F16, .layout = RN_LAYOUT_TILES, .shape = RN_SHAPE(1024, 128)},
        {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(2)},
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(2, 128)}};
    rn_call call = {
        .op = RN_OP_EMBEDDING, .inputs = t, .outputs = t + 2, .input_count = 2, .output_count = 1};
    assert_near((2 * 4 + 2 * 128 * 2 + 2 * 128 * 4) / 1e9 + 1e-6, seconds_of(&caps, &call));
}

// ---- tiles, many rows ---------------------------------------------------------------------------

static rn_product_cut told; // what the device says; no blocks: nothing

static uint32_t tell_cut(const rn_call *call, uint32_t multiprocessors, rn_product_cut *out) {
    (void)call;
    assert_int_equal(10, multiprocessors);
    *out = told;
    return told.blocks > 0;
}

// Ten multiprocessors that make a tile of 128 x 128 x 128 in 4.194304 ms each: one flop/ns.
static rn_device_caps caps_that_cut(void) {
    rn_device_caps caps = caps_of(true);
    caps.multiprocessors = 10;
    caps.cut_product = tell_cut;
    caps.flops = 1e10;
    caps.quantized_flops = 1e9;
    return caps;
}

#define TILE (2 * 128 * 128 * 128 / 1e9)

static void multiprocessors_take_tiles_in_whole_turns(void **state) {
    (void)state;
    rn_device_caps caps = caps_that_cut();
    product p;
    const rn_call *call = make_product(&p, 128, 1280, 128, RN_DTYPE_F16, RN_LAYOUT_TILES);
    told = (rn_product_cut){10, 128, 128, 128, 1, 1, 0};
    // x is packed by a launch of its own; what comes out is written.
    double pack = 2e-6 + 1.5 * 4 * 128 * 128 / 1e9, y = 4 * 128 * 1280 / 1e9;
    assert_near(pack + y + TILE + 3e-6, seconds_of(&caps, call));
    told.blocks = 11; // nine have nothing to do in the second turn
    assert_near(pack + y + 2 * TILE + 5e-6, seconds_of(&caps, call));
    told.together = 2; // they are in one place then, where they share what it can do
    assert_near(pack + y + 2 * TILE + 3e-6, seconds_of(&caps, call));
    told =
        (rn_product_cut){10, 128, 64, 128, 1, 1, 0}; // half the area, three quarters of the sides
    assert_near(pack + y + 0.75 * TILE + 3e-6, seconds_of(&caps, call));
    told.blocks = 0; // few rows
    double tiles = 2 * 1280 * 128, rest = 4 * 128 * (128 + 1280);
    assert_near((tiles + rest) / 1e9 + 2.0 * 128 * 1280 * 128 / 1e10 + 2e-6,
                seconds_of(&caps, call));
}

static void sums_of_parts_are_written_and_joined(void **state) {
    (void)state;
    rn_device_caps caps = caps_that_cut();
    product p;
    const rn_call *call = make_product(&p, 128, 640, 256, RN_DTYPE_Q8_0, RN_LAYOUT_TILES);
    caps.quantized_flops = 1e13; // memory is slower
    told = (rn_product_cut){10, 128, 128, 128, 1, 1, 5000};
    double tiles = 640 * 256 / 16.0 / 128 * 2176, rest = 4 * 128 * (1.5 * 256 + 640);
    assert_near((tiles + rest + 2 * 5000) / 1e9 + (2 + 3 + 1) * 1e-6, seconds_of(&caps, call));
    caps.quantized_flops = 1e9;
    assert_near((rest + 2 * 5000) / 1e9 + 10 * TILE + 6e-6, seconds_of(&caps, call));
}

// ---- attention ----------------------------------------------------------------------------------

// One sequence with room for `keys` in pages of 4: 4 heads of 8, two of them share keys.
typedef struct attention {
    rn_tensor tensors[9];
    rn_attend_attrs attrs;
    rn_call call;
} attention;

static const rn_call *make_attention(attention *a, uint64_t rows, uint64_t keys) {
    rn_shape q = RN_SHAPE(rows, 4, 8), k = RN_SHAPE(rows, 2, 8),
             kv = RN_SHAPE(keys / 4, 2, 2, 4, 8);
    *a = (attention){.tensors = {{.dtype = RN_DTYPE_F32, .shape = q},
                                 {.dtype = RN_DTYPE_F32, .shape = k},
                                 {.dtype = RN_DTYPE_F32, .shape = k},
                                 {.dtype = RN_DTYPE_F16, .shape = kv},
                                 {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(rows)},
                                 {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(rows)},
                                 {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(1, keys / 4)},
                                 {.dtype = RN_DTYPE_F16, .shape = kv},
                                 {.dtype = RN_DTYPE_F32, .shape = q}}};
    a->call = (rn_call){.op = RN_OP_ATTEND,
                        .attrs = &a->attrs,
                        .inputs = a->tensors,
                        .outputs = a->tensors + 7,
                        .input_count = 7,
                        .output_count = 2};
    return &a->call;
}

// All but the pages: q and the result, k and v and what of them is written, numbers.
static double bytes_beside_pages(double rows, double keys) {
    return rows * (2 * 4 * 32 + 2 * 4 * 16 + 2 * 2 * 16 + 2 * 4) + keys / 4 * 4;
}

static void one_row_attends_in_two_waits_and_joins_chunks_where_there_are_some(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    attention a;
    caps.flops = 1e15;
    caps.attend_seconds = 1; // of many rows
    double page_bytes = 2 * 2 * 8 * 2;
    assert_near((bytes_beside_pages(1, 256) + 256 * page_bytes) / 1e9 + 2e-6,
                seconds_of(&caps, make_attention(&a, 1, 256)));
    assert_near((bytes_beside_pages(1, 260) + 260 * page_bytes) / 1e9 + 3e-6,
                seconds_of(&caps, make_attention(&a, 1, 260)));
}

static void many_rows_attend_at_a_rate_of_their_own_and_take_some_time_at_least(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    attention a;
    const rn_call *call = make_attention(&a, 21, 100);
    caps.attend_flops = 1e7;
    caps.attend_seconds = 5e-6;
    // As if it were full, and the rows its last ones: they see 90 keys, in the middle.
    assert_near(4.0 * 21 * 32 * 90 / 1e7 + 2e-6 + 5e-6, seconds_of(&caps, call));
    caps.attend_flops = 0; // as products
    caps.flops = 1e6;
    assert_near(4.0 * 21 * 32 * 90 / 1e6 + 2e-6 + 5e-6, seconds_of(&caps, call));
}

static void a_typical_job_does_not_fill_all_pages(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    rn_workload job = {.rows = 40, .passes = 20};
    attention a;
    caps.attend_flops = 1e6;
    const rn_call *prompt = make_attention(&a, 21, 1000);
    assert_near(4.0 * 21 * 32 * 20 / 1e6 + 2e-6, rn_cost_call(&caps, prompt, job));
    const rn_call *pass = make_attention(&a, 1, 1000);
    assert_near(4.0 * 32 * 50 / 1e6 + 3e-6, rn_cost_call(&caps, pass, job));
    a.attrs.attention.window = 10;
    assert_near(4.0 * 32 * 10 / 1e6 + 3e-6, rn_cost_call(&caps, pass, job));
    a.attrs.attention.window = 0;
    job.rows = 100000; // more than there is room for
    assert_near(4.0 * 32 * 1000 / 1e6 + 3e-6, rn_cost_call(&caps, pass, job));
    caps.attend_flops = 1e15;
    job.rows = 40; // and only pages with keys are read
    assert_near((bytes_beside_pages(1, 1000) + 50 * 64) / 1e9 + 3e-6,
                rn_cost_call(&caps, pass, job));
}

// It is unfolded there, and counts as it always did.
static void attention_on_a_cpu_knows_no_job(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    attention a;
    const rn_call *call = make_attention(&a, 1, 1000);
    caps.attend_flops = 1;
    caps.attend_seconds = 1;
    assert_true(rn_cost_call(&caps, call, (rn_workload){40, 20}) == seconds_of(&caps, call));
    assert_true(seconds_of(&caps, call) < 1);
}

// ---- the host's part ----------------------------------------------------------------------------

static void a_run_costs_the_host_something_where_the_device_says_so(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    caps.link_bytes_second = 2e9;
    assert_true(rn_cost_outputs(&caps, 1000) == 0);
    caps.run_seconds = 1e-5;
    assert_near(1e-5, rn_cost_outputs(&caps, 0));
    assert_near(1e-5 + 1000 / 2e9 + 1000 / 19e9, rn_cost_outputs(&caps, 1000));
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
        cmocka_unit_test(weights_of_eight_bits_are_unpacked_at_another_rate),
        cmocka_unit_test(a_lookup_in_tiles_is_no_product),
        cmocka_unit_test(multiprocessors_take_tiles_in_whole_turns),
        cmocka_unit_test(sums_of_parts_are_written_and_joined),
        cmocka_unit_test(one_row_attends_in_two_waits_and_joins_chunks_where_there_are_some),
        cmocka_unit_test(many_rows_attend_at_a_rate_of_their_own_and_take_some_time_at_least),
        cmocka_unit_test(a_typical_job_does_not_fill_all_pages),
        cmocka_unit_test(attention_on_a_cpu_knows_no_job),
        cmocka_unit_test(a_run_costs_the_host_something_where_the_device_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
