// expert_slots.c — a layer's pass: jobs, in the order in which its readers want them.
//
//     readers      gate                up                  down
//     jobs         s3 t5 s9            s3 t5 s9            s3 t5 s9       s: to a slot, t: transit
//     disk ──▶ landing places ──pack──▶ slot                              as soon as it has landed
//                             ──pack──▶ the last place of transit         when the reader wants it
//
// A job is a matrix, or a reader's rows of one, on its way. It lands in a place of transit, by a
// direct read that needs whole pages, and is packed from there into the layout that the kernel
// wants. Jobs begin in their order, one for each place that is free; requests go out whenever the
// reader waits. Of a stack with two readers (gate and up in one) the slot is filled for the first
// of them.
#include "runtime/expert_slots.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"
#include "runtime/weights_internal.h"

#include <stdatomic.h>
#include <string.h>

#define NO_LAYER UINT32_MAX
enum { FLIGHTS = RN_FETCH_DEPTH };

// LANDED: of transit, in its landing place.
typedef enum job_state { JOB_DUE, JOB_UNDER_WAY, JOB_LANDED, JOB_DONE, JOB_NONE } job_state;

// A step that multiplies by a stack's matrices, or some of their rows.
typedef struct reader {
    uint32_t step, layer, index; // index: among the layer's
    uint32_t stack;
    uint64_t first_byte, bytes; // of each matrix, in the file
    uint64_t first_packed;      // the first of these bytes, in a slot
    bool fills;                 // the first reader of the stack: for it slots are filled
} reader;

typedef struct job_place {
    uint32_t reader, miss; // reader: its index among the layer's
} job_place;

typedef struct flight {
    bool used, fed;
    job_place job;
    rn_fetch item;
    rn_fetch_batch batch;
} flight;

struct rn_experts {
    const rn_plan *plan;
    rn_weights *weights;
    uint8_t *base;
    const _Atomic bool *cancel, *stop;
    rn_arena memory;
    rn_fetcher *fetcher;     // NULL: nothing is in files
    rn_expert_cache *caches; // (layers)
    reader *readers;         // (reader_count), by step
    uint32_t *reader_of;     // (steps): or RN_NO_STEP
    uint32_t *first_reader;  // (layers + 1)
    uint32_t reader_count;
    rn_expert_rule rule;
    rn_experts_routed routed;
    void *routed_self;

    // The pass of a layer.
    uint32_t layer;         // NO_LAYER: there is none
    const reader *now;      // whose call it is
    rn_expert_miss *misses; // (the most experts of a layer)
    uint32_t miss_count;
    uint8_t *states;       // (readers of a layer, misses)
    uint8_t *places;       // (readers of a layer, misses): of transit
    uint32_t *miss_of;     // (experts): its number among misses
    job_place next;        // no job before it is due
    uint32_t jobs_left;    // that have not landed
    uint64_t places_taken; // a bit each
    flight flights[FLIGHTS];

    const uint8_t **matrix; // (experts)
    bool *pending;          // (experts)
    rn_expert_slots slots;
    _Atomic uint64_t needed, missed, read_bytes;
    uint64_t wait_ns;
};

// ---- places -------------------------------------------------------------------------------------

static uint32_t reader_count_of(const rn_experts *x, uint32_t layer) {
    return x->first_reader[layer + 1] - x->first_reader[layer];
}

static const reader *reader_at(const rn_experts *x, uint32_t index) {
    return &x->readers[x->first_reader[x->layer] + index];
}

static uint8_t *state_of(rn_experts *x, job_place job) {
    return &x->states[(size_t)job.reader * x->miss_count + job.miss];
}

// What of the expert's matrix the job brings.
static rn_matrix_range range_of(const rn_experts *x, const reader *r, uint32_t expert, bool whole) {
    return (rn_matrix_range){.stack = r->stack,
                             .expert = expert,
                             .first_byte = whole ? 0 : r->first_byte,
                             .bytes = whole ? x->plan->stacks[r->stack].matrix_bytes : r->bytes};
}

static uint8_t *slot_place(const rn_experts *x, const reader *r, uint32_t slot) {
    const rn_plan_stack *stack = &x->plan->stacks[r->stack];
    return x->base + x->plan->buffers[stack->buffer].offset + slot * stack->place_bytes;
}

static uint8_t *transit_place(const rn_experts *x, uint32_t place) {
    const rn_plan *plan = x->plan;
    return x->base + plan->buffers[plan->transit_buffer].offset + place * plan->transit_bytes;
}

// Where the reader finds its rows of an expert that has a slot.
static const uint8_t *matrix_in_slot(const rn_experts *x, const reader *r, uint32_t slot) {
    return slot_place(x, r, slot) + r->first_packed;
}

// ---- jobs ---------------------------------------------------------------------------------------

static job_state first_state(const reader *r, const rn_expert_miss *miss) {
    return miss->slot != RN_NO_SLOT && !r->fills ? JOB_NONE : JOB_DUE;
}

// Moves to the next job; false: there is none.
static bool find_job(rn_experts *x) {
    uint32_t readers = reader_count_of(x, x->layer);
    for (; x->next.reader < readers; x->next.reader++, x->next.miss = 0)
        for (; x->next.miss < x->miss_count; x->next.miss++)
            if (*state_of(x, x->next) == JOB_DUE) return true;
    return false;
}

// A place to land in, or as many as there are: none is free.
static uint32_t find_place(const rn_experts *x) {
    uint32_t place = 0, count = x->plan->transit_places - 1;
    while (place < count && x->places_taken >> place & 1)
        place++;
    return place;
}

static uint8_t *place_of(rn_experts *x, job_place job) {
    return &x->places[(size_t)job.reader * x->miss_count + job.miss];
}

static rn_matrix_range range_of_job(const rn_experts *x, job_place job) {
    const rn_expert_miss *miss = &x->misses[job.miss];
    return range_of(x, reader_at(x, job.reader), miss->expert, miss->slot != RN_NO_SLOT);
}

// From where it has landed to `target`; the place is free then.
static rn_status pack(rn_experts *x, job_place job, uint8_t *target) {
    rn_matrix_range range = range_of_job(x, job);
    uint32_t file, place = *place_of(x, job);
    uint64_t offset = 0;
    bool direct = rn_weights_find_matrix(x->weights, &range, &file, &offset);
    const uint8_t *data = transit_place(x, place) + (direct ? offset % RN_PAGE_BYTES : 0);
    RN_TRY(rn_weights_pack_matrix(x->weights, &range, data, target));
    x->places_taken &= ~((uint64_t)1 << place);
    *state_of(x, job) = JOB_DONE;
    return RN_OK;
}

// Its bytes are there.
static rn_status end_job(rn_experts *x, job_place job, uint64_t read_bytes) {
    const rn_expert_miss *miss = &x->misses[job.miss];
    atomic_fetch_add(&x->read_bytes, read_bytes);
    x->jobs_left--;
    *state_of(x, job) = JOB_LANDED;
    if (miss->slot == RN_NO_SLOT) return RN_OK;
    return pack(x, job, slot_place(x, reader_at(x, job.reader), miss->slot));
}

// Files are read by the fetcher; anything else at once.
static rn_status begin_job(rn_experts *x, job_place job, uint32_t place, flight *f) {
    rn_matrix_range range = range_of_job(x, job);
    rn_fetch item = {.bytes = range.bytes, .target = transit_place(x, place)};
    uint64_t read = 0;
    *state_of(x, job) = JOB_UNDER_WAY;
    *place_of(x, job) = (uint8_t)place;
    x->places_taken |= (uint64_t)1 << place;
    if (!rn_weights_find_matrix(x->weights, &range, &item.file, &item.offset)) {
        RN_TRY(rn_weights_copy_matrix(x->weights, &range, item.target, &read));
        return end_job(x, job, read);
    }
    f->used = true;
    f->job = job;
    f->item = item;
    f->batch = (rn_fetch_batch){.items = &f->item, .count = 1};
    rn_fetcher_begin(x->fetcher, &f->batch);
    return RN_OK;
}

static flight *find_flight(rn_experts *x) {
    for (int i = 0; i < FLIGHTS; i++)
        if (!x->flights[i].used) return &x->flights[i];
    return NULL;
}

// One matrix after the other, where that is asked for.
static bool may_begin(const rn_experts *x) {
    for (int i = 0; i < FLIGHTS && x->rule == RN_EXPERT_RULE_LRU; i++)
        if (x->flights[i].used) return false;
    return true;
}

// Makes requests while there is room for some.
static rn_status feed(rn_experts *x) {
    for (int i = 0; i < FLIGHTS; i++)
        if (x->flights[i].used && !rn_fetcher_is_fed(&x->flights[i].batch)) {
            rn_fetcher_feed(x->fetcher, &x->flights[i].batch);
            if (!rn_fetcher_is_fed(&x->flights[i].batch)) return RN_OK;
        }
    while (may_begin(x) && find_job(x)) {
        uint32_t place = find_place(x);
        flight *f = find_flight(x);
        if (!f || place + 1 == x->plan->transit_places) break;
        RN_TRY(begin_job(x, x->next, place, f));
        if (!f->used) continue;
        rn_fetcher_feed(x->fetcher, &f->batch);
        if (!rn_fetcher_is_fed(&f->batch)) break;
    }
    return RN_OK;
}

static rn_status land(rn_experts *x, flight *f) {
    f->used = false;
    RN_TRY(rn_fetcher_status(&f->batch));
    rn_weights_count_read(x->weights, f->item.bytes);
    return end_job(x, f->job, f->item.bytes);
}

static rn_status land_all(rn_experts *x) {
    for (int i = 0; i < FLIGHTS; i++)
        if (x->flights[i].used && rn_fetcher_is_done(&x->flights[i].batch))
            RN_TRY(land(x, &x->flights[i]));
    return RN_OK;
}

static rn_status check_stop(const rn_experts *x) {
    bool stop = atomic_load(x->stop) || (x->cancel && atomic_load(x->cancel));
    return stop ? rn_fail(RN_CANCELLED, "reading experts was cancelled") : RN_OK;
}

static bool is_flying(const rn_experts *x) {
    bool any = false;
    for (int i = 0; i < FLIGHTS; i++)
        any |= x->flights[i].used;
    return any;
}

// When all of a pass has been read: were these files the ones that were opened?
static rn_status bring(rn_experts *x, job_place job) {
    for (;;) {
        RN_TRY(check_stop(x));
        RN_TRY(feed(x));
        if (*state_of(x, job) >= JOB_LANDED) break;
        if (!is_flying(x)) return rn_fail(RN_INTERNAL, "an expert that nobody reads is waited for");
        rn_fetcher_wait(x->fetcher);
        RN_TRY(land_all(x));
    }
    return x->jobs_left == 0 && x->fetcher ? rn_fetcher_check(x->fetcher) : RN_OK;
}

// ---- a pass -------------------------------------------------------------------------------------

// What did not arrive, or is not known to be right, is not in its slot.
static void abandon(rn_experts *x) {
    if (x->layer == NO_LAYER) return;
    if (x->fetcher) rn_fetcher_drain(x->fetcher);
    for (int i = 0; i < FLIGHTS; i++)
        x->flights[i].used = false;
    for (uint32_t i = 0; i < x->miss_count; i++)
        if (x->misses[i].slot != RN_NO_SLOT)
            rn_expert_cache_drop(&x->caches[x->layer], x->misses[i].slot);
    x->layer = NO_LAYER;
}

// The first reader of the same stack, for which slots are filled.
static uint32_t filler_of(const rn_experts *x, const reader *r) {
    uint32_t at = r->index;
    while (!reader_at(x, at)->fills || reader_at(x, at)->stack != r->stack)
        at--;
    return at;
}

static rn_status wait_for(rn_experts *x, uint32_t expert) {
    uint32_t number = x->miss_of[expert];
    bool transit = x->misses[number].slot == RN_NO_SLOT;
    job_place job = {transit ? x->now->index : filler_of(x, x->now), number};
    uint8_t *last = transit_place(x, x->plan->transit_places - 1);
    RN_TRY(bring(x, job));
    if (!transit) return RN_OK;
    x->matrix[expert] = last;
    return pack(x, job, last);
}

// rn_expert_slots.wait.
static rn_status wait_expert(void *self, uint32_t expert) {
    rn_experts *x = self;
    uint64_t begin = rn_clock_ns();
    rn_status s = wait_for(x, expert);
    x->wait_ns += rn_clock_ns() - begin;
    if (s != RN_OK) {
        rn_error_info error = *rn_last_error();
        abandon(x);
        return rn_error_restore(&error);
    }
    return RN_OK;
}

static rn_status begin_pass(rn_experts *x, uint32_t layer, int32_t *ids, uint64_t count) {
    rn_expert_cache *cache = &x->caches[layer];
    uint32_t readers = reader_count_of(x, layer);
    if (x->layer != NO_LAYER && x->jobs_left) abandon(x);
    x->layer = NO_LAYER;
    if (x->routed) x->routed(x->routed_self, layer, ids, count);
    RN_TRY(rn_expert_cache_step(cache, ids, count, x->misses, &x->miss_count));
    atomic_fetch_add(&x->needed, rn_expert_cache_needed(cache));
    atomic_fetch_add(&x->missed, x->miss_count);
    x->layer = layer;
    x->next = (job_place){0};
    x->places_taken = 0;
    x->jobs_left = 0;
    for (uint32_t m = 0; m < x->miss_count; m++)
        x->miss_of[x->misses[m].expert] = m;
    for (uint32_t r = 0; r < readers; r++)
        for (uint32_t m = 0; m < x->miss_count; m++) {
            uint8_t *state = state_of(x, (job_place){r, m});
            *state = (uint8_t)first_state(reader_at(x, r), &x->misses[m]);
            x->jobs_left += *state == JOB_DUE;
        }
    return RN_OK;
}

// What the reader's call is told of all experts.
static void fill_table(rn_experts *x, const reader *r) {
    const rn_expert_cache *cache = &x->caches[x->layer];
    memset(x->matrix, 0, cache->experts * sizeof *x->matrix);
    memset(x->pending, 0, cache->experts * sizeof *x->pending);
    for (uint32_t s = 0; s < cache->slots; s++) {
        uint32_t expert = cache->expert_in[s];
        if (expert != RN_NO_EXPERT && cache->needed[expert])
            x->matrix[expert] = matrix_in_slot(x, r, s);
    }
    for (uint32_t m = 0; m < x->miss_count; m++) {
        bool slot = x->misses[m].slot != RN_NO_SLOT;
        job_place job = {slot ? filler_of(x, r) : r->index, m};
        x->pending[x->misses[m].expert] = !slot || *state_of(x, job) != JOB_DONE;
    }
}

// For comparison: everything is read before anything is computed, where all of it gets slots.
static rn_status bring_all(rn_experts *x) {
    uint32_t readers = reader_count_of(x, x->layer);
    for (uint32_t m = 0; m < x->miss_count; m++)
        if (x->misses[m].slot == RN_NO_SLOT) return RN_OK;
    for (uint32_t r = 0; r < readers; r++)
        for (uint32_t m = 0; m < x->miss_count; m++)
            if (reader_at(x, r)->fills) RN_TRY(bring(x, (job_place){r, m}));
    return RN_OK;
}

static rn_status begin(rn_experts *x, const reader *r, int32_t *ids, uint64_t count) {
    if (r->index == 0) RN_TRY(begin_pass(x, r->layer, ids, count));
    if (x->layer != r->layer)
        return rn_fail(RN_INTERNAL, "experts are read out of order: step %u", r->step);
    x->now = r;
    if (r->index == 0 && x->rule == RN_EXPERT_RULE_LRU) RN_TRY(bring_all(x));
    RN_TRY(feed(x));
    fill_table(x, r);
    return RN_OK;
}

rn_status rn_experts_begin(rn_experts *x, uint32_t step, int32_t *ids, uint64_t count) {
    rn_status s = begin(x, &x->readers[x->reader_of[step]], ids, count);
    if (s == RN_OK) return RN_OK;
    rn_error_info error = *rn_last_error();
    abandon(x);
    return rn_error_restore(&error);
}

void rn_experts_rewind(rn_experts *x) {
    if (!x) return;
    if (x->jobs_left) abandon(x);
    x->layer = NO_LAYER;
}

// ---- life ---------------------------------------------------------------------------------------

static rn_status bind_call(const rn_experts *x, rn_arena *scratch, uint32_t node,
                           rn_expert_call *out) {
    const rn_graph *graph = x->plan->graph;
    const rn_node *n = rn_graph_node(graph, node);
    void *tensors = NULL;
    rn_call call;
    RN_TRY(rn_arena_array(scratch, (size_t)n->input_count + n->output_count, sizeof(rn_tensor),
                          &tensors));
    rn_graph_bind(graph, node, 1, tensors, &call);
    if (!rn_call_experts(&call, out)) out->weight = RN_NO_INPUT;
    return RN_OK;
}

// The stack that a step reads one by one, or NULL.
static const rn_plan_stack *find_stack(const rn_experts *x, uint32_t step, rn_arena *scratch,
                                       rn_expert_call *e, rn_status *status) {
    const rn_plan_step *s = &x->plan->steps[step];
    const rn_node *node =
        s->kind == RN_STEP_COMPUTE ? rn_graph_node(x->plan->graph, s->node) : NULL;
    if (!node || !rn_op_is(node->op, RN_TRAIT_EXPERTS)) return NULL;
    *status = bind_call(x, scratch, s->node, e);
    if (*status != RN_OK || e->weight == RN_NO_INPUT) return NULL;
    return rn_plan_stack_of(x->plan, node->inputs[e->weight]);
}

static reader make_reader(const rn_experts *x, uint32_t step, const rn_plan_stack *stack,
                          const rn_expert_call *e) {
    uint64_t row_bytes = stack->matrix_bytes / e->record_rows;
    const rn_plan_group *group = &x->plan->groups[x->plan->places[stack->weight].group];
    reader r = {.step = step,
                .layer = stack->layer,
                .stack = (uint32_t)(stack - x->plan->stacks),
                .first_byte = e->first * row_bytes,
                .bytes = e->count * row_bytes,
                .first_packed = e->first * (group->bytes / e->experts / e->record_rows),
                .fills = true};
    for (uint32_t i = x->reader_count; i-- > 0 && x->readers[i].layer == r.layer;) {
        if (r.index == 0) r.index = x->readers[i].index + 1;
        r.fills &= x->readers[i].stack != r.stack;
    }
    return r;
}

// Layers follow each other: readers by step are readers by layer.
static rn_status list_readers(rn_experts *x, rn_arena *scratch) {
    for (uint32_t step = 0; step < x->plan->step_count; step++) {
        rn_expert_call e;
        rn_status s = RN_OK;
        const rn_plan_stack *stack = find_stack(x, step, scratch, &e, &s);
        RN_TRY(s);
        x->reader_of[step] = RN_NO_STEP;
        if (!stack) continue;
        x->reader_of[step] = x->reader_count;
        x->readers[x->reader_count] = make_reader(x, step, stack, &e);
        x->reader_count++;
    }
    for (uint32_t i = 0, layer = 0; i < x->reader_count; i++) {
        if (x->readers[i].layer != layer && x->readers[i].layer != ++layer)
            return rn_fail(RN_INTERNAL, "layers of experts are not in order");
        x->first_reader[layer + 1] = i + 1;
    }
    return RN_OK;
}

static rn_status make_caches(rn_experts *x) {
    for (uint32_t i = 0; i < x->plan->expert_layer_count; i++) {
        const rn_plan_expert_layer *layer = &x->plan->expert_layers[i];
        RN_TRY(rn_expert_cache_init(&x->memory, layer->experts, layer->slots, &x->caches[i]));
    }
    return RN_OK;
}

static rn_status make_tables(rn_experts *x) {
    const rn_plan *plan = x->plan;
    uint32_t experts = 0, widest = 0;
    rn_arena *memory = &x->memory;
    for (uint32_t i = 0; i < plan->expert_layer_count; i++) {
        if (plan->expert_layers[i].experts > experts) experts = plan->expert_layers[i].experts;
        if (reader_count_of(x, i) > widest) widest = reader_count_of(x, i);
    }
    size_t jobs = (size_t)widest * experts;
    RN_TRY(rn_arena_array(memory, experts, sizeof *x->misses, (void **)&x->misses));
    RN_TRY(rn_arena_array(memory, experts, sizeof *x->miss_of, (void **)&x->miss_of));
    RN_TRY(rn_arena_array(memory, jobs, 1, (void **)&x->states));
    RN_TRY(rn_arena_array(memory, jobs, 1, (void **)&x->places));
    RN_TRY(rn_arena_array(memory, experts, sizeof *x->matrix, (void **)&x->matrix));
    return rn_arena_array(memory, experts, sizeof *x->pending, (void **)&x->pending);
}

static rn_status fill_experts(rn_experts *x) {
    const rn_plan *plan = x->plan;
    rn_arena *memory = &x->memory, scratch;
    size_t layers = plan->expert_layer_count;
    RN_TRY(rn_arena_array(memory, layers, sizeof *x->caches, (void **)&x->caches));
    RN_TRY(rn_arena_array(memory, plan->step_count, sizeof *x->readers, (void **)&x->readers));
    RN_TRY(rn_arena_array(memory, plan->step_count, sizeof(uint32_t), (void **)&x->reader_of));
    RN_TRY(rn_arena_array(memory, layers + 1, sizeof(uint32_t), (void **)&x->first_reader));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = list_readers(x, &scratch);
    rn_arena_free_all(&scratch);
    if (s == RN_OK) s = make_caches(x);
    if (s == RN_OK) s = make_tables(x);
    return s == RN_OK ? rn_weights_open_fetcher(x->weights, &x->fetcher) : s;
}

rn_status rn_experts_create(const rn_plan *plan, rn_weights *weights, uint8_t *base,
                            const _Atomic bool *cancel, const _Atomic bool *stop,
                            rn_experts **out) {
    void *block = NULL;
    *out = NULL;
    if (plan->expert_layer_count == 0) return RN_OK;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_experts), &block));
    rn_experts *x = block;
    x->plan = plan;
    x->weights = weights;
    x->base = base;
    x->cancel = cancel;
    x->stop = stop;
    x->layer = NO_LAYER;
    rn_arena_init(&x->memory, RN_HOST_OTHER, 0);
    rn_status s = fill_experts(x);
    x->slots = (rn_expert_slots){
        .matrix = x->matrix, .pending = x->pending, .wait = wait_expert, .self = x};
    if (s == RN_OK)
        *out = x;
    else
        rn_experts_destroy(x);
    return s;
}

void rn_experts_destroy(rn_experts *x) {
    if (!x) return;
    rn_fetcher_destroy(x->fetcher);
    rn_arena_free_all(&x->memory);
    rn_free(RN_HOST_OTHER, x, sizeof *x);
}

const rn_expert_slots *rn_experts_slots_of(const rn_experts *x) {
    return &x->slots;
}

bool rn_experts_is_reader(const rn_experts *x, uint32_t step) {
    return x && x->reader_of[step] != RN_NO_STEP;
}

rn_experts_counts rn_experts_get_counts(const rn_experts *x) {
    if (!x) return (rn_experts_counts){0};
    return (rn_experts_counts){atomic_load(&x->needed), atomic_load(&x->missed),
                               atomic_load(&x->read_bytes)};
}

uint64_t rn_experts_take_wait(rn_experts *x) {
    uint64_t wait = x ? x->wait_ns : 0;
    if (x) x->wait_ns = 0;
    return wait;
}

// ---- for tests and measurements -----------------------------------------------------------------

void rn_experts_listen(rn_experts *x, rn_experts_routed routed, void *self) {
    x->routed = routed;
    x->routed_self = self;
}

void rn_experts_use_rule(rn_experts *x, rn_expert_rule rule) {
    x->rule = rule;
    for (uint32_t i = 0; i < x->plan->expert_layer_count; i++) {
        rn_expert_cache_clear(&x->caches[i]);
        x->caches[i].by_recency = rule == RN_EXPERT_RULE_LRU;
    }
}
