// read_engine.h — the narrow door between the reader and whatever carries out its reads.
//
// An engine takes reads and releases results in any order. It knows nothing of order, files or
// retries: a short or interrupted read is reported as it came, and the reader decides.
#ifndef RN_BASE_READ_ENGINE_H
#define RN_BASE_READ_ENGINE_H

#include "base/alloc.h"

typedef struct rn_read {
    int fd;
    uint32_t tag; // comes back with the result
    void *buffer; // (bytes), untouched by others until the result is back
    size_t bytes; // <= 1 GiB
    uint64_t offset;
    bool cached; // a copy from the page cache is expected, no disk
} rn_read;

typedef struct rn_read_result {
    uint32_t tag;
    int64_t result; // bytes read, or -errno
} rn_read_result;

typedef struct rn_read_engine rn_read_engine;
struct rn_read_engine {
    // Begins a read without waiting for it; 0 or an errno. At most `depth` are in flight: the
    // caller counts.
    int (*push)(rn_read_engine *self, const rn_read *read);
    // Waits for any one result. Only with reads in flight.
    rn_read_result (*pop)(rn_read_engine *self);
    // Only with none in flight.
    void (*destroy)(rn_read_engine *self);
};

// Each is called by one thread at a time. The uring one answers RN_UNSUPPORTED where the system has
// none or forbids it; the error says why.
RN_MUST_USE rn_status rn_read_engine_uring(const rn_allocator *allocator, uint32_t depth,
                                           rn_read_engine **out);
RN_MUST_USE rn_status rn_read_engine_threads(const rn_allocator *allocator, uint32_t depth,
                                             rn_read_engine **out);

#endif
