// labels: threads
// The ledger under many threads: sums exact, peaks true, counts kept when a thread ends.
#include "support.h"
#include "base/fault.h"
#include "memory/account.h"
#include "memory/ledger.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 8 };

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void run_threads(void *(*fn)(void *), void *args, size_t arg_bytes) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        void *arg = args ? (char *)args + i * arg_bytes : NULL;
        assert_int_equal(0, pthread_create(&threads[i], NULL, fn, arg));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int begin(void **state) {
    (void)state;
    rn_ledger_reset_peaks();
    return 0;
}

static int end(void **state) {
    (void)state;
    rn_ledger_line total = rn_ledger_total(RN_DEVICE_HOST);
    return total.now_bytes == 0 && total.count == 0 && rn_ledger_is_valid() ? 0 : -1;
}

// ---- random charges ----------------------------------------------------------------------

typedef struct charger {
    uint64_t seed;
    rn_holder *holder;
    uint64_t own_peak; // most bytes that this thread alone held
} charger;

static void *charge_and_release(void *self) {
    charger *c = self;
    enum { SLOTS = 32, ROUNDS = 5000 };
    struct {
        rn_account account;
        uint64_t bytes;
    } held[SLOTS] = {0};
    uint64_t now = 0;
    for (int i = 0; i < ROUNDS + SLOTS; i++) {
        size_t slot = i < ROUNDS ? next_random(&c->seed) % SLOTS : (size_t)(i - ROUNDS);
        if (held[slot].bytes) {
            now -= held[slot].bytes;
            rn_ledger_release(held[slot].account, &held[slot], held[slot].bytes);
            held[slot].bytes = 0;
        } else if (i < ROUNDS) {
            bool named = next_random(&c->seed) % 2;
            held[slot].bytes = 1 + next_random(&c->seed) % 10000;
            held[slot].account = (rn_account){
                RN_DEVICE_HOST,
                named ? RN_PURPOSE_KV : (uint8_t)(next_random(&c->seed) % RN_PURPOSE_COUNT),
                named ? c->holder : NULL};
            now += held[slot].bytes;
            if (now > c->own_peak) c->own_peak = now;
            rn_ledger_charge(held[slot].account, &held[slot], held[slot].bytes);
        }
    }
    return NULL;
}

static void random_charges_end_at_zero_with_a_true_peak(void **state) {
    (void)state;
    static charger chargers[THREADS];
    uint64_t sum = 0, largest = 0;
    for (int i = 0; i < THREADS; i++) {
        chargers[i] = (charger){.seed = (uint64_t)i + 1};
        assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "thread", &chargers[i].holder));
    }
    run_threads(charge_and_release, chargers, sizeof *chargers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(0, rn_holder_bytes(chargers[i].holder));
        rn_holder_close(chargers[i].holder);
        sum += chargers[i].own_peak;
        if (chargers[i].own_peak > largest) largest = chargers[i].own_peak;
    }
    rn_ledger_line total = rn_ledger_total(RN_DEVICE_HOST);
    assert_int_equal(0, total.now_bytes);
    assert_int_equal(0, total.count);
    // Some thread was at its own peak at some moment; all of them together never held more.
    assert_in_range(total.peak_bytes, largest, sum);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        rn_ledger_line line = rn_ledger_read(RN_DEVICE_HOST, (rn_purpose)p);
        assert_int_equal(0, line.now_bytes);
        assert_int_equal(0, line.count);
        assert_true(line.peak_bytes <= total.peak_bytes);
    }
    assert_true(rn_ledger_is_valid());
}

// ---- refusals ------------------------------------------------------------------------------

static void *reserve_in_vain(void *self) {
    const int *number = self;
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};
    for (int i = 0; i < 20000; i++) {
        if (*number % 2) {
            rn_ledger_charge(account, NULL, 10);
            rn_ledger_release(account, NULL, 10);
        } else if (rn_ledger_try_reserve(RN_DEVICE_HOST, 1 << 20, RN_NO_LIMIT)) {
            rn_ledger_give_up(account, 1 << 20);
        }
    }
    return NULL;
}

// Whoever charges meanwhile does not raise a peak by what others only asked for.
static void what_is_refused_is_in_nobodys_peak(void **state) {
    (void)state;
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++)
        numbers[i] = i;
    rn_ledger_watch();
    run_threads(reserve_in_vain, numbers, sizeof *numbers);
    assert_in_range(rn_ledger_total(RN_DEVICE_HOST).peak_bytes, 10, THREADS / 2 * 10);
    assert_in_range(rn_ledger_watched_peak(RN_DEVICE_HOST), 10, THREADS / 2 * 10);
    assert_int_equal(0, rn_ledger_claimed(RN_DEVICE_HOST));
}

// ---- a known order -------------------------------------------------------------------------

static pthread_barrier_t barrier;

// In step s, thread t holds ((s * 7 + t * 5) % 11) * 100 bytes; between steps, nothing moves.
// Within a step first all release, then all charge, so the total only rises within the second half.
static uint64_t holds_at(int step, int thread) {
    return (uint64_t)((step * 7 + thread * 5) % 11) * 100;
}

enum { STEPS = 50 };

typedef struct stepper {
    int number;
} stepper;

static void *go_in_step(void *self) {
    int number = ((stepper *)self)->number;
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_WORKSPACE, NULL};
    for (int step = 0; step <= STEPS; step++) {
        uint64_t before = step ? holds_at(step - 1, number) : 0;
        uint64_t after = step < STEPS ? holds_at(step, number) : 0;
        if (before) rn_ledger_release(account, NULL, before);
        pthread_barrier_wait(&barrier);
        if (after) rn_ledger_charge(account, NULL, after);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void peak_of_a_known_order_is_exact(void **state) {
    (void)state;
    stepper steppers[THREADS];
    uint64_t expected = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t sum = 0;
        for (int t = 0; t < THREADS; t++)
            sum += holds_at(step, t);
        if (sum > expected) expected = sum;
    }
    for (int i = 0; i < THREADS; i++)
        steppers[i].number = i;
    pthread_barrier_init(&barrier, NULL, THREADS);
    run_threads(go_in_step, steppers, sizeof *steppers);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(expected, rn_ledger_total(RN_DEVICE_HOST).peak_bytes);
    assert_int_equal(expected, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WORKSPACE).peak_bytes);
}

// ---- threads that end --------------------------------------------------------------------------

static const rn_account other = {RN_DEVICE_HOST, RN_PURPOSE_OTHER, NULL};

static void *charge_ten(void *self) {
    (void)self;
    for (int i = 0; i < 10; i++)
        rn_ledger_charge(other, NULL, 3);
    return NULL;
}

static void *release_ten(void *self) {
    (void)self;
    for (int i = 0; i < 10; i++)
        rn_ledger_release(other, NULL, 3);
    return NULL;
}

static void count_outlives_the_threads_that_made_it(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        run_threads(charge_ten, NULL, 0);
        rn_ledger_line line = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER);
        assert_int_equal(THREADS * 10, line.count);
        assert_int_equal(THREADS * 30, line.now_bytes);
        if (round % 2)
            run_threads(release_ten, NULL, 0); // other threads than those that charged
        else
            for (int i = 0; i < THREADS; i++)
                release_ten(NULL);
        assert_int_equal(0, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).count);
    }
}

static void *charge_without_memory(void *self) {
    (void)self;
    rn_ledger_charge(other, NULL, 3); // its books cannot be had: shared ones serve
    rn_ledger_charge(other, NULL, 3);
    return (void *)(uintptr_t)rn_last_error()->status;
}

static void thread_without_memory_for_its_books_is_counted_all_the_same(void **state) {
    (void)state;
    pthread_t thread;
    void *status;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        assert_int_equal(0, pthread_create(&thread, NULL, charge_without_memory, NULL));
        pthread_join(thread, &status);
        assert_int_equal(nth == 1, rn_fault_fired(RN_FAULT_ALLOC));
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(RN_OK, (rn_status)(uintptr_t)status); // no story of it
        assert_int_equal(2, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).count);
        rn_ledger_release(other, NULL, 3);
        rn_ledger_release(other, NULL, 3);
    }
}

// ---- everything at once ----------------------------------------------------------------------

static _Atomic bool stop;

static void *allocate_until_stopped(void *self) {
    (void)self;
    while (!atomic_load(&stop)) {
        void *block;
        if (rn_alloc(RN_HOST_OTHER, 64, &block) == RN_OK) rn_free(RN_HOST_OTHER, block, 64);
    }
    return NULL;
}

typedef struct listening {
    _Atomic int64_t bytes, events;
} listening;

static void follow(void *self, const rn_event *event) {
    listening *l = self;
    bool charge = event->kind == RN_EVENT_CHARGE;
    atomic_fetch_add(&l->events, 1);
    atomic_fetch_add(&l->bytes, charge ? (int64_t)event->bytes : -(int64_t)event->bytes);
}

// Each of two listeners must only ever see its own self.
static listening first_self, second_self;
static _Atomic int mismatches;

static void follow_first(void *self, const rn_event *event) {
    if (self != &first_self)
        atomic_fetch_add(&mismatches, 1);
    else
        follow(self, event);
}

static void follow_second(void *self, const rn_event *event) {
    if (self != &second_self)
        atomic_fetch_add(&mismatches, 1);
    else
        follow(self, event);
}

static void listener_may_be_changed_while_others_charge(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&stop, false);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, allocate_until_stopped, NULL));
    for (int i = 0; i < 3000; i++) {
        if (i % 3 == 0) rn_ledger_listen(NULL, NULL);
        rn_ledger_listen(i % 2 ? follow_first : follow_second, i % 2 ? &first_self : &second_self);
        if (i % 16 == 0) {
            (void)rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER);
            (void)rn_ledger_total(RN_DEVICE_HOST);
        }
    }
    while (first_self.events + second_self.events == 0)
        sched_yield(); // the threads may just be starting
    rn_ledger_listen(NULL, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, mismatches);
}

static void *charge_and_release_ten(void *self) {
    charge_ten(self);
    return release_ten(self);
}

static void listener_hears_every_thread(void **state) {
    (void)state;
    static listening l;
    rn_ledger_listen(follow, &l);
    run_threads(charge_and_release_ten, NULL, 0);
    rn_ledger_listen(NULL, NULL);
    assert_int_equal(THREADS * 20, l.events);
    assert_int_equal(0, l.bytes);
}

typedef struct namer {
    int number, wrong;
} namer;

static void *open_and_close(void *self) {
    namer *n = self;
    for (int i = 0; i < 200; i++) {
        rn_holder *holder;
        rn_device_id device;
        char name[16];
        snprintf(name, sizeof name, "dev:%d", (n->number + i) % 5);
        n->wrong += rn_device_add(name, &device) != RN_OK;
        n->wrong += strcmp(name, rn_device_name(device)) != 0;
        if (rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_IO, "h", &holder) != RN_OK) return NULL;
        rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_IO, holder};
        rn_ledger_charge(account, NULL, 10);
        n->wrong += rn_holder_bytes(holder) != 10;
        rn_ledger_release(account, NULL, 10);
        rn_holder_close(holder);
    }
    return NULL;
}

static void holders_and_devices_may_be_added_by_all(void **state) {
    (void)state;
    static namer namers[THREADS];
    for (int i = 0; i < THREADS; i++)
        namers[i] = (namer){.number = i};
    run_threads(open_and_close, namers, sizeof *namers);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(0, namers[i].wrong);
    assert_int_equal(1 + 5, rn_device_count());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(random_charges_end_at_zero_with_a_true_peak),
        TEST(what_is_refused_is_in_nobodys_peak),
        TEST(peak_of_a_known_order_is_exact),
        TEST(count_outlives_the_threads_that_made_it),
        TEST(thread_without_memory_for_its_books_is_counted_all_the_same),
        TEST(listener_may_be_changed_while_others_charge),
        TEST(listener_hears_every_thread),
        TEST(holders_and_devices_may_be_added_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
