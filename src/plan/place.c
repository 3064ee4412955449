// place.c — placement as a whole: split, place each part by the quick orders, then search the
// highest part for something lower, as long as that is worth it.
//
// The height is that of the highest part, so no other one is worth a node. A part is tried at the
// lowest height that could still matter; where the nodes do not suffice to decide, half way up from
// there to what is known to work, and so on; then again with twice the nodes.
//
//     bound |--undecided--x-----undecided--x---found---| best so far
#include "plan/place.h"

#include "base/checked.h"
#include "base/reserved.h"
#include "memory/account.h"

enum { FIRST_NODES = 4000, STANDARD_NODES = 10000000 }; // for each order of an attempt; in all

bool rn_place_go_on(const rn_place_leash *leash) {
    return leash->nodes_left > 0 && rn_stop_look() == RN_STOP_GO_ON;
}

typedef struct work {
    const rn_allocator *from;
    rn_place_problem problem;
    rn_place_part *parts; // (problem.count)
    size_t part_count;
    rn_place_leash leash;
    uint64_t goal; // searching ends when the height is here; 0: at the bound
} work;

static uint64_t measure_height(const work *w) {
    uint64_t height = 0;
    for (size_t i = 0; i < w->problem.count; i++)
        height = rn_max_u64(height, w->problem.items[i].offset + w->problem.items[i].bytes);
    return height;
}

// The proven bound of the whole; the search raises those of the parts.
static uint64_t measure_bound(const work *w) {
    uint64_t bound = w->problem.bound;
    for (size_t i = 0; i < w->part_count; i++)
        bound = rn_max_u64(bound, w->parts[i].bound);
    return bound;
}

static rn_place_part *find_highest(const work *w) {
    rn_place_part *highest = NULL;
    for (size_t i = 0; i < w->part_count; i++)
        if (!highest || w->parts[i].height > highest->height) highest = &w->parts[i];
    return highest;
}

// ---- searching ----------------------------------------------------------------------------------

// One attempt; moves the part's height down or its bound up, or neither.
static rn_status attempt(work *w, rn_place_search *search, rn_place_part *part, uint64_t height,
                         uint64_t nodes, rn_place_verdict *out) {
    RN_TRY(rn_place_search_run(search, &w->leash, height, nodes, part, out));
    if (*out == RN_PLACE_NONE) part->bound = height + w->problem.grain;
    return RN_OK;
}

// Brings the part down to the target, or as near as the nodes of each attempt allow.
static rn_status lower_part(work *w, rn_place_search *search, rn_place_part *part, uint64_t target,
                            uint64_t nodes) {
    uint64_t grain = w->problem.grain, height = target; // tried without success, from now on
    rn_place_verdict verdict;
    RN_TRY(attempt(w, search, part, height, nodes, &verdict));
    if (verdict == RN_PLACE_FOUND || w->goal) return RN_OK;
    while (part->height - height > grain && rn_place_go_on(&w->leash)) {
        uint64_t middle = height + rn_div_up((part->height - height) / grain, 2) * grain;
        if (middle >= part->height) middle = part->height - grain;
        RN_TRY(attempt(w, search, part, middle, nodes, &verdict));
        if (verdict != RN_PLACE_FOUND) height = middle;
    }
    return RN_OK;
}

static rn_status search_part(work *w, rn_place_part *part) {
    rn_place_search *search;
    RN_TRY(rn_place_search_create(w->from, part, &search));
    if (!search) return rn_place_reorder(w->from, &w->leash, w->goal ? w->goal : part->bound, part);
    rn_status s = RN_OK;
    for (uint64_t nodes = FIRST_NODES; s == RN_OK && rn_place_go_on(&w->leash); nodes *= 2) {
        uint64_t target = w->goal ? w->goal : measure_bound(w);
        if (part->height <= target || part->bound > target) break;
        s = lower_part(w, search, part, target, nodes);
    }
    rn_place_search_destroy(search);
    return s;
}

static rn_status search_all(work *w) {
    while (rn_place_go_on(&w->leash)) {
        rn_place_part *part = find_highest(w);
        uint64_t target = rn_max_u64(w->goal, measure_bound(w));
        if (!part || part->height <= target) return RN_OK;
        uint64_t before = part->height;
        RN_TRY(search_part(w, part));
        if (part->height == before) return RN_OK;
    }
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static bool wants_search(const work *w, const rn_place_options *o, uint64_t height) {
    if (o->effort == RN_PLACE_BEST) return true;
    return o->effort == RN_PLACE_FIT && height > w->goal && w->problem.bound <= w->goal;
}

// The sweep's placement, in out_offsets; the problem's items are still by time.
static rn_status place_first(work *w, uint64_t *scratch, uint64_t *out_offsets, rn_placement *out) {
    const rn_place_problem *p = &w->problem;
    RN_TRY(rn_place_sweep(w->from, p, scratch));
    for (size_t i = 0; i < p->count; i++) {
        out_offsets[p->items[i].source] = scratch[i];
        out->height_bytes = rn_max_u64(out->height_bytes, scratch[i] + p->items[i].bytes);
    }
    out->greedy_bytes = out->height_bytes;
    return RN_OK;
}

// Brings the best placement out, where it is a lower one.
static void take_over(const work *w, uint64_t *out_offsets, rn_placement *out) {
    uint64_t height = measure_height(w);
    if (height >= out->height_bytes) return;
    out->height_bytes = height;
    for (size_t i = 0; i < w->problem.count; i++)
        out_offsets[w->problem.items[i].source] = w->problem.items[i].offset;
}

// All that comes after the first placement. RN_CANCELLED: what has been brought out so far stands.
static rn_status improve(work *w, const rn_place_options *o, uint64_t *out_offsets,
                         rn_placement *out) {
    if (out->height_bytes <= w->problem.bound) return RN_OK;
    RN_TRY(rn_place_split(&w->problem, w->parts, &w->part_count));
    for (size_t i = 0; i < w->part_count; i++)
        RN_TRY(rn_place_greedy(w->from, &w->parts[i]));
    take_over(w, out_offsets, out);
    out->greedy_bytes = out->height_bytes;
    if (o->effort == RN_PLACE_FIT)
        w->goal = o->capacity_bytes - o->capacity_bytes % w->problem.grain;
    if (!wants_search(w, o, out->height_bytes)) return RN_OK;
    RN_TRY(search_all(w));
    take_over(w, out_offsets, out);
    return RN_OK;
}

static rn_status run(work *w, const rn_place_options *o, uint64_t *out_offsets, rn_placement *out) {
    size_t count = w->problem.count;
    uint64_t *scratch;
    out->lower_bound_bytes = w->problem.bound;
    RN_TRY(rn_alloc(w->from, count * sizeof *scratch, (void **)&scratch));
    rn_status s = place_first(w, scratch, out_offsets, out);
    rn_free(w->from, scratch, count * sizeof *scratch);
    RN_TRY(s);
    RN_TRY(rn_alloc(w->from, count * sizeof *w->parts, (void **)&w->parts));
    s = improve(w, o, out_offsets, out);
    out->node_count = w->leash.node_count;
    out->optimal = out->height_bytes <= measure_bound(w);
    out->hopeless = o->capacity_bytes && measure_bound(w) > o->capacity_bytes;
    rn_free(w->from, w->parts, count * sizeof *w->parts);
    return s;
}

// One upon the other: what is left where not even the problem could be set up in time.
static void stack(const rn_place_buffer *buffers, size_t count, uint64_t *out_offsets,
                  rn_placement *out) {
    uint64_t top = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        const rn_place_buffer *b = &buffers[i];
        bool lives = b->lower < b->upper && b->size_bytes > 0;
        out_offsets[i] = lives ? rn_round_up(top, b->align ? b->align : 1) : 0;
        if (!lives) continue;
        top = out_offsets[i] + b->size_bytes;
        largest = rn_max_u64(largest, b->size_bytes);
    }
    *out = (rn_placement){.height_bytes = top, .greedy_bytes = top, .lower_bound_bytes = largest};
}

static rn_stop_answer ask(void *self) {
    const rn_place_options *o = self;
    switch (o->check(o->check_self)) {
    case RN_PLACE_CONTINUE:
        return RN_STOP_GO_ON;
    case RN_PLACE_STOP:
        return RN_STOP_END;
    default:
        return RN_STOP_CANCEL;
    }
}

// Under a stop that asks the caller.
static rn_status place(const rn_allocator *from, const rn_place_buffer *buffers, size_t count,
                       const rn_place_options *o, uint64_t *out_offsets, rn_placement *out) {
    work w = {.from = from};
    w.leash.nodes_left = o->node_limit ? o->node_limit : STANDARD_NODES;
    *out = (rn_placement){.height_bytes = 0};
    rn_status s = rn_place_problem_make(from, buffers, count, &w.problem);
    bool is_set_up = s == RN_OK;
    if (is_set_up) {
        for (size_t i = 0; i < count; i++)
            out_offsets[i] = 0;
        s = run(&w, o, out_offsets, out);
    }
    rn_place_problem_free(from, &w.problem);
    rn_stop_answer answer = rn_stop_spend(0);
    if (answer == RN_STOP_CANCEL) return rn_fail(RN_CANCELLED, "placing was cancelled");
    if (s != RN_OK && s != RN_CANCELLED) return s;
    if (!is_set_up) stack(buffers, count, out_offsets, out);
    out->stopped = answer == RN_STOP_END;
    out->fits = !o->capacity_bytes || out->height_bytes <= o->capacity_bytes;
    return RN_OK;
}

rn_status rn_place_in(const rn_allocator *from, const rn_place_buffer *buffers, size_t count,
                      const rn_place_options *options, uint64_t *out_offsets, rn_placement *out) {
    rn_place_options o = options ? *options : (rn_place_options){.capacity_bytes = 0};
    rn_stop stop = {.check = o.check ? ask : NULL, .self = &o};
    rn_stop_enter(&stop);
    rn_status s = place(from, buffers, count, &o, out_offsets, out);
    rn_stop_leave(&stop);
    return s;
}

rn_status rn_place(const rn_place_buffer *buffers, size_t count, const rn_place_options *options,
                   uint64_t *out_offsets, rn_placement *out) {
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_place_options"));
    return rn_place_in(RN_HOST_OTHER, buffers, count, options, out_offsets, out);
}

// ---- checking -----------------------------------------------------------------------------------

static bool is_alive(const rn_place_buffer *buffer) {
    return buffer->size_bytes > 0 && buffer->lower < buffer->upper;
}

static bool are_apart(const rn_place_buffer *a, uint64_t a_offset, const rn_place_buffer *b,
                      uint64_t b_offset) {
    if (a->lower >= b->upper || b->lower >= a->upper) return true;
    return a_offset + a->size_bytes <= b_offset || b_offset + b->size_bytes <= a_offset;
}

bool rn_place_is_valid(const rn_place_buffer *buffers, size_t count, const uint64_t *offsets,
                       uint64_t height_bytes) {
    uint64_t height = 0, top;
    for (size_t i = 0; i < count; i++) {
        const rn_place_buffer *b = &buffers[i];
        if (!is_alive(b)) continue;
        if (!rn_add_u64(offsets[i], b->size_bytes, &top)) return false;
        if (b->align && offsets[i] % b->align) return false;
        height = rn_max_u64(height, top);
        for (size_t j = 0; j < i; j++)
            if (is_alive(&buffers[j]) && !are_apart(b, offsets[i], &buffers[j], offsets[j]))
                return false;
    }
    return height == height_bytes;
}
