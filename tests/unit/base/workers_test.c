// labels: threads
// Loops over threads: every index exactly once, whoever runs what inside what.
#include "support.h"
#include "base/fault.h"
#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static rn_workers *make(size_t threads) {
    rn_workers *workers;
    assert_ok(rn_workers_create(threads, &rn_system_allocator, &workers));
    return workers;
}

// ---- one loop --------------------------------------------------------------------------

enum { MAX_COUNT = 5000 };
static _Atomic int seen[MAX_COUNT];

static void mark(void *arg, size_t index) {
    atomic_fetch_add((_Atomic int *)arg + index, 1);
}

static void every_index_is_run_exactly_once(void **state) {
    (void)state;
    const size_t threads[] = {1, 2, 3, 8}, counts[] = {0, 1, 2, 3, 7, 64, MAX_COUNT};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        rn_workers *workers = make(threads[t]);
        assert_int_equal(threads[t], rn_workers_count(workers));
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            memset((void *)seen, 0, sizeof seen);
            rn_workers_run(workers, counts[c], mark, (void *)seen);
            for (size_t i = 0; i < MAX_COUNT; i++)
                assert_int_equal(i < counts[c], seen[i]);
        }
        rn_workers_destroy(workers);
    }
}

// Plain memory written by the tasks is there for the caller afterwards: TSan watches.
static void square(void *arg, size_t index) {
    ((uint64_t *)arg)[index] = index * index;
}

static void what_tasks_wrote_is_seen_by_the_caller(void **state) {
    (void)state;
    static uint64_t squares[1000];
    rn_workers *workers = make(4);
    for (int round = 0; round < 200; round++) {
        memset(squares, 0xFF, sizeof squares);
        size_t count = (size_t)(round * 5 % 1000);
        rn_workers_run(workers, count, square, squares);
        for (size_t i = 0; i < 1000; i++)
            assert_true(squares[i] == (i < count ? i * i : UINT64_MAX));
    }
    rn_workers_destroy(workers);
}

static void note_thread(void *arg, size_t index) {
    ((pthread_t *)arg)[index] = pthread_self();
}

static void one_worker_is_the_caller_alone(void **state) {
    (void)state;
    pthread_t threads[50];
    rn_workers *workers = make(1);
    rn_workers_run(workers, 50, note_thread, threads);
    for (size_t i = 0; i < 50; i++)
        assert_true(pthread_equal(pthread_self(), threads[i]));
    rn_workers_destroy(workers);
}

// Each task waits for all others, so the loop ends only if that many threads are at work.
typedef struct meeting {
    pthread_barrier_t barrier;
} meeting;

static void meet(void *arg, size_t index) {
    (void)index;
    pthread_barrier_wait(&((meeting *)arg)->barrier);
}

static void all_threads_work_at_once(void **state) {
    (void)state;
    enum { THREADS = 6 };
    meeting m;
    rn_workers *workers = make(THREADS);
    pthread_barrier_init(&m.barrier, NULL, THREADS);
    for (int round = 0; round < 20; round++)
        rn_workers_run(workers, THREADS, meet, &m);
    pthread_barrier_destroy(&m.barrier);
    rn_workers_destroy(workers);
}

// ---- loops within loops, and beside each other -------------------------------------------

typedef struct nest {
    rn_workers *workers;
    int levels;
    _Atomic int *leaves;
} nest;

static void descend(void *arg, size_t index) {
    nest *n = arg;
    (void)index;
    if (n->levels == 0) {
        atomic_fetch_add(n->leaves, 1);
        return;
    }
    nest below = {n->workers, n->levels - 1, n->leaves};
    rn_workers_run(n->workers, 5, descend, &below);
}

static void tasks_may_run_loops_themselves(void **state) {
    (void)state;
    for (size_t threads = 1; threads <= 4; threads++) {
        _Atomic int leaves = 0;
        nest top = {make(threads), 4, &leaves};
        rn_workers_run(top.workers, 5, descend, &top);
        assert_int_equal(5 * 5 * 5 * 5 * 5, leaves);
        rn_workers_destroy(top.workers);
    }
}

typedef struct caller {
    rn_workers *workers;
    _Atomic int counts[97];
    int wrong;
} caller;

static void *call_repeatedly(void *self) {
    caller *c = self;
    for (int round = 1; round <= 200; round++) {
        rn_workers_run(c->workers, 97, mark, (void *)c->counts);
        // Its own loop is over when the call returns, whatever the others do.
        for (int i = 0; i < 97; i++)
            c->wrong += c->counts[i] != round;
    }
    return NULL;
}

static void several_callers_run_loops_at_once(void **state) {
    (void)state;
    enum { CALLERS = 5 };
    static caller callers[CALLERS];
    pthread_t threads[CALLERS];
    rn_workers *workers = make(3);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].workers = workers;
        assert_int_equal(0, pthread_create(&threads[i], NULL, call_repeatedly, &callers[i]));
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(0, callers[i].wrong);
    }
    rn_workers_destroy(workers);
}

// ---- thread context --------------------------------------------------------------------

typedef struct context_check {
    void *expected;
    _Atomic int wrong, checked;
    rn_workers *workers;
} context_check;

static void check_inner(void *arg, size_t index) {
    context_check *c = arg;
    (void)index;
    c->wrong += rn_thread_context() != c->expected;
    c->checked++;
}

static void check_outer(void *arg, size_t index) {
    context_check *c = arg;
    int mine;
    c->wrong += rn_thread_context() != c->expected;
    if (index % 3) return;
    // What a task sets, its own loops inherit; it puts the old one back.
    context_check inner = {.expected = &mine};
    rn_thread_context_set(&mine);
    rn_workers_run(c->workers, 7, check_inner, &inner);
    rn_thread_context_set(c->expected);
    c->wrong += inner.wrong;
    c->checked += inner.checked;
}

static void tasks_inherit_the_callers_thread_context(void **state) {
    (void)state;
    int a, b;
    context_check c = {.workers = make(4)};
    void *contexts[] = {&a, &b, NULL, &a};
    for (int round = 0; round < 100; round++) {
        c.expected = contexts[round % 4];
        rn_thread_context_set(c.expected);
        rn_workers_run(c.workers, 30, check_outer, &c);
        assert_ptr_equal(c.expected, rn_thread_context());
    }
    assert_int_equal(0, c.wrong);
    assert_int_equal(100 * 10 * 7, c.checked);
    rn_thread_context_set(NULL);
    rn_workers_run(c.workers, 64, check_inner, &(context_check){.expected = NULL});
    rn_workers_destroy(c.workers);
}

// ---- life ------------------------------------------------------------------------------

static void workers_come_and_go(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        rn_workers *workers = make((size_t)(1 + round % 5));
        if (round % 3) rn_workers_run(workers, 20, mark, (void *)seen);
        if (round % 4 == 0)
            sched_yield(); // some are destroyed spinning, some parked, some starting
        rn_workers_destroy(workers);
    }
    rn_workers_destroy(NULL);
}

static void zero_threads_means_one_for_each_cpu(void **state) {
    (void)state;
    rn_workers *workers = make(0);
    assert_int_equal(rn_cpu_count(), rn_workers_count(workers));
    assert_in_range(rn_cpu_count(), 1, 1 << 20);
    rn_workers_destroy(workers);
}

static void absurd_thread_counts_are_refused(void **state) {
    (void)state;
    rn_workers *workers = (rn_workers *)&workers;
    assert_fails(RN_INVALID, rn_workers_create(100000, &rn_system_allocator, &workers));
    assert_null(workers);
    assert_fails(RN_INVALID, rn_workers_create(SIZE_MAX, &rn_system_allocator, &workers));
}

static void failed_allocation_is_a_clean_failure(void **state) {
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        rn_workers *workers = (rn_workers *)&workers;
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = rn_workers_create(3, &rn_system_allocator, &workers);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, s);
        assert_int_equal(fired, workers == NULL);
        rn_workers_destroy(workers);
        if (!fired) break;
        assert_in_range(nth, 1, 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_is_run_exactly_once),
        cmocka_unit_test(what_tasks_wrote_is_seen_by_the_caller),
        cmocka_unit_test(one_worker_is_the_caller_alone),
        cmocka_unit_test(all_threads_work_at_once),
        cmocka_unit_test(tasks_may_run_loops_themselves),
        cmocka_unit_test(several_callers_run_loops_at_once),
        cmocka_unit_test(tasks_inherit_the_callers_thread_context),
        cmocka_unit_test(workers_come_and_go),
        cmocka_unit_test(zero_threads_means_one_for_each_cpu),
        cmocka_unit_test(absurd_thread_counts_are_refused),
        cmocka_unit_test(failed_allocation_is_a_clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
