// writer.h — the writer's buffers for those inside the library who fill them in place.
#ifndef RN_IO_WRITER_H
#define RN_IO_WRITER_H

#include <ration/writer.h>

#include "base/output.h"

// Like rn_writer_append, but the caller (or its workers) fills the spans between the two calls. At
// most buffer_bytes - 4096.
RN_MUST_USE rn_status rn_writer_reserve(rn_writer *writer, size_t bytes, rn_output_span spans[2]);
RN_MUST_USE rn_status rn_writer_advance(rn_writer *writer, size_t bytes);

// The most that rn_writer_create takes besides rn_writer_held_bytes: its tables and, while it runs,
// the header.
uint64_t rn_writer_opening_bytes(const rn_write_tensor *tensors, size_t tensor_count,
                                 const rn_metadata *metadata, size_t metadata_count);

#endif
