// queue_thread.c — a ring of commands and the thread that takes them out in order.
//
//     submit ──▶ [ c3 | c4 | c5 |  |  | ... ] ──▶ thread: rn_lane_run
//                  first                count = 3; the first stays in until it is done
//
// A full ring makes the submitter wait. That cannot lock up: a wait is only ever for a signal that
// was submitted before it, so the queue that owes it can go on without the submitter.
#include "base/workers.h"
#include "device/lane.h"
#include "memory/account.h"

#include <stddef.h>

enum { RING_COMMANDS = 256 };

typedef struct thread_queue {
    rn_queue base;
    rn_lane lane; // the thread's; the submitter's while the ring is empty
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t added, done;
    uint32_t first, count; // under mutex
    bool stop;             // under mutex
    rn_command ring[RING_COMMANDS];
} thread_queue;

static thread_queue *cast(rn_queue *queue) {
    return (thread_queue *)((char *)queue - offsetof(thread_queue, base));
}

static void *thread_main(void *self) {
    thread_queue *queue = self;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->count == 0 && !queue->stop)
            pthread_cond_wait(&queue->added, &queue->mutex);
        if (queue->count == 0) break;
        if (queue->stop && !queue->lane.poisoned) {
            (void)rn_fail(RN_CANCELLED, "the queue is being closed");
            queue->lane.error = *rn_last_error();
            queue->lane.poisoned = true;
        }
        rn_command *command = &queue->ring[queue->first];
        pthread_mutex_unlock(&queue->mutex);
        rn_lane_run(&queue->lane, command);
        pthread_mutex_lock(&queue->mutex);
        queue->first = (queue->first + 1) % RING_COMMANDS;
        queue->count--;
        pthread_cond_broadcast(&queue->done);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void submit(rn_queue *base, const rn_command *command) {
    thread_queue *queue = cast(base);
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == RING_COMMANDS)
        pthread_cond_wait(&queue->done, &queue->mutex);
    queue->ring[(queue->first + queue->count++) % RING_COMMANDS] = *command;
    pthread_cond_signal(&queue->added);
    pthread_mutex_unlock(&queue->mutex);
}

static void drain(thread_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count > 0)
        pthread_cond_wait(&queue->done, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

static rn_status finish(rn_queue *base) {
    drain(cast(base));
    return rn_lane_status(&cast(base)->lane);
}

static void reset(rn_queue *base) {
    drain(cast(base));
    cast(base)->lane.poisoned = false;
}

static void release(thread_queue *queue) {
    pthread_cond_destroy(&queue->done);
    pthread_cond_destroy(&queue->added);
    pthread_mutex_destroy(&queue->mutex);
    rn_free(RN_HOST_OTHER, queue, sizeof *queue);
}

static void destroy(rn_queue *base) {
    thread_queue *queue = cast(base);
    pthread_mutex_lock(&queue->mutex);
    queue->stop = true;
    pthread_cond_signal(&queue->added);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    release(queue);
}

rn_status rn_queue_thread_create(rn_executor executor, const _Atomic bool *cancel, rn_queue **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(thread_queue), &block));
    thread_queue *queue = block;
    queue->base =
        (rn_queue){.submit = submit, .finish = finish, .reset = reset, .destroy = destroy};
    queue->lane.executor = executor;
    queue->lane.cancel = cancel;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->added, NULL);
    pthread_cond_init(&queue->done, NULL);
    int error = pthread_create(&queue->thread, NULL, thread_main, queue);
    if (error) {
        release(queue);
        return rn_thread_refuse(error, "a device's queue");
    }
    *out = &queue->base;
    return RN_OK;
}
