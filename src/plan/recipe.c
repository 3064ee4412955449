// recipe.c — a recipe's graph for a device, and recipes that are no model's: one for a graph that
// is there already.
#include "plan/plan.h"

#include "graph/fold_sums.h"
#include "graph/fuse.h"
#include "graph/halves.h"
#include "memory/account.h"

#define FROM RN_HOST_OTHER

typedef struct held {
    const rn_graph *graph;
    size_t bytes; // of this block
    bool none[];  // (blocks): false
} held;

// Repeating no block gives a plain copy.
static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const held *h = self;
    *out = NULL;
    if (options && options->micro_batches > 1)
        return rn_fail(RN_INVALID, "a finished graph cannot be cut into micro-batches");
    return rn_graph_recompute(h->graph, h->none, out);
}

static void destroy(void *self) {
    held *h = self;
    rn_free(FROM, h, h->bytes);
}

rn_status rn_recipe_from_graph(const rn_graph *graph, uint64_t rows, rn_recipe *out) {
    size_t all = sizeof(held) + rn_graph_block_count(graph) * sizeof(bool);
    void *block = NULL;
    *out = (rn_recipe){0};
    if (rn_graph_has_rows(graph) != (rows > 0))
        return rows ? rn_fail(RN_INVALID, "rows are given, but no value of the graph has RN_ROWS")
                    : rn_hint(rn_fail(RN_INVALID, "the graph has RN_ROWS"),
                              "say how many rows a run has at most");
    RN_TRY(rn_alloc_zeroed(FROM, 1, all, &block));
    held *h = block;
    h->graph = graph;
    h->bytes = all;
    *out =
        (rn_recipe){.name = "graph", .self = h, .build = build, .destroy = destroy, .rows = rows};
    return RN_OK;
}

static bool is_inference(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (rn_graph_node(graph, n)->phase != RN_PHASE_FORWARD) return false;
    return true;
}

static rn_status fold_sums(rn_graph **graph) {
    rn_graph *folded = NULL;
    RN_TRY(rn_graph_fold_sums(*graph, &folded));
    rn_graph_destroy(*graph);
    *graph = folded;
    return RN_OK;
}

rn_status rn_recipe_build(const rn_recipe *recipe, uint32_t fusions,
                          const rn_recipe_options *options, rn_graph **out) {
    rn_recipe_options with = options ? *options : (rn_recipe_options){0};
    rn_graph *plain = NULL;
    *out = NULL;
    with.halves = (fusions & RN_FUSE_HALVES) != 0;
    rn_status s = recipe->build(recipe->self, &with, &plain);
    if (s == RN_OK && rn_graph_has_halves(plain)) s = fold_sums(&plain);
    // Fused ops are of f32; vectors are widened either way.
    bool widens = recipe->widens_vectors && fusions & RN_FUSE_ALL;
    if (s == RN_OK && rn_graph_has_halves(plain)) fusions = 0;
    if (widens) fusions |= RN_FUSE_WIDEN;
    if (s == RN_OK && !(is_inference(plain) && rn_graph_may_fuse(plain, fusions))) {
        *out = plain;
        return RN_OK;
    }
    if (s == RN_OK) s = rn_graph_fuse(plain, fusions, out);
    rn_graph_destroy(plain); // also one that a builder left behind
    return s;
}

void rn_recipe_destroy(rn_recipe *recipe) {
    if (recipe->destroy) recipe->destroy(recipe->self);
    *recipe = (rn_recipe){0};
}
