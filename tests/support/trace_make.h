// trace_make.h — trace files made by hand, block by block, true or hostile.
#ifndef RN_TEST_TRACE_MAKE_H
#define RN_TEST_TRACE_MAKE_H

#include "profile/trace.h"

#include <stddef.h>

typedef struct trace_maker {
    uint8_t data[1 << 20];
    size_t bytes;
    uint64_t sequence, round;
} trace_maker;

void trace_block(trace_maker *maker, rn_trace_block_kind kind, uint32_t lane, const void *payload,
                 size_t bytes);
// {"format": "ration trace", ...} with this mode ("spill" or "ring").
void trace_preamble(trace_maker *maker, const char *mode);
void trace_end(trace_maker *maker);
void trace_events(trace_maker *maker, uint32_t lane, const rn_trace_event *events, size_t count);
// One record in a block of its own.
void trace_name(trace_maker *maker, uint32_t number, const char *name, const char *group,
                const char *detail);
void trace_lane(trace_maker *maker, uint32_t number, bool is_queue, const char *name);
void trace_device(trace_maker *maker, uint32_t number, const char *name);
// Totals with one line.
void trace_total(trace_maker *maker, uint32_t device, uint32_t purpose, uint64_t bytes,
                 uint64_t blocks);

// A small run: three operations, an arena with two parts, weights, marks and counters, a thread and
// a queue, ended in order.
void trace_small_run(trace_maker *maker);

#endif
