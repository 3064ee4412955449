// adapters.c — reading LoRA files.
//
// The scale is multiplied into `up` while it is read. GGUF files of the llama family hold the rows
// of q and k in another order (pairs side by side), so the rows of `up` are put into that order,
// too:
//
//     Hugging Face   a0 a1 a2 b0 b1 b2        GGUF   a0 b0 a1 b1 a2 b2        of each head
#include "model/text/adapters.h"

#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"
#include "model/text/decoder.h"
#include "model/text/fields.h"
#include "text/pattern.h"

#include <math.h>
#include <stdio.h>
#include <sys/param.h>

#define FROM (&rn_host_allocators[RN_PURPOSE_WEIGHTS])

enum { NAME_BYTES = 192, MOST_RANK = 1 << 16 };

// One of the two factors. In files of PEFT as it is used, (rank, in) or (out, rank); in MLX's
// transposed.
typedef struct side {
    const rn_tensor_info *tensor; // while reading
    char *name;
    float *data; // (rows, cols)
    uint64_t rows, cols;
    bool transposed;
} side;

struct rn_addition {
    rn_low_rank low_rank; // what the graph is told
    char *weight;
    rn_str module; // while reading, of PEFT's
    uint32_t file;
    side down, up, magnitude;  // the last of DoRA: (out, 1)
    rn_addition *next;         // in the order of reading
    rn_addition *next_of_same; // to the same weight
};

typedef struct load {
    rn_adapters *all;
    const rn_graph *graph;
    const rn_llama_config *config;
    rn_checkpoint *checkpoint;
    rn_map pairs;       // the weight -> its addition by this adapter
    float alpha;        // 0: the rank
    uint32_t rank;      // that the configuration says; 0: none
    rn_fields settings; // of adapter_config.json
    bool has_settings;
    bool by_root; // alpha / sqrt(rank)
    float scale;
    uint32_t choice; // as rn_low_rank
    bool gguf;       // llama.cpp's file: its names and its order of rows are those of GGUF models
    bool dora;       // what the configuration says
} load;

typedef enum part_role { DOWN, UP, MAGNITUDE } part_role;

void rn_adapters_init(rn_adapters *adapters) {
    *adapters = (rn_adapters){0};
    rn_arena_init(&adapters->memory, RN_HOST_OTHER, 0);
    rn_map_init(&adapters->by_weight, RN_HOST_OTHER);
    rn_map_init(&adapters->by_name, RN_HOST_OTHER);
}

static void free_side(side *s) {
    rn_free(FROM, s->data, s->rows * s->cols * sizeof(float));
}

void rn_adapters_free(rn_adapters *adapters) {
    for (rn_addition *a = adapters->first; a; a = a->next) {
        free_side(&a->down);
        free_side(&a->up);
        free_side(&a->magnitude);
    }
    rn_map_free(&adapters->by_weight);
    rn_map_free(&adapters->by_name);
    rn_arena_free_all(&adapters->memory);
}

// ---- names --------------------------------------------------------------------------------------

// "<module>.lora_A.weight" -> the module and which part.
static bool parse_name(rn_str name, rn_str *out_module, part_role *out_role, bool *out_transposed) {
    static const struct {
        const char *suffix;
        part_role role;
        bool transposed;
    } forms[] = {{".lora_A.weight", DOWN, false},
                 {".lora_B.weight", UP, false},
                 {".lora_A.default.weight", DOWN, false},
                 {".lora_B.default.weight", UP, false},
                 {".lora_magnitude_vector", MAGNITUDE, false},
                 {".lora_magnitude_vector.weight", MAGNITUDE, false},
                 {".lora_magnitude_vector.default.weight", MAGNITUDE, false},
                 {".lora_a", DOWN, true},
                 {".lora_b", UP, true}};
    static const rn_str prefix = {"base_model.model.", sizeof "base_model.model." - 1};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        rn_str suffix = rn_str_from(forms[i].suffix);
        if (!rn_str_ends(name, suffix)) continue;
        *out_module = (rn_str){name.data, name.bytes - suffix.bytes};
        if (rn_str_starts(*out_module, prefix))
            *out_module = (rn_str){name.data + prefix.bytes, out_module->bytes - prefix.bytes};
        *out_role = forms[i].role;
        *out_transposed = forms[i].transposed;
        return true;
    }
    return false;
}

// "blk.0.attn_q.weight.lora_a" -> the weight and which factor.
static bool parse_gguf_name(rn_str name, char weight[NAME_BYTES], part_role *out_role) {
    *out_role = rn_str_ends(name, RN_STR(".lora_b")) ? UP : DOWN;
    if ((*out_role == DOWN && !rn_str_ends(name, RN_STR(".lora_a"))) || name.bytes >= NAME_BYTES)
        return false;
    snprintf(weight, NAME_BYTES, "%.*s", (int)name.bytes - 7, name.data);
    return true;
}

// The shape of a matrix of a GGUF model.
static bool find_gguf_weight(const load *l, const char *weight, rn_shape *out) {
    rn_value value = rn_graph_find(l->graph, RN_ROLE_WEIGHT, weight);
    if (value == RN_NO_VALUE || strcmp(weight, "token_embd.weight") == 0) return false;
    *out = rn_graph_value(l->graph, value)->shape;
    return out->rank == 2;
}

// The weight that is added to, as (out, in): a tied head has the embedding's shape. False: the
// model has no such matrix.
static bool find_weight(const load *l, rn_str module, char name[NAME_BYTES], rn_shape *out) {
    const rn_llama_config *c = l->config;
    bool transposed = false;
    char embedding[NAME_BYTES], head[NAME_BYTES];
    const char *shaped = name;
    if (!rn_llama_weight_name(c, module, name, NAME_BYTES, &transposed)) return false;
    rn_text_weight_name(c, RN_TEXT_EMBEDDING, 0, "weight", embedding, sizeof embedding);
    rn_text_weight_name(c, RN_TEXT_HEAD, 0, "weight", head, sizeof head);
    if (c->tied && strcmp(name, head) == 0)
        shaped = embedding;
    else if (strcmp(name, embedding) == 0)
        return false; // a table is looked into, not multiplied by
    rn_value value = rn_graph_find(l->graph, RN_ROLE_WEIGHT, shaped);
    if (value == RN_NO_VALUE || rn_graph_value(l->graph, value)->shape.rank != 2) return false;
    *out = rn_graph_value(l->graph, value)->shape;
    if (transposed) *out = RN_SHAPE(out->dims[1], out->dims[0]);
    return true;
}

// ---- pairing ------------------------------------------------------------------------------------

static rn_status add_addition(load *l, const char *weight, rn_addition **out) {
    rn_adapters *all = l->all;
    void *block = NULL, *copy = NULL;
    uint64_t first = 0;
    RN_TRY(rn_arena_alloc(&all->memory, sizeof **out, &block));
    RN_TRY(rn_arena_copy(&all->memory, weight, strlen(weight), &copy));
    rn_addition *a = block;
    a->weight = copy;
    a->file = all->file_count;
    RN_TRY(rn_map_add(&l->pairs, rn_str_from(copy), (uint64_t)(uintptr_t)a, NULL));
    if (rn_map_find(&all->by_weight, rn_str_from(copy), &first)) {
        rn_addition *last = (rn_addition *)(uintptr_t)first;
        while (last->next_of_same)
            last = last->next_of_same;
        last->next_of_same = a;
    } else {
        RN_TRY(rn_map_add(&all->by_weight, rn_str_from(copy), (uint64_t)(uintptr_t)a, NULL));
    }
    a->next = all->first;
    all->first = a;
    *out = a;
    return RN_OK;
}

static rn_status refuse(const rn_tensor_info *t, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "the adapter's tensor '%.*s' %s", RN_STR_ARG(t->name), why);
}

static rn_status refuse_shape(const rn_tensor_info *t, const char *weight, rn_shape shape) {
    rn_status s = rn_fail(
        RN_CORRUPT, "the adapter's tensor '%.*s' is %llu x %llu, the weight '%s' is %s",
        RN_STR_ARG(t->name), (unsigned long long)t->dims[0],
        (unsigned long long)(t->rank > 1 ? t->dims[1] : 1), weight, rn_shape_format(shape).text);
    return rn_hint(s, "the adapter is of another model than this one");
}

// A vector, one number a row of the weight, which nothing else is added to.
static rn_status place_magnitude(const rn_tensor_info *t, rn_addition *a, rn_shape shape) {
    if (t->rank != 1 || !rn_dtype_get(t->dtype)->is_float) return refuse(t, "is no float vector");
    if (t->dims[0] != shape.dims[0]) return refuse_shape(t, a->weight, shape);
    a->magnitude = (side){.tensor = t, .cols = 1};
    return RN_OK;
}

// Takes a tensor's shape as rows and columns of the factor.
static rn_status place_side(load *l, const rn_tensor_info *t) {
    char weight[NAME_BYTES];
    rn_str module = {0};
    bool transposed = false;
    part_role role = DOWN;
    uint64_t at = 0;
    bool named = l->gguf ? parse_gguf_name(t->name, weight, &role)
                         : parse_name(t->name, &module, &role, &transposed);
    if (!named) return refuse(t, "is not part of a LoRA (lora_A, lora_B)");
    rn_shape shape;
    if (l->gguf ? !find_gguf_weight(l, weight, &shape) : !find_weight(l, module, weight, &shape))
        return refuse(t, "belongs to no matrix of this model");
    rn_addition *a = NULL;
    if (rn_map_find(&l->pairs, rn_str_from(weight), &at))
        a = (rn_addition *)(uintptr_t)at;
    else
        RN_TRY(add_addition(l, weight, &a));
    bool up = role == UP;
    side *s = up ? &a->up : role == DOWN ? &a->down : &a->magnitude;
    a->module = module;
    if (s->tensor) return refuse(t, "is there twice");
    if (role == MAGNITUDE) return place_magnitude(t, a, shape);
    if (t->rank != 2 || !rn_dtype_get(t->dtype)->is_float) return refuse(t, "is no float matrix");
    uint64_t rows = t->dims[transposed ? 1 : 0], cols = t->dims[transposed ? 0 : 1];
    uint64_t outer = up ? rows : cols, wanted = shape.dims[up ? 0 : 1];
    if (outer != wanted) return refuse_shape(t, weight, shape);
    *s = (side){.tensor = t, .rows = 0, .cols = up ? cols : rows, .transposed = transposed};
    return RN_OK;
}

// ---- reading ------------------------------------------------------------------------------------

uint64_t rn_adapters_gguf_row(uint64_t head_dim, uint64_t row) {
    uint64_t in_head = row % head_dim, half = head_dim / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
}

static bool is_permuted(const load *l, const rn_addition *a) {
    rn_str weight = rn_str_from(a->weight);
    return !l->gguf && l->config->naming == RN_NAMES_GGUF &&
           l->config->rope.pairing == RN_ROPE_NEIGHBOURS &&
           (rn_str_ends(weight, RN_STR(".attn_q.weight")) ||
            rn_str_ends(weight, RN_STR(".attn_k.weight")));
}

static rn_status read_side(const load *l, side *s, uint64_t rows, uint64_t cols, double scale,
                           bool permuted) {
    size_t bytes = rows * cols * sizeof(float);
    void *raw = NULL, *data = NULL;
    RN_TRY(rn_alloc(FROM, bytes, &data));
    s->data = data;
    s->rows = rows;
    s->cols = cols;
    RN_TRY(rn_alloc(RN_HOST_STAGING, bytes, &raw));
    rn_status status = rn_checkpoint_load(l->checkpoint, s->tensor, RN_DTYPE_F32, raw, bytes);
    const float *from = raw; // as the file has it
    for (uint64_t r = 0; status == RN_OK && r < rows; r++) {
        float *to = s->data + (permuted ? rn_adapters_gguf_row(l->config->head_dim, r) : r) * cols;
        for (uint64_t c = 0; c < cols; c++)
            to[c] = (float)(scale * (double)from[s->transposed ? c * rows + r : r * cols + c]);
    }
    rn_free(RN_HOST_STAGING, raw, bytes);
    s->tensor = NULL;
    return status;
}

static rn_status name_side(rn_adapters *all, const rn_addition *a, const char *what, side *s) {
    char name[NAME_BYTES + 32];
    void *copy = NULL;
    snprintf(name, sizeof name, "lora.%u.%s.%s", a->file, a->weight, what);
    RN_TRY(rn_arena_copy(&all->memory, name, strlen(name), &copy));
    s->name = copy;
    return rn_map_add(&all->by_name, rn_str_from(copy), (uint64_t)(uintptr_t)s, NULL);
}

// ---- alpha_pattern ------------------------------------------------------------------------------

// As PEFT: an expression that the module's name matches to its end, from a dot or its beginning.
static rn_status matches(rn_str module, const char *expression, bool *out) {
    char whole[4 * NAME_BYTES];
    rn_pattern *pattern = NULL;
    rn_matching matching = {0};
    rn_match match = {0};
    *out = false;
    if ((size_t)snprintf(whole, sizeof whole, "\\A(?:.*\\.)?(?:%s)\\z", expression) >= sizeof whole)
        return rn_fail(RN_UNSUPPORTED, "the expression '%.60s...' is too long", expression);
    if (rn_pattern_compile(RN_HOST_OTHER, rn_str_from(whole), false, &pattern) != RN_OK)
        return rn_fail(RN_UNSUPPORTED, "alpha_pattern: '%s' is no expression that is understood",
                       expression);
    rn_status s = rn_pattern_next(pattern, &matching, module, 0, false, &match);
    rn_matching_free(&matching);
    rn_pattern_destroy(pattern);
    *out = s == RN_OK && match.found;
    return s;
}

// The first in the file that matches counts; *order is that of the one found so far.
static rn_status match_alpha(const load *l, rn_str module, const char *name, uint64_t *order,
                             float *alpha) {
    static const char prefix[] = "alpha_pattern.";
    bool is = false;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return RN_OK;
    const rn_field *field = rn_fields_find(&l->settings, name);
    if (!field || field->order >= *order) return RN_OK;
    RN_TRY(matches(module, name + sizeof prefix - 1, &is));
    if (!is) return RN_OK;
    *order = field->order;
    return rn_fields_need_number(&l->settings, name, alpha);
}

static rn_status find_alpha(const load *l, rn_str module, float *out) {
    const rn_field *list = l->has_settings ? rn_fields_find(&l->settings, "alpha_pattern") : NULL;
    void *keys = NULL;
    uint64_t found = UINT64_MAX;
    *out = l->alpha;
    if (!list || list->kind != RN_FIELD_LIST || list->count == 0) return RN_OK;
    size_t most = l->settings.by_name.count;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, most, sizeof(char *), &keys));
    size_t count = rn_map_keys(&l->settings.by_name, keys, most);
    rn_status s = RN_OK;
    for (size_t i = 0; s == RN_OK && i < count; i++)
        s = match_alpha(l, module, ((const char **)keys)[i], &found, out);
    rn_free(RN_HOST_OTHER, keys, most * sizeof(char *));
    return s;
}

// One with a magnitude is not added to other additions, but multiplies.
static rn_status read_magnitude(load *l, rn_addition *a, uint64_t out) {
    uint64_t first = 0;
    bool known = rn_map_find(&l->all->by_weight, rn_str_from(a->weight), &first);
    const rn_addition *other = known ? (const rn_addition *)(uintptr_t)first : a;
    if ((bool)a->magnitude.tensor != l->dora)
        return refuse(a->up.tensor, l->dora ? "has no magnitude, which use_dora wants"
                                            : "has a magnitude, which use_dora does not say");
    if (other != a && (l->dora || other->magnitude.name))
        return rn_hint(
            rn_fail(RN_UNSUPPORTED, "'%s' has two adapters, one of them DoRA", a->weight),
            "merge the one into the model first: ration convert MODEL OUT --lora ADAPTER");
    if (!l->dora) return RN_OK;
    if (l->choice)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a DoRA adapter cannot be chosen by its name"),
                       "merge it into a model of its own: ration convert MODEL OUT --lora ADAPTER");
    l->all->has_magnitudes = true;
    RN_TRY(name_side(l->all, a, "magnitude", &a->magnitude));
    return read_side(l, &a->magnitude, out, 1, 1, is_permuted(l, a));
}

static rn_status read_addition(load *l, rn_addition *a) {
    const rn_tensor_info *have = a->down.tensor ? a->down.tensor
                                 : a->up.tensor ? a->up.tensor
                                                : a->magnitude.tensor;
    if (!a->down.tensor || !a->up.tensor) return refuse(have, "has no counterpart");
    uint64_t rank = a->down.cols;
    if (rank != a->up.cols || rank == 0 || rank > MOST_RANK)
        return rn_fail(RN_CORRUPT, "the adapter's tensors '%.*s' and '%.*s' have ranks %llu, %llu",
                       RN_STR_ARG(a->down.tensor->name), RN_STR_ARG(a->up.tensor->name),
                       (unsigned long long)rank, (unsigned long long)a->up.cols);
    if (l->rank && rank != l->rank)
        return rn_fail(RN_CORRUPT, "the adapter's tensor '%.*s' has rank %llu, its settings say %u",
                       RN_STR_ARG(have->name), (unsigned long long)rank, l->rank);
    double by = l->by_root ? sqrt((double)rank) : (double)rank;
    float alpha = 0;
    RN_TRY(find_alpha(l, a->module, &alpha));
    double scale = (double)l->scale * (alpha != 0 ? (double)alpha / by : 1);
    RN_TRY(name_side(l->all, a, "down", &a->down));
    RN_TRY(name_side(l->all, a, "up", &a->up));
    uint64_t in = a->down.tensor->elements / rank, out = a->up.tensor->elements / rank;
    RN_TRY(read_magnitude(l, a, out));
    RN_TRY(read_side(l, &a->down, rank, in, 1, false));
    RN_TRY(read_side(l, &a->up, out, rank, scale, is_permuted(l, a)));
    a->low_rank = (rn_low_rank){.down = a->down.name,
                                .up = a->up.name,
                                .magnitude = a->magnitude.name,
                                .rank = (uint32_t)rank,
                                .choice = l->choice};
    return RN_OK;
}

// ---- settings -----------------------------------------------------------------------------------

static rn_status refuse_flag(const rn_fields *f, const char *name) {
    bool on = false;
    RN_TRY(rn_fields_bool(f, name, &on));
    return on ? rn_fail(RN_UNSUPPORTED, "%s: '%s' is not built", f->source, name) : RN_OK;
}

// First values that were taken out of the base's own matrices: the adapter alone is not what was
// trained.
static rn_status refuse_init(const rn_fields *f) {
    static const char *const changing[] = {"pissa", "olora", "loftq", "corda", "lora_ga"};
    const rn_field *init = rn_fields_find(f, "init_lora_weights");
    if (!init || init->kind != RN_FIELD_TEXT) return RN_OK;
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (rn_str_starts(init->text, rn_str_from(changing[i])))
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "%s: 'init_lora_weights' is '%.*s', which changed the base's "
                                   "weights: with the original ones the adapter is wrong",
                                   f->source, RN_STR_ARG(init->text)),
                           "let PEFT save it as plain LoRA (path_initial_model_for_weight_"
                           "conversion), or merge it there");
    return RN_OK;
}

static rn_status read_settings(const rn_fields *f, load *l) {
    rn_str type = RN_STR("LORA"), bias = RN_STR("none");
    RN_TRY(rn_fields_text(f, "peft_type", &type));
    RN_TRY(rn_fields_text(f, "bias", &bias));
    if (!rn_str_equal(type, RN_STR("LORA")) || !rn_str_equal(bias, RN_STR("none")))
        return rn_fail(RN_UNSUPPORTED, "%s: peft_type '%.*s' with bias '%.*s' is not built",
                       f->source, RN_STR_ARG(type), RN_STR_ARG(bias));
    RN_TRY(rn_fields_bool(f, "use_dora", &l->dora));
    RN_TRY(refuse_flag(f, "fan_in_fan_out"));
    RN_TRY(refuse_init(f));
    RN_TRY(rn_fields_bool(f, "use_rslora", &l->by_root));
    RN_TRY(rn_fields_number(f, "lora_alpha", &l->alpha));
    const rn_field *ranks = rn_fields_find(f, "rank_pattern"); // then tensors differ
    if (!ranks || ranks->count == 0) RN_TRY(rn_fields_u32(f, "r", &l->rank));
    float mlx_scale = 1;
    RN_TRY(rn_fields_number(f, "lora_parameters.scale", &mlx_scale));
    l->scale *= mlx_scale;
    return RN_OK;
}

// adapter_config.json in the folder, if there is one.
static rn_status find_settings(const char *folder, load *l) {
    char path[PATH_MAX];
    RN_TRY(rn_path_join(folder, "adapter_config.json", path, sizeof path));
    if (!rn_file_exists(path)) return RN_OK;
    rn_fields_init(&l->settings, "adapter_config.json");
    l->has_settings = true;
    RN_TRY(rn_fields_read_file(&l->settings, path));
    return read_settings(&l->settings, l);
}

static rn_status read_gguf_settings(load *l) {
    if (l->config->naming != RN_NAMES_GGUF)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a GGUF adapter belongs to a GGUF model"),
                       "use the PEFT folder that it was made from");
    for (size_t i = 0; i < rn_checkpoint_metadata_count(l->checkpoint); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(l->checkpoint, i);
        if (rn_str_equal(m->key, RN_STR("adapter.lora.alpha")) && m->kind == RN_METADATA_F64)
            l->alpha = (float)m->value.f64;
        if (rn_str_equal(m->key, RN_STR("adapter.type")) && !rn_str_equal(m->text, RN_STR("lora")))
            return rn_fail(RN_UNSUPPORTED, "adapters of type '%.*s' are not built",
                           RN_STR_ARG(m->text));
    }
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status open_files(const char *path, load *l) {
    char folder[PATH_MAX], file[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(file, sizeof file, "%s", path);
    if (rn_file_is_folder(path)) {
        RN_TRY(rn_path_join(path, "adapter_model.safetensors", file, sizeof file));
        if (!rn_file_exists(file)) snprintf(file, sizeof file, "%s", path);
    } else {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
        else
            snprintf(folder, sizeof folder, ".");
    }
    RN_TRY(rn_checkpoint_open(file, &l->checkpoint));
    l->gguf = rn_checkpoint_container(l->checkpoint) == RN_CONTAINER_GGUF;
    return l->gguf ? read_gguf_settings(l) : find_settings(folder, l);
}

static rn_status read_all(load *l) {
    if (rn_checkpoint_count(l->checkpoint) == 0)
        return rn_fail(RN_CORRUPT, "the adapter has no tensors");
    for (size_t i = 0; i < rn_checkpoint_count(l->checkpoint); i++)
        RN_TRY(place_side(l, rn_checkpoint_tensor(l->checkpoint, i)));
    for (rn_addition *a = l->all->first; a && a->file == l->all->file_count; a = a->next)
        RN_TRY(read_addition(l, a));
    return RN_OK;
}

static bool is_name(rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '-' && c != '_' && c != '.') return false;
    }
    return name.bytes > 0 && name.bytes <= 64;
}

// *out: its number, from 1; 0: it has no name.
static rn_status take_name(rn_adapters *all, const char *name, uint32_t *out) {
    void *copy = NULL;
    *out = 0;
    if (!name) return RN_OK;
    if (!is_name(rn_str_from(name)))
        return rn_hint(rn_fail(RN_INVALID, "an adapter cannot be called '%.80s'", name),
                       "1 to 64 letters, digits, '-', '_' and '.'");
    for (uint32_t i = 0; i < all->named_count; i++)
        if (strcmp(all->names[i], name) == 0)
            return rn_fail(RN_INVALID, "two adapters are called '%s'", name);
    if (all->named_count == RN_MODEL_ADAPTERS)
        return rn_fail(RN_INVALID, "more than %d adapters with a name", RN_MODEL_ADAPTERS);
    RN_TRY(rn_arena_copy(&all->memory, name, strlen(name), &copy));
    all->names[all->named_count++] = copy;
    *out = all->named_count;
    return RN_OK;
}

rn_status rn_adapters_load(rn_adapters *adapters, const rn_adapter *adapter, const rn_graph *graph,
                           const rn_llama_config *config) {
    load l = {.all = adapters, .graph = graph, .config = config, .scale = adapter->scale};
    if (!isfinite(adapter->scale))
        return rn_fail(RN_INVALID, "an adapter's scale cannot be %g", (double)adapter->scale);
    RN_TRY(take_name(adapters, adapter->name, &l.choice));
    rn_map_init(&l.pairs, RN_HOST_OTHER);
    rn_status s = open_files(adapter->path, &l);
    if (s == RN_OK) s = read_all(&l);
    if (s != RN_OK && !rn_last_error()->path[0])
        s = rn_error_locate(s, adapter->path, RN_NO_OFFSET);
    rn_checkpoint_close(l.checkpoint);
    if (l.has_settings) rn_fields_free(&l.settings);
    rn_map_free(&l.pairs);
    adapters->file_count++;
    return s;
}

const rn_low_rank *rn_adapters_addition(const rn_adapters *adapters, const char *weight,
                                        uint32_t index) {
    uint64_t at = 0;
    if (!rn_map_find(&adapters->by_weight, rn_str_from(weight), &at)) return NULL;
    const rn_addition *a = (const rn_addition *)(uintptr_t)at;
    for (; a && index > 0; index--)
        a = a->next_of_same;
    return a ? &a->low_rank : NULL;
}

const void *rn_adapters_find(const rn_adapters *adapters, const char *name, uint64_t bytes) {
    uint64_t at = 0;
    if (!rn_map_find(&adapters->by_name, rn_str_from(name), &at)) return NULL;
    const side *s = (const side *)(uintptr_t)at;
    return bytes == s->rows * s->cols * sizeof(float) ? s->data : NULL;
}
