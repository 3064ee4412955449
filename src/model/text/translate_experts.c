// translate_experts.c — see translate.h: tensors that are not one tensor in the other container.
//
//     experts, Hugging Face            GGUF
//     experts.I.gate_proj ...          ffn_gate_exps, ffn_up_exps, ffn_down_exps (or
//     experts.gate_up_proj, ...        ffn_gate_up_exps), where the architecture's files have it so
//     gate_up_proj_blocks, _scales     the same, of mxfp4; gate and up are its rows in turn
//
// Whichever form the source has, an expert's matrix is a run of rows of some tensor (gpt-oss: every
// other one), and each output is a list of such runs. So are the keys and values of latent
// attention, which lie head by head in one tensor or, keys transposed, in two.
#include "model/text/translate_experts.h"

#include "graph/weight_rows.h"
#include "model/text/decoder.h"

#include <stdio.h>

enum { NAME_BYTES = 128 };

typedef struct assembly {
    const rn_checkpoint *source;
    const rn_checkpoint *model; // the same files, with the forms of quantised weights
    const rn_llama_config *from, *to;
    rn_arena *arena;
    rn_assembled_tensor *items; // (capacity)
    size_t count, capacity;
    uint32_t layer;
    bool packed; // the output has a record an expert
} assembly;

static bool is_gguf(const rn_llama_config *c) {
    return c->naming == RN_NAMES_GGUF;
}

// What follows the name of a part with all experts.
static const char *suffix_of(const rn_llama_config *c, rn_text_part_id p) {
    return c->architecture->parts[p].alone && !is_gguf(c) ? "" : "weight";
}

// ---- where rows are -----------------------------------------------------------------------------

// The source's tensor, or its form, of that name. *out->count is what is asked for by the caller.
static bool find(const assembly *a, const char *name, rn_converted_rows *out) {
    const rn_tensor_info *t = rn_checkpoint_find(a->source, name);
    const rn_weight_form *form = rn_checkpoint_form(a->model, name);
    *out = (rn_converted_rows){.step = 1};
    if (form) {
        out->form = form;
        out->checkpoint = a->model;
        t = rn_checkpoint_tensor(a->source,
                                 (size_t)(form->data - rn_checkpoint_tensor(a->model, 0)));
    }
    if (!t) return false;
    out->tensor = (size_t)(t - rn_checkpoint_tensor(a->source, 0));
    return true;
}

static bool find_part(const assembly *a, rn_text_part_id p, const char *what,
                      rn_converted_rows *out) {
    const rn_text_part *part = &a->from->architecture->parts[p];
    char name[NAME_BYTES];
    if (!(is_gguf(a->from) ? part->gguf : part->hugging_face)) return false;
    rn_text_weight_name(a->from, p, a->layer, what, name, sizeof name);
    return find(a, name, out);
}

// The same of a file with an expert a record: one expert's matrix of the stack `p`.
static bool find_record(const assembly *a, rn_text_part_id p, uint32_t expert,
                        rn_converted_rows *out) {
    const rn_text_part *part = &a->from->architecture->parts[p];
    char name[NAME_BYTES], packed[NAME_BYTES], own[NAME_BYTES];
    if (!is_gguf(a->from) || !part->gguf) return false;
    rn_text_weight_name(a->from, p, a->layer, "weight", name, sizeof name);
    return rn_text_packed_name(name, packed, sizeof packed) &&
           rn_expert_tensor(packed, expert, own, sizeof own) && find(a, own, out);
}

// The matrix `p` (gate, up or down) of one expert, whichever form the source has.
static rn_status find_expert(const assembly *a, rn_text_part_id p, uint32_t expert,
                             rn_converted_rows *out) {
    const rn_llama_config *c = a->from;
    const rn_moe_config *m = &c->moe;
    char name[NAME_BYTES], own[NAME_BYTES];
    uint64_t rows = p == RN_TEXT_EXPERT_DOWN ? c->dim : m->ffn;
    bool is_up = p == RN_TEXT_EXPERT_UP;
    rn_text_part_id fused =
        p == RN_TEXT_EXPERT_DOWN ? RN_TEXT_EXPERTS_DOWN : RN_TEXT_EXPERTS_GATE_UP;
    if (find_record(a, p, expert, out)) {
        out->count = rows;
        return RN_OK;
    }
    if (find_record(a, fused, expert, out)) {
        out->first = is_up * rows;
        out->count = rows;
        return RN_OK;
    }
    if (find_part(a, fused, suffix_of(c, fused), out)) {
        bool both = fused == RN_TEXT_EXPERTS_GATE_UP, in_turn = c->architecture->experts_in_turn;
        out->first = expert * (both ? 2 : 1) * rows + (in_turn ? is_up : is_up * rows);
        out->step = both && in_turn ? 2 : 1;
        out->count = rows;
        return RN_OK;
    }
    name[0] = '\0';
    if (is_gguf(c) ? c->architecture->parts[p].gguf : c->architecture->parts[p].hugging_face)
        rn_text_weight_name(c, p, a->layer, "weight", name, sizeof name);
    bool own_tensor = strchr(name, '*') != NULL;
    if (!rn_expert_tensor(name, expert, own, sizeof own) || !find(a, own, out))
        return rn_fail(RN_NOT_FOUND, "layer %u has no '%s' of expert %u", a->layer, name, expert);
    out->first = own_tensor ? 0 : expert * rows;
    out->count = rows;
    return RN_OK;
}

// ---- what is made of them -----------------------------------------------------------------------

static rn_status add(assembly *a, const char *name, const uint64_t *dims, uint32_t rank,
                     const rn_converted_rows *rows, size_t count, rn_assembled_tensor **out) {
    void *text, *shape;
    if (a->count == a->capacity)
        return rn_fail(RN_INTERNAL, "there are more tensors of experts than were counted");
    RN_TRY(rn_arena_copy(a->arena, name, strlen(name), &text));
    RN_TRY(rn_arena_copy(a->arena, dims, rank * sizeof *dims, &shape));
    *out = &a->items[a->count++];
    **out = (rn_assembled_tensor){.name = {text, strlen(name)},
                                  .dims = shape,
                                  .rank = rank,
                                  .rows = rows,
                                  .count = count,
                                  .in_turn = 1};
    return RN_OK;
}

static rn_status new_rows(assembly *a, size_t count, rn_converted_rows **out) {
    void *block;
    RN_TRY(rn_arena_array(a->arena, count, sizeof **out, &block));
    *out = block;
    return RN_OK;
}

// Runs that lie one behind the other are one.
static size_t join(rn_converted_rows *rows, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        rn_converted_rows *last = kept ? &rows[kept - 1] : NULL;
        bool joins = last && last->tensor == rows[i].tensor && last->form == rows[i].form &&
                     last->step == 1 && rows[i].step == 1 && !last->transposed &&
                     last->first + last->count == rows[i].first;
        if (joins)
            last->count += rows[i].count;
        else
            rows[kept++] = rows[i];
    }
    return kept;
}

// All experts of parts p (gate and up: expert by expert) as one tensor.
static rn_status add_stack(assembly *a, rn_text_part_id name_of, const rn_text_part_id *p,
                           size_t parts) {
    const rn_moe_config *m = &a->from->moe;
    bool down = p[0] == RN_TEXT_EXPERT_DOWN;
    uint64_t dims[] = {m->experts, (down ? a->from->dim : m->ffn) * parts,
                       down ? m->ffn : a->from->dim};
    char name[NAME_BYTES];
    rn_converted_rows *rows;
    rn_assembled_tensor *item;
    RN_TRY(new_rows(a, m->experts * parts, &rows));
    for (uint32_t e = 0; e < m->experts; e++)
        for (size_t i = 0; i < parts; i++)
            RN_TRY(find_expert(a, p[i], e, &rows[e * parts + i]));
    rn_text_weight_name(a->to, name_of, a->layer, suffix_of(a->to, name_of), name, sizeof name);
    return add(a, name, dims, 3, rows, join(rows, m->experts * parts), &item);
}

static rn_status add_one_by_one(assembly *a, rn_text_part_id p) {
    const rn_moe_config *m = &a->from->moe;
    bool down = p == RN_TEXT_EXPERT_DOWN;
    uint64_t dims[] = {down ? a->from->dim : m->ffn, down ? m->ffn : a->from->dim};
    char name[NAME_BYTES], own[NAME_BYTES];
    rn_text_weight_name(a->to, p, a->layer, "weight", name, sizeof name);
    for (uint32_t e = 0; e < m->experts; e++) {
        rn_converted_rows *rows;
        rn_assembled_tensor *item;
        RN_TRY(new_rows(a, 1, &rows));
        RN_TRY(find_expert(a, p, e, rows));
        if (!rn_expert_tensor(name, e, own, sizeof own))
            return rn_fail(RN_UNSUPPORTED, "the name '%s' is too long", name);
        RN_TRY(add(a, own, dims, 2, rows, 1, &item));
    }
    return RN_OK;
}

static const rn_text_part_id gate_up[] = {RN_TEXT_EXPERT_GATE, RN_TEXT_EXPERT_UP};
static const rn_text_part_id down_alone[] = {RN_TEXT_EXPERT_DOWN};

// ---- gpt-oss ------------------------------------------------------------------------------------

// Vectors of all experts: as Hugging Face has them, in turn; as GGUF has them, apart.
static rn_status add_bias_to_gguf(assembly *a, rn_text_part_id p, uint64_t first, uint64_t step,
                                  rn_text_part_id of) {
    const rn_moe_config *m = &a->from->moe;
    uint64_t width = of == RN_TEXT_EXPERTS_DOWN_BIAS ? a->from->dim : m->ffn;
    uint64_t dims[] = {m->experts, width};
    char name[NAME_BYTES];
    rn_converted_rows *rows;
    rn_assembled_tensor *item;
    RN_TRY(new_rows(a, 1, &rows));
    if (!find_part(a, of, "", rows))
        return rn_fail(RN_NOT_FOUND, "layer %u has no biases of experts", a->layer);
    rows->of_one = true;
    rows->first = first;
    rows->step = step;
    rows->count = m->experts * width;
    rn_text_weight_name(a->to, p, a->layer, "bias", name, sizeof name);
    return add(a, name, dims, 2, rows, 1, &item);
}

static rn_status add_biases_to_gguf(assembly *a) {
    RN_TRY(add_bias_to_gguf(a, RN_TEXT_EXPERT_GATE, 0, 2, RN_TEXT_EXPERTS_GATE_UP_BIAS));
    RN_TRY(add_bias_to_gguf(a, RN_TEXT_EXPERT_UP, 1, 2, RN_TEXT_EXPERTS_GATE_UP_BIAS));
    return add_bias_to_gguf(a, RN_TEXT_EXPERT_DOWN, 0, 1, RN_TEXT_EXPERTS_DOWN_BIAS);
}

// gate and up, or down, of all experts as rows in turn: a weight's codes, its exponents, or biases.
static rn_status add_in_turn(assembly *a, rn_text_part_id name_of, const rn_text_part_id *p,
                             uint32_t parts, rn_row_part part) {
    static const char *const ends[] = {"", "_blocks", "_scales"};
    const rn_moe_config *m = &a->from->moe;
    bool down = p[0] == RN_TEXT_EXPERT_DOWN, bias = part == RN_ROWS_WHOLE;
    uint64_t width = down ? a->from->dim : m->ffn, columns = down ? m->ffn : a->from->dim;
    uint64_t dims[] = {m->experts, width * parts, columns / 32, 16};
    char name[NAME_BYTES], whole[NAME_BYTES];
    rn_converted_rows *rows;
    rn_assembled_tensor *item;
    RN_TRY(new_rows(a, parts, &rows));
    for (uint32_t i = 0; i < parts; i++) {
        if (!find_part(a, p[i], bias ? "bias" : "weight", &rows[i]))
            return rn_fail(RN_NOT_FOUND, "layer %u lacks weights of its experts", a->layer);
        if (!bias && rn_checkpoint_tensor(a->source, rows[i].tensor)->dtype != RN_DTYPE_MXFP4)
            return rn_hint(
                rn_fail(RN_UNSUPPORTED, "a folder of gpt-oss has experts of mxfp4, not of %s",
                        rn_dtype_get(rn_checkpoint_tensor(a->source, rows[i].tensor)->dtype)->name),
                "convert from the original weights");
        rows[i].count = m->experts * width;
        rows[i].of_one = bias;
    }
    rn_text_weight_name(a->to, name_of, a->layer, "", name, sizeof name);
    snprintf(whole, sizeof whole, "%s%s", name, ends[part]);
    uint32_t rank = bias ? 2 : part == RN_ROWS_CODES ? 4 : 3;
    RN_TRY(add(a, whole, dims, rank, rows, parts, &item));
    item->in_turn = parts;
    item->part = part;
    return RN_OK;
}

static rn_status add_blocks(assembly *a) {
    for (rn_row_part part = RN_ROWS_CODES; part <= RN_ROWS_EXPONENTS; part++) {
        RN_TRY(add_in_turn(a, RN_TEXT_EXPERTS_GATE_UP, gate_up, 2, part));
        RN_TRY(add_in_turn(a, RN_TEXT_EXPERTS_DOWN, down_alone, 1, part));
    }
    RN_TRY(add_in_turn(a, RN_TEXT_EXPERTS_GATE_UP_BIAS, gate_up, 2, RN_ROWS_WHOLE));
    return add_in_turn(a, RN_TEXT_EXPERTS_DOWN_BIAS, down_alone, 1, RN_ROWS_WHOLE);
}

// ---- records ------------------------------------------------------------------------------------

// An expert's matrices side by side, each a tensor of its own.
static rn_status add_records(assembly *a) {
    const rn_moe_config *m = &a->from->moe;
    bool fused = a->to->architecture->gguf_gate_up;
    for (uint32_t e = 0; e < m->experts; e++)
        for (rn_text_part_id p = RN_TEXT_EXPERT_GATE; p <= RN_TEXT_EXPERT_DOWN; p++) {
            bool both = fused && p == RN_TEXT_EXPERT_GATE, down = p == RN_TEXT_EXPERT_DOWN;
            uint64_t dims[] = {down   ? a->from->dim
                               : both ? 2 * (uint64_t)m->ffn
                                      : m->ffn,
                               down ? m->ffn : a->from->dim};
            char name[NAME_BYTES], packed[NAME_BYTES], own[NAME_BYTES];
            rn_converted_rows *rows;
            rn_assembled_tensor *item;
            if (fused && p == RN_TEXT_EXPERT_UP) continue;
            RN_TRY(new_rows(a, 2, &rows));
            RN_TRY(find_expert(a, p, e, &rows[0]));
            if (both) RN_TRY(find_expert(a, RN_TEXT_EXPERT_UP, e, &rows[1]));
            rn_text_weight_name(a->to, both ? RN_TEXT_EXPERTS_GATE_UP : p, a->layer, "weight", name,
                                sizeof name);
            if (!rn_text_packed_name(name, packed, sizeof packed) ||
                !rn_expert_tensor(packed, e, own, sizeof own))
                return rn_fail(RN_UNSUPPORTED, "the name '%s' is too long", name);
            RN_TRY(add(a, own, dims, 2, rows, both ? join(rows, 2) : 1, &item));
            item->is_record = true;
        }
    return RN_OK;
}

// ---- a layer ------------------------------------------------------------------------------------

static rn_status add_experts(assembly *a) {
    const rn_text_architecture *arch = a->to->architecture;
    bool fused = is_gguf(a->to) ? arch->gguf_gate_up : arch->json_gate_up;
    bool apart = arch->experts_in_turn && !is_gguf(a->from); // biases
    if (a->packed) {
        RN_TRY(add_records(a));
        return apart ? add_biases_to_gguf(a) : RN_OK;
    }
    if (!is_gguf(a->to) && arch->experts_in_turn) return add_blocks(a);
    if (fused) {
        RN_TRY(add_stack(a, RN_TEXT_EXPERTS_GATE_UP, gate_up, 2));
        return add_stack(a, is_gguf(a->to) ? RN_TEXT_EXPERT_DOWN : RN_TEXT_EXPERTS_DOWN, down_alone,
                         1);
    }
    for (rn_text_part_id p = RN_TEXT_EXPERT_GATE; p <= RN_TEXT_EXPERT_DOWN; p++)
        RN_TRY(is_gguf(a->to) ? add_stack(a, p, &p, 1) : add_one_by_one(a, p));
    return apart ? add_biases_to_gguf(a) : RN_OK;
}

// Keys and values of all heads: apart in GGUF, keys transposed; head by head in one otherwise.
static rn_status add_latent(assembly *a) {
    const rn_llama_config *c = a->from;
    const rn_latent_config *l = &c->latent;
    uint64_t k_dims[] = {c->heads, l->kv_rank, l->still},
             v_dims[] = {c->heads, l->value, l->kv_rank};
    uint64_t dims[] = {(uint64_t)c->heads * (l->still + l->value), l->kv_rank};
    bool split = is_gguf(a->to);
    rn_converted_rows *k, *v, keys, values;
    rn_assembled_tensor *item;
    char name[NAME_BYTES];
    bool found = split ? find_part(a, RN_TEXT_KV_B, "weight", &keys)
                       : find_part(a, RN_TEXT_K_B, "weight", &keys) &&
                             find_part(a, RN_TEXT_V_B, "weight", &values);
    if (!found) return RN_OK; // an older file: it has both in one
    if (split) values = keys;
    RN_TRY(new_rows(a, 2 * (size_t)c->heads, &k));
    v = k + (split ? c->heads : 1);
    for (uint32_t h = 0; h < c->heads; h++) {
        uint64_t head = (uint64_t)h * (l->still + l->value);
        rn_converted_rows *to_k = &k[split ? h : 2 * h], *to_v = &v[split ? h : 2 * h];
        *to_k = keys;
        *to_v = values;
        to_k->transposed = true;
        to_k->first = split ? head : (uint64_t)h * l->kv_rank;
        to_k->count = split ? l->still : l->kv_rank;
        to_v->first = split ? head + l->still : (uint64_t)h * l->value;
        to_v->count = l->value;
    }
    rn_text_weight_name(a->to, split ? RN_TEXT_K_B : RN_TEXT_KV_B, a->layer, "weight", name,
                        sizeof name);
    if (!split) return add(a, name, dims, 2, k, 2 * (size_t)c->heads, &item);
    RN_TRY(add(a, name, k_dims, 3, k, c->heads, &item));
    rn_text_weight_name(a->to, RN_TEXT_V_B, a->layer, "weight", name, sizeof name);
    return add(a, name, v_dims, 3, v, c->heads, &item);
}

bool rn_text_is_assembled(const rn_llama_config *from, const rn_llama_config *to,
                          rn_text_part_id p) {
    bool experts = p >= RN_TEXT_EXPERT_GATE && p <= RN_TEXT_EXPERTS_DOWN_BIAS;
    return (experts && from->moe.experts) || (p == RN_TEXT_KV_B && is_gguf(to));
}

// ---- quantised weights --------------------------------------------------------------------------

// Its rows as runs in the order that they have in the other container.
static rn_status order_rows(assembly *a, const rn_converted_tensor *as, rn_converted_rows whole,
                            const rn_converted_rows **out, size_t *out_count, uint32_t *in_turn) {
    uint64_t rows = as->form->rows, block = as->head_rows;
    bool pairs = as->arrangement == RN_ARRANGE_AS_NEIGHBOURS;
    bool moved = as->arrangement != RN_ARRANGED;
    if (pairs) block /= 2;
    uint64_t count = moved && block ? rows / block : 1;
    rn_converted_rows *runs;
    *in_turn = pairs ? 2 : 1;
    RN_TRY(new_rows(a, (size_t)count, &runs));
    for (uint64_t i = 0; i < count; i++) {
        runs[i] = whole;
        runs[i].count = rows / count;
        runs[i].first = (as->order ? as->order[i] : i) * runs[i].count;
    }
    *out = runs;
    *out_count = (size_t)count;
    return RN_OK;
}

static rn_status add_form(assembly *a, rn_converted_tensor *as, size_t index) {
    const rn_weight_form *form = as->form;
    bool rows_move = as->arrangement == RN_ARRANGED || as->arrangement == RN_ARRANGE_ROWS ||
                     as->arrangement == RN_ARRANGE_AS_NEIGHBOURS;
    bool in_parts = form->dtype == RN_DTYPE_INT8 || form->dtype == RN_DTYPE_INT4;
    uint64_t dims[] = {form->rows, form->cols};
    rn_converted_rows whole = {.tensor = index, .checkpoint = a->model, .form = form, .step = 1};
    const rn_converted_rows *rows;
    rn_assembled_tensor *item;
    size_t count;
    uint32_t in_turn;
    char name[NAME_BYTES];
    if (!rows_move || in_parts || as->add != 0 || as->change != RN_VALUES_KEPT || as->skip_rows)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the input is quantised already: it has '%.*s'",
                               RN_STR_ARG(form->data->name)),
                       "convert from the original weights");
    RN_TRY(order_rows(a, as, whole, &rows, &count, &in_turn));
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(as->name));
    RN_TRY(add(a, name, dims, 2, rows, count, &item));
    item->in_turn = in_turn;
    as->name = (rn_str){0};
    return RN_OK;
}

// ---- all ----------------------------------------------------------------------------------------

static size_t count_most(const assembly *a, const rn_converted_tensor *tensors) {
    enum { MOST_OF_LAYER = 8, MATRICES = 3 };
    bool one_by_one = a->packed || (!is_gguf(a->to) && !a->to->architecture->json_gate_up);
    size_t experts = one_by_one ? MATRICES * (size_t)a->from->moe.experts : 0, forms = 0;
    for (size_t i = 0; i < rn_checkpoint_count(a->source); i++)
        forms += tensors[i].form != NULL;
    return forms + a->from->layers * (MOST_OF_LAYER + experts);
}

rn_status rn_text_assemble(const rn_checkpoint *source, const rn_checkpoint *model,
                           const rn_llama_config *from, const rn_llama_config *to, bool packed,
                           rn_arena *arena, rn_converted_tensor *tensors,
                           const rn_assembled_tensor **out, size_t *out_count) {
    assembly a = {
        .source = source, .model = model, .from = from, .to = to, .arena = arena, .packed = packed};
    void *block;
    a.capacity = count_most(&a, tensors);
    RN_TRY(rn_arena_array(arena, a.capacity, sizeof *a.items, &block));
    a.items = block;
    for (size_t i = 0; i < rn_checkpoint_count(source); i++)
        if (tensors[i].form) RN_TRY(add_form(&a, &tensors[i], i));
    for (; a.layer < from->layers; a.layer++) {
        if (from->latent.kv_rank && from->naming != to->naming) RN_TRY(add_latent(&a));
        if (from->moe.experts && a.layer >= from->moe.dense_layers) RN_TRY(add_experts(&a));
    }
    *out = a.items;
    *out_count = a.count;
    return RN_OK;
}
