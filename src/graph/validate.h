// validate.h — whether a graph is one that can be planned and run. For those who rewrite graphs,
// for debug builds and tests.
#ifndef RN_GRAPH_VALIDATE_H
#define RN_GRAPH_VALIDATE_H

#include "graph/op.h"

// RN_OK where
//   - everything has a name, a block and, if a node makes it, that node;
//   - every input is there before its reader: the order of the nodes is one in which they can run;
//   - bytes that a node changes in place (alias MUST) are read by nobody after it, views included,
//     but through the node's own result;
//   - the shape rules give the shapes and dtypes that stand there.
// Else RN_INVALID, naming the node; or RN_NO_MEMORY, RN_OVER_BUDGET for its notes.
RN_MUST_USE rn_status rn_graph_validate(const rn_graph *graph);
// The third of them only.
RN_MUST_USE rn_status rn_graph_validate_updates(const rn_graph *graph);
// rn_graph_validate(graph) == RN_OK.
bool rn_graph_is_valid(const rn_graph *graph);

#endif
