// train_step.c — from a loss to new weights: gradients, accumulating, clipping, the optimiser's
// row.
//
//     loss ─ backward ─▶ gradient ─ [+= sum] ─ [clip] ─ update ─▶ weight, states
//                        every micro-batch   │   once, after the last
//
// Sums of micro-batches are in their order, or, with `exact`, in that of a tree (base/sum_tree.h).
//
// Of several ranks each sums the gradients of its own samples; then these are summed over ranks,
// and what follows is the same on all of them. Where ranks divide the states, each updates its
// elements of a weight and gets the others' (graph/op/rank_sum.h). All of these stand in one chain,
// in the order in which gradients are made, so that ranks keep one order, whatever their plans.
//
//     sum ─ rank_sum ─▶ gradient of all samples ─ [clip] ─ update of a row ─ rank_gather ─▶ weight
//
// Each weight's nodes stand in the block of the weight, so that whoever orders them may put the
// update right behind its gradient.
#include "train/optimizer.h"
#include "train/train_recipe.h"

#include "base/arena.h"
#include "base/reserved.h"
#include "base/str.h"
#include "graph/graph_internal.h"
#include "graph/op/rank_sum.h"
#include "graph/op/tree_sum.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct step {
    rn_graph *graph;
    const rn_train_options *options;
    const rn_optimizer *optimizer;
    bool accumulates;
    rn_value *weights;   // (count)
    rn_value *gradients; // (count)
    rn_value *rest;      // (count): of ranks, the parts of the sum beside its first; RN_NO_VALUE
    uint32_t *order;     // (count): as the gradients are made
    uint32_t count;
    rn_value chain;   // the last collective, which the next one follows
    rn_value norm;    // of all gradients, with RN_CLIP_GLOBAL or `scaled`
    rn_value unscale; // of `scaled`
    rn_value guard;   // of all updates: the norm, or the loss; RN_NO_VALUE: none
} step;

// Which weights are trained, in the order in which they were made.
static rn_status collect(step *t, rn_arena *memory) {
    uint32_t values = rn_graph_value_count(t->graph);
    rn_str frozen = rn_str_from(t->options->frozen ? t->options->frozen : "");
    const char *trained = t->options->trained;
    void *weights = NULL, *gradients = NULL, *rest = NULL;
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &weights));
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &gradients));
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &rest));
    t->weights = weights;
    t->gradients = gradients;
    t->rest = rest;
    for (rn_value v = 1; v <= values; v++) {
        const rn_value_info *info = rn_graph_value(t->graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        rn_str name = rn_str_from(info->name);
        if (trained && !rn_str_matches_any(name, rn_str_from(trained))) continue;
        if (!rn_str_matches_any(name, frozen)) t->weights[t->count++] = v;
    }
    if (t->count) return RN_OK;
    if (trained) return rn_fail(RN_INVALID, "nothing to train: no weight matches '%s'", trained);
    if (frozen.bytes == 0) return rn_fail(RN_INVALID, "nothing to train: the graph has no weights");
    return rn_fail(RN_INVALID, "nothing to train: every weight matches '%s'", t->options->frozen);
}

static void go_to(step *t, rn_value weight, rn_phase phase) {
    rn_graph_set_place(t->graph, rn_graph_value(t->graph, weight)->block, phase);
}

// The state "<weight>.<suffix>".
static rn_value state_of(step *t, rn_value weight, const rn_optimizer_state *like,
                         rn_purpose purpose) {
    char name[256];
    rn_status s = rn_optimizer_state_name(rn_graph_value(t->graph, weight)->name, like->suffix,
                                          name, sizeof name);
    if (s == RN_OK) return rn_graph_state(t->graph, name, like->dtype, like->shape, purpose);
    rn_graph_spoil(t->graph, s);
    return RN_NO_VALUE;
}

static void watch(step *t, rn_value weight, rn_value gradient) {
    char name[256];
    snprintf(name, sizeof name, "%s.gradient", rn_graph_value(t->graph, weight)->name);
    rn_graph_output(t->graph, gradient, name);
}

// ---- sums ---------------------------------------------------------------------------------------

static bool has_ranks(const rn_train_share *share) {
    return share->ranks > 1;
}

// Of the samples that are computed here.
static rn_sum_tree tree_of(const rn_train_options *o) {
    if (has_ranks(&o->share))
        return rn_sum_tree_share(o->share.samples, o->share.rank, o->share.ranks);
    return (rn_sum_tree){0, o->micro_batches, o->micro_batches};
}

// Turns a sum into the state beside it that has the tree's other slots; false where there are none.
static bool like_parts(const rn_train_options *o, const char *suffix, rn_optimizer_state *like) {
    uint32_t slots = rn_sum_tree_slots(tree_of(o));
    if (slots < 2) return false;
    like->suffix = suffix;
    like->shape = RN_SHAPE(slots - 1, rn_shape_elements(like->shape, 1));
    return true;
}

static rn_value add_in_tree(rn_graph *graph, rn_value sum, rn_value value, rn_value parts,
                            const rn_train_options *o) {
    rn_tree_sum_attrs attrs = {.tree = tree_of(o),
                               .micro_batch = rn_graph_scalar(graph, RN_MICRO_BATCH)};
    return rn_op_tree_sum(graph, sum, value, parts, attrs);
}

// The parts of a tree that were just added to, as the sum over ranks reads them.
static rn_value rest_of(const rn_graph *graph, rn_value sum, rn_value parts) {
    return parts == RN_NO_VALUE ? RN_NO_VALUE : rn_graph_output_of(graph, sum, 1);
}

// The gradient of the samples here: with micro-batches, the sum so far.
static void gather(step *t, uint32_t i) {
    rn_value weight = t->weights[i];
    t->rest[i] = RN_NO_VALUE;
    if (!t->accumulates) {
        if (t->options->watch) watch(t, weight, t->gradients[i]);
        return;
    }
    go_to(t, weight, RN_PHASE_BACKWARD);
    rn_dtype dtype = t->options->gradients == RN_DTYPE_BF16 ? RN_DTYPE_BF16 : RN_DTYPE_F32;
    rn_optimizer_state like = {"gradient", dtype, rn_graph_value(t->graph, weight)->shape};
    rn_value sum = state_of(t, weight, &like, RN_PURPOSE_GRADIENTS);
    if (!t->options->exact && !t->options->share.exact) {
        t->gradients[i] = rn_op_accumulate(t->graph, sum, t->gradients[i]);
        return;
    }
    rn_value parts = RN_NO_VALUE;
    if (like_parts(t->options, "gradient_parts", &like))
        parts = state_of(t, weight, &like, RN_PURPOSE_GRADIENTS);
    t->gradients[i] = add_in_tree(t->graph, sum, t->gradients[i], parts, t->options);
    t->rest[i] = rest_of(t->graph, t->gradients[i], parts);
}

// ---- ranks --------------------------------------------------------------------------------------

static rn_value sum_over_ranks(rn_graph *graph, const rn_train_options *o, rn_value sum,
                               rn_value rest, rn_value after, bool in_place) {
    rn_rank_sum_attrs attrs = {.rank = o->share.rank,
                               .ranks = o->share.ranks,
                               .samples = o->share.exact ? o->share.samples : 0,
                               .in_place = in_place};
    return rn_op_rank_sum(graph, sum, rest, after, attrs);
}

// The place of a gradient among all: by the node that makes it, for numbers of nodes rise.
static uint64_t place_of(const step *t, uint32_t i) {
    return (uint64_t)rn_graph_value(t->graph, t->gradients[i])->producer << 32 | i;
}

// The gradient that is made first of those behind `last`.
static uint32_t find_next(const step *t, bool any, uint64_t last) {
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < t->count; i++)
        if (place_of(t, i) < best && (any || place_of(t, i) > last)) best = place_of(t, i);
    return (uint32_t)best;
}

// Of what the backward pass makes, before anything is added to it: ranks that add up several
// samples and those that have one then keep one order.
static rn_status order_gradients(step *t, rn_arena *memory) {
    void *block = NULL;
    uint64_t last = 0;
    RN_TRY(rn_arena_array(memory, t->count, sizeof(uint32_t), &block));
    t->order = block;
    for (uint32_t n = 0; n < t->count; n++) {
        t->order[n] = find_next(t, n == 0, last);
        last = place_of(t, t->order[n]);
    }
    return RN_OK;
}

static void sum_gradients(step *t) {
    for (uint32_t n = 0; n < t->count; n++) {
        uint32_t i = t->order[n];
        go_to(t, t->weights[i], RN_PHASE_UPDATE);
        t->gradients[i] = sum_over_ranks(t->graph, t->options, t->gradients[i], t->rest[i],
                                         t->chain, t->accumulates);
        t->chain = t->gradients[i];
    }
}

// As f32, made where it is read, so that no more than one is there at a time.
static rn_value widened(step *t, uint32_t i) {
    bool narrow = t->accumulates && t->options->gradients == RN_DTYPE_BF16;
    return narrow ? rn_op_cast(t->graph, t->gradients[i], RN_DTYPE_F32) : t->gradients[i];
}

// What is too large for its norm is made shorter; in the same pass it is divided by the loss's
// factor.
static rn_value clip(step *t, rn_value gradient) {
    const rn_train_options *o = t->options;
    if (o->clip == RN_CLIP_NONE && !o->scaled) return gradient;
    if (o->clip == RN_CLIP_NONE) return rn_op_mul(t->graph, gradient, t->unscale);
    if (!o->scaled) return rn_graph_clip(t->graph, gradient, t->norm, o->max_norm);
    return rn_graph_clip(t->graph, rn_op_mul(t->graph, gradient, t->unscale), t->norm, o->max_norm);
}

static double either(double given, double usual) {
    return given != 0 ? given : usual;
}

static bool is_decayed(const step *t, const char *name) {
    const char *list = t->options->undecayed;
    return !list || !rn_str_matches_any(rn_str_from(name), rn_str_from(list));
}

// Numbers that are rounded at random need a step and a seed, whatever the optimiser.
static void name_scalars(step *t, rn_update *with) {
    bool rounds =
        t->optimizer->rounds || rn_graph_value(t->graph, with->weight)->dtype == RN_DTYPE_BF16;
    with->rate = rn_graph_scalar(t->graph, "rate");
    if (rounds) with->seed = rn_graph_scalar(t->graph, "seed");
    if (rounds || t->optimizer->needs_step) with->step = rn_graph_scalar(t->graph, "step");
}

// The elements of a weight, or of its gradient, that this rank updates.
static rn_value row_of(step *t, rn_value value, rn_rank_range range) {
    uint64_t count = rn_shape_elements(rn_graph_value(t->graph, value)->shape, 1);
    rn_value flat = rn_op_reshape(t->graph, value, RN_SHAPE(count));
    return rn_op_slice(t->graph, flat, 0, range.begin, range.end - range.begin);
}

static void update(step *t, uint32_t i) {
    const rn_train_options *o = t->options;
    const rn_optimizer *row = t->optimizer;
    rn_value whole = t->weights[i];
    const rn_value_info *weight = rn_graph_value(t->graph, whole);
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    rn_rank_range range;
    rn_update with = {.graph = t->graph,
                      .weight = whole,
                      .guard = t->guard,
                      .beta1 = either(o->beta1, row->beta1),
                      .beta2 = either(o->beta2, row->beta2),
                      .eps = either(o->eps, row->eps),
                      .momentum = row->momentum != 0 ? either(o->momentum, row->momentum) : 0,
                      .weight_decay = is_decayed(t, weight->name) ? o->weight_decay : 0,
                      .stream = i + 1};
    bool divided = rn_optimizer_divides(row, weight, &o->share, &range);
    with.state_count = rn_optimizer_states(row, weight, &o->share, states);
    name_scalars(t, &with);
    go_to(t, whole, RN_PHASE_UPDATE);
    with.gradient = widened(t, i);
    for (uint32_t n = 0; n < RN_OPTIMIZER_STATES; n++)
        with.states[n] = n < with.state_count ? state_of(t, whole, &states[n], RN_PURPOSE_OPTIMIZER)
                                              : RN_NO_VALUE;
    if (divided) {
        with.weight = row_of(t, whole, range);
        with.gradient = row_of(t, with.gradient, range);
    }
    with.gradient = clip(t, with.gradient);
    rn_value updated = row->update(&with);
    if (divided)
        t->chain = rn_op_rank_gather(t->graph, whole, updated, t->chain,
                                     (rn_rank_gather_attrs){o->share.rank, o->share.ranks});
}

static rn_status check_gradients(const step *t) {
    for (uint32_t i = 0; i < t->count; i++)
        if (t->gradients[i] == RN_NO_VALUE)
            return rn_hint(rn_fail(RN_INVALID, "the loss does not depend on '%s'",
                                   rn_graph_value(t->graph, t->weights[i])->name),
                           "name it in `frozen`, or leave it out of the graph");
    return RN_OK;
}

rn_value rn_graph_output_loss(rn_graph *graph, rn_value loss, const rn_train_options *o,
                              rn_value after) {
    bool accumulates = o->micro_batches > 1;
    rn_optimizer_state like = {"", RN_DTYPE_F32, RN_SCALAR};
    rn_value parts = RN_NO_VALUE, rest = RN_NO_VALUE;
    if (accumulates) {
        rn_value sum = rn_graph_state(graph, "loss.sum", RN_DTYPE_F32, RN_SCALAR, RN_PURPOSE_OTHER);
        if (o->exact && like_parts(o, "", &like))
            parts =
                rn_graph_state(graph, "loss.sum_parts", like.dtype, like.shape, RN_PURPOSE_OTHER);
        loss =
            o->exact ? add_in_tree(graph, sum, loss, parts, o) : rn_op_accumulate(graph, sum, loss);
        rest = rest_of(graph, loss, parts);
    }
    if (has_ranks(&o->share)) {
        rn_graph_set_place(graph, 0, RN_PHASE_UPDATE);
        loss = sum_over_ranks(graph, o, loss, rest, after, accumulates);
    }
    return rn_graph_output(graph, loss, "loss");
}

static rn_value show_loss(step *t, rn_value loss) {
    if (t->accumulates)
        rn_graph_set_place(t->graph, rn_graph_value(t->graph, loss)->block, RN_PHASE_BACKWARD);
    rn_value shown = rn_graph_output_loss(t->graph, loss, t->options, t->chain);
    if (has_ranks(&t->options->share)) t->chain = shown;
    return shown;
}

// As rn_graph_global_norm; with guards the squares are outputs, so that a gradient that is not
// finite can be named.
static rn_value global_norm(step *t) {
    rn_value total = RN_NO_VALUE;
    bool plain = t->options->gradients != RN_DTYPE_BF16 || !t->accumulates;
    if (!t->options->guarded && !t->options->scaled && plain)
        return rn_graph_global_norm(t->graph, t->gradients, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        char name[256];
        rn_status s = rn_optimizer_state_name(rn_graph_value(t->graph, t->weights[i])->name,
                                              "gradient_square", name, sizeof name);
        if (s != RN_OK) rn_graph_spoil(t->graph, s);
        rn_value square = rn_op_sum_squares(t->graph, widened(t, i));
        total = i == 0 ? square : rn_op_add(t->graph, total, square);
        rn_graph_output(t->graph, square, name);
    }
    rn_value norm = rn_op_sqrt(t->graph, total);
    return t->options->scaled ? rn_op_mul(t->graph, norm, t->unscale) : norm;
}

static rn_status train(step *t, rn_arena *memory, rn_value loss) {
    RN_TRY(rn_graph_finish(t->graph)); // what the model got wrong, before looking at its values
    RN_TRY(collect(t, memory));
    RN_TRY(rn_graph_gradient(t->graph, loss, t->weights, t->count, t->gradients));
    RN_TRY(check_gradients(t));
    if (has_ranks(&t->options->share)) RN_TRY(order_gradients(t, memory));
    // Updates wait for their guard: where that is the loss, ranks sum it first, else last.
    bool has_norm = t->options->clip == RN_CLIP_GLOBAL || t->options->scaled;
    bool first = !has_ranks(&t->options->share) || !has_norm;
    rn_value shown = first ? show_loss(t, loss) : RN_NO_VALUE;
    for (uint32_t i = 0; i < t->count; i++)
        gather(t, i);
    if (has_ranks(&t->options->share)) sum_gradients(t);
    if (!first) shown = show_loss(t, loss);
    if (t->options->clip == RN_CLIP_GLOBAL || t->options->scaled) {
        rn_graph_set_place(t->graph, 0, RN_PHASE_UPDATE);
        if (t->options->scaled)
            t->unscale =
                rn_graph_state(t->graph, "unscale", RN_DTYPE_F32, RN_SCALAR, RN_PURPOSE_OTHER);
        t->norm = global_norm(t);
        rn_graph_output(t->graph, t->norm, "gradient_norm");
    }
    if (t->options->guarded) t->guard = t->norm != RN_NO_VALUE ? t->norm : shown;
    for (uint32_t i = 0; i < t->count && rn_graph_finish(t->graph) == RN_OK; i++)
        update(t, i);
    return rn_graph_finish(t->graph);
}

static rn_status check_share(const rn_train_options *o) {
    const rn_train_share *share = &o->share;
    if (share->rank >= share->ranks)
        return rn_fail(RN_INVALID, "there is no rank %u of %u", share->rank, share->ranks);
    if (share->samples < share->ranks)
        return rn_hint(rn_fail(RN_INVALID, "a batch of %llu cannot be divided among %u ranks",
                               (unsigned long long)share->samples, share->ranks),
                       "a larger batch, or fewer ranks");
    return RN_OK;
}

static rn_status check_options(const rn_train_options *o, const rn_optimizer *row) {
    if ((unsigned)o->clip > RN_CLIP_GLOBAL) return rn_fail(RN_INVALID, "clip is none of rn_clip");
    if (o->clip != RN_CLIP_NONE && !(o->max_norm > 0))
        return rn_fail(RN_INVALID, "gradients cannot be clipped to a norm of %g", o->max_norm);
    if (o->gradients != RN_DTYPE_NONE && o->gradients != RN_DTYPE_F32 &&
        o->gradients != RN_DTYPE_BF16)
        return rn_fail(RN_UNSUPPORTED, "gradients are summed in f32 or bf16, not %s",
                       rn_dtype_get(o->gradients)->name);
    if (has_ranks(&o->share)) RN_TRY(check_share(o));
    if (o->scaled && o->clip == RN_CLIP_TENSOR)
        return rn_fail(RN_UNSUPPORTED, "gradients that are scaled are clipped all together");
    if (o->momentum != 0 && row->momentum == 0)
        return rn_hint(rn_fail(RN_INVALID, "%s has no momentum", row->name),
                       "the optimizer `momentum` is SGD with momentum");
    return RN_OK;
}

rn_status rn_graph_train(rn_graph *graph, rn_value loss, const rn_train_options *options) {
    static const rn_train_options usual = {0};
    step t = {.graph = graph, .options = options ? options : &usual};
    rn_arena memory;
    // Ranks join sums of bf16 as they are: that of one sample, too, must be of it.
    t.accumulates =
        t.options->micro_batches > 1 || (has_ranks(&t.options->share) && t.options->share.exact &&
                                         t.options->gradients == RN_DTYPE_BF16);
    RN_TRY(rn_check_reserved(t.options->reserved, "rn_train_options"));
    RN_TRY(rn_optimizer_find(t.options->optimizer, &t.optimizer));
    RN_TRY(check_options(t.options, t.optimizer));
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_status s = train(&t, &memory, loss);
    rn_arena_free_all(&memory);
    return s;
}
