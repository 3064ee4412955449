// ports.c — inputs and outputs of a device with its own memory: one block of the host's, from which
// a run takes its inputs and to which it brings its outputs, without anybody waiting in between.
//
//     set, gather ──▶ port ──copy──▶ arena ── steps ──▶ arena ──copy──▶ port ──▶ output
//                     └───────────── one run, one submission ─────────────┘
#include "runtime/session.h"

#include "base/checked.h"

#include <string.h>

enum { PORT_ALIGN = 64 };

static const rn_account account = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_STAGING};

static bool is_port(const rn_session *session, rn_value value) {
    rn_role role = rn_graph_value(session->plan->graph, value)->role;
    return (role == RN_ROLE_INPUT || role == RN_ROLE_OUTPUT) && rn_session_address(session, value);
}

// Of gathered rows, behind the others.
static rn_status add_row_ports(rn_session *session, uint64_t *bytes) {
    const rn_plan *plan = session->plan;
    void *offsets = NULL;
    RN_TRY(rn_arena_array(&session->memory, plan->row_table_count, sizeof(uint64_t), &offsets));
    session->row_port_offset = offsets;
    for (uint32_t i = 0; i < plan->row_table_count; i++) {
        session->row_port_offset[i] = *bytes;
        *bytes += rn_round_up(
            rn_plan_rows_bytes(plan->graph, &plan->row_tables[i], plan->summary.rows), PORT_ALIGN);
    }
    return RN_OK;
}

// ---- runs that begin behind the first blocks ----------------------------------------------------

static uint64_t entry_bytes(const rn_plan *plan, const rn_plan_entry *entry, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(plan->graph, entry->value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return rn_round_up(rn_tensor_bytes(&tensor), PORT_ALIGN);
}

rn_status rn_session_entry_bytes(const rn_plan *plan, uint32_t block, uint64_t rows,
                                 uint64_t *out_bytes) {
    rn_plan_entry entry;
    *out_bytes = 0;
    RN_TRY(rn_plan_find_entry(plan, block, &entry));
    if (plan->caps.own_memory) *out_bytes = entry_bytes(plan, &entry, rows);
    return RN_OK;
}

static rn_status find_entry(rn_session *session) {
    const rn_session_options *o = &session->options;
    if (o->entry_rows == 0) return RN_OK;
    if (o->entry_rows > session->plan->summary.rows)
        return rn_fail(RN_INVALID, "runs of %llu rows from block %u on: the plan is for %llu",
                       (unsigned long long)o->entry_rows, o->entry_block,
                       (unsigned long long)session->plan->summary.rows);
    return rn_plan_find_entry(session->plan, o->entry_block, &session->entry);
}

static uint64_t add_entry_port(rn_session *session, uint64_t bytes) {
    session->entry_offset = bytes;
    if (session->entry.step == 0) return bytes;
    return bytes + entry_bytes(session->plan, &session->entry, session->options.entry_rows);
}

void rn_session_keep_entry(rn_session *session, const void *value, uint64_t bytes) {
    if (session->ports)
        memcpy(session->ports + session->entry_offset, value, bytes);
    else
        rn_queue_copy_in(session->compute, rn_session_address(session, session->entry.value), value,
                         bytes);
}

// It may lie where an input was that only the blocks before it read: so it comes after them.
void rn_session_bring_entry(rn_session *session, uint64_t rows) {
    if (session->ports)
        rn_queue_copy_in(session->compute, rn_session_address(session, session->entry.value),
                         session->ports + session->entry_offset,
                         rn_session_value_bytes(session, session->entry.value, rows));
}

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_session_open_ports(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    void *offsets = NULL, *block = NULL;
    uint64_t bytes = 0;
    RN_TRY(find_entry(session));
    if (!session->device->caps.own_memory) return RN_OK;
    RN_TRY(rn_arena_array(&session->memory, (size_t)rn_graph_value_count(graph) + 1,
                          sizeof(uint64_t), &offsets));
    session->port_offset = offsets;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        if (!is_port(session, v)) continue;
        session->port_offset[v] = bytes;
        bytes += rn_round_up(rn_session_value_bytes(session, v, session->plan->summary.rows),
                             PORT_ALIGN);
    }
    RN_TRY(add_row_ports(session, &bytes));
    bytes = add_entry_port(session, bytes);
    RN_TRY(rn_device_host_take(session->device, account, bytes, &block));
    session->ports = block;
    session->ports_bytes = bytes;
    return RN_OK;
}

void rn_session_close_ports(rn_session *session) {
    rn_device_host_give_back(session->device, account, session->ports, session->ports_bytes);
    session->ports = NULL;
}

uint8_t *rn_session_port(const rn_session *session, rn_value value) {
    return session->ports ? session->ports + session->port_offset[value] : NULL;
}

uint8_t *rn_session_row_port(const rn_session *session, uint32_t table) {
    return session->ports ? session->ports + session->row_port_offset[table] : NULL;
}

static void bring_rows(rn_session *session, uint64_t rows) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; session->ports && i < plan->row_table_count; i++) {
        const rn_plan_rows *table = &plan->row_tables[i];
        rn_queue_copy_in(session->compute, session->base + plan->buffers[table->buffer].offset,
                         rn_session_row_port(session, i),
                         rn_plan_rows_bytes(plan->graph, table, rows));
    }
}

void rn_session_bring_inputs(rn_session *session, uint64_t rows) {
    if (session->first_step == 0) bring_rows(session, rows);
    for (uint32_t i = 0; session->ports && i < session->input_count; i++) {
        rn_value value = session->inputs[i].value;
        uint8_t *at = rn_session_address(session, value);
        if (at)
            rn_queue_copy_in(session->compute, at, rn_session_port(session, value),
                             rn_session_value_bytes(session, value, rows));
    }
}

void rn_session_fetch_outputs(rn_session *session, uint64_t rows) {
    const rn_graph *graph = session->plan->graph;
    for (rn_value v = 1; session->ports && v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT && is_port(session, v))
            rn_queue_copy_out(session->compute, rn_session_port(session, v),
                              rn_session_address(session, v),
                              rn_session_value_bytes(session, v, rows));
}
