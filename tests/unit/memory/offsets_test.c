// Properties of the offset allocator: checked against a map of granules and by its own walker.
#include "support.h"
#include "base/fault.h"
#include "memory/offsets_internal.h"

enum { GRANULE = 64, GRANULES = 4096, CAPACITY = GRANULE * GRANULES };

static rn_offsets *make(uint64_t capacity_bytes) {
    rn_offsets *offsets;
    assert_ok(rn_offsets_create(&rn_system_allocator, capacity_bytes, GRANULE, &offsets));
    return offsets;
}

static rn_offset_block take(rn_offsets *offsets, uint64_t bytes) {
    rn_offset_block block;
    assert_int_equal(RN_OFFSETS_DONE, rn_offsets_alloc(offsets, bytes, 1, &block));
    assert_true(rn_offsets_is_valid(offsets));
    return block;
}

static void give(rn_offsets *offsets, rn_offset_block block) {
    rn_offsets_free(offsets, block);
    assert_true(rn_offsets_is_valid(offsets));
}

static rn_offsets_result try(rn_offsets *offsets, uint64_t bytes) {
    rn_offset_block block;
    return rn_offsets_alloc(offsets, bytes, 1, &block);
}

static rn_offsets_stats stats_of(const rn_offsets *offsets) {
    rn_offsets_stats stats;
    rn_offsets_get_stats(offsets, &stats);
    return stats;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void offsets_counts_asked_and_rounded_bytes(void **state) {
    (void)state;
    rn_offsets *offsets = make(1000 * GRANULE + 1); // rounded down
    rn_offset_block a = take(offsets, 1), b = take(offsets, GRANULE + 1);
    rn_offsets_stats stats = stats_of(offsets);
    assert_int_equal(1000 * GRANULE, stats.capacity_bytes);
    assert_int_equal(GRANULE + 2, stats.allocated_bytes);
    assert_int_equal(3 * GRANULE, stats.active_bytes);
    assert_int_equal(997 * GRANULE, stats.free_bytes);
    assert_int_equal(2, stats.block_count);
    give(offsets, a);
    stats = stats_of(offsets);
    assert_int_equal(997 * GRANULE, stats.largest_free_bytes);
    assert_true(stats.fragmentation > 0.0 && stats.fragmentation < 0.01); // 1 granule of 998
    give(offsets, b);
    stats = stats_of(offsets);
    assert_int_equal(0, stats.allocated_bytes);
    assert_int_equal(GRANULE + 2, stats.peak_bytes);
    assert_true(stats.fragmentation == 0.0);
    rn_offsets_destroy(offsets);
}

static void offsets_merges_with_both_neighbours(void **state) {
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        rn_offsets *offsets = make(3 * 4096);
        rn_offset_block blocks[3] = {take(offsets, 4096), take(offsets, 4096), take(offsets, 4096)};
        for (int k = 0; k < 3; k++)
            give(offsets, blocks[orders[i][k]]);
        assert_int_equal(3 * 4096, stats_of(offsets).largest_free_bytes);
        take(offsets, 3 * 4096);
        rn_offsets_destroy(offsets);
    }
}

static void offsets_gives_the_same_place_to_the_same_size(void **state) {
    (void)state;
    rn_offsets *offsets = make(CAPACITY);
    rn_offset_block tensor = take(offsets, 50 * GRANULE); // not the least of its class
    take(offsets, GRANULE);
    give(offsets, tensor);
    assert_int_equal(tensor.offset, take(offsets, 50 * GRANULE).offset);
    rn_offsets_destroy(offsets);
}

static void offsets_honours_alignments_above_the_granule(void **state) {
    (void)state;
    for (uint64_t align = 1; align <= CAPACITY / 2; align *= 2) {
        rn_offsets *offsets = make(CAPACITY);
        take(offsets, GRANULE);
        rn_offset_block block;
        assert_int_equal(RN_OFFSETS_DONE, rn_offsets_alloc(offsets, 3 * GRANULE, align, &block));
        assert_int_equal(0, block.offset % align);
        assert_true(rn_offsets_is_valid(offsets));
        give(offsets, block);
        rn_offsets_destroy(offsets);
    }
}

static void offsets_finds_aligned_room_even_if_it_is_exact(void **state) {
    (void)state;
    rn_offsets *offsets = make(4096);
    rn_offset_block front = take(offsets, 1024), middle = take(offsets, 1024),
                    rest = take(offsets, 2048);
    give(offsets, middle); // [1024, 2048) is free: aligned to 1024, and no larger than asked
    rn_offset_block block;
    assert_int_equal(RN_OFFSETS_NO_ROOM, rn_offsets_alloc(offsets, 1024, 2048, &block));
    assert_int_equal(RN_OFFSETS_DONE, rn_offsets_alloc(offsets, 1024, 1024, &block));
    assert_int_equal(1024, block.offset);
    give(offsets, front), give(offsets, block), give(offsets, rest);
    rn_offsets_destroy(offsets);
}

static void offsets_fills_to_the_last_granule_and_then_says_no_room(void **state) {
    (void)state;
    rn_offsets *offsets = make(64 * GRANULE);
    rn_offset_block blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = take(offsets, GRANULE);
    (void)rn_fail(RN_IO, "an older story");
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 1));
    assert_string_equal("an older story", rn_last_error()->message); // a refusal builds none
    give(offsets, blocks[20]), give(offsets, blocks[22]);
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 2 * GRANULE));
    give(offsets, blocks[21]);
    take(offsets, 3 * GRANULE);
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, UINT64_MAX));
    rn_offsets_destroy(offsets);
}

// Sizes 96 and 97 granules are of one class, and the one that fits is the last in its list.
static void offsets_walks_its_own_class_before_it_refuses(void **state) {
    (void)state;
    rn_offsets *offsets = make(97 * GRANULE + 30 * (96 + 1) * GRANULE + GRANULE);
    rn_offset_block fitting = take(offsets, 97 * GRANULE), small[30];
    take(offsets, GRANULE);
    for (int i = 0; i < 30; i++) {
        small[i] = take(offsets, 96 * GRANULE);
        take(offsets, GRANULE); // keeps them apart
    }
    give(offsets, fitting);
    for (int i = 0; i < 30; i++)
        give(offsets, small[i]);
    assert_int_equal(fitting.offset, take(offsets, 97 * GRANULE).offset);
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 97 * GRANULE));
    rn_offsets_destroy(offsets);
}

static void offsets_grows_and_joins_the_free_end(void **state) {
    (void)state;
    rn_offsets *offsets = make(0);
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 1));
    assert_ok(rn_offsets_grow(offsets, 4096));
    rn_offset_block first = take(offsets, 2048);
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 4096));
    assert_ok(rn_offsets_grow(offsets, 2048));
    assert_int_equal(2048, take(offsets, 4096).offset); // across the seam
    assert_ok(rn_offsets_grow(offsets, GRANULE - 1));   // less than a granule: nothing
    assert_int_equal(6144, stats_of(offsets).capacity_bytes);
    give(offsets, first);
    rn_offsets_destroy(offsets);
}

static void offsets_trims_only_what_is_free_at_the_end(void **state) {
    (void)state;
    rn_offsets *offsets = make(8192);
    rn_offset_block a = take(offsets, 1024), b = take(offsets, 1024);
    assert_int_equal(8192 - 4096, rn_offsets_trim(offsets, 4096));
    assert_int_equal(4096 - 2048, rn_offsets_trim(offsets, 0));
    assert_int_equal(0, rn_offsets_trim(offsets, 0));
    give(offsets, a);
    assert_int_equal(0, rn_offsets_trim(offsets, 0)); // free, but not at the end
    give(offsets, b);
    assert_int_equal(2048, rn_offsets_trim(offsets, 0));
    assert_true(rn_offsets_is_valid(offsets));
    assert_int_equal(0, stats_of(offsets).capacity_bytes);
    assert_ok(rn_offsets_grow(offsets, 4096));
    assert_int_equal(0, take(offsets, 4096).offset);
    rn_offsets_destroy(offsets);
}

static void offsets_keeps_separate_ranges_apart(void **state) {
    (void)state;
    rn_offsets *offsets = make(0);
    assert_ok(rn_offsets_add(offsets, 8192, 4096, false));
    assert_ok(rn_offsets_add(offsets, 12288, 4096, false)); // touches, does not join
    assert_true(rn_offsets_is_valid(offsets));
    assert_int_equal(2, rn_offsets_range_count(offsets));
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 4096 + GRANULE));
    rn_offset_block block = take(offsets, 4096);
    rn_offset_range low = rn_offsets_range_at(offsets, 0), high = rn_offsets_range_at(offsets, 1);
    rn_offset_range used = low.start == block.offset ? low : high;
    rn_offset_range idle = low.start == block.offset ? high : low;
    assert_true(idle.is_free && !used.is_free);
    assert_int_equal(RN_OFFSETS_NO_ROOM, rn_offsets_remove(offsets, used.start, used.bytes));
    assert_int_equal(RN_OFFSETS_DONE, rn_offsets_remove(offsets, idle.start, idle.bytes));
    assert_true(rn_offsets_is_valid(offsets));
    assert_int_equal(4096, stats_of(offsets).capacity_bytes);
    rn_offsets_destroy(offsets);
}

static void offsets_joins_ranges_from_both_sides(void **state) {
    (void)state;
    rn_offsets *offsets = make(0);
    assert_ok(rn_offsets_add(offsets, 0x10000, 4096, true));
    assert_ok(rn_offsets_add(offsets, 0x12000, 4096, true));
    assert_int_equal(2, rn_offsets_range_count(offsets));
    assert_ok(rn_offsets_add(offsets, 0x11000, 4096, true));
    assert_int_equal(1, rn_offsets_range_count(offsets));
    assert_int_equal(0x10000, take(offsets, 3 * 4096).offset);
    rn_offsets_destroy(offsets);
}

static void offsets_cuts_a_hole_out_of_a_range_and_fills_it_again(void **state) {
    (void)state;
    rn_offsets *offsets = make(4 * 4096);
    rn_offset_block low = take(offsets, GRANULE);
    assert_int_equal(RN_OFFSETS_NO_ROOM, rn_offsets_remove(offsets, 0, 4096)); // in use
    assert_int_equal(RN_OFFSETS_DONE, rn_offsets_remove(offsets, 4096, 4096));
    assert_true(rn_offsets_is_valid(offsets));
    assert_int_equal(2, rn_offsets_range_count(offsets));
    assert_int_equal(RN_OFFSETS_NO_ROOM, try(offsets, 2 * 4096 + GRANULE));
    assert_ok(rn_offsets_add(offsets, 4096, 4096, true));
    assert_true(rn_offsets_is_valid(offsets));
    give(offsets, low);
    take(offsets, 4 * 4096);
    rn_offsets_destroy(offsets);
}

static void offsets_removes_whole_units_on_the_grid_of_the_range(void **state) {
    (void)state;
    enum { START = 0x100040, UNIT = 4096 }; // the grid begins at the range, not at zero
    rn_offsets *offsets = make(0);
    rn_offset_range part;
    assert_ok(rn_offsets_add(offsets, START, 8 * UNIT, true));
    rn_offset_block block = take(offsets, UNIT + GRANULE); // uses two units
    assert_int_equal(START, block.offset);
    assert_int_equal(RN_OFFSETS_DONE, rn_offsets_remove_units(offsets, UNIT, UNIT + 1, &part));
    assert_int_equal(START + 2 * UNIT, part.start);
    assert_int_equal(2 * UNIT, part.bytes); // rounded up to units
    assert_int_equal(RN_OFFSETS_DONE,
                     rn_offsets_remove_units(offsets, UNIT, UINT64_MAX / 2, &part));
    assert_int_equal(4 * UNIT, part.bytes);
    assert_int_equal(RN_OFFSETS_NO_ROOM, rn_offsets_remove_units(offsets, UNIT, UNIT, &part));
    assert_true(rn_offsets_is_valid(offsets));
    assert_int_equal(2 * UNIT, stats_of(offsets).capacity_bytes);
    give(offsets, block);
    rn_offsets_destroy(offsets);
}

static void offsets_rejects_what_is_no_range(void **state) {
    (void)state;
    rn_offsets *offsets;
    assert_fails(RN_INVALID, rn_offsets_create(&rn_system_allocator, 4096, 0, &offsets));
    assert_fails(RN_INVALID, rn_offsets_create(&rn_system_allocator, 4096, 96, &offsets));
    assert_fails(RN_INVALID, rn_offsets_create(&rn_system_allocator, 4096, 2ull << 30, &offsets));
    assert_fails(RN_INVALID, rn_offsets_create(&rn_system_allocator, UINT64_MAX, 64, &offsets));
    assert_null(offsets);
    offsets = make(4096);
    assert_fails(RN_INVALID, rn_offsets_add(offsets, 2048, 4096, true));          // overlaps below
    assert_fails(RN_INVALID, rn_offsets_add(offsets, 8192, 0, true));             // empty
    assert_fails(RN_INVALID, rn_offsets_add(offsets, 8192 + 1, 4096, true));      // off the granule
    assert_fails(RN_INVALID, rn_offsets_add(offsets, UINT64_MAX - 63, 64, true)); // ends past 2^64
    assert_ok(rn_offsets_add(offsets, 8192, 4096, true));
    assert_fails(RN_INVALID, rn_offsets_add(offsets, 4096, 8192, true)); // overlaps above
    assert_true(rn_offsets_is_valid(offsets));
    rn_offsets_destroy(offsets);
    rn_offsets_destroy(NULL);
}

// ---- random operations
// ---------------------------------------------------------------------------

typedef struct world {
    rn_offsets *offsets;
    uint64_t random;
    uint8_t used[GRANULES]; // granules in use, by the test's own account
    struct {
        rn_offset_block block;
        uint64_t bytes;
    } live[512];
    size_t live_count;
} world;

static void mark(world *w, uint64_t offset, uint64_t bytes, uint8_t from, uint8_t to) {
    for (uint64_t i = offset / GRANULE; i < (offset + bytes + GRANULE - 1) / GRANULE; i++) {
        assert_true(i < GRANULES);
        assert_int_equal(from, w->used[i]);
        w->used[i] = to;
    }
}

static void random_take(world *w) {
    uint64_t bytes = 1 + next_random(&w->random) % (1ull << (next_random(&w->random) % 15));
    uint64_t align = 1ull << (next_random(&w->random) % 4 ? 0 : next_random(&w->random) % 13);
    rn_offset_block block;
    if (rn_offsets_alloc(w->offsets, bytes, align, &block) != RN_OFFSETS_DONE) return;
    assert_int_equal(0, block.offset % align);
    mark(w, block.offset, bytes, 0, 1);
    w->live[w->live_count].block = block;
    w->live[w->live_count++].bytes = bytes;
}

static void random_give(world *w) {
    size_t i = next_random(&w->random) % w->live_count;
    mark(w, w->live[i].block.offset, w->live[i].bytes, 1, 0);
    rn_offsets_free(w->offsets, w->live[i].block);
    w->live[i] = w->live[--w->live_count];
}

// Capacity comes and goes: the map's granules outside of it are 2.
static void random_resize(world *w) {
    uint64_t capacity = stats_of(w->offsets).capacity_bytes;
    if (next_random(&w->random) % 2) {
        uint64_t more = next_random(&w->random) % (CAPACITY - capacity + 1) / GRANULE * GRANULE;
        assert_ok(rn_offsets_grow(w->offsets, more));
        mark(w, capacity, more, 2, 0);
    } else {
        uint64_t cut = rn_offsets_trim(w->offsets, next_random(&w->random) % CAPACITY);
        mark(w, capacity - cut, cut, 0, 2);
    }
}

static void offsets_stays_valid_under_random_operations(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world w = {.offsets = make(0), .random = seed * 0x9e3779b97f4a7c15ull};
        memset(w.used, 2, sizeof w.used);
        for (int i = 0; i < 6000; i++) {
            uint64_t dice = next_random(&w.random) % 32;
            bool full = w.live_count == 512, empty = w.live_count == 0;
            if (dice == 0)
                random_resize(&w);
            else if (full || (dice < (i / 500 % 2 ? 20u : 12u) && !empty))
                random_give(&w);
            else
                random_take(&w);
            if (i % 7 == 0) assert_true(rn_offsets_is_valid(w.offsets));
        }
        while (w.live_count > 0)
            random_give(&w);
        rn_offsets_stats stats = stats_of(w.offsets);
        assert_int_equal(stats.capacity_bytes, stats.largest_free_bytes);
        assert_true(rn_offsets_is_valid(w.offsets));
        rn_offsets_destroy(w.offsets);
    }
}

// ---- faults
// --------------------------------------------------------------------------------------

// Uses every function that may need nodes; stops at the first that fails.
static rn_status use_nodes(void) {
    rn_offsets *offsets;
    rn_offset_block block;
    RN_TRY(rn_offsets_create(&rn_system_allocator, 1 << 20, GRANULE, &offsets));
    rn_status status = RN_OK;
    for (uint64_t i = 0; i < 300 && status == RN_OK; i++) {
        status = rn_offsets_add(offsets, (i + 1) << 21, 4096, false);
        if (status == RN_OK && rn_offsets_alloc(offsets, 100, 1, &block) == RN_OFFSETS_NO_NODE)
            status = rn_last_error()->status;
        uint64_t middle = (512u << 10) + 4096 * i;
        if (status == RN_OK && i % 2 && i < 100 &&
            rn_offsets_remove(offsets, middle, 4096) == RN_OFFSETS_NO_NODE)
            status = rn_last_error()->status;
        assert_true(rn_offsets_is_valid(offsets));
    }
    rn_offsets_destroy(offsets);
    return status;
}

static void offsets_survives_every_failing_allocation(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status status = use_nodes();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, status);
        if (fired) continue;
        assert_true(n > 6); // it did grow more than once
        break;
    }
}

// ---- the walker
// ----------------------------------------------------------------------------------

// Breaks one thing at a time; each must be seen.
static void offsets_walker_sees_what_is_broken(void **state) {
    (void)state;
    rn_offsets *o = make(8192);
    rn_offset_block a = take(o, 1024), b = take(o, 1024);
    give(o, a);
    rn_node *free_node = &o->nodes[a.node], *live = &o->nodes[b.node];
    assert_int_equal(RN_NODE_FREE, free_node->state);
#define BREAKS(change, undo)                                                                       \
    do {                                                                                           \
        change;                                                                                    \
        assert_false(rn_offsets_is_valid(o));                                                      \
        undo;                                                                                      \
        assert_true(rn_offsets_is_valid(o));                                                       \
    } while (0)
    BREAKS(o->powers ^= 2, o->powers ^= 2);
    BREAKS(o->steps[0] ^= 1u << 16, o->steps[0] ^= 1u << 16);
    BREAKS(live->offset += GRANULE, live->offset -= GRANULE);
    BREAKS(live->bytes -= GRANULE, live->bytes += GRANULE);
    BREAKS(live->left = b.node, live->left = a.node);
    BREAKS(free_node->state = RN_NODE_LIVE, free_node->state = RN_NODE_FREE);
    BREAKS(live->prev_or_slack = 5000, live->prev_or_slack = 0);
    BREAKS(o->active_bytes++, o->active_bytes--);
    BREAKS(o->allocated_bytes++, o->allocated_bytes--);
    BREAKS(o->capacity_bytes += GRANULE, o->capacity_bytes -= GRANULE);
    BREAKS(o->block_count--, o->block_count++);
    BREAKS(o->ranges[0].bytes -= GRANULE, o->ranges[0].bytes += GRANULE);
    BREAKS(o->spare_count++, o->spare_count--);
    rn_offsets_destroy(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_counts_asked_and_rounded_bytes),
        cmocka_unit_test(offsets_merges_with_both_neighbours),
        cmocka_unit_test(offsets_gives_the_same_place_to_the_same_size),
        cmocka_unit_test(offsets_honours_alignments_above_the_granule),
        cmocka_unit_test(offsets_finds_aligned_room_even_if_it_is_exact),
        cmocka_unit_test(offsets_fills_to_the_last_granule_and_then_says_no_room),
        cmocka_unit_test(offsets_walks_its_own_class_before_it_refuses),
        cmocka_unit_test(offsets_grows_and_joins_the_free_end),
        cmocka_unit_test(offsets_trims_only_what_is_free_at_the_end),
        cmocka_unit_test(offsets_keeps_separate_ranges_apart),
        cmocka_unit_test(offsets_joins_ranges_from_both_sides),
        cmocka_unit_test(offsets_cuts_a_hole_out_of_a_range_and_fills_it_again),
        cmocka_unit_test(offsets_removes_whole_units_on_the_grid_of_the_range),
        cmocka_unit_test(offsets_rejects_what_is_no_range),
        cmocka_unit_test(offsets_stays_valid_under_random_operations),
        cmocka_unit_test(offsets_survives_every_failing_allocation),
        cmocka_unit_test(offsets_walker_sees_what_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
