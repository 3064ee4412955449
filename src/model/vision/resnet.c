// resnet.c — torchvision's resnet18, name by name: a stem, four stages of two basic blocks, a head.
//
//     x ─ conv3x3/s ─ bn ─ relu ─ conv3x3 ─ bn ─ + ─ relu      s = 2 in the first block of stages
//     └──────── [conv1x1/s ─ bn: downsample] ────┘                 2 to 4, where the width doubles
#include "model/model.h"

#include <stdio.h>

typedef struct net {
    rn_graph *g;
    char prefix[32]; // of the block: "layer1.0", or "" for the stem
    bool training;
} net;

// Convolution without bias and the batchnorm behind it.
static rn_value conv_norm(net *n, rn_value x, const char *conv, const char *norm, uint64_t in,
                          uint64_t out, uint32_t kernel, uint32_t stride) {
    char name[64];
    const char *dot = n->prefix[0] ? "." : "";
    uint32_t pad = kernel / 2;
    snprintf(name, sizeof name, "%s%s%s", n->prefix, dot, conv);
    rn_value w = rn_model_weight(n->g, name, "weight", RN_SHAPE(out, in, kernel, kernel));
    x = rn_op_conv2d(n->g, x, w, RN_NO_VALUE,
                     (rn_conv2d_attrs){stride, stride, pad, pad, pad, pad});
    snprintf(name, sizeof name, "%s%s%s", n->prefix, dot, norm);
    return rn_model_batchnorm(n->g, x, name, out, n->training);
}

static rn_value basic_block(net *n, rn_value x, uint64_t in, uint64_t out, uint32_t stride) {
    rn_graph_block(n->g, n->prefix);
    rn_value y = rn_op_relu(n->g, conv_norm(n, x, "conv1", "bn1", in, out, 3, stride));
    y = conv_norm(n, y, "conv2", "bn2", out, out, 3, 1);
    if (in != out) x = conv_norm(n, x, "downsample.0", "downsample.1", in, out, 1, stride);
    return rn_op_relu(n->g, rn_op_add(n->g, y, x));
}

static rn_value stem(net *n, rn_value x) {
    rn_graph_block(n->g, "stem");
    x = rn_op_relu(n->g, conv_norm(n, x, "conv1", "bn1", 3, 64, 7, 2));
    return rn_op_max_pool(n->g, x, (rn_pool2d_attrs){3, 3, 2, 2, 1, 1, 1, 1});
}

static rn_value head(rn_graph *g, rn_value x, uint64_t classes) {
    rn_graph_block(g, "head");
    x = rn_op_mean(g, x, 1u << 1 | 1u << 2, false); // over height and width
    return rn_model_linear(g, x, "fc", 512, classes);
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_resnet_config *c = config;
    net n = {.g = g, .training = batch > 0};
    uint64_t rows = batch ? batch : RN_ROWS, width = 64;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(rows, c->size, c->size, 3));
    x = stem(&n, x);
    for (int stage = 1; stage <= 4; stage++)
        for (int block = 0; block < 2; block++) {
            uint64_t wide = (uint64_t)64 << (stage - 1);
            snprintf(n.prefix, sizeof n.prefix, "layer%d.%d", stage, block);
            x = basic_block(&n, x, width, wide, wide > width ? 2 : 1);
            width = wide;
        }
    rn_model_classify(g, head(g, x, c->classes), batch, out);
    return RN_OK;
}

rn_forward rn_resnet_forward(const rn_resnet_config *config) {
    return (rn_forward){.write = write,
                        .config = config,
                        .config_bytes = sizeof *config,
                        .rows = config->rows,
                        .batch_statistics = true};
}

rn_status rn_resnet_recipe(const rn_resnet_config *config, rn_recipe *out) {
    return rn_model_recipe(rn_resnet_forward(config), out);
}
