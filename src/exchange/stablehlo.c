// stablehlo.c — the module around the nodes, and the walk over them.
#include "exchange/stablehlo.h"

#include "base/str.h"
#include "exchange/stablehlo_module.h"
#include "graph/fused.h"
#include "graph/halves.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>

// ---- nodes --------------------------------------------------------------------------------------

static rn_status refuse_node(const rn_node *node) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: there is no StableHLO for %s", node->name,
                           rn_op_name(node->op)),
                   "programs are for inference: gradients, optimisers and values of quantised "
                   "kinds stay with devices that have kernels");
}

// What `unfold` hands from call to call is known by its address alone, and nothing lies there: each
// tensor of the whole gets a made-up one, and the workspace another.
enum { ADDRESS_STEP = 64, MOST_TENSORS = 32 };
static void *make_address(uint32_t number) {
    return (void *)(uintptr_t)((number + 1) * (uintptr_t)ADDRESS_STEP);
}

typedef struct handed {
    const void *address[RN_FUSED_CALLS * RN_FUSED_TENSORS + MOST_TENSORS];
    rn_hlo_value value[RN_FUSED_CALLS * RN_FUSED_TENSORS + MOST_TENSORS];
    uint32_t count;
} handed;

static void hand(handed *all, const void *address, rn_hlo_value value) {
    all->address[all->count] = address;
    all->value[all->count++] = value;
}

// The last that was handed under an address.
static rn_hlo_value take(const handed *all, const rn_tensor *tensor) {
    for (uint32_t i = all->count; i-- > 0;)
        if (rn_tensor_given(tensor) && all->address[i] == tensor->data) return all->value[i];
    return (rn_hlo_value){0};
}

static void emit_fused(rn_hlo *h, const rn_node *node, const rn_call *call, const rn_hlo_value *in,
                       rn_hlo_value *out) {
    rn_tensor tensors[MOST_TENSORS];
    rn_call whole = *call;
    handed all = {.count = 0};
    uint32_t count = call->input_count + call->output_count;
    if (count > MOST_TENSORS) {
        h->status = refuse_node(node);
        return;
    }
    memcpy(tensors, call->inputs, count * sizeof *tensors);
    for (uint32_t i = 0; i < count; i++) {
        tensors[i].data = make_address(i);
        if (i < call->input_count) hand(&all, tensors[i].data, in[i]);
    }
    whole.inputs = tensors;
    whole.outputs = tensors + call->input_count;
    whole.workspace = make_address(count);
    rn_fused fused;
    memset(&fused, 0, sizeof fused);
    fused.whole = &whole;
    rn_op_get(call->op)->unfold(&whole, &fused);
    for (uint32_t c = 0; c < fused.count && h->status == RN_OK; c++) {
        const rn_call *part = &fused.calls[c];
        rn_hlo_value from[RN_FUSED_TENSORS] = {0}, to[RN_MAX_OUTPUTS] = {0};
        for (uint32_t i = 0; i < part->input_count; i++)
            from[i] = take(&all, &part->inputs[i]);
        if (!rn_hlo_emitters[part->op]) {
            h->status = refuse_node(node);
            return;
        }
        rn_hlo_emitters[part->op](h, part, from, to);
        for (uint32_t i = 0; i < part->output_count; i++)
            hand(&all, part->outputs[i].data, to[i]);
    }
    for (uint32_t i = 0; i < call->output_count; i++)
        out[i] = take(&all, &whole.outputs[i]);
}

// A name with nothing in it that would end a comment.
static void print_comment(rn_hlo *h, const rn_node *node) {
    char name[200];
    snprintf(name, sizeof name, "%s", node->name);
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    rn_hlo_print(h, "    // %s (%s)\n", name, rn_op_name(node->op));
}

// ---- the module ---------------------------------------------------------------------------------

typedef struct module {
    const rn_graph *graph;
    rn_hlo_values known;
    rn_stablehlo_signature signature;
    rn_hlo_value *values;   // (values + 1): what stands for each
    rn_hlo_value *products; // (values + 1): of a weight that leads others, the product with all
    rn_hlo_value *wholes; // (values + 1): the same, where it was asked for as a whole; id 0: never
    rn_hlo_value scalars[RN_MAX_SCALARS];
    rn_tensor *tensors; // (most_tensors)
    rn_hlo_value *in;   // (most_tensors)
} module;

// Whether a partition may have a part of input i: its node does not sum over parts. An element of
// the result depends on one element each, or heads are divided as the KV pages are.
static bool takes_parts(const rn_hlo *h, const module *m, const rn_node *node, uint32_t i) {
    uint32_t traits = rn_op_get(node->op)->traits, rank = m->in[i].shape.rank;
    if (traits & (RN_TRAIT_ELEMENTWISE | RN_TRAIT_VIEW)) return true;
    if (node->op == RN_OP_ROPE)
        return rank > 2 && m->in[i].shape.dims[rank - 2] % h->options->partitions == 0;
    if (node->op != RN_OP_KV_APPEND && node->op != RN_OP_PAGED_ATTENTION) return false;
    rn_hlo_value pages = m->in[node->op == RN_OP_PAGED_ATTENTION];
    return pages.shape.rank == 5 && pages.shape.dims[2] % h->options->partitions == 0;
}

// What partitions have parts of is put together where a node asks for all of it: so no sum is
// divided, and its order is that of one core.
static void make_whole(rn_hlo *h, module *m, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value v = node->inputs[i];
        if (v == RN_NO_VALUE || rn_graph_value(m->graph, v)->producer == RN_NO_NODE ||
            takes_parts(h, m, node, i))
            continue;
        if (rn_graph_value(m->graph, m->known.root[v])->role == RN_ROLE_STATE) continue;
        if (!m->wholes[v].id)
            m->wholes[v] = rn_hlo_op(h, "stablehlo.custom_call", &m->in[i], 1, NULL,
                                     "call_target_name = \"Sharding\", mhlo.sharding = "
                                     "\"{replicated}\"",
                                     m->in[i].dtype, m->in[i].shape);
        m->in[i] = m->wholes[v];
    }
}

// A slice of the product with all weights that it is merged with, which the first of them makes.
static void emit_merged(rn_hlo *h, module *m, const rn_node *node, const rn_call *call,
                        rn_hlo_value *out) {
    rn_value w = node->inputs[1], leader = m->known.leader[w];
    rn_hlo_value *all = &m->products[leader];
    if (!all->id) *all = rn_hlo_multiply(h, m->in[0], m->values[leader]);
    out[0] = rn_hlo_slice(h, *all, all->shape.rank - 1, m->known.first_row[w],
                          rn_graph_value(m->graph, w)->shape.dims[0]);
    out[0] = rn_hlo_add_bias(h, call, out[0], m->in[2]);
}

static void emit_node(rn_hlo *h, module *m, uint32_t n) {
    const rn_node *node = rn_graph_node(m->graph, n);
    rn_hlo_value out[RN_MAX_OUTPUTS] = {0};
    rn_call call;
    bool read = false;
    rn_graph_bind(m->graph, n, h->options->rows, m->tensors, &call);
    for (uint32_t i = 0; i < node->output_count; i++) {
        bool wanted = m->known.read[node->outputs[i]];
        m->tensors[node->input_count + i].data = wanted ? m->tensors : NULL;
        read |= wanted;
    }
    if (!read) return;
    for (uint32_t i = 0; i < node->input_count; i++)
        m->in[i] = m->values[node->inputs[i]];
    h->name = node->name;
    print_comment(h, node);
    if (h->options->partitions > 1) make_whole(h, m, node);
    if (node->op == RN_OP_MATMUL && m->known.leader[node->inputs[1]])
        emit_merged(h, m, node, &call, out);
    else if (rn_op_get(node->op)->unfold)
        emit_fused(h, node, &call, m->in, out);
    else if (rn_hlo_emitters[node->op] && !rn_call_has_halves(&call))
        rn_hlo_emitters[node->op](h, &call, m->in, out);
    else if (h->status == RN_OK)
        h->status = refuse_node(node);
    for (uint32_t i = 0; i < node->output_count; i++)
        m->values[node->outputs[i]] = out[i];
}

// Who has what of it: "{devices=[1,2]0,1}" where two partitions have half of its axis 1 each.
static void print_sharding(rn_hlo *h, const rn_stablehlo_entry *entry) {
    if (entry->split == RN_STABLEHLO_NONE) {
        rn_hlo_print(h, "mhlo.sharding = \"{replicated}\"");
        return;
    }
    rn_hlo_print(h, "mhlo.sharding = \"{devices=[");
    for (uint32_t i = 0; i < entry->shape.rank; i++)
        rn_hlo_print(h, "%s%u", i ? "," : "", i == entry->split ? h->options->partitions : 1);
    for (uint32_t i = 0; i < h->options->partitions; i++)
        rn_hlo_print(h, "%s%u", i ? "," : "]", i);
    rn_hlo_print(h, "}\"");
}

static void print_attributes(rn_hlo *h, const rn_stablehlo_entry *entry, bool argument) {
    bool divided = h->options->partitions > 1;
    bool donated = argument && entry->alias != RN_STABLEHLO_NONE;
    if (!divided && !donated) return;
    rn_hlo_print(h, " {");
    if (divided) print_sharding(h, entry);
    if (donated)
        rn_hlo_print(h, "%stf.aliasing_output = %u : i32", divided ? ", " : "", entry->alias);
    rn_hlo_print(h, "}");
}

static void print_result_types(rn_hlo *h, const module *m, bool attributes) {
    for (uint32_t i = 0; i < m->signature.result_count; i++) {
        const rn_stablehlo_entry *result = &m->signature.results[i];
        rn_hlo_print(h, "%s%s", i ? ", " : "", rn_hlo_type(result->dtype, result->shape).text);
        if (attributes) print_attributes(h, result, false);
    }
}

static void emit_head(rn_hlo *h, module *m) {
    rn_hlo_print(h,
                 "module @ration attributes {mhlo.num_partitions = %u : i32, "
                 "mhlo.num_replicas = 1 : i32} {\n  func.func public @main(",
                 h->options->partitions > 1 ? h->options->partitions : 1);
    for (uint32_t i = 0; i < m->signature.argument_count; i++) {
        const rn_stablehlo_entry *argument = &m->signature.arguments[i];
        rn_hlo_value value = rn_hlo_new(h, argument->dtype, argument->shape);
        value.turned = argument->turned;
        rn_hlo_print(h, "%s\n      %s: %s", i ? "," : "", rn_hlo_name(value).text,
                     rn_hlo_type(argument->dtype, argument->shape).text);
        print_attributes(h, argument, true);
        if (argument->kind == RN_STABLEHLO_SCALAR)
            m->scalars[argument->value] = value;
        else
            m->values[argument->value] = value;
    }
    rn_hlo_print(h, ")\n      -> (");
    print_result_types(h, m, true);
    rn_hlo_print(h, ") {\n");
    for (rn_value v = 1; v <= rn_graph_value_count(m->graph); v++) {
        const rn_value_info *info = rn_graph_value(m->graph, v);
        if (m->known.read[v] && rn_hlo_is_inline(m->graph, h->options, v))
            m->values[v] = rn_hlo_bytes(h, info->dtype, info->shape, info->constant);
    }
}

static void emit_end(rn_hlo *h, const module *m) {
    rn_hlo_print(h, "    // end\n    \"func.return\"(");
    for (uint32_t i = 0; i < m->signature.result_count; i++) {
        const rn_stablehlo_entry *result = &m->signature.results[i];
        bool state = result->kind == RN_STABLEHLO_STATE;
        rn_value v = state ? m->known.update[result->value] : result->value;
        rn_hlo_print(h, "%s%s", i ? ", " : "", rn_hlo_name(m->values[v]).text);
    }
    rn_hlo_print(h, ") : (");
    print_result_types(h, m, false);
    rn_hlo_print(h, ") -> ()\n  }\n}\n");
}

static rn_status prepare(module *m, const rn_stablehlo_options *options, rn_arena *memory) {
    size_t values = rn_graph_value_count(m->graph) + 1u;
    RN_TRY(rn_hlo_values_find(m->graph, options, memory, &m->known));
    RN_TRY(rn_hlo_signature_find(m->graph, options, &m->known, memory, &m->signature));
    RN_TRY(rn_arena_array(memory, values, sizeof *m->values, (void **)&m->values));
    RN_TRY(rn_arena_array(memory, values, sizeof *m->wholes, (void **)&m->wholes));
    RN_TRY(rn_arena_array(memory, values, sizeof *m->products, (void **)&m->products));
    RN_TRY(rn_arena_array(memory, m->known.most_tensors, sizeof *m->tensors, (void **)&m->tensors));
    return rn_arena_array(memory, m->known.most_tensors, sizeof *m->in, (void **)&m->in);
}

rn_status rn_stablehlo_emit(const rn_graph *graph, const rn_stablehlo_options *options,
                            rn_sink sink) {
    module m = {.graph = graph};
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_status s = prepare(&m, options, &memory);
    rn_hlo h = {.sink = sink,
                .status = s,
                .options = options,
                .memory = &memory,
                .scalars = m.scalars,
                .name = ""};
    if (s == RN_OK) emit_head(&h, &m);
    for (uint32_t n = 0; n < rn_graph_node_count(graph) && h.status == RN_OK; n++)
        emit_node(&h, &m, n);
    if (h.status == RN_OK) emit_end(&h, &m);
    rn_arena_free_all(&memory);
    return h.status;
}

static rn_status write_nothing(void *self, const char *text, size_t bytes) {
    (void)self, (void)text, (void)bytes;
    return RN_OK;
}

rn_status rn_stablehlo_check(const rn_graph *graph, const rn_stablehlo_options *options) {
    return rn_stablehlo_emit(graph, options, (rn_sink){.write = write_nothing});
}

rn_str rn_stablehlo_node_at(rn_str text, uint64_t line) {
    const rn_str mark = RN_STR("    // ");
    rn_str found = {0};
    size_t at = 0;
    for (uint64_t i = 1; i <= line && at < text.bytes; i++) {
        const char *from = text.data + at, *end = memchr(from, '\n', text.bytes - at);
        rn_str one = {from, end ? (size_t)(end - from) : text.bytes - at};
        if (rn_str_starts(one, mark))
            found = (rn_str){one.data + mark.bytes, one.bytes - mark.bytes};
        at += one.bytes + 1;
    }
    if (rn_str_equal(found, RN_STR("end"))) found.bytes = 0;
    return found;
}
