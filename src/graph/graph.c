// graph.c — a graph's values, blocks and scalars. Nodes are added in node.c.
#include "graph/graph_internal.h"
#include "graph/weight_rows.h"

#include "base/checked.h"
#include "base/stop.h"
#include "memory/account.h"

#include <stdio.h>

#define FROM RN_HOST_OTHER

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_table_push(rn_table *table, void *item) {
    RN_TRY(rn_stop_try(RN_STOP_NODE_UNITS)); // all that makes graphs comes by here
    if (table->count == table->capacity) {
        uint32_t capacity = table->capacity ? 2 * table->capacity : 64;
        void *items = NULL;
        if (capacity <= table->capacity) return rn_fail(RN_INVALID, "a graph has too many parts");
        RN_TRY(rn_alloc(FROM, capacity * sizeof(void *), &items));
        if (table->count) memcpy(items, table->items, table->count * sizeof(void *));
        rn_free(FROM, table->items, table->capacity * sizeof(void *));
        table->items = items;
        table->capacity = capacity;
    }
    table->items[table->count++] = item;
    return RN_OK;
}

static void free_table(rn_table *table) {
    rn_free(FROM, table->items, table->capacity * sizeof(void *));
}

void rn_graph_destroy(rn_graph *graph) {
    if (!graph) return;
    for (int role = 0; role < RN_ROLE_COUNT; role++)
        rn_map_free(&graph->by_name[role]);
    free_table(&graph->values);
    free_table(&graph->nodes);
    free_table(&graph->blocks);
    rn_arena_free_all(&graph->memory);
    rn_free(FROM, graph, sizeof *graph);
}

static rn_status add_block(rn_graph *graph, const char *name) {
    void *copy = NULL;
    RN_TRY(rn_arena_copy(&graph->memory, name, strlen(name), &copy));
    return rn_table_push(&graph->blocks, copy);
}

static rn_status create_empty(rn_graph **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_graph), &block));
    rn_graph *graph = block;
    rn_arena_init(&graph->memory, FROM, 0);
    for (int role = 0; role < RN_ROLE_COUNT; role++)
        rn_map_init(&graph->by_name[role], FROM);
    rn_status s = rn_table_push(&graph->values, NULL); // RN_NO_VALUE
    if (s == RN_OK)
        *out = graph;
    else
        rn_graph_destroy(graph);
    return s;
}

rn_status rn_graph_create(rn_graph **out) {
    RN_TRY(create_empty(out));
    rn_status s = add_block(*out, "");
    if (s == RN_OK) return RN_OK;
    rn_graph_destroy(*out);
    *out = NULL;
    return s;
}

rn_status rn_graph_create_like(const rn_graph *graph, rn_graph **out) {
    RN_TRY(create_empty(out));
    rn_status s = RN_OK;
    (*out)->halves = graph->halves;
    for (uint32_t i = 0; s == RN_OK && i < graph->blocks.count; i++)
        s = add_block(*out, graph->blocks.items[i]);
    for (uint32_t i = 0; s == RN_OK && i < graph->scalar_count; i++)
        if (rn_graph_scalar(*out, graph->scalars[i]) == RN_NO_SCALAR) s = rn_graph_finish(*out);
    if (s == RN_OK) return RN_OK;
    rn_graph_destroy(*out);
    *out = NULL;
    return s;
}

void rn_graph_spoil(rn_graph *graph, rn_status status) {
    if (graph->failure != RN_OK) return;
    graph->failure = status;
    graph->error = *rn_last_error();
}

rn_status rn_graph_finish(rn_graph *graph) {
    return graph->failure == RN_OK ? RN_OK : rn_error_restore(&graph->error);
}

// ---- values -------------------------------------------------------------------------------------

// Whether the shape is one that a value can have.
static rn_status check_shape(const char *name, rn_dtype dtype, rn_shape shape) {
    if (shape.rank > RN_MAX_RANK)
        return rn_fail(RN_INVALID, "%s has %u axes, at most %d are possible", name, shape.rank,
                       RN_MAX_RANK);
    for (uint32_t i = 0; i < shape.rank; i++)
        if (shape.dims[i] == 0 || (shape.dims[i] == RN_ROWS && i > 0))
            return rn_fail(RN_INVALID, "%s: axis %u of %s is %s", name, i,
                           rn_shape_format(shape).text,
                           shape.dims[i] ? "rows, which only axis 0 can be" : "empty");
    const rn_dtype_info *type = rn_dtype_get(dtype);
    uint64_t elements = rn_shape_elements(shape, 1),
             last = shape.rank ? shape.dims[shape.rank - 1] : 1;
    if (dtype == RN_DTYPE_NONE || elements > UINT64_MAX / 64)
        return rn_fail(RN_INVALID, "%s: %s %s is more than memory can hold", name,
                       rn_shape_format(shape).text, type->name);
    bool own_form = dtype == RN_DTYPE_INT8 || dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 ||
                    dtype == RN_DTYPE_NF4_DQ;
    if (!own_form && type->block_elements > 1 && (last == RN_ROWS || last % type->block_elements))
        return rn_fail(RN_INVALID, "%s: the last axis of %s is not in whole blocks of %u (%s)",
                       name, rn_shape_format(shape).text, type->block_elements, type->name);
    return RN_OK;
}

static rn_status push_value(rn_graph *graph, const rn_value_info *like, const char *name) {
    void *copy = NULL, *text = NULL;
    RN_TRY(check_shape(name, like->dtype, like->shape));
    RN_TRY(rn_arena_copy(&graph->memory, like, sizeof *like, &copy));
    RN_TRY(rn_arena_copy(&graph->memory, name, strlen(name), &text));
    rn_value_info *info = copy;
    info->name = text;
    if (like->tensor) {
        RN_TRY(rn_arena_copy(&graph->memory, like->tensor, strlen(like->tensor), &text));
        info->tensor = text;
    }
    for (uint32_t i = 0; i < info->shape.rank; i++)
        if (info->shape.dims[i] == RN_ROWS) graph->has_rows = true;
    return rn_table_push(&graph->values, info);
}

rn_value rn_graph_add_value(rn_graph *graph, const rn_value_info *like, const char *name) {
    if (graph->failure != RN_OK) return RN_NO_VALUE;
    rn_status s = push_value(graph, like, name ? name : "");
    if (s != RN_OK) rn_graph_spoil(graph, s);
    return s == RN_OK ? graph->values.count - 1 : RN_NO_VALUE;
}

// Makes the value findable under its name.
static rn_status enlist(rn_graph *graph, rn_value value) {
    const rn_value_info *info = graph->values.items[value];
    bool existing = false;
    RN_TRY(rn_map_add(&graph->by_name[info->role], rn_str_from(info->name), value, &existing));
    if (existing)
        return rn_fail(RN_INVALID, "two %ss are called '%s'", rn_role_name(info->role), info->name);
    return RN_OK;
}

static rn_value add_named(rn_graph *graph, const char *name, rn_value_info info) {
    info.producer = RN_NO_NODE;
    info.block = graph->block;
    rn_value value = rn_graph_add_value(graph, &info, name);
    if (value == RN_NO_VALUE) return value;
    rn_status s = enlist(graph, value);
    if (s == RN_OK) return value;
    rn_graph_spoil(graph, s);
    return RN_NO_VALUE;
}

rn_value rn_graph_input(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape) {
    return add_named(graph, name,
                     (rn_value_info){.dtype = dtype,
                                     .shape = shape,
                                     .role = RN_ROLE_INPUT,
                                     .purpose = RN_PURPOSE_ACTIVATIONS});
}

// What outlives a run cannot depend on the run's number of rows.
static bool refuse_rows(rn_graph *graph, const char *what, const char *name, rn_shape shape) {
    if (shape.rank == 0 || shape.dims[0] != RN_ROWS) return false;
    rn_graph_spoil(graph, rn_fail(RN_INVALID, "%s '%s' has the axis rows", what, name));
    return true;
}

rn_value rn_graph_weight(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape) {
    if (refuse_rows(graph, "weight", name, shape)) return RN_NO_VALUE;
    return add_named(
        graph, name,
        (rn_value_info){
            .dtype = dtype, .shape = shape, .role = RN_ROLE_WEIGHT, .purpose = RN_PURPOSE_WEIGHTS});
}

bool rn_expert_tensor(const char *name, uint32_t expert, char *out, size_t capacity) {
    const char *star = strchr(name, '*');
    int length =
        star ? snprintf(out, capacity, "%.*s%u%s", (int)(star - name), name, expert, star + 1)
             : snprintf(out, capacity, "%s", name);
    return length >= 0 && (size_t)length < capacity;
}

static bool has_one_star(const char *name) {
    const char *star = name ? strchr(name, '*') : NULL;
    return !star || !strchr(star + 1, '*');
}

rn_value rn_graph_weight_stack(rn_graph *graph, const char *name, rn_dtype dtype, uint32_t experts,
                               uint64_t rows, uint64_t cols) {
    uint64_t all = 0;
    if (experts == 0 || !rn_mul_u64(experts, rows, &all) || all == 0 || !has_one_star(name)) {
        rn_graph_spoil(graph, rn_fail(RN_INVALID, "weight '%s': no stack of %u matrices of %llu",
                                      name ? name : "", experts, (unsigned long long)rows));
        return RN_NO_VALUE;
    }
    return add_named(graph, name,
                     (rn_value_info){.dtype = dtype,
                                     .shape = RN_SHAPE(all, cols),
                                     .role = RN_ROLE_WEIGHT,
                                     .purpose = RN_PURPOSE_WEIGHTS,
                                     .experts = experts});
}

rn_value rn_graph_weight_rows(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                              const char *tensor, uint64_t first_row, uint64_t tensor_rows) {
    if (refuse_rows(graph, "weight", name, shape)) return RN_NO_VALUE;
    if (shape.rank == 0 || first_row > tensor_rows || shape.dims[0] > tensor_rows - first_row) {
        rn_graph_spoil(graph,
                       rn_fail(RN_INVALID, "%s: %s are no rows of a tensor of %llu from %llu on",
                               name, rn_shape_format(shape).text, (unsigned long long)tensor_rows,
                               (unsigned long long)first_row));
        return RN_NO_VALUE;
    }
    return add_named(graph, name,
                     (rn_value_info){.dtype = dtype,
                                     .shape = shape,
                                     .role = RN_ROLE_WEIGHT,
                                     .purpose = RN_PURPOSE_WEIGHTS,
                                     .tensor = tensor,
                                     .first_row = first_row,
                                     .tensor_rows = tensor_rows});
}

rn_value rn_graph_state(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                        rn_purpose purpose) {
    if (refuse_rows(graph, "state", name, shape)) return RN_NO_VALUE;
    return add_named(
        graph, name,
        (rn_value_info){.dtype = dtype, .shape = shape, .role = RN_ROLE_STATE, .purpose = purpose});
}

rn_value rn_graph_constant(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                           const void *data) {
    uint64_t bytes = 0, elements = rn_shape_elements(shape, 1);
    void *copy = NULL;
    if (refuse_rows(graph, "constant", name, shape) || graph->failure != RN_OK) return RN_NO_VALUE;
    rn_status s = check_shape(name, dtype, shape);
    if (s == RN_OK && !rn_dtype_bytes(dtype, elements, &bytes))
        s = rn_fail(RN_INVALID, "constant '%s' is not in whole blocks", name);
    if (s == RN_OK) s = rn_arena_copy(&graph->memory, data, bytes, &copy);
    if (s != RN_OK) rn_graph_spoil(graph, s);
    return add_named(graph, name,
                     (rn_value_info){.dtype = dtype,
                                     .shape = shape,
                                     .role = RN_ROLE_CONSTANT,
                                     .purpose = RN_PURPOSE_OTHER,
                                     .constant = copy});
}

static rn_status make_output(rn_graph *graph, rn_value value, const char *name) {
    if (value >= graph->values.count) return rn_fail(RN_INVALID, "no value to make '%s' of", name);
    rn_value_info *info = graph->values.items[value];
    void *text = NULL;
    if (info->role != RN_ROLE_INTERMEDIATE)
        return rn_hint(rn_fail(RN_INVALID, "output '%s' is the %s '%s', not a node's result", name,
                               rn_role_name(info->role), info->name),
                       "copy it with a node first: rn_op_scale(g, x, 1, 0)");
    RN_TRY(rn_arena_copy(&graph->memory, name, strlen(name), &text));
    info->role = RN_ROLE_OUTPUT;
    info->name = text;
    return enlist(graph, value);
}

rn_value rn_graph_output(rn_graph *graph, rn_value value, const char *name) {
    if (graph->failure != RN_OK || value == RN_NO_VALUE) return RN_NO_VALUE;
    rn_status s = make_output(graph, value, name);
    if (s != RN_OK) rn_graph_spoil(graph, s);
    return s == RN_OK ? value : RN_NO_VALUE;
}

rn_value rn_graph_name(rn_graph *graph, rn_value value, const char *name) {
    void *text = NULL;
    if (graph->failure != RN_OK || value == RN_NO_VALUE) return RN_NO_VALUE;
    rn_value_info *info = graph->values.items[value];
    if (info->role != RN_ROLE_INTERMEDIATE) return value; // the others are found by their names
    rn_status s = rn_arena_copy(&graph->memory, name, strlen(name), &text);
    if (s == RN_OK)
        info->name = text;
    else
        rn_graph_spoil(graph, s);
    return value;
}

// ---- blocks and scalars -------------------------------------------------------------------------

void rn_graph_set_place(rn_graph *graph, uint32_t block, rn_phase phase) {
    graph->block = block;
    graph->phase = phase;
}

void rn_graph_block(rn_graph *graph, const char *name) {
    for (uint32_t i = graph->blocks.count; i-- > 0;) // the last one is asked for most
        if (strcmp(graph->blocks.items[i], name) == 0) {
            graph->block = i;
            return;
        }
    rn_status s = add_block(graph, name);
    if (s == RN_OK)
        graph->block = graph->blocks.count - 1;
    else
        rn_graph_spoil(graph, s);
}

static rn_status add_scalar(rn_graph *graph, const char *name) {
    void *copy = NULL;
    if (graph->scalar_count == RN_MAX_SCALARS)
        return rn_fail(RN_INVALID, "scalar '%s' is one too many: at most %d are possible", name,
                       RN_MAX_SCALARS);
    RN_TRY(rn_arena_copy(&graph->memory, name, strlen(name), &copy));
    graph->scalars[graph->scalar_count++] = copy;
    return RN_OK;
}

uint32_t rn_graph_scalar(rn_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->scalar_count; i++)
        if (strcmp(graph->scalars[i], name) == 0) return i;
    rn_status s = add_scalar(graph, name);
    if (s == RN_OK) return graph->scalar_count - 1;
    rn_graph_spoil(graph, s);
    return RN_NO_SCALAR;
}

// ---- looking ------------------------------------------------------------------------------------

uint32_t rn_graph_value_count(const rn_graph *graph) {
    return graph->values.count - 1;
}

const rn_value_info *rn_graph_value(const rn_graph *graph, rn_value value) {
    return graph->values.items[value];
}

rn_value_info *rn_graph_value_edit(rn_graph *graph, rn_value value) {
    return graph->values.items[value];
}

uint32_t rn_graph_node_count(const rn_graph *graph) {
    return graph->nodes.count;
}

const rn_node *rn_graph_node(const rn_graph *graph, uint32_t node) {
    return graph->nodes.items[node];
}

rn_node *rn_graph_node_edit(rn_graph *graph, uint32_t node) {
    return graph->nodes.items[node];
}

uint32_t rn_graph_block_count(const rn_graph *graph) {
    return graph->blocks.count;
}

const char *rn_graph_block_name(const rn_graph *graph, uint32_t block) {
    return graph->blocks.items[block];
}

uint32_t rn_graph_scalar_count(const rn_graph *graph) {
    return graph->scalar_count;
}

const char *rn_graph_scalar_name(const rn_graph *graph, uint32_t scalar) {
    return graph->scalars[scalar];
}

rn_value rn_graph_find(const rn_graph *graph, rn_role role, const char *name) {
    uint64_t value = RN_NO_VALUE;
    return rn_map_find(&graph->by_name[role], rn_str_from(name), &value) ? (rn_value)value
                                                                         : RN_NO_VALUE;
}

bool rn_graph_has_rows(const rn_graph *graph) {
    return graph->has_rows;
}

const char *rn_role_name(rn_role role) {
    static const char *const names[RN_ROLE_COUNT] = {"input",    "weight",       "state",
                                                     "constant", "intermediate", "output"};
    return role < RN_ROLE_COUNT ? names[role] : "?";
}
