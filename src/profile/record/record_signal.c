// record_signal.c — the last words of a program, and the child that must not speak for its parent.
#include "profile/record/record.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS = 100 }; // at the lock, a millisecond apart

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { FATAL_COUNT = sizeof fatal / sizeof *fatal };
static struct sigaction previous[FATAL_COUNT];
static bool caught; // under rn_control_lock
static _Alignas(64) char signal_stack[64 << 10];

pthread_mutex_t rn_control_lock = PTHREAD_MUTEX_INITIALIZER;

// ---- fatal signals ------------------------------------------------------------------------------

// Whoever has the lock is writing, and soon done; unless it is the thread that was hit.
static bool lock_soon(void) {
    for (int i = 0; i < ATTEMPTS; i++) {
        if (rn_recorder_try_lock()) return true;
        if (atomic_load(&rn_rec.owner) == (uintptr_t)pthread_self()) return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static void write_last(int number) {
    if (!atomic_load(&rn_rec.session) || !lock_soon()) return;
    rn_rec.in_signal = true;
    if (atomic_load(&rn_rec.session)) {
        rn_service_put(&(rn_trace_event){.time_ns = rn_record_now(),
                                         .bytes = (uint64_t)number,
                                         .kind = RN_TRACE_MARK,
                                         .purpose = RN_MARK_SIGNAL});
        rn_round_write(NULL);
    }
    rn_rec.in_signal = false;
    atomic_store(&rn_rec.owner, 0);
    pthread_mutex_unlock(&rn_rec.lock);
}

// A fault happens again when the handler returns, with all that belongs to it, and then meets
// whoever was there before us. What was sent is sent again.
static void on_fatal(int number, siginfo_t *info, void *context) {
    int code = errno;
    (void)context;
    write_last(number);
    for (size_t i = 0; i < FATAL_COUNT; i++)
        if (fatal[i] == number) (void)sigaction(number, &previous[i], NULL);
    if (info->si_code <= 0) (void)raise(number);
    errno = code;
}

// A stack of its own for the thread that starts the recording, so that a stack that has overflowed
// is reported, too. Other threads keep what they have.
static void give_stack(void) {
    stack_t now;
    if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    (void)sigaltstack(&(stack_t){.ss_sp = signal_stack, .ss_size = sizeof signal_stack}, NULL);
}

static void take_stack(void) {
    stack_t now;
    if (sigaltstack(NULL, &now) == 0 && now.ss_sp == signal_stack && !(now.ss_flags & SS_ONSTACK))
        (void)sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
}

void rn_record_signals_catch(void) {
    struct sigaction action = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (caught) return;
    sigemptyset(&action.sa_mask);
    give_stack();
    for (size_t i = 0; i < FATAL_COUNT; i++)
        (void)sigaction(fatal[i], &action, &previous[i]);
    caught = true;
}

// A handler that was installed on top of ours stays where it is: it may call ours, which then
// finds nothing to write.
void rn_record_signals_restore(void) {
    if (!caught) return;
    for (size_t i = 0; i < FATAL_COUNT; i++) {
        struct sigaction now;
        bool ours = sigaction(fatal[i], NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
                    now.sa_sigaction == on_fatal;
        if (ours) (void)sigaction(fatal[i], &previous[i], NULL);
    }
    take_stack();
    caught = false;
}

// ---- forks --------------------------------------------------------------------------------------

static void before_fork(void) {
    pthread_mutex_lock(&rn_control_lock);
    pthread_mutex_lock(&rn_names_lock);
    rn_recorder_lock();
}

static void in_parent(void) {
    rn_recorder_unlock();
    pthread_mutex_unlock(&rn_names_lock);
    pthread_mutex_unlock(&rn_control_lock);
    if (rn_profile_is_on()) rn_record_mark(RN_MARK_FORK, 0, 0, 0);
}

// The child has a copy of everything but the other threads. It lets go of the file, and keeps the
// rings' memory for whoever starts a recording of its own: freeing now might need a lock that a
// thread held which is not here any more.
static void in_child(void) {
    atomic_store(&rn_rec.session, 0);
    if (rn_rec.open) {
        if (rn_rec.file.fd >= 0) close(rn_rec.file.fd);
        rn_rec.file.fd = -1;
        rn_rec.service->next = rn_rec.rings;
        rn_rec.orphans = rn_rec.service;
        rn_rec.rings = rn_rec.service = NULL;
        rn_rec.open = false;
    }
    rn_rec.warning[0] = '\0';
    (void)pthread_cond_init(&rn_rec.wake, NULL);
    rn_this_recording = (rn_recording_thread){0};
    rn_recorder_unlock();
    pthread_mutex_unlock(&rn_names_lock);
    pthread_mutex_unlock(&rn_control_lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

void rn_record_forks_watch(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
