// session_profile.c — what a session tells the profiler: which operation runs, which buffers of the
// arena are in use, what is read, and what the plan said about it.
//
//     compute   [ run 7 rows                                                       ]
//               [ matmul 1          ][ wait ][ matmul 2         ]
//                 +y +workspace  -x -workspace  ...                  + and - are parts of the arena
//                 (and which tensors it reads and makes, with the rows of this run)
//     read        [ layer 3.weight ]   [ layer 4.weight ]            with a move of the file's
//     bytes
//
// Parts follow the plan's lifetimes, and they change in the compute queue, in the order of its
// commands: a slot is in use from its READ's turn to its EVICT. What the last step leaves (outputs)
// stays until the next run, and so do slots that were filled for it.
//
// Everything is made when it is first wanted, and anew for another recording. A session without
// memory for it runs as before, only unseen.
#include "runtime/session.h"

#include <ration/profile.h>

#include "memory/account.h"
#include "memory/ledger.h"
#include "profile/record/record.h"
#include "profile/timeline/merge.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef enum phase { FORWARD, BACKWARD, UPDATE, PHASES } phase;

struct rn_session_profile {
    rn_arena memory;
    uint32_t recording;                                // the one that names are of
    bool running;                                      // the run's operation has begun
    pthread_t caller;                                  // of the run
    uint32_t *step_names, *buffer_names, *group_names; // (steps), (buffers), (weight groups)
    rn_value *largest;                                 // (buffers): of the values that share it
    uint32_t *operand_names;                           // (steps): see name_operands; 0 for none
    uint32_t operand_recording;                        // the one they are of; 0: none
    bool operand_segments;                             // as segments of a run have them
    uint64_t rows;                                     // of the run under way
    bool *trained;                                     // (values + 1): a weight that a step changes
    uint32_t *send_names, *fetch_names;                // (offloads)
    uint32_t wait_name, offload_name, plan_name, phase_names[PHASES];
    uint32_t *first_begin, *begins; // (steps + 2), (buffers): those that begin with a step
    uint32_t *first_end, *ends;     // the same of those that end
    uint32_t *heir;                 // (buffers): what a slot that was filled for the next run is
                                    // called there, or RN_NO_BUFFER
    uint32_t phase_steps[PHASES];   // the first step of each, or RN_NO_STEP
    uint64_t predicted_peak;        // as last told

    // The compute queue's; the others' while it is idle.
    bool *live; // (buffers)
    uint64_t predicted;
    bool step_open, phase_open, wait_open; // an operation has begun
    uint32_t compute_recording;            // in which its thread was named

    // The read queue's, the copy queue's.
    uint32_t read_recording;
    bool copy_open;
    uint64_t copy_begin_ns;
    bool send_open; // the send queue's
    uint64_t send_begin_ns;
};

// ---- names --------------------------------------------------------------------------------------

typedef struct text {
    char data[2000]; // what a label may have
    size_t bytes;
} text;

static void append(text *t, const char *piece) {
    int bytes = snprintf(t->data + t->bytes, sizeof t->data - t->bytes, "%s", piece);
    t->bytes += (size_t)bytes;
    if (t->bytes >= sizeof t->data) t->bytes = sizeof t->data - 1;
}

// "f32 [512, 2048]"; `rows` RN_ROWS leaves the symbolic axis as "rows".
static void append_tensor(text *t, rn_dtype dtype, rn_shape shape, uint64_t rows) {
    char number[32];
    append(t, rn_dtype_get(dtype)->name);
    append(t, " [");
    for (uint32_t i = 0; i < shape.rank; i++) {
        uint64_t dim = shape.dims[i] == RN_ROWS ? rows : shape.dims[i];
        snprintf(number, sizeof number, "%llu", (unsigned long long)dim);
        if (i) append(t, ", ");
        append(t, dim == RN_ROWS ? "rows" : number);
    }
    append(t, "]");
}

static void append_values(text *t, const rn_graph *graph, const rn_value *values, uint32_t count) {
    for (uint32_t i = 0, shown = 0; i < count; i++) {
        if (values[i] == RN_NO_VALUE) continue;
        const rn_value_info *info = rn_graph_value(graph, values[i]);
        if (shown++) append(t, " x ");
        append_tensor(t, info->dtype, info->shape, RN_ROWS);
    }
}

// "matmul f16 [4096, 4096] x f32 [rows, 4096] -> f32 [rows, 4096]"
static uint32_t name_node(const rn_graph *graph, uint32_t index) {
    const rn_node *node = rn_graph_node(graph, index);
    text detail = {.bytes = 0};
    append(&detail, rn_op_name(node->op));
    append(&detail, " ");
    append_values(&detail, graph, node->inputs, node->input_count);
    append(&detail, " -> ");
    append_values(&detail, graph, node->outputs, node->output_count);
    // By their group recordings of several ranks find what all of them did together.
    const char *group = rn_op_is(node->op, RN_TRAIT_COLLECTIVE)
                            ? RN_COLLECTIVE_GROUP
                            : rn_graph_block_name(graph, node->block);
    return rn_profile_label(node->name, group, detail.data);
}

static uint32_t name_value(const rn_session_profile *p, const rn_plan *plan, rn_value value) {
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    text detail = {.bytes = 0};
    append_tensor(&detail, info->dtype, info->shape, plan->summary.rows);
    if (p->trained[value]) append(&detail, RN_REQUIRES_GRAD);
    return rn_profile_label(info->name, rn_graph_block_name(plan->graph, info->block), detail.data);
}

// A weight group is called by its largest weight.
static uint32_t name_group(const rn_session_profile *p, const rn_plan *plan, uint32_t index) {
    const rn_plan_group *group = &plan->groups[index];
    const rn_value *values = plan->group_values + group->first_value;
    rn_value largest = values[0];
    for (uint32_t i = 1; i < group->value_count; i++)
        if (plan->places[values[i]].bytes > plan->places[largest].bytes) largest = values[i];
    if (group->value_count == 1) return name_value(p, plan, largest);
    char more[32];
    bool trained = false;
    text name = {.bytes = 0}, detail = {.bytes = 0};
    for (uint32_t i = 0; i < group->value_count; i++)
        trained |= p->trained[plan->group_values[group->first_value + i]];
    snprintf(more, sizeof more, " and %u more", group->value_count - 1);
    append(&name, rn_graph_value(plan->graph, largest)->name);
    append(&name, more);
    snprintf(more, sizeof more, "%u weights", group->value_count);
    append(&detail, more);
    if (trained) append(&detail, RN_REQUIRES_GRAD);
    return rn_profile_label(name.data, rn_graph_block_name(plan->graph, group->block), detail.data);
}

static uint32_t name_workspace(const rn_plan *plan, uint32_t step) {
    const rn_node *node = rn_graph_node(plan->graph, plan->steps[step].node);
    text name = {.bytes = 0};
    append(&name, "workspace of ");
    append(&name, node->name);
    return rn_profile_label(name.data, rn_graph_block_name(plan->graph, node->block), NULL);
}

// Of the values that share a buffer, the one that fills it most: the first of equal ones.
static void find_largest(const rn_session_profile *p, const rn_plan *plan) {
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++) {
        const rn_plan_place *place = &plan->places[v];
        if (place->buffer >= plan->buffer_count) continue;
        rn_value *largest = &p->largest[place->buffer];
        if (*largest == RN_NO_VALUE || place->bytes > plan->places[*largest].bytes) *largest = v;
    }
    for (uint32_t i = 0; i < plan->buffer_count; i++) // the first that lives there, where it is one
        if (plan->buffers[i].kind == RN_BUFFER_VALUE &&
            (p->largest[i] == RN_NO_VALUE ||
             plan->places[plan->buffers[i].value].bytes == plan->places[p->largest[i]].bytes))
            p->largest[i] = plan->buffers[i].value;
}

static uint32_t name_buffer(const rn_session_profile *p, const rn_plan *plan,
                            const rn_plan_buffer *buffer) {
    switch (buffer->kind) {
    case RN_BUFFER_GROUP:
        return p->group_names[buffer->group];
    case RN_BUFFER_WORKSPACE:
        return name_workspace(plan, buffer->first_step);
    case RN_BUFFER_HELD:
        return rn_profile_label("held for other phases", NULL, NULL);
    case RN_BUFFER_TRANSIT:
        return rn_profile_label("transit of experts", NULL, NULL);
    default:
        return name_value(p, plan, p->largest[buffer - plan->buffers]);
    }
}

// What an optimiser changes has a gradient: its own flag, for some may be frozen.
static void find_trained(rn_session_profile *p, const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; node->phase == RN_PHASE_UPDATE && i < node->input_count; i++)
            if (node->inputs[i] != RN_NO_VALUE &&
                rn_graph_value(graph, node->inputs[i])->role == RN_ROLE_WEIGHT)
                p->trained[node->inputs[i]] = true;
    }
}

// "send layer 3/matmul.7": the copy, which is not what has made the value.
static uint32_t name_offload(const rn_plan *plan, const rn_plan_offload *offload,
                             const char *what) {
    const rn_value_info *info = rn_graph_value(plan->graph, offload->value);
    text name = {.bytes = 0};
    append(&name, what);
    append(&name, info->name);
    return rn_profile_label(name.data, rn_graph_block_name(plan->graph, info->block), NULL);
}

static void name_all(const rn_session *session) {
    const rn_plan *plan = session->plan;
    rn_session_profile *p = session->profile;
    for (uint32_t i = 0; i < plan->step_count; i++)
        p->step_names[i] = plan->steps[i].kind == RN_STEP_COMPUTE
                               ? name_node(plan->graph, plan->steps[i].node)
                               : 0;
    for (uint32_t i = 0; i < plan->group_count; i++)
        p->group_names[i] = name_group(p, plan, i);
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        p->buffer_names[i] = name_buffer(p, plan, &plan->buffers[i]);
    for (uint32_t i = 0; i < plan->offload_count; i++) {
        p->send_names[i] = name_offload(plan, &plan->offloads[i], "send ");
        p->fetch_names[i] = name_offload(plan, &plan->offloads[i], "fetch ");
    }
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        p->buffer_names[plan->row_tables[i].buffer] =
            rn_profile_label("rows of embeddings", NULL, NULL);
    p->wait_name = rn_profile_name("wait for weights");
    p->offload_name = rn_profile_name("wait for the host");
    p->plan_name = rn_profile_name(plan->name);
    p->phase_names[FORWARD] = rn_profile_name("forward");
    p->phase_names[BACKWARD] = rn_profile_name("backward");
    p->phase_names[UPDATE] = rn_profile_name("update");
}

// ---- tables -------------------------------------------------------------------------------------

static rn_status take(rn_session_profile *p, size_t count, size_t bytes, void *out) {
    void *block = NULL;
    RN_TRY(rn_arena_array(&p->memory, count, bytes, &block));
    memcpy(out, &block, sizeof block);
    return RN_OK;
}

static rn_status take_tables(rn_session_profile *p, const rn_plan *plan) {
    size_t steps = plan->step_count, buffers = plan->buffer_count;
    RN_TRY(take(p, steps, sizeof(uint32_t), &p->step_names));
    RN_TRY(take(p, steps, sizeof(uint32_t), &p->operand_names));
    RN_TRY(take(p, (size_t)rn_graph_value_count(plan->graph) + 1, sizeof(bool), &p->trained));
    RN_TRY(take(p, buffers, sizeof(uint32_t), &p->buffer_names));
    RN_TRY(take(p, buffers, sizeof(rn_value), &p->largest));
    RN_TRY(take(p, plan->group_count, sizeof(uint32_t), &p->group_names));
    RN_TRY(take(p, plan->offload_count, sizeof(uint32_t), &p->send_names));
    RN_TRY(take(p, plan->offload_count, sizeof(uint32_t), &p->fetch_names));
    RN_TRY(take(p, steps + 2, sizeof(uint32_t), &p->first_begin));
    RN_TRY(take(p, steps + 2, sizeof(uint32_t), &p->first_end));
    RN_TRY(take(p, buffers, sizeof(uint32_t), &p->begins));
    RN_TRY(take(p, buffers, sizeof(uint32_t), &p->ends));
    RN_TRY(take(p, buffers, sizeof(uint32_t), &p->heir));
    return take(p, buffers, sizeof(bool), &p->live);
}

// Buffers by step: `first` (steps + 2) is counted one place ahead, so that filling leaves it right.
static void sort_by_step(const rn_plan *plan, bool ends, uint32_t *first, uint32_t *sorted) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        if (!b->always) first[(ends ? b->last_step : b->first_step) + 2]++;
    }
    for (uint32_t i = 2; i < plan->step_count + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        if (!b->always) sorted[first[(ends ? b->last_step : b->first_step) + 1]++] = i;
    }
}

// The buffer of a load, from step 0, that is the same bytes as one that was filled for the next
// run.
static void find_heirs(rn_session_profile *p, const rn_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        p->heir[i] = RN_NO_BUFFER;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const rn_plan_step *step = &plan->steps[i];
        if (!rn_step_fills(step) || !step->next_run) continue;
        for (uint32_t k = p->first_begin[i]; k < p->first_begin[i + 1]; k++)
            if (plan->buffers[p->begins[k]].kind == RN_BUFFER_GROUP)
                p->heir[p->begins[k]] = plan->loads[step->load].buffer;
    }
}

// A run that trains is forward to its first backward node; what has nothing but updates behind it
// is the update.
static void find_phases(rn_session_profile *p, const rn_plan *plan) {
    uint32_t backward = RN_NO_STEP, update = RN_NO_STEP;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].kind != RN_STEP_COMPUTE) continue;
        rn_phase at = rn_graph_node(plan->graph, plan->steps[i].node)->phase;
        if (at == RN_PHASE_BACKWARD && backward == RN_NO_STEP) backward = i;
        if (at != RN_PHASE_UPDATE) update = RN_NO_STEP;
        if (at == RN_PHASE_UPDATE && update == RN_NO_STEP) update = i;
    }
    p->phase_steps[FORWARD] = backward == RN_NO_STEP ? RN_NO_STEP : 0;
    p->phase_steps[BACKWARD] = backward;
    p->phase_steps[UPDATE] = backward == RN_NO_STEP ? RN_NO_STEP : update;
}

static void destroy(rn_session *session) {
    rn_session_profile *p = session->profile;
    if (!p) return;
    rn_arena_free_all(&p->memory);
    rn_free(&rn_host_allocators[RN_PURPOSE_PROFILER], p, sizeof *p);
    session->profile = NULL;
}

static rn_status make(rn_session *session) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(&rn_host_allocators[RN_PURPOSE_PROFILER], 1, sizeof *session->profile,
                           &block));
    rn_session_profile *p = block;
    rn_arena_init(&p->memory, &rn_host_allocators[RN_PURPOSE_PROFILER], 0);
    session->profile = p;
    rn_status s = take_tables(p, session->plan);
    if (s != RN_OK) {
        destroy(session);
        return s;
    }
    sort_by_step(session->plan, false, p->first_begin, p->begins);
    sort_by_step(session->plan, true, p->first_end, p->ends);
    find_heirs(p, session->plan);
    find_phases(p, session->plan);
    find_trained(p, session->plan->graph);
    find_largest(p, session->plan);
    return RN_OK;
}

// ---- operands -----------------------------------------------------------------------------------

static uint64_t count_ids(const rn_value_info *ids, uint64_t rows) {
    uint64_t count = 1;
    if (ids->shape.rank == 1) return ids->shape.dims[0]; // which may be RN_ROWS
    for (uint32_t i = 0; i < ids->shape.rank; i++)
        count *= ids->shape.dims[i] == RN_ROWS ? rows : ids->shape.dims[i];
    return count;
}

// The tensors of a step, a line each: where the buffer begins in which it lies (0: nowhere), its
// dtype and shape, its name; "<" before what is read, ">" before what is made.
//
//     < 7f31c8001000 f16 [64, 192] blk.0.down
//     < 7f31c8040000 f32 [rows, 192] blk.0/multiply.9
//     > 7f31c8052000 f32 [rows, 64] blk.0/matmul.10
static void append_operand(text *lines, const rn_session_step *at, rn_value value, char mark) {
    const rn_plan *plan = at->session->plan;
    char head[32];
    uint64_t bytes = 0;
    if (value == RN_NO_VALUE) return;
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    const rn_plan_rows *rows = rn_plan_rows_of(plan, plan->steps[at->step].node);
    const uint8_t *place = rn_session_step_buffer(at, value, &bytes);
    rn_shape shape = info->shape;
    if (rows && rows->table == value) { // gathered: as many rows as there are ids
        place = at->session->base + plan->buffers[rows->buffer].offset;
        shape.dims[0] = count_ids(rn_graph_value(plan->graph, rows->ids), at->rows);
    }
    text line = {.bytes = 0};
    snprintf(head, sizeof head, "%c %llx ", mark, (unsigned long long)(uintptr_t)place);
    append(&line, head);
    append_tensor(&line, info->dtype, shape, RN_ROWS);
    append(&line, " ");
    size_t name = line.bytes;
    append(&line, info->name);
    for (size_t i = name; i < line.bytes; i++) // from a file, perhaps
        if (line.data[i] == '\n') line.data[i] = ' ';
    append(&line, "\n");
    if (line.bytes < sizeof lines->data - lines->bytes) append(lines, line.data); // whole or not
}

static rn_status name_operands_of(const rn_session_step *at) {
    text lines = {.bytes = 0};
    for (uint32_t i = 0; i < at->node->input_count; i++)
        append_operand(&lines, at, at->node->inputs[i], '<');
    for (uint32_t i = 0; i < at->node->output_count; i++)
        append_operand(&lines, at, at->node->outputs[i], '>');
    at->session->profile->operand_names[at->step] = rn_profile_label("", NULL, lines.data);
    return RN_OK;
}

// Once in a recording, and when weights lie elsewhere; the compute queue is idle.
static void name_operands(rn_session *session) {
    rn_session_profile *p = session->profile;
    if (p->operand_recording == p->recording && p->operand_segments == session->bound_segments)
        return;
    p->operand_recording = p->recording;
    p->operand_segments = session->bound_segments;
    rn_told told;
    rn_told_keep(&told);
    memset(p->operand_names, 0, session->plan->step_count * sizeof *p->operand_names);
    if (rn_session_each_step(session, session->bound_rows, name_operands_of) != RN_OK)
        rn_told_restore(&told); // they stay unnamed
}

// ---- parts --------------------------------------------------------------------------------------

// Whether what it knows is of the recording under way.
static bool is_on(const rn_session *session) {
    return session->profile && session->profile->recording == rn_profile_recording();
}

static void set_live(const rn_session *session, uint32_t index, bool live, uint64_t now) {
    const rn_plan_buffer *b = &session->plan->buffers[index];
    rn_session_profile *p = session->profile;
    if (p->live[index] == live) return;
    p->live[index] = live;
    rn_record_put(&(rn_trace_event){.time_ns = now,
                                    .address = (uintptr_t)session->base + b->offset,
                                    .bytes = b->bytes,
                                    .name = live ? p->buffer_names[index] : 0,
                                    .kind = live ? RN_TRACE_ALLOC : RN_TRACE_FREE,
                                    .device = session->device->caps.device,
                                    .purpose = (uint8_t)b->purpose,
                                    .flags = RN_PROFILE_INNER});
}

static void begin_life(const rn_session *session) {
    uint64_t now = rn_record_now();
    for (uint32_t i = 0; i < session->plan->buffer_count; i++)
        if (session->plan->buffers[i].always) set_live(session, i, true, now);
}

// What the run before has left: outputs go, slots that it filled are this run's.
static void take_over(const rn_session *session) {
    uint64_t now = rn_record_now();
    rn_session_profile *p = session->profile;
    const rn_plan *plan = session->plan;
    for (uint32_t k = p->first_end[plan->step_count - 1]; k < p->first_end[plan->step_count]; k++) {
        uint32_t index = p->ends[k], heir = p->heir[index];
        if (!p->live[index]) continue;
        if (heir != RN_NO_BUFFER) {
            p->live[heir] = true;
            p->live[index] = false;
        } else {
            set_live(session, index, false, now);
        }
    }
}

static bool spans(const rn_plan_buffer *b, uint32_t step) {
    return b->first_step < step && step <= b->last_step;
}

// A part that begins at `step`: what the steps that are left out would have left is there, and what
// a run or segment before has left goes. Slots stay the next whole run's, but where segments have
// the ring to themselves: there they are in use as they would be in a whole run.
static void take_over_behind(const rn_session *session, uint32_t step) {
    uint64_t now = rn_record_now();
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        bool stays = b->kind == RN_BUFFER_GROUP && session->segments->load_count == 0;
        if (!b->always && !stays && !spans(b, step)) set_live(session, i, false, now);
    }
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (!plan->buffers[i].always && spans(&plan->buffers[i], step))
            set_live(session, i, true, now);
}

static void end_parts(const rn_session *session, bool all) {
    uint64_t now = rn_record_now();
    if (!is_on(session)) return;
    for (uint32_t i = 0; i < session->plan->buffer_count; i++)
        if (all || !session->plan->buffers[i].always) set_live(session, i, false, now);
}

void rn_session_profile_drop(rn_session *session) {
    end_parts(session, false);
}

void rn_session_profile_enter(rn_session *session) {
    if (is_on(session)) begin_life(session);
}

void rn_session_profile_leave(rn_session *session) {
    end_parts(session, true);
}

void rn_session_profile_close(rn_session *session) {
    end_parts(session, true);
    destroy(session);
}

// ---- what was predicted -------------------------------------------------------------------------

static void predict(const rn_session *session, rn_counter kind, uint64_t live, uint64_t *told,
                    uint64_t now) {
    rn_device_id device = session->device->caps.device;
    uint64_t value = live + rn_ledger_now(device) - session->arena.bytes;
    if (value == *told) return;
    *told = value;
    rn_record_put(&(rn_trace_event){.time_ns = now,
                                    .bytes = value,
                                    .name = session->profile->plan_name,
                                    .kind = RN_TRACE_COUNTER,
                                    .device = device,
                                    .purpose = (uint8_t)kind});
}

static void predict_peak(const rn_session *session) {
    predict(session, RN_COUNTER_PREDICTED_PEAK, session->plan->summary.live_peak_bytes,
            &session->profile->predicted_peak, rn_record_now());
}

// ---- beginning ----------------------------------------------------------------------------------

// A recording that began after the arena was taken has it among what was held before, without a
// place. Given back and taken again, it is where its parts are.
static void show_arena(rn_session *session) {
    uint32_t name = rn_profile_name("arena");
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++) {
        rn_account account = {session->device->caps.device, p, NULL};
        uint64_t address = (uintptr_t)session->arena.base, bytes = session->arena.purpose_bytes[p];
        if (bytes == 0) continue;
        rn_profile_free(account, address, bytes, 0);
        rn_profile_alloc(account, address, bytes, name, 0);
    }
}

static void start_anew(rn_session *session, uint32_t recording) {
    rn_session_profile *p = session->profile;
    p->recording = recording;
    p->running = p->step_open = p->phase_open = p->wait_open = p->copy_open = p->send_open = false;
    p->predicted = p->predicted_peak = 0;
    memset(p->live, 0, session->plan->buffer_count * sizeof *p->live);
    name_all(session);
    if (session->arena_recording != recording) show_arena(session);
    session->arena_recording = recording;
    begin_life(session);
}

// True where this session is seen. Queues look at the names, so they are idle while these change.
static bool notice(rn_session *session) {
    uint32_t recording = rn_profile_recording();
    if (recording == 0 || session->plan->step_count == 0) return false;
    if (is_on(session)) return true;
    rn_told told;
    rn_told_keep(&told);
    rn_session_settle(session);
    rn_status s = session->profile ? RN_OK : make(session);
    rn_told_restore(&told);
    if (s == RN_OK) start_anew(session, recording);
    return s == RN_OK;
}

void rn_session_profile_open(rn_session *session) {
    if (notice(session)) predict_peak(session);
}

// ---- a run --------------------------------------------------------------------------------------

void rn_session_profile_run(rn_session *session, uint64_t rows) {
    char name[48];
    if (!notice(session)) return;
    rn_session_profile *p = session->profile;
    predict_peak(session);
    snprintf(name, sizeof name, "run %llu rows", (unsigned long long)rows);
    if (!rn_graph_has_rows(session->plan->graph)) snprintf(name, sizeof name, "run");
    name_operands(session);
    p->rows = session->bound_rows;
    p->caller = pthread_self();
    p->running = true;
    rn_profile_begin(rn_profile_label(name, NULL, session->plan->name));
}

bool rn_session_profile_is_running(const rn_session *session) {
    return session->profile && session->profile->running;
}

void rn_session_profile_ran(rn_session *session) {
    if (!rn_session_profile_is_running(session)) return;
    session->profile->running = false;
    if (is_on(session)) rn_profile_end();
}

// A queue's own thread gets its name once in a recording.
static void name_thread(const rn_session_profile *p, uint32_t *named, const char *name) {
    if (*named == p->recording) return;
    *named = p->recording;
    rn_profile_thread_name(name);
}

static void enter_phase(rn_session_profile *p, uint32_t step) {
    for (int i = 0; i < PHASES; i++) {
        if (p->phase_steps[i] != step) continue;
        if (p->phase_open) rn_profile_end();
        rn_profile_begin(p->phase_names[i]);
        p->phase_open = true;
    }
}

// Looking at the clock is half of an event's cost: what happens at one moment has one time.
static void enter(const rn_session *session, uint32_t step, bool computes) {
    rn_session_profile *p = session->profile;
    if (step == session->first_step) {
        if (!pthread_equal(p->caller, pthread_self()))
            name_thread(p, &p->compute_recording, "compute queue");
        if (step == 0)
            take_over(session);
        else
            take_over_behind(session, step);
    }
    enter_phase(p, step);
    rn_trace_event begin = {.time_ns = rn_record_now(),
                            .address = p->operand_names[step],
                            .bytes = p->rows,
                            .name = p->step_names[step],
                            .kind = RN_TRACE_BEGIN};
    if (computes) rn_record_put(&begin);
    p->step_open = computes;
    for (uint32_t k = p->first_begin[step]; k < p->first_begin[step + 1]; k++)
        set_live(session, p->begins[k], true, begin.time_ns);
    predict(session, RN_COUNTER_PREDICTED, session->plan->steps[step].live_bytes, &p->predicted,
            begin.time_ns);
}

static void note_compute(void *self, uint32_t step, bool poisoned) {
    if (!poisoned && is_on(self)) enter(self, step, true);
}

static void note_step(void *self, uint32_t step, bool poisoned) {
    if (!poisoned && is_on(self)) enter(self, step, false);
}

// The operation ends just behind its parts: they are its own.
static void note_end(void *self, uint32_t step, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    bool last = step + 1 == session->plan->step_count;
    if (!is_on(session)) return;
    uint64_t now = rn_record_now();
    for (uint32_t k = p->first_end[step]; k < p->first_end[step + 1] && !last && !poisoned; k++)
        set_live(session, p->ends[k], false, now);
    if (p->step_open) rn_record_put(&(rn_trace_event){.time_ns = now + 1, .kind = RN_TRACE_FINISH});
    p->step_open = false;
    if (last && p->phase_open) {
        rn_profile_end();
        p->phase_open = false;
    }
}

void rn_session_profile_begin(rn_session *session, uint32_t step, bool computes) {
    if (rn_session_profile_is_running(session))
        rn_queue_note(session->compute, computes ? note_compute : note_step, session, step);
}

void rn_session_profile_end(rn_session *session, uint32_t step) {
    if (rn_session_profile_is_running(session))
        rn_queue_note(session->compute, note_end, session, step);
}

static void note_wait(void *self, uint32_t begins, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    (void)poisoned; // a wait may poison the queue; it ends in any case
    if (!is_on(session)) return;
    if (begins)
        rn_profile_begin(begins == RN_WAIT_OFFLOAD ? p->offload_name : p->wait_name);
    else if (p->wait_open)
        rn_profile_end();
    p->wait_open = begins;
}

void rn_session_profile_wait(rn_session *session, rn_session_wait begins) {
    if (rn_session_profile_is_running(session))
        rn_queue_note(session->compute, note_wait, session, begins);
}

// ---- reading ------------------------------------------------------------------------------------

bool rn_session_profile_read(rn_session *session, uint32_t group, bool streamed) {
    rn_session_profile *p = session->profile;
    if (!is_on(session)) return false;
    if (streamed) name_thread(p, &p->read_recording, "read queue");
    rn_profile_begin(p->group_names[group]);
    return true;
}

void rn_session_profile_done(rn_session *session, uint32_t group, const uint8_t *target,
                             bool arrived) {
    rn_device_id to = session->copy ? RN_DEVICE_HOST /* a stage */ : session->device->caps.device;
    if (!is_on(session)) return;
    if (arrived)
        rn_profile_move(RN_DEVICE_ANY, to, (uintptr_t)target,
                        session->plan->groups[group].file_bytes,
                        session->profile->group_names[group]);
    rn_profile_end();
}

// Behind the loads come the weight groups as segments have them.
static uint32_t group_of(const rn_session *session, uint32_t load) {
    const rn_plan *plan = session->plan;
    return load < plan->load_count ? plan->loads[load].group : load - plan->load_count;
}

static uint64_t offset_of(const rn_session *session, uint32_t load) {
    const rn_plan *plan = session->plan;
    if (load >= plan->load_count) return session->segments->group_offset[load - plan->load_count];
    return plan->buffers[plan->loads[load].buffer].offset;
}

// On a lane of its own, not a thread's: a driver may call the notes of two queues from one thread.
static void note_upload(void *self, uint32_t load, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    (void)load;
    if (poisoned || !is_on(session)) return;
    p->copy_begin_ns = rn_profile_now();
    p->copy_open = true;
}

static void note_uploaded(void *self, uint32_t load, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    uint32_t group = group_of(session, load);
    if (!is_on(session) || !p->copy_open) return;
    if (!poisoned)
        rn_profile_move(RN_DEVICE_HOST, session->device->caps.device,
                        (uintptr_t)session->base + offset_of(session, load),
                        session->plan->groups[group].bytes, p->group_names[group]);
    rn_profile_span(rn_profile_lane("copy queue"), p->group_names[group], p->copy_begin_ns,
                    rn_profile_now());
    p->copy_open = false;
}

void rn_session_profile_upload(rn_session *session, uint32_t load, bool begins) {
    if (is_on(session))
        rn_queue_note(session->copy, begins ? note_upload : note_uploaded, session, load);
}

// ---- offloads --------------------------------------------------------------------------

// Both directions keep their own time: they go on side by side.
static void note_fetch(void *self, uint32_t offload, bool poisoned) {
    note_upload(self, offload, poisoned);
}

static void note_send(void *self, uint32_t offload, bool poisoned) {
    const rn_session *session = self;
    (void)offload;
    if (poisoned || !is_on(session)) return;
    session->profile->send_begin_ns = rn_profile_now();
    session->profile->send_open = true;
}

static void note_offload(const rn_session *session, uint32_t offload, bool sent, uint64_t begin_ns,
                         bool poisoned) {
    const rn_plan_offload *t = &session->plan->offloads[offload];
    uint32_t buffer = sent ? t->buffer : t->back;
    const rn_session_profile *p = session->profile;
    uint32_t name = sent ? p->send_names[offload] : p->fetch_names[offload];
    rn_device_id device = session->device->caps.device;
    uint64_t place = (uintptr_t)session->base + session->plan->buffers[buffer].offset;
    if (!poisoned)
        rn_profile_move(sent ? device : RN_DEVICE_HOST, sent ? RN_DEVICE_HOST : device, place,
                        t->bytes, name);
    rn_profile_span(rn_profile_lane(sent ? "send queue" : "copy queue"), name, begin_ns,
                    rn_profile_now());
}

static void note_fetched(void *self, uint32_t offload, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    if (!is_on(session) || !p->copy_open) return;
    note_offload(session, offload, false, p->copy_begin_ns, poisoned);
    p->copy_open = false;
}

static void note_sent(void *self, uint32_t offload, bool poisoned) {
    const rn_session *session = self;
    rn_session_profile *p = session->profile;
    if (!is_on(session) || !p->send_open) return;
    note_offload(session, offload, true, p->send_begin_ns, poisoned);
    p->send_open = false;
}

void rn_session_profile_offload(rn_session *session, rn_queue *queue, uint32_t offload,
                                bool begins) {
    bool sends = queue == session->send;
    if (!is_on(session)) return;
    if (begins)
        rn_queue_note(queue, sends ? note_send : note_fetch, session, offload);
    else
        rn_queue_note(queue, sends ? note_sent : note_fetched, session, offload);
}

void rn_session_profile_gather(rn_session *session, uint32_t table, uint64_t row_count) {
    const rn_plan_rows *rows = &session->plan->row_tables[table];
    if (!is_on(session)) return;
    rn_profile_move(RN_DEVICE_ANY, session->device->caps.device,
                    (uintptr_t)session->base + session->plan->buffers[rows->buffer].offset,
                    row_count * rows->row_bytes, session->profile->buffer_names[rows->buffer]);
}
