// text_model_fuzz.c — any bytes as a GGUF file of a text model: it is refused with a reason, or it
// is a model whose graph can be made.
#include <ration/memory.h>
#include <ration/model.h>

#include "fuzz_file.h"

static void check_graph(const rn_model *model) {
    rn_recipe recipe;
    rn_graph *graph = NULL;
    rn_text_options options = {.context = 16, .page_tokens = 4, .logit_rows = 2};
    require(rn_model_make_recipe(model, &options, &recipe) == RN_OK);
    require(recipe.build(recipe.self, NULL, &graph) == RN_OK);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_model *model = NULL;
    rn_model_options options = {.without_tokenizer = true};
    if (size < 4 || data[0] != 'G') return 0; // safetensors would look for a config.json
    rn_status s = rn_model_open(make_file(data, size), &options, &model);
    if (s == RN_OK)
        check_graph(model);
    else
        require(rn_last_error()->message[0] && rn_last_error()->path[0]);
    rn_model_close(model);
    require(s == RN_OK || s == RN_CORRUPT || s == RN_UNSUPPORTED || s == RN_INVALID ||
            s == RN_NOT_FOUND);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}
