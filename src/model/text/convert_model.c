// convert_model.c — rn_convert: which files a model's become.
//
//     a Hugging Face model -> out.gguf     names, settings, vocabulary, template in GGUF's words
//     a GGUF model         -> out/         config.json, tokenizer.json, ..., model.safetensors
//     a Hugging Face model -> out/         the files beside the weights are copied
//     anything else                        tensors under their own names, metadata where it fits
//
// A folder's small files are written once all tensors are, just before model.safetensors gets its
// name; where the conversion fails, what was new goes again.
#include "io/conversion.h"

#include "base/file.h"
#include "io/checkpoint.h"
#include "io/gguf.h"
#include "graph/rope_frequencies.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "model/text/chat_source.h"
#include "model/text/pooling.h"
#include "model/text/text_network.h"
#include "model/text/translate.h"
#include "model/text/decoder.h"
#include "text/vocab_to_gguf.h"
#include "text/vocab_to_json.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- what the input is --------------------------------------------------------------------------

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
static rn_status is_hf_model(const char *in_path, bool *out) {
    enum { CONFIG_MOST_BYTES = 4 << 20 };
    char folder[PATH_MAX], path[PATH_MAX];
    rn_buffer text;
    *out = false;
    rn_text_find_folder(in_path, folder, sizeof folder);
    if (rn_path_join(folder, "config.json", path, sizeof path) != RN_OK || !rn_file_exists(path))
        return RN_OK;
    rn_buffer_init(&text, RN_HOST_IO, CONFIG_MOST_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    if (s == RN_OK) s = is_model_config((rn_str){text.data, text.bytes}, out);
    rn_buffer_free(&text);
    return s == RN_CORRUPT || s == RN_INVALID ? RN_OK : s;
}

// ---- a conversion -------------------------------------------------------------------------------

enum { SIDE_MOST = 24, SIDE_CAP_BYTES = 512 << 20 };

// A small file of the output's folder.
typedef struct side_file {
    const char *name;
    rn_buffer text;
    bool is_new; // it was written, and was not there before
} side_file;

typedef struct model_conversion {
    const char *in_path;
    char folder[PATH_MAX], file[PATH_MAX]; // of the output; folder is empty where it is a file
    bool made_folder;
    rn_dtype to;
    bool packed;     // a GGUF file with an expert a record is wanted
    rn_model *model; // without its tokenizer, or NULL
    rn_pairs pairs;
    rn_arena arena;
    rn_write_tensor tables[2]; // of rope's divisors
    const float *table_values[2];
    uint64_t table_pairs;
    side_file sides[SIDE_MOST];
    size_t side_count;
} model_conversion;

static side_file *add_side(model_conversion *c, const char *name) {
    side_file *side = &c->sides[c->side_count++];
    *side = (side_file){.name = name};
    rn_buffer_init(&side->text, RN_HOST_IO, SIDE_CAP_BYTES);
    return side;
}

static rn_status open_model(model_conversion *c) {
    rn_model_options options = {.without_tokenizer = true};
    RN_TRY(rn_model_open(c->in_path, &options, &c->model));
    return rn_text_translatable(rn_text_network_config(&c->model->networks[0]));
}

// ---- to GGUF ------------------------------------------------------------------------------------

static rn_status add_vocab(model_conversion *c, const char *folder, uint32_t size) {
    rn_tokenizer *tokenizer = NULL;
    rn_buffer text;
    rn_status s = rn_tokenizer_open(folder, &tokenizer);
    if (s == RN_NOT_FOUND) return RN_OK; // as ration runs it: tokens in, tokens out
    if (s == RN_OK) s = rn_vocab_to_gguf(tokenizer, size, &c->pairs);
    rn_tokenizer_close(tokenizer);
    rn_buffer_init(&text, RN_HOST_IO, SIDE_CAP_BYTES);
    if (s == RN_OK) s = rn_chat_source_read(folder, &text);
    if (s == RN_OK && text.bytes)
        s = rn_pairs_text(&c->pairs, "tokenizer.chat_template", (rn_str){text.data, text.bytes});
    rn_buffer_free(&text);
    return s;
}

// A table with a divisor for each pair of rope.
static rn_status add_table(model_conversion *c, const char *name, const float *divisors,
                           size_t pairs, rn_translation *out) {
    void *copy;
    RN_TRY(rn_arena_copy(&c->arena, divisors, pairs * sizeof *divisors, &copy));
    size_t index = out->constant_count++;
    c->table_values[index] = copy;
    c->table_pairs = pairs;
    c->tables[index] = (rn_write_tensor){
        .name = rn_str_from(name), .dtype = RN_DTYPE_F32, .rank = 1, .dims = &c->table_pairs};
    out->constants = c->tables;
    out->values = c->table_values;
    return RN_OK;
}

// Scalings of rope that GGUF has as tables: Llama 3's, and LongRoPE's two.
static rn_status add_tables(model_conversion *c, const rn_text_config *config,
                            rn_translation *out) {
    enum { MOST = 4096 };
    const rn_llama_config *l = &config->llama;
    size_t pairs = rn_rope_dims(&l->rope, l->head_dim) / 2;
    if (config->long_from) {
        RN_TRY(add_table(c, "rope_factors_short.weight", config->short_divisors, pairs, out));
        return add_table(c, "rope_factors_long.weight", config->long_divisors, pairs, out);
    }
    if (l->full_head_dim && l->rope_divided)
        return add_table(c, "rope_freqs.weight", l->rope_divisors, l->full_head_dim / 2, out);
    if (l->rope.scaling != RN_ROPE_LLAMA3) return RN_OK;
    float divisors[MOST];
    if (pairs > MOST) return rn_fail(RN_UNSUPPORTED, "heads of %u are too wide", l->head_dim);
    rn_rope_to_divisors(&l->rope, (uint32_t)pairs * 2, divisors);
    return add_table(c, "rope_freqs.weight", divisors, pairs, out);
}

static rn_status refuse_packed(const model_conversion *c, const char *why) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s %s", c->in_path, why),
                   "--packed is for mixtures of experts that become a GGUF file");
}

// From GGUF to GGUF nothing is called otherwise but experts: of a file that is packed, or shall be.
static rn_status repack(model_conversion *c, const rn_checkpoint *source, rn_translation *out) {
    bool was_packed = source->alignment == RN_GGUF_PACKED_ALIGNMENT;
    if (!was_packed && !c->packed) return RN_OK;
    RN_TRY(open_model(c));
    const rn_text_config *config = rn_text_network_config(&c->model->networks[0]);
    if (config->llama.moe.experts == 0)
        return c->packed ? refuse_packed(c, "has no experts") : RN_OK;
    return rn_text_repack(source, &config->llama, c->packed, &c->arena, out);
}

static rn_status to_gguf(void *self, const rn_checkpoint *source, rn_translation *out) {
    model_conversion *c = self;
    char folder[PATH_MAX];
    bool is_model = false;
    *out = (rn_translation){0};
    if (rn_checkpoint_container(source) == RN_CONTAINER_GGUF) return repack(c, source, out);
    RN_TRY(is_hf_model(c->in_path, &is_model));
    if (!is_model) return c->packed ? refuse_packed(c, "is no model") : RN_OK;
    RN_TRY(open_model(c));
    const rn_network *network = &c->model->networks[0];
    const rn_text_config *config = rn_text_network_config(network);
    rn_llama_config to = config->llama;
    if (c->packed && to.moe.experts == 0) return refuse_packed(c, "has no experts");
    to.naming = RN_NAMES_GGUF;
    to.rope.pairing = to.architecture->gguf_rope;
    to.norm_offset = 0;
    to.first_position = 0;
    to.recurrent.keys_in_turn = to.recurrent.value_heads > 0;
    RN_TRY(rn_text_translate_names(source, network->checkpoint, &config->llama, &to, c->packed,
                                   &c->arena, out));
    RN_TRY(rn_text_settings_to_gguf(config, network->title, &c->pairs));
    rn_text_find_folder(c->in_path, folder, sizeof folder);
    RN_TRY(add_vocab(c, folder, config->llama.vocab));
    out->metadata = c->pairs.items;
    out->metadata_count = c->pairs.count;
    return add_tables(c, config, out);
}

// ---- to a folder --------------------------------------------------------------------------------

static const rn_metadata *find(const rn_checkpoint *source, const char *key) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(source); i++)
        if (rn_str_equal(rn_checkpoint_metadata(source, i)->key, rn_str_from(key)))
            return rn_checkpoint_metadata(source, i);
    return NULL;
}

static uint32_t find_id(const rn_checkpoint *source, const char *key) {
    const rn_metadata *pair = find(source, key);
    bool number = pair && (pair->kind == RN_METADATA_U64 || pair->kind == RN_METADATA_I64);
    return number && pair->value.u64 < UINT32_MAX ? (uint32_t)pair->value.u64 : UINT32_MAX;
}

// What torch calls the dtype that most of the weights will have.
static const char *dtype_name(const rn_checkpoint *source, rn_dtype to) {
    const rn_tensor_info *t = rn_checkpoint_find(source, "token_embd.weight");
    if (to == RN_DTYPE_NONE && t) to = t->dtype;
    return to == RN_DTYPE_F16 ? "float16" : to == RN_DTYPE_BF16 ? "bfloat16" : "float32";
}

static rn_status add_texts(model_conversion *c, const rn_checkpoint *source) {
    side_file *tokenizer = add_side(c, "tokenizer.json");
    side_file *config = add_side(c, "tokenizer_config.json");
    rn_status s = rn_vocab_to_json(source, &tokenizer->text, &config->text);
    if (s == RN_NOT_FOUND) c->side_count -= 2;
    if (s != RN_OK) return s == RN_NOT_FOUND ? RN_OK : s;
    const rn_metadata *chat = find(source, "tokenizer.chat_template");
    if (!chat || chat->kind != RN_METADATA_TEXT) return RN_OK;
    return rn_buffer_append(&add_side(c, "chat_template.jinja")->text, chat->text.data,
                            chat->text.bytes);
}

static rn_status add_pooling(model_conversion *c, const rn_text_config *config) {
    side_file *modules = add_side(c, "modules.json");
    side_file *pooling = add_side(c, "1_Pooling/config.json");
    return rn_pooling_to_json(&config->embedding, config->llama.dim, config->llama.dense > 0,
                              &modules->text, &pooling->text);
}

// A safetensors file of one small weight, in f32.
static rn_status write_weight(const rn_checkpoint *source, const rn_tensor_info *t,
                              rn_buffer *out) {
    char header[160];
    void *values;
    size_t bytes = (size_t)t->elements * sizeof(float);
    int length = snprintf(header, sizeof header,
                          "{\"linear.weight\":{\"dtype\":\"F32\",\"shape\":[%llu,%llu],"
                          "\"data_offsets\":[0,%zu]}}",
                          (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], bytes);
    uint64_t header_bytes = htole64((uint64_t)length);
    RN_TRY(rn_alloc(RN_HOST_IO, bytes, &values));
    rn_status s = rn_checkpoint_load(source, t, RN_DTYPE_F32, values, bytes);
    if (s == RN_OK) s = rn_buffer_append(out, &header_bytes, sizeof header_bytes);
    if (s == RN_OK) s = rn_buffer_append(out, header, (size_t)length);
    if (s == RN_OK) s = rn_buffer_append(out, values, bytes);
    rn_free(RN_HOST_IO, values, bytes);
    return s;
}

// The products behind pooling have folders of their own. Their shapes were held against the graph.
static rn_status add_dense(model_conversion *c, const rn_checkpoint *source,
                           const rn_llama_config *l) {
    const rn_tensor_info *first = rn_checkpoint_find(source, "dense_2.weight");
    const rn_tensor_info *second = rn_checkpoint_find(source, "dense_3.weight");
    if (l->dense == 0 || !first || !second) return RN_OK;
    RN_TRY(rn_dense_to_json(l->dim, l->dense, &add_side(c, "2_Dense/config.json")->text));
    RN_TRY(rn_dense_to_json(l->dense, l->dim, &add_side(c, "3_Dense/config.json")->text));
    RN_TRY(write_weight(source, first, &add_side(c, "2_Dense/model.safetensors")->text));
    return write_weight(source, second, &add_side(c, "3_Dense/model.safetensors")->text);
}

static rn_status to_hf(model_conversion *c, const rn_checkpoint *source, rn_translation *out) {
    rn_text_config other;
    RN_TRY(open_model(c));
    const rn_network *network = &c->model->networks[0];
    const rn_text_config *config = rn_text_network_config(network);
    rn_text_extras extras = {.dtype = dtype_name(source, c->to),
                             .begin = find_id(source, "tokenizer.ggml.bos_token_id"),
                             .end = find_id(source, "tokenizer.ggml.eos_token_id"),
                             .pad = find_id(source, "tokenizer.ggml.padding_token_id")};
    RN_TRY(rn_text_config_to_json(config, &extras, &add_side(c, "config.json")->text, &other));
    bool bare = other.llama.both_ways && other.llama.architecture->outer; // without a head
    if (bare) other.llama.naming = RN_NAMES_BARE;
    RN_TRY(rn_text_translate_names(source, network->checkpoint, &config->llama, &other.llama, false,
                                   &c->arena, out));
    RN_TRY(add_texts(c, source));
    char key[96];
    snprintf(key, sizeof key, "%s.pooling_type", config->architecture);
    if (config->headless || find(source, key)) RN_TRY(add_pooling(c, config));
    RN_TRY(add_dense(c, source, &config->llama));
    RN_TRY(rn_pairs_text(&c->pairs, "format", RN_STR("pt")));
    out->metadata = c->pairs.items;
    out->metadata_count = c->pairs.count;
    return RN_OK;
}

static rn_status copy_sides(model_conversion *c) {
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "sentencepiece.bpe.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "chat_template.jinja",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "2_Dense/config.json",
                                        "2_Dense/model.safetensors",
                                        "3_Dense/config.json",
                                        "3_Dense/model.safetensors",
                                        "sentence_bert_config.json",
                                        "config_sentence_transformers.json"};
    char folder[PATH_MAX], path[PATH_MAX];
    rn_text_find_folder(c->in_path, folder, sizeof folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        RN_TRY(rn_path_join(folder, names[i], path, sizeof path));
        if (rn_file_exists(path)) RN_TRY(rn_file_read_all(path, &add_side(c, names[i])->text));
    }
    return RN_OK;
}

// Files of products behind pooling are copied as they are, not converted with the model.
static rn_status leave_dense(model_conversion *c, const rn_checkpoint *source,
                             rn_translation *out) {
    size_t count = rn_checkpoint_count(source), pairs = rn_checkpoint_metadata_count(source);
    void *block;
    bool any = false;
    RN_TRY(rn_arena_array(&c->arena, count, sizeof(rn_converted_tensor), &block));
    rn_converted_tensor *tensors = block;
    for (size_t i = 0; i < count; i++) {
        rn_str name = rn_checkpoint_tensor(source, i)->name;
        bool dense = rn_str_matches(name, RN_STR("?_Dense.*"));
        if (!dense) tensors[i].name = name;
        any |= dense;
    }
    if (any)
        *out = (rn_translation){.tensors = tensors,
                                .metadata = pairs ? rn_checkpoint_metadata(source, 0) : NULL,
                                .metadata_count = pairs};
    return RN_OK;
}

static rn_status to_folder(void *self, const rn_checkpoint *source, rn_translation *out) {
    model_conversion *c = self;
    bool is_model = false;
    *out = (rn_translation){0};
    if (rn_checkpoint_container(source) == RN_CONTAINER_GGUF) return to_hf(c, source, out);
    RN_TRY(is_hf_model(c->in_path, &is_model));
    if (!is_model) return RN_OK;
    RN_TRY(copy_sides(c));
    return leave_dense(c, source, out);
}

// The folder of a file one further in.
static rn_status make_parent(char *path, size_t folder_bytes) {
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) <= folder_bytes) return RN_OK;
    *slash = '\0';
    bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
    rn_status s = made ? RN_OK : rn_file_fail("make", path);
    *slash = '/';
    return s;
}

static rn_status write_sides(void *self) {
    model_conversion *c = self;
    char path[PATH_MAX];
    for (size_t i = 0; i < c->side_count; i++) {
        side_file *side = &c->sides[i];
        RN_TRY(rn_path_join(c->folder, side->name, path, sizeof path));
        RN_TRY(make_parent(path, strlen(c->folder)));
        bool existed = rn_file_exists(path);
        RN_TRY(rn_file_replace(path, side->text.data, side->text.bytes));
        side->is_new = !existed;
    }
    return RN_OK;
}

// ---- the output's path --------------------------------------------------------------------------

// A folder is one that is there, or a name that ends in '/' or has no ending.
static bool is_folder(const char *path) {
    rn_str text = rn_str_from(path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (rn_str_ends(text, RN_STR(".gguf")) || rn_str_ends(text, RN_STR(".safetensors")))
        return false;
    return rn_file_is_folder(path) || *name == '\0' || !strchr(name, '.');
}

static rn_status make_folder(model_conversion *c) {
    RN_TRY(rn_path_join(c->folder, "model.safetensors", c->file, sizeof c->file));
    if (rn_file_is_folder(c->folder)) return RN_OK;
    if (mkdir(c->folder, 0777) != 0) return rn_file_fail("make", c->folder);
    c->made_folder = true;
    return RN_OK;
}

static void remove_file(char *path, size_t folder_bytes) {
    unlink(path);
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) <= folder_bytes) return;
    *slash = '\0';
    rmdir(path); // where it is empty now
}

// Nothing remains of what failed.
static void undo(model_conversion *c) {
    char path[PATH_MAX];
    for (size_t i = 0; i < c->side_count; i++)
        if (c->sides[i].is_new &&
            rn_path_join(c->folder, c->sides[i].name, path, sizeof path) == RN_OK)
            remove_file(path, strlen(c->folder));
    if (c->made_folder) rmdir(c->folder);
}

// What translating took; which files are new is still of interest.
static void end(void *self) {
    model_conversion *c = self;
    for (size_t i = 0; i < c->side_count; i++)
        rn_buffer_free(&c->sides[i].text);
    rn_pairs_free(&c->pairs);
    rn_arena_free_all(&c->arena);
    rn_model_close(c->model);
    c->model = NULL;
}

static rn_status convert(model_conversion *c, const char *out_path,
                         const rn_convert_options *options, rn_convert_result *out_result) {
    rn_translator translator = {.self = c, .translate = to_gguf, .end = end};
    bool to_gguf_file = rn_str_ends(rn_str_from(out_path), RN_STR(".gguf"));
    c->to = options->to;
    c->packed = options->packed;
    if (c->packed && !to_gguf_file) return refuse_packed(c, "would not become a GGUF file");
    rn_pairs_init(&c->pairs, RN_HOST_IO);
    rn_arena_init(&c->arena, RN_HOST_IO, 0);
    if (!is_folder(out_path))
        return rn_convert_with(c->in_path, out_path, options, to_gguf_file ? &translator : NULL,
                               out_result);
    if ((size_t)snprintf(c->folder, sizeof c->folder, "%s", out_path) >= sizeof c->folder)
        return rn_fail(RN_INVALID, "the path is too long");
    RN_TRY(make_folder(c));
    translator.translate = to_folder;
    translator.finish = write_sides;
    rn_status s = rn_convert_with(c->in_path, c->file, options, &translator, out_result);
    if (s != RN_OK) undo(c);
    return s;
}

rn_status rn_convert(const char *in_path, const char *out_path, const rn_convert_options *options,
                     rn_convert_result *out_result) {
    void *block;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof(model_conversion), &block));
    model_conversion *c = block;
    c->in_path = in_path;
    rn_status s = convert(c, out_path, options, out_result);
    rn_free(RN_HOST_IO, block, sizeof *c);
    return s;
}
