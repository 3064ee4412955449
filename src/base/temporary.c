// temporary.c — random names, exclusive creation, and a lock that dies with its process.
//
// Making and sweeping race: a sweep may lock a file in the moment between its creation and its
// creator's lock. Whoever gets the lock second finds the file gone (no name left) or locked, and
// makes another one; so a file that its creator has locked is never removed by a sweep.
#include "base/temporary.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEX_DIGITS = 12, FOLDER_LETTERS = 6, TRIES = 16, MAX_PATH_BYTES = 4096 };

static const char file_mark[] = ".rn", file_ending[] = ".tmp";

// ---- names --------------------------------------------------------------------------------------

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The folder of `path`, "." where it names none.
static bool folder_of(const char *path, char *out, size_t capacity) {
    size_t bytes = (size_t)(last_part(path) - path);
    if (bytes > 1) bytes--; // without its slash, but for the root's
    if (bytes >= capacity) return false;
    memcpy(out, bytes ? path : ".", bytes ? bytes : 1);
    out[bytes ? bytes : 1] = '\0';
    return true;
}

static rn_status make_name(const char *path, char *out, size_t capacity) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return rn_fail(RN_IO, "the system gives no random bytes: %s", strerror(errno));
    int bytes = snprintf(out, capacity, "%s%s%012llx%s", path, file_mark,
                         (unsigned long long)(random >> 16), file_ending);
    if (bytes < 0 || (size_t)bytes >= capacity)
        return rn_hint(rn_fail(RN_INVALID, "the path is too long"), "use a shorter one");
    return RN_OK;
}

static bool is_temporary_of(const char *name, const char *entry) {
    size_t bytes = strlen(name);
    if (strlen(entry) != bytes + RN_TEMPORARY_SUFFIX_BYTES || memcmp(entry, name, bytes) != 0)
        return false;
    const char *digits = entry + bytes + strlen(file_mark);
    return memcmp(entry + bytes, file_mark, strlen(file_mark)) == 0 &&
           strspn(digits, "0123456789abcdef") == HEX_DIGITS &&
           strcmp(digits + HEX_DIGITS, file_ending) == 0;
}

static bool is_folder_of(const char *prefix, const char *entry) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t bytes = strlen(prefix);
    return strlen(entry) == bytes + FOLDER_LETTERS && memcmp(entry, prefix, bytes) == 0 &&
           strspn(entry + bytes, letters) == FOLDER_LETTERS;
}

// ---- what was abandoned -------------------------------------------------------------------------

// Opens `entry` if it is of our owner and of this kind (S_IFREG, S_IFDIR), no link to one, and if
// nobody holds its lock: from then on we do. -1: it is to be left alone.
static int claim(int folder, const char *entry, mode_t kind) {
    struct stat info;
    if (fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0 || (info.st_mode & S_IFMT) != kind)
        return -1;
    int fd = openat(folder, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    bool ours = fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind &&
                info.st_uid == geteuid() && (kind == S_IFDIR || info.st_nlink == 1) &&
                flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (ours) return fd;
    close(fd);
    return -1;
}

// Calls `each` for all entries of a folder that is open as `fd`, which it takes.
static void for_entries(int fd, const char *name,
                        void (*each)(int folder, const char *name, const char *entry)) {
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));)
        each(dirfd(entries), name, entry->d_name);
    closedir(entries);
}

static void sweep_file(int folder, const char *name, const char *entry) {
    if (!is_temporary_of(name, entry)) return;
    int fd = claim(folder, entry, S_IFREG);
    if (fd < 0) return;
    (void)unlinkat(folder, entry, 0);
    close(fd);
}

void rn_temporary_sweep(const char *path) {
    char folder[MAX_PATH_BYTES];
    if (!folder_of(path, folder, sizeof folder)) return;
    for_entries(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), last_part(path), sweep_file);
}

// ---- files --------------------------------------------------------------------------------------

// Ours alone from here on; false where a sweep was faster. Without locks nobody sweeps.
static bool hold(int fd) {
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

rn_status rn_temporary_create(const char *path, mode_t mode, char *name, size_t capacity,
                              int *out_fd) {
    *out_fd = -1;
    rn_temporary_sweep(path);
    for (int i = 0; i < TRIES; i++) {
        RN_TRY(make_name(path, name, capacity));
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return rn_file_fail("create", name);
        if (hold(fd)) {
            *out_fd = fd;
            return RN_OK;
        }
        close(fd);
    }
    return rn_fail(RN_IO, "cannot create a temporary file beside %s: its names are taken", path);
}

rn_status rn_temporary_name(const char *path, int fd, char *name, size_t capacity) {
    char source[64];
    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    (void)flock(fd, LOCK_EX | LOCK_NB); // before there is a name to sweep
    for (int i = 0; i < TRIES; i++) {
        RN_TRY(make_name(path, name, capacity));
        if (linkat(AT_FDCWD, source, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0) return RN_OK;
        if (errno != EEXIST) return rn_file_fail("name", name);
    }
    return rn_fail(RN_IO, "cannot name a temporary file beside %s: its names are taken", path);
}

// ---- folders ------------------------------------------------------------------------------------

static void remove_ending(int folder, const char *ending, const char *entry) {
    struct stat info;
    size_t bytes = strlen(entry), end = strlen(ending);
    if (bytes < end || strcmp(entry + bytes - end, ending) != 0) return;
    if (fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return;
    (void)unlinkat(folder, entry, 0);
}

static void sweep_folders(const char *above, const char *prefix, const char *ending) {
    DIR *entries = opendir(above);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (!is_folder_of(prefix, entry->d_name)) continue;
        int held = claim(dirfd(entries), entry->d_name, S_IFDIR);
        if (held < 0) continue;
        for_entries(dup(held), ending, remove_ending);
        (void)unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR); // not where a file is left
        close(held);
    }
    closedir(entries);
}

rn_status rn_temporary_folder(const char *folder, const char *prefix, const char *ending,
                              char *name, size_t capacity, int *out_fd) {
    *out_fd = -1;
    sweep_folders(folder, prefix, ending);
    for (int i = 0; i < TRIES; i++) {
        int bytes = snprintf(name, capacity, "%s/%sXXXXXX", folder, prefix);
        if (bytes < 0 || (size_t)bytes >= capacity)
            return rn_fail(RN_INVALID, "the path %s/%s is too long", folder, prefix);
        if (!mkdtemp(name)) return rn_file_fail("make a folder like", name);
        int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && hold(fd)) {
            *out_fd = fd;
            return RN_OK;
        }
        if (fd >= 0) close(fd);
        (void)rmdir(name);
    }
    return rn_fail(RN_IO, "cannot make a folder in %s: its names are taken", folder);
}
