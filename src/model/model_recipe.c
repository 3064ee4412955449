// model_recipe.c — a recipe for inference: a copy of the configuration, and a new graph each time.
#include "model/model.h"

#include "graph/activations.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_OTHER

typedef struct held {
    rn_model_writer write;
    size_t bytes; // of this block
    rn_dtype activations, halves;
    _Alignas(16) unsigned char config[];
} held;

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const held *h = self;
    rn_forward_values values = {0};
    rn_graph *graph = NULL;
    *out = NULL;
    if (options && options->micro_batches > 1)
        return rn_fail(RN_INVALID, "only training can be cut into micro-batches, not inference");
    RN_TRY(rn_graph_create(&graph));
    rn_status s = h->write(graph, h->config, 0, &values);
    if (s == RN_OK) s = rn_graph_finish(graph);
    bool halves = options && options->halves && h->halves != RN_DTYPE_NONE;
    if (s == RN_OK)
        s = rn_graph_hold_activations_in(&graph, halves ? h->halves : h->activations, halves);
    if (s == RN_OK)
        *out = graph;
    else
        rn_graph_destroy(graph);
    return s;
}

static void destroy(void *self) {
    held *h = self;
    rn_free(FROM, h, h->bytes);
}

rn_status rn_model_recipe(rn_forward forward, rn_recipe *out) {
    void *block = NULL;
    size_t all = sizeof(held) + forward.config_bytes;
    if (forward.check) RN_TRY(forward.check(forward.config, false));
    RN_TRY(rn_alloc_zeroed(FROM, 1, all, &block));
    held *h = block;
    h->write = forward.write;
    h->bytes = all;
    h->activations = forward.activations;
    h->halves = forward.halves;
    memcpy(h->config, forward.config, forward.config_bytes);
    *out = (rn_recipe){.self = h, .build = build, .destroy = destroy, .rows = forward.rows};
    return RN_OK;
}
