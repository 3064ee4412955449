// queue.c — commands, and the queue that has no thread.
#include "device/lane.h"
#include "memory/account.h"

#include <stddef.h>

// ---- submitting ---------------------------------------------------------------------------------

void rn_queue_launch(rn_queue *queue, const rn_kernel *kernel, const rn_call *call) {
    rn_command command = {RN_COMMAND_LAUNCH, .as.launch = {kernel, *call}};
    queue->submit(queue, &command);
}

static void submit_copy(rn_queue *queue, rn_command_kind kind, void *target, const void *source,
                        uint64_t bytes) {
    if (bytes == 0) return;
    rn_command command = {kind, .as.copy = {target, source, bytes}};
    queue->submit(queue, &command);
}

void rn_queue_copy_in(rn_queue *queue, void *device_target, const void *host_source,
                      uint64_t bytes) {
    submit_copy(queue, RN_COMMAND_COPY_IN, device_target, host_source, bytes);
}

void rn_queue_copy_out(rn_queue *queue, void *host_target, const void *device_source,
                       uint64_t bytes) {
    submit_copy(queue, RN_COMMAND_COPY_OUT, host_target, device_source, bytes);
}

void rn_queue_zero(rn_queue *queue, void *device_target, uint64_t bytes) {
    submit_copy(queue, RN_COMMAND_ZERO, device_target, NULL, bytes);
}

void rn_queue_call(rn_queue *queue, rn_host_call fn, void *self, uint32_t index) {
    rn_command command = {RN_COMMAND_CALL, .as.host = {fn, self, index}};
    queue->submit(queue, &command);
}

void rn_queue_note(rn_queue *queue, rn_host_note fn, void *self, uint32_t index) {
    rn_command command = {RN_COMMAND_NOTE, .as.note = {fn, self, index}};
    queue->submit(queue, &command);
}

void rn_queue_signal(rn_queue *queue, rn_fence *fence) {
    rn_command command = {RN_COMMAND_SIGNAL, .as.fence = {fence, rn_fence_ask(fence)}};
    queue->submit(queue, &command);
}

void rn_queue_wait(rn_queue *queue, rn_fence *fence) {
    rn_command command = {RN_COMMAND_WAIT, .as.fence = {fence, rn_fence_asked(fence)}};
    queue->submit(queue, &command);
}

rn_status rn_queue_finish(rn_queue *queue) {
    return queue->finish(queue);
}

void rn_queue_reset(rn_queue *queue) {
    queue->reset(queue);
}

void rn_queue_destroy(rn_queue *queue) {
    if (queue) queue->destroy(queue);
}

// ---- in the caller's thread ---------------------------------------------------------------------

typedef struct inline_queue {
    rn_queue base;
    rn_lane lane;
} inline_queue;

static inline_queue *cast(rn_queue *queue) {
    return (inline_queue *)((char *)queue - offsetof(inline_queue, base));
}

static void run_now(rn_queue *queue, const rn_command *command) {
    rn_lane_run(&cast(queue)->lane, command);
}

static rn_status finish(rn_queue *queue) {
    return rn_lane_status(&cast(queue)->lane);
}

static void reset(rn_queue *queue) {
    cast(queue)->lane.poisoned = false;
}

static void destroy(rn_queue *queue) {
    rn_free(RN_HOST_OTHER, cast(queue), sizeof(inline_queue));
}

rn_status rn_queue_inline_create(rn_executor executor, const _Atomic bool *cancel, rn_queue **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(inline_queue), &block));
    inline_queue *queue = block;
    queue->base =
        (rn_queue){.submit = run_now, .finish = finish, .reset = reset, .destroy = destroy};
    queue->lane.executor = executor;
    queue->lane.cancel = cancel;
    *out = &queue->base;
    return RN_OK;
}
