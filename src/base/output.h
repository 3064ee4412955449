// output.h — a large file that appears whole or not at all, written past the page cache.
//
// The file's size is known from the start, and which part of it, the stream, is filled front to
// back:
//
//     [ header, scales: anywhere, any order | stream: the bulk, in order ............ | anywhere ]
//
// The stream has a few buffers. A full one is written by I/O threads (whole 4 KiB blocks with
// O_DIRECT, its ragged ends through the page cache) while the next is filled. The rest is small and
// goes through the page cache.
//
// The file has no name until rn_output_commit (where the file system cannot do that: a temporary's,
// base/temporary.h), which syncs it and renames it into place: a process killed at any moment
// leaves the old file or the new one, and a temporary that it left is removed by the next
// rn_output_create of that path. One thread at a time may call.
#ifndef RN_BASE_OUTPUT_H
#define RN_BASE_OUTPUT_H

#include "base/alloc.h"

typedef struct rn_output rn_output;

typedef struct rn_output_options {
    uint64_t file_bytes;
    uint64_t stream_offset, stream_bytes; // the stream's range; may be empty
    size_t buffer_bytes;                  // of one buffer; 0 means 2 MiB
    size_t buffer_count;                  // 0 means 3
    size_t small_bytes;                   // of each of eight buffers for the rest; 0 means 256 KiB
} rn_output_options;

// Buffers come from `from`, all at once: rn_output_buffer_bytes says how much. Fails early when the
// file system has less room than file_bytes.
RN_MUST_USE rn_status rn_output_create(const char *path, const rn_output_options *options,
                                       const rn_allocator *from, rn_output **out);
size_t rn_output_buffer_bytes(const rn_output_options *options);
// The most that rn_output_create takes from `from`, with the alignment of each block.
size_t rn_output_held_bytes(const rn_output_options *options);
// The stream's next `bytes` bytes (0 < bytes <= buffer_bytes - 4096) as room in one or two buffers,
// for anybody to fill; then rn_output_advance adds them. Waits until the buffers have been written.
typedef struct rn_output_span {
    uint8_t *data; // (bytes)
    size_t bytes;  // 0 for a second span that is not needed
} rn_output_span;
RN_MUST_USE rn_status rn_output_reserve(rn_output *output, size_t bytes, rn_output_span spans[2]);
void rn_output_advance(rn_output *output, size_t bytes);
// Copies to the stream's end, however long.
RN_MUST_USE rn_status rn_output_append(rn_output *output, const void *data, size_t bytes);
// Writes outside the stream.
RN_MUST_USE rn_status rn_output_put(rn_output *output, uint64_t offset, const void *data,
                                    size_t bytes);
// The stream must be full. On RN_OK the file is on the disk under its name.
RN_MUST_USE rn_status rn_output_commit(rn_output *output);
// NULL-safe; without a commit nothing remains.
void rn_output_destroy(rn_output *output);

#endif
