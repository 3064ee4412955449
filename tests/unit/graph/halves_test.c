// Values of 16 bits in the place of f32: they mean the casts that they replace, bit for bit; what
// an op does not offer is refused, and so is a device whose kernels know f32 alone.
#include "support.h"

#include "backend/cpu/cpu.h"
#include "evaluate.h"
#include "graph/activations.h"
#include "graph/fold_sums.h"
#include "graph/fuse.h"
#include "graph/halves.h"
#include "graph/validate.h"
#include "op_run.h"

#include <ration/plan.h>

enum { ROWS = 5, DIM = 8, HIDDEN = 12 };

// y = x + gated(norm(x) w0, norm(x) w1) w2, every value but the last rounded: by casts, or made so.
static rn_value round_off(rn_graph *g, rn_value v, rn_dtype dtype, bool casts) {
    if (casts) return rn_op_cast(g, rn_op_cast(g, v, dtype), RN_DTYPE_F32);
    rn_graph_make_half(g, v, dtype);
    return v;
}

static rn_graph *build(rn_dtype dtype, bool casts) {
    rn_graph *g = make_graph();
    if (!casts) rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value norm = rn_graph_weight(g, "norm", RN_DTYPE_F32, RN_SHAPE(DIM));
    rn_value w0 = rn_graph_weight(g, "a", RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    rn_value w1 = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    rn_value w2 = rn_graph_weight(g, "c", RN_DTYPE_F32, RN_SHAPE(DIM, HIDDEN));
    rn_value h = round_off(g, rn_op_rmsnorm(g, x, norm, 1e-5f), dtype, casts);
    rn_value a = round_off(g, rn_op_matmul(g, h, w0, RN_NO_VALUE), dtype, casts);
    rn_value b = rn_op_matmul(g, h, w1, RN_NO_VALUE); // f32 beside 16 bits
    rn_value c = round_off(g, rn_op_gated(g, a, b, RN_ACTIVATION_SILU), dtype, casts);
    rn_value d = round_off(g, rn_op_matmul(g, c, w2, RN_NO_VALUE), dtype, casts);
    rn_graph_output(g, rn_graph_add(g, RN_OP_ADD, (rn_value[]){d, x}, 2, NULL), "y");
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_validate(g));
    return g;
}

static void compute(const rn_graph *g, float out[ROWS * DIM]) {
    test_run run;
    test_run_open(&run, g, 1);
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++) {
        const rn_value_info *info = rn_graph_value(g, v);
        if (info->role != RN_ROLE_INPUT && info->role != RN_ROLE_WEIGHT) continue;
        fill(test_run_data(&run, v), rn_tensor_elements(&run.values[v]), (uint32_t)info->name[0]);
    }
    test_run_all(&run);
    rn_value y = rn_graph_find(g, RN_ROLE_OUTPUT, "y");
    memcpy(out, test_run_data(&run, y), ROWS * DIM * sizeof *out);
    test_run_close(&run);
}

static void halves_are_the_casts_that_they_replace(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_BF16, RN_DTYPE_F16};
    for (int i = 0; i < 2; i++) {
        float is[ROWS * DIM], want[ROWS * DIM];
        rn_graph *halves = build(dtypes[i], false), *casts = build(dtypes[i], true);
        assert_true(rn_graph_node_count(halves) < rn_graph_node_count(casts));
        compute(halves, is);
        compute(casts, want);
        assert_memory_equal(is, want, sizeof is);
        rn_graph_destroy(halves);
        rn_graph_destroy(casts);
    }
}

static void copies_keep_them(void **state) {
    (void)state;
    float is[ROWS * DIM], want[ROWS * DIM];
    rn_graph *g = build(RN_DTYPE_BF16, false), *copy = NULL;
    assert_ok(
        rn_graph_hold_activations(g, RN_DTYPE_F32, false, &copy)); // the same graph, written anew
    assert_ok(rn_graph_validate(copy));
    assert_int_equal(rn_graph_node_count(g), rn_graph_node_count(copy));
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        assert_int_equal(rn_graph_dtype(g, rn_graph_node(g, n)->outputs[0]),
                         rn_graph_dtype(copy, rn_graph_node(copy, n)->outputs[0]));
    compute(g, want);
    compute(copy, is);
    assert_memory_equal(is, want, sizeof is);
    rn_graph_destroy(g);
    rn_graph_destroy(copy);
}

// ---- sums and products --------------------------------------------------------------------------

static uint32_t count_ops(const rn_graph *g, rn_op op) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->op == op;
    return count;
}

static rn_value half(rn_graph *g, rn_value v) {
    rn_graph_make_half(g, v, RN_DTYPE_BF16);
    return v;
}

static rn_value add_halves(rn_graph *g, rn_value a, rn_value b) {
    return half(g, rn_graph_add(g, RN_OP_ADD, (rn_value[]){a, b}, 2, NULL));
}

// y = r + (h a + (h d) u), and z = y + h, where h is no product's and r is read twice.
static rn_graph *build_sums(void) {
    rn_graph *g = make_graph();
    rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value a = rn_graph_weight(g, "a", RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
    rn_value down = rn_graph_weight(g, "d", RN_DTYPE_F32, RN_SHAPE(3, DIM));
    rn_value up = rn_graph_weight(g, "u", RN_DTYPE_F32, RN_SHAPE(DIM, 3));
    rn_value h = half(g, rn_op_silu(g, x)), r = half(g, rn_op_neg(g, x));
    rn_value one = half(g, rn_op_matmul(g, h, a, RN_NO_VALUE));
    rn_value thin = half(g, rn_op_matmul(g, h, down, RN_NO_VALUE));
    rn_value two = half(g, rn_op_matmul(g, thin, up, RN_NO_VALUE));
    rn_value y = add_halves(g, r, add_halves(g, one, two));
    rn_graph_output(g, rn_op_cast(g, add_halves(g, y, h), RN_DTYPE_F32), "y");
    assert_ok(rn_graph_finish(g));
    return g;
}

static void sums_with_products_become_one(void **state) {
    (void)state;
    float is[ROWS * DIM], want[ROWS * DIM];
    rn_graph *g = build_sums(), *folded = NULL, *again = NULL;
    assert_ok(rn_graph_fold_sums(g, &folded));
    assert_ok(rn_graph_validate(folded));
    assert_int_equal(count_ops(folded, RN_OP_MATMUL_ADD), 2);
    assert_int_equal(count_ops(folded, RN_OP_MATMUL), 1); // the thin one
    assert_int_equal(count_ops(folded, RN_OP_ADD), 1);    // of what is no product
    assert_ok(rn_graph_fold_sums(folded, &again));
    assert_int_equal(rn_graph_node_count(folded), rn_graph_node_count(again));
    compute(g, want);
    compute(folded, is);
    for (int i = 0; i < ROWS * DIM; i++) // they are rounded elsewhere: 8 bits, a few times
        assert_close(want[i], is[i], 0x1p-6);
    rn_graph_destroy(g);
    rn_graph_destroy(folded);
    rn_graph_destroy(again);
}

// f32 values are left as they are, and so is a product that somebody else reads.
static void other_sums_stay(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *folded = NULL;
    rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value a = rn_graph_weight(g, "a", RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
    rn_value wide = rn_op_add(g, x, rn_op_matmul(g, x, a, RN_NO_VALUE));
    rn_value h = half(g, rn_op_silu(g, wide));
    rn_value one = half(g, rn_op_matmul(g, h, a, RN_NO_VALUE));
    rn_value y = add_halves(g, h, one);
    rn_graph_output(g, rn_op_cast(g, add_halves(g, y, one), RN_DTYPE_F32), "y");
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_fold_sums(g, &folded));
    assert_int_equal(count_ops(folded, RN_OP_MATMUL_ADD), 0);
    assert_int_equal(rn_graph_node_count(folded), rn_graph_node_count(g));
    rn_graph_destroy(g);
    rn_graph_destroy(folded);
}

// An output of another size than its input does not lie in its bytes.
static void nothing_of_another_type_is_overwritten(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_tensor tensors[4];
    rn_call call;
    uint64_t offset = 0;
    rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value wide = rn_op_silu(g, x), half = rn_op_silu(g, x);
    rn_graph_make_half(g, half, RN_DTYPE_BF16);
    assert_ok(rn_graph_finish(g));
    rn_graph_bind(g, rn_graph_value(g, wide)->producer, 1, tensors, &call);
    assert_int_equal(rn_call_alias(&call, 0, &offset).kind, RN_ALIAS_KIND_MAY);
    assert_false(rn_call_has_halves(&call));
    rn_graph_bind(g, rn_graph_value(g, half)->producer, 1, tensors, &call);
    assert_int_equal(rn_call_alias(&call, 0, &offset).kind, RN_ALIAS_KIND_NONE);
    assert_true(rn_call_has_halves(&call));
    rn_graph_destroy(g);
}

static void what_an_op_does_not_offer_is_refused(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value norm = rn_op_rmsnorm(g, x, RN_NO_VALUE, 1e-5f);
    rn_graph_make_half(g, rn_graph_output_of(g, norm, 1), RN_DTYPE_BF16); // a statistic
    assert_fails(RN_UNSUPPORTED, rn_graph_finish(g));
    rn_graph_destroy(g);
    g = make_graph(); // which does not allow them
    x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_graph_make_half(g, rn_op_silu(g, x), RN_DTYPE_BF16);
    assert_fails(RN_UNSUPPORTED, rn_graph_finish(g));
    rn_graph_destroy(g);
}

static void kernels_of_f32_alone_do_not_get_them(void **state) {
    (void)state;
    rn_graph *g = build(RN_DTYPE_BF16, false);
    rn_device_caps caps = *rn_cpu_caps();
    rn_recipe recipe;
    rn_plan *plan = NULL;
    assert_ok(rn_recipe_from_graph(g, 0, &recipe));
    assert_fails(RN_UNSUPPORTED, rn_plan_make(&recipe, &caps, NULL, &plan));
    assert_non_null(strstr(rn_last_error()->message, "16 bits"));
    caps.fusions |= RN_FUSE_HALVES;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &plan));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_the_casts_that_they_replace),
        cmocka_unit_test(copies_keep_them),
        cmocka_unit_test(sums_with_products_become_one),
        cmocka_unit_test(other_sums_stay),
        cmocka_unit_test(nothing_of_another_type_is_overwritten),
        cmocka_unit_test(what_an_op_does_not_offer_is_refused),
        cmocka_unit_test(kernels_of_f32_alone_do_not_get_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
