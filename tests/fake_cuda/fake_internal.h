// fake_internal.h — what the two halves of the fake driver share: memory and events (fake_cuda.c),
// streams that run by themselves, modules, graphs, pinned memory (fake_streams.c).
#ifndef RN_TEST_FAKE_INTERNAL_H
#define RN_TEST_FAKE_INTERNAL_H

#include "fake_cuda.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, NOT_READY = 600 };
enum { NOT_FOUND = 500, CAPTURE_BROKEN = 900 };

#define CUDA(name, ...)                                                                            \
    EXPORT int name(__VA_ARGS__);                                                                  \
    int name(__VA_ARGS__)
#define LOCKED(expression)                                                                         \
    pthread_mutex_lock(&fake_lock);                                                                \
    int code = (expression);                                                                       \
    pthread_mutex_unlock(&fake_lock);                                                              \
    return code

HIDDEN extern pthread_mutex_t fake_lock; // all of it, and:
HIDDEN extern pthread_cond_t fake_progress;
HIDDEN extern fake_cuda fake;

static inline int fake_shared_most(void) {
    return fake.shared_most ? fake.shared_most : 227 << 10;
}

// All under the lock.
HIDDEN int fake_enter_call(void); // a code other than OK: the call is to fail
HIDDEN int fake_take(size_t bytes);
HIDDEN int fake_dead(void); // the code of all calls, or 0
HIDDEN bool fake_has_event(void *event, void **out_stream, uint64_t *out_ticket);

HIDDEN bool fake_runs(void *stream); // it was created, and runs by itself
HIDDEN uint64_t fake_submitted(void *stream);
HIDDEN bool fake_is_done(void *stream, uint64_t ticket);
HIDDEN int fake_wait_done(void *stream, uint64_t ticket); // or dead
HIDDEN int fake_wait_all(void);
HIDDEN int fake_check_capture(void *stream);
HIDDEN bool fake_streams_touch(uint64_t address, size_t bytes);

#endif
