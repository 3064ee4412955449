// model_names.h — models by name: which files on this machine a name stands for.
//
//     org/name              a repository of the Hugging Face hub, as it was downloaded
//     org/name:q4_k_m       one GGUF file of it: part of the file's name, in whatever case
//     qwen2.5-coder-1.5b:q4_k_m    the same, without the organisation; "-GGUF" may be left out, and
//                                  "-Instruct", "-it" and "-chat" where no other is called so
//
// They are looked for in the folders of $RATION_MODELS (with ':' between them), in
// ~/.cache/ration/models, where `ration pull` puts them, and in the Hugging Face cache
// ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). Names are not trusted: one with ".." is
// refused.
#ifndef RATION_SUPPORT_MODEL_NAMES_H
#define RATION_SUPPORT_MODEL_NAMES_H

#include <ration/status.h>

enum { RN_NAME_BYTES = 256, RN_PATH_BYTES = 4096 };

// A name in its parts. RN_INVALID: no name of a model, and why.
typedef struct rn_model_name {
    char organisation[RN_NAME_BYTES]; // "": not given
    char name[RN_NAME_BYTES];
    char file[RN_NAME_BYTES]; // behind ':'; "": not given
} rn_model_name;
RN_MUST_USE rn_status rn_model_name_parse(const char *text, rn_model_name *out);
// A relative path that leaves no folder: no "..", no leading '/'.
bool rn_path_is_inside(const char *path);

// Something that can be run.
typedef struct rn_found_model {
    char label[2 * RN_NAME_BYTES + 2];      // "qwen2.5-coder-1.5b:q4_k_m": what finds it again
    char repository[2 * RN_NAME_BYTES + 2]; // "Qwen/Qwen2.5-Coder-1.5B-GGUF"; "": of no hub
    char path[RN_PATH_BYTES];               // a folder or a GGUF file
    uint64_t bytes;                         // of its weights
    const char *place;                      // "RATION_MODELS", "ration", "Hugging Face"
} rn_found_model;

// All that are there, in order of the places above; `each` returns false to end.
RN_MUST_USE rn_status rn_models_list(bool (*each)(void *self, const rn_found_model *model),
                                     void *self);
// `word` is what a user gave: a path that exists, a file name, or a recipe stays as it is
// (out->path is `word`, and label is empty). RN_NOT_FOUND: a name that nothing here answers to,
// with what to do; RN_INVALID: several files do, or the name has "..".
RN_MUST_USE rn_status rn_model_find(const char *word, rn_found_model *out);
// Where `ration pull` puts models.
RN_MUST_USE rn_status rn_models_folder(char out[RN_PATH_BYTES]);

#endif
