// trainer_ranks.c — a trainer that is one of several ranks: its share, what all of them must agree
// on, and tensors that are divided among them.
#include "train/trainer.h"

#include "base/checked.h"
#include "base/crc32c.h"
#include "device/comm.h"
#include "io/fingerprint.h"
#include "memory/account.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

// ---- shares -------------------------------------------------------------------------------------

rn_status rn_trainer_take_share(rn_trainer *t) {
    const rn_trainer_options *o = &t->options;
    uint32_t ranks = rn_comm_size(o->comm);
    t->batch = o->batch;
    if ((unsigned)o->zero > RN_ZERO_STATES) return rn_fail(RN_INVALID, "zero is none of rn_zero");
    if (ranks == 1) return RN_OK;
    if (t->job)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "image models are trained by one rank"),
                       "start it without a launcher");
    if (o->device && rn_device_has_own_memory(o->device))
        return rn_hint(rn_fail(RN_UNSUPPORTED, "several ranks train on CPUs, not on %s",
                               rn_device_target(o->device)),
                       "--device cpu, or one rank");
    if (o->batch < ranks)
        return rn_hint(rn_fail(RN_INVALID,
                               "a batch of %u sequences cannot be divided among %u ranks", o->batch,
                               ranks),
                       "a larger batch, or fewer ranks");
    rn_sum_tree own = rn_sum_tree_share(o->batch, rn_comm_rank(o->comm), ranks);
    t->first = (uint32_t)own.begin;
    t->batch = (uint32_t)(own.end - own.begin);
    t->ranks = rn_comm_call_ranks(o->comm);
    t->share = (rn_train_share){.rank = t->ranks.rank,
                                .ranks = ranks,
                                .samples = o->batch,
                                .exact = o->plan.exact,
                                .divided_states = o->zero == RN_ZERO_STATES};
    return RN_OK;
}

// What is divided costs time, so it is where some rank's plan does not fit without.
rn_status rn_trainer_choose_division(rn_trainer *t, rn_status (*plan)(rn_trainer *trainer)) {
    rn_comm *comm = t->options.comm;
    uint64_t refused = 0;
    if (t->share.ranks < 2 || t->options.zero != RN_ZERO_AUTO) return RN_OK;
    refused = plan(t) == RN_OVER_BUDGET;
    RN_TRY(rn_comm_all_reduce(comm, &refused, 1, RN_DTYPE_I64));
    t->share.divided_states = refused > 0;
    return RN_OK;
}

// ---- agreement ----------------------------------------------------------------------------------

// Plans may differ, for budgets and machines do; what ranks tell each other in a step must not.
static void describe_collectives(const rn_plan *plan, char *out, size_t bytes) {
    const rn_graph *graph = rn_plan_graph(plan);
    uint32_t sum = 0, count = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].kind != RN_STEP_COMPUTE) continue;
        const rn_node *node = rn_graph_node(graph, plan->steps[i].node);
        if (!rn_op_is(node->op, RN_TRAIT_COLLECTIVE)) continue;
        rn_shape shape = rn_graph_value(graph, node->inputs[0])->shape;
        uint64_t what[] = {node->op, rn_shape_elements(shape, 1)};
        sum = rn_crc32c(sum, what, sizeof what);
        count++;
    }
    snprintf(out, bytes, "%u collectives, %08x", count, sum);
}

static rn_status compare(rn_trainer *t) {
    const rn_trainer_options *o = &t->options;
    char collectives[64], options[512], weights[64], model[RN_FINGERPRINT_BYTES] = "";
    uint32_t sum = 0;
    const rn_checkpoint *files = t->network ? rn_network_weights(t->network).checkpoint : NULL;
    rn_status s = files ? rn_checkpoint_fingerprint(files, model) : RN_OK;
    RN_TRY(rn_comm_agree(o->comm, s));
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        const rn_trained *w = &t->tensors[i];
        sum = rn_crc32c(sum, w->name, strlen(w->name) + 1);
        sum = rn_crc32c(sum, &w->count, sizeof w->count);
    }
    snprintf(weights, sizeof weights, "%u weights and states, %08x", t->tensor_count, sum);
    snprintf(options, sizeof options,
             "%u sequences of %u tokens, %s, decay %.17g, norm %.9g, beta %.17g %.17g, momentum "
             "%.17g, seed %llu, activations %d, weights %d, gradients %d, exact %d, divided %d",
             o->batch, o->tokens, o->optimizer, o->weight_decay, (double)o->max_norm, o->beta1,
             o->beta2, o->momentum, (unsigned long long)o->seed, o->activations, o->weights,
             o->gradients, o->plan.exact, t->share.divided_states);
    describe_collectives(rn_trainer_plan(t), collectives, sizeof collectives);
    const rn_comm_item items[] = {{"the model", model},
                                  {"the training's options", options},
                                  {"what is trained", weights},
                                  {"the order of collectives in their plans", collectives}};
    return rn_comm_compare(o->comm, items, sizeof items / sizeof *items);
}

rn_status rn_trainer_agree(rn_trainer *t, rn_status status) {
    if (rn_comm_size(t->options.comm) == 1) return status;
    RN_TRY(rn_comm_agree(t->options.comm, status));
    return compare(t);
}

// ---- tensors ------------------------------------------------------------------------------------

static uint64_t bytes_of(const rn_trained *tensor, uint64_t elements) {
    return elements * (tensor->bytes / tensor->count);
}

rn_status rn_trainer_get_tensor(rn_trainer *t, const rn_trained *tensor, void *values) {
    const rn_rank_range *own = &tensor->range;
    uint8_t *at = (uint8_t *)values + bytes_of(tensor, own->begin);
    RN_TRY(rn_session_get(t->session, tensor->name, at, bytes_of(tensor, own->end - own->begin)));
    if (!tensor->row) return RN_OK;
    return t->ranks.gather(t->ranks.self, values, tensor->count, tensor->row, bytes_of(tensor, 1));
}

rn_status rn_trainer_put_tensor(rn_trainer *t, const rn_trained *tensor, const void *values) {
    const rn_rank_range *own = &tensor->range;
    return rn_session_put(t->session, tensor->name,
                          (const uint8_t *)values + bytes_of(tensor, own->begin),
                          bytes_of(tensor, own->end - own->begin));
}
