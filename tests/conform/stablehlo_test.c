// stablehlo_test.c — one row of every op as StableHLO, compiled by XLA for the CPU: what comes out
// is what the reference loops say. stablehlo_all_test.c has all rows.
#include "support.h"

#include "conform_program.h"
#include "xla_program.h"

// Ops that programs do not have: what trains (a loss that makes gradients on the way, too), what
// ranks tell each other, values of quantised kinds, and one that takes as many points of an image
// as data says.
static bool may_be_refused(rn_op op) {
    return rn_op_is(op, RN_TRAIT_UPDATE) || rn_op_is(op, RN_TRAIT_ACCUMULATE) ||
           rn_op_is(op, RN_TRAIT_COLLECTIVE) || op == RN_OP_QUANTIZE || op == RN_OP_ROI_ALIGN ||
           op == RN_OP_LINEAR_CROSS_ENTROPY || op == RN_OP_ADAPTED_NORM;
}

static void every_op_means_the_same_under_xla(void **state) {
    bool seen[RN_OP_COUNT] = {false};
    uint32_t wrong = 0;
    (void)state;
    if (!xla_open()) skip_because("no XLA plugin: RATION_XLA_PLUGIN names none");
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const conform_row *row = &(*t)->rows[i];
            conform_why why = {{0}};
            bool refused = false;
            if (seen[row->op]) continue;
            seen[row->op] = true;
            if (conform_program(row, &refused, &why) && refused == may_be_refused(row->op))
                continue;
            print_error("%s, %s: %s\n", rn_op_name(row->op), row->what, why.text);
            wrong++;
        }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_means_the_same_under_xla),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
