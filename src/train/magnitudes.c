// magnitudes.c — DoRA's first magnitudes: the norms of the rows of a model's matrices, as they are
// (B is 0). A plan and a session for each matrix, before those of the training are opened: they
// read what any file form has, and hold one matrix.
#include "train/lora.h"

#include "base/checked.h"
#include "graph/weight_rows.h"
#include "memory/account.h"

#include <ration/device.h>
#include <ration/session.h>

static rn_status write_graph(const rn_lora_part *part, const float *zeros, rn_graph *g) {
    rn_shape shape = RN_SHAPE(part->out, part->in);
    rn_value w = part->tensor
                     ? rn_graph_weight_rows(g, part->weight, part->dtype, shape, part->tensor,
                                            part->first_row, part->tensor_rows)
                     : rn_graph_weight(g, part->weight, part->dtype, shape);
    rn_value down = rn_graph_constant(g, "down", RN_DTYPE_F32, RN_SHAPE(1, part->in), zeros);
    rn_value up = rn_graph_constant(g, "up", RN_DTYPE_F32, RN_SHAPE(part->out, 1), zeros);
    rn_value norms = rn_op_adapted_norm(g, w, down, up, (rn_adapted_norm_attrs){1});
    rn_graph_output(g, norms, "norms");
    return rn_graph_finish(g);
}

static rn_status run(const rn_lora *lora, const rn_graph *graph, float *out, uint64_t bytes) {
    rn_weight_source weights = rn_network_weights(lora->network);
    rn_recipe recipe = {0};
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    RN_TRY(rn_recipe_from_graph(graph, 0, &recipe));
    recipe.weights_in_memory = lora->network->in_memory;
    rn_status s = rn_plan_make(&recipe, rn_cpu_caps(), &(rn_plan_options){0}, &plan);
    if (s == RN_OK) s = rn_session_create(plan, &weights, NULL, &session);
    if (s == RN_OK) s = rn_session_run(session, 0);
    if (s == RN_OK) s = rn_session_get(session, "norms", out, bytes);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    return s;
}

static rn_status measure(const rn_lora *lora, const rn_lora_part *part, float *out) {
    size_t bytes = rn_max_u64(part->in, part->out) * sizeof(float);
    rn_graph *graph = NULL;
    void *zeros = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, bytes, &zeros));
    rn_status s = rn_graph_create(&graph);
    if (s == RN_OK) s = write_graph(part, zeros, graph);
    if (s == RN_OK) s = run(lora, graph, out, part->out * sizeof *out);
    rn_graph_destroy(graph);
    rn_free(RN_HOST_OTHER, zeros, bytes);
    return s;
}

rn_status rn_lora_measure(rn_lora *lora) {
    void *block = NULL;
    if (!lora->dora) return RN_OK;
    rn_lora_forget(lora);
    RN_TRY(rn_alloc(RN_HOST_OTHER, lora->norm_count * sizeof(float), &block));
    lora->norms = block;
    for (uint32_t i = 0; i < lora->count; i++)
        RN_TRY(measure(lora, &lora->parts[i], lora->norms + lora->parts[i].first_norm));
    return RN_OK;
}

void rn_lora_forget(rn_lora *lora) {
    rn_free(RN_HOST_OTHER, lora->norms, lora->norm_count * sizeof(float));
    lora->norms = NULL;
}
