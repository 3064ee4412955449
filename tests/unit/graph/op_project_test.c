// Products fused with what is around them: the bits of the ops that they replace.
#include "fused_check.h"

#include "graph/philox.h"

enum { K = 256, N = 24, NORM = 1, BIAS = 2, RESIDUAL = 4, ALL = 8, MOST = 3 };

static const rn_project_attrs rounded = {.eps = 1e-5f, .activation = RN_ACTIVATION_SILU},
                              plain = {.eps = 1e-3f,
                                       .activation = RN_ACTIVATION_GELU,
                                       .unquantised_activations = true};

// What is fused, and the same by single ops.
typedef struct pair {
    rn_value fused[MOST], composed[MOST];
    uint32_t count;
} pair;
static pair under_test;

// ---- numbers ------------------------------------------------------------------------------------

// Small enough that a gate is neither open nor shut.
static void fill_floats(float *out, uint64_t n, uint32_t stream) {
    for (uint64_t i = 0; i < n; i++)
        out[i] = 0.2f * rn_philox_normal(7, stream, i);
}

// What nothing here can round to: any bytes, with scales that are numbers.
static void fill_bytes(const rn_tensor *t, uint32_t stream) {
    const rn_dtype_info *type = rn_dtype_get(t->dtype);
    uint8_t *data = t->data;
    rn_plain_components parts;
    assert_true(rn_plain_components_of(t->dtype, t->shape.dims[0], t->shape.dims[1], &parts));
    for (uint64_t i = 0; i < parts.bytes[RN_COMPONENT_DATA]; i++)
        data[i] = (uint8_t)rn_philox_word(7, stream, (uint32_t)i);
    for (uint64_t at = 0; t->dtype == RN_DTYPE_Q4_K && at < parts.bytes[RN_COMPONENT_DATA];
         at += type->block_bytes)
        memcpy(data + at, (uint16_t[]){0x1400, 0x1000}, 4); // f16 scale and minimum
    float *scales = (float *)(void *)(data + parts.offset[RN_COMPONENT_SCALE]);
    for (uint64_t i = 0; i < parts.bytes[RN_COMPONENT_SCALE] / sizeof *scales; i++)
        scales[i] = 0.01f + 0.001f * (float)(i % 7);
}

static void fill_value(const test_run *run, rn_value value) {
    const rn_tensor *t = &run->values[value];
    uint64_t n = rn_tensor_elements(t);
    float *wide = malloc(n * sizeof *wide);
    fill_floats(wide, n, value);
    if (rn_dtype_from_f32(t->dtype, wide, t->data, n) != RN_OK) fill_bytes(t, value);
    free(wide);
}

// ---- graphs -------------------------------------------------------------------------------------

typedef struct parts {
    rn_value x, norm, residual, w[3], bias[3];
} parts;

static rn_value weight(op_check *t, rn_dtype dtype, rn_shape shape) {
    char name[32];
    snprintf(name, sizeof name, "w %u", rn_graph_value_count(t->graph));
    return rn_graph_weight(t->graph, name, dtype, shape);
}

static parts make_parts(op_check *t, rn_dtype dtype, int what) {
    static const uint64_t sizes[3] = {N, 7, 32};
    parts p = {.x = floats(t, RN_SHAPE(RN_ROWS, K))};
    if (what & NORM) p.norm = weight(t, RN_DTYPE_F32, RN_SHAPE(K));
    if (what & RESIDUAL) p.residual = floats(t, RN_SHAPE(RN_ROWS, N));
    for (int i = 0; i < 3; i++) {
        p.w[i] = weight(t, dtype, RN_SHAPE(sizes[i], K));
        if (what & BIAS) p.bias[i] = weight(t, RN_DTYPE_F32, RN_SHAPE(sizes[i]));
    }
    return p;
}

static rn_value multiply(op_check *t, const parts *p, rn_value w, rn_value bias,
                         rn_project_attrs a) {
    rn_value x = p->norm ? rn_op_rmsnorm(t->graph, p->x, p->norm, a.eps) : p->x;
    return rn_op_matmul_as(t->graph, x, w, bias,
                           (rn_matmul_attrs){.unquantised_activations = a.unquantised_activations});
}

static pair build_project(op_check *t, rn_dtype dtype, int what, rn_project_attrs a) {
    parts p = make_parts(t, dtype, what);
    pair made = {.count = 1};
    made.fused[0] = rn_op_project(t->graph, p.x, p.norm, p.w[0], p.bias[0], p.residual, a);
    made.composed[0] = multiply(t, &p, p.w[0], p.bias[0], a);
    if (p.residual) made.composed[0] = rn_op_add(t->graph, p.residual, made.composed[0]);
    return made;
}

static pair build_three(op_check *t, rn_dtype dtype, int what, rn_project_attrs a) {
    parts p = make_parts(t, dtype, what);
    pair made = {.count = 3};
    made.fused[0] = rn_op_project_three(t->graph, p.x, p.norm, p.w, p.bias, a);
    for (uint32_t i = 0; i < 3; i++) {
        made.fused[i] = rn_graph_output_of(t->graph, made.fused[0], i);
        made.composed[i] = multiply(t, &p, p.w[i], p.bias[i], a);
    }
    return made;
}

static pair build_gated(op_check *t, rn_dtype dtype, int what, rn_project_attrs a) {
    parts p = make_parts(t, dtype, what);
    rn_value up = weight(t, dtype, RN_SHAPE(N, K));
    rn_value up_bias = what & BIAS ? weight(t, RN_DTYPE_F32, RN_SHAPE(N)) : RN_NO_VALUE;
    pair made = {.count = 1};
    made.fused[0] = rn_op_project_gated(t->graph, p.x, p.norm, p.w[0], p.bias[0], up, up_bias, a);
    made.composed[0] = rn_op_gated(t->graph, multiply(t, &p, p.w[0], p.bias[0], a),
                                   multiply(t, &p, up, up_bias, a), a.activation);
    return made;
}

// ---- the same bits ------------------------------------------------------------------------------

static void compare(test_run *run, const rn_kernel *kernels) {
    for (uint32_t i = 0; i < under_test.count; i++)
        spoil(run, under_test.fused[i]);
    assert_ok(run_by(run, kernels));
    for (uint32_t i = 0; i < under_test.count; i++) {
        want_same_bits(run, under_test.fused[i], under_test.composed[i]);
        const float *y = test_run_data(run, under_test.fused[i]);
        assert_true(isfinite(y[0]) && y[0] != y[1]);
    }
}

typedef pair (*builder)(op_check *t, rn_dtype dtype, int what, rn_project_attrs attrs);

static void check_one(builder build, rn_dtype dtype, int what, rn_project_attrs attrs,
                      uint64_t rows) {
    op_check t = begin();
    under_test = build(&t, dtype, what, attrs);
    ready(&t, rows);
    for (rn_value v = 1; v <= rn_graph_value_count(t.graph); v++)
        if (rn_graph_value(t.graph, v)->producer == RN_NO_NODE) fill_value(&t.run, v);
    by_all_kernels(&t.run, compare);
    end(&t);
}

static void check_all(builder build) {
    static const rn_dtype dtypes[] = {RN_DTYPE_F32,  RN_DTYPE_F16,  RN_DTYPE_BF16, RN_DTYPE_Q8_0,
                                      RN_DTYPE_Q4_0, RN_DTYPE_Q4_K, RN_DTYPE_INT8, RN_DTYPE_NF4};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int what = 0; what < ALL; what++)
            for (uint64_t rows = 1; rows <= 5; rows += 4)
                check_one(build, dtypes[d], what, what % 3 ? rounded : plain, rows);
}

static void a_projection_has_the_bits_of_norm_product_and_sum(void **state) {
    (void)state;
    check_all(build_project);
}

static void three_projections_have_the_bits_of_three_products(void **state) {
    (void)state;
    check_all(build_three);
}

static void a_gated_projection_has_the_bits_of_two_products_and_a_gate(void **state) {
    (void)state;
    check_all(build_gated);
}

// ---- rules --------------------------------------------------------------------------------------

static void a_projection_may_overwrite_its_residual_and_nothing_else(void **state) {
    (void)state;
    op_check t = begin();
    uint64_t offset = 0;
    pair with = build_project(&t, RN_DTYPE_F32, RESIDUAL, rounded);
    pair without = build_project(&t, RN_DTYPE_F32, NORM, rounded);
    ready(&t, 3);
    rn_alias alias = alias_at(&t, with.fused[0], 0, 3, &offset);
    assert_true(alias.kind == RN_ALIAS_KIND_MAY && alias.input == 4);
    assert_int_equal(alias_at(&t, without.fused[0], 0, 3, &offset).kind, RN_ALIAS_KIND_NONE);
    end(&t);
}

static rn_cost cost_of(const op_check *t, rn_value value, uint64_t rows) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    rn_cost cost = {0};
    rn_graph_bind(t->graph, rn_graph_value(t->graph, value)->producer, rows, tensors, &call);
    rn_op_get(call.op)->cost(&call, &cost);
    return cost;
}

// x is read once, although it is normed and multiplied.
static void a_projection_costs_its_parts_without_a_second_pass(void **state) {
    (void)state;
    op_check t = begin();
    pair p = build_project(&t, RN_DTYPE_F16, NORM | BIAS | RESIDUAL, rounded);
    pair three = build_three(&t, RN_DTYPE_F16, 0, rounded);
    ready(&t, 5);
    rn_cost cost = cost_of(&t, p.fused[0], 5);
    assert_true(cost.flops == 2.0 * 5 * N * K + 5 * K + 5 * N);
    assert_true(cost.read_bytes == 4.0 * (5 * K + K + N + 5 * N) + 2.0 * N * K);
    assert_true(cost.write_bytes == 4.0 * 5 * N);
    cost = cost_of(&t, three.fused[0], 5);
    assert_true(cost.flops == 2.0 * 5 * (N + 7 + 32) * K);
    assert_true(cost.read_bytes == 4.0 * 5 * K + 2.0 * (N + 7 + 32) * K);
    assert_true(cost.write_bytes == 4.0 * 5 * (N + 7 + 32));
    end(&t);
}

static void misfits_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        rn_shape x, norm, w, bias, residual;
        const char *words;
    } misfits[] = {
        {RN_SHAPE(2, 3, 8), RN_SHAPE(8), RN_SHAPE(4, 8), RN_SHAPE(4), RN_SHAPE(2, 4), "(rows, K)"},
        {RN_SHAPE(2, 8), RN_SHAPE(7), RN_SHAPE(4, 8), RN_SHAPE(4), RN_SHAPE(2, 4), "the weight"},
        {RN_SHAPE(2, 8), RN_SHAPE(8), RN_SHAPE(4, 9), RN_SHAPE(4), RN_SHAPE(2, 4), "K is 8 in x"},
        {RN_SHAPE(2, 8), RN_SHAPE(8), RN_SHAPE(1, 4, 8), RN_SHAPE(4), RN_SHAPE(2, 4), "(N, K)"},
        {RN_SHAPE(2, 8), RN_SHAPE(8), RN_SHAPE(4, 8), RN_SHAPE(5), RN_SHAPE(2, 4), "bias"},
        {RN_SHAPE(2, 8), RN_SHAPE(8), RN_SHAPE(4, 8), RN_SHAPE(4), RN_SHAPE(1, 4), "residual"},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        op_check t = begin();
        rn_op_project(t.graph, floats(&t, misfits[i].x), floats(&t, misfits[i].norm),
                      floats(&t, misfits[i].w), floats(&t, misfits[i].bias),
                      floats(&t, misfits[i].residual), rounded);
        assert_fails(RN_INVALID, rn_graph_finish(t.graph));
        assert_non_null(strstr(rn_last_error()->message, "project.0: "));
        refuse(&t, misfits[i].words);
    }
}

static void halves_of_a_gate_must_fit_each_other(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 8)), gate = floats(&t, RN_SHAPE(4, 8));
    rn_op_project_gated(t.graph, x, RN_NO_VALUE, gate, RN_NO_VALUE, floats(&t, RN_SHAPE(5, 8)),
                        RN_NO_VALUE, rounded);
    refuse(&t, "project_gated.0: ");
    t = begin();
    x = floats(&t, RN_SHAPE(2, 8)), gate = floats(&t, RN_SHAPE(4, 8));
    rn_op_project_gated(t.graph, x, RN_NO_VALUE, gate, RN_NO_VALUE, gate, RN_NO_VALUE,
                        (rn_project_attrs){.activation = RN_ACTIVATION_COUNT});
    refuse(&t, "there is no activation");
}

static void projections_have_no_gradient(void **state) {
    (void)state;
    op_check t = begin();
    rn_value gradient, x = floats(&t, RN_SHAPE(2, 8)), w = weight(&t, RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_value y = rn_op_project(t.graph, x, RN_NO_VALUE, w, RN_NO_VALUE, RN_NO_VALUE, rounded);
    rn_value loss = rn_op_sum(t.graph, y, 3, false);
    assert_fails(RN_UNSUPPORTED, rn_graph_gradient(t.graph, loss, &w, 1, &gradient));
    assert_non_null(strstr(rn_last_error()->message, "project.0"));
    end(&t);
}

static bool is_steady(const op_check *t, rn_value y) {
    const rn_node *node = rn_graph_node(t->graph, rn_graph_value(t->graph, y)->producer);
    return ((const rn_project_attrs *)node->attrs)->steady_norm;
}

// A device may read a weight before the steps ahead of it are done, a cast's result it may not.
static void a_norm_is_steady_where_it_is_a_weight(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 8)), w = weight(&t, RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_value norm = rn_graph_weight(t.graph, "norm", RN_DTYPE_F32, RN_SHAPE(8));
    rn_value narrow = rn_graph_weight(t.graph, "narrow", RN_DTYPE_F16, RN_SHAPE(8));
    rn_value made = rn_op_cast(t.graph, narrow, RN_DTYPE_F32), none = RN_NO_VALUE;
    rn_project_attrs boast = {.eps = 1e-5f, .steady_norm = true};
    assert_true(is_steady(&t, rn_op_project(t.graph, x, norm, w, none, none, rounded)));
    assert_false(is_steady(&t, rn_op_project(t.graph, x, made, w, none, none, boast)));
    assert_false(is_steady(&t, rn_op_project(t.graph, x, none, w, none, none, boast)));
    assert_true(is_steady(&t, rn_op_project_gated(t.graph, x, norm, w, none, w, none, rounded)));
    assert_false(is_steady(&t, rn_op_project_gated(t.graph, x, made, w, none, w, none, boast)));
    const rn_value three[3] = {w, w, w}, no_bias[3] = {none, none, none};
    assert_true(is_steady(&t, rn_op_project_three(t.graph, x, norm, three, no_bias, rounded)));
    assert_false(is_steady(&t, rn_op_project_three(t.graph, x, made, three, no_bias, boast)));
    end(&t);
}

static void a_norm_of_another_graph_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 8)), w = weight(&t, RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_op_project(t.graph, x, 1000, w, RN_NO_VALUE, RN_NO_VALUE, rounded);
    refuse(&t, "input 1 is no value of this graph");
}

static void attributes_are_printed(void **state) {
    (void)state;
    char text[64];
    rn_op_get(RN_OP_PROJECT)->print(&rounded, text, sizeof text);
    assert_string_equal(text, "eps 1e-05");
    rn_op_get(RN_OP_PROJECT_THREE)->print(&plain, text, sizeof text);
    assert_string_equal(text, "eps 0.001, x as it is");
    rn_op_get(RN_OP_PROJECT_GATED)->print(&rounded, text, sizeof text);
    assert_string_equal(text, "silu, eps 1e-05");
    rn_op_get(RN_OP_PROJECT_GATED)->print(&plain, text, 8);
    assert_string_equal(text, "gelu, e");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_projection_has_the_bits_of_norm_product_and_sum),
        cmocka_unit_test(three_projections_have_the_bits_of_three_products),
        cmocka_unit_test(a_gated_projection_has_the_bits_of_two_products_and_a_gate),
        cmocka_unit_test(a_projection_may_overwrite_its_residual_and_nothing_else),
        cmocka_unit_test(a_projection_costs_its_parts_without_a_second_pass),
        cmocka_unit_test(misfits_are_refused_by_name),
        cmocka_unit_test(halves_of_a_gate_must_fit_each_other),
        cmocka_unit_test(projections_have_no_gradient),
        cmocka_unit_test(a_norm_is_steady_where_it_is_a_weight),
        cmocka_unit_test(a_norm_of_another_graph_is_refused),
        cmocka_unit_test(attributes_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
