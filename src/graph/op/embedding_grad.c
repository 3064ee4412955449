// embedding_grad.c — row v of the table gets the sum of dy over the places with id v, in the order
// of the places.
#include "graph/op/embedding.h"
#include "graph/op/grads.h"

#include <stdio.h>
#include <string.h>

static rn_status shape(rn_shaping *s) {
    const rn_embedding_grad_attrs *a = s->attrs;
    rn_shape ids = s->in[0].shape, dy = s->in[1].shape;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_I32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    uint64_t channels = dy.rank ? dy.dims[dy.rank - 1] : 0;
    if (dy.rank) dy.rank--;
    if (channels == 0 || !rn_shape_equal(ids, dy))
        return rn_shape_fail(s, "dy must have the axes of the ids and one more");
    s->out[0].shape = RN_SHAPE(a->vocab, channels);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->inputs[1]);
}

static rn_status reference(const rn_call *call) {
    const int32_t *ids = call->inputs[0].data;
    const float *dy = call->inputs[1].data; // (ids, C)
    float *dtable = call->outputs[0].data;  // (V, C)
    uint64_t vocab = call->outputs[0].shape.dims[0], channels = call->outputs[0].shape.dims[1];
    uint64_t count = rn_tensor_elements(&call->inputs[0]);
    RN_TRY(rn_embedding_check(ids, count, vocab));
    memset(dtable, 0, vocab * channels * sizeof *dtable);
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t c = 0; c < channels; c++)
            dtable[(uint64_t)ids[i] * channels + c] += dy[i * channels + c];
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_embedding_grad_attrs *a = attrs;
    snprintf(out, bytes, "vocabulary %llu", (unsigned long long)a->vocab);
}

extern const rn_op_info rn_embedding_grad_op;
const rn_op_info rn_embedding_grad_op = {
    .name = "embedding_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 2,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_embedding_grad_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_embedding_grad(rn_graph *g, rn_value ids, rn_value dy,
                              const rn_embedding_grad_attrs *attrs) {
    return rn_graph_add(g, RN_OP_EMBEDDING_GRAD, (rn_value[]){ids, dy}, 2, attrs);
}
