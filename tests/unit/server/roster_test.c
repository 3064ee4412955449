// roster_test.c — shares of a room, and who leaves for whom.
#include "server/roster.h"
#include "support.h"

static rn_roster roster;

static void begin(uint32_t count, const uint64_t *needs, uint64_t room) {
    rn_roster_init(&roster);
    for (uint32_t i = 0; i < count; i++)
        roster.entries[rn_roster_add(&roster, NULL)].need_bytes = needs[i];
    rn_roster_divide(&roster, room);
}

static uint64_t held(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < roster.count; i++)
        sum += roster.entries[i].held ? roster.entries[i].share_bytes : 0;
    return sum;
}

static void all_fit(void **state) {
    (void)state;
    begin(3, (uint64_t[]){100, 200, 300}, 900);
    assert_int_equal(roster.entries[0].share_bytes, 200);
    assert_int_equal(roster.entries[2].share_bytes, 400);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(rn_roster_enter(&roster, i, 1, 1));
    assert_int_equal(held(), 900);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(rn_roster_must_leave(&roster, i, 0, 8));
    rn_roster_free(&roster);
}

static void one_at_a_time(void **state) {
    (void)state;
    begin(2, (uint64_t[]){600, 700}, 1000);
    assert_int_equal(roster.entries[0].share_bytes, 1000); // it has no company anyway
    assert_true(rn_roster_enter(&roster, 0, 1, 10));
    assert_false(rn_roster_enter(&roster, 1, 20, 20));
    assert_true(roster.entries[0].leaves);
    assert_false(rn_roster_must_leave(&roster, 0, 15, 8)); // it came before the one that waits
    assert_true(rn_roster_must_leave(&roster, 0, 25, 8));
    assert_true(rn_roster_must_leave(&roster, 0, 0, 8));
    rn_roster_leave(&roster, 0);
    assert_true(rn_roster_enter(&roster, 1, 20, 30));
    assert_int_equal(held(), 1000);
    // What had come before it was loaded is served, although another waits longer; not for ever.
    assert_false(rn_roster_enter(&roster, 0, 25, 31));
    assert_false(rn_roster_must_leave(&roster, 1, 28, 2));
    assert_true(rn_roster_must_leave(&roster, 1, 40, 2));
    for (int i = 0; i < 4; i++)
        rn_roster_note(&roster, 1, 32);
    assert_true(rn_roster_must_leave(&roster, 1, 28, 2));
    // Whoever waited has gone: it stays.
    rn_roster_withdraw(&roster, 0);
    assert_false(rn_roster_must_leave(&roster, 1, 40, 2));
    assert_false(roster.entries[1].leaves);
    rn_roster_free(&roster);
}

static void used_longest_ago_leaves(void **state) {
    (void)state;
    begin(4, (uint64_t[]){300, 300, 300, 500}, 1000);
    assert_int_equal(roster.entries[0].share_bytes, 300);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(rn_roster_enter(&roster, i, 1, 1 + i));
    rn_roster_note(&roster, 0, 50);
    assert_false(rn_roster_enter(&roster, 3, 60, 60));
    assert_true(roster.entries[1].leaves && roster.entries[2].leaves && !roster.entries[0].leaves);
    rn_roster_leave(&roster, 1);
    assert_false(rn_roster_enter(&roster, 3, 60, 61)); // still one too many
    assert_false(rn_roster_enter(&roster, 1, 70, 70)); // it would fit, but 3 has waited longer
    rn_roster_leave(&roster, 2);
    assert_true(rn_roster_enter(&roster, 3, 60, 71));
    assert_true(held() <= 1000);
    rn_roster_free(&roster);
}

static void too_large_ones(void **state) {
    (void)state;
    begin(2, (uint64_t[]){5000, 100}, 1000);
    assert_int_equal(roster.entries[0].share_bytes, 1000); // streams the rest
    assert_int_equal(roster.entries[1].share_bytes, 1000); // nor has the other company
    begin(2, (uint64_t[]){10, 10}, 1000);
    roster.entries[1].alone = true;
    rn_roster_divide(&roster, 1000);
    assert_int_equal(roster.entries[1].share_bytes, 1000);
    assert_true(rn_roster_enter(&roster, 0, 1, 1));
    assert_false(rn_roster_enter(&roster, 1, 2, 2));
    rn_roster_free(&roster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fit),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(used_longest_ago_leaves),
        cmocka_unit_test(too_large_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
