// output.c — rotating buffers, a short queue of writes, two I/O threads.
//
// A buffer keeps the alignment of the file: byte `phase` of its memory stands for a file offset
// with the same remainder modulo 4096, so that every whole block in it can be written directly.
#include "base/output.h"
#include "base/checked.h"
#include "base/fault.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, MAX_BUFFERS = 8, IO_THREADS = 2, MAX_PATH_BYTES = 4096 };

typedef struct buffer {
    char *memory;    // (the output's capacity), block-aligned
    uint64_t offset; // in the file, of memory[phase]
    size_t phase;    // offset % BLOCK_BYTES
    size_t bytes;    // filled
    bool queued;     // waiting for or being written; under the mutex
    struct buffer *next;
} buffer;

struct rn_output {
    const rn_allocator *from;
    char path[MAX_PATH_BYTES],
        temporary[MAX_PATH_BYTES]; // temporary is "" while the file has no name
    char folder[MAX_PATH_BYTES];
    int fd, direct_fd; // direct_fd is -1 where O_DIRECT is not to be had
    uint64_t file_bytes;
    uint64_t stream_offset, stream_next, stream_end; // the range, and the next byte to fill
    buffer buffers[MAX_BUFFERS];
    size_t capacity, buffer_count, current; // of each buffer; how many; the one being filled
    char *memory;                           // all buffers
    size_t memory_bytes, thread_count;
    pthread_t threads[IO_THREADS];
    pthread_mutex_t mutex;
    pthread_cond_t wake, written;
    buffer *first, **last; // queue, under the mutex
    bool stop, committed;
    rn_story story; // of the first failed write; status RN_OK until then
};

// ---- writing --------------------------------------------------------------------------

// The whole blocks directly, the ragged ends through the page cache.
static rn_status write_buffer(rn_output *output, const buffer *b) {
    const char *data = b->memory + b->phase;
    uint64_t end = b->offset + b->bytes;
    uint64_t first_block = rn_round_up(b->offset, BLOCK_BYTES);
    uint64_t last_block = rn_round_down(end, BLOCK_BYTES);
    if (output->direct_fd < 0 || first_block >= last_block)
        return rn_file_write_at(output->fd, output->path, b->offset, data, b->bytes);
    RN_TRY(rn_file_write_at(output->direct_fd, output->path, first_block,
                            data + (first_block - b->offset), (size_t)(last_block - first_block)));
    if (b->offset < first_block)
        RN_TRY(rn_file_write_at(output->fd, output->path, b->offset, data,
                                (size_t)(first_block - b->offset)));
    if (last_block < end)
        RN_TRY(rn_file_write_at(output->fd, output->path, last_block,
                                data + (last_block - b->offset), (size_t)(end - last_block)));
    return RN_OK;
}

static buffer *take_job(rn_output *output) {
    while (!output->first && !output->stop)
        pthread_cond_wait(&output->wake, &output->mutex);
    buffer *b = output->first;
    if (!b) return NULL;
    output->first = b->next;
    if (!output->first) output->last = &output->first;
    return b;
}

static void *write_main(void *self) {
    rn_output *output = self;
    pthread_mutex_lock(&output->mutex);
    for (buffer *b; (b = take_job(output));) {
        bool skip = output->story.status != RN_OK; // after the first failure nothing matters
        pthread_mutex_unlock(&output->mutex);
        rn_status s = skip ? RN_OK : write_buffer(output, b);
        pthread_mutex_lock(&output->mutex);
        if (s != RN_OK && output->story.status == RN_OK) output->story = *rn_last_story();
        b->queued = false;
        b->bytes = 0;
        pthread_cond_broadcast(&output->written);
    }
    pthread_mutex_unlock(&output->mutex);
    return NULL;
}

static void enqueue(rn_output *output, buffer *b) {
    pthread_mutex_lock(&output->mutex);
    b->queued = true;
    b->next = NULL;
    *output->last = b;
    output->last = &b->next;
    pthread_cond_signal(&output->wake);
    pthread_mutex_unlock(&output->mutex);
}

static rn_status wait_for(rn_output *output, buffer *b) {
    pthread_mutex_lock(&output->mutex);
    while (b->queued)
        pthread_cond_wait(&output->written, &output->mutex);
    rn_status s = output->story.status;
    pthread_mutex_unlock(&output->mutex);
    return s == RN_OK ? RN_OK : rn_story_restore(&output->story);
}

// ---- filling --------------------------------------------------------------------------

// Waits until the buffer is free, and gives it its place in the file if it is empty.
static rn_status prepare(rn_output *output, buffer *b, uint64_t offset) {
    RN_TRY(wait_for(output, b));
    if (b->bytes == 0) {
        b->offset = offset;
        b->phase = offset % BLOCK_BYTES;
    }
    return RN_OK;
}

static buffer *buffer_at(rn_output *output, size_t ahead) {
    return &output->buffers[(output->current + ahead) % output->buffer_count];
}

// A full buffer ends on a block boundary, so that only the stream's own ends are ragged.
static size_t room_in(const rn_output *output, const buffer *b) {
    return output->capacity - b->phase - b->bytes;
}

rn_status rn_output_reserve(rn_output *output, size_t bytes, rn_output_span spans[2]) {
    if (bytes > output->stream_end - output->stream_next || bytes > output->capacity - BLOCK_BYTES)
        return rn_fail(RN_INTERNAL, "%s: more bytes than were declared", output->path);
    buffer *b = buffer_at(output, 0), *next = buffer_at(output, 1);
    RN_TRY(prepare(output, b, output->stream_next));
    size_t room = room_in(output, b);
    spans[0] =
        (rn_output_span){(uint8_t *)b->memory + b->phase + b->bytes, room < bytes ? room : bytes};
    spans[1] = (rn_output_span){NULL, bytes - spans[0].bytes};
    if (spans[1].bytes == 0) return RN_OK;
    RN_TRY(prepare(output, next, output->stream_next + room));
    spans[1].data = (uint8_t *)next->memory;
    return RN_OK;
}

void rn_output_advance(rn_output *output, size_t bytes) {
    while (bytes > 0) {
        buffer *b = buffer_at(output, 0);
        size_t room = room_in(output, b), now = room < bytes ? room : bytes;
        b->bytes += now;
        bytes -= now;
        output->stream_next += now;
        if (now < room && output->stream_next < output->stream_end) continue;
        enqueue(output, b);
        output->current = (output->current + 1) % output->buffer_count;
    }
}

rn_status rn_output_append(rn_output *output, const void *data, size_t bytes) {
    const char *from = data;
    size_t most = output->capacity - BLOCK_BYTES;
    while (bytes > 0) {
        rn_output_span spans[2] = {{0}};
        size_t now = bytes < most ? bytes : most;
        RN_TRY(rn_output_reserve(output, now, spans));
        memcpy(spans[0].data, from, spans[0].bytes);
        if (spans[1].bytes) memcpy(spans[1].data, from + spans[0].bytes, spans[1].bytes);
        rn_output_advance(output, now);
        from += now;
        bytes -= now;
    }
    return RN_OK;
}

rn_status rn_output_put(rn_output *output, uint64_t offset, const void *data, size_t bytes) {
    bool inside = offset <= output->file_bytes && bytes <= output->file_bytes - offset;
    bool apart = offset + bytes <= output->stream_offset || offset >= output->stream_end;
    if (!inside || !(apart || output->stream_offset == output->stream_end))
        return rn_fail(RN_INTERNAL, "%s: a write outside its place", output->path);
    return rn_file_write_at(output->fd, output->path, offset, data, bytes);
}

// ---- opening and ending ---------------------------------------------------------------

static size_t buffer_capacity(const rn_output_options *options) {
    size_t bytes = options->buffer_bytes ? options->buffer_bytes : (size_t)2 << 20;
    return (size_t)rn_round_up(bytes < 2 * BLOCK_BYTES ? 2 * BLOCK_BYTES : bytes, BLOCK_BYTES);
}

static size_t buffer_count(const rn_output_options *options) {
    size_t count = options->buffer_count ? options->buffer_count : 3;
    return count > MAX_BUFFERS ? MAX_BUFFERS : count < 2 ? 2 : count;
}

size_t rn_output_buffer_bytes(const rn_output_options *options) {
    return options->stream_bytes ? buffer_capacity(options) * buffer_count(options) : 0;
}

static rn_status split_path(rn_output *output, const char *path) {
    if (strlen(path) >= MAX_PATH_BYTES - 32) return rn_fail(RN_INVALID, "the path is too long");
    snprintf(output->path, sizeof output->path, "%s", path);
    snprintf(output->folder, sizeof output->folder, "%s", path);
    char *slash = strrchr(output->folder, '/');
    if (!slash)
        snprintf(output->folder, sizeof output->folder, ".");
    else
        slash[slash == output->folder] = '\0';
    return RN_OK;
}

static rn_status check_room(const rn_output *output) {
    struct statvfs info;
    if (statvfs(output->folder, &info) != 0) return rn_file_fail("look at", output->folder);
    uint64_t room = (uint64_t)info.f_bavail * info.f_frsize;
    if (room >= output->file_bytes) return RN_OK;
    rn_status s = rn_fail(RN_IO, "%s needs %s, its file system has %s left", output->path,
                          rn_size_format(output->file_bytes).text, rn_size_format(room).text);
    return rn_hint(s, "free some space or write elsewhere");
}

static rn_status open_file(rn_output *output) {
    char name[64];
    output->fd = open(output->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (output->fd < 0) {
        int bytes = snprintf(output->temporary, sizeof output->temporary, "%.4000s.%d.tmp",
                             output->path, (int)getpid());
        if (bytes < 0) return rn_fail(RN_INTERNAL, "bad path");
        output->fd = open(output->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (output->fd < 0) {
            rn_status s = rn_file_fail("create", output->temporary);
            output->temporary[0] = '\0';
            return s;
        }
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", output->fd);
    output->direct_fd = open(name, O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (ftruncate(output->fd, (off_t)output->file_bytes) != 0)
        return rn_file_fail("size", output->path);
    return RN_OK;
}

static rn_status make_buffers(rn_output *output, const rn_output_options *options) {
    void *memory;
    output->memory_bytes = rn_output_buffer_bytes(options);
    RN_TRY(rn_alloc_aligned(output->from, output->memory_bytes, BLOCK_BYTES, &memory));
    // Fewer pages to pin for each direct write.
    if (memory) (void)madvise(memory, output->memory_bytes, MADV_HUGEPAGE);
    output->memory = memory;
    output->capacity = buffer_capacity(options);
    output->buffer_count = buffer_count(options);
    for (size_t i = 0; i < output->buffer_count && memory; i++)
        output->buffers[i].memory = output->memory + i * output->capacity;
    return RN_OK;
}

static rn_status start_threads(rn_output *output) {
    for (; output->thread_count < IO_THREADS; output->thread_count++)
        if (pthread_create(&output->threads[output->thread_count], NULL, write_main, output) != 0)
            return rn_fail(RN_NO_MEMORY, "cannot start an I/O thread");
    return RN_OK;
}

rn_status rn_output_create(const char *path, const rn_output_options *options,
                           const rn_allocator *from, rn_output **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof **out, &block));
    rn_output *output = block;
    output->from = from;
    output->fd = output->direct_fd = -1;
    output->file_bytes = options->file_bytes;
    output->stream_offset = output->stream_next = options->stream_offset;
    output->stream_end = options->stream_offset + options->stream_bytes;
    output->last = &output->first;
    pthread_mutex_init(&output->mutex, NULL);
    pthread_cond_init(&output->wake, NULL);
    pthread_cond_init(&output->written, NULL);
    rn_status s = split_path(output, path);
    if (s == RN_OK) s = check_room(output);
    if (s == RN_OK) s = open_file(output);
    if (s == RN_OK) s = make_buffers(output, options);
    if (s == RN_OK) s = start_threads(output);
    if (s == RN_OK)
        *out = output;
    else
        rn_output_destroy(output);
    return s;
}

static void stop_threads(rn_output *output) {
    pthread_mutex_lock(&output->mutex);
    output->stop = true;
    pthread_cond_broadcast(&output->wake);
    pthread_mutex_unlock(&output->mutex);
    for (; output->thread_count > 0; output->thread_count--)
        pthread_join(output->threads[output->thread_count - 1], NULL);
}

// Gives an unnamed file a temporary name, because linkat cannot replace a file and rename can.
static rn_status name_file(rn_output *output) {
    char link_path[64];
    if (output->temporary[0]) return RN_OK;
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", output->fd);
    snprintf(output->temporary, sizeof output->temporary, "%.4000s.%d.tmp", output->path,
             (int)getpid());
    unlink(output->temporary); // an old one of a process with our number
    if (linkat(AT_FDCWD, link_path, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW) == 0)
        return RN_OK;
    rn_status s = rn_file_fail("name", output->temporary);
    output->temporary[0] = '\0';
    return s;
}

static rn_status sync_file(const rn_output *output) {
    errno = EIO;
    if (rn_fault_hit(RN_FAULT_WRITE) || fsync(output->fd) != 0)
        return rn_file_fail("sync", output->path);
    return RN_OK;
}

static void sync_folder(const rn_output *output) {
    int fd = open(output->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!fsync(fd); // the file itself is safe; a lost name would show the old file
    close(fd);
}

rn_status rn_output_commit(rn_output *output) {
    if (output->stream_next != output->stream_end)
        return rn_fail(RN_INTERNAL, "%s: not all declared bytes were written", output->path);
    stop_threads(output);
    if (output->story.status != RN_OK) return rn_story_restore(&output->story);
    RN_TRY(sync_file(output));
    RN_TRY(name_file(output));
    if (rename(output->temporary, output->path) != 0) return rn_file_fail("name", output->path);
    output->committed = true;
    sync_folder(output);
    return RN_OK;
}

void rn_output_destroy(rn_output *output) {
    if (!output) return;
    stop_threads(output);
    if (output->direct_fd >= 0) close(output->direct_fd);
    if (output->fd >= 0) close(output->fd);
    if (output->temporary[0] && !output->committed) unlink(output->temporary);
    pthread_cond_destroy(&output->written);
    pthread_cond_destroy(&output->wake);
    pthread_mutex_destroy(&output->mutex);
    rn_free(output->from, output->memory, output->memory_bytes);
    rn_free(output->from, output, sizeof *output);
}
