// walk.c — steps to queues.
//
//     read     READ 3 ──signal──┐      READ 4 (waits for EVICT 1)
//     compute  ... wait ────────┴▶ matmul ... EVICT 1 ──signal──▶ ...
//
// Every step that another waits for has a fence. A READ of the next run has the same fence as in
// the run before; the wait for it stands earlier in the steps than the READ itself, so it finds the
// signal of the run before, or of priming.
//
// A device with its own memory gets weights in two moves: the read queue packs a weight group into
// one of two host buffers (stages), the copy queue takes it from there to the slot. Only the copy
// has to wait for the slot, so the disk runs further ahead. Where the host keeps copies of all that
// is streamed (copies.c) there is nothing to read: the copy queue takes it from there. What a
// training step sends to the host and fetches back (host_offloads.c) goes through a queue of its
// own, and the copy queue.
#include "runtime/session.h"
#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

#include <stdatomic.h>
#include <sys/mman.h>

// ---- fences -------------------------------------------------------------------------------------

// A run takes no memory of a device: what its fences need is there before.
static rn_status ready(rn_session *session, rn_fence *fence, bool with_host) {
    rn_device *device = session->device;
    return device->ready_fence ? device->ready_fence(device, fence, with_host) : RN_OK;
}

static rn_status ready_all(rn_session *session) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; i < session->fence_count; i++)
        RN_TRY(ready(session, &session->fences[i], false));
    for (int i = 0; i < 2 && plan->load_count && !plan->from_host; i++) {
        RN_TRY(ready(session, &session->stage_full[i], true));
        RN_TRY(ready(session, &session->stage_free[i], true));
    }
    for (int i = 0; i < RN_INTERLEAVE_SLOTS && session->segments->load_count; i++) {
        RN_TRY(ready(session, &session->slots.full[i], false));
        RN_TRY(ready(session, &session->slots.free[i], false));
    }
    return RN_OK;
}

static rn_status make_fences(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *fence_of = NULL, *fences = NULL;
    uint32_t count = 0;
    RN_TRY(rn_arena_array(&session->memory, plan->step_count, sizeof(uint32_t), &fence_of));
    session->fence_of = fence_of;
    for (uint32_t i = 0; i < plan->step_count; i++)
        session->fence_of[i] = RN_NO_STEP;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        uint32_t after = plan->steps[i].after;
        if (after == RN_NO_STEP || session->fence_of[after] != RN_NO_STEP) continue;
        session->fence_of[after] = count++;
    }
    RN_TRY(rn_arena_array(&session->memory, count, sizeof(rn_fence), &fences));
    session->fences = fences;
    for (; session->fence_count < count; session->fence_count++)
        rn_fence_init(&session->fences[session->fence_count]);
    return RN_OK;
}

static void renew(rn_fence *fence) {
    rn_fence_free(fence);
    rn_fence_init(fence);
}

static void signal_step(rn_session *session, rn_queue *queue, uint32_t step) {
    uint32_t fence = session->fence_of[step];
    if (fence != RN_NO_STEP) rn_queue_signal(queue, &session->fences[fence]);
}

static void wait_step(rn_session *session, rn_queue *queue, uint32_t step) {
    if (step == RN_NO_STEP) return;
    rn_queue_wait(queue, &session->fences[session->fence_of[step]]);
}

// ---- reading ------------------------------------------------------------------------------------

static uint8_t *slot_address(const rn_session *session, uint32_t load) {
    const rn_plan *plan = session->plan;
    return session->base + plan->buffers[plan->loads[load].buffer].offset;
}

static rn_status fill(rn_session *session, rn_weight_list list, uint32_t entry, uint8_t *target) {
    uint32_t group = rn_weights_group(session->weights, list, entry);
    bool seen = rn_session_profile_read(session, group, list == RN_WEIGHTS_STREAMED);
    rn_status s = rn_weights_fill(session->weights, list, entry, target);
    if (seen) rn_session_profile_done(session, group, target, s == RN_OK);
    return s;
}

static rn_status read_to_slot(void *self, uint32_t load) {
    rn_session *session = self;
    session->reads_begun++;
    return fill(session, RN_WEIGHTS_STREAMED, load, slot_address(session, load));
}

// The READ after the one that is being carried out, if what it waits for has been done: READs go
// round in the order of their steps, and each one behind the first few waits for one EVICT.
static bool find_next_read(void *self, uint32_t *out_load, uint8_t **out_target) {
    const rn_session *session = self;
    const rn_plan *plan = session->plan;
    uint64_t next = session->reads_begun, slots = plan->slot_count;
    if (next >= slots + atomic_load(&session->evictions)) return false;
    uint64_t at = next < slots ? next : slots + (next - slots) % plan->load_count;
    *out_load = session->read_order[at];
    *out_target = slot_address(session, *out_load);
    return true;
}

static rn_status count_eviction(void *self, uint32_t step) {
    rn_session *session = self;
    (void)step;
    atomic_fetch_add(&session->evictions, 1);
    return RN_OK;
}

static rn_status order_reads(rn_session *session) {
    const rn_plan *plan = session->plan;
    void *order = NULL;
    uint32_t count = 0;
    RN_TRY(rn_arena_array(&session->memory, (size_t)plan->slot_count + plan->load_count,
                          sizeof(uint32_t), &order));
    session->read_order = order;
    for (int ahead = 1; ahead >= 0; ahead--)
        for (uint32_t i = 0; i < plan->step_count; i++)
            if (rn_step_fills(&plan->steps[i]) && (!ahead || plan->steps[i].next_run))
                session->read_order[count++] = plan->steps[i].load;
    return RN_OK;
}

static rn_status read_to_stage(void *self, uint32_t load) {
    rn_session *session = self;
    return fill(session, RN_WEIGHTS_STREAMED, load, session->stages[load % 2]);
}

// Where the copy queue finds a load's weights: in a stage that the read queue fills, or in a copy.
static const uint8_t *submit_source(rn_session *session, uint32_t load) {
    uint32_t stage = load % 2;
    if (session->copies)
        return session->copies + session->copy_offset[session->plan->loads[load].group];
    rn_queue_wait(session->read, &session->stage_free[stage]);
    rn_queue_call(session->read, read_to_stage, session, load);
    rn_queue_signal(session->read, &session->stage_full[stage]);
    rn_queue_wait(session->copy, &session->stage_full[stage]);
    return session->stages[stage];
}

static void submit_upload(rn_session *session, uint32_t step, uint32_t after) {
    const rn_plan *plan = session->plan;
    uint32_t load = plan->steps[step].load;
    const uint8_t *source = submit_source(session, load);
    wait_step(session, session->copy, after);
    rn_session_profile_upload(session, load, true);
    rn_queue_copy_in(session->copy, slot_address(session, load), source,
                     plan->groups[plan->loads[load].group].bytes);
    rn_session_profile_upload(session, load, false);
    if (!session->copies) rn_queue_signal(session->copy, &session->stage_free[load % 2]);
    signal_step(session, session->copy, step);
}

static void submit_read(rn_session *session, uint32_t step, uint32_t after) {
    if (session->copy) {
        submit_upload(session, step, after);
        return;
    }
    wait_step(session, session->read, after);
    rn_queue_call(session->read, read_to_slot, session, session->plan->steps[step].load);
    signal_step(session, session->read, step);
}

void rn_session_prime(rn_session *session) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (rn_step_fills(&plan->steps[i]) && plan->steps[i].next_run)
            submit_read(session, i, RN_NO_STEP);
    session->primed = true;
}

// ---- computing ----------------------------------------------------------------------------------

static rn_status check_guard(void *self, uint32_t step) {
    return rn_guard_check(self, step);
}

// The router has run: what it chose is asked for.
static rn_status begin_experts(void *self, uint32_t step) {
    rn_session *session = self;
    const rn_call *call = &session->calls[step];
    rn_expert_call e;
    if (!rn_call_experts(call, &e)) return rn_fail(RN_INTERNAL, "step %u has no experts", step);
    const rn_tensor *ids = &call->inputs[e.ids];
    return rn_experts_begin(session->experts, step, ids->data, rn_tensor_elements(ids));
}

static void compute(rn_session *session, uint32_t step) {
    rn_call call = session->calls[step];
    const rn_kernel *kernel = &session->device->caps.kernels[call.op];
    if (session->call_scalars) call.scalars = session->call_scalars;
    if (call.slots) rn_queue_call(session->compute, begin_experts, session, step);
    if (session->guard) rn_guard_paint(session->guard, step);
    rn_queue_launch(session->compute, kernel, &call);
    if (session->guard) rn_queue_call(session->compute, check_guard, session->guard, step);
    if (session->options.audit) rn_session_audit_resident(session);
}

static void submit_compute(rn_session *session, uint32_t step, bool last) {
    const rn_plan_step *s = &session->plan->steps[step];
    bool update = rn_graph_node(session->plan->graph, s->node)->phase == RN_PHASE_UPDATE;
    if (s->after != RN_NO_STEP && !session->segment) {
        uint64_t begin = rn_clock_ns();
        rn_session_profile_wait(session, RN_WAIT_WEIGHTS);
        wait_step(session, session->compute, s->after);
        rn_session_profile_wait(session, RN_WAIT_ENDS);
        session->wait_ns += rn_clock_ns() - begin;
    }
    bool computes = (last || !update) && !session->is_view[step];
    rn_session_profile_begin(session, step, computes);
    if (computes) compute(session, step);
    rn_session_profile_end(session, step);
    signal_step(session, session->compute, step);
}

static void submit_eviction(rn_session *session, uint32_t step) {
    wait_step(session, session->compute, session->plan->steps[step].after);
    rn_session_profile_begin(session, step, false);
    if (!session->copy) rn_queue_call(session->compute, count_eviction, session, step);
    rn_session_profile_end(session, step);
    signal_step(session, session->compute, step);
}

// States are offloaded with the last micro-batch, which updates them.
static void submit_offload(rn_session *session, uint32_t step, bool last) {
    const rn_plan_step *s = &session->plan->steps[step];
    rn_queue *queues[] = {session->compute, NULL, session->copy, session->send};
    bool made = last || !session->plan->offloads[s->offload].home;
    rn_session_profile_begin(session, step, false);
    if (made) {
        bool waits = s->kind == RN_STEP_WAIT;
        if (waits) rn_session_profile_wait(session, RN_WAIT_OFFLOAD);
        wait_step(session, queues[s->queue], s->after);
        if (waits) rn_session_profile_wait(session, RN_WAIT_ENDS);
        if (s->kind == RN_STEP_OFFLOAD) rn_session_offload(session, s->offload);
        if (s->kind == RN_STEP_PREFETCH) rn_session_prefetch_offload(session, s->offload);
    }
    rn_session_profile_end(session, step);
    signal_step(session, queues[s->queue], step);
}

static void submit_step(rn_session *session, uint32_t step, bool last) {
    const rn_plan_step *s = &session->plan->steps[step];
    if (s->kind == RN_STEP_COMPUTE) {
        submit_compute(session, step, last);
    } else if (s->offload != RN_NO_OFFLOAD) {
        submit_offload(session, step, last);
    } else if (s->kind == RN_STEP_EVICT && !session->segment) {
        submit_eviction(session, step);
    } else {
        rn_session_profile_begin(session, step, false);
        if (!session->segment) submit_read(session, step, s->after);
        rn_session_profile_end(session, step);
    }
}

void rn_session_walk(rn_session *session, bool last) {
    for (uint32_t i = session->from_step; i < session->to_step; i++)
        submit_step(session, i, last);
}

// ---- life ---------------------------------------------------------------------------------------

static uint64_t largest_group(const rn_plan *plan) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].bytes > bytes) bytes = plan->groups[i].bytes;
    return bytes;
}

static rn_status make_stages(rn_session *session) {
    uint32_t count = session->plan->load_count && !session->plan->from_host ? 2 : 1;
    session->stage_bytes = rn_round_up(largest_group(session->plan), RN_PAGE_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        void *stage = NULL;
        session->stage_free[i].for_host = true; // the read queue waits for it
        RN_TRY(rn_device_host_take(session->device, RN_STAGING, session->stage_bytes, &stage));
        session->stages[i] = stage;
    }
    return RN_OK;
}

rn_status rn_session_prepare_walk(rn_session *session) {
    rn_device *device = session->device;
    const _Atomic bool *cancel = session->options.cancel;
    for (int i = 0; i < 2; i++) {
        rn_fence_init(&session->stage_full[i]);
        rn_fence_init(&session->stage_free[i]);
    }
    for (int i = 0; i < RN_INTERLEAVE_SLOTS; i++) {
        rn_fence_init(&session->slots.full[i]);
        rn_fence_init(&session->slots.free[i]);
    }
    rn_session_forget_slots(session);
    RN_TRY(make_fences(session));
    RN_TRY(ready_all(session));
    RN_TRY(order_reads(session));
    RN_TRY(device->open_queue(device, RN_QUEUE_COMPUTE, cancel, &session->compute));
    if (session->plan->load_count && !session->plan->from_host)
        RN_TRY(rn_queue_thread_create(rn_host_executor, cancel, &session->read));
    if (!device->caps.own_memory) return RN_OK;
    RN_TRY(device->open_queue(device, RN_QUEUE_COPY, cancel, &session->copy));
    if (session->plan->offload_count)
        RN_TRY(device->open_queue(device, RN_QUEUE_COPY, cancel, &session->send));
    return make_stages(session);
}

void rn_session_settle(rn_session *session) {
    rn_queue *queues[] = {session->read, session->copy, session->send, session->compute};
    for (int i = 0; i < 4; i++)
        if (queues[i]) (void)queues[i]->finish(queues[i]);
}

// Reading ends at the next piece; then all queues are idle, and none looks at another any more.
void rn_session_close_walk(rn_session *session) {
    atomic_store(&session->stop, true);
    rn_session_settle(session);
    if (session->compute) rn_session_forget_captures(session);
    rn_queue_destroy(session->read);
    rn_queue_destroy(session->copy);
    rn_queue_destroy(session->send);
    rn_queue_destroy(session->compute);
    session->read = session->copy = session->send = session->compute = NULL;
    for (uint32_t i = 0; i < session->fence_count; i++)
        rn_fence_free(&session->fences[i]);
    session->fence_count = 0;
    for (int i = 0; i < 2; i++) {
        rn_fence_free(&session->stage_full[i]);
        rn_fence_free(&session->stage_free[i]);
        rn_device_host_release(session->device, RN_STAGING, session->stages[i],
                               session->stage_bytes);
        session->stages[i] = NULL;
    }
    for (int i = 0; i < RN_INTERLEAVE_SLOTS; i++) {
        rn_fence_free(&session->slots.full[i]);
        rn_fence_free(&session->slots.free[i]);
    }
}

void rn_session_revive(rn_session *session) {
    rn_queue *queues[] = {session->read, session->copy, session->send, session->compute};
    atomic_store(&session->stop, true);
    rn_session_settle(session);
    rn_session_profile_drop(session);
    rn_session_forget_captures(session); // a first run that failed has not warmed up everything
    for (int i = 0; i < 4; i++)
        if (queues[i]) rn_queue_reset(queues[i]);
    for (uint32_t i = 0; i < session->fence_count; i++)
        renew(&session->fences[i]);
    for (int i = 0; i < 2; i++) {
        renew(&session->stage_full[i]);
        renew(&session->stage_free[i]);
        session->stage_free[i].for_host = true;
    }
    rn_session_renew_slots(session);
    (void)!ready_all(session); // else the next run does it
    rn_weights_rewind(session->weights);
    rn_experts_rewind(session->experts);
    session->reads_begun = 0;
    atomic_store(&session->evictions, 0);
    atomic_store(&session->stop, false);
    session->primed = false;
}

// ---- resident weights ---------------------------------------------------------------------------

static uint32_t resident_buffer(const rn_plan *plan, uint32_t group) {
    rn_value first = plan->group_values[plan->groups[group].first_value];
    return plan->places[first].buffer;
}

static rn_status load_group(rn_session *session, uint32_t entry) {
    const rn_plan *plan = session->plan;
    uint32_t group = rn_weights_group(session->weights, RN_WEIGHTS_RESIDENT, entry);
    uint32_t buffer = resident_buffer(plan, group);
    if (buffer == RN_NO_BUFFER)
        return rn_fail(RN_INTERNAL, "the plan gives resident unit %u no place", group);
    uint8_t *target = session->base + plan->buffers[buffer].offset;
    if (!session->copy) return fill(session, RN_WEIGHTS_RESIDENT, entry, target);
    RN_TRY(fill(session, RN_WEIGHTS_RESIDENT, entry, session->stages[0]));
    rn_queue_copy_in(session->copy, target, session->stages[0], plan->groups[group].bytes);
    return rn_queue_finish(session->copy);
}

// For what is full from the beginning: weights are read from end to end again and again, and a
// direct read names its memory page by page. Only a hint.
static void ask_huge_pages(const rn_session *session) {
    const rn_plan *plan = session->plan;
    uint64_t resident = plan->resident_bytes / RN_PAGE_BYTES * RN_PAGE_BYTES;
    if (resident) (void)madvise(session->base, resident, MADV_HUGEPAGE);
    for (uint32_t u = 0; u < plan->slot_count; u++)
        (void)madvise(slot_address(session, u), plan->slot_bytes, MADV_HUGEPAGE);
}

// Of a phase of a program: what is in the region is read once, the rest whenever the phase begins.
static bool is_due(const rn_session *session, uint32_t entry, bool entering) {
    uint32_t group = rn_weights_group(session->weights, RN_WEIGHTS_RESIDENT, entry);
    const rn_plan_group *u = &session->plan->groups[group];
    return !session->plan->is_phase || (u->sharable || u->shared) != entering;
}

rn_status rn_session_load_resident(rn_session *session, bool entering) {
    if (!session->copy) {
        ask_huge_pages(session);
        rn_weights_look_ahead(session->weights, find_next_read, session);
    }
    uint32_t count = rn_weights_count(session->weights, RN_WEIGHTS_RESIDENT);
    for (uint32_t i = 0; i < count; i++)
        if (is_due(session, i, entering)) RN_TRY(load_group(session, i));
    return RN_OK;
}
