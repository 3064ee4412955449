// onnx_attention.c — softmax(q kᵀ * scale + mask) v as one op, which never holds the scores.
//
// Exporters write attention as its parts: a product, a scale, a mask that is added, a softmax, and
// another product. Where the second product is read, the way back from it is followed; parts that
// nobody else reads are left out of the graph in the end. What is added twice (a bias of positions
// and a mask), and values of another width than keys, stay written as parts.
#include "exchange/onnx_importer.h"

#include <math.h>

// What an attention takes: heads beside each other, (B, T, H, D), as models compute them; or, where
// a file has them apart, (B * H, T, 1, D): then nothing is moved.
typedef struct form {
    rn_shape q, k; // (B, H, T, D), (B, HK, S, D)
    bool apart;
} form;

// The mask as (T, S) or (batch, T, S); RN_NO_VALUE: it is none of these.
static rn_value flat_mask(rn_import_call *c, rn_value mask, const form *f) {
    rn_import *m = c->import;
    rn_shape s = rn_import_shape_of(m, mask), four = {.rank = 4, .dims = {1, 1, 1, 1}};
    uint64_t batch = f->q.dims[0], heads = f->q.dims[1], queries = f->q.dims[2];
    if (s.rank > 4 || rn_import_dtype_of(m, mask) != RN_DTYPE_F32) return RN_NO_VALUE;
    for (uint32_t i = 0; i < s.rank; i++)
        four.dims[4 - s.rank + i] = s.dims[i];
    bool of_all = four.dims[0] == 1 && four.dims[1] == 1;
    bool of_each = four.dims[0] == batch && four.dims[1] == (f->apart ? heads : 1);
    if ((!of_all && !of_each) || four.dims[3] != f->k.dims[2] ||
        (four.dims[2] != 1 && four.dims[2] != queries))
        return RN_NO_VALUE;
    rn_shape flat = RN_SHAPE(four.dims[2], four.dims[3]);
    if (!of_all) flat = RN_SHAPE(f->apart ? batch * heads : batch, four.dims[2], four.dims[3]);
    rn_shape whole = flat;
    whole.dims[flat.rank - 2] = queries;
    if (m->mask_of == mask && rn_shape_equal(rn_import_shape_of(m, m->mask), whole))
        return m->mask; // every layer reads the same one
    rn_value to = rn_import_reshape(m, mask, flat);
    if (!rn_shape_equal(flat, whole)) to = rn_op_broadcast(c->graph, to, whole);
    m->mask_of = mask;
    m->mask = to;
    return to;
}

static const uint8_t heads_out[] = {0, 2, 1, 3};

// Whether it was moved from (B, T, H, D) to (B, H, T, D).
static bool was_moved(const rn_import_call *c, rn_value value) {
    const rn_node *node = rn_import_maker(c, value, RN_OP_PERMUTE);
    const uint8_t *axes = node ? ((const rn_permute_attrs *)node->attrs)->axes : NULL;
    return axes && axes[0] == 0 && axes[1] == 2 && axes[2] == 1 && axes[3] == 3;
}

static rn_value formed(rn_import_call *c, rn_value value, const form *f) {
    rn_shape s = rn_import_shape_of(c->import, value);
    if (!f->apart) return rn_import_permute(c->import, value, heads_out);
    return rn_import_reshape(c->import, value,
                             RN_SHAPE(s.dims[0] * s.dims[1], s.dims[2], 1, s.dims[3]));
}

rn_value rn_import_attend(rn_import_call *c, rn_value q, rn_value k, rn_value v, float scale,
                          rn_value mask) {
    rn_import *m = c->import;
    form f = {.q = rn_import_shape_of(m, q), .k = rn_import_shape_of(m, k)};
    bool alike = f.q.rank == 4 && f.k.rank == 4 && rn_shape_equal(f.k, rn_import_shape_of(m, v)) &&
                 f.q.dims[0] == f.k.dims[0] && f.k.dims[1] != 0 && f.q.dims[1] % f.k.dims[1] == 0 &&
                 f.q.dims[3] == f.k.dims[3];
    bool f32 = rn_import_dtype_of(m, q) == RN_DTYPE_F32 &&
               rn_import_dtype_of(m, k) == RN_DTYPE_F32 && rn_import_dtype_of(m, v) == RN_DTYPE_F32;
    if (!alike || !f32 || !isfinite(scale) || scale == 0) return RN_NO_VALUE;
    bool can_be_apart = f.q.dims[0] != RN_ROWS && f.q.dims[1] == f.k.dims[1];
    f.apart = can_be_apart && was_moved(c, q) + was_moved(c, k) + was_moved(c, v) < 2;
    rn_value added = mask ? flat_mask(c, mask, &f) : RN_NO_VALUE;
    if (mask && !added && can_be_apart) { // a mask decides, too
        f.apart = !f.apart;
        added = flat_mask(c, mask, &f);
    }
    if (mask && !added) return RN_NO_VALUE;
    rn_value y = rn_op_attention(c->graph, formed(c, q, &f), formed(c, k, &f), formed(c, v, &f),
                                 added, (rn_attention_attrs){.scale = scale});
    if (f.apart) return rn_import_reshape(m, y, f.q);
    return rn_import_permute(m, y, heads_out);
}

// ---- written as parts ---------------------------------------------------------------------------

typedef struct scores {
    const rn_node *product; // of q and k
    float scale;
    rn_value mask;
} scores;

// Back from what the softmax reads to the product, over a mask that is added and numbers that are
// multiplied or divided by.
static bool follow_scores(rn_import_call *c, rn_value value, scores *out) {
    *out = (scores){.scale = 1};
    for (int steps = 0; steps < 4; steps++) {
        const rn_node *node = rn_import_maker(c, value, RN_OP_MATMUL), *other;
        if (node) out->product = node;
        if (node) return true;
        float number = 0;
        if ((node = rn_import_maker(c, value, RN_OP_DIV)) &&
            rn_import_known_number(c, node->inputs[1], &number)) {
            out->scale /= number;
            value = node->inputs[0];
        } else if ((other = rn_import_maker(c, value, RN_OP_MUL))) {
            bool second = rn_import_known_number(c, other->inputs[1], &number);
            if (!second && !rn_import_known_number(c, other->inputs[0], &number)) return false;
            out->scale *= number;
            value = other->inputs[second ? 0 : 1];
        } else if ((other = rn_import_maker(c, value, RN_OP_ADD)) && !out->mask &&
                   out->scale == 1) {
            rn_shape whole = rn_import_shape_of(c->import, value);
            bool first = rn_shape_equal(rn_import_shape_of(c->import, other->inputs[0]), whole);
            value = other->inputs[first ? 0 : 1];
            out->mask = other->inputs[first ? 1 : 0];
        } else {
            return false;
        }
    }
    return false;
}

// (G, rows, cols) as (G, 1, rows, cols).
static rn_value with_heads(rn_import_call *c, rn_value value) {
    rn_shape s = rn_import_shape_of(c->import, value);
    if (s.rank != 3) return value;
    return rn_import_reshape(c->import, value, RN_SHAPE(s.dims[0], 1, s.dims[1], s.dims[2]));
}

// A mask of as many axes has its own place for heads, then.
static rn_value mask_with_heads(rn_import_call *c, rn_value mask, uint32_t rank) {
    return mask && rank == 3 ? with_heads(c, mask) : mask;
}

rn_value rn_import_find_attention(rn_import_call *c, rn_value chances, rn_value v) {
    rn_import *m = c->import;
    const rn_node *soft = rn_import_maker(c, chances, RN_OP_SOFTMAX);
    rn_shape whole = rn_import_shape_of(m, chances);
    uint32_t rank = whole.rank;
    scores found;
    if (!soft || (rank != 3 && rank != 4) || !follow_scores(c, soft->inputs[0], &found))
        return RN_NO_VALUE;
    const rn_matmul_attrs *attrs = found.product->attrs;
    rn_value q = found.product->inputs[0], k = found.product->inputs[1];
    rn_shape sk = rn_import_shape_of(m, k);
    if ((attrs && attrs->transpose_x) || found.product->inputs[2] != RN_NO_VALUE ||
        rn_import_shape_of(m, q).rank != rank || sk.rank != rank ||
        rn_import_shape_of(m, v).rank != rank)
        return RN_NO_VALUE;
    k = with_heads(c, k);
    if (attrs && attrs->transpose_w)
        k = rn_import_permute(m, k, (const uint8_t[]){0, 1, 3, 2}); // (B, H, D, S) there
    rn_value y = rn_import_attend(c, with_heads(c, q), k, with_heads(c, v), found.scale,
                                  mask_with_heads(c, found.mask, rank));
    if (!y || rank == 4) return y;
    rn_shape s = rn_import_shape_of(m, y);
    return rn_import_reshape(m, y, RN_SHAPE(s.dims[0], s.dims[2], s.dims[3]));
}
