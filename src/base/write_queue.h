// write_queue.h — buffers that are filled by one thread and written to a file by others.
//
// A ring is a few buffers that fill one piece of the file front to back. A full buffer goes to the
// queue, whose threads write it (whole 4 KiB blocks with O_DIRECT, the ragged ends through the page
// cache) while the next is filled:
//
//     ring   [ being filled ] [ queued ] [ being written ]
//
// A buffer keeps the alignment of the file: byte `phase` of its memory stands for a file offset
// with the same remainder modulo 4096, so that every whole block in it can be written directly. One
// thread at a time fills.
#ifndef RN_BASE_WRITE_QUEUE_H
#define RN_BASE_WRITE_QUEUE_H

#include "base/output.h"

#include <pthread.h>

enum { RN_WRITE_BLOCK_BYTES = 4096, RN_WRITE_BUFFERS = 8, RN_WRITE_THREADS = 2 };

typedef struct rn_write_buffer {
    char *memory;    // (the ring's capacity), block-aligned
    uint64_t offset; // in the file, of memory[phase]
    size_t phase;    // offset % RN_WRITE_BLOCK_BYTES
    size_t bytes;    // filled
    bool queued;     // waiting for or being written; under the mutex
    struct rn_write_buffer *next;
} rn_write_buffer;

typedef struct rn_write_ring {
    rn_write_buffer buffers[RN_WRITE_BUFFERS]; // (count)
    size_t count, current;
    size_t capacity; // of each buffer: a multiple of RN_WRITE_BLOCK_BYTES, two at least
    uint64_t next;   // file offset of the next byte
} rn_write_ring;

typedef struct rn_write_queue {
    int fd, direct_fd; // direct_fd is -1 where O_DIRECT is not to be had
    const char *path;
    pthread_t threads[RN_WRITE_THREADS];
    size_t thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t wake, written;
    rn_write_buffer *first, **last; // under the mutex
    bool stop;
    rn_error_info error; // of the first failed write; status RN_OK until then
} rn_write_queue;

void rn_write_queue_init(rn_write_queue *queue);
RN_MUST_USE rn_status rn_write_queue_start(rn_write_queue *queue, int fd, int direct_fd,
                                           const char *path);
// Writes what is queued, ends the threads, and says whether all writes worked. May be called again.
RN_MUST_USE rn_status rn_write_queue_stop(rn_write_queue *queue);
void rn_write_queue_free(rn_write_queue *queue);

// `memory` has count * capacity bytes, block-aligned.
void rn_write_ring_init(rn_write_ring *ring, char *memory, size_t capacity, size_t count);
// See rn_output_reserve; bytes <= capacity - RN_WRITE_BLOCK_BYTES.
RN_MUST_USE rn_status rn_write_ring_reserve(rn_write_queue *queue, rn_write_ring *ring,
                                            size_t bytes, rn_output_span spans[2]);
void rn_write_ring_advance(rn_write_queue *queue, rn_write_ring *ring, size_t bytes);
RN_MUST_USE rn_status rn_write_ring_append(rn_write_queue *queue, rn_write_ring *ring,
                                           const void *data, size_t bytes);
// Queues what is filled, full or not.
void rn_write_ring_flush(rn_write_queue *queue, rn_write_ring *ring);

#endif
