// queue.c — each command is one call of the driver, inside the device's context.
#include "backend/cuda/queue.h"
#include "backend/cuda/kernels/rows_args.h"
#include "base/clock.h"
#include "memory/account.h"

#define SPIN_NS 50000 // a pass of one token ends this soon after the host begins to wait

// ---- poison -------------------------------------------------------------------------------------

void rn_cuda_queue_poison(rn_cuda_queue *queue, const rn_error_info *error) {
    pthread_mutex_lock(&queue->stream.gpu->links);
    if (!rn_cuda_queue_poisoned(queue)) {
        queue->error = *error;
        atomic_store_explicit(&queue->poisoned, true, memory_order_release);
    }
    pthread_mutex_unlock(&queue->stream.gpu->links);
}

void rn_cuda_queue_fail(rn_cuda_queue *queue, rn_status status) {
    if (status != RN_OK) rn_cuda_queue_poison(queue, rn_last_error());
}

// ---- commands -----------------------------------------------------------------------------------

// Tensors of the host, or of another device, are never read as this device's.
static rn_status check_tensor(const rn_gpu *gpu, const rn_tensor *tensor, rn_op op,
                              uint32_t argument) {
    if (!tensor->data || rn_gpu_holds(gpu, tensor->data)) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "argument %u of %s does not lie in the memory of %s",
                           argument, rn_op_name(op), gpu->base.caps.name),
                   "bring all inputs and all weights to the same device");
}

static rn_status check_call(const rn_gpu *gpu, const rn_call *call) {
    const rn_tensor workspace = {.data = call->workspace};
    for (uint32_t i = 0; i < call->input_count; i++)
        RN_TRY(check_tensor(gpu, &call->inputs[i], call->op, i));
    for (uint32_t i = 0; i < call->output_count; i++)
        RN_TRY(check_tensor(gpu, &call->outputs[i], call->op, call->input_count + i));
    return check_tensor(gpu, &workspace, call->op, call->input_count + call->output_count);
}

static rn_status launch(rn_cuda_queue *queue, const rn_command *command) {
    const rn_gpu *gpu = queue->stream.gpu;
    rn_call call = command->as.launch.call;
    if (!command->as.launch.kernel->run)
        return rn_fail(RN_UNSUPPORTED, "%s has no kernel for %s", gpu->base.caps.name,
                       rn_op_name(call.op));
    RN_TRY(check_call(gpu, &call));
    call.stream = &queue->stream;
    return command->as.launch.kernel->run(&call);
}

static rn_status check_copy(const rn_gpu *gpu, const void *address, uint64_t bytes) {
    if (rn_gpu_holds(gpu, address) && rn_gpu_holds(gpu, (const uint8_t *)address + (bytes - 1)))
        return RN_OK;
    return rn_fail(RN_INVALID, "a copy of %llu bytes does not lie in the memory of %s",
                   (unsigned long long)bytes, gpu->base.caps.name);
}

static rn_status copy(rn_cuda_queue *queue, const rn_command *command) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    rn_cu_stream stream = queue->stream.handle;
    void *target = command->as.copy.target;
    const void *source = command->as.copy.source;
    uint64_t bytes = command->as.copy.bytes;
    bool out = command->kind == RN_COMMAND_COPY_OUT;
    rn_cu_result code;
    rn_port_args port;
    RN_TRY(check_copy(queue->stream.gpu, out ? source : target, bytes));
    if (rn_cuda_port_takes(queue, command, &port)) return rn_cuda_port_copy(queue, &port);
    queue->stream.after_launch = false;
    if (out)
        code = driver->memcpy_dtoh_async(target, (uintptr_t)source, bytes, stream);
    else if (command->kind == RN_COMMAND_COPY_IN)
        code = driver->memcpy_htod_async((uintptr_t)target, source, bytes, stream);
    else
        code = driver->memset_d8_async((uintptr_t)target, 0, bytes, stream);
    return rn_cuda_check(driver, code, out ? "copying from the device" : "copying to the device");
}

static bool is_cancelled(const rn_cuda_queue *queue) {
    return queue->cancel && atomic_load(queue->cancel);
}

static void act(rn_cuda_queue *queue, const rn_command *command) {
    if (rn_cuda_queue_poisoned(queue)) return;
    if (is_cancelled(queue))
        rn_cuda_queue_fail(queue, rn_fail(RN_CANCELLED, "cancelled"));
    else if (command->kind == RN_COMMAND_CALL)
        rn_cuda_queue_run(queue, command);
    else
        rn_cuda_queue_fail(queue, command->kind == RN_COMMAND_LAUNCH ? launch(queue, command)
                                                                     : copy(queue, command));
}

static void pass_on(rn_cuda_queue *queue, const rn_command *command) {
    switch (command->kind) {
    case RN_COMMAND_SIGNAL:
        rn_cuda_queue_signal(queue, command->as.fence.fence, command->as.fence.ticket);
        break;
    case RN_COMMAND_WAIT:
        rn_cuda_queue_wait(queue, command->as.fence.fence, command->as.fence.ticket);
        break;
    case RN_COMMAND_NOTE:
        rn_cuda_queue_run(queue, command);
        break;
    default:
        act(queue, command);
    }
}

static bool can_be_recorded(rn_command_kind kind) {
    return kind == RN_COMMAND_LAUNCH || kind == RN_COMMAND_COPY_IN || kind == RN_COMMAND_COPY_OUT ||
           kind == RN_COMMAND_ZERO;
}

// Notes are taken and signals reached, also where the stream cannot: the queue is poisoned.
static void answer_here(rn_cuda_queue *queue, const rn_command *command) {
    if (command->kind == RN_COMMAND_NOTE)
        command->as.note.fn(command->as.note.self, command->as.note.index, true);
    if (command->kind == RN_COMMAND_SIGNAL)
        rn_fence_reach(command->as.fence.fence, command->as.fence.ticket, &queue->error);
}

static void submit(rn_queue *base, const rn_command *command) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    if (queue->stream.is_recording && !can_be_recorded(command->kind)) {
        rn_cuda_queue_fail(queue,
                           rn_fail(RN_INVALID, "only launches, copies and zeros can be recorded"));
        answer_here(queue, command);
        return;
    }
    if (rn_cuda_enter(&queue->stream.gpu->cuda) != RN_OK) { // the device is lost
        rn_cuda_queue_poison(queue, rn_last_error());
        rn_cuda_queue_run_rest(queue);
        answer_here(queue, command);
        return;
    }
    pass_on(queue, command);
    rn_cuda_leave(&queue->stream.gpu->cuda);
}

// ---- finishing ----------------------------------------------------------------------------------

static rn_cu_result wait_done(const rn_cuda_queue *queue) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    uint64_t begin = rn_clock_ns();
    rn_cu_result code;
    do
        code = driver->stream_query(queue->stream.handle);
    while (code == RN_CU_NOT_READY && rn_clock_ns() - begin < SPIN_NS);
    return code == RN_CU_NOT_READY ? driver->stream_synchronize(queue->stream.handle) : code;
}

static void settle(rn_cuda_queue *queue) {
    rn_gpu *gpu = queue->stream.gpu;
    if (queue->stream.is_recording) (void)!rn_cuda_queue_keep(&queue->base, NULL);
    rn_status status = rn_cuda_enter(&gpu->cuda);
    if (status == RN_OK) {
        status = rn_cuda_check(gpu->cuda.driver, wait_done(queue), gpu->base.caps.name);
        rn_cuda_leave(&gpu->cuda);
    }
    rn_cuda_queue_fail(queue, status);
    if (status != RN_OK) rn_cuda_queue_run_rest(queue);
    queue->stream.after_launch = false;
    pthread_mutex_lock(&gpu->links);
    (void)rn_cuda_queue_look(queue);
    queue->wait_count = 0;
    pthread_mutex_unlock(&gpu->links);
}

static rn_status finish(rn_queue *base) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    settle(queue);
    return rn_cuda_queue_poisoned(queue) ? rn_error_restore(&queue->error) : RN_OK;
}

static void reset(rn_queue *base) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    settle(queue);
    pthread_mutex_lock(&queue->stream.gpu->links);
    atomic_store(&queue->poisoned, false);
    atomic_store(&queue->errand_failed, false);
    pthread_mutex_unlock(&queue->stream.gpu->links);
}

// ---- life ---------------------------------------------------------------------------------------

static void release(rn_cuda_queue *queue) {
    rn_free(RN_HOST_OTHER, queue->waits, queue->wait_room * sizeof *queue->waits);
    rn_free(RN_HOST_OTHER, queue->errands, RN_CUDA_ERRANDS * sizeof *queue->errands);
    rn_free(RN_HOST_OTHER, queue, sizeof *queue);
}

// ---- streams ------------------------------------------------------------------------------------

// Inside the context.
static rn_status create_stream(rn_gpu *gpu, rn_cu_stream *out) {
    return rn_cuda_check(gpu->cuda.driver,
                         gpu->cuda.driver->stream_create(out, RN_CU_STREAM_NON_BLOCKING),
                         "creating a stream");
}

rn_status rn_cuda_streams_open(rn_gpu *gpu) {
    for (int i = 0; i < RN_CUDA_SPARE_STREAMS; i++)
        RN_TRY(create_stream(gpu, &gpu->streams[i]));
    return RN_OK;
}

void rn_cuda_streams_close(rn_gpu *gpu) {
    for (int i = 0; i < RN_CUDA_SPARE_STREAMS; i++)
        if (gpu->streams[i]) (void)gpu->cuda.driver->stream_destroy(gpu->streams[i]);
}

// Device memory that a stream takes is there from the beginning, so that a full device does not
// stand in the way of a queue.
static rn_cu_stream take_spare(rn_gpu *gpu) {
    rn_cu_stream taken = NULL;
    pthread_mutex_lock(&gpu->links);
    for (int i = 0; i < RN_CUDA_SPARE_STREAMS && !taken; i++) {
        taken = gpu->streams[i];
        gpu->streams[i] = NULL;
    }
    pthread_mutex_unlock(&gpu->links);
    return taken;
}

static void keep_spare(rn_gpu *gpu, rn_cu_stream stream) {
    pthread_mutex_lock(&gpu->links);
    for (int i = 0; i < RN_CUDA_SPARE_STREAMS && stream; i++) {
        if (gpu->streams[i]) continue;
        gpu->streams[i] = stream;
        stream = NULL;
    }
    pthread_mutex_unlock(&gpu->links);
}

// Inside the context. A stream that was made before tells whether the device is still there.
static rn_status find_stream(rn_cuda_queue *queue) {
    rn_gpu *gpu = queue->stream.gpu;
    queue->stream.handle = take_spare(gpu);
    queue->has_spare = queue->stream.handle != NULL;
    if (!queue->has_spare) return create_stream(gpu, &queue->stream.handle);
    rn_status status = rn_cuda_check(
        gpu->cuda.driver, gpu->cuda.driver->stream_query(queue->stream.handle), "taking a stream");
    if (status != RN_OK) keep_spare(gpu, queue->stream.handle);
    return status;
}

static rn_status open_stream(rn_cuda_queue *queue) {
    RN_TRY(rn_cuda_enter(&queue->stream.gpu->cuda));
    rn_status status = find_stream(queue);
    rn_cuda_leave(&queue->stream.gpu->cuda);
    return status;
}

// All its work is done.
static void close_stream(rn_cuda_queue *queue) {
    rn_gpu *gpu = queue->stream.gpu;
    if (queue->has_spare) {
        keep_spare(gpu, queue->stream.handle);
        return;
    }
    bool entered = rn_cuda_enter(&gpu->cuda) == RN_OK; // a lost device is told all the same
    (void)gpu->cuda.driver->stream_destroy(queue->stream.handle);
    if (entered) rn_cuda_leave(&gpu->cuda);
}

static void destroy(rn_queue *base) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    settle(queue);
    close_stream(queue);
    release(queue);
}

rn_status rn_cuda_queue_open(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                             rn_queue **out) {
    void *block = NULL, *errands = NULL;
    (void)kind; // the driver finds a copy engine for what is copied
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_cuda_queue), &block));
    rn_cuda_queue *queue = block;
    queue->stream.gpu = rn_gpu_of(device);
    queue->cancel = cancel;
    queue->base = (rn_queue){
        .submit = submit,
        .finish = finish,
        .reset = reset,
        .destroy = destroy,
        .record = rn_cuda_queue_capture,
        .keep = rn_cuda_queue_keep,
        .replay = rn_cuda_queue_replay,
        .forget = rn_cuda_queue_forget,
    };
    rn_status status =
        rn_alloc_zeroed(RN_HOST_OTHER, RN_CUDA_ERRANDS, sizeof(rn_cuda_errand), &errands);
    queue->errands = errands;
    if (status == RN_OK) status = open_stream(queue);
    if (status == RN_OK)
        *out = &queue->base;
    else
        release(queue);
    return status;
}
