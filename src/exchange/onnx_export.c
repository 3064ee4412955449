// onnx_export.c — the model around the nodes, and the walk over them.
//
// Nodes are written twice: the first time shows which values become outputs, so that the second
// writes them under the outputs' names. Without that every output would need a node that copies it,
// and a state's copy is as large as the state.
#include "exchange/onnx_export.h"

#include "base/checked.h"
#include "base/str.h"
#include "exchange/onnx_export_build.h"
#include "exchange/stablehlo_module.h"
#include "graph/fused.h"
#include "graph/halves.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES     ((size_t)2000 << 20) // of a message: protobuf's limit is 2 GiB
#define INLINE_BYTES   4096                 // constants of more bytes are arguments
#define WEIGHT_ALIGNED 4096                 // in the file of weights: it can be mapped

static const rn_stablehlo_options program = {
    .rows = 1, .widened = RN_DTYPE_F32, .widen_all = true, .constant_bytes = INLINE_BYTES};

int rn_onnx_data_type(rn_dtype dtype) {
    static const uint8_t types[RN_DTYPE_COUNT] = {
        [RN_DTYPE_F32] = 1,  [RN_DTYPE_U8] = 2,   [RN_DTYPE_I8] = 3,   [RN_DTYPE_U16] = 4,
        [RN_DTYPE_I16] = 5,  [RN_DTYPE_I32] = 6,  [RN_DTYPE_I64] = 7,  [RN_DTYPE_BOOL] = 9,
        [RN_DTYPE_F16] = 10, [RN_DTYPE_F64] = 11, [RN_DTYPE_U32] = 12, [RN_DTYPE_U64] = 13,
        [RN_DTYPE_BF16] = 16};
    return (unsigned)dtype < RN_DTYPE_COUNT ? types[dtype] : 0;
}

// ---- names --------------------------------------------------------------------------------------

rn_status rn_onnx_export_signature(const rn_graph *graph, rn_arena *memory,
                                   rn_stablehlo_signature *out) {
    return rn_stablehlo_signature_make(graph, &program, memory, out);
}

static const char *plain_name(const rn_graph *graph, const rn_stablehlo_entry *entry) {
    return entry->kind == RN_STABLEHLO_SCALAR ? rn_graph_scalar_name(graph, entry->value)
                                              : rn_graph_value(graph, entry->value)->name;
}

// Whether another argument, or a result before this one, has the name. Graphs keep names apart
// within a role only.
static bool is_taken(const rn_graph *graph, const rn_stablehlo_signature *s, uint32_t index,
                     bool result) {
    const rn_stablehlo_entry *own = result ? &s->results[index] : &s->arguments[index];
    const char *name = plain_name(graph, own);
    uint32_t arguments = result ? s->argument_count : index;
    for (uint32_t i = 0; i < arguments; i++)
        if (s->arguments[i].kind != own->kind && !strcmp(name, plain_name(graph, &s->arguments[i])))
            return true;
    return false;
}

rn_status rn_onnx_export_name(const rn_graph *graph, const rn_stablehlo_signature *signature,
                              uint32_t index, bool result, rn_arena *memory, const char **out) {
    const rn_stablehlo_entry *entry =
        result ? &signature->results[index] : &signature->arguments[index];
    const char *name = plain_name(graph, entry), *mark = "";
    char *copy = NULL;
    if (result && entry->kind == RN_STABLEHLO_STATE)
        mark = ".next";
    else if (is_taken(graph, signature, index, result))
        mark = result ? ".out" : entry->kind == RN_STABLEHLO_SCALAR ? ".scalar" : ".given";
    size_t room = strlen(name) + strlen(mark) + 1;
    RN_TRY(rn_arena_array(memory, room, 1, (void **)&copy));
    snprintf(copy, room, "%s%s", name, mark);
    *out = copy;
    return RN_OK;
}

static bool is_given_once(const rn_stablehlo_entry *entry) {
    return entry->kind == RN_STABLEHLO_WEIGHT || entry->kind == RN_STABLEHLO_CONSTANT;
}

// Input 1 of a product or a convolution is its weight.
static bool is_multiplied(const rn_node *node, rn_value value) {
    bool product =
        rn_op_is(node->op, RN_TRAIT_PRODUCT) || node->op == RN_OP_CONV || node->op == RN_OP_CONV2D;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value && (i != 1 || !product)) return false;
    return true;
}

bool rn_onnx_export_is_int8(const rn_graph *graph, const rn_stablehlo_entry *entry) {
    return entry->kind == RN_STABLEHLO_WEIGHT && entry->dtype == RN_DTYPE_I8 &&
           rn_graph_value(graph, entry->value)->dtype != RN_DTYPE_I8;
}

void rn_onnx_export_mark_int8(const rn_graph *graph, rn_stablehlo_signature *signature) {
    enum { LEAST_ELEMENTS = 4096 };
    for (uint32_t i = 0; i < signature->argument_count; i++) {
        rn_stablehlo_entry *entry = (rn_stablehlo_entry *)&signature->arguments[i]; // its maker's
        uint64_t elements = rn_shape_elements(entry->shape, 1);
        bool marked = entry->kind == RN_STABLEHLO_WEIGHT && entry->dtype == RN_DTYPE_F32 &&
                      entry->shape.rank >= 2 && elements >= LEAST_ELEMENTS;
        for (uint32_t n = 0; marked && n < rn_graph_node_count(graph); n++)
            marked = is_multiplied(rn_graph_node(graph, n), entry->value);
        if (!marked) continue;
        entry->dtype = RN_DTYPE_I8;
        entry->bytes = elements;
    }
}

uint64_t rn_onnx_export_offset(const rn_graph *graph, const rn_stablehlo_signature *signature,
                               uint32_t index) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < index; i++) {
        const rn_stablehlo_entry *entry = &signature->arguments[i];
        if (!is_given_once(entry)) continue;
        at += rn_round_up(entry->bytes, WEIGHT_ALIGNED);
        if (rn_onnx_export_is_int8(graph, entry))
            at += rn_round_up(entry->shape.dims[0] * sizeof(float), WEIGHT_ALIGNED);
    }
    return at;
}

// ---- inputs, outputs, initializers --------------------------------------------------------------

typedef struct model {
    const rn_graph *graph;
    const rn_onnx_export_options *options;
    rn_arena *memory;
    rn_hlo_values known;
    rn_stablehlo_signature signature;
    const char **arguments, **results; // names
    rn_export_value *values;           // (values + 1): what stands for each
    rn_export_value scalars[RN_MAX_SCALARS];
    rn_tensor *tensors;  // (most_tensors)
    rn_export_value *in; // (most_tensors)
} model;

static rn_shape shape_of(const model *m, const rn_stablehlo_entry *entry) {
    return entry->kind == RN_STABLEHLO_SCALAR ? RN_SCALAR
                                              : rn_graph_value(m->graph, entry->value)->shape;
}

// ValueInfoProto: 1 name, 2 type {1 tensor_type {1 elem_type, 2 shape {1 dim {1 value, 2 param}}}}.
static void write_port(rn_export *h, const model *m, uint32_t field, const char *name,
                       const rn_stablehlo_entry *entry) {
    rn_shape shape = shape_of(m, entry);
    char text[600];
    rn_buffer dims = {0}, type = {0}, one = {0};
    rn_buffer_init(&dims, RN_HOST_OTHER, sizeof text);
    rn_buffer_init(&type, RN_HOST_OTHER, sizeof text);
    rn_buffer_init(&one, RN_HOST_OTHER, sizeof text);
    for (uint32_t i = 0; i < shape.rank; i++) {
        one.bytes = 0;
        if (shape.dims[i] == RN_ROWS)
            rn_export_string(h, &one, 2, "rows");
        else
            rn_export_varint(h, &one, 1, shape.dims[i]);
        rn_export_bytes(h, &dims, 1, one.data, one.bytes);
    }
    rn_export_varint(h, &type, 1, (uint64_t)rn_onnx_data_type(entry->dtype));
    rn_export_bytes(h, &type, 2, dims.data, dims.bytes);
    h->node.bytes = h->inner.bytes = 0;
    rn_export_bytes(h, &h->inner, 1, type.data, type.bytes);
    rn_export_string(h, &h->node, 1, name);
    rn_export_bytes(h, &h->node, 2, h->inner.data, h->inner.bytes);
    rn_export_bytes(h, &h->graph, field, h->node.data, h->node.bytes);
    rn_buffer_free(&one);
    rn_buffer_free(&type);
    rn_buffer_free(&dims);
}

static void write_external(rn_export *h, const char *key, const char *value) {
    h->inner.bytes = 0;
    rn_export_string(h, &h->inner, 1, key);
    rn_export_string(h, &h->inner, 2, value);
    rn_export_bytes(h, &h->node, 13, h->inner.data, h->inner.bytes);
}

// TensorProto: 1 dims, 2 data_type, 8 name, 13 external_data, 14 data_location.
static void write_tensor(rn_export *h, const model *m, const char *name, rn_dtype dtype,
                         rn_shape shape, uint64_t offset) {
    char number[32];
    uint64_t bytes = 0;
    if (!rn_dtype_bytes(dtype, rn_shape_elements(shape, 1), &bytes)) bytes = 0;
    h->node.bytes = 0;
    for (uint32_t i = 0; i < shape.rank; i++)
        rn_export_varint(h, &h->node, 1, shape.dims[i]);
    rn_export_varint(h, &h->node, 2, (uint64_t)rn_onnx_data_type(dtype));
    rn_export_string(h, &h->node, 8, name);
    write_external(h, "location", m->options->weight_file);
    snprintf(number, sizeof number, "%llu", (unsigned long long)offset);
    write_external(h, "offset", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)bytes);
    write_external(h, "length", number);
    rn_export_varint(h, &h->node, 14, 1);
    rn_export_bytes(h, &h->graph, 5, h->node.data, h->node.bytes);
}

// A weight as its name, or as "NAME.int8", "NAME.scale" and a node that makes NAME of both.
static void write_weight(rn_export *h, const model *m, uint32_t index, rn_export_value value) {
    const rn_stablehlo_entry *entry = &m->signature.arguments[index];
    const char *name = m->arguments[index];
    uint64_t at = rn_onnx_export_offset(m->graph, &m->signature, index);
    if (!rn_onnx_export_is_int8(m->graph, entry)) {
        write_tensor(h, m, name, entry->dtype, entry->shape, at);
        return;
    }
    char codes[600], scales[600];
    rn_export_attr axis = RN_EXPORT_INT("axis", 0);
    snprintf(codes, sizeof codes, "%.580s.int8", name);
    snprintf(scales, sizeof scales, "%.580s.scale", name);
    write_tensor(h, m, codes, RN_DTYPE_I8, entry->shape, at);
    write_tensor(h, m, scales, RN_DTYPE_F32, RN_SHAPE(entry->shape.dims[0]),
                 at + rn_round_up(entry->bytes, WEIGHT_ALIGNED));
    rn_export_write_named(h, "DequantizeLinear", (const char *[]){codes, scales}, 2, &axis, value);
}

// Their ids are 1 .. argument_count.
static void write_arguments(rn_export *h, model *m) {
    for (uint32_t i = 0; i < m->signature.argument_count; i++) {
        const rn_stablehlo_entry *entry = &m->signature.arguments[i];
        rn_dtype dtype = rn_onnx_export_is_int8(m->graph, entry) ? RN_DTYPE_F32 : entry->dtype;
        rn_export_value value = rn_export_new(h, dtype, shape_of(m, entry));
        if (m->options->weight_file && is_given_once(entry))
            write_weight(h, m, i, value);
        else
            write_port(h, m, 11, m->arguments[i], entry);
        if (entry->kind == RN_STABLEHLO_SCALAR)
            m->scalars[entry->value] = value;
        else
            m->values[entry->value] = value;
    }
    for (rn_value v = 1; v <= rn_graph_value_count(m->graph); v++) {
        const rn_value_info *info = rn_graph_value(m->graph, v);
        if (m->known.read[v] && rn_hlo_is_inline(m->graph, &program, v))
            m->values[v] = rn_export_data(h, info->dtype, info->shape, info->constant);
    }
}

static rn_export_value result_of(const model *m, uint32_t index) {
    const rn_stablehlo_entry *entry = &m->signature.results[index];
    bool state = entry->kind == RN_STABLEHLO_STATE;
    return m->values[state ? m->known.update[entry->value] : entry->value];
}

// A result that has a name of its own already is an argument, or two results are one value.
static void write_results(rn_export *h, model *m) {
    h->name = "";
    for (uint32_t i = 0; i < m->signature.result_count; i++) {
        rn_export_value made = result_of(m, i);
        rn_export_name_text room;
        const char *name = m->results[i];
        write_port(h, m, 12, name, &m->signature.results[i]);
        if (made.id == 0 && h->status == RN_OK)
            h->status = rn_fail(RN_INTERNAL, "nothing makes the output '%s'", name);
        if (h->status != RN_OK || !strcmp(name, rn_export_name_of(h, made.id, &room))) continue;
        h->node.bytes = 0;
        rn_export_string(h, &h->node, 1, rn_export_name_of(h, made.id, &room));
        rn_export_string(h, &h->node, 2, name);
        rn_export_string(h, &h->node, 4, "Identity");
        rn_export_bytes(h, &h->graph, 1, h->node.data, h->node.bytes);
    }
}

// ---- nodes --------------------------------------------------------------------------------------

static rn_status refuse_node(const rn_node *node) {
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "%s: there is no ONNX for %s", node->name, rn_op_name(node->op)),
        "models are written for inference; gradients, optimisers and layers with a "
        "recurrent state have no ONNX op");
}

// What `unfold` hands from call to call is known by its address alone, and nothing lies there. It
// needs sizes: MANY rows stand for RN_ROWS meanwhile.
enum {
    ADDRESS_STEP = 64,
    MOST_TENSORS = 32,
    MOST_HANDED = RN_FUSED_CALLS * RN_MAX_OUTPUTS + MOST_TENSORS
};
#define MANY ((uint64_t)1000003) // a prime that no size of a model is

typedef struct handed {
    const void *address[MOST_HANDED];
    rn_export_value value[MOST_HANDED];
    uint32_t count;
} handed;

static rn_export_value take(const handed *all, const rn_tensor *tensor) {
    for (uint32_t i = all->count; i-- > 0;)
        if (rn_tensor_given(tensor) && all->address[i] == tensor->data) return all->value[i];
    return (rn_export_value){0};
}

static void hand(handed *all, const void *address, rn_export_value value) {
    all->address[all->count] = address;
    all->value[all->count++] = value;
}

static void free_rows(const rn_tensor *from, uint32_t count, rn_tensor *to) {
    for (uint32_t i = 0; i < count; i++) {
        to[i] = from[i];
        if (to[i].shape.rank && to[i].shape.dims[0] == MANY) to[i].shape.dims[0] = RN_ROWS;
    }
}

static void write_part(rn_export *h, const rn_call *part, handed *all) {
    rn_export_value in[RN_FUSED_TENSORS] = {0}, out[RN_MAX_OUTPUTS] = {0};
    rn_tensor tensors[2 * RN_FUSED_TENSORS];
    rn_call call = *part;
    if (!rn_exporters[part->op] || part->input_count + part->output_count > 2 * RN_FUSED_TENSORS) {
        rn_export_refuse(h, "there is no ONNX for %s", rn_op_name(part->op));
        return;
    }
    free_rows(part->inputs, part->input_count, tensors);
    free_rows(part->outputs, part->output_count, tensors + part->input_count);
    call.inputs = tensors;
    call.outputs = tensors + part->input_count;
    for (uint32_t i = 0; i < part->input_count; i++)
        in[i] = take(all, &part->inputs[i]);
    rn_exporters[part->op](h, &call, in, out);
    for (uint32_t i = 0; i < part->output_count; i++) {
        out[i].shape = call.outputs[i].shape;
        hand(all, part->outputs[i].data, out[i]);
    }
}

static void write_fused(rn_export *h, const model *m, uint32_t n, rn_export_value *out) {
    rn_tensor tensors[MOST_TENSORS];
    const rn_node *node = rn_graph_node(m->graph, n);
    uint32_t count = node->input_count + node->output_count;
    handed all = {.count = 0};
    rn_call whole;
    rn_fused fused;
    if (count > MOST_TENSORS) {
        rn_export_refuse(h, "%s of too many values", rn_op_name(node->op));
        return;
    }
    rn_graph_bind(m->graph, n, MANY, tensors, &whole);
    for (uint32_t i = 0; i < count; i++) {
        tensors[i].data = (void *)(uintptr_t)((i + 1) * (uintptr_t)ADDRESS_STEP);
        if (i < node->input_count) hand(&all, tensors[i].data, m->in[i]);
    }
    whole.workspace = (void *)(uintptr_t)((count + 1) * (uintptr_t)ADDRESS_STEP);
    memset(&fused, 0, sizeof fused);
    fused.whole = &whole;
    rn_op_get(node->op)->unfold(&whole, &fused);
    for (uint32_t c = 0; c < fused.count && h->status == RN_OK; c++)
        write_part(h, &fused.calls[c], &all);
    for (uint32_t i = 0; i < node->output_count; i++)
        out[i] = take(&all, &whole.outputs[i]);
}

static void write_node(rn_export *h, model *m, uint32_t n) {
    const rn_node *node = rn_graph_node(m->graph, n);
    rn_export_value out[RN_MAX_OUTPUTS] = {0};
    rn_call call;
    bool read = false;
    rn_graph_bind(m->graph, n, RN_ROWS, m->tensors, &call);
    for (uint32_t i = 0; i < node->output_count; i++) {
        bool wanted = m->known.read[node->outputs[i]];
        m->tensors[node->input_count + i].data = wanted ? m->tensors : NULL;
        read |= wanted;
    }
    if (!read) return;
    for (uint32_t i = 0; i < node->input_count; i++)
        m->in[i] = m->values[node->inputs[i]];
    h->name = node->name;
    if (rn_op_get(node->op)->unfold)
        write_fused(h, m, n, out);
    else if (rn_exporters[node->op] && !rn_call_has_halves(&call))
        rn_exporters[node->op](h, &call, m->in, out);
    else if (h->status == RN_OK)
        h->status = refuse_node(node);
    for (uint32_t i = 0; i < node->output_count; i++) {
        out[i].shape = call.outputs[i].shape;
        m->values[node->outputs[i]] = out[i];
    }
}

static void write_graph(rn_export *h, model *m) {
    h->name = "";
    h->last_id = 0;
    h->graph.bytes = 0;
    h->scalars = m->scalars;
    memset(m->values, 0, (rn_graph_value_count(m->graph) + 1u) * sizeof *m->values);
    rn_export_string(h, &h->graph, 2, "ration");
    write_arguments(h, m);
    for (uint32_t n = 0; n < rn_graph_node_count(m->graph) && h->status == RN_OK; n++)
        write_node(h, m, n);
    if (h->status == RN_OK) write_results(h, m);
}

// ---- the model ----------------------------------------------------------------------------------

static rn_status prepare(model *m) {
    size_t values = rn_graph_value_count(m->graph) + 1u;
    rn_arena *memory = m->memory;
    RN_TRY(rn_hlo_values_find(m->graph, &program, memory, &m->known));
    RN_TRY(rn_hlo_signature_find(m->graph, &program, &m->known, memory, &m->signature));
    if (m->options->int8) rn_onnx_export_mark_int8(m->graph, &m->signature);
    const rn_stablehlo_signature *s = &m->signature;
    if (s->result_count == 0)
        return rn_fail(RN_UNSUPPORTED, "a graph without outputs is no ONNX model");
    RN_TRY(rn_arena_array(memory, values, sizeof *m->values, (void **)&m->values));
    RN_TRY(rn_arena_array(memory, m->known.most_tensors, sizeof *m->tensors, (void **)&m->tensors));
    RN_TRY(rn_arena_array(memory, m->known.most_tensors, sizeof *m->in, (void **)&m->in));
    RN_TRY(rn_arena_array(memory, s->argument_count + 1u, sizeof *m->arguments,
                          (void **)&m->arguments));
    RN_TRY(rn_arena_array(memory, s->result_count + 1u, sizeof *m->results, (void **)&m->results));
    for (uint32_t i = 0; i < s->argument_count; i++)
        RN_TRY(rn_onnx_export_name(m->graph, s, i, false, memory, &m->arguments[i]));
    for (uint32_t i = 0; i < s->result_count; i++)
        RN_TRY(rn_onnx_export_name(m->graph, s, i, true, memory, &m->results[i]));
    return RN_OK;
}

// Names of arguments; with `last_id` of a first writing, those of results.
static rn_status name_values(rn_export *h, const model *m) {
    const rn_stablehlo_signature *s = &m->signature;
    uint32_t count = rn_max_u64(h->last_id, s->argument_count) + 1;
    RN_TRY(rn_arena_array(m->memory, count, sizeof *h->names, (void **)&h->names));
    h->name_count = count;
    for (uint32_t i = 0; i < s->argument_count; i++)
        h->names[i + 1] = m->arguments[i];
    for (uint32_t i = 0; h->last_id && i < s->result_count; i++) {
        uint32_t id = result_of(m, i).id;
        if (!h->names[id]) h->names[id] = m->results[i];
    }
    return RN_OK;
}

// ModelProto: 1 ir_version, 2 producer_name, 7 graph, 8 opset_import {2 version}.
static rn_status write_model(rn_export *h, rn_buffer *out) {
    h->node.bytes = 0;
    rn_export_varint(h, &h->node, 2, h->opset);
    rn_export_varint(h, out, 1, h->opset > 22 ? 11 : 10);
    rn_export_string(h, out, 2, "ration");
    rn_export_bytes(h, out, 8, h->node.data, h->node.bytes);
    rn_export_bytes(h, out, 7, h->graph.data, h->graph.bytes);
    return h->status;
}

rn_status rn_onnx_export(const rn_graph *graph, const rn_onnx_export_options *options,
                         rn_buffer *out) {
    uint32_t opset = options->opset ? options->opset : RN_ONNX_OPSET;
    if (opset < RN_ONNX_LEAST_OPSET || opset > RN_ONNX_MOST_OPSET)
        return rn_fail(RN_INVALID, "opset %u is none of %d to %d", opset, RN_ONNX_LEAST_OPSET,
                       RN_ONNX_MOST_OPSET);
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    model m = {.graph = graph, .options = options, .memory = &memory};
    rn_export h = {.opset = opset, .name = ""};
    rn_buffer_init(&h.graph, RN_HOST_OTHER, MOST_BYTES);
    rn_buffer_init(&h.node, RN_HOST_OTHER, MOST_BYTES);
    rn_buffer_init(&h.inner, RN_HOST_OTHER, MOST_BYTES);
    h.status = prepare(&m);
    for (int round = 0; round < 2 && h.status == RN_OK; round++) {
        h.status = name_values(&h, &m);
        if (h.status == RN_OK) write_graph(&h, &m);
    }
    rn_status s = h.status == RN_OK ? write_model(&h, out) : h.status;
    rn_buffer_free(&h.inner);
    rn_buffer_free(&h.node);
    rn_buffer_free(&h.graph);
    rn_arena_free_all(&memory);
    return s;
}
