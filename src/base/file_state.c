// file_state.c — one inotify descriptor for all files of the process (a user has few of them), and
// a row for each inode that counts what happened to it.
#include "base/file_state.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 512 }; // files; further ones are not watched

typedef struct row {
    int watch; // inotify's number of the inode
    uint32_t holders;
    uint64_t writes, touches;
} row;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int fd; // where `used` is above 0
    uint32_t used;
    row rows[ROWS];
} all; // under lock

// ---- events -------------------------------------------------------------------------------------

static void count_event(const struct inotify_event *event) {
    bool lost = event->mask & IN_Q_OVERFLOW; // anything may have happened to any of them
    for (uint32_t i = 0; i < ROWS; i++) {
        row *r = &all.rows[i];
        if (r->holders == 0 || (!lost && r->watch != event->wd)) continue;
        r->writes += lost || (event->mask & IN_MODIFY);
        r->touches += (event->mask & IN_ATTRIB) != 0;
    }
}

static void read_events(void) {
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t bytes;
    while ((bytes = read(all.fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const struct inotify_event *event = (const void *)(buffer + at);
            count_event(event);
            at += (ssize_t)(sizeof *event + event->len);
        }
}

// ---- rows ---------------------------------------------------------------------------------------

static uint32_t find_row(int watch) {
    uint32_t unused = ROWS;
    for (uint32_t i = 0; i < ROWS; i++) {
        if (all.rows[i].holders && all.rows[i].watch == watch) return i;
        if (!all.rows[i].holders && unused == ROWS) unused = i;
    }
    return unused;
}

static void close_unused(void) {
    if (all.used == 0) close(all.fd);
}

// The watch is of the inode behind the descriptor, whatever its name is by now.
static void begin_watch(int fd, rn_file_state *state) {
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (all.used == 0 && (all.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) < 0) return;
    int watch = inotify_add_watch(all.fd, name, IN_MODIFY | IN_ATTRIB);
    uint32_t at = watch < 0 ? ROWS : find_row(watch);
    if (at == ROWS) {
        if (watch >= 0) (void)inotify_rm_watch(all.fd, watch);
        close_unused();
        return;
    }
    row *r = &all.rows[at];
    if (r->holders == 0) *r = (row){.watch = watch};
    all.used += r->holders++ == 0;
    read_events();
    state->watch = at + 1;
    state->writes = r->writes;
    state->touches = r->touches;
}

rn_status rn_file_state_take(int fd, const char *path, rn_file_state *out) {
    struct stat info;
    *out = (rn_file_state){0};
    // Watched first: a change in between is seen twice rather than not at all.
    pthread_mutex_lock(&lock);
    begin_watch(fd, out);
    pthread_mutex_unlock(&lock);
    if (fstat(fd, &info) != 0)
        return rn_error_locate(rn_fail(RN_IO, "cannot look at %s: %s", path, strerror(errno)), path,
                               RN_NO_OFFSET);
    out->size_bytes = (uint64_t)info.st_size;
    out->modified = info.st_mtim;
    return RN_OK;
}

void rn_file_state_end(rn_file_state *state) {
    if (state->watch) {
        pthread_mutex_lock(&lock);
        row *r = &all.rows[state->watch - 1];
        if (--r->holders == 0) {
            (void)inotify_rm_watch(all.fd, r->watch);
            all.used--;
            close_unused();
        }
        pthread_mutex_unlock(&lock);
    }
    *state = (rn_file_state){0};
}

// ---- looking ------------------------------------------------------------------------------------

// Its time is new: did somebody set it, and nobody write?
static bool is_touched_only(const rn_file_state *state) {
    if (!state->watch) return false;
    pthread_mutex_lock(&lock);
    read_events();
    const row *r = &all.rows[state->watch - 1];
    bool only = r->touches > state->touches && r->writes == state->writes;
    pthread_mutex_unlock(&lock);
    return only;
}

rn_status rn_file_state_check(const rn_file_state *state, int fd, const char *path) {
    struct stat info;
    bool same = fstat(fd, &info) == 0 && (uint64_t)info.st_size == state->size_bytes;
    if (same && info.st_mtim.tv_sec == state->modified.tv_sec &&
        info.st_mtim.tv_nsec == state->modified.tv_nsec)
        return RN_OK;
    if (same && is_touched_only(state)) return RN_OK;
    return rn_hint(rn_error_locate(rn_fail(RN_IO, "%s was changed while it was in use", path), path,
                                   RN_NO_OFFSET),
                   "a new version is put in place by renaming it, which leaves the open file as it "
                   "is; then start again");
}
