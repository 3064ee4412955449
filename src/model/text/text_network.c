// text_network.c — a text decoder from its files: their headers and its configuration.
//
//     files ─▶ configuration ─▶ graph ─▶ does every tensor fit? ─▶ adapters
//
// The graph says which weights there must be: it is built once here, to hold it against the files.
#include "model/text/text_network.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/reserved.h"
#include "io/checkpoint.h"
#include "io/weight_forms.h"
#include "memory/account.h"
#include "model/text/decoder.h"
#include "model/text/default_model.h"
#include "model/text/pooling.h"
#include "model/text/sampling_advice.h"
#include "model/text/text_weights.h"

#include <stdio.h>
#include <sys/param.h>

// A network's configuration.
typedef struct text_network {
    rn_text_config config;
    rn_llama_files files; // what config.llama.files points to
} text_network;

static rn_text_config *config_of(const rn_network *network) {
    return &((text_network *)network->config)->config;
}

const rn_text_config *rn_text_network_config(const rn_network *network) {
    return config_of(network);
}

// ---- weights ------------------------------------------------------------------------------------

static rn_dtype dtype_of(const void *self, const char *weight) {
    const rn_network *network = self;
    return rn_text_weight_dtype(network->checkpoint, weight);
}

static bool exists(const void *self, const char *weight) {
    const rn_network *network = self;
    return rn_text_weight_exists(network->checkpoint, weight) ||
           rn_checkpoint_form(network->checkpoint, weight);
}

static const rn_low_rank *addition_of(const void *self, const char *weight, uint32_t index) {
    const rn_network *network = self;
    return network->adapters ? rn_adapters_addition(network->adapters, weight, index) : NULL;
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

// LongRoPE has other divisors beyond the context that was trained first. transformers changes them
// when a text grows beyond that; here, where keys are turned once, they are those of the planned
// context from the start, as in llama.cpp.
static void divide(const rn_text_config *config, rn_llama_config *c) {
    bool is_long = c->context > config->long_from;
    if (config->long_from == 0) return;
    c->rope_divided = true;
    memcpy(c->rope_divisors, is_long ? config->long_divisors : config->short_divisors,
           sizeof c->rope_divisors);
}

// Norms of all rows at every step would cost many times the step.
static rn_status check_adapters(const rn_network *network) {
    if (!network->adapters || !network->adapters->has_magnitudes) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED,
                           "an adapter of this model is DoRA, which is computed with merged only"),
                   "ration convert MODEL OUT --lora ADAPTER, then use OUT");
}

static rn_status make_recipe(const rn_network *network, const void *options, rn_recipe *out) {
    rn_text_options o = options ? *(const rn_text_options *)options : (rn_text_options){0};
    rn_llama_config c = config_of(network)->llama;
    *out = (rn_recipe){0};
    RN_TRY(rn_check_reserved(o.reserved, "rn_text_options"));
    RN_TRY(check_adapters(network));
    if (config_of(network)->headless)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s makes embeddings, not text: %s", network->title,
                               c.both_ways ? "it is an encoder" : "it has no head"),
                       "ration embed computes them");
    RN_TRY(check_options(&o, c.latent.kv_rank ? c.latent.kv_rank : c.head_dim));
    if (c.latent.kv_rank) RN_TRY(check_options(&o, c.latent.turned));
    if (c.full_head_dim) RN_TRY(check_options(&o, c.full_head_dim));
    c.context =
        or_default(o.context, (uint32_t)rn_min_u64(config_of(network)->context, DEFAULT_CONTEXT));
    c.page_tokens = or_default(o.page_tokens, DEFAULT_PAGE_TOKENS);
    c.sequences = or_default(o.sequences, 1);
    c.pages = o.pages;
    c.kv_dtype = o.kv_dtype ? o.kv_dtype : RN_DTYPE_F16;
    c.logit_rows = or_default(o.logit_rows, 1);
    c.rows =
        (uint32_t)rn_min_u64(or_default(o.rows, DEFAULT_ROWS), (uint64_t)c.sequences * c.context);
    c.unquantised_activations = o.unquantised_activations;
    c.largest = o.largest;
    c.rolling_windows = o.rolling_windows;
    stretch(config_of(network), &c);
    divide(config_of(network), &c);
    RN_TRY(rn_llama_recipe(&c, out));
    snprintf(out->name, sizeof out->name, "%s", network->title);
    // A job for each sequence; they are read one after the other, and then go on side by side.
    out->workload_rows =
        c.sequences * rn_min_u64(or_default(o.prompt_tokens, DEFAULT_JOB), c.context);
    out->decode_steps = or_default(o.new_tokens, DEFAULT_JOB);
    out->decode_rows = c.sequences;
    out->weights_in_memory = network->in_memory;
    out->widens_vectors = !network->in_memory;
    return RN_OK;
}

static rn_status make_embedding(const rn_network *network, const rn_embedding_options *options,
                                rn_recipe *out) {
    rn_embedding_options o = options ? *options : (rn_embedding_options){0};
    const rn_text_config *config = config_of(network);
    rn_llama_config c = config->llama;
    uint32_t most = config->embedding.text_tokens;
    *out = (rn_recipe){0};
    RN_TRY(rn_check_reserved(o.reserved, "rn_embedding_options"));
    RN_TRY(check_adapters(network));
    if (o.scores && !c.ranks)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is no reranker", network->title),
                       "a model whose files have a classifier of one label is: bge-reranker, "
                       "ms-marco-MiniLM");
    c.scores = o.scores;
    o.text_tokens = or_default(o.text_tokens, (uint32_t)rn_min_u64(most, DEFAULT_ROWS));
    o.rows = (uint32_t)rn_max_u64(or_default(o.rows, DEFAULT_ROWS), o.text_tokens);
    if (o.rows > MOST) return rn_fail(RN_INVALID, "%u rows are too many", o.rows);
    c.packed = true;
    c.context = most; // of rope: the same for a text, however long those beside it are
    stretch(config, &c);
    divide(config, &c);
    c.context = o.text_tokens;
    c.rows = o.rows;
    c.unquantised_activations = o.unquantised_activations;
    RN_TRY(rn_llama_recipe(&c, out));
    snprintf(out->name, sizeof out->name, "%s", network->title);
    out->least_rows = o.text_tokens;
    out->weights_in_memory = network->in_memory;
    out->widens_vectors = !network->in_memory;
    return RN_OK;
}

rn_status rn_text_network_training(const rn_network *network, uint32_t tokens,
                                   rn_llama_config *out) {
    rn_llama_config c = config_of(network)->llama;
    if (config_of(network)->headless)
        return rn_fail(RN_UNSUPPORTED, "%s makes embeddings, not text: it cannot be fine-tuned",
                       network->title);
    if (tokens == 0 || tokens > MOST)
        return rn_fail(RN_INVALID, "sequences of %u tokens cannot be trained", tokens);
    c.context = c.tokens = tokens;
    c.documents = true;
    c.unquantised_activations = true;
    stretch(config_of(network), &c);
    divide(config_of(network), &c);
    *out = c;
    return RN_OK;
}

static const rn_network_kind text_decoder = {
    .name = "text decoder", .make_recipe = make_recipe, .make_embedding = make_embedding};

// ---- configuration ------------------------------------------------------------------------------

// The folder that a model's file lies in, or the folder itself.
void rn_text_find_folder(const char *path, char *out, size_t capacity) {
    snprintf(out, capacity, "%s", path);
    if (rn_file_is_folder(path)) return;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(out, capacity, ".");
}

static rn_status read_json_config(rn_network *network, const char *folder) {
    char path[PATH_MAX];
    rn_fields fields;
    RN_TRY(rn_path_join(folder, "config.json", path, sizeof path));
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_NOT_FOUND) s = rn_hint(s, "safetensors need the config.json that belongs to them");
    if (s == RN_OK) s = rn_text_config_from_json(&fields, config_of(network));
    rn_text_config *config = config_of(network);
    if (s == RN_OK) s = rn_sampling_advice_from_folder(folder, &config->sampling);
    if (s == RN_OK) s = rn_pooling_from_folder(folder, &config->embedding, &config->llama.dense);
    if (s == RN_OK && config->llama.dense &&
        !config->llama.architecture->parts[RN_TEXT_DENSE_IN].hugging_face)
        s = rn_fail(RN_UNSUPPORTED, "%s: products behind pooling of '%s' are not built", folder,
                    config->architecture);
    if (s == RN_OK) s = rn_ranking_from_json(&fields, config);
    rn_fields_free(&fields);
    if (s == RN_OK)
        s = rn_checkpoint_find_forms(network->checkpoint, &config_of(network)->quantization);
    return s;
}

static rn_status read_gguf_config(rn_network *network, const char *path) {
    rn_fields fields;
    rn_str name = {0};
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_metadata(&fields, network->checkpoint);
    if (s == RN_OK) s = rn_text_config_from_gguf(&fields, network->checkpoint, config_of(network));
    if (s == RN_OK)
        s = rn_pooling_from_gguf(&fields, config_of(network)->architecture,
                                 &config_of(network)->embedding, &config_of(network)->llama.ranks);
    if (s == RN_OK) s = rn_sampling_advice_from_gguf(&fields, &config_of(network)->sampling);
    if (s == RN_OK) s = rn_fields_text(&fields, "general.name", &name);
    if (s == RN_OK && name.bytes)
        snprintf(network->title, sizeof network->title, "%.*s", RN_STR_ARG(name));
    rn_fields_free(&fields);
    return s;
}

static rn_status read_own_config(rn_network *network, rn_str text) {
    rn_fields fields;
    rn_fields_init(&fields, "the library's config.json");
    rn_status s = rn_fields_read_json(&fields, text);
    if (s == RN_OK) s = rn_text_config_from_json(&fields, config_of(network));
    config_of(network)->sampling = (rn_sampling_advice){-1, -1, -1, -1, -1};
    rn_fields_free(&fields);
    return s;
}

// The path's last part, without slashes at the end.
static void name_after(rn_network *network, const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(network->title, sizeof network->title, "%.*s", (int)(length - begin), path + begin);
}

// ---- checking -----------------------------------------------------------------------------------

static void fill_info(rn_network *network) {
    const rn_llama_config *c = &config_of(network)->llama;
    rn_str_clean(network->title);
    network->info = (rn_model_info){.name = network->title,
                                    .architecture = config_of(network)->architecture,
                                    .layers = c->layers,
                                    .dim = c->dim,
                                    .heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .ffn = c->ffn,
                                    .vocab_size = c->vocab,
                                    .context = config_of(network)->context,
                                    .window = c->window_from < c->layers ? c->window : 0,
                                    .tied_head = c->tied,
                                    .encoder = config_of(network)->headless,
                                    .ranks = c->ranks,
                                    .embedding = config_of(network)->embedding,
                                    .sampling = config_of(network)->sampling};
}

static bool has_head(const rn_network *network) {
    const rn_llama_config *c = &config_of(network)->llama;
    char name[96];
    if (c->tied) return true;
    rn_text_weight_name(c, RN_TEXT_HEAD, 0, "weight", name, sizeof name);
    return rn_text_weight_exists(network->checkpoint, name);
}

// Where the files do not say it: encoders have the mean of all rows, decoders what the last has
// seen; a text is as long as what the model was trained for.
static void settle_embedding(rn_network *network) {
    rn_text_config *config = config_of(network);
    const rn_llama_config *c = &config->llama;
    rn_embedding_info *e = &config->embedding;
    config->headless = c->both_ways || (e->pooling != RN_POOLING_MODEL && !has_head(network));
    if (e->pooling == RN_POOLING_MODEL)
        e->pooling = c->both_ways ? RN_POOLING_MEAN : RN_POOLING_LAST;
    e->text_tokens =
        (uint32_t)rn_min_u64(e->text_tokens ? e->text_tokens : UINT32_MAX, config->context);
    e->first_position = c->first_position;
}

// Files of a model without its head lack the outer module's name.
static bool has_outer_names(const rn_network *network, const char *outer) {
    for (size_t i = 0; i < rn_checkpoint_count(network->checkpoint); i++)
        if (rn_str_starts(rn_checkpoint_tensor(network->checkpoint, i)->name, rn_str_from(outer)))
            return true;
    return false;
}

static void choose_naming(rn_network *network) {
    rn_llama_config *c = &config_of(network)->llama;
    const char *outer = c->architecture->outer;
    if (outer && c->naming == RN_NAMES_HUGGING_FACE && !has_outer_names(network, outer))
        c->naming = RN_NAMES_BARE;
}

// Of the one sequence that the graph is for.
static uint64_t count_states(const rn_graph *graph) {
    uint64_t sum = 0, bytes = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        bool state = info->role == RN_ROLE_STATE && info->purpose == RN_PURPOSE_STATE &&
                     info->producer == RN_NO_NODE;
        if (state && rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes))
            sum += bytes;
    }
    return sum;
}

// The graph as it is without adapters, against the files; then the adapters against the graph.
static rn_status check_files(rn_network *network, const rn_model_options *options,
                             rn_adapters *adapters) {
    text_network *text = network->config;
    rn_llama_config *llama = &text->config.llama;
    rn_recipe recipe;
    rn_graph *graph = NULL;
    RN_TRY(rn_text_config_check(&text->config, rn_checkpoint_count(network->checkpoint)));
    RN_TRY(rn_text_weights_readable(network->checkpoint));
    choose_naming(network);
    settle_embedding(network);
    fill_info(network);
    text->files = (rn_llama_files){
        .self = network, .dtype = dtype_of, .addition = addition_of, .exists = exists};
    llama->files = &text->files;
    rn_embedding_options whole = {.scores = llama->ranks};
    RN_TRY(text->config.headless ? make_embedding(network, &whole, &recipe)
                                 : make_recipe(network, NULL, &recipe));
    rn_status s = recipe.build(recipe.self, NULL, &graph);
    rn_recipe_destroy(&recipe);
    if (s == RN_OK)
        s = rn_text_weights_check(network->checkpoint, graph, &text->config, &network->info);
    if (s == RN_OK) network->info.state_bytes = count_states(graph);
    network->adapters = adapters;
    for (size_t i = 0; s == RN_OK && adapters && i < options->adapter_count; i++)
        s = rn_adapters_load(adapters, &options->adapters[i], graph, llama);
    rn_graph_destroy(graph);
    return s;
}

// ---- opening ------------------------------------------------------------------------------------

static rn_status open_files(rn_network *network, const char *path) {
    char folder[PATH_MAX];
    name_after(network, path);
    rn_text_find_folder(path, folder, sizeof folder);
    RN_TRY(rn_checkpoint_open(path, &network->checkpoint));
    bool gguf = rn_checkpoint_container(network->checkpoint) == RN_CONTAINER_GGUF;
    return gguf ? read_gguf_config(network, path) : read_json_config(network, folder);
}

static rn_status open_own(rn_network *network) {
    rn_default_model own;
    RN_TRY(rn_default_model_get(&own));
    snprintf(network->title, sizeof network->title, "the default model");
    network->in_memory = true;
    RN_TRY(rn_checkpoint_open_memory("the library's model.safetensors", own.weights.data,
                                     own.weights.bytes, &network->checkpoint));
    RN_TRY(rn_budget_charge(RN_NETWORK_MAPPED, own.weights.data, own.weights.bytes));
    network->mapped = own.weights;
    return read_own_config(network, own.config);
}

rn_status rn_text_network_open(rn_network *network, const char *path,
                               const rn_model_options *options, rn_adapters *adapters) {
    network->kind = &text_decoder;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(text_network), &network->config));
    network->config_bytes = sizeof(text_network);
    RN_TRY(path ? open_files(network, path) : open_own(network));
    return check_files(network, options, adapters);
}
