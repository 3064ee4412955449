// open.c — a file becomes a timeline, whichever of the formats it is.
//
// The file is read, not mapped: a program that is still recording may begin it anew and cut it
// under our hands, and touching a mapped page that is gone is a signal, not an error. Its first
// bytes are looked at before the rest is read.
#include "base/checked.h"
#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"
#include "profile/foreign/pickle.h"
#include "profile/timeline.h"
#include "profile/timeline/merge.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES  ((size_t)64 << 10)
#define PIECE_BYTES ((size_t)8 << 20)

typedef rn_status (*read_format)(const char *path, const uint8_t *data, uint64_t bytes,
                                 rn_timeline **out);

// ---- which format -------------------------------------------------------------------------------

// The first block may be damaged: then a later one says it.
static bool is_trace(const uint8_t *head, size_t bytes) {
    for (size_t at = 0; at + RN_TRACE_ALIGN <= bytes; at += RN_TRACE_ALIGN)
        if (rn_trace_is_header(head + at)) return true;
    return bytes >= 8 && memcmp(head, RN_TRACE_MAGIC, 8) == 0;
}

// Before is_trace, which finds the traces in it.
static bool is_merged(const uint8_t *head, size_t bytes) {
    return bytes >= RN_MERGE_MAGIC_SIZE && memcmp(head, RN_MERGE_MAGIC, RN_MERGE_MAGIC_SIZE) == 0;
}

static bool is_json(const uint8_t *head, size_t bytes) {
    size_t at = bytes >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < bytes && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    return at < bytes && head[at] == '{';
}

static rn_status refuse(const uint8_t *head, size_t bytes) {
    rn_status s = rn_fail(RN_CORRUPT, bytes ? "this is no profile" : "the file is empty");
    if (bytes == 0)
        return rn_hint(s, "the program has not recorded anything yet, or the disk was full");
    if (bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return rn_hint(s, "it is a ZIP archive; give the trace, JSON file or pickle that is in it");
    if (bytes >= 2 && memcmp(head, "\x1f\x8b", 2) == 0)
        return rn_hint(s, "it is compressed; gunzip it first");
    return rn_hint(s, "give a trace (.rntrace), a memory profile (.json) or PyTorch's memory "
                      "snapshot (.pickle)");
}

static rn_status detect(const uint8_t *head, size_t bytes, read_format *out) {
    if (is_merged(head, bytes))
        *out = rn_merge_read;
    else if (is_trace(head, bytes))
        *out = rn_trace_read;
    else if (is_json(head, bytes))
        *out = rn_json_profile_read;
    else if (rn_pickle_is(head, bytes))
        *out = rn_torch_snapshot_read;
    else
        return refuse(head, bytes);
    return RN_OK;
}

// ---- reading ------------------------------------------------------------------------------------

// Reading a file that does not fit would end in swapping, or by the system's hand. Beside the file
// stands what it says, put in order: for a recording of blocks that come and go both together are
// two and a half times the file, for one of operations four.
static rn_status check_room(uint64_t bytes) {
    rn_process_info info;
    if (rn_process_read(&info) != RN_OK) return RN_OK;
    uint64_t free_bytes = rn_process_free_bytes(&info);
    if (bytes <= free_bytes / 3) return RN_OK;
    rn_status s = rn_fail(RN_OVER_BUDGET,
                          "the file has %s; to read it takes three times as much, and %s of memory "
                          "are free",
                          rn_size_format(bytes).text, rn_size_format(free_bytes).text);
    return rn_hint(s, "look at it on a larger machine, or record with a smaller limit");
}

// A file that becomes shorter meanwhile is read as far as it goes.
static rn_status read_pieces(int fd, const char *path, uint8_t *data, uint64_t *bytes) {
    for (uint64_t at = 0; at < *bytes; at += PIECE_BYTES) {
        size_t piece = (size_t)rn_min_u64(PIECE_BYTES, *bytes - at);
        rn_status s = rn_file_read_at(fd, path, at, data + at, piece);
        if (s == RN_CORRUPT) *bytes = at;
        if (s != RN_OK && s != RN_CORRUPT) return s;
    }
    return RN_OK;
}

static rn_status read_whole(int fd, const char *path, uint64_t bytes, read_format read,
                            rn_timeline **out) {
    const rn_allocator *from = &rn_host_allocators[RN_PURPOSE_PROFILER];
    void *data = NULL;
    RN_TRY(check_room(bytes));
    RN_TRY(rn_alloc(from, bytes, &data));
    uint64_t had = bytes;
    rn_status s = read_pieces(fd, path, data, &had);
    if (s == RN_OK) s = read(path, data, had, out);
    rn_free(from, data, bytes);
    return s;
}

static rn_status read_file(int fd, const char *path, uint64_t bytes, rn_timeline **out) {
    const rn_allocator *from = &rn_host_allocators[RN_PURPOSE_PROFILER];
    size_t head_bytes = (size_t)rn_min_u64(bytes, HEAD_BYTES);
    void *head = NULL;
    read_format read = NULL;
    RN_TRY(rn_alloc(from, head_bytes, &head));
    rn_status s = head_bytes ? rn_file_read_at(fd, path, 0, head, head_bytes) : RN_OK;
    if (s == RN_OK) s = detect(head, head_bytes, &read);
    rn_free(from, head, head_bytes);
    return s == RN_OK ? read_whole(fd, path, bytes, read, out) : s;
}

rn_status rn_timeline_open(const char *path, rn_timeline **out) {
    *out = NULL;
    int fd = -1;
    uint64_t bytes = 0;
    rn_timeline *t = NULL;
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = read_file(fd, path, bytes, &t);
    close(fd);
    if (s == RN_OK) s = rn_timeline_finish(t);
    if (s == RN_OK)
        *out = t;
    else
        rn_timeline_destroy(t);
    if (s == RN_OK) return s;
    const rn_error_info *error = rn_last_error();
    if (s == RN_CORRUPT && !error->hint[0])
        s = rn_hint(s,
                    "the file is damaged, or whoever wrote it means something else: record again");
    return rn_error_locate(s, path, error->path[0] ? error->offset : RN_NO_OFFSET);
}

// ---- putting several together -------------------------------------------------------------------

static rn_status check_part(int fd, const char *path, uint64_t bytes) {
    uint8_t head[4096];
    size_t head_bytes = (size_t)rn_min_u64(bytes, sizeof head);
    if (head_bytes) RN_TRY(rn_file_read_at(fd, path, 0, head, head_bytes));
    if (is_merged(head, head_bytes))
        return rn_hint(rn_fail(RN_INVALID, "the file is merged already"),
                       "merge the recordings that it was made of");
    if (is_trace(head, head_bytes)) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "this is no recording of ration's"),
                   "give the .rntrace files of the ranks");
}

static rn_status copy_pieces(int fd, const char *path, uint64_t bytes, void *piece, rn_sink sink) {
    static const char zeros[8] = {0};
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t some = (size_t)rn_min_u64(PIECE_BYTES, bytes - at);
        RN_TRY(rn_file_read_at(fd, path, at, piece, some));
        RN_TRY(rn_sink_write(sink, piece, some));
    }
    return rn_sink_write(sink, zeros, (size_t)(rn_round_up(bytes, 8) - bytes));
}

static rn_status copy_file(const char *path, void *piece, rn_sink sink) {
    int fd = -1;
    uint64_t bytes = 0;
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = check_part(fd, path, bytes);
    if (s == RN_OK) s = rn_sink_write(sink, (const char *)&bytes, sizeof bytes);
    if (s == RN_OK) s = copy_pieces(fd, path, bytes, piece, sink);
    close(fd);
    return s == RN_OK ? s : rn_error_locate(s, path, RN_NO_OFFSET);
}

rn_status rn_timeline_merge(const char *const *paths, size_t count, rn_sink sink) {
    const rn_allocator *from = &rn_host_allocators[RN_PURPOSE_PROFILER];
    if (count < 1 || count > RN_MERGE_MOST)
        return rn_hint(rn_fail(RN_INVALID, "%zu recordings are to be merged", count),
                       "1 to %d, one a rank", RN_MERGE_MOST);
    uint32_t counts[2] = {(uint32_t)count, 0};
    void *piece = NULL;
    RN_TRY(rn_alloc(from, PIECE_BYTES, &piece));
    rn_status s = rn_sink_write(sink, RN_MERGE_MAGIC, RN_MERGE_MAGIC_SIZE);
    if (s == RN_OK) s = rn_sink_write(sink, (const char *)counts, sizeof counts);
    for (size_t i = 0; s == RN_OK && i < count; i++)
        s = copy_file(paths[i], piece, sink);
    rn_free(from, piece, PIECE_BYTES);
    return s;
}
