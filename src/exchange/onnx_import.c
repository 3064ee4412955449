// onnx_import.c — walks an ONNX model: scopes of names, functions, inputs and outputs, and at the
// end the graph without what nothing reads.
#include "exchange/onnx_importer.h"

#include "graph/rewrite.h"
#include "memory/account.h"

#include <stdio.h>

enum {
    OLDEST_OPSET = 7,
    NEWEST_OPSET = 27,
    MOST_DEPTH = 32,
    MOST_NODES = 1 << 18,
    MOST_TENSORS = 512,
    MOST_BLOCKS = 4096,
    MOST_FUNCTIONS = 4096
};

// ---- names --------------------------------------------------------------------------------------

static void open_scope(rn_import_scope *scope) {
    rn_map_init(&scope->names, RN_HOST_OTHER);
}

static void close_scope(rn_import_scope *scope) {
    rn_map_free(&scope->names);
}

static rn_status new_slot(rn_import *m, rn_import_scope *scope, rn_str name, rn_import_slot **out) {
    void *block = NULL;
    bool existing = false;
    RN_TRY(rn_arena_alloc(&m->memory, sizeof **out, &block));
    *out = block;
    (*out)->name = name;
    RN_TRY(rn_map_add(&scope->names, name, (uint64_t)(uintptr_t)block, &existing));
    if (existing) return rn_fail(RN_CORRUPT, "the name '%.*s' is there twice", RN_STR_ARG(name));
    return RN_OK;
}

static rn_status terminated(rn_import *m, rn_str text, const char **out) {
    void *copy = NULL;
    if (text.bytes && memchr(text.data, 0, text.bytes))
        return rn_fail(RN_CORRUPT, "a name with a NUL byte");
    RN_TRY(rn_arena_copy(&m->memory, text.data, text.bytes, &copy));
    *out = copy;
    return RN_OK;
}

// ---- inputs -------------------------------------------------------------------------------------

static const rn_onnx_input *find_known(const rn_import *m, rn_str name) {
    for (size_t i = 0; i < m->options.input_count; i++)
        if (rn_str_equal(rn_str_from(m->options.inputs[i].name), name))
            return &m->options.inputs[i];
    return NULL;
}

static bool find_dim(const rn_import *m, rn_str name, uint64_t *out) {
    for (size_t i = 0; name.bytes && i < m->options.dim_count; i++)
        if (rn_str_equal(rn_str_from(m->options.dims[i].name), name)) {
            *out = m->options.dims[i].size;
            return true;
        }
    return false;
}

// An axis by what the file, the options and a known input say, in this order.
static rn_status find_axis(const rn_import *m, const rn_onnx_value *v, uint32_t axis,
                           const rn_onnx_input *known, uint64_t *out) {
    const rn_onnx_axis *dim = &v->dims[axis];
    bool has_value = dim->has_value && dim->value >= 0; // some files have -1 for what is open
    if (has_value) *out = (uint64_t)dim->value;
    if (has_value || find_dim(m, dim->param, out)) {
        if (!known || known->shape.dims[axis] == *out) return RN_OK;
        return rn_fail(RN_INVALID, "input '%.*s': axis %u is %llu in the model, %llu is given",
                       RN_STR_ARG(v->name), axis, (unsigned long long)*out,
                       (unsigned long long)known->shape.dims[axis]);
    }
    *out = known ? known->shape.dims[axis] : RN_ROWS;
    if (known || axis == 0) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "input '%.*s': axis %u ('%.*s') has no size",
                           RN_STR_ARG(v->name), axis, RN_STR_ARG(dim->param)),
                   "give it one: --dim NAME=SIZE, or the input itself");
}

static rn_status find_shape(const rn_import *m, const rn_onnx_value *v, rn_shape *out) {
    const rn_onnx_input *known = find_known(m, v->name);
    *out = (rn_shape){.rank = v->rank};
    if (!v->has_shape && known) {
        *out = known->shape;
        return RN_OK;
    }
    if (!v->has_shape)
        return rn_hint(rn_fail(RN_INVALID, "input '%.*s' has no shape", RN_STR_ARG(v->name)),
                       "give the input itself");
    if (v->rank > RN_MAX_RANK)
        return rn_fail(RN_UNSUPPORTED, "input '%.*s' has %u axes", RN_STR_ARG(v->name), v->rank);
    if (known && known->shape.rank != v->rank)
        return rn_fail(RN_INVALID, "input '%.*s' has %u axes, what is given has %u",
                       RN_STR_ARG(v->name), v->rank, known->shape.rank);
    for (uint32_t i = 0; i < v->rank; i++)
        RN_TRY(find_axis(m, v, i, known, &out->dims[i]));
    return RN_OK;
}

static rn_status add_input(rn_import *m, rn_import_scope *scope, const rn_onnx_value *v) {
    rn_import_slot *slot = NULL;
    const char *name = NULL;
    rn_shape shape;
    rn_dtype dtype = rn_onnx_dtype(v->data_type);
    const rn_onnx_input *known = find_known(m, v->name);
    if (v->kind != RN_ONNX_TENSOR_VALUE || dtype == RN_DTYPE_NONE)
        return rn_fail(RN_UNSUPPORTED, "input '%.*s' is %s", RN_STR_ARG(v->name),
                       v->kind == RN_ONNX_TENSOR_VALUE ? rn_onnx_type_name(v->data_type)
                                                       : "no tensor");
    if (known && known->dtype != dtype)
        return rn_fail(RN_INVALID, "input '%.*s' is %s, what is given is %s", RN_STR_ARG(v->name),
                       rn_dtype_get(dtype)->name, rn_dtype_get(known->dtype)->name);
    RN_TRY(find_shape(m, v, &shape));
    RN_TRY(terminated(m, v->name, &name));
    RN_TRY(new_slot(m, scope, v->name, &slot));
    slot->data_type = v->data_type;
    slot->is_empty = rn_shape_elements(shape, 1) == 0;
    slot->empty_dtype = dtype;
    slot->empty_shape = shape;
    if (!slot->is_empty) slot->value = rn_graph_input(m->graph, name, dtype, shape);
    return rn_graph_finish(m->graph);
}

static rn_status add_initializers(rn_import *m, rn_import_scope *scope,
                                  const rn_onnx_graph_proto *graph, bool of_model) {
    if (graph->sparse) return rn_fail(RN_UNSUPPORTED, "it has sparse initializers");
    for (size_t i = 0; i < graph->initializer_count; i++) {
        rn_import_slot *slot = NULL;
        RN_TRY(new_slot(m, scope, graph->initializers[i].name, &slot));
        slot->tensor = &graph->initializers[i];
        slot->is_initializer = of_model;
        slot->data_type = slot->tensor->data_type;
    }
    return RN_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

static bool same_domain(rn_str a, rn_str b) {
    if (rn_str_equal(a, RN_STR("ai.onnx"))) a.bytes = 0;
    if (rn_str_equal(b, RN_STR("ai.onnx"))) b.bytes = 0;
    return rn_str_equal(a, b);
}

static int64_t find_version(const rn_import_scope *scope, rn_str domain) {
    for (; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->opset_count; i++)
            if (same_domain(scope->opsets[i].domain, domain)) return scope->opsets[i].version;
    return 0;
}

static const rn_onnx_function *find_function(const rn_import *m, const rn_onnx_node *node) {
    for (size_t i = 0; i < m->model->function_count; i++) {
        const rn_onnx_function *f = &m->model->functions[i];
        if (rn_str_equal(f->name, node->op) && same_domain(f->domain, node->domain) &&
            rn_str_equal(f->overload, node->overload))
            return f;
    }
    return NULL;
}

static rn_status write_nodes(rn_import *m, rn_import_scope *scope, const rn_onnx_node *nodes,
                             size_t count);

// The results of a scope inside become the node's own. A name without a value is left out.
static rn_status hand_out(rn_import_call *c, const rn_import_scope *inner, const rn_str *names,
                          size_t count) {
    for (size_t i = 0; i < count && i < c->node->output_count; i++) {
        if (c->node->outputs[i].bytes == 0) continue;
        rn_import_slot *from = rn_import_lookup(inner, names[i]), *to = NULL;
        if (!from)
            return rn_fail(RN_CORRUPT, "the result '%.*s' is made by no node",
                           RN_STR_ARG(names[i]));
        RN_TRY(new_slot(c->import, c->scope, c->node->outputs[i], &to));
        rn_str name = to->name;
        *to = *from;
        to->name = name;
    }
    return RN_OK;
}

static rn_status enter(rn_import *m) {
    if (++m->depth <= MOST_DEPTH) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "functions and subgraphs are nested more than %d deep",
                   MOST_DEPTH);
}

static rn_status call_function(rn_import_call *c, const rn_onnx_function *f) {
    rn_import_scope scope = {.function = f,
                             .caller = c->node,
                             .caller_scope = c->scope,
                             .opsets = f->opsets,
                             .opset_count = f->opset_count};
    rn_status s = enter(c->import);
    open_scope(&scope);
    for (size_t i = 0; s == RN_OK && i < f->input_count; i++) {
        rn_import_slot *from = rn_import_slot_of(c, (uint32_t)i), *to = NULL;
        s = rn_graph_finish(c->graph);
        if (s == RN_OK) s = new_slot(c->import, &scope, f->inputs[i], &to);
        if (s == RN_OK && from) *to = *from;
    }
    if (s == RN_OK) s = write_nodes(c->import, &scope, f->nodes, f->node_count);
    if (s == RN_OK) s = hand_out(c, &scope, f->outputs, f->output_count);
    close_scope(&scope);
    c->import->depth--;
    return s;
}

static rn_status inline_graph(rn_import_call *c, const rn_onnx_graph_proto *graph) {
    rn_import_scope scope = {.parent = c->scope};
    rn_str names[64];
    rn_status s = enter(c->import);
    open_scope(&scope);
    if (s == RN_OK && graph->output_count > 64) s = rn_fail(RN_UNSUPPORTED, "too many outputs");
    if (s == RN_OK) s = add_initializers(c->import, &scope, graph, false);
    if (s == RN_OK) s = write_nodes(c->import, &scope, graph->nodes, graph->node_count);
    for (size_t i = 0; s == RN_OK && i < graph->output_count; i++)
        names[i] = graph->outputs[i].name;
    if (s == RN_OK) s = hand_out(c, &scope, names, graph->output_count);
    close_scope(&scope);
    c->import->depth--;
    return s;
}

void rn_import_inline_graph(rn_import_call *c, const rn_onnx_graph_proto *graph) {
    rn_status s = inline_graph(c, graph);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
}

bool rn_import_spend(rn_import_call *c, uint64_t nodes) {
    rn_import *m = c->import;
    if (nodes > MOST_NODES || m->expanded > MOST_NODES - nodes)
        rn_import_refuse(c, "with it the model has more than %d nodes", MOST_NODES);
    else
        m->expanded += nodes;
    return rn_graph_finish(c->graph) == RN_OK;
}

static rn_status call_graph(rn_import_call *c, const rn_onnx_graph_proto *graph,
                            const rn_import_slot *inputs, size_t input_count,
                            rn_import_slot *outputs, size_t output_count) {
    rn_import_scope scope = {.parent = c->scope};
    rn_status s = enter(c->import);
    open_scope(&scope);
    for (size_t i = 0; s == RN_OK && i < input_count; i++) {
        rn_import_slot *slot = NULL;
        s = new_slot(c->import, &scope, graph->inputs[i].name, &slot);
        if (s != RN_OK) break;
        *slot = inputs[i];
        slot->name = graph->inputs[i].name;
    }
    if (s == RN_OK) s = add_initializers(c->import, &scope, graph, false);
    if (s == RN_OK) s = write_nodes(c->import, &scope, graph->nodes, graph->node_count);
    for (size_t i = 0; s == RN_OK && i < output_count; i++) {
        const rn_import_slot *slot = rn_import_lookup(&scope, graph->outputs[i].name);
        if (slot)
            outputs[i] = *slot;
        else
            s = rn_fail(RN_CORRUPT, "the result '%.*s' is made by no node",
                        RN_STR_ARG(graph->outputs[i].name));
    }
    close_scope(&scope);
    c->import->depth--;
    return s;
}

void rn_import_call_graph(rn_import_call *c, const rn_onnx_graph_proto *graph,
                          const rn_import_slot *inputs, size_t input_count, rn_import_slot *outputs,
                          size_t output_count) {
    rn_status s = call_graph(c, graph, inputs, input_count, outputs, output_count);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
}

// A node that reads a weight begins a block: those are what streaming is about.
static void begin_block(rn_import_call *c) {
    char name[128];
    if (rn_graph_block_count(c->graph) == MOST_BLOCKS) return; // they are searched one by one
    for (uint32_t i = 0; i < c->node->input_count; i++) {
        rn_import_slot *slot =
            c->node->inputs[i].bytes ? rn_import_lookup(c->scope, c->node->inputs[i]) : NULL;
        if (!slot || !slot->is_initializer) continue;
        if (c->node->name.bytes)
            snprintf(name, sizeof name, "%.*s", RN_STR_ARG(c->node->name));
        else
            snprintf(name, sizeof name, "%.*s.%llu", RN_STR_ARG(c->node->op),
                     (unsigned long long)c->import->expanded);
        rn_graph_block(c->graph, name);
        return;
    }
}

// A failure of the graph's rules gets the node's name; ours have it already.
static rn_status name_node(const rn_onnx_node *node, rn_status s) {
    rn_error_info error = *rn_last_error();
    if (s != RN_INVALID && s != RN_UNSUPPORTED) return s;
    if (strncmp(error.message, "node '", 6) == 0) return rn_error_restore(&error);
    return rn_fail(RN_UNSUPPORTED, "node '%.*s' (%.*s): %s", RN_STR_ARG(node->name),
                   RN_STR_ARG(node->op), error.message);
}

static rn_status write_node(rn_import *m, rn_import_scope *scope, const rn_onnx_node *node) {
    rn_import_call c = {.import = m, .graph = m->graph, .node = node, .scope = scope};
    const rn_onnx_function *function = find_function(m, node);
    if (++m->expanded > MOST_NODES) return rn_fail(RN_UNSUPPORTED, "it has too many nodes");
    if (function) return call_function(&c, function);
    c.op = rn_import_find_op(node->domain, node->op);
    c.version = find_version(scope, node->domain);
    if (!c.op)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "node '%.*s': there is no op %.*s%s%.*s",
                               RN_STR_ARG(node->name), RN_STR_ARG(node->domain),
                               node->domain.bytes ? "." : "", RN_STR_ARG(node->op)),
                       "ration reads ONNX's ops but for control flow, sequences and strings");
    begin_block(&c);
    c.op->write(&c);
    rn_status s = rn_graph_finish(m->graph);
    return s == RN_OK ? RN_OK : name_node(node, s);
}

static rn_status write_nodes(rn_import *m, rn_import_scope *scope, const rn_onnx_node *nodes,
                             size_t count) {
    for (size_t i = 0; i < count; i++)
        RN_TRY(write_node(m, scope, &nodes[i]));
    return RN_OK;
}

// ---- outputs ------------------------------------------------------------------------------------

// Whether it is bytes of an input or a constant, seen through views.
static bool is_view(const rn_import *m, rn_value value) {
    for (;;) {
        const rn_value_info *info = rn_graph_value(m->graph, value);
        if (info->producer == RN_NO_NODE) return true;
        const rn_node *node = rn_graph_node(m->graph, info->producer);
        rn_tensor tensors[MOST_TENSORS];
        uint64_t offset = 0;
        rn_call call;
        if (node->input_count + node->output_count > MOST_TENSORS) return false;
        rn_graph_bind(m->graph, info->producer, 1, tensors, &call);
        rn_alias alias = rn_call_alias(&call, info->output, &offset);
        if (alias.kind != RN_ALIAS_KIND_VIEW) return false;
        value = node->inputs[alias.input];
    }
}

// An output must be a node's own result, and only one: anything else is copied.
static rn_status add_output(rn_import *m, rn_import_scope *scope, const rn_onnx_value *v) {
    const char *name = NULL;
    rn_import_slot *slot = rn_import_lookup(scope, v->name);
    if (!slot || (!slot->value && !slot->tensor && !slot->is_empty))
        return rn_fail(RN_CORRUPT, "the output '%.*s' is made by no node", RN_STR_ARG(v->name));
    rn_onnx_node none = {
        .op = RN_STR("output"), .name = v->name, .inputs = &v->name, .input_count = 1};
    rn_import_call c = {.import = m, .graph = m->graph, .node = &none, .scope = scope};
    rn_value value = rn_import_in(&c, 0);
    RN_TRY(rn_graph_finish(m->graph));
    const rn_value_info *info = rn_graph_value(m->graph, value);
    if (info->role != RN_ROLE_INTERMEDIATE || is_view(m, value))
        value = rn_op_convert(m->graph, value, (rn_convert_attrs){.dtype = info->dtype});
    RN_TRY(terminated(m, v->name, &name));
    rn_graph_output(m->graph, value, name);
    return rn_graph_finish(m->graph);
}

// ---- what nothing reads -------------------------------------------------------------------------

static void mark_live(const rn_graph *graph, bool *live /* (values + 1) */) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        live[v] = rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT;
    for (uint32_t n = rn_graph_node_count(graph); n-- > 0;) {
        const rn_node *node = rn_graph_node(graph, n);
        bool needed = false;
        for (uint32_t i = 0; i < node->output_count; i++)
            needed = needed || live[node->outputs[i]];
        for (uint32_t i = 0; needed && i < node->input_count; i++)
            live[node->inputs[i]] = true;
        for (uint32_t i = 0; needed && i < node->output_count; i++)
            live[node->outputs[i]] = true;
    }
}

static rn_status copy_live(rn_rewrite *r, const bool *live) {
    for (uint32_t n = 0; n < rn_graph_node_count(r->from); n++) {
        const rn_node *node = rn_graph_node(r->from, n);
        if (live[node->outputs[0]]) RN_TRY(rn_rewrite_node(r, node, NULL));
    }
    // rn_rewrite_end copies what was not read yet; of this, nothing is to be.
    for (rn_value v = 1; v <= rn_graph_value_count(r->from); v++)
        if (!live[v] && r->now[v] == RN_NO_VALUE) r->now[v] = UINT32_MAX;
    return RN_OK;
}

static rn_status leave_out_dead(rn_import *m, rn_graph **out) {
    void *live = NULL;
    rn_rewrite r;
    *out = NULL;
    RN_TRY(rn_graph_finish(m->graph));
    RN_TRY(rn_arena_array(&m->memory, (size_t)rn_graph_value_count(m->graph) + 1, sizeof(bool),
                          &live));
    mark_live(m->graph, live);
    rn_status s = rn_rewrite_begin(&r, m->graph);
    if (s == RN_OK) s = copy_live(&r, live);
    return rn_rewrite_end(&r, s, out);
}

// ---- the model ----------------------------------------------------------------------------------

static rn_status check_opsets(const rn_onnx_model *model) {
    if (model->function_count > MOST_FUNCTIONS)
        return rn_fail(RN_UNSUPPORTED, "it has %zu functions", model->function_count);
    for (size_t i = 0; i < model->opset_count; i++) {
        const rn_onnx_opset *o = &model->opsets[i];
        if (!same_domain(o->domain, RN_STR("")) ||
            (o->version >= OLDEST_OPSET && o->version <= NEWEST_OPSET))
            continue;
        return rn_hint(rn_fail(RN_UNSUPPORTED, "it is of opset %lld, %d to %d are read",
                               (long long)o->version, OLDEST_OPSET, NEWEST_OPSET),
                       "convert it with onnx.version_converter");
    }
    return RN_OK;
}

static rn_status write_model(rn_import *m, rn_import_scope *scope) {
    const rn_onnx_graph_proto *g = m->model->graph;
    void *bound = NULL, *given = NULL;
    RN_TRY(check_opsets(m->model));
    RN_TRY(rn_arena_array(&m->memory, g->input_count, sizeof(bool), &bound));
    RN_TRY(rn_arena_array(&m->memory, g->input_count, sizeof(bool), &given));
    m->bound = bound;
    m->given = given;
    RN_TRY(rn_graph_create(&m->graph));
    RN_TRY(add_initializers(m, scope, g, true));
    for (size_t i = 0; i < g->input_count; i++) {
        m->given[i] = !rn_import_lookup(scope, g->inputs[i].name);
        if (m->given[i]) RN_TRY(add_input(m, scope, &g->inputs[i]));
    }
    RN_TRY(write_nodes(m, scope, g->nodes, g->node_count));
    for (size_t i = 0; i < g->output_count; i++)
        RN_TRY(add_output(m, scope, &g->outputs[i]));
    return RN_OK;
}

static rn_status keep_marks(const rn_import *m, rn_arena *memory, rn_imported *out) {
    void *bound = NULL, *given = NULL, *forms = NULL;
    size_t bytes = m->model->graph->input_count * sizeof(bool);
    RN_TRY(rn_arena_copy(memory, m->forms, m->form_count * sizeof *m->forms, &forms));
    for (size_t i = 0; i < m->form_count; i++) { // named by the checkpoint, or by the model
        rn_weight_form *form = &((rn_weight_form *)forms)[i];
        void *name = NULL;
        RN_TRY(rn_arena_copy(memory, form->name.data, form->name.bytes, &name));
        form->name.data = name;
    }
    out->forms = forms;
    out->form_count = m->form_count;
    RN_TRY(rn_arena_copy(memory, m->bound, bytes, &bound));
    RN_TRY(rn_arena_copy(memory, m->given, bytes, &given));
    out->bound = bound;
    out->given = given;
    out->folded_bytes = m->folded_bytes;
    return RN_OK;
}

rn_status rn_onnx_import(const rn_onnx_model *model, const rn_checkpoint *checkpoint,
                         const rn_checkpoint *weights, const rn_onnx_options *options,
                         rn_arena *memory, rn_imported *out) {
    rn_import m = {
        .model = model, .checkpoint = checkpoint, .weights = weights ? weights : checkpoint};
    rn_import_scope scope = {.opsets = model->opsets, .opset_count = model->opset_count};
    *out = (rn_imported){0};
    if (options) m.options = *options;
    rn_arena_init(&m.memory, RN_HOST_OTHER, 0);
    open_scope(&scope);
    rn_status s = write_model(&m, &scope);
    if (s == RN_OK) s = keep_marks(&m, memory, out);
    if (s == RN_OK) s = leave_out_dead(&m, &out->graph);
    rn_error_info error = *rn_last_error();
    close_scope(&scope);
    rn_graph_destroy(m.graph);
    rn_import_fold_free(&m);
    rn_arena_free_all(&m.memory);
    return s == RN_OK ? RN_OK : rn_error_restore(&error);
}
