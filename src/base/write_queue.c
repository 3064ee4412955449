// write_queue.c — rotating buffers, a short queue of writes, two I/O threads.
#include "base/write_queue.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/workers.h"

#include <string.h>

enum { BLOCK_BYTES = RN_WRITE_BLOCK_BYTES };

// ---- writing ----------------------------------------------------------------------------

// The whole blocks directly, the ragged ends through the page cache.
static rn_status write_buffer(rn_write_queue *queue, const rn_write_buffer *b) {
    const char *data = b->memory + b->phase;
    uint64_t end = b->offset + b->bytes;
    uint64_t first_block = rn_round_up(b->offset, BLOCK_BYTES);
    uint64_t last_block = rn_round_down(end, BLOCK_BYTES);
    if (queue->direct_fd < 0 || first_block >= last_block)
        return rn_file_write_at(queue->fd, queue->path, b->offset, data, b->bytes);
    RN_TRY(rn_file_write_at(queue->direct_fd, queue->path, first_block,
                            data + (first_block - b->offset), (size_t)(last_block - first_block)));
    if (b->offset < first_block)
        RN_TRY(rn_file_write_at(queue->fd, queue->path, b->offset, data,
                                (size_t)(first_block - b->offset)));
    if (last_block < end)
        RN_TRY(rn_file_write_at(queue->fd, queue->path, last_block, data + (last_block - b->offset),
                                (size_t)(end - last_block)));
    return RN_OK;
}

static rn_write_buffer *take_job(rn_write_queue *queue) {
    while (!queue->first && !queue->stop)
        pthread_cond_wait(&queue->wake, &queue->mutex);
    rn_write_buffer *b = queue->first;
    if (!b) return NULL;
    queue->first = b->next;
    if (!queue->first) queue->last = &queue->first;
    return b;
}

static void *write_main(void *self) {
    rn_write_queue *queue = self;
    pthread_mutex_lock(&queue->mutex);
    for (rn_write_buffer *b; (b = take_job(queue));) {
        bool skip = queue->error.status != RN_OK; // after the first failure nothing matters
        pthread_mutex_unlock(&queue->mutex);
        rn_status s = skip ? RN_OK : write_buffer(queue, b);
        pthread_mutex_lock(&queue->mutex);
        if (s != RN_OK && queue->error.status == RN_OK) queue->error = *rn_last_error();
        b->queued = false;
        b->bytes = 0;
        pthread_cond_broadcast(&queue->written);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void enqueue(rn_write_queue *queue, rn_write_buffer *b) {
    pthread_mutex_lock(&queue->mutex);
    b->queued = true;
    b->next = NULL;
    *queue->last = b;
    queue->last = &b->next;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->mutex);
}

static rn_status wait_for(rn_write_queue *queue, rn_write_buffer *b) {
    pthread_mutex_lock(&queue->mutex);
    while (b->queued)
        pthread_cond_wait(&queue->written, &queue->mutex);
    rn_status s = queue->error.status;
    pthread_mutex_unlock(&queue->mutex);
    return s == RN_OK ? RN_OK : rn_error_restore(&queue->error);
}

// ---- the queue --------------------------------------------------------------------------

void rn_write_queue_init(rn_write_queue *queue) {
    *queue = (rn_write_queue){.fd = -1, .direct_fd = -1, .last = &queue->first};
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->wake, NULL);
    pthread_cond_init(&queue->written, NULL);
}

rn_status rn_write_queue_start(rn_write_queue *queue, int fd, int direct_fd, const char *path) {
    queue->fd = fd;
    queue->direct_fd = direct_fd;
    queue->path = path;
    for (; queue->thread_count < RN_WRITE_THREADS; queue->thread_count++) {
        pthread_t *thread = &queue->threads[queue->thread_count];
        int error = pthread_create(thread, NULL, write_main, queue);
        if (error) return rn_thread_refuse(error, "writing");
    }
    return RN_OK;
}

rn_status rn_write_queue_stop(rn_write_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    queue->stop = true;
    pthread_cond_broadcast(&queue->wake);
    pthread_mutex_unlock(&queue->mutex);
    for (; queue->thread_count > 0; queue->thread_count--)
        pthread_join(queue->threads[queue->thread_count - 1], NULL);
    return queue->error.status == RN_OK ? RN_OK : rn_error_restore(&queue->error);
}

void rn_write_queue_free(rn_write_queue *queue) {
    pthread_cond_destroy(&queue->written);
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->mutex);
}

// ---- rings ------------------------------------------------------------------------------

void rn_write_ring_init(rn_write_ring *ring, char *memory, size_t capacity, size_t count) {
    *ring = (rn_write_ring){.capacity = capacity, .count = count};
    for (size_t i = 0; i < count; i++)
        ring->buffers[i].memory = memory + i * capacity;
}

// Waits until the buffer is free, and gives it its place in the file if it is empty.
static rn_status prepare(rn_write_queue *queue, rn_write_buffer *b, uint64_t offset) {
    RN_TRY(wait_for(queue, b));
    if (b->bytes == 0) {
        b->offset = offset;
        b->phase = offset % BLOCK_BYTES;
    }
    return RN_OK;
}

static rn_write_buffer *buffer_at(rn_write_ring *ring, size_t ahead) {
    return &ring->buffers[(ring->current + ahead) % ring->count];
}

// A full buffer ends on a block boundary, so that only the ends of what a ring fills are ragged.
static size_t room_in(const rn_write_ring *ring, const rn_write_buffer *b) {
    return ring->capacity - b->phase - b->bytes;
}

rn_status rn_write_ring_reserve(rn_write_queue *queue, rn_write_ring *ring, size_t bytes,
                                rn_output_span spans[2]) {
    rn_write_buffer *b = buffer_at(ring, 0), *next = buffer_at(ring, 1);
    RN_TRY(prepare(queue, b, ring->next));
    size_t room = room_in(ring, b);
    uint8_t *place = (uint8_t *)b->memory + b->phase + b->bytes;
    spans[0] = (rn_output_span){place, room < bytes ? room : bytes};
    spans[1] = (rn_output_span){NULL, bytes - spans[0].bytes};
    if (spans[1].bytes == 0) return RN_OK;
    RN_TRY(prepare(queue, next, ring->next + room));
    spans[1].data = (uint8_t *)next->memory;
    return RN_OK;
}

void rn_write_ring_flush(rn_write_queue *queue, rn_write_ring *ring) {
    rn_write_buffer *b = buffer_at(ring, 0);
    pthread_mutex_lock(&queue->mutex);
    bool filled = !b->queued && b->bytes > 0; // a queued one is an older round's
    pthread_mutex_unlock(&queue->mutex);
    if (!filled) return;
    enqueue(queue, b);
    ring->current = (ring->current + 1) % ring->count;
}

void rn_write_ring_advance(rn_write_queue *queue, rn_write_ring *ring, size_t bytes) {
    while (bytes > 0) {
        rn_write_buffer *b = buffer_at(ring, 0);
        size_t room = room_in(ring, b), now = room < bytes ? room : bytes;
        b->bytes += now;
        bytes -= now;
        ring->next += now;
        if (now == room) rn_write_ring_flush(queue, ring);
    }
}

rn_status rn_write_ring_append(rn_write_queue *queue, rn_write_ring *ring, const void *data,
                               size_t bytes) {
    const char *from = data;
    size_t most = ring->capacity - BLOCK_BYTES;
    while (bytes > 0) {
        rn_output_span spans[2] = {{0}};
        size_t now = bytes < most ? bytes : most;
        RN_TRY(rn_write_ring_reserve(queue, ring, now, spans));
        memcpy(spans[0].data, from, spans[0].bytes);
        if (spans[1].bytes) memcpy(spans[1].data, from + spans[0].bytes, spans[1].bytes);
        rn_write_ring_advance(queue, ring, now);
        from += now;
        bytes -= now;
    }
    return RN_OK;
}
