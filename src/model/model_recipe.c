// model_recipe.c — what all models' recipes share: a copy of the configuration, a new graph each
// time, and the batch cut into micro-batches.
#include "model/model.h"

#include "graph/fuse.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_OTHER

typedef struct held {
    rn_model_writer write;
    size_t bytes; // of this block
    uint32_t batch;
    uint32_t fusions; // of inference: rn_fusion
    _Alignas(16) unsigned char config[];
} held;

static rn_status check_cut(const held *h, uint32_t pieces) {
    if (pieces <= 1) return RN_OK;
    if (h->batch == 0)
        return rn_fail(RN_INVALID, "only training can be cut into micro-batches, not inference");
    if (h->batch % pieces)
        return rn_hint(rn_fail(RN_INVALID,
                               "a batch of %u cannot be cut into %u equal micro-batches", h->batch,
                               pieces),
                       "use a number that divides the batch");
    return RN_OK;
}

// The graph as a device with these fused ops wants it, in the place of the graph.
static rn_status fuse(rn_graph **graph, uint32_t fusions) {
    rn_graph *fused = NULL;
    RN_TRY(rn_graph_fuse(*graph, fusions, &fused));
    rn_graph_destroy(*graph);
    *graph = fused;
    return RN_OK;
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const held *h = self;
    uint32_t pieces = options && options->micro_batches ? options->micro_batches : 1;
    rn_graph *graph = NULL;
    *out = NULL;
    RN_TRY(check_cut(h, pieces));
    RN_TRY(rn_graph_create(&graph));
    rn_status s = h->write(graph, h->config, h->batch / pieces, pieces);
    if (s == RN_OK) s = rn_graph_finish(graph);
    if (s == RN_OK && h->fusions && h->batch == 0) s = fuse(&graph, h->fusions);
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

rn_status rn_model_recipe(rn_model_writer write, const void *config, size_t bytes,
                          const rn_train_config *train, rn_recipe *out) {
    void *block = NULL;
    size_t all = sizeof(held) + bytes;
    RN_TRY(rn_alloc_zeroed(FROM, 1, all, &block));
    held *h = block;
    h->write = write;
    h->bytes = all;
    h->batch = train->batch;
    memcpy(h->config, config, bytes);
    *out = (rn_recipe){
        .self = h, .build = build, .destroy = destroy, .max_micro_batches = train->batch};
    return RN_OK;
}

void rn_model_recipe_fuse(rn_recipe *recipe, uint32_t fusions) {
    held *h = recipe->self;
    h->fusions = fusions;
}
