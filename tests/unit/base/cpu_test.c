// cpu_test.c — the level is what the processor has, or less when asked.
#include "support.h"

#include "base/cpu.h"

#include <sys/wait.h>
#include <unistd.h>

// The level that a fresh process finds with RATION_CPU=constraint: it is read once, so a child
// asks. A child inherits what its parent already knows, so these run before anything asks in the
// parent.
static int level_in_child(const char *constraint) {
    pid_t child = fork();
    if (child == 0) {
        if (constraint)
            setenv("RATION_CPU", constraint, 1);
        else
            unsetenv("RATION_CPU");
        _exit((int)rn_cpu_level_get());
    }
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_true(WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void environment_lowers_the_level(void **unused) {
    (void)unused;
    int best = level_in_child(NULL);
    assert_int_equal(level_in_child("portable"), RN_CPU_PORTABLE);
    assert_int_equal(level_in_child("avx2"), best < RN_CPU_AVX2 ? best : RN_CPU_AVX2);
    assert_int_equal(level_in_child("avx512"), best);
    assert_int_equal(level_in_child("quantum"), best);
    assert_int_equal(level_in_child(""), best);
}

static void forced_level_is_never_above_the_processor(void **unused) {
    (void)unused;
    rn_cpu_level_force(RN_CPU_AVX512);
    rn_cpu_level best = rn_cpu_level_get();
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        assert_int_equal(rn_cpu_level_get(), level < (int)best ? level : (int)best);
    }
}

static void byte_products_come_with_avx512_only(void **unused) {
    (void)unused;
    rn_cpu_level_force(RN_CPU_AVX512);
    bool best = rn_cpu_has_vnni();
    assert_true(!best || rn_cpu_level_get() == RN_CPU_AVX512);
    for (int level = 0; level < RN_CPU_AVX512; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        assert_false(rn_cpu_has_vnni());
    }
    rn_cpu_level_force(RN_CPU_AVX512);
    assert_int_equal(rn_cpu_has_vnni(), best);
}

static void every_level_has_a_name(void **unused) {
    (void)unused;
    assert_string_equal(rn_cpu_level_name(RN_CPU_PORTABLE), "portable");
    assert_string_equal(rn_cpu_level_name(RN_CPU_AVX2), "avx2");
    assert_string_equal(rn_cpu_level_name(RN_CPU_AVX512), "avx512");
    assert_string_equal(rn_cpu_level_name(RN_CPU_LEVEL_COUNT), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_lowers_the_level),
        cmocka_unit_test(forced_level_is_never_above_the_processor),
        cmocka_unit_test(byte_products_come_with_avx512_only),
        cmocka_unit_test(every_level_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
