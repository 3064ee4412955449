// Mixtures of experts: ties, groups and hostile numbers of the router; products with some of the
// experts in memory are, wave by wave, those with all of them.
#include "backend/cpu/cpu.h"
#include "op_run.h"

enum { E = 5, N = 16, K = 24, ROWS = 7, CHOSEN = 3, SLOTS = 2 };

static void route(const rn_route_attrs *attrs, float *logits, float *bias, uint64_t experts,
                  int32_t *ids, float *weights) {
    rn_tensor none = {.dtype = RN_DTYPE_NONE};
    rn_tensor in[] = {f32_tensor(logits, RN_SHAPE(1, experts)),
                      bias ? f32_tensor(bias, RN_SHAPE(experts)) : none, none};
    rn_tensor out[] = {i32_tensor(ids, RN_SHAPE(1, attrs->chosen)),
                       f32_tensor(weights, RN_SHAPE(1, attrs->chosen))};
    float room[64];
    rn_call call = {.op = RN_OP_ROUTE,
                    .attrs = attrs,
                    .inputs = in,
                    .outputs = out,
                    .input_count = 3,
                    .output_count = 2,
                    .workspace = room,
                    .workspace_bytes = sizeof room,
                    .threads = 1};
    assert_ok(rn_op_get(RN_OP_ROUTE)->reference(&call));
}

static void of_equals_the_lowest_number_is_chosen(void **state) {
    (void)state;
    float logits[6] = {1, 2, 2, 0, 2, 1}, weights[4];
    int32_t ids[4];
    route(&(rn_route_attrs){.chosen = 4, .norm = true}, logits, NULL, 6, ids, weights);
    const int32_t expected[4] = {1, 2, 4, 0};
    assert_memory_equal(ids, expected, sizeof ids);
    assert_float_equal(weights[0] + weights[1] + weights[2] + weights[3], 1, 1e-6f);
}

// The bias decides who is chosen; the weights are those of the scores without it.
static void a_bias_chooses_and_does_not_weigh(void **state) {
    (void)state;
    float logits[4] = {0, 0, 0, 0}, bias[4] = {-1, 0, 3, 1}, weights[2];
    int32_t ids[2];
    rn_route_attrs attrs = {.chosen = 2, .gating = RN_GATING_SIGMOID, .scale = 2};
    route(&attrs, logits, bias, 4, ids, weights);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    assert_float_equal(weights[0], 1, 1e-6f); // 2 sigmoid(0)
}

// Numbers that are none are chosen last, each once.
static void nan_is_chosen_last(void **state) {
    (void)state;
    float logits[4] = {NAN, 1, NAN, 2}, weights[4];
    int32_t ids[4];
    rn_route_attrs attrs = {.chosen = 4, .gating = RN_GATING_SOFTMAX_CHOSEN};
    route(&attrs, logits, NULL, 4, ids, weights);
    const int32_t expected[4] = {3, 1, 0, 2};
    assert_memory_equal(ids, expected, sizeof ids);
}

// The best two experts are in group 0, but the best two of group 1 are worth more together.
static void groups_count_by_their_best_two(void **state) {
    (void)state;
    float logits[4] = {9, -9, 4, 6}, weights[2];
    int32_t ids[2];
    rn_route_attrs attrs = {
        .chosen = 2, .gating = RN_GATING_SOFTMAX_CHOSEN, .groups = 2, .groups_chosen = 1};
    route(&attrs, logits, NULL, 4, ids, weights);
    assert_int_equal(ids[0], 3);
    attrs.group_by_max = true;
    route(&attrs, logits, NULL, 4, ids, weights);
    assert_int_equal(ids[0], 0);
}

// ---- products with slots ------------------------------------------------------------------------

static float x[ROWS * K], w[E * N * K], all[ROWS * CHOSEN * N], some[ROWS * CHOSEN * N];
static float memory[SLOTS * N * K];
static int32_t ids[ROWS * CHOSEN];
static const uint8_t *matrix[E];
static bool pending[E];
static uint32_t waited[E], waits;

static rn_status multiply(const rn_expert_slots *slots, float *weights, float *y) {
    static const rn_expert_product_attrs attrs = {.experts = E};
    static _Alignas(64) char workspace[1 << 18];
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(ROWS, K)),
                      i32_tensor(ids, RN_SHAPE(ROWS, CHOSEN)),
                      f32_tensor(weights, RN_SHAPE(E * N, K)),
                      {.dtype = RN_DTYPE_NONE}};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(ROWS, CHOSEN, N))};
    rn_call call = {.op = RN_OP_EXPERT_PRODUCT,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = out,
                    .input_count = 4,
                    .output_count = 1,
                    .workspace = workspace,
                    .workspace_bytes = sizeof workspace,
                    .threads = 2,
                    .slots = slots};
    assert_true(rn_cpu_expert_product_workspace(&call) <= sizeof workspace);
    return rn_cpu_expert_product(&call);
}

static void fill_operands(void) {
    for (int i = 0; i < ROWS * K; i++)
        x[i] = sinf((float)i);
    for (int i = 0; i < E * N * K; i++)
        w[i] = cosf((float)i * 0.7f);
    for (int i = 0; i < ROWS * CHOSEN; i++)
        ids[i] = (i / CHOSEN * 2 + i % CHOSEN) % E;
    ids[4] = -1;
}

static rn_status bring(void *self, uint32_t expert) {
    (void)self;
    memcpy((uint8_t *)(uintptr_t)matrix[expert], w + (size_t)expert * N * K, N * K * sizeof(float));
    waited[waits++] = expert;
    return RN_OK;
}

static void waves_of_experts_are_all_of_them(void **state) {
    (void)state;
    fill_operands();
    assert_ok(multiply(NULL, w, all));
    for (int i = 0; i < N; i++)
        assert_true(all[4 * N + i] == 0); // nobody's row
    memset(some, 0x7f, sizeof some);
    const rn_expert_slots slots = {.matrix = matrix, .pending = pending, .wait = bring};
    for (uint32_t first = 0; first < E; first += SLOTS) {
        waits = 0;
        for (uint32_t e = 0; e < E; e++) {
            pending[e] = e >= first && e < first + SLOTS;
            matrix[e] = pending[e] ? (uint8_t *)(memory + (size_t)(e - first) * N * K) : NULL;
        }
        assert_ok(multiply(&slots, memory, some));
        for (uint32_t i = 0; i < waits; i++)
            assert_int_equal(waited[i], first + i); // in rising order
    }
    assert_memory_equal(all, some, sizeof all);
}

static void an_expert_that_is_none_is_refused(void **state) {
    (void)state;
    fill_operands();
    ids[3] = E;
    assert_fails(RN_INVALID, multiply(NULL, w, all));
}

static rn_graph *with_head_product(rn_dtype dtype, rn_shape of_x, rn_shape of_w,
                                   rn_head_product_attrs attrs) {
    rn_graph *g = make_graph();
    rn_op_head_product(g, rn_graph_input(g, "x", RN_DTYPE_F32, of_x),
                       rn_graph_weight(g, "w", dtype, of_w), attrs);
    return g;
}

static void products_of_heads_are_checked(void **state) {
    (void)state;
    rn_shape of_x = RN_SHAPE(RN_ROWS, 3, 64), of_w = RN_SHAPE(24, 64);
    rn_graph *g = with_head_product(RN_DTYPE_Q8_0, of_x, of_w, (rn_head_product_attrs){.first = 2});
    assert_ok(rn_graph_finish(g));
    rn_shape y = rn_graph_value(g, rn_graph_node(g, 0)->outputs[0])->shape;
    assert_true(rn_shape_equal(y, RN_SHAPE(RN_ROWS, 3, 6)));
    rn_graph_destroy(g);
    rn_head_product_attrs beyond = {.first = 2, .count = 7}, across = {.transposed = true};
    assert_refused(with_head_product(RN_DTYPE_F32, of_x, of_w, beyond),
                   "no 3 matrices with 7 rows");
    assert_refused(with_head_product(RN_DTYPE_F32, of_x, of_w, across), "the inner axes differ");
    assert_refused(
        with_head_product(RN_DTYPE_F32, of_x, RN_SHAPE(25, 64), (rn_head_product_attrs){0}),
        "no 3 matrices");
    assert_refused(with_head_product(RN_DTYPE_INT8, of_x, of_w, (rn_head_product_attrs){0}),
                   "its scales stand apart");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_equals_the_lowest_number_is_chosen),
        cmocka_unit_test(a_bias_chooses_and_does_not_weigh),
        cmocka_unit_test(nan_is_chosen_last),
        cmocka_unit_test(groups_count_by_their_best_two),
        cmocka_unit_test(waves_of_experts_are_all_of_them),
        cmocka_unit_test(an_expert_that_is_none_is_refused),
        cmocka_unit_test(products_of_heads_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
