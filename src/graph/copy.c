// copy.c — see copy.h.
#include "graph/copy.h"

#include "graph/graph_internal.h"

#include <string.h>

rn_status rn_graph_copy_value(const rn_graph *from, rn_graph *to, rn_value value, rn_value *out) {
    rn_value_info info = *rn_graph_value(from, value);
    if (info.role == RN_ROLE_CONSTANT) {
        void *data = NULL;
        uint64_t bytes = 0;
        if (!rn_dtype_bytes(info.dtype, rn_shape_elements(info.shape, 1), &bytes))
            return rn_fail(RN_INTERNAL, "constant '%s' has no size", info.name);
        RN_TRY(rn_arena_copy(&to->memory, info.constant, bytes, &data));
        info.constant = data;
    }
    if (info.tensor) {
        void *tensor = NULL;
        RN_TRY(rn_arena_copy(&to->memory, info.tensor, strlen(info.tensor), &tensor));
        info.tensor = tensor;
    }
    *out = rn_graph_add_value(to, &info, info.name);
    if (*out == RN_NO_VALUE) return rn_graph_finish(to);
    if (info.role == RN_ROLE_INTERMEDIATE) return RN_OK;
    return rn_map_add(&to->by_name[info.role], rn_str_from(rn_graph_value(to, *out)->name), *out,
                      NULL);
}

rn_status rn_graph_copy_values(const rn_graph *from, rn_graph *to) {
    for (rn_value v = 1, copy; v <= rn_graph_value_count(from); v++)
        RN_TRY(rn_graph_copy_value(from, to, v, &copy));
    return RN_OK;
}

rn_status rn_graph_copy_node(rn_graph *to, const rn_node *like, const char *name, rn_node **out) {
    void *node = NULL, *inputs = NULL, *outputs = NULL, *attrs = NULL, *text = NULL;
    size_t attrs_bytes = rn_op_get(like->op)->attrs_bytes;
    RN_TRY(rn_arena_copy(&to->memory, like, sizeof *like, &node));
    RN_TRY(rn_arena_array(&to->memory, like->input_count, sizeof(rn_value), &inputs));
    RN_TRY(rn_arena_array(&to->memory, like->output_count, sizeof(rn_value), &outputs));
    if (attrs_bytes) RN_TRY(rn_arena_copy(&to->memory, like->attrs, attrs_bytes, &attrs));
    RN_TRY(rn_arena_copy(&to->memory, name, strlen(name), &text));
    *out = node;
    (*out)->inputs = inputs;
    (*out)->outputs = outputs;
    (*out)->attrs = attrs;
    (*out)->name = text;
    return rn_table_push(&to->nodes, node);
}
