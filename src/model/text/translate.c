// translate.c — see translate.h: weights under their other names, and how their values lie there.
#include "model/text/translate.h"

#include "model/text/decoder.h"
#include "model/text/translate_experts.h"

#include <stdio.h>

enum { NAME_BYTES = 96 };

rn_status rn_text_translatable(const rn_text_config *config) {
    const rn_llama_config *l = &config->llama;
    if (l->architecture->model_class) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "models of architecture '%s' are not converted",
                           config->architecture),
                   "llama.cpp's convert_hf_to_gguf.py makes GGUF files of many architectures");
}

// ---- names --------------------------------------------------------------------------------------

// Blocks of rows or columns in another order.
typedef struct blocks {
    uint32_t *order; // (count)
    uint32_t count;
    uint32_t rows; // or columns of a block
} blocks;

static rn_status add_blocks(rn_arena *arena, uint32_t count, uint32_t rows, blocks *out) {
    void *order;
    RN_TRY(rn_arena_array(arena, count, sizeof *out->order, &order));
    *out = (blocks){order, count, rows};
    for (uint32_t i = 0; i < count; i++)
        out->order[i] = i;
    return RN_OK;
}

static rn_status invert(rn_arena *arena, blocks *b) {
    blocks inverse;
    RN_TRY(add_blocks(arena, b->count, b->rows, &inverse));
    for (uint32_t i = 0; i < b->count; i++)
        inverse.order[b->order[i]] = i;
    *b = inverse;
    return RN_OK;
}

// For each head of k its heads of q, itself and its v, as all of q, of k, of v.
static rn_status order_qkv(const rn_llama_config *c, rn_arena *arena, blocks *out) {
    uint32_t queries = c->heads / c->kv_heads, group = queries + 2;
    RN_TRY(add_blocks(arena, c->heads + 2 * c->kv_heads, c->head_dim, out));
    for (uint32_t i = 0; i < c->heads; i++)
        out->order[i] = i / queries * group + i % queries;
    for (uint32_t i = 0; i < c->kv_heads; i++) {
        out->order[c->heads + i] = i * group + queries;
        out->order[c->heads + c->kv_heads + i] = i * group + queries + 1;
    }
    return RN_OK;
}

// A gated delta net's value heads, in the order of their key heads, as dealt out to key heads in
// turn. `before`: as many elements are in front of them; `dims` of a head. Heads and what is before
// them are cut into blocks of the largest width that divides both.
static rn_status order_values(const rn_recurrent_config *r, uint32_t before, uint32_t dims,
                              rn_arena *arena, blocks *out) {
    uint32_t wide = dims, rest = before, of_key = r->value_heads / r->key_heads;
    while (rest) { // the greatest common divisor
        uint32_t left = wide % rest;
        wide = rest;
        rest = left;
    }
    uint32_t first = before / wide, of_head = dims / wide;
    RN_TRY(add_blocks(arena, first + r->value_heads * of_head, wide, out));
    for (uint32_t i = 0; i < r->value_heads; i++) {
        uint32_t from = i % r->key_heads * of_key + i / r->key_heads;
        for (uint32_t k = 0; k < of_head; k++)
            out->order[first + i * of_head + k] = first + from * of_head + k;
    }
    return RN_OK;
}

// Which heads of values a weight of a gated delta net is ordered by, if by any.
static rn_status order_mix(const rn_recurrent_config *r, rn_text_part_id p, rn_arena *arena,
                           blocks *out) {
    switch (p) {
    case RN_TEXT_MIX_IN:
    case RN_TEXT_CONV:
        return order_values(r, 2 * r->key_heads * r->key_dim, r->value_dim, arena, out);
    case RN_TEXT_Z:
    case RN_TEXT_MIX_OUT:
        return order_values(r, 0, r->value_dim, arena, out);
    case RN_TEXT_A:
    case RN_TEXT_A_BIAS:
    case RN_TEXT_A_RATE:
    case RN_TEXT_B:
        return order_values(r, 0, 1, arena, out);
    default:
        return RN_OK;
    }
}

// How a weight's blocks change places, if they do.
static rn_status order(const rn_llama_config *from, const rn_llama_config *to, rn_text_part_id p,
                       rn_arena *arena, rn_converted_tensor *out) {
    bool to_gguf = to->naming == RN_NAMES_GGUF;
    const rn_recurrent_config *r = &from->recurrent;
    blocks b = {0};
    if (p == RN_TEXT_QKV && from->architecture->grouped_qkv)
        RN_TRY(order_qkv(from, arena, &b));
    else if (r->value_heads != r->key_heads && r->keys_in_turn != to->recurrent.keys_in_turn)
        RN_TRY(order_mix(r, p, arena, &b));
    if (b.count == 0) return RN_OK;
    if (!to_gguf) RN_TRY(invert(arena, &b));
    out->arrangement = p == RN_TEXT_MIX_OUT ? RN_ARRANGE_COLUMNS : RN_ARRANGE_ROWS;
    out->head_rows = b.rows;
    out->order = b.order;
    return RN_OK;
}

// Taps of a convolution: (channels, 1, taps) in Hugging Face's files, (channels, taps) in GGUF's.
static rn_status reshape_taps(const rn_tensor_info *t, bool to_gguf, rn_arena *arena,
                              rn_converted_tensor *out) {
    uint64_t dims[] = {t->dims[0], to_gguf ? t->dims[t->rank - 1] : 1, t->dims[t->rank - 1]};
    void *copy;
    RN_TRY(rn_arena_copy(arena, dims, sizeof dims, &copy));
    out->dims = copy;
    out->rank = to_gguf ? 2 : 3;
    return RN_OK;
}

// Another shape of a shared expert's gate: (1, dim) in Hugging Face's files, (dim) in GGUF's.
static rn_status reshape_gate(const rn_tensor_info *t, bool to_gguf, rn_arena *arena,
                              rn_converted_tensor *out) {
    uint64_t dims[] = {to_gguf ? t->elements : 1, t->elements};
    void *copy;
    RN_TRY(rn_arena_copy(arena, dims, sizeof dims, &copy));
    out->dims = copy;
    out->rank = to_gguf ? 1 : 2;
    return RN_OK;
}

// How a weight's values lie in the other container.
static rn_status arrange(const rn_tensor_info *t, const rn_llama_config *from,
                         const rn_llama_config *to, rn_text_part_id p, bool is_bias,
                         rn_arena *arena, rn_converted_tensor *out) {
    const rn_text_part *part = &from->architecture->parts[p];
    bool to_gguf = to->naming == RN_NAMES_GGUF, turned = p == RN_TEXT_Q || p == RN_TEXT_K;
    bool is_norm = part->in == RN_SIZE_NONE && !is_bias && p < RN_TEXT_MIX_IN;
    if (is_norm) out->add = from->norm_offset - to->norm_offset;
    if (p == RN_TEXT_A_RATE) out->change = to_gguf ? RN_VALUES_NEG_EXP : RN_VALUES_LOG_NEG;
    if (p == RN_TEXT_POSITIONS && from->first_position > to->first_position)
        out->skip_rows = from->first_position - to->first_position;
    if (p == RN_TEXT_SHARED_ROUTER && !is_bias) RN_TRY(reshape_gate(t, to_gguf, arena, out));
    if (p == RN_TEXT_CONV && t->rank >= 2) RN_TRY(reshape_taps(t, to_gguf, arena, out));
    if (part->transposed && !is_bias) {
        out->arrangement = RN_ARRANGE_TRANSPOSED;
    } else if (turned && from->rope.pairing != to->rope.pairing) {
        bool neighbours = to->rope.pairing == RN_ROPE_NEIGHBOURS;
        out->arrangement = neighbours ? RN_ARRANGE_AS_NEIGHBOURS : RN_ARRANGE_AS_HALVES;
        out->head_rows = from->head_dim;
    }
    return order(from, to, p, arena, out);
}

// What follows a part's name. GGUF calls a router's bias of the choice so.
static const char *what_of(const rn_llama_config *c, rn_text_part_id p, bool is_bias) {
    if (p == RN_TEXT_ROUTER_BIAS && c->naming == RN_NAMES_GGUF) return "bias";
    if (c->architecture->parts[p].alone) return "";
    return is_bias ? "bias" : "weight";
}

// A model being translated.
typedef struct names {
    const rn_checkpoint *source, *model; // the latter with the forms of quantised weights
    const rn_llama_config *from, *to;
    rn_arena *arena;
    rn_converted_tensor *tensors; // (tensors of the source)
} names;

static rn_status translate(const names *n, rn_text_part_id p, uint32_t layer, bool is_bias) {
    char name[NAME_BYTES], other[NAME_BYTES];
    void *copy;
    rn_text_weight_name(n->from, p, layer, what_of(n->from, p, is_bias), name, sizeof name);
    rn_text_weight_name(n->to, p, layer, what_of(n->to, p, is_bias), other, sizeof other);
    const rn_tensor_info *t = rn_checkpoint_find(n->source, name);
    const rn_weight_form *form = rn_checkpoint_form(n->model, name);
    if (form)
        t = rn_checkpoint_tensor(n->source,
                                 (size_t)(form->data - rn_checkpoint_tensor(n->model, 0)));
    if (!t) return RN_OK;
    rn_converted_tensor *tensor = &n->tensors[t - rn_checkpoint_tensor(n->source, 0)];
    RN_TRY(rn_arena_copy(n->arena, other, strlen(other), &copy));
    *tensor = (rn_converted_tensor){.name = {copy, strlen(other)}, .form = form};
    return arrange(t, n->from, n->to, p, is_bias, n->arena, tensor);
}

// The model was opened, so every weight is there: whole, as a form, or as the parts of a quantised
// one.
static rn_status check_whole(const names *n) {
    static const char *const parts[] = {"*._data", "*.absmax", "*._scale"};
    for (size_t i = 0; i < rn_checkpoint_count(n->source); i++) {
        rn_str name = rn_checkpoint_tensor(n->source, i)->name;
        for (size_t k = 0; n->tensors[i].name.bytes == 0 && k < sizeof parts / sizeof *parts; k++)
            if (rn_str_matches(name, rn_str_from(parts[k])))
                return rn_hint(rn_fail(RN_UNSUPPORTED,
                                       "the input is quantised already: it has "
                                       "'%.*s'",
                                       RN_STR_ARG(name)),
                               "convert from the original weights");
    }
    return RN_OK;
}

// A tied head is double. Of models with one norm for both branches or with one for each, GGUF calls
// two different ones alike.
static bool is_left_out(const rn_llama_config *c, rn_text_part_id p) {
    bool shares = c->architecture->parts[RN_TEXT_SHARED_NORM].hugging_face && !c->two_norms;
    if (p == RN_TEXT_SHARED_NORM) return !shares;
    if (p == RN_TEXT_ATTENTION_NORM || p == RN_TEXT_FFN_NORM) return shares;
    return p == RN_TEXT_HEAD && c->tied;
}

rn_status rn_text_translate_names(const rn_checkpoint *source, const rn_checkpoint *model,
                                  const rn_llama_config *from, const rn_llama_config *to,
                                  bool packed, rn_arena *arena, rn_translation *out) {
    void *block;
    RN_TRY(rn_arena_array(arena, rn_checkpoint_count(source), sizeof *out->tensors, &block));
    names n = {source, model, from, to, arena, block};
    for (rn_text_part_id p = 0; p < RN_TEXT_PARTS; p++) {
        const rn_text_part *part = &from->architecture->parts[p];
        uint32_t layers = p < RN_TEXT_IN_LAYER ? 1 : from->layers;
        bool apart = p == RN_TEXT_DENSE_IN || p == RN_TEXT_DENSE_OUT;
        if (!part->hugging_face || !part->gguf || is_left_out(from, p)) continue;
        if ((apart && to->naming != RN_NAMES_GGUF) || rn_text_is_assembled(from, to, p)) continue;
        for (uint32_t layer = 0; layer < layers; layer++)
            for (int bias = 0; bias < 2; bias++)
                RN_TRY(translate(&n, p, layer, bias));
    }
    RN_TRY(check_whole(&n));
    out->tensors = n.tensors;
    return rn_text_assemble(source, model, from, to, packed, arena, n.tensors, &out->assembled,
                            &out->assembled_count);
}

// "blk.7.ffn_down_exps.weight", "blk.7.ffn_down.3.weight"; not its biases and scales.
static bool is_of_experts(rn_str name) {
    static const char *const patterns[] = {"blk.*.ffn_*_exps.weight", "blk.*.ffn_gate.*.weight",
                                           "blk.*.ffn_up.*.weight", "blk.*.ffn_down.*.weight",
                                           "blk.*.ffn_gate_up.*.weight"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (rn_str_matches(name, rn_str_from(patterns[i]))) return true;
    return false;
}

rn_status rn_text_repack(const rn_checkpoint *source, const rn_llama_config *config, bool packed,
                         rn_arena *arena, rn_translation *out) {
    void *block;
    size_t count = rn_checkpoint_count(source), pairs = rn_checkpoint_metadata_count(source);
    RN_TRY(rn_arena_array(arena, count, sizeof *out->tensors, &block));
    rn_converted_tensor *tensors = block;
    for (size_t i = 0; i < count; i++) {
        rn_str name = rn_checkpoint_tensor(source, i)->name;
        tensors[i] = (rn_converted_tensor){.name = name};
        if (is_of_experts(name)) tensors[i].name = (rn_str){0};
    }
    out->tensors = tensors;
    out->metadata = pairs ? rn_checkpoint_metadata(source, 0) : NULL;
    out->metadata_count = pairs;
    return rn_text_assemble(source, source, config, config, packed, arena, tensors, &out->assembled,
                            &out->assembled_count);
}
