// labels: threads
// PyTorch's allocator over a driver of our own: limits, peaks, streams, refusals.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/torch_allocator.h"
#include "base/fault.h"

#include <ration/memory.h>

#include <pthread.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static fake_cuda *fake;
static int stream_a, stream_b, stream_c; // a stream is an address
#define A ((void *)&stream_a)
#define B ((void *)&stream_b)
#define C ((void *)&stream_c)

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    return fake ? 0 : -1;
}

static int each(void **state) {
    (void)state;
    fake->capacity_bytes = 1024 * MIB;
    fake->device_count = 2;
    fake->has_vmm = true;
    fake->fail_at = 0;
    return rn_torch_cuda_set_limit(0, 0) == RN_OK ? 0 : -1;
}

static uint64_t host_bytes(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
}

// Whatever a test did, everything goes back.
static int clear(void **state) {
    (void)state;
    fake->finish(A), fake->finish(B), fake->finish(C), fake->finish(NULL);
    rn_torch_cuda_clear();
    bool clean = fake->used_bytes == 0 && fake->reserved_address_bytes == 0 &&
                 fake->event_count == 0 && fake->context_count == 0 && fake->pushed_count == 0 &&
                 fake->violations == 0 && rn_ledger_is_valid() && host_bytes() == 0;
    return clean ? 0 : -1;
}

static char *take(size_t bytes, void *stream) {
    char *p = rn_torch_cuda_malloc((ssize_t)bytes, 0, stream);
    if (!p) fail_msg("%zu bytes: %s", bytes, rn_last_error()->message);
    assert_true(rn_torch_cuda_is_valid());
    return p;
}

static void give(void *p, size_t bytes, void *stream) {
    rn_torch_cuda_free(p, (ssize_t)bytes, 0, stream);
    assert_true(rn_torch_cuda_is_valid());
}

static rn_torch_cuda_stats stats_of(int device) {
    rn_torch_cuda_stats stats;
    assert_ok(rn_torch_cuda_get_stats(device, &stats));
    return stats;
}

static void what_is_asked_is_counted_to_the_byte(void **state) {
    (void)state;
    assert_int_equal(0, stats_of(0).alloc_count);
    char *a = take(1000, A), *b = take(5 * MIB + 1, A), *c = take(7, B);
    a[999] = 1, b[5 * MIB] = 2, c[6] = 3; // it is really there
    rn_torch_cuda_stats stats = stats_of(0);
    assert_int_equal(1000 + 5 * MIB + 1 + 7, stats.allocated_bytes);
    give(b, 5 * MIB + 1, A);
    char *d = take(3 * MIB, A);
    stats = stats_of(0);
    assert_int_equal(1000 + 7 + 3 * MIB, stats.allocated_bytes);
    assert_int_equal(1000 + 5 * MIB + 1 + 7, stats.peak_allocated_bytes);
    assert_int_equal(4, stats.alloc_count);
    assert_int_equal(1, stats.free_count);
    assert_int_equal(fake->used_bytes, stats.reserved_bytes);
    assert_true(stats.peak_reserved_bytes >= stats.reserved_bytes);
    assert_ok(rn_torch_cuda_reset_peak(0));
    assert_int_equal(stats.allocated_bytes, stats_of(0).peak_allocated_bytes);
    give(a, 1000, A), give(c, 7, B), give(d, 3 * MIB, A);
    assert_int_equal(0, stats_of(0).allocated_bytes);
    assert_int_equal(UINT64_MAX, stats_of(0).limit_bytes);
}

static void odd_requests_are_answered(void **state) {
    (void)state;
    assert_null(rn_torch_cuda_malloc(0, 0, A));
    assert_null(rn_torch_cuda_malloc(-1, 0, A));
    assert_null(rn_torch_cuda_malloc(1, 99, A));
    assert_int_equal(RN_INVALID, rn_last_error()->status);
    assert_null(rn_torch_cuda_malloc(1, 5, A)); // the driver has two
    assert_int_equal(RN_INVALID, rn_last_error()->status);
    assert_null(rn_torch_cuda_malloc((ssize_t)(SIZE_MAX >> 1), 0, A));
    assert_int_equal(RN_NO_MEMORY, rn_last_error()->status);
    rn_torch_cuda_free(NULL, 0, 0, A);
    rn_torch_cuda_free(&stream_a, 1, 0, A); // not ours
    rn_torch_cuda_free(&stream_a, 1, -1, A);
    rn_torch_cuda_record_stream(&stream_a, B);
    rn_torch_cuda_begin_pool(0, 1, 0, NULL);
    assert_int_equal(RN_UNSUPPORTED, rn_last_error()->status);
    rn_torch_cuda_stats stats;
    assert_fails(RN_INVALID, rn_torch_cuda_get_stats(-1, &stats));
    assert_fails(RN_INVALID, rn_torch_cuda_reset_peak(99));
    assert_fails(RN_INVALID, rn_torch_cuda_set_limit(99, 1));
}

static void devices_are_counted_apart(void **state) {
    (void)state;
    void *p = rn_torch_cuda_malloc(300, 1, NULL), *q = take(500, NULL);
    assert_int_equal(300, stats_of(1).allocated_bytes);
    assert_int_equal(500, stats_of(0).allocated_bytes);
    rn_device_id id;
    assert_ok(rn_device_add("cuda:1", &id));
    assert_int_equal(stats_of(1).reserved_bytes, rn_ledger_total(id).now_bytes);
    rn_torch_cuda_free(p, 300, 1, NULL);
    give(q, 500, NULL);
}

static void a_limit_holds_and_says_what_it_is(void **state) {
    (void)state;
    assert_ok(rn_torch_cuda_set_limit(0, 20 * MIB));
    char *a = take(10 * MIB, A);
    assert_null(rn_torch_cuda_malloc((ssize_t)(11 * MIB), 0, A));
    assert_int_equal(RN_OVER_BUDGET, rn_last_error()->status);
    assert_non_null(strstr(rn_last_error()->message, "cuda:0"));
    rn_torch_cuda_stats stats = stats_of(0);
    assert_int_equal(1, stats.oom_count);
    assert_int_equal(20 * MIB, stats.limit_bytes);
    char *b = take(10 * MIB, A); // to the last byte
    assert_int_equal(20 * MIB, stats_of(0).peak_reserved_bytes);
    give(a, 10 * MIB, A), give(b, 10 * MIB, A);
    a = take(20 * MIB, A);
    give(a, 20 * MIB, A);
    assert_int_equal(20 * MIB, stats_of(0).peak_reserved_bytes);
    rn_torch_cuda_memory_fraction(0.5, 0);
    assert_int_equal(512 * MIB, stats_of(0).limit_bytes);
    rn_torch_cuda_memory_fraction(1, 0);
    assert_int_equal(UINT64_MAX, stats_of(0).limit_bytes);
}

static void reset_gives_back_what_is_free(void **state) {
    (void)state;
    char *a = take(3 * MIB, A), *b = take(100 * MIB, A), *c = take(50 * MIB, B);
    give(b, 100 * MIB, A), give(c, 50 * MIB, B);
    assert_true(fake->used_bytes >= 153 * MIB);
    rn_torch_cuda_reset();
    assert_int_equal(4 * MIB, fake->used_bytes);
    assert_int_equal(4 * MIB, stats_of(0).reserved_bytes);
    a[0] = 1;
    give(a, 3 * MIB, A);
    rn_torch_cuda_reset();
    assert_int_equal(0, fake->used_bytes);
}

static void a_stream_uses_its_own_memory_again_at_once(void **state) {
    (void)state;
    char *a = take(4 * MIB, A);
    fake->launch(A, (uintptr_t)a, 4 * MIB);
    give(a, 4 * MIB, A);
    uint64_t waits = fake->synchronize_count;
    assert_ptr_equal(a, take(4 * MIB, A)); // its kernel is still to come, and that is fine
    assert_int_equal(waits, fake->synchronize_count);
    give(a, 4 * MIB, A);
}

static void another_stream_gets_it_only_after_waiting(void **state) {
    (void)state;
    fake->capacity_bytes = 16 * MIB;
    char *a = take(12 * MIB, A);
    fake->launch(A, (uintptr_t)a, 12 * MIB);
    give(a, 12 * MIB, A);
    char *small = take(2 * MIB, B); // beside it: nothing is waited for
    assert_true(fake->is_busy((uintptr_t)a, 1));
    assert_false(fake->is_busy((uintptr_t)small, 2 * MIB));
    char *b = take(12 * MIB, B); // only with A's memory
    assert_false(fake->is_busy((uintptr_t)a, 1));
    b[12 * MIB - 1] = 1;
    give(b, 12 * MIB, B), give(small, 2 * MIB, B);
}

static void a_recorded_stream_delays_the_free(void **state) {
    (void)state;
    char *a = take(4 * MIB, A);
    rn_torch_cuda_record_stream(a, B);
    rn_torch_cuda_record_stream(a, B); // once is enough
    rn_torch_cuda_record_stream(a, A); // its own
    fake->launch(B, (uintptr_t)a, 4 * MIB);
    give(a, 4 * MIB, A);
    assert_int_equal(0, stats_of(0).allocated_bytes);
    assert_int_equal(4 * MIB, stats_of(0).pending_bytes);
    char *other = take(4 * MIB, A);
    assert_ptr_not_equal(a, other);
    fake->launch(B, (uintptr_t)other, 1); // later work does not matter
    give(other, 4 * MIB, A);
    assert_int_equal(1, fake->event_count);
    fake->finish(B);
    assert_int_equal(0, stats_of(0).pending_bytes);
    assert_int_equal(0, fake->event_count);
}

static void every_recorded_stream_is_waited_for(void **state) {
    (void)state;
    char *a = take(MIB, A);
    rn_torch_cuda_record_stream(a, B);
    rn_torch_cuda_record_stream(a, C);
    fake->launch(B, (uintptr_t)a, MIB);
    fake->launch(C, (uintptr_t)a, MIB);
    give(a, MIB, A);
    fake->finish(B);
    assert_int_equal(MIB, stats_of(0).pending_bytes);
    fake->finish(C);
    assert_int_equal(0, stats_of(0).pending_bytes);
}

static void reset_waits_for_recorded_streams(void **state) {
    (void)state;
    char *a = take(8 * MIB, A);
    rn_torch_cuda_record_stream(a, B);
    fake->launch(B, (uintptr_t)a, 8 * MIB);
    give(a, 8 * MIB, A);
    rn_torch_cuda_reset();
    assert_int_equal(0, fake->used_bytes);
    assert_false(fake->is_busy((uintptr_t)a, 8 * MIB));
}

static void many_frees_wait_in_any_order(void **state) {
    (void)state;
    char *p[40];
    for (int i = 0; i < 40; i++) {
        p[i] = take(64 * KIB, A);
        rn_torch_cuda_record_stream(p[i], i % 2 ? B : C);
        fake->launch(i % 2 ? B : C, (uintptr_t)p[i], 64 * KIB);
        give(p[i], 64 * KIB, A);
    }
    assert_int_equal(40 * 64 * KIB, stats_of(0).pending_bytes);
    fake->finish(C);
    uint64_t left = stats_of(0).pending_bytes;
    assert_true(left >= 20 * 64 * KIB && left < 40 * 64 * KIB);
    fake->finish(B);
    for (int i = 0; i < 3; i++)
        (void)stats_of(0);
    assert_int_equal(0, stats_of(0).pending_bytes);
    assert_int_equal(0, fake->event_count);
}

static void when_events_fail_streams_are_waited_for(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) { // creating it, recording it
        char *a = take(MIB, A);
        rn_torch_cuda_record_stream(a, B);
        fake->launch(B, (uintptr_t)a, MIB);
        fake->fail_at = n;
        give(a, MIB, A);
        assert_false(fake->is_busy((uintptr_t)a, MIB));
        assert_int_equal(0, stats_of(0).pending_bytes);
    }
}

typedef struct heard {
    uint64_t outer, parts, no_memory, refusals;
} heard;

static void listen(void *self, const rn_event *event) {
    heard *h = self;
    if (event->account.device == RN_DEVICE_HOST) return;
    if (event->kind == RN_EVENT_CHARGE) h->outer += event->bytes;
    if (event->kind == RN_EVENT_RELEASE) h->outer -= event->bytes;
    if (event->kind == RN_EVENT_PART_CHARGE) h->parts += event->bytes;
    if (event->kind == RN_EVENT_PART_RELEASE) h->parts -= event->bytes;
    h->no_memory += event->kind == RN_EVENT_NO_MEMORY;
    h->refusals += event->kind == RN_EVENT_REFUSAL;
}

static void a_recording_hears_reserved_and_handed_out(void **state) {
    (void)state;
    heard h = {0};
    rn_ledger_listen(listen, &h);
    char *a = take(3 * MIB, A), *b = take(100, A);
    assert_int_equal(3 * MIB + 100, h.parts);
    assert_int_equal(fake->used_bytes, h.outer);
    give(a, 3 * MIB, A), give(b, 100, A);
    assert_int_equal(0, h.parts);
    rn_torch_cuda_reset();
    assert_int_equal(0, h.outer);
    assert_int_equal(0, h.no_memory);
    assert_null(rn_torch_cuda_malloc((ssize_t)(2048 * MIB), 0, A));
    assert_int_equal(RN_NO_MEMORY, rn_last_error()->status);
    assert_int_equal(1, h.no_memory);
    assert_int_equal(1, stats_of(0).oom_count);
    rn_ledger_listen(NULL, NULL);
}

static void without_virtual_memory_it_works_alike(void **state) {
    (void)state;
    fake->has_vmm = false;
    fake->capacity_bytes = 100 * MIB;
    char *a = take(60 * MIB, A);
    fake->launch(A, (uintptr_t)a, MIB);
    give(a, 60 * MIB, A);
    char *b = take(60 * MIB, B);
    b[60 * MIB - 1] = 1;
    size_t bytes = 0;
    assert_ptr_equal(b, rn_torch_cuda_base_alloc(b + 12345, &bytes));
    assert_int_equal(64 * MIB, bytes);
    assert_ptr_equal(&stream_a, rn_torch_cuda_base_alloc(&stream_a, &bytes));
    assert_int_equal(0, bytes);
    give(b, 60 * MIB, B);
    rn_torch_cuda_reset();
    assert_int_equal(0, fake->used_bytes);
}

// A piece of life with every kind of call; false where something was refused.
static bool live(void) {
    bool served = true;
    char *p[24];
    for (size_t i = 0; i < 24; i++) {
        void *own = i % 3 ? A : B;
        p[i] = rn_torch_cuda_malloc((ssize_t)((i % 5 + 1) * MIB), 0, own);
        if (!p[i]) served = false;
        if (p[i] && i % 4 == 0) rn_torch_cuda_record_stream(p[i], C);
        if (p[i]) fake->launch(i % 4 ? own : C, (uintptr_t)p[i], 1);
        if (i % 3 == 2) rn_torch_cuda_free(p[i - 1], 0, 0, A), p[i - 1] = NULL;
        if (i == 12) rn_torch_cuda_reset();
    }
    for (size_t i = 0; i < 24; i++)
        rn_torch_cuda_free(p[i], 0, 0, A);
    assert_true(rn_torch_cuda_is_valid());
    assert_int_equal(0, stats_of(0).allocated_bytes);
    rn_torch_cuda_reset();
    assert_int_equal(0, fake->used_bytes);
    assert_int_equal(0, fake->violations);
    return served;
}

static void every_host_allocation_may_fail(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        (void)live();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_torch_cuda_clear();
        assert_int_equal(0, host_bytes());
        assert_int_equal(0, fake->event_count);
        assert_int_equal(0, fake->reserved_address_bytes);
        if (!fired) break;
    }
    assert_true(live());
}

static void every_driver_call_may_fail(void **state) {
    (void)state;
    fake->calls = 0;
    assert_true(live());
    uint64_t calls = fake->calls;
    for (uint64_t n = 1; n <= calls; n++) {
        rn_torch_cuda_clear();
        fake->fail_at = n;
        (void)live();
        assert_int_equal(0, fake->fail_at);
    }
}

// Each thread writes its own mark over its blocks and finds it there again.
static void *churn(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    void *stream = (void *)(uintptr_t)(8 * (seed % 3 + 1)); // some share a stream
    struct {
        char *p;
        size_t bytes;
    } held[16] = {{0}};
    for (int i = 0; i < 400; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t slot = seed >> 60, bytes = (seed >> 33) % (512 * KIB) + 1;
        char mark = (char)(uintptr_t)argument;
        if (held[slot].p) {
            if (held[slot].p[0] != mark || held[slot].p[held[slot].bytes - 1] != mark)
                return &stream_a;
            if (i % 7 == 0) rn_torch_cuda_record_stream(held[slot].p, A);
            rn_torch_cuda_free(held[slot].p, (ssize_t)held[slot].bytes, 0, stream);
        }
        held[slot].bytes = bytes;
        held[slot].p = rn_torch_cuda_malloc((ssize_t)bytes, 0, stream);
        if (!held[slot].p) return &stream_a;
        held[slot].p[0] = held[slot].p[bytes - 1] = mark;
        if (i % 100 == 99) rn_torch_cuda_reset();
    }
    for (size_t i = 0; i < 16; i++)
        rn_torch_cuda_free(held[i].p, 0, 0, stream);
    return NULL;
}

static void threads_share_it(void **state) {
    (void)state;
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
    for (size_t i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_true(rn_torch_cuda_is_valid());
    assert_int_equal(0, stats_of(0).allocated_bytes);
    rn_torch_cuda_reset();
    assert_int_equal(0, fake->used_bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, each, clear)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_asked_is_counted_to_the_byte),
        TEST(odd_requests_are_answered),
        TEST(devices_are_counted_apart),
        TEST(a_limit_holds_and_says_what_it_is),
        TEST(reset_gives_back_what_is_free),
        TEST(a_stream_uses_its_own_memory_again_at_once),
        TEST(another_stream_gets_it_only_after_waiting),
        TEST(a_recorded_stream_delays_the_free),
        TEST(every_recorded_stream_is_waited_for),
        TEST(reset_waits_for_recorded_streams),
        TEST(many_frees_wait_in_any_order),
        TEST(when_events_fail_streams_are_waited_for),
        TEST(a_recording_hears_reserved_and_handed_out),
        TEST(without_virtual_memory_it_works_alike),
        TEST(every_host_allocation_may_fail),
        TEST(every_driver_call_may_fail),
        TEST(threads_share_it),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
