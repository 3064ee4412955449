// queue_record.c — recordings are the driver's graphs: captured from the stream, launched in it.
#include "backend/cuda/queue.h"
#include "memory/account.h"

struct rn_recording {
    rn_cu_graph_exec exec;
};

rn_status rn_cuda_queue_capture(rn_queue *base) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    if (queue->stream.is_recording) return rn_fail(RN_INVALID, "the queue is recording already");
    if (rn_cuda_queue_poisoned(queue)) return rn_error_restore(&queue->error);
    RN_TRY(rn_cuda_enter(&queue->stream.gpu->cuda));
    rn_status status = rn_cuda_check(
        driver, driver->stream_begin_capture(queue->stream.handle, RN_CU_CAPTURE_THREAD_LOCAL),
        "beginning to record");
    rn_cuda_leave(&queue->stream.gpu->cuda);
    queue->stream.is_recording = status == RN_OK;
    queue->stream.after_launch = false;
    return status;
}

// What it takes on the device it takes here, or it is not kept: a launch would take it otherwise,
// and fail in the midst of a run.
static rn_cu_result instantiate(const rn_cuda_queue *queue, rn_cu_graph graph,
                                rn_cu_graph_exec *out) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    rn_cu_result code = driver->graph_instantiate(out, graph, 0);
    if (code != RN_CU_SUCCESS || !driver->graph_upload) return code;
    code = driver->graph_upload(*out, queue->stream.handle);
    if (code != RN_CU_SUCCESS) (void)driver->graph_exec_destroy(*out);
    return code;
}

static rn_status make(const rn_cuda_queue *queue, rn_cu_graph graph, rn_recording **out) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_recording), &block));
    rn_recording *recording = block;
    rn_cu_result code = instantiate(queue, graph, &recording->exec);
    if (code == RN_CU_SUCCESS) {
        *out = recording;
        return RN_OK;
    }
    rn_free(RN_HOST_OTHER, recording, sizeof *recording);
    return rn_cuda_check(rn_cuda_queue_driver(queue), code, "keeping a recording");
}

// A capture must be ended even if nobody wants what was captured.
static rn_status end(rn_cuda_queue *queue, rn_recording **out) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    rn_cu_graph graph = NULL;
    rn_status status = rn_cuda_check(
        driver, driver->stream_end_capture(queue->stream.handle, &graph), "ending a recording");
    if (rn_cuda_queue_poisoned(queue)) status = rn_error_restore(&queue->error);
    if (status == RN_OK && out) status = make(queue, graph, out);
    if (graph) (void)driver->graph_destroy(graph);
    return status;
}

// `out` NULL: it is thrown away.
rn_status rn_cuda_queue_keep(rn_queue *base, rn_recording **out) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    if (out) *out = NULL;
    if (!queue->stream.is_recording) return rn_fail(RN_INVALID, "the queue is not recording");
    queue->stream.is_recording = queue->stream.after_launch = false;
    RN_TRY(rn_cuda_enter(&queue->stream.gpu->cuda));
    rn_status status = end(queue, out);
    rn_cuda_leave(&queue->stream.gpu->cuda);
    return status;
}

void rn_cuda_queue_replay(rn_queue *base, rn_recording *recording) {
    rn_cuda_queue *queue = rn_cuda_queue_of(base);
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    if (rn_cuda_queue_poisoned(queue)) return;
    rn_status status = queue->cancel && atomic_load(queue->cancel)
                           ? rn_fail(RN_CANCELLED, "cancelled")
                           : rn_cuda_enter(&queue->stream.gpu->cuda);
    if (status == RN_OK) {
        rn_cu_result code = driver->graph_launch(recording->exec, queue->stream.handle);
        status = rn_cuda_check(driver, code, "replaying a recording");
        queue->stream.after_launch = false;
        rn_cuda_leave(&queue->stream.gpu->cuda);
    }
    rn_cuda_queue_fail(queue, status);
}

void rn_cuda_queue_forget(rn_queue *base, rn_recording *recording) {
    const rn_cuda_device *device = &rn_cuda_queue_of(base)->stream.gpu->cuda;
    if (!recording) return;
    bool entered = rn_cuda_enter(device) == RN_OK;
    (void)device->driver->graph_exec_destroy(recording->exec);
    if (entered) rn_cuda_leave(device);
    rn_free(RN_HOST_OTHER, recording, sizeof *recording);
}
