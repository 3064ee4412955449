// buffer.c — doubling growth under a cap.
#include "base/buffer.h"
#include "base/checked.h"

#include <string.h>

void rn_buffer_init(rn_buffer *buffer, const rn_allocator *from, size_t cap_bytes) {
    *buffer = (rn_buffer){.from = from, .cap_bytes = cap_bytes};
}

void rn_buffer_free(rn_buffer *buffer) {
    rn_free(buffer->from, buffer->data, buffer->capacity);
    buffer->data = NULL;
    buffer->bytes = buffer->capacity = 0;
}

static rn_status grow(rn_buffer *buffer, size_t need) {
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    capacity = (size_t)rn_max_u64(need, rn_min_u64(capacity, buffer->cap_bytes));
    void *data;
    RN_TRY(rn_alloc(buffer->from, capacity, &data));
    if (buffer->bytes) memcpy(data, buffer->data, buffer->bytes);
    rn_free(buffer->from, buffer->data, buffer->capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return RN_OK;
}

rn_status rn_buffer_append(rn_buffer *buffer, const void *data, size_t bytes) {
    size_t need;
    if (!rn_add_size(buffer->bytes, bytes, &need) || need > buffer->cap_bytes)
        return rn_fail(RN_INVALID, "text grows past its limit of %zu bytes", buffer->cap_bytes);
    if (need > buffer->capacity) RN_TRY(grow(buffer, need));
    if (bytes) memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes = need;
    return RN_OK;
}

static rn_status write_buffer(void *self, const char *text, size_t bytes) {
    return rn_buffer_append(self, text, bytes);
}

rn_sink rn_buffer_sink(rn_buffer *buffer) {
    return (rn_sink){buffer, write_buffer};
}
