// labels: threads
// A queue's promises, the same for both kinds: order, poison, fences, cancelling, revival.
#include "support.h"

#include <ration/memory.h>

#include "base/fault.h"
#include "device/device.h"

#include <sched.h>
#include <stdatomic.h>

typedef rn_status (*make_queue)(rn_executor executor, const _Atomic bool *cancel, rn_queue **out);
static const make_queue kinds[] = {rn_queue_inline_create, rn_queue_thread_create};

typedef struct journal {
    uint32_t items[1024];
    uint32_t count;
    uint32_t fail_at; // the item that fails
} journal;

static rn_status write_item(void *self, uint32_t index) {
    journal *j = self;
    if (j->fail_at && index == j->fail_at) return rn_fail(RN_DEVICE, "item %u is to fail", index);
    j->items[j->count++] = index;
    return RN_OK;
}

static void commands_run_in_the_order_of_their_submission(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *queue;
        journal j = {0};
        assert_ok(kinds[kind](rn_host_executor, NULL, &queue));
        for (uint32_t i = 0; i < 1000; i++) // more than a ring holds
            rn_queue_call(queue, write_item, &j, i);
        assert_ok(rn_queue_finish(queue));
        assert_int_equal(j.count, 1000);
        for (uint32_t i = 0; i < 1000; i++)
            assert_int_equal(j.items[i], i);
        rn_queue_destroy(queue);
    }
}

static rn_status double_it(const rn_call *call) {
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;
    for (uint64_t i = 0; i < rn_tensor_elements(&call->inputs[0]); i++)
        y[i] = 2 * x[i];
    return RN_OK;
}

static void copies_zeros_and_launches_do_what_they_say(void **state) {
    (void)state;
    const rn_kernel kernel = {double_it, NULL};
    for (int kind = 0; kind < 2; kind++) {
        float host[4] = {1, 2, 3, 4}, device[8], back[8];
        rn_tensor tensors[2] = {{device, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(4)},
                                {device + 4, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(4)}};
        rn_call call = {
            .inputs = tensors, .outputs = tensors + 1, .input_count = 1, .output_count = 1};
        rn_queue *queue;
        assert_ok(kinds[kind](rn_host_executor, NULL, &queue));
        rn_queue_zero(queue, device, sizeof device);
        rn_queue_copy_in(queue, device, host, sizeof host);
        rn_queue_launch(queue, &kernel, &call);
        rn_queue_zero(queue, device, 2 * sizeof(float));
        rn_queue_copy_out(queue, back, device, sizeof back);
        assert_ok(rn_queue_finish(queue));
        const float expected[8] = {0, 0, 3, 4, 2, 4, 6, 8};
        assert_memory_equal(back, expected, sizeof expected);
        rn_queue_destroy(queue);
    }
}

static void the_first_failure_poisons_the_queue_until_it_is_reset(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *queue;
        journal j = {.fail_at = 3};
        assert_ok(kinds[kind](rn_host_executor, NULL, &queue));
        for (uint32_t i = 1; i <= 5; i++)
            rn_queue_call(queue, write_item, &j, i);
        assert_fails(RN_DEVICE, rn_queue_finish(queue));
        assert_string_equal(rn_last_error()->message, "item 3 is to fail");
        assert_int_equal(j.count, 2); // 4 and 5 were skipped
        (void)rn_fail(RN_IO, "something else");
        assert_fails(RN_DEVICE, rn_queue_finish(queue)); // the story is kept
        assert_string_equal(rn_last_error()->message, "item 3 is to fail");
        rn_queue_reset(queue);
        rn_queue_call(queue, write_item, &j, 6);
        assert_ok(rn_queue_finish(queue));
        assert_int_equal(j.items[2], 6);
        rn_queue_destroy(queue);
    }
}

static void a_poisoned_queue_still_reaches_its_fences(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *queue;
        rn_fence fence;
        journal j = {.fail_at = 1};
        rn_fence_init(&fence);
        assert_ok(kinds[kind](rn_host_executor, NULL, &queue));
        rn_queue_call(queue, write_item, &j, 1);
        rn_queue_signal(queue, &fence);
        const rn_error_info *story = rn_fence_await(&fence, 1);
        assert_non_null(story);
        assert_int_equal(story->status, RN_DEVICE);
        assert_fails(RN_DEVICE, rn_queue_finish(queue));
        rn_queue_destroy(queue);
        rn_fence_free(&fence);
    }
}

typedef struct notes {
    uint32_t healthy, poisoned;
} notes;

static void take_note(void *self, uint32_t index, bool poisoned) {
    notes *n = self;
    *(poisoned ? &n->poisoned : &n->healthy) += index;
}

static void notes_are_taken_in_order_and_in_a_poisoned_queue_too(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *queue;
        journal j = {.fail_at = 2};
        notes n = {0};
        assert_ok(kinds[kind](rn_host_executor, NULL, &queue));
        rn_queue_note(queue, take_note, &n, 1);
        rn_queue_call(queue, write_item, &j, 2);
        rn_queue_note(queue, take_note, &n, 10);
        rn_queue_call(queue, write_item, &j, 3);
        assert_fails(RN_DEVICE, rn_queue_finish(queue));
        assert_int_equal(0, j.count);
        assert_int_equal(1, n.healthy);
        assert_int_equal(10, n.poisoned);
        rn_queue_destroy(queue);
    }
}

static void poison_goes_through_a_fence_to_who_waits(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *first, *second;
        rn_fence fence;
        journal a = {.fail_at = 7}, b = {0};
        rn_fence_init(&fence);
        assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &first));
        assert_ok(kinds[kind](rn_host_executor, NULL, &second));
        rn_queue_call(first, write_item, &a, 7);
        rn_queue_signal(first, &fence);
        rn_queue_wait(second, &fence);
        rn_queue_call(second, write_item, &b, 1); // from what never arrived
        assert_fails(RN_DEVICE, rn_queue_finish(second));
        assert_string_equal(rn_last_error()->message, "item 7 is to fail");
        assert_int_equal(b.count, 0);
        rn_queue_destroy(second);
        rn_queue_destroy(first);
        rn_fence_free(&fence);
    }
}

// Two queues hand a number back and forth; without fences they would trample it.
static rn_status add_one(void *self, uint32_t index) {
    uint64_t *number = self;
    if (*number != index)
        return rn_fail(RN_INTERNAL, "%llu instead of %u", (unsigned long long)*number, index);
    ++*number;
    return RN_OK;
}

static void fences_order_two_threads(void **state) {
    (void)state;
    rn_queue *queues[2];
    rn_fence fences[2];
    uint64_t number = 0;
    for (int i = 0; i < 2; i++) {
        rn_fence_init(&fences[i]);
        assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &queues[i]));
    }
    for (uint32_t i = 0; i < 2000; i++) {
        rn_queue_wait(queues[i % 2], &fences[(i + 1) % 2]);
        rn_queue_call(queues[i % 2], add_one, &number, i);
        rn_queue_signal(queues[i % 2], &fences[i % 2]);
    }
    for (int i = 0; i < 2; i++)
        assert_ok(rn_queue_finish(queues[i]));
    assert_int_equal(number, 2000);
    for (int i = 0; i < 2; i++) {
        rn_queue_destroy(queues[i]);
        rn_fence_free(&fences[i]);
    }
}

static void a_fence_that_was_never_signalled_holds_nobody_up(void **state) {
    (void)state;
    rn_queue *queue;
    rn_fence fence;
    rn_fence_init(&fence);
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &queue));
    rn_queue_wait(queue, &fence);
    assert_ok(rn_queue_finish(queue));
    rn_queue_destroy(queue);
    rn_fence_free(&fence);
}

static rn_status raise_flag(void *self, uint32_t index) {
    (void)index;
    atomic_store((_Atomic bool *)self, true);
    return RN_OK;
}

static void cancelling_is_seen_before_the_next_command(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        _Atomic bool cancel = false;
        rn_queue *queue;
        journal j = {0};
        assert_ok(kinds[kind](rn_host_executor, &cancel, &queue));
        rn_queue_call(queue, write_item, &j, 1);
        rn_queue_call(queue, raise_flag, &cancel, 0);
        rn_queue_call(queue, write_item, &j, 2);
        assert_fails(RN_CANCELLED, rn_queue_finish(queue));
        assert_int_equal(j.count, 1);
        atomic_store(&cancel, false);
        assert_fails(RN_CANCELLED, rn_queue_finish(queue)); // until it is reset
        rn_queue_reset(queue);
        rn_queue_call(queue, write_item, &j, 3);
        assert_ok(rn_queue_finish(queue));
        rn_queue_destroy(queue);
    }
}

static rn_status wait_for_flag(void *self, uint32_t index) {
    (void)index;
    while (!atomic_load((_Atomic bool *)self))
        sched_yield();
    return RN_OK;
}

static void destroying_skips_what_has_not_begun(void **state) {
    (void)state;
    _Atomic bool go = false;
    rn_queue *queue;
    rn_fence fence;
    journal j = {0};
    rn_fence_init(&fence);
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &queue));
    rn_queue_call(queue, wait_for_flag, &go, 0);
    for (uint32_t i = 0; i < 100; i++)
        rn_queue_call(queue, write_item, &j, i);
    rn_queue_signal(queue, &fence);
    atomic_store(&go, true);
    rn_queue_destroy(queue);
    assert_true(j.count <= 100);
    assert_int_equal(fence.done, 1);
    rn_fence_free(&fence);
}

static void a_queue_that_cannot_be_made_leaves_nothing(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (int kind = 0; kind < 2; kind++) {
        rn_queue *queue;
        rn_fault_arm(RN_FAULT_ALLOC, 1);
        assert_fails(RN_NO_MEMORY, kinds[kind](rn_host_executor, NULL, &queue));
        assert_null(queue);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_run_in_the_order_of_their_submission),
        cmocka_unit_test(copies_zeros_and_launches_do_what_they_say),
        cmocka_unit_test(the_first_failure_poisons_the_queue_until_it_is_reset),
        cmocka_unit_test(a_poisoned_queue_still_reaches_its_fences),
        cmocka_unit_test(notes_are_taken_in_order_and_in_a_poisoned_queue_too),
        cmocka_unit_test(poison_goes_through_a_fence_to_who_waits),
        cmocka_unit_test(fences_order_two_threads),
        cmocka_unit_test(a_fence_that_was_never_signalled_holds_nobody_up),
        cmocka_unit_test(cancelling_is_seen_before_the_next_command),
        cmocka_unit_test(destroying_skips_what_has_not_begun),
        cmocka_unit_test(a_queue_that_cannot_be_made_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
