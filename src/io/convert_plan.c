// convert_plan.c — the decisions of a conversion: which tensors change, into what, under which
// names.
#include "io/convert_plan.h"
#include "io/gguf.h"

#include "base/buffer.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "memory/sort.h"
#include "tensor/quant.h"

#include <stdio.h>

static const char *const default_excludes[] = {
    "*embed*", "*embd*", "*wte*", "*wpe*", "*norm*", "*ln_*", "*.ln*",
};

static bool is_quantised(rn_dtype dtype) {
    return dtype == RN_DTYPE_INT8 || dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 ||
           dtype == RN_DTYPE_Q8_0 || dtype == RN_DTYPE_Q4_0;
}

// ---- may it be done at all ------------------------------------------------------------

static rn_status check_pair(rn_dtype to, bool to_gguf) {
    const rn_dtype_info *info = rn_dtype_get(to);
    bool plain = info->is_float && info->block_elements == 1 && to != RN_DTYPE_F8_E8M0;
    if (to == RN_DTYPE_NONE || (plain && (!to_gguf || info->ggml >= 0))) return RN_OK;
    bool ggml_block = to == RN_DTYPE_Q8_0 || to == RN_DTYPE_Q4_0;
    if (is_quantised(to) && ggml_block == to_gguf) return RN_OK;
    if (!plain && !is_quantised(to))
        return rn_hint(rn_fail(RN_UNSUPPORTED, "ration does not convert to %s", info->name),
                       "choose f32, f16, bf16, f8_e4m3, f8_e5m2, int8, int4, nf4, q8_0 or q4_0");
    rn_status s = rn_fail(RN_UNSUPPORTED, "%s does not go into a %s file", info->name,
                          to_gguf ? "GGUF" : "safetensors");
    return rn_hint(s, to_gguf ? "GGUF holds f32, f16, bf16, q8_0 and q4_0"
                              : "safetensors holds plain types, int8, int4 and nf4");
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

// A configuration of transformers is an object that says the model's type. RN_CORRUPT: no JSON.
static rn_status is_model_config(rn_str text, bool *out) {
    rn_json_reader json;
    rn_json_item item;
    rn_json_reader_init(&json, text, RN_HOST_IO);
    rn_status s = rn_json_expect(&json, RN_JSON_OBJECT, NULL);
    while (s == RN_OK && !*out) {
        s = rn_json_next(&json, &item);
        if (s != RN_OK || item.kind != RN_JSON_KEY) break;
        *out = rn_str_equal(item.text, RN_STR("model_type")) ||
               rn_str_equal(item.text, RN_STR("architectures"));
        s = rn_json_skip(&json);
    }
    rn_json_reader_free(&json);
    return s;
}

// Whether a config.json that says so lies beside the files. Without one, or with one that is none,
// they are tensors.
static rn_status is_hf_model(const rn_checkpoint *source, bool *out) {
    enum { CONFIG_MOST_BYTES = 1 << 20 };
    char path[4096];
    rn_buffer text;
    *out = false;
    if (rn_checkpoint_file_count(source) == 0) return RN_OK;
    const char *file = rn_checkpoint_file(source, 0)->path, *name = strrchr(file, '/');
    int folder = name ? (int)(name + 1 - file) : 0;
    int length = snprintf(path, sizeof path, "%.*sconfig.json", folder, file);
    if (length < 0 || (size_t)length >= sizeof path || !rn_file_exists(path)) return RN_OK;
    rn_buffer_init(&text, RN_HOST_IO, CONFIG_MOST_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    if (s == RN_OK) s = is_model_config((rn_str){text.data, text.bytes}, out);
    rn_buffer_free(&text);
    return s == RN_CORRUPT || s == RN_INVALID ? RN_OK : s;
}

static bool has_architecture(const rn_checkpoint *source) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(source); i++)
        if (rn_str_equal(rn_checkpoint_metadata(source, i)->key, RN_STR("general.architecture")))
            return true;
    return false;
}

// People expect of a model in GGUF that llama.cpp runs it. That takes the architecture, the
// vocabulary, and other names and orders of rows than transformers' files have, which is not done
// here: better no file than one that looks like a model. Tensors alone may go into GGUF, and the
// result says that they are no more than that.
static rn_status check_model(const rn_checkpoint *source, rn_convert_plan *plan) {
    bool is_model = false;
    plan->tensors_only = plan->to_gguf && !has_architecture(source);
    if (plan->tensors_only) RN_TRY(is_hf_model(source, &is_model));
    if (!is_model) return RN_OK;
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "a transformers model does not become a GGUF model here: "
                                "its names, architecture and vocabulary would be missing"),
        "end the output in .safetensors (int8, int4, nf4 go there), or make the GGUF file "
        "with llama.cpp's convert_hf_to_gguf.py; ration converts that one further");
}

// ---- one tensor -----------------------------------------------------------------------

static bool matches_any(rn_str name, const char *const *patterns, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (rn_str_matches(name, rn_str_from(patterns[i]))) return true;
    return false;
}

// Why quantising leaves this tensor alone, or NULL. `to` says the container: only GGUF has ggml's.
static const char *exemption(const rn_tensor_info *t, rn_dtype to,
                             const rn_convert_options *options) {
    size_t defaults = sizeof default_excludes / sizeof *default_excludes;
    uint64_t row = t->rank ? t->dims[t->rank - 1] : 1;
    uint64_t columns = t->rank && t->dims[0] ? t->elements / t->dims[0] : 0;
    if (t->elements == 0) return "empty";
    if (t->rank < 2) return "not a matrix";
    // Blocks that the container has stay where the new ones would not be smaller. Where it lacks
    // them there is nothing to spare an embedding for: as f32 it would be several times as large.
    bool blocks = rn_dtype_get(t->dtype)->block_elements > 1;
    bool kept = rn_dtype_get(to)->ggml >= 0;
    uint64_t bytes;
    if (blocks && kept && rn_dtype_bytes(to, t->elements, &bytes) && t->bytes <= bytes)
        return "as small already";
    if (!options->no_default_excludes && (!blocks || kept) &&
        matches_any(t->name, default_excludes, defaults))
        return "embedding or norm";
    if (rn_dtype_get(to)->ggml >= 0 && row % 32) return "rows are not multiples of 32";
    if (to == RN_DTYPE_INT8 && columns > RN_CONVERT_MAX_UNIT) return "rows are too long";
    uint64_t group = rn_quant_int4_group(columns);
    if (to == RN_DTYPE_INT4 && group > RN_CONVERT_MAX_UNIT) return "rows are too long";
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
    bool holds_values = info->readable && (info->is_float || info->ggml >= 0);
    if (holds_values) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': %s has no place in a %s file",
                   RN_STR_ARG(t->name), info->name, to_gguf ? "GGUF" : "safetensors");
}

// llama.cpp computes with norms, biases and the like in f32, and stops at others.
static bool is_f32_in_gguf(const rn_tensor_info *t) {
    return t->rank < 2 || rn_str_ends(t->name, RN_STR("norm.weight"));
}

static bool is_narrow(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    return info->is_float && info->block_elements == 1 && info->block_bytes < 4;
}

static rn_status decide(const rn_tensor_info *t, const rn_convert_options *options, bool to_gguf,
                        rn_convert_item *item) {
    const rn_dtype_info *info = rn_dtype_get(t->dtype);
    bool has_floats = info->is_float || (info->ggml >= 0 && info->block_elements > 1);
    *item = (rn_convert_item){
        .source = t, .to = options->to, .scale = RN_NO_TENSOR, .shift = RN_NO_TENSOR};
    if (options->to == RN_DTYPE_NONE)
        item->left_alone = "";
    else if (!has_floats)
        item->left_alone = "integers";
    else if (matches_any(t->name, options->exclude, options->exclude_count))
        item->left_alone = "excluded";
    else if (is_quantised(options->to))
        item->left_alone = exemption(t, options->to, options);
    if (item->left_alone) RN_TRY(keep_dtype(t, to_gguf, &item->to));
    if (to_gguf && has_floats && is_f32_in_gguf(t) && is_narrow(item->to)) {
        item->to = RN_DTYPE_F32;
        if (!item->left_alone) item->left_alone = "norms and vectors are f32 in GGUF";
    }
    if (item->left_alone || info->readable) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': ration cannot read values of type %s",
                   RN_STR_ARG(t->name), info->name);
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
    item->bytes_out += bytes;
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
    RN_TRY(join_name(plan, item->source->name, suffix, &tensor.name));
    RN_TRY(copy_dims(plan, dims, rank, &copy));
    tensor.dims = copy;
    return add_output(plan, tensor, constant, item, out_index);
}

// quanto's modules expect these two beside a quantised "PREFIX.weight".
static rn_status add_activation_scales(rn_convert_plan *plan, rn_convert_item *item) {
    static const float one = 1;
    static const char *const names[] = {"input_scale", "output_scale"};
    rn_str name = item->source->name;
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
static rn_status scale_dims(rn_convert_plan *plan, const rn_tensor_info *t, uint64_t **out) {
    RN_TRY(copy_dims(plan, t->dims, t->rank, out));
    for (uint32_t i = 1; i < t->rank; i++)
        (*out)[i] = 1;
    return RN_OK;
}

static rn_status plan_int8(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    rn_write_tensor data = {.dtype = RN_DTYPE_I8, .rank = t->rank, .dims = t->dims};
    uint64_t *dims;
    item->unit = t->elements / t->dims[0];
    RN_TRY(join_name(plan, t->name, "._data", &data.name));
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(scale_dims(plan, t, &dims));
    RN_TRY(add_side(plan, item, "._scale", RN_DTYPE_F32, dims, t->rank, NULL, &item->scale));
    return add_activation_scales(plan, item);
}

static rn_status plan_int4(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    uint64_t columns = t->elements / t->dims[0];
    item->unit = rn_quant_int4_group(columns);
    uint64_t groups = t->elements / item->unit, *packed, *scales;
    uint32_t rank =
        item->unit == columns ? t->rank : 2; // quanto keeps the shape when a group is a row
    if (item->unit == columns) {
        RN_TRY(copy_dims(plan, t->dims, rank, &packed));
        RN_TRY(scale_dims(plan, t, &scales));
    } else {
        RN_TRY(copy_dims(plan, (uint64_t[]){groups, item->unit}, rank, &packed));
        RN_TRY(copy_dims(plan, (uint64_t[]){groups, 1}, rank, &scales));
    }
    packed[0] = rn_div_up(packed[0], 2);
    rn_write_tensor data = {.dtype = RN_DTYPE_U8, .rank = rank, .dims = packed};
    RN_TRY(join_name(plan, t->name, "._data._data", &data.name));
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(add_side(plan, item, "._scale", RN_DTYPE_F32, scales, rank, NULL, &item->scale));
    RN_TRY(add_side(plan, item, "._shift", RN_DTYPE_F32, scales, rank, NULL, &item->shift));
    return add_activation_scales(plan, item);
}

// bitsandbytes' description of the weight, in the arena.
static rn_status describe_nf4(rn_convert_plan *plan, const rn_tensor_info *t, rn_str *out) {
    bool half = t->dtype == RN_DTYPE_F16 || t->dtype == RN_DTYPE_BF16;
    rn_buffer text;
    void *copy = NULL;
    rn_buffer_init(&text, RN_HOST_IO, 4096);
    rn_status s =
        rn_quant_nf4_state(half ? t->dtype : RN_DTYPE_F32, t->dims, t->rank, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_arena_copy(&plan->arena, text.data, text.bytes, &copy);
    *out = (rn_str){copy, text.bytes};
    rn_buffer_free(&text);
    return s;
}

static rn_status plan_nf4(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    uint64_t packed[] = {rn_div_up(t->elements, 2), 1}, *dims;
    uint64_t blocks = rn_div_up(t->elements, RN_NF4_BLOCK), table = 16;
    rn_str state;
    RN_TRY(describe_nf4(plan, t, &state));
    uint64_t state_bytes = state.bytes;
    item->unit = RN_NF4_BLOCK;
    RN_TRY(copy_dims(plan, packed, 2, &dims));
    rn_write_tensor data = {.name = t->name, .dtype = RN_DTYPE_U8, .rank = 2, .dims = dims};
    RN_TRY(add_output(plan, data, NULL, item, &item->data));
    RN_TRY(add_side(plan, item, ".absmax", RN_DTYPE_F32, &blocks, 1, NULL, &item->scale));
    RN_TRY(add_side(plan, item, ".quant_map", RN_DTYPE_F32, &table, 1, rn_nf4_table, NULL));
    return add_side(plan, item, ".quant_state.bitsandbytes__nf4", RN_DTYPE_U8, &state_bytes, 1,
                    state.data, NULL);
}

static rn_status plan_plain(rn_convert_plan *plan, rn_convert_item *item) {
    const rn_tensor_info *t = item->source;
    const rn_dtype_info *from = rn_dtype_get(t->dtype), *to = rn_dtype_get(item->to);
    // Block sizes are powers of two or 1 (f6 apart, which is only ever copied): the larger holds
    // the smaller.
    item->unit =
        from->block_elements > to->block_elements ? from->block_elements : to->block_elements;
    rn_write_tensor data = {.name = t->name, .dtype = item->to, .rank = t->rank, .dims = t->dims};
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
        return plan_nf4(plan, item);
    default:
        return plan_plain(plan, item);
    }
}

// ---- the whole ------------------------------------------------------------------------

static size_t element_width(const rn_convert_item *item) {
    if (item->to == RN_DTYPE_INT8 || item->to == RN_DTYPE_INT4 || item->to == RN_DTYPE_NF4)
        return 1;
    const rn_dtype_info *info = rn_dtype_get(item->to);
    return info->block_elements > 1 ? 1 : info->block_bytes;
}

// Wide elements first, so that every tensor lies on a boundary of its own width; else as in the
// input.
static int compare_items(const void *left, const void *right) {
    const rn_convert_item *a = left, *b = right;
    size_t wide_a = element_width(a), wide_b = element_width(b);
    if (wide_a != wide_b) return wide_a > wide_b ? -1 : 1;
    return a->source < b->source ? -1 : a->source > b->source;
}

static rn_status allocate(rn_convert_plan *plan, size_t count) {
    void *block;
    plan->item_count = count;
    plan->tensor_capacity = count * 5; // at most five outputs for one input
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

// llama.cpp's number for "mostly this type".
static uint64_t gguf_file_type(rn_dtype to) {
    return to == RN_DTYPE_F32    ? 0
           : to == RN_DTYPE_F16  ? 1
           : to == RN_DTYPE_Q4_0 ? 2
           : to == RN_DTYPE_Q8_0 ? 7
                                 : 32;
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

static rn_status plan_metadata(rn_convert_plan *plan, const rn_checkpoint *source, rn_dtype to) {
    void *block;
    size_t count = rn_checkpoint_metadata_count(source);
    bool set_type = plan->to_gguf && to != RN_DTYPE_NONE;
    RN_TRY(rn_arena_array(&plan->arena, count + 1, sizeof *plan->metadata, &block));
    plan->metadata = block;
    for (size_t i = 0; i < count; i++) {
        const rn_metadata *pair = rn_checkpoint_metadata(source, i);
        if (set_type && rn_str_equal(pair->key, RN_STR("general.file_type"))) continue;
        // We write with the usual alignment, whatever the input's was.
        if (plan->to_gguf && rn_str_equal(pair->key, RN_STR("general.alignment"))) continue;
        if (plan->to_gguf)
            plan->metadata[plan->metadata_count++] = *pair;
        else
            RN_TRY(add_as_text(plan, pair));
    }
    if (set_type)
        plan->metadata[plan->metadata_count++] = (rn_metadata){.key = RN_STR("general.file_type"),
                                                               .kind = RN_METADATA_U64,
                                                               .gguf_type = RN_GGUF_U32,
                                                               .value.u64 = gguf_file_type(to)};
    return RN_OK;
}

static rn_status make(const rn_checkpoint *source, const rn_convert_options *options,
                      rn_convert_plan *plan) {
    RN_TRY(check_pair(options->to, plan->to_gguf));
    RN_TRY(check_source(source, options->to));
    RN_TRY(check_model(source, plan));
    RN_TRY(allocate(plan, rn_checkpoint_count(source)));
    for (size_t i = 0; i < plan->item_count; i++)
        RN_TRY(decide(rn_checkpoint_tensor(source, i), options, plan->to_gguf, &plan->items[i]));
    RN_TRY(rn_sort(plan->items, plan->item_count, sizeof *plan->items, compare_items));
    for (size_t i = 0; i < plan->item_count; i++)
        RN_TRY(plan_item(plan, &plan->items[i]));
    return plan_metadata(plan, source, options->to);
}

rn_status rn_convert_plan_make(const rn_checkpoint *source, const char *out_path,
                               const rn_convert_options *options, rn_convert_plan *out) {
    *out = (rn_convert_plan){.to_gguf = rn_str_ends(rn_str_from(out_path), RN_STR(".gguf"))};
    rn_arena_init(&out->arena, RN_HOST_IO, 0);
    rn_status s = make(source, options, out);
    if (s != RN_OK) rn_convert_plan_free(out);
    return s;
}

void rn_convert_plan_free(rn_convert_plan *plan) {
    rn_arena_free_all(&plan->arena);
}
