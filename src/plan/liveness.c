// liveness.c — which values share their bytes, how long these bytes live, and where they lie.
//
//     x ──reshape──▶ y ──relu──▶ z ──┐        x, y, z are one storage: a view is its input's bytes,
//      first = x's node              add      and relu may overwrite what nobody reads afterwards
//                                     last = the last reader of any of them
//
// A storage lives from the node that writes it to the last that reads one of its values; views read
// nothing. When a node runs, all later readers of its inputs are known, those through views that
// are made later included: so whether it may overwrite an input is decided on the spot.
#include "plan/planner.h"

#include "base/checked.h"
#include "plan/place.h"

typedef struct tracer {
    const rn_graph *graph;
    const rn_plan_order *order;
    const rn_group_table *groups;
    rn_binding *binding;
    rn_plan_liveness *live;
    rn_binder binder;
    uint32_t *last_read; // (values + 1): position + 1; 0: nobody
    uint32_t *writer;    // (storages): the position that wrote last
} tracer;

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

// ---- storages -----------------------------------------------------------------------------------

// The value's bytes are needed up to its last reader.
static void extend(tracer *t, rn_plan_storage *storage, rn_value value) {
    if (t->last_read[value]) storage->last = max_u32(storage->last, t->last_read[value] - 1);
    storage->to_end |= rn_graph_value(t->graph, value)->role == RN_ROLE_OUTPUT;
}

static void add_storage(tracer *t, rn_value value, uint32_t position) {
    rn_plan_liveness *live = t->live;
    rn_role role = rn_graph_value(t->graph, value)->role;
    rn_plan_storage *storage = &live->storages[live->storage_count];
    *storage = (rn_plan_storage){.value = value,
                                 .first = position,
                                 .last = position,
                                 .bytes = live->bytes_of[value],
                                 .always = role == RN_ROLE_STATE || role == RN_ROLE_CONSTANT,
                                 .from_start = role == RN_ROLE_INPUT};
    if (storage->always) storage->last = t->order->count - 1;
    extend(t, storage, value);
    t->writer[live->storage_count] = position;
    live->storage_of[value] = live->storage_count++;
}

static void join(tracer *t, rn_value value, rn_value with, uint64_t offset, uint32_t position) {
    rn_plan_liveness *live = t->live;
    uint32_t which = live->storage_of[with];
    live->storage_of[value] = which;
    live->offset_of[value] = live->offset_of[with] + offset;
    extend(t, &live->storages[which], value);
    t->writer[which] = position;
}

// Whether an output may be written over the input: nobody needs its bytes afterwards, and nobody
// else reads or writes them now.
static bool may_overwrite(const tracer *t, const rn_node *node, uint32_t output, uint32_t input,
                          uint32_t position) {
    const rn_plan_liveness *live = t->live;
    rn_value in = node->inputs[input];
    uint32_t which = live->storage_of[in];
    if (which == RN_NO_BUFFER || t->writer[which] == position) return false;
    const rn_plan_storage *s = &live->storages[which];
    if (s->always || s->from_start || s->to_end || s->last != position) return false;
    if (live->offset_of[in] != 0 || live->bytes_of[in] != s->bytes ||
        live->bytes_of[node->outputs[output]] != s->bytes)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (i != input && node->inputs[i] != RN_NO_VALUE &&
            live->storage_of[node->inputs[i]] == which)
            return false;
    return true;
}

static bool is_dropped(const tracer *t, const rn_node *node, uint32_t output) {
    rn_value value = node->outputs[output];
    return t->last_read[value] == 0 && rn_graph_value(t->graph, value)->role != RN_ROLE_OUTPUT &&
           rn_op_get(node->op)->optional_outputs >> output & 1;
}

static void trace_output(tracer *t, const rn_node *node, uint32_t output, uint32_t position) {
    rn_value value = node->outputs[output];
    uint64_t offset = 0;
    if (t->groups->group_of[value] != RN_NO_LOAD) return;
    rn_alias alias = rn_binder_alias(&t->binder, t->order->nodes[position], output, &offset);
    bool given = alias.kind != RN_ALIAS_KIND_NONE && node->inputs[alias.input] != RN_NO_VALUE;
    if (given && alias.kind != RN_ALIAS_KIND_MAY)
        join(t, value, node->inputs[alias.input], offset, position);
    else if (is_dropped(t, node, output))
        return;
    else if (given && may_overwrite(t, node, output, alias.input, position))
        join(t, value, node->inputs[alias.input], 0, position);
    else
        add_storage(t, value, position);
}

// Backwards, so that a view hands its readers on to what it is a view of: it reads nothing itself.
// An output is read at the end.
static void note_readers(tracer *t) {
    for (uint32_t p = t->order->count; p-- > 0;) {
        const rn_node *node = rn_graph_node(t->graph, t->order->nodes[p]);
        uint32_t last = t->binding->is_view[p] ? 0 : p + 1;
        for (uint32_t i = 0; i < node->output_count; i++) {
            rn_value out = node->outputs[i];
            if (rn_graph_value(t->graph, out)->role == RN_ROLE_OUTPUT)
                t->last_read[out] = t->order->count;
            if (t->binding->is_view[p]) last = max_u32(last, t->last_read[out]);
        }
        for (uint32_t i = 0; i < node->input_count; i++)
            t->last_read[node->inputs[i]] = max_u32(t->last_read[node->inputs[i]], last);
    }
}

// Gathered rows are there from the start, as inputs are, to the last lookup.
static void add_rows(tracer *t) {
    rn_plan_liveness *live = t->live;
    for (uint32_t i = 0; i < t->groups->row_count; i++) {
        const rn_plan_rows *rows = &t->groups->rows[i];
        live->rows_storage[i] = live->storage_count;
        live->storages[live->storage_count++] =
            (rn_plan_storage){.value = rows->table,
                              .bytes = rn_plan_rows_bytes(t->graph, rows, t->binding->rows),
                              .from_start = true};
    }
    for (uint32_t p = 0; p < t->order->count; p++) {
        uint32_t which = t->groups->rows_of[t->order->nodes[p]];
        if (which != RN_NO_LOAD) live->storages[live->rows_storage[which]].last = p;
    }
}

static rn_status trace(tracer *t) {
    note_readers(t);
    for (rn_value v = 1; v <= rn_graph_value_count(t->graph); v++)
        if (rn_graph_value(t->graph, v)->producer == RN_NO_NODE &&
            rn_graph_value(t->graph, v)->role != RN_ROLE_WEIGHT)
            add_storage(t, v, 0);
    add_rows(t);
    for (uint32_t p = 0; p < t->order->count; p++) {
        const rn_node *node = rn_graph_node(t->graph, t->order->nodes[p]);
        RN_TRY(rn_stop_try(RN_STOP_NODE_UNITS));
        for (uint32_t i = 0; i < node->output_count; i++)
            trace_output(t, node, i, p);
    }
    for (uint32_t i = 0; i < t->live->storage_count; i++)
        if (t->live->storages[i].always)
            t->live->always_bytes += rn_round_up(t->live->storages[i].bytes, RN_PLAN_ALIGN);
    return RN_OK;
}

static rn_status measure(tracer *t) {
    for (rn_value v = 1; v <= rn_graph_value_count(t->graph); v++) {
        t->live->storage_of[v] = RN_NO_BUFFER;
        RN_TRY(rn_stop_try(RN_STOP_NODE_UNITS));
        RN_TRY(rn_plan_value_bytes(t->graph, v, t->binding->rows, t->groups->layout_of[v],
                                   &t->live->bytes_of[v]));
    }
    return RN_OK;
}

static rn_status allocate(rn_arena *memory, tracer *t) {
    rn_plan_liveness *l = t->live;
    uint32_t values = rn_graph_value_count(t->graph) + 1, rows = t->groups->row_count;
    RN_TRY(
        rn_arena_array(memory, (size_t)values + rows, sizeof *l->storages, (void **)&l->storages));
    RN_TRY(rn_arena_array(memory, rows, sizeof *l->rows_storage, (void **)&l->rows_storage));
    RN_TRY(rn_arena_array(memory, values, sizeof *l->storage_of, (void **)&l->storage_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *l->offset_of, (void **)&l->offset_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *l->bytes_of, (void **)&l->bytes_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *t->last_read, (void **)&t->last_read));
    RN_TRY(rn_arena_array(memory, (size_t)values + rows, sizeof *t->writer, (void **)&t->writer));
    return rn_binder_init(memory, t->graph, &t->binder);
}

// What passes between the host and a device of its own memory.
static rn_status add_ports(const rn_graph *graph, const rn_group_table *groups, rn_binding *b) {
    for (uint32_t i = 0; i < groups->row_count; i++)
        b->io_bytes +=
            rn_round_up(rn_plan_rows_bytes(graph, &groups->rows[i], b->rows), RN_PLAN_ALIGN);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        rn_role role = rn_graph_value(graph, v)->role;
        uint64_t bytes = 0;
        if (role != RN_ROLE_INPUT && role != RN_ROLE_OUTPUT) continue;
        RN_TRY(rn_plan_value_bytes(graph, v, b->rows, RN_LAYOUT_PLAIN, &bytes));
        b->io_bytes += rn_round_up(bytes, RN_PLAN_ALIGN);
    }
    return RN_OK;
}

rn_status rn_binding_trace(rn_arena *memory, const rn_graph *graph, const rn_device_caps *caps,
                           const rn_plan_order *order, const rn_group_table *groups,
                           rn_binding *binding) {
    tracer t = {.graph = graph,
                .order = order,
                .groups = groups,
                .binding = binding,
                .live = &binding->live};
    *t.live = (rn_plan_liveness){0};
    RN_TRY(allocate(memory, &t));
    t.binder.caps = caps;
    t.binder.rows = binding->rows;
    RN_TRY(measure(&t));
    RN_TRY(trace(&t));
    RN_TRY(add_ports(graph, groups, binding));
    binding->is_live = true;
    return RN_OK;
}

// ---- bytes --------------------------------------------------------------------------------------

typedef struct span {
    uint32_t first, last; // positions
} span;

// When a storage is in the arena, apart from what is there always: once, or before and after an
// offload to the host. How many spans these are.
static uint32_t list_spans(const rn_binding *b, const rn_offloads *offloads, uint32_t storage,
                           span out[2]) {
    const rn_plan_storage *s = &b->live.storages[storage];
    const rn_offload *offload = NULL;
    if (offloads && offloads->count && offloads->of[storage] != RN_NO_OFFLOAD)
        offload = &offloads->list[offloads->of[storage]];
    out[0] = (span){s->first, s->last};
    if (!offload) return s->always ? 0 : 1;
    if (offload->home) {
        out[0] = (span){offload->due, offload->gone};
        return 1;
    }
    out[0].last = offload->gone;
    out[1] = (span){offload->due, s->last};
    return 2;
}

rn_status rn_binding_peak(rn_arena *memory, const rn_binding *b, const rn_offloads *offloads,
                          uint32_t slice, bool streams, uint32_t positions, uint64_t *out_bytes) {
    const rn_plan_liveness *live = &b->live;
    uint64_t *change; // (positions + 1): bytes born less bytes gone, modulo 2^64
    uint64_t now = 0;
    *out_bytes = 0;
    RN_TRY(rn_arena_array(memory, (size_t)positions + 1, sizeof *change, (void **)&change));
    for (uint32_t i = 0; i < live->storage_count; i++) {
        uint64_t bytes = rn_round_up(live->storages[i].bytes, RN_PLAN_ALIGN);
        span spans[2];
        RN_TRY(rn_stop_try(1));
        for (uint32_t k = list_spans(b, offloads, i, spans); k-- > 0;) {
            change[spans[k].first] += bytes;
            change[spans[k].last + 1] -= bytes;
        }
    }
    for (uint32_t p = 0; p < positions; p++) {
        now += change[p];
        uint64_t workspace = rn_round_up(rn_binding_workspace(b, slice, streams, p), RN_PLAN_ALIGN);
        *out_bytes = rn_max_u64(*out_bytes, now + workspace);
    }
    return RN_OK;
}

// A fixed effort, whatever the budget: more effort for less budget could make a plan faster.
static rn_place_options fix_effort(rn_place_effort effort) {
    enum { FEW_NODES = 4000, MANY_NODES = 1000000 };
    if (effort == RN_PLACE_GREEDY) return (rn_place_options){.effort = RN_PLACE_GREEDY};
    return (rn_place_options){.effort = RN_PLACE_BEST,
                              .node_limit = effort == RN_PLACE_BEST ? MANY_NODES : FEW_NODES};
}

static rn_place_buffer buffer_of(span at, uint64_t bytes) {
    return (rn_place_buffer){.lower = at.first,
                             .upper = (uint64_t)at.last + 1,
                             .size_bytes = rn_round_up(bytes, RN_PLAN_ALIGN)};
}

rn_status rn_binding_place(rn_arena *memory, const rn_binding *b, const rn_offloads *offloads,
                           uint32_t slice, bool streams, uint32_t positions, rn_place_effort effort,
                           uint64_t *out_offsets, rn_placement *out) {
    const rn_plan_liveness *live = &b->live;
    size_t workspaces = live->storage_count, again = workspaces + positions;
    size_t count = again + (offloads ? offloads->count : 0);
    rn_place_buffer *buffers;
    uint64_t *offsets = out_offsets;
    rn_place_options options = fix_effort(effort);
    RN_TRY(rn_arena_array(memory, count, sizeof *buffers, (void **)&buffers));
    if (!offsets) RN_TRY(rn_arena_array(memory, count, sizeof *offsets, (void **)&offsets));
    for (uint32_t i = 0; i < live->storage_count; i++) {
        span spans[2];
        uint32_t parts = list_spans(b, offloads, i, spans);
        if (parts > 0) buffers[i] = buffer_of(spans[0], live->storages[i].bytes);
        if (parts > 1)
            buffers[again + offloads->of[i]] = buffer_of(spans[1], live->storages[i].bytes);
    }
    for (uint32_t p = 0; p < positions; p++)
        buffers[workspaces + p] =
            buffer_of((span){p, p}, rn_binding_workspace(b, slice, streams, p));
    return rn_place_in(memory->from, buffers, count, &options, offsets, out);
}
