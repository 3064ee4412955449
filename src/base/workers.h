// workers.h — threads that run loops: `rn_workers_run` calls fn(arg, i) for every i in [0, count).
//
// The caller works too, so one worker means no extra thread. Several callers may run loops at once;
// each waits only for its own. Idle threads spin briefly (a kernel's next loop is microseconds
// away), then park and cost nothing. A job inherits its caller's thread context (below), so that
// what it allocates is counted where the caller is.
#ifndef RN_BASE_WORKERS_H
#define RN_BASE_WORKERS_H

#include "base/alloc.h"

typedef struct rn_workers rn_workers;
typedef void (*rn_task)(void *arg, size_t index);

// thread_count includes the caller; 0 means one for each CPU that this process may use.
RN_MUST_USE rn_status rn_workers_create(size_t thread_count, const rn_allocator *from,
                                        rn_workers **out);
// NULL-safe. No loop may be running.
void rn_workers_destroy(rn_workers *workers);
size_t rn_workers_count(const rn_workers *workers);
// Returns when all calls have returned. Tasks must not fail; they write their status where `arg`
// says. A task may itself call rn_workers_run.
void rn_workers_run(rn_workers *workers, size_t count, rn_task fn, void *arg);

// A thread that could not be started, by pthread_create's error; `what` is what it was for. RN_IO:
// it is a limit of the system, and memory is rarely the reason.
RN_MUST_USE rn_status rn_thread_refuse(int error, const char *what);

// CPUs this process may run on (affinity and cgroup quota), at least 1.
size_t rn_cpu_count(void);

// One pointer a thread that jobs inherit; base does not know what it means (memory/scope.c does).
void *rn_thread_context(void);
void rn_thread_context_set(void *context);

#endif
