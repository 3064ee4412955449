// select.c — a where the condition holds, b elsewhere; the three are stretched to each other.
#include "graph/op/move.h"
#include "graph/op/number.h"

static rn_status shape(rn_shaping *s) {
    rn_shape both;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_BOOL));
    RN_TRY(rn_shape_want_plain(s, 1));
    RN_TRY(rn_shape_want(s, 2, s->in[1].dtype));
    if (!rn_shape_join(s->in[1].shape, s->in[2].shape, &both) ||
        !rn_shape_join(s->in[0].shape, both, &s->out[0].shape))
        return rn_shape_fail(s, "the shapes do not broadcast");
    s->out[0].dtype = s->in[1].dtype;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(y), n = rn_tensor_elements(y);
    uint64_t width = y->shape.rank ? y->shape.dims[y->shape.rank - 1] : 1;
    rn_strides strides[3];
    for (int i = 0; i < 3; i++)
        strides[i] = rn_strides_stretched(call->inputs[i].shape, y->shape);
    char *to = y->data;
    for (uint64_t row = 0; n && row < n / width; row++) {
        const char *from[3];
        uint64_t step[3];
        for (int i = 0; i < 3; i++) {
            uint64_t bytes = i ? size : 1;
            from[i] = (const char *)call->inputs[i].data +
                      rn_row_begin(y->shape, row, &strides[i]) * bytes;
            step[i] = y->shape.rank ? strides[i].by[y->shape.rank - 1] * bytes : 0;
        }
        for (uint64_t i = 0; i < width; i++, to += size) {
            int chosen = from[0][i * step[0]] ? 1 : 2;
            memcpy(to, from[chosen] + i * step[chosen], size);
        }
    }
    return RN_OK;
}

extern const rn_op_info rn_select_op;
const rn_op_info rn_select_op = {
    .name = "select",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 1,
    .traits = RN_TRAIT_ELEMENTWISE,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_select(rn_graph *g, rn_value condition, rn_value a, rn_value b) {
    return rn_graph_add(g, RN_OP_SELECT, (rn_value[]){condition, a, b}, 3, NULL);
}
