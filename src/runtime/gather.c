// gather.c — before a run: the rows of embedding tables that it asks for.
//
// The ids of an input are sorted, so that each row is read once, and in the order of the file. Then
// the ids are rewritten to places among the gathered rows: the lookup reads them as it would read
// the table.
#include "runtime/session.h"

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

// The ids of an input, as they lie: i32 or i64.
typedef struct id_list {
    uint8_t *data;
    bool wide;
    uint64_t count;
} id_list;

static int64_t get_id(const id_list *ids, uint64_t i) {
    if (ids->wide) return ((const int64_t *)(const void *)ids->data)[i];
    return ((const int32_t *)(const void *)ids->data)[i];
}

static void set_id(const id_list *ids, uint64_t i, uint64_t id) {
    if (ids->wide)
        ((int64_t *)(void *)ids->data)[i] = (int64_t)id;
    else
        ((int32_t *)(void *)ids->data)[i] = (int32_t)id;
}

// RN_INVALID names the first id that is not a row of the table; those below zero are rewritten.
static rn_status check_ids(const id_list *ids, uint64_t table_rows, bool wrapped) {
    int64_t rows = (int64_t)table_rows;
    for (uint64_t i = 0; i < ids->count; i++) {
        int64_t id = get_id(ids, i);
        if (wrapped && id < 0 && id >= -rows) {
            id += rows;
            set_id(ids, i, (uint64_t)id);
        }
        if (id < 0 || id >= rows)
            return rn_hint(rn_fail(RN_INVALID,
                                   "embedding: id %lld at place %llu is not in 0 .. %lld",
                                   (long long)id, (unsigned long long)i, (long long)rows - 1),
                           "the ids were made for another vocabulary: check the tokenizer");
    }
    return RN_OK;
}

// Sets the session's unique ids; `ids` become places among them.
static uint64_t sort_ids(rn_session *session, const id_list *ids) {
    rn_row_pick *picks = session->picks;
    uint64_t unique = 0;
    for (uint64_t i = 0; i < ids->count; i++)
        picks[i] = (rn_row_pick){(int32_t)get_id(ids, i), (uint32_t)i};
    qsort(picks, ids->count, sizeof *picks, compare);
    for (uint64_t i = 0; i < ids->count; i++) {
        if (i == 0 || picks[i].id != picks[i - 1].id) session->unique_ids[unique++] = picks[i].id;
        set_id(ids, picks[i].place, unique - 1);
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
    const rn_value_info *info = rn_graph_value(plan->graph, input);
    id_list ids = {.data = session->io ? rn_session_io(session, input)
                                       : rn_session_address(session, input),
                   .wide = info->dtype == RN_DTYPE_I64,
                   .count = rn_shape_elements(info->shape, rows)};
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        if (plan->row_tables[i].ids == input)
            RN_TRY(check_ids(&ids,
                             rn_graph_value(plan->graph, plan->row_tables[i].table)->shape.dims[0],
                             plan->row_tables[i].wrapped));
    uint64_t unique = sort_ids(session, &ids);
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
