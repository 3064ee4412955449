// reduce.c — shapes, costs and gradients of the reductions.
#include "graph/op/reduce.h"
#include "graph/op/print.h"

rn_shape rn_reduce_axes(rn_shape x, uint32_t axes) {
    for (uint32_t i = 0; i < x.rank; i++)
        if (!(axes >> i & 1)) x.dims[i] = 1;
    return x;
}

rn_status rn_reduce_shape(rn_shaping *s) {
    const rn_reduce_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, *out = &s->out[0].shape;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    if (attrs->axes >> x.rank)
        return rn_shape_fail(s, "axes 0x%x are more than the %u of the input", attrs->axes, x.rank);
    for (uint32_t i = 0; i < x.rank; i++) {
        bool reduced = attrs->axes >> i & 1;
        if (!reduced || attrs->keep) out->dims[out->rank++] = reduced ? 1 : x.dims[i];
    }
    return RN_OK;
}

void rn_reduce_cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->inputs[0]);
}

void rn_reduce_print(const void *attrs, char *out, size_t bytes) {
    const rn_reduce_attrs *a = attrs;
    snprintf(out, bytes, "axes");
    for (uint32_t i = 0; i < RN_MAX_RANK; i++)
        if (a->axes >> i & 1) rn_print_more(out, bytes, " %u", i);
    if (a->keep) rn_print_more(out, bytes, ", kept");
}

rn_value rn_reduce_spread(rn_backward *b) {
    const rn_reduce_attrs *attrs = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    rn_value dy = b->out_gradients[0];
    if (!attrs->keep) dy = rn_op_reshape(b->graph, dy, rn_reduce_axes(x, ~attrs->axes));
    return rn_op_broadcast(b->graph, dy, x);
}
