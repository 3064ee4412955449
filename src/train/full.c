// full.c — see full.h.
#include "train/full.h"

#include "base/str.h"
#include "model/text/adapters.h"
#include "model/text/text_network.h"

static bool is_plain_float(rn_dtype dtype) {
    return dtype == RN_DTYPE_F32 || dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
}

bool rn_full_is_trained(const rn_full *full, const char *name) {
    rn_str text = rn_str_from(name);
    return rn_str_matches_any(text, rn_str_from(full->trained)) &&
           !rn_str_matches_any(text, rn_str_from(full->frozen));
}

// Vectors (norms, biases) are few, and their updates small: they are f32 always.
static bool is_matrix(const rn_full *full, const char *name) {
    const rn_tensor_info *info = rn_checkpoint_find(full->network->checkpoint, name);
    return info && info->rank > 1;
}

static rn_dtype dtype_of(const void *self, const char *weight) {
    const rn_full *full = self;
    rn_dtype is = full->base.dtype(full->base.self, weight);
    if (!is_plain_float(is) || !rn_full_is_trained(full, weight)) return is;
    if (is == full->weights && is_matrix(full, weight)) return is;
    return RN_DTYPE_F32;
}

static const rn_low_rank *addition_of(const void *self, const char *weight, uint32_t index) {
    const rn_full *full = self;
    if (!full->base.addition) return NULL;
    return full->base.addition(full->base.self, weight, index);
}

// Quantised weights have no gradients.
static rn_status check_weights(const rn_full *full, const rn_graph *graph) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT || is_plain_float(info->dtype)) continue;
        if (!rn_full_is_trained(full, info->name)) continue;
        return rn_hint(rn_fail(RN_UNSUPPORTED, "'%s' is %s: quantised weights cannot be trained",
                               info->name, rn_dtype_get(info->dtype)->name),
                       "train low-rank additions to them (LoRA), or open the model's files in f16, "
                       "bf16 or f32");
    }
    return RN_OK;
}

rn_status rn_full_init(rn_full *full, const rn_model *model, const rn_trainer_options *options) {
    rn_graph *graph = NULL;
    rn_forward_values values = {0};
    *full = (rn_full){.network = &model->networks[0],
                      .trained = options->trained ? options->trained : "*",
                      .frozen = options->frozen ? options->frozen : "",
                      .weights = options->weights == RN_DTYPE_BF16 ? RN_DTYPE_BF16 : RN_DTYPE_NONE};
    if (full->network->adapters && full->network->adapters->file_count)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a model with adapters cannot be trained in full"),
                       "open it without them");
    RN_TRY(rn_text_network_training(full->network, options->tokens, &full->config));
    full->base = *full->config.files;
    full->files = (rn_llama_files){.self = full, .dtype = dtype_of, .addition = addition_of};
    full->config.files = &full->files;
    full->config.activations = options->activations;
    rn_forward forward = rn_llama_forward(&full->config);
    RN_TRY(forward.check(forward.config, true));
    RN_TRY(rn_graph_create(&graph));
    rn_status s = forward.write(graph, forward.config, 1, &values);
    if (s == RN_OK) s = rn_graph_finish(graph);
    if (s == RN_OK) s = check_weights(full, graph);
    rn_graph_destroy(graph);
    return s;
}
