// layout.h — where each tensor of a file to be written lies, and the header that says so.
#ifndef RN_IO_LAYOUT_H
#define RN_IO_LAYOUT_H

#include <ration/writer.h>

#include "base/buffer.h"

// Tensors and what a format's header needs to know of them. Offsets are from the start of the data
// section.
typedef struct rn_layout {
    const rn_write_tensor *tensors; // (count)
    const uint64_t *bytes;          // (count), without padding
    const uint64_t *offsets;        // (count)
    size_t count;
    const uint32_t *order; // (count): indices by offset
    const rn_metadata *metadata;
    size_t metadata_count;
    uint64_t alignment; // of GGUF's tensors
} rn_layout;

// Append the complete header, up to the first byte of data. RN_UNSUPPORTED names what the format
// cannot hold.
RN_MUST_USE rn_status rn_safetensors_header(const rn_layout *layout, rn_buffer *out);
RN_MUST_USE rn_status rn_gguf_header(const rn_layout *layout, rn_buffer *out);

#endif
