// assemble.c — a candidate written out: buffers with offsets and lifetimes, steps with queues.
//
//     position   0         1                  2
//     steps      COMPUTE   COMPUTE EVICT READ COMPUTE ...
//
// Behind the last position that reads a load come its EVICT and the READ that refills the slot.
// What is offloaded is fetched and awaited before a position, sent and awaited behind one. A buffer
// that lives from position a to b lives from a's step to b's. Sizes are multiples of 64 bytes, as
// places are: what is alive then adds up to the byte with what kernels can touch.
#include "plan/planner.h"

#include "base/checked.h"
#include "base/fetcher.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_OTHER

typedef struct builder {
    rn_planner *planner;
    const rn_candidate *candidate;
    const rn_variant *variant;
    const rn_case *c;
    const rn_binding *binding;
    rn_plan *plan;
    rn_stream stream;
    rn_offloads offloads;
    uint64_t *offsets;      // (storages + positions + offloads)
    uint32_t *step_of;      // (positions)
    uint32_t *buffer_of;    // (storages)
    uint32_t *group_buffer; // (weight groups): of a resident one
    uint32_t last_compute;  // the last step of the compute queue so far
    uint64_t base, ring;    // offsets of the intermediates, of the ring
    uint64_t experts;       // of the slots for experts
    rn_placement placement;
    bool has_slack; // some workspace is less than the placement gave it room for
} builder;

// ---- steps --------------------------------------------------------------------------------------

static rn_plan_step *add_step(rn_plan *plan, rn_step_kind kind) {
    rn_plan_step *step = &plan->steps[plan->step_count++];
    *step = (rn_plan_step){.kind = kind,
                           .node = RN_NO_NODE,
                           .load = RN_NO_LOAD,
                           .offload = RN_NO_OFFLOAD,
                           .after = RN_NO_STEP,
                           .workspace = RN_NO_BUFFER};
    return step;
}

static void add_read(builder *b, uint32_t evicted, uint32_t evict_step) {
    rn_plan *plan = b->plan;
    bool next_run = false;
    uint32_t load = rn_stream_follower(&b->stream, evicted, &next_run);
    const rn_plan_group *group = &plan->groups[plan->loads[load].group];
    plan->loads[load].read_step = plan->step_count;
    rn_plan_step *step = add_step(plan, RN_STEP_READ);
    step->queue = 1;
    step->load = load;
    step->after = evict_step;
    step->next_run = next_run;
    step->seconds = rn_cost_read(&plan->caps, group->file_bytes, group->bytes, plan->from_host);
}

static void add_evictions(builder *b, uint32_t position, uint32_t *evicted) {
    const rn_stream *s = &b->stream;
    for (; *evicted < s->load_count && s->loads[s->by_last[*evicted]].last == position;
         ++*evicted) {
        uint32_t load = s->by_last[*evicted], evict_step = b->plan->step_count;
        b->plan->loads[load].evict_step = b->last_compute = evict_step;
        add_step(b->plan, RN_STEP_EVICT)->load = load;
        add_read(b, load, evict_step);
    }
}

static void add_copy(builder *b, uint32_t offload, rn_step_kind kind) {
    rn_plan_offload *t = &b->plan->offloads[offload];
    *(kind == RN_STEP_OFFLOAD ? &t->offload_step : &t->prefetch_step) = b->plan->step_count;
    rn_plan_step *step = add_step(b->plan, kind);
    step->queue = kind == RN_STEP_OFFLOAD ? 3 : 2;
    step->offload = offload;
    step->after = b->last_compute;
    step->seconds = rn_cost_copy(&b->plan->caps, t->bytes);
}

static void add_await(builder *b, uint32_t offload, bool sent) {
    rn_plan_offload *t = &b->plan->offloads[offload];
    *(sent ? &t->gone_step : &t->back_step) = b->last_compute = b->plan->step_count;
    rn_plan_step *step = add_step(b->plan, RN_STEP_WAIT);
    step->offload = offload;
    step->after = sent ? t->offload_step : t->prefetch_step;
}

// Of the orders of offloads, how many have come up.
typedef struct cursors {
    uint32_t away, gone, due, back;
} cursors;

static void add_bringing(builder *b, uint32_t position, cursors *at) {
    const rn_offloads *t = &b->offloads;
    for (; at->due < t->count && t->list[t->by_due[at->due]].due == position; at->due++)
        add_copy(b, t->by_due[at->due], RN_STEP_PREFETCH);
    for (; at->back < t->count && t->list[t->by_back[at->back]].back == position; at->back++)
        add_await(b, t->by_back[at->back], false);
}

static void add_sending(builder *b, uint32_t position, cursors *at) {
    const rn_offloads *t = &b->offloads;
    for (; at->away < t->count && t->list[t->by_away[at->away]].away == position; at->away++)
        add_copy(b, t->by_away[at->away], RN_STEP_OFFLOAD);
    for (; at->gone < t->count && t->list[t->by_gone[at->gone]].gone == position; at->gone++)
        add_await(b, t->by_gone[at->gone], true);
}

static void add_steps(builder *b) {
    cursors at = {0};
    uint32_t evicted = 0;
    for (uint32_t p = 0; p < b->c->order.count; p++) {
        add_bringing(b, p, &at);
        b->step_of[p] = b->last_compute = b->plan->step_count;
        rn_plan_step *step = add_step(b->plan, RN_STEP_COMPUTE);
        step->node = b->c->order.nodes[p];
        step->seconds = b->binding->seconds[b->variant->slice][p];
        add_sending(b, p, &at);
        add_evictions(b, p, &evicted);
    }
}

// A COMPUTE waits for the last submitted of the READs that it needs first: one of this run, or else
// the latest of those that the run before has made for this one.
static void add_waits(builder *b) {
    for (uint32_t u = 0; u < b->stream.load_count; u++) {
        rn_plan_step *step = &b->plan->steps[b->step_of[b->stream.loads[u].first]];
        uint32_t read = b->plan->loads[u].read_step;
        bool here = !b->plan->steps[read].next_run;
        bool has = step->after != RN_NO_STEP;
        bool has_here = has && !b->plan->steps[step->after].next_run;
        if (!has || (here && !has_here) || (here == has_here && read > step->after))
            step->after = read;
    }
}

// ---- buffers ------------------------------------------------------------------------------------

static uint32_t add_buffer(builder *b, rn_plan_buffer buffer) {
    buffer.bytes = rn_round_up(buffer.bytes, RN_PLAN_ALIGN);
    b->plan->buffers[b->plan->buffer_count] = buffer;
    return b->plan->buffer_count++;
}

// Resident weight groups from `offset` on: those that other phases of the program read, or the
// others. What another phase's plan holds lies where that has it. The offset behind them.
static uint64_t add_resident(builder *b, bool sharable, uint64_t offset) {
    rn_plan *plan = b->plan;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        bool shared = plan->groups[u].shared;
        if (!plan->groups[u].resident || plan->groups[u].sharable != sharable) continue;
        b->group_buffer[u] =
            add_buffer(b, (rn_plan_buffer){.kind = RN_BUFFER_GROUP,
                                           .purpose = RN_PURPOSE_WEIGHTS,
                                           .group = u,
                                           .offload = RN_NO_OFFLOAD,
                                           .offset = shared ? plan->groups[u].offset : offset,
                                           .bytes = plan->groups[u].bytes,
                                           .last_step = plan->step_count - 1,
                                           .always = true});
        if (shared) continue;
        offset += rn_round_up(plan->groups[u].bytes, RN_PLAN_ALIGN);
        plan->resident_bytes += rn_round_up(plan->groups[u].bytes, RN_PLAN_ALIGN);
    }
    return offset;
}

// The buffers of what is offloaded: of a state one, of a saved value one before and one after it.
static uint32_t add_visitor(builder *b, uint32_t number, rn_plan_buffer buffer) {
    const rn_offload *offload = &b->offloads.list[number];
    rn_plan_offload *t = &b->plan->offloads[number];
    uint32_t last_step = buffer.last_step;
    buffer.offload = number;
    buffer.last_step = t->gone_step;
    if (offload->home) buffer.first_step = t->prefetch_step;
    t->buffer = t->back = add_buffer(b, buffer);
    if (offload->home) return t->buffer;
    buffer.offset =
        b->base + b->offsets[b->binding->live.storage_count + b->c->order.count + number];
    buffer.first_step = t->prefetch_step;
    buffer.last_step = last_step;
    t->back = add_buffer(b, buffer);
    return t->buffer;
}

static bool makes_offload(const builder *b, uint32_t storage) {
    return b->offloads.count && b->offloads.of[storage] != RN_NO_OFFLOAD;
}

// What is there always lies from `always_offset` on; of a program's first phase, states that must
// outlast the others from `persistent_offset` on.
static void add_storages(builder *b, uint64_t persistent_offset, uint64_t always_offset) {
    const rn_plan_liveness *live = &b->binding->live;
    uint32_t end = b->plan->step_count - 1;
    for (uint32_t i = 0; i < live->storage_count; i++) {
        const rn_plan_storage *s = &live->storages[i];
        rn_plan_buffer buffer = {.kind = RN_BUFFER_VALUE,
                                 .purpose = rn_graph_value(b->c->graph, s->value)->purpose,
                                 .value = s->value,
                                 .group = RN_NO_LOAD,
                                 .offload = RN_NO_OFFLOAD,
                                 .offset = b->base + b->offsets[i],
                                 .bytes = s->bytes,
                                 .first_step = s->from_start ? 0 : b->step_of[s->first],
                                 .last_step = s->to_end ? end : b->step_of[s->last]};
        if (makes_offload(b, i)) {
            b->buffer_of[i] = add_visitor(b, b->offloads.of[i], buffer);
            continue;
        }
        if (s->always) {
            uint64_t *offset = s->persists ? &persistent_offset : &always_offset;
            buffer.offset = s->held ? s->offset : *offset;
            buffer.first_step = 0;
            buffer.last_step = end;
            buffer.always = true;
            if (!s->held) *offset += rn_round_up(s->bytes, RN_PLAN_ALIGN);
        }
        b->buffer_of[i] = add_buffer(b, buffer);
    }
}

// Persistent values of other phases, at their places in the shared region: nobody touches them
// here.
static void add_held(builder *b, uint64_t extra_offset) {
    const rn_program_values *values = b->planner->rule.values;
    for (uint32_t i = 0; values && i < values->count; i++) {
        const rn_program_value *v = &values->list[i];
        bool extra = rn_program_is_extra(values, v);
        if (!extra && (v->offset == RN_NO_OFFSET || rn_program_used(b->plan, v))) continue;
        add_buffer(b, (rn_plan_buffer){.kind = RN_BUFFER_HELD,
                                       .purpose = v->purpose,
                                       .group = RN_NO_LOAD,
                                       .offload = RN_NO_OFFLOAD,
                                       .offset = extra ? extra_offset : v->offset,
                                       .bytes = v->bytes,
                                       .last_step = b->plan->step_count - 1,
                                       .always = true});
        if (extra) extra_offset += rn_round_up(v->bytes, RN_PLAN_ALIGN);
    }
}

// What is there always, from the bottom of the arena. Of a program's first phase:
//
//     | weight groups that others read | states | states of others alone | own weight groups |
//     constants, sums | |                    the shared region                     |
//
// and of the others that region, which the first has laid out, and their own behind it.
static void add_always(builder *b) {
    const rn_program_values *values = b->planner->rule.values;
    const rn_plan_liveness *live = &b->binding->live;
    uint64_t shared = values && !values->is_first ? values->bytes : 0, states = 0;
    if (values && values->is_first) {
        shared = states = add_resident(b, true, 0);
        for (uint32_t i = 0; i < live->storage_count; i++)
            if (live->storages[i].persists && !makes_offload(b, i))
                shared += rn_round_up(live->storages[i].bytes, RN_PLAN_ALIGN);
        add_held(b, shared);
        shared += rn_program_below(values);
    }
    b->plan->is_phase = values != NULL;
    b->plan->shared_bytes = shared;
    add_storages(b, states, add_resident(b, false, shared));
}

// What the kernel will ask for: its weights are resident, or as they lie in slots. The placement is
// for the larger of both.
static uint64_t find_workspace(const builder *b, uint32_t position) {
    const rn_group_table *t = &b->c->groups;
    const rn_node *node = rn_graph_node(b->c->graph, b->c->order.nodes[position]);
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value in = node->inputs[i];
        bool differs = t->layout_of[in] != t->slot_layout_of[in];
        if (differs && !b->plan->groups[t->group_of[in]].resident)
            return b->binding->slot_workspace[b->variant->slice][position];
    }
    return b->binding->workspace[b->variant->slice][position];
}

static void add_rows(builder *b) {
    for (uint32_t i = 0; i < b->plan->row_table_count; i++)
        b->plan->row_tables[i].buffer = b->buffer_of[b->binding->live.rows_storage[i]];
}

static void add_workspaces(builder *b) {
    bool streams = b->candidate->residency.slots > 0;
    for (uint32_t p = 0; p < b->c->order.count; p++) {
        uint32_t step = b->step_of[p];
        uint64_t bytes = find_workspace(b, p);
        b->has_slack |= bytes < rn_binding_workspace(b->binding, b->variant->slice, streams, p);
        if (bytes == 0) continue;
        b->plan->steps[step].workspace = add_buffer(
            b, (rn_plan_buffer){.kind = RN_BUFFER_WORKSPACE,
                                .purpose = RN_PURPOSE_WORKSPACE,
                                .group = RN_NO_LOAD,
                                .offload = RN_NO_OFFLOAD,
                                .offset = b->base + b->offsets[b->binding->live.storage_count + p],
                                .bytes = bytes,
                                .first_step = step,
                                .last_step = step});
    }
}

// A load that is read in the run before has two buffers in one place: from the start to its EVICT,
// and from its READ, for the next run, to the end.
static void add_loads(builder *b) {
    rn_plan *plan = b->plan;
    for (uint32_t u = 0; u < plan->load_count; u++) {
        rn_plan_load *load = &plan->loads[u];
        bool ahead = plan->steps[load->read_step].next_run;
        rn_plan_buffer buffer = {.kind = RN_BUFFER_GROUP,
                                 .purpose = RN_PURPOSE_WEIGHTS,
                                 .group = load->group,
                                 .offload = RN_NO_OFFLOAD,
                                 .offset = b->ring + load->slot * plan->slot_bytes,
                                 .bytes = plan->groups[load->group].bytes,
                                 .first_step = ahead ? 0 : load->read_step,
                                 .last_step = load->evict_step};
        load->buffer = add_buffer(b, buffer);
        buffer.first_step = load->read_step;
        buffer.last_step = plan->step_count - 1;
        if (ahead) add_buffer(b, buffer);
    }
}

static uint32_t add_expert_buffer(builder *b, rn_plan_buffer buffer, uint64_t *offset) {
    buffer.offset = *offset;
    buffer.offload = RN_NO_OFFLOAD;
    buffer.last_step = b->plan->step_count - 1;
    buffer.always = true;
    *offset += buffer.bytes;
    return add_buffer(b, buffer);
}

// The places of transit, which begin with a page, and slots for experts, stack after stack.
static void add_experts(builder *b) {
    rn_plan *plan = b->plan;
    uint64_t offset = b->experts;
    plan->transit_buffer = RN_NO_BUFFER;
    if (plan->transit_places)
        plan->transit_buffer =
            add_expert_buffer(b,
                              (rn_plan_buffer){.kind = RN_BUFFER_TRANSIT,
                                               .purpose = RN_PURPOSE_STAGING,
                                               .group = RN_NO_LOAD,
                                               .bytes = plan->transit_places * plan->transit_bytes},
                              &offset);
    for (uint32_t i = 0; i < plan->stack_count; i++) {
        rn_plan_stack *stack = &plan->stacks[i];
        uint32_t slots = plan->expert_layers[stack->layer].slots;
        if (slots == 0) continue;
        stack->buffer =
            add_expert_buffer(b,
                              (rn_plan_buffer){.kind = RN_BUFFER_GROUP,
                                               .purpose = RN_PURPOSE_WEIGHTS,
                                               .group = b->c->groups.group_of[stack->weight],
                                               .bytes = slots * stack->place_bytes},
                              &offset);
    }
}

static uint64_t raw_bytes(const builder *b, rn_value value) {
    const rn_value_info *info = rn_graph_value(b->c->graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    return rn_fetch_room(rn_tensor_bytes(&tensor));
}

static void place_in_slot(const builder *b, rn_value value, rn_plan_place *place) {
    const rn_group_table *t = &b->c->groups;
    place->offset = t->slot_offset_of[value];
    place->layout = t->slot_layout_of[value];
    place->file_layout = place->layout != t->layout_of[value];
    if (place->file_layout) place->bytes = raw_bytes(b, value);
}

static void add_places(builder *b) {
    const rn_group_table *t = &b->c->groups;
    const rn_plan_liveness *live = &b->binding->live;
    for (rn_value v = 1; v <= b->plan->value_count; v++) {
        uint32_t group = t->group_of[v], storage = live->storage_of[v];
        rn_plan_place *place = &b->plan->places[v];
        *place = (rn_plan_place){.buffer = RN_NO_BUFFER,
                                 .bytes = live->bytes_of[v],
                                 .layout = t->layout_of[v],
                                 .group = group};
        if (group != RN_NO_LOAD && b->plan->groups[group].resident) {
            place->buffer = b->group_buffer[group];
            place->offset = t->offset_of[v];
        } else if (group != RN_NO_LOAD) {
            place_in_slot(b, v, place);
        } else if (storage != RN_NO_BUFFER) {
            place->buffer = b->buffer_of[storage];
            place->offset = live->offset_of[v];
        }
    }
}

// ---- summary ------------------------------------------------------------------------------------

static rn_status count_live(builder *b) {
    rn_plan *plan = b->plan;
    uint64_t *change, now = 0; // bytes born less bytes gone, modulo 2^64
    RN_TRY(rn_arena_array(&plan->memory, (size_t)plan->step_count + 1, sizeof *change,
                          (void **)&change));
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        change[plan->buffers[i].first_step] += plan->buffers[i].bytes;
        change[plan->buffers[i].last_step + 1] -= plan->buffers[i].bytes;
    }
    for (uint32_t i = 0; i < plan->step_count; i++) {
        plan->steps[i].live_bytes = now += change[i];
        plan->summary.live_peak_bytes = rn_max_u64(plan->summary.live_peak_bytes, now);
    }
    return RN_OK;
}

// Of the step with the most live bytes; what lies between buffers then is "other".
static void count_purposes(rn_plan *plan) {
    rn_plan_summary *s = &plan->summary;
    uint32_t peak = 0;
    while (plan->steps[peak].live_bytes < s->live_peak_bytes)
        peak++;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].first_step <= peak && peak <= plan->buffers[i].last_step)
            s->purpose_bytes[plan->buffers[i].purpose] += plan->buffers[i].bytes;
    uint64_t more = plan->ring_bytes - plan->slot_count * plan->slot_bytes; // than slots take
    s->purpose_bytes[RN_PURPOSE_WEIGHTS] += more;
    s->purpose_bytes[RN_PURPOSE_OTHER] += s->arena_bytes - s->live_peak_bytes - more;
    s->purpose_bytes[RN_PURPOSE_STAGING] += s->planned_bytes - s->arena_bytes;
}

static rn_status count_blocks(builder *b) {
    rn_plan *plan = b->plan;
    uint32_t blocks = rn_graph_block_count(b->c->graph);
    bool *used, *streamed; // (blocks)
    RN_TRY(rn_arena_array(&plan->memory, blocks, sizeof(bool), (void **)&used));
    RN_TRY(rn_arena_array(&plan->memory, blocks, sizeof(bool), (void **)&streamed));
    for (uint32_t n = 0; n < b->c->order.count; n++)
        used[rn_graph_node(b->c->graph, n)->block] = true;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        plan->summary.weight_bytes += b->c->groups.groups[u].bytes;
        streamed[plan->groups[u].block] |= !plan->groups[u].resident;
    }
    for (uint32_t i = 0; i < blocks; i++) {
        plan->summary.block_count += used[i];
        plan->summary.resident_blocks += used[i] && !streamed[i];
    }
    return RN_OK;
}

static uint32_t count_prefix(const rn_plan *plan) {
    uint32_t count = 0;
    for (uint32_t u = 0; u < plan->group_count; u++)
        if (!plan->groups[u].resident && plan->groups[u].block >= count)
            count = plan->groups[u].block + 1;
    return count;
}

// Of a run's nodes behind the prefix.
static double add_tail(const builder *b, const rn_binding *binding) {
    double sum = 0;
    for (uint32_t p = 0; p < b->c->order.count; p++)
        if (rn_graph_node(b->c->graph, b->c->order.nodes[p])->block >= b->plan->prefix_blocks)
            sum += binding->seconds[b->variant->slice][p];
    return sum;
}

static double wait_for_experts(const builder *b, const rn_binding *pass, rn_expert_guess guess) {
    return rn_experts_wait(&b->c->groups, &b->planner->options, &b->plan->caps,
                           b->candidate->residency.expert_slots, pass->rows,
                           pass->seconds[b->variant->slice], guess);
}

static void summarize_experts(builder *b) {
    rn_plan *plan = b->plan;
    rn_plan_summary *s = &plan->summary;
    const rn_group_table *t = &b->c->groups;
    const rn_plan_options *o = &b->planner->options;
    uint32_t total = b->candidate->residency.expert_slots;
    s->expert_layers = plan->expert_layer_count;
    s->expert_slots_least = plan->expert_layer_count ? UINT32_MAX : 0;
    for (uint32_t i = 0; i < plan->expert_layer_count; i++) {
        const rn_plan_expert_layer *layer = &plan->expert_layers[i];
        if (layer->experts > s->experts) s->experts = layer->experts;
        if (layer->slots > s->expert_slots) s->expert_slots = layer->slots;
        if (layer->slots < s->expert_slots_least) s->expert_slots_least = layer->slots;
        s->expert_slot_bytes += layer->slots * layer->slot_bytes;
        s->expert_token_bytes += layer->chosen * layer->expert_bytes;
    }
    s->expert_transit_bytes = plan->transit_places * plan->transit_bytes;
    s->expert_read_bytes = (uint64_t)rn_experts_read(t, o, total, 1, RN_GUESS_EXPECTED);
    s->expert_read_least_bytes = (uint64_t)rn_experts_read(t, o, total, 1, RN_GUESS_HIGH);
    s->expert_read_most_bytes = (uint64_t)rn_experts_read(t, o, total, 1, RN_GUESS_LOW);
    s->expert_hits_known = o->expert_hits != NULL;
}

// Of a run of one row, whether or not the workload has such passes.
static rn_status find_pass_seconds(builder *b) {
    rn_plan_summary *s = &b->plan->summary;
    rn_binding *pass;
    double *ready; // (loads)
    s->decode_steps = rn_planner_decode_steps(b->planner);
    s->decode_seconds = b->candidate->decode_seconds;
    s->prefill_seconds = s->seconds - (double)s->decode_steps * s->decode_seconds;
    RN_TRY(rn_planner_open_decode(b->planner, b->variant, &pass));
    if (pass) b->plan->tail_seconds = add_tail(b, pass);
    if (pass)
        b->plan->prefill_tail_seconds =
            rn_planner_total(b->planner, b->variant, add_tail(b, b->binding), 0);
    if (pass && s->streamed_bytes == 0 && !b->c->on_demand && b->planner->recipe->decode_rows > 1) {
        RN_TRY(rn_planner_time_batch(b->planner, b->variant, &s->decode_seconds));
        s->seconds = s->prefill_seconds + (double)s->decode_steps * s->decode_seconds;
        return RN_OK;
    }
    if (!pass || (s->decode_steps && !b->c->on_demand)) return RN_OK;
    RN_TRY(rn_arena_array(&b->plan->memory, b->stream.load_count, sizeof *ready, (void **)&ready));
    rn_traffic traffic = {.groups = b->c->groups.groups, .stream = &b->stream, .ready = ready};
    double run =
        rn_cost_run(&b->plan->caps, pass->until[b->variant->slice], b->c->order.count, &traffic);
    s->decode_least_seconds = run + wait_for_experts(b, pass, RN_GUESS_HIGH);
    s->decode_most_seconds = run + wait_for_experts(b, pass, RN_GUESS_LOW);
    if (s->decode_steps == 0)
        s->decode_seconds = run + wait_for_experts(b, pass, RN_GUESS_EXPECTED);
    return RN_OK;
}

static rn_status summarize(builder *b) {
    rn_plan_summary *s = &b->plan->summary;
    s->arena_bytes = b->base + b->placement.height_bytes;
    s->staging_bytes = rn_case_staging(b->c);
    s->planned_bytes = s->arena_bytes + (b->c->own_memory ? 0 : s->staging_bytes);
    s->host_bytes = rn_residency_host(b->c, b->candidate->residency, b->binding->io_bytes,
                                      &b->offloads, b->plan->from_host);
    s->host_state_bytes = b->offloads.home_bytes;
    s->host_saved_bytes = b->offloads.sent_bytes;
    for (uint32_t i = 0; i < b->offloads.count; i++)
        ++*(b->offloads.list[i].home ? &s->host_states : &s->host_saved);
    for (uint32_t u = 0; u < b->plan->group_count && b->plan->from_host; u++)
        if (!b->plan->groups[u].resident)
            s->host_weight_bytes += rn_round_up(b->plan->groups[u].bytes, RN_PLAN_SLOT_ALIGN);
    s->smallest_bytes = b->planner->frugal.planned_bytes;
    s->smallest_budget_bytes = rn_planner_budget(b->planner, s->smallest_bytes);
    s->rows = b->binding->rows;
    s->workload_rows = s->rows ? rn_planner_workload(b->planner) : 0;
    s->slice_rows = rn_plan_slices[b->variant->slice];
    s->micro_batches = b->planner->micro[b->variant->micro];
    s->recomputed_blocks = b->planner->fronts[b->variant->micro].blocks[b->variant->point];
    s->streamed_bytes = b->stream.read_bytes;
    s->step_count = b->plan->step_count;
    s->seconds = b->candidate->seconds;
    s->optimal = b->placement.optimal && !b->has_slack;
    b->plan->prefix_blocks = count_prefix(b->plan);
    summarize_experts(b);
    RN_TRY(find_pass_seconds(b));
    RN_TRY(count_live(b));
    count_purposes(b->plan);
    return count_blocks(b);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status write_stream(builder *b) {
    rn_plan *plan = b->plan;
    const rn_residency *r = &b->candidate->residency;
    bool *resident; // (weight groups)
    RN_TRY(rn_stream_init(&plan->memory, &b->c->groups, &b->stream));
    plan->from_host = b->stream.from_host = b->candidate->from_host;
    RN_TRY(rn_arena_array(&plan->memory, plan->group_count, sizeof(bool), (void **)&resident));
    rn_residency_mark(b->c, *r, resident);
    if (r->slots) {
        if (!rn_stream_walk(&b->c->groups, resident, r->slots, &b->stream))
            return rn_fail(RN_INTERNAL, "a ring of %u slots does not turn", r->slots);
        plan->slot_bytes = b->c->levels[r->level].slot_bytes[r->kept];
    }
    plan->slot_count = r->slots;
    plan->load_count = b->stream.load_count;
    RN_TRY(rn_arena_array(&plan->memory, plan->load_count, sizeof *plan->loads,
                          (void **)&plan->loads));
    for (uint32_t u = 0; u < plan->group_count; u++) {
        plan->groups[u].resident = resident[u];
        if (!resident[u]) plan->groups[u].bytes = b->c->groups.slot_bytes[u];
    }
    for (uint32_t u = 0; u < plan->load_count; u++)
        plan->loads[u] = (rn_plan_load){.group = b->stream.loads[u].group, .slot = u % r->slots};
    return RN_OK;
}

// The value whose bytes a storage holds when it comes back: one that is read there.
static rn_value find_visitor(const builder *b, const rn_offload *offload) {
    const rn_node *node = rn_graph_node(b->c->graph, b->c->order.nodes[offload->back]);
    const uint32_t *storage_of = b->binding->live.storage_of;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != RN_NO_VALUE && storage_of[node->inputs[i]] == offload->storage)
            return node->inputs[i];
    return b->binding->live.storages[offload->storage].value;
}

static rn_status write_offloads(builder *b) {
    rn_plan *plan = b->plan;
    uint64_t offsets[2] = {0}; // among what is sent, among states
    RN_TRY(
        rn_offloads_make(&plan->memory, b->c, b->binding, &plan->caps, b->variant, &b->offloads));
    plan->offload_count = b->offloads.count;
    RN_TRY(rn_arena_array(&plan->memory, plan->offload_count, sizeof *plan->offloads,
                          (void **)&plan->offloads));
    for (uint32_t i = 0; i < plan->offload_count; i++) {
        const rn_offload *offload = &b->offloads.list[i];
        plan->offloads[i] = (rn_plan_offload){.value = find_visitor(b, offload),
                                              .home = offload->home,
                                              .host_offset = offsets[offload->home],
                                              .bytes = offload->bytes};
        offsets[offload->home] += rn_round_up(offload->bytes, RN_PLAN_ALIGN);
    }
    return RN_OK;
}

static rn_status write_experts(builder *b) {
    const rn_group_table *t = &b->c->groups;
    rn_plan *plan = b->plan;
    if (!b->c->on_demand) return RN_OK;
    plan->expert_layer_count = t->expert_layer_count;
    plan->stack_count = t->stack_count;
    plan->transit_places = rn_experts_transit(t, &plan->transit_bytes);
    RN_TRY(rn_arena_copy(&plan->memory, t->expert_layers,
                         t->expert_layer_count * sizeof *t->expert_layers,
                         (void **)&plan->expert_layers));
    RN_TRY(rn_arena_copy(&plan->memory, t->stacks, t->stack_count * sizeof *t->stacks,
                         (void **)&plan->stacks));
    for (uint32_t i = 0; i < plan->expert_layer_count; i++)
        plan->expert_layers[i].slots = rn_experts_slots(t, b->candidate->residency.expert_slots, i);
    return RN_OK;
}

static rn_status write_groups(builder *b) {
    const rn_group_table *t = &b->c->groups;
    rn_plan *plan = b->plan;
    uint32_t values = 0;
    plan->group_count = t->group_count;
    plan->row_table_count = t->row_count;
    for (uint32_t u = 0; u < t->group_count; u++)
        values += t->groups[u].value_count;
    RN_TRY(rn_arena_copy(&plan->memory, t->groups, t->group_count * sizeof *t->groups,
                         (void **)&plan->groups));
    RN_TRY(rn_arena_copy(&plan->memory, t->rows, t->row_count * sizeof *t->rows,
                         (void **)&plan->row_tables));
    return rn_arena_copy(&plan->memory, t->values, values * sizeof *t->values,
                         (void **)&plan->group_values);
}

static rn_status allocate(builder *b) {
    rn_plan *plan = b->plan;
    rn_arena *memory = &plan->memory;
    size_t positions = b->c->order.count, storages = b->binding->live.storage_count;
    size_t offloads = plan->offload_count;
    size_t steps = positions + 2 * (size_t)plan->load_count + 4 * offloads;
    size_t held = b->planner->rule.values ? b->planner->rule.values->count : 0;
    size_t buffers = storages + positions + plan->group_count + 2 * (size_t)plan->load_count +
                     offloads + held + 1;
    plan->value_count = rn_graph_value_count(b->c->graph);
    RN_TRY(rn_arena_array(memory, steps, sizeof *plan->steps, (void **)&plan->steps));
    RN_TRY(rn_arena_array(memory, buffers, sizeof *plan->buffers, (void **)&plan->buffers));
    RN_TRY(rn_arena_array(memory, (size_t)plan->value_count + 1, sizeof *plan->places,
                          (void **)&plan->places));
    RN_TRY(rn_arena_array(memory, storages + positions + offloads, sizeof *b->offsets,
                          (void **)&b->offsets));
    RN_TRY(rn_arena_array(memory, positions, sizeof *b->step_of, (void **)&b->step_of));
    RN_TRY(rn_arena_array(memory, storages, sizeof *b->buffer_of, (void **)&b->buffer_of));
    RN_TRY(rn_arena_array(memory, plan->group_count, sizeof *b->group_buffer,
                          (void **)&b->group_buffer));
    memset(b->group_buffer, 0xff, plan->group_count * sizeof *b->group_buffer); // RN_NO_BUFFER
    return RN_OK;
}

// What is asked for is borrowed only while the plan is made.
static rn_status copy_text(rn_plan *plan, const char **text) {
    return *text ? rn_arena_copy(&plan->memory, *text, strlen(*text), (void **)text) : RN_OK;
}

static rn_status write_plan(builder *b) {
    rn_planner *p = b->planner;
    rn_case *c;
    rn_binding *binding;
    RN_TRY(rn_planner_open(p, b->variant, &c, &binding));
    b->c = c;
    b->binding = binding;
    b->plan->graph = c->graph;
    RN_TRY(copy_text(b->plan, &b->plan->options.keep));
    RN_TRY(copy_text(b->plan, &b->plan->options.offload));
    RN_TRY(write_groups(b));
    RN_TRY(write_stream(b));
    RN_TRY(write_experts(b));
    RN_TRY(write_offloads(b));
    RN_TRY(allocate(b));
    RN_TRY(rn_binding_place(&b->plan->memory, binding, &b->offloads, b->variant->slice,
                            b->candidate->residency.slots > 0, c->order.count, p->options.effort,
                            b->offsets, &b->placement));
    uint64_t always = binding->live.always_bytes - b->offloads.away_always_bytes;
    b->base = rn_residency_base(c, rn_planner_below(p) + always, b->candidate->residency, &b->ring);
    b->experts = b->base - rn_experts_bytes(&c->groups, b->candidate->residency.expert_slots);
    b->plan->ring_offset = b->ring;
    b->plan->ring_bytes = rn_residency_ring(c, b->candidate->residency);
    RN_TRY(rn_stop_try(c->order.count));
    add_steps(b);
    add_waits(b);
    add_always(b);
    add_rows(b);
    add_workspaces(b);
    add_loads(b);
    add_experts(b);
    add_places(b);
    if (p->rule.values && !p->rule.values->is_first) add_held(b, 0);
    RN_TRY(summarize(b));
    return rn_plan_explain(p, b->candidate, b->plan);
}

rn_status rn_plan_assemble(rn_planner *planner, const rn_candidate *candidate, rn_plan **out) {
    rn_plan *plan = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof *plan, (void **)&plan));
    rn_arena_init(&plan->memory, FROM, 0);
    plan->caps = *planner->caps;
    plan->options = planner->options;
    plan->options.host_caps = NULL; // borrowed
    plan->options.expert_hits = NULL;
    plan->suffix = planner->rule.suffix;
    memcpy(plan->name, planner->recipe->name, sizeof plan->name);
    builder b = {.planner = planner,
                 .candidate = candidate,
                 .variant = &planner->variants[candidate->variant],
                 .plan = plan};
    rn_status s = write_plan(&b);
    if (s == RN_OK) {
        *out = plan;
        return RN_OK;
    }
    plan->graph = NULL; // the planner's
    rn_plan_destroy(plan);
    return s;
}
