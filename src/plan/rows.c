// rows.c — tables of embeddings that need not be held: which of them, and what of them is needed.
//
// A run reads as many rows of a table as it has ids, and the ids are known before it begins. So
// where they are an input of the graph, a session gathers those rows into a small buffer and
// rewrites the ids to places in it; nobody else may read such an input, therefore. A tied head goes
// on reading the whole table, as any product reads its weight.
//
//     ids  7 3 7      table rows  ...3...7...      gathered  |3|7|      ids  1 0 1
//
// Ids below zero, where the op has them, mean the same row of every table that they are read for.
#include "plan/planner.h"

typedef struct finder {
    const rn_graph *graph;
    const rn_device_caps *caps;
    const rn_plan_order *order;
    const rn_plan_options *options;
    const rn_program_values *values;
    rn_group_table *table;
    bool *refused;          // (values + 1): tables and ids that are not fit
    uint64_t *wrapped_rows; // (values + 1): of the tables that ids below zero are for; 0: none
} finder;

static rn_value table_of(const rn_node *lookup) {
    return lookup->inputs[RN_LOOKUP_TABLE];
}

static rn_value ids_of(const rn_node *lookup) {
    return lookup->inputs[RN_LOOKUP_IDS];
}

static bool is_input(const finder *f, rn_value value) {
    return value != RN_NO_VALUE && rn_graph_value(f->graph, value)->role == RN_ROLE_INPUT;
}

static bool is_large(const finder *f, const rn_value_info *info) {
    rn_plain_components parts;
    return info->shape.rank == 2 && info->shape.dims[0] <= INT32_MAX &&
           rn_plain_components_of(info->dtype, info->shape.dims[0], info->shape.dims[1], &parts) &&
           parts.bytes[RN_COMPONENT_SCALE] == 0 && parts.total_bytes >= f->caps->row_table_bytes;
}

// What cannot be gathered, whoever reads it.
static void refuse_values(finder *f) {
    for (rn_value v = 1; v <= rn_graph_value_count(f->graph); v++) {
        const rn_value_info *info = rn_graph_value(f->graph, v);
        bool table = info->role == RN_ROLE_WEIGHT && is_large(f, info) &&
                     rn_constraint_of(f->options, info->name) != RN_CONSTRAINT_KEEP &&
                     !rn_program_holds(f->values, info) && !rn_program_trains(f->values, info);
        bool ids = info->role == RN_ROLE_INPUT &&
                   (info->dtype == RN_DTYPE_I32 || info->dtype == RN_DTYPE_I64);
        f->refused[v] = !table && !ids;
    }
    for (uint32_t n = 0; n < f->order->count; n++) {
        const rn_node *node = rn_graph_node(f->graph, n);
        for (uint32_t i = 0; f->order->changes[n] && i < node->output_count; i++)
            f->refused[f->order->roots[node->outputs[i]]] = true;
    }
}

// Fewer ids than the table has rows, as far as that is known.
static bool saves(const finder *f, const rn_node *lookup) {
    uint64_t ids = rn_shape_elements(rn_graph_value(f->graph, ids_of(lookup))->shape, 1);
    return ids < rn_graph_value(f->graph, table_of(lookup))->shape.dims[0];
}

static void wrap_ids(finder *f, const rn_node *lookup) {
    uint64_t rows = rn_graph_value(f->graph, table_of(lookup))->shape.dims[0];
    uint64_t *known = &f->wrapped_rows[ids_of(lookup)];
    f->refused[ids_of(lookup)] |= *known && *known != rows;
    *known = rows;
}

// Ids that anybody else reads, or that look into a table that is refused. A table that is refused
// for the sake of its ids is so for that lookup only.
static void refuse_ids(finder *f) {
    for (uint32_t n = 0; n < f->order->count; n++) {
        const rn_node *node = rn_graph_node(f->graph, n);
        bool fits = rn_node_lookup(node) && !f->refused[table_of(node)] && saves(f, node);
        if (fits && rn_node_lookup(node) == RN_LOOKUP_WRAPPED) wrap_ids(f, node);
        for (uint32_t i = 0; i < node->input_count; i++)
            if (!fits || i != RN_LOOKUP_IDS)
                f->refused[node->inputs[i]] |= is_input(f, node->inputs[i]);
    }
}

static uint32_t find_or_add(rn_group_table *t, rn_value table, rn_value ids) {
    for (uint32_t i = 0; i < t->row_count; i++)
        if (t->rows[i].table == table && t->rows[i].ids == ids) return i;
    t->rows[t->row_count] =
        (rn_plan_rows){.table = table, .ids = ids, .buffer = RN_NO_BUFFER, .wrapped = true};
    return t->row_count++;
}

static void list_rows(finder *f) {
    rn_group_table *t = f->table;
    for (uint32_t n = 0; n < f->order->count; n++) {
        const rn_node *node = rn_graph_node(f->graph, n);
        if (!rn_node_lookup(node) || f->refused[table_of(node)] || f->refused[ids_of(node)])
            continue;
        const rn_value_info *info = rn_graph_value(f->graph, table_of(node));
        uint32_t which = find_or_add(t, table_of(node), ids_of(node));
        t->rows_of[n] = which;
        t->rows[which].wrapped &= rn_node_lookup(node) == RN_LOOKUP_WRAPPED;
        // Whole blocks: is_large has measured it.
        (void)rn_dtype_bytes(info->dtype, info->shape.dims[1], &t->rows[which].row_bytes);
    }
}

static bool is_inference(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (rn_graph_node(graph, n)->phase != RN_PHASE_FORWARD) return false;
    return true;
}

rn_status rn_plan_find_rows(rn_arena *memory, const rn_graph *graph, const rn_device_caps *caps,
                            const rn_plan_order *order, const rn_plan_options *options,
                            const rn_program_values *values, rn_group_table *out) {
    finder f = {.graph = graph,
                .caps = caps,
                .order = order,
                .options = options,
                .values = values,
                .table = out};
    size_t room = (size_t)rn_graph_value_count(graph) + 1;
    RN_TRY(rn_arena_array(memory, order->count, sizeof *out->rows_of, (void **)&out->rows_of));
    RN_TRY(rn_arena_array(memory, order->count, sizeof *out->rows, (void **)&out->rows));
    RN_TRY(rn_arena_array(memory, room, sizeof *f.refused, (void **)&f.refused));
    RN_TRY(rn_arena_array(memory, room, sizeof *f.wrapped_rows, (void **)&f.wrapped_rows));
    for (uint32_t n = 0; n < order->count; n++)
        out->rows_of[n] = RN_NO_LOAD;
    if (caps->row_table_bytes == 0 || !is_inference(graph)) return RN_OK;
    refuse_values(&f);
    refuse_ids(&f);
    list_rows(&f);
    return RN_OK;
}

uint64_t rn_plan_rows_bytes(const rn_graph *graph, const rn_plan_rows *rows, uint64_t bound) {
    const rn_value_info *ids = rn_graph_value(graph, rows->ids);
    return rn_shape_elements(ids->shape, bound) * rows->row_bytes;
}

const rn_plan_rows *rn_plan_rows_of(const rn_plan *plan, uint32_t node) {
    const rn_node *n = rn_graph_node(plan->graph, node);
    for (uint32_t i = 0; rn_node_lookup(n) && i < plan->row_table_count; i++)
        if (plan->row_tables[i].table == table_of(n) && plan->row_tables[i].ids == ids_of(n))
            return &plan->row_tables[i];
    return NULL;
}
