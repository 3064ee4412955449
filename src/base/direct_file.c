// direct_file.c — opening, alignment.
//
// The alignment comes from statx (STATX_DIOALIGN, Linux 6.1) where it is more than 4 KiB; 4 KiB
// satisfies every disk and file system that does not say otherwise, and is what the page cache
// counts in.
#include "base/direct_file.h"
#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rn_status fail_path(const char *path, const char *verb) {
    int code = errno;
    rn_status status = code == ENOENT ? RN_NOT_FOUND : RN_IO;
    return rn_error_locate(rn_fail(status, "cannot %s %s: %s", verb, path, strerror(code)), path,
                           RN_NO_OFFSET);
}

static rn_status copy_path(const char *path, const rn_allocator *allocator, rn_direct_file *file) {
    file->path_bytes = strlen(path) + 1;
    RN_TRY(rn_alloc(allocator, file->path_bytes, (void **)&file->path));
    memcpy(file->path, path, file->path_bytes);
    return RN_OK;
}

// What to open: the open file by its descriptor where there is one and /proc shows it.
typedef struct file_name {
    char text[32];
} file_name;

static const char *choose_name(const rn_direct_file *file, int fd, file_name *name) {
    snprintf(name->text, sizeof name->text, "/proc/self/fd/%d", fd);
    return fd > 0 && access(name->text, F_OK) == 0 ? name->text : file->path;
}

// Opening a pipe would wait for its writer, so the kind of file is asked first.
static rn_status require_regular(const rn_direct_file *file, const char *name) {
    struct stat info;
    if (stat(name, &info) != 0) return fail_path(file->path, "open");
    if (S_ISREG(info.st_mode)) return RN_OK;
    return rn_error_locate(rn_fail(RN_UNSUPPORTED, "%s is not a regular file", file->path),
                           file->path, RN_NO_OFFSET);
}

static rn_status open_plain(rn_direct_file *file, const char *name) {
    file->plain_fd = open(name, O_RDONLY | O_CLOEXEC);
    if (file->plain_fd < 0) return fail_path(file->path, "open");
    RN_TRY(rn_file_state_take(file->plain_fd, file->path, &file->state));
    // A hint only; where it is refused, reading still works.
    (void)posix_fadvise(file->plain_fd, 0, 0, POSIX_FADV_RANDOM);
    file->cache_view = rn_page_cache_probe(file->plain_fd);
    return RN_OK;
}

static bool is_same_file(int a, int b) {
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static rn_status fail_replaced(const rn_direct_file *file) {
    return rn_error_locate(rn_fail(RN_IO, "%s was replaced while it was being opened", file->path),
                           file->path, RN_NO_OFFSET);
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

static rn_status open_direct(rn_direct_file *file, const char *name, size_t request_bytes) {
    uint64_t align = direct_align(file->plain_fd);
    if (align == 0 || request_bytes % align != 0) return RN_OK;
    file->direct_fd = open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file->direct_fd < 0) return errno == EINVAL ? RN_OK : fail_path(file->path, "open");
    if (!is_same_file(file->direct_fd, file->plain_fd)) return fail_replaced(file);
    file->align_bytes = align;
    file->direct = true;
    return RN_OK;
}

rn_status rn_direct_file_open(const char *path, int fd, bool allow_direct, size_t request_bytes,
                              const rn_allocator *allocator, rn_direct_file *out) {
    file_name own = {""};
    *out = (rn_direct_file){.direct_fd = -1, .plain_fd = -1, .align_bytes = RN_PAGE_BYTES};
    RN_TRY(copy_path(path, allocator, out));
    const char *name = choose_name(out, fd, &own);
    RN_TRY(require_regular(out, name));
    RN_TRY(open_plain(out, name));
    if (fd > 0 && !is_same_file(fd, out->plain_fd)) return fail_replaced(out);
    return allow_direct ? open_direct(out, name, request_bytes) : RN_OK;
}

rn_status rn_direct_file_check(const rn_direct_file *file) {
    return rn_file_state_check(&file->state, file->plain_fd, file->path);
}

void rn_direct_file_close(rn_direct_file *file, const rn_allocator *allocator) {
    rn_file_state_end(&file->state);
    if (file->direct_fd >= 0) close(file->direct_fd);
    if (file->plain_fd >= 0) close(file->plain_fd);
    rn_free(allocator, file->path, file->path_bytes);
    *file = (rn_direct_file){.direct_fd = -1, .plain_fd = -1};
}
