// trainer.c — a recipe's training step, planned once and run for each batch.
//
// First weights are normal numbers by place (philox: seed, number of the weight, element), so that
// they depend on nothing else. Matrices that end a residual branch are smaller by the root of the
// number of branches: at the start every layer then adds about as much.
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/reserved.h"
#include "base/str.h"
#include "graph/philox.h"
#include "memory/account.h"
#include "runtime/recover.h"
#include "train/optimizer.h"
#include "train/train_recipe.h"

#include <ration/profile.h>

// ---- what is trained ----------------------------------------------------------------------------

// Names are the plan's, which lives as long as the trainer's session.
static void add_tensor(rn_trainer *t, const rn_value_info *info) {
    rn_trained *tensor = &t->tensors[t->tensor_count++];
    *tensor = (rn_trained){.name = info->name, .shape = info->shape};
    tensor->count = rn_shape_elements(info->shape, 1);
    if (tensor->count > t->most) t->most = tensor->count;
}

static rn_status add_state(rn_trainer *t, const rn_graph *graph, const rn_trained *weight,
                           const char *suffix) {
    char name[256];
    RN_TRY(rn_optimizer_state_name(weight->name, suffix, name, sizeof name));
    rn_value value = rn_graph_find(graph, RN_ROLE_STATE, name);
    if (value == RN_NO_VALUE) return rn_fail(RN_INTERNAL, "there is no state '%s'", name);
    add_tensor(t, rn_graph_value(graph, value));
    return RN_OK;
}

// Weights, then each weight's states.
static rn_status collect(rn_trainer *t) {
    const rn_graph *graph = rn_plan_graph(t->plan);
    uint32_t values = rn_graph_value_count(graph);
    void *block = NULL;
    RN_TRY(rn_arena_array(&t->memory, values, sizeof(rn_trained), &block));
    t->tensors = block;
    for (rn_value v = 1; v <= values; v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT)
            add_tensor(t, rn_graph_value(graph, v));
    t->weight_count = t->tensor_count;
    for (uint32_t i = 0; i < t->weight_count; i++)
        for (uint32_t n = 0; n < t->optimizer->state_count; n++)
            RN_TRY(add_state(t, graph, &t->tensors[i], t->optimizer->states[n].suffix));
    return RN_OK;
}

// ---- first weights ------------------------------------------------------------------------------

static float deviation_of(const rn_trainer *t, const char *name) {
    float usual = t->options.init_deviation > 0 ? t->options.init_deviation : 0.02f;
    rn_str text = rn_str_from(name);
    bool ends =
        rn_str_ends(text, RN_STR("o_proj.weight")) || rn_str_ends(text, RN_STR("down_proj.weight"));
    return ends ? usual / sqrtf(2.0f * (float)t->options.layers) : usual;
}

static rn_status draw(rn_trainer *t, uint32_t number) {
    rn_trained *w = &t->tensors[number];
    void *block = NULL;
    RN_TRY(rn_arena_array(&t->memory, (size_t)w->count, sizeof(float), &block));
    w->first = block;
    float deviation = deviation_of(t, w->name);
    for (uint64_t i = 0; i < w->count; i++)
        w->first[i] = w->shape.rank == 1 // the scale of a norm
                          ? 1
                          : deviation * rn_philox_normal(t->options.seed, number, i);
    return RN_OK;
}

static const void *find_first(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    const rn_trainer *t = self;
    for (uint32_t i = 0; i < t->weight_count; i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            return dtype == RN_DTYPE_F32 && bytes == t->tensors[i].count * sizeof(float)
                       ? t->tensors[i].first
                       : NULL;
    return NULL;
}

// ---- a trainer ----------------------------------------------------------------------------------

static rn_status make_plan(rn_trainer *t) {
    const rn_trainer_options *o = &t->options;
    rn_llama_config config = {.layers = o->layers,
                              .dim = o->dim,
                              .heads = o->heads,
                              .kv_heads = o->kv_heads,
                              .ffn = o->ffn,
                              .vocab = o->vocab_size,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = o->tokens};
    rn_train_options train = {.optimizer = t->optimizer->name,
                              .beta1 = o->beta1,
                              .beta2 = o->beta2,
                              .momentum = o->momentum,
                              .weight_decay = o->weight_decay,
                              .clip = o->max_norm > 0 ? RN_CLIP_GLOBAL : RN_CLIP_NONE,
                              .max_norm = o->max_norm};
    rn_recipe recipe;
    if (o->batch == 0) return rn_fail(RN_INVALID, "a step needs at least one sequence");
    RN_TRY(rn_train_recipe(rn_llama_forward(&config), o->batch, &train, &recipe));
    recipe.weights_in_memory = true; // they are drawn: nothing is staged
    const rn_device_caps *caps = o->device ? rn_device_get_caps(o->device) : rn_cpu_caps();
    rn_status s = rn_plan_make(&recipe, caps, &o->plan, &t->plan);
    rn_recipe_destroy(&recipe);
    return s;
}

static rn_status open_session(rn_trainer *t) {
    rn_weight_source weights = {.self = t, .find = find_first};
    rn_session_options options = {.device = t->options.device};
    for (uint32_t i = 0; i < t->weight_count; i++)
        RN_TRY(draw(t, i));
    return rn_session_create(t->plan, &weights, &options, &t->session);
}

// The steps of runtime/recover.h: a smaller plan has more micro-batches, and weights of the same
// names, which are drawn again.
static rn_status plan_step(void *self, const rn_plan **out) {
    rn_trainer *t = self;
    RN_TRY(make_plan(t));
    *out = t->plan;
    return collect(t);
}

static rn_status open_step(void *self) {
    return open_session(self);
}

static void close_step(void *self) {
    rn_trainer *t = self;
    rn_session_destroy(t->session);
    rn_plan_destroy(t->plan);
    rn_arena_free_all(&t->memory);
    rn_arena_init(&t->memory, RN_HOST_OTHER, 0);
    t->session = NULL;
    t->plan = NULL;
    t->tensors = NULL;
    t->tensor_count = t->weight_count = 0;
}

static void lower_budget(void *self, uint64_t bytes) {
    rn_plan_options *plan = &((rn_trainer *)self)->options.plan;
    uint64_t total, budget = plan->budget_bytes ? plan->budget_bytes : RN_NO_LIMIT;
    if (!rn_add_u64(bytes, plan->beside_bytes, &total)) total = RN_NO_LIMIT;
    plan->budget_bytes = rn_max_u64(rn_min_u64(budget, total), 1);
}

rn_status rn_trainer_create(const rn_trainer_options *options, rn_trainer **out) {
    const rn_optimizer *optimizer = NULL;
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_check_reserved(options->reserved, "rn_trainer_options"));
    RN_TRY(rn_optimizer_find(options->optimizer, &optimizer));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_trainer), &block));
    rn_trainer *t = block;
    t->options = *options;
    t->options.optimizer = optimizer->name;
    t->optimizer = optimizer;
    rn_arena_init(&t->memory, RN_HOST_OTHER, 0);
    rn_status s = rn_recover(&(rn_recovery){.device = t->options.device,
                                            .self = t,
                                            .plan = plan_step,
                                            .open = open_step,
                                            .undo = close_step,
                                            .lower = lower_budget});
    if (s == RN_OK)
        *out = t;
    else
        rn_trainer_destroy(t);
    return s;
}

void rn_trainer_destroy(rn_trainer *trainer) {
    if (!trainer) return;
    rn_session_destroy(trainer->session);
    rn_plan_destroy(trainer->plan);
    rn_arena_free_all(&trainer->memory);
    rn_free(RN_HOST_OTHER, trainer, sizeof *trainer);
}

const rn_plan *rn_trainer_plan(const rn_trainer *trainer) {
    return trainer->plan;
}

uint64_t rn_trainer_steps(const rn_trainer *trainer) {
    return trainer->steps;
}

// ---- a step -------------------------------------------------------------------------------------

rn_status rn_trainer_step(rn_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                          double rate, float *out_loss) {
    uint64_t rows = (uint64_t)trainer->options.batch * trainer->options.tokens, counted = 0;
    for (uint64_t i = 0; i < rows; i++)
        counted += targets[i] != -100;
    if (counted == 0) return rn_fail(RN_INVALID, "no target of this batch counts");
    rn_session *s = trainer->session;
    RN_TRY(rn_session_set(s, "tokens", tokens, rows * sizeof *tokens));
    RN_TRY(rn_session_set(s, "targets", targets, rows * sizeof *targets));
    RN_TRY(rn_session_set_scalar(s, "rate", rate));
    if (trainer->optimizer->needs_step)
        RN_TRY(rn_session_set_scalar(s, "step", (double)(trainer->steps + 1)));
    RN_TRY(rn_session_set_scalar(s, "loss_scale", 1.0 / (double)counted));
    rn_profile_begin(rn_profile_name("train step"));
    rn_status status = rn_session_run(s, 0);
    rn_profile_end();
    RN_TRY(status);
    trainer->steps++;
    return rn_session_get(s, "loss", out_loss, sizeof *out_loss);
}
