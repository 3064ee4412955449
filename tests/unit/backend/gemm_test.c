// Products of f32: every output is one chain over k, whatever the form, the level, the threads and
// the rows beside it.
#include "support.h"
#include "backend/cpu/cpu.h"
#include "base/cpu.h"

#include <math.h>

enum { GUARD = 64 };

typedef struct product {
    uint64_t batches, m, n, k;
    rn_matmul_attrs attrs;
    bool biased, panels, one_w; // one_w: w of rank 2 for all batches
    uint32_t threads;
    float *x, *w, *bias, *y;
} product;

static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static float *make(uint64_t floats) {
    float *data = malloc(floats ? floats * sizeof *data : 1);
    for (uint64_t i = 0; i < floats; i++)
        data[i] = (float)draw(2001) / 1000 - 1;
    return data;
}

static void fill(product *p) {
    uint64_t w_batches = p->one_w ? 1 : p->batches;
    p->x = make(p->batches * p->m * p->k);
    p->w = make(w_batches * p->n * p->k);
    p->bias = p->biased ? make(p->n) : NULL;
    p->y = make(p->batches * p->m * p->n);
}

static void drop(product *p) {
    free(p->x), free(p->w), free(p->bias), free(p->y);
}

// ---- running ------------------------------------------------------------------------------------

static float *to_panels(const float *w, uint64_t rows, uint64_t cols) {
    uint64_t panels = (rows + 15) / 16;
    float *packed = aligned_alloc(64, panels * 16 * cols * sizeof *packed);
    for (uint64_t i = 0; i < panels * 16; i++)
        for (uint64_t k = 0; k < cols; k++)
            packed[(i / 16 * cols + k) * 16 + i % 16] = i < rows ? w[i * cols + k] : 0;
    return packed;
}

static rn_tensor tensor(float *data, rn_shape shape) {
    return (rn_tensor){data, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape};
}

static rn_shape matrix(const product *p, bool batched, uint64_t rows, uint64_t cols) {
    if (!batched) return RN_SHAPE(rows, cols);
    return p->batches == 1 ? RN_SHAPE(rows, cols) : RN_SHAPE(p->batches, rows, cols);
}

static void bind(const product *p, rn_tensor *t) {
    bool x_across = p->attrs.transpose_x, w_across = p->attrs.transpose_w;
    t[0] = tensor(p->x, x_across ? matrix(p, true, p->k, p->m) : matrix(p, true, p->m, p->k));
    t[1] = tensor(p->w,
                  w_across ? matrix(p, !p->one_w, p->k, p->n) : matrix(p, !p->one_w, p->n, p->k));
    t[2] = p->biased ? tensor(p->bias, RN_SHAPE(p->n)) : (rn_tensor){.dtype = RN_DTYPE_NONE};
    t[3] = tensor(p->y, matrix(p, true, p->m, p->n));
}

// The workspace is exactly as long as asked for, with guards behind it.
static void run(const product *p) {
    rn_tensor t[4];
    rn_workers *workers = NULL;
    bind(p, t);
    if (p->panels) {
        uint64_t rows = t[1].shape.dims[0], cols = t[1].shape.dims[1];
        t[1].layout = RN_LAYOUT_PANELS;
        t[1].data = to_panels(p->w, rows, cols);
    }
    if (p->threads > 1) assert_ok(rn_workers_create(p->threads, &rn_system_allocator, &workers));
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &p->attrs,
                    .inputs = t,
                    .outputs = t + 3,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = p->threads};
    call.workspace_bytes = rn_cpu_matmul_workspace(&call);
    uint8_t *workspace = aligned_alloc(64, (call.workspace_bytes + GUARD + 63) / 64 * 64);
    memset(workspace, 0xFF, call.workspace_bytes + GUARD); // NaN, if it is read
    call.workspace = workspace;
    assert_ok(rn_cpu_matmul(&call));
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(0xFF, workspace[call.workspace_bytes + (uint64_t)i]);
    free(workspace);
    if (p->panels) free(t[1].data);
    rn_workers_destroy(workers);
}

// ---- what it must be ----------------------------------------------------------------------------

static float x_at(const product *p, uint64_t b, uint64_t i, uint64_t k) {
    return p->x[b * p->m * p->k + (p->attrs.transpose_x ? k * p->m + i : i * p->k + k)];
}

static float w_at(const product *p, uint64_t b, uint64_t j, uint64_t k) {
    uint64_t at = p->one_w ? 0 : b * p->n * p->k;
    return p->w[at + (p->attrs.transpose_w ? k * p->n + j : j * p->k + k)];
}

// The chain of the level in f32, bit for bit; and the sum in double, within rounding of each step.
static void check_element(const product *p, uint64_t b, uint64_t i, uint64_t j) {
    bool fused = rn_cpu_level_get() != RN_CPU_PORTABLE;
    float chain = 0;
    double sum = 0, size = 0;
    for (uint64_t k = 0; k < p->k; k++) {
        float x = x_at(p, b, i, k), w = w_at(p, b, j, k);
        chain = fused ? fmaf(x, w, chain) : chain + x * w;
        sum += (double)x * w;
        size += fabs((double)x * w);
    }
    if (p->biased) {
        chain += p->bias[j];
        sum += p->bias[j];
        size += fabs((double)p->bias[j]);
    }
    float got = p->y[(b * p->m + i) * p->n + j];
    assert_memory_equal(&chain, &got, sizeof got);
    assert_true(fabs(got - sum) <= 0x1p-24 * (double)(2 * p->k + 1) * size);
}

static void check(const product *p) {
    for (uint64_t b = 0; b < p->batches; b++)
        for (uint64_t i = 0; i < p->m; i++)
            for (uint64_t j = 0; j < p->n; j++)
                check_element(p, b, i, j);
}

static void each_level(void (*test)(void)) {
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        if ((int)rn_cpu_level_get() == level) test();
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

// ---- tests --------------------------------------------------------------------------------------

static product form(uint32_t bits) {
    return (product){.batches = 1,
                     .attrs = {bits & 1, bits & 2},
                     .biased = bits & 4,
                     .panels = bits & 8,
                     .one_w = true,
                     .threads = 1};
}

static void run_and_check(product *p) {
    fill(p);
    run(p);
    check(p);
    drop(p);
}

static void try_odd_sizes(void) {
    for (uint32_t n = 0; n < 96; n++) {
        product p = form(n);
        p.m = 1 + draw(n % 3 ? 70 : 9);
        p.n = 1 + draw(70);
        p.k = 1 + draw(70);
        p.threads = 1 + n % 2;
        run_and_check(&p);
    }
}

static void all_forms_of_odd_sizes_are_chains_over_k(void **state) {
    (void)state;
    each_level(try_odd_sizes);
}

// Beyond one block of rows, of columns, of k; and few rows by much.
static void try_blocks(void) {
    const uint64_t sizes[][3] = {{1030, 37, 9}, {21, 1060, 11}, {18, 40, 5200}, {3, 130, 700},
                                 {9, 33, 520},  {8, 300, 260},  {1, 16, 1}};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t bits = 0; bits < 16; bits += 5) {
            product p = form(bits);
            p.m = sizes[i][0], p.n = sizes[i][1], p.k = sizes[i][2];
            p.threads = 2;
            run_and_check(&p);
        }
}

static void blocks_continue_the_chain(void **state) {
    (void)state;
    each_level(try_blocks);
}

static void try_nothing_to_sum(void) {
    for (uint32_t bits = 0; bits < 8; bits += 4)
        for (uint64_t m = 3; m < 20; m += 16) {
            product p = form(bits);
            p.m = m, p.n = 35, p.k = 0;
            run_and_check(&p);
        }
}

static void a_sum_of_nothing_is_the_bias(void **state) {
    (void)state;
    each_level(try_nothing_to_sum);
}

static void try_batches(void) {
    for (uint32_t n = 0; n < 32; n++) {
        product p = form(n % 8);
        p.batches = 2 + draw(12);
        p.one_w = n % 3 == 0;
        p.m = 1 + draw(30);
        p.n = 1 + draw(40);
        p.k = 1 + draw(30);
        p.threads = 1 + draw(3);
        run_and_check(&p);
    }
}

static void batches_are_products_of_their_own(void **state) {
    (void)state;
    each_level(try_batches);
}

// Leading axes of w that are 1 serve every index of x's.
static void a_leading_axis_of_one_serves_all(void **state) {
    (void)state;
    enum { A = 3, B = 2, M = 5, N = 18, K = 7 };
    float *x = make(A * B * M * K), *w = make(A * N * K), *y = make(A * B * M * N);
    rn_tensor t[] = {tensor(x, RN_SHAPE(A, B, M, K)),
                     tensor(w, RN_SHAPE(A, 1, N, K)),
                     {.dtype = RN_DTYPE_NONE},
                     tensor(y, RN_SHAPE(A, B, M, N))};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &(rn_matmul_attrs){0},
                    .inputs = t,
                    .outputs = t + 3,
                    .input_count = 3,
                    .output_count = 1,
                    .threads = 1};
    call.workspace_bytes = rn_cpu_matmul_workspace(&call);
    call.workspace = aligned_alloc(64, call.workspace_bytes);
    assert_ok(rn_cpu_matmul(&call));
    for (uint64_t i = 0; i < A * B; i++) {
        product p = {.batches = 1,
                     .m = M,
                     .n = N,
                     .k = K,
                     .one_w = true,
                     .x = x + i * M * K,
                     .w = w + i / B * N * K,
                     .y = y + i * M * N};
        check(&p);
    }
    free(x), free(w), free(y), free(call.workspace);
}

static void compare_threads(void) {
    for (uint32_t bits = 0; bits < 16; bits++) {
        product p = form(bits);
        p.m = 1 + draw(200), p.n = 1 + draw(200), p.k = 1 + draw(400);
        fill(&p);
        run(&p);
        float *alone = p.y;
        p.y = make(p.m * p.n);
        p.threads = 2 + bits % 3;
        run(&p);
        assert_memory_equal(alone, p.y, p.m * p.n * sizeof *alone);
        free(alone);
        drop(&p);
    }
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    each_level(compare_threads);
}

static void compare_rows(void) {
    for (uint32_t bits = 0; bits < 16; bits += 2) {
        product p = form(bits);
        p.m = 40, p.n = 50, p.k = 300;
        fill(&p);
        run(&p);
        for (uint64_t i = 0; i < p.m; i += 7) {
            product row = p;
            row.m = 1, row.x = p.x + i * p.k, row.y = make(p.n);
            run(&row);
            assert_memory_equal(p.y + i * p.n, row.y, p.n * sizeof *row.y);
            free(row.y);
        }
        drop(&p);
    }
}

static void a_row_has_the_same_bits_alone(void **state) {
    (void)state;
    each_level(compare_rows);
}

// A plan is made for the most rows; a run may bring fewer.
static void fewer_rows_never_need_more_workspace(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 2000; n++) {
        product most = form(draw(16));
        most.m = 1 + draw(1 << draw(12)), most.n = 1 + draw(1 << draw(12));
        most.k = 1 + draw(1 << draw(12)), most.threads = 1 + draw(4);
        product fewer = most;
        if (n % 2 || most.panels) // a weight has its k
            fewer.m = 1 + draw((uint32_t)most.m);
        else
            fewer.k = 1 + draw((uint32_t)most.k);
        uint64_t bytes[2];
        for (int i = 0; i < 2; i++) {
            rn_tensor t[4];
            bind(i ? &fewer : &most, t);
            rn_call call = {.op = RN_OP_MATMUL,
                            .attrs = &most.attrs,
                            .inputs = t,
                            .outputs = t + 3,
                            .input_count = 3,
                            .output_count = 1,
                            .threads = most.threads};
            if (most.panels) t[1].layout = RN_LAYOUT_PANELS;
            bytes[i] = rn_cpu_matmul_workspace(&call);
        }
        assert_true(bytes[1] <= bytes[0]);
        assert_true(bytes[0] <= 4 << 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_of_odd_sizes_are_chains_over_k),
        cmocka_unit_test(blocks_continue_the_chain),
        cmocka_unit_test(a_sum_of_nothing_is_the_bias),
        cmocka_unit_test(batches_are_products_of_their_own),
        cmocka_unit_test(a_leading_axis_of_one_serves_all),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(a_row_has_the_same_bits_alone),
        cmocka_unit_test(fewer_rows_never_need_more_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
