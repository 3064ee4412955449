// labels: threads
// Scopes: each with its own exact numbers, nested, beside each other, and through workers.
#include "support.h"
#include "base/workers.h"
#include "memory/account.h"

#include <pthread.h>

static const rn_account weights = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};

static int end(void **state) {
    (void)state;
    bool clean = rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0 && !rn_thread_context();
    return clean && rn_ledger_is_valid() ? 0 : -1;
}

static void charge(uint64_t bytes) {
    rn_ledger_charge(weights, NULL, bytes);
}

static void release(uint64_t bytes) {
    rn_ledger_release(weights, NULL, bytes);
}

static void expect_stats(rn_scope_stats stats, uint64_t peak, uint64_t total, uint64_t count,
                         int64_t delta) {
    assert_int_equal(peak, stats.peak_allocated);
    assert_int_equal(total, stats.total_allocated);
    assert_int_equal(count, stats.num_allocations);
    assert_int_equal(delta, stats.delta);
}

// ---- one scope -----------------------------------------------------------------------------

static void scope_in_which_nothing_happens_is_zero(void **state) {
    (void)state;
    rn_scope scope;
    charge(100);
    rn_scope_begin(&scope, "idle", RN_DEVICE_HOST);
    expect_stats(rn_scope_end(&scope), 0, 0, 0, 0);
    release(100);
}

static void scope_counts_from_its_beginning_to_its_end(void **state) {
    (void)state;
    rn_scope scope;
    charge(1000); // before
    rn_scope_begin(&scope, "work", RN_DEVICE_HOST);
    charge(10);
    charge(20);
    release(10);
    charge(5);
    rn_scope_stats stats = rn_scope_end(&scope);
    charge(1000); // after
    expect_stats(stats, 30, 35, 3, 25);
    release(1000);
    release(1000);
    release(20);
    release(5);
}

static void releasing_older_memory_gives_a_negative_delta(void **state) {
    (void)state;
    rn_scope scope;
    charge(100);
    rn_scope_begin(&scope, "shrink", RN_DEVICE_HOST);
    release(100);
    expect_stats(rn_scope_end(&scope), 0, 0, 0, -100);
    charge(100);
    rn_scope_begin(&scope, "swap", RN_DEVICE_HOST);
    release(100);
    charge(150); // only 50 above what was held at the beginning
    expect_stats(rn_scope_end(&scope), 50, 150, 1, 50);
    release(150);
}

static void charging_nothing_is_no_allocation(void **state) {
    (void)state;
    rn_scope scope;
    rn_scope_begin(&scope, "nothing", RN_DEVICE_HOST);
    charge(0);
    release(0);
    expect_stats(rn_scope_end(&scope), 0, 0, 0, 0);
}

static void blocks_of_allocators_are_counted(void **state) {
    (void)state;
    rn_scope scope;
    void *block;
    rn_scope_begin(&scope, "alloc", RN_DEVICE_HOST);
    assert_ok(rn_alloc(RN_HOST_OTHER, 1000, &block));
    rn_free(RN_HOST_OTHER, block, 1000);
    expect_stats(rn_scope_end(&scope), 1000, 1000, 1, 0);
}

static void refused_charges_are_not_counted(void **state) {
    (void)state;
    rn_scope scope;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, 50));
    rn_scope_begin(&scope, "refused", RN_DEVICE_HOST);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 51));
    assert_ok(rn_budget_charge(weights, NULL, 50));
    expect_stats(rn_scope_end(&scope), 50, 50, 1, 50);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
    release(50);
}

// ---- nesting -----------------------------------------------------------------------------------

static void nested_scopes_have_their_own_exact_peaks(void **state) {
    (void)state;
    rn_scope outer, first, second;
    rn_scope_begin(&outer, "outer", RN_DEVICE_HOST);
    charge(100);
    rn_scope_begin(&first, "first", RN_DEVICE_HOST);
    charge(40);
    release(40);
    expect_stats(rn_scope_end(&first), 40, 40, 1, 0);
    release(100);
    rn_scope_begin(&second, "second", RN_DEVICE_HOST);
    charge(90);
    rn_scope_begin(&first, "again", RN_DEVICE_HOST);
    release(90);
    charge(10);
    expect_stats(rn_scope_end(&first), 0, 10, 1, -80);
    expect_stats(rn_scope_end(&second), 90, 100, 2, 10);
    expect_stats(rn_scope_end(&outer), 140, 240, 4, 10);
    release(10);
}

static void deep_nesting_counts_in_every_level(void **state) {
    (void)state;
    enum { LEVELS = 100 };
    static rn_scope scopes[LEVELS];
    for (uint64_t i = 0; i < LEVELS; i++) {
        rn_scope_begin(&scopes[i], "level", RN_DEVICE_ANY);
        charge(1);
    }
    for (uint64_t i = LEVELS; i-- > 0;) {
        uint64_t inside = LEVELS - i;
        expect_stats(rn_scope_end(&scopes[i]), inside, inside, inside, (int64_t)inside);
    }
    for (int i = 0; i < LEVELS; i++)
        release(1);
}

static void scope_may_be_used_again(void **state) {
    (void)state;
    rn_scope scope;
    for (uint64_t i = 1; i <= 3; i++) {
        rn_scope_begin(&scope, "again", RN_DEVICE_HOST);
        charge(i);
        expect_stats(rn_scope_end(&scope), i, i, 1, (int64_t)i);
        release(i);
    }
}

// ---- devices
// ---------------------------------------------------------------------------------------

static void scopes_count_one_device_or_all(void **state) {
    (void)state;
    rn_device_id gpu;
    rn_scope any, host, device;
    assert_ok(rn_device_add("gpu:0", &gpu));
    rn_account there = {gpu, RN_PURPOSE_KV, NULL};
    rn_scope_begin(&any, "any", RN_DEVICE_ANY);
    rn_scope_begin(&host, "host", RN_DEVICE_HOST);
    rn_scope_begin(&device, "device", gpu);
    charge(10);
    rn_ledger_charge(there, NULL, 7);
    release(10);
    rn_ledger_charge(there, NULL, 1);
    expect_stats(rn_scope_end(&device), 8, 8, 2, 8);
    expect_stats(rn_scope_end(&host), 10, 10, 1, 0);
    expect_stats(rn_scope_end(&any), 17, 18, 3, 8);
    rn_ledger_release(there, NULL, 7);
    rn_ledger_release(there, NULL, 1);
}

// ---- events
// ----------------------------------------------------------------------------------------

typedef struct heard {
    char text[128];
} heard;

static void hear(void *self, const rn_event *event) {
    heard *h = self;
    size_t at = strlen(h->text);
    if (event->kind == RN_EVENT_CHARGE || event->kind == RN_EVENT_RELEASE)
        snprintf(h->text + at, sizeof h->text - at, "%c ",
                 event->kind == RN_EVENT_CHARGE ? '+' : '-');
    else
        snprintf(h->text + at, sizeof h->text - at, "%s%s ",
                 event->kind == RN_EVENT_SCOPE_BEGIN ? "<" : ">", event->name);
}

static void scopes_are_events(void **state) {
    (void)state;
    rn_scope outer, inner;
    heard h = {""};
    rn_ledger_listen(hear, &h);
    rn_scope_begin(&outer, "load", RN_DEVICE_HOST);
    charge(1);
    rn_scope_begin(&inner, "cast", RN_DEVICE_HOST);
    rn_scope_end(&inner);
    release(1);
    rn_scope_end(&outer);
    rn_ledger_listen(NULL, NULL);
    assert_string_equal("<load + <cast >cast - >load ", h.text);
}

// ---- threads
// -----------------------------------------------------------------------------------------

enum { THREADS = 6 };

typedef struct user {
    uint64_t number;
    rn_scope_stats stats, inner;
} user;

static void *use_own_scope(void *self) {
    user *u = self;
    rn_scope scope, inner;
    rn_scope_begin(&scope, "mine", RN_DEVICE_HOST);
    for (int i = 0; i < 1000; i++) {
        charge(u->number);
        rn_scope_begin(&inner, "inner", RN_DEVICE_HOST);
        charge(2 * u->number);
        release(2 * u->number);
        u->inner = rn_scope_end(&inner);
        release(u->number);
    }
    u->stats = rn_scope_end(&scope);
    return NULL;
}

static void threads_have_scopes_of_their_own(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    user users[THREADS];
    rn_scope scope;
    rn_scope_begin(&scope, "main", RN_DEVICE_ANY);
    for (uint64_t i = 0; i < THREADS; i++) {
        users[i] = (user){.number = i + 1};
        assert_int_equal(0, pthread_create(&threads[i], NULL, use_own_scope, &users[i]));
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        expect_stats(users[i].stats, 3 * (i + 1), 3000 * (i + 1), 2000, 0);
        expect_stats(users[i].inner, 2 * (i + 1), 2 * (i + 1), 1, 0);
    }
    expect_stats(rn_scope_end(&scope), 0, 0, 0, 0); // a plain thread's charges are not ours
}

// ---- workers
// ---------------------------------------------------------------------------------------

static void allocate_a_little(void *arg, size_t index) {
    void *block;
    (void)arg;
    if (rn_alloc(RN_HOST_OTHER, 100 + index, &block) == RN_OK)
        rn_free(RN_HOST_OTHER, block, 100 + index);
}

static void loops_given_to_workers_count_for_the_caller(void **state) {
    (void)state;
    rn_workers *workers;
    rn_scope scope;
    assert_ok(rn_workers_create(4, &rn_system_allocator, &workers));
    for (int round = 0; round < 20; round++) {
        rn_scope_begin(&scope, "loop", RN_DEVICE_HOST);
        rn_workers_run(workers, 200, allocate_a_little, NULL);
        rn_scope_stats stats = rn_scope_end(&scope);
        assert_int_equal(200, stats.num_allocations);
        assert_int_equal(200 * 100 + 199 * 200 / 2, stats.total_allocated);
        assert_int_equal(0, stats.delta);
        assert_in_range(stats.peak_allocated, 299, 4 * 299);
        rn_workers_run(workers, 50, allocate_a_little, NULL); // outside
    }
    rn_workers_destroy(workers);
}

// All tasks hold their block at the same moment, so the peak is known exactly.
typedef struct together {
    pthread_barrier_t barrier;
    rn_scope_stats inner[4];
} together;

static void hold_together(void *arg, size_t index) {
    together *t = arg;
    rn_scope inner;
    pthread_barrier_wait(&t->barrier);
    rn_scope_begin(&inner, "task", RN_DEVICE_HOST);
    charge(10 * (index + 1));
    pthread_barrier_wait(&t->barrier);
    release(10 * (index + 1));
    t->inner[index] = rn_scope_end(&inner);
    pthread_barrier_wait(&t->barrier);
}

static void peak_over_workers_is_exact(void **state) {
    (void)state;
    rn_workers *workers;
    rn_scope outer;
    together t;
    assert_ok(rn_workers_create(4, &rn_system_allocator, &workers));
    pthread_barrier_init(&t.barrier, NULL, 4);
    charge(5);
    rn_scope_begin(&outer, "all", RN_DEVICE_HOST);
    for (int round = 0; round < 10; round++)
        rn_workers_run(workers, 4, hold_together, &t);
    expect_stats(rn_scope_end(&outer), 100, 1000, 40, 0);
    for (uint64_t i = 0; i < 4; i++) // a task's own scope is its own
        expect_stats(t.inner[i], 10 * (i + 1), 10 * (i + 1), 1, 0);
    release(5);
    pthread_barrier_destroy(&t.barrier);
    rn_workers_destroy(workers);
}

typedef struct scoped_caller {
    rn_workers *workers;
    size_t count;
    rn_scope_stats stats;
} scoped_caller;

static void *call_in_scope(void *self) {
    scoped_caller *c = self;
    rn_scope scope;
    rn_scope_begin(&scope, "caller", RN_DEVICE_HOST);
    for (int round = 0; round < 30; round++)
        rn_workers_run(c->workers, c->count, allocate_a_little, NULL);
    c->stats = rn_scope_end(&scope);
    return NULL;
}

static void callers_that_share_workers_keep_their_scopes_apart(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    scoped_caller callers[THREADS];
    rn_workers *workers;
    assert_ok(rn_workers_create(3, &rn_system_allocator, &workers));
    for (size_t i = 0; i < THREADS; i++) {
        callers[i] = (scoped_caller){.workers = workers, .count = 10 + i};
        assert_int_equal(0, pthread_create(&threads[i], NULL, call_in_scope, &callers[i]));
    }
    for (size_t i = 0; i < THREADS; i++) {
        size_t count = callers[i].count;
        pthread_join(threads[i], NULL);
        assert_int_equal(30 * count, callers[i].stats.num_allocations);
        assert_int_equal(30 * (count * 100 + count * (count - 1) / 2),
                         callers[i].stats.total_allocated);
        assert_int_equal(0, callers[i].stats.delta);
    }
    rn_workers_destroy(workers);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(scope_in_which_nothing_happens_is_zero),
        TEST(scope_counts_from_its_beginning_to_its_end),
        TEST(releasing_older_memory_gives_a_negative_delta),
        TEST(charging_nothing_is_no_allocation),
        TEST(blocks_of_allocators_are_counted),
        TEST(refused_charges_are_not_counted),
        TEST(nested_scopes_have_their_own_exact_peaks),
        TEST(deep_nesting_counts_in_every_level),
        TEST(scope_may_be_used_again),
        TEST(scopes_count_one_device_or_all),
        TEST(scopes_are_events),
        TEST(threads_have_scopes_of_their_own),
        TEST(loops_given_to_workers_count_for_the_caller),
        TEST(peak_over_workers_is_exact),
        TEST(callers_that_share_workers_keep_their_scopes_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
