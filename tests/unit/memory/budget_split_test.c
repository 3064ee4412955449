// A budget for the whole process: what is usable, what is needed for it, who has which share.
#include "support.h"
#include "base/alloc.h"
#include "base/str.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"
#include "memory/sort.h"

#include <string.h>
#include <sys/mman.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const rn_account io = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};

static int begin(void **state) {
    (void)state;
    return rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT) == RN_OK ? 0 : -1;
}

static int end(void **state) {
    begin(state);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 0);
    return rn_ledger_now(RN_DEVICE_HOST) == 0 && rn_ledger_is_valid() ? 0 : -1;
}

static uint64_t hard_limit(void) {
    uint64_t soft, hard;
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    return hard;
}

// ---- usable and needed
// ---------------------------------------------------------------------------

static void what_is_needed_is_enough_and_a_page_less_is_not(void **state) {
    (void)state;
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 50; bytes += bytes / 3 + 4097) {
        uint64_t needed = rn_budget_needed(bytes);
        assert_int_equal(needed % RN_PAGE_BYTES, 0);
        assert_true(rn_budget_usable(needed) >= bytes);
        assert_true(rn_budget_usable(needed - RN_PAGE_BYTES) < bytes);
    }
}

static void a_reserve_is_left_of_every_budget(void **state) {
    (void)state;
    assert_int_equal(rn_budget_usable(0), 0);
    assert_int_equal(rn_budget_usable(1 * MIB), 0);
    for (uint64_t total = 8 * MIB; total < (uint64_t)1 << 50; total *= 2) {
        assert_true(total - rn_budget_usable(total) >= 4 * MIB);
        assert_true(total - rn_budget_usable(total) > total / 512); // page tables
    }
    assert_true(rn_budget_usable(RN_NO_LIMIT) == RN_NO_LIMIT);
    assert_true(rn_budget_needed(RN_NO_LIMIT) == RN_NO_LIMIT);
    assert_true(rn_budget_needed(RN_NO_LIMIT - 1) == RN_NO_LIMIT);
}

// ---- the limit
// -----------------------------------------------------------------------------------

static void a_process_budget_limits_the_ledger_to_what_is_usable(void **state) {
    (void)state;
    rn_budget_shares shares = {.total_bytes = 8 * GIB};
    assert_ok(rn_budget_split(&shares));
    assert_ok(rn_budget_set_process(8 * GIB));
    assert_int_equal(hard_limit(), rn_budget_usable(8 * GIB));
    assert_ok(rn_budget_charge(io, NULL, shares.plan_bytes)); // to the last byte
    rn_ledger_release(io, NULL, shares.plan_bytes);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(io, NULL, shares.plan_bytes + 1));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(io, NULL, 8 * GIB - 4 * MIB));
    const rn_refusal *refusal = rn_last_refusal();
    assert_int_equal(refusal->budget_bytes, 8 * GIB); // the user's, not what is usable of it
    assert_true(refusal->at_least);
    assert_true(rn_budget_usable(refusal->smallest_budget_bytes) >=
                rn_ledger_now(RN_DEVICE_HOST) + 8 * GIB - 4 * MIB);
    assert_non_null(strstr(rn_last_error()->hint, "at least"));
}

static void a_tiny_budget_leaves_room_for_headers(void **state) {
    (void)state;
    assert_ok(rn_budget_set_process(1));
    assert_ok(rn_budget_charge(io, NULL, 8 * MIB));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(io, NULL, 1));
    rn_ledger_release(io, NULL, 8 * MIB);
}

static void a_limit_of_the_caller_stays(void **state) {
    (void)state;
    assert_ok(rn_budget_limit_process(1 * MIB, 2 * MIB));
    assert_int_equal(hard_limit(), 2 * MIB);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, 3 * MIB)); // and then it is no process's any more
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(io, NULL, 4 * MIB));
    assert_int_equal(rn_last_refusal()->budget_bytes, 3 * MIB);
}

// ---- shares
// --------------------------------------------------------------------------------------

static void shares_add_up(void **state) {
    (void)state;
    rn_budget_shares shares = {.total_bytes = 8 * GIB};
    assert_ok(rn_budget_charge(io, NULL, 3 * MIB));
    assert_ok(rn_budget_split(&shares));
    assert_int_equal(shares.held_bytes, 3 * MIB);
    assert_int_equal(shares.process_bytes % (4 * MIB), 0);
    uint64_t outside = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    assert_int_equal(shares.process_bytes, outside); // what is planned fits the ledger's limit
    assert_int_equal(shares.process_bytes + shares.held_bytes + shares.reserve_bytes +
                         shares.plan_bytes,
                     8 * GIB);
    shares.total_bytes = 1;
    assert_ok(rn_budget_split(&shares));
    assert_int_equal(shares.plan_bytes, 0);
    rn_ledger_release(io, NULL, 3 * MIB);
}

static void the_process_share_follows_growth_and_not_noise(void **state) {
    (void)state;
    rn_budget_shares shares = {.total_bytes = 8 * GIB};
    assert_ok(rn_budget_split(&shares));
    uint64_t first = shares.process_bytes;
    for (int i = 0; i < 4; i++) {
        assert_ok(rn_budget_split(&shares));
        assert_int_equal(shares.process_bytes, first);
    }
    size_t bytes = 258 * MIB;
    char *driver = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(driver != MAP_FAILED);
    memset(driver, 1, bytes);
    assert_ok(rn_budget_split(&shares));
    munmap(driver, bytes);
    assert_true(shares.process_bytes >= bytes && shares.process_bytes > first);
}

// ---- sorting
// -------------------------------------------------------------------------------------

static int by_value(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void sorting_takes_memory_of_the_budget(void **state) {
    (void)state;
    uint64_t items[64];
    for (uint64_t i = 0; i < 64; i++)
        items[i] = i * 37 % 64;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, sizeof items - 1));
    assert_fails(RN_OVER_BUDGET, rn_sort(items, 64, sizeof *items, by_value));
    assert_int_equal(items[1], 37);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, sizeof items));
    assert_ok(rn_sort(items, 64, sizeof *items, by_value));
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(items[i], i);
    assert_ok(rn_sort(NULL, 0, sizeof *items, by_value));
}

static void without_a_budget_less_than_what_is_there_is_used(void **state) {
    (void)state;
    rn_process_info info;
    uint64_t bytes;
    assert_ok(rn_process_read(&info));
    assert_ok(rn_budget_measure(&bytes));
    assert_true(bytes > 0 && bytes < rn_process_whole_bytes(&info));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_budget_less_than_what_is_there_is_used, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_is_needed_is_enough_and_a_page_less_is_not, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_reserve_is_left_of_every_budget, begin, end),
        cmocka_unit_test_setup_teardown(a_process_budget_limits_the_ledger_to_what_is_usable, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_tiny_budget_leaves_room_for_headers, begin, end),
        cmocka_unit_test_setup_teardown(a_limit_of_the_caller_stays, begin, end),
        cmocka_unit_test_setup_teardown(shares_add_up, begin, end),
        cmocka_unit_test_setup_teardown(the_process_share_follows_growth_and_not_noise, begin, end),
        cmocka_unit_test_setup_teardown(sorting_takes_memory_of_the_budget, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
