// attention.c — softmax(q kᵀ * scale + mask) v without ever holding the scores.
//
// The meaning is fixed to the last bit but for expf and logf (graph/attention_row.h): keys in tiles
// of 64 by absolute position, online softmax in f32 a query, scores summed over d in order by fmaf.
// Query t stands at key t + S - T; a query that sees no key gives 0. A mask of i32 (B, T) is no
// addition to scores: documents are packed one behind the other, and a query sees no key before its
// own document's beginning.
//
// Outputs: y (B, T, H, D); logsumexp (B, H, T), which the gradient reads.
#include "graph/op/attention.h"

#include "base/checked.h"
#include "graph/op/grads.h"

// ---- shape, cost --------------------------------------------------------------------------------

rn_status rn_attention_check(const rn_shaping *s) {
    rn_shape q = s->in[0].shape, k = s->in[1].shape, mask = s->in[3].shape;
    for (uint32_t i = 0; i < 3; i++) {
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_F32));
        if (s->in[i].shape.rank != 4)
            return rn_shape_fail(s, "q is (B, T, H, D), k and v are (B, S, HK, D)");
    }
    if (!rn_shape_equal(k, s->in[2].shape) || k.dims[0] != q.dims[0] || k.dims[3] != q.dims[3])
        return rn_shape_fail(s, "k and v must be alike, with the B and D of q");
    if (k.dims[2] == 0 || q.dims[2] % k.dims[2])
        return rn_shape_fail(s, "%llu heads cannot share %llu key heads evenly",
                             (unsigned long long)q.dims[2], (unsigned long long)k.dims[2]);
    const rn_attention_attrs *a = s->attrs;
    if (a->cap != 0) return rn_shape_fail(s, "only scores of paged attention can be capped");
    if (a->value_dims) return rn_shape_fail(s, "value_dims are of paged attention");
    if (s->in[3].dtype == RN_DTYPE_NONE) return RN_OK;
    if (s->in[3].dtype == RN_DTYPE_I32) {
        if (rn_shape_equal(mask, RN_SHAPE(q.dims[0], q.dims[1]))) return RN_OK;
        return rn_shape_fail(s, "where documents begin must be (B, T)");
    }
    RN_TRY(rn_shape_want(s, 3, RN_DTYPE_F32));
    if (!rn_shape_equal(mask, RN_SHAPE(q.dims[1], k.dims[1])) &&
        !rn_shape_equal(mask, RN_SHAPE(q.dims[0], q.dims[1], k.dims[1])))
        return rn_shape_fail(s, "the mask must be (T, S) or (B, T, S)");
    return RN_OK;
}

double rn_attention_flops(const rn_call *call, double products) {
    const rn_attention_attrs *a = call->attrs;
    rn_attention_sizes of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape);
    double keys = (double)of.keys * (a->causal ? 0.5 : 1);
    if (a->window && keys > a->window) keys = a->window;
    return 2 * products * (double)of.batch * (double)of.heads * (double)of.queries * keys *
           (double)of.dims;
}

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_attention_check(s));
    rn_shape q = s->in[0].shape;
    s->out[0].shape = q;
    s->out[1].shape = RN_SHAPE(q.dims[0], q.dims[2], q.dims[1]);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += rn_attention_flops(call, 2);
}

static rn_status gradient(rn_backward *b) {
    const rn_value *in = b->node.inputs, *out = b->node.outputs;
    if (b->wanted[3])
        return rn_fail(RN_UNSUPPORTED, "%s: attention gives no gradient to its mask", b->node.name);
    if (b->out_gradients[1] != RN_NO_VALUE)
        return rn_fail(RN_UNSUPPORTED, "%s: no gradient flows through the logsumexp", b->node.name);
    rn_value first = rn_op_attention_grad(b->graph, in[0], in[1], in[2], in[3], out[0], out[1],
                                          b->out_gradients[0], b->node.attrs);
    for (uint32_t i = 0; i < 3; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

// ---- reference ----------------------------------------------------------------------------------

typedef struct attention {
    const rn_call *call;
    rn_attention_sizes of;
    float scale;
} attention;

// The visible keys [first, end), which lie within one tile.
static rn_attention_tile make_tile(const attention *a, uint64_t b, uint64_t kv_head, uint64_t first,
                                   uint64_t end, const float *mask) {
    rn_attention_tile tile = {.count = (uint32_t)(end - first), .dtype = RN_DTYPE_F32};
    for (uint64_t s = first; s < end; s++) {
        uint64_t at = rn_attention_at(b, s, kv_head, a->of.keys, a->of.kv_heads, a->of.dims);
        tile.keys[s - first] = (const float *)a->call->inputs[1].data + at;
        tile.values[s - first] = (const float *)a->call->inputs[2].data + at;
    }
    tile.mask = mask ? mask + first : NULL;
    return tile;
}

// Query `index` of all: (b, t, head).
static void attend(void *arg, size_t index) {
    const attention *a = arg;
    const rn_attention_sizes *of = &a->of;
    uint64_t head = index % of->heads, t = index / of->heads % of->queries;
    uint64_t b = index / of->heads / of->queries, kv_head = head / (of->heads / of->kv_heads);
    const float *mask = rn_attention_mask_row(&a->call->inputs[3], of, b, t);
    rn_attention_range keys = rn_attention_keys(a->call->attrs, of, &a->call->inputs[3], b, t);
    rn_attention_row row = rn_attention_begin(
        (const float *)a->call->inputs[0].data + index * of->dims,
        (float *)a->call->outputs[0].data + index * of->dims, of->dims, 0, a->scale);
    for (uint64_t first = keys.first; first < keys.end;) {
        uint64_t end =
            rn_min_u64(rn_round_down(first, RN_ATTENTION_TILE) + RN_ATTENTION_TILE, keys.end);
        rn_attention_tile tile = make_tile(a, b, kv_head, first, end, mask);
        rn_attention_add(&row, &tile);
        first = end;
    }
    float logsumexp = rn_attention_end(&row), *out = a->call->outputs[1].data; // (B, H, T)
    if (out) out[(b * of->heads + head) * of->queries + t] = logsumexp;
}

static rn_status reference(const rn_call *call) {
    attention a = {.call = call,
                   .of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape)};
    a.scale = rn_attention_scale(call->attrs, a.of.dims);
    rn_call_each(call, a.of.batch * a.of.queries * a.of.heads, attend, &a);
    return RN_OK;
}

extern const rn_op_info rn_attention_op;
const rn_op_info rn_attention_op = {
    .name = "attention",
    .min_inputs = 4,
    .max_inputs = 4,
    .optional_inputs = 1u << 3,
    .output_count = 2,
    .optional_outputs = 1u << 1,
    .half_inputs = 7,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_attention_attrs),
    .traits = RN_TRAIT_ATTENTION,
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
    .print = rn_attention_print,
};

rn_value rn_op_attention(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value mask,
                         rn_attention_attrs attrs) {
    return rn_graph_add(g, RN_OP_ATTENTION, (rn_value[]){q, k, v, mask}, 4, &attrs);
}
