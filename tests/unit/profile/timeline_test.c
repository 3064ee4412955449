// What readers add in any order is sorted, nested and counted.
#include "base/fault.h"
#include "base/str.h"
#include "profile/timeline/radix.h"
#include "profile/timeline.h"
#include "support.h"

// ---- building -----------------------------------------------------------------------------------

static rn_timeline *make(uint32_t lanes) {
    rn_timeline *t = NULL;
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_create("a file", "ration trace", &t));
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    for (uint32_t i = 0; i < lanes; i++)
        assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    return t;
}

static rn_timeline_alloc block(uint64_t begin, uint64_t end, uint64_t address, uint64_t bytes) {
    return (rn_timeline_alloc){
        .begin_ns = begin, .end_ns = end, .address = address, .bytes = bytes};
}

static void add(rn_timeline *t, rn_timeline_alloc alloc) {
    assert_ok(rn_timeline_add_alloc(t, &alloc));
}

static void add_part(rn_timeline *t, rn_timeline_alloc alloc) {
    alloc.inner = true;
    add(t, alloc);
}

static void add_op(rn_timeline *t, uint32_t lane, uint64_t begin, uint64_t end) {
    assert_ok(
        rn_timeline_add_op(t, &(rn_timeline_op){.begin_ns = begin, .end_ns = end, .lane = lane}));
}

static uint32_t random_below(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*state * limit >> 32);
}

// ---- tests --------------------------------------------------------------------------------------

static void radix_sort_is_stable_and_sorts_all_bits(void **state) {
    (void)state;
    enum { N = 5000 };
    static rn_sort_item items[N];
    uint32_t seed = 7;
    for (uint32_t i = 0; i < N; i++)
        items[i].key = random_below(&seed, 1000) * 0x1000000010000001u, items[i].index = i;
    assert_ok(rn_radix_sort(&rn_system_allocator, items, N));
    for (uint32_t i = 1; i < N; i++) {
        assert_true(items[i - 1].key <= items[i].key);
        if (items[i - 1].key == items[i].key) assert_true(items[i - 1].index < items[i].index);
    }
}

static void the_same_texts_have_the_same_number(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    uint32_t a, b, c, d, e;
    assert_ok(rn_timeline_add_name(t, RN_STR("matmul"), RN_STR("layer 1"), RN_STR("f16"), &a));
    assert_ok(rn_timeline_add_name(t, RN_STR("matmul"), RN_STR("layer 2"), RN_STR("f16"), &b));
    assert_ok(rn_timeline_add_name(t, RN_STR("matmul"), RN_STR("layer 1"), RN_STR("f16"), &c));
    assert_ok(rn_timeline_add_name(t, RN_STR(""), RN_STR(""), RN_STR(""), &d));
    assert_ok(rn_timeline_add_name(t, RN_STR("mat\0mul"), RN_STR("layer 1"), RN_STR("f16"), &e));
    assert_int_equal(a, c);
    assert_int_not_equal(a, b);
    assert_int_equal(d, 0);
    assert_string_equal(t->names[b].group, "layer 2");
    assert_string_equal(t->names[b].detail, "f16");
    assert_string_equal(t->names[e].name, "mat"); // a text ends at its NUL
    assert_string_equal(t->names[e].group, "layer 1");
    rn_timeline_destroy(t);
}

static void blocks_are_sorted_by_begin_and_by_end(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    uint32_t seed = 3;
    for (int i = 0; i < 2000; i++) {
        uint64_t begin = random_below(&seed, 1000);
        bool live = random_below(&seed, 10) == 0;
        add(t, block(begin, live ? RN_STILL_LIVE : begin + random_below(&seed, 50), 0, 1));
    }
    assert_ok(rn_timeline_finish(t));
    const uint32_t *by_end = rn_timeline_by_end(t);
    for (uint32_t i = 1; i < t->alloc_count; i++) {
        assert_true(t->allocs[i - 1].begin_ns <= t->allocs[i].begin_ns);
        assert_true(t->allocs[by_end[i - 1]].end_ns <= t->allocs[by_end[i]].end_ns);
    }
    rn_timeline_destroy(t);
}

static void operations_nest_by_their_times(void **state) {
    (void)state;
    rn_timeline *t = make(2);
    add_op(t, 0, 20, 30); // in any order
    add_op(t, 0, 0, 100);
    add_op(t, 0, 10, 50);
    add_op(t, 0, 40, 60); // goes on after the end of 10..50
    add_op(t, 1, 15, 90); // another lane
    add_op(t, 0, 100, 110);
    assert_ok(rn_timeline_finish(t));
    const uint64_t begins[] = {0, 10, 15, 20, 40, 100}, ends[] = {100, 50, 90, 30, 50, 110};
    const uint32_t depths[] = {0, 1, 0, 2, 2, 0};
    const uint32_t parents[] = {RN_NO_INDEX, 0, RN_NO_INDEX, 1, 1, RN_NO_INDEX};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(t->ops[i].begin_ns, begins[i]);
        assert_int_equal(t->ops[i].end_ns, ends[i]);
        assert_int_equal(t->ops[i].depth, depths[i]);
        assert_int_equal(t->ops[i].parent, parents[i]);
    }
    rn_timeline_destroy(t);
}

static void an_operation_without_an_end_is_cut_at_the_last_time_of_its_lane(void **state) {
    (void)state;
    rn_timeline *t = make(2);
    add_op(t, 0, 10, RN_STILL_LIVE);
    add_op(t, 0, 20, RN_STILL_LIVE);
    add_op(t, 0, 30, RN_STILL_LIVE);
    add_op(t, 1, 0, 500);
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(t->ops[1].end_ns, 30);
    assert_true(t->ops[1].unfinished);
    assert_false(t->ops[0].unfinished);
    assert_int_equal(t->ops[3].depth, 2); // begins where the others are cut, and is within them
    assert_int_equal(t->end_ns, 500);
    rn_timeline_destroy(t);
}

static void operations_know_what_was_allocated_in_them(void **state) {
    (void)state;
    rn_timeline *t = make(2);
    add_op(t, 0, 0, 100);
    add_op(t, 0, 10, 50);
    add_op(t, 0, 60, 80);
    add(t, block(5, RN_STILL_LIVE, 0, 1000));
    add(t, block(12, 14, 0, 300));
    add(t, block(20, 70, 0, 200));
    add(t, block(30, 40, 0, 50));
    rn_timeline_alloc other = block(35, 45, 0, 7); // allocated by lane 1, freed by lane 0
    other.lane = 1;
    other.free_lane = 1;
    add(t, other);
    assert_ok(rn_timeline_finish(t));

    const rn_timeline_op *outer = &t->ops[0], *first = &t->ops[1], *second = &t->ops[2];
    assert_int_equal(t->allocs[0].op, 0);
    assert_int_equal(t->allocs[1].op, 1);
    assert_int_equal(t->allocs[4].op, RN_NO_INDEX);
    assert_int_equal(first->alloc_count, 3);
    assert_int_equal(first->free_count, 3);
    assert_int_equal(first->delta_bytes, 200 - 7);
    assert_int_equal(first->allocated_bytes, 550);
    assert_int_equal(first->peak_bytes, 300);
    assert_int_equal(second->delta_bytes, -200);
    assert_int_equal(second->peak_bytes, 0);
    assert_int_equal(outer->alloc_count, 4);
    assert_int_equal(outer->delta_bytes, 1000 - 7);
    assert_int_equal(outer->peak_bytes, 1300);
    rn_timeline_destroy(t);
}

static void what_was_there_before_is_no_operations_doing(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    add_op(t, 0, 0, 100);
    rn_timeline_alloc before = block(0, 50, 0, 1000);
    before.before = true;
    add(t, before);
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(t->allocs[0].op, RN_NO_INDEX);
    assert_int_equal(t->ops[0].alloc_count, 0);
    assert_int_equal(t->ops[0].delta_bytes, -1000); // but that it is freed is
    rn_timeline_destroy(t);
}

static void parts_find_the_block_that_holds_them_at_their_time(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    add(t, block(0, 100, 0x1000, 0x100)); // an arena, charged for two purposes
    rn_timeline_alloc second = block(0, 100, 0x1000, 0x80);
    second.purpose = RN_PURPOSE_KV;
    add(t, second);
    add(t, block(0, RN_STILL_LIVE, 0x1180, 0x100));  // its neighbour, without parts
    add(t, block(200, RN_STILL_LIVE, 0x1000, 0x10)); // the address again, later and smaller
    add_part(t, block(10, 20, 0x1000, 0x80));
    add_part(t, block(15, 30, 0x1170, 0x10));   // in the second purpose's bytes
    add_part(t, block(150, 160, 0x1000, 0x10)); // when nothing is there
    add_part(t, block(210, 220, 0x1008, 0x8));
    add_part(t, block(230, 240, 0x1010, 0x8)); // behind its end
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(t->allocs[3].parent, 0);
    assert_int_equal(t->allocs[4].parent, 0);
    assert_int_equal(t->allocs[5].parent, RN_NO_INDEX);
    assert_int_equal(t->allocs[6].begin_ns, 200);
    assert_int_equal(t->allocs[7].parent, 6);
    assert_int_equal(t->allocs[8].parent, RN_NO_INDEX);
    assert_true(t->allocs[0].is_arena && t->allocs[1].is_arena && t->allocs[6].is_arena);
    assert_false(t->allocs[2].is_arena);

    rn_timeline_level level = rn_timeline_level_at(t, 0, 15);
    assert_int_equal(level.reserved_bytes, 0x280);
    assert_int_equal(level.active_bytes, 0x100 + 0x80 + 0x10);
    assert_int_equal(level.count, 3);
    rn_timeline_destroy(t);
}

static void a_part_may_lie_in_several_blocks_that_touch(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    for (uint64_t i = 0; i < 200; i++) // more than a word of bits
        add(t, block(i, RN_STILL_LIVE, 0x1000 + i * 0x100, 0x100));
    add_part(t, block(300, 400, 0x1080, 150 * 0x100));
    assert_ok(rn_timeline_finish(t));
    for (uint64_t i = 0; i < 200; i++)
        assert_int_equal(t->allocs[i].is_arena, i <= 150);
    assert_int_equal(t->allocs[200].parent, 0);
    assert_int_equal(rn_timeline_level_at(t, 0, 350).active_bytes, (150 + 49) * 0x100);
    assert_int_equal(rn_timeline_level_at(t, 0, 350).reserved_bytes, 200 * 0x100);
    rn_timeline_destroy(t);
}

static void parts_of_what_was_there_before_do_not_count_twice(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    rn_timeline_alloc base = block(0, RN_STILL_LIVE, 0, 1000);
    base.before = true;
    add(t, base);
    add(t, block(5, RN_STILL_LIVE, 0x1000, 50));
    add_part(t, block(10, 20, 0x9000, 300)); // in an arena that was not seen
    add_part(t, block(15, 30, 0x9200, 100));
    add_part(t, block(30, 40, 0x9000, 200));
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(rn_timeline_level_at(t, 0, 17).reserved_bytes, 1050);
    assert_int_equal(rn_timeline_level_at(t, 0, 17).active_bytes, 1050);
    assert_int_equal(rn_timeline_level_at(t, 0, 35).reserved_bytes, 1050);
    assert_int_equal(rn_timeline_level_at(t, 0, 35).active_bytes, 600 + 50 + 200);
    assert_int_equal(t->allocs[t->alloc_count - 1].parent, RN_NO_INDEX);
    rn_timeline_destroy(t);
}

static void parts_of_what_was_released_later_do_not_count_twice(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    rn_timeline_alloc base = block(0, 50, 0, 1000), other = block(0, 12, 0, 500);
    base.before = other.before = true;
    add(t, other); // is gone before the last part comes
    add(t, base);  // the arena, which a program that ends in order releases
    add_part(t, block(10, 20, 0x9000, 300));
    add_part(t, block(30, 40, 0x9000, 200));
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(rn_timeline_level_at(t, 0, 15).reserved_bytes, 1000);
    assert_int_equal(rn_timeline_level_at(t, 0, 15).active_bytes, 1000);
    assert_int_equal(rn_timeline_level_at(t, 0, 45).active_bytes, 700);
    assert_int_equal(rn_timeline_level_at(t, 0, 50).reserved_bytes, 0);
    rn_timeline_destroy(t);
}

static void parts_over_the_same_blocks_find_those_that_are_new(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    for (uint64_t i = 0; i < 3; i++)
        add(t, block(i, i == 1 ? 40 : RN_STILL_LIVE, 0x1000 + i * 0x100, 0x100));
    add_part(t, block(10, 20, 0x1080, 0x200));
    add(t, block(25, 50, 0x1100, 0x80)); // another purpose, at the address of the second
    add_part(t, block(30, 35, 0x1080, 0x200));
    add(t, block(60, RN_STILL_LIVE, 0x1100, 0x100)); // holds nothing
    add_part(t, block(70, 80, 0x1010, 0x10));
    assert_ok(rn_timeline_finish(t));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(t->allocs[i].is_arena);
    assert_int_equal(t->allocs[4].begin_ns, 25);
    assert_true(t->allocs[4].is_arena);
    assert_int_equal(t->allocs[6].begin_ns, 60);
    assert_false(t->allocs[6].is_arena);
    rn_timeline_destroy(t);
}

static void more_bytes_than_can_be_counted_are_refused(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    rn_timeline_alloc huge = block(0, 1, 0x1000, (uint64_t)1 << 48);
    for (int i = 0; i < 1 << 13; i++)
        add(t, huge);
    assert_fails(RN_CORRUPT, rn_timeline_add_alloc(t, &huge));
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, (uint64_t)1 << 61);
    rn_timeline_destroy(t);
}

static void what_is_only_measured_is_no_operations_doing(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    rn_timeline_alloc outside = block(5, RN_STILL_LIVE, 0, 1000);
    outside.purpose = RN_PURPOSE_UNACCOUNTED;
    add_op(t, 0, 0, 100);
    add(t, outside);
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(t->allocs[0].op, RN_NO_INDEX);
    assert_int_equal(t->ops[0].delta_bytes, 0);
    rn_timeline_destroy(t);
}

static void parts_are_found_among_many_blocks(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    uint8_t device;
    assert_ok(rn_timeline_add_device(t, RN_STR("gpu"), &device));
    for (uint64_t i = 0; i < 9000; i++)
        add(t, block(i, RN_STILL_LIVE, 0x10000 + i * 7919 % 9000 * 64, 64));
    for (uint64_t i = 0; i < 9000; i += 100) {
        add_part(t, block(9000 + i, RN_STILL_LIVE, 0x10000 + i * 64 + 63, 1));
        rn_timeline_alloc elsewhere = block(9000 + i, RN_STILL_LIVE, 0x10000 + i * 64, 1);
        elsewhere.device = device;
        add_part(t, elsewhere);
    }
    assert_ok(rn_timeline_finish(t));
    for (uint32_t i = 9000; i < t->alloc_count; i++) {
        const rn_timeline_alloc *part = &t->allocs[i];
        if (part->device == device)
            assert_int_equal(part->parent, RN_NO_INDEX);
        else
            assert_int_equal(t->allocs[part->parent].address, part->address - 63);
    }
    rn_timeline_destroy(t);
}

// The slow way, as a check of the walk.
static uint64_t sum_at(const rn_timeline *t, uint64_t time) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].begin_ns <= time && t->allocs[i].end_ns > time) sum += t->allocs[i].bytes;
    return sum;
}

static void a_walk_gives_the_level_after_each_moment(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    uint32_t seed = 11;
    for (int i = 0; i < 300; i++) {
        uint64_t begin = random_below(&seed, 200);
        add(t, block(begin, begin + 1 + random_below(&seed, 40), 0, random_below(&seed, 999)));
    }
    assert_ok(rn_timeline_finish(t));
    rn_timeline_walk walk;
    uint64_t most = 0, before = 0, steps = 0;
    rn_timeline_walk_begin(&walk, t, RN_DEVICE_ANY);
    for (; rn_timeline_walk_next(&walk); steps++) {
        assert_true(steps == 0 || walk.level.time_ns > before);
        before = walk.level.time_ns;
        assert_int_equal(walk.level.reserved_bytes, sum_at(t, walk.level.time_ns));
        most = walk.level.reserved_bytes > most ? walk.level.reserved_bytes : most;
    }
    assert_int_equal(walk.level.reserved_bytes, 0);
    assert_int_equal(walk.level.count, 0);
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, most);
    assert_int_equal(rn_timeline_peak(t, 3).reserved_bytes, 0);
    rn_timeline_destroy(t);
}

static void what_lives_no_time_counts_for_the_peak(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    add(t, block(5, 10, 0, 100));
    add(t, block(10, 10, 0, 70));
    add(t, block(10, 20, 0, 50));
    assert_ok(rn_timeline_finish(t));
    rn_timeline_level peak = rn_timeline_peak(t, 0);
    assert_int_equal(peak.reserved_bytes, 120);
    assert_int_equal(peak.time_ns, 10);
    assert_int_equal(rn_timeline_level_at(t, 0, 10).reserved_bytes, 120);
    rn_timeline_walk walk;
    const uint64_t levels[] = {100, 120, 50, 0}, times[] = {5, 10, 10, 20};
    rn_timeline_walk_begin(&walk, t, 0);
    for (int i = 0; i < 4; i++) {
        assert_true(rn_timeline_walk_next(&walk));
        assert_int_equal(walk.level.reserved_bytes, levels[i]);
        assert_int_equal(walk.level.time_ns, times[i]);
    }
    assert_false(rn_timeline_walk_next(&walk));
    rn_timeline_destroy(t);
}

static void the_largest_are_listed_first(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    for (uint64_t i = 0; i < 500; i++)
        add(t, block(i, RN_STILL_LIVE, 0, i * 7919 % 500));
    assert_ok(rn_timeline_finish(t));
    uint32_t out[600];
    assert_int_equal(rn_timeline_live_at(t, 0, 499, out, 600), 500);
    for (uint32_t i = 0; i < 500; i++)
        assert_int_equal(t->allocs[out[i]].bytes, 499 - i);
    assert_int_equal(rn_timeline_live_at(t, 0, 499, out, 7), 500);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(t->allocs[out[i]].bytes, 499 - i);
    assert_int_equal(rn_timeline_live_at(t, 0, 9, NULL, 0), 10);
    rn_timeline_destroy(t);
}

static void nonsense_is_refused_or_made_harmless(void **state) {
    (void)state;
    rn_timeline *t = make(1);
    rn_timeline_alloc alloc = block(0, 1, 0, 1);
    alloc.device = RN_DEVICE_MAX;
    assert_fails(RN_CORRUPT, rn_timeline_add_alloc(t, &alloc));
    alloc = block(0, 1, 0, 1);
    alloc.purpose = RN_PURPOSE_COUNT;
    assert_fails(RN_CORRUPT, rn_timeline_add_alloc(t, &alloc));
    alloc = block(0, 1, 0, 1);
    alloc.lane = 9;
    assert_fails(RN_CORRUPT, rn_timeline_add_alloc(t, &alloc));
    alloc = block(0, 1, 0, UINT64_MAX);
    assert_fails(RN_CORRUPT, rn_timeline_add_alloc(t, &alloc));
    assert_fails(RN_CORRUPT, rn_timeline_add_op(t, &(rn_timeline_op){.name = 1}));
    assert_fails(RN_CORRUPT, rn_timeline_add_mark(t, &(rn_timeline_mark){.kind = RN_MARK_COUNT}));
    add(t, block(UINT64_MAX - 1, 3, UINT64_MAX, 5));
    add_op(t, 0, UINT64_MAX, 0);
    assert_ok(rn_timeline_finish(t));
    assert_true(t->allocs[0].begin_ns <= t->allocs[0].end_ns);
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, 5);
    rn_timeline_destroy(t);
}

static void an_empty_timeline_answers_with_nothing(void **state) {
    (void)state;
    rn_timeline *t = make(0);
    assert_ok(rn_timeline_finish(t));
    assert_int_equal(rn_timeline_peak(t, RN_DEVICE_ANY).reserved_bytes, 0);
    assert_int_equal(rn_timeline_live_at(t, 0, 0, NULL, 0), 0);
    rn_timeline_destroy(t);
    rn_timeline_destroy(NULL);
}

static rn_status build_some(void) {
    rn_timeline *t = NULL;
    uint8_t device;
    uint32_t lane, name;
    RN_TRY(rn_timeline_create("a file", "ration trace", &t));
    rn_status s = rn_timeline_add_device(t, RN_STR("host"), &device);
    if (s == RN_OK) s = rn_timeline_add_lane(t, RN_STR("main"), false, &lane);
    if (s == RN_OK) s = rn_timeline_add_name(t, RN_STR("x"), RN_STR("y"), RN_STR(""), &name);
    for (uint64_t i = 0; i < 100 && s == RN_OK; i++) {
        rn_timeline_alloc alloc = block(100 - i, 100 + i, i / 2 * 64 + 1, 64);
        alloc.inner = i & 1;
        s = rn_timeline_add_alloc(t, &alloc);
        rn_timeline_op op = {.begin_ns = 100 - i, .end_ns = RN_STILL_LIVE};
        if (s == RN_OK) s = rn_timeline_add_op(t, &op);
    }
    if (s == RN_OK) s = rn_timeline_add_mark(t, &(rn_timeline_mark){.time_ns = 5});
    if (s == RN_OK) s = rn_timeline_finish(t);
    rn_timeline_destroy(t);
    return s;
}

static void building_survives_every_refused_allocation(void **state) {
    (void)state;
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = build_some();
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s != RN_OK, fired);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes, held);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(radix_sort_is_stable_and_sorts_all_bits),
        cmocka_unit_test(the_same_texts_have_the_same_number),
        cmocka_unit_test(blocks_are_sorted_by_begin_and_by_end),
        cmocka_unit_test(operations_nest_by_their_times),
        cmocka_unit_test(an_operation_without_an_end_is_cut_at_the_last_time_of_its_lane),
        cmocka_unit_test(operations_know_what_was_allocated_in_them),
        cmocka_unit_test(what_was_there_before_is_no_operations_doing),
        cmocka_unit_test(parts_find_the_block_that_holds_them_at_their_time),
        cmocka_unit_test(a_part_may_lie_in_several_blocks_that_touch),
        cmocka_unit_test(parts_of_what_was_there_before_do_not_count_twice),
        cmocka_unit_test(parts_of_what_was_released_later_do_not_count_twice),
        cmocka_unit_test(parts_over_the_same_blocks_find_those_that_are_new),
        cmocka_unit_test(more_bytes_than_can_be_counted_are_refused),
        cmocka_unit_test(what_is_only_measured_is_no_operations_doing),
        cmocka_unit_test(parts_are_found_among_many_blocks),
        cmocka_unit_test(a_walk_gives_the_level_after_each_moment),
        cmocka_unit_test(what_lives_no_time_counts_for_the_peak),
        cmocka_unit_test(the_largest_are_listed_first),
        cmocka_unit_test(nonsense_is_refused_or_made_harmless),
        cmocka_unit_test(an_empty_timeline_answers_with_nothing),
        cmocka_unit_test(building_survives_every_refused_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
