// slopes_test.c — every gradient rule against finite differences, and that a wrong one is found.
#include "support.h"

#include "conform.h"

static void gradients_are_slopes(void **state) {
    (void)state;
    bool checked[RN_OP_COUNT] = {false};
    conform_why why;
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const conform_row *row = &(*t)->rows[i];
            if (!conform_differentiable(row)) continue;
            if (!conform_slopes(row, NULL, &why)) fail_msg("%s", why.text);
            checked[row->op] = true;
        }
    for (int op = 0; op < RN_OP_COUNT; op++)
        if (rn_op_get((rn_op)op)->gradient && !checked[op])
            fail_msg("nobody has looked at the gradient of %s", rn_op_name((rn_op)op));
}

// ---- wrong gradients ----------------------------------------------------------------------------

static float *first_gradient(test_run *run, const conform_case *c, uint64_t *out_n) {
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->inputs[i].wanted) {
            *out_n = rn_tensor_elements(&run->values[c->inputs[i].gradient]);
            return test_run_data(run, c->inputs[i].gradient);
        }
    return NULL;
}

static void spoil_all(test_run *run, const conform_case *c) {
    uint64_t n = 0;
    float *gradient = first_gradient(run, c, &n);
    for (uint64_t i = 0; i < n; i++)
        gradient[i] *= 1.01f;
}

static void spoil_one(test_run *run, const conform_case *c) {
    uint64_t n = 0;
    float *gradient = first_gradient(run, c, &n);
    gradient[n / 2] = -gradient[n / 2];
}

static void spoil_little(test_run *run, const conform_case *c) {
    uint64_t n = 0;
    float *gradient = first_gradient(run, c, &n);
    gradient[0] *= 1.00001f;
}

static const conform_row *find_row(rn_op op, const char *what) {
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++)
            if ((*t)->rows[i].op == op && strcmp((*t)->rows[i].what, what) == 0)
                return &(*t)->rows[i];
    fail_msg("there is no row %s, %s", rn_op_name(op), what);
    return NULL;
}

static void wrong_gradients_are_found(void **state) {
    (void)state;
    static const struct {
        rn_op op;
        const char *what;
    } rows[] = {{RN_OP_MUL, "the same shape"},
                {RN_OP_SILU, "odd axes"},
                {RN_OP_LAYERNORM, "many axes"},
                {RN_OP_MATMUL, "odd, bias"},
                {RN_OP_ATTENTION, "all see all"}};
    conform_why why;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const conform_row *row = find_row(rows[i].op, rows[i].what);
        assert_true(conform_slopes(row, spoil_little, &why));
        assert_false(conform_slopes(row, spoil_all, &why));
        assert_false(conform_slopes(row, spoil_one, &why));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(wrong_gradients_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
