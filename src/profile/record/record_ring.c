// record_ring.c — a ring a thread: the thread appends at `head`, whoever holds the recorder's lock
// takes away at `tail`.
//
// A recording may stop, and its rings be freed, while threads record. A thread therefore says that
// it is inside before it looks whether the recording is still its ring's; stopping first says that
// it is over, then looks who is inside. One of the two sees the other, if their stores are ordered:
// an ordinary fence would cost each event as much as all the rest, so the stopping side makes the
// system run one on every CPU (membarrier).
#include "profile/record/record.h"

#include "base/clock.h"
#include "base/workers.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEAST_EVENTS = 64, EVENTS_BETWEEN_ATTEMPTS = 4096 };
static const uint64_t MOST_EVENTS = (uint64_t)1 << 24;

_Thread_local rn_recording_thread rn_this_recording;

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static _Atomic bool needs_fence = true; // until the barrier is known to work

// ---- rings --------------------------------------------------------------------------------------

rn_status rn_ring_create(uint64_t ring_bytes, rn_ring **out) {
    void *block;
    uint64_t capacity = LEAST_EVENTS, most = ring_bytes / sizeof(rn_trace_event);
    while (capacity * 2 <= most && capacity < MOST_EVENTS)
        capacity *= 2;
    uint64_t block_bytes = sizeof(rn_ring) + capacity * sizeof(rn_trace_event);
    *out = NULL;
    RN_TRY(rn_alloc(&rn_host_allocators[RN_PURPOSE_PROFILER], block_bytes, &block));
    rn_ring *ring = block;
    memset(ring, 0, sizeof *ring);
    ring->events = (rn_trace_event *)(ring + 1);
    ring->capacity = capacity;
    ring->block_bytes = block_bytes;
    ring->lane = rn_lane_next();
    *out = ring;
    return RN_OK;
}

void rn_ring_destroy(rn_ring *ring) {
    if (ring) rn_free(&rn_host_allocators[RN_PURPOSE_PROFILER], ring, ring->block_bytes);
}

// Every half ring is a moment to see whether it can be emptied without waiting.
typedef enum fill { FULL, KEPT, HALF } fill;

// By the ring's only writer.
static inline fill append(rn_ring *ring, const rn_trace_event *event) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - ring->tail_seen == ring->capacity) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - ring->tail_seen == ring->capacity) return FULL;
    }
    ring->events[head & (ring->capacity - 1)] = *event;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return (head + 1) & (ring->capacity / 2 - 1) ? KEPT : HALF;
}

void rn_service_put(const rn_trace_event *event) {
    if (append(rn_rec.service, event) != FULL) return;
    rn_round_write(NULL);
    if (append(rn_rec.service, event) == FULL) atomic_fetch_add(&rn_rec.dropped_count, 1);
}

// ---- a thread and its ring ----------------------------------------------------------------------

void rn_rings_prepare(void) {
    bool works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    atomic_store(&needs_fence, !works);
}

void rn_rings_await(rn_ring *rings) {
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&needs_fence))
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    for (rn_ring *ring = rings; ring; ring = ring->next)
        while (ring->inside && atomic_load_explicit(ring->inside, memory_order_acquire))
            sched_yield();
}

bool rn_recording_enter(rn_recording_thread *thread) {
    if (atomic_load_explicit(&thread->inside, memory_order_relaxed)) return false;
    atomic_store_explicit(&thread->inside, 1, memory_order_relaxed);
    if (atomic_load_explicit(&needs_fence, memory_order_relaxed))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    uint32_t session = atomic_load_explicit(&rn_rec.session, memory_order_acquire);
    if (session && session == thread->session) return true;
    rn_recording_leave(thread);
    return false;
}

rn_aside rn_aside_begin(void) {
    rn_aside before = {.busy = rn_this_recording.busy};
    rn_this_recording.busy = true;
    before.scopes = rn_thread_context();
    rn_thread_context_set(NULL);
    return before;
}

void rn_aside_end(rn_aside before) {
    rn_thread_context_set(before.scopes);
    rn_this_recording.busy = before.busy;
}

void rn_told_keep(rn_told *told) {
    told->error = *rn_last_error();
    told->refusal = *rn_last_refusal();
}

void rn_told_restore(const rn_told *told) {
    (void)rn_error_restore(&told->error);
    rn_refusal_restore(&told->refusal);
}

static void unlink_ring(rn_ring *ring) {
    *ring->link = ring->next;
    if (ring->next) ring->next->link = ring->link;
}

// At a thread's exit: what it recorded is written, its ring freed. What later destructors record is
// put on the service ring: another ring might stay behind, when the system stops calling them.
static void retire(void *self) {
    rn_recording_thread *thread = &rn_this_recording;
    (void)self;
    rn_recorder_lock();
    bool mine = thread->session && thread->session == atomic_load(&rn_rec.session);
    rn_ring *ring = mine ? thread->ring : NULL;
    if (ring) {
        rn_round_write(ring);
        // A write that failed has ended the recording, and left the ring to its end.
        mine = thread->session == atomic_load(&rn_rec.session);
        if (mine) unlink_ring(ring);
    }
    // The recording may be over and its rings not yet freed: then nobody may look in here any more.
    for (rn_ring *other = rn_rec.rings; other; other = other->next)
        if (other->inside == &thread->inside) other->inside = NULL;
    thread->ring = NULL;
    thread->session = 0;
    thread->ending = true;
    rn_recorder_unlock();
    // A scope that this thread was in may be gone, too: it is not looked at again.
    (void)rn_aside_begin();
    if (mine) rn_ring_destroy(ring);
    rn_aside_end((rn_aside){0});
}

static void make_exit_key(void) {
    (void)pthread_key_create(&exit_key, retire);
}

// A thread that was given a name (a worker) has it here, too; others have the program's.
static bool find_own_name(char out[16]) {
    return pthread_getname_np(pthread_self(), out, 16) == 0 && out[0] &&
           strncmp(out, program_invocation_short_name, 15) != 0;
}

static void call_default(uint32_t lane) {
    char name[32], own[16];
    pid_t id = (pid_t)syscall(SYS_gettid);
    snprintf(name, sizeof name, "thread %d", (int)id);
    if (id == getpid())
        rn_lane_call(lane, "main");
    else
        rn_lane_call(lane, find_own_name(own) ? own : name);
}

static bool link_ring(rn_recording_thread *thread, rn_ring *ring, uint32_t session) {
    rn_recorder_lock();
    bool on = session == atomic_load(&rn_rec.session);
    if (on) {
        ring->inside = &thread->inside;
        ring->next = rn_rec.rings;
        ring->link = &rn_rec.rings;
        if (ring->next) ring->next->link = &ring->next;
        rn_rec.rings = ring;
        thread->ring = ring;
        thread->session = session;
    }
    rn_recorder_unlock();
    return on;
}

static bool make_ring(rn_recording_thread *thread, uint32_t session) {
    rn_ring *ring;
    rn_told told;
    rn_aside before = rn_aside_begin();
    rn_told_keep(&told);
    rn_status s = rn_ring_create(rn_rec.ring_bytes, &ring);
    if (s != RN_OK) rn_told_restore(&told);
    rn_aside_end(before);
    if (s != RN_OK) {
        thread->wait = EVENTS_BETWEEN_ATTEMPTS;
        return false;
    }
    call_default(ring->lane);
    pthread_once(&exit_once, make_exit_key);
    (void)pthread_setspecific(exit_key, thread);
    if (link_ring(thread, ring, session)) return true;
    before = rn_aside_begin();
    rn_ring_destroy(ring);
    rn_aside_end(before);
    return false;
}

// Whether the thread has a ring of the recording under way, or gets one.
static bool has_ring(rn_recording_thread *thread, uint32_t session) {
    if (thread->session == session) return true;
    if (thread->busy || thread->ending) return false;
    if (thread->wait) {
        thread->wait--;
        return false;
    }
    return make_ring(thread, session);
}

uint32_t rn_recording_lane(void) {
    rn_recording_thread *thread = &rn_this_recording;
    uint32_t lane = 0, session = atomic_load(&rn_rec.session);
    if (!session || !has_ring(thread, session) || !rn_recording_enter(thread)) return 0;
    lane = thread->ring->lane;
    rn_recording_leave(thread);
    return lane;
}

// ---- putting ------------------------------------------------------------------------------------

// A thread without a ring shares the service ring; but what begins and ends there would nest with
// what others begin.
static void put_shared(const rn_trace_event *event, uint32_t session) {
    if (event->kind == RN_TRACE_BEGIN || event->kind == RN_TRACE_FINISH) {
        atomic_fetch_add(&rn_rec.dropped_count, 1);
        return;
    }
    rn_recorder_lock();
    if (session == atomic_load(&rn_rec.session)) rn_service_put(event);
    rn_recorder_unlock();
}

static inline bool is_due(uint64_t time_ns) {
    return time_ns > atomic_load_explicit(&rn_rec.due_ns, memory_order_relaxed);
}

// Where rings fill faster than the writer comes round, threads hold the lock most of the time: then
// they see to the others' rings as well.
static void make_room(rn_recording_thread *thread, uint32_t session, uint64_t time_ns) {
    rn_recorder_lock();
    if (session == atomic_load(&rn_rec.session))
        rn_round_write(is_due(time_ns) ? NULL : thread->ring);
    rn_recorder_unlock();
}

// Unless somebody is at it: before the ring is full there is no need to wait for anybody. All rings
// where a round is due: a thread that is awake does it for less than the writer's waking costs
// those whose CPU it takes.
static void help_out(rn_recording_thread *thread, uint64_t time_ns) {
    if (!rn_recorder_try_lock()) return;
    if (thread->session == atomic_load(&rn_rec.session))
        rn_round_write(is_due(time_ns) ? NULL : thread->ring);
    rn_recorder_unlock();
}

static void put_slowly(const rn_trace_event *event) {
    rn_recording_thread *thread = &rn_this_recording;
    for (;;) {
        uint32_t session = atomic_load(&rn_rec.session);
        if (!session) return;
        // A signal handler, in the middle of another event or of a round.
        if (atomic_load(&thread->inside) ||
            atomic_load(&rn_rec.owner) == (uintptr_t)pthread_self()) {
            atomic_fetch_add(&rn_rec.dropped_count, 1);
            return;
        }
        if (!has_ring(thread, session)) {
            put_shared(event, session);
            return;
        }
        if (rn_recording_enter(thread)) {
            bool done = append(thread->ring, event) != FULL;
            rn_recording_leave(thread);
            if (done) return;
            make_room(thread, session, event->time_ns);
        }
    }
}

void rn_record_put(const rn_trace_event *event) {
    rn_recording_thread *thread = &rn_this_recording;
    if (rn_recording_enter(thread)) {
        fill how = append(thread->ring, event);
        rn_recording_leave(thread);
        if (how != FULL) {
            if (how == HALF || is_due(event->time_ns)) help_out(thread, event->time_ns);
            return;
        }
    }
    put_slowly(event);
}
