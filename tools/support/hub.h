// hub.h — files of the Hugging Face hub, downloaded so that what is there is what was meant.
//
//     GET {endpoint}/api/models/org/name/revision/main?blobs=true    which files, how large, their
//     SHA-256 GET {endpoint}/org/name/resolve/main/FILE                      one of them, from
//     where the last try ended
//
// A file is written beside its name (".part") and gets it once its size and its SHA-256 are those
// that were announced; what does not agree is refused and thrown away. HTTP is libcurl's, loaded at
// run time. The endpoint is $HF_ENDPOINT, else https://huggingface.co; $HF_TOKEN is sent to it
// where it is set.
#ifndef RATION_SUPPORT_HUB_H
#define RATION_SUPPORT_HUB_H

#include "support/model_names.h"

#include <ration/stop.h>

typedef struct rn_hub_file {
    char name[RN_NAME_BYTES]; // a path within the repository
    uint64_t bytes;
    char sha256[65]; // "": none was announced (small files are kept in git)
} rn_hub_file;

typedef struct rn_hub_progress {
    const rn_hub_file *file;
    uint64_t done_bytes;                // of the file
    uint64_t all_bytes, all_done_bytes; // of all files
} rn_hub_progress;

typedef struct rn_hub_options {
    const rn_flag *cancel;
    void (*progress)(void *self,
                     const rn_hub_progress *progress); // a few times a second; may be NULL
    void *self;
    bool check_only; // say what would be downloaded
} rn_hub_options;

typedef struct rn_hub_result {
    char folder[RN_PATH_BYTES];
    uint32_t files, there; // all; of them those that were there already
    uint64_t bytes;        // that were downloaded
} rn_hub_result;

// Into ~/.cache/ration/models/org/name. Where name.file is empty: a repository of safetensors as a
// whole, one of GGUF files the q4_k_m (or the only one). RN_NOT_FOUND: no such repository or file,
// or no libcurl; RN_IO: no network, a download that ended early (the next call goes on there);
// RN_CORRUPT: another size or SHA-256 than announced.
RN_MUST_USE rn_status rn_hub_pull(const rn_model_name *name, const rn_hub_options *options,
                                  rn_hub_result *out);

#endif
