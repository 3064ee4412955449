// device.h — memory, queues and fences of a device: what a session submits work to.
//
//     rn_queue *compute, *copy;
//     rn_fence loaded;
//     rn_queue_copy_in(copy, slot, host, bytes);
//     rn_queue_signal(copy, &loaded);
//     rn_queue_wait(compute, &loaded);
//     rn_queue_launch(compute, kernel, &call);
//     RN_TRY(rn_queue_finish(compute)); // the error of the first command that failed
//
// A queue runs its commands in order; two queues run side by side but for fences. The first command
// that fails poisons its queue: the error is kept, later commands are skipped, their fences still
// complete, and rn_queue_finish returns the error until rn_queue_reset revives the queue. A fence
// that a poisoned queue signals hands the poison on to the queue that waits for it, so that nothing
// is computed from what never arrived. Cancelling is the same path with RN_CANCELLED.
//
// A back end is an rn_device: a few functions beside its caps. src/backend/null is one to copy.
#ifndef RN_DEVICE_DEVICE_H
#define RN_DEVICE_DEVICE_H

#include <ration/device.h>

#include "device/kernel.h"

#include <pthread.h>

// ---- fences -------------------------------------------------------------------------------------

// A point in a queue that other queues wait for (what CUDA calls an event). May be used again and
// again: a wait is for the signal that was submitted last before it; a fence that was never
// signalled holds nobody up. After the reset of a queue that signalled it, init it anew.
typedef struct rn_fence {
    pthread_mutex_t mutex;
    pthread_cond_t reached;
    uint64_t asked, done;       // signals that were submitted; the last that was reached
    const rn_error_info *error; // of the poisoned queue that signalled last, or NULL
    // A device's own means, made by its queue at the first signal or wait; NULL: none.
    void *event;
    void (*drop_event)(void *event);
    // What became of the queue that signalled: its error; NULL: nothing bad so far. Thoroughly: the
    // device is asked whether it is still there. Called without the mutex.
    const rn_error_info *(*ask_event)(void *event, bool thoroughly);
    _Atomic uint64_t *word; // the last signal reached, told by and to a device; NULL: none
    bool for_host; // a thread of the host waits for what a device's queue signals; set after init
} rn_fence;

void rn_fence_init(rn_fence *fence);
// Nobody may be waiting.
void rn_fence_free(rn_fence *fence);

// For those who write queues: the number of a new signal; of the last one; a signal is reached, by
// a poisoned queue with its error; waits for a signal, returns its error or NULL.
uint64_t rn_fence_ask(rn_fence *fence);
uint64_t rn_fence_asked(rn_fence *fence);
void rn_fence_reach(rn_fence *fence, uint64_t ticket, const rn_error_info *error);
const rn_error_info *rn_fence_await(rn_fence *fence, uint64_t ticket);

// ---- commands -----------------------------------------------------------------------------------

typedef enum rn_command_kind {
    RN_COMMAND_LAUNCH,
    RN_COMMAND_COPY_IN,  // host to device
    RN_COMMAND_COPY_OUT, // device to host
    RN_COMMAND_ZERO,     // zeros on the device
    RN_COMMAND_CALL,     // a function of the host
    RN_COMMAND_NOTE,     // one that keeps books: called in a poisoned queue as well
    RN_COMMAND_SIGNAL,
    RN_COMMAND_WAIT
} rn_command_kind;

typedef rn_status (*rn_host_call)(void *self, uint32_t index);
typedef void (*rn_host_note)(void *self, uint32_t index, bool poisoned);

typedef struct rn_command {
    rn_command_kind kind;
    union {
        struct {
            const rn_kernel *kernel;
            rn_call call; // what it points to stays until the command is done
        } launch;
        struct {
            void *target;
            const void *source; // NULL for ZERO
            uint64_t bytes;
        } copy;
        struct {
            rn_host_call fn;
            void *self;
            uint32_t index;
        } host;
        struct {
            rn_host_note fn;
            void *self;
            uint32_t index;
        } note;
        struct {
            rn_fence *fence;
            uint64_t ticket;
        } fence;
    } as;
} rn_command;

// ---- queues -------------------------------------------------------------------------------------

typedef struct rn_queue rn_queue;
typedef struct rn_recording rn_recording;
struct rn_queue {
    void (*submit)(rn_queue *queue, const rn_command *command); // may wait for room
    // Waits until all commands are done; the error of the first that failed.
    rn_status (*finish)(rn_queue *queue);
    // Waits, then forgets the failure.
    void (*reset)(rn_queue *queue);
    // Skips what has not begun (on a stream of a device's own all has), waits for what has. No
    // other queue may be waiting for its fences any more: finish those first.
    void (*destroy)(rn_queue *queue);
    // What is submitted between the two is not carried out but kept, to be replayed as a whole
    // (what CUDA calls a graph): launches, copies and zeros only, of this queue alone. NULL:
    // cannot.
    rn_status (*record)(rn_queue *queue);
    rn_status (*keep)(rn_queue *queue, rn_recording **out); // ends `record`; also after a failure
    void (*replay)(rn_queue *queue, rn_recording *recording);
    void (*forget)(rn_queue *queue, rn_recording *recording); // NULL-safe; it is not running
};

// Every queue is used by one thread at a time; `call`'s arrays, sources and targets must stay until
// the command is done, fences until the queues that wait for them are finished.
void rn_queue_launch(rn_queue *queue, const rn_kernel *kernel, const rn_call *call);
void rn_queue_copy_in(rn_queue *queue, void *device_target, const void *host_source,
                      uint64_t bytes);
void rn_queue_copy_out(rn_queue *queue, void *host_target, const void *device_source,
                       uint64_t bytes);
void rn_queue_zero(rn_queue *queue, void *device_target, uint64_t bytes);
void rn_queue_call(rn_queue *queue, rn_host_call fn, void *self, uint32_t index);
void rn_queue_note(rn_queue *queue, rn_host_note fn, void *self, uint32_t index);
void rn_queue_signal(rn_queue *queue, rn_fence *fence);
void rn_queue_wait(rn_queue *queue, rn_fence *fence);
RN_MUST_USE rn_status rn_queue_finish(rn_queue *queue);
void rn_queue_reset(rn_queue *queue);
void rn_queue_destroy(rn_queue *queue); // NULL-safe

// What carries out a device's commands (all kinds but CALL, NOTE, SIGNAL and WAIT).
typedef struct rn_executor {
    void *self;
    rn_status (*execute)(void *self, const rn_command *command);
} rn_executor;
// Copies with memcpy, calls kernels here: for devices whose memory is the host's.
extern const rn_executor rn_host_executor;

// A queue with a thread of its own and room for a few hundred commands. `cancel` may be NULL; it is
// looked at before every command that does something.
RN_MUST_USE rn_status rn_queue_thread_create(rn_executor executor, const _Atomic bool *cancel,
                                             rn_queue **out);
// A queue that runs each command at once, in the thread that submits it.
RN_MUST_USE rn_status rn_queue_inline_create(rn_executor executor, const _Atomic bool *cancel,
                                             rn_queue **out);

// ---- devices ------------------------------------------------------------------------------------

// Copies of both directions go on side by side in two queues.
typedef enum rn_queue_kind { RN_QUEUE_COMPUTE, RN_QUEUE_COPY } rn_queue_kind;

typedef struct rn_compile_request rn_compile_request; // device/executable.h
typedef struct rn_executable rn_executable;

struct rn_device {
    rn_device_caps caps;
    rn_workers *workers; // what calls carry; NULL: kernels work alone
    // A block of page-aligned memory; `account` is for the refusal. Charges nothing.
    rn_status (*alloc)(rn_device *device, rn_account account, uint64_t bytes, void **out);
    void (*free)(rn_device *device, void *block, uint64_t bytes);
    rn_status (*open_queue)(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                            rn_queue **out);
    // A device that compiles has this instead of queues and kernels. RN_UNSUPPORTED names a node
    // that it cannot compile; RN_OVER_BUDGET, RN_NO_MEMORY, RN_CANCELLED.
    rn_status (*compile)(rn_device *device, const rn_compile_request *request, rn_executable **out);
    // Makes a fence's own means before its first signal, so that a run takes no memory for them;
    // `with_host`: also those that a thread of the host signals it by, or waits for it. NULL: none.
    rn_status (*ready_fence)(rn_device *device, rn_fence *fence, bool with_host);
    // Host memory that the device copies from and to at its full rate (pinned). Asks the budget and
    // charges `account`. NULL: any memory will do.
    rn_status (*alloc_host)(rn_device *device, rn_account account, uint64_t bytes, void **out);
    void (*free_host)(rn_device *device, rn_account account, void *block, uint64_t bytes);
    // What of its own memory is free now, whoever holds the rest. NULL: not known.
    uint64_t (*free_bytes)(rn_device *device);
    // Charges anew what the driver holds there beside what was allocated (unaccounted). NULL:
    // nothing.
    void (*measure)(rn_device *device);
    // Gives back what it holds and nobody uses; how many bytes. NULL: it keeps nothing.
    uint64_t (*release_caches)(rn_device *device);
    // What `alloc`, or the budget before it, last had no room for; `alloc` sets it where it is the
    // device's memory that is full. Whoever wants to know zeroes it first (runtime/recover.c).
    uint64_t refused_bytes;
    void (*destroy)(rn_device *device);
};

// Host memory for copies to and from the device: the device's own kind of it, or any. Page-aligned;
// asked of the budget and charged to `account`. Zero bytes give NULL.
RN_MUST_USE rn_status rn_device_host_take(rn_device *device, rn_account account, uint64_t bytes,
                                          void **out);
void rn_device_host_release(rn_device *device, rn_account account, void *block,
                            uint64_t bytes); // NULL-safe

// One block, charged to the device's lines of the ledger, by purpose.
typedef struct rn_device_memory {
    rn_device *device;
    uint8_t *base; // an address of the device: the host's only where caps.own_memory is false
    uint64_t bytes;
    uint64_t purpose_bytes[RN_PURPOSE_COUNT]; // charged: their sum is `bytes`, but for what is
                                              // charged later
} rn_device_memory;

// Asks the budget for all of it, allocates, charges. RN_OVER_BUDGET, RN_NO_MEMORY. Zero bytes give
// an empty block.
RN_MUST_USE rn_status rn_device_memory_take(rn_device *device,
                                            const uint64_t purpose_bytes[RN_PURPOSE_COUNT],
                                            rn_device_memory *out);
// The same, but `later_bytes` of `later` are neither asked for nor charged: whoever uses them
// charges them first (rn_budget_charge), and releases them. The memory is there, untouched.
RN_MUST_USE rn_status rn_device_memory_take_part(rn_device *device,
                                                 const uint64_t purpose_bytes[RN_PURPOSE_COUNT],
                                                 rn_purpose later, uint64_t later_bytes,
                                                 rn_device_memory *out);
void rn_device_memory_release(rn_device_memory *memory); // {0}-safe

#endif
