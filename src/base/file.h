// file.h — opening and reading files, with errors that name the file and the offset. Reads and
// writes here are where tests make the N-th one fail.
#ifndef RN_BASE_FILE_H
#define RN_BASE_FILE_H

#include "base/alloc.h"
#include "base/buffer.h"

// Opens a regular file for reading. Folders, pipes and devices are refused.
RN_MUST_USE rn_status rn_file_open(const char *path, int *out_fd, uint64_t *out_bytes);
// Reads exactly `bytes` bytes at `offset`; a file that ends before that is RN_CORRUPT.
RN_MUST_USE rn_status rn_file_read_at(int fd, const char *path, uint64_t offset, void *target,
                                      size_t bytes);
// Writes exactly `bytes` bytes at `offset`.
RN_MUST_USE rn_status rn_file_write_at(int fd, const char *path, uint64_t offset,
                                       const void *source, size_t bytes);
// Appends a whole file to `buffer`, whose cap is the largest size accepted.
RN_MUST_USE rn_status rn_file_read_all(const char *path, rn_buffer *buffer);
// Replaces a small file atomically: a temporary beside it (base/temporary.h), fsync, rename. The
// mode is kept; where `path` is a link, its target is replaced.
RN_MUST_USE rn_status rn_file_replace(const char *path, const void *data, size_t bytes);
// Makes a failing system call on `path` an error; errno decides between RN_NOT_FOUND and RN_IO.
rn_status rn_file_fail(const char *doing, const char *path);
bool rn_file_is_folder(const char *path);
bool rn_file_exists(const char *path);
// "folder/name" into `out`; RN_INVALID when it is too long.
RN_MUST_USE rn_status rn_path_join(const char *folder, const char *name, char *out,
                                   size_t capacity);

#endif
