// train_graph.c — a graph of one's own, planned and trained within a memory budget.
//
//     train_graph [STEPS [OPTIMIZER]]
//
// Learns where a point of the plane lies: inside a ring or not. Three acts: the graph with its loss
// and updates; the plan and its session; steps.
#include <ration/ration.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, HIDDEN = 64, CLASSES = 2 };

// ---- the graph ----------------------------------------------------------------------------------

static rn_value layer(rn_graph *g, rn_value x, const char *name, uint64_t in, uint64_t out) {
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    rn_graph_block(g, name); // what may be recomputed as a whole
    rn_value w = rn_graph_weight(g, weight, RN_DTYPE_F32, RN_SHAPE(out, in));
    return rn_op_matmul(g, x, w, rn_graph_weight(g, bias, RN_DTYPE_F32, RN_SHAPE(out)));
}

static rn_status write_graph(rn_graph *g, const char *optimizer) {
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(BATCH, 2));
    rn_value targets = rn_graph_input(g, "targets", RN_DTYPE_I32, RN_SHAPE(BATCH));
    x = rn_op_tanh(g, layer(g, x, "first", 2, HIDDEN));
    x = rn_op_tanh(g, layer(g, x, "second", HIDDEN, HIDDEN));
    x = layer(g, x, "head", HIDDEN, CLASSES);
    rn_value loss = rn_graph_loss(g, "cross_entropy", x, targets, 1);
    return rn_graph_train(g, loss, &(rn_train_options){.optimizer = optimizer});
}

// ---- first weights ------------------------------------------------------------------------------

// By name, as the session asks for them when it is created; it borrows the bytes. Matrices are
// random numbers of either sign, biases zero.
static const void *find_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static float weights[6][HIDDEN * HIDDEN];
    static const char *const names[] = {"first.weight", "first.bias",  "second.weight",
                                        "second.bias",  "head.weight", "head.bias"};
    uint32_t *random = self;
    if (dtype != RN_DTYPE_F32 || bytes > sizeof weights[0]) return NULL;
    for (int n = 0; n < 6; n++) {
        if (strcmp(name, names[n]) != 0) continue;
        for (uint64_t i = 0; n % 2 == 0 && i < bytes / sizeof(float); i++) {
            *random = *random * 1664525u + 1013904223u;
            weights[n][i] = ((float)(*random >> 8) / (float)(1 << 23) - 1) * (n ? 0.2f : 1.5f);
        }
        return weights[n];
    }
    return NULL;
}

// ---- steps --------------------------------------------------------------------------------------

static void draw_batch(uint32_t *random, float (*x)[2], int32_t *targets) {
    for (int i = 0; i < BATCH; i++) {
        for (int j = 0; j < 2; j++) {
            *random = *random * 1664525u + 1013904223u;
            x[i][j] = (float)(*random >> 8) / (float)(1 << 23) - 1;
        }
        float radius = hypotf(x[i][0], x[i][1]);
        targets[i] = radius > 0.4f && radius < 0.8f;
    }
}

static rn_status step(rn_session *session, uint32_t *random, int number, float *out_loss) {
    float x[BATCH][2];
    int32_t targets[BATCH];
    draw_batch(random, x, targets);
    RN_TRY(rn_session_set(session, "x", x, sizeof x));
    RN_TRY(rn_session_set(session, "targets", targets, sizeof targets));
    RN_TRY(rn_session_set_scalar(session, "loss_scale", 1.0 / BATCH));
    RN_TRY(rn_session_set_scalar(session, "rate", 0.005));
    rn_status s = rn_session_set_scalar(session, "step", number + 1); // adamw counts
    if (s != RN_OK && s != RN_NOT_FOUND) return s;
    RN_TRY(rn_session_run(session, 0));
    return rn_session_get(session, "loss", out_loss, sizeof *out_loss);
}

static rn_status train(const rn_plan *plan, int steps) {
    uint32_t random = 1;
    rn_weight_source weights = {.self = &random, .find = find_weight};
    rn_session *session = NULL;
    float loss = 0;
    RN_TRY(rn_session_create(plan, &weights, NULL, &session));
    rn_status s = RN_OK;
    for (int i = 0; i < steps && s == RN_OK; i++) {
        s = step(session, &random, i, &loss);
        if (s == RN_OK && (i == 0 || (i + 1) % 100 == 0))
            printf("step %d: loss %.4f\n", i + 1, (double)loss);
    }
    rn_session_destroy(session);
    return s;
}

static rn_status run(int steps, const char *optimizer) {
    rn_graph *graph = NULL;
    rn_recipe recipe = {0};
    rn_plan *plan = NULL;
    RN_TRY(rn_graph_create(&graph));
    rn_status s = write_graph(graph, optimizer);
    if (s == RN_OK) s = rn_recipe_from_graph(graph, 0, &recipe);
    recipe.weights_in_memory = true;
    rn_plan_options options = {.budget_bytes = 1 << 20};
    if (s == RN_OK) s = rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan);
    if (s == RN_OK) s = rn_plan_print(plan, rn_sink_file(stdout));
    if (s == RN_OK) s = train(plan, steps);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_graph_destroy(graph);
    return s;
}

int main(int argc, char **argv) {
    if (run(argc > 1 ? atoi(argv[1]) : 500, argc > 2 ? argv[2] : NULL) == RN_OK) return 0;
    fprintf(stderr, "%s\n%s\n", rn_last_error()->message, rn_last_error()->hint);
    return 1;
}
