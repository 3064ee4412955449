// architectures.c — the text architectures that are known: one row each. A new one is a file with
// an rn_text_architecture (decoder.h) and its row here.
#include "model/text/decoder.h"

#define ARCHITECTURES(row) row(llama) row(mistral) row(qwen2) row(qwen3) row(gpt2) row(gemma3)

#define DECLARE(name) extern const rn_text_architecture rn_text_##name;
#define LIST(name)    &rn_text_##name,
ARCHITECTURES(DECLARE)
static const rn_text_architecture *const architectures[] = {ARCHITECTURES(LIST)};

rn_status rn_text_architecture_find(rn_str name, rn_naming naming,
                                    const rn_text_architecture **out) {
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const rn_text_architecture *a = architectures[i];
        const char *known = a->name;
        if (naming == RN_NAMES_HUGGING_FACE && a->model_type) known = a->model_type;
        if (!rn_str_equal(name, rn_str_from(known))) continue;
        *out = a;
        return RN_OK;
    }
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "the architecture '%.*s' is not known", RN_STR_ARG(name)),
        "known are llama (also TinyLlama, SmolLM), mistral, qwen2 (also 2.5), qwen3, gpt2 and "
        "gemma3 (its text)");
}

const rn_text_architecture *rn_text_architecture_of(const rn_llama_config *config) {
    return config->architecture ? config->architecture : &rn_text_llama;
}
