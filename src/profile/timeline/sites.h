// sites.h — who asked for what was live: call stacks merged into a tree, as flame graphs draw it.
#ifndef RN_PROFILE_SITES_H
#define RN_PROFILE_SITES_H

#include "base/arena.h"
#include "base/map.h"
#include "profile/timeline.h"

enum { RN_SITE_DEPTH = 100 }; // frames of a stack, at most

// One frame under the same frames.
typedef struct rn_site_node {
    rn_str frame;                   // of a name's detail
    uint32_t outer, child, sibling; // RN_NO_INDEX: none; children by their bytes, largest first
    uint64_t bytes, count;          // of the blocks asked for in it, or in what it called
} rn_site_node;

typedef struct rn_site_tree {
    rn_arena memory;
    rn_map ids;          // "outer, frame" to node
    rn_site_node *nodes; // (count); [0] is the root of all
    uint32_t count, capacity;
} rn_site_tree;

// Of the allocs `live` (count) that have a stack. Freed by the caller, also where it failed.
RN_MUST_USE rn_status rn_site_tree_make(const rn_timeline *t, const uint32_t *live, size_t count,
                                        rn_site_tree *out);
void rn_site_tree_free(const rn_timeline *t, rn_site_tree *tree);
// For people: frames with their bytes, indented; those below `least` bytes are left out.
RN_MUST_USE rn_status rn_site_tree_print(const rn_site_tree *tree, uint64_t least, rn_sink sink);

#endif
