// weight groups.c — weights cut into weight groups: what is read from disk in one go, and stays or
// goes together.
//
//     first use:  norm  q      k    v    o     norm  gate  up   down    (one block)
//     weight groups:      [norm q]     [k]  [v]  [o    norm] [gate] [up] [down]
//
// Small neighbours of a block share a weight group up to 4 MiB (or what the device says: a link
// wants larger ones), because a read of a few KiB costs as much as one of a hundred; a weight below
// 64 KiB rides along with a neighbour of any size. Weights that are trained, or used in more than
// one block (tied), never leave: they are weight groups of their own kind, and so are those that a
// caller wants to be kept, and those that he does not want to stay. In a phase of a program, what
// another phase holds is a weight group of its own where that phase has it, and weight groups of
// weights that other phases read have no others. Experts that are brought on demand (expert_plan.c)
// are weight groups of their own kind, one a stack, that nobody has accesses to.
//
// A weight group lies in one of two ways: resident, each weight in the layout that the device
// wants; or in a slot, where a large weight that the device takes plain is file_layout, in whole
// pages of the file.
//
//     resident   |norm|q in panels      |
//     in a slot  |norm|...|..q as in the file|q...|        |: pages of the file
#include "plan/planner.h"

#include "base/checked.h"
#include "base/fetcher.h"

#include <string.h>

enum { GROUP_BYTES = 4 << 20, RIDER_BYTES = 64 << 10 };

typedef struct note {
    bool used;
    bool shared;   // used in more than one block, or trained
    bool plain;    // readers disagree on its layout, or it is trained
    bool sharable; // of a program: other phases read it, or one of them trains it
    rn_constraint constraint;
    uint32_t block;
    rn_layout layout;
    rn_value ids; // a stack, all of whose readers take the matrices that these chose; or none
    uint32_t experts, chosen;
} note;

typedef struct cutter {
    const rn_graph *graph;
    const rn_device_caps *caps;
    const rn_plan_order *order;
    const rn_plan_options *options;
    const rn_program_values *values;
    rn_group_table *table;
    rn_binder binder;
    note *notes;       // (values + 1), by root
    rn_value *weights; // (weight_count), by first use
    uint32_t weight_count, value_count;
    bool on_demand;
} cutter;

// The weight whose bytes a value is, or RN_NO_VALUE.
static rn_value find_weight(const cutter *c, rn_value value) {
    rn_value root = c->order->roots[value];
    if (root == RN_NO_VALUE) return RN_NO_VALUE;
    return rn_graph_value(c->graph, root)->role == RN_ROLE_WEIGHT ? root : RN_NO_VALUE;
}

// ---- who reads what -----------------------------------------------------------------------------

// What chose the matrices of a stack for this reader, and how many there are; none: it reads all.
static void note_choice(cutter *c, uint32_t number, uint32_t input, note *n) {
    const rn_node *node = rn_graph_node(c->graph, number);
    rn_expert_call e;
    n->ids = RN_NO_VALUE;
    if (!rn_op_is(node->op, RN_TRAIT_EXPERTS)) return;
    rn_call call = rn_binder_bind(&c->binder, number);
    if (!rn_call_experts(&call, &e) || e.weight != input) return;
    n->ids = node->inputs[e.ids];
    n->experts = e.experts;
    n->chosen = (uint32_t)call.inputs[e.ids].shape.dims[1];
}

static void note_read(cutter *c, uint32_t number, uint32_t input, rn_value weight) {
    const rn_node *node = rn_graph_node(c->graph, number);
    note *n = &c->notes[weight], choice = {0};
    rn_layout layout = RN_LAYOUT_PLAIN;
    rn_call call;
    if (c->caps->weight_layout && node->inputs[input] == weight) {
        call = rn_binder_bind(&c->binder, number);
        layout = c->caps->weight_layout(&call, input);
    }
    note_choice(c, number, input, &choice);
    if (node->inputs[input] != weight) choice.ids = RN_NO_VALUE;
    if (!n->used) {
        *n = (note){.used = true, .block = node->block, .layout = layout};
        const rn_value_info *info = rn_graph_value(c->graph, weight);
        n->constraint = rn_constraint_of(c->options, rn_weight_tensor(info));
        n->shared = n->plain = rn_program_trains(c->values, info);
        n->sharable = rn_program_shares(c->values, info);
        n->ids = choice.ids;
        n->experts = choice.experts;
        n->chosen = choice.chosen;
        c->weights[c->weight_count++] = weight;
    }
    n->shared |= n->block != node->block;
    n->plain |= n->layout != layout;
    if (n->ids != choice.ids) n->ids = RN_NO_VALUE;
}

// Of a lookup whose rows are gathered the table, its first input, does not count.
static uint32_t first_read(const cutter *c, uint32_t node) {
    return c->table->rows_of[node] == RN_NO_LOAD ? 0 : 1;
}

static void note_nodes(cutter *c) {
    for (uint32_t p = 0; p < c->order->count; p++) {
        uint32_t number = c->order->nodes[p];
        const rn_node *node = rn_graph_node(c->graph, number);
        for (uint32_t i = first_read(c, number); i < node->input_count; i++) {
            rn_value weight = find_weight(c, node->inputs[i]);
            if (weight != RN_NO_VALUE) note_read(c, number, i, weight);
        }
        for (uint32_t i = 0; c->order->changes[number] && i < node->output_count; i++) {
            note *trained = &c->notes[find_weight(c, node->outputs[i])]; // of nobody, if no weight
            trained->shared = trained->plain = true;
        }
    }
}

// ---- cutting ------------------------------------------------------------------------------------

// Whether its experts can be brought one by one: of a stack that nobody needs whole.
static bool is_stack(const note *n) {
    return n->ids != RN_NO_VALUE && !n->shared && n->constraint == RN_CONSTRAINT_NONE;
}

static bool is_resident(const note *n) {
    return n->shared || n->constraint == RN_CONSTRAINT_KEEP;
}

// What never leaves needs no constraint.
static rn_constraint constraint_of(const note *n) {
    return n->shared ? RN_CONSTRAINT_NONE : n->constraint;
}

// Whether a weight joins the last weight group: of the same block and kind, and small.
static bool joins(const cutter *c, const note *n, uint64_t bytes) {
    const rn_plan_group *group = &c->table->groups[c->table->group_count - 1];
    uint64_t most = c->caps->group_bytes ? c->caps->group_bytes : GROUP_BYTES;
    if (group->block != n->block || group->resident != is_resident(n)) return false;
    if (group->shared || group->on_demand || group->sharable != n->sharable) return false;
    if (c->table->constraints[c->table->group_count - 1] != constraint_of(n)) return false;
    if (group->bytes <= RIDER_BYTES || bytes <= RIDER_BYTES) return true;
    return rn_round_up(group->bytes, RN_PLAN_ALIGN) + bytes <= most;
}

static void begin_group(rn_group_table *t, uint32_t first_value, const note *n) {
    t->constraints[t->group_count] = constraint_of(n);
    t->groups[t->group_count++] = (rn_plan_group){.first_value = first_value,
                                                  .block = n->block,
                                                  .resident = is_resident(n),
                                                  .sharable = n->sharable};
}

// What another phase holds lies where that phase has it, in its layout: plain bytes suit every
// reader.
static const rn_program_value *find_held(const cutter *c, rn_value weight, rn_layout layout) {
    const rn_value_info *info = rn_graph_value(c->graph, weight);
    const rn_program_value *held = rn_program_find(c->values, info);
    bool fits = held && held->offset != RN_NO_OFFSET &&
                (held->layout == RN_LAYOUT_PLAIN || held->layout == layout);
    return fits ? held : NULL;
}

static void begin_held(const cutter *c, uint32_t first_value, const note *n,
                       const rn_program_value *held) {
    rn_group_table *t = c->table;
    begin_group(t, first_value, n);
    rn_plan_group *group = &t->groups[t->group_count - 1];
    t->constraints[t->group_count - 1] = RN_CONSTRAINT_NONE;
    group->resident = group->shared = true;
    group->brings = rn_program_brings(c->values, held);
    group->offset = held->offset;
}

// One run of bytes in a file: not a tensor for each matrix of a stack.
static bool has_one_component(const rn_value_info *info) {
    rn_plain_components parts;
    return info->shape.rank == 2 && !(info->experts && strchr(info->name, '*')) &&
           rn_plain_components_of(info->dtype, info->shape.dims[0], info->shape.dims[1], &parts) &&
           parts.bytes[RN_COMPONENT_SCALE] == 0;
}

static bool is_file_layout(const cutter *c, rn_value weight, rn_layout layout,
                           uint64_t file_bytes) {
    const rn_device_caps *caps = c->caps;
    return layout && layout->takes_plain && !caps->own_memory && caps->file_layout_bytes &&
           file_bytes >= caps->file_layout_bytes &&
           has_one_component(rn_graph_value(c->graph, weight));
}

// Adds it to the last weight group, resident and in a slot.
static void add_weight(cutter *c, rn_value weight, rn_layout layout, uint64_t bytes,
                       uint64_t file_bytes) {
    rn_group_table *t = c->table;
    rn_plan_group *group = &t->groups[t->group_count - 1];
    uint64_t *slot_bytes = &t->slot_bytes[t->group_count - 1];
    bool file_layout = is_file_layout(c, weight, layout, file_bytes);
    t->group_of[weight] = t->group_count - 1;
    t->layout_of[weight] = layout;
    t->offset_of[weight] = rn_round_up(group->bytes, RN_PLAN_ALIGN);
    t->slot_layout_of[weight] = file_layout ? RN_LAYOUT_PLAIN : layout;
    t->slot_offset_of[weight] =
        rn_round_up(*slot_bytes, file_layout ? RN_PAGE_BYTES : RN_PLAN_ALIGN);
    group->bytes = t->offset_of[weight] + bytes;
    *slot_bytes = t->slot_offset_of[weight] + (file_layout ? rn_fetch_room(file_bytes) : bytes);
    group->file_bytes += file_bytes;
    group->value_count++;
}

// A weight group of its own.
static void add_stack(cutter *c, uint32_t first_value, const note *n, rn_layout layout,
                      uint64_t file_bytes, uint64_t bytes) {
    rn_group_table *t = c->table;
    rn_value weight = c->weights[first_value];
    begin_group(t, first_value, n);
    rn_plan_group *group = &t->groups[t->group_count - 1];
    group->on_demand = true;
    group->file_bytes = file_bytes;
    group->bytes = t->slot_bytes[t->group_count - 1] = bytes;
    group->value_count = 1;
    t->group_of[weight] = t->group_count - 1;
    t->layout_of[weight] = t->slot_layout_of[weight] = layout;
    rn_experts_add(t, weight, n->block, n->ids, n->experts, n->chosen, file_bytes, bytes);
}

static rn_status cut(cutter *c) {
    rn_group_table *t = c->table;
    for (uint32_t i = 0; i < c->weight_count; i++) {
        rn_value weight = c->weights[i];
        const note *n = &c->notes[weight];
        bool on_demand = c->on_demand && is_stack(n);
        rn_layout layout = n->plain ? RN_LAYOUT_PLAIN : n->layout;
        t->has_stacks |= is_stack(n);
        uint64_t bytes = 0, file_bytes = 0;
        const rn_program_value *held = find_held(c, weight, layout);
        if (held) layout = held->layout;
        RN_TRY(rn_stop_try(RN_STOP_NODE_UNITS));
        RN_TRY(rn_plan_value_bytes(c->graph, weight, 1, layout, &bytes));
        RN_TRY(rn_plan_value_bytes(c->graph, weight, 1, RN_LAYOUT_PLAIN, &file_bytes));
        t->values[i] = weight;
        if (on_demand) {
            add_stack(c, i, n, layout, file_bytes, bytes);
            continue;
        }
        if (held)
            begin_held(c, i, n, held);
        else if (t->group_count == 0 || !joins(c, n, bytes))
            begin_group(t, i, n);
        add_weight(c, weight, layout, bytes, file_bytes);
    }
    return RN_OK;
}

// Views and updated weights lie where their weight does.
static void place_relatives(cutter *c) {
    rn_group_table *t = c->table;
    for (rn_value v = 1; v < c->value_count; v++) {
        rn_value weight = find_weight(c, v);
        if (weight == RN_NO_VALUE || weight == v) continue;
        t->group_of[v] = t->group_of[weight];
        t->offset_of[v] = t->offset_of[weight] + c->order->offsets[v];
        t->slot_offset_of[v] = t->slot_offset_of[weight] + c->order->offsets[v];
    }
}

// ---- accesses -----------------------------------------------------------------------------------

// Readers of an expert's matrices wait for those of their router's choice.
static void add_demand(rn_group_table *t, uint32_t position, uint32_t group) {
    uint32_t layer = t->stacks[t->groups[group].stack].layer;
    t->demands[t->demand_count++] = (rn_group_access){position, layer};
}

// A view reads nothing: its readers do.
static void list_accesses(cutter *c) {
    rn_group_table *t = c->table;
    for (uint32_t p = 0; p < c->order->count; p++) {
        const rn_node *node = rn_graph_node(c->graph, c->order->nodes[p]);
        uint32_t first = t->access_count;
        if (rn_binder_is_view(&c->binder, c->order->nodes[p])) continue;
        for (uint32_t i = first_read(c, c->order->nodes[p]); i < node->input_count; i++) {
            uint32_t group = t->group_of[node->inputs[i]];
            bool known = group == RN_NO_LOAD;
            if (!known && t->groups[group].on_demand) {
                add_demand(t, p, group);
                continue;
            }
            for (uint32_t a = first; a < t->access_count && !known; a++)
                known = t->accesses[a].group == group;
            if (!known) t->accesses[t->access_count++] = (rn_group_access){p, group};
        }
    }
}

// ---- all of it ----------------------------------------------------------------------------------

static uint32_t count_inputs(const rn_graph *graph) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        count += rn_graph_node(graph, n)->input_count;
    return count;
}

static uint32_t count_weights(const rn_graph *graph) {
    uint32_t count = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        count += rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT;
    return count;
}

static rn_status allocate(rn_arena *memory, cutter *c) {
    rn_group_table *t = c->table;
    uint32_t weights = count_weights(c->graph), values = c->value_count;
    RN_TRY(rn_arena_array(memory, weights, sizeof *t->groups, (void **)&t->groups));
    RN_TRY(rn_arena_array(memory, weights, sizeof *t->constraints, (void **)&t->constraints));
    RN_TRY(rn_arena_array(memory, weights, sizeof *t->slot_bytes, (void **)&t->slot_bytes));
    RN_TRY(rn_arena_array(memory, weights, sizeof *t->values, (void **)&t->values));
    RN_TRY(rn_arena_array(memory, weights, sizeof *c->weights, (void **)&c->weights));
    RN_TRY(rn_arena_array(memory, values, sizeof *t->group_of, (void **)&t->group_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *t->offset_of, (void **)&t->offset_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *t->layout_of, (void **)&t->layout_of));
    RN_TRY(rn_arena_array(memory, values, sizeof(uint64_t), (void **)&t->slot_offset_of));
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_layout), (void **)&t->slot_layout_of));
    RN_TRY(rn_arena_array(memory, values, sizeof *c->notes, (void **)&c->notes));
    RN_TRY(
        rn_arena_array(memory, count_inputs(c->graph), sizeof *t->accesses, (void **)&t->accesses));
    if (c->on_demand) {
        RN_TRY(rn_arena_array(memory, weights, sizeof *t->stacks, (void **)&t->stacks));
        RN_TRY(
            rn_arena_array(memory, weights, sizeof *t->expert_layers, (void **)&t->expert_layers));
        RN_TRY(rn_arena_array(memory, count_inputs(c->graph), sizeof *t->demands,
                              (void **)&t->demands));
    }
    return rn_binder_init(memory, c->graph, &c->binder);
}

rn_status rn_group_table_make(rn_arena *memory, const rn_graph *graph, const rn_device_caps *caps,
                              const rn_plan_order *order, const rn_plan_options *options,
                              const rn_program_values *values, bool on_demand,
                              rn_group_table *out) {
    *out = (rn_group_table){0};
    cutter c = {.graph = graph,
                .caps = caps,
                .order = order,
                .options = options,
                .values = values,
                .table = out,
                .value_count = rn_graph_value_count(graph) + 1,
                .on_demand = on_demand};
    RN_TRY(allocate(memory, &c));
    for (rn_value v = 0; v < c.value_count; v++)
        out->group_of[v] = RN_NO_LOAD;
    RN_TRY(rn_plan_find_rows(memory, graph, caps, order, options, values, out));
    note_nodes(&c);
    RN_TRY(cut(&c));
    place_relatives(&c);
    list_accesses(&c);
    return RN_OK;
}
