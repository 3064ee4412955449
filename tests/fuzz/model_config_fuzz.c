// model_config_fuzz.c — any text as a config.json: it is refused with a reason, or it makes a
// graph, or the graph says why not. The tensors are taken to be few, as in a small file.
#include <ration/memory.h>

#include "model/text/text_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS = 64 };

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static rn_status build(const rn_text_config *config) {
    rn_llama_config c = config->llama;
    rn_recipe recipe;
    rn_graph *graph = NULL;
    c.weight_dtype = RN_DTYPE_F16;
    c.kv_dtype = RN_DTYPE_F16;
    c.context = 256;
    c.page_tokens = 64;
    c.sequences = c.logit_rows = 1;
    c.rows = 8;
    RN_TRY(rn_llama_recipe(&c, &recipe));
    rn_status s = recipe.build(recipe.self, NULL, &graph);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_fields fields;
    rn_text_config config;
    rn_fields_init(&fields, "config.json");
    rn_status s = rn_fields_read_json(&fields, (rn_str){(const char *)data, size});
    if (s == RN_OK) s = rn_text_config_from_json(&fields, &config);
    if (s == RN_OK) s = rn_text_config_check(&config, TENSORS);
    if (s == RN_OK) s = build(&config);
    rn_fields_free(&fields);
    require(s == RN_OK || s == RN_CORRUPT || s == RN_UNSUPPORTED || s == RN_INVALID);
    require(s == RN_OK || rn_last_error()->message[0]);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}
