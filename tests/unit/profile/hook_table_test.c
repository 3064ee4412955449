// labels: threads
// The table of live blocks: against a plain list, without memory, from many threads, across a fork.
#include "support.h"
#include "base/fault.h"
#include "memory/account.h"
#include "profile/hook/hook_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ADDRESSES = 4096 };

static int clear(void **state) {
    (void)state;
    rn_hook_table_clear();
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes == 0 ? 0 : -1;
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void sum_up(void *self, uint64_t address, rn_hook_block block) {
    (void)address;
    *(uint64_t *)self += block.bytes;
}

// Blocks of a few places, so that homes collide and gaps close over the tables' ends.
static void equals_a_plain_list_over_a_long_random_run(void **state) {
    (void)state;
    static uint64_t list[ADDRESSES]; // bytes, 0: not there
    uint64_t seed = 1, live = 0, sum = 0;
    for (int step = 0; step < 300000; step++) {
        uint64_t at = next(&seed) % ADDRESSES, address = 0x7f0000000000 + 64 * at;
        rn_hook_block block = {next(&seed) % 1000 + 1, (uint8_t)(at % RN_PURPOSE_COUNT), 0},
                      old = {0};
        if (next(&seed) % 2) {
            rn_hook_put put = rn_hook_table_put(address, block, false, &old);
            assert_int_equal(list[at] ? RN_HOOK_REPLACED : RN_HOOK_NEW, put);
            assert_int_equal(list[at], old.bytes);
            live += !list[at];
            sum += block.bytes - list[at];
            list[at] = block.bytes;
        } else {
            bool there = rn_hook_table_take(address, &old);
            assert_int_equal(list[at] != 0, there);
            assert_int_equal(list[at], old.bytes);
            if (there) assert_int_equal(at % RN_PURPOSE_COUNT, old.purpose);
            live -= there;
            sum -= list[at];
            list[at] = 0;
        }
        assert_false(list[at] == 0 && rn_hook_table_find(address, &old));
    }
    uint64_t walked = 0;
    rn_hook_table_walk(sum_up, &walked);
    assert_int_equal(sum, walked);
    assert_int_equal(live, rn_hook_table_count().live);
    memset(list, 0, sizeof list);
}

static void what_is_kept_is_not_replaced(void **state) {
    (void)state;
    rn_hook_block old = {0};
    assert_int_equal(RN_HOOK_NEW, rn_hook_table_put(64, (rn_hook_block){10, 1, 1}, true, &old));
    assert_int_equal(RN_HOOK_REPLACED,
                     rn_hook_table_put(64, (rn_hook_block){20, 2, 2}, true, &old));
    assert_int_equal(10, old.bytes);
    assert_true(rn_hook_table_find(64, &old));
    assert_int_equal(10, old.bytes);
    assert_int_equal(1, rn_hook_table_count().total);
}

static void a_label_stays_beside_the_purpose(void **state) {
    (void)state;
    rn_hook_block block = {0};
    assert_false(rn_hook_table_label(64, 5, &block));
    (void)rn_hook_table_put(64, (rn_hook_block){RN_HOOK_MOST_BYTES, 1, 1}, false, &block);
    assert_true(rn_hook_table_label(64, 5, &block));
    assert_true(rn_hook_table_take(64, &block));
    assert_true(block.bytes == RN_HOOK_MOST_BYTES && block.purpose == 1 && block.label == 5);
}

static uint64_t put_many(uint64_t count) {
    uint64_t missed = 0;
    for (uint64_t i = 1; i <= count; i++) {
        rn_hook_block old;
        missed +=
            rn_hook_table_put(64 * i, (rn_hook_block){8, 0, 0}, false, &old) == RN_HOOK_NO_MEMORY;
    }
    return missed;
}

static void one_growth_that_fails_is_tried_again_and_nothing_is_missed(void **state) {
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        rn_hook_table_clear();
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        uint64_t missed = put_many(8000);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(0, missed);
        assert_int_equal(8000, rn_hook_table_count().live);
        if (!fired) break;
    }
}

static void blocks_without_memory_to_remember_them_are_missed_and_counted(void **state) {
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, rn_ledger_total(RN_DEVICE_HOST).now_bytes + 1));
    uint64_t missed = put_many(8000);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
    assert_true(missed > 1000);
    assert_int_equal(missed, rn_hook_table_count().missed);
    assert_int_equal(8000 - missed, rn_hook_table_count().live);
    rn_hook_block old;
    for (uint64_t i = 1; i <= 8000; i++)
        missed -= !rn_hook_table_take(64 * i, &old);
    assert_int_equal(0, missed);
}

static void *churn(void *argument) {
    uint64_t mine = (uint64_t)(uintptr_t)argument;
    for (uint64_t round = 0; round < 200; round++) {
        rn_hook_block old;
        for (uint64_t i = 0; i < 100; i++)
            if (rn_hook_table_put((i * 2 + mine + 1) * 16, (rn_hook_block){i + 1, 0, 0}, false,
                                  &old) != RN_HOOK_NEW)
                return argument;
        for (uint64_t i = 0; i < 100; i++)
            if (!rn_hook_table_take((i * 2 + mine + 1) * 16, &old) || old.bytes != i + 1)
                return argument;
    }
    return NULL;
}

static void two_threads_do_not_disturb_each_other(void **state) {
    (void)state;
    pthread_t thread;
    void *failed;
    assert_int_equal(0, pthread_create(&thread, NULL, churn, (void *)1));
    assert_null(churn((void *)0));
    assert_int_equal(0, pthread_join(thread, &failed));
    assert_null(failed);
    assert_int_equal(0, rn_hook_table_count().live);
}

static void *churn_for_ever(void *argument) {
    while (!*(atomic_bool *)argument)
        (void)churn((void *)1);
    return NULL;
}

static void a_child_can_use_every_part_whatever_threads_were_doing(void **state) {
    (void)state;
    atomic_bool stop = false;
    pthread_t thread;
    rn_hook_block old;
    assert_int_equal(0, pthread_create(&thread, NULL, churn_for_ever, &stop));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (uint64_t a = 1; a < 4096; a++)
                (void)rn_hook_table_take(a * 16, &old);
            _exit(rn_hook_table_count().live == 0 && !churn((void *)0) && !churn((void *)1) ? 0
                                                                                            : 1);
        }
        int status;
        assert_int_equal(child, waitpid(child, &status, 0));
        assert_int_equal(0, status);
    }
    stop = true;
    pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(equals_a_plain_list_over_a_long_random_run, clear),
        cmocka_unit_test_teardown(what_is_kept_is_not_replaced, clear),
        cmocka_unit_test_teardown(a_label_stays_beside_the_purpose, clear),
        cmocka_unit_test_teardown(one_growth_that_fails_is_tried_again_and_nothing_is_missed,
                                  clear),
        cmocka_unit_test_teardown(blocks_without_memory_to_remember_them_are_missed_and_counted,
                                  clear),
        cmocka_unit_test_teardown(two_threads_do_not_disturb_each_other, clear),
        cmocka_unit_test_teardown(a_child_can_use_every_part_whatever_threads_were_doing, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
