// stablehlo_signature.c — which values of a graph are arguments and results of its program.
#include "base/checked.h"
#include "exchange/stablehlo_module.h"
#include "graph/plain_matrix.h"
#include "memory/account.h"

#include <string.h>

// ---- what there is to know of each value --------------------------------------------------------

static rn_status refuse_update(const rn_graph *graph, const rn_node *node, rn_value root,
                               const char *why) {
    return rn_fail(RN_UNSUPPORTED, "%s (%s): %s '%s'", node->name, rn_op_name(node->op), why,
                   rn_graph_value(graph, root)->name);
}

// Follows bytes that are shared: views of a state, and its update in place.
static rn_status follow(const rn_graph *graph, rn_hlo_values *values, const rn_node *node,
                        const rn_call *call) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        rn_alias alias = rn_call_alias(call, i, &offset);
        bool update = alias.kind == RN_ALIAS_KIND_MUST;
        if (!update && alias.kind != RN_ALIAS_KIND_VIEW) continue;
        rn_value v = node->outputs[i], root = values->root[node->inputs[alias.input]];
        rn_role role = rn_graph_value(graph, root)->role;
        values->root[v] = root;
        if (!update || role == RN_ROLE_INTERMEDIATE || role == RN_ROLE_OUTPUT) continue;
        if (role != RN_ROLE_STATE)
            return refuse_update(graph, node, root, "a program cannot change");
        if (!rn_shape_equal(rn_graph_value(graph, root)->shape, rn_graph_value(graph, v)->shape))
            return refuse_update(graph, node, root, "it changes a part of");
        values->update[root] = v;
    }
    return RN_OK;
}

rn_status rn_hlo_values_find(const rn_graph *graph, const rn_stablehlo_options *options,
                             rn_arena *memory, rn_hlo_values *out) {
    size_t count = rn_graph_value_count(graph) + 1u;
    uint32_t most = 1;
    rn_tensor *tensors;
    RN_TRY(rn_arena_array(memory, count, sizeof *out->read, (void **)&out->read));
    RN_TRY(rn_arena_array(memory, count, sizeof *out->root, (void **)&out->root));
    RN_TRY(rn_arena_array(memory, count, sizeof *out->update, (void **)&out->update));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->input_count + node->output_count > most)
            most = node->input_count + node->output_count;
        for (uint32_t i = 0; i < node->input_count; i++)
            out->read[node->inputs[i]] = true;
    }
    out->most_tensors = most;
    RN_TRY(rn_arena_array(memory, most, sizeof *tensors, (void **)&tensors));
    for (rn_value v = 1; v < count; v++) {
        out->root[v] = v;
        out->read[v] |= rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT;
    }
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        rn_call call;
        rn_graph_bind(graph, n, options->rows, tensors, &call);
        RN_TRY(follow(graph, out, rn_graph_node(graph, n), &call));
    }
    for (rn_value v = 1; v < count; v++) // the update is read by whoever runs the program
        if (out->update[v]) out->read[out->update[v]] = true;
    return rn_hlo_merges_find(graph, options, memory, out);
}

// ---- arguments and results ----------------------------------------------------------------------

static rn_status refuse_dtype(const rn_value_info *info) {
    rn_status s = rn_fail(RN_UNSUPPORTED, "%s '%s' is %s, which StableHLO does not have",
                          rn_role_name(info->role), info->name, rn_dtype_get(info->dtype)->name);
    return info->role == RN_ROLE_STATE ? rn_hint(s, "a KV cache may be f16 or f32") : s;
}

rn_dtype rn_hlo_weight_dtype(const rn_stablehlo_options *options, rn_dtype dtype) {
    bool half = dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
    bool widen = !rn_hlo_element(dtype) || (half && options->widen_all);
    if (!widen || !rn_plain_readable(dtype)) return dtype;
    return options->widened ? options->widened : RN_DTYPE_F32;
}

static rn_status describe(const rn_graph *graph, const rn_stablehlo_options *options,
                          rn_stablehlo_kind kind, rn_value value, rn_stablehlo_entry *out) {
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_dtype dtype = info->dtype;
    bool given_once = kind == RN_STABLEHLO_WEIGHT || kind == RN_STABLEHLO_CONSTANT;
    if (given_once) dtype = rn_hlo_weight_dtype(options, dtype);
    if (!rn_hlo_element(dtype)) return refuse_dtype(info);
    *out = (rn_stablehlo_entry){.kind = kind,
                                .value = value,
                                .dtype = dtype,
                                .shape = info->shape,
                                .alias = RN_STABLEHLO_NONE,
                                .split = RN_STABLEHLO_NONE};
    if (out->shape.rank && out->shape.dims[0] == RN_ROWS) out->shape.dims[0] = options->rows;
    uint64_t elements = rn_shape_elements(out->shape, 0);
    if (elements == UINT64_MAX || !rn_dtype_bytes(dtype, elements, &out->bytes))
        return rn_fail(RN_INVALID, "'%s' is more than memory can hold", info->name);
    return RN_OK;
}

bool rn_hlo_is_inline(const rn_graph *graph, const rn_stablehlo_options *options, rn_value value) {
    const rn_value_info *info = rn_graph_value(graph, value);
    uint64_t bytes = 0, most = options->constant_bytes ? options->constant_bytes : 4096;
    return info->role == RN_ROLE_CONSTANT && rn_hlo_element(info->dtype) &&
           rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 0), &bytes) && bytes <= most;
}

typedef struct lists {
    rn_stablehlo_entry *arguments, *results;
    uint32_t argument_count, result_count;
} lists;

// Lists the parts of a weight that leads others; its bytes are theirs.
static rn_status gather_parts(const rn_graph *graph, const rn_hlo_values *values, rn_arena *memory,
                              rn_stablehlo_entry *out) {
    rn_value *parts;
    uint32_t count = 0;
    uint64_t rows = 0, row_bytes = out->bytes / rn_max_u64(out->shape.dims[0], 1);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        count += values->leader[v] == out->value;
    RN_TRY(rn_arena_array(memory, count, sizeof *parts, (void **)&parts));
    out->parts = parts;
    out->part_count = count;
    for (uint32_t i = 0; i < count; i++) // in the order of their rows
        for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
            if (values->leader[v] == out->value && values->first_row[v] == rows) {
                parts[i] = v;
                rows += rn_graph_value(graph, v)->shape.dims[0];
                break;
            }
    out->shape.dims[0] = rows;
    if (rn_mul_u64(rows, row_bytes, &out->bytes)) return RN_OK;
    return rn_fail(RN_INVALID, "'%s' is more than memory can hold",
                   rn_graph_value(graph, out->value)->name);
}

static rn_status add_given(const rn_graph *graph, const rn_stablehlo_options *options,
                           const rn_hlo_values *values, rn_role role, rn_stablehlo_kind kind,
                           rn_arena *memory, lists *out) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        bool given = rn_graph_value(graph, v)->role == role && values->read[v];
        if (!given || rn_hlo_is_inline(graph, options, v)) continue;
        if (values->leader[v] && values->leader[v] != v) continue;
        rn_stablehlo_entry *argument = &out->arguments[out->argument_count++];
        RN_TRY(describe(graph, options, kind, v, argument));
        if (values->leader[v]) RN_TRY(gather_parts(graph, values, memory, argument));
    }
    return RN_OK;
}

static void add_scalars(const rn_graph *graph, lists *out) {
    for (uint32_t i = 0; i < rn_graph_scalar_count(graph); i++)
        out->arguments[out->argument_count++] = (rn_stablehlo_entry){.kind = RN_STABLEHLO_SCALAR,
                                                                     .value = i,
                                                                     .dtype = RN_DTYPE_F64,
                                                                     .bytes = sizeof(double),
                                                                     .alias = RN_STABLEHLO_NONE,
                                                                     .split = RN_STABLEHLO_NONE};
}

static rn_status add_results(const rn_graph *graph, const rn_stablehlo_options *options,
                             const rn_hlo_values *values, lists *out) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT)
            RN_TRY(describe(graph, options, RN_STABLEHLO_OUTPUT, v,
                            &out->results[out->result_count++]));
    for (uint32_t i = 0; i < out->argument_count; i++) {
        rn_stablehlo_entry *state = &out->arguments[i];
        if (state->kind != RN_STABLEHLO_STATE || !values->update[state->value]) continue;
        out->results[out->result_count] = *state;
        out->results[out->result_count].alias = i;
        state->alias = out->result_count++;
    }
    return RN_OK;
}

// ---- kernels ------------------------------------------------------------------------------------

bool rn_stablehlo_is_turned(const rn_graph *graph, const rn_stablehlo_options *options,
                            rn_value weight) {
    const rn_value_info *info = rn_graph_value(graph, weight);
    bool read = false;
    if (!options->turn_kernels || info->role != RN_ROLE_WEIGHT || info->shape.rank < 3)
        return false;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        bool convolves = node->op == RN_OP_CONV2D || node->op == RN_OP_CONV;
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != weight) continue;
            if (!convolves || i != 1) return false;
            read = true;
        }
    }
    return read;
}

static void turn_kernels(const rn_graph *graph, const rn_stablehlo_options *options, lists *all) {
    for (uint32_t i = 0; options->turn_kernels && i < all->argument_count; i++) {
        rn_stablehlo_entry *argument = &all->arguments[i];
        uint32_t rank = argument->shape.rank;
        if (argument->kind != RN_STABLEHLO_WEIGHT || argument->split != RN_STABLEHLO_NONE ||
            !rn_stablehlo_is_turned(graph, options, argument->value))
            continue;
        rn_shape given = argument->shape;
        for (uint32_t a = 0; a + 2 < rank; a++)
            argument->shape.dims[a] = given.dims[a + 2];
        argument->shape.dims[rank - 2] = given.dims[1];
        argument->shape.dims[rank - 1] = given.dims[0];
        argument->turned = true;
    }
}

// ---- partitions ---------------------------------------------------------------------------------

// The axis of outputs of a node's weight; `whole` where it must not be divided, `any` where it does
// not matter.
enum { WHOLE = RN_MAX_RANK, ANY };
static uint32_t output_axis(const rn_node *node, uint32_t input, uint32_t rank) {
    const rn_matmul_attrs *attrs = node->attrs;
    if (rank < 2) return WHOLE;
    if (node->op == RN_OP_MATMUL && input == 1) return attrs->transpose_w ? rank - 1 : rank - 2;
    if (node->op == RN_OP_CONV2D && input == 1) return 0;
    return node->op == RN_OP_EMBEDDING && input == 0 ? ANY : WHOLE;
}

// Of a weight that all its readers let be divided by one axis, that; RN_STABLEHLO_NONE.
static uint32_t find_weight_axis(const rn_graph *graph, rn_value value) {
    uint32_t rank = rn_graph_value(graph, value)->shape.rank, found = ANY;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != value) continue;
            uint32_t axis = output_axis(node, i, rank);
            if (axis == WHOLE || (axis != ANY && found != ANY && found != axis))
                return RN_STABLEHLO_NONE;
            if (axis != ANY) found = axis;
        }
    }
    return found == ANY ? rank - 1 : found; // a table is divided by columns: nothing is searched
}

// Says of weights and KV pages who has what.
static void divide(const rn_graph *graph, uint32_t partitions, lists *all) {
    for (uint32_t i = 0; partitions > 1 && i < all->argument_count; i++) {
        rn_stablehlo_entry *argument = &all->arguments[i];
        uint32_t axis = RN_STABLEHLO_NONE;
        if (argument->kind == RN_STABLEHLO_WEIGHT) axis = find_weight_axis(graph, argument->value);
        if (argument->kind == RN_STABLEHLO_STATE && argument->shape.rank == 5 &&
            rn_graph_value(graph, argument->value)->purpose == RN_PURPOSE_KV)
            axis = 2; // (pages, 2, HK, page_tokens, D)
        if (axis != RN_STABLEHLO_NONE && argument->shape.dims[axis] % partitions == 0)
            argument->split = axis;
    }
}

rn_status rn_hlo_signature_find(const rn_graph *graph, const rn_stablehlo_options *options,
                                const rn_hlo_values *values, rn_arena *memory,
                                rn_stablehlo_signature *out) {
    size_t most = (size_t)rn_graph_value_count(graph) + rn_graph_scalar_count(graph) + 1;
    lists all = {0};
    RN_TRY(rn_arena_array(memory, most, sizeof *all.arguments, (void **)&all.arguments));
    RN_TRY(rn_arena_array(memory, most, sizeof *all.results, (void **)&all.results));
    RN_TRY(add_given(graph, options, values, RN_ROLE_INPUT, RN_STABLEHLO_INPUT, memory, &all));
    add_scalars(graph, &all);
    RN_TRY(add_given(graph, options, values, RN_ROLE_WEIGHT, RN_STABLEHLO_WEIGHT, memory, &all));
    RN_TRY(
        add_given(graph, options, values, RN_ROLE_CONSTANT, RN_STABLEHLO_CONSTANT, memory, &all));
    RN_TRY(add_given(graph, options, values, RN_ROLE_STATE, RN_STABLEHLO_STATE, memory, &all));
    divide(graph, options->partitions, &all);
    turn_kernels(graph, options, &all);
    RN_TRY(add_results(graph, options, values, &all));
    *out =
        (rn_stablehlo_signature){all.arguments, all.results, all.argument_count, all.result_count};
    return RN_OK;
}

rn_status rn_stablehlo_signature_make(const rn_graph *graph, const rn_stablehlo_options *options,
                                      rn_arena *memory, rn_stablehlo_signature *out) {
    rn_hlo_values values;
    RN_TRY(rn_hlo_values_find(graph, options, memory, &values));
    return rn_hlo_signature_find(graph, options, &values, memory, out);
}

// Row by row through f32.
static rn_status widen(const rn_tensor *from, rn_dtype to, uint8_t *out) {
    rn_plain_matrix matrix;
    float *scratch;
    rn_arena memory;
    RN_TRY(rn_plain_matrix_of(from, &matrix));
    uint64_t row_bytes = matrix.cols * rn_dtype_get(to)->block_bytes;
    rn_arena_init(&memory, RN_HOST_STAGING, 0);
    rn_status s = rn_arena_array(&memory, matrix.cols, sizeof *scratch, (void **)&scratch);
    for (uint64_t row = 0; row < matrix.rows && s == RN_OK; row++) {
        const float *wide = rn_plain_row(&matrix, row, scratch);
        s = rn_dtype_from_f32(to, wide, out + row * row_bytes, matrix.cols);
    }
    rn_arena_free_all(&memory);
    return s;
}

// (O, I, K...) to (K..., I, O).
static void turn(const rn_value_info *info, uint64_t element_bytes, const uint8_t *from,
                 uint8_t *out) {
    uint64_t outputs = info->shape.dims[0], inputs = info->shape.dims[1], places = 1;
    for (uint32_t i = 2; i < info->shape.rank; i++)
        places *= info->shape.dims[i];
    for (uint64_t k = 0; k < places; k++)
        for (uint64_t i = 0; i < inputs; i++)
            for (uint64_t o = 0; o < outputs; o++, out += element_bytes)
                memcpy(out, from + ((o * inputs + i) * places + k) * element_bytes, element_bytes);
}

rn_status rn_stablehlo_convert(const rn_graph *graph, const rn_stablehlo_entry *argument,
                               const void *data, void *out) {
    const rn_value_info *info = rn_graph_value(graph, argument->value);
    uint64_t element_bytes = rn_dtype_get(argument->dtype)->block_bytes;
    bool same = info->dtype == argument->dtype;
    // Nothing is written through it.
    rn_tensor from = {.data = (void *)(uintptr_t)data, .dtype = info->dtype, .shape = info->shape};
    void *widened = NULL;
    if (same && argument->turned)
        turn(info, element_bytes, data, out);
    else if (same)
        memcpy(out, data, argument->bytes);
    if (same) return RN_OK;
    if (!argument->turned) return widen(&from, argument->dtype, out);
    RN_TRY(rn_alloc(RN_HOST_STAGING, argument->bytes, &widened));
    rn_status s = widen(&from, argument->dtype, widened);
    if (s == RN_OK) turn(info, element_bytes, widened, out);
    rn_free(RN_HOST_STAGING, widened, argument->bytes);
    return s;
}
