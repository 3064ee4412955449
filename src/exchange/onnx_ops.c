// onnx_ops.c — the table of ONNX ops: the rows of all files of ops, found by name.
#include "exchange/onnx_importer.h"

#include <stdio.h>

static const rn_import_op *const tables[] = {
    rn_onnx_math_ops,     rn_onnx_move_ops,      rn_onnx_reduce_ops,           rn_onnx_image_ops,
    rn_onnx_norm_ops,     rn_onnx_quantized_ops, rn_onnx_sequence_ops,         rn_onnx_loss_ops,
    rn_onnx_constant_ops, rn_onnx_loop_ops,      rn_onnx_linear_attention_ops, rn_onnx_sample_ops,
};
enum { TABLES = sizeof tables / sizeof *tables };

const rn_import_op *rn_import_find_op(rn_str domain, rn_str name) {
    char full[160];
    bool own = domain.bytes == 0 || rn_str_equal(domain, RN_STR("ai.onnx"));
    int n = own ? snprintf(full, sizeof full, "%.*s", RN_STR_ARG(name))
                : snprintf(full, sizeof full, "%.*s.%.*s", RN_STR_ARG(domain), RN_STR_ARG(name));
    if (n < 0 || (size_t)n >= sizeof full) return NULL;
    for (size_t t = 0; t < TABLES; t++)
        for (const rn_import_op *op = tables[t]; op->name; op++)
            if (strcmp(op->name, full) == 0) return op;
    return NULL;
}

const char *rn_onnx_op_name(size_t index) {
    for (size_t t = 0; t < TABLES; t++)
        for (const rn_import_op *op = tables[t]; op->name; op++)
            if (index-- == 0) return op->name;
    return NULL;
}
