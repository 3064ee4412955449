// tree_sum.h — the gradient of one sample, added to those of a step in the order of a tree over
// the samples' numbers (base/sum_tree.h): the bits of the sum do not depend on who computes which
// samples.
//
// The slots of the tree are two states: `sum`, of the gradient's shape, is the first, which has the
// whole after the last sample; `parts` (slots - 1, elements) has the others. Every slot is in the
// dtype of the sum, f32 or bf16, and so is what is added: each addition is rounded to it.
#ifndef RN_GRAPH_OP_TREE_SUM_H
#define RN_GRAPH_OP_TREE_SUM_H

#include "base/sum_tree.h"
#include "graph/op.h"

typedef struct rn_tree_sum_attrs {
    rn_sum_tree tree;
    // A runtime scalar: the sample is tree.begin + this. Sessions set "micro_batch".
    uint32_t micro_batch;
} rn_tree_sum_attrs;

enum { RN_TREE_SUM, RN_TREE_GRADIENT, RN_TREE_PARTS }; // inputs

// Output 0, the sum, in place. parts: RN_NO_VALUE where the tree has one slot.
rn_value rn_op_tree_sum(rn_graph *g, rn_value sum, rn_value gradient, rn_value parts,
                        rn_tree_sum_attrs attrs);

// What a call does now. RN_INVALID: the sample is none of the tree's.
RN_MUST_USE rn_status rn_tree_sum_step(const rn_call *call, rn_sum_step *out);
// Where slot `slot` begins.
void *rn_tree_sum_slot(const rn_call *call, uint32_t slot);

#endif
