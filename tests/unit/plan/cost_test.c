// cost_test.c — what the seconds of a call depend on, and what they do not.
#include "plan_fixture.h"

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"

#include <math.h>

// 1 byte/ns of memory, 1 flop/ns, 4 quantised ones; a microsecond a step.
static rn_device_caps caps_of(bool is_gpu) {
    rn_device_caps caps = paper_caps();
    caps.flops = 1e9;
    caps.quantized_flops = 4e9;
    caps.memory_bytes_second = 1e9;
    caps.step_seconds = 1e-6;
    caps.product_rows = 8;
    caps.backend = is_gpu ? &rn_cuda_backend : NULL;
    return caps;
}

static void assert_near(double expected, double seconds) {
    if (fabs(seconds - expected) > 1e-9 * expected)
        fail_msg("%.12g s, not %.12g", seconds, expected);
}

static rn_product_cut told; // how the product is cut; no blocks: not at all
static bool is_told;        // else as the device would

static double seconds_of(const rn_device_caps *caps, const rn_call *call) {
    if (is_told) return rn_cuda_cost_product(caps, call, &told, told.blocks > 0);
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

// How many waits for a launch are in it: all else takes no time here.
static double launches_of(const rn_device_caps *caps, const rn_call *call) {
    rn_device_caps quick = *caps;
    quick.flops = quick.quantized_flops = quick.own[RN_CUDA_ATTEND_FLOPS] =
        quick.memory_bytes_second = 1e30;
    quick.own[RN_CUDA_UNPACK_WEIGHTS] = quick.own[RN_CUDA_UNPACK_BYTES] = 0;
    quick.own[RN_CUDA_ATTEND_SECONDS] = 0;
    quick.step_seconds = 1;
    return floor(seconds_of(&quick, call) + 0.5);
}

// Without those waits.
static double work_of(const rn_device_caps *caps, const rn_call *call) {
    rn_device_caps eager = *caps;
    eager.step_seconds = 0;
    return seconds_of(&eager, call);
}

// ---- the CPU ------------------------------------------------------------------------------------

static void a_product_is_bound_by_arithmetic_or_by_memory(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false), other;
    product p;
    const rn_call *call = make_product(&p, 2, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN);
    caps.flops = 1e6; // the slower one decides; the other may be as fast as it likes
    double slow = work_of(&caps, call);
    other = caps, other.memory_bytes_second *= 2;
    assert_near(slow, work_of(&other, call));
    other = caps, other.flops *= 2;
    assert_near(slow / 2, work_of(&other, call));
    caps.flops = 1e15;
    slow = work_of(&caps, call);
    other = caps, other.flops *= 2;
    assert_near(slow, work_of(&other, call));
    other = caps, other.memory_bytes_second *= 2;
    assert_near(slow / 2, work_of(&other, call));
    assert_near(slow + caps.step_seconds, seconds_of(&caps, call)); // and it has to be begun
}

// They share what is read of the weights.
static void more_rows_take_longer_but_less_each(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    double before = 0;
    for (uint64_t rows = 1; rows <= 64; rows *= 2) {
        double work =
            work_of(&caps, make_product(&p, rows, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN));
        assert_true(work > before);
        assert_true(before == 0 || work < 2 * before);
        before = work;
    }
}

static void quantised_weights_go_to_other_groups_unless_activations_stay(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false), other = caps;
    product p;
    const rn_call *call = make_product(&p, 8, 64, 128, RN_DTYPE_Q8_0, RN_LAYOUT_PLAIN);
    other.quantized_flops *= 2;
    assert_near(work_of(&caps, call) / 2, work_of(&other, call));
    p.attrs.unquantised_activations = true;
    assert_near(work_of(&caps, call), work_of(&other, call));
    other.flops *= 2;
    assert_near(work_of(&caps, call) / 2, work_of(&other, call));
}

// x (K, M): its rows are not the result's.
static void the_rows_of_a_product_are_the_results(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    product p;
    const rn_call *call = make_product(&p, 4, 64, 128, RN_DTYPE_F32, RN_LAYOUT_PLAIN);
    double upright = seconds_of(&caps, call);
    p.attrs.transpose_x = true;
    p.tensors[0].shape = RN_SHAPE(128, 4);
    assert_near(upright, seconds_of(&caps, call));
}

// ---- tiles --------------------------------------------------------------------------------------

// A part of a tile is read as a whole one; a column behind it costs another tile.
static void tiles_are_brought_whole_by_one_launch(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    product p;
    caps.flops = 1e15;
    double part = work_of(&caps, make_product(&p, 1, 64, 100, RN_DTYPE_F16, RN_LAYOUT_TILES));
    double whole = work_of(&caps, make_product(&p, 1, 64, 128, RN_DTYPE_F16, RN_LAYOUT_TILES));
    double next = work_of(&caps, make_product(&p, 1, 64, 129, RN_DTYPE_F16, RN_LAYOUT_TILES));
    assert_true(part < whole && whole < 1.02 * part); // x is shorter
    assert_true(next > 1.9 * whole);
    assert_true(launches_of(&caps, &p.call) == 1);
}

static void more_rows_are_packed_before_and_add_their_arithmetic(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true), other = caps;
    product p;
    other.flops /= 2;
    double alone = 0;
    for (uint64_t rows = 1; rows <= 5; rows += 4) {
        const rn_call *call = make_product(&p, rows, 64, 128, RN_DTYPE_BF16, RN_LAYOUT_TILES);
        double arithmetic = work_of(&other, call) - work_of(&caps, call);
        assert_true(launches_of(&caps, call) == (rows > 1 ? 2 : 1));
        if (alone == 0) alone = arithmetic;
        assert_near((double)rows * alone, arithmetic);
    }
}

// The rate that belongs to a form is heeded where it is slower than memory, those of others never.
static void quantised_tiles_take_as_long_as_unpacking_them(void **state) {
    (void)state;
    static const struct {
        rn_dtype dtype;
        bool by_weights, by_bytes;
    } forms[] = {
        {RN_DTYPE_Q4_0, true, false}, {RN_DTYPE_Q8_0, false, true}, {RN_DTYPE_F16, false, false}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        rn_device_caps caps = caps_of(true);
        product p;
        const rn_call *call = make_product(&p, 1, 64, 128, forms[i].dtype, RN_LAYOUT_TILES);
        double unbound = work_of(&caps, call);
        caps.own[RN_CUDA_UNPACK_WEIGHTS] = caps.own[RN_CUDA_UNPACK_BYTES] =
            1e12; // faster than memory
        assert_near(unbound, work_of(&caps, call));
        caps.own[RN_CUDA_UNPACK_WEIGHTS] = 1e3;
        assert_true((work_of(&caps, call) > 2 * unbound) == forms[i].by_weights);
        caps.own[RN_CUDA_UNPACK_WEIGHTS] = 1e12;
        caps.own[RN_CUDA_UNPACK_BYTES] = 1e3;
        assert_true((work_of(&caps, call) > 2 * unbound) == forms[i].by_bytes);
    }
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
    assert_true(launches_of(&caps, &call) == 1);
    double same = work_of(&caps, &call);
    t[6].dtype = RN_DTYPE_Q8_0; // fewer bytes, quicker weight groups
    assert_true(launches_of(&caps, &call) == 2);
    assert_true(work_of(&caps, &call) < same);
}

// A head that is also the table of embeddings: rows of it are looked up, nothing is multiplied.
static void a_lookup_in_tiles_is_no_product(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true), slow = caps;
    slow.flops = slow.quantized_flops = 1;
    double before = 0;
    for (uint64_t rows = 1024; rows <= 1024 * 1024; rows *= 1024) {
        rn_tensor t[3] = {
            {.dtype = RN_DTYPE_F16, .layout = RN_LAYOUT_TILES, .shape = RN_SHAPE(rows, 128)},
            {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(2)},
            {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(2, 128)}};
        rn_call call = {.op = RN_OP_EMBEDDING,
                        .inputs = t,
                        .outputs = t + 2,
                        .input_count = 2,
                        .output_count = 1};
        assert_near(seconds_of(&caps, &call), seconds_of(&slow, &call));
        assert_true(before == 0 || before == seconds_of(&caps, &call)); // however long the table
        before = seconds_of(&caps, &call);
    }
}

// ---- tiles, many rows ---------------------------------------------------------------------------

static rn_device_caps caps_that_cut(void) {
    rn_device_caps caps = caps_of(true);
    is_told = true;
    caps.own[RN_CUDA_MULTIPROCESSORS] = 10;
    caps.memory_bytes_second = 1e15;
    caps.flops = 1e10;
    caps.quantized_flops = 1e9;
    return caps;
}

static void multiprocessors_take_tiles_in_whole_turns(void **state) {
    (void)state;
    rn_device_caps caps = caps_that_cut();
    product p;
    const rn_call *call = make_product(&p, 128, 1280, 128, RN_DTYPE_F16, RN_LAYOUT_TILES);
    told = (rn_product_cut){10, 128, 128, 128, 1, 1};
    double turn = work_of(&caps, call), once = launches_of(&caps, call);
    told.blocks = 11; // nine have nothing to do in the second turn
    double two = work_of(&caps, call);
    assert_true(two > 1.9 * turn && two < 2.1 * turn);
    double turns = launches_of(&caps, call);
    assert_true(turns > once); // each turn has its wait
    told.blocks = 20;
    assert_near(two, work_of(&caps, call));
    told.together = 2; // they are in one place then, where they share what it can do
    assert_near(two, work_of(&caps, call));
    assert_true(launches_of(&caps, call) < turns);   // in one turn
    told = (rn_product_cut){10, 128, 64, 128, 1, 1}; // half the area, more than half the sides
    assert_true(work_of(&caps, call) > 0.55 * turn && work_of(&caps, call) < 0.95 * turn);
    told.blocks = 0; // few rows: all of it at the rate of the device
    double few = work_of(&caps, call);
    caps.flops *= 2;
    assert_true(work_of(&caps, call) < 0.55 * few);
    is_told = false;
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

static void one_row_attends_in_two_waits_and_joins_chunks_where_there_are_some(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    attention a;
    caps.flops = 1e15;
    assert_true(launches_of(&caps, make_attention(&a, 1, 256)) == 2);
    assert_true(launches_of(&caps, make_attention(&a, 1, 260)) == 3);
    double before = 0;
    for (uint64_t keys = 256; keys <= 4096; keys *= 2) { // pages are most of what is read
        double work = work_of(&caps, make_attention(&a, 1, keys));
        assert_true(before == 0 || (work > 1.8 * before && work < 2.05 * before));
        before = work;
    }
    caps.own[RN_CUDA_ATTEND_SECONDS] = 1; // of many rows
    assert_near(before, work_of(&caps, &a.call));
}

// A row of each of so many sequences: blocks of rows and key heads (2) on 4 multiprocessors, two at
// once on each.
static void a_batch_that_decodes_attends_in_turns(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    attention a;
    caps.flops = caps.memory_bytes_second = 1e30;
    caps.own[RN_CUDA_MULTIPROCESSORS] = 4;
    caps.own[RN_CUDA_ATTEND_SECONDS] = 1; // of many rows of few sequences
    double turn = 0;
    for (uint64_t rows = 4; rows <= 256; rows *= 4) {
        make_attention(&a, rows, 256);
        a.tensors[6].shape = RN_SHAPE(rows, 64);
        double seconds = seconds_of(&caps, &a.call) - 2 * caps.step_seconds;
        if (rows == 16) turn = seconds / 3;
        assert_true(fabs(seconds - (double)(rows / 4 - 1) * turn) < 1e-12);
    }
    assert_true(turn > 0 && turn < 1e-4);
    a.tensors[6].shape = RN_SHAPE(255, 64);
    assert_true(seconds_of(&caps, &a.call) > 1);
}

static void many_rows_attend_at_a_rate_of_their_own_and_take_some_time_at_least(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true), other;
    attention a;
    const rn_call *call = make_attention(&a, 21, 100);
    caps.own[RN_CUDA_ATTEND_FLOPS] = 1e7;
    double work = work_of(&caps, call);
    other = caps, other.flops *= 2; // the rate of products
    assert_near(work, work_of(&other, call));
    other = caps, other.own[RN_CUDA_ATTEND_FLOPS] *= 2;
    assert_near(work / 2, work_of(&other, call));
    caps.own[RN_CUDA_ATTEND_SECONDS] = 5e-6;
    assert_near(work + 5e-6, work_of(&caps, call));
    caps.own[RN_CUDA_ATTEND_FLOPS] = 0; // as products
    caps.flops = 1e7;
    assert_near(work + 5e-6, work_of(&caps, call));
}

static void a_typical_job_does_not_fill_all_pages(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true);
    const rn_workload none = {0};
    rn_workload job = {.rows = 40, .passes = 20};
    attention a;
    caps.own[RN_CUDA_ATTEND_FLOPS] = 1e6;
    caps.step_seconds = 0;
    const rn_call *pass = make_attention(&a, 1, 1000);
    double full = rn_cost_call(&caps, pass, none), typical = rn_cost_call(&caps, pass, job);
    // In the middle of the passes it sees the prompt and half of what is new.
    assert_near(full * (40 + 20 / 2) / 1000, typical);
    a.attrs.attention.window = 10;
    assert_near(full * 10 / 1000, rn_cost_call(&caps, pass, job));
    a.attrs.attention.window = 0;
    job.rows = 100000; // more than there is room for
    assert_near(full, rn_cost_call(&caps, pass, job));
    caps.own[RN_CUDA_ATTEND_FLOPS] = 1e15;
    job.rows = 40; // and only pages with keys are read
    assert_true(rn_cost_call(&caps, pass, job) < 0.2 * rn_cost_call(&caps, pass, none));
    caps.own[RN_CUDA_ATTEND_FLOPS] = 1e6;
    const rn_call *prompt = make_attention(&a, 21, 1000);
    assert_true(rn_cost_call(&caps, prompt, job) < 0.1 * rn_cost_call(&caps, prompt, none));
}

// It is unfolded there, and counts as it always did.
static void attention_on_a_cpu_knows_no_job(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(false);
    attention a;
    const rn_call *call = make_attention(&a, 1, 1000);
    caps.own[RN_CUDA_ATTEND_FLOPS] = 1;
    caps.own[RN_CUDA_ATTEND_SECONDS] = 1;
    assert_true(rn_cost_call(&caps, call, (rn_workload){40, 20}) == seconds_of(&caps, call));
    assert_true(seconds_of(&caps, call) < 1);
}

// ---- the host's part ----------------------------------------------------------------------------

static void a_run_costs_the_host_something_where_the_device_says_so(void **state) {
    (void)state;
    rn_device_caps caps = caps_of(true), other;
    caps.link_bytes_second = 2e9;
    assert_true(rn_cost_outputs(&caps, 1000) == 0);
    caps.run_seconds = 1e-5;
    assert_near(1e-5, rn_cost_outputs(&caps, 0));
    double before = rn_cost_outputs(&caps, 1000);
    other = caps, other.link_bytes_second /= 2;
    assert_true(before > 1e-5 && rn_cost_outputs(&other, 1000) > before);
    assert_near(2 * (before - 1e-5), rn_cost_outputs(&caps, 2000) - 1e-5);
}

// Seconds of attention over (1, tokens, 4 heads, 64) and of its gradients.
static double attention_seconds(uint64_t tokens, rn_dtype dtype, bool backward, double *launches) {
    rn_shape q = RN_SHAPE(1, tokens, 4, 64);
    rn_attention_attrs attrs = {.causal = true};
    rn_device_caps caps = caps_of(true);
    rn_tensor tensors[10];
    for (int i = 0; i < 10; i++)
        tensors[i] = (rn_tensor){.dtype = dtype, .shape = q};
    tensors[3] = (rn_tensor){0};
    tensors[5] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, 4, tokens)};
    rn_call call = {.op = backward ? RN_OP_ATTENTION_GRAD : RN_OP_ATTENTION,
                    .attrs = &attrs,
                    .inputs = tensors,
                    .outputs = tensors + (backward ? 7 : 4),
                    .input_count = backward ? 7 : 4,
                    .output_count = backward ? 3 : 2};
    *launches = launches_of(&caps, &call);
    return work_of(&caps, &call);
}

static void attention_of_16_bits_is_for_the_matrix_units(void **state) {
    (void)state;
    double one, three, half = attention_seconds(4096, RN_DTYPE_BF16, false, &one);
    double half_back = attention_seconds(4096, RN_DTYPE_BF16, true, &three), ignored;
    assert_near(1, one);
    assert_near(3, three);
    assert_true(half_back > half);
    assert_true(attention_seconds(4096, RN_DTYPE_F32, false, &ignored) > 10 * half);
    assert_true(attention_seconds(4096, RN_DTYPE_F32, true, &ignored) > 10 * half_back);
    assert_true(attention_seconds(8192, RN_DTYPE_BF16, false, &ignored) > 3 * half); // by squares
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_bound_by_arithmetic_or_by_memory),
        cmocka_unit_test(more_rows_take_longer_but_less_each),
        cmocka_unit_test(quantised_weights_go_to_other_groups_unless_activations_stay),
        cmocka_unit_test(the_rows_of_a_product_are_the_results),
        cmocka_unit_test(tiles_are_brought_whole_by_one_launch),
        cmocka_unit_test(more_rows_are_packed_before_and_add_their_arithmetic),
        cmocka_unit_test(quantised_tiles_take_as_long_as_unpacking_them),
        cmocka_unit_test(three_weights_of_one_form_are_one_launch),
        cmocka_unit_test(a_lookup_in_tiles_is_no_product),
        cmocka_unit_test(multiprocessors_take_tiles_in_whole_turns),
        cmocka_unit_test(one_row_attends_in_two_waits_and_joins_chunks_where_there_are_some),
        cmocka_unit_test(a_batch_that_decodes_attends_in_turns),
        cmocka_unit_test(many_rows_attend_at_a_rate_of_their_own_and_take_some_time_at_least),
        cmocka_unit_test(attention_of_16_bits_is_for_the_matrix_units),
        cmocka_unit_test(a_typical_job_does_not_fill_all_pages),
        cmocka_unit_test(attention_on_a_cpu_knows_no_job),
        cmocka_unit_test(a_run_costs_the_host_something_where_the_device_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
