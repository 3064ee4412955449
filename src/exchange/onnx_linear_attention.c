// onnx_linear_attention.c — attention that ONNX has beside the usual: LinearAttention, whose layer
// remembers a matrix instead of keys, and FlexAttention, with subgraphs over scores and chances.
//
//     S = e^g S              gated: what fades, by head or by key's dim
//     v = b (v - Sᵀ k)       delta: what S says of k, against what it should say
//     S = S + k vᵀ
//     y = scale Sᵀ q
//
// A step's nodes are written once a position, as those of a Scan.
#include "exchange/onnx_importer.h"

#include <math.h>

enum { MOST_STEPS = 4096 };

typedef struct linear {
    rn_import_call *call;
    uint64_t batch, steps, heads, group, key_dim, value_dim; // `heads` of keys, `group` of queries
    rn_value q, k, v;     // (B, T, heads, group, key_dim), (B, T, heads, 1, dim)
    rn_value decay, beta; // (B, T, heads, 1 or key_dim, 1), (B, T, heads or 1, 1, 1), or none
    rn_value state;       // (B, heads, key_dim, value_dim)
} linear;

// Position t of (B, T, a, b, c) as (B, a, b, c).
static rn_value at(const linear *l, rn_value x, uint64_t t) {
    rn_shape s = rn_import_shape_of(l->call->import, x);
    if (!x) return x;
    return rn_import_reshape(l->call->import, rn_op_slice(l->call->graph, x, 1, t, 1),
                             RN_SHAPE(s.dims[0], s.dims[2], s.dims[3], s.dims[4]));
}

// a (..., M, K) by b (..., K, N).
static rn_value multiply(const linear *l, rn_value a, rn_value b) {
    return rn_op_matmul_as(l->call->graph, a, b, RN_NO_VALUE,
                           (rn_matmul_attrs){.transpose_w = true});
}

static rn_value step(linear *l, uint64_t t) {
    rn_graph *g = l->call->graph;
    rn_import *m = l->call->import;
    rn_value k = at(l, l->k, t), v = at(l, l->v, t);
    if (l->decay) l->state = rn_op_mul(g, l->state, at(l, l->decay, t));
    if (l->beta) v = rn_op_mul(g, at(l, l->beta, t), rn_op_sub(g, v, multiply(l, k, l->state)));
    rn_value column = rn_import_reshape(m, k, RN_SHAPE(l->batch, l->heads, l->key_dim, 1));
    l->state = rn_op_add(g, l->state, rn_op_mul(g, column, v));
    return rn_import_reshape(m, multiply(l, at(l, l->q, t), l->state),
                             RN_SHAPE(l->batch, 1, l->heads * l->group * l->value_dim));
}

static rn_value shaped(linear *l, uint32_t input, uint64_t heads, uint64_t a, uint64_t b) {
    rn_import *m = l->call->import;
    rn_value x = rn_import_cast(m, rn_import_in(l->call, input), RN_DTYPE_F32);
    return x ? rn_import_reshape(m, x, RN_SHAPE(l->batch, l->steps, heads, a, b)) : x;
}

static bool read_sizes(linear *l) {
    rn_import_call *c = l->call;
    rn_shape q = rn_import_shape(c, 0), k = rn_import_shape(c, 1), v = rn_import_shape(c, 2);
    int64_t heads = rn_import_int(c, "kv_num_heads", 0),
            queries = rn_import_int(c, "q_num_heads", 0);
    bool good = q.rank == 3 && k.rank == 3 && v.rank == 3 && heads > 0 && queries > 0 &&
                queries % heads == 0 && q.dims[2] % (uint64_t)queries == 0 &&
                k.dims[2] % (uint64_t)heads == 0 && v.dims[2] % (uint64_t)heads == 0 &&
                q.dims[2] / (uint64_t)queries == k.dims[2] / (uint64_t)heads &&
                q.dims[1] <= MOST_STEPS && q.dims[1] == k.dims[1] && q.dims[1] == v.dims[1];
    if (!good) {
        rn_import_refuse(c, "%lld and %lld heads of %s, %s and %s; at most %d positions",
                         (long long)queries, (long long)heads, rn_shape_format(q).text,
                         rn_shape_format(k).text, rn_shape_format(v).text, MOST_STEPS);
        return false;
    }
    l->batch = q.dims[0], l->steps = q.dims[1];
    l->heads = (uint64_t)heads, l->group = (uint64_t)(queries / heads);
    l->key_dim = k.dims[2] / l->heads, l->value_dim = v.dims[2] / l->heads;
    return true;
}

// By head, or by the keys' dims.
static void read_gates(linear *l, rn_str rule) {
    rn_import_call *c = l->call;
    if (rn_str_starts(rule, RN_STR("gated"))) {
        bool by_head = rn_import_shape(c, 4).dims[2] == l->heads;
        l->decay = rn_op_exp(c->graph, shaped(l, 4, l->heads, by_head ? 1 : l->key_dim, 1));
    }
    if (rn_str_ends(rule, RN_STR("delta")))
        l->beta = shaped(l, 5, rn_import_shape(c, 5).dims[2] == 1 ? 1 : l->heads, 1, 1);
}

static void linear_attention(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    enum { STEP_NODES = 16 };
    linear l = {.call = c};
    rn_str rule = rn_import_text(c, "update_rule", "gated_delta");
    if (!read_sizes(&l) || !rn_import_spend(c, STEP_NODES * l.steps)) return;
    rn_dtype dtype = rn_import_dtype(c, 0), state = dtype;
    float scale = rn_import_float(c, "scale", 0);
    if (scale == 0) scale = (float)(1 / sqrt((double)l.key_dim));
    l.q = rn_op_scale(g, shaped(&l, 0, l.heads, l.group, l.key_dim), scale, 0);
    l.k = shaped(&l, 1, l.heads, 1, l.key_dim);
    l.v = shaped(&l, 2, l.heads, 1, l.value_dim);
    read_gates(&l, rule);
    if (rn_import_has(c, 3)) state = rn_import_dtype(c, 3);
    l.state = rn_import_has(c, 3)
                  ? rn_import_cast(m, rn_import_in(c, 3), RN_DTYPE_F32)
                  : rn_op_broadcast(g, rn_import_scalar(m, RN_DTYPE_F32, 0),
                                    RN_SHAPE(l.batch, l.heads, l.key_dim, l.value_dim));
    rn_value *rows = NULL; // (steps)
    rn_status s = rn_arena_array(&m->memory, l.steps, sizeof *rows, (void **)&rows);
    if (s != RN_OK) rn_graph_spoil(g, s);
    for (uint64_t t = 0; t < l.steps && rn_graph_finish(g) == RN_OK; t++)
        rows[t] = step(&l, t);
    if (rn_graph_finish(g) != RN_OK) return;
    rn_value y = l.steps == 1 ? rows[0] : rn_op_concat(g, rows, (uint32_t)l.steps, 1);
    rn_import_out(c, 0, rn_import_cast(m, y, dtype));
    rn_import_out(c, 1, rn_import_cast(m, l.state, state));
}

// ---- FlexAttention ------------------------------------------------------------------------------

// What a subgraph of one input makes of a value; the value where there is none.
static rn_value modify(rn_import_call *c, const char *name, rn_value x) {
    const rn_onnx_attribute *a = rn_import_attribute(c, name);
    rn_import_slot in = {.value = x}, out = {0};
    if (!a || !x) return x;
    if (!a->graph || a->graph->input_count != 1 || a->graph->output_count != 1) {
        rn_import_refuse(c, "%s is no graph of one input", name);
        return RN_NO_VALUE;
    }
    rn_import_call_graph(c, a->graph, &in, 1, &out, 1);
    return rn_graph_finish(c->graph) == RN_OK ? rn_import_slot_value(c, &out) : RN_NO_VALUE;
}

static void flex_attention(rn_import_call *c) {
    static const uint8_t turned[] = {0, 1, 3, 2};
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value q = rn_import_in(c, 0), k = rn_import_in(c, 1), v = rn_import_in(c, 2);
    rn_shape sq = rn_import_shape_of(m, q), sk = rn_import_shape_of(m, k);
    if (!q || !k || !v) return;
    if (sq.rank != 4 || sk.rank != 4 || sk.dims[1] == 0 || sq.dims[1] % sk.dims[1]) {
        rn_import_refuse(c, "attention of %s over %s", rn_shape_format(sq).text,
                         rn_shape_format(sk).text);
        return;
    }
    rn_dtype given = rn_import_dtype_of(m, q), last = rn_import_dtype_of(m, v);
    int64_t asked = rn_import_int(c, "softmax_precision", 0);
    rn_dtype dtype = asked                   ? rn_onnx_dtype((uint32_t)asked)
                     : given == RN_DTYPE_F64 ? RN_DTYPE_F64
                                             : RN_DTYPE_F32;
    float scale = rn_import_float(c, "scale", (float)(1 / sqrt((double)sq.dims[3])));
    k = rn_import_repeat_heads(c, k, sq.dims[1] / sk.dims[1]);
    v = rn_import_repeat_heads(c, v, sq.dims[1] / sk.dims[1]);
    if (given == RN_DTYPE_F16 || given == RN_DTYPE_BF16) {
        q = rn_import_cast(m, q, RN_DTYPE_F32);
        k = rn_import_cast(m, k, RN_DTYPE_F32);
    }
    q = rn_op_mul(g, q, rn_import_scalar(m, rn_import_dtype_of(m, q), (double)scale));
    rn_value scores = rn_import_matmul(c, q, k ? rn_import_permute(m, k, turned) : k);
    scores = modify(c, "score_mod", rn_import_cast(m, scores, dtype));
    rn_value chances =
        modify(c, "prob_mod", scores ? rn_op_soft(g, RN_SOFT_MAX, scores, 3) : scores);
    rn_value y = rn_import_matmul(c, chances, rn_import_cast(m, v, dtype));
    rn_import_out(c, 0, rn_import_cast(m, y, last));
}

const rn_import_op rn_onnx_linear_attention_ops[] = {
    {"LinearAttention", linear_attention, 0},
    {"ai.onnx.preview.FlexAttention", flex_attention, 0},
    {NULL, NULL, 0},
};
