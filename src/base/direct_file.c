// direct_file.c — opening, identity, alignment.
//
// The alignment comes from statx (STATX_DIOALIGN, Linux 6.1) where it is more than 4 KiB; 4 KiB
// satisfies every disk and file system that does not say otherwise, and is what the page cache
// counts in.
#include "base/direct_file.h"
#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rn_status fail_path(const char *path, const char *verb) {
    int code = errno;
    rn_status status = code == ENOENT ? RN_NOT_FOUND : RN_IO;
    return rn_blame(rn_fail(status, "cannot %s %s: %s", verb, path, strerror(code)), path,
                    RN_NO_OFFSET);
}

static rn_status copy_path(const char *path, const rn_allocator *allocator, rn_direct_file *file) {
    file->path_bytes = strlen(path) + 1;
    RN_TRY(rn_alloc(allocator, file->path_bytes, (void **)&file->path));
    memcpy(file->path, path, file->path_bytes);
    return RN_OK;
}

// Opening a pipe would wait for its writer, so the kind of file is asked first.
static rn_status require_regular(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return fail_path(path, "open");
    if (S_ISREG(info.st_mode)) return RN_OK;
    return rn_blame(rn_fail(RN_UNSUPPORTED, "%s is not a regular file", path), path, RN_NO_OFFSET);
}

static rn_status open_plain(rn_direct_file *file) {
    struct stat info;
    file->plain_fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->plain_fd < 0 || fstat(file->plain_fd, &info) != 0)
        return fail_path(file->path, "open");
    file->device = info.st_dev;
    file->inode = info.st_ino;
    file->size_bytes = (uint64_t)info.st_size;
    file->modified = info.st_mtim;
    // A hint only; where it is refused, reading still works.
    (void)posix_fadvise(file->plain_fd, 0, 0, POSIX_FADV_RANDOM);
    file->cache_view = rn_page_cache_probe(file->plain_fd);
    return RN_OK;
}

// The alignment that direct reads need, or 0 where the kernel says that there are none.
static uint64_t direct_align(int fd) {
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN)) {
        uint64_t align = info.stx_dio_offset_align;
        if (align == 0 || (align & (align - 1)) || info.stx_dio_mem_align > RN_PAGE_BYTES) return 0;
        return rn_max_u64(align, RN_PAGE_BYTES);
    }
#else
    (void)fd;
#endif
    return RN_PAGE_BYTES;
}

static rn_status open_direct(rn_direct_file *file, size_t request_bytes) {
    struct stat info;
    uint64_t align = direct_align(file->plain_fd);
    if (align == 0 || request_bytes % align != 0) return RN_OK;
    file->direct_fd = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file->direct_fd < 0) return errno == EINVAL ? RN_OK : fail_path(file->path, "open");
    if (fstat(file->direct_fd, &info) != 0) return fail_path(file->path, "open");
    if (info.st_dev != file->device || info.st_ino != file->inode)
        return rn_blame(rn_fail(RN_IO, "%s was replaced while it was being opened", file->path),
                        file->path, RN_NO_OFFSET);
    file->align_bytes = align;
    file->direct = true;
    return RN_OK;
}

rn_status rn_direct_file_open(const char *path, bool allow_direct, size_t request_bytes,
                              const rn_allocator *allocator, rn_direct_file *out) {
    *out = (rn_direct_file){.direct_fd = -1, .plain_fd = -1, .align_bytes = RN_PAGE_BYTES};
    RN_TRY(require_regular(path));
    RN_TRY(copy_path(path, allocator, out));
    RN_TRY(open_plain(out));
    return allow_direct ? open_direct(out, request_bytes) : RN_OK;
}

static bool same_content(const rn_direct_file *file, const struct stat *info) {
    return (uint64_t)info->st_size == file->size_bytes &&
           info->st_mtim.tv_sec == file->modified.tv_sec &&
           info->st_mtim.tv_nsec == file->modified.tv_nsec;
}

rn_status rn_direct_file_check(const rn_direct_file *file) {
    struct stat info;
    const char *change = NULL;
    if (fstat(file->plain_fd, &info) != 0 || !same_content(file, &info))
        change = "was changed";
    else if (stat(file->path, &info) == 0 &&
             (info.st_dev != file->device || info.st_ino != file->inode))
        change = "was replaced";
    if (!change) return RN_OK;
    rn_status status = rn_fail(RN_IO, "%s %s while it was in use", file->path, change);
    rn_blame(status, file->path, RN_NO_OFFSET);
    return rn_hint(status, "leave the file alone while it is in use, then start again");
}

void rn_direct_file_close(rn_direct_file *file, const rn_allocator *allocator) {
    if (file->direct_fd >= 0) close(file->direct_fd);
    if (file->plain_fd >= 0) close(file->plain_fd);
    rn_free(allocator, file->path, file->path_bytes);
    *file = (rn_direct_file){.direct_fd = -1, .plain_fd = -1};
}
