// group_norm.h — an image (N, ..., C) as group norm and its gradient see it: N images of `pixels`
// rows of C channels, which stand in groups of `each` neighbours.
#ifndef RN_GRAPH_OP_GROUP_NORM_H
#define RN_GRAPH_OP_GROUP_NORM_H

#include "graph/op.h"

typedef struct rn_group_sizes {
    uint64_t images, pixels, channels, groups, each; // channels = groups * each
} rn_group_sizes;

static inline rn_group_sizes rn_group_sizes_of(rn_shape x, const rn_group_norm_attrs *attrs) {
    rn_group_sizes of = {
        .images = x.dims[0], .pixels = 1, .channels = x.dims[x.rank - 1], .groups = attrs->groups};
    for (uint32_t i = 1; i + 1 < x.rank; i++)
        of.pixels *= x.dims[i];
    of.each = of.channels / of.groups;
    return of;
}

// Input 0 is f32 (N, ..., C) with C in whole groups. out_groups: (N, groups), of the statistics.
RN_MUST_USE rn_status rn_group_norm_check(const rn_shaping *s, uint64_t *out_channels,
                                          rn_shape *out_groups);
void rn_group_norm_print(const void *attrs, char *out, size_t bytes);

#endif
