// estimate.c — what a session will take, before there is one: weights and states to the byte, what
// lies between nodes from the graph.
#include "backend/ort/ort.h"

#include "base/checked.h"
#include "exchange/onnx_export.h"
#include "graph/op.h"
#include "memory/account.h"

#include <stdio.h>

// ONNX Runtime allocates each value between its nodes when it is made, and frees it behind its last
// reader, but takes nodes in an order of its own: values live longer than here. A graph's node is
// several of ONNX's, so what one holds at once is a multiple of its results; attention holds scores
// and gathered pages as a whole. The factors are measured (docs/engines.md): what a session
// allocates beyond them is refused.
enum { LIVE = 3, SCORES = 4, PAGES = 5 };
#define LEAST_BYTES   ((uint64_t)1 << 20)
#define SESSION_BYTES ((uint64_t)12 << 20) // its own structures, and those of each of our nodes
#define NODE_BYTES    ((uint64_t)48 << 10)

static const uint64_t *dims_of(const rn_graph *graph, rn_value value) {
    return rn_graph_value(graph, value)->shape.dims;
}

static uint64_t count_attention(const rn_graph *graph, const rn_node *node, uint64_t rows) {
    const rn_value *in = node->inputs;
    const uint64_t *q = dims_of(graph, in[0]), *kv, *table;
    switch (node->op) {
    case RN_OP_PAGED_ATTENTION:
    case RN_OP_ATTEND: // q (ROWS, H, D), kv (pages, 2, HK, page_tokens, D)
        kv = dims_of(graph, in[node->op == RN_OP_ATTEND ? 3 : 1]);
        table = dims_of(graph, in[node->op == RN_OP_ATTEND ? 6 : 4]);
        return SCORES * rn_executable_floats(rows, q[1], table[0] * table[1] * kv[3]) +
               PAGES * rn_executable_floats(table[0] * table[1] * kv[3], 2 * kv[2], kv[4]);
    case RN_OP_VARLEN_ATTENTION:
        return SCORES * rn_executable_floats(rows, rows, q[1]);
    case RN_OP_ATTENTION:
        return SCORES * rn_executable_floats((q[0] == RN_ROWS ? rows : q[0]) * q[1],
                                             dims_of(graph, in[1])[1], q[2]);
    default:
        return 0;
    }
}

static uint64_t value_bytes(const rn_graph *graph, rn_value value, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(graph, value);
    bool wide = info->dtype == RN_DTYPE_F64 || info->dtype == RN_DTYPE_I64;
    if (info->role == RN_ROLE_STATE || info->purpose == RN_PURPOSE_KV) return 0;
    return rn_round_up(rn_executable_floats(rn_shape_elements(info->shape, rows), wide ? 2 : 1, 1),
                       64) +
           64;
}

// What is made of weights alone: ONNX Runtime may make all of it before anything else.
static rn_status count_early(const rn_graph *graph, rn_arena *scratch, uint64_t rows,
                             uint64_t *out) {
    uint32_t nodes = rn_graph_node_count(graph), values = rn_graph_value_count(graph);
    bool *varies; // (values + 1): from run to run
    *out = 0;
    RN_TRY(rn_arena_array(scratch, values + 1u, sizeof *varies, (void **)&varies));
    for (rn_value v = 1; v <= values; v++) {
        rn_role role = rn_graph_value(graph, v)->role;
        varies[v] = role == RN_ROLE_INPUT || role == RN_ROLE_STATE;
    }
    for (uint32_t n = 0; n < nodes; n++) {
        const rn_node *node = rn_graph_node(graph, n);
        bool any = rn_op_is(node->op, RN_TRAIT_RANDOM);
        for (uint32_t i = 0; i < node->input_count; i++)
            any |= varies[node->inputs[i]];
        for (uint32_t i = 0; i < node->output_count; i++) {
            varies[node->outputs[i]] = any;
            if (!any && !rn_op_is(node->op, RN_TRAIT_VIEW))
                *out += value_bytes(graph, node->outputs[i], rows);
        }
    }
    return RN_OK;
}

typedef struct counting {
    const rn_graph *graph;
    uint64_t rows;
    uint64_t most, within; // alive at once; within one node
} counting;

static uint64_t count_value(void *self, rn_value value) {
    const counting *c = self;
    return value_bytes(c->graph, value, c->rows);
}

static void count_node(void *self, const rn_node *node, uint64_t made_bytes, uint64_t live_bytes) {
    counting *c = self;
    c->most = rn_max_u64(c->most, live_bytes);
    c->within = rn_max_u64(c->within, LIVE * made_bytes + count_attention(c->graph, node, c->rows));
}

static rn_status count_temporary(const rn_graph *graph, uint64_t rows, uint64_t *out) {
    counting c = {.graph = graph, .rows = rows};
    rn_live_walk walk = {.bytes = count_value, .visit = count_node, .self = &c};
    rn_arena scratch;
    uint64_t early = 0;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = count_early(graph, &scratch, rows, &early);
    rn_arena_free_all(&scratch);
    if (s == RN_OK) s = rn_executable_walk_live(graph, &walk);
    *out = 2 * c.most + early + c.within + LEAST_BYTES;
    return s;
}

static rn_status add(uint64_t *sum, uint64_t bytes) {
    if (rn_add_u64(*sum, rn_round_up(bytes, 64), sum)) return RN_OK;
    return rn_fail(RN_INVALID, "the model is more than memory can hold");
}

// MLAS packs a matrix in panels of 16 columns; where a matrix is turned first, the other axis is
// rounded up.
static uint64_t count_packed(const rn_stablehlo_signature *signature, uint32_t least_rank) {
    enum { PANEL = 16 };
    uint64_t all = 0;
    for (uint32_t i = 0; i < signature->argument_count; i++) {
        const rn_stablehlo_entry *entry = &signature->arguments[i];
        if (entry->kind != RN_STABLEHLO_WEIGHT && entry->kind != RN_STABLEHLO_CONSTANT) continue;
        if (entry->shape.rank < least_rank) continue;
        uint64_t bytes = rn_executable_floats(1, 1, rn_shape_elements(entry->shape, 1));
        if (entry->shape.rank == 2)
            bytes = rn_executable_floats(rn_round_up(entry->shape.dims[0], PANEL),
                                         rn_round_up(entry->shape.dims[1], PANEL), 1);
        all += rn_max_u64(bytes, entry->bytes) + 256;
    }
    return all;
}

uint64_t rn_ort_packed_bytes(const rn_stablehlo_signature *signature) {
    return count_packed(signature, 0);
}

// What is made of weights when a session is made: packed by our allocator; folded, and for
// convolutions laid out anew at level 3, by its own. Measured: 2.3 to 2.5 times the weights' own
// bytes at level 2 with them, 4.3 times for convolutions at level 3 (docs/engines.md).
static rn_status add_copies(const rn_device_caps *caps, const rn_stablehlo_signature *s,
                            uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    uint64_t packed = rn_ort_packed_bytes(s);
    enum { KERNEL_RANK = 3 };
    RN_TRY(add(&purpose_bytes[RN_PURPOSE_OTHER], packed));
    if (caps->own[RN_ORT_LEVEL] >= 3)
        RN_TRY(add(&purpose_bytes[RN_PURPOSE_OTHER], 2 * count_packed(s, KERNEL_RANK)));
    return add(&purpose_bytes[RN_PURPOSE_WEIGHTS], packed);
}

// Inputs and outputs of a run are the caller's.
static rn_status count_given(const rn_graph *graph, const rn_stablehlo_signature *s,
                             uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *port = &s->arguments[i];
        if (port->kind == RN_STABLEHLO_INPUT || port->kind == RN_STABLEHLO_SCALAR) continue;
        const rn_value_info *info = rn_graph_value(graph, port->value);
        if (info->dtype != port->dtype && !rn_dtype_get(info->dtype)->readable)
            return rn_fail(RN_UNSUPPORTED, "ONNX Runtime has no %s, and '%s' cannot be widened",
                           rn_dtype_get(info->dtype)->name, info->name);
        RN_TRY(add(&purpose_bytes[info->purpose], port->bytes));
    }
    return RN_OK;
}

rn_status rn_ort_estimate(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                          uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    rn_onnx_export_options options = {0};
    rn_stablehlo_signature signature;
    rn_arena scratch;
    rn_buffer model;
    uint64_t temporary = 0;
    rn_buffer_init(&model, RN_HOST_OTHER, SIZE_MAX);
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = rn_onnx_export(graph, &options, &model); // what cannot be written is refused
    uint64_t bytes = model.bytes;
    rn_buffer_free(&model);
    if (s == RN_OK) s = rn_onnx_export_signature(graph, &scratch, &signature);
    if (s == RN_OK) s = count_given(graph, &signature, purpose_bytes);
    if (s == RN_OK && !caps->frugal) s = add_copies(caps, &signature, purpose_bytes);
    if (s == RN_OK) s = count_temporary(graph, rows, &temporary);
    if (s == RN_OK) s = add(&purpose_bytes[RN_PURPOSE_WORKSPACE], temporary);
    if (s == RN_OK)
        s = add(&purpose_bytes[RN_PURPOSE_OTHER],
                SESSION_BYTES + 4 * bytes + NODE_BYTES * rn_graph_node_count(graph));
    rn_arena_free_all(&scratch);
    return s;
}

static bool has_halves(const rn_graph *graph) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        rn_dtype dtype = rn_graph_value(graph, v)->dtype;
        if (dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16) return true;
    }
    return false;
}

void rn_ort_describe_numbers(const rn_device_caps *caps, const rn_graph *graph, char *out,
                             size_t bytes) {
    uint64_t half = 0, quantised = 0;
    (void)caps;
    rn_executable_count_narrow(graph, &half, &quantised);
    out[0] = 0;
    if (half || quantised)
        snprintf(out, bytes, "all products are of f32: %s of narrower weights are widened to it%s",
                 rn_size_format(half + quantised).text,
                 has_halves(graph) ? ", values of 16 bits are computed in it and rounded" : "");
    else if (has_halves(graph))
        snprintf(out, bytes, "values of 16 bits are computed in f32 and rounded");
}
