// cuda_cut_test.c — what the planner is told of products of many rows: how they are cut into tiles,
// and that times which follow from it are those that were measured.
#include "support.h"

#include "backend/cuda/kernels/product_many.h"
#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/rows.h"
#include "plan/planner.h"

enum { MULTIPROCESSORS = 132 };

// PROJECT (count 1), PROJECT_GATED (2) or PROJECT_THREE (3): x (rows, k) by weights (n[i], k).
typedef struct product {
    rn_tensor tensors[11];
    rn_project_attrs attrs;
    rn_call call;
} product;

static rn_tensor matrix(rn_dtype dtype, rn_layout layout, uint64_t rows, uint64_t cols) {
    return (rn_tensor){.dtype = dtype, .layout = layout, .shape = RN_SHAPE(rows, cols)};
}

static const rn_call *make(product *p, uint32_t count, uint64_t rows, uint64_t k,
                           const uint64_t *n /* (count) */, rn_dtype dtype) {
    static const rn_op ops[] = {RN_OP_PROJECT, RN_OP_PROJECT_GATED, RN_OP_PROJECT_THREE};
    uint32_t inputs = count == 1 ? 5 : 2 + 2 * count, outputs = count == 3 ? 3 : 1;
    *p = (product){.attrs = {.eps = 1e-5f}};
    rn_tensor *t = p->tensors;
    t[0] = matrix(RN_DTYPE_F32, RN_LAYOUT_PLAIN, rows, k);
    if (count > 1) t[1] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(k)};
    for (uint32_t i = 0; i < count; i++)
        t[2 + 2 * i] = matrix(dtype, RN_LAYOUT_TILES, n[i], k);
    if (count == 1) t[4] = matrix(RN_DTYPE_F32, RN_LAYOUT_PLAIN, rows, n[0]);
    for (uint32_t i = 0; i < outputs; i++)
        t[inputs + i] = matrix(RN_DTYPE_F32, RN_LAYOUT_PLAIN, rows, n[i]);
    p->call = (rn_call){.op = ops[count - 1],
                        .attrs = &p->attrs,
                        .inputs = t,
                        .outputs = t + inputs,
                        .input_count = inputs,
                        .output_count = outputs};
    return &p->call;
}

// ---- how ----------------------------------------------------------------------------------------

static uint64_t round_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

// There is a block for each tile of outputs and each share of columns, and few that have nothing to
// do.
static rn_product_cut check_cut(uint32_t count, uint64_t rows, uint64_t k, const uint64_t *n,
                                rn_dtype dtype) {
    product p;
    rn_product_cut cuts[RN_PRODUCT_CUTS];
    uint64_t outputs = 0;
    for (uint32_t i = 0; i < count; i++)
        outputs += n[i];
    const rn_call *call = make(&p, count, rows, k, n, dtype);
    assert_int_equal(1, rn_cuda_cut_product(call, MULTIPROCESSORS, cuts));
    rn_product_cut cut = cuts[0];
    assert_int_equal(count, cut.weights);
    assert_true(cut.together >= 1 && cut.columns >= 1 && cut.columns <= k);
    uint64_t needed =
        round_up(outputs, cut.rows) * round_up(rows, cut.tokens) * round_up(k, cut.columns);
    assert_in_range(cut.blocks, needed, 3 * needed / 2); // they may come in pairs
    return cut;
}

static void blocks_cover_the_product(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_Q4_0};
    const uint64_t n[] = {4096, 1024, 1024}, wide[] = {14336, 14336}, narrow[] = {2048};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (uint64_t rows = 32; rows <= 1024; rows *= 2) {
            check_cut(3, rows, 4096, n, dtypes[i]);
            check_cut(2, rows, 4096, wide, dtypes[i]);
            check_cut(1, rows, 2048, narrow, dtypes[i]);
            check_cut(1, rows, 14336, n, dtypes[i]);
        }
}

// Where there are too few outputs for all multiprocessors, columns are cut, too.
static void some_rows_leave_few_multiprocessors_without_work(void **state) {
    (void)state;
    const uint64_t n[] = {4096};
    for (uint64_t rows = 17; rows <= 512; rows += 37) {
        rn_product_cut cut = check_cut(1, rows, 4096, n, RN_DTYPE_F16);
        assert_true(cut.blocks / cut.together > MULTIPROCESSORS * 2 / 3);
    }
    assert_true(check_cut(1, 60, 4096, n, RN_DTYPE_F16).columns < 4096);
    assert_int_equal(4096, check_cut(1, 1024, 4096, n, RN_DTYPE_F16).columns);
}

static void weights_of_two_forms_are_two_launches(void **state) {
    (void)state;
    product p;
    rn_product_cut cuts[RN_PRODUCT_CUTS];
    const uint64_t n[] = {4096, 1024, 1024};
    const rn_call *call = make(&p, 3, 512, 4096, n, RN_DTYPE_Q4_0);
    p.tensors[6].dtype = RN_DTYPE_Q8_0;
    assert_int_equal(2, rn_cuda_cut_product(call, MULTIPROCESSORS, cuts));
    assert_int_equal(2, cuts[0].weights);
    assert_int_equal(1, cuts[1].weights);
}

static void few_rows_and_plain_weights_are_not_cut(void **state) {
    (void)state;
    product p;
    rn_product_cut cuts[RN_PRODUCT_CUTS];
    const uint64_t n[] = {4096, 4096};
    assert_int_equal(
        0, rn_cuda_cut_product(make(&p, 1, 16, 4096, n, RN_DTYPE_F16), MULTIPROCESSORS, cuts));
    const rn_call *plain = make(&p, 1, 512, 4096, n, RN_DTYPE_F16);
    p.tensors[2].layout = RN_LAYOUT_PLAIN;
    assert_int_equal(0, rn_cuda_cut_product(plain, MULTIPROCESSORS, cuts));
    const rn_call *mixed = make(&p, 2, 512, 4096, n, RN_DTYPE_F16); // it is unfolded
    p.tensors[4].dtype = RN_DTYPE_Q8_0;
    assert_int_equal(0, rn_cuda_cut_product(mixed, MULTIPROCESSORS, cuts));
}

// ---- how long -----------------------------------------------------------------------------------

static double layer_seconds(const rn_device_caps *caps, uint64_t rows, rn_dtype dtype) {
    const uint64_t qkv[] = {4096, 1024, 1024}, wide[] = {14336, 14336}, dim[] = {4096};
    rn_workload any = {0};
    product p;
    return rn_cost_call(caps, make(&p, 3, rows, 4096, qkv, dtype), any) +
           rn_cost_call(caps, make(&p, 1, rows, 4096, dim, dtype), any) +
           rn_cost_call(caps, make(&p, 2, rows, 4096, wide, dtype), any) +
           rn_cost_call(caps, make(&p, 1, rows, 14336, dim, dtype), any);
}

// The products of a 7B model's layer with what is packed for them, one after the other on an H200,
// in microseconds. One rate stands for all of them.
static void the_products_of_a_layer_take_what_they_took(void **state) {
    (void)state;
    static const struct {
        rn_dtype dtype;
        uint64_t rows;
        double took;
    } measured[] = {
        {RN_DTYPE_F16, 512, 488.4},  {RN_DTYPE_F16, 256, 301.0},  {RN_DTYPE_F16, 128, 233.0},
        {RN_DTYPE_F16, 64, 177.0},   {RN_DTYPE_BF16, 512, 459.8}, {RN_DTYPE_BF16, 256, 322.1},
        {RN_DTYPE_Q8_0, 512, 471.1}, {RN_DTYPE_Q8_0, 256, 312.8}, {RN_DTYPE_Q4_0, 512, 478.1},
        {RN_DTYPE_Q4_0, 256, 306.0},
    };
    rn_device_caps caps = {.backend = &rn_cuda_backend,
                           .own = {[RN_CUDA_MULTIPROCESSORS] = MULTIPROCESSORS},
                           .flops = 605e12,
                           .quantized_flops = 605e12,
                           .memory_bytes_second = 4705e9,
                           .step_seconds = 1.8e-6};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        double said = layer_seconds(&caps, measured[i].rows, measured[i].dtype) * 1e6;
        if (said < 0.85 * measured[i].took || said > 1.15 * measured[i].took)
            fail_msg("%s, %llu rows: %.1f us, not %.1f", rn_dtype_get(measured[i].dtype)->name,
                     (unsigned long long)measured[i].rows, said, measured[i].took);
    }
}

// Microseconds that an H200 took (bench/half_bench): forward products of 4096 rows, in bf16.
static void products_in_16_bits_take_what_was_measured(void **state) {
    static const struct {
        uint64_t n, k;
        double us;
    } measured[] = {{4096, 4096, 168},  {14336, 4096, 647},  {4096, 14336, 592},
                    {1024, 4096, 49.6}, {16, 4096, 14.3},    {4096, 16, 14.4},
                    {14336, 16, 41},    {128256, 2048, 2651}};
    (void)state;
    rn_device_caps caps = {.flops = 428e12,
                           .memory_bytes_second = 4.1e12,
                           .step_seconds = 3e-6,
                           .own = {[RN_CUDA_HALF_FLOPS] = 781e12}};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        rn_matmul_attrs attrs = {0};
        rn_tensor t[4] = {matrix(RN_DTYPE_BF16, RN_LAYOUT_PLAIN, 4096, measured[i].k),
                          matrix(RN_DTYPE_BF16, RN_LAYOUT_PLAIN, measured[i].n, measured[i].k),
                          {0},
                          matrix(RN_DTYPE_BF16, RN_LAYOUT_PLAIN, 4096, measured[i].n)};
        rn_call call = {.op = RN_OP_MATMUL,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = &t[3],
                        .input_count = 3,
                        .output_count = 1};
        double ratio = rn_cuda_cost(&caps, &call, (rn_workload){0}) * 1e6 / measured[i].us;
        if (!(ratio > 0.8 && ratio < 1.25))
            fail_msg("row %d: %.2f of what was measured", (int)i, ratio);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_in_16_bits_take_what_was_measured),
        cmocka_unit_test(blocks_cover_the_product),
        cmocka_unit_test(some_rows_leave_few_multiprocessors_without_work),
        cmocka_unit_test(weights_of_two_forms_are_two_launches),
        cmocka_unit_test(few_rows_and_plain_weights_are_not_cut),
        cmocka_unit_test(the_products_of_a_layer_take_what_they_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
