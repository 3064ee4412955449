// place_test.c — placements are valid, as low as they can be where that is known, and the same
// every time.
#include "support.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "plan/place.h"

enum { MOST = 600 };

static uint64_t offsets[MOST];

// ---- helpers ------------------------------------------------------------------------------------

static uint64_t random_state;
static uint64_t random_below(uint64_t limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

static rn_placement place(const rn_place_buffer *buffers, size_t count,
                          const rn_place_options *options) {
    rn_placement p;
    assert_ok(rn_place_in(&rn_system_allocator, buffers, count, options, offsets, &p));
    assert_true(rn_place_is_valid(buffers, count, offsets, p.height_bytes));
    assert_true(p.lower_bound_bytes <= p.height_bytes && p.height_bytes <= p.greedy_bytes);
    assert_true(p.optimal || p.height_bytes > p.lower_bound_bytes);
    return p;
}

static const rn_place_options best = {.effort = RN_PLACE_BEST};

// Whether buffers [next, count) can join those before them within `height`: every offset is tried.
static bool can_join(const rn_place_buffer *b, size_t count, uint64_t *at, size_t next,
                     uint64_t height) {
    if (next == count) return true;
    uint64_t step = b[next].align ? b[next].align : 1;
    for (uint64_t offset = 0; offset + b[next].size_bytes <= height; offset += step) {
        bool is_free = true;
        for (size_t i = 0; i < next && is_free; i++)
            is_free = b[i].lower >= b[next].upper || b[next].lower >= b[i].upper ||
                      at[i] + b[i].size_bytes <= offset || offset + b[next].size_bytes <= at[i];
        at[next] = offset;
        if (is_free && can_join(b, count, at, next + 1, height)) return true;
    }
    return false;
}

// The lowest height from `bound` on. For few bytes only: the time grows with the height.
static uint64_t try_offsets(const rn_place_buffer *b, size_t count, uint64_t bound) {
    uint64_t at[16], height = bound;
    while (!can_join(b, count, at, 0, height))
        height++;
    return height;
}

// The lowest height by every order, each buffer at the lowest place that is free: the order of an
// optimum's offsets gives an optimum. For few buffers only.
static uint64_t lowest_place(const rn_place_buffer *b, const uint64_t *at, const size_t *order,
                             size_t placed, size_t next) {
    uint64_t align = b[next].align ? b[next].align : 1, offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < placed; i++) {
            const rn_place_buffer *o = &b[order[i]];
            uint64_t lies = at[order[i]];
            if (o->lower >= b[next].upper || b[next].lower >= o->upper) continue;
            if (offset + b[next].size_bytes <= lies || lies + o->size_bytes <= offset) continue;
            offset = (lies + o->size_bytes + align - 1) / align * align;
            moved = true;
        }
    }
    return offset;
}

static void try_orders(const rn_place_buffer *b, size_t count, size_t *order, uint64_t *at,
                       size_t placed, uint64_t height, uint64_t *least) {
    if (placed == count && height < *least) *least = height;
    if (placed == count || height >= *least) return;
    for (size_t i = placed; i < count; i++) {
        size_t chosen = order[i];
        order[i] = order[placed];
        order[placed] = chosen;
        at[chosen] = lowest_place(b, at, order, placed, chosen);
        uint64_t top = at[chosen] + b[chosen].size_bytes;
        try_orders(b, count, order, at, placed + 1, top > height ? top : height, least);
        order[placed] = order[i];
        order[i] = chosen;
    }
}

static uint64_t brute_force(const rn_place_buffer *b, size_t count) {
    size_t order[8];
    uint64_t at[8], least = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    try_orders(b, count, order, at, 0, 0, &least);
    return least;
}

static void make_random(rn_place_buffer *b, size_t count, uint64_t times, uint64_t sizes,
                        bool aligned) {
    for (size_t i = 0; i < count; i++) {
        uint64_t lower = random_below(times);
        b[i] = (rn_place_buffer){lower, lower + 1 + random_below(times - lower),
                                 1 + random_below(sizes), aligned ? 1u << random_below(4) : 0};
    }
}

// ---- small ones, known by hand ------------------------------------------------------------------

static void nothing_needs_nothing(void **state) {
    (void)state;
    rn_placement p = place(NULL, 0, NULL);
    assert_int_equal(p.height_bytes, 0);
    assert_true(p.optimal && p.fits);
}

static void buffers_that_never_meet_share_their_bytes(void **state) {
    (void)state;
    rn_place_buffer b[] = {{0, 2, 10, 0}, {2, 5, 7, 0}, {5, 6, 10, 0}};
    rn_placement p = place(b, 3, NULL);
    assert_int_equal(p.height_bytes, 10);
    assert_true(p.optimal);
}

static void buffers_without_bytes_or_life_are_ignored(void **state) {
    (void)state;
    rn_place_buffer b[] = {{0, 9, 0, 0}, {4, 4, 1000, 0}, {0, 9, 5, 0}};
    assert_int_equal(place(b, 3, &best).height_bytes, 5);
    rn_place_buffer none[] = {{0, 9, 0, 0}, {4, 4, 1000, 0}};
    assert_int_equal(place(none, 2, &best).height_bytes, 0);
}

// The example of the files' authors: an order by size does not fit 12 bytes.
static void the_example_fits_its_bound(void **state) {
    (void)state;
    rn_place_buffer b[] = {{0, 3, 4, 0}, {3, 9, 4, 0}, {0, 9, 4, 0}, {9, 21, 4, 0}, {0, 21, 4, 0}};
    rn_placement p = place(b, 5, &(rn_place_options){.capacity_bytes = 12});
    assert_int_equal(p.height_bytes, 12);
    assert_true(p.fits && p.optimal && !p.hopeless);
}

// At most 5 bytes are alive at once, but no placement of 5 bytes exists.
static const rn_place_buffer above_bound[] = {
    {0, 1, 3, 0}, {6, 7, 1, 0}, {5, 8, 3, 0}, {4, 6, 2, 0}, {0, 3, 2, 0},
    {3, 5, 1, 0}, {1, 2, 2, 0}, {2, 5, 2, 0}, {2, 4, 1, 0}, {6, 8, 1, 0}};
enum { ABOVE = sizeof above_bound / sizeof *above_bound };

static void optimum_above_the_bound_is_proven(void **state) {
    (void)state;
    rn_placement p = place(above_bound, ABOVE, &best);
    assert_int_equal(p.lower_bound_bytes, 5);
    assert_int_equal(p.height_bytes, 6);
    assert_int_equal(try_offsets(above_bound, ABOVE, 5), 6);
    assert_true(p.optimal);
    p = place(above_bound, ABOVE, &(rn_place_options){.capacity_bytes = 5});
    assert_true(!p.fits && p.hopeless);
    p = place(above_bound, ABOVE, &(rn_place_options){.capacity_bytes = 6});
    assert_true(p.fits && !p.hopeless);
}

static void alignment_is_kept(void **state) {
    (void)state;
    rn_place_buffer b[] = {{0, 4, 3, 0}, {0, 4, 5, 8}, {1, 3, 1, 2}};
    assert_int_equal(place(b, 3, &best).height_bytes, 9); // 5 at 0, then 3, then 1 at 8
    assert_int_equal(offsets[1] % 8, 0);
    assert_int_equal(offsets[2] % 2, 0);
}

// ---- random ones --------------------------------------------------------------------------------

static void search_agrees_with_trying_everything(void **state) {
    (void)state;
    rn_place_buffer b[7];
    random_state = 1;
    for (int round = 0; round < 1000; round++) {
        size_t count = 1 + random_below(7);
        make_random(b, count, 2 + random_below(9), 1 + random_below(12), round % 3 == 0);
        rn_placement p = place(b, count, &best);
        assert_true(p.optimal);
        assert_int_equal(p.height_bytes, brute_force(b, count));
    }
}

// Neighbours of an instance whose optimum is above the bound: some are above it, too, and some are
// just not.
static void search_agrees_with_trying_everything_near_the_edge(void **state) {
    (void)state;
    rn_place_buffer b[ABOVE];
    size_t above = 0;
    random_state = 8;
    for (int round = 0; round < 1000; round++) {
        memcpy(b, above_bound, sizeof b);
        for (uint64_t changes = 1 + random_below(3); changes > 0; changes--) {
            rn_place_buffer *x = &b[random_below(ABOVE)];
            uint64_t what = random_below(4);
            if (what == 0) x->size_bytes = 1 + random_below(3);
            if (what == 1 && x->lower > 0) x->lower--;
            if (what == 2) x->upper++;
            if (what == 3 && x->upper - x->lower > 1) x->upper--;
        }
        rn_placement p = place(b, ABOVE, &best);
        assert_true(p.optimal);
        assert_int_equal(p.height_bytes, try_offsets(b, ABOVE, p.lower_bound_bytes));
        above += p.height_bytes > p.lower_bound_bytes;
    }
    assert_true(above > 100);
}

static void random_placements_are_valid(void **state) {
    (void)state;
    static rn_place_buffer b[MOST];
    random_state = 2;
    for (int round = 0; round < 40; round++) {
        size_t count = 1 + random_below(MOST);
        make_random(b, count, 2 + random_below(2000), 1u << random_below(20), round % 2);
        place(b, count, &(rn_place_options){.effort = RN_PLACE_BEST, .node_limit = 3000});
    }
}

static void capacity_above_a_height_that_was_found_fits(void **state) {
    (void)state;
    rn_place_buffer b[40];
    random_state = 3;
    for (int round = 0; round < 30; round++) {
        make_random(b, 40, 30, 100, false);
        rn_place_options options = {.effort = RN_PLACE_BEST, .node_limit = 20000};
        uint64_t height = place(b, 40, &options).height_bytes;
        for (uint64_t more = 0; more < 3; more++) {
            rn_placement p =
                place(b, 40, &(rn_place_options){.capacity_bytes = height + more * 50});
            assert_true(p.fits && !p.hopeless);
        }
        rn_placement p = place(b, 40, &(rn_place_options){.capacity_bytes = 1});
        assert_true(!p.fits && p.hopeless);
    }
}

static void same_buffers_give_same_offsets(void **state) {
    (void)state;
    rn_place_buffer b[100];
    uint64_t first[100];
    random_state = 4;
    make_random(b, 100, 50, 1000, true);
    rn_place_options options = {.effort = RN_PLACE_BEST, .node_limit = 50000};
    rn_placement one = place(b, 100, &options);
    memcpy(first, offsets, sizeof first);
    rn_placement two = place(b, 100, &options);
    assert_memory_equal(first, offsets, sizeof first);
    assert_int_equal(one.node_count, two.node_count);
}

static void a_thousand_nested_lives_stack(void **state) {
    (void)state;
    rn_place_buffer b[MOST];
    for (size_t i = 0; i < MOST; i++)
        b[i] = (rn_place_buffer){i, 2 * MOST - i, 3, 0};
    rn_placement p = place(b, MOST, &best);
    assert_int_equal(p.height_bytes, 3 * MOST);
    assert_true(p.optimal);
}

// ---- limits and failures ------------------------------------------------------------------------

static void the_checker_sees_what_is_wrong(void **state) {
    (void)state;
    rn_place_buffer b[] = {{0, 3, 4, 0}, {2, 5, 4, 4}};
    assert_true(rn_place_is_valid(b, 2, (uint64_t[]){0, 4}, 8));
    assert_false(rn_place_is_valid(b, 2, (uint64_t[]){0, 4}, 9));          // height
    assert_false(rn_place_is_valid(b, 2, (uint64_t[]){0, 4}, 7));          // height
    assert_false(rn_place_is_valid(b, 2, (uint64_t[]){3, 0}, 7));          // overlap
    assert_false(rn_place_is_valid(b, 2, (uint64_t[]){0, 6}, 10));         // alignment
    assert_false(rn_place_is_valid(b, 2, (uint64_t[]){UINT64_MAX, 0}, 4)); // wraps
}

static void nonsense_is_refused(void **state) {
    (void)state;
    rn_placement p;
    rn_place_buffer backwards = {3, 2, 1, 0}, crooked = {0, 1, 1, 3};
    rn_place_buffer huge[] = {{0, 1, INT64_MAX, 0}, {2, 3, 1, 0}};
    assert_fails(RN_INVALID, rn_place(&backwards, 1, NULL, offsets, &p));
    assert_fails(RN_INVALID, rn_place(&crooked, 1, NULL, offsets, &p));
    assert_fails(RN_INVALID, rn_place(huge, 2, NULL, offsets, &p));
    assert_int_equal(place(huge, 1, &best).height_bytes, INT64_MAX);
}

static void make_hard(rn_place_buffer *b, size_t count) {
    random_state = 6;
    make_random(b, count, 40, 1000, false);
}

static rn_place_answer answer_now(void *self) {
    return *(const rn_place_answer *)self;
}

static void stopping_keeps_the_best_and_cancelling_fails(void **state) {
    (void)state;
    rn_place_buffer b[120];
    rn_placement p;
    rn_place_answer answer = RN_PLACE_STOP;
    rn_place_options options = {
        .effort = RN_PLACE_BEST, .check = answer_now, .check_self = &answer};
    make_hard(b, 120);
    p = place(b, 120, &options);
    assert_int_equal(p.height_bytes, p.greedy_bytes);
    answer = RN_PLACE_CANCEL;
    assert_fails(RN_CANCELLED, rn_place(b, 120, &options, offsets, &p));
}

static void node_limit_is_kept(void **state) {
    (void)state;
    rn_place_buffer b[120];
    make_hard(b, 120);
    rn_placement p =
        place(b, 120, &(rn_place_options){.effort = RN_PLACE_BEST, .node_limit = 1000});
    assert_true(p.node_count <= 1001);
}

static void greedy_never_searches(void **state) {
    (void)state;
    rn_place_buffer b[120];
    make_hard(b, 120);
    rn_place_options options = {.effort = RN_PLACE_GREEDY, .capacity_bytes = 1};
    rn_placement p = place(b, 120, &options);
    assert_int_equal(p.node_count, 0);
    assert_int_equal(p.height_bytes, p.greedy_bytes);
}

static void every_failing_allocation_is_a_clean_refusal(void **state) {
    (void)state;
    rn_place_buffer b[60];
    rn_placement p;
    rn_place_options options = {.effort = RN_PLACE_BEST, .node_limit = 2000};
    random_state = 7;
    make_random(b, 60, 20, 1000, false);
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_place_in(&rn_system_allocator, b, 60, &options, offsets, &p);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (!fired) {
            assert_ok(s);
            assert_true(n > 15);
            break;
        }
        assert_fails(RN_NO_MEMORY, s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(buffers_that_never_meet_share_their_bytes),
        cmocka_unit_test(buffers_without_bytes_or_life_are_ignored),
        cmocka_unit_test(the_example_fits_its_bound),
        cmocka_unit_test(optimum_above_the_bound_is_proven),
        cmocka_unit_test(alignment_is_kept),
        cmocka_unit_test(search_agrees_with_trying_everything),
        cmocka_unit_test(search_agrees_with_trying_everything_near_the_edge),
        cmocka_unit_test(random_placements_are_valid),
        cmocka_unit_test(capacity_above_a_height_that_was_found_fits),
        cmocka_unit_test(same_buffers_give_same_offsets),
        cmocka_unit_test(a_thousand_nested_lives_stack),
        cmocka_unit_test(the_checker_sees_what_is_wrong),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(stopping_keeps_the_best_and_cancelling_fails),
        cmocka_unit_test(node_limit_is_kept),
        cmocka_unit_test(greedy_never_searches),
        cmocka_unit_test(every_failing_allocation_is_a_clean_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
