// The map, against a plain list of what was put in.
#include "support.h"
#include "base/arena.h"
#include "base/fault.h"
#include "base/map.h"

static rn_map make(void) {
    rn_map map;
    rn_map_init(&map, &rn_system_allocator);
    return map;
}

static void add(rn_map *map, rn_str key, uint64_t value, bool expect_existing) {
    bool existing = !expect_existing;
    assert_ok(rn_map_add(map, key, value, &existing));
    assert_int_equal(expect_existing, existing);
}

static void expect(const rn_map *map, rn_str key, uint64_t value) {
    uint64_t found = ~value;
    assert_true(rn_map_find(map, key, &found));
    assert_true(value == found);
}

static void empty_map_finds_nothing(void **state) {
    (void)state;
    rn_map map = make();
    uint64_t value = 7;
    const char *keys[1];
    assert_false(rn_map_find(&map, RN_STR("a"), &value));
    assert_false(rn_map_find(&map, (rn_str){NULL, 0}, &value));
    assert_int_equal(7, value);
    assert_int_equal(0, rn_map_keys(&map, keys, 1));
    rn_map_free(&map);
    rn_map_free(&map);
}

static void every_one_of_many_keys_is_found(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    rn_map map = make();
    rn_arena arena;
    rn_arena_init(&arena, &rn_system_allocator, 0);
    static rn_str keys[COUNT];
    char text[64];
    for (size_t i = 0; i < COUNT; i++) {
        int bytes = snprintf(text, sizeof text, "model.layers.%zu.self_attn.q_proj.weight", i);
        void *copy;
        assert_ok(rn_arena_copy(&arena, text, (size_t)bytes, &copy));
        keys[i] = (rn_str){copy, (size_t)bytes};
        add(&map, keys[i], i, false);
    }
    assert_int_equal(COUNT, map.count);
    for (size_t i = 0; i < COUNT; i++) {
        expect(&map, keys[i], i);
        uint64_t value;
        assert_false(rn_map_find(&map, (rn_str){keys[i].data, keys[i].bytes - 1}, &value));
    }
    rn_map_free(&map);
    rn_arena_free_all(&arena);
}

static void second_key_of_a_name_changes_nothing(void **state) {
    (void)state;
    rn_map map = make();
    char other_place[] = "name";
    add(&map, RN_STR("name"), 1, false);
    add(&map, (rn_str){other_place, 4}, 2, true);
    assert_ok(rn_map_add(&map, RN_STR("name"), 3, NULL));
    assert_int_equal(1, map.count);
    expect(&map, RN_STR("name"), 1);
    rn_map_free(&map);
}

static void empty_key_is_a_key_like_any_other(void **state) {
    (void)state;
    rn_map map = make();
    uint64_t value;
    add(&map, RN_STR("a"), 1, false);
    assert_false(rn_map_find(&map, RN_STR(""), &value));
    add(&map, (rn_str){NULL, 0}, 2, false);
    add(&map, RN_STR(""), 3, true);
    expect(&map, RN_STR(""), 2);
    expect(&map, (rn_str){NULL, 0}, 2);
    expect(&map, (rn_str){"xyz", 0}, 2);
    assert_int_equal(2, map.count);
    rn_map_free(&map);
}

static void keys_may_hold_nul_bytes(void **state) {
    (void)state;
    rn_map map = make();
    static const char zeros[20];
    uint64_t value;
    for (size_t bytes = 0; bytes < sizeof zeros; bytes++)
        add(&map, (rn_str){zeros, bytes}, bytes, false);
    for (size_t bytes = 0; bytes < sizeof zeros; bytes++)
        expect(&map, (rn_str){zeros, bytes}, bytes);
    add(&map, (rn_str){"a\0b", 3}, 100, false);
    add(&map, (rn_str){"a\0c", 3}, 101, false);
    assert_false(rn_map_find(&map, RN_STR("a"), &value));
    expect(&map, (rn_str){"a\0b", 3}, 100);
    expect(&map, (rn_str){"a\0c", 3}, 101);
    rn_map_free(&map);
}

static void growth_keeps_every_key_and_stays_three_quarters_full(void **state) {
    (void)state;
    rn_map map = make();
    static char text[3000][8];
    for (size_t i = 0; i < 3000; i++) {
        int bytes = snprintf(text[i], sizeof text[i], "%zu", i);
        add(&map, (rn_str){text[i], (size_t)bytes}, i * i, false);
        assert_int_equal(0, map.capacity & (map.capacity - 1));
        assert_true(map.count * 4 <= map.capacity * 3);
    }
    for (size_t i = 0; i < 3000; i++)
        expect(&map, rn_str_from(text[i]), i * i);
    rn_map_free(&map);
}

static void reserved_room_is_enough(void **state) {
    (void)state;
    rn_map map = make();
    static char text[1000][8];
    assert_ok(rn_map_reserve(&map, 1000));
    size_t capacity = map.capacity;
    for (size_t i = 0; i < 1000; i++) {
        int bytes = snprintf(text[i], sizeof text[i], "%zu", i);
        add(&map, (rn_str){text[i], (size_t)bytes}, i, false);
    }
    assert_int_equal(capacity, map.capacity);
    assert_ok(rn_map_reserve(&map, 1)); // never shrinks
    assert_int_equal(capacity, map.capacity);
    rn_map_free(&map);
}

static void absurd_counts_are_refused(void **state) {
    (void)state;
    rn_map map = make();
    add(&map, RN_STR("kept"), 9, false);
    const size_t counts[] = {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 4, SIZE_MAX / 64};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_fails(RN_NO_MEMORY, rn_map_reserve(&map, counts[i]));
    expect(&map, RN_STR("kept"), 9);
    rn_map_free(&map);
}

static void keys_are_listed_up_to_the_room_there_is(void **state) {
    (void)state;
    rn_map map = make();
    const char *names[] = {"one", "two", "three", "four"}, *listed[8];
    for (size_t i = 0; i < 4; i++)
        add(&map, rn_str_from(names[i]), i, false);
    assert_int_equal(0, rn_map_keys(&map, listed, 0));
    assert_int_equal(2, rn_map_keys(&map, listed, 2));
    assert_int_equal(4, rn_map_keys(&map, listed, 8));
    for (size_t i = 0; i < 4; i++) {
        size_t seen = 0;
        for (size_t j = 0; j < 4; j++)
            seen += listed[j] == names[i];
        assert_int_equal(1, seen);
    }
    rn_map_free(&map);
}

static void failed_growth_loses_nothing(void **state) {
    (void)state;
    static char text[200][8];
    bool fired = true;
    for (uint64_t nth = 1; fired; nth++) {
        rn_map map = make();
        bool added[200];
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        for (size_t i = 0; i < 200; i++) {
            int bytes = snprintf(text[i], sizeof text[i], "%zu", i);
            rn_status s = rn_map_add(&map, (rn_str){text[i], (size_t)bytes}, i, NULL);
            if (s != RN_OK) assert_int_equal(RN_NO_MEMORY, s);
            added[i] = s == RN_OK;
        }
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        for (size_t i = 0; i < 200; i++) {
            uint64_t value;
            assert_int_equal(added[i], rn_map_find(&map, rn_str_from(text[i]), &value));
        }
        assert_int_equal(fired ? 199 : 200, map.count);
        rn_map_free(&map);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
}

static void hash_depends_on_every_byte_the_length_and_the_seed(void **state) {
    (void)state;
    unsigned char data[40] = {0};
    for (size_t bytes = 1; bytes <= sizeof data; bytes++) {
        uint64_t before = rn_hash(data, bytes, 1);
        assert_true(before == rn_hash(data, bytes, 1));
        assert_true(before != rn_hash(data, bytes, 2));
        assert_true(before != rn_hash(data, bytes - 1, 1));
        for (size_t i = 0; i < bytes; i++) {
            data[i] = 1;
            assert_true(before != rn_hash(data, bytes, 1));
            data[i] = 0;
        }
    }
    assert_true(rn_hash(NULL, 0, 1) != rn_hash(NULL, 0, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_map_finds_nothing),
        cmocka_unit_test(every_one_of_many_keys_is_found),
        cmocka_unit_test(second_key_of_a_name_changes_nothing),
        cmocka_unit_test(empty_key_is_a_key_like_any_other),
        cmocka_unit_test(keys_may_hold_nul_bytes),
        cmocka_unit_test(growth_keeps_every_key_and_stays_three_quarters_full),
        cmocka_unit_test(reserved_room_is_enough),
        cmocka_unit_test(absurd_counts_are_refused),
        cmocka_unit_test(keys_are_listed_up_to_the_room_there_is),
        cmocka_unit_test(failed_growth_loses_nothing),
        cmocka_unit_test(hash_depends_on_every_byte_the_length_and_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
