// queue.h — a queue over a CUDA stream.
//
// Commands go to the driver at once and run later, so there are two kinds of failure. What fails
// while it is submitted poisons the queue there and then. What fails later (a kernel, a function of
// the host, a wait for a queue that was poisoned after this one began to wait) shows when the queue
// is finished: finish asks the driver, and every fence that was waited for since the last finish,
// and the queue that signalled it, for an error.
//
//     queue.c         submitting, finishing, poison      queue_fence.c   signals and waits
//     queue_host.c    functions of the host              queue_record.c  recordings
//     port.c          small copies, by threads
#ifndef RN_BACKEND_CUDA_QUEUE_H
#define RN_BACKEND_CUDA_QUEUE_H

#include "backend/cuda/cuda.h"

// Where a call's kernels go: rn_call.stream.
typedef struct rn_cuda_stream {
    rn_gpu *gpu;
    rn_cu_stream handle;
    bool after_launch; // the last thing in it is a launch
    bool after_port;   // and it brings inputs, which kernels read before they wait for others: so
                       // nothing but the next of its kind begins before it has ended
    bool is_recording;
} rn_cuda_stream;

// A function of the host on its way: CALL, NOTE, and SIGNAL where streams cannot write words.
typedef struct rn_cuda_errand {
    struct rn_cuda_queue *queue;
    rn_command command;
    bool skipped;       // the queue was poisoned when it was submitted
    _Atomic bool waits; // nobody has run it yet: whoever clears this does
} rn_cuda_errand;
enum { RN_CUDA_ERRANDS = 256 };

typedef struct rn_cuda_queue {
    rn_queue base;
    rn_cuda_stream stream;
    bool has_spare;             // the stream is one of the device's own
    const _Atomic bool *cancel; // or NULL
    _Atomic bool poisoned;      // set once, after the error
    rn_error_info error;
    // Fences waited for since the last finish; under the device's links.
    rn_fence **waits; // (wait_room)
    uint32_t wait_count, wait_room;
    bool is_looking;         // among them
    rn_cuda_errand *errands; // (RN_CUDA_ERRANDS), a ring
    uint64_t errands_begun;
    _Atomic uint64_t errands_done;
    _Atomic bool errand_failed; // later ones, in the order of the stream, are skipped
} rn_cuda_queue;

// The device's own streams, before they are needed; inside the context, both.
RN_MUST_USE rn_status rn_cuda_streams_open(rn_gpu *gpu);
void rn_cuda_streams_close(rn_gpu *gpu);
// rn_device.open_queue.
RN_MUST_USE rn_status rn_cuda_queue_open(rn_device *device, rn_queue_kind kind,
                                         const _Atomic bool *cancel, rn_queue **out);

// rn_device.ready_fence.
RN_MUST_USE rn_status rn_cuda_fence_ready(rn_device *device, rn_fence *fence, bool with_host);

static inline rn_cuda_queue *rn_cuda_queue_of(rn_queue *queue) {
    return (rn_cuda_queue *)((char *)queue - offsetof(rn_cuda_queue, base));
}
static inline const rn_cuda_driver *rn_cuda_queue_driver(const rn_cuda_queue *queue) {
    return queue->stream.gpu->cuda.driver;
}
static inline bool rn_cuda_queue_poisoned(const rn_cuda_queue *queue) {
    return atomic_load_explicit(&queue->poisoned, memory_order_acquire);
}

// Keeps the error, if it is the first. From any thread; the device's links are not held.
void rn_cuda_queue_poison(rn_cuda_queue *queue, const rn_error_info *error);
// Poisons it with the calling thread's error unless `status` is RN_OK.
void rn_cuda_queue_fail(rn_cuda_queue *queue, rn_status status);
// The queue's error, also if it only shows in what the queue waited for; NULL: none. From any
// thread; the links are held.
const rn_error_info *rn_cuda_queue_look(rn_cuda_queue *queue);

// Whether the copy is one for threads, and what these are told; then rn_cuda_port_copy makes it.
struct rn_port_args;
bool rn_cuda_port_takes(const rn_cuda_queue *queue, const rn_command *command,
                        struct rn_port_args *out_args);
RN_MUST_USE rn_status rn_cuda_port_copy(rn_cuda_queue *queue, const struct rn_port_args *args);

// ---- inside the device's context ----------------------------------------------------------------
void rn_cuda_queue_signal(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket);
void rn_cuda_queue_wait(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket);
void rn_cuda_queue_run(rn_cuda_queue *queue, const rn_command *command); // an errand
// Runs here what the driver will not run any more: the device is lost.
void rn_cuda_queue_run_rest(rn_cuda_queue *queue);

// ---- of rn_queue --------------------------------------------------------------------------------
rn_status rn_cuda_queue_capture(rn_queue *queue);
rn_status rn_cuda_queue_keep(rn_queue *queue, rn_recording **out);
void rn_cuda_queue_replay(rn_queue *queue, rn_recording *recording);
void rn_cuda_queue_forget(rn_queue *queue, rn_recording *recording);

#endif
