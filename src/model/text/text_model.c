// text_model.c — opening a model: its files' headers, its configuration, its tokenizer.
//
//     files ─▶ configuration ─▶ graph ─▶ does every tensor fit? ─▶ adapters ─▶ tokenizer
//
// The graph says which weights there must be: it is built once here, to hold it against the files.
#include <ration/model.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/reserved.h"
#include "io/checkpoint.h"
#include "memory/account.h"
#include "model/text/adapters.h"
#include "model/text/chat_source.h"
#include "model/text/default_model.h"
#include "model/text/decoder.h"
#include "model/text/text_weights.h"

#include <stdio.h>
#include <sys/param.h>

#define MAPPED ((rn_account){.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_IO})

enum { MAX_TEMPLATE_BYTES = 4 << 20 };

struct rn_model {
    rn_checkpoint *checkpoint;
    bool in_memory; // it is the library's own
    rn_text_config config;
    rn_model_info info;
    char name[64];
    rn_adapters adapters;
    rn_llama_files files;
    rn_tokenizer *tokenizer;
    rn_buffer chat_template;
    rn_str mapped; // the library's own weights: pages of its file, which become resident
};

// ---- weights ------------------------------------------------------------------------------------

static rn_dtype dtype_of(const void *self, const char *weight) {
    const rn_model *model = self;
    return rn_text_weight_dtype(model->checkpoint, weight);
}

static const rn_low_rank *addition_of(const void *self, const char *weight, uint32_t index) {
    const rn_model *model = self;
    return rn_adapters_addition(&model->adapters, weight, index);
}

static const void *find_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    const rn_model *model = self;
    const void *found = rn_adapters_find(&model->adapters, name, bytes);
    if (found || !model->in_memory) return found;
    const rn_tensor_info *t = rn_checkpoint_find(model->checkpoint, name);
    bool fits = t && t->dtype == dtype && t->bytes == bytes;
    return fits ? rn_checkpoint_memory(model->checkpoint, t) : NULL;
}

rn_weight_source rn_model_weights(const rn_model *model) {
    return (rn_weight_source){.checkpoint = model->in_memory ? NULL : model->checkpoint,
                              .self = (void *)model,
                              .find = find_weight};
}

// ---- configuration ------------------------------------------------------------------------------

// The folder that a model's file lies in, or the folder itself.
static void find_folder(const char *path, char *out, size_t capacity) {
    snprintf(out, capacity, "%s", path);
    if (rn_file_is_folder(path)) return;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(out, capacity, ".");
}

static rn_status read_json_config(rn_model *model, const char *folder) {
    char path[PATH_MAX];
    rn_fields fields;
    RN_TRY(rn_path_join(folder, "config.json", path, sizeof path));
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_NOT_FOUND) s = rn_hint(s, "safetensors need the config.json that belongs to them");
    if (s == RN_OK) s = rn_text_config_from_json(&fields, &model->config);
    rn_fields_free(&fields);
    return s;
}

static rn_status read_gguf_config(rn_model *model, const char *path) {
    rn_fields fields;
    rn_str name = {0};
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_metadata(&fields, model->checkpoint);
    if (s == RN_OK) s = rn_text_config_from_gguf(&fields, model->checkpoint, &model->config);
    if (s == RN_OK) s = rn_fields_text(&fields, "general.name", &name);
    if (s == RN_OK && name.bytes)
        snprintf(model->name, sizeof model->name, "%.*s", RN_STR_ARG(name));
    rn_fields_free(&fields);
    return s;
}

static rn_status read_own_config(rn_model *model, rn_str text) {
    rn_fields fields;
    rn_fields_init(&fields, "the library's config.json");
    rn_status s = rn_fields_read_json(&fields, text);
    if (s == RN_OK) s = rn_text_config_from_json(&fields, &model->config);
    rn_fields_free(&fields);
    return s;
}

// The path's last part, without slashes at the end.
static void name_after(rn_model *model, const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(model->name, sizeof model->name, "%.*s", (int)(length - begin), path + begin);
}

// ---- checking -----------------------------------------------------------------------------------

static void fill_info(rn_model *model) {
    const rn_llama_config *c = &model->config.llama;
    rn_str_clean(model->name);
    model->info = (rn_model_info){.name = model->name,
                                  .architecture = model->config.architecture,
                                  .layers = c->layers,
                                  .dim = c->dim,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .head_dim = c->head_dim,
                                  .ffn = c->ffn,
                                  .vocab_size = c->vocab,
                                  .context = model->config.context,
                                  .window = c->window_from < c->layers ? c->window : 0,
                                  .tied_head = c->tied};
}

// Files of a model without its head lack the outer module's name.
static bool has_outer_names(const rn_model *model, const char *outer) {
    for (size_t i = 0; i < rn_checkpoint_count(model->checkpoint); i++)
        if (rn_str_starts(rn_checkpoint_tensor(model->checkpoint, i)->name, rn_str_from(outer)))
            return true;
    return false;
}

static void choose_naming(rn_model *model) {
    rn_llama_config *c = &model->config.llama;
    const char *outer = c->architecture->outer;
    if (outer && c->naming == RN_NAMES_HUGGING_FACE && !has_outer_names(model, outer))
        c->naming = RN_NAMES_BARE;
}

// The graph as it is without adapters, against the files; then the adapters against the graph.
static rn_status check_files(rn_model *model, const rn_model_options *options) {
    rn_recipe recipe;
    rn_graph *graph = NULL;
    RN_TRY(rn_text_config_check(&model->config, rn_checkpoint_count(model->checkpoint)));
    RN_TRY(rn_text_weights_readable(model->checkpoint));
    fill_info(model);
    choose_naming(model);
    model->files = (rn_llama_files){.self = model, .dtype = dtype_of, .addition = addition_of};
    model->config.llama.files = &model->files;
    RN_TRY(rn_model_make_recipe(model, NULL, &recipe));
    rn_status s = recipe.build(recipe.self, NULL, &graph);
    rn_recipe_destroy(&recipe);
    if (s == RN_OK) s = rn_text_weights_check(model->checkpoint, graph, &model->info);
    for (size_t i = 0; s == RN_OK && i < options->adapter_count; i++)
        s = rn_adapters_load(&model->adapters, &options->adapters[i], graph, &model->config.llama);
    rn_graph_destroy(graph);
    return s;
}

static rn_status check_tokenizer(const rn_model *model) {
    if (!model->tokenizer) return RN_OK;
    uint32_t words = rn_tokenizer_get_info(model->tokenizer)->vocab_size;
    if (words <= model->info.vocab_size) return RN_OK;
    return rn_hint(rn_fail(RN_CORRUPT, "the tokenizer has %u tokens, the model knows %u", words,
                           model->info.vocab_size),
                   "it belongs to another model");
}

// ---- opening ------------------------------------------------------------------------------------

// What a model has, or nothing: not every file brings a tokenizer.
static rn_status allow_none(rn_status s) {
    return s == RN_NOT_FOUND ? RN_OK : s;
}

static rn_status read_gguf_template(rn_model *model) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(model->checkpoint); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(model->checkpoint, i);
        if (rn_str_equal(m->key, RN_STR("tokenizer.chat_template")) && m->kind == RN_METADATA_TEXT)
            return rn_buffer_append(&model->chat_template, m->text.data, m->text.bytes);
    }
    return RN_OK;
}

static rn_status open_files(rn_model *model, const char *path, const rn_model_options *options) {
    char folder[PATH_MAX];
    name_after(model, path);
    find_folder(path, folder, sizeof folder);
    RN_TRY(rn_checkpoint_open(path, &model->checkpoint));
    bool gguf = rn_checkpoint_container(model->checkpoint) == RN_CONTAINER_GGUF;
    RN_TRY(gguf ? read_gguf_config(model, path) : read_json_config(model, folder));
    RN_TRY(check_files(model, options));
    rn_stage("config_loaded");
    if (options->without_tokenizer) return RN_OK;
    RN_TRY(gguf ? read_gguf_template(model) : rn_chat_source_read(folder, &model->chat_template));
    if (options->tokenizer_path)
        return rn_tokenizer_open(options->tokenizer_path, &model->tokenizer);
    return allow_none(gguf ? rn_tokenizer_from_gguf(model->checkpoint, &model->tokenizer)
                           : rn_tokenizer_open(folder, &model->tokenizer));
}

static rn_status open_own(rn_model *model, const rn_model_options *options) {
    rn_default_model own;
    RN_TRY(rn_default_model_get(&own));
    snprintf(model->name, sizeof model->name, "the default model");
    model->in_memory = true;
    RN_TRY(rn_checkpoint_open_memory("the library's model.safetensors", own.weights.data,
                                     own.weights.bytes, &model->checkpoint));
    RN_TRY(rn_budget_charge(MAPPED, own.weights.data, own.weights.bytes));
    model->mapped = own.weights;
    RN_TRY(read_own_config(model, own.config));
    RN_TRY(check_files(model, options));
    rn_stage("config_loaded");
    if (options->without_tokenizer) return RN_OK;
    return options->tokenizer_path ? rn_tokenizer_open(options->tokenizer_path, &model->tokenizer)
                                   : rn_tokenizer_from_json("the library's tokenizer.json",
                                                            own.tokenizer, &model->tokenizer);
}

rn_status rn_model_open(const char *path, const rn_model_options *options, rn_model **out) {
    static const rn_model_options defaults = {0};
    void *block = NULL;
    *out = NULL;
    if (!options) options = &defaults;
    RN_TRY(rn_check_reserved(options->reserved, "rn_model_options"));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof **out, &block));
    rn_model *model = block;
    rn_adapters_init(&model->adapters);
    rn_buffer_init(&model->chat_template, RN_HOST_OTHER, MAX_TEMPLATE_BYTES);
    rn_status s = path ? open_files(model, path, options) : open_own(model, options);
    if (s == RN_OK) s = check_tokenizer(model);
    if (s == RN_OK && model->tokenizer) rn_stage("tokenizer_loaded");
    if (s == RN_OK)
        *out = model;
    else
        rn_model_close(model);
    if (s == RN_OK || !path || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, path, rn_last_error()->offset);
}

void rn_model_close(rn_model *model) {
    if (!model) return;
    rn_tokenizer_close(model->tokenizer);
    rn_buffer_free(&model->chat_template);
    rn_adapters_free(&model->adapters);
    rn_checkpoint_close(model->checkpoint);
    if (model->mapped.bytes) rn_ledger_release(MAPPED, model->mapped.data, model->mapped.bytes);
    rn_free(RN_HOST_OTHER, model, sizeof *model);
}

const rn_model_info *rn_model_get_info(const rn_model *model) {
    return &model->info;
}

const rn_tokenizer *rn_model_tokenizer(const rn_model *model) {
    return model->tokenizer;
}

rn_str rn_model_chat_template(const rn_model *model) {
    return (rn_str){model->chat_template.data, model->chat_template.bytes};
}

// ---- recipes ------------------------------------------------------------------------------------

enum {
    DEFAULT_CONTEXT = 4096,
    DEFAULT_PAGE_TOKENS = 64,
    DEFAULT_ROWS = 512,
    DEFAULT_JOB = 128,
    MOST = 1 << 26 // of any of the options: far beyond use, far from overflowing
};

static uint32_t or_default(uint32_t value, uint32_t otherwise) {
    return value ? value : otherwise;
}

static rn_status check_options(const rn_text_options *o, uint32_t head_dim) {
    const uint32_t numbers[] = {o->context, o->page_tokens, o->sequences,
                                o->pages,   o->rows,        o->logit_rows};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] > MOST)
            return rn_fail(RN_INVALID, "%u tokens, rows, pages or sequences are too many",
                           numbers[i]);
    rn_dtype kv = o->kv_dtype;
    if (kv == RN_DTYPE_Q8_0 && head_dim % 32)
        return rn_fail(RN_UNSUPPORTED, "heads of %u are not whole blocks of q8_0", head_dim);
    if (kv == RN_DTYPE_NONE || kv == RN_DTYPE_F16 || kv == RN_DTYPE_F32 || kv == RN_DTYPE_Q8_0)
        return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "a KV cache of %s is not built, only f16, f32 and q8_0",
                   rn_dtype_get(kv)->name);
}

// "dynamic" rope is the plain one up to the trained context. Beyond it the base grows with the
// text; here, where keys are turned once, it is that of the longest text from the start.
static void stretch(const rn_text_config *config, rn_llama_config *c) {
    if (config->stretch == 0 || c->context <= config->context) return;
    c->rope.scaling = RN_ROPE_NTK;
    c->rope.factor =
        config->stretch * (float)c->context / (float)config->context - (config->stretch - 1);
}

rn_status rn_model_make_recipe(const rn_model *model, const rn_text_options *options,
                               rn_recipe *out) {
    rn_text_options o = options ? *options : (rn_text_options){0};
    rn_llama_config c = model->config.llama;
    *out = (rn_recipe){0};
    RN_TRY(rn_check_reserved(o.reserved, "rn_text_options"));
    RN_TRY(check_options(&o, c.head_dim));
    c.context = or_default(o.context, (uint32_t)rn_min_u64(model->config.context, DEFAULT_CONTEXT));
    c.page_tokens = or_default(o.page_tokens, DEFAULT_PAGE_TOKENS);
    c.sequences = or_default(o.sequences, 1);
    c.pages = o.pages;
    c.kv_dtype = o.kv_dtype ? o.kv_dtype : RN_DTYPE_F16;
    c.logit_rows = or_default(o.logit_rows, 1);
    c.rows =
        (uint32_t)rn_min_u64(or_default(o.rows, DEFAULT_ROWS), (uint64_t)c.sequences * c.context);
    c.plain_activations = o.plain_activations;
    stretch(&model->config, &c);
    RN_TRY(rn_llama_recipe(&c, out));
    snprintf(out->name, sizeof out->name, "%s", model->name);
    // A job for each sequence; they are read one after the other, and then go on side by side.
    out->workload_rows =
        c.sequences * rn_min_u64(or_default(o.prompt_tokens, DEFAULT_JOB), c.context);
    out->decode_steps = or_default(o.new_tokens, DEFAULT_JOB);
    out->weights_in_memory = model->in_memory;
    out->widens_vectors = !model->in_memory;
    return RN_OK;
}
