// labels: long
// stablehlo_all_test.c — all rows of every op as StableHLO, compiled by XLA for the CPU.
// RATION_ONLY=matmul: those of one op.
#include "support.h"

#include "conform_program.h"
#include "xla_program.h"

static void every_row_means_the_same_under_xla(void **state) {
    uint32_t rows = 0, refusals = 0, wrong = 0;
    const char *only = getenv("RATION_ONLY");
    (void)state;
    if (!xla_open()) skip_because("no XLA plugin: RATION_XLA_PLUGIN names none");
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const conform_row *row = &(*t)->rows[i];
            conform_why why = {{0}};
            bool refused = false;
            if (only && strcmp(only, rn_op_name(row->op))) continue;
            bool good = conform_program(row, &refused, &why);
            if (!good || refused)
                print_error("%s, %s: %s%s\n", rn_op_name(row->op), row->what,
                            good ? "refused: " : "", why.text);
            rows++;
            refusals += refused;
            wrong += !good;
        }
    print_message("%u rows, %u refused, %u wrong\n", rows, refusals, wrong);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_means_the_same_under_xla),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
