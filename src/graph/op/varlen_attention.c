// varlen_attention.c — attention within each of several texts whose rows lie one behind the other.
//
// A row sees the rows of its own text (graph/varlen.h) and no KV cache: with `causal` those up to
// itself, else all of them; with a window those less than `window` away. The meaning of each row is
// that of graph/attention_row.h with positions counted from the text's beginning, so a text's bits
// do not depend on what it is packed with. `bias` adds to a score what belongs to the distance
// between key and query (relative position bias): column reach + distance, the outermost two for
// all that is further away.
#include "graph/varlen.h"

#include "base/checked.h"

static rn_status shape(rn_shaping *s) {
    rn_shape q = s->in[0].shape, k = s->in[1].shape, bias = s->in[4].shape;
    for (uint32_t i = 0; i < 3; i++) {
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_F32));
        if (s->in[i].shape.rank != 3)
            return rn_shape_fail(s, "q is (rows, H, D), k and v are (rows, HK, D)");
    }
    RN_TRY(rn_shape_want(s, 3, RN_DTYPE_I32));
    if (!rn_shape_equal(k, s->in[2].shape) || k.dims[0] != q.dims[0] || k.dims[2] != q.dims[2])
        return rn_shape_fail(s, "k and v must be alike, with the rows and D of q");
    if (k.dims[1] == 0 || q.dims[1] % k.dims[1])
        return rn_shape_fail(s, "%llu heads cannot share %llu key heads evenly",
                             (unsigned long long)q.dims[1], (unsigned long long)k.dims[1]);
    if (!rn_shape_equal(s->in[3].shape, RN_SHAPE(q.dims[0], 2)))
        return rn_shape_fail(s, "span must be (rows, 2)");
    if (s->in[4].dtype != RN_DTYPE_NONE) {
        RN_TRY(rn_shape_want(s, 4, RN_DTYPE_F32));
        if (bias.rank != 2 || bias.dims[0] != q.dims[1] || bias.dims[1] % 2 == 0)
            return rn_shape_fail(s, "bias must be (H, 2 * reach + 1)");
    }
    const rn_attention_attrs *a = s->attrs;
    if (!(a->cap >= 0)) return rn_shape_fail(s, "a cap of scores must be above 0");
    if (a->value_dims) return rn_shape_fail(s, "value_dims are of paged attention");
    s->out[0].shape = q;
    return RN_OK;
}

enum { TYPICAL = 128 }; // tokens of a text, where a run has room for several

// Spans are not known while planning.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_attention_attrs *a = call->attrs;
    double rows = (double)rn_min_u64(call->inputs[0].shape.dims[0], TYPICAL);
    double keys = rows * (a->causal ? 0.5 : 1);
    double seen = (a->causal ? 1 : 2) * (double)a->window;
    if (a->window && keys > seen) keys = seen;
    rn_cost_bytes(call, out);
    out->flops += 4 * (double)rn_tensor_elements(&call->inputs[0]) * keys;
}

typedef struct attention {
    const rn_call *call;
    rn_varlen texts;
} attention;

// Query `index` of all: (row, head).
static void attend(void *arg, size_t index) {
    const attention *a = arg;
    const rn_varlen *t = &a->texts;
    uint64_t row = index / t->heads, head = index % t->heads;
    uint64_t kv_head = head / (t->heads / t->kv_heads);
    rn_attention_range keys = rn_varlen_keys(t, a->call->attrs, row);
    uint64_t text = (uint64_t)t->span[2 * row];
    float bias[RN_ATTENTION_TILE];
    rn_attention_row state =
        rn_attention_begin(t->q + index * t->dims, t->y + index * t->dims, t->dims, 0, t->scale);
    state.cap = ((const rn_attention_attrs *)a->call->attrs)->cap;
    for (uint64_t first = keys.first, end; first < keys.end; first = end) {
        end = rn_min_u64(rn_round_down(first, RN_ATTENTION_TILE) + RN_ATTENTION_TILE, keys.end);
        rn_attention_tile tile = {
            .count = (uint32_t)(end - first), .dtype = RN_DTYPE_F32, .mask = t->bias ? bias : NULL};
        for (uint64_t s = first; s < end; s++) {
            uint64_t at = ((text + s) * t->kv_heads + kv_head) * t->dims;
            tile.keys[s - first] = t->k + at;
            tile.values[s - first] = t->v + at;
            if (t->bias) bias[s - first] = rn_varlen_bias(t, head, row - text, s);
        }
        rn_attention_add(&state, &tile);
    }
    rn_attention_end(&state);
}

static rn_status reference(const rn_call *call) {
    attention a = {.call = call, .texts = rn_varlen_of(call)};
    RN_TRY(rn_varlen_check(&a.texts));
    rn_call_each(call, a.texts.rows * a.texts.heads, attend, &a);
    return RN_OK;
}

extern const rn_op_info rn_varlen_attention_op;
const rn_op_info rn_varlen_attention_op = {
    .name = "varlen_attention",
    .min_inputs = 5,
    .max_inputs = 5,
    .optional_inputs = 1u << 4,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_attention_attrs),
    .traits = RN_TRAIT_ATTENTION,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = rn_attention_print,
};

rn_value rn_op_varlen_attention(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value span,
                                rn_value bias, rn_attention_attrs attrs) {
    return rn_graph_add(g, RN_OP_VARLEN_ATTENTION, (rn_value[]){q, k, v, span, bias}, 5, &attrs);
}
