// default_model.c — files as bytes of the library: the assembler includes them where they lie in
// the source tree (RATION_DEFAULT_MODEL, from CMake), so that nothing is generated or compiled.
#include "model/text/default_model.h"

#ifdef RATION_DEFAULT_MODEL

// A symbol at the file's first byte and one behind its last.
#define INCLUDE_FILE(symbol, file)                                                                 \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 64\n" #symbol ":\n"                                                           \
            ".incbin \"" RATION_DEFAULT_MODEL "/" file "\"\n" #symbol "_end:\n"                    \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char symbol[], symbol##_end[]

INCLUDE_FILE(rn_default_weights, "model.safetensors");
INCLUDE_FILE(rn_default_config, "config.json");
INCLUDE_FILE(rn_default_tokenizer, "tokenizer.json");

static rn_str between(const char *begin, const char *end) {
    return (rn_str){begin, (size_t)(end - begin)};
}

rn_status rn_default_model_get(rn_default_model *out) {
    *out = (rn_default_model){
        .weights = between(rn_default_weights, rn_default_weights_end),
        .config = between(rn_default_config, rn_default_config_end),
        .tokenizer = between(rn_default_tokenizer, rn_default_tokenizer_end),
    };
    return RN_OK;
}

#else

rn_status rn_default_model_get(rn_default_model *out) {
    *out = (rn_default_model){0};
    return rn_hint(rn_fail(RN_NOT_FOUND, "this library was built without a model of its own"),
                   "name a model's folder or file");
}

#endif
