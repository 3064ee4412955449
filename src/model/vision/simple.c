// simple.c — a small CNN: twice convolution, batchnorm, relu, pooling; then a linear head.
//
// The head sees the image as it lies, (H, W, C); a PyTorch model with the same weights permutes its
// (C, H, W) before flattening.
#include "model/model.h"

#include <stdio.h>

// (N, size, size, in) -> (N, size / 2, size / 2, out)
static rn_value stage(rn_graph *g, rn_value x, int number, uint64_t in, uint64_t out, bool train) {
    char block[32], conv[32], norm[32];
    snprintf(block, sizeof block, "stage %d", number);
    snprintf(conv, sizeof conv, "conv%d", number);
    snprintf(norm, sizeof norm, "bn%d", number);
    rn_graph_block(g, block);
    rn_value w = rn_model_weight(g, conv, "weight", RN_SHAPE(out, in, 3, 3));
    rn_value b = rn_model_weight(g, conv, "bias", RN_SHAPE(out));
    x = rn_op_conv2d(g, x, w, b, (rn_conv2d_attrs){1, 1, 1, 1, 1, 1});
    x = rn_op_relu(g, rn_model_batchnorm(g, x, norm, out, train));
    return rn_op_max_pool(g, x, (rn_pool2d_attrs){2, 2, 2, 2, 0, 0, 0, 0});
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_simple_config *c = config;
    uint64_t rows = batch ? batch : RN_ROWS, wide = 2 * (uint64_t)c->channels;
    uint64_t flat = wide * (c->size / 4) * (c->size / 4);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(rows, c->size, c->size, 3));
    x = stage(g, x, 1, 3, c->channels, batch > 0);
    x = stage(g, x, 2, c->channels, wide, batch > 0);
    rn_graph_block(g, "head");
    x = rn_model_linear(g, rn_op_reshape(g, x, RN_SHAPE(rows, flat)), "fc", flat, c->classes);
    rn_model_classify(g, x, batch, out);
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_simple_config *c = config;
    (void)training;
    if (c->size && c->size % 4 == 0) return RN_OK;
    return rn_fail(RN_INVALID, "simple: images of %u are not a multiple of 4", c->size);
}

rn_forward rn_simple_forward(const rn_simple_config *config) {
    return (rn_forward){.write = write,
                        .check = check,
                        .config = config,
                        .config_bytes = sizeof *config,
                        .rows = config->rows,
                        .batch_statistics = true};
}

rn_status rn_simple_recipe(const rn_simple_config *config, rn_recipe *out) {
    return rn_model_recipe(rn_simple_forward(config), out);
}
