// route.h — one row of a router, as every back end that runs on the host computes it.
#ifndef RN_GRAPH_OP_ROUTE_H
#define RN_GRAPH_OP_ROUTE_H

#include <ration/graph.h>

#define RN_ROUTE_EXPERTS 4096 // at most

// Bytes that a row needs while it is worked on: p, what is chosen by, and the groups' scores.
static inline uint64_t rn_route_room_bytes(uint64_t experts) {
    return (3 * experts * sizeof(float) + 63) / 64 * 64;
}
void rn_route_row(const rn_route_attrs *attrs, const float *logits /* (experts) */,
                  const float *bias /* (experts), or NULL */, const float *scale /* or NULL */,
                  uint64_t experts, float *room, int32_t *ids /* (chosen) */,
                  float *weights /* (chosen) */);

#endif
