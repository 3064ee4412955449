// pooling.c — Sentence Transformers' folders, GGUF's key, and classifiers' config.json.
#include "model/text/pooling.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "memory/account.h"
#include "model/text/decoder.h"

#include <stdio.h>
#include <sys/param.h>

enum { FILE_CAP_BYTES = 1 << 20, MOST_MODULES = 16 };

const char *rn_pooling_name(rn_pooling pooling) {
    static const char *const names[] = {"model", "mean", "cls", "last"};
    return names[pooling];
}

// ---- modules ------------------------------------------------------------------------------------

static bool ends_with(rn_str type, const char *name) {
    return rn_str_ends(type, rn_str_from(name));
}

static const struct {
    const char *flag, *name;
    rn_pooling pooling; // MODEL: not built
} modes[] = {{"pooling_mode_mean_tokens", "mean", RN_POOLING_MEAN},
             {"pooling_mode_cls_token", "cls", RN_POOLING_CLS},
             {"pooling_mode_lasttoken", "lasttoken", RN_POOLING_LAST},
             {"pooling_mode_max_tokens", "max", RN_POOLING_MODEL},
             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", RN_POOLING_MODEL},
             {"pooling_mode_weightedmean_tokens", "weightedmean", RN_POOLING_MODEL}};

// "pooling_mode": "mean", or a flag for each mode of which one is set.
static rn_status read_pooling(const rn_fields *f, rn_embedding_info *out) {
    rn_str mode = {0};
    uint32_t count = 0;
    RN_TRY(rn_fields_text(f, "pooling_mode", &mode));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        bool on = mode.bytes && rn_str_equal(mode, rn_str_from(modes[i].name));
        if (mode.bytes == 0) RN_TRY(rn_fields_bool(f, modes[i].flag, &on));
        if (!on) continue;
        count++;
        out->pooling = modes[i].pooling;
    }
    if (count == 1 && out->pooling != RN_POOLING_MODEL) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: its kind of pooling is not built", f->source),
                   "mean, cls and the last token are");
}

static rn_status read_file(const char *folder, const char *name, rn_fields *f, char *path) {
    RN_TRY(rn_path_join(folder, name, path, PATH_MAX));
    rn_fields_init(f, path);
    return rn_fields_read_file(f, path);
}

static rn_status take_pooling(const char *folder, rn_str where, rn_embedding_info *out) {
    char name[256], path[PATH_MAX];
    rn_fields f;
    if (where.bytes == 0 || where.bytes > 128 || memchr(where.data, '/', where.bytes))
        return rn_fail(RN_CORRUPT, "%s: the path of the Pooling module is no folder's name",
                       folder);
    snprintf(name, sizeof name, "%.*s/config.json", RN_STR_ARG(where));
    rn_status s = read_file(folder, name, &f, path);
    if (s == RN_OK) s = read_pooling(&f, out);
    rn_fields_free(&f);
    return s;
}

// Products behind pooling.
typedef struct dense_pair {
    uint32_t width; // between them
    uint32_t count;
} dense_pair;

// One of a pair, without a bias and an activation.
static rn_status read_dense(const rn_fields *f, dense_pair *pair) {
    rn_str activation = RN_STR("torch.nn.modules.activation.Tanh"); // where it does not say
    uint32_t in = 0, out = 0;
    bool bias = true;
    RN_TRY(rn_fields_text(f, "activation_function", &activation));
    RN_TRY(rn_fields_bool(f, "bias", &bias));
    RN_TRY(rn_fields_need_u32(f, "in_features", &in));
    RN_TRY(rn_fields_need_u32(f, "out_features", &out));
    if (bias || !ends_with(activation, ".Identity"))
        return rn_fail(RN_UNSUPPORTED, "%s: a product behind pooling with %s is not built",
                       f->source, bias ? "a bias" : "an activation");
    if (pair->count && in != pair->width)
        return rn_fail(RN_CORRUPT, "%s: %u columns behind a product of %u rows", f->source, in,
                       pair->width);
    if (pair->count++ == 0) pair->width = out;
    return RN_OK;
}

static rn_status take_dense(const char *folder, rn_str where, dense_pair *pair) {
    bool first = pair->count == 0;
    const char *name = first ? "2_Dense/config.json" : "3_Dense/config.json";
    char path[PATH_MAX];
    rn_fields f;
    if (!rn_str_equal(where, first ? RN_STR("2_Dense") : RN_STR("3_Dense")))
        return rn_fail(RN_UNSUPPORTED, "%s: the module '%.*s' is not built", folder,
                       RN_STR_ARG(where));
    rn_status s = read_file(folder, name, &f, path);
    if (s == RN_OK) s = read_dense(&f, pair);
    rn_fields_free(&f);
    return s;
}

// Module number `index`: its type says what it does.
static rn_status take_module(const char *folder, const rn_fields *f, uint32_t index,
                             rn_embedding_info *out, dense_pair *pair) {
    char field[48];
    rn_str type = {0}, where = {0};
    snprintf(field, sizeof field, "modules.%u.type", index);
    RN_TRY(rn_fields_need_text(f, field, &type));
    snprintf(field, sizeof field, "modules.%u.path", index);
    RN_TRY(rn_fields_text(f, field, &where));
    if (ends_with(type, ".Transformer") && where.bytes == 0) return RN_OK;
    if (ends_with(type, ".Pooling")) return take_pooling(folder, where, out);
    if (ends_with(type, ".Dense")) return take_dense(folder, where, pair);
    if (!ends_with(type, ".Normalize"))
        return rn_fail(RN_UNSUPPORTED, "%s: the module '%.*s' is not built", f->source,
                       RN_STR_ARG(type));
    out->normalizes = true;
    return RN_OK;
}

// fields.h reads objects; the file is a list.
static rn_status read_modules(const char *path, rn_fields *f) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_OTHER, FILE_CAP_BYTES);
    rn_status s = rn_buffer_append(&text, "{\"modules\":", 11);
    if (s == RN_OK) s = rn_file_read_all(path, &text);
    if (s == RN_OK) s = rn_buffer_append(&text, "}", 1);
    if (s == RN_OK) s = rn_fields_read_json(f, (rn_str){text.data, text.bytes});
    rn_buffer_free(&text);
    return s;
}

static rn_status take_modules(const char *folder, const char *path, rn_embedding_info *out,
                              uint32_t *dense) {
    rn_fields f;
    dense_pair pair = {0};
    rn_fields_init(&f, path);
    rn_status s = read_modules(path, &f);
    out->normalizes = false;
    const rn_field *list = s == RN_OK ? rn_fields_find(&f, "modules") : NULL;
    if (s == RN_OK && (!list || list->kind != RN_FIELD_LIST || list->count > MOST_MODULES))
        s = rn_fail(RN_CORRUPT, "%s is no list of modules", path);
    for (uint32_t i = 0; s == RN_OK && i < list->count; i++)
        s = take_module(folder, &f, i, out, &pair);
    if (s == RN_OK && pair.count == 1)
        s = rn_fail(RN_UNSUPPORTED, "%s: one module 'Dense' alone is not built", path);
    *dense = pair.width;
    rn_fields_free(&f);
    return s;
}

rn_status rn_pooling_from_folder(const char *folder, rn_embedding_info *out, uint32_t *out_dense) {
    char path[PATH_MAX];
    rn_fields f;
    RN_TRY(rn_path_join(folder, "modules.json", path, sizeof path));
    *out_dense = 0;
    if (rn_file_exists(path)) RN_TRY(take_modules(folder, path, out, out_dense));
    rn_status s = read_file(folder, "sentence_bert_config.json", &f, path);
    if (s == RN_OK) s = rn_fields_u32(&f, "max_seq_length", &out->text_tokens);
    rn_fields_free(&f);
    return s == RN_NOT_FOUND ? RN_OK : s;
}

static void write_module(rn_json *json, uint32_t index, const char *type, const char *path) {
    char name[2] = {(char)('0' + index), 0};
    char full[64];
    snprintf(full, sizeof full, "sentence_transformers.models.%s", type);
    rn_json_object(json, NULL);
    rn_json_u64(json, "idx", index);
    rn_json_string(json, "name", name);
    rn_json_string(json, "path", path);
    rn_json_string(json, "type", full);
    rn_json_end(json);
}

rn_status rn_pooling_to_json(const rn_embedding_info *info, uint32_t dimensions, bool dense,
                             rn_buffer *out_modules, rn_buffer *out_pooling) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out_modules), true);
    rn_json_array(&json, NULL);
    write_module(&json, 0, "Transformer", "");
    write_module(&json, 1, "Pooling", "1_Pooling");
    if (dense) write_module(&json, 2, "Dense", "2_Dense");
    if (dense) write_module(&json, 3, "Dense", "3_Dense");
    if (info->normalizes)
        write_module(&json, dense ? 4 : 2, "Normalize", dense ? "4_Normalize" : "2_Normalize");
    rn_json_end(&json);
    RN_TRY(rn_json_finish(&json));
    rn_json_begin(&json, rn_buffer_sink(out_pooling), true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "word_embedding_dimension", dimensions);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        rn_json_bool(&json, modes[i].flag,
                     modes[i].pooling == info->pooling && info->pooling != RN_POOLING_MODEL);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_dense_to_json(uint32_t in, uint32_t out, rn_buffer *out_config) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out_config), true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "in_features", in);
    rn_json_u64(&json, "out_features", out);
    rn_json_bool(&json, "bias", false);
    rn_json_string(&json, "activation_function", "torch.nn.modules.linear.Identity");
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// ---- GGUF ---------------------------------------------------------------------------------------

rn_status rn_pooling_from_gguf(const rn_fields *f, const char *architecture, rn_embedding_info *out,
                               bool *out_ranks) {
    static const rn_pooling kinds[] = {RN_POOLING_MODEL, RN_POOLING_MEAN, RN_POOLING_CLS,
                                       RN_POOLING_LAST};
    static const uint32_t rank = 4;
    char key[96];
    uint32_t kind = 0;
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    RN_TRY(rn_fields_u32(f, key, &kind));
    if (kind < sizeof kinds / sizeof *kinds) {
        if (kind) out->pooling = kinds[kind];
        return RN_OK;
    }
    bool encoder = strcmp(architecture, "bert") == 0;
    *out_ranks = kind == rank && encoder;
    if (*out_ranks) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: %s %u is not built%s", f->source, key, kind,
                   kind == rank ? " (a reranker that is no RoBERTa)" : "");
}

// ---- rerankers ----------------------------------------------------------------------------------

// Where the file does not say it, there are two.
static uint32_t count_labels(const rn_fields *f) {
    static const char *const names[] = {"id2label.0", "id2label.1"};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        count += rn_fields_find(f, names[i]) != NULL;
    return count == 1 ? 1 : 2;
}

rn_status rn_ranking_from_json(const rn_fields *f, rn_text_config *config) {
    rn_str name = {0};
    if (!config->llama.both_ways || !rn_fields_find(f, "architectures.0")) return RN_OK;
    RN_TRY(rn_fields_text(f, "architectures.0", &name));
    if (!ends_with(name, "ForSequenceClassification")) return RN_OK;
    bool built = config->llama.architecture->parts[RN_TEXT_RANK_IN].hugging_face != NULL;
    config->llama.ranks = built && count_labels(f) == 1;
    if (config->llama.ranks) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: the classifier of a %.*s is not built%s", f->source,
                           RN_STR_ARG(name), built ? " but for one label" : ""),
                   "rerankers of the BERT and RoBERTa families with one label are");
}
