// record.c — a recording from its start to its end, and the writer thread between them.
//
// A round is due after 20 ms. Who records next does it; the writer wakes every 40 ms for those that
// have fallen silent. So a program that is killed loses what the last round did not have: 60 ms,
// where the writer gets a CPU. It also looks at what nobody reports: resident memory and budgets.
#include "profile/record/record.h"

#include "base/clock.h"
#include "base/reserved.h"
#include "base/str.h"
#include "base/workers.h"
#include "memory/account.h"
#include "memory/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const uint64_t ROUND_NS = 40000000;
static const uint64_t LEAST_LIMIT = (uint64_t)256 << 10, DEFAULT_LIMIT = (uint64_t)1 << 30;
static const uint64_t DEFAULT_RING = (uint64_t)256 << 10, SERVICE_RING = (uint64_t)32 << 10;

rn_recorder rn_rec = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = {.fd = -1}};

static uint32_t session_count; // under rn_control_lock

// ---- what the writer sees for itself ------------------------------------------------------------

typedef struct watch {
    uint64_t laps;
    uint64_t resident_bytes, periodic_ns;
    uint64_t budget_bytes[RN_DEVICE_MAX];
} watch;

static watch seen; // the writer's; while it does not run, rn_profile_start's and _stop's

// The second number of /proc/self/statm: what rn_process_read says, in a tenth of its time.
static uint64_t read_resident(void) {
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    if (bytes <= 0) return 0;
    text[bytes] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

// The rest of this section is under the recorder's lock.

static void put_counter(rn_counter kind, rn_device_id device, uint64_t value, uint64_t now) {
    rn_service_put(&(rn_trace_event){.time_ns = now,
                                     .bytes = value,
                                     .kind = RN_TRACE_COUNTER,
                                     .device = device,
                                     .purpose = (uint8_t)kind});
}

static void look_at_budgets(uint64_t now) {
    for (size_t d = 0; d < rn_device_count(); d++) {
        uint64_t soft, hard;
        rn_budget_get((rn_device_id)d, &soft, &hard);
        if (hard == seen.budget_bytes[d]) continue;
        seen.budget_bytes[d] = hard;
        put_counter(RN_COUNTER_BUDGET, (rn_device_id)d, hard, now);
    }
}

static void look_at_resident(uint64_t resident_bytes, uint64_t now) {
    if (resident_bytes != seen.resident_bytes)
        put_counter(RN_COUNTER_RESIDENT, RN_DEVICE_HOST, resident_bytes, now);
    seen.resident_bytes = resident_bytes;
}

static void look_at_clock(uint64_t now) {
    double seconds = rn_rec.snapshot_seconds;
    if (seconds <= 0 || (double)(now - seen.periodic_ns) < seconds * 1e9) return;
    seen.periodic_ns = now;
    rn_service_put(
        &(rn_trace_event){.time_ns = now, .kind = RN_TRACE_MARK, .purpose = RN_MARK_PERIODIC});
}

// A budget is told once: a lap of a ring file overwrites it, so it is told again in the next one,
// after all that was said before.
static void repeat_counters(uint64_t now) {
    if (rn_rec.over || seen.laps == rn_rec.laps) return;
    rn_round_write(NULL);
    seen.laps = rn_rec.laps;
    for (size_t d = 0; d < RN_DEVICE_MAX && !rn_rec.over; d++)
        for (size_t k = 0; k <= RN_COUNTER_PREDICTED_PEAK; k++) {
            rn_trace_event event = rn_rec.counters[d][k];
            event.time_ns = now;
            if (event.kind) rn_service_put(&event);
        }
}

// ---- the writer thread --------------------------------------------------------------------------

static void wait_for_round(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + ROUND_NS;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    atomic_store(&rn_rec.owner, 0);
    if (!rn_rec.quit) (void)pthread_cond_timedwait(&rn_rec.wake, &rn_rec.lock, &until);
    atomic_store(&rn_rec.owner, (uintptr_t)pthread_self());
}

static void go_round(uint64_t resident_bytes) {
    uint64_t now = rn_record_now();
    look_at_budgets(now);
    if (resident_bytes) look_at_resident(resident_bytes, now);
    look_at_clock(now);
    repeat_counters(now);
    if (now >= atomic_load(&rn_rec.due_ns)) rn_round_write(NULL);
}

// Out of the lock while the system is asked, and while something is logged.
static void *write_rounds(void *unused) {
    (void)unused;
    rn_recorder_lock();
    while (!rn_rec.quit) {
        wait_for_round();
        rn_recorder_unlock();
        rn_recorder_say();
        uint64_t resident_bytes = read_resident();
        rn_recorder_lock();
        if (!rn_rec.over) go_round(resident_bytes);
    }
    rn_recorder_unlock();
    return NULL;
}

// Signals are for the program's own threads.
static rn_status start_writer(void) {
    sigset_t all, before;
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&rn_rec.wake, &clock);
    (void)pthread_condattr_destroy(&clock);
    rn_rec.quit = false;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&rn_rec.writer, NULL, write_rounds, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) return RN_OK;
    return rn_thread_refuse(error, "the profiler");
}

static void stop_writer(void) {
    rn_recorder_lock();
    rn_rec.quit = true;
    (void)pthread_cond_signal(&rn_rec.wake);
    rn_recorder_unlock();
    (void)pthread_join(rn_rec.writer, NULL);
}

// ---- start --------------------------------------------------------------------------------------

static rn_status check_options(const rn_profile_options *given, rn_profile_options *out) {
    *out = given ? *given : (rn_profile_options){0};
    if (!out->limit_bytes) out->limit_bytes = DEFAULT_LIMIT;
    if (!out->ring_bytes) out->ring_bytes = DEFAULT_RING;
    if (out->snapshot_seconds == 0) out->snapshot_seconds = 5;
    if (out->limit_bytes < LEAST_LIMIT)
        return rn_fail(RN_INVALID, "a trace of %s is too small: it takes at least %s",
                       rn_size_format(out->limit_bytes).text, rn_size_format(LEAST_LIMIT).text);
    return RN_OK;
}

static rn_status open_file(const rn_profile_options *options, rn_trace_file *file) {
    char name[64];
    const char *path = options->path;
    if (!path || !*path) {
        struct tm parts;
        time_t now = time(NULL);
        localtime_r(&now, &parts);
        (void)strftime(name, sizeof name, "ration_%Y%m%d_%H%M%S.rntrace", &parts);
        path = name;
    }
    RN_TRY(rn_trace_file_open(file, path));
    file->limit_bytes = options->limit_bytes;
    file->ring = options->keep_newest;
    return rn_trace_file_put_preamble(file, options);
}

static void free_rings(rn_ring *ring) {
    while (ring) {
        rn_ring *next = ring->next;
        rn_ring_destroy(ring);
        ring = next;
    }
}

// Detached under the lock: a thread that ends just now looks through the rings.
static void clear(void) {
    rn_recorder_lock();
    rn_ring *rings = rn_rec.rings, *service = rn_rec.service;
    rn_rec.rings = rn_rec.service = NULL;
    rn_rec.over = true;
    rn_rec.open = false;
    if (rn_rec.file.fd >= 0) close(rn_rec.file.fd);
    rn_rec.file.fd = -1;
    rn_recorder_unlock();
    rn_aside before = rn_aside_begin();
    free_rings(rings);
    free_rings(service);
    rn_aside_end(before);
    rn_lanes_end();
}

// What a child of fork has of its parent's.
static void free_orphans(void) {
    free_rings(rn_rec.orphans);
    rn_rec.orphans = NULL;
    rn_lanes_end();
}

static void forget_seen(void) {
    seen = (watch){0};
    for (size_t d = 0; d < RN_DEVICE_MAX; d++)
        seen.budget_bytes[d] = RN_NO_LIMIT; // of that nobody needs to be told
}

// Under the lock: others may be asking for facts.
static void open_recording(const rn_profile_options *options, const rn_trace_file *file,
                           rn_ring *service) {
    rn_recorder_lock();
    rn_rec.file = *file;
    rn_rec.service = service;
    rn_rec.names_at = rn_rec.lanes_at = (rn_log_cursor){0};
    rn_rec.devices_at = 0;
    rn_rec.event_count = 0;
    atomic_store(&rn_rec.dropped_count, 0);
    memset(rn_rec.held, 0, sizeof rn_rec.held);
    memset(rn_rec.counters, 0, sizeof rn_rec.counters);
    rn_rec.laps = 0;
    rn_rec.snapshot_seconds = options->snapshot_seconds;
    rn_rec.over = false;
    rn_rec.open = true;
    rn_recorder_unlock();
}

// What fails already here is a status, not a warning.
static rn_status write_first(void) {
    rn_recorder_lock();
    look_at_budgets(0);
    look_at_resident(read_resident(), 0);
    rn_round_write(NULL);
    rn_rec.warning[0] = '\0';
    int error = rn_rec.file.error;
    rn_recorder_unlock();
    if (!error) return RN_OK;
    rn_status s = rn_fail(RN_IO, "cannot write %s: %s", rn_rec.file.path, strerror(error));
    return rn_error_locate(s, rn_rec.file.path, rn_rec.file.offset);
}

static rn_status end(void);

static rn_status begin(const rn_profile_options *options) {
    rn_trace_file file = {.fd = -1};
    rn_ring *service;
    rn_aside before = rn_aside_begin();
    rn_status s = rn_ring_create(SERVICE_RING, &service);
    if (s == RN_OK) s = open_file(options, &file);
    if (s != RN_OK) {
        if (file.fd >= 0) close(file.fd);
        rn_ring_destroy(service);
    }
    rn_aside_end(before);
    RN_TRY(s);
    rn_lanes_begin();
    rn_lane_call(service->lane, "profiler");
    forget_seen();
    open_recording(options, &file, service);
    atomic_store(&rn_rec.ring_bytes, options->ring_bytes);
    rn_rings_prepare();
    atomic_store(&rn_rec.start_ns, rn_clock_ns());
    rn_record_peaks_begin();
    atomic_store(&rn_rec.session, ++session_count);
    rn_record_base();
    return write_first();
}

static rn_status start(const rn_profile_options *given) {
    rn_profile_options options;
    RN_TRY(check_options(given, &options));
    if (rn_profile_is_on()) {
        rn_status s = rn_fail(RN_INVALID, "a recording is under way: %s", rn_rec.file.path);
        return rn_hint(s, "stop it first (rn_profile_stop): there is one a process");
    }
    if (rn_rec.open) (void)!end(); // it ended by itself, at its limit or on a full disk
    rn_record_forks_watch();
    free_orphans();
    rn_status s = begin(&options);
    if (s == RN_OK) s = start_writer();
    if (s == RN_OK) {
        if (!options.leave_signals) rn_record_signals_catch();
        return RN_OK;
    }
    rn_error_info error = *rn_last_error();
    rn_ledger_listen(NULL, NULL);
    atomic_store(&rn_rec.session, 0);
    rn_recorder_lock();
    rn_rings_await(rn_rec.rings);
    rn_recorder_unlock();
    clear();
    return rn_error_restore(&error);
}

rn_status rn_profile_start(const rn_profile_options *options) {
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_profile_options"));
    pthread_mutex_lock(&rn_control_lock);
    rn_status s = start(options);
    pthread_mutex_unlock(&rn_control_lock);
    return s;
}

// ---- stop ---------------------------------------------------------------------------------------

static rn_status write_rest(void) {
    rn_recorder_lock();
    rn_rings_await(rn_rec.rings);
    repeat_counters(rn_record_now());
    rn_round_write(NULL);
    if (!rn_rec.over) rn_recorder_end("stopped");
    int error = rn_rec.file.error;
    rn_recorder_unlock();
    if (!error) return RN_OK;
    rn_status s =
        rn_fail(RN_IO, "%s could not be written to the end: %s", rn_rec.file.path, strerror(error));
    rn_hint(s, "what it has is readable; make room on the disk and record again");
    return rn_error_locate(s, rn_rec.file.path, rn_rec.file.offset);
}

static rn_status end(void) {
    rn_record_signals_restore();
    rn_ledger_listen(NULL, NULL);
    atomic_store(&rn_rec.session, 0);
    stop_writer();
    rn_status s = write_rest();
    rn_recorder_say();
    clear();
    return s;
}

rn_status rn_profile_stop(void) {
    pthread_mutex_lock(&rn_control_lock);
    rn_status s = rn_rec.open ? end() : RN_OK;
    pthread_mutex_unlock(&rn_control_lock);
    return s;
}

void rn_profile_flush(void) {
    if (!rn_profile_is_on()) return;
    rn_recorder_lock();
    if (rn_profile_is_on()) rn_round_write(NULL);
    rn_recorder_unlock();
}

void rn_profile_get_facts(rn_profile_facts *out) {
    rn_recorder_lock();
    *out = (rn_profile_facts){.on = rn_profile_is_on(),
                              .event_count = rn_rec.event_count,
                              .dropped_count = atomic_load(&rn_rec.dropped_count),
                              .file_bytes = rn_rec.file.bytes,
                              .ring_bytes = rn_rec.service ? rn_rec.service->block_bytes : 0};
    memcpy(out->path, rn_rec.file.path, sizeof out->path);
    for (const rn_ring *ring = rn_rec.rings; ring; ring = ring->next)
        out->ring_bytes += ring->block_bytes;
    rn_recorder_unlock();
}
