// convert_model.c — rn_convert: what a model's files are to become.
#include "io/conversion.h"

#include "base/file.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "model/text/text_network.h"

#include <sys/param.h>

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

// ---- the whole ----------------------------------------------------------------------------------

// People expect of a model in GGUF that llama.cpp runs it. That takes the architecture, the
// vocabulary, and other names and orders of rows than transformers' files have, which is not done
// here: better no file than one that looks like a model.
static rn_status refuse_model(void *self, const rn_checkpoint *source, rn_translation *out) {
    bool is_model = false;
    *out = (rn_translation){0};
    if (rn_checkpoint_container(source) == RN_CONTAINER_GGUF) return RN_OK;
    RN_TRY(is_hf_model(self, &is_model));
    if (!is_model) return RN_OK;
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "a transformers model does not become a GGUF model here: "
                                "its names, architecture and vocabulary would be missing"),
        "end the output in .safetensors (int8, int4, nf4 go there), or make the GGUF file "
        "with llama.cpp's convert_hf_to_gguf.py; ration converts that one further");
}

static void end(void *self) {
    (void)self;
}

rn_status rn_convert(const char *in_path, const char *out_path, const rn_convert_options *options,
                     rn_convert_result *out_result) {
    rn_translator refuses = {.self = (void *)in_path, .translate = refuse_model, .end = end};
    bool to_gguf = rn_str_ends(rn_str_from(out_path), RN_STR(".gguf"));
    return rn_convert_with(in_path, out_path, options, to_gguf ? &refuses : NULL, out_result);
}
