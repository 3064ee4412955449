// run_form.c — the form that a model wants messages in: its chat template. A template is parsed
// once and keeps its own copy of the source.
#include "run.h"

#include <string.h>
#include <time.h>

bool has_form(const runner *r) {
    return rn_model_chat_template(r->model).bytes > 0 ||
           rn_settings_text(r->in->settings, "template")[0];
}

rn_status open_form(const runner *r, rn_chat_template **out) {
    const char *path = rn_settings_text(r->in->settings, "template");
    text_buffer file = {0};
    rn_str source = rn_model_chat_template(r->model);
    *out = NULL;
    if (path[0]) {
        RN_TRY(read_text(path, &file));
        source = (rn_str){file.data, file.bytes};
    }
    rn_status s =
        source.bytes
            ? rn_chat_template_parse(path[0] ? path : "the model's chat template", source, out)
            : rn_hint(rn_fail(RN_NOT_FOUND, "the model has no chat template"),
                      "give one with --template FILE, or use -p TEXT without "
                      "--chat");
    free_text(&file);
    return s;
}

rn_status encode_question(const runner *r, rn_str question, rn_tokens *out) {
    const char *system = rn_settings_text(r->in->settings, "system");
    rn_chat_template *form = NULL;
    rn_chat_message messages[2];
    size_t count = 0;
    RN_TRY(open_form(r, &form));
    if (system[0])
        messages[count++] =
            (rn_chat_message){.role = {"system", 6}, .content = {system, strlen(system)}};
    messages[count++] = (rn_chat_message){.role = {"user", 4}, .content = question};
    rn_chat told = {
        .messages = messages, .count = count, .add_generation_prompt = true, .now = time(NULL)};
    rn_status s = rn_chat_encode(form, r->tokenizer, &told, out);
    rn_chat_template_free(form);
    return s;
}
