// rank_steps.c — a step of several ranks. Rank 0 shares out the rows and draws; its part of the run
// comes first, and what follows a run's inputs from rank to rank is what the blocks so far made of
// them:
//
//     rank 0   run 0 ──▶ run 1 ──▶ run 2 ─────────▶ (draws) run 3
//     rank 1          └─▶ run 0 ──▶ run 1 ──▶ run 2 ─┘ logits
//
// Where heads are dealt out, all ranks hear of a step before it and run it together.
//
// Rank 0 waits for logits only in a step whose rows somebody draws from: chunks of a prompt go
// through the ranks one behind the other, each rank busy with another.
#include "generate/rank_part.h"

#include "base/checked.h"
#include "device/comm.h"
#include "graph/cut.h"
#include "profile/timeline/merge.h"
#include "runtime/session.h"

#include <ration/profile.h>

#include <stdio.h>
#include <string.h>

enum { STEP_RUN = 1, STEP_END };

// What goes before a packet.
typedef struct step_head {
    uint32_t kind, rows;
    uint32_t logits; // wanted rows, the first of them all, whose logits rank 0 waits for
    uint32_t reserved;
} step_head;

// ---- packets ------------------------------------------------------------------------------------

// Calls `each` for every array of a step's inputs, in the order of the packet.
typedef void (*packet_part)(uint8_t **at, void *array, size_t bytes);

static void put(uint8_t **at, void *array, size_t bytes) {
    memcpy(*at, array, bytes);
    *at += bytes;
}

static void take(uint8_t **at, void *array, size_t bytes) {
    memcpy(array, *at, bytes);
    *at += bytes;
}

static uint64_t pass_packet(rn_generator *g, uint32_t rows, packet_part each) {
    uint8_t *at = g->job.packet;
    size_t places = (size_t)g->text.sequences * g->table_pages;
    each(&at, g->tokens, rows * sizeof *g->tokens);
    each(&at, g->sequence, rows * sizeof *g->sequence);
    each(&at, g->position, rows * sizeof *g->position);
    for (uint32_t a = 0; a < g->adapters; a++)
        each(&at, g->chosen + (size_t)a * g->text.rows, rows * sizeof *g->chosen);
    each(&at, g->page_table, places * sizeof *g->page_table);
    each(&at, g->wanted, g->text.logit_rows * sizeof *g->wanted);
    return (uint64_t)(at - g->job.packet);
}

static uint64_t packet_bytes(const rn_generator *g, uint32_t rows) {
    uint64_t words = (3 + (uint64_t)g->adapters) * rows +
                     (uint64_t)g->text.sequences * g->table_pages + g->text.logit_rows;
    return words * sizeof(int32_t);
}

// ---- messages -----------------------------------------------------------------------------------

// Operations of a recording, with their sizes.
static void begin_message(const char *what, uint32_t peer, uint64_t bytes) {
    char name[48];
    if (!rn_profile_recording()) return;
    snprintf(name, sizeof name, "%s rank %u", what, peer);
    rn_profile_begin(rn_profile_label(name, RN_COLLECTIVE_GROUP, rn_size_format(bytes).text));
}

static void end_message(void) {
    if (rn_profile_recording()) rn_profile_end();
}

static rn_status post(rn_comm *comm, rn_message *messages, uint32_t *count, rn_message m) {
    if (m.bytes == 0) return RN_OK;
    messages[*count] = m;
    return rn_comm_begin(comm, &messages[(*count)++]);
}

// Several parts at once: to wait for one after the other would take as many ways there and back.
static rn_status exchange(rn_comm *comm, rn_message *parts, uint32_t part_count) {
    rn_message messages[3];
    uint32_t count = 0;
    for (uint32_t i = 0; i < part_count; i++)
        RN_TRY(post(comm, messages, &count, parts[i]));
    return rn_comm_wait(comm, messages, count);
}

static rn_status send_step(rn_generator *g, uint32_t to, step_head *head, const uint8_t *hidden,
                           uint64_t hidden_bytes) {
    rn_rank_job *j = &g->job;
    uint64_t bytes = packet_bytes(g, head->rows);
    rn_message parts[] = {
        {.peer = to, .sends = true, .data = (uint8_t *)head, .bytes = sizeof *head},
        {.peer = to, .sends = true, .data = j->packet, .bytes = bytes},
        {.peer = to, .sends = true, .data = (uint8_t *)(uintptr_t)hidden, .bytes = hidden_bytes}};
    begin_message("send to", to, sizeof *head + bytes + hidden_bytes);
    rn_status s = exchange(j->comm, parts, 3);
    end_message();
    return s;
}

// Whose steps this rank does: the one before it, or rank 0.
static uint32_t leader_of(const rn_rank_job *j) {
    return j->heads ? 0 : j->rank - 1;
}

static rn_status receive_step(rn_generator *g, step_head *out) {
    rn_rank_job *j = &g->job;
    uint32_t from = leader_of(j);
    begin_message("receive a step from", from, sizeof *out);
    rn_status s = rn_comm_receive_idle(j->comm, from, out, sizeof *out);
    end_message();
    if (s != RN_OK || out->kind == STEP_END) return s;
    if (out->kind != STEP_RUN || out->rows == 0 || out->rows > g->rows ||
        out->logits > g->text.logit_rows)
        return rn_fail(RN_CORRUPT, "rank %u sent a step that is none: %u, of %u rows", from,
                       out->kind, out->rows);
    uint64_t bytes = packet_bytes(g, out->rows), hidden = j->hidden_row_bytes * out->rows;
    rn_message parts[] = {{.peer = from, .data = j->packet, .bytes = bytes},
                          {.peer = from, .data = j->hidden, .bytes = hidden}};
    begin_message("receive from", from, bytes + hidden);
    s = exchange(j->comm, parts, 2);
    end_message();
    if (s == RN_OK) (void)pass_packet(g, out->rows, take);
    return s;
}

// ---- a run --------------------------------------------------------------------------------------

// This rank's blocks.
static rn_status run_part(rn_generator *g, uint32_t rows) {
    rn_rank_job *j = &g->job;
    RN_TRY(rn_generator_set_inputs(g, rows));
    if (j->hidden_row_bytes)
        RN_TRY(rn_session_set(g->session, RN_CROSSING, j->hidden, j->hidden_row_bytes * rows));
    return rn_session_run(g->session, rows);
}

static rn_status find_output(const rn_generator *g, const char *name, uint64_t least_bytes,
                             const uint8_t **out, uint64_t *out_bytes) {
    *out = rn_session_output(g->session, name, out_bytes);
    if (*out && *out_bytes >= least_bytes) return RN_OK;
    return rn_fail(RN_INTERNAL, "rank %u of %u has no '%s' after its run", g->job.rank,
                   g->job.ranks, name);
}

static uint64_t logit_bytes(const rn_generator *g, uint32_t logits) {
    return (uint64_t)logits * g->vocab_size * sizeof(float);
}

// To the next rank; from the last one the logits go to rank 0.
static rn_status hand_on(rn_generator *g, step_head *head) {
    rn_rank_job *j = &g->job;
    const uint8_t *data = NULL;
    uint64_t bytes = 0, logits = logit_bytes(g, head->logits);
    if (j->rank + 1 < j->ranks) {
        RN_TRY(find_output(g, RN_CROSSING, 1, &data, &bytes));
        return send_step(g, j->rank + 1, head, data, bytes);
    }
    if (logits == 0) return RN_OK;
    RN_TRY(find_output(g, "logits", logits, &data, &bytes));
    begin_message("send to", 0, logits);
    rn_status s = rn_comm_send(j->comm, 0, data, logits);
    end_message();
    return s;
}

// All ranks have the step, then all run it together; the logits are there on each of them.
static rn_status run_heads(rn_generator *g, step_head *head, const float **out_logits) {
    const uint8_t *logits = NULL;
    uint64_t bytes = 0;
    for (uint32_t to = 1; to < g->job.ranks; to++)
        RN_TRY(send_step(g, to, head, NULL, 0));
    RN_TRY(run_part(g, head->rows));
    if (head->logits)
        RN_TRY(find_output(g, "logits", logit_bytes(g, head->logits), &logits, &bytes));
    *out_logits = (const float *)(const void *)logits;
    return RN_OK;
}

rn_status rn_ranks_run(rn_generator *g, uint32_t rows, uint32_t logits, const float **out_logits) {
    rn_rank_job *j = &g->job;
    step_head head = {.kind = STEP_RUN, .rows = rows, .logits = logits};
    uint32_t last = j->ranks - 1;
    *out_logits = NULL;
    (void)pass_packet(g, rows, put);
    if (j->heads) return run_heads(g, &head, out_logits);
    RN_TRY(run_part(g, rows));
    RN_TRY(hand_on(g, &head));
    if (logits == 0) return RN_OK;
    begin_message("receive from", last, logit_bytes(g, logits));
    rn_status s = rn_comm_receive(j->comm, last, j->logits, logit_bytes(g, logits));
    end_message();
    if (s == RN_OK) *out_logits = j->logits;
    return s;
}

static rn_status pass_end(rn_generator *g) {
    rn_rank_job *j = &g->job;
    step_head head = {.kind = STEP_END};
    uint32_t end = j->heads ? (j->rank ? 0 : j->ranks) : j->rank + 2;
    j->ended = true;
    for (uint32_t to = j->rank + 1; to < end && to < j->ranks; to++)
        RN_TRY(rn_comm_send(j->comm, to, &head, sizeof head));
    return RN_OK;
}

rn_status rn_generator_follow(rn_generator *g) {
    rn_rank_job *j = &g->job;
    if (!j->comm || j->rank == 0)
        return rn_fail(RN_INVALID, "only ranks above 0 follow the steps of another");
    for (;;) {
        step_head head = {0};
        RN_TRY(receive_step(g, &head));
        if (head.kind == STEP_END) return pass_end(g);
        RN_TRY(run_part(g, head.rows));
        if (!j->heads) RN_TRY(hand_on(g, &head));
        g->facts.steps++;
    }
}

rn_status rn_generator_look(rn_generator *g) {
    return g->job.comm ? rn_comm_look(g->job.comm) : RN_OK;
}

// Whoever has failed has told the others so, or its communicator's end will.
void rn_ranks_close(rn_generator *g) {
    rn_rank_job *j = &g->job;
    if (j->comm && j->rank == 0 && !j->ended && g->session) (void)!pass_end(g);
}
