// models.c — ration models: what can be run by name on this machine.
#include "command.h"

#include "support/model_names.h"

#include <stdio.h>

typedef struct listing {
    rn_json json;
    bool as_json;
    size_t count;
    uint64_t bytes;
} listing;

static bool print_model(void *self, const rn_found_model *m) {
    listing *l = self;
    l->count++;
    l->bytes += m->bytes;
    if (l->as_json) {
        rn_json_object(&l->json, NULL);
        rn_json_string(&l->json, "name", m->label);
        if (m->repository[0]) rn_json_string(&l->json, "repository", m->repository);
        rn_json_string(&l->json, "path", m->path);
        rn_json_u64(&l->json, "bytes", m->bytes);
        rn_json_string(&l->json, "place", m->place);
        rn_json_end(&l->json);
        return true;
    }
    if (l->count == 1) printf("%-44s %10s  %s\n", "name", "size", "from");
    printf("%-44s %10s  %s%s%s%s\n", m->label, rn_size_format(m->bytes).text, m->place,
           m->repository[0] ? " (" : "", m->repository, m->repository[0] ? ")" : "");
    return true;
}

static rn_status run(const invocation *in) {
    listing l = {.as_json = in->json};
    if (l.as_json) {
        rn_json_begin(&l.json, rn_sink_file(stdout), true);
        rn_json_object(&l.json, NULL);
        rn_json_array(&l.json, "models");
    }
    RN_TRY(rn_models_list(print_model, &l));
    if (l.as_json) {
        rn_json_end(&l.json);
        rn_json_end(&l.json);
        return rn_json_finish(&l.json);
    }
    if (l.count == 0)
        printf("no models: `ration pull org/name` downloads one; $RATION_MODELS names folders that "
               "have some\n");
    else
        printf("%zu models, %s\n", l.count, rn_size_format(l.bytes).text);
    return RN_OK;
}

const command models_command = {
    .name = "models",
    .usage = "models [options]",
    .summary = "what can be run by name",
    .about =
        "Models on this machine, by the names that run, serve, plan and the other commands take:\n"
        "those in the folders of $RATION_MODELS, those that `ration pull` downloaded\n"
        "(~/.cache/ration/models), and those of the Hugging Face cache. org/name works as well.",
    .example = "ration run qwen2.5-coder-1.5b-instruct:q4_k_m",
    .run = run,
};
