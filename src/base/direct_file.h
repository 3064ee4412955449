// direct_file.h — a file open for reading past the page cache.
//
// Two descriptors: `direct_fd` reads around the page cache and wants aligned offsets, sizes and
// memory; `plain_fd` copies pages that are cached already. Where the file system has no O_DIRECT
// there is only the plain one, told not to read ahead.
#ifndef RN_BASE_DIRECT_FILE_H
#define RN_BASE_DIRECT_FILE_H

#include "base/alloc.h"
#include "base/file_state.h"
#include "base/page_cache.h"

typedef struct rn_direct_file {
    char *path; // own copy
    size_t path_bytes;
    int direct_fd; // -1: no O_DIRECT here
    int plain_fd;
    bool direct;          // what is not cached is read through direct_fd
    uint64_t align_bytes; // of direct offsets and sizes; a power of two >= 4096
    rn_page_cache_view cache_view;
    rn_file_state state; // as it was opened
} rn_direct_file;

// Opens a regular file: the one that `fd` (above 0) has open already, whatever stands under its
// name by now; else the one of that path. `allow_direct` false leaves O_DIRECT out; so does an
// alignment that does not divide `request_bytes`. RN_NOT_FOUND, RN_UNSUPPORTED (not a regular
// file), RN_IO, RN_NO_MEMORY; the error names the path. Close what was opened, also after a
// failure; `out` needs no preparation.
RN_MUST_USE rn_status rn_direct_file_open(const char *path, int fd, bool allow_direct,
                                          size_t request_bytes, const rn_allocator *allocator,
                                          rn_direct_file *out);

// RN_IO when the content was changed. A file that was touched, renamed or removed, or whose name
// another one has by now, is still whole behind our descriptors: RN_OK.
RN_MUST_USE rn_status rn_direct_file_check(const rn_direct_file *file);

// Also for a file whose opening failed. `allocator` as given to open.
void rn_direct_file_close(rn_direct_file *file, const rn_allocator *allocator);

#endif
