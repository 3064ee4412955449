// convert_plan.c — the decisions of a conversion: which tensors change, into what, under which
// names.
#include "io/convert_plan.h"
#include "io/gguf.h"
#include "io/weight_forms.h"

#include "base/buffer.h"
#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"
#include "memory/sort.h"
#include "tensor/ggml_encode.h"
#include "tensor/quant.h"

#include <stdio.h>

static const char *const default_excludes[] = {
    "*embed*", "*embd*", "*wte*", "*wpe*", "*norm*", "*ln_*", "*.ln*",
};
static const char *const routers[] = {
    "*.ffn_gate_inp.*", "*_gate_inp_shexp.*", "*.mlp.gate.weight",      "*.block_sparse_moe.gate.*",
    "*.mlp.router.*",   "*.router.proj.*",    "*.shared_expert_gate.*",
};

// ggml's blocks that ration writes.
static bool is_ggml_block(rn_dtype dtype) {
    return dtype == RN_DTYPE_Q8_0 || rn_ggml_encoder_of(dtype) != NULL;
}

static bool is_quantised(rn_dtype dtype) {
    return dtype == RN_DTYPE_INT8 || dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 ||
           dtype == RN_DTYPE_NF4_DQ || is_ggml_block(dtype);
}

// ---- may it be done at all ------------------------------------------------------------

static rn_status check_pair(rn_dtype to, bool to_gguf) {
    const rn_dtype_info *info = rn_dtype_get(to);
    bool plain = info->is_float && info->block_elements == 1 && to != RN_DTYPE_F8_E8M0;
    if (to == RN_DTYPE_NONE || (plain && (!to_gguf || info->ggml >= 0))) return RN_OK;
    if (is_quantised(to) && is_ggml_block(to) == to_gguf) return RN_OK;
    if (!plain && !is_quantised(to))
        return rn_hint(
            rn_fail(RN_UNSUPPORTED, "ration does not convert to %s", info->name),
            "choose f32, f16, bf16, f8_e4m3, f8_e5m2, int8, int4, nf4, nf4_dq, q8_0, q4_0 or one "
            "of llama.cpp's file types, q2_k to q6_k, q4_1, q5_0, q5_1, iq4_nl, iq4_xs");
    rn_status s = rn_fail(RN_UNSUPPORTED, "%s does not go into a %s file", info->name,
                          to_gguf ? "GGUF" : "safetensors");
    return rn_hint(s, to_gguf ? "GGUF holds f32, f16, bf16 and ggml's blocks"
                              : "safetensors holds plain types, int8, int4, nf4 and nf4_dq");
}

// Quantising what is quantised already would square the loss, and its parts would look like
// weights.
static rn_status check_source(const rn_checkpoint *source, rn_dtype to) {
    static const rn_str suffixes[] = {{"._data", 6}, {".absmax", 7}, {".quant_map", 10}};
    for (size_t i = 0; to != RN_DTYPE_NONE && i < rn_checkpoint_count(source); i++) {
        rn_str name = rn_checkpoint_tensor(source, i)->name;
        for (size_t k = 0; k < 3; k++)
            if (rn_str_ends(name, suffixes[k]))
                return rn_hint(rn_fail(RN_UNSUPPORTED,
                                       "the input is quantised already: it has '%.*s'",
                                       RN_STR_ARG(name)),
                               "convert from the original weights");
    }
    return RN_OK;
}

static bool has_architecture(const rn_metadata *metadata, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (rn_str_equal(metadata[i].key, RN_STR("general.architecture"))) return true;
    return false;
}

// ---- one tensor -----------------------------------------------------------------------

static bool matches_any(rn_str name, const char *const *patterns, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (rn_str_matches(name, rn_str_from(patterns[i]))) return true;
    return false;
}

static bool is_named(const rn_convert_item *item, const char *const *patterns, size_t count) {
    return matches_any(item->source->name, patterns, count) ||
           matches_any(item->name, patterns, count);
}

// Why quantising leaves this tensor alone, or NULL. `to` says the container: only GGUF has ggml's.
static const char *exemption(const rn_convert_item *item, rn_dtype to,
                             const rn_convert_options *options) {
    const rn_tensor_info *t = item->source;
    size_t defaults = sizeof default_excludes / sizeof *default_excludes;
    uint64_t row = item->rank ? item->dims[item->rank - 1] : 1;
    uint64_t columns = item->rank && item->dims[0] ? t->elements / item->dims[0] : 0;
    if (t->elements == 0) return "empty";
    if (item->rank < 2) return "not a matrix";
    if (item->assembled && item->assembled->part != RN_ROWS_WHOLE) return "a part of mxfp4";
    // Blocks that the container has stay where the new ones would not be smaller. Where it lacks
    // them there is nothing to spare an embedding for: as f32 it would be several times as large.
    bool blocks = rn_dtype_get(t->dtype)->block_elements > 1;
    bool kept = rn_dtype_get(to)->ggml >= 0;
    uint64_t bytes;
    bool has_blocks = blocks && kept && rn_dtype_get(t->dtype)->ggml >= 0;
    if (has_blocks && rn_dtype_bytes(to, t->elements, &bytes) && t->bytes <= bytes)
        return "as small already";
    if (!options->no_default_excludes && (!blocks || kept) &&
        is_named(item, default_excludes, defaults))
        return "embedding or norm";
    if (!options->no_default_excludes && (!blocks || kept) &&
        is_named(item, routers, sizeof routers / sizeof *routers))
        return "router";
    uint64_t block = rn_dtype_get(to)->block_elements;
    if (kept && row % block)
        return block == 32 ? "rows are not multiples of 32" : "rows are not multiples of 256";
    if (item->assembled && rn_dtype_get(to)->block_elements == 1 && is_quantised(to))
        return "it is made of several tensors";
    if (to == RN_DTYPE_INT8 && columns > RN_CONVERT_MAX_UNIT) return "rows are too long";
    uint64_t group = rn_quant_int4_group(columns);
    if (to == RN_DTYPE_INT4 && group > RN_CONVERT_MAX_UNIT) return "rows are too long";
    bool nf4 = to == RN_DTYPE_NF4 || to == RN_DTYPE_NF4_DQ;
    if (item->region && (to == RN_DTYPE_INT4 || (nf4 && item->region % 64)))
        return "its rows change places";
    // int4 is read in two halves; the second must begin where a block of the source begins.
    uint64_t half = rn_div_up(t->elements / group, 2) * group;
    if (to == RN_DTYPE_INT4 && half % rn_dtype_get(t->dtype)->block_elements)
        return "its halves are not whole blocks";
    return NULL;
}

// A type for a tensor that stays as it is: its own, or where the container lacks that, one that
// holds its values.
static rn_status keep_dtype(const rn_tensor_info *t, bool to_gguf, rn_dtype *out) {
    const rn_dtype_info *info = rn_dtype_get(t->dtype);
    *out = t->dtype;
    if (to_gguf ? info->ggml >= 0 : info->safetensors != NULL) return RN_OK;
    *out =
        t->dtype == RN_DTYPE_F8_E4M3 || t->dtype == RN_DTYPE_F8_E5M2 ? RN_DTYPE_F16 : RN_DTYPE_F32;
    bool holds_values = info->readable && (info->is_float || info->block_elements > 1);
    if (holds_values) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': %s has no place in a %s file",
                   RN_STR_ARG(t->name), info->name, to_gguf ? "GGUF" : "safetensors");
}

// llama.cpp computes with norms, biases, taps of convolutions and the like in f32, and stops at
// others.
static bool is_f32_in_gguf(const rn_convert_item *item) {
    static const char *const names[] = {
        "*norm.weight",       "*.ssm_conv1d.weight",   "*.shortconv.conv.weight",
        "token_types.weight", "*.ffn_gate_inp.weight", "*.ffn_*_exps.bias"};
    return item->rank < 2 || matches_any(item->name, names, sizeof names / sizeof *names);
}

static bool is_narrow(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    return info->is_float && info->block_elements == 1 && info->block_bytes < 4;
}

// Which dtype a tensor gets, and why it stays if it does. `mixed`: the file type's choice.
static rn_status decide(rn_convert_item *item, const rn_convert_options *options, bool to_gguf,
                        const rn_dtype *mixed) {
    const rn_tensor_info *t = item->source;
    const rn_dtype_info *info = rn_dtype_get(t->dtype);
    bool has_floats = info->is_float || info->block_elements > 1;
    item->to = mixed ? *mixed : options->to;
    if (!mixed && options->to == RN_DTYPE_NONE)
        item->left_alone = "";
    else if (!has_floats)
        item->left_alone = "integers";
    else if (is_named(item, options->exclude, options->exclude_count))
        item->left_alone = "excluded";
    else if (mixed)
        item->left_alone = *mixed == RN_DTYPE_NONE ? "not quantised by llama.cpp" : NULL;
    else if (is_quantised(options->to))
        item->left_alone = exemption(item, options->to, options);
    if (item->left_alone) RN_TRY(keep_dtype(t, to_gguf, &item->to));
    if (to_gguf && has_floats && is_f32_in_gguf(item) && is_narrow(item->to)) {
        item->to = RN_DTYPE_F32;
        if (!item->left_alone) item->left_alone = "norms and vectors are f32 in GGUF";
    }
    // Blocks of mxfp4 are what a model was trained in, and smaller than what they would become.
    if (mixed && t->dtype == RN_DTYPE_MXFP4 && to_gguf && !item->left_alone) {
        item->to = t->dtype;
        item->left_alone = "mxfp4 already";
    }
    bool copied = item->left_alone && item->to == t->dtype && !item->region && item->add == 0 &&
                  item->change == RN_VALUES_KEPT;
    if (copied || info->readable) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': ration cannot read values of type %s",
                   RN_STR_ARG(t->name), info->name);
}

// ---- places and names ---------------------------------------------------------------------------

// Without its first rows.
static rn_status skip_rows(rn_convert_plan *plan, uint64_t rows, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    uint64_t bytes = 0;
    void *info, *dims;
    bool fits = t->rank && rows < t->dims[0] && t->elements &&
                rn_dtype_bytes(t->dtype, t->elements / t->dims[0] * rows, &bytes);
    if (!fits)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has no %llu rows to leave out",
                       RN_STR_ARG(t->name), (unsigned long long)rows);
    RN_TRY(rn_arena_copy(&plan->arena, t, sizeof *t, &info));
    RN_TRY(rn_arena_copy(&plan->arena, t->dims, t->rank * sizeof *t->dims, &dims));
    rn_tensor_info *rest = info;
    ((uint64_t *)dims)[0] -= rows;
    rest->dims = dims;
    rest->elements -= t->elements / t->dims[0] * rows;
    rest->offset += bytes;
    rest->bytes -= bytes;
    item->source = rest;
    item->dims = rest->dims;
    return RN_OK;
}

// Another shape of the same elements.
static rn_status reshape(const rn_converted_tensor *as, rn_convert_item *item) {
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < as->rank && fits; i++)
        fits = rn_mul_u64(elements, as->dims[i], &elements);
    if (!fits || elements != item->source->elements)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %llu elements, not those of its new shape",
                       RN_STR_ARG(item->source->name), (unsigned long long)item->source->elements);
    item->dims = as->dims;
    item->rank = as->rank;
    return RN_OK;
}

// Rows whose columns are put in order together: the fewer, the less memory.
static uint64_t rows_at_once(uint64_t rows, uint64_t columns) {
    enum { MOST = 1 << 20 };
    while (rows % 2 == 0 && rows * columns > MOST)
        rows /= 2;
    return rows;
}

// Which elements change places among each other. `item` has the output's shape.
static rn_status arrange(rn_convert_plan *plan, const rn_converted_tensor *as,
                         rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    uint64_t rows = item->rank ? item->dims[0] : 0, columns = rows ? t->elements / rows : 0;
    uint64_t blocked = as->arrangement == RN_ARRANGE_COLUMNS ? columns : rows;
    bool transposed = as->arrangement == RN_ARRANGE_TRANSPOSED;
    bool fits =
        transposed ? item->rank == 2 : blocked && as->head_rows && blocked % as->head_rows == 0;
    if (!fits || t->elements == 0)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' cannot be rearranged: its shape is another",
                       RN_STR_ARG(t->name));
    item->arrangement = as->arrangement;
    item->head_rows = as->head_rows;
    item->order = as->order;
    item->region = as->arrangement == RN_ARRANGE_COLUMNS ? rows_at_once(rows, columns) * columns
                   : as->order || transposed             ? t->elements
                                                         : columns * as->head_rows;
    if (!transposed) return RN_OK;
    void *dims;
    RN_TRY(rn_arena_copy(&plan->arena, (uint64_t[]){t->dims[1], t->dims[0]}, 2 * sizeof(uint64_t),
                         &dims));
    item->dims = dims;
    return RN_OK;
}

// How a tensor lies in the output; `as` is NULL where it lies as it did.
static rn_status place_item(rn_convert_plan *plan, const rn_converted_tensor *as,
                            rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    item->name = as ? as->name : t->name;
    item->dims = t->dims;
    item->rank = t->rank;
    if (!as) return RN_OK;
    item->add = as->add;
    item->change = as->change;
    if (as->skip_rows) RN_TRY(skip_rows(plan, as->skip_rows, item));
    if (as->dims) RN_TRY(reshape(as, item));
    return as->arrangement == RN_ARRANGED ? RN_OK : arrange(plan, as, item);
}

static rn_status place_items(rn_convert_plan *plan, const rn_checkpoint *source,
                             const rn_translation *translation) {
    size_t count = 0;
    for (size_t i = 0; i < rn_checkpoint_count(source); i++) {
        const rn_converted_tensor *as = translation ? &translation->tensors[i] : NULL;
        if (as && as->name.bytes == 0) continue;
        rn_convert_item *item = &plan->items[count++];
        *item = (rn_convert_item){.source = rn_checkpoint_tensor(source, i),
                                  .index = i,
                                  .scale = RN_NO_TENSOR,
                                  .shift = RN_NO_TENSOR,
                                  .state = RN_NO_TENSOR};
        RN_TRY(place_item(plan, as, item));
    }
    plan->item_count = count;
    return RN_OK;
}

// What a tensor's rows are together, as if they lay somewhere.
static rn_status assemble(rn_convert_plan *plan, const rn_checkpoint *source,
                          const rn_assembled_tensor *as, rn_convert_item *item) {
    rn_tensor_info whole = {.name = as->name, .dims = as->dims, .rank = as->rank};
    uint64_t elements = 1;
    bool fits = true;
    void *info;
    for (uint32_t i = 0; i < as->rank && fits; i++)
        fits = rn_mul_u64(elements, as->dims[i], &elements);
    fits = fits && rn_mul_u64(item->rows.rows, item->rows.columns, &whole.elements) &&
           whole.elements == elements && rn_dtype_bytes(item->rows.dtype, elements, &whole.bytes);
    if (!fits)
        return rn_fail(RN_CORRUPT, "'%.*s' would be of another size than its rows",
                       RN_STR_ARG(as->name));
    whole.dtype = item->rows.dtype;
    if (item->rows.is_runs && as->count == 1) { // an ordinary tensor, then
        const rn_tensor_info *t = rn_checkpoint_tensor(source, as->rows[0].tensor);
        whole.file = t->file;
        whole.offset = t->offset + as->rows[0].first * item->rows.row_bytes;
        item->assembled = NULL;
    }
    RN_TRY(rn_arena_copy(&plan->arena, &whole, sizeof whole, &info));
    item->source = info;
    item->name = as->name;
    item->dims = as->dims;
    item->rank = as->rank;
    return RN_OK;
}

static rn_status assemble_items(rn_convert_plan *plan, const rn_checkpoint *source,
                                const rn_translation *translation) {
    for (size_t i = 0; translation && i < translation->assembled_count; i++) {
        const rn_assembled_tensor *as = &translation->assembled[i];
        rn_convert_item *item = &plan->items[plan->item_count++];
        *item = (rn_convert_item){.assembled = as,
                                  .index = as->rows[0].tensor,
                                  .number = i,
                                  .scale = RN_NO_TENSOR,
                                  .shift = RN_NO_TENSOR,
                                  .state = RN_NO_TENSOR};
        RN_TRY(rn_assembled_look(source, as, &item->rows));
        item->is_record = as->is_record;
        RN_TRY(assemble(plan, source, as, item));
    }
    return RN_OK;
}

// ---- importances --------------------------------------------------------------------------------

static rn_status refuse_importances(const rn_convert_options *options, rn_str name,
                                    const char *why) {
    return rn_hint(rn_fail(RN_INVALID, "%s is of another model: '%.*s' %s", options->importances,
                           RN_STR_ARG(name), why),
                   "importances go with the model that they were measured on");
}

// Every entry is a weight of this model, with a value for each of its columns. The embedding has
// none of use: its rows are picked, not multiplied.
static rn_status attach_importance(rn_convert_plan *plan, const rn_convert_options *options,
                                   rn_convert_item *item) {
    const rn_importance_entry *entry = rn_importances_find(&plan->importances, item->name);
    if (!entry || rn_str_equal(item->name, RN_STR("token_embd.weight"))) return RN_OK;
    uint64_t columns = item->rank ? item->dims[item->rank - 1] : 1;
    uint64_t sets = item->rank > 2 ? item->dims[0] : 1;
    if (columns == 0 || entry->count % columns || entry->count / columns != sets)
        return refuse_importances(options, item->name, "has another width");
    if (columns > RN_CONVERT_MAX_UNIT || !rn_ggml_encoder_of(item->to)) return RN_OK;
    item->importance = entry->values;
    item->importance_sets = sets;
    return RN_OK;
}

static rn_status attach_importances(rn_convert_plan *plan, const rn_convert_options *options) {
    rn_map names;
    uint64_t index;
    if (plan->importances.count == 0) return RN_OK;
    rn_map_init(&names, RN_HOST_IO);
    rn_status s = rn_map_reserve(&names, plan->item_count);
    for (size_t i = 0; s == RN_OK && i < plan->item_count; i++) {
        s = rn_map_add(&names, plan->items[i].name, i, NULL);
        if (s == RN_OK) s = attach_importance(plan, options, &plan->items[i]);
    }
    for (size_t i = 0; s == RN_OK && i < plan->importances.count; i++) {
        rn_str name = plan->importances.entries[i].name;
        if (!rn_map_find(&names, name, &index) && !rn_str_equal(name, RN_STR("output.weight")))
            s = refuse_importances(options, name, "is no tensor here");
    }
    rn_map_free(&names);
    return s;
}

// ---- file types ---------------------------------------------------------------------------------

static rn_status decide_mixed(rn_convert_plan *plan, const rn_convert_options *options) {
    void *block;
    RN_TRY(rn_arena_array(&plan->arena, plan->item_count, sizeof(rn_mixed_tensor), &block));
    rn_mixed_tensor *tensors = block;
    for (size_t i = 0; i < plan->item_count; i++)
        tensors[i] = (rn_mixed_tensor){plan->items[i].name, plan->items[i].rank,
                                       plan->items[i].dims, plan->items[i].is_record};
    rn_mixer mixer = {.type = plan->file_type,
                      .tensors = tensors,
                      .count = plan->item_count,
                      .has_importances = plan->importances.count > 0};
    RN_TRY(rn_mixer_init(&mixer, plan->metadata, plan->metadata_count, &plan->arena));
    for (size_t i = 0; i < plan->item_count; i++) {
        rn_dtype mixed = rn_mixer_choose(&mixer, i);
        RN_TRY(decide(&plan->items[i], options, plan->to_gguf, &mixed));
    }
    return RN_OK;
}

static rn_status decide_all(rn_convert_plan *plan, const rn_convert_options *options) {
    if (plan->file_type) return decide_mixed(plan, options);
    for (size_t i = 0; i < plan->item_count; i++)
        RN_TRY(decide(&plan->items[i], options, plan->to_gguf, NULL));
    return RN_OK;
}

// ---- output tensors -------------------------------------------------------------------

static rn_status add_output(rn_convert_plan *plan, rn_write_tensor tensor, const void *constant,
                            rn_convert_item *item, uint32_t *out_index) {
    uint64_t elements = 1, bytes;
    bool fits = true;
    for (uint32_t i = 0; i < tensor.rank && fits; i++)
        fits = rn_mul_u64(elements, tensor.dims[i], &elements);
    if (!fits || !rn_dtype_bytes(tensor.dtype, elements, &bytes))
        return rn_fail(RN_INVALID, "tensor '%.*s' cannot be written as %s", RN_STR_ARG(tensor.name),
                       rn_dtype_get(tensor.dtype)->name);
    uint32_t index = (uint32_t)plan->tensor_count++;
    plan->tensors[index] = tensor;
    plan->tensor_bytes[index] = bytes;
    plan->constants[index] = constant;
    if (item) item->bytes_out += bytes;
    if (out_index) *out_index = index;
    return RN_OK;
}

// name + suffix, in the arena.
static rn_status join_name(rn_convert_plan *plan, rn_str name, const char *suffix, rn_str *out) {
    void *text;
    size_t extra = strlen(suffix);
    RN_TRY(rn_arena_alloc(&plan->arena, name.bytes + extra + 1, &text));
    memcpy(text, name.data, name.bytes);
    memcpy((char *)text + name.bytes, suffix, extra);
    *out = (rn_str){text, name.bytes + extra};
    return RN_OK;
}

static rn_status copy_dims(rn_convert_plan *plan, const uint64_t *dims, uint32_t rank,
                           uint64_t **out) {
    void *copy;
    RN_TRY(rn_arena_array(&plan->arena, rank, sizeof *dims, &copy));
    if (rank) memcpy(copy, dims, rank * sizeof *dims);
    *out = copy;
    return RN_OK;
}

static rn_status add_side(rn_convert_plan *plan, rn_convert_item *item, const char *suffix,
                          rn_dtype dtype, const uint64_t *dims, uint32_t rank, const void *constant,
                          uint32_t *out_index) {
    rn_write_tensor tensor = {.dtype = dtype, .rank = rank, .random = true};
    uint64_t *copy;
    RN_TRY(join_name(plan, item->name, suffix, &tensor.name));
    RN_TRY(copy_dims(plan, dims, rank, &copy));
    tensor.dims = copy;
    return add_output(plan, tensor, constant, item, out_index);
}

// quanto's modules expect these two beside a quantised "PREFIX.weight".
static rn_status add_activation_scales(rn_convert_plan *plan, rn_convert_item *item) {
    static const float one = 1;
    static const char *const names[] = {"input_scale", "output_scale"};
    rn_str name = item->name;
    if (!rn_str_ends(name, RN_STR(".weight"))) return RN_OK;
    rn_str prefix = {name.data, name.bytes - strlen("weight")};
    for (int i = 0; i < 2; i++) {
        rn_write_tensor tensor = {.dtype = RN_DTYPE_F32, .random = true};
        RN_TRY(join_name(plan, prefix, names[i], &tensor.name));
        RN_TRY(add_output(plan, tensor, &one, item, NULL));
    }
    return RN_OK;
}

// The scale's shape is the weight's with every dimension but the first made 1.
static rn_status scale_dims(rn_convert_plan *plan, const rn_convert_item *item, uint64_t **out) {
    RN_TRY(copy_dims(plan, item->dims, item->rank, out));
    for (uint32_t i = 1; i < item->rank; i++)
        (*out)[i] = 1;
    return RN_OK;
}

static rn_status plan_int8(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    rn_write_tensor data = {.dtype = RN_DTYPE_I8, .rank = item->rank, .dims = item->dims};
    uint64_t *dims;
    item->unit = t->elements / item->dims[0];
    RN_TRY(
        join_name(plan, item->name, rn_component_suffix(item->to, RN_COMPONENT_DATA), &data.name));
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(scale_dims(plan, item, &dims));
    RN_TRY(add_side(plan, item, rn_component_suffix(item->to, RN_COMPONENT_SCALE), RN_DTYPE_F32,
                    dims, item->rank, NULL, &item->scale));
    return add_activation_scales(plan, item);
}

static rn_status plan_int4(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    uint64_t columns = t->elements / item->dims[0];
    item->unit = rn_quant_int4_group(columns);
    uint64_t groups = t->elements / item->unit, *packed, *scales;
    uint32_t rank =
        item->unit == columns ? item->rank : 2; // quanto keeps the shape when a group is a row
    if (item->unit == columns) {
        RN_TRY(copy_dims(plan, item->dims, rank, &packed));
        RN_TRY(scale_dims(plan, item, &scales));
    } else {
        RN_TRY(copy_dims(plan, (uint64_t[]){groups, item->unit}, rank, &packed));
        RN_TRY(copy_dims(plan, (uint64_t[]){groups, 1}, rank, &scales));
    }
    packed[0] = rn_div_up(packed[0], 2);
    rn_write_tensor data = {.dtype = RN_DTYPE_U8, .rank = rank, .dims = packed};
    RN_TRY(
        join_name(plan, item->name, rn_component_suffix(item->to, RN_COMPONENT_DATA), &data.name));
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(add_side(plan, item, rn_component_suffix(item->to, RN_COMPONENT_SCALE), RN_DTYPE_F32,
                    scales, rank, NULL, &item->scale));
    RN_TRY(add_side(plan, item, rn_component_suffix(item->to, RN_COMPONENT_SHIFT), RN_DTYPE_F32,
                    scales, rank, NULL, &item->shift));
    return add_activation_scales(plan, item);
}

rn_status rn_convert_describe_nf4(const rn_convert_item *item, const float *offset, rn_sink sink) {
    rn_dtype from = item->source->dtype;
    bool half = from == RN_DTYPE_F16 || from == RN_DTYPE_BF16;
    return rn_quant_nf4_state(half ? from : RN_DTYPE_F32, item->dims, item->rank, offset, sink);
}

static rn_status describe_nf4(rn_convert_plan *plan, const rn_convert_item *item, rn_str *out) {
    rn_buffer text;
    void *copy = NULL;
    rn_buffer_init(&text, RN_HOST_IO, RN_CONVERT_STATE_BYTES);
    rn_status s = rn_convert_describe_nf4(item, NULL, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_arena_copy(&plan->arena, text.data, text.bytes, &copy);
    *out = (rn_str){copy, text.bytes};
    rn_buffer_free(&text);
    return s;
}

static rn_status plan_nf4(rn_convert_plan *plan, rn_convert_item *item) {
    static const char *const state_suffix = ".quant_state.bitsandbytes__nf4";
    const rn_tensor_info *t = item->source;
    uint64_t packed[] = {rn_div_up(t->elements, 2), 1}, *dims;
    uint64_t blocks = rn_div_up(t->elements, RN_NF4_BLOCK), table = 16, map = 256;
    uint64_t nested = rn_div_up(blocks, RN_NF4_NESTED), state_bytes = RN_CONVERT_STATE_BYTES;
    bool twice = item->to == RN_DTYPE_NF4_DQ;
    item->unit = RN_NF4_BLOCK;
    RN_TRY(copy_dims(plan, packed, 2, &dims));
    rn_write_tensor data = {.name = item->name, .dtype = RN_DTYPE_U8, .rank = 2, .dims = dims};
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(add_side(plan, item, rn_component_suffix(item->to, RN_COMPONENT_SCALE),
                    twice ? RN_DTYPE_U8 : RN_DTYPE_F32, &blocks, 1, NULL, &item->scale));
    RN_TRY(add_side(plan, item, ".quant_map", RN_DTYPE_F32, &table, 1, rn_nf4_table, NULL));
    if (!twice) {
        rn_str state;
        RN_TRY(describe_nf4(plan, item, &state));
        state_bytes = state.bytes;
        return add_side(plan, item, state_suffix, RN_DTYPE_U8, &state_bytes, 1, state.data, NULL);
    }
    RN_TRY(add_side(plan, item, rn_component_suffix(item->to, RN_COMPONENT_SHIFT), RN_DTYPE_F32,
                    &nested, 1, NULL, &item->shift));
    RN_TRY(add_side(plan, item, ".nested_quant_map", RN_DTYPE_F32, &map, 1, rn_dynamic_map, NULL));
    return add_side(plan, item, state_suffix, RN_DTYPE_U8, &state_bytes, 1, NULL, &item->state);
}

static rn_status plan_plain(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    const rn_dtype_info *from = rn_dtype_get(t->dtype), *to = rn_dtype_get(item->to);
    // Block sizes are powers of two or 1 (f6 apart, which is only ever copied): the larger holds
    // the smaller.
    item->unit =
        from->block_elements > to->block_elements ? from->block_elements : to->block_elements;
    if (item->region) item->unit = to->block_elements; // values, by the time they are cut
    if (item->importance) item->unit = item->dims[item->rank - 1]; // by columns, and by whole rows
    if (item->assembled && item->rows.columns % item->unit)
        return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': rows of %llu are no whole blocks of %s",
                       RN_STR_ARG(item->name), (unsigned long long)item->rows.columns, to->name);
    rn_write_tensor data = {
        .name = item->name, .dtype = item->to, .rank = item->rank, .dims = item->dims};
    return add_output(plan, data, NULL, item, &item->data);
}

static rn_status plan_item(rn_convert_plan *plan, rn_convert_item *item) {
    if (item->to == item->source->dtype) return plan_plain(plan, item);
    switch (item->to) {
    case RN_DTYPE_INT8:
        return plan_int8(plan, item);
    case RN_DTYPE_INT4:
        return plan_int4(plan, item);
    case RN_DTYPE_NF4:
    case RN_DTYPE_NF4_DQ:
        return plan_nf4(plan, item);
    default:
        return plan_plain(plan, item);
    }
}

// ---- the whole ------------------------------------------------------------------------

static size_t element_width(const rn_convert_item *item) {
    if (item->to == RN_DTYPE_INT8 || item->to == RN_DTYPE_INT4 || item->to == RN_DTYPE_NF4 ||
        item->to == RN_DTYPE_NF4_DQ)
        return 1;
    const rn_dtype_info *info = rn_dtype_get(item->to);
    return info->block_elements > 1 ? 1 : info->block_bytes;
}

// Wide elements first, so that every tensor lies on a boundary of its own width; else as in the
// input.
static int compare_items(const void *left, const void *right) {
    const rn_convert_item *a = left, *b = right;
    if (a->is_record != b->is_record) return a->is_record ? 1 : -1;
    if (a->is_record) return a->number < b->number ? -1 : a->number > b->number;
    size_t wide_a = element_width(a), wide_b = element_width(b);
    if (wide_a != wide_b) return wide_a > wide_b ? -1 : 1;
    if (a->index != b->index) return a->index < b->index ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static rn_status allocate(rn_convert_plan *plan, size_t count, size_t constant_count) {
    void *block;
    plan->tensor_capacity = count * 6 + constant_count; // at most six outputs for one input
    RN_TRY(rn_arena_array(&plan->arena, count, sizeof *plan->items, &block));
    plan->items = block;
    RN_TRY(rn_arena_array(&plan->arena, plan->tensor_capacity, sizeof *plan->tensors, &block));
    plan->tensors = block;
    RN_TRY(rn_arena_array(&plan->arena, plan->tensor_capacity, sizeof *plan->tensor_bytes, &block));
    plan->tensor_bytes = block;
    RN_TRY(rn_arena_array(&plan->arena, plan->tensor_capacity, sizeof *plan->constants, &block));
    plan->constants = block;
    return RN_OK;
}

static void format_scalar(const rn_metadata *pair, char *out, size_t capacity) {
    if (pair->kind == RN_METADATA_U64)
        snprintf(out, capacity, "%llu", (unsigned long long)pair->value.u64);
    else if (pair->kind == RN_METADATA_I64)
        snprintf(out, capacity, "%lld", (long long)pair->value.i64);
    else if (pair->kind == RN_METADATA_BOOL)
        snprintf(out, capacity, "%s", pair->value.boolean ? "true" : "false");
    else
        snprintf(out, capacity, "%.*g", pair->gguf_type == RN_GGUF_F64 ? 17 : 9, pair->value.f64);
}

// Safetensors holds text only: scalars become text, arrays (vocabularies) stay behind.
static rn_status add_as_text(rn_convert_plan *plan, const rn_metadata *pair) {
    char text[64];
    void *copy;
    rn_metadata *out = &plan->metadata[plan->metadata_count];
    *out = *pair;
    if (pair->kind == RN_METADATA_ARRAY) return RN_OK;
    plan->metadata_count++;
    if (pair->kind == RN_METADATA_TEXT) return RN_OK;
    format_scalar(pair, text, sizeof text);
    RN_TRY(rn_arena_copy(&plan->arena, text, strlen(text), &copy));
    *out = (rn_metadata){.key = pair->key,
                         .kind = RN_METADATA_TEXT,
                         .gguf_type = RN_GGUF_STRING,
                         .text = {copy, strlen(text)}};
    return RN_OK;
}

static rn_metadata u32_pair(const char *key, uint32_t value) {
    return (rn_metadata){.key = rn_str_from(key),
                         .kind = RN_METADATA_U64,
                         .gguf_type = RN_GGUF_U32,
                         .value.u64 = value};
}

// What the output says of itself: what the input said, or the translation says, but for its types.
static rn_status plan_metadata(rn_convert_plan *plan, const rn_checkpoint *source,
                               const rn_translation *translation, rn_dtype to) {
    static const char *const own[] = {"general.file_type", "general.quantization_version"};
    void *block;
    size_t count = translation ? translation->metadata_count : rn_checkpoint_metadata_count(source);
    bool set_type = plan->to_gguf && (to != RN_DTYPE_NONE || plan->file_type);
    RN_TRY(rn_arena_array(&plan->arena, count + 3, sizeof *plan->metadata, &block));
    plan->metadata = block;
    for (size_t i = 0; i < count; i++) {
        const rn_metadata *pair =
            translation ? &translation->metadata[i] : rn_checkpoint_metadata(source, i);
        bool replaced = set_type && rn_str_equal(pair->key, rn_str_from(own[0]));
        replaced |= plan->file_type && rn_str_equal(pair->key, rn_str_from(own[1]));
        // We write with the usual alignment, whatever the input's was.
        replaced |= plan->to_gguf && rn_str_equal(pair->key, RN_STR("general.alignment"));
        if (replaced) continue;
        if (plan->to_gguf)
            plan->metadata[plan->metadata_count++] = *pair;
        else
            RN_TRY(add_as_text(plan, pair));
    }
    if (set_type)
        plan->metadata[plan->metadata_count++] =
            u32_pair(own[0], plan->file_type ? rn_file_type_number(plan->file_type)
                                             : rn_file_type_number_of(to));
    if (plan->file_type) plan->metadata[plan->metadata_count++] = u32_pair(own[1], 2);
    if (plan->packed)
        plan->metadata[plan->metadata_count++] =
            u32_pair("general.alignment", RN_GGUF_PACKED_ALIGNMENT);
    return RN_OK;
}

static rn_status add_constants(rn_convert_plan *plan, const rn_translation *translation) {
    for (size_t i = 0; translation && i < translation->constant_count; i++) {
        rn_write_tensor tensor = translation->constants[i];
        tensor.random = true;
        RN_TRY(add_output(plan, tensor, translation->values[i], NULL, NULL));
    }
    return RN_OK;
}

// What is asked for: one dtype, or a mixture, and importances.
static rn_status read_options(const rn_convert_options *options, rn_convert_plan *plan) {
    if (options->file_type) {
        plan->file_type = rn_file_type_find(rn_str_from(options->file_type));
        if (!plan->file_type)
            return rn_fail(RN_INVALID, "'%s' is no file type", options->file_type);
        if (!plan->to_gguf)
            return rn_hint(rn_fail(RN_UNSUPPORTED, "%s does not go into a safetensors file",
                                   options->file_type),
                           "safetensors holds plain types, int8, int4, nf4 and nf4_dq");
    } else
        RN_TRY(check_pair(options->to, plan->to_gguf));
    plan->packed = options->packed;
    if (!options->importances) return RN_OK;
    if (options->packed)
        return rn_hint(rn_fail(RN_INVALID, "importances are of whole stacks of experts"),
                       "quantise with --imatrix first, then convert that file with --packed");
    if (!plan->file_type && !is_ggml_block(options->to))
        return rn_hint(rn_fail(RN_INVALID, "importances are of no use for this target"),
                       "they weigh the errors of ggml's blocks: --to q4_k_m");
    return rn_importances_read(options->importances, &plan->importances);
}

static rn_status make(const rn_checkpoint *source, const rn_convert_options *options,
                      const rn_translation *translation, rn_convert_plan *plan) {
    RN_TRY(read_options(options, plan));
    RN_TRY(check_source(source, plan->file_type ? RN_DTYPE_Q8_0 : options->to));
    RN_TRY(plan_metadata(plan, source, translation, options->to));
    plan->tensors_only = plan->to_gguf && !has_architecture(plan->metadata, plan->metadata_count);
    size_t assembled = translation ? translation->assembled_count : 0;
    RN_TRY(allocate(plan, rn_checkpoint_count(source) + assembled,
                    translation ? translation->constant_count : 0));
    RN_TRY(place_items(plan, source, translation));
    RN_TRY(assemble_items(plan, source, translation));
    RN_TRY(decide_all(plan, options));
    RN_TRY(attach_importances(plan, options));
    RN_TRY(rn_sort(plan->items, plan->item_count, sizeof *plan->items, compare_items));
    RN_TRY(add_constants(plan, translation));
    for (size_t i = 0; i < plan->item_count; i++)
        RN_TRY(plan_item(plan, &plan->items[i]));
    return RN_OK;
}

rn_status rn_convert_plan_make(const rn_checkpoint *source, const char *out_path,
                               const rn_convert_options *options, const rn_translation *translation,
                               rn_convert_plan *out) {
    *out = (rn_convert_plan){.to_gguf = rn_str_ends(rn_str_from(out_path), RN_STR(".gguf"))};
    rn_arena_init(&out->arena, RN_HOST_IO, 0);
    rn_status s = make(source, options, translation, out);
    if (s != RN_OK) rn_convert_plan_free(out);
    return s;
}

void rn_convert_plan_free(rn_convert_plan *plan) {
    rn_importances_free(&plan->importances);
    rn_arena_free_all(&plan->arena);
}
