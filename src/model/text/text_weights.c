// text_weights.c — which tensors a weight is made of, and whether all is there and nothing more.
//
//     W of any plain or ggml type   W
//     int8, int4, nf4, nf4_dq       rn_component_suffix               (as `ration convert` writes)
//     of quantised checkpoints      rn_checkpoint_form
#include "model/text/text_weights.h"

#include "base/checked.h"
#include "base/str.h"
#include "graph/weight_rows.h"
#include "io/double_quant.h"
#include "io/weight_forms.h"
#include "memory/account.h"
#include "model/text/decoder.h"
#include "tensor/layout.h"

#include <stdio.h>

enum { NAME_BYTES = 256 };

static const rn_dtype in_components[] = {RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4};
enum { FORM_COUNT = sizeof in_components / sizeof *in_components };

static const rn_tensor_info *find(const rn_checkpoint *checkpoint, const char *name, rn_dtype dtype,
                                  rn_component component) {
    char text[NAME_BYTES];
    const char *suffix = rn_component_suffix(dtype, component);
    int length = snprintf(text, sizeof text, "%s%s", name, suffix);
    return length < NAME_BYTES ? rn_checkpoint_find(checkpoint, text) : NULL;
}

// Of a stack, the first expert's tensor speaks for all.
rn_dtype rn_text_weight_dtype(const rn_checkpoint *checkpoint, const char *stack) {
    char name[NAME_BYTES];
    if (!rn_expert_tensor(stack, 0, name, sizeof name)) return RN_DTYPE_F32;
    const rn_tensor_info *whole = rn_checkpoint_find(checkpoint, name);
    const rn_weight_form *checkpoint_form = rn_checkpoint_form(checkpoint, name);
    if (checkpoint_form) return checkpoint_form->dtype;
    if (whole && whole->dtype != RN_DTYPE_U8) return whole->dtype;
    if (find(checkpoint, name, RN_DTYPE_NF4_DQ, RN_COMPONENT_SHIFT)) return RN_DTYPE_NF4_DQ;
    for (size_t i = 0; i < FORM_COUNT; i++)
        if (find(checkpoint, name, in_components[i], RN_COMPONENT_DATA) &&
            find(checkpoint, name, in_components[i], RN_COMPONENT_SCALE))
            return in_components[i];
    return whole ? whole->dtype : RN_DTYPE_F32;
}

// Of a stack, the first expert's tensor speaks for all.
bool rn_text_weight_exists(const rn_checkpoint *checkpoint, const char *weight) {
    char name[NAME_BYTES];
    if (!rn_expert_tensor(weight, 0, name, sizeof name)) return false;
    if (rn_checkpoint_find(checkpoint, name)) return true;
    for (size_t i = 0; i < FORM_COUNT; i++)
        if (find(checkpoint, name, in_components[i], RN_COMPONENT_DATA)) return true;
    return false;
}

rn_status rn_text_weights_readable(const rn_checkpoint *checkpoint) {
    for (size_t i = 0; i < rn_checkpoint_count(checkpoint); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(checkpoint, i);
        if (!rn_dtype_get(t->dtype)->readable)
            return rn_fail(RN_UNSUPPORTED, "tensor '%.*s' is %s, which ration cannot compute with",
                           RN_STR_ARG(t->name), rn_dtype_get(t->dtype)->name);
    }
    return RN_OK;
}

// ---- checking -----------------------------------------------------------------------------------

typedef struct inventory {
    const rn_checkpoint *checkpoint;
    const rn_text_config *config;
    rn_model_info *info;
    bool *used;                     // (tensors)
    uint64_t bytes[RN_DTYPE_COUNT]; // of matrices
} inventory;

static void use(inventory *v, const rn_tensor_info *t) {
    v->used[t - rn_checkpoint_tensor(v->checkpoint, 0)] = true;
    v->info->weight_bytes += t->bytes;
}

// What says which tensors there must be: the keys of the same file, or config.json.
static rn_status hint_at_settings(const inventory *v, rn_status s, const char *otherwise) {
    bool gguf = rn_checkpoint_container(v->checkpoint) == RN_CONTAINER_GGUF;
    if (!gguf) return rn_hint(s, "%s, or config.json is of another model", otherwise);
    return rn_hint(s,
                   "%s, or the file's keys (%s.*) contradict its tensors: they say %u layers of "
                   "%u, %u heads of %u, %u of k and v, a feed-forward of %u",
                   otherwise, v->info->architecture, v->info->layers, v->info->dim, v->info->heads,
                   v->info->head_dim, v->info->kv_heads, v->info->ffn);
}

// Of a folder the caller names all of it.
static rn_status at_tensor(const inventory *v, const rn_tensor_info *t, rn_status s) {
    bool gguf = rn_checkpoint_container(v->checkpoint) == RN_CONTAINER_GGUF;
    const rn_checkpoint_file_info *file = rn_checkpoint_file(v->checkpoint, t->file);
    return gguf ? rn_error_locate(s, file->path, t->offset) : s;
}

static rn_status missing(const inventory *v, const char *name, const char *suffix) {
    return hint_at_settings(v, rn_fail(RN_NOT_FOUND, "the tensor '%s%s' is missing", name, suffix),
                            "the files are incomplete");
}

// (experts, rows, cols) as (experts * rows, cols), where that is what is wanted; so, too, the
// matrices of heads.
static rn_shape flatten_stack(const rn_value_info *weight, rn_shape shape) {
    uint64_t experts = weight->experts, rows = 0;
    if (shape.rank != 3 || weight->shape.rank != 2) return shape;
    bool as_many =
        !experts || (shape.dims[0] == experts && shape.dims[1] == weight->shape.dims[0] / experts);
    bool fits =
        as_many && rn_mul_u64(shape.dims[0], shape.dims[1], &rows) && rows == weight->shape.dims[0];
    return fits ? RN_SHAPE(rows, shape.dims[2]) : shape;
}

static rn_status take_whole(inventory *v, const rn_value_info *weight) {
    const rn_tensor_info *t = rn_checkpoint_find(v->checkpoint, weight->name);
    rn_shape shape = {0};
    if (!t) return missing(v, weight->name, "");
    for (; shape.rank < t->rank && shape.rank < RN_MAX_RANK; shape.rank++)
        shape.dims[shape.rank] = t->dims[shape.rank];
    shape = flatten_stack(weight, shape);
    if (t->rank > RN_MAX_RANK || !rn_shape_equal(shape, weight->shape))
        return at_tensor(
            v, t,
            hint_at_settings(v,
                             rn_fail(RN_CORRUPT,
                                     "the tensor '%s' is %s, the configuration asks for %s",
                                     weight->name, rn_shape_format(shape).text,
                                     rn_shape_format(weight->shape).text),
                             "the model has parts that are not built"));
    use(v, t);
    return RN_OK;
}

static rn_status take_parts(inventory *v, const rn_value_info *weight) {
    rn_plain_components parts;
    rn_dtype dtype = weight->dtype;
    const char *suffix;
    uint64_t rows = weight->shape.dims[0], cols = rn_shape_elements(weight->shape, 1) / rows;
    if (!rn_plain_components_of(dtype, rows, cols, &parts))
        return rn_fail(RN_CORRUPT, "'%s': %s cannot be %s", weight->name,
                       rn_shape_format(weight->shape).text, rn_dtype_get(dtype)->name);
    if (dtype == RN_DTYPE_NF4_DQ) {
        float offset;
        RN_TRY(rn_double_quant_offset(v->checkpoint, weight->name, &offset));
        parts.bytes[RN_COMPONENT_SHIFT] -= sizeof offset;
    }
    for (rn_component part = 0; part < RN_COMPONENT_COUNT; part++) {
        if (!(suffix = rn_component_suffix(dtype, part))) break;
        const rn_tensor_info *t = find(v->checkpoint, weight->name, dtype, part);
        if (!t) return missing(v, weight->name, suffix);
        if (t->bytes != parts.bytes[part])
            return rn_fail(RN_CORRUPT, "the tensor '%.*s' has %llu bytes, %s as %s needs %llu",
                           RN_STR_ARG(t->name), (unsigned long long)t->bytes,
                           rn_shape_format(weight->shape).text, rn_dtype_get(dtype)->name,
                           (unsigned long long)parts.bytes[part]);
        use(v, t);
    }
    return RN_OK;
}

static rn_status take_checkpoint_form(inventory *v, const rn_value_info *weight,
                                      const rn_weight_form *form) {
    const rn_tensor_info *tensors[RN_FORM_TENSORS];
    rn_shape shape = {.rank = 2, .dims = {form->rows, form->cols}};
    if (!rn_shape_equal(shape, weight->shape))
        return rn_fail(RN_CORRUPT,
                       "the tensor '%.*s' is of a weight %s, the configuration asks for %s",
                       RN_STR_ARG(form->data->name), rn_shape_format(shape).text,
                       rn_shape_format(weight->shape).text);
    for (uint32_t e = 0; e < (form->experts ? form->expert_count : 1); e++) {
        size_t count = rn_weight_form_tensors(form->experts ? form->experts[e] : form, tensors);
        for (size_t i = 0; i < count; i++)
            use(v, tensors[i]);
    }
    return RN_OK;
}

// A tensor an expert.
static rn_status take_experts(inventory *v, const rn_value_info *stack) {
    for (uint32_t e = 0; e < stack->experts; e++) {
        char name[NAME_BYTES];
        rn_value_info one = *stack;
        one.name = name;
        one.experts = 0;
        one.shape.dims[0] = stack->shape.dims[0] / stack->experts;
        if (!rn_expert_tensor(stack->name, e, name, sizeof name))
            return rn_fail(RN_CORRUPT, "the name '%s' is too long", stack->name);
        RN_TRY(take_whole(v, &one));
        if (rn_checkpoint_find(v->checkpoint, name)->dtype != stack->dtype)
            return rn_fail(RN_UNSUPPORTED, "'%s' is of another kind than the experts before it",
                           name);
    }
    return RN_OK;
}

static rn_status take_weight(inventory *v, const rn_value_info *weight) {
    uint64_t before = v->info->weight_bytes;
    const rn_weight_form *checkpoint_form = rn_checkpoint_form(v->checkpoint, weight->name);
    bool in_parts = rn_component_suffix(weight->dtype, RN_COMPONENT_SCALE) != NULL;
    if (checkpoint_form)
        RN_TRY(take_checkpoint_form(v, weight, checkpoint_form));
    else if (weight->experts && strchr(weight->name, '*'))
        RN_TRY(take_experts(v, weight));
    else
        RN_TRY(in_parts ? take_parts(v, weight) : take_whole(v, weight));
    v->info->parameters += rn_shape_elements(weight->shape, 1);
    if (weight->shape.rank > 1) v->bytes[weight->dtype] += v->info->weight_bytes - before;
    return RN_OK;
}

static bool is_of_draft(const inventory *v, rn_str name) {
    const rn_llama_config *l = &v->config->llama;
    const char *layers = rn_text_architecture_of(l)->layers[l->naming];
    size_t bytes = strlen(layers);
    unsigned block = 0;
    char text[16];
    if (name.bytes <= bytes || memcmp(name.data, layers, bytes) != 0) return false;
    snprintf(text, sizeof text, "%.*s", (int)(name.bytes - bytes), name.data + bytes);
    return sscanf(text, ".%5u.", &block) == 1 && block >= l->layers &&
           block - l->layers < v->config->draft_layers;
}

// What files have beside weights: tables that are computed here, and what other programs need to
// read the quantised forms.
static bool is_harmless(const inventory *v, rn_str name) {
    const char *const *unused = v->config->llama.architecture->unused;
    if (is_of_draft(v, name)) return true;
    for (; unused && *unused; unused++)
        if (rn_str_matches(name, rn_str_from(*unused))) return true;
    static const char *const patterns[] = {
        "*.rotary_emb.*", "rope_freqs.weight", "rope_factors_*.weight", "*.attn_rot_embd",
        "*.attn.bias", // GPT-2's causal mask
        "*.attn.masked_bias", "*.quant_map", "*.nested_quant_map",
        "*.quant_state.bitsandbytes__nf4", "*.input_scale", "*.output_scale",
        // scales of activations and of a KV cache, which are computed or not rounded here
        "*.input_global_scale", "*.input_zero_point", "*.k_scale", "*.v_scale", "*.q_scale"};
    // Heads that encoders were trained with, and BERT's pooler, which no embedding model uses.
    static const char *const of_encoders[] = {"*position_ids", "pooler.*", "*.pooler.*", "cls.*",
                                              "lm_head.*",     "head.*",   "decoder.*"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (rn_str_matches(name, rn_str_from(patterns[i]))) return true;
    for (size_t i = 0; v->info->encoder && i < sizeof of_encoders / sizeof *of_encoders; i++)
        if (rn_str_matches(name, rn_str_from(of_encoders[i]))) return true;
    return v->info->tied_head && rn_str_matches(name, RN_STR("*lm_head.weight"));
}

// AutoGPTQ writes a bias for every layer, zero where the model has none.
static rn_status is_zero_bias(const inventory *v, const rn_tensor_info *t, bool *out) {
    char name[NAME_BYTES], some[512];
    *out = false;
    if (!rn_str_ends(t->name, RN_STR(".bias")) || t->name.bytes + 3 > sizeof name) return RN_OK;
    snprintf(name, sizeof name, "%.*s.weight", (int)(t->name.bytes - 5), t->name.data);
    const rn_weight_form *form = rn_checkpoint_form(v->checkpoint, name);
    if (!form || form->kind != RN_FORM_GPTQ) return RN_OK;
    for (uint64_t at = 0; at < t->bytes; at += sizeof some) {
        size_t bytes = t->bytes - at < sizeof some ? (size_t)(t->bytes - at) : sizeof some;
        RN_TRY(rn_checkpoint_read(v->checkpoint, t, at, some, bytes));
        for (size_t i = 0; i < bytes; i++)
            if (some[i]) return RN_OK;
    }
    *out = true;
    return RN_OK;
}

static rn_status check_unused(const inventory *v) {
    for (size_t i = 0; i < rn_checkpoint_count(v->checkpoint); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(v->checkpoint, i);
        rn_str name = t->name;
        bool harmless = v->used[i] || is_harmless(v, name);
        if (!harmless) RN_TRY(is_zero_bias(v, t, &harmless));
        if (!harmless)
            return at_tensor(
                v, t,
                hint_at_settings(v,
                                 rn_fail(RN_CORRUPT,
                                         "the tensor '%.*s' does not belong to this %s model",
                                         RN_STR_ARG(name), v->info->architecture),
                                 "the model has parts that are not built"));
    }
    return RN_OK;
}

// "q4_k + q6_k", the most bytes first.
static void name_dtypes(inventory *v) {
    size_t length = 0;
    while (true) {
        rn_dtype most = RN_DTYPE_NONE;
        for (rn_dtype d = 0; d < RN_DTYPE_COUNT; d++)
            if (v->bytes[d] > v->bytes[most]) most = d;
        const char *name = rn_dtype_get(most)->name;
        if (v->bytes[most] == 0 || length + strlen(name) + 4 > sizeof v->info->weights) return;
        length += (size_t)snprintf(v->info->weights + length, sizeof v->info->weights - length,
                                   "%s%s", length ? " + " : "", name);
        v->bytes[most] = 0;
    }
}

rn_status rn_text_weights_check(const rn_checkpoint *checkpoint, const rn_graph *graph,
                                const rn_text_config *config, rn_model_info *info) {
    inventory v = {.checkpoint = checkpoint, .config = config, .info = info};
    size_t count = rn_checkpoint_count(checkpoint);
    void *used = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *v.used, &used));
    v.used = used;
    rn_status s = RN_OK;
    for (rn_value i = 1; s == RN_OK && i <= rn_graph_value_count(graph); i++)
        if (rn_graph_value(graph, i)->role == RN_ROLE_WEIGHT)
            s = take_weight(&v, rn_graph_value(graph, i));
    if (s == RN_OK) s = check_unused(&v);
    if (s == RN_OK) name_dtypes(&v);
    rn_free(RN_HOST_OTHER, used, count * sizeof *v.used);
    return s;
}
