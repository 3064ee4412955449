// reasons.c — why the plan is as it is: one line for each decision, with its numbers.
#include "plan/planner.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST_REASONS = 16 }; // with one that hybrid execution adds

typedef struct teller {
    const rn_planner *planner;
    const rn_variant *variant;
    const rn_case *c;
    const rn_binding *binding;
    rn_plan *plan;
} teller;

static rn_status write(rn_plan *plan, const char *move, const char *format, va_list args) {
    char text[320];
    void *copy;
    int length = vsnprintf(text, sizeof text, format, args);
    if (length >= (int)sizeof text) length = sizeof text - 1;
    RN_TRY(rn_arena_copy(&plan->memory, text, (size_t)length, &copy));
    plan->reasons[plan->reason_count++] = (rn_plan_reason){move, copy};
    return RN_OK;
}

static rn_status tell(teller *t, const char *move, const char *format, ...) RN_PRINTF(3, 4);

static rn_status tell(teller *t, const char *move, const char *format, ...) {
    va_list args;
    va_start(args, format);
    rn_status s = write(t->plan, move, format, args);
    va_end(args);
    return s;
}

#define SIZE(bytes) rn_size_format(bytes).text

// ---- inference ----------------------------------------------------------------------------------

static rn_status tell_chunk(teller *t) {
    uint64_t wanted = t->planner->rows[0], rows = t->binding->rows;
    uint64_t workload = rn_planner_workload(t->planner);
    if (rows == wanted) return RN_OK;
    return tell(t, "chunk", "%llu row%s a run instead of %llu: %llu runs for %llu rows",
                (unsigned long long)rows, rows == 1 ? "" : "s", (unsigned long long)wanted,
                (unsigned long long)((workload + rows - 1) / rows), (unsigned long long)workload);
}

static uint64_t largest_workspace(const teller *t, uint32_t slice) {
    uint64_t largest = 0;
    for (uint32_t p = 0; p < t->c->order.count; p++)
        if (t->binding->workspace[slice][p] < t->binding->workspace[0][p] || slice == 0)
            largest = t->binding->workspace[slice][p] > largest ? t->binding->workspace[slice][p]
                                                                : largest;
    return largest;
}

static rn_status tell_slice(teller *t) {
    uint32_t slice = t->variant->slice;
    if (slice == 0) return RN_OK;
    return tell(t, "slice", "attention takes %u query rows at once: %s of workspace, not %s",
                rn_plan_slices[slice], SIZE(largest_workspace(t, slice)),
                SIZE(largest_workspace(t, 0)));
}

static rn_status tell_stream(teller *t) {
    const rn_plan *plan = t->plan;
    const rn_plan_summary *s = &plan->summary;
    if (plan->group_count == 0) return RN_OK;
    if (plan->slot_count == 0 && s->expert_layers)
        return tell(t, "stream", "all weights but experts are resident (%s)",
                    SIZE(plan->resident_bytes));
    if (plan->slot_count == 0)
        return tell(t, "stream", "all weights are resident (%s): nothing is read in a run",
                    SIZE(s->weight_bytes));
    return tell(t, "stream",
                "%u of %u blocks are resident%s (%s of weights): %s are read in each run, through "
                "%u slot%s of %s",
                s->resident_blocks, s->block_count, plan->suffix ? ", the last ones" : "",
                SIZE(plan->resident_bytes), SIZE(s->streamed_bytes), plan->slot_count,
                plan->slot_count == 1 ? "" : "s", SIZE(plan->slot_bytes));
}

static rn_status tell_experts(teller *t) {
    const rn_plan_summary *s = &t->plan->summary;
    char slots[48];
    if (s->expert_layers == 0) return RN_OK;
    if (s->expert_slots_least == s->expert_slots)
        snprintf(slots, sizeof slots, "%u", s->expert_slots);
    else
        snprintf(slots, sizeof slots, "%u to %u", s->expert_slots_least, s->expert_slots);
    return tell(t, "experts",
                "%s of %u experts of each of %u layers have slots (%s), others pass through %s: a "
                "row chooses %s, of which %s are expected to be read",
                slots, s->experts, s->expert_layers, SIZE(s->expert_slot_bytes),
                SIZE(s->expert_transit_bytes), SIZE(s->expert_token_bytes),
                SIZE(s->expert_read_bytes));
}

// Weights that are rows of a larger tensor, and how many tensors these are; those of a model that
// uses a tensor in parts are among them.
static rn_status tell_cut(teller *t) {
    const rn_graph *graph = t->c->graph;
    uint64_t largest = 0;
    uint32_t slices = 0, tensors = 0;
    if (t->variant->cut == 0) return RN_OK;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        uint64_t bytes = 0;
        if (!info->tensor || info->shape.rank != 2) continue;
        RN_TRY(rn_plan_value_bytes(graph, v, 1, RN_LAYOUT_PLAIN, &bytes));
        largest = largest > bytes ? largest : bytes;
        tensors += info->first_row == 0;
        slices++;
    }
    if (slices == 0) return RN_OK;
    return tell(t, "row slices",
                "%u large weight%s pass%s in %u slices of rows, of at most %s: no slot is larger",
                tensors, tensors == 1 ? "" : "s", tensors == 1 ? "es" : "", slices, SIZE(largest));
}

static rn_status tell_constraints(teller *t) {
    const rn_plan_options *o = &t->plan->options;
    char keep[96] = "", offload[96] = "", blocks[48] = "", bytes[64] = "";
    if (!o->keep && !o->offload && !o->resident_blocks && !o->resident_bytes) return RN_OK;
    uint32_t most = o->resident_blocks == RN_NO_BLOCKS ? 0 : o->resident_blocks;
    if (o->keep) snprintf(keep, sizeof keep, "; %.72s stays", o->keep);
    if (o->offload) snprintf(offload, sizeof offload, "; %.72s does not", o->offload);
    if (o->resident_blocks) snprintf(blocks, sizeof blocks, "; of at most %u blocks", most);
    if (o->resident_bytes) snprintf(bytes, sizeof bytes, "; at most %s", SIZE(o->resident_bytes));
    return tell(t, "constraint", "weights that stay, as asked%s%s%s%s", keep, offload, blocks,
                bytes);
}

static rn_status tell_rows(teller *t) {
    const rn_plan *plan = t->plan;
    uint64_t table_bytes = 0, rows_bytes = 0;
    if (plan->row_table_count == 0) return RN_OK;
    for (uint32_t i = 0; i < plan->row_table_count; i++) {
        const rn_value_info *info = rn_graph_value(plan->graph, plan->row_tables[i].table);
        table_bytes += info->shape.dims[0] * plan->row_tables[i].row_bytes;
        rows_bytes += rn_plan_rows_bytes(plan->graph, &plan->row_tables[i], plan->summary.rows);
    }
    return tell(t, "rows", "rows of %s%s are read on demand: %s at most, not %s",
                rn_graph_value(plan->graph, plan->row_tables[0].table)->name,
                plan->row_table_count > 1 ? " and of other tables" : "", SIZE(rows_bytes),
                SIZE(table_bytes));
}

// ---- training -----------------------------------------------------------------------------------

static rn_status tell_micro(teller *t) {
    uint32_t parts = t->planner->micro[t->variant->micro];
    if (parts == 1) return RN_OK;
    return tell(t, "micro-batch", "the batch is cut into %u, their gradients are summed in f32: %s",
                parts,
                t->planner->recipe->batch_statistics
                    ? "batch statistics are of a part, so the result is another one (allowed)"
                    : "sums are regrouped, the result agrees to rounding");
}

// Bytes of what a clone makes for others; of one that nobody reads there is nothing to save.
static rn_status add_read(const teller *t, const bool *read /* (values + 1) */, const rn_node *node,
                          uint64_t *bytes, uint32_t *count) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t more = 0;
        if (!read[node->outputs[i]]) continue;
        RN_TRY(rn_plan_value_bytes(t->c->graph, node->outputs[i], t->binding->rows, RN_LAYOUT_PLAIN,
                                   &more));
        *bytes += more;
        ++*count;
    }
    return RN_OK;
}

// Of blocks that are computed again as a whole the next reason tells.
static rn_status tell_cheap(teller *t) {
    const rn_graph *graph = t->c->graph;
    const bool *blocks = t->planner->fronts[t->variant->micro].recompute +
                         (size_t)t->variant->point * rn_graph_block_count(graph);
    uint64_t bytes = 0;
    uint32_t count = 0;
    bool *read; // (values + 1)
    RN_TRY(rn_arena_array(&t->plan->memory, (size_t)rn_graph_value_count(graph) + 1, sizeof *read,
                          (void **)&read));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        for (uint32_t i = 0; i < rn_graph_node(graph, n)->input_count; i++)
            read[rn_graph_node(graph, n)->inputs[i]] = true;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->recomputes == RN_NO_NODE || blocks[node->block]) continue;
        RN_TRY(add_read(t, read, node, &bytes, &count));
    }
    if (count == 0) return RN_OK;
    return tell(t, "cheap", "%u cheap value%s computed again in the backward pass: %s are not kept",
                count, count == 1 ? " is" : "s are", SIZE(bytes));
}

static rn_status tell_recompute(teller *t) {
    const rn_front *front = &t->planner->fronts[t->variant->micro];
    uint32_t point = t->variant->point;
    if (point == 0) return RN_OK;
    return tell(t, "recompute",
                "%u of %u blocks are computed again in the backward pass: %s of activations are "
                "not kept, %.3g s are spent",
                front->blocks[point], t->plan->summary.block_count, SIZE(front->bytes[point]),
                front->seconds[point]);
}

static uint64_t count_moved(const rn_plan *plan, bool home) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->offload_count; i++)
        if (plan->offloads[i].home == home) bytes += plan->offloads[i].bytes;
    return bytes;
}

static rn_status tell_states(teller *t) {
    const rn_plan_summary *s = &t->plan->summary;
    if (s->host_states == 0) return RN_OK;
    return tell(t, "states",
                "%u of the optimiser's states stay%s on the host: each step brings %s to its "
                "updates, and sends them back",
                s->host_states, s->host_states == 1 ? "s" : "", SIZE(count_moved(t->plan, true)));
}

static rn_status tell_send(teller *t) {
    const rn_plan_summary *s = &t->plan->summary;
    if (s->host_saved == 0) return RN_OK;
    return tell(t, "offload",
                "%u value%s saved for the backward pass on the host: %s are sent there, and "
                "brought back in time",
                s->host_saved, s->host_saved == 1 ? " is" : "s are",
                SIZE(count_moved(t->plan, false)));
}

// The bytes that updates read and that come from the backward pass.
static rn_status add_gradients(teller *t, uint64_t *out_bytes, uint32_t *out_count) {
    const rn_graph *graph = t->c->graph;
    bool *seen; // (values + 1)
    *out_bytes = *out_count = 0;
    RN_TRY(rn_arena_array(&t->plan->memory, (size_t)rn_graph_value_count(graph) + 1, sizeof *seen,
                          (void **)&seen));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; node->phase == RN_PHASE_UPDATE && i < node->input_count; i++) {
            rn_value v = node->inputs[i];
            uint32_t producer = v ? rn_graph_value(graph, v)->producer : RN_NO_NODE;
            if (producer == RN_NO_NODE || seen[v]) continue;
            if (rn_graph_node(graph, producer)->phase == RN_PHASE_UPDATE) continue;
            seen[v] = true;
            *out_bytes += t->binding->live.bytes_of[v];
            ++*out_count;
        }
    }
    return RN_OK;
}

static rn_status tell_order(teller *t) {
    const rn_plan_order *o = &t->c->order;
    uint64_t bytes;
    uint32_t count;
    if (o->update_count == 0) return RN_OK;
    RN_TRY(add_gradients(t, &bytes, &count));
    if (t->planner->micro[t->variant->micro] > 1)
        return tell(t, "order",
                    "micro-batches need the sums of all %u gradients: %s are kept through the step",
                    count, SIZE(bytes));
    if (o->early_count == 0 && o->update_count > 1)
        return tell(t, "order",
                    "the updates need all %u gradients first (a global norm): %s are kept", count,
                    SIZE(bytes));
    return tell(t, "order",
                "%u of %u updates run before the backward pass ends, each right behind its "
                "gradient: the %s of gradients are never held together",
                o->early_count, o->update_count, SIZE(bytes));
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status tell_placement(teller *t) {
    const rn_plan_summary *s = &t->plan->summary;
    return tell(t, "place", "%s in the arena, %s alive at the peak%s", SIZE(s->arena_bytes),
                SIZE(s->live_peak_bytes),
                s->optimal ? ": no placement of the intermediates is lower" : "");
}

rn_status rn_plan_explain(rn_planner *planner, const rn_candidate *candidate, rn_plan *plan) {
    rn_case *c;
    rn_binding *binding;
    teller t = {
        .planner = planner, .variant = &planner->variants[candidate->variant], .plan = plan};
    RN_TRY(rn_planner_open(planner, t.variant, &c, &binding));
    t.c = c;
    t.binding = binding;
    RN_TRY(rn_arena_array(&plan->memory, MOST_REASONS, sizeof *plan->reasons,
                          (void **)&plan->reasons));
    RN_TRY(tell_chunk(&t));
    RN_TRY(tell_slice(&t));
    RN_TRY(tell_stream(&t));
    RN_TRY(tell_experts(&t));
    RN_TRY(tell_cut(&t));
    RN_TRY(tell_constraints(&t));
    RN_TRY(tell_rows(&t));
    RN_TRY(tell_micro(&t));
    RN_TRY(tell_cheap(&t));
    RN_TRY(tell_recompute(&t));
    RN_TRY(tell_states(&t));
    RN_TRY(tell_send(&t));
    RN_TRY(tell_order(&t));
    return tell_placement(&t);
}

rn_status rn_plan_add_reason(rn_plan *plan, const char *move, const char *format, ...) {
    va_list args;
    va_start(args, format);
    rn_status s = write(plan, move, format, args);
    va_end(args);
    return s;
}
