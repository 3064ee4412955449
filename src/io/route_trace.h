// route_trace.h — which experts a text chose, token by token and layer by layer: a routing trace.
//
// Two forms are read: JSON lines, one a token,
//
//     {"tok": 1, "layers": [[6, 8, 15], [7, 16, 18], ...]}
//
// and CSV with a heading line that names the columns step, layer, slot and expert (others are
// passed over; lines that begin with # are comments). A layer that a token has no choice for (the
// last one, of all but the last token of a prompt) is -1.
#ifndef RN_IO_ROUTE_TRACE_H
#define RN_IO_ROUTE_TRACE_H

#include "base/arena.h"

typedef struct rn_route_trace {
    rn_arena memory;
    uint32_t tokens, layers, k;
    uint32_t experts; // the largest id + 1
    int32_t *ids;     // (tokens, layers, k); -1: none
} rn_route_trace;

// RN_CORRUPT with the line: neither form, or numbers beyond what a model has; RN_NOT_FOUND, RN_IO.
RN_MUST_USE rn_status rn_route_trace_read(const char *path, const rn_allocator *allocator,
                                          rn_route_trace *out);
void rn_route_trace_free(rn_route_trace *trace);
// (k): the choice of a token in a layer.
static inline const int32_t *rn_route_trace_at(const rn_route_trace *trace, uint32_t token,
                                               uint32_t layer) {
    return trace->ids + ((size_t)token * trace->layers + layer) * trace->k;
}

#endif
