// queue_fence.c — a fence between two streams is an event; between a stream and the host, a word.
//
//     stream ──event──▶ stream      cuEventRecord, cuStreamWaitEvent
//     stream ──word───▶ host        cuStreamWriteValue64; rn_fence_await looks at the word
//     host   ──word───▶ stream      rn_fence_reach writes it; cuStreamWaitValue64
//
// An event stands for the last signal only. A thread of the host may be several signals behind, so
// for it the word holds the number of the last signal that was reached.
//
// The driver may block a caller whose stream is full until the device has come further, and the
// device may be waiting for a thread of the host to reach a fence. So no lock is held during a call
// of the driver. Locks are taken in the order links, fence, words.
#include "backend/cuda/queue.h"
#include "memory/account.h"

typedef struct cuda_event {
    rn_gpu *gpu;
    rn_cu_event event;                  // NULL where no stream has signalled it yet
    _Atomic(rn_cuda_queue *) signaller; // the last
    // Under the fence's mutex:
    uint64_t ticket;    // the signal that the event stands for
    rn_cuda_word *word; // NULL: the host has no part in it
} cuda_event;

// ---- making and dropping ------------------------------------------------------------------------

static void drop(void *self) {
    cuda_event *event = self;
    if (event->word) rn_cuda_words_release(&event->gpu->words, event->word);
    bool entered = rn_cuda_enter(&event->gpu->cuda) == RN_OK;
    if (event->event) (void)event->gpu->cuda.driver->event_destroy(event->event);
    if (entered) rn_cuda_leave(&event->gpu->cuda);
    rn_free(RN_HOST_OTHER, event, sizeof *event);
}

// Whether the device still runs: a thread of the host waits for its word.
static rn_status check_device(const cuda_event *event) {
    const rn_cuda_driver *driver = event->gpu->cuda.driver;
    RN_TRY(rn_cuda_enter(&event->gpu->cuda));
    rn_cu_result code = driver->event_query(event->event);
    if (code == RN_CU_NOT_READY) code = RN_CU_SUCCESS;
    rn_status status = rn_cuda_check(driver, code, event->gpu->base.caps.name);
    rn_cuda_leave(&event->gpu->cuda);
    return status;
}

// rn_fence.ask_event.
static const rn_error_info *ask(void *self, bool thoroughly) {
    cuda_event *event = self;
    rn_cuda_queue *signaller = atomic_load(&event->signaller);
    if (!signaller) return NULL;
    if (thoroughly) rn_cuda_queue_fail(signaller, check_device(event));
    pthread_mutex_lock(&event->gpu->links);
    const rn_error_info *error = rn_cuda_queue_look(signaller);
    pthread_mutex_unlock(&event->gpu->links);
    return error;
}

// A fence's means: an event is there from the first signal or wait on.
static rn_status make(rn_gpu *gpu, rn_fence *fence) {
    const rn_cuda_driver *driver = gpu->cuda.driver;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(cuda_event), &block));
    cuda_event *event = block;
    event->gpu = gpu;
    rn_status status =
        rn_cuda_check(driver, driver->event_create(&event->event, RN_CU_EVENT_DISABLE_TIMING),
                      "creating an event");
    pthread_mutex_lock(&fence->mutex);
    bool is_first = status == RN_OK && !fence->event;
    if (is_first) {
        fence->event = event;
        fence->drop_event = drop;
        fence->ask_event = ask;
    }
    pthread_mutex_unlock(&fence->mutex);
    if (!is_first) drop(event);
    return status;
}

// Whoever waits already looks at the word from now on.
static rn_status make_word(rn_fence *fence, cuda_event *event) {
    rn_cuda_word *word;
    RN_TRY(rn_cuda_words_take(&event->gpu->words, &word));
    pthread_mutex_lock(&fence->mutex);
    bool is_first = !event->word;
    if (is_first) {
        atomic_store(word, fence->done);
        fence->word = event->word = word;
        pthread_cond_broadcast(&fence->reached);
    }
    pthread_mutex_unlock(&fence->mutex);
    if (!is_first) rn_cuda_words_release(&event->gpu->words, word);
    return RN_OK;
}

static cuda_event *event_of(rn_fence *fence) {
    pthread_mutex_lock(&fence->mutex);
    cuda_event *event = fence->event;
    pthread_mutex_unlock(&fence->mutex);
    return event;
}

static rn_cuda_word *word_of(rn_fence *fence) {
    pthread_mutex_lock(&fence->mutex);
    rn_cuda_word *word = ((cuda_event *)fence->event)->word;
    pthread_mutex_unlock(&fence->mutex);
    return word;
}

// Inside the context.
static rn_status make_all(rn_gpu *gpu, rn_fence *fence, bool with_host) {
    if (!event_of(fence)) RN_TRY(make(gpu, fence));
    if (!with_host || !gpu->has_words || word_of(fence)) return RN_OK;
    return make_word(fence, event_of(fence));
}

rn_status rn_cuda_fence_ready(rn_device *device, rn_fence *fence, bool with_host) {
    rn_gpu *gpu = rn_gpu_of(device);
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = make_all(gpu, fence, with_host);
    rn_cuda_leave(&gpu->cuda);
    return status;
}

// ---- signals ------------------------------------------------------------------------------------

static rn_cu_result write_word(rn_cuda_queue *queue, rn_cuda_word *word, uint64_t ticket) {
    return rn_cuda_queue_driver(queue)->stream_write_value64(queue->stream.handle, (uintptr_t)word,
                                                             ticket, 0);
}

// From here on waits find the event. One that came before may have made a word meanwhile, which it
// waits for.
static rn_cuda_word *publish(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket,
                             bool poisoned) {
    cuda_event *event = fence->event;
    pthread_mutex_lock(&fence->mutex);
    event->ticket = ticket;
    atomic_store(&event->signaller, queue);
    fence->error = poisoned ? &queue->error : NULL;
    rn_cuda_word *word = event->word;
    pthread_mutex_unlock(&fence->mutex);
    return word;
}

static rn_status record(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket, bool poisoned) {
    rn_gpu *gpu = queue->stream.gpu;
    const rn_cuda_driver *driver = gpu->cuda.driver;
    RN_TRY(make_all(gpu, fence, fence->for_host));
    cuda_event *event = event_of(fence);
    if (event->gpu != gpu)
        return rn_fail(RN_UNSUPPORTED, "a fence is signalled by one device only");
    rn_cu_result code = driver->event_record(event->event, queue->stream.handle);
    RN_TRY(rn_cuda_check(driver, code, "signalling a fence"));
    rn_cuda_word *word = publish(queue, fence, ticket, poisoned);
    return word ? rn_cuda_check(driver, write_word(queue, word, ticket), "signalling the host")
                : RN_OK;
}

// A signal is reached whatever happens: by the host, once the stream is idle.
static void reach_here(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket) {
    (void)rn_cuda_queue_driver(queue)->stream_synchronize(queue->stream.handle);
    rn_fence_reach(fence, ticket, &queue->error);
}

void rn_cuda_queue_signal(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket) {
    queue->stream.after_launch = false;
    rn_status status = record(queue, fence, ticket, rn_cuda_queue_poisoned(queue));
    if (status != RN_OK) {
        rn_cuda_queue_fail(queue, status);
        reach_here(queue, fence, ticket);
    } else if (fence->for_host && !queue->stream.gpu->has_words) {
        rn_command reach = {RN_COMMAND_SIGNAL, .as.fence = {fence, ticket}};
        rn_cuda_queue_run(queue, &reach);
    }
}

// ---- waits --------------------------------------------------------------------------------------

typedef enum wait_way { WAIT_NOT, WAIT_EVENT, WAIT_WORD, WAIT_HERE, WAIT_UNKNOWN } wait_way;

static wait_way find_way(const rn_gpu *gpu, rn_fence *fence, uint64_t ticket,
                         const rn_error_info **out_error) {
    wait_way way = WAIT_UNKNOWN;
    pthread_mutex_lock(&fence->mutex);
    const cuda_event *event = fence->event;
    *out_error = fence->error;
    if (fence->done >= ticket)
        way = WAIT_NOT;
    else if (event && event->ticket >= ticket)
        way = WAIT_EVENT;
    else if (!gpu->has_words || (event && event->gpu != gpu))
        way = WAIT_HERE;
    else if (event && event->word)
        way = WAIT_WORD;
    pthread_mutex_unlock(&fence->mutex);
    return way;
}

// Makes what is missing until it is known how to wait.
static rn_status choose_way(rn_gpu *gpu, rn_fence *fence, uint64_t ticket,
                            const rn_error_info **out_error, wait_way *out) {
    while ((*out = find_way(gpu, fence, ticket, out_error)) == WAIT_UNKNOWN) {
        cuda_event *event = event_of(fence);
        RN_TRY(event ? make_word(fence, event) : make(gpu, fence));
    }
    return RN_OK;
}

static rn_status queue_wait(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket, wait_way way) {
    const rn_cuda_driver *driver = rn_cuda_queue_driver(queue);
    rn_cu_result code =
        way == WAIT_EVENT
            ? driver->stream_wait_event(queue->stream.handle, event_of(fence)->event, 0)
            : driver->stream_wait_value64(queue->stream.handle, (uintptr_t)word_of(fence), ticket,
                                          RN_CU_WAIT_AT_LEAST);
    return rn_cuda_check(driver, code, "waiting for a fence");
}

static rn_status make_room(rn_cuda_queue *queue) {
    uint32_t room = queue->wait_room ? 2 * queue->wait_room : 16;
    void *grown = NULL;
    if (queue->wait_count < queue->wait_room) return RN_OK;
    RN_TRY(rn_alloc(RN_HOST_OTHER, room * sizeof *queue->waits, &grown));
    rn_fence **waits = grown;
    for (uint32_t i = 0; i < queue->wait_count; i++)
        waits[i] = queue->waits[i];
    rn_free(RN_HOST_OTHER, queue->waits, queue->wait_room * sizeof *queue->waits);
    queue->waits = waits;
    queue->wait_room = room;
    return RN_OK;
}

static rn_status remember(rn_cuda_queue *queue, rn_fence *fence) {
    pthread_mutex_t *links = &queue->stream.gpu->links;
    uint32_t i = 0;
    pthread_mutex_lock(links);
    while (i < queue->wait_count && queue->waits[i] != fence)
        i++;
    rn_status status = i < queue->wait_count ? RN_OK : make_room(queue);
    if (status == RN_OK && i == queue->wait_count) queue->waits[queue->wait_count++] = fence;
    pthread_mutex_unlock(links);
    return status;
}

// RN_OK, or what the queue is poisoned with.
static rn_status wait(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket) {
    wait_way way;
    const rn_error_info *error;
    RN_TRY(choose_way(queue->stream.gpu, fence, ticket, &error, &way));
    if (way == WAIT_HERE) error = rn_fence_await(fence, ticket);
    if (error) return rn_error_restore(error);
    if (way == WAIT_NOT || way == WAIT_HERE) return RN_OK;
    queue->stream.after_launch = false;
    RN_TRY(remember(queue, fence));
    return queue_wait(queue, fence, ticket, way);
}

void rn_cuda_queue_wait(rn_cuda_queue *queue, rn_fence *fence, uint64_t ticket) {
    if (!rn_cuda_queue_poisoned(queue)) rn_cuda_queue_fail(queue, wait(queue, fence, ticket));
}

// ---- what shows later ---------------------------------------------------------------------------

static const rn_error_info *error_of(rn_fence *fence) {
    pthread_mutex_lock(&fence->mutex);
    const rn_error_info *error = fence->error;
    const cuda_event *event = fence->event;
    rn_cuda_queue *signaller = event ? atomic_load(&event->signaller) : NULL;
    pthread_mutex_unlock(&fence->mutex);
    return error || !signaller ? error : rn_cuda_queue_look(signaller);
}

// Queues wait for each other in turn: a circle of them ends where it began.
const rn_error_info *rn_cuda_queue_look(rn_cuda_queue *queue) {
    const rn_error_info *error = NULL;
    if (rn_cuda_queue_poisoned(queue)) return &queue->error;
    if (queue->is_looking) return NULL;
    queue->is_looking = true;
    for (uint32_t i = 0; i < queue->wait_count && !error; i++)
        error = error_of(queue->waits[i]);
    queue->is_looking = false;
    if (!error) return NULL;
    queue->error = *error;
    atomic_store_explicit(&queue->poisoned, true, memory_order_release);
    return &queue->error;
}
