// program_values.c — the persistent values of a program's phases, by name.
//
// States persist, but for the sums of micro-batches, which begin as zero in each run. Weights that
// some phase trains persist, plain, as training has them. Other weights that several phases read
// are in the region where the phase that lays it out keeps them resident.
#include "plan/planner.h"

#include "base/checked.h"
#include "memory/account.h"

#include <stdlib.h>
#include <string.h>

// ---- finding ------------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    const rn_program_value *x = a, *y = b;
    int order = strcmp(x->model, y->model);
    if (order == 0) order = (x->role > y->role) - (x->role < y->role);
    return order ? order : strcmp(x->name, y->name);
}

static rn_program_value *find(const rn_program_values *values, const char *model,
                              const rn_value_info *info) {
    if (!values || !info->name) return NULL;
    rn_program_value key = {.model = model, .role = info->role, .name = info->name};
    return bsearch(&key, values->list, values->count, sizeof key, compare);
}

const rn_program_value *rn_program_find(const rn_program_values *values,
                                        const rn_value_info *info) {
    return values ? find(values, values->model, info) : NULL;
}

bool rn_program_holds(const rn_program_values *values, const rn_value_info *info) {
    const rn_program_value *v = rn_program_find(values, info);
    return v && v->offset != RN_NO_OFFSET;
}

bool rn_program_trains(const rn_program_values *values, const rn_value_info *info) {
    const rn_program_value *v = rn_program_find(values, info);
    return v && v->trained;
}

static bool in_others(const rn_program_values *values, const rn_program_value *v) {
    return (v->phases & ~(1u << values->phase)) != 0;
}

bool rn_program_shares(const rn_program_values *values, const rn_value_info *info) {
    const rn_program_value *v = rn_program_find(values, info);
    return v && values->is_first && (v->trained || in_others(values, v));
}

bool rn_program_is_extra(const rn_program_values *values, const rn_program_value *v) {
    return values->is_first && !(v->phases >> values->phase & 1) &&
           (v->trained || v->role == RN_ROLE_STATE);
}

bool rn_program_brings(const rn_program_values *values, const rn_program_value *v) {
    uint32_t lower = (1u << values->phase) - 1;
    return !(v->phases >> values->first & 1) && !(v->phases & lower);
}

uint64_t rn_program_below(const rn_program_values *values) {
    uint64_t bytes = values->bytes;
    for (uint32_t i = 0; values->is_first && i < values->count; i++)
        if (rn_program_is_extra(values, &values->list[i]))
            bytes += rn_round_up(values->list[i].bytes, RN_PLAN_ALIGN);
    return bytes;
}

bool rn_program_used(const rn_plan *plan, const rn_program_value *value) {
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].always && plan->buffers[i].offset == value->offset) return true;
    return false;
}

// ---- collecting ---------------------------------------------------------------------------------

// A state that micro-batches are added up in: nothing of it is left between two runs.
static bool is_sum(const rn_graph *graph, rn_value value) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (!rn_op_is(node->op, RN_TRAIT_ACCUMULATE)) continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] == value) return true;
    }
    return false;
}

static rn_status check_same(const rn_program_value *v, const rn_value_info *info) {
    bool same = v->dtype == info->dtype && v->shape.rank == info->shape.rank;
    for (uint32_t i = 0; same && i < info->shape.rank; i++)
        same = v->shape.dims[i] == info->shape.dims[i];
    if (same) return RN_OK;
    return rn_hint(
        rn_fail(RN_INVALID, "two phases of the program have a '%s' of different shape", info->name),
        "give phases of different models different `model` names");
}

static rn_status add(rn_arena *memory, rn_program_values *values, const rn_graph *graph,
                     rn_value value, const char *model, uint32_t phase) {
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_program_value new = {.model = model,
                            .role = info->role,
                            .dtype = info->dtype,
                            .shape = info->shape,
                            .purpose = info->purpose,
                            .phases = 1u << phase,
                            .offset = RN_NO_OFFSET,
                            .layout = RN_LAYOUT_PLAIN};
    if (info->role == RN_ROLE_WEIGHT) new.purpose = RN_PURPOSE_WEIGHTS;
    const char *tensor = rn_weight_tensor(info);
    RN_TRY(rn_arena_copy(memory, info->name, strlen(info->name), (void **)&new.name));
    RN_TRY(rn_arena_copy(memory, tensor, strlen(tensor), (void **)&new.tensor));
    RN_TRY(rn_plan_value_bytes(graph, value, 1, RN_LAYOUT_PLAIN, &new.bytes));
    values->list[values->count++] = new;
    return RN_OK;
}

// Weights that an update changes in place.
static rn_status mark_trained(rn_program_values *values, const rn_graph *graph, const char *model) {
    rn_arena scratch;
    rn_plan_order order = {0};
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = rn_plan_order_make(&scratch, graph, &order);
    for (uint32_t n = 0; s == RN_OK && n < order.count; n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; order.changes[n] && i < node->output_count; i++) {
            rn_value root = order.roots[node->outputs[i]];
            if (root == RN_NO_VALUE || rn_graph_value(graph, root)->role != RN_ROLE_WEIGHT)
                continue;
            rn_program_value *v = find(values, model, rn_graph_value(graph, root));
            if (v) v->trained = true;
        }
    }
    rn_arena_free_all(&scratch);
    return s;
}

rn_status rn_program_collect(rn_arena *memory, rn_program_values *values, const rn_graph *graph,
                             const char *model, uint32_t phase) {
    uint32_t most = rn_graph_value_count(graph), known = values->count;
    void *list = NULL;
    RN_TRY(rn_arena_array(memory, (size_t)known + most, sizeof *values->list, &list));
    if (known) memcpy(list, values->list, known * sizeof *values->list);
    values->list = list;
    const rn_program_values before = *values; // of the phases before: new ones stand behind them
    for (rn_value v = 1; v <= most; v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        bool state = info->role == RN_ROLE_STATE && info->producer == RN_NO_NODE;
        if (info->role != RN_ROLE_WEIGHT && !(state && !is_sum(graph, v))) continue;
        rn_program_value *found = find(&before, model, info);
        if (!found) {
            RN_TRY(add(memory, values, graph, v, model, phase));
            continue;
        }
        found->phases |= 1u << phase;
        RN_TRY(check_same(found, info));
    }
    qsort(values->list, values->count, sizeof *values->list, compare);
    return mark_trained(values, graph, model);
}

// ---- placing ------------------------------------------------------------------------------------

rn_status rn_program_mark(const rn_program_values *values, const rn_graph *graph,
                          rn_plan_liveness *live) {
    for (uint32_t i = 0; values && i < live->storage_count; i++) {
        rn_plan_storage *s = &live->storages[i];
        const rn_value_info *info = rn_graph_value(graph, s->value);
        if (!s->always || info->role != RN_ROLE_STATE) continue;
        const rn_program_value *v = rn_program_find(values, info);
        if (!v && is_sum(graph, s->value)) continue;
        if (!v || s->bytes > rn_round_up(v->bytes, RN_PLAN_ALIGN))
            return rn_fail(RN_UNSUPPORTED, "state '%s' is not the same in all forms of its phase",
                           info->name);
        if (values->is_first) {
            s->persists = true;
            s->in_other_phases = in_others(values, v);
            continue;
        }
        if (v->offset == RN_NO_OFFSET)
            return rn_fail(RN_INTERNAL, "state '%s' has no place in the program", info->name);
        s->held = true;
        s->offset = v->offset;
        live->always_bytes -= rn_round_up(s->bytes, RN_PLAN_ALIGN);
    }
    return RN_OK;
}

void rn_program_place(rn_program_values *values, const rn_plan *plan) {
    uint64_t extra = plan->shared_bytes - rn_program_below(values);
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++) {
        const rn_plan_place *place = &plan->places[v];
        rn_program_value *value = find(values, values->model, rn_graph_value(plan->graph, v));
        if (!value || place->buffer == RN_NO_BUFFER) continue;
        const rn_plan_buffer *buffer = &plan->buffers[place->buffer];
        bool group = place->group != RN_NO_LOAD && plan->groups[place->group].resident &&
                     plan->groups[place->group].sharable;
        if (!group && (value->role != RN_ROLE_STATE || !buffer->always)) continue;
        value->offset = buffer->offset + place->offset;
        value->layout = place->layout;
        value->bytes = place->bytes;
    }
    for (uint32_t i = 0; i < values->count; i++) {
        if (!rn_program_is_extra(values, &values->list[i])) continue;
        values->list[i].offset = extra;
        extra += rn_round_up(values->list[i].bytes, RN_PLAN_ALIGN);
    }
    values->bytes = plan->shared_bytes;
    values->is_first = false;
}
