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
#include "memory/account.h"

enum { FIRST_NODES = 4000, STANDARD_NODES = 10000000 }; // for each order of an attempt; in all

bool rn_place_go_on(rn_place_leash *leash) {
    const rn_place_options *o = leash->options;
    if (leash->answer == RN_PLACE_CONTINUE && o->check) leash->answer = o->check(o->check_self);
    return leash->answer == RN_PLACE_CONTINUE && leash->nodes_left > 0;
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
    if (!search) return RN_OK;
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

static rn_status run(work *w, const rn_place_options *o, rn_placement *out) {
    rn_place_split(&w->problem, w->parts, &w->part_count);
    for (size_t i = 0; i < w->part_count; i++)
        RN_TRY(rn_place_greedy(w->from, &w->leash, &w->parts[i]));
    out->greedy_bytes = measure_height(w);
    if (o->effort == RN_PLACE_FIT)
        w->goal = o->capacity_bytes - o->capacity_bytes % w->problem.grain;
    if (wants_search(w, o, out->greedy_bytes)) RN_TRY(search_all(w));
    if (w->leash.answer == RN_PLACE_CANCEL) return rn_fail(RN_CANCELLED, "placing was cancelled");
    out->height_bytes = measure_height(w);
    out->lower_bound_bytes = w->problem.bound;
    out->node_count = w->leash.node_count;
    out->optimal = out->height_bytes <= measure_bound(w);
    out->fits = !o->capacity_bytes || out->height_bytes <= o->capacity_bytes;
    out->hopeless = o->capacity_bytes && measure_bound(w) > o->capacity_bytes;
    return RN_OK;
}

rn_status rn_place_in(const rn_allocator *from, const rn_place_buffer *buffers, size_t count,
                      const rn_place_options *options, uint64_t *out_offsets, rn_placement *out) {
    static const rn_place_options defaults;
    const rn_place_options *o = options ? options : &defaults;
    work w = {.from = from, .leash = {.options = o}};
    w.leash.nodes_left = o->node_limit ? o->node_limit : STANDARD_NODES;
    *out = (rn_placement){.height_bytes = 0};
    RN_TRY(rn_place_problem_make(from, buffers, count, &w.problem));
    size_t part_bytes = w.problem.count * sizeof *w.parts;
    rn_status s = rn_alloc(from, part_bytes, (void **)&w.parts);
    if (s == RN_OK) s = run(&w, o, out);
    if (s == RN_OK) {
        for (size_t i = 0; i < count; i++)
            out_offsets[i] = 0;
        for (size_t i = 0; i < w.problem.count; i++)
            out_offsets[w.problem.items[i].source] = w.problem.items[i].offset;
    }
    rn_free(from, w.parts, part_bytes);
    rn_place_problem_free(from, &w.problem);
    return s;
}

rn_status rn_place(const rn_place_buffer *buffers, size_t count, const rn_place_options *options,
                   uint64_t *out_offsets, rn_placement *out) {
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
