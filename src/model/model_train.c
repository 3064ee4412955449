// model_train.c — from logits to new weights: loss, gradients, accumulating, clipping, AdamW.
//
//     logits ─ cross-entropy ─ backward ─▶ gradient ─ [+= sum] ─ [clip] ─ AdamW ─▶ weight
//                                          every micro-batch   │   once, after the last
//
// Each weight's nodes stand in the block of the weight, so that whoever orders them may put the
// update right behind its gradient.
#include "model/model.h"

#include "base/arena.h"
#include "base/str.h"
#include "graph/graph_internal.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct trainer {
    rn_graph *graph;
    const rn_train_config *config;
    bool accumulates;
    rn_value *weights;   // (count)
    rn_value *gradients; // (count)
    uint32_t count;
    rn_value norm; // of all gradients, with RN_CLIP_GLOBAL
} trainer;

static rn_value loss_of(trainer *t, rn_value logits, rn_value targets) {
    rn_cross_entropy_attrs attrs = {.ignore = -100,
                                    .normalizer = rn_graph_scalar(t->graph, "loss_scale")};
    return rn_op_cross_entropy(t->graph, logits, targets, attrs);
}

// Which weights are trained, in the order in which they were made.
static rn_status collect(trainer *t, rn_arena *memory) {
    uint32_t values = rn_graph_value_count(t->graph);
    rn_str frozen = rn_str_from(t->config->frozen);
    void *weights = NULL, *gradients = NULL;
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &weights));
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &gradients));
    t->weights = weights;
    t->gradients = gradients;
    for (rn_value v = 1; v <= values; v++) {
        const rn_value_info *info = rn_graph_value(t->graph, v);
        if (info->role == RN_ROLE_WEIGHT && !rn_str_matches(rn_str_from(info->name), frozen))
            t->weights[t->count++] = v;
    }
    if (t->count) return RN_OK;
    return rn_fail(RN_INVALID, "nothing to train: every weight matches '%s'", t->config->frozen);
}

static void go_to(trainer *t, rn_value weight, rn_phase phase) {
    rn_graph_set_place(t->graph, rn_graph_value(t->graph, weight)->block, phase);
}

// A state of the weight's shape, "<weight>.<what>".
static rn_value state_of(trainer *t, rn_value weight, const char *what, rn_purpose purpose) {
    const rn_value_info *info = rn_graph_value(t->graph, weight);
    char name[256];
    snprintf(name, sizeof name, "%s.%s", info->name, what);
    return rn_graph_state(t->graph, name, RN_DTYPE_F32, info->shape, purpose);
}

static void watch(trainer *t, rn_value weight, rn_value gradient) {
    char name[256];
    snprintf(name, sizeof name, "%s.gradient", rn_graph_value(t->graph, weight)->name);
    rn_graph_output(t->graph, gradient, name);
}

// The gradient of the whole batch: with micro-batches, the sum so far.
static void gather(trainer *t, uint32_t i) {
    rn_value weight = t->weights[i];
    if (!t->accumulates) {
        if (t->config->watch) watch(t, weight, t->gradients[i]);
        return;
    }
    go_to(t, weight, RN_PHASE_BACKWARD);
    rn_value sum = state_of(t, weight, "gradient", RN_PURPOSE_GRADIENTS);
    t->gradients[i] = rn_op_accumulate(t->graph, sum, t->gradients[i]);
}

static rn_value clip(trainer *t, rn_value gradient) {
    const rn_train_config *c = t->config;
    if (c->clip == RN_CLIP_NONE) return gradient;
    return rn_graph_clip(t->graph, gradient, t->norm, c->max_norm);
}

static void update(trainer *t, uint32_t i) {
    const rn_train_config *c = t->config;
    rn_adamw_attrs attrs = {.beta1 = c->beta1 != 0 ? c->beta1 : 0.9,
                            .beta2 = c->beta2 != 0 ? c->beta2 : 0.999,
                            .eps = c->eps != 0 ? c->eps : 1e-8,
                            .weight_decay = c->weight_decay,
                            .rate = rn_graph_scalar(t->graph, "rate"),
                            .step = rn_graph_scalar(t->graph, "step")};
    rn_value weight = t->weights[i];
    go_to(t, weight, RN_PHASE_UPDATE);
    rn_value gradient = clip(t, t->gradients[i]);
    rn_value m = state_of(t, weight, "m", RN_PURPOSE_OPTIMIZER);
    rn_value v = state_of(t, weight, "v", RN_PURPOSE_OPTIMIZER);
    rn_op_adamw(t->graph, weight, gradient, m, v, attrs);
}

static rn_status check_gradients(const trainer *t) {
    for (uint32_t i = 0; i < t->count; i++)
        if (t->gradients[i] == RN_NO_VALUE)
            return rn_hint(rn_fail(RN_INVALID, "the loss does not depend on '%s'",
                                   rn_graph_value(t->graph, t->weights[i])->name),
                           "name it in `frozen`, or leave it out of the graph");
    return RN_OK;
}

// The loss is one number for the whole batch, too: micro-batches add up.
static void show_loss(trainer *t, rn_value loss) {
    if (t->accumulates) {
        rn_graph_set_place(t->graph, rn_graph_value(t->graph, loss)->block, RN_PHASE_BACKWARD);
        rn_value sum =
            rn_graph_state(t->graph, "loss.sum", RN_DTYPE_F32, RN_SCALAR, RN_PURPOSE_OTHER);
        loss = rn_op_accumulate(t->graph, sum, loss);
    }
    rn_graph_output(t->graph, loss, "loss");
}

static rn_status train(trainer *t, rn_arena *memory, rn_value loss) {
    RN_TRY(rn_graph_finish(t->graph)); // what the model got wrong, before looking at its values
    RN_TRY(collect(t, memory));
    RN_TRY(rn_graph_gradient(t->graph, loss, t->weights, t->count, t->gradients));
    RN_TRY(check_gradients(t));
    show_loss(t, loss);
    for (uint32_t i = 0; i < t->count; i++)
        gather(t, i);
    if (t->config->clip == RN_CLIP_GLOBAL) {
        rn_graph_set_place(t->graph, 0, RN_PHASE_UPDATE);
        t->norm = rn_graph_global_norm(t->graph, t->gradients, t->count);
    }
    for (uint32_t i = 0; i < t->count && rn_graph_finish(t->graph) == RN_OK; i++)
        update(t, i);
    return rn_graph_finish(t->graph);
}

rn_status rn_model_train(rn_graph *graph, rn_value logits, rn_value targets,
                         const rn_train_config *config, uint32_t micro_batches) {
    trainer t = {.graph = graph, .config = config, .accumulates = micro_batches > 1};
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_value loss = loss_of(&t, logits, targets);
    if (config->watch) rn_graph_output(graph, logits, "logits");
    rn_status s = train(&t, &memory, loss);
    rn_arena_free_all(&memory);
    return s;
}
