// stablehlo_module.h — what the signature and the text of a program are both made of.
#ifndef RN_EXCHANGE_STABLEHLO_MODULE_H
#define RN_EXCHANGE_STABLEHLO_MODULE_H

#include "exchange/stablehlo_ops.h"

typedef struct rn_hlo_values {
    bool *read;            // (values + 1): by a node, or by whoever runs the program
    rn_value *root;        // (values + 1): whose bytes it is; itself
    rn_value *update;      // (values + 1): a state's last update, or RN_NO_VALUE
    rn_value *leader;      // (values + 1): the first of the weights it is merged with; or none
    uint64_t *first_row;   // (values + 1): where it begins among those
    uint32_t most_tensors; // inputs and outputs of any node
} rn_hlo_values;

// Fills `leader` and `first_row` (stablehlo_merge.c).
RN_MUST_USE rn_status rn_hlo_merges_find(const rn_graph *graph, const rn_stablehlo_options *options,
                                         rn_arena *memory, rn_hlo_values *values);
// What the program has a weight or a constant as; one that StableHLO does not have: refuse it.
rn_dtype rn_hlo_weight_dtype(const rn_stablehlo_options *options, rn_dtype dtype);

RN_MUST_USE rn_status rn_hlo_values_find(const rn_graph *graph, const rn_stablehlo_options *options,
                                         rn_arena *memory, rn_hlo_values *out);
RN_MUST_USE rn_status rn_hlo_signature_find(const rn_graph *graph,
                                            const rn_stablehlo_options *options,
                                            const rn_hlo_values *values, rn_arena *memory,
                                            rn_stablehlo_signature *out);
// Whether a value is a constant that stands in the text.
bool rn_hlo_is_inline(const rn_graph *graph, const rn_stablehlo_options *options, rn_value value);

#endif
