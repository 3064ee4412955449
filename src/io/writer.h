// writer.h — the writer's buffers for those inside the library who fill them in place.
#ifndef RN_IO_WRITER_H
#define RN_IO_WRITER_H

#include <ration/writer.h>

#include "base/output.h"

// Like rn_writer_append, but the caller (or its workers) fills the spans between the two calls. At
// most buffer_bytes - 4096.
RN_MUST_USE rn_status rn_writer_reserve(rn_writer *writer, size_t bytes, rn_output_span spans[2]);
RN_MUST_USE rn_status rn_writer_advance(rn_writer *writer, size_t bytes);

// rn_writer_create for a file whose tensors are all streamed, with its buffers from `buffers`,
// which has at least rn_writer_buffers_bytes.
RN_MUST_USE rn_status rn_writer_create_in(const char *path, const rn_write_tensor *tensors,
                                          size_t tensor_count, const rn_writer_options *options,
                                          const rn_allocator *buffers, rn_writer **out);
size_t rn_writer_buffers_bytes(const rn_writer_options *options);

// The most that rn_writer_create takes besides rn_writer_held_bytes: its tables and, while it runs,
// the header.
uint64_t rn_writer_opening_bytes(const rn_write_tensor *tensors, size_t tensor_count,
                                 const rn_metadata *metadata, size_t metadata_count);

#endif
