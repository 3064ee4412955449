// embedding.c — y[i] = table[ids[i]], widened to f32.
#include "graph/op.h"

#include "graph/op/embedding.h"
#include "graph/op/grads.h"
#include "graph/plain_matrix.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    rn_shape table = s->in[0].shape, ids = s->in[1].shape;
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_I32));
    if (!rn_plain_readable(s->in[0].dtype))
        return rn_shape_fail(s, "a table of %s cannot be read", rn_dtype_get(s->in[0].dtype)->name);
    if (table.rank != 2) return rn_shape_fail(s, "a table is (V, C)");
    if (ids.rank == RN_MAX_RANK) return rn_shape_fail(s, "ids have too many axes");
    ids.dims[ids.rank++] = table.dims[1];
    s->out[0].shape = ids;
    return RN_OK;
}

// Only the rows that are asked for are read: as a share of the table.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_tensor *table = &call->inputs[0], *ids = &call->inputs[1];
    double row_bytes = (double)rn_tensor_bytes(table) / (double)table->shape.dims[0];
    out->read_bytes += (double)rn_tensor_bytes(ids) + row_bytes * (double)rn_tensor_elements(ids);
    out->write_bytes += (double)rn_tensor_bytes(&call->outputs[0]);
}

static rn_status gradient(rn_backward *b) {
    uint64_t vocab = rn_graph_value(b->graph, b->node.inputs[0])->shape.dims[0];
    b->in_gradients[0] = rn_op_embedding_grad(b->graph, b->node.inputs[1], b->out_gradients[0],
                                              &(rn_embedding_grad_attrs){vocab});
    return RN_OK;
}

typedef struct lookup {
    rn_plain_matrix table;
    const int32_t *ids;
    float *y; // (ids, C)
} lookup;

static void copy_row(void *arg, size_t i) {
    const lookup *l = arg;
    float *y = l->y + i * l->table.cols;
    const float *row = rn_plain_row(&l->table, (uint64_t)l->ids[i], y);
    if (row != y) memcpy(y, row, l->table.cols * sizeof *y);
}

static rn_status reference(const rn_call *call) {
    lookup l = {.ids = call->inputs[1].data, .y = call->outputs[0].data};
    uint64_t count = rn_tensor_elements(&call->inputs[1]);
    RN_TRY(rn_plain_matrix_of(&call->inputs[0], &l.table));
    RN_TRY(rn_embedding_check(l.ids, count, l.table.rows));
    rn_call_each(call, count, copy_row, &l);
    return RN_OK;
}

extern const rn_op_info rn_embedding_op;
const rn_op_info rn_embedding_op = {
    .name = "embedding",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_outputs = 1,
    .traits = RN_TRAIT_LOOKUP,
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_embedding(rn_graph *g, rn_value table, rn_value ids) {
    return rn_graph_add(g, RN_OP_EMBEDDING, (rn_value[]){table, ids}, 2, NULL);
}
