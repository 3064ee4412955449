// record_file.c — blocks into the file: one write call each, header, payload and padding together.
//
//     | preamble | block | block | block |  room for END |
//                ▲ a lap begins here                     ▲ limit
#include "profile/record/record.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "memory/account.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { END_BYTES = 512, MAX_PREAMBLE_BYTES = 64 << 10 };

// ---- opening ------------------------------------------------------------------------------------

// Asked first: opening a pipe would wait for its reader. Character devices are for /dev/null and
// /dev/full; a terminal is nobody's constraint.
static rn_status require_plain(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISCHR(info.st_mode)) return RN_OK;
    rn_status s = rn_fail(RN_INVALID, "%s is not a file", path);
    return rn_hint(rn_error_locate(s, path, RN_NO_OFFSET), "give the recording a file of its own");
}

// Two programs that record into one file would overwrite each other's blocks: the second is told
// so, before anything is lost. A file system without locks has none.
static rn_status claim(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return RN_OK;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        rn_status s = rn_fail(RN_INVALID, "another program is recording into %s", path);
        return rn_hint(rn_error_locate(s, path, RN_NO_OFFSET),
                       "give the recording a file of its own");
    }
    if (ftruncate(fd, 0) == 0) return RN_OK;
    return rn_error_locate(rn_fail(RN_IO, "cannot empty %s: %s", path, strerror(errno)), path,
                           RN_NO_OFFSET);
}

rn_status rn_trace_file_open(rn_trace_file *file, const char *path) {
    size_t bytes = strlen(path);
    if (bytes >= sizeof file->path) return rn_fail(RN_INVALID, "the path of the trace is too long");
    RN_TRY(require_plain(path));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0) {
        rn_status s = rn_fail(RN_IO, "cannot make %s: %s", path, strerror(errno));
        return rn_error_locate(s, path, RN_NO_OFFSET);
    }
    rn_status s = isatty(fd) ? rn_fail(RN_INVALID, "%s is a terminal", path) : claim(fd, path);
    if (s != RN_OK) {
        close(fd);
        return s;
    }
    *file = (rn_trace_file){.fd = fd};
    memcpy(file->path, path, bytes + 1);
    return RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static void skip(struct iovec **parts, int *count, size_t bytes) {
    while (*count && bytes >= (*parts)->iov_len) {
        bytes -= (*parts)->iov_len;
        ++*parts;
        --*count;
    }
    if (!*count) return;
    (*parts)->iov_base = (char *)(*parts)->iov_base + bytes;
    (*parts)->iov_len -= bytes;
}

static int write_parts(int fd, struct iovec *parts, int count, uint64_t offset) {
    if (rn_fault_hit(RN_FAULT_WRITE)) return EIO;
    while (count) {
        ssize_t done = pwritev(fd, parts, count, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        offset += (uint64_t)done;
        skip(&parts, &count, (size_t)done);
    }
    return 0;
}

// A write beyond the process's file size limit raises SIGXFSZ, which would end the program: it is
// held back, and taken away before it can arrive.
static int write_unsignalled(int fd, struct iovec *parts, int count, uint64_t offset) {
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    bool masked = pthread_sigmask(SIG_BLOCK, &one, &before) == 0;
    int error = write_parts(fd, parts, count, offset);
    if (error == EFBIG) (void)sigtimedwait(&one, NULL, &(struct timespec){0});
    if (masked) (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static bool put(rn_trace_file *file, rn_trace_block block, const void *payload) {
    static const char zeros[RN_TRACE_ALIGN];
    uint64_t bytes = rn_trace_block_bytes(block.payload_bytes);
    rn_trace_seal(&block, payload);
    struct iovec parts[] = {
        {&block, sizeof block},
        {(void *)(uintptr_t)payload, block.payload_bytes},
        {(void *)(uintptr_t)zeros, bytes - sizeof block - block.payload_bytes},
    };
    file->error = write_unsignalled(file->fd, parts, 3, file->offset);
    if (file->error) return false;
    file->sequence++;
    file->offset += bytes;
    if (file->offset > file->bytes) file->bytes = file->offset;
    return true;
}

uint64_t rn_trace_file_room(const rn_trace_file *file) {
    uint64_t used = file->offset + END_BYTES + RN_TRACE_ALIGN;
    return used < file->limit_bytes ? (file->limit_bytes - used) & ~(uint64_t)(RN_TRACE_ALIGN - 1)
                                    : 0;
}

bool rn_trace_file_put(rn_trace_file *file, rn_trace_block_kind kind, uint32_t lane,
                       const void *payload, uint32_t bytes) {
    return put(file,
               (rn_trace_block){.kind = kind,
                                .lane = lane,
                                .payload_bytes = bytes,
                                .sequence = file->sequence,
                                .round = file->round},
               payload);
}

bool rn_trace_file_put_end(rn_trace_file *file, const char *payload, uint32_t bytes) {
    uint32_t most = END_BYTES - RN_TRACE_ALIGN;
    return rn_trace_file_put(file, RN_TRACE_END, 0, payload, bytes < most ? bytes : most);
}

// What the lap before left behind this one's end would stand between older and newer blocks.
void rn_trace_file_begin_lap(rn_trace_file *file) {
    if (ftruncate(file->fd, (off_t)file->offset) == 0) file->bytes = file->offset;
    file->offset = file->first_bytes;
}

// ---- the preamble -------------------------------------------------------------------------------

static void put_texts(rn_json *json, const char *key, const char *const *texts, size_t count) {
    rn_json_array(json, key);
    for (size_t i = 0; i < count; i++)
        rn_json_string(json, NULL, texts[i]);
    rn_json_end(json);
}

static void put_kinds(rn_json *json) {
    static const char *const fields[] = {"u64 time_ns", "u64 address", "u64 bytes",  "u32 name",
                                         "u8 kind",     "u8 device",   "u8 purpose", "u8 flags"};
    static const char *const events[RN_TRACE_KIND_END] = {"",       "alloc", "free", "begin",
                                                          "finish", "span",  "mark", "counter",
                                                          "move"}; // by number, which begins at 1
    const char *marks[RN_MARK_COUNT];
    static const char *const counters[RN_COUNTER_COUNT] = {
        "other",       "resident",     "budget",        "predicted",       "predicted peak",
        "torch calls", "torch cpu ns", "torch cuda ns", "torch cpu bytes", "torch cuda bytes"};
    for (unsigned kind = 0; kind < RN_MARK_COUNT; kind++)
        marks[kind] = rn_mark_name(kind);
    put_texts(json, "event_fields", fields, sizeof fields / sizeof *fields);
    put_texts(json, "event_kinds", events, RN_TRACE_KIND_END);
    put_texts(json, "mark_kinds", marks, RN_MARK_COUNT);
    put_texts(json, "counter_kinds", counters, RN_COUNTER_COUNT);
    rn_json_array(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        rn_json_string(json, NULL, rn_purpose_name((rn_purpose)p));
    rn_json_end(json);
}

static rn_status write_preamble(rn_sink sink, const rn_trace_file *file,
                                const rn_profile_options *options) {
    struct timespec now;
    rn_json json;
    clock_gettime(CLOCK_REALTIME, &now);
    rn_json_begin(&json, sink, false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "format", "ration trace");
    rn_json_u64(&json, "version", RN_TRACE_VERSION);
    rn_json_u64(&json, "event_bytes", sizeof(rn_trace_event));
    put_kinds(&json);
    rn_json_string(&json, "mode", file->ring ? "ring" : "spill");
    rn_json_u64(&json, "limit_bytes", file->limit_bytes);
    rn_json_f64(&json, "snapshot_seconds", options->snapshot_seconds);
    rn_json_u64(&json, "start_unix_ns", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    rn_json_u64(&json, "pid", (uint64_t)getpid());
    rn_json_text(&json, "command",
                 options->command ? (rn_str){options->command, strnlen(options->command, 4096)}
                                  : (rn_str){"", 0});
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_trace_file_put_preamble(rn_trace_file *file, const rn_profile_options *options) {
    rn_buffer text;
    rn_buffer_init(&text, &rn_host_allocators[RN_PURPOSE_PROFILER], MAX_PREAMBLE_BYTES);
    rn_status s = write_preamble(rn_buffer_sink(&text), file, options);
    if (s == RN_OK &&
        !rn_trace_file_put(file, RN_TRACE_PREAMBLE, 0, text.data, (uint32_t)text.bytes)) {
        s = rn_fail(RN_IO, "cannot write %s: %s", file->path, strerror(file->error));
        rn_error_locate(s, file->path, 0);
    }
    rn_buffer_free(&text);
    file->first_bytes = file->offset;
    file->round = UINT64_MAX; // a round counts it up: the first one is 0
    return s;
}
