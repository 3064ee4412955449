// trainer.c — training as a program of phases, planned once: a step, saving, an evaluation.
//
// Weights and the optimiser's states persist; the activations of a step, those of an evaluation and
// the buffers of a checkpoint that is being written lie in the same bytes.
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
#include "graph/op/update.h"
#include "graph/philox.h"
#include "memory/account.h"
#include "plan/program.h"
#include "runtime/recover.h"
#include "train/optimizer.h"
#include "train/train_recipe.h"

#include <ration/profile.h>

// ---- what is trained ----------------------------------------------------------------------------

// Names are the plan's, which lives as long as the trainer's session.
static void add_tensor(rn_trainer *t, const rn_value_info *info, rn_shape shape) {
    rn_trained *tensor = &t->tensors[t->tensor_count++];
    *tensor = (rn_trained){.name = info->name, .shape = shape, .dtype = info->dtype};
    tensor->count = rn_shape_elements(shape, 1);
    tensor->range.end = tensor->count;
    rn_dtype_bytes(info->dtype, tensor->count, &tensor->bytes);
    if (tensor->count > t->most) t->most = tensor->count;
}

// Of a divided weight, rows of elements; of its blocks' scales, as many blocks.
static void divide(const rn_trainer *t, const rn_trained *weight) {
    rn_trained *state = &t->tensors[t->tensor_count - 1];
    uint64_t row = rn_rank_row(weight->count, t->share.ranks);
    state->row = state->count == weight->count ? row : row / RN_STATE_BLOCK;
    state->range = rn_rank_range_of(state->count, state->row, t->share.rank);
}

static rn_status add_state(rn_trainer *t, const rn_graph *graph, const rn_trained *weight,
                           const rn_optimizer_state *like, bool divided) {
    char name[256];
    RN_TRY(rn_optimizer_state_name(weight->name, like->suffix, name, sizeof name));
    rn_value value = rn_graph_find(graph, RN_ROLE_STATE, name);
    if (value == RN_NO_VALUE) return rn_fail(RN_INTERNAL, "there is no state '%s'", name);
    add_tensor(t, rn_graph_value(graph, value), like->shape);
    if (divided) divide(t, weight);
    return RN_OK;
}

static rn_status add_states(rn_trainer *t, const rn_graph *graph, const rn_trained *weight) {
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    const rn_value_info *info =
        rn_graph_value(graph, rn_graph_find(graph, RN_ROLE_WEIGHT, weight->name));
    uint32_t count = t->optimizer->states(info, states);
    rn_rank_range range;
    bool divided = rn_optimizer_divides(t->optimizer, info, &t->share, &range);
    for (uint32_t n = 0; n < count; n++)
        RN_TRY(add_state(t, graph, weight, &states[n], divided));
    return RN_OK;
}

static bool is_trained(const rn_trainer *t, const char *name) {
    rn_str text = rn_str_from(name);
    return rn_str_matches_any(text, rn_str_from(t->trained)) &&
           !rn_str_matches_any(text, rn_str_from(t->frozen));
}

// Weights, then each weight's states.
static rn_status collect(rn_trainer *t) {
    const rn_graph *graph = rn_plan_graph(rn_trainer_plan(t));
    uint32_t values = rn_graph_value_count(graph);
    void *block = NULL;
    RN_TRY(rn_arena_array(&t->memory, values, sizeof(rn_trained), &block)); // states are values
    t->tensors = block;
    for (rn_value v = 1; v <= values; v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT &&
            is_trained(t, rn_graph_value(graph, v)->name))
            add_tensor(t, rn_graph_value(graph, v), rn_graph_value(graph, v)->shape);
    t->weight_count = t->tensor_count;
    for (uint32_t i = 0; i < t->weight_count; i++)
        RN_TRY(add_states(t, graph, &t->tensors[i]));
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

// The first values of weight number `number`.
static void draw(const rn_trainer *t, uint32_t number, float *out) {
    const rn_trained *w = &t->tensors[number];
    float deviation = deviation_of(t, w->name);
    if (t->job) {
        for (uint64_t i = 0; i < w->count; i++)
            out[i] = t->job->first(t->job->self, w->name, w->shape, t->options.seed, number, i);
        return;
    }
    for (uint64_t i = 0; t->lora && i < w->count; i++)
        out[i] = rn_lora_first(t->lora, w->name, t->options.seed, number, i);
    for (uint64_t i = 0; !t->lora && i < w->count; i++)
        out[i] = w->shape.rank == 1 // the scale of a norm
                     ? 1
                     : deviation * rn_philox_normal(t->options.seed, number, i);
}

// Of a model whose own weights are trained, none; of a job those that nothing is read for.
static bool is_drawn(const rn_trainer *t, const char *name) {
    const rn_trainer_job *job = t->job;
    if (!job) return !t->full;
    if (!job->weights.find && !job->weights.checkpoint) return true;
    return job->drawn && rn_str_matches_any(rn_str_from(name), rn_str_from(job->drawn));
}

static bool draws(const rn_trainer *t) {
    for (uint32_t i = 0; i < t->weight_count; i++)
        if (is_drawn(t, t->tensors[i].name)) return true;
    return false;
}

static rn_status draw_all(rn_trainer *t) {
    rn_trainer_scratch scratch;
    RN_TRY(rn_trainer_scratch_take(t, &scratch));
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < t->weight_count; i++) {
        if (!is_drawn(t, t->tensors[i].name)) continue;
        draw(t, i, scratch.values);
        s = rn_session_put(t->session, t->tensors[i].name, scratch.values,
                           t->tensors[i].count * sizeof(float));
    }
    rn_trainer_scratch_free(&scratch);
    return s;
}

// Weights that are trained are zero at first: they are drawn once there is an arena.
static const void *find_first(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    const rn_trainer *t = self;
    for (uint32_t i = 0; i < t->weight_count; i++)
        if (t->zeros && strcmp(t->tensors[i].name, name) == 0 && is_drawn(t, name))
            return dtype == RN_DTYPE_F32 && bytes == t->tensors[i].bytes ? t->zeros : NULL;
    if (t->job && t->job->weights.find)
        return t->job->weights.find(t->job->weights.self, name, dtype, bytes);
    if (!t->network) return NULL;
    rn_weight_source base = rn_network_weights(t->network);
    return base.find(base.self, name, dtype, bytes);
}

// ---- a trainer ----------------------------------------------------------------------------------

// Elements of the largest weight that is trained (its states are no larger), and what tables take
// beside the plan.
static rn_status look_ahead(const rn_trainer *t, const rn_recipe *recipe, uint64_t *out_most,
                            uint64_t *out_beside) {
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    rn_graph *graph = NULL;
    uint64_t tensors = 0;
    *out_most = *out_beside = 0;
    RN_TRY(recipe->build(recipe->self, &(rn_recipe_options){0}, &graph));
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT || !is_trained(t, info->name)) continue;
        *out_most = rn_max_u64(*out_most, rn_shape_elements(info->shape, 1));
        tensors += 1 + t->optimizer->states(info, states);
    }
    *out_beside = rn_train_tables_bytes(graph, tensors);
    if (t->lora) *out_beside += t->lora->norm_count * sizeof(float);
    rn_graph_destroy(graph);
    return RN_OK;
}

// For as many steps as there are to an evaluation.
rn_status rn_trainer_plan_phases(rn_trainer *t, rn_recipe *steps, rn_recipe *evaluates,
                                 uint32_t shapes) {
    const rn_trainer_options *o = &t->options;
    const rn_device_caps *caps = o->device ? rn_device_get_caps(o->device) : rn_cpu_caps();
    rn_plan_options plan = o->plan;
    uint64_t most = 0, beside = 0;
    bool in_memory = t->job ? t->job->in_memory || !t->job->weights.checkpoint
                            : !t->network || t->network->in_memory; // drawn: nothing is staged
    for (uint32_t i = 0; i < shapes; i++) {
        steps[i].weights_in_memory = evaluates[i].weights_in_memory = in_memory;
        steps[i].widens_vectors = evaluates[i].widens_vectors = !in_memory;
    }
    RN_TRY(look_ahead(t, steps, &most, &beside));
    bool own_memory = o->device && rn_device_has_own_memory(o->device); // saves use the host's
    if (!own_memory &&
        (plan.host_states == RN_MOVE_ALWAYS || plan.host_activations == RN_MOVE_ALWAYS))
        return rn_fail(RN_INVALID, "this device computes in the host's memory: nothing can be put "
                                   "there from it");
    if (!own_memory)
        plan.reserved_bytes +=
            (plan.with_reserve ? beside : 0) + (t->full ? 0 : most * sizeof(float)); // zeros
    rn_program_phase phases[RN_PROGRAM_PHASES] = {
        [RN_TRAINER_SAVE] = {.name = "save",
                             .bytes = own_memory ? 1 : rn_trainer_scratch_bytes(most)}};
    uint32_t count = RN_TRAINER_SAVE + 1;
    for (uint32_t i = 0; i < shapes; i++)
        phases[i == 0 ? RN_TRAINER_STEP : count++] =
            (rn_program_phase){.name = shapes == 1 ? "step" : steps[i].name,
                               .recipe = &steps[i],
                               .runs = o->evaluate_every,
                               .entries = o->evaluate_every || shapes > 1 ? 2 : 1};
    for (uint32_t i = 0; o->evaluate_every && i < shapes; i++)
        phases[count++] = (rn_program_phase){.name = shapes == 1 ? "evaluate" : evaluates[i].name,
                                             .recipe = &evaluates[i]};
    rn_scope scope;
    rn_scope_begin(&scope, "planning", RN_DEVICE_HOST);
    rn_status s = rn_program_make(phases, count, caps, &plan, &t->program);
    uint64_t held = rn_scope_end(&scope).peak_allocated;
    if (s == RN_OK) t->program->making_bytes = held;
    return s;
}

rn_train_options rn_trainer_step_options(const rn_trainer *t) {
    const rn_trainer_options *o = &t->options;
    return (rn_train_options){.optimizer = t->optimizer->name,
                              .beta1 = o->beta1,
                              .beta2 = o->beta2,
                              .momentum = o->momentum,
                              .weight_decay = o->weight_decay,
                              .undecayed = o->undecayed,
                              .clip = o->max_norm > 0 ? RN_CLIP_GLOBAL : RN_CLIP_NONE,
                              .max_norm = o->max_norm,
                              .guarded = true,
                              .scaled = t->scaled,
                              .gradients = o->gradients,
                              .share = t->share,
                              .trained = t->trained,
                              .frozen = t->frozen};
}

static rn_status make_plan(rn_trainer *t) {
    const rn_trainer_options *o = &t->options;
    rn_train_options train = rn_trainer_step_options(t);
    rn_recipe step, evaluate = {0};
    if (t->job) return rn_trainer_make_job_plan(t);
    if (o->batch == 0) return rn_fail(RN_INVALID, "a step needs at least one sequence");
    RN_TRY(rn_train_recipe(rn_llama_forward(&t->config), t->batch, &train, &step));
    rn_status s = rn_evaluate_recipe(rn_llama_forward(&t->config), t->batch, &t->share, &evaluate);
    snprintf(step.name, sizeof step.name, "training step");
    snprintf(evaluate.name, sizeof evaluate.name, "evaluation");
    if (s == RN_OK) s = rn_trainer_plan_phases(t, &step, &evaluate, 1);
    rn_recipe_destroy(&step);
    rn_recipe_destroy(&evaluate);
    return s;
}

static rn_status open_session(rn_trainer *t) {
    rn_weight_source weights[RN_PROGRAM_PHASES];
    rn_session_options options = {.device = t->options.device, .comm = t->options.comm};
    const rn_checkpoint *files = t->job       ? t->job->weights.checkpoint
                                 : t->network ? rn_network_weights(t->network).checkpoint
                                              : NULL;
    for (uint32_t i = 0; i < RN_PROGRAM_PHASES; i++)
        weights[i] = (rn_weight_source){.self = t, .find = find_first, .checkpoint = files};
    bool drawn = draws(t);
    if (t->lora) RN_TRY(rn_lora_measure(t->lora));
    if (drawn) RN_TRY(rn_alloc_zeroed(RN_HOST_STAGING, (size_t)t->most, sizeof(float), &t->zeros));
    rn_status s = rn_program_open(t->program, weights, &options, &t->run);
    rn_free(RN_HOST_STAGING, t->zeros, (size_t)t->most * sizeof(float));
    t->zeros = NULL;
    RN_TRY(s);
    t->session = rn_program_session(t->run, RN_TRAINER_STEP);
    if (drawn) s = draw_all(t);
    if (t->lora) rn_lora_forget(t->lora);
    return s;
}

// The steps of runtime/recover.h: a smaller plan has more micro-batches, and weights of the same
// names, which are drawn again.
static rn_status plan_step(void *self, const rn_plan **out) {
    rn_trainer *t = self;
    RN_TRY(make_plan(t));
    *out = rn_trainer_plan(t);
    return collect(t);
}

static rn_status open_step(void *self) {
    return open_session(self);
}

static void close_step(void *self) {
    rn_trainer *t = self;
    rn_program_close(t->run);
    rn_program_destroy(t->program);
    rn_arena_free_all(&t->memory);
    rn_arena_init(&t->memory, RN_HOST_OTHER, 0);
    t->run = NULL;
    t->session = NULL;
    t->program = NULL;
    t->tensors = NULL;
    t->tensor_count = t->weight_count = 0;
}

static void lower_budget(void *self, uint64_t bytes) {
    rn_plan_options *plan = &((rn_trainer *)self)->options.plan;
    uint64_t total, budget = plan->budget_bytes ? plan->budget_bytes : RN_NO_LIMIT;
    if (!rn_add_u64(bytes, plan->reserved_bytes, &total)) total = RN_NO_LIMIT;
    plan->budget_bytes = rn_max_u64(rn_min_u64(budget, total), 1);
}

static rn_llama_config config_of(const rn_trainer_options *o) {
    return (rn_llama_config){.layers = o->layers,
                             .dim = o->dim,
                             .heads = o->heads,
                             .kv_heads = o->kv_heads,
                             .ffn = o->ffn,
                             .vocab = o->vocab_size,
                             .weight_dtype = RN_DTYPE_F32,
                             .activations = o->activations,
                             .tokens = o->tokens};
}

// Additions to the model's matrices, or its own weights; and room for positions and documents.
static rn_status adapt(rn_trainer *t, const rn_model *model, const rn_lora_options *lora) {
    const rn_trainer_options *o = &t->options;
    void *block = NULL;
    if (o->layers || o->dim || o->heads || o->kv_heads || o->ffn || o->vocab_size)
        return rn_fail(RN_INVALID, "the sizes of a model that is fine-tuned are its own");
    if (lora) {
        RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *t->lora, &block));
        t->lora = block;
        RN_TRY(rn_lora_init(t->lora, model, o->tokens, lora));
        t->lora->config.activations = o->activations;
        t->config = t->lora->config;
        t->trained = RN_LORA_TRAINED;
        t->frozen = "";
    } else {
        RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *t->full, &block));
        t->full = block;
        RN_TRY(rn_full_init(t->full, model, o));
        t->config = t->full->config;
    }
    t->network = &model->networks[0];
    RN_TRY(
        rn_alloc_zeroed(RN_HOST_OTHER, 2 * (size_t)t->batch, o->tokens * sizeof(int32_t), &block));
    t->positions = block;
    t->documents = t->positions + (size_t)t->batch * o->tokens;
    return RN_OK;
}

// Text that the caller only lends.
static rn_status keep_text(rn_trainer *t, const char **text) {
    void *copy = NULL;
    if (!*text) return RN_OK;
    RN_TRY(rn_arena_copy(&t->kept, *text, strlen(*text), &copy));
    *text = copy;
    return RN_OK;
}

static rn_status check_options(const rn_trainer_options *o, bool drawn, bool lora) {
    RN_TRY(rn_check_reserved(o->reserved, "rn_trainer_options"));
    if (lora && (o->trained || o->frozen))
        return rn_fail(RN_INVALID, "`trained` and `frozen` are for a model's own weights, not for "
                                   "additions to them (targets)");
    if (o->weights != RN_DTYPE_NONE && o->weights != RN_DTYPE_F32 &&
        (o->weights != RN_DTYPE_BF16 || drawn || lora))
        return rn_fail(RN_UNSUPPORTED, "weights cannot be trained in %s here",
                       rn_dtype_get(o->weights)->name);
    return RN_OK;
}

static rn_status fill(rn_trainer *t, const rn_model *model, const rn_lora_options *lora) {
    RN_TRY(keep_text(t, &t->options.trained));
    RN_TRY(keep_text(t, &t->options.frozen));
    RN_TRY(keep_text(t, &t->options.undecayed));
    t->trained = t->options.trained ? t->options.trained : "*";
    t->frozen = t->options.frozen ? t->options.frozen : "";
    return model ? adapt(t, model, lora) : RN_OK;
}

// A trainer without a plan.
static rn_status prepare(const rn_trainer_options *options, const rn_trainer_job *job,
                         const rn_model *model, const rn_lora_options *lora, rn_trainer **out) {
    const rn_optimizer *optimizer = NULL;
    void *block = NULL;
    *out = NULL;
    RN_TRY(check_options(options, !model, lora != NULL));
    RN_TRY(rn_optimizer_find(options->optimizer, &optimizer));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_trainer), &block));
    rn_trainer *t = block;
    t->job = job;
    t->options = *options;
    t->options.optimizer = optimizer->name;
    t->optimizer = optimizer;
    t->scaled = options->activations == RN_DTYPE_F16;
    t->scale = t->scaled ? 0x1p16 : 1;
    t->config = config_of(options);
    rn_arena_init(&t->memory, RN_HOST_OTHER, 0);
    rn_arena_init(&t->kept, RN_HOST_OTHER, 0);
    rn_status s = rn_trainer_take_share(t);
    if (s == RN_OK) s = fill(t, model, lora);
    if (s == RN_OK)
        *out = t;
    else
        rn_trainer_destroy(t);
    return s;
}

static rn_status try_plan(rn_trainer *t) {
    rn_status s = make_plan(t);
    rn_program_destroy(t->program);
    t->program = NULL;
    return s;
}

static rn_status create(const rn_trainer_options *options, const rn_trainer_job *job,
                        const rn_model *model, const rn_lora_options *lora, rn_trainer **out) {
    rn_trainer *t = NULL;
    *out = NULL;
    rn_status s = prepare(options, job, model, lora, &t);
    s = rn_comm_agree(options->comm, s);
    if (s != RN_OK) {
        rn_trainer_destroy(t);
        return s;
    }
    s = rn_trainer_choose_division(t, try_plan);
    if (s == RN_OK)
        s = rn_recover(&(rn_recovery){.device = t->options.device,
                                      .self = t,
                                      .plan = plan_step,
                                      .open = open_step,
                                      .undo = close_step,
                                      .lower = lower_budget});
    s = rn_trainer_agree(t, s);
    if (s == RN_OK)
        *out = t;
    else
        rn_trainer_destroy(t);
    return s;
}

rn_status rn_trainer_create(const rn_trainer_options *options, rn_trainer **out) {
    return create(options, NULL, NULL, NULL, out);
}

rn_status rn_trainer_finetune(const rn_model *model, const rn_trainer_options *options,
                              const rn_lora_options *lora, rn_trainer **out) {
    return create(options, NULL, model, lora, out);
}

rn_status rn_finetune_plan(const rn_model *model, const rn_trainer_options *options,
                           const rn_lora_options *lora, rn_program **out) {
    rn_trainer *t = NULL;
    *out = NULL;
    RN_TRY(prepare(options, NULL, model, lora, &t));
    rn_status s = make_plan(t);
    *out = t->program;
    t->program = NULL;
    rn_trainer_destroy(t);
    return s;
}

rn_status rn_trainer_create_job(const rn_trainer_options *options, const rn_trainer_job *job,
                                rn_trainer **out) {
    return create(options, job, NULL, NULL, out);
}

rn_status rn_trainer_plan_job(const rn_trainer_options *options, const rn_trainer_job *job,
                              rn_program **out) {
    rn_trainer *t = NULL;
    *out = NULL;
    RN_TRY(prepare(options, job, NULL, NULL, &t));
    rn_status s = make_plan(t);
    *out = t->program;
    t->program = NULL;
    rn_trainer_destroy(t);
    return s;
}

void rn_trainer_destroy(rn_trainer *trainer) {
    if (!trainer) return;
    rn_program_close(trainer->run);
    rn_program_destroy(trainer->program);
    rn_arena_free_all(&trainer->memory);
    rn_free(RN_HOST_OTHER, trainer->positions,
            2 * (size_t)trainer->batch * trainer->options.tokens * sizeof(int32_t));
    if (trainer->lora) rn_lora_free(trainer->lora);
    rn_free(RN_HOST_OTHER, trainer->lora, sizeof *trainer->lora);
    rn_free(RN_HOST_OTHER, trainer->full, sizeof *trainer->full);
    rn_arena_free_all(&trainer->kept);
    rn_free(RN_HOST_OTHER, trainer, sizeof *trainer);
}

const rn_plan *rn_trainer_plan(const rn_trainer *trainer) {
    return rn_program_plan(trainer->program, RN_TRAINER_STEP);
}

const rn_program *rn_trainer_program(const rn_trainer *trainer) {
    return trainer->program;
}

uint64_t rn_trainer_steps(const rn_trainer *trainer) {
    return trainer->steps;
}

uint64_t rn_trainer_batches(const rn_trainer *trainer) {
    return trainer->batches;
}

// ---- a step -------------------------------------------------------------------------------------

// Where documents begin, and how far behind that each token stands.
static rn_status set_documents(const rn_trainer *t, rn_session *s, const int32_t *documents) {
    uint64_t tokens = t->options.tokens, rows = t->batch * tokens;
    if (!t->network)
        return documents ? rn_fail(RN_INVALID, "packed documents are for fine-tuning") : RN_OK;
    for (uint64_t i = 0; i < rows; i++) {
        int32_t at = (int32_t)(i % tokens), begin = documents ? documents[i] : 0;
        if (begin < 0 || begin > at)
            return rn_fail(RN_INVALID,
                           "token %d of sequence %llu is in a document from token %d on", at,
                           (unsigned long long)(i / tokens), begin);
        t->documents[i] = begin;
        t->positions[i] = at - begin;
    }
    RN_TRY(rn_session_set(s, "position", t->positions, rows * sizeof(int32_t)));
    return rn_session_set(s, "document", t->documents, rows * sizeof(int32_t));
}

static uint64_t count_targets(const rn_trainer *t, const rn_batch *batch) {
    uint64_t rows = (uint64_t)t->options.batch * t->options.tokens, counted = 0;
    for (uint64_t i = 0; i < rows; i++)
        counted += batch->targets[i] != -100;
    return counted;
}

// Of several ranks each takes its sequences. scale: of the loss; `counted` are of the whole batch.
static rn_status set_batch(const rn_trainer *trainer, rn_session *s, const rn_batch *batch,
                           uint64_t counted, double scale) {
    uint64_t rows = (uint64_t)trainer->batch * trainer->options.tokens;
    uint64_t first = (uint64_t)trainer->first * trainer->options.tokens;
    if (counted == 0) return rn_fail(RN_INVALID, "no target of this batch counts");
    RN_TRY(rn_session_set(s, "tokens", batch->tokens + first, rows * sizeof(int32_t)));
    RN_TRY(rn_session_set(s, "targets", batch->targets + first, rows * sizeof(int32_t)));
    RN_TRY(set_documents(trainer, s, batch->documents ? batch->documents + first : NULL));
    return rn_session_set_scalar(s, "loss_scale", scale / (double)counted);
}

// Those of the optimiser that the graph has.
rn_status rn_trainer_set_scalars(const rn_trainer *t, rn_session *s) {
    const rn_graph *graph = rn_plan_graph(rn_trainer_plan(t));
    for (uint32_t i = 0; i < rn_graph_scalar_count(graph); i++) {
        const char *name = rn_graph_scalar_name(graph, i);
        if (strcmp(name, "step") == 0)
            RN_TRY(rn_session_set_scalar(s, name, (double)(t->steps + 1)));
        if (strcmp(name, "seed") == 0)
            RN_TRY(rn_session_set_scalar(s, name, (double)(t->options.seed & 0x1FFFFFFFFFFFFF)));
    }
    return RN_OK;
}

rn_status rn_trainer_step(rn_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                          double rate, float *out_loss) {
    return rn_trainer_step_packed(trainer, &(rn_batch){tokens, targets, NULL}, rate, out_loss);
}

// The first weight whose gradient is not finite.
static rn_status find_culprit(rn_trainer *t) {
    char name[256];
    for (uint32_t i = 0; i < t->weight_count; i++) {
        float square = 0;
        RN_TRY(rn_optimizer_state_name(t->tensors[i].name, "gradient_square", name, sizeof name));
        RN_TRY(rn_session_get(t->session, name, &square, sizeof square));
        if (isfinite(square)) continue;
        snprintf(t->last.weight, sizeof t->last.weight, "%s", t->tensors[i].name);
        return RN_OK;
    }
    return RN_OK; // each is finite, their sum is not
}

rn_status rn_trainer_look_back(rn_trainer *t) {
    rn_step_info *last = &t->last;
    bool has_norm = t->options.max_norm > 0 || t->scaled;
    RN_TRY(rn_session_get(t->session, "loss", &last->loss, sizeof last->loss));
    if (has_norm)
        RN_TRY(rn_session_get(t->session, "gradient_norm", &last->gradient_norm, sizeof(float)));
    last->loss = (float)((double)last->loss / t->scale);
    if (isfinite(has_norm ? last->gradient_norm : last->loss)) {
        t->steps++;
        return RN_OK;
    }
    last->effect = RN_STEP_NOT_FINITE;
    return has_norm ? find_culprit(t) : RN_OK;
}

// torch's rule: half the scale where something overflows, twice after many steps without that.
static void adapt_scale(rn_trainer *t) {
    static const uint64_t window = 2000;
    if (t->last.effect != RN_STEP_TAKEN) {
        t->scale /= 2;
        t->clean_steps = 0;
    } else if (++t->clean_steps == window && t->scale < 0x1p24) {
        t->scale *= 2;
        t->clean_steps = 0;
    }
}

static rn_status run_step(rn_trainer *t, const rn_batch *batch, double rate) {
    rn_session *s = t->session;
    float unscale = (float)(1 / t->scale);
    t->last.effect = RN_STEP_TAKEN;
    t->last.weight[0] = 0;
    t->last.loss_factor = t->scale;
    RN_TRY(set_batch(t, s, batch, t->last.targets, t->scale));
    RN_TRY(rn_session_set_scalar(s, "rate", rate));
    RN_TRY(rn_trainer_set_scalars(t, s));
    if (t->scaled) RN_TRY(rn_session_put(s, "unscale", &unscale, sizeof unscale));
    rn_profile_begin(rn_profile_name("train step"));
    rn_status status = rn_session_run(s, 0);
    rn_profile_end();
    RN_TRY(status);
    return rn_trainer_look_back(t);
}

rn_status rn_trainer_step_packed(rn_trainer *trainer, const rn_batch *batch, double rate,
                                 float *out_loss) {
    trainer->last = (rn_step_info){.targets = count_targets(trainer, batch), .loss_factor = 1};
    *out_loss = 0;
    if (trainer->last.targets == 0) {
        trainer->last.effect = RN_STEP_NO_TARGETS;
        trainer->batches++;
        return RN_OK;
    }
    RN_TRY(run_step(trainer, batch, rate));
    while (trainer->last.effect == RN_STEP_NOT_FINITE && trainer->scale > 1) {
        adapt_scale(trainer);
        RN_TRY(run_step(trainer, batch, rate));
    }
    if (trainer->scaled && trainer->last.effect == RN_STEP_TAKEN) adapt_scale(trainer);
    trainer->batches++;
    *out_loss = trainer->last.loss;
    return RN_OK;
}

const rn_step_info *rn_trainer_last_step(const rn_trainer *trainer) {
    return &trainer->last;
}

rn_status rn_trainer_gradient_norm(rn_trainer *trainer, float *out) {
    *out = 0;
    if (!(trainer->options.max_norm > 0))
        return rn_fail(RN_INVALID, "the norm of gradients that are not clipped is not computed");
    return rn_session_get(trainer->session, "gradient_norm", out, sizeof *out);
}

rn_status rn_trainer_evaluate(rn_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                              float *out_loss) {
    return rn_trainer_evaluate_packed(trainer, &(rn_batch){tokens, targets, NULL}, out_loss);
}

rn_status rn_trainer_evaluate_packed(rn_trainer *trainer, const rn_batch *batch, float *out_loss) {
    rn_session *s = rn_program_session(trainer->run, RN_TRAINER_EVALUATE);
    if (!s)
        return rn_hint(rn_fail(RN_INVALID, "the trainer was made without evaluations"),
                       "set evaluate_every in its options: evaluations are planned with the steps");
    RN_TRY(set_batch(trainer, s, batch, count_targets(trainer, batch), 1));
    rn_profile_begin(rn_profile_name("evaluate"));
    rn_status status = rn_session_run(s, 0);
    rn_profile_end();
    RN_TRY(status);
    return rn_session_get(s, "loss", out_loss, sizeof *out_loss);
}
