// project.h — what project, project_three and project_gated share: rows, normed or not, by weights.
//
// Inputs 0 and 1 are x (ROWS, K) and norm (K), which may be left out; then each weight (N, K) with
// its bias (N), which may be left out, behind it.
#ifndef RN_GRAPH_PROJECT_H
#define RN_GRAPH_PROJECT_H

#include "graph/fused.h"

// Shape rules: of x and norm; of the weight that is input `weight` and of its bias. The product's
// type is *out.
RN_MUST_USE rn_status rn_project_shape_rows(const rn_shaping *s);
RN_MUST_USE rn_status rn_project_shape_product(const rn_shaping *s, uint32_t weight,
                                               struct rn_typed *out);

// The attributes with steady_norm, as the graph has it.
rn_project_attrs rn_project_note_norm(const rn_graph *g, rn_value norm, rn_project_attrs attrs);

// Unfolding: the norm, where there is one, and what the products read; then a product each.
rn_tensor rn_project_begin(rn_fused *fused);
void rn_project_multiply(rn_fused *fused, rn_tensor x, uint32_t weight, rn_tensor out);

// The product of each weight: rn_op_info.product.
bool rn_project_product(const rn_call *call, uint32_t index, rn_product *out);

// Each tensor moves once: a norm does not pass over memory of its own.
void rn_project_cost(const rn_call *call, rn_cost *out);
void rn_project_print(const void *attrs, char *out, size_t bytes);

#endif
