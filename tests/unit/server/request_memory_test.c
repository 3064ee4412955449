// labels: threads
#include "support.h"

#include "server/request_memory.h"

#include <pthread.h>

static void a_room_gives_up_to_its_total_and_no_byte_more(void **state) {
    (void)state;
    rn_request_memory memory;
    rn_request_memory_init(&memory, 100);
    assert_true(rn_request_memory_take(&memory, 60));
    assert_false(rn_request_memory_take(&memory, 41));
    assert_true(rn_request_memory_take(&memory, 40));
    assert_false(rn_request_memory_take(&memory, 1));
    assert_true(rn_request_memory_take(&memory, 0));
    rn_request_memory_release(&memory, 60);
    assert_int_equal(memory.taken_bytes, 40);
    assert_int_equal(memory.peak_bytes, 100);
}

static void a_number_that_wraps_is_refused(void **state) {
    (void)state;
    rn_request_memory memory;
    rn_request_memory_init(&memory, UINT64_MAX);
    assert_true(rn_request_memory_take(&memory, UINT64_MAX - 1));
    assert_false(rn_request_memory_take(&memory, 2));
    assert_true(rn_request_memory_take(&memory, 1));
}

static void *take_and_give(void *self) {
    rn_request_memory *memory = self;
    for (int i = 0; i < 20000; i++)
        if (rn_request_memory_take(memory, 7)) rn_request_memory_release(memory, 7);
    return NULL;
}

static void threads_never_take_more_than_there_is(void **state) {
    (void)state;
    rn_request_memory memory;
    pthread_t threads[4];
    rn_request_memory_init(&memory, 20);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &memory), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(memory.taken_bytes, 0);
    assert_in_range(memory.peak_bytes, 7, 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_room_gives_up_to_its_total_and_no_byte_more),
        cmocka_unit_test(a_number_that_wraps_is_refused),
        cmocka_unit_test(threads_never_take_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
