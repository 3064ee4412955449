// pull.c — ration pull: a model from the Hugging Face hub.
#include "command.h"

#include "support/hub.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void show(void *self, const rn_hub_progress *p) {
    (void)self;
    double share = p->all_bytes ? 100.0 * (double)p->all_done_bytes / (double)p->all_bytes : 100;
    fprintf(stderr, "\r\033[K%3.0f %%  %s of %s  %.60s", share,
            rn_size_format(p->all_done_bytes).text, rn_size_format(p->all_bytes).text,
            p->file->name);
    fflush(stderr);
}

static rn_status print_json(const rn_hub_result *result, const char *name) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "name", name);
    rn_json_string(&json, "folder", result->folder);
    rn_json_u64(&json, "files", result->files);
    rn_json_u64(&json, "files_there", result->there);
    rn_json_u64(&json, "downloaded_bytes", result->bytes);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status run(const invocation *in) {
    static rn_hub_result result; // a path
    rn_model_name name;
    RN_TRY(rn_model_name_parse(in->words[0], &name));
    bool terminal = isatty(STDERR_FILENO);
    rn_hub_options options = {.cancel = &interrupt_flag, .progress = terminal ? show : NULL};
    rn_status s = rn_hub_pull(&name, &options, &result);
    if (terminal) fprintf(stderr, "\r\033[K");
    RN_TRY(s);
    if (in->json) return print_json(&result, in->words[0]);
    printf("%s: %u files in %s (%u were there, %s downloaded)\nration run %s\n", in->words[0],
           result.files, result.folder, result.there, rn_size_format(result.bytes).text,
           in->words[0]);
    return RN_OK;
}

const command pull_command = {
    .name = "pull",
    .usage = "pull ORG/NAME[:FILE] [options]",
    .summary = "a model from the Hugging Face hub",
    .about =
        "Downloads a repository of safetensors as a whole, or one GGUF file of a repository that\n"
        "has several: FILE is a part of its name (q4_k_m, which is also what is taken where none "
        "is\n"
        "named). Into ~/.cache/ration/models; then `ration run ORG/NAME[:FILE]` finds it. A "
        "download\n"
        "that ended early goes on where it ended; sizes and SHA-256 sums must be those that the "
        "hub\n"
        "announces. HF_ENDPOINT names another hub, HF_TOKEN is sent to it. Needs libcurl.",
    .example = "ration pull Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:q4_k_m",
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
