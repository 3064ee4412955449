// The queue: turns between clients, order within one, leaving from anywhere.
#include "support.h"

#include "base/fault.h"
#include "server/job_queue.h"

#include <ration/memory.h>

enum { MOST = 8 };

static rn_job jobs[16];

static rn_job_queue make(void) {
    rn_job_queue queue;
    assert_ok(rn_job_queue_init(&queue, MOST));
    memset(jobs, 0, sizeof jobs);
    for (size_t i = 0; i < 16; i++)
        jobs[i].entered_ns = 100 + i;
    return queue;
}

static void push(rn_job_queue *queue, size_t index, uint64_t client) {
    jobs[index].client = client;
    assert_true(rn_job_queue_push(queue, &jobs[index]));
}

static void expect_order(rn_job_queue *queue, const char *order) {
    for (; *order; order++) {
        assert_ptr_equal(rn_job_queue_front(queue), &jobs[*order - '0']);
        assert_ptr_equal(rn_job_queue_pop(queue), &jobs[*order - '0']);
    }
    assert_null(rn_job_queue_front(queue));
    assert_null(rn_job_queue_pop(queue));
    assert_int_equal(queue->count, 0);
}

static void clients_take_turns(void **state) {
    (void)state;
    rn_job_queue queue = make();
    for (size_t i = 0; i < 4; i++)
        push(&queue, i, 'a');
    push(&queue, 4, 'b');
    push(&queue, 5, 'b');
    push(&queue, 6, 'c');
    expect_order(&queue, "0461523");
    rn_job_queue_free(&queue);
}

static void a_client_that_comes_again_stands_behind_the_others(void **state) {
    (void)state;
    rn_job_queue queue = make();
    push(&queue, 0, 'a');
    push(&queue, 1, 'b');
    assert_ptr_equal(rn_job_queue_pop(&queue), &jobs[0]);
    push(&queue, 2, 'a');
    expect_order(&queue, "12");
    rn_job_queue_free(&queue);
}

static void a_full_queue_says_so_and_takes_again_once_one_left(void **state) {
    (void)state;
    rn_job_queue queue = make();
    for (size_t i = 0; i < MOST; i++)
        push(&queue, i, i);
    jobs[8].client = 3;
    assert_false(rn_job_queue_push(&queue, &jobs[8]));
    assert_int_equal(queue.count, MOST);
    assert_true(rn_job_queue_remove(&queue, &jobs[7]));
    assert_true(rn_job_queue_push(&queue, &jobs[8]));
    expect_order(&queue, "01234568"); // its client had its turn with 3
    rn_job_queue_free(&queue);
}

static void one_can_leave_from_anywhere(void **state) {
    (void)state;
    for (size_t gone = 0; gone < 5; gone++) {
        rn_job_queue queue = make();
        char order[8], *at = order;
        for (size_t i = 0; i < 5; i++)
            push(&queue, i, 'a');
        assert_true(rn_job_queue_remove(&queue, &jobs[gone]));
        assert_false(rn_job_queue_remove(&queue, &jobs[gone]));
        push(&queue, 5, 'a'); // the end of the list is right
        for (size_t i = 0; i < 6; i++)
            if (i != gone) *at++ = (char)('0' + i);
        *at = 0;
        expect_order(&queue, order);
        rn_job_queue_free(&queue);
    }
}

static void those_that_came_too_long_ago_are_found(void **state) {
    (void)state;
    rn_job_queue queue = make();
    push(&queue, 3, 'a');
    push(&queue, 1, 'b');
    push(&queue, 2, 'b');
    assert_null(rn_job_queue_pop_older(&queue, 101));
    assert_ptr_equal(rn_job_queue_pop_older(&queue, 103), &jobs[1]);
    assert_ptr_equal(rn_job_queue_pop_older(&queue, 103), &jobs[2]);
    assert_null(rn_job_queue_pop_older(&queue, 103));
    expect_order(&queue, "3");
    rn_job_queue_free(&queue);
}

static void without_memory_there_is_a_status_and_no_leak(void **state) {
    (void)state;
    rn_job_queue queue;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_job_queue_init(&queue, MOST));
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    rn_job_queue_free(&queue);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(a_client_that_comes_again_stands_behind_the_others),
        cmocka_unit_test(a_full_queue_says_so_and_takes_again_once_one_left),
        cmocka_unit_test(one_can_leave_from_anywhere),
        cmocka_unit_test(those_that_came_too_long_ago_are_found),
        cmocka_unit_test(without_memory_there_is_a_status_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
