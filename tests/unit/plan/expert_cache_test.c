// The cache rule for experts: who stays, who goes, and that it is the same every time.
#include "support.h"

#include "plan/expert_replay.h"

typedef struct fixture {
    rn_arena memory;
    rn_expert_cache cache;
    rn_expert_miss misses[64];
    uint32_t count;
} fixture;

static void begin(fixture *f, uint32_t experts, uint32_t slots) {
    rn_arena_init(&f->memory, &rn_system_allocator, 0);
    assert_int_equal(rn_expert_cache_init(&f->memory, experts, slots, &f->cache), RN_OK);
}

static void step(fixture *f, const int32_t *ids, uint64_t count) {
    assert_int_equal(rn_expert_cache_step(&f->cache, ids, count, f->misses, &f->count), RN_OK);
    assert_true(rn_expert_cache_is_valid(&f->cache));
}

static void free_slots_are_filled_and_then_hit(void **state) {
    (void)state;
    fixture f;
    begin(&f, 8, 4);
    step(&f, (int32_t[]){5, 2}, 2);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.misses[0].expert, 2); // by rising id
    assert_int_equal(f.misses[1].expert, 5);
    assert_true(f.misses[0].slot != f.misses[1].slot && f.misses[0].slot < 4);
    step(&f, (int32_t[]){2, 5}, 2);
    assert_int_equal(f.count, 0);
    assert_int_equal(rn_expert_cache_needed(&f.cache), 2);
    rn_arena_free_all(&f.memory);
}

static void the_lowest_count_goes_and_what_runs_stays(void **state) {
    (void)state;
    fixture f;
    begin(&f, 8, 3);
    step(&f, (int32_t[]){0}, 1);
    step(&f, (int32_t[]){0}, 1);
    step(&f, (int32_t[]){1}, 1);
    step(&f, (int32_t[]){2}, 1);
    uint32_t slot_of_1 = f.cache.slot_of[1];
    step(&f, (int32_t[]){3}, 1); // 1 is older than 2; 0 was wanted twice
    assert_int_equal(f.misses[0].slot, slot_of_1);
    assert_int_equal(f.cache.slot_of[1], RN_NO_SLOT);
    step(&f, (int32_t[]){2, 4}, 2); // 3 is the newest, but 2 runs and 0 has more
    assert_int_equal(f.cache.slot_of[3], RN_NO_SLOT);
    assert_true(f.cache.slot_of[2] != RN_NO_SLOT && f.cache.slot_of[0] != RN_NO_SLOT);
    rn_arena_free_all(&f.memory);
}

static void with_too_few_slots_newcomers_pass_through(void **state) {
    (void)state;
    fixture f;
    begin(&f, 8, 2);
    step(&f, (int32_t[]){0, 1, 2, 3}, 4);
    uint32_t admitted = 0;
    for (uint32_t i = 0; i < f.count; i++)
        admitted += f.misses[i].slot != RN_NO_SLOT;
    assert_int_equal(f.count, 4);
    assert_int_equal(admitted, 2);
    rn_arena_free_all(&f.memory);
    begin(&f, 8, 0); // none at all: everything passes through
    step(&f, (int32_t[]){0, 7}, 2);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.misses[1].slot, RN_NO_SLOT);
    rn_arena_free_all(&f.memory);
}

// Of a prompt that needs more than there are slots for, what most of its rows chose stays; what a
// run needs is not displaced by what it needs, too, however often.
static void a_prompt_leaves_what_most_of_its_rows_chose(void **state) {
    (void)state;
    fixture f;
    begin(&f, 4, 2);
    step(&f, (int32_t[]){0, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 1, 2, 3}, 14);
    assert_true(f.cache.slot_of[2] != RN_NO_SLOT && f.cache.slot_of[3] != RN_NO_SLOT);
    for (int i = 0; i < 20; i++)
        step(&f, (int32_t[]){1, 2, 3, 1, 1, 1, 1}, 7);
    assert_true(f.cache.slot_of[2] != RN_NO_SLOT && f.cache.slot_of[3] != RN_NO_SLOT);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.misses[0].slot, RN_NO_SLOT);
    step(&f, (int32_t[]){1}, 1); // needed alone, it comes in
    assert_true(f.cache.slot_of[1] != RN_NO_SLOT);
    rn_arena_free_all(&f.memory);
}

static void ids_that_are_none_are_refused_and_change_nothing(void **state) {
    (void)state;
    fixture f;
    begin(&f, 8, 4);
    step(&f, (int32_t[]){1}, 1);
    int32_t bad[][2] = {{0, 8}, {-1, 0}, {0, INT32_MAX}};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(rn_expert_cache_step(&f.cache, bad[i], 2, f.misses, &f.count), RN_INVALID);
    assert_int_equal(f.cache.needed[1], 1);
    assert_int_equal(f.cache.slot_of[0], RN_NO_SLOT);
    assert_int_equal(rn_expert_cache_init(&f.memory, 0, 0, &f.cache), RN_INVALID);
    assert_int_equal(rn_expert_cache_init(&f.memory, 4, 5, &f.cache), RN_INVALID);
    rn_arena_free_all(&f.memory);
}

// A thousand times the half-life: counts stay finite, and a slot that was dropped is free.
static void long_runs_and_failed_reads(void **state) {
    (void)state;
    fixture f;
    begin(&f, 64, 8);
    uint32_t seed = 1;
    for (int i = 0; i < 12000; i++) {
        int32_t ids[4];
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            ids[k] = (int32_t)(seed >> 26);
        }
        step(&f, ids, 4);
        for (uint32_t e = 0; e < 64; e++)
            assert_true(f.cache.counts[e] >= 0 && f.cache.counts[e] < 0x1p+600);
    }
    uint32_t expert = f.cache.expert_in[3];
    rn_expert_cache_drop(&f.cache, 3);
    assert_true(rn_expert_cache_is_valid(&f.cache));
    step(&f, (int32_t[]){(int32_t)expert}, 1);
    assert_int_equal(f.misses[0].slot, 3);
    rn_arena_free_all(&f.memory);
}

static void more_slots_never_miss_more_on_a_skewed_text(void **state) {
    (void)state;
    enum { TOKENS = 200, LAYERS = 3, K = 4, EXPERTS = 32 };
    static int32_t ids[TOKENS * LAYERS * K];
    uint32_t seed = 7, before = UINT32_MAX;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t draw = seed >> 16 & 0xff;
        ids[i] = (int32_t)((draw * draw >> 11) / K * K + i % K); // distinct within a token
    }
    rn_expert_choices choices = {ids, TOKENS, LAYERS, K, EXPERTS};
    for (uint32_t s = K; s <= EXPERTS; s += K) {
        rn_expert_replay replay, again;
        uint32_t slots[LAYERS] = {s, s, s};
        assert_int_equal(rn_expert_replay_run(&rn_system_allocator, &choices, slots, 50, &replay),
                         RN_OK);
        assert_int_equal(rn_expert_replay_run(&rn_system_allocator, &choices, slots, 50, &again),
                         RN_OK);
        assert_int_equal(replay.needed, 150 * LAYERS * K);
        assert_int_equal(replay.misses, again.misses);
        assert_true(replay.misses <= before);
        before = (uint32_t)replay.misses;
    }
}

static void with_a_slot_for_each_only_the_first_use_misses(void **state) {
    (void)state;
    int32_t ids[] = {0, 1, 2, 0, 3, 1, 0, 3}; // 4 tokens of 2
    rn_expert_choices choices = {ids, 4, 1, 2, 4};
    rn_expert_replay replay;
    assert_int_equal(
        rn_expert_replay_run(&rn_system_allocator, &choices, (uint32_t[]){4}, 0, &replay), RN_OK);
    assert_int_equal(replay.needed, 8);
    assert_int_equal(replay.misses, 4);
    assert_int_equal(replay.counted, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_slots_are_filled_and_then_hit),
        cmocka_unit_test(the_lowest_count_goes_and_what_runs_stays),
        cmocka_unit_test(with_too_few_slots_newcomers_pass_through),
        cmocka_unit_test(a_prompt_leaves_what_most_of_its_rows_chose),
        cmocka_unit_test(ids_that_are_none_are_refused_and_change_nothing),
        cmocka_unit_test(long_runs_and_failed_reads),
        cmocka_unit_test(more_slots_never_miss_more_on_a_skewed_text),
        cmocka_unit_test(with_a_slot_for_each_only_the_first_use_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
