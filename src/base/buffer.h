// buffer.h — bytes that grow up to a cap.
#ifndef RN_BASE_BUFFER_H
#define RN_BASE_BUFFER_H

#include "base/alloc.h"

#include <ration/text.h>

typedef struct rn_buffer {
    const rn_allocator *from;
    char *data; // (capacity); bytes [0, bytes) are filled
    size_t bytes, capacity;
    size_t cap_bytes; // growing past this fails
} rn_buffer;

void rn_buffer_init(rn_buffer *buffer, const rn_allocator *from, size_t cap_bytes);
void rn_buffer_free(rn_buffer *buffer);
RN_MUST_USE rn_status rn_buffer_append(rn_buffer *buffer, const void *data, size_t bytes);
// A sink that appends here.
rn_sink rn_buffer_sink(rn_buffer *buffer);

#endif
