// gather.c — before a run: the rows of embedding tables that it asks for.
//
// The ids of an input are sorted, so that each row is read once, and in the order of the file. Then
// the ids are rewritten to places among the gathered rows: the lookup reads them as it would read
// the table.
#include "runtime/session.h"

#include "graph/op/embedding.h"

#include <stdlib.h>

struct rn_row_pick {
    int32_t id;
    uint32_t place; // among the ids
};

rn_status rn_session_prepare_rows(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *picks = NULL, *unique = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->row_table_count; i++) {
        uint64_t ids = rn_shape_elements(
            rn_graph_value(plan->graph, plan->row_tables[i].ids)->shape, plan->summary.rows);
        most = ids > most ? ids : most;
    }
    RN_TRY(rn_arena_array(&session->memory, most, sizeof(rn_row_pick), &picks));
    RN_TRY(rn_arena_array(&session->memory, most, sizeof(int32_t), &unique));
    session->picks = picks;
    session->unique_ids = unique;
    return RN_OK;
}

static int compare(const void *a, const void *b) {
    const rn_row_pick *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Sets the session's unique ids; `ids` become places among them.
static uint64_t sort_ids(rn_session *session, int32_t *ids, uint64_t count) {
    rn_row_pick *picks = session->picks;
    uint64_t unique = 0;
    for (uint64_t i = 0; i < count; i++)
        picks[i] = (rn_row_pick){ids[i], (uint32_t)i};
    qsort(picks, count, sizeof *picks, compare);
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || picks[i].id != picks[i - 1].id) session->unique_ids[unique++] = picks[i].id;
        ids[picks[i].place] = (int32_t)(unique - 1);
    }
    return unique;
}

static uint8_t *rows_target(const rn_session *session, uint32_t table) {
    const rn_plan *plan = session->plan;
    if (session->io) return rn_session_row_io(session, table);
    return session->base + plan->buffers[plan->row_tables[table].buffer].offset;
}

// All tables that are read with these ids.
static rn_status gather_for(rn_session *session, rn_value input, uint64_t rows) {
    const rn_plan *plan = session->plan;
    uint8_t *at = session->io ? rn_session_io(session, input) : rn_session_address(session, input);
    int32_t *ids = (int32_t *)(void *)at;
    uint64_t count = rn_shape_elements(rn_graph_value(plan->graph, input)->shape, rows);
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        if (plan->row_tables[i].ids == input)
            RN_TRY(rn_embedding_check(
                ids, count, rn_graph_value(plan->graph, plan->row_tables[i].table)->shape.dims[0]));
    uint64_t unique = sort_ids(session, ids, count);
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        if (plan->row_tables[i].ids == input) {
            RN_TRY(rn_weights_rows(session->weights, i, session->unique_ids, unique,
                                   rows_target(session, i)));
            rn_session_profile_gather(session, i, unique);
        }
    return RN_OK;
}

rn_status rn_session_gather(rn_session *session, uint64_t rows) {
    const rn_plan *plan = session->plan;
    if (plan->row_table_count == 0) return RN_OK;
    if (!session->io) RN_TRY(rn_queue_finish(session->compute)); // the ids are there
    for (uint32_t i = 0; i < plan->row_table_count; i++) {
        rn_value input = plan->row_tables[i].ids;
        bool done = false;
        for (uint32_t k = 0; k < i; k++)
            done |= plan->row_tables[k].ids == input;
        if (!done) RN_TRY(gather_for(session, input, rows));
    }
    return RN_OK;
}
