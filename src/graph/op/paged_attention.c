// paged_attention.c — attention of rows of any sequences to the keys in their pages.
//
// The meaning of each row is that of graph/attention_row.h: tiles of 64 keys by absolute position
// (a tile may span pages), so that page size, chunk and company do not change a row's bits. A row
// sees the keys of its sequence at positions up to its own, within the window; all attention here
// is causal. Rows of sequence -1 give zeros. Pages without values (latent attention) have them in
// the beginnings of their keys; a sink is a score of each head's that has no value.
#include "graph/attention_row.h"
#include "graph/kv_pages.h"

#include "base/checked.h"

#include <string.h>

enum { Q, KV, SEQUENCE, POSITION, PAGE_TABLE, SINKS, INPUTS };

// Values are planes of their own, or beginnings of keys.
static rn_status check_values(const rn_shaping *s) {
    const rn_attention_attrs *a = s->attrs;
    rn_shape kv = s->in[KV].shape;
    uint32_t block = rn_dtype_get(s->in[KV].dtype)->block_elements;
    if (!a->value_dims == (kv.dims[1] == 2)) {
        if (a->value_dims <= kv.dims[4] && a->value_dims % block == 0) return RN_OK;
        return rn_shape_fail(s, "values of %u cannot begin keys of %llu", a->value_dims,
                             (unsigned long long)kv.dims[4]);
    }
    return rn_shape_fail(s, a->value_dims ? "pages with values have no value_dims"
                                          : "pages without values need value_dims");
}

static rn_status shape(rn_shaping *s) {
    const rn_attention_attrs *a = s->attrs;
    rn_shape q = s->in[Q].shape, kv = s->in[KV].shape;
    RN_TRY(rn_shape_want(s, Q, RN_DTYPE_F32));
    if (q.rank != 3) return rn_shape_fail(s, "q must be (rows, H, D)");
    RN_TRY(rn_kv_pages_shape(s, KV, Q, SEQUENCE));
    if (kv.dims[2] == 0 || q.dims[2] != kv.dims[4] || q.dims[1] % kv.dims[2])
        return rn_shape_fail(s, "q must have the D of kv, and heads that share HK evenly");
    if (!(a->cap >= 0)) return rn_shape_fail(s, "a cap of scores must be above 0");
    RN_TRY(check_values(s));
    if (s->input_count > SINKS) {
        RN_TRY(rn_shape_want(s, SINKS, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[SINKS].shape, RN_SHAPE(q.dims[1])))
            return rn_shape_fail(s, "sinks must be one a head");
    }
    s->out[0].shape = q;
    if (a->value_dims) s->out[0].shape.dims[2] = a->value_dims;
    return RN_OK;
}

// As if every sequence were full: positions are not known while planning.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_attention_attrs *a = call->attrs;
    rn_shape kv = call->inputs[KV].shape, table = call->inputs[PAGE_TABLE].shape;
    double keys = (double)table.dims[1] * (double)kv.dims[3];
    if (a->window && keys > a->window) keys = a->window;
    rn_cost_bytes(call, out);
    out->flops +=
        2 * keys *
        (double)(rn_tensor_elements(&call->inputs[Q]) + rn_tensor_elements(&call->outputs[0]));
}

typedef struct attention {
    const rn_call *call;
    rn_kv_pages kv;
    uint64_t heads, value_dims; // heads: of q
    float scale;
} attention;

static rn_attention_range find_keys(const attention *a, uint64_t row) {
    rn_attention_attrs causal = *(const rn_attention_attrs *)a->call->attrs;
    causal.causal = true;
    return rn_attention_visible(&causal, a->kv.position[row], a->kv.max_pages * a->kv.page_tokens);
}

static rn_attention_tile make_tile(const rn_kv_pages *kv, uint64_t sequence, uint64_t head,
                                   uint64_t first, uint64_t end) {
    rn_attention_tile tile = {.count = (uint32_t)(end - first), .dtype = kv->dtype};
    for (uint64_t s = first; s < end; s++) {
        tile.keys[s - first] = rn_kv_key(kv, sequence, s, head);
        tile.values[s - first] = rn_kv_value(kv, sequence, s, head);
    }
    return tile;
}

// Query `index` of all: (row, head).
static void attend(void *arg, size_t index) {
    const attention *a = arg;
    uint64_t row = index / a->heads, dims = a->kv.dims;
    uint64_t kv_head = index % a->heads / (a->heads / a->kv.heads);
    const float *q = (const float *)a->call->inputs[Q].data + index * dims;
    float *y = (float *)a->call->outputs[0].data + index * a->value_dims;
    rn_attention_row state = rn_attention_begin(q, y, dims, a->value_dims, a->scale);
    state.cap = ((const rn_attention_attrs *)a->call->attrs)->cap;
    if (a->call->input_count > SINKS)
        rn_attention_sink(&state, ((const float *)a->call->inputs[SINKS].data)[index % a->heads]);
    if (a->kv.sequence[row] == -1) return;
    rn_attention_range keys = find_keys(a, row);
    for (uint64_t first = keys.first; first < keys.end;) {
        uint64_t end =
            rn_min_u64(rn_round_down(first, RN_ATTENTION_TILE) + RN_ATTENTION_TILE, keys.end);
        rn_attention_tile tile =
            make_tile(&a->kv, (uint64_t)a->kv.sequence[row], kv_head, first, end);
        rn_attention_add(&state, &tile);
        first = end;
    }
    rn_attention_end(&state);
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    attention a = {.call = call,
                   .kv = rn_kv_pages_of(&in[KV], &in[SEQUENCE], &in[POSITION], &in[PAGE_TABLE]),
                   .heads = in[Q].shape.dims[1],
                   .value_dims = call->outputs[0].shape.dims[2]};
    a.scale = rn_attention_scale(call->attrs, a.kv.dims);
    for (uint64_t row = 0; row < a.kv.rows; row++)
        if (a.kv.sequence[row] != -1)
            RN_TRY(rn_kv_pages_check(&a.kv, "paged_attention", row, find_keys(&a, row).first));
    rn_call_each(call, a.kv.rows * a.heads, attend, &a);
    return RN_OK;
}

extern const rn_op_info rn_paged_attention_op;
const rn_op_info rn_paged_attention_op = {
    .name = "paged_attention",
    .min_inputs = SINKS,
    .max_inputs = INPUTS,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_attention_attrs),
    .traits = RN_TRAIT_ATTENTION,
    .pages = {.state = KV, .sequence = SEQUENCE, .position = POSITION, .page_table = PAGE_TABLE},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = rn_attention_print,
};

rn_value rn_op_paged_attention(rn_graph *g, rn_value q, rn_value kv, rn_value sequence,
                               rn_value position, rn_value page_table, rn_attention_attrs attrs) {
    return rn_graph_add(g, RN_OP_PAGED_ATTENTION,
                        (rn_value[]){q, kv, sequence, position, page_table}, SINKS, &attrs);
}

rn_value rn_op_paged_attention_sinks(rn_graph *g, rn_value q, rn_value kv, rn_value sequence,
                                     rn_value position, rn_value page_table, rn_value sinks,
                                     rn_attention_attrs attrs) {
    return rn_graph_add(g, RN_OP_PAGED_ATTENTION,
                        (rn_value[]){q, kv, sequence, position, page_table, sinks}, INPUTS, &attrs);
}
