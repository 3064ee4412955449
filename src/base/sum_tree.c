// sum_tree.c — nodes of the tree by the numbers of their samples.
#include "base/sum_tree.h"

#include "base/checked.h"

// The largest node that begins with sample `begin` and has none beyond `end`.
static rn_sum_node node_at(uint64_t begin, uint64_t end, uint64_t count) {
    uint64_t size = 1;
    while (begin % (2 * size) == 0 && size < count - begin &&
           rn_min_u64(2 * size, count - begin) <= end - begin)
        size *= 2;
    return (rn_sum_node){begin, begin + rn_min_u64(size, count - begin)};
}

uint32_t rn_sum_tree_parts(rn_sum_tree tree, rn_sum_node out[RN_SUM_PARTS]) {
    uint32_t parts = 0;
    for (uint64_t at = tree.begin; at < tree.end; at = out[parts++].end)
        out[parts] = node_at(at, tree.end, tree.count);
    return parts;
}

bool rn_sum_tree_joins(rn_sum_node left, rn_sum_node right, uint64_t count) {
    uint64_t half = left.end - left.begin;
    bool whole = (half & (half - 1)) == 0 && left.begin % (2 * half) == 0;
    return whole && right.begin == left.end &&
           right.end == left.begin + rn_min_u64(2 * half, count - left.begin);
}

rn_sum_tree rn_sum_tree_share(uint64_t samples, uint32_t rank, uint32_t ranks) {
    // rank * samples / ranks, without the product
    uint64_t each = samples / ranks, rest = samples % ranks;
    return (rn_sum_tree){each * rank + rest * rank / ranks,
                         each * (rank + 1) + rest * (rank + 1) / ranks, samples};
}

rn_sum_step rn_sum_tree_add(rn_sum_tree tree, uint64_t sample) {
    rn_sum_node stack[RN_SUM_PARTS], top = {sample, sample + 1};
    uint32_t held = rn_sum_tree_parts((rn_sum_tree){tree.begin, sample, tree.count}, stack);
    rn_sum_step step = {held, 0};
    while (step.into > 0 && rn_sum_tree_joins(stack[step.into - 1], top, tree.count)) {
        top.begin = stack[--step.into].begin;
        step.adds++;
    }
    return step;
}

uint32_t rn_sum_tree_slots(rn_sum_tree tree) {
    uint32_t most = 0;
    for (uint64_t sample = tree.begin; sample < tree.end; sample++) {
        rn_sum_step step = rn_sum_tree_add(tree, sample);
        if (step.into >= most) most = step.into + 1;
    }
    return most;
}
