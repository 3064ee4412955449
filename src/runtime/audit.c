// audit.c — how many bytes of the arena were really in use at each step, derived from the arguments
// that the kernels got: the plan's lifetimes are not looked at.
//
//     address
//       │  W───────R                    a life: from a write to the last read of what it wrote
//       │      W────────R──────R
//       │  W (never read: alive at its own step)
//       └──────────────────────────▶ step
//
// Every range of bytes that a step reads or writes is cut at the ends of all other ranges. For each
// of the resulting strips, in the order of steps, a write ends one life and begins another; the
// strip's bytes are live from its write to its last read. Bytes overwritten in place are so counted
// once. A view is its owner's bytes: reading a part keeps all of them, updating a part goes on with
// the same life. States, constants and resident weights are alive all the time, inputs from step 0,
// outputs to the end, a slot from when it is filled to its EVICT. What is sent to the host is read
// until that has been waited for; what is fetched from there is written anew.
//
// A strip remembers who owns its bytes: a step that reads another's, or what nobody wrote, is a
// mismatch, too.
//
//     owners   0 .. values | values + 1 + use | then weight groups, gathered rows,    a value owns
//     what its
//                                               what came back from an offload    views show
#include "runtime/session.h"
#include "base/checked.h"
#include "base/fetcher.h"
#include "memory/account.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { GRAIN = 64 };        // no two buffers share this many bytes: a range is rounded to it
#define NO_OWNER UINT32_MAX // a workspace: nobody may read it

typedef enum range_kind {
    RANGE_ALWAYS,
    RANGE_FILL,  // always a new life
    RANGE_WRITE, // a new life, or an update of its owner's bytes
    RANGE_READ,
    RANGE_WEIGHT // reads a slot; the owner is the weight group that must lie there
} range_kind;

typedef struct range {
    uint64_t begin, end; // in the arena
    uint32_t step, owner;
    range_kind kind;
} range;

typedef struct strip {
    uint32_t owner;
    uint32_t written, last_read; // steps; last_read < written: not read yet
    bool always, alive;
} strip;

typedef struct audit {
    const rn_session *session;
    rn_arena memory;
    rn_tensor *tensors; // the widest node's
    rn_value *roots;    // (values + 1)
    range *ranges;      // (range_count), in the order of time
    range *whole;       // (owners): all that it has written
    uint32_t range_count;
    uint64_t *cuts; // (cut_count), sorted: strip i is cuts[i] .. cuts[i + 1]
    uint32_t cut_count;
    strip *strips;
    int64_t *change;   // (steps + 1): of live bytes
    uint64_t bad_step; // the first at which foreign bytes were read
} audit;

// ---- owners -------------------------------------------------------------------------------------

static void find_roots(audit *a) {
    const rn_graph *graph = a->session->plan->graph;
    for (rn_value v = 0; v <= rn_graph_value_count(graph); v++)
        a->roots[v] = v;
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        rn_call call;
        rn_graph_bind(graph, i, a->session->bound_rows, a->tensors, &call);
        for (uint32_t k = 0; k < node->output_count; k++) {
            uint64_t offset = 0;
            rn_alias alias = rn_call_alias(&call, k, &offset);
            if (alias.kind == RN_ALIAS_KIND_VIEW || alias.kind == RN_ALIAS_KIND_MUST)
                a->roots[node->outputs[k]] = a->roots[node->inputs[alias.input]];
        }
    }
}

static uint32_t load_owner(const audit *a, uint32_t load) {
    return a->session->plan->value_count + 1 + load;
}

static uint32_t group_owner(const audit *a, uint32_t group) {
    return load_owner(a, a->session->plan->load_count) + group;
}

static uint32_t row_owner(const audit *a, uint32_t rows) {
    return group_owner(a, a->session->plan->group_count) + rows;
}

static uint32_t offload_owner(const audit *a, uint32_t offload) {
    return row_owner(a, a->session->plan->row_table_count) + offload;
}

// Whether the value's bytes have come back from the host before this step; *out_offload.
static bool is_back(const audit *a, rn_value value, uint32_t step, uint32_t *out_offload) {
    const rn_plan *plan = a->session->plan;
    uint32_t buffer = plan->places[value].buffer;
    *out_offload = buffer == RN_NO_BUFFER ? RN_NO_OFFLOAD : plan->buffers[buffer].offload;
    if (*out_offload == RN_NO_OFFLOAD) return false;
    const rn_plan_offload *offload = &plan->offloads[*out_offload];
    return step >= offload->prefetch_step && a->roots[offload->value] == a->roots[value];
}

// Of a value that is not a streamed weight, at a step.
static uint32_t owner_of(const audit *a, rn_value value, uint32_t step) {
    uint32_t group = a->session->plan->places[a->roots[value]].group, offload;
    if (is_back(a, value, step, &offload)) return offload_owner(a, offload);
    return group == RN_NO_LOAD ? a->roots[value] : group_owner(a, group);
}

static bool is_streamed(const audit *a, rn_value value) {
    uint32_t group = a->session->plan->places[a->roots[value]].group;
    return group != RN_NO_LOAD && !a->session->plan->groups[group].resident;
}

// ---- gathering ----------------------------------------------------------------------------------

static void add(audit *a, range_kind kind, uint32_t step, uint32_t owner, const void *address,
                uint64_t bytes) {
    if (!address || bytes == 0) return;
    uint64_t begin = (uint64_t)((const uint8_t *)address - a->session->base);
    range *r = &a->ranges[a->range_count++];
    *r = (range){rn_round_down(begin, GRAIN), rn_round_up(begin + bytes, GRAIN), step, owner, kind};
    if (kind == RANGE_READ || owner == NO_OWNER) return;
    range *whole = &a->whole[owner];
    if (whole->end == 0) whole->begin = r->begin;
    whole->begin = rn_min_u64(whole->begin, r->begin);
    whole->end = rn_max_u64(whole->end, r->end);
}

static void add_tensor(audit *a, range_kind kind, uint32_t step, rn_value value,
                       const rn_tensor *tensor) {
    if (value == RN_NO_VALUE || rn_plan_stack_of(a->session->plan, value)) return;
    if (is_streamed(a, value))
        add(a, RANGE_WEIGHT, step, a->session->plan->places[a->roots[value]].group, tensor->data,
            rn_tensor_bytes(tensor));
    else
        add(a, kind, step, owner_of(a, value, step), tensor->data, rn_tensor_bytes(tensor));
}

// From the weight group's first weight to the end of its last, as they were packed or read.
static void add_group(audit *a, range_kind kind, uint32_t step, uint32_t owner, uint32_t group,
                      uint32_t buffer) {
    const rn_plan *plan = a->session->plan;
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan->groups[group].value_count; i++) {
        rn_value value = plan->group_values[plan->groups[group].first_value + i];
        const rn_value_info *info = rn_graph_value(plan->graph, value);
        rn_tensor tensor = {
            .dtype = info->dtype, .layout = plan->places[value].layout, .shape = info->shape};
        uint64_t bytes = rn_tensor_bytes(&tensor);
        if (plan->places[value].file_layout) bytes = rn_fetch_room(bytes);
        end = rn_max_u64(end, plan->places[value].offset + bytes);
    }
    add(a, kind, step, owner, a->session->base + plan->buffers[buffer].offset, end);
}

static void add_load(audit *a, range_kind kind, uint32_t step, uint32_t load) {
    const rn_plan_load *u = &a->session->plan->loads[load];
    add_group(a, kind, step, load_owner(a, load), u->group, u->buffer);
}

static void add_resident(audit *a) {
    const rn_plan *plan = a->session->plan;
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].resident)
            add_group(a, RANGE_ALWAYS, 0, group_owner(a, i), i,
                      plan->places[plan->group_values[plan->groups[i].first_value]].buffer);
}

// Slots for experts: what is in them is the choice of routers.
static bool holds_experts(const rn_plan *plan, const rn_plan_buffer *b) {
    return b->kind == RN_BUFFER_TRANSIT ||
           (b->kind == RN_BUFFER_GROUP && plan->groups[b->group].on_demand);
}

// What other phases of the program hold, and what is there for experts.
static void add_held(audit *a) {
    const rn_plan *plan = a->session->plan;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].kind == RN_BUFFER_HELD || holds_experts(plan, &plan->buffers[i]))
            add(a, RANGE_ALWAYS, 0, NO_OWNER, a->session->base + plan->buffers[i].offset,
                plan->buffers[i].bytes);
}

static void add_values(audit *a, rn_role role, range_kind kind, uint32_t step) {
    const rn_graph *graph = a->session->plan->graph;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == role && !rn_session_home(a->session, v))
            add(a, kind, step, owner_of(a, v, step), rn_session_address(a->session, v),
                rn_session_value_bytes(a->session, v, a->session->bound_rows));
}

static void add_offload(audit *a, uint32_t step) {
    const rn_plan *plan = a->session->plan;
    uint32_t offload = plan->steps[step].offload;
    const rn_plan_offload *t = &plan->offloads[offload];
    if (step == t->prefetch_step)
        add(a, RANGE_FILL, step, offload_owner(a, offload),
            a->session->base + plan->buffers[t->back].offset, t->bytes);
    if (step == t->gone_step)
        add(a, RANGE_READ, step, owner_of(a, t->value, step),
            a->session->base + plan->buffers[t->buffer].offset, t->bytes);
}

// Slots that the run before has filled, at step 0; slots for the next run, at the last.
static void add_carried(audit *a, range_kind kind, uint32_t at) {
    const rn_plan *plan = a->session->plan;
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (rn_step_fills(&plan->steps[i]) && plan->steps[i].next_run)
            add_load(a, kind, at, plan->steps[i].load);
}

// Rows that were gathered before the run: as many as the ids that they were gathered for.
static void add_rows(audit *a) {
    const rn_plan *plan = a->session->plan;
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        add(a, RANGE_FILL, 0, row_owner(a, i),
            a->session->base + plan->buffers[plan->row_tables[i].buffer].offset,
            rn_plan_rows_bytes(plan->graph, &plan->row_tables[i], a->session->bound_rows));
}

static void add_call(audit *a, uint32_t step) {
    const rn_session *session = a->session;
    const rn_call *call = &session->calls[step];
    const rn_plan *plan = session->plan;
    const rn_node *node = rn_graph_node(plan->graph, plan->steps[step].node);
    const rn_kernel *kernel = &session->device->caps.kernels[call->op];
    const rn_plan_rows *rows = rn_plan_rows_of(plan, plan->steps[step].node);
    if (rows)
        add(a, RANGE_READ, step, row_owner(a, (uint32_t)(rows - plan->row_tables)),
            call->inputs[RN_LOOKUP_TABLE].data, rn_tensor_bytes(&call->inputs[RN_LOOKUP_TABLE]));
    for (uint32_t i = rows ? 1 : 0; i < node->input_count; i++)
        add_tensor(a, RANGE_READ, step, node->inputs[i], &call->inputs[i]);
    for (uint32_t i = 0; i < node->output_count; i++)
        add_tensor(a, RANGE_WRITE, step, node->outputs[i], &call->outputs[i]);
    add(a, RANGE_WRITE, step, NO_OWNER, call->workspace,
        kernel->workspace ? kernel->workspace(call) : 0);
}

static void gather(audit *a) {
    const rn_plan *plan = a->session->plan;
    add_values(a, RN_ROLE_STATE, RANGE_ALWAYS, 0);
    add_values(a, RN_ROLE_CONSTANT, RANGE_ALWAYS, 0);
    add_resident(a);
    add_held(a);
    add_values(a, RN_ROLE_INPUT, RANGE_FILL, 0);
    add_rows(a);
    add_carried(a, RANGE_FILL, 0);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const rn_plan_step *step = &plan->steps[i];
        if (rn_step_fills(step)) add_load(a, RANGE_FILL, i, step->load);
        if (step->kind == RN_STEP_EVICT) add_load(a, RANGE_READ, i, step->load);
        if (step->offload != RN_NO_OFFLOAD) add_offload(a, i);
        if (step->kind == RN_STEP_COMPUTE && !a->session->is_view[i]) add_call(a, i);
    }
    add_values(a, RN_ROLE_OUTPUT, RANGE_READ, plan->step_count - 1);
    add_carried(a, RANGE_READ, plan->step_count - 1);
}

// Ranges, at most; and the widest node.
static uint32_t count_room(const audit *a, uint32_t *out_widest) {
    const rn_plan *plan = a->session->plan;
    uint32_t room = plan->value_count + plan->group_count + 4 * plan->load_count +
                    plan->row_table_count + 2 * plan->offload_count;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        room += plan->buffers[i].kind == RN_BUFFER_HELD || holds_experts(plan, &plan->buffers[i]);
    *out_widest = 0;
    for (uint32_t i = 0; i < rn_graph_node_count(plan->graph); i++) {
        const rn_node *node = rn_graph_node(plan->graph, i);
        uint32_t width = node->input_count + node->output_count;
        if (width > *out_widest) *out_widest = width;
        room += width + 1;
    }
    return room;
}

// ---- strips -------------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void cut(audit *a) {
    for (uint32_t i = 0; i < a->range_count; i++) {
        a->cuts[a->cut_count++] = a->ranges[i].begin;
        a->cuts[a->cut_count++] = a->ranges[i].end;
    }
    qsort(a->cuts, a->cut_count, sizeof *a->cuts, compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->cut_count; i++)
        if (kept == 0 || a->cuts[i] != a->cuts[kept - 1]) a->cuts[kept++] = a->cuts[i];
    a->cut_count = kept;
}

static uint32_t find_cut(const audit *a, uint64_t address) {
    const uint64_t *at = bsearch(&address, a->cuts, a->cut_count, sizeof address, compare);
    return (uint32_t)(at - a->cuts);
}

static void mark_bad(audit *a, uint32_t step) {
    a->bad_step = rn_min_u64(a->bad_step, step);
}

static void count_life(audit *a, uint32_t index, uint32_t first, uint32_t last) {
    int64_t bytes = (int64_t)(a->cuts[index + 1] - a->cuts[index]);
    a->change[first] += bytes;
    a->change[last + 1] -= bytes;
}

// Ends the strip's life before `step`, where another begins.
static void end_life(audit *a, uint32_t index, uint32_t step) {
    const strip *s = &a->strips[index];
    if (!s->alive || s->always || step <= s->written) return;
    uint32_t last = s->last_read > s->written ? s->last_read : s->written;
    count_life(a, index, s->written, last < step ? last : step - 1);
}

static void write_strip(audit *a, uint32_t index, const range *r) {
    strip *s = &a->strips[index];
    bool own = s->alive && s->owner == r->owner && r->owner != NO_OWNER && r->kind == RANGE_WRITE;
    bool twice = s->alive && s->written == r->step && s->owner != NO_OWNER;
    if (own) {
        s->last_read = r->step;
        return;
    }
    if (s->always || twice) mark_bad(a, r->step);
    if (s->always) return;
    end_life(a, index, r->step);
    *s = (strip){.owner = r->owner, .written = r->step, .alive = true};
}

static void touch(audit *a, uint32_t index, const range *r) {
    const rn_plan *plan = a->session->plan;
    strip *s = &a->strips[index];
    uint32_t first_use = load_owner(a, 0);
    switch (r->kind) {
    case RANGE_ALWAYS:
        if (s->alive) mark_bad(a, 0);
        *s = (strip){.owner = r->owner, .always = true, .alive = true};
        break;
    case RANGE_READ:
        if (!s->alive || s->owner != r->owner) mark_bad(a, r->step);
        break;
    case RANGE_WEIGHT:
        if (s->owner < first_use || s->owner >= first_use + plan->load_count ||
            plan->loads[s->owner - first_use].group != r->owner)
            mark_bad(a, r->step);
        break;
    default:
        write_strip(a, index, r);
    }
}

// A read of a part keeps all of its owner's bytes.
static void keep_whole(audit *a, const range *r) {
    const range *whole = &a->whole[r->owner];
    if (whole->end == 0) return;
    uint32_t end = find_cut(a, whole->end);
    for (uint32_t k = find_cut(a, whole->begin); k < end; k++)
        if (a->strips[k].alive && a->strips[k].owner == r->owner) a->strips[k].last_read = r->step;
}

static void follow(audit *a) {
    uint32_t steps = a->session->plan->step_count;
    for (uint32_t i = 0; i < a->range_count; i++) {
        const range *r = &a->ranges[i];
        uint32_t end = find_cut(a, r->end);
        for (uint32_t k = find_cut(a, r->begin); k < end; k++)
            touch(a, k, r);
        if (r->kind == RANGE_READ) keep_whole(a, r);
    }
    for (uint32_t k = 0; k + 1 < a->cut_count; k++) {
        if (a->strips[k].always)
            count_life(a, k, 0, steps - 1);
        else
            end_life(a, k, steps);
    }
}

// ---- comparing ----------------------------------------------------------------------------------

static void compare_steps(const audit *a, rn_session_facts *facts) {
    const rn_plan *plan = a->session->plan;
    bool whole = a->session->bound_rows == plan->summary.rows;
    uint64_t live = 0, bad = a->bad_step;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        live += (uint64_t)a->change[i];
        facts->live_peak_bytes = rn_max_u64(facts->live_peak_bytes, live);
        bool same = whole ? live == plan->steps[i].live_bytes : live <= plan->steps[i].live_bytes;
        if (!same) bad = rn_min_u64(bad, i);
    }
    facts->live_mismatch_step = rn_min_u64(facts->live_mismatch_step, bad);
}

static rn_status allocate(audit *a) {
    const rn_plan *plan = a->session->plan;
    void *tensors = NULL, *roots = NULL, *ranges = NULL, *whole = NULL;
    void *cuts = NULL, *strips = NULL, *change = NULL;
    uint32_t widest = 0, room = count_room(a, &widest),
             owners = offload_owner(a, plan->offload_count);
    RN_TRY(rn_arena_array(&a->memory, widest, sizeof(rn_tensor), &tensors));
    RN_TRY(rn_arena_array(&a->memory, plan->value_count + 1u, sizeof(rn_value), &roots));
    RN_TRY(rn_arena_array(&a->memory, room, sizeof(range), &ranges));
    RN_TRY(rn_arena_array(&a->memory, owners, sizeof(range), &whole));
    RN_TRY(rn_arena_array(&a->memory, 2u * room, sizeof(uint64_t), &cuts));
    RN_TRY(rn_arena_array(&a->memory, 2u * room, sizeof(strip), &strips));
    RN_TRY(rn_arena_array(&a->memory, plan->step_count + 1u, sizeof(int64_t), &change));
    a->tensors = tensors;
    a->roots = roots;
    a->ranges = ranges;
    a->whole = whole;
    a->cuts = cuts;
    a->strips = strips;
    a->change = change;
    return RN_OK;
}

rn_status rn_session_audit(rn_session *session) {
    if (session->plan->step_count == 0) return RN_OK;
    audit a = {.session = session, .bad_step = UINT64_MAX};
    rn_arena_init(&a.memory, &rn_host_allocators[RN_PURPOSE_PROFILER], 0);
    rn_status s = allocate(&a);
    if (s == RN_OK) {
        find_roots(&a);
        gather(&a);
        cut(&a);
        follow(&a);
        compare_steps(&a, &session->facts);
    }
    rn_arena_free_all(&a.memory);
    return s;
}

// ---- pages --------------------------------------------------------------------------------------

void rn_session_audit_resident(rn_session *session) {
    unsigned char pages[1024];
    uint64_t resident = 0;
    if (session->device->caps.own_memory || !session->arena.base) return;
    uint8_t *base = session->arena.base;
    for (uint64_t at = 0; at < session->arena.bytes; at += sizeof pages * RN_PAGE_BYTES) {
        uint64_t bytes = rn_min_u64(session->arena.bytes - at, sizeof pages * RN_PAGE_BYTES);
        if (mincore(base + at, bytes, pages) != 0) return;
        for (uint64_t i = 0; i < rn_div_up(bytes, RN_PAGE_BYTES); i++)
            resident += (pages[i] & 1) * RN_PAGE_BYTES;
    }
    session->facts.resident_peak_bytes = rn_max_u64(session->facts.resident_peak_bytes, resident);
}
