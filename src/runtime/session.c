// session.c — a session's life, what goes in and comes out, and a run: inputs, walk, finish.
#include "runtime/session.h"
#include "base/checked.h"
#include "base/clock.h"
#include "device/comm.h"
#include "base/reserved.h"
#include "graph/cut.h"
#include "memory/account.h"

#include <ration/profile.h>

#include <string.h>

// ---- life ---------------------------------------------------------------------------------------

// The furthest end of a buffer: arena_bytes, but in a damaged plan.
static uint64_t arena_extent(const rn_plan *plan) {
    uint64_t extent = plan->summary.arena_bytes;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        extent = rn_max_u64(extent, plan->buffers[i].offset + plan->buffers[i].bytes);
    return extent;
}

// An audit gives a plan that goes beyond its arena what it really uses, to measure it.
static rn_status take_arena(rn_session *session) {
    const rn_plan_summary *summary = &session->plan->summary;
    uint64_t bytes[RN_PURPOSE_COUNT], sum = 0;
    uint64_t staging = session->plan->caps.own_memory ? 0 : summary->staging_bytes;
    memcpy(bytes, summary->purpose_bytes, sizeof bytes);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        sum += bytes[p];
    if (bytes[RN_PURPOSE_STAGING] < staging || sum - staging != summary->arena_bytes)
        return rn_fail(RN_INTERNAL, "the plan's purposes have %llu bytes, arena and staging %llu",
                       (unsigned long long)sum,
                       (unsigned long long)(summary->arena_bytes + staging));
    bytes[RN_PURPOSE_STAGING] -= staging;
    if (session->options.audit)
        bytes[RN_PURPOSE_OTHER] += arena_extent(session->plan) - summary->arena_bytes;
    if (session->options.guard) bytes[RN_PURPOSE_OTHER] += 2 * RN_GUARD_BYTES;
    session->arena_recording = rn_profile_recording();
    if (session->program) { // which has taken it
        session->base = session->arena.base;
        return RN_OK;
    }
    RN_TRY(rn_device_memory_take_part(session->device, bytes, RN_PURPOSE_KV,
                                      rn_session_growing_bytes(session), &session->arena));
    session->base = session->arena.base + (session->options.guard ? RN_GUARD_BYTES : 0);
    return RN_OK;
}

rn_status rn_session_fill_values(rn_session *session, bool states) {
    const rn_graph *graph = session->plan->graph;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        uint8_t *at = rn_session_address(session, v);
        uint64_t bytes = session->plan->places[v].bytes;
        if (!at || info->producer != RN_NO_NODE || rn_session_home(session, v)) continue;
        if (info->role == RN_ROLE_STATE && states && !rn_session_grows(session, v))
            rn_queue_zero(session->compute, at, bytes);
        if (info->role == RN_ROLE_CONSTANT)
            rn_queue_copy_in(session->compute, at, info->constant, bytes);
    }
    return rn_queue_finish(session->compute);
}

rn_status rn_session_list_inputs(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    uint32_t count = 0;
    void *inputs = NULL;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        count += rn_graph_value(graph, v)->role == RN_ROLE_INPUT;
    RN_TRY(rn_arena_array(&session->memory, count, sizeof(rn_session_input), &inputs));
    session->inputs = inputs;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_INPUT)
            session->inputs[session->input_count++].value = v;
    return RN_OK;
}

rn_status rn_session_check_options(const rn_session *session) {
    const rn_device_caps *caps = &session->device->caps;
    if (session->options.guard && session->program)
        return rn_fail(RN_UNSUPPORTED, "guards are for sessions with an arena of their own");
    if (session->options.guard && (caps->own_memory || caps->compiles))
        return rn_fail(RN_UNSUPPORTED, "%s has its own memory: guards are for the host's",
                       caps->name);
    if (strcmp(session->plan->caps.name, caps->name) != 0)
        return rn_hint(rn_fail(RN_INVALID, "the plan is for %s, the device is %s",
                               session->plan->caps.name, caps->name),
                       "make the plan with rn_device_get_caps(device)");
    return RN_OK;
}

static rn_status list_sums(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    uint32_t count = 0;
    void *sums = NULL;
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++)
        count += rn_op_is(rn_graph_node(graph, i)->op, RN_TRAIT_ACCUMULATE);
    if (count == 0) return RN_OK;
    RN_TRY(rn_arena_array(&session->memory, count, sizeof *session->sums, &sums));
    session->sums = sums;
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        if (rn_op_is(node->op, RN_TRAIT_ACCUMULATE))
            session->sums[session->sum_count++] = node->inputs[0];
    }
    return RN_OK;
}

static rn_status prepare_numbers(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    uint32_t count = rn_graph_scalar_count(graph), at = 0;
    void *numbered = NULL;
    while (at < count && strcmp(rn_graph_scalar_name(graph, at), RN_MICRO_BATCH) != 0)
        at++;
    if (at == count) return RN_OK;
    session->number_scalar = at;
    RN_TRY(rn_arena_array(&session->memory, (size_t)session->plan->summary.micro_batches * count,
                          sizeof *session->numbered, &numbered));
    session->numbered = numbered;
    return RN_OK;
}

static rn_status open_session(rn_session *session, const rn_weight_source *weights) {
    if (!session->device) {
        RN_TRY(rn_cpu_device_create(session->plan->caps.threads, &session->device));
        session->owns_device = true;
    }
    RN_TRY(rn_session_check_options(session));
    RN_TRY(take_arena(session));
    RN_TRY(rn_session_prepare_calls(session));
    RN_TRY(rn_session_prepare_walk(session));
    RN_TRY(rn_session_list_inputs(session));
    RN_TRY(list_sums(session));
    RN_TRY(prepare_numbers(session));
    RN_TRY(rn_session_prepare_captures(session));
    RN_TRY(rn_session_open_io(session));
    RN_TRY(rn_session_open_copies(session));
    RN_TRY(rn_session_open_offloads(session));
    RN_TRY(rn_session_prepare_rows(session));
    RN_TRY(rn_session_prepare_appends(session));
    if (session->options.guard) RN_TRY(rn_guard_create(session, &session->guard));
    RN_TRY(rn_weights_open(session->plan, weights, session->options.cancel, &session->stop,
                           session->device->workers, &session->weights));
    RN_TRY(rn_experts_create(session->plan, session->weights, session->base,
                             session->options.cancel, &session->stop, &session->experts));
    rn_session_profile_open(session);
    RN_TRY(rn_session_fill_values(session, true));
    rn_profile_begin(rn_profile_name("load weights"));
    rn_status s = rn_session_load_resident(session, false);
    if (s == RN_OK) s = rn_session_load_copies(session);
    rn_profile_end();
    return s;
}

static rn_status create(const rn_plan *plan, const rn_segment_table *segments,
                        rn_program_run *program, const rn_device_memory *arena,
                        const rn_weight_source *weights, const rn_session_options *options,
                        rn_session **out) {
    void *block = NULL;
    *out = NULL;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_session_options"));
    rn_alloc_trim(); // planning takes and frees more than its plan holds
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_session), &block));
    rn_session *session = block;
    session->plan = plan;
    session->segments = segments;
    session->program = program;
    if (program) session->arena = *arena;
    if (options) session->options = *options;
    session->device = session->options.device;
    session->facts.live_mismatch_step = UINT64_MAX;
    if (session->options.comm) session->ranks = rn_comm_call_ranks(session->options.comm);
    rn_arena_init(&session->memory, RN_HOST_OTHER, 0);
    rn_status s = plan->compiled ? rn_session_open_executable(session, weights)
                                 : open_session(session, weights);
    if (s == RN_OK && plan->host) s = rn_session_open_host(session, weights);
    if (s == RN_OK)
        *out = session;
    else
        rn_session_destroy(session);
    return s;
}

rn_status rn_session_create_with(const rn_plan *plan, const rn_segment_table *segments,
                                 const rn_weight_source *weights, const rn_session_options *options,
                                 rn_session **out) {
    if (plan->is_phase)
        return rn_hint(rn_fail(RN_INVALID, "'%s' is planned as a phase of a program", plan->name),
                       "rn_program_open makes the sessions of all its phases");
    return create(plan, segments, NULL, NULL, weights, options, out);
}

rn_status rn_session_create_phase(const rn_plan *plan, rn_program_run *program,
                                  const rn_device_memory *arena, const rn_weight_source *weights,
                                  const rn_session_options *options, rn_session **out) {
    return create(plan, &plan->segments, program, arena, weights, options, out);
}

rn_status rn_session_create(const rn_plan *plan, const rn_weight_source *weights,
                            const rn_session_options *options, rn_session **out) {
    return rn_session_create_with(plan, &plan->segments, weights, options, out);
}

void rn_session_destroy(rn_session *session) {
    if (!session) return;
    rn_session_destroy(session->host);
    rn_session_close_executable(session);
    if (session->fence_of) rn_session_close_walk(session);
    rn_session_close_io(session);
    rn_session_close_copies(session);
    if (session->device) rn_session_close_offloads(session);
    rn_experts_destroy(session->experts);
    rn_weights_close(session->weights);
    rn_session_profile_close(session);
    rn_session_release_pages(session);
    if (session->device && !session->program) rn_device_memory_release(&session->arena);
    if (session->owns_device) rn_device_destroy(session->device);
    rn_arena_free_all(&session->memory);
    rn_free(RN_HOST_OTHER, session, sizeof *session);
}

// ---- failing ------------------------------------------------------------------------------------

static rn_status check_alive(const rn_session *session) {
    return session->error.status == RN_OK ? RN_OK : rn_error_restore(&session->error);
}

static rn_status keep_failure(rn_session *session, rn_status status) {
    if (status != RN_OK) session->error = *rn_last_error();
    return status;
}

rn_status rn_session_reset(rn_session *session) {
    if (session->host) RN_TRY(rn_session_reset(session->host));
    if (!session->executable) rn_session_revive(session);
    session->error.status = RN_OK;
    session->ran = session->handed = false;
    for (uint32_t i = 0; i < session->input_count; i++)
        session->inputs[i].given = false;
    return RN_OK;
}

// ---- in -----------------------------------------------------------------------------------------

static bool has_rows(const rn_session *session, rn_value value) {
    rn_shape shape = rn_graph_value(session->plan->graph, value)->shape;
    return shape.rank && shape.dims[0] == RN_ROWS;
}

static rn_session_input *find_input(rn_session *session, const char *name) {
    rn_value value = rn_graph_find(session->plan->graph, RN_ROLE_INPUT, name);
    for (uint32_t i = 0; i < session->input_count; i++)
        if (session->inputs[i].value == value) return &session->inputs[i];
    return NULL;
}

// Whether an input of `bytes` fits: some rows of it, or all; once, or for each micro-batch.
static rn_status check_input(const rn_session *session, const rn_session_input *input,
                             uint64_t bytes) {
    const rn_plan_summary *summary = &session->plan->summary;
    const char *name = rn_graph_value(session->plan->graph, input->value)->name;
    uint64_t most = rn_session_value_bytes(session, input->value, summary->rows);
    uint64_t row = rn_session_value_bytes(session, input->value, 1);
    if (bytes == most || bytes == most * summary->micro_batches) return RN_OK;
    if (!has_rows(session, input->value))
        return rn_fail(RN_INVALID, "input '%s' has %llu bytes, not %llu", name,
                       (unsigned long long)(most * summary->micro_batches),
                       (unsigned long long)bytes);
    if (bytes && bytes < most * summary->micro_batches && bytes % row == 0) return RN_OK;
    return rn_fail(RN_INVALID, "input '%s': %llu bytes are not 1 to %llu rows of %llu", name,
                   (unsigned long long)bytes,
                   (unsigned long long)(summary->rows * summary->micro_batches),
                   (unsigned long long)row);
}

// Where the host computes the first blocks of every run, some inputs are its own alone.
static rn_status set_host(rn_session *session, const char *input, const void *data, uint64_t bytes,
                          bool *out_has) {
    *out_has = session->executable && session->host && find_input(session->host, input);
    return *out_has ? rn_session_set(session->host, input, data, bytes) : RN_OK;
}

rn_status rn_session_set(rn_session *session, const char *input, const void *data, uint64_t bytes) {
    bool host_has = false;
    RN_TRY(check_alive(session));
    RN_TRY(set_host(session, input, data, bytes, &host_has));
    rn_session_input *in = find_input(session, input);
    if (!in && host_has) return RN_OK;
    if (!in) return rn_fail(RN_NOT_FOUND, "the graph has no input '%s'", input);
    RN_TRY(check_input(session, in, bytes));
    RN_TRY(rn_session_enter(session));
    in->data = data;
    in->bytes = bytes;
    in->given = true;
    bool placed = session->plan->places[in->value].buffer != RN_NO_BUFFER;
    if (session->plan->summary.micro_batches > 1 || !placed) return RN_OK;
    session->ran = session->handed = false; // it may lie where an output was
    if (session->io) {
        memcpy(rn_session_io(session, in->value), data, bytes);
        return RN_OK;
    }
    rn_queue_copy_in(session->compute, rn_session_address(session, in->value), data, bytes);
    return keep_failure(session, rn_queue_finish(session->compute));
}

static rn_status find_scalar(const rn_session *session, const char *name, uint32_t *out) {
    const rn_graph *graph = session->plan->graph;
    for (*out = 0; *out < rn_graph_scalar_count(graph); ++*out)
        if (strcmp(rn_graph_scalar_name(graph, *out), name) == 0) return RN_OK;
    return rn_fail(RN_NOT_FOUND, "the graph has no scalar '%s'", name);
}

rn_status rn_session_set_scalar(rn_session *session, const char *name, double value) {
    uint32_t scalar = 0;
    RN_TRY(check_alive(session));
    RN_TRY(find_scalar(session, name, &scalar));
    session->scalars[scalar].f64 = value;
    return RN_OK;
}

// ---- out ----------------------------------------------------------------------------------------

// An output, a state or a weight, by name.
static rn_value find_value(const rn_session *session, const char *name, bool outputs) {
    static const rn_role roles[] = {RN_ROLE_OUTPUT, RN_ROLE_STATE, RN_ROLE_WEIGHT};
    for (int i = outputs ? 0 : 1; i < 3; i++) {
        rn_value value = rn_graph_find(session->plan->graph, roles[i], name);
        if (value != RN_NO_VALUE) return value;
    }
    return RN_NO_VALUE;
}

static rn_status check_value(const rn_session *session, rn_value value, const char *name,
                             uint64_t bytes) {
    if (value == RN_NO_VALUE)
        return rn_fail(RN_NOT_FOUND, "the graph has no output, state or weight '%s' to be had here",
                       name);
    uint64_t have = rn_session_value_bytes(session, value, session->bound_rows);
    if (session->plan->places[value].buffer == RN_NO_BUFFER)
        return rn_fail(RN_UNSUPPORTED, "'%s' is not held: it is read for each run", name);
    if (bytes != have)
        return rn_fail(RN_INVALID, "'%s' has %llu bytes, not %llu", name, (unsigned long long)have,
                       (unsigned long long)bytes);
    return RN_OK;
}

// Whether a value of a phase is there whichever phase has the arena.
static bool is_shared(const rn_session *session, rn_value value) {
    return (uint64_t)(rn_session_address(session, value) - session->base) <
           session->plan->shared_bytes;
}

rn_status rn_session_get(rn_session *session, const char *name, void *data, uint64_t bytes) {
    RN_TRY(check_alive(session));
    rn_value value = find_value(session, name, true);
    if (value != RN_NO_VALUE && !session->ran &&
        rn_graph_value(session->plan->graph, value)->role == RN_ROLE_OUTPUT)
        return rn_fail(RN_INVALID, "'%s' is there after a run, until the next input is set", name);
    RN_TRY(check_value(session, value, name, bytes));
    if (!is_shared(session, value)) RN_TRY(rn_session_enter(session));
    if (session->plan->places[value].layout != RN_LAYOUT_PLAIN)
        return rn_fail(RN_UNSUPPORTED, "weight '%s' is held in the form that kernels read", name);
    if (session->io && rn_graph_value(session->plan->graph, value)->role == RN_ROLE_OUTPUT) {
        memcpy(data, rn_session_io(session, value), bytes);
        return RN_OK;
    }
    if (session->executable)
        return keep_failure(session,
                            session->executable->get(session->executable, value, data, bytes));
    const uint8_t *home = rn_session_home(session, value);
    if (home) {
        memcpy(data, home, bytes);
        return RN_OK;
    }
    rn_queue_copy_out(session->compute, data, rn_session_address(session, value), bytes);
    return keep_failure(session, rn_queue_finish(session->compute));
}

const void *rn_session_output(const rn_session *session, const char *name, uint64_t *out_bytes) {
    rn_value value = rn_graph_find(session->plan->graph, RN_ROLE_OUTPUT, name);
    bool there = session->error.status == RN_OK && session->ran && value != RN_NO_VALUE;
    *out_bytes = there ? rn_session_value_bytes(session, value, session->bound_rows) : 0;
    if (!there) return NULL;
    return session->io ? rn_session_io(session, value) : rn_session_address(session, value);
}

static rn_status put_weight(rn_session *session, rn_value value, const void *data) {
    uint8_t *at = rn_session_address(session, value);
    if (!session->copy) return rn_weights_pack(session->plan, value, data, at);
    rn_session_settle(session); // the stage is free; a failure there is the next run's
    RN_TRY(rn_weights_pack(session->plan, value, data, session->stages[0]));
    rn_queue_copy_in(session->compute, at, session->stages[0], session->plan->places[value].bytes);
    return rn_queue_finish(session->compute);
}

rn_status rn_session_put(rn_session *session, const char *name, const void *data, uint64_t bytes) {
    RN_TRY(check_alive(session));
    rn_value value = find_value(session, name, false);
    RN_TRY(check_value(session, value, name, bytes));
    if (session->executable)
        return keep_failure(session,
                            session->executable->put(session->executable, value, data, bytes));
    if (!is_shared(session, value)) RN_TRY(rn_session_enter(session));
    if (rn_graph_value(session->plan->graph, value)->role == RN_ROLE_WEIGHT)
        return keep_failure(session, put_weight(session, value, data));
    uint8_t *home = rn_session_home(session, value);
    if (home) {
        memcpy(home, data, bytes);
        return RN_OK;
    }
    rn_queue_copy_in(session->compute, rn_session_address(session, value), data, bytes);
    return keep_failure(session, rn_queue_finish(session->compute));
}

// ---- a run --------------------------------------------------------------------------------------

static rn_status check_rows(const rn_session *session, uint64_t rows, uint64_t *out_rows) {
    const rn_plan_summary *summary = &session->plan->summary;
    uint64_t cut = summary->micro_batches;
    if (!rn_graph_has_rows(session->plan->graph)) {
        *out_rows = summary->rows;
        return RN_OK;
    }
    *out_rows = rows / cut;
    if (rows == 0 || rows % cut || rows / cut > summary->rows)
        return rn_fail(RN_INVALID, "%llu rows: the plan is for 1 to %llu, in %llu equal parts",
                       (unsigned long long)rows, (unsigned long long)(summary->rows * cut),
                       (unsigned long long)cut);
    return RN_OK;
}

static rn_status check_inputs(const rn_session *session, uint64_t rows) {
    uint64_t cut = session->plan->summary.micro_batches;
    for (uint32_t i = 0; i < session->input_count; i++) {
        const rn_session_input *input = &session->inputs[i];
        const char *name = rn_graph_value(session->plan->graph, input->value)->name;
        if (session->executable && session->host && strcmp(name, RN_CROSSING) == 0) continue;
        uint64_t each = rn_session_value_bytes(session, input->value, rows);
        if (!input->given) return rn_fail(RN_INVALID, "input '%s' was not set", name);
        if (input->bytes != each && input->bytes != each * cut)
            return rn_fail(RN_INVALID, "input '%s' has %llu bytes, a run of %llu rows takes %llu",
                           name, (unsigned long long)input->bytes, (unsigned long long)(rows * cut),
                           (unsigned long long)(each * cut));
    }
    return rn_session_check_appends(session, rows);
}

// The part of micro-batch `which`; an input that is as large as one part goes to each.
static void copy_inputs(rn_session *session, uint64_t rows, uint32_t which) {
    for (uint32_t i = 0; i < session->input_count; i++) {
        const rn_session_input *input = &session->inputs[i];
        uint64_t each = rn_session_value_bytes(session, input->value, rows);
        uint64_t from = input->bytes == each ? 0 : which * each;
        uint8_t *at = rn_session_address(session, input->value);
        if (at) rn_queue_copy_in(session->compute, at, input->data + from, each);
    }
}

// What micro-batches add up in begins as zero.
static void zero_sums(rn_session *session) {
    for (uint32_t i = 0; i < session->sum_count; i++)
        rn_queue_zero(session->compute, rn_session_address(session, session->sums[i]),
                      session->plan->places[session->sums[i]].bytes);
}

// Which micro-batch it is, where the graph asks for that: single samples find their places in a
// tree of sums by it (base/sum_tree.h). Calls may run later than they are submitted, so each
// micro-batch has scalars of its own.
static void number_micro_batch(rn_session *session, uint32_t number) {
    uint32_t count = rn_graph_scalar_count(session->plan->graph);
    if (!session->numbered) return;
    session->call_scalars = session->numbered + (size_t)number * count;
    memcpy(session->call_scalars, session->scalars, count * sizeof *session->scalars);
    session->call_scalars[session->number_scalar].f64 = number;
}

static rn_status submit(rn_session *session, uint64_t rows) {
    uint32_t cut = session->plan->summary.micro_batches;
    rn_session_forget_slots(session);
    if (!session->primed) rn_session_prime(session);
    zero_sums(session);
    for (uint32_t i = 0; i < cut; i++) {
        number_micro_batch(session, i);
        if (cut > 1)
            copy_inputs(session, rows, i);
        else
            rn_session_bring_inputs(session, rows);
        if (!session->io) RN_TRY(rn_session_gather(session, rows));
        rn_session_walk(session, i + 1 == cut);
    }
    rn_session_fetch_outputs(session, rows);
    return RN_OK;
}

static rn_status run_whole(rn_session *session, uint64_t rows) {
    bool done = false;
    session->from_step = 0;
    session->to_step = session->plan->step_count;
    RN_TRY(rn_session_replay(session, rows, submit, &done));
    return done ? RN_OK : submit(session, rows);
}

static rn_status run(rn_session *session, uint64_t rows) {
    if (session->first_step == 0 && session->io) RN_TRY(rn_session_gather(session, rows));
    RN_TRY(session->segment ? rn_session_submit_segment(session, rows) : run_whole(session, rows));
    RN_TRY(rn_queue_finish(session->compute));
    return session->options.audit && !session->segment ? rn_session_audit(session) : RN_OK;
}

// What is asked for makes sense, and the calls are for these rows.
static rn_status run_bound(rn_session *session, uint64_t rows, uint64_t bound) {
    uint64_t begin = rn_clock_ns();
    session->wait_ns = 0;
    session->ran = session->handed = false;
    rn_session_profile_run(session, rows);
    rn_status s = run(session, bound);
    rn_session_profile_ran(session);
    RN_TRY(keep_failure(session, s));
    session->handed = session->segment && session->segment->out != RN_NO_VALUE;
    session->ran = !session->handed;
    for (uint32_t i = 0; i < session->input_count; i++)
        session->inputs[i].given = false;
    session->facts.runs++;
    session->wait_ns += rn_experts_take_wait(session->experts);
    session->facts.seconds = (double)(rn_clock_ns() - begin) * 1e-9;
    session->facts.wait_seconds = (double)session->wait_ns * 1e-9;
    return RN_OK;
}

rn_status rn_session_run(rn_session *session, uint64_t rows) {
    uint64_t bound = 0;
    RN_TRY(check_alive(session));
    RN_TRY(check_rows(session, rows, &bound));
    RN_TRY(check_inputs(session, bound));
    if (session->executable) return keep_failure(session, rn_session_execute(session, bound));
    RN_TRY(rn_session_enter(session));
    if (rn_session_is_hybrid(session, rows))
        return keep_failure(session, rn_session_run_hybrid(session, rows));
    session->segment = NULL;
    RN_TRY(rn_session_bind(session, bound));
    session->first_step = 0;
    return run_bound(session, rows, bound);
}

static rn_status check_segment(const rn_session *session, uint32_t segment, uint64_t bytes,
                               uint64_t rows) {
    uint64_t most = session->segments->rows;
    if (segment >= session->segments->count)
        return rn_fail(RN_INVALID, "the session has %u segments that can be run apart, not %u",
                       session->segments->count, segment + 1);
    rn_value in = session->segments->list[segment].in;
    uint64_t have = in == RN_NO_VALUE ? 0 : rn_session_value_bytes(session, in, rows);
    if (rows <= most && bytes == have) return RN_OK;
    return rn_fail(RN_INVALID,
                   "%llu bytes for %llu rows of segment %u: up to %llu rows may come, and these "
                   "have %llu bytes",
                   (unsigned long long)bytes, (unsigned long long)rows, segment,
                   (unsigned long long)most, (unsigned long long)have);
}

rn_status rn_session_run_segment(rn_session *session, uint32_t segment, const void *value,
                                 uint64_t bytes, uint64_t rows) {
    uint64_t bound = 0;
    RN_TRY(check_alive(session));
    RN_TRY(check_rows(session, rows, &bound));
    RN_TRY(check_segment(session, segment, bytes, bound));
    RN_TRY(check_inputs(session, bound));
    session->segment = &session->segments->list[segment];
    RN_TRY(rn_session_bind(session, bound));
    rn_session_keep_value(session, session->segment->in, value, bytes);
    session->first_step = session->segment->first_step;
    return run_bound(session, rows, bound);
}

const void *rn_session_segment_output(const rn_session *session, uint64_t *out_bytes) {
    *out_bytes = 0;
    if (!session->handed || session->error.status != RN_OK) return NULL;
    rn_value out = session->segment->out;
    *out_bytes = rn_session_value_bytes(session, out, session->bound_rows);
    return session->io ? session->io + session->value_offset : rn_session_address(session, out);
}

rn_session_facts rn_session_get_facts(const rn_session *session) {
    rn_session_facts facts = session->facts;
    rn_experts_counts counts = rn_experts_get_counts(session->experts);
    facts.read_bytes = rn_weights_read_bytes(session->weights);
    facts.experts_needed = counts.needed;
    facts.experts_missed = counts.misses;
    facts.expert_read_bytes = counts.read_bytes;
    return facts;
}
