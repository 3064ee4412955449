// paged_attention.c — attention of rows of any sequences to the keys in their pages.
//
// The meaning of each row is that of graph/attention_row.h: tiles of 64 keys by absolute position
// (a tile may span pages), so that page size, chunk and company do not change a row's bits. A row
// sees the keys of its sequence at positions up to its own, within the window; all attention here
// is causal. Rows of sequence -1 give zeros.
#include "graph/attention_row.h"
#include "graph/kv_pages.h"

#include "base/checked.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    rn_shape q = s->in[0].shape, kv = s->in[1].shape;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    if (q.rank != 3) return rn_shape_fail(s, "q must be (rows, H, D)");
    RN_TRY(rn_kv_pages_shape(s, 1, 0, 2));
    if (q.dims[2] != kv.dims[4] || q.dims[1] % kv.dims[2])
        return rn_shape_fail(s, "q must have the D of kv, and heads that share HK evenly");
    if (!(((const rn_attention_attrs *)s->attrs)->cap >= 0))
        return rn_shape_fail(s, "a cap of scores must be above 0");
    s->out[0].shape = q;
    return RN_OK;
}

// As if every sequence were full: positions are not known while planning.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_attention_attrs *a = call->attrs;
    rn_shape kv = call->inputs[1].shape, table = call->inputs[4].shape;
    double keys = (double)table.dims[1] * (double)kv.dims[3];
    if (a->window && keys > a->window) keys = a->window;
    rn_cost_bytes(call, out);
    out->flops += 4 * (double)rn_tensor_elements(&call->inputs[0]) * keys;
}

typedef struct attention {
    const rn_call *call;
    rn_kv_pages kv;
    uint64_t heads; // of q
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
    const float *q = (const float *)a->call->inputs[0].data + index * dims;
    rn_attention_row state =
        rn_attention_begin(q, (float *)a->call->outputs[0].data + index * dims, dims, a->scale);
    state.cap = ((const rn_attention_attrs *)a->call->attrs)->cap;
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
                   .kv = rn_kv_pages_of(&in[1], &in[2], &in[3], &in[4]),
                   .heads = in[0].shape.dims[1]};
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
    .min_inputs = 5,
    .max_inputs = 5,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_attention_attrs),
    .traits = RN_TRAIT_ATTENTION,
    .pages = {.state = 1, .sequence = 2, .position = 3, .page_table = 4},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = rn_attention_print,
};

rn_value rn_op_paged_attention(rn_graph *g, rn_value q, rn_value kv, rn_value sequence,
                               rn_value position, rn_value page_table, rn_attention_attrs attrs) {
    return rn_graph_add(g, RN_OP_PAGED_ATTENTION,
                        (rn_value[]){q, kv, sequence, position, page_table}, 5, &attrs);
}
