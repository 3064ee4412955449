// What ops say of themselves agrees with what they do: traits are asked where ops used to be
// listed.
#include "support.h"

#include "graph/op.h"

static bool changes_input(const rn_op_info *op) {
    for (uint32_t i = 0; i < op->output_count; i++)
        if (op->alias[i].kind == RN_ALIAS_KIND_MUST) return true;
    return false;
}

static void traits_agree_with_the_rest_of_an_op(void **state) {
    (void)state;
    for (rn_op i = 0; i < RN_OP_COUNT; i++) {
        const rn_op_info *op = rn_op_get(i);
        uint32_t in_place =
            RN_TRAIT_UPDATE | RN_TRAIT_ACCUMULATE | RN_TRAIT_APPEND | RN_TRAIT_RECURRENT;
        bool pure_view = op->alias[0].kind == RN_ALIAS_KIND_VIEW && !op->reference;
        if (rn_op_is(i, RN_TRAIT_VIEW) != pure_view) fail_msg("%s: a view or not?", op->name);
        if (rn_op_is(i, RN_TRAIT_PRODUCT) != (op->product != NULL))
            fail_msg("%s: a product or not?", op->name);
        if (op->traits & in_place && !op->alias_of && !changes_input(op))
            fail_msg("%s: what does it change?", op->name);
        // A batch norm in training changes its running sums; it is no update of a weight. A weight
        // that ranks gather where it lies has been updated by each of them before.
        uint32_t may = in_place | RN_TRAIT_COLLECTIVE;
        if (changes_input(op) && !(op->traits & may) && strcmp(op->name, "batchnorm") != 0)
            fail_msg("%s changes an input and does not say so", op->name);
        if (rn_op_is(i, RN_TRAIT_LOOKUP) && op->min_inputs != 2) fail_msg("%s", op->name);
        if (rn_op_is(i, RN_TRAIT_ATTENTION) && op->attrs_bytes < sizeof(rn_attention_attrs))
            fail_msg("%s: attention without its attributes", op->name);
    }
}

// x (ROWS, 8), a norm (8), weights (4, 8), biases (4), a residual (ROWS, 4).
typedef struct made {
    rn_graph *g;
    rn_value x, norm, w[3], bias;
    rn_tensor tensors[16];
    rn_call call;
} made;

static void make(made *m) {
    const char *const names[] = {"w0", "w1", "w2"};
    assert_ok(rn_graph_create(&m->g));
    m->x = rn_graph_input(m->g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 8));
    m->norm = rn_graph_weight(m->g, "norm", RN_DTYPE_F32, RN_SHAPE(8));
    m->bias = rn_graph_weight(m->g, "bias", RN_DTYPE_F32, RN_SHAPE(4));
    for (int i = 0; i < 3; i++)
        m->w[i] = rn_graph_weight(m->g, names[i], RN_DTYPE_F32, RN_SHAPE(4, 8));
}

static void bind(made *m, rn_value of) {
    assert_ok(rn_graph_finish(m->g));
    rn_graph_bind(m->g, rn_graph_value(m->g, of)->producer, 2, m->tensors, &m->call);
}

static uint32_t count_products(const rn_call *call) {
    rn_product product;
    uint32_t count = 0;
    while (rn_call_product(call, count, &product))
        count++;
    return count;
}

static void a_matmul_is_one_product(void **state) {
    (void)state;
    made m;
    rn_product p;
    make(&m);
    bind(&m, rn_op_matmul_as(m.g, m.x, m.w[0], m.bias,
                             (rn_matmul_attrs){.unquantised_activations = true}));
    assert_int_equal(count_products(&m.call), 1);
    assert_true(rn_call_product_of(&m.call, 1, &p));
    assert_true(p.x == 0 && p.bias == 2 && p.norm == RN_NO_INPUT && p.residual == RN_NO_INPUT);
    assert_true(p.unquantised_activations && !p.transposed);
    assert_false(rn_call_product_of(&m.call, 0, &p));
    bind(&m, rn_op_matmul_as(m.g, m.x, rn_graph_weight(m.g, "t", RN_DTYPE_F32, RN_SHAPE(8, 4)),
                             RN_NO_VALUE, (rn_matmul_attrs){.transpose_w = true}));
    assert_true(rn_call_product(&m.call, 0, &p));
    assert_true(p.transposed && p.bias == RN_NO_INPUT && !p.unquantised_activations);
    rn_graph_destroy(m.g);
}

static void a_fused_op_names_all_its_products(void **state) {
    (void)state;
    const rn_value no_bias[3] = {0};
    made m;
    rn_product p;
    make(&m);
    rn_value one = rn_op_project(m.g, m.x, RN_NO_VALUE, m.w[0], m.bias, RN_NO_VALUE,
                                 (rn_project_attrs){.eps = 1});
    bind(&m,
         rn_op_project(m.g, m.x, m.norm, m.w[1], RN_NO_VALUE, one, (rn_project_attrs){.eps = 1}));
    assert_int_equal(count_products(&m.call), 1);
    assert_true(rn_call_product_of(&m.call, 2, &p));
    assert_true(p.norm == 1 && p.residual == 4 && p.bias == RN_NO_INPUT);
    bind(&m, one);
    assert_true(rn_call_product(&m.call, 0, &p));
    assert_true(p.norm == RN_NO_INPUT && p.residual == RN_NO_INPUT && p.bias == 3);
    bind(&m, rn_op_project_three(m.g, m.x, m.norm, m.w, no_bias, (rn_project_attrs){.eps = 1}));
    assert_int_equal(count_products(&m.call), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(rn_call_product(&m.call, i, &p) && p.weight == 2 + 2 * i && p.norm == 1);
    bind(&m, rn_op_project_gated(m.g, m.x, m.norm, m.w[0], m.bias, m.w[1], RN_NO_VALUE,
                                 (rn_project_attrs){.eps = 1}));
    assert_int_equal(count_products(&m.call), 2);
    assert_true(rn_call_product_of(&m.call, 4, &p) && p.bias == RN_NO_INPUT);
    bind(&m, rn_op_relu(m.g, m.x));
    assert_int_equal(count_products(&m.call), 0);
    assert_null(rn_call_attention(&m.call));
    rn_graph_destroy(m.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traits_agree_with_the_rest_of_an_op),
        cmocka_unit_test(a_matmul_is_one_product),
        cmocka_unit_test(a_fused_op_names_all_its_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
