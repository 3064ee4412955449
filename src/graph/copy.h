// copy.h — values and nodes of one graph added to another as they are: what those share who add
// nodes to a copy of a graph, or leave some out.
#ifndef RN_GRAPH_COPY_H
#define RN_GRAPH_COPY_H

#include "graph/op.h"

// Adds a copy of a value, with its bytes if it is a constant; its producer is the original's.
RN_MUST_USE rn_status rn_graph_copy_value(const rn_graph *from, rn_graph *to, rn_value value,
                                          rn_value *out);
// All values of a graph to an empty one: they keep their numbers, and what is added later has
// numbers behind them.
RN_MUST_USE rn_status rn_graph_copy_values(const rn_graph *from, rn_graph *to);
// Puts a node like `like` at the end of `to`: its inputs and outputs are its own arrays, still
// unset.
RN_MUST_USE rn_status rn_graph_copy_node(rn_graph *to, const rn_node *like, const char *name,
                                         rn_node **out);

#endif
