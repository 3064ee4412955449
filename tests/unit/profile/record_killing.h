// record_killing.h — a child that records with two threads until it is killed at a random moment.
#ifndef RN_TEST_RECORD_KILLING_H
#define RN_TEST_RECORD_KILLING_H

#include "record_reading.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Shared with the child: when each of its threads recorded first and last.
typedef struct kill_board {
    _Atomic uint64_t first_ns[2], latest_ns[2];
    _Atomic bool started;
} kill_board;

typedef struct kill_thread {
    kill_board *board;
    unsigned number;
    bool hurry; // without a pause: the ring is full all the time
} kill_thread;

static inline void *record_until_killed(void *self) {
    kill_thread *t = self;
    atomic_store(&t->board->first_ns[t->number], rn_profile_now());
    for (;;) {
        uint64_t now = rn_profile_now();
        rn_profile_counter(RN_COUNTER_OTHER, (rn_device_id)t->number, 0, now);
        atomic_store(&t->board->latest_ns[t->number], now);
        if (!t->hurry) (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

static inline void be_killed(const char *path, kill_board *board, int round) {
    kill_thread threads[2] = {{board, 0, round % 2}, {board, 1, round % 4 == 3}};
    pthread_t other;
    // Small enough that no child fills the disk, which would be the end of its recording.
    rn_profile_options options = {
        .path = path, .keep_newest = true, .limit_bytes = 64 << 20, .leave_signals = true};
    if (rn_profile_start(&options) != RN_OK) _exit(1);
    atomic_store(&board->started, true);
    if (pthread_create(&other, NULL, record_until_killed, &threads[1]) != 0) _exit(1);
    record_until_killed(&threads[0]);
}

typedef struct kill_found {
    uint64_t latest_ns[2];
} kill_found;

static inline void find_latest(void *self, const rn_trace_block *block,
                               const rn_trace_event *event) {
    kill_found *found = self;
    (void)block;
    if (event->kind != RN_TRACE_COUNTER || event->purpose != RN_COUNTER_OTHER) return;
    if (event->device < 2 && event->bytes > found->latest_ns[event->device])
        found->latest_ns[event->device] = event->bytes;
}

// What the killed child had recorded and its file has not, in nanoseconds: the worse of its two
// threads. The file must be readable: a preamble, every whole block's events in order.
static inline uint64_t kill_once(const char *path, int round, unsigned pause_us) {
    kill_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) be_killed(path, board, round);
    while (!atomic_load(&board->started) && waitpid(child, NULL, WNOHANG) == 0)
        usleep(100);
    usleep(pause_us);
    assert_int_equal(0, kill(child, SIGKILL));
    int status;
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    reading *r = read_trace(path);
    assert_true(r->count > 1);
    assert_int_equal(RN_TRACE_PREAMBLE, r->blocks[0]->kind);
    assert_int_equal(1, count_events(r, RN_TRACE_MARK, RN_MARK_START) +
                            (r->blocks[1]->sequence > 1)); // unless it is overwritten
    kill_found found = {{0}};
    each_event(r, find_latest, &found);
    uint64_t worst = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t latest = atomic_load(&board->latest_ns[i]), have = found.latest_ns[i];
        if (have == 0) have = atomic_load(&board->first_ns[i]); // nothing is in the file
        if (latest > have && latest - have > worst) worst = latest - have;
    }
    close_reading(r);
    munmap(board, sizeof *board);
    return worst;
}

#endif
