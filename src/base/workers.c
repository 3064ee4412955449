// workers.c — a short list of running loops; idle threads take indices from any loop that has some
// left.
//
// A loop lives on its caller's stack. `next` hands out indices; `active` counts threads inside the
// loop. The caller unlinks the loop (no new thread can enter), then waits until `active` is zero.
// All entering and leaving happens under one mutex; only handing out indices is lock-free. Who
// waits, for work or for the others, spins before it parks: waking up takes as long as a small
// loop.
#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SPINS = 2000 }; // a few tens of microseconds before parking

typedef struct loop {
    struct loop *next_loop;
    rn_task fn;
    void *arg, *context;
    size_t count;
    _Atomic size_t next;   // the next index to hand out
    _Atomic size_t active; // threads inside, the caller not among them; changes under the mutex
} loop;

struct rn_workers {
    const rn_allocator *from;
    size_t count;       // threads that work, the caller among them
    size_t started;     // threads in `threads`
    pthread_t *threads; // (count - 1)
    pthread_mutex_t mutex;
    pthread_cond_t wake;    // a loop was added, or stop
    pthread_cond_t left;    // a thread left a loop
    loop *loops;            // under mutex
    _Atomic uint64_t epoch; // grows with every added loop: what spinners watch
    bool stop;              // under mutex
};

static _Thread_local void *thread_context;

void *rn_thread_context(void) {
    return thread_context;
}

void rn_thread_context_set(void *context) {
    thread_context = context;
}

// cgroup v2 "max 100000" or "150000 100000"; v1 has two files. 0 means no quota.
static size_t quota_cpus(void) {
    double quota = 0, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (file) {
        if (fscanf(file, "%lf %lf", &quota, &period) != 2) quota = 0;
        fclose(file);
    } else if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"))) {
        if (fscanf(file, "%lf", &quota) != 1) quota = 0;
        fclose(file);
        period = 100000;
    }
    if (quota <= 0 || period <= 0) return 0;
    double cpus = quota / period;
    return cpus < 1 ? 1 : (size_t)(cpus + 0.5);
}

size_t rn_cpu_count(void) {
    cpu_set_t set;
    size_t cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t quota = quota_cpus();
    if (quota && quota < cpus) cpus = quota;
    return cpus ? cpus : 1;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

static void work_on(loop *work) {
    void *before = thread_context;
    thread_context = work->context;
    for (;;) {
        size_t index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
        if (index >= work->count) break;
        work->fn(work->arg, index);
    }
    thread_context = before;
}

static loop *find_work(rn_workers *workers) {
    for (loop *work = workers->loops; work; work = work->next_loop)
        if (atomic_load_explicit(&work->next, memory_order_relaxed) < work->count) return work;
    return NULL;
}

static void spin(rn_workers *workers, uint64_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&workers->epoch, memory_order_relaxed) != seen) return;
        relax();
    }
}

static void *worker_main(void *self) {
    rn_workers *workers = self;
    pthread_mutex_lock(&workers->mutex);
    while (!workers->stop) {
        loop *work = find_work(workers);
        if (work) {
            atomic_fetch_add(&work->active, 1);
            pthread_mutex_unlock(&workers->mutex);
            work_on(work);
            pthread_mutex_lock(&workers->mutex);
            atomic_fetch_sub(&work->active,
                             1); // the caller may now return: `work` is gone after this
            pthread_cond_broadcast(&workers->left);
            continue;
        }
        uint64_t seen = atomic_load(&workers->epoch);
        pthread_mutex_unlock(&workers->mutex);
        spin(workers, seen);
        pthread_mutex_lock(&workers->mutex);
        if (!workers->stop && atomic_load(&workers->epoch) == seen)
            pthread_cond_wait(&workers->wake, &workers->mutex);
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

// For debuggers and profilers.
static void name_worker(pthread_t thread, size_t number) {
    char name[16];
    snprintf(name, sizeof name, "worker %u", (unsigned)(number % 10000));
    (void)pthread_setname_np(thread, name);
}

rn_status rn_thread_refuse(int error, const char *what) {
    return rn_hint(rn_fail(RN_IO, "cannot start a thread for %s: %s", what, strerror(error)),
                   "the system allows no more threads: raise the limit (ulimit -u, the container's "
                   "pids limit), or ask for fewer with --threads");
}

rn_status rn_workers_create(size_t thread_count, const rn_allocator *from, rn_workers **out) {
    void *block;
    *out = NULL;
    if (thread_count == 0) thread_count = rn_cpu_count();
    if (thread_count > 1024) return rn_fail(RN_INVALID, "%zu threads are too many", thread_count);
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof **out, &block));
    rn_workers *workers = block;
    workers->from = from;
    workers->count = thread_count;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->wake, NULL);
    pthread_cond_init(&workers->left, NULL);
    rn_status s = rn_alloc_zeroed(from, thread_count - 1, sizeof(pthread_t), &block);
    workers->threads = block;
    while (s == RN_OK && workers->started < thread_count - 1) {
        pthread_t *thread = &workers->threads[workers->started];
        int error = pthread_create(thread, NULL, worker_main, workers);
        if (error)
            s = rn_thread_refuse(error, "computing");
        else
            name_worker(*thread, ++workers->started);
    }
    if (s == RN_OK)
        *out = workers;
    else
        rn_workers_destroy(workers);
    return s;
}

void rn_workers_destroy(rn_workers *workers) {
    if (!workers) return;
    pthread_mutex_lock(&workers->mutex);
    workers->stop = true;
    atomic_fetch_add(&workers->epoch, 1);
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->mutex);
    for (size_t i = 0; i < workers->started; i++)
        pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->left);
    pthread_cond_destroy(&workers->wake);
    pthread_mutex_destroy(&workers->mutex);
    rn_free(workers->from, workers->threads, (workers->count - 1) * sizeof(pthread_t));
    rn_free(workers->from, workers, sizeof *workers);
}

size_t rn_workers_count(const rn_workers *workers) {
    return workers->count;
}

static void add_loop(rn_workers *workers, loop *work) {
    pthread_mutex_lock(&workers->mutex);
    work->next_loop = workers->loops;
    workers->loops = work;
    atomic_fetch_add(&workers->epoch, 1);
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->mutex);
}

static void finish_loop(rn_workers *workers, loop *work) {
    pthread_mutex_lock(&workers->mutex);
    loop **link = &workers->loops;
    while (*link != work)
        link = &(*link)->next_loop;
    *link = work->next_loop;
    pthread_mutex_unlock(&workers->mutex);
    for (int i = 0; i < SPINS; i++) { // the others are on their last indices: mostly close behind
        if (atomic_load(&work->active) == 0) return;
        relax();
    }
    pthread_mutex_lock(&workers->mutex);
    while (atomic_load(&work->active) != 0)
        pthread_cond_wait(&workers->left, &workers->mutex);
    pthread_mutex_unlock(&workers->mutex);
}

void rn_workers_run(rn_workers *workers, size_t count, rn_task fn, void *arg) {
    loop work = {.fn = fn, .arg = arg, .count = count, .context = thread_context};
    bool alone = count <= 1 || workers->count == 1;
    if (!alone) add_loop(workers, &work);
    work_on(&work);
    if (!alone) finish_loop(workers, &work);
}
