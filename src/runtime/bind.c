// bind.c — from a plan's places to the calls that kernels get: shapes for the run's rows, addresses
// in the arena.
//
// A weight of a streamed weight group lies in the slot of the load that is current at the step:
// going through the steps in order, a weight group's current use is its first, and after that
// load's EVICT the next. In a segment it lies where segments have it. What was sent to the host
// lies elsewhere when it has come back.
#include "runtime/session.h"
#include "base/checked.h"

// ---- places -------------------------------------------------------------------------------------

uint8_t *rn_session_address(const rn_session *session, rn_value value) {
    const rn_plan_place *place = &session->plan->places[value];
    if (place->buffer == RN_NO_BUFFER) return NULL;
    return session->base + session->plan->buffers[place->buffer].offset + place->offset;
}

uint64_t rn_session_value_bytes(const rn_session *session, rn_value value, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(session->plan->graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return rn_tensor_bytes(&tensor);
}

static rn_status check_buffers(const rn_session *session) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *buffer = &plan->buffers[i];
        uint64_t end = 0;
        if (!rn_add_u64(buffer->offset, buffer->bytes, &end) ||
            end > session->arena.bytes - (uint64_t)(session->base - session->arena.base))
            return rn_fail(RN_INTERNAL, "the plan's buffer %u ends at %llu, its arena at %llu", i,
                           (unsigned long long)end, (unsigned long long)plan->summary.arena_bytes);
    }
    return RN_OK;
}

// ---- calls --------------------------------------------------------------------------------------

static bool is_view(const rn_call *call) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < call->output_count; i++)
        if (rn_call_alias(call, i, &offset).kind != RN_ALIAS_KIND_VIEW) return false;
    return true;
}

static rn_status check_kernel(const rn_session *session, uint32_t node) {
    const rn_node *n = rn_graph_node(session->plan->graph, node);
    if (session->device->caps.kernels[n->op].run) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: %s has no kernel for %s", n->name,
                   session->device->caps.name, rn_op_name(n->op));
}

static rn_status link_uses(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *block = NULL;
    RN_TRY(rn_arena_array(&session->memory, plan->load_count, sizeof(uint32_t), &block));
    session->slot_load = block;
    for (uint32_t u = 0; u < plan->load_count; u++) {
        session->slot_load[u] = RN_NO_LOAD;
        for (uint32_t next = u + 1; next < plan->load_count; next++)
            if (plan->loads[next].group == plan->loads[u].group) {
                session->slot_load[u] = next;
                break;
            }
    }
    return RN_OK;
}

static rn_status prepare_call(rn_session *session, uint32_t step) {
    const rn_plan *plan = session->plan;
    const rn_node *node = rn_graph_node(plan->graph, plan->steps[step].node);
    uint64_t rows = plan->summary.rows;
    void *tensors = NULL;
    RN_TRY(rn_arena_array(&session->memory, node->input_count + node->output_count,
                          sizeof(rn_tensor), &tensors));
    rn_graph_bind(plan->graph, plan->steps[step].node, rows, tensors, &session->calls[step]);
    session->is_view[step] = is_view(&session->calls[step]);
    return session->is_view[step] ? RN_OK : check_kernel(session, plan->steps[step].node);
}

rn_status rn_session_prepare_calls(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *calls = NULL, *views = NULL;
    RN_TRY(check_buffers(session));
    RN_TRY(rn_arena_array(&session->memory, plan->step_count, sizeof(rn_call), &calls));
    RN_TRY(rn_arena_array(&session->memory, plan->step_count, sizeof(bool), &views));
    session->calls = calls;
    session->is_view = views;
    session->bound_rows = RN_ROWS;
    RN_TRY(link_uses(session));
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].kind == RN_STEP_COMPUTE) RN_TRY(prepare_call(session, i));
    return RN_OK;
}

// ---- binding ------------------------------------------------------------------------------------

static rn_status fail_place(const rn_session_step *b, rn_value value, uint64_t need,
                            uint64_t have) {
    return rn_fail(RN_INTERNAL, "%s: the plan gave '%s' %llu bytes, it needs %llu", b->node->name,
                   rn_graph_value(b->session->plan->graph, value)->name, (unsigned long long)have,
                   (unsigned long long)need);
}

uint8_t *rn_session_step_buffer(const rn_session_step *b, rn_value value, uint64_t *out_bytes) {
    const rn_session *session = b->session;
    const rn_plan *plan = session->plan;
    const rn_plan_place *place = &plan->places[value];
    uint32_t buffer = rn_plan_buffer_at(plan, value, b->step);
    if (buffer == RN_NO_BUFFER && place->group != RN_NO_LOAD) {
        const uint64_t *in_segments = session->segments->group_offset;
        uint32_t load = b->current[place->group];
        *out_bytes = plan->groups[place->group].bytes;
        if (session->bound_segments && in_segments[place->group] != RN_NO_OFFSET)
            return session->base + in_segments[place->group];
        buffer = load == RN_NO_LOAD ? RN_NO_BUFFER : plan->loads[load].buffer;
    }
    if (buffer == RN_NO_BUFFER) return NULL;
    *out_bytes = plan->buffers[buffer].bytes;
    return session->base + plan->buffers[buffer].offset;
}

// Sets the tensor's layout and address, after a look at the room there.
static rn_status place_tensor(const rn_session_step *b, rn_value value, rn_tensor *tensor) {
    if (value == RN_NO_VALUE) return RN_OK;
    const rn_plan_place *place = &b->session->plan->places[value];
    uint64_t have = 0, lead = 0;
    tensor->layout = place->layout;
    if (rn_plan_stack_of(b->session->plan, value)) { // where its matrices lie is in call->slots
        const rn_plan *plan = b->session->plan;
        tensor->data = b->session->base + plan->buffers[plan->transit_buffer].offset;
        return RN_OK;
    }
    uint8_t *at = rn_session_step_buffer(b, value, &have);
    if (!at) return RN_OK;
    if (place->file_layout) lead = rn_weights_lead(b->session->weights, value);
    uint64_t need = rn_tensor_bytes(tensor) + lead;
    if (place->offset > have || need > have - place->offset)
        return fail_place(b, value, need, place->offset > have ? 0 : have - place->offset);
    tensor->data = at + place->offset + lead;
    return RN_OK;
}

// The table of a lookup whose rows are gathered: as many rows as there are ids.
static rn_status place_rows(const rn_session_step *b, const rn_plan_rows *rows,
                            rn_tensor *tensors) {
    const rn_plan_buffer *buffer = &b->session->plan->buffers[rows->buffer];
    tensors[0].shape.dims[0] = rn_tensor_elements(&tensors[1]);
    uint64_t need = rn_tensor_bytes(&tensors[0]);
    if (need > buffer->bytes) return fail_place(b, rows->table, need, buffer->bytes);
    tensors[0].data = b->session->base + buffer->offset;
    return RN_OK;
}

static rn_status place_tensors(const rn_session_step *b, rn_tensor *tensors) {
    const rn_node *node = b->node;
    const rn_plan *plan = b->session->plan;
    const rn_plan_rows *rows = rn_plan_rows_of(plan, plan->steps[b->step].node);
    uint32_t optional = rn_op_get(node->op)->optional_outputs;
    if (rows) RN_TRY(place_rows(b, rows, tensors));
    for (uint32_t i = rows ? 1 : 0; i < node->input_count; i++) {
        RN_TRY(place_tensor(b, node->inputs[i], &tensors[i]));
        if (rn_tensor_given(&tensors[i]) && !tensors[i].data)
            return fail_place(b, node->inputs[i], rn_tensor_bytes(&tensors[i]), 0);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        rn_tensor *tensor = &tensors[node->input_count + i];
        RN_TRY(place_tensor(b, node->outputs[i], tensor));
        if (!tensor->data && !(optional >> i & 1) && !b->session->is_view[b->step])
            return fail_place(b, node->outputs[i], rn_tensor_bytes(tensor), 0);
    }
    return RN_OK;
}

static rn_status place_workspace(const rn_session_step *b, rn_call *call) {
    const rn_plan *plan = b->session->plan;
    const rn_kernel *kernel = &b->session->device->caps.kernels[call->op];
    uint32_t buffer = plan->steps[b->step].workspace;
    if (buffer != RN_NO_BUFFER) {
        call->workspace = b->session->base + plan->buffers[buffer].offset;
        call->workspace_bytes = plan->buffers[buffer].bytes;
    }
    uint64_t need = kernel->workspace ? kernel->workspace(call) : 0;
    if (need <= call->workspace_bytes) return RN_OK;
    return rn_fail(RN_INTERNAL, "%s: the plan gave %llu bytes of workspace, the kernel wants %llu",
                   b->node->name, (unsigned long long)call->workspace_bytes,
                   (unsigned long long)need);
}

static rn_status bind_step(const rn_session_step *b) {
    rn_session *session = b->session;
    rn_call *call = &session->calls[b->step];
    rn_tensor *tensors = (rn_tensor *)call->inputs; // ours, from prepare_call
    rn_graph_bind(session->plan->graph, session->plan->steps[b->step].node, b->rows, tensors, call);
    call->scalars = session->scalars;
    call->workers = session->device->workers;
    call->threads = session->plan->caps.threads;
    call->slice_rows = session->plan->summary.slice_rows;
    call->ranks = session->ranks.ranks ? &session->ranks : NULL;
    call->slots = rn_experts_is_reader(session->experts, b->step)
                      ? rn_experts_slots_of(session->experts)
                      : NULL;
    RN_TRY(place_tensors(b, tensors));
    return session->is_view[b->step] ? RN_OK : place_workspace(b, call);
}

static rn_status walk_steps(rn_session_step *b, rn_status (*each)(const rn_session_step *at)) {
    const rn_plan *plan = b->session->plan;
    for (uint32_t k = 0; k < plan->group_count; k++)
        b->current[k] = RN_NO_LOAD;
    for (uint32_t u = plan->load_count; u > 0; u--)
        b->current[plan->loads[u - 1].group] = u - 1;
    for (b->step = 0; b->step < plan->step_count; b->step++) {
        const rn_plan_step *step = &plan->steps[b->step];
        if (step->kind == RN_STEP_EVICT)
            b->current[plan->loads[step->load].group] = b->session->slot_load[step->load];
        if (step->kind != RN_STEP_COMPUTE) continue;
        b->node = rn_graph_node(plan->graph, step->node);
        RN_TRY(each(b));
    }
    return RN_OK;
}

rn_status rn_session_each_step(rn_session *session, uint64_t rows,
                               rn_status (*each)(const rn_session_step *at)) {
    rn_session_step b = {.session = session, .rows = rows};
    rn_arena memory;
    void *current = NULL;
    rn_arena_init(&memory, session->memory.from, 0);
    rn_status s = rn_arena_array(&memory, session->plan->group_count, sizeof(uint32_t), &current);
    b.current = current;
    if (s == RN_OK) s = walk_steps(&b, each);
    rn_arena_free_all(&memory);
    return s;
}

rn_status rn_session_bind(rn_session *session, uint64_t rows) {
    bool segments = session->segment && session->segments->load_count;
    if (rows == session->bound_rows && segments == session->bound_segments) return RN_OK;
    session->bound_rows = RN_ROWS;
    session->bound_segments = segments;
    RN_TRY(rn_session_each_step(session, rows, bind_step));
    session->bound_rows = rows;
    return RN_OK;
}
