// graph_internal.h — a graph from the inside, for the files that build and rewrite graphs.
//
// Values and nodes are arena children that never move; the two tables of pointers to them grow.
// Invariants: nodes are in an order in which they can run; values[0] is NULL, value v was made by
// nodes[values[v]->producer]; after the first failure nothing more is added.
#ifndef RN_GRAPH_GRAPH_INTERNAL_H
#define RN_GRAPH_GRAPH_INTERNAL_H

#include "base/arena.h"
#include "base/map.h"
#include "graph/op.h"

// A table of pointers that grows by doubling.
typedef struct rn_table {
    void **items; // (capacity); [0, count) are set
    uint32_t count, capacity;
} rn_table;

struct rn_graph {
    rn_arena memory;                // values, nodes, names, attributes, constants
    rn_table values, nodes, blocks; // rn_value_info *, rn_node *, char *
    rn_map by_name[RN_ROLE_COUNT];  // name -> value; intermediates have no place here
    const char *scalars[RN_MAX_SCALARS];
    uint32_t scalar_count;
    uint32_t block; // of what is added now
    rn_phase phase; // of what is added now
    bool has_rows;
    bool halves;       // rn_graph_allow_halves
    rn_status failure; // the first, with its error
    rn_error_info error;
};

// What is added from here on belongs to this block and phase.
void rn_graph_set_place(rn_graph *graph, uint32_t block, rn_phase phase);
// Adds a value; RN_NO_VALUE and a spoilt graph where it cannot be. `like` is copied but for its
// name, which is put into the arena (NULL: an empty name).
rn_value rn_graph_add_value(rn_graph *graph, const rn_value_info *like, const char *name);
RN_MUST_USE rn_status rn_table_push(rn_table *table, void *item);
// The node itself, to be changed by those who rewrite graphs.
rn_node *rn_graph_node_edit(rn_graph *graph, uint32_t node);
rn_value_info *rn_graph_value_edit(rn_graph *graph, rn_value value);
// A new, empty graph with the same blocks and scalars; nodes and values are the caller's to add.
RN_MUST_USE rn_status rn_graph_create_like(const rn_graph *graph, rn_graph **out);

#endif
