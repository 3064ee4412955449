// session_io.c — inputs and outputs of a device with its own memory: one block of the host's, from
// which a run takes its inputs and to which it brings its outputs, without anybody waiting in
// between.
//
//     set, gather ──▶ staging ──copy──▶ arena ── steps ──▶ arena ──copy──▶ staging ──▶ output
//                     └──────────────── one run, one submission ───────────────┘
#include "runtime/session.h"

#include "base/checked.h"
#include "memory/account.h"

#include <string.h>

enum { IO_ALIGN = 64 };

static bool is_io(const rn_session *session, rn_value value) {
    rn_role role = rn_graph_value(session->plan->graph, value)->role;
    return (role == RN_ROLE_INPUT || role == RN_ROLE_OUTPUT) &&
           session->plan->places[value].buffer != RN_NO_BUFFER;
}

// Of gathered rows, behind the others.
static rn_status add_row_io(rn_session *session, uint64_t *bytes) {
    const rn_plan *plan = session->plan;
    void *offsets = NULL;
    RN_TRY(rn_arena_array(&session->memory, plan->row_table_count, sizeof(uint64_t), &offsets));
    session->row_io_offset = offsets;
    for (uint32_t i = 0; i < plan->row_table_count; i++) {
        session->row_io_offset[i] = *bytes;
        *bytes += rn_round_up(
            rn_plan_rows_bytes(plan->graph, &plan->row_tables[i], plan->summary.rows), IO_ALIGN);
    }
    return RN_OK;
}

// ---- what segments are handed, and hand on ------------------------------------------------------

void rn_session_keep_value(rn_session *session, rn_value value, const void *data, uint64_t bytes) {
    if (value == RN_NO_VALUE) return;
    if (session->io)
        memcpy(session->io + session->value_offset, data, bytes);
    else
        rn_queue_copy_in(session->compute, rn_session_address(session, value), data, bytes);
}

// It may lie where an input was that only the blocks before it read: so it comes after them.
void rn_session_bring_value(rn_session *session, rn_value value, uint64_t rows) {
    if (session->io && value != RN_NO_VALUE)
        rn_queue_copy_in(session->compute, rn_session_address(session, value),
                         session->io + session->value_offset,
                         rn_session_value_bytes(session, value, rows));
}

void rn_session_fetch_value(rn_session *session, rn_value value, uint64_t rows) {
    if (session->io)
        rn_queue_copy_out(session->compute, session->io + session->value_offset,
                          rn_session_address(session, value),
                          rn_session_value_bytes(session, value, rows));
}

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_session_open_io(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    void *offsets = NULL, *block = NULL;
    uint64_t bytes = 0;
    if (!session->device->caps.own_memory && !session->plan->compiled) return RN_OK;
    RN_TRY(rn_arena_array(&session->memory, (size_t)rn_graph_value_count(graph) + 1,
                          sizeof(uint64_t), &offsets));
    session->io_offset = offsets;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        if (!is_io(session, v)) continue;
        session->io_offset[v] = bytes;
        bytes +=
            rn_round_up(rn_session_value_bytes(session, v, session->plan->summary.rows), IO_ALIGN);
    }
    RN_TRY(add_row_io(session, &bytes));
    session->value_offset = bytes;
    bytes += rn_plan_segments_bytes(session->plan, session->segments);
    RN_TRY(rn_device_host_take(session->device, RN_STAGING, bytes, &block));
    session->io = block;
    session->io_bytes = bytes;
    return RN_OK;
}

void rn_session_close_io(rn_session *session) {
    rn_device_host_release(session->device, RN_STAGING, session->io, session->io_bytes);
    session->io = NULL;
}

uint8_t *rn_session_io(const rn_session *session, rn_value value) {
    return session->io ? session->io + session->io_offset[value] : NULL;
}

uint8_t *rn_session_row_io(const rn_session *session, uint32_t table) {
    return session->io ? session->io + session->row_io_offset[table] : NULL;
}

static void bring_rows(rn_session *session, uint64_t rows) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; session->io && i < plan->row_table_count; i++) {
        const rn_plan_rows *table = &plan->row_tables[i];
        rn_queue_copy_in(session->compute, session->base + plan->buffers[table->buffer].offset,
                         rn_session_row_io(session, i),
                         rn_plan_rows_bytes(plan->graph, table, rows));
    }
}

// Once, in a run that is never recorded, since nothing was run before: a recording could not wait.
// Later ones would lose their pace by it. A failure here is the run's, which finds it in the queue.
static void tell_inputs(rn_session *session) {
    if (!session->io || session->facts.runs > 0 || session->told_inputs) return;
    session->told_inputs = true;
    if (rn_queue_finish(session->compute) == RN_OK) rn_stage("inputs_on_device");
}

void rn_session_bring_inputs(rn_session *session, uint64_t rows) {
    if (session->first_step == 0) bring_rows(session, rows);
    for (uint32_t i = 0; session->io && i < session->input_count; i++) {
        rn_value value = session->inputs[i].value;
        uint8_t *at = rn_session_address(session, value);
        if (at)
            rn_queue_copy_in(session->compute, at, rn_session_io(session, value),
                             rn_session_value_bytes(session, value, rows));
    }
    tell_inputs(session);
}

void rn_session_fetch_outputs(rn_session *session, uint64_t rows) {
    const rn_graph *graph = session->plan->graph;
    for (rn_value v = 1; session->io && v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT && is_io(session, v) &&
            v != session->unwanted)
            rn_queue_copy_out(session->compute, rn_session_io(session, v),
                              rn_session_address(session, v),
                              rn_session_value_bytes(session, v, rows));
}
