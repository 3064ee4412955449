// What a plan and a session hold beside the planned bytes is within what rn_plan_table_bytes says,
// also where a graph has many nodes, weights and constants.
#include "chain.h"

#include <ration/memory.h>

enum { WIDTH = 16, TABLE = 4096 };

typedef struct shape_of {
    uint32_t layers;    // of a product, two views, an addition and a multiplication each
    uint32_t constants; // of them have one of TABLE elements of their own
} shape_of;

static float weight[WIDTH * WIDTH], constant[TABLE];

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const shape_of *shape = self;
    char name[32];
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(TABLE / WIDTH, WIDTH));
    for (uint32_t i = 0; i < shape->layers; i++) {
        snprintf(name, sizeof name, "layer %u", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "layer.%u.weight", i);
        rn_value w = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH));
        rn_value y = rn_op_reshape(g, rn_op_matmul(g, x, w, RN_NO_VALUE), RN_SHAPE(TABLE));
        snprintf(name, sizeof name, "constant %u", i);
        if (i < shape->constants)
            y = rn_op_add(g, y,
                          rn_graph_constant(g, name, RN_DTYPE_F32, RN_SHAPE(TABLE), constant));
        x = rn_op_mul(g, rn_op_reshape(g, y, RN_SHAPE(TABLE / WIDTH, WIDTH)), x);
    }
    rn_graph_output(g, x, "y");
    return rn_graph_finish(g);
}

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self, (void)name, (void)dtype;
    return bytes == sizeof weight ? weight : NULL;
}

static uint64_t held(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes;
}

static void check(shape_of shape, bool frugal) {
    rn_recipe recipe = {
        .name = "tables", .self = &shape, .build = build, .weights_in_memory = true};
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    uint64_t before = held();
    rn_plan_options options = {0};
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    options.budget_bytes = rn_plan_get_summary(plan)->smallest_bytes;
    if (frugal) {
        rn_plan_destroy(plan);
        assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    }
    assert_ok(rn_session_create(plan, &(rn_weight_source){.find = find}, NULL, &session));
    uint64_t beside = held() - before - rn_plan_get_summary(plan)->planned_bytes;
    if (beside > rn_plan_table_bytes(rn_plan_graph(plan)))
        fail_msg("%u layers, %u constants: %llu bytes are held, %llu were said", shape.layers,
                 shape.constants, (unsigned long long)beside,
                 (unsigned long long)rn_plan_table_bytes(rn_plan_graph(plan)));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void tables_are_within_what_is_said_of_them(void **state) {
    static const shape_of shapes[] = {{1, 0}, {1, 1}, {40, 40}, {150, 0}, {200, 60}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int frugal = 0; frugal < 2; frugal++)
            check(shapes[i], frugal);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_are_within_what_is_said_of_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
