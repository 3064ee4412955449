// mlp.c — the smallest model: three linear layers with gelu between them.
#include "model/model.h"

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_mlp_config *c = config;
    uint64_t rows = batch ? batch : RN_ROWS;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(rows, c->in));
    rn_graph_block(g, "layer 0");
    x = rn_op_gelu(g, rn_model_linear(g, x, "layers.0", c->in, c->hidden));
    rn_graph_block(g, "layer 1");
    x = rn_op_gelu(g, rn_model_linear(g, x, "layers.1", c->hidden, c->hidden));
    rn_graph_block(g, "head");
    x = rn_model_linear(g, x, "head", c->hidden, c->out);
    rn_model_classify(g, x, batch, out);
    return RN_OK;
}

rn_forward rn_mlp_forward(const rn_mlp_config *config) {
    return (rn_forward){
        .write = write, .config = config, .config_bytes = sizeof *config, .rows = config->rows};
}

rn_status rn_mlp_recipe(const rn_mlp_config *config, rn_recipe *out) {
    return rn_model_recipe(rn_mlp_forward(config), out);
}
