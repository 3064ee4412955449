// labels: threads
// cpu_test.c — the CPU's kernels mean what the reference loops mean, at every instruction level.
#include "support.h"

#include "backend/cpu/cpu.h"
#include "base/cpu.h"
#include "conform.h"

static rn_workers *workers;

static int make_workers(void **state) {
    (void)state;
    return rn_workers_create(2, &rn_system_allocator, &workers) != RN_OK;
}

static int end_workers(void **state) {
    (void)state;
    rn_workers_destroy(workers);
    return 0;
}

static int restore_level(void **state) {
    (void)state;
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
    return 0;
}

// Prints every row that does not conform; returns how many.
static uint32_t check_rows(const conform_table *table, conform_target *target) {
    uint32_t wrong = 0;
    conform_why why;
    for (size_t i = 0; i < table->count; i++) {
        if (conform_kernels(&table->rows[i], target, &why) &&
            conform_alone(&table->rows[i], target, &why))
            continue;
        print_error("%s\n", why.text);
        wrong++;
    }
    return wrong;
}

static void check_level(rn_cpu_level level) {
    conform_target target = {.kernels = rn_cpu_kernels, .workers = workers, .threads = 2};
    uint32_t wrong = 0;
    rn_cpu_level_force(level);
    if (rn_cpu_level_get() != level) skip_because("a CPU without %s", rn_cpu_level_name(level));
    for (int packed = 0; packed < 2; packed++) {
        target.weight_layout = packed ? rn_cpu_weight_layout : NULL;
        for (const conform_table *const *t = conform_tables; *t; t++)
            wrong += check_rows(*t, &target);
    }
    assert_int_equal(wrong, 0);
}

static void every_op_has_a_kernel(void **state) {
    (void)state;
    for (int op = 0; op < RN_OP_COUNT; op++)
        if (!rn_cpu_kernels[op].run) fail_msg("%s has no kernel", rn_op_name((rn_op)op));
}

static void portable_kernels_conform(void **state) {
    (void)state;
    // Work is cut alike at every level; the slowest of them shows ThreadSanitizer nothing more.
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    check_level(RN_CPU_PORTABLE);
}

static void avx2_kernels_conform(void **state) {
    (void)state;
    check_level(RN_CPU_AVX2);
}

static void avx512_kernels_conform(void **state) {
    (void)state;
    check_level(RN_CPU_AVX512);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_kernel),
        cmocka_unit_test_teardown(portable_kernels_conform, restore_level),
        cmocka_unit_test_teardown(avx2_kernels_conform, restore_level),
        cmocka_unit_test_teardown(avx512_kernels_conform, restore_level),
    };
    return cmocka_run_group_tests(tests, make_workers, end_workers);
}
