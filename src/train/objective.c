// objective.c — the table of objectives: from a model's outputs and its targets to one loss.
//
// A loss is a sum over the whole batch divided by what counts in it, so that the losses and
// gradients of micro-batches add up to those of the batch.
#include <ration/train.h>

#include "graph/op.h"
#include "train/train_recipe.h"

#include <stdio.h>
#include <string.h>

// outputs (N, classes), targets i32 (N); -100 does not count. The next token of a text, the class
// of an image. How many targets count in the batch is known to the caller only: "loss_scale".
static rn_value cross_entropy(rn_graph *graph, rn_value outputs, rn_value targets,
                              uint32_t micro_batches) {
    (void)micro_batches;
    rn_cross_entropy_attrs attrs = {.ignore = -100,
                                    .normalizer = rn_graph_scalar(graph, "loss_scale")};
    return rn_op_cross_entropy(graph, outputs, targets, attrs);
}

rn_value rn_graph_linear_loss(rn_graph *graph, rn_value x, rn_value w, rn_value targets) {
    rn_cross_entropy_attrs attrs = {.ignore = -100,
                                    .normalizer = rn_graph_scalar(graph, "loss_scale")};
    return rn_op_linear_cross_entropy(graph, x, w, targets, attrs);
}

// outputs and targets f32 of one shape: the mean of all squared differences of the batch.
static rn_value mean_squared_error(rn_graph *graph, rn_value outputs, rn_value targets,
                                   uint32_t micro_batches) {
    rn_value loss = rn_op_mse(graph, outputs, targets);
    return micro_batches > 1 ? rn_op_scale(graph, loss, 1.0f / (float)micro_batches, 0) : loss;
}

static const struct objective {
    const char *name;
    rn_value (*loss)(rn_graph *graph, rn_value outputs, rn_value targets, uint32_t micro_batches);
} objectives[] = {
    {"cross_entropy", cross_entropy},
    {"mse", mean_squared_error},
};
enum { COUNT = sizeof objectives / sizeof *objectives };

const char *rn_objective_name(size_t index) {
    return index < COUNT ? objectives[index].name : NULL;
}

rn_value rn_graph_loss(rn_graph *graph, const char *objective, rn_value outputs, rn_value targets,
                       uint32_t micro_batches) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(objective, objectives[i].name) == 0)
            return objectives[i].loss(graph, outputs, targets, micro_batches);
    rn_graph_spoil(graph, rn_hint(rn_fail(RN_INVALID, "there is no objective '%s'", objective),
                                  "there are %s and %s", objectives[0].name, objectives[1].name));
    return RN_NO_VALUE;
}
