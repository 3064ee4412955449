// text_weights.h — a graph's weights against the tensors of a model's files.
#ifndef RN_MODEL_TEXT_WEIGHTS_H
#define RN_MODEL_TEXT_WEIGHTS_H

#include "model/text/text_config.h"

#include <ration/model.h>

// What a weight is in the files, be it one tensor or, quantised, several; f32 where it is missing,
// which rn_text_weights_check tells.
rn_dtype rn_text_weight_dtype(const rn_checkpoint *checkpoint, const char *name);
bool rn_text_weight_exists(const rn_checkpoint *checkpoint, const char *name);
// RN_UNSUPPORTED names a tensor that cannot be computed with.
RN_MUST_USE rn_status rn_text_weights_readable(const rn_checkpoint *checkpoint);
// Every weight of the graph is there and has its shape, and there is nothing else but what the
// architecture says is of no use: RN_CORRUPT or RN_NOT_FOUND names the tensor. Fills in parameters,
// weight_bytes and weights; reads tied_head.
RN_MUST_USE rn_status rn_text_weights_check(const rn_checkpoint *checkpoint, const rn_graph *graph,
                                            const rn_text_config *config, rn_model_info *info);

#endif
