// fence.c — signals are numbered when they are submitted; a wait is for a number.
#include "device/device.h"

void rn_fence_init(rn_fence *fence) {
    *fence = (rn_fence){0};
    pthread_mutex_init(&fence->mutex, NULL);
    pthread_cond_init(&fence->reached, NULL);
}

void rn_fence_free(rn_fence *fence) {
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

void rn_fence_reach(rn_fence *fence, uint64_t ticket, const rn_story *story) {
    pthread_mutex_lock(&fence->mutex);
    if (ticket > fence->done) fence->done = ticket;
    fence->story = story;
    pthread_cond_broadcast(&fence->reached);
    pthread_mutex_unlock(&fence->mutex);
}

const rn_story *rn_fence_await(rn_fence *fence, uint64_t ticket) {
    pthread_mutex_lock(&fence->mutex);
    while (fence->done < ticket)
        pthread_cond_wait(&fence->reached, &fence->mutex);
    const rn_story *story = fence->story;
    pthread_mutex_unlock(&fence->mutex);
    return story;
}
