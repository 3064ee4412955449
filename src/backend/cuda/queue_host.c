// queue_host.c — functions of the host in the order of a stream: errands for the driver's thread.
//
// The driver runs none of them once the device is lost. Then whoever finishes the queue does what
// is left: notes are taken, calls are skipped.
#include "backend/cuda/queue.h"

#include <time.h>

static void run(rn_cuda_errand *errand, bool skipped) {
    const rn_command *command = &errand->command;
    rn_cuda_queue *queue = errand->queue;
    if (command->kind == RN_COMMAND_NOTE)
        command->as.note.fn(command->as.note.self, command->as.note.index, skipped);
    else if (command->kind == RN_COMMAND_SIGNAL)
        rn_fence_reach(command->as.fence.fence, command->as.fence.ticket,
                       skipped ? &queue->error : NULL);
    else if (!skipped &&
             command->as.host.fn(command->as.host.self, command->as.host.index) != RN_OK) {
        rn_cuda_queue_poison(queue, rn_last_error());
        atomic_store(&queue->errand_failed, true);
    }
}

static void take_up(rn_cuda_errand *errand, bool lost) {
    rn_cuda_queue *queue = errand->queue;
    if (!atomic_exchange(&errand->waits, false)) return;
    run(errand, lost || errand->skipped || atomic_load(&queue->errand_failed));
    atomic_fetch_add(&queue->errands_done, 1);
}

// The driver's thread.
static void on_driver(void *errand) {
    take_up(errand, false);
}

void rn_cuda_queue_run_rest(rn_cuda_queue *queue) {
    uint64_t first =
        queue->errands_begun > RN_CUDA_ERRANDS ? queue->errands_begun - RN_CUDA_ERRANDS : 0;
    for (uint64_t i = first; i < queue->errands_begun; i++)
        take_up(&queue->errands[i % RN_CUDA_ERRANDS], true);
    while (atomic_load(&queue->errands_done) < queue->errands_begun) // one is being run there
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static bool is_lost(const rn_cuda_queue *queue) {
    rn_cu_result code = rn_cuda_queue_driver(queue)->stream_query(queue->stream.handle);
    return code != RN_CU_SUCCESS && code != RN_CU_NOT_READY;
}

static void wait_for_room(rn_cuda_queue *queue) {
    while (queue->errands_begun - atomic_load(&queue->errands_done) >= RN_CUDA_ERRANDS) {
        if (is_lost(queue))
            rn_cuda_queue_run_rest(queue);
        else
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

void rn_cuda_queue_run(rn_cuda_queue *queue, const rn_command *command) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    wait_for_room(queue);
    rn_cuda_errand *errand = &queue->errands[queue->errands_begun++ % RN_CUDA_ERRANDS];
    errand->queue = queue;
    errand->command = *command;
    errand->skipped = rn_cuda_queue_poisoned(queue);
    atomic_store(&errand->waits, true);
    queue->stream.after_launch = false;
    rn_cu_result code = driver->launch_host_func(queue->stream.handle, on_driver, errand);
    if (code == RN_CU_SUCCESS) return;
    rn_cuda_queue_fail(queue, rn_cuda_check(driver, code, "queueing a function of the host"));
    (void)driver->stream_synchronize(queue->stream.handle);
    take_up(errand, true);
}
