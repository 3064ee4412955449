// session_executable.c — a session on a device that compiles: the whole graph is one executable.
//
//     set ──▶ io ──┐                                  ┌──▶ io ──▶ output
//                    └─▶ [host's part] ── x ──▶ executable ┘
//
// Inputs and outputs wait on the host (session_io.c). A run has the rows of a bucket: rows that
// nobody asked for are zeros, and write into no cache (a sequence of -1). The ledger is charged
// with what the executable says it holds, which must not be more than was planned.
#include "runtime/session.h"

#include "base/checked.h"
#include "base/clock.h"
#include "device/executable.h"
#include "graph/cut.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#include <ration/profile.h>

#include <string.h>

// ---- what it holds ------------------------------------------------------------------------------

static uint64_t sum(const uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    uint64_t bytes = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        bytes += purpose_bytes[p];
    return bytes;
}

static rn_account account_of(const rn_session *session, int purpose) {
    return (rn_account){.device = session->device->caps.device, .purpose = (rn_purpose)purpose};
}

// Room is reserved for what was planned before anything is compiled.
static rn_status compile(rn_session *session) {
    const rn_plan *plan = session->plan;
    uint64_t planned = plan->executable_bytes;
    rn_compile_request request = {.graph = plan->graph,
                                  .buckets = plan->buckets,
                                  .bucket_count = plan->bucket_count,
                                  .budget_bytes = planned,
                                  .frugal = plan->caps.frugal,
                                  .cancel = session->options.cancel};
    rn_account account = account_of(session, RN_PURPOSE_WEIGHTS);
    RN_TRY(rn_budget_reserve(account, planned));
    rn_executable *executable = NULL;
    rn_status s = session->device->compile(session->device, &request, &executable);
    uint64_t held = s == RN_OK ? sum(executable->purpose_bytes) : 0;
    if (s == RN_OK && held > planned) {
        executable->destroy(executable);
        s = rn_hint(rn_fail(RN_OVER_BUDGET,
                            "%s was to hold %llu bytes for '%s', and would hold %llu as compiled",
                            session->device->caps.name, (unsigned long long)planned, plan->name,
                            (unsigned long long)held),
                    "a larger budget, or fewer rows a run");
    }
    rn_ledger_give_up(account, planned - (s == RN_OK ? held : 0));
    RN_TRY(s);
    session->executable = executable;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (executable->purpose_bytes[p])
            rn_ledger_count(account_of(session, p), executable, executable->purpose_bytes[p]);
    return RN_OK;
}

static void release_stage(rn_session *session) {
    rn_device_host_release(session->device, RN_STAGING, session->stages[0], session->stage_bytes);
    session->stages[0] = NULL;
}

void rn_session_close_executable(rn_session *session) {
    rn_executable *executable = session->executable;
    if (!executable) return;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (executable->purpose_bytes[p])
            rn_ledger_release(account_of(session, p), executable, executable->purpose_bytes[p]);
    executable->destroy(executable);
    session->executable = NULL;
    release_stage(session);
}

static rn_status load(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *stage = NULL;
    for (uint32_t u = 0; u < plan->group_count; u++)
        session->stage_bytes = rn_max_u64(session->stage_bytes, plan->groups[u].bytes);
    session->stage_bytes = rn_round_up(session->stage_bytes, RN_PAGE_BYTES);
    RN_TRY(rn_device_host_take(session->device, RN_STAGING, session->stage_bytes, &stage));
    session->stages[0] = stage;
    uint32_t count = rn_weights_count(session->weights, RN_WEIGHTS_RESIDENT);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t group = rn_weights_group(session->weights, RN_WEIGHTS_RESIDENT, i);
        RN_TRY(rn_weights_fill(session->weights, RN_WEIGHTS_RESIDENT, i, stage));
        RN_TRY(session->executable->put(session->executable, plan->group_values[group], stage,
                                        plan->groups[group].bytes));
    }
    release_stage(session);
    return RN_OK;
}

rn_status rn_session_open_executable(rn_session *session, const rn_weight_source *weights) {
    if (!session->device || !session->device->compile)
        return rn_hint(rn_fail(RN_INVALID, "the plan is for %s, which compiles graphs",
                               session->plan->caps.name),
                       "give that device to the session");
    RN_TRY(rn_session_check_options(session));
    RN_TRY(rn_session_list_inputs(session));
    RN_TRY(rn_session_open_io(session));
    RN_TRY(rn_session_prepare_appends(session));
    RN_TRY(rn_arena_array(&session->memory, rn_graph_value_count(session->plan->graph) + 1u,
                          sizeof *session->arguments, (void **)&session->arguments));
    RN_TRY(rn_weights_open(session->plan, weights, session->options.cancel, &session->stop,
                           session->device->workers, &session->weights));
    rn_profile_begin(rn_profile_name("compile"));
    rn_status s = compile(session);
    rn_profile_end();
    RN_TRY(s);
    rn_profile_begin(rn_profile_name("load weights"));
    s = load(session);
    rn_profile_end();
    return s;
}

// ---- a run --------------------------------------------------------------------------------------

static uint64_t find_bucket(const rn_plan *plan, uint64_t rows) {
    uint32_t i = 0;
    while (i + 1 < plan->bucket_count && plan->buckets[i] < rows)
        i++;
    return plan->buckets[i];
}

// Whether rows of it say whose cache is written.
static bool is_sequence(const rn_session *session, rn_value value) {
    for (uint32_t i = 0; i < session->append_count; i++)
        if (session->appends[i].sequence == value) return true;
    return false;
}

// From the rows that were given to those of the bucket.
static void pad(rn_session *session, rn_value value, uint64_t rows, uint64_t bucket) {
    uint64_t given = rn_session_value_bytes(session, value, rows);
    uint64_t all = rn_session_value_bytes(session, value, bucket);
    memset(rn_session_io(session, value) + given, is_sequence(session, value) ? 0xff : 0,
           all - given);
}

static bool is_held(const rn_session *session, rn_value value) {
    return session->plan->places[value].buffer != RN_NO_BUFFER;
}

static void list_arguments(rn_session *session, uint64_t rows, uint64_t bucket, rn_argument *out,
                           rn_execution *run) {
    const rn_graph *graph = session->plan->graph;
    rn_argument *next = out;
    for (int outputs = 0; outputs < 2; outputs++) {
        rn_role role = outputs ? RN_ROLE_OUTPUT : RN_ROLE_INPUT;
        rn_argument *first = next;
        for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
            if (rn_graph_value(graph, v)->role != role || !is_held(session, v)) continue;
            if (outputs && v == session->unwanted) continue;
            if (!outputs) pad(session, v, rows, bucket);
            *next++ = (rn_argument){.value = v,
                                    .data = rn_session_io(session, v),
                                    .bytes = rn_session_value_bytes(session, v, bucket)};
        }
        *(outputs ? &run->outputs : &run->inputs) = first;
        *(outputs ? &run->output_count : &run->input_count) = (uint32_t)(next - first);
    }
}

// What the host's part makes enters the executable.
static rn_status run_host(rn_session *session, uint64_t rows) {
    uint64_t bytes = 0;
    RN_TRY(rn_session_run(session->host, rows));
    const void *x = rn_session_output(session->host, RN_CROSSING, &bytes);
    rn_value value = rn_graph_find(session->plan->graph, RN_ROLE_INPUT, RN_CROSSING);
    if (!x || value == RN_NO_VALUE || bytes != rn_session_value_bytes(session, value, rows))
        return rn_fail(RN_INTERNAL, "the host's part of '%s' hands on nothing",
                       session->plan->name);
    memcpy(rn_session_io(session, value), x, bytes);
    return RN_OK;
}

rn_status rn_session_execute(rn_session *session, uint64_t rows) {
    uint64_t begin = rn_clock_ns(), bucket = find_bucket(session->plan, rows);
    rn_execution run = {
        .rows = bucket, .scalars = session->scalars, .cancel = session->options.cancel};
    if (!session->host && rows == bucket) run.next = session->next;
    session->ran = false;
    if (session->host) RN_TRY(run_host(session, rows));
    list_arguments(session, rows, bucket, session->arguments, &run);
    rn_profile_begin(rn_profile_name("execute"));
    rn_status s = session->executable->run(session->executable, &run);
    rn_profile_end();
    RN_TRY(s);
    for (uint32_t i = 0; i < session->input_count; i++)
        session->inputs[i].given = false;
    session->bound_rows = rows;
    session->ran = true;
    session->facts.runs++;
    session->facts.seconds = (double)(rn_clock_ns() - begin) * 1e-9;
    session->facts.live_peak_bytes = sum(session->executable->purpose_bytes);
    return RN_OK;
}
