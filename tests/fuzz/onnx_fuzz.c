// onnx_fuzz.c — any bytes as an ONNX model: refused with a reason, or a graph that is whole. Inputs
// with open sizes have 2 for them, so that more of the ops are reached.
#include "exchange/onnx_import.h"
#include "memory/account.h"

#include "fuzz_file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DECODED_BYTES = 1 << 20 };

static void decode(const rn_onnx_tensor *t) {
    static uint8_t values[MOST_DECODED_BYTES];
    uint64_t bytes = 0;
    if (t->external || !rn_onnx_tensor_bytes(t, &bytes) || bytes > sizeof values) return;
    rn_status s = rn_onnx_tensor_decode(t, values, bytes);
    require(s == RN_OK || s == RN_CORRUPT);
}

static void import(const rn_onnx_model *model) {
    rn_arena memory;
    rn_imported imported;
    rn_onnx_dim dim = {.name = "N", .size = 2};
    rn_onnx_options options = {.dims = &dim, .dim_count = 1};
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_status s = rn_onnx_import(model, NULL, NULL, &options, &memory, &imported);
    if (s == RN_OK) {
        require(rn_graph_value_count(imported.graph) < UINT32_MAX);
        rn_graph_destroy(imported.graph);
    } else {
        require(rn_last_error()->message[0] != 0);
    }
    rn_arena_free_all(&memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_onnx_model *model = NULL;
    uint8_t *exact = malloc(size + !size);
    memcpy(exact, data, size);
    if (rn_onnx_parse((rn_str){(char *)exact, size}, &model) == RN_OK) {
        for (size_t i = 0; i < model->graph->initializer_count; i++)
            decode(&model->graph->initializers[i]);
        import(model);
    }
    rn_onnx_free(model);
    free(exact);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}
