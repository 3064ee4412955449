// appends.c — before a run: no two of its rows are the same place of a cache.
//
// Rows of a call write their keys and values side by side, so of two at one place any could come
// last. Rows go upwards in a sequence for long stretches; only stretches of one sequence can meet.
#include "runtime/session.h"

#include "base/checked.h"

typedef struct row_places {
    const int32_t *sequence, *position; // (count)
    uint64_t count;
} row_places;

// ---- what appends -------------------------------------------------------------------------------

static bool is_input(const rn_graph *graph, rn_value value) {
    return value != RN_NO_VALUE && rn_graph_value(graph, value)->role == RN_ROLE_INPUT;
}

static bool is_known(const rn_session *session, rn_session_append append) {
    for (uint32_t i = 0; i < session->append_count; i++)
        if (session->appends[i].sequence == append.sequence &&
            session->appends[i].position == append.position)
            return true;
    return false;
}

// Whether rows of it go to a place of their own, or forward in a state.
static bool has_places(const rn_node *node) {
    return rn_op_is(node->op, RN_TRAIT_APPEND) || rn_op_is(node->op, RN_TRAIT_RECURRENT);
}

// All layers of a model have the same two inputs.
static void list_append(rn_session *session, const rn_node *node) {
    const rn_graph *graph = session->plan->graph;
    const rn_op_info *op = rn_op_get(node->op);
    if (!has_places(node)) return;
    rn_session_append append = {node->inputs[op->pages.sequence], node->inputs[op->pages.position]};
    if (is_input(graph, append.sequence) && is_input(graph, append.position) &&
        !is_known(session, append))
        session->appends[session->append_count++] = append;
}

rn_status rn_session_prepare_appends(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    uint32_t count = rn_graph_node_count(graph), most = 0;
    void *appends = NULL;
    for (uint32_t i = 0; i < count; i++)
        most += has_places(rn_graph_node(graph, i));
    RN_TRY(rn_arena_array(&session->memory, most, sizeof *session->appends, &appends));
    session->appends = appends;
    for (uint32_t i = 0; i < count; i++)
        list_append(session, rn_graph_node(graph, i));
    return RN_OK;
}

// ---- places -------------------------------------------------------------------------------------

// The end of the stretch that begins there.
static uint64_t end_of(const row_places *rows, uint64_t begin) {
    uint64_t end = begin + 1;
    while (end < rows->count && rows->sequence[end] == rows->sequence[begin] &&
           rows->position[end] > rows->position[end - 1])
        end++;
    return end;
}

// Both go upwards: side by side, to the first place of both.
static bool meet(const row_places *rows, uint64_t *a, uint64_t a_end, uint64_t *b, uint64_t b_end) {
    while (*a < a_end && *b < b_end) {
        int32_t first = rows->position[*a], second = rows->position[*b];
        if (first == second) return true;
        *(first < second ? a : b) += 1;
    }
    return false;
}

// A stretch with those before it.
static rn_status check_stretch(const row_places *rows, uint64_t begin, uint64_t end) {
    for (uint64_t a = 0, a_end; a < begin; a = a_end) {
        uint64_t first = a, second = begin;
        a_end = end_of(rows, a);
        if (rows->sequence[a] != rows->sequence[begin] || !meet(rows, &first, a_end, &second, end))
            continue;
        return rn_hint(rn_fail(RN_INVALID, "rows %llu and %llu are both position %d of sequence %d",
                               (unsigned long long)first, (unsigned long long)second,
                               rows->position[first], rows->sequence[first]),
                       "in one run each row needs a place of its own in the cache");
    }
    return RN_OK;
}

static const int32_t *find_ids(const rn_session *session, rn_value input) {
    const uint8_t *at =
        session->io ? rn_session_io(session, input) : rn_session_address(session, input);
    return (const int32_t *)(const void *)at;
}

rn_status rn_session_check_appends(const rn_session *session, uint64_t rows) {
    if (session->plan->summary.micro_batches > 1) return RN_OK; // the batch of a training step
    for (uint32_t i = 0; i < session->append_count; i++) {
        row_places places = {find_ids(session, session->appends[i].sequence),
                             find_ids(session, session->appends[i].position), rows};
        if (!places.sequence || !places.position) continue; // nothing of this session reads them
        for (uint64_t begin = 0, end; begin < rows; begin = end) {
            end = end_of(&places, begin);
            if (places.sequence[begin] != -1) RN_TRY(check_stretch(&places, begin, end));
        }
    }
    return RN_OK;
}
