// ort_test.c — every row of every op by ONNX Runtime: what comes out is what the reference loops
// say. RATION_ONLY=matmul: those of one op.
#include "support.h"

#include "conform_program.h"
#include "device/registry.h"

static void every_op_means_the_same_under_onnx_runtime(void **state) {
    rn_device *device = NULL;
    uint32_t rows = 0, refusals = 0, wrong = 0;
    const char *only = getenv("RATION_ONLY");
    (void)state;
    rn_target target = {.backend = rn_backend_find(RN_STR("ort"))};
    assert_ok(target.backend->parse((rn_str){0}, &target));
    if (target.backend->open(&target, 1, &device) != RN_OK) skip_because("no ONNX Runtime");
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const conform_row *row = &(*t)->rows[i];
            conform_why why = {{0}};
            bool refused = false;
            if (only && strcmp(only, rn_op_name(row->op))) continue;
            bool good = conform_executable(row, device, &refused, &why);
            if (!good || (refused && getenv("RATION_VERBOSE")))
                print_error("%s, %s: %s%s\n", rn_op_name(row->op), row->what,
                            good ? "refused: " : "", why.text);
            rows++;
            refusals += refused;
            wrong += !good;
        }
    print_message("%u rows, %u refused, %u wrong\n", rows, refusals, wrong);
    device->destroy(device);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_means_the_same_under_onnx_runtime),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
