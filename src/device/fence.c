// fence.c — signals are numbered when they are submitted; a wait is for a number.
//
// A signal of the host wakes whoever waits. One of a device only changes the fence's word, so
// threads look at that again and again, now and then whether the queue that owes it is poisoned,
// and after a second or so whether the device is still there. That is asked so rarely because a
// driver may let the question wait.
#include "device/device.h"

#include <stdatomic.h>
#include <time.h>

enum { LOOK_NS = 20000, LOOKS_TO_ASK = 64, LOOKS_TO_ASK_THOROUGHLY = 256 * LOOKS_TO_ASK };

void rn_fence_init(rn_fence *fence) {
    pthread_condattr_t clock; // one that nobody sets back: a device wakes no sleeper
    *fence = (rn_fence){0};
    pthread_mutex_init(&fence->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&fence->reached, &clock);
    pthread_condattr_destroy(&clock);
}

void rn_fence_free(rn_fence *fence) {
    if (fence->event) fence->drop_event(fence->event);
    pthread_cond_destroy(&fence->reached);
    pthread_mutex_destroy(&fence->mutex);
}

uint64_t rn_fence_ask(rn_fence *fence) {
    pthread_mutex_lock(&fence->mutex);
    uint64_t ticket = ++fence->asked;
    pthread_mutex_unlock(&fence->mutex);
    return ticket;
}

uint64_t rn_fence_asked(rn_fence *fence) {
    pthread_mutex_lock(&fence->mutex);
    uint64_t ticket = fence->asked;
    pthread_mutex_unlock(&fence->mutex);
    return ticket;
}

void rn_fence_reach(rn_fence *fence, uint64_t ticket, const rn_error_info *error) {
    pthread_mutex_lock(&fence->mutex);
    if (ticket > fence->done) fence->done = ticket;
    fence->error = error;
    if (fence->word && atomic_load(fence->word) < ticket) atomic_store(fence->word, ticket);
    pthread_cond_broadcast(&fence->reached);
    pthread_mutex_unlock(&fence->mutex);
}

static bool is_reached(rn_fence *fence, uint64_t ticket) {
    uint64_t word = fence->word ? atomic_load(fence->word) : 0;
    if (word > fence->done) fence->done = word;
    return fence->done >= ticket;
}

static void sleep_a_little(rn_fence *fence) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&fence->reached, &fence->mutex, &until);
}

// Under the mutex, which is let go meanwhile.
static const rn_error_info *ask(rn_fence *fence, bool thoroughly) {
    void *event = fence->event;
    const rn_error_info *(*ask_event)(void *, bool) = fence->ask_event;
    if (!event || !ask_event) return NULL;
    pthread_mutex_unlock(&fence->mutex);
    const rn_error_info *error = ask_event(event, thoroughly);
    pthread_mutex_lock(&fence->mutex);
    return error;
}

const rn_error_info *rn_fence_await(rn_fence *fence, uint64_t ticket) {
    const rn_error_info *lost = NULL;
    pthread_mutex_lock(&fence->mutex);
    for (uint32_t looks = 1; !lost && !is_reached(fence, ticket); looks++) {
        if (!fence->word)
            pthread_cond_wait(&fence->reached, &fence->mutex);
        else if (looks % LOOKS_TO_ASK == 0)
            lost = ask(fence, looks % LOOKS_TO_ASK_THOROUGHLY == 0);
        else
            sleep_a_little(fence);
    }
    const rn_error_info *error = fence->error;
    if (!error) error = lost ? lost : ask(fence, false);
    pthread_mutex_unlock(&fence->mutex);
    return error;
}
