// text_network.h — a text decoder as a network of a bundle.
#ifndef RN_MODEL_TEXT_NETWORK_H
#define RN_MODEL_TEXT_NETWORK_H

#include "model/bundle.h"
#include "model/text/text_config.h"

// From files, or, with path NULL, of the model that is part of the library: headers only.
// `adapters` (NULL: none are wanted) takes those of the options and must lie where it is while the
// network lives. However it ends, the bundle closes it.
RN_MUST_USE rn_status rn_text_network_open(rn_network *network, const char *path,
                                           const rn_model_options *options, rn_adapters *adapters);

// What its files say it is.
const rn_text_config *rn_text_network_config(const rn_network *network);

// The configuration of its training on sequences of `tokens` tokens, of packed documents. Products
// with quantised weights do not round activations, so that gradients are those of what is computed.
// RN_UNSUPPORTED: it has no head.
RN_MUST_USE rn_status rn_text_network_training(const rn_network *network, uint32_t tokens,
                                               rn_llama_config *out);

// The folder that a model's file lies in, or the folder itself.
void rn_text_find_folder(const char *path, char *out, size_t capacity);

#endif
