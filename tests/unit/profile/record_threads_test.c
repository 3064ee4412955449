// labels: threads
// The recorder under threads: every event is there, peaks are exact, and starting and stopping meet
// threads in the middle of what they do.
#include "record_reading.h"
#include "memory/ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static const rn_account kv = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};
static char path[512];

static int begin(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s", test_path("threads.rntrace"));
    return 0;
}

static int end(void **state) {
    (void)state;
    return rn_profile_stop() == RN_OK && rn_ledger_is_valid() ? 0 : -1;
}

static void start(rn_profile_options options) {
    options.path = path;
    options.leave_signals = true;
    assert_ok(rn_profile_start(&options));
}

enum { THREADS = 4, EVENTS = 5000 };

static void run_threads(void *(*fn)(void *), size_t count) {
    pthread_t threads[16];
    uint64_t numbers[16];
    for (size_t i = 0; i < count; i++) {
        numbers[i] = i + 1;
        assert_int_equal(0, pthread_create(&threads[i], NULL, fn, &numbers[i]));
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(0, pthread_join(threads[i], NULL));
}

// ---- every event -------------------------------------------------------------------------------

static void *count_up(void *self) {
    uint64_t number = *(const uint64_t *)self;
    char name[32];
    snprintf(name, sizeof name, "counter %d", (int)number);
    rn_profile_thread_name(name);
    for (uint64_t i = 1; i <= EVENTS; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, rn_profile_name(name),
                           number << 32 | i);
    return NULL;
}

typedef struct order {
    uint64_t last[THREADS + 1];
    uint32_t lanes[THREADS + 1];
    bool good;
} order;

static void check_order(void *self, const rn_trace_block *block, const rn_trace_event *event) {
    order *o = self;
    if (event->kind != RN_TRACE_COUNTER || event->purpose != RN_COUNTER_OTHER) return;
    uint64_t number = event->bytes >> 32, i = event->bytes & UINT32_MAX;
    if (number > THREADS || i != o->last[number] + 1) {
        o->good = false;
        return;
    }
    o->good = o->good && (i == 1 || o->lanes[number] == block->lane);
    o->lanes[number] = block->lane;
    o->last[number] = i;
}

static void every_threads_events_are_there_in_its_order(void **state) {
    (void)state;
    start((rn_profile_options){.ring_bytes = 4096});
    run_threads(count_up, THREADS);
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    order o = {.good = true};
    each_event(r, check_order, &o);
    assert_true(o.good);
    for (int i = 1; i <= THREADS; i++) {
        char name[32];
        snprintf(name, sizeof name, "counter %d", i);
        assert_int_equal(EVENTS, o.last[i]);
        assert_string_equal(name, find_text(r, RN_TRACE_LANES, o.lanes[i], 0));
    }
    assert_int_equal(0, r->damaged);
    close_reading(r);
}

// ---- memory ------------------------------------------------------------------------------------

static void *charge_at_random(void *self) {
    uint64_t seed = *(const uint64_t *)self * 0x9e3779b97f4a7c15u, held[64] = {0};
    for (int i = 0; i < EVENTS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = seed >> 58;
        if (held[slot]) rn_ledger_release(kv, &held[slot], held[slot]);
        held[slot] = held[slot] ? 0 : 1 + (seed >> 20) % 100000;
        if (held[slot]) rn_ledger_charge(kv, &held[slot], held[slot]);
        if (i % 64 == 0) sched_yield();
    }
    for (size_t slot = 0; slot < 64; slot++)
        if (held[slot]) rn_ledger_release(kv, &held[slot], held[slot]);
    return NULL;
}

static void the_counted_peak_is_the_ledgers(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        start((rn_profile_options){0});
        rn_ledger_reset_peaks();
        run_threads(charge_at_random, 2);
        assert_ok(rn_profile_stop());
        reading *r = read_trace(path);
        total_record peak = last_total(r, RN_DEVICE_HOST, RN_PURPOSE_COUNT);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).peak_bytes, peak.bytes);
        assert_int_equal(0, last_total(r, RN_DEVICE_HOST, RN_PURPOSE_KV).bytes);
        assert_true(peak.blocks > 0); // when it was
        close_reading(r);
    }
}

static rn_device_id beside;

static void *allocate_and_free(void *unused) {
    (void)unused;
    rn_account account = {beside, RN_PURPOSE_OTHER, NULL};
    for (uint64_t i = 1; i <= EVENTS; i++) {
        rn_profile_alloc(account, i << 12, 1000, 0, 0);
        rn_profile_free(account, i << 12, 1000, 0);
    }
    return NULL;
}

static void what_is_beside_the_ledger_has_its_peak_too(void **state) {
    (void)state;
    assert_ok(rn_device_add("beside", &beside));
    start((rn_profile_options){0});
    run_threads(allocate_and_free, 2);
    rn_profile_alloc((rn_account){beside, RN_PURPOSE_OTHER, NULL}, 1 << 12, 5000, 0, 0);
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    assert_int_equal(5000, last_total(r, beside, RN_PURPOSE_COUNT).bytes);
    assert_int_equal(5000, last_total(r, beside, RN_PURPOSE_OTHER).bytes);
    assert_int_equal(1, last_total(r, beside, RN_PURPOSE_OTHER).blocks);
    close_reading(r);
}

// ---- coming and going --------------------------------------------------------------------------

static void *die_inside(void *unused) {
    rn_scope *scope = malloc(sizeof *scope);
    (void)unused;
    rn_scope_begin(scope, "a scope without an end", RN_DEVICE_ANY);
    rn_ledger_charge(kv, NULL, 10);
    rn_ledger_release(kv, NULL, 10);
    free(scope);
    pthread_exit(NULL);
}

static void a_thread_that_dies_inside_a_scope_leaves_its_events(void **state) {
    (void)state;
    start((rn_profile_options){0});
    run_threads(die_inside, 1);
    rn_profile_facts facts;
    rn_profile_get_facts(&facts);
    assert_true(facts.ring_bytes < 256 * 1024); // its ring went with it
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    assert_string_equal("a scope without an end",
                        name_of(r, find_event(r, RN_TRACE_BEGIN, -1, 0)->name));
    assert_int_equal(1, count_events(r, RN_TRACE_FREE, RN_PURPOSE_KV));
    close_reading(r);
}

static void *say_once(void *self) {
    rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, *(const uint64_t *)self);
    return NULL;
}

static void many_short_threads_leave_one_event_each(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    start((rn_profile_options){.ring_bytes = 4096});
    for (int i = 0; i < 40; i++)
        run_threads(say_once, 4);
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    assert_int_equal(160, count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER));
    close_reading(r);
    assert_int_equal(before, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes);
}

// ---- budgets -----------------------------------------------------------------------------------

enum { CACHE_BYTES = 1 << 20 };

static uint64_t say_cache_bytes(void *self) {
    return *(const uint64_t *)self;
}

// In two pieces: what is free after the first is less than a ring.
static uint64_t empty_cache(void *self, uint64_t want_bytes) {
    uint64_t *held = self, given = *held;
    (void)want_bytes;
    *held = 0;
    rn_ledger_release(kv, self, 1024);
    rn_ledger_release(kv, self, given - 1024);
    return given;
}

static void *ask_for_more(void *out) {
    *(rn_status *)out = rn_budget_charge(kv, NULL, CACHE_BYTES);
    if (*(rn_status *)out == RN_OK) rn_ledger_release(kv, NULL, CACHE_BYTES);
    return NULL;
}

// Above the soft limit with the next byte, with room for a ring up to the hard one.
static void fill_cache(uint64_t *held, uint64_t room_bytes) {
    *held = CACHE_BYTES;
    rn_ledger_charge(kv, held, *held);
    uint64_t now = rn_ledger_now(RN_DEVICE_HOST);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, now, now + room_bytes));
}

// The first event of its thread is heard in the middle of asking: the ring for it asks as well.
static void what_is_given_back_is_heard_by_a_thread_without_a_ring(void **state) {
    (void)state;
    for (uint64_t room = CACHE_BYTES / 2; room <= 2 * CACHE_BYTES; room *= 4) {
        pthread_t thread;
        uint64_t held;
        rn_status s = RN_INTERNAL;
        rn_reclaimer reclaimer = {"cache", RN_DEVICE_HOST, &held, say_cache_bytes, empty_cache};
        start((rn_profile_options){0});
        fill_cache(&held, room);
        rn_budget_reclaimer_add(&reclaimer);
        assert_int_equal(0, pthread_create(&thread, NULL, ask_for_more, &s));
        assert_int_equal(0, pthread_join(thread, NULL));
        rn_budget_reclaimer_remove(&reclaimer);
        assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
        assert_ok(s);
        assert_int_equal(0, held);
        assert_ok(rn_profile_stop());
        reading *r = read_trace(path);
        assert_int_equal(3, count_events(r, RN_TRACE_FREE, RN_PURPOSE_KV));
        close_reading(r);
    }
}

typedef struct refused {
    rn_status status;
    rn_refusal refusal;
    rn_error_info story;
} refused;

static void *be_refused(void *out) {
    refused *r = out;
    r->status = rn_budget_charge(kv, NULL, 12345678);
    r->refusal = *rn_last_refusal();
    r->story = *rn_last_error();
    return NULL;
}

// There is no room for the recorder's ring either.
static void a_refusal_stays_the_programs_own(void **state) {
    (void)state;
    pthread_t thread;
    refused r = {0};
    start((rn_profile_options){0});
    uint64_t now = rn_ledger_now(RN_DEVICE_HOST);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, now, now));
    assert_int_equal(0, pthread_create(&thread, NULL, be_refused, &r));
    assert_int_equal(0, pthread_join(thread, NULL));
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
    assert_int_equal(RN_OVER_BUDGET, r.status);
    assert_int_equal(12345678, r.refusal.requested_bytes);
    assert_int_equal(RN_PURPOSE_KV, r.refusal.purpose);
    assert_non_null(strstr(r.story.message, "kv"));
    assert_ok(rn_profile_stop());
    reading *file = read_trace(path);
    assert_int_equal(1, count_events(file, RN_TRACE_MARK, RN_MARK_REFUSAL));
    close_reading(file);
}

// ---- starting and stopping ---------------------------------------------------------------------

static atomic_bool go_on;

static void *record_all_the_time(void *self) {
    uint64_t number = *(const uint64_t *)self;
    while (atomic_load(&go_on)) {
        char name[32];
        snprintf(name, sizeof name, "operation %d", (int)(number % 3));
        rn_profile_begin(rn_profile_name(name));
        rn_ledger_charge(kv, name, 64);
        rn_profile_thread_name(name);
        rn_ledger_release(kv, name, 64);
        rn_profile_end();
        rn_profile_facts facts;
        if (number % 16 == 0) rn_profile_get_facts(&facts);
        number = number * 7 + 1;
    }
    return NULL;
}

static void *start_and_stop(void *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        rn_profile_options options = {.path = path, .ring_bytes = 2048, .leave_signals = true};
        if (i % 4 == 1) options.limit_bytes = 256 << 10;
        if (i % 4 == 2) options.keep_newest = true;
        if (rn_profile_start(&options) != RN_OK) break;
        for (int j = 0; j < 5; j++) {
            rn_profile_facts facts;
            rn_profile_flush();
            rn_profile_get_facts(&facts);
            sched_yield();
        }
        if (rn_profile_stop() != RN_OK) break;
        if (i == 39) return unused;
    }
    return NULL;
}

static void recordings_start_and_stop_while_threads_record(void **state) {
    (void)state;
    pthread_t threads[3], controller;
    uint64_t numbers[3] = {1, 2, 3};
    void *result;
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).now_bytes;
    atomic_store(&go_on, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, record_all_the_time, &numbers[i]));
    assert_int_equal(0, pthread_create(&controller, NULL, start_and_stop, &go_on));
    assert_int_equal(0, pthread_join(controller, &result));
    atomic_store(&go_on, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(0, pthread_join(threads[i], NULL));
    assert_ptr_equal(&go_on, result);
    assert_int_equal(held, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).now_bytes);
    reading *r = read_trace(path);
    assert_int_equal(0, r->damaged);
    close_reading(r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(every_threads_events_are_there_in_its_order),
        TEST(the_counted_peak_is_the_ledgers),
        TEST(what_is_beside_the_ledger_has_its_peak_too),
        TEST(a_thread_that_dies_inside_a_scope_leaves_its_events),
        TEST(many_short_threads_leave_one_event_each),
        TEST(what_is_given_back_is_heard_by_a_thread_without_a_ring),
        TEST(a_refusal_stays_the_programs_own),
        TEST(recordings_start_and_stop_while_threads_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
