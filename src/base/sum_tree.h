// sum_tree.h — one order in which the samples of a step are added up, whoever computes them.
//
// Sums in floating point depend on their order. Here it is that of a binary tree over the samples'
// numbers and depends on nothing else: not on how many are computed at once, nor on where.
//
//     samples   0   1   2   3   4   5   6       a node is samples k 2^l .. (k + 1) 2^l - 1, as far
//                \ /     \ /     \ /    |       as there are any; one whose right half is empty is
//               0..1    2..3    4..5    |       its left half
//                  \    /          \   /
//                   0..3            4..6
//                       \          /
//                          0..6
//
// Who computes samples [begin, end), in their order, keeps the nodes that are whole on a stack,
// from left to right: a new sample goes on top, and while the two on top are halves of a node they
// become that node. So few sums are there at once: at most log2(samples) where all are computed in
// one place.
//
//     rn_sum_tree tree = {0, 8, 8};
//     for (uint64_t i = 0; i < 8; i++) {
//         rn_sum_step step = rn_sum_tree_add(tree, i);
//         float sum = value_of_sample(i);
//         for (uint32_t n = 0; n < step.adds; n++) // from the top down
//             sum = slots[step.into + step.adds - 1 - n] + sum;
//         slots[step.into] = sum; // the whole in slots[0] in the end
//     }
//
// Several who have some of the samples each end with parts of the tree (rn_sum_tree_parts), which
// are joined in the same way: all parts in the order of their samples, each put on a stack, and the
// two on top added while rn_sum_tree_joins says so. What is sent to another must be rounded to what
// the slots hold.
#ifndef RN_BASE_SUM_TREE_H
#define RN_BASE_SUM_TREE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rn_sum_tree {
    uint64_t begin, end; // the samples that are computed here, of
    uint64_t count;      // all of the step
} rn_sum_tree;

// Of sample `sample`, begin <= sample < end, once those before it are there: it is added to the
// `adds` slots from `into` on, the last of them first, and the sum lies in slot `into`.
typedef struct rn_sum_step {
    uint32_t into, adds;
} rn_sum_step;
rn_sum_step rn_sum_tree_add(rn_sum_tree tree, uint64_t sample);
// Samples of a step that rank `rank` of `ranks` computes: consecutive ones, as even as can be.
rn_sum_tree rn_sum_tree_share(uint64_t samples, uint32_t rank, uint32_t ranks);
// How many slots that takes.
uint32_t rn_sum_tree_slots(rn_sum_tree tree);

typedef struct rn_sum_node {
    uint64_t begin, end; // samples
} rn_sum_node;
enum { RN_SUM_PARTS = 128 };
// What lies in the slots in the end: the fewest nodes that are samples [begin, end), from left to
// right. Returns how many; 1 where all samples are there.
uint32_t rn_sum_tree_parts(rn_sum_tree tree, rn_sum_node out[RN_SUM_PARTS]);
// Whether two nodes are the halves of one, of a tree of `count` samples.
bool rn_sum_tree_joins(rn_sum_node left, rn_sum_node right, uint64_t count);

#endif
