// train_recipe.h — a recipe for the training step of a model: its forward pass over a batch, the
// loss, the backward pass and the optimiser's updates.
//
//     rn_train_options options = {.weight_decay = 0.01};
//     RN_TRY(rn_train_recipe(rn_llama_forward(&config), 4, &options, &recipe));
#ifndef RN_TRAIN_TRAIN_RECIPE_H
#define RN_TRAIN_TRAIN_RECIPE_H

#include "model/model.h"

#include <ration/train.h>

// A step of `batch` samples, which the planner may cut into micro-batches
// (options->micro_batches is not read). Inputs: the model's own with the batch as their first axis,
// "targets" among them; scalars, output and states as rn_graph_loss and rn_graph_train say. The
// recipe keeps copies of all that it is given. options may be NULL.
RN_MUST_USE rn_status rn_train_recipe(rn_forward forward, uint32_t batch,
                                      const rn_train_options *options, rn_recipe *out);

// The loss of a batch, without gradients: what the step of the same batch would say before it
// changes the weights. Inputs, the scalar "loss_scale" and the output "loss" are the step's.
// share: of several ranks; `batch` is this rank's samples.
RN_MUST_USE rn_status rn_evaluate_recipe(rn_forward forward, uint32_t batch,
                                         const rn_train_share *share, rn_recipe *out);

// The objective "cross_entropy" of the logits x wᵀ, without holding them.
rn_value rn_graph_linear_loss(rn_graph *graph, rn_value x, rn_value w, rn_value targets);

// Makes a loss the output "loss", which is returned; with micro-batches the sum of theirs, of
// several ranks that of all (options: micro_batches, exact, share). after: what ranks do before.
rn_value rn_graph_output_loss(rn_graph *graph, rn_value loss, const rn_train_options *options,
                              rn_value after);

#endif
