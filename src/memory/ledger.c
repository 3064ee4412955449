// ledger.c — counters. A charge adds to the line's bytes and the device's bytes; each add's result
// is a value that the counter really had, so the largest of them is the exact peak. A third add
// claims room under the limit, before there is memory: what the system then refuses was claimed for
// a moment, and is in no peak.
//
// The number of live charges needs no peak. It is kept for each thread without atomic adds (one
// more would cost as much as each of the three) and summed when somebody asks.
#include "memory/ledger.h"
#include "memory/scope.h"

#include "base/alloc.h"
#include "base/str.h"
#include "base/workers.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct counter {
    _Atomic uint64_t now, peak;
} counter;

// Of one device.
typedef struct device_total {
    _Alignas(32) counter held;     // what is charged
    _Atomic uint64_t claimed;      // and what is reserved beside it
    _Atomic uint64_t watched_peak; // of what is charged, for the profiler
} device_total;

// Live charges of one thread. Written by that thread only; a thread that frees what another
// allocated goes negative, the sum does not.
typedef struct tally {
    struct tally *next, **link; // in `tallies`, under `lock`
    _Atomic int64_t count[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
} tally;

struct rn_holder {
    struct rn_holder *next, **link; // in `holders`, under `lock`
    rn_account account;
    _Atomic uint64_t now;
    _Alignas(64) char name[64]; // read by listeners while others change `now`
};

static counter lines[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
static device_total totals[RN_DEVICE_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rn_holder *holders;
static tally *tallies;
static tally retired; // of threads that ended, and of threads that got no tally of their own
static char device_names[RN_DEVICE_MAX][24] = {"host"};
static _Atomic size_t device_count = 1;

// The listener and its self belong together: a reader takes the pair only where the version was
// even and the same before and after.
static _Atomic(rn_listener) listener_fn; // NULL: nobody listens
static _Atomic(void *) listener_self;
static _Atomic unsigned listener_version; // odd while the pair changes, under `lock`

static const char *const purpose_names[RN_PURPOSE_COUNT] = {
    "weights", "kv", "activations", "gradients",   "optimizer", "workspace",
    "staging", "io", "profiler",    "unaccounted", "other",     "state",
};

const char *rn_purpose_name(rn_purpose purpose) {
    return (unsigned)purpose < RN_PURPOSE_COUNT ? purpose_names[purpose] : "unknown";
}

// ---- devices and holders --------------------------------------------------------------

static rn_status find_or_add_device(const char *name, rn_device_id *out) {
    size_t count = atomic_load(&device_count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(device_names[i], name) != 0) continue;
        *out = (rn_device_id)i;
        return RN_OK;
    }
    if (count == RN_DEVICE_MAX || strlen(name) >= sizeof device_names[0] || !*name)
        return rn_fail(RN_INVALID, "cannot add device '%s' as number %zu", name, count);
    snprintf(device_names[count], sizeof device_names[0], "%s", name);
    atomic_store(&device_count, count + 1);
    *out = (rn_device_id)count;
    return RN_OK;
}

rn_status rn_device_add(const char *name, rn_device_id *out) {
    pthread_mutex_lock(&lock);
    rn_status s = find_or_add_device(name, out);
    pthread_mutex_unlock(&lock);
    return s;
}

size_t rn_device_count(void) {
    return atomic_load(&device_count);
}

const char *rn_device_name(rn_device_id device) {
    return device < rn_device_count() ? device_names[device] : "unknown";
}

rn_status rn_holder_open(rn_device_id device, rn_purpose purpose, const char *name,
                         rn_holder **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(&rn_system_allocator, 1, sizeof **out, &block));
    rn_holder *holder = block;
    holder->account = (rn_account){device, (uint8_t)purpose, holder};
    snprintf(holder->name, sizeof holder->name, "%s", name);
    pthread_mutex_lock(&lock);
    holder->next = holders;
    holder->link = &holders;
    if (holders) holders->link = &holder->next;
    holders = holder;
    pthread_mutex_unlock(&lock);
    *out = holder;
    return RN_OK;
}

void rn_holder_close(rn_holder *holder) {
    if (!holder) return;
    assert(atomic_load(&holder->now) == 0);
    pthread_mutex_lock(&lock);
    *holder->link = holder->next;
    if (holder->next) holder->next->link = holder->link;
    pthread_mutex_unlock(&lock);
    rn_free(&rn_system_allocator, holder, sizeof *holder);
}

uint64_t rn_holder_bytes(const rn_holder *holder) {
    return atomic_load(&holder->now);
}

const char *rn_holder_name(const rn_holder *holder) {
    return holder->name;
}

void rn_ledger_visit_holders(rn_device_id device, rn_holder_visit visit, void *self) {
    uint64_t named[RN_PURPOSE_COUNT] = {0};
    bool go_on = true;
    pthread_mutex_lock(&lock);
    for (rn_holder *holder = holders; holder && go_on; holder = holder->next) {
        uint64_t bytes = atomic_load(&holder->now);
        if (holder->account.device != device || bytes == 0) continue;
        named[holder->account.purpose] += bytes;
        go_on = visit(self, holder->name, holder->account, bytes);
    }
    pthread_mutex_unlock(&lock);
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT && go_on; p++) {
        uint64_t bytes = atomic_load(&lines[device][p].now);
        if (bytes > named[p])
            go_on = visit(self, NULL, (rn_account){device, p, NULL}, bytes - named[p]);
    }
}

// ---- live charges of each thread ------------------------------------------------------

static _Thread_local tally *thread_tally;
static pthread_key_t tally_key;
static pthread_once_t tally_once = PTHREAD_ONCE_INIT;

static void retire_tally(void *self) {
    tally *mine = self;
    pthread_mutex_lock(&lock);
    for (size_t d = 0; d < RN_DEVICE_MAX; d++)
        for (size_t p = 0; p < RN_PURPOSE_COUNT; p++)
            atomic_fetch_add(&retired.count[d][p], atomic_load(&mine->count[d][p]));
    *mine->link = mine->next;
    if (mine->next) mine->next->link = mine->link;
    pthread_mutex_unlock(&lock);
    thread_tally = NULL;
    rn_free(&rn_system_allocator, mine, sizeof *mine);
}

static void make_tally_key(void) {
    (void)pthread_key_create(&tally_key, retire_tally);
}

// A thread without memory for its own tally shares `retired`, with atomic adds.
static tally *make_tally(void) {
    rn_error_info error = *rn_last_error();
    void *block;
    pthread_once(&tally_once, make_tally_key);
    if (rn_alloc_zeroed(&rn_system_allocator, 1, sizeof(tally), &block) != RN_OK) {
        rn_error_restore(&error);
        return NULL;
    }
    tally *mine = block;
    pthread_mutex_lock(&lock);
    mine->next = tallies;
    mine->link = &tallies;
    if (tallies) tallies->link = &mine->next;
    tallies = mine;
    pthread_mutex_unlock(&lock);
    pthread_setspecific(tally_key, mine);
    return thread_tally = mine;
}

static void count_live(rn_account account, int64_t change) {
    tally *mine = thread_tally;
    if (!mine) mine = make_tally();
    if (!mine) {
        atomic_fetch_add(&retired.count[account.device][account.purpose], change);
        return;
    }
    _Atomic int64_t *count = &mine->count[account.device][account.purpose];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

static uint64_t live_count(rn_device_id device, rn_purpose purpose) {
    pthread_mutex_lock(&lock);
    int64_t sum = atomic_load(&retired.count[device][purpose]);
    for (tally *t = tallies; t; t = t->next)
        sum += atomic_load(&t->count[device][purpose]);
    pthread_mutex_unlock(&lock);
    return sum > 0 ? (uint64_t)sum : 0;
}

// ---- charging -------------------------------------------------------------------------

static void raise_to(_Atomic uint64_t *most, uint64_t value) {
    uint64_t peak = atomic_load_explicit(most, memory_order_relaxed);
    while (value > peak)
        if (atomic_compare_exchange_weak_explicit(most, &peak, value, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
}

static uint64_t add(_Atomic uint64_t *now, uint64_t bytes) {
    return atomic_fetch_add_explicit(now, bytes, memory_order_relaxed) + bytes;
}

static void subtract(_Atomic uint64_t *now, uint64_t bytes) {
    uint64_t before = atomic_fetch_sub_explicit(now, bytes, memory_order_relaxed);
    assert(before >= bytes);
    (void)before;
}

static void hold(device_total *t, uint64_t bytes) {
    uint64_t now = add(&t->held.now, bytes);
    raise_to(&t->held.peak, now);
    raise_to(&t->watched_peak, now);
}

bool rn_ledger_is_heard(void) {
    return atomic_load_explicit(&listener_fn, memory_order_relaxed) != NULL;
}

void rn_ledger_emit(const rn_event *event) {
    rn_listener fn;
    void *self;
    unsigned version;
    do {
        while ((version = atomic_load(&listener_version)) % 2)
            sched_yield();
        fn = atomic_load(&listener_fn);
        self = atomic_load(&listener_self);
    } while (atomic_load(&listener_version) != version);
    if (fn) fn(self, event);
}

// What nobody may be interested in: holder, scopes, listener.
static void notify(rn_account account, const void *address, uint64_t bytes, rn_event_kind kind) {
    bool charge = kind == RN_EVENT_CHARGE;
    if (account.holder)
        atomic_fetch_add_explicit(&account.holder->now, charge ? bytes : -bytes,
                                  memory_order_relaxed);
    rn_scope *scope = rn_thread_context();
    if (scope && bytes)
        rn_scope_count(scope, account.device, charge ? (int64_t)bytes : -(int64_t)bytes);
    if (rn_ledger_is_heard())
        rn_ledger_emit(
            &(rn_event){.kind = kind, .account = account, .address = address, .bytes = bytes});
}

void rn_ledger_count(rn_account account, const void *address, uint64_t bytes) {
    counter *line = &lines[account.device][account.purpose];
    hold(&totals[account.device], bytes);
    raise_to(&line->peak, add(&line->now, bytes));
    count_live(account, 1);
    notify(account, address, bytes, RN_EVENT_CHARGE);
}

void rn_ledger_charge(rn_account account, const void *address, uint64_t bytes) {
    assert(account.device < RN_DEVICE_MAX && account.purpose < RN_PURPOSE_COUNT);
    add(&totals[account.device].claimed, bytes);
    rn_ledger_count(account, address, bytes);
}

void rn_ledger_release(rn_account account, const void *address, uint64_t bytes) {
    assert(account.device < RN_DEVICE_MAX && account.purpose < RN_PURPOSE_COUNT);
    subtract(&lines[account.device][account.purpose].now, bytes);
    subtract(&totals[account.device].held.now, bytes);
    subtract(&totals[account.device].claimed, bytes);
    count_live(account, -1);
    notify(account, address, bytes, RN_EVENT_RELEASE);
}

uint64_t rn_ledger_now(rn_device_id device) {
    return atomic_load_explicit(&totals[device].held.now, memory_order_relaxed);
}

uint64_t rn_ledger_claimed(rn_device_id device) {
    return atomic_load_explicit(&totals[device].claimed, memory_order_relaxed);
}

bool rn_ledger_try_reserve(rn_device_id device, uint64_t bytes, uint64_t limit) {
    _Atomic uint64_t *claimed = &totals[device].claimed;
    uint64_t now = atomic_load_explicit(claimed, memory_order_relaxed);
    do {
        if (bytes > limit || now > limit - bytes) return false;
    } while (!atomic_compare_exchange_weak_explicit(claimed, &now, now + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

uint64_t rn_ledger_watched_peak(rn_device_id device) {
    return atomic_load_explicit(&totals[device].watched_peak, memory_order_relaxed);
}

// First down, then up: what others add in between raises it as well.
void rn_ledger_watch(void) {
    for (size_t d = 0; d < RN_DEVICE_MAX; d++) {
        atomic_store(&totals[d].watched_peak, 0);
        raise_to(&totals[d].watched_peak, atomic_load(&totals[d].held.now));
    }
}

void rn_ledger_unreserve(rn_device_id device, uint64_t bytes) {
    subtract(&totals[device].claimed, bytes);
}

void rn_ledger_give_up(rn_account account, uint64_t bytes) {
    rn_ledger_unreserve(account.device, bytes);
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_NO_MEMORY, .account = account, .bytes = bytes});
}

void rn_ledger_set(rn_device_id device, rn_purpose purpose, uint64_t bytes) {
    uint64_t before = atomic_exchange(&lines[device][purpose].now, bytes);
    raise_to(&lines[device][purpose].peak, bytes);
    uint64_t change = bytes - before; // may wrap: the sum below is right modulo 2^64
    add(&totals[device].claimed, change);
    hold(&totals[device], change);
    rn_event event = {.account = {device, (uint8_t)purpose, NULL},
                      .address = &lines[device][purpose]};
    if (before == bytes || !rn_ledger_is_heard()) return;
    event.kind = RN_EVENT_RELEASE;
    event.bytes = before;
    if (before) rn_ledger_emit(&event);
    event.kind = RN_EVENT_CHARGE;
    event.bytes = bytes;
    if (bytes) rn_ledger_emit(&event);
}

void rn_ledger_listen(rn_listener listener, void *self) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&listener_version, 1);
    atomic_store(&listener_fn, listener);
    atomic_store(&listener_self, self);
    atomic_fetch_add(&listener_version, 1);
    pthread_mutex_unlock(&lock);
}

// ---- reading --------------------------------------------------------------------------

static rn_ledger_line read_counter(counter *c) {
    return (rn_ledger_line){.now_bytes = atomic_load(&c->now), .peak_bytes = atomic_load(&c->peak)};
}

rn_ledger_line rn_ledger_read(rn_device_id device, rn_purpose purpose) {
    assert(device < RN_DEVICE_MAX && (unsigned)purpose < RN_PURPOSE_COUNT);
    rn_ledger_line line = read_counter(&lines[device][purpose]);
    line.count = live_count(device, purpose);
    return line;
}

rn_ledger_line rn_ledger_total(rn_device_id device) {
    assert(device < RN_DEVICE_MAX);
    rn_ledger_line line = read_counter(&totals[device].held);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        line.count += live_count(device, (rn_purpose)p);
    return line;
}

void rn_ledger_reset_peaks(void) {
    for (size_t d = 0; d < RN_DEVICE_MAX; d++) {
        atomic_store(&totals[d].held.peak, atomic_load(&totals[d].held.now));
        for (size_t p = 0; p < RN_PURPOSE_COUNT; p++)
            atomic_store(&lines[d][p].peak, atomic_load(&lines[d][p].now));
    }
}

static bool add_named(void *self, const char *name, rn_account account, uint64_t bytes) {
    uint64_t *named = self; // (RN_PURPOSE_COUNT)
    if (name) named[account.purpose] += bytes;
    return true;
}

bool rn_ledger_is_valid(void) {
    for (size_t d = 0; d < RN_DEVICE_MAX; d++) {
        uint64_t sum = 0, named[RN_PURPOSE_COUNT] = {0};
        rn_ledger_visit_holders((rn_device_id)d, add_named, named);
        for (size_t p = 0; p < RN_PURPOSE_COUNT; p++) {
            rn_ledger_line line = read_counter(&lines[d][p]);
            if (line.peak_bytes < line.now_bytes || named[p] > line.now_bytes) return false;
            sum += line.now_bytes;
        }
        rn_ledger_line total = read_counter(&totals[d].held);
        if (sum != total.now_bytes || total.peak_bytes < total.now_bytes) return false;
        if (sum != atomic_load(&totals[d].claimed)) return false;
    }
    return true;
}
