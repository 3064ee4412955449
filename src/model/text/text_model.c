// text_model.c — opening a text model: its networks, then its tokenizer and chat template.
#include "model/text/text_network.h"

#include "base/reserved.h"
#include "io/checkpoint.h"
#include "model/text/chat_source.h"
#include "model/text/default_model.h"

#include <sys/param.h>

// ---- texts --------------------------------------------------------------------------------------

// What a model has, or nothing: not every file brings a tokenizer.
static rn_status allow_none(rn_status s) {
    return s == RN_NOT_FOUND ? RN_OK : s;
}

static rn_status read_gguf_template(rn_model *model) {
    const rn_checkpoint *checkpoint = model->networks[0].checkpoint;
    for (size_t i = 0; i < rn_checkpoint_metadata_count(checkpoint); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(checkpoint, i);
        if (rn_str_equal(m->key, RN_STR("tokenizer.chat_template")) && m->kind == RN_METADATA_TEXT)
            return rn_buffer_append(&model->chat_template, m->text.data, m->text.bytes);
    }
    return RN_OK;
}

// With the tokenizer that the options name, or the model's own. `path` is the first network's.
static rn_status open_texts(rn_model *model, const char *path, const rn_model_options *options) {
    const rn_checkpoint *checkpoint = model->networks[0].checkpoint;
    bool gguf = path && rn_checkpoint_container(checkpoint) == RN_CONTAINER_GGUF;
    char folder[PATH_MAX];
    if (path) rn_text_find_folder(path, folder, sizeof folder);
    if (gguf) RN_TRY(read_gguf_template(model));
    if (path && !gguf) RN_TRY(rn_chat_source_read(folder, &model->chat_template));
    if (options->tokenizer_path)
        return rn_tokenizer_open(options->tokenizer_path, &model->tokenizer);
    if (path)
        return allow_none(gguf ? rn_tokenizer_from_gguf(checkpoint, &model->tokenizer)
                               : rn_tokenizer_open(folder, &model->tokenizer));
    rn_default_model own;
    RN_TRY(rn_default_model_get(&own));
    return rn_tokenizer_from_json("the library's tokenizer.json", own.tokenizer, &model->tokenizer);
}

static rn_status check_tokenizer(const rn_model *model) {
    uint32_t words = rn_tokenizer_get_info(model->tokenizer)->vocab_size;
    for (size_t i = 0; i < model->network_count; i++) {
        uint32_t known = model->networks[i].info.vocab_size;
        if (words > known)
            return rn_hint(rn_fail(RN_CORRUPT, "the tokenizer has %u tokens, the model knows %u",
                                   words, known),
                           "it belongs to another model");
    }
    return RN_OK;
}

// ---- opening ------------------------------------------------------------------------------------

// An error that names no file is the path's that was being read.
static rn_status blame(rn_status s, const char *path) {
    if (s == RN_OK || !path || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, path, rn_last_error()->offset);
}

static rn_status open_all(rn_model *model, const rn_network_files *files,
                          const rn_model_options *options) {
    for (size_t i = 0; i < model->network_count; i++) {
        rn_adapters *adapters = i == 0 ? &model->adapters : NULL;
        RN_TRY(blame(rn_text_network_open(&model->networks[i], files[i].path, options, adapters),
                     files[i].path));
    }
    rn_bundle_fill_info(model);
    rn_stage("config_loaded");
    if (!options->without_tokenizer)
        RN_TRY(blame(open_texts(model, files[0].path, options), files[0].path));
    if (!model->tokenizer) return RN_OK;
    RN_TRY(blame(check_tokenizer(model), files[0].path));
    rn_stage("tokenizer_loaded");
    return RN_OK;
}

rn_status rn_model_open_networks(const rn_network_files *files, size_t count,
                                 const rn_model_options *options, rn_model **out) {
    static const rn_model_options defaults = {0};
    rn_model *model = NULL;
    *out = NULL;
    if (!options) options = &defaults;
    RN_TRY(rn_check_reserved(options->reserved, "rn_model_options"));
    RN_TRY(rn_bundle_create(files, count, &model));
    rn_status s = open_all(model, files, options);
    if (s == RN_OK)
        *out = model;
    else
        rn_model_close(model);
    return s;
}

rn_status rn_model_open(const char *path, const rn_model_options *options, rn_model **out) {
    return rn_model_open_networks(&(rn_network_files){"decoder", path}, 1, options, out);
}
