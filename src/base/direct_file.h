// direct_file.h — a file open for reading past the page cache, and what makes it the same later.
//
// Two descriptors: `direct_fd` reads around the page cache and wants aligned offsets, sizes and
// memory; `plain_fd` copies pages that are cached already. Where the file system has no O_DIRECT
// there is only the plain one, told not to read ahead.
#ifndef RN_BASE_DIRECT_FILE_H
#define RN_BASE_DIRECT_FILE_H

#include "base/alloc.h"
#include "base/page_cache.h"

#include <time.h>

typedef struct rn_direct_file {
    char *path; // own copy
    size_t path_bytes;
    int direct_fd; // -1: no O_DIRECT here
    int plain_fd;
    bool direct;          // what is not cached is read through direct_fd
    uint64_t align_bytes; // of direct offsets and sizes; a power of two >= 4096
    rn_page_cache_view cache_view;
    // The identity.
    uint64_t device, inode, size_bytes;
    struct timespec modified;
} rn_direct_file;

// Opens a regular file. `allow_direct` false leaves O_DIRECT out; so does an alignment that does
// not divide `request_bytes`. RN_NOT_FOUND, RN_UNSUPPORTED (not a regular file), RN_IO,
// RN_NO_MEMORY; the story names the path. Close what was opened, also after a failure; `out` needs
// no preparation.
RN_MUST_USE rn_status rn_direct_file_open(const char *path, bool allow_direct, size_t request_bytes,
                                          const rn_allocator *allocator, rn_direct_file *out);

// RN_IO when the file was changed (its size or time of change) or another file stands at its path.
// A file that was removed is still whole behind our descriptors: RN_OK.
RN_MUST_USE rn_status rn_direct_file_check(const rn_direct_file *file);

// Also for a file whose opening failed. `allocator` as given to open.
void rn_direct_file_close(rn_direct_file *file, const rn_allocator *allocator);

#endif
