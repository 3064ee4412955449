// file.c — loops around pread and pwrite, and errno made readable.
#include "base/file.h"
#include "base/fault.h"
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

rn_status rn_file_fail(const char *doing, const char *path) {
    int error = errno;
    bool missing = error == ENOENT || error == ENOTDIR;
    rn_status s =
        rn_fail(missing ? RN_NOT_FOUND : RN_IO, "cannot %s %s: %s", doing, path, strerror(error));
    (void)rn_error_locate(s, path, RN_NO_OFFSET);
    if (error == ENOSPC) return rn_hint(s, "free some space on that file system");
    if (error == EACCES) return rn_hint(s, "check the permissions");
    if (missing) return rn_hint(s, "check the path");
    return s;
}

rn_status rn_file_open(const char *path, int *out_fd, uint64_t *out_bytes) {
    struct stat info;
    *out_fd = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not make us wait
    if (fd < 0) return rn_file_fail("open", path);
    if (fstat(fd, &info) != 0) {
        rn_status s = rn_file_fail("look at", path);
        close(fd);
        return s;
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return rn_error_locate(rn_fail(RN_UNSUPPORTED, "%s is not a regular file", path), path,
                               RN_NO_OFFSET);
    }
    *out_fd = fd;
    if (out_bytes) *out_bytes = (uint64_t)info.st_size;
    return RN_OK;
}

rn_status rn_file_read_at(int fd, const char *path, uint64_t offset, void *target, size_t bytes) {
    char *to = target;
    if (rn_fault_hit(RN_FAULT_READ)) {
        errno = EIO;
        return rn_error_locate(rn_file_fail("read", path), path, offset);
    }
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rn_error_locate(rn_file_fail("read", path), path, offset);
        if (got == 0) {
            rn_status s = rn_fail(RN_CORRUPT, "%s ends %zu bytes too early", path, bytes);
            return rn_error_locate(s, path, offset);
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return RN_OK;
}

rn_status rn_file_write_at(int fd, const char *path, uint64_t offset, const void *source,
                           size_t bytes) {
    const char *from = source;
    if (rn_fault_hit(RN_FAULT_WRITE)) {
        errno = ENOSPC;
        return rn_error_locate(rn_file_fail("write", path), path, offset);
    }
    while (bytes > 0) {
        ssize_t put = pwrite(fd, from, bytes, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return rn_error_locate(rn_file_fail("write", path), path, offset);
        from += put;
        offset += (uint64_t)put;
        bytes -= (size_t)put;
    }
    return RN_OK;
}

rn_status rn_file_read_all(const char *path, rn_buffer *buffer) {
    int fd;
    uint64_t bytes;
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = RN_OK;
    if (bytes > buffer->cap_bytes)
        s = rn_error_locate(rn_fail(RN_INVALID, "%s has %llu bytes; at most %zu are read", path,
                                    (unsigned long long)bytes, buffer->cap_bytes),
                            path, RN_NO_OFFSET);
    char piece[16 << 10];
    for (uint64_t at = 0; s == RN_OK && at < bytes;) {
        size_t want = bytes - at < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        s = rn_file_read_at(fd, path, at, piece, want);
        if (s == RN_OK) s = rn_buffer_append(buffer, piece, want);
        at += want;
    }
    close(fd);
    return s;
}

static rn_status write_and_sync(int fd, const char *path, const void *data, size_t bytes) {
    RN_TRY(rn_file_write_at(fd, path, 0, data, bytes));
    return fsync(fd) == 0 ? RN_OK : rn_file_fail("sync", path);
}

rn_status rn_file_replace(const char *path, const void *data, size_t bytes) {
    char target[PATH_MAX], temporary[PATH_MAX];
    if (realpath(path, target)) path = target; // a link stays a link
    struct stat info;
    int fd;
    bool existed = stat(path, &info) == 0;
    RN_TRY(rn_temporary_create(path, existed ? 0600 : 0644, temporary, sizeof temporary, &fd));
    // The mode of an old file is kept, whatever the umask would take from it.
    rn_status s = existed && fchmod(fd, info.st_mode & 07777) != 0
                      ? rn_file_fail("set the mode of", temporary)
                      : write_and_sync(fd, temporary, data, bytes);
    if (s == RN_OK && rename(temporary, path) != 0) s = rn_file_fail("replace", path);
    if (s != RN_OK) unlink(temporary);
    close(fd); // last, for it holds the lock; what close could report, fsync has
    return s;
}

bool rn_file_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool rn_file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

rn_status rn_path_join(const char *folder, const char *name, char *out, size_t capacity) {
    int bytes = snprintf(out, capacity, "%s/%s", folder, name);
    if (bytes < 0 || (size_t)bytes >= capacity)
        return rn_fail(RN_INVALID, "the path %s/%s is too long", folder, name);
    return RN_OK;
}
