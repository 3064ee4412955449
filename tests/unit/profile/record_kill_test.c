// labels: long
// What a program that is killed loses: no more than its last 100 milliseconds. Long, because it is
// about time: a machine with more to do than it has CPUs for lets the writer wait.
#include "record_killing.h"

static void killed_at_fifty_moments_it_loses_at_most_100_ms(void **state) {
    (void)state;
    char path[512];
    uint64_t worst = 0;
    snprintf(path, sizeof path, "%s", test_path("kill.rntrace"));
    srand(11);
    for (int round = 0; round < 50; round++) {
        uint64_t lost = kill_once(path, round, (unsigned)rand() % 200000);
        if (lost > worst) worst = lost;
    }
    print_message("at most %.1f ms were lost\n", (double)worst / 1e6);
    assert_true(worst <= 100000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_fifty_moments_it_loses_at_most_100_ms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
