// output.c — one ring for the stream, a few small ones for the rest, and the file's name at the
// end.
//
// Writes outside the stream come in small pieces that continue each other (the scales of one chunk
// after those of the last). Each such run has a ring of its own; a write that continues none takes
// over the one used least recently. They must not be written one by one: on ext4 a buffered write
// waits for the direct ones in flight.
#include "base/output.h"
#include "base/checked.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/temporary.h"
#include "base/write_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096, RUNS = 4, RUN_BUFFERS = 2, RUN_BUFFER_BYTES = 256 << 10 };
enum { BLOCK_BYTES = RN_WRITE_BLOCK_BYTES };

struct rn_output {
    const rn_allocator *from;
    char path[MAX_PATH_BYTES],
        temporary[MAX_PATH_BYTES]; // temporary is "" while the file has no name
    char folder[MAX_PATH_BYTES];
    int fd, direct_fd;
    uint64_t file_bytes;
    uint64_t stream_offset, stream_end;
    rn_write_queue queue;
    rn_write_ring stream;
    rn_write_ring runs[RUNS];
    uint64_t run_used[RUNS], puts; // when each run was used last, in puts; 0 never
    char *memory;                  // of all rings
    size_t memory_bytes;
    bool committed;
};

// ---- filling ----------------------------------------------------------------------------

rn_status rn_output_reserve(rn_output *output, size_t bytes, rn_output_span spans[2]) {
    rn_write_ring *stream = &output->stream;
    if (bytes > output->stream_end - stream->next || bytes > stream->capacity - BLOCK_BYTES)
        return rn_fail(RN_INTERNAL, "%s: more bytes than were declared", output->path);
    return rn_write_ring_reserve(&output->queue, stream, bytes, spans);
}

void rn_output_advance(rn_output *output, size_t bytes) {
    rn_write_ring_advance(&output->queue, &output->stream, bytes);
}

rn_status rn_output_append(rn_output *output, const void *data, size_t bytes) {
    if (bytes > output->stream_end - output->stream.next)
        return rn_fail(RN_INTERNAL, "%s: more bytes than were declared", output->path);
    return rn_write_ring_append(&output->queue, &output->stream, data, bytes);
}

// The run that `offset` continues, or the one to give way.
static size_t find_run(const rn_output *output, uint64_t offset) {
    size_t oldest = 0;
    for (size_t i = 0; i < RUNS; i++) {
        if (output->run_used[i] && output->runs[i].next == offset) return i;
        if (output->run_used[i] < output->run_used[oldest]) oldest = i;
    }
    return oldest;
}

rn_status rn_output_put(rn_output *output, uint64_t offset, const void *data, size_t bytes) {
    bool inside = offset <= output->file_bytes && bytes <= output->file_bytes - offset;
    bool apart = offset + bytes <= output->stream_offset || offset >= output->stream_end;
    if (!inside || !(apart || output->stream_offset == output->stream_end))
        return rn_fail(RN_INTERNAL, "%s: a write outside its place", output->path);
    size_t run = find_run(output, offset);
    if (output->runs[run].next != offset) rn_write_ring_flush(&output->queue, &output->runs[run]);
    output->runs[run].next = offset;
    output->run_used[run] = ++output->puts;
    return rn_write_ring_append(&output->queue, &output->runs[run], data, bytes);
}

// ---- opening and ending -----------------------------------------------------------------

static size_t buffer_capacity(const rn_output_options *options) {
    size_t bytes = options->buffer_bytes ? options->buffer_bytes : (size_t)2 << 20;
    return (size_t)rn_round_up(bytes < 2 * BLOCK_BYTES ? 2 * BLOCK_BYTES : bytes, BLOCK_BYTES);
}

static size_t buffer_count(const rn_output_options *options) {
    size_t count = options->buffer_count ? options->buffer_count : 3;
    return count > RN_WRITE_BUFFERS ? RN_WRITE_BUFFERS : count < 2 ? 2 : count;
}

static size_t run_capacity(const rn_output_options *options) {
    size_t bytes = options->small_bytes ? options->small_bytes : (size_t)RUN_BUFFER_BYTES;
    return (size_t)rn_round_up(bytes < 2 * BLOCK_BYTES ? 2 * BLOCK_BYTES : bytes, BLOCK_BYTES);
}

static size_t stream_memory(const rn_output_options *options) {
    return options->stream_bytes ? buffer_capacity(options) * buffer_count(options) : 0;
}

size_t rn_output_buffer_bytes(const rn_output_options *options) {
    return stream_memory(options) + RUNS * RUN_BUFFERS * run_capacity(options);
}

size_t rn_output_held_bytes(const rn_output_options *options) {
    return (size_t)rn_round_up(sizeof(rn_output), BLOCK_BYTES) + rn_output_buffer_bytes(options) +
           BLOCK_BYTES;
}

static rn_status split_path(rn_output *output, const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strlen(path) > 4000 ||
        strlen(name) > 255 - RN_TEMPORARY_SUFFIX_BYTES) // which must not fail at the end
        return rn_fail(RN_INVALID, "the output's name is too long");
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
    if (info.f_blocks == 0) return RN_OK; // it does not say: a tmpfs without a limit
    if (room >= output->file_bytes) return RN_OK;
    rn_status s = rn_fail(RN_IO, "%s needs %s, its file system has %s left", output->path,
                          rn_size_format(output->file_bytes).text, rn_size_format(room).text);
    return rn_hint(s, "free some space or write elsewhere");
}

static rn_status open_file(rn_output *output) {
    char name[64];
    output->fd = open(output->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (output->fd >= 0) {
        rn_temporary_sweep(output->path); // one that was killed between its two names
    } else {
        rn_status s = rn_temporary_create(output->path, 0644, output->temporary,
                                          sizeof output->temporary, &output->fd);
        if (s != RN_OK) {
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

static rn_status make_rings(rn_output *output, const rn_output_options *options) {
    void *memory;
    output->memory_bytes = rn_output_buffer_bytes(options);
    RN_TRY(rn_alloc_aligned(output->from, output->memory_bytes, BLOCK_BYTES, &memory));
    // Fewer pages to pin for each direct write.
    (void)madvise(memory, output->memory_bytes, MADV_HUGEPAGE);
    output->memory = memory;
    char *at = memory;
    rn_write_ring_init(&output->stream, at, buffer_capacity(options), buffer_count(options));
    output->stream.next = output->stream_offset;
    at += stream_memory(options);
    for (size_t i = 0; i < RUNS; i++, at += RUN_BUFFERS * run_capacity(options))
        rn_write_ring_init(&output->runs[i], at, run_capacity(options), RUN_BUFFERS);
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
    output->stream_offset = options->stream_offset;
    output->stream_end = options->stream_offset + options->stream_bytes;
    rn_write_queue_init(&output->queue);
    rn_status s = split_path(output, path);
    if (s == RN_OK) s = check_room(output);
    if (s == RN_OK) s = open_file(output);
    if (s == RN_OK) s = make_rings(output, options);
    if (s == RN_OK)
        s = rn_write_queue_start(&output->queue, output->fd, output->direct_fd, output->path);
    if (s == RN_OK)
        *out = output;
    else
        rn_output_destroy(output);
    return s;
}

// Gives an unnamed file a temporary name, because linkat cannot replace a file and rename can.
static rn_status name_file(rn_output *output) {
    if (output->temporary[0]) return RN_OK;
    rn_status s =
        rn_temporary_name(output->path, output->fd, output->temporary, sizeof output->temporary);
    if (s != RN_OK) output->temporary[0] = '\0';
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
    if (output->stream.next != output->stream_end)
        return rn_fail(RN_INTERNAL, "%s: not all declared bytes were written", output->path);
    rn_write_ring_flush(&output->queue, &output->stream);
    for (size_t i = 0; i < RUNS; i++)
        rn_write_ring_flush(&output->queue, &output->runs[i]);
    RN_TRY(rn_write_queue_stop(&output->queue));
    RN_TRY(sync_file(output));
    RN_TRY(name_file(output));
    if (rename(output->temporary, output->path) != 0) return rn_file_fail("name", output->path);
    output->committed = true;
    sync_folder(output);
    return RN_OK;
}

void rn_output_destroy(rn_output *output) {
    if (!output) return;
    (void)!rn_write_queue_stop(&output->queue); // a failure was told already, or nobody asked
    rn_write_queue_free(&output->queue);
    if (output->temporary[0] && !output->committed) unlink(output->temporary);
    if (output->direct_fd >= 0) close(output->direct_fd);
    if (output->fd >= 0) close(output->fd);
    rn_free(output->from, output->memory, output->memory_bytes);
    rn_free(output->from, output, sizeof *output);
}
