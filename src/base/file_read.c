// file_read.c — beginning, going on, giving up.
#include "base/file_read.h"
#include "base/checked.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define REPEAT_MAX 1000 // interrupted reads in a row before one counts as failed

static bool fail(rn_file_read *read, int error) {
    read->error = error;
    return false;
}

// Begins, or continues. A direct read starts over at the last whole block it has.
static bool submit(rn_file_read *read, rn_read_engine *engine) {
    const rn_direct_file *file = read->file;
    uint64_t align = file->align_bytes;
    size_t end = read->need_bytes;
    read->direct = file->direct && !read->cached;
    read->asked_at = read->direct ? rn_round_down(read->have_bytes, align) : read->have_bytes;
    if (read->direct) end = rn_round_up(end, align);
    rn_read ask = {
        .fd = read->direct ? file->direct_fd : file->plain_fd,
        .tag = read->tag,
        .buffer = read->buffer + read->asked_at,
        .bytes = end - read->asked_at,
        .offset = read->offset + read->asked_at,
        .cached = read->cached,
    };
    int error = engine->push(engine, &ask);
    return error ? fail(read, error) : true;
}

// Whether the page cache has it all. Asked for plain files in any case: what was not there before
// reading is dropped after it.
static bool ask_cache(const rn_file_read *read, bool ignore_cache) {
    const rn_direct_file *file = read->file;
    if (file->direct && ignore_cache) return false;
    return rn_page_cache_holds(file->cache_view, file->plain_fd, read->offset, read->need_bytes);
}

bool rn_file_read_begin(rn_file_read *read, rn_read_engine *engine, bool ignore_cache) {
    read->have_bytes = read->repeat_count = 0;
    read->cut_short = false;
    read->error = 0;
    read->cached = ask_cache(read, ignore_cache);
    return rn_fault_hit(RN_FAULT_READ) ? fail(read, EIO) : submit(read, engine);
}

static bool end(const rn_file_read *read) {
    if (!read->cached && !read->direct)
        (void)posix_fadvise(read->file->plain_fd, (off_t)read->offset,
                            (off_t)rn_round_up(read->have_bytes, RN_PAGE_BYTES),
                            POSIX_FADV_DONTNEED);
    return false;
}

// A read came back with -code.
static bool judge_error(rn_file_read *read, rn_read_engine *engine, int code) {
    // ECANCELED: io_uring drops waiting reads of a thread that ends.
    bool again = code == EINTR || code == EAGAIN || code == ECANCELED;
    bool refused = (code == EINVAL || code == EOPNOTSUPP) && read->direct;
    if (refused) read->file->direct = false;
    if (refused || (again && read->repeat_count++ < REPEAT_MAX)) return submit(read, engine);
    return fail(read, code);
}

bool rn_file_read_judge(rn_file_read *read, rn_read_engine *engine, int64_t result) {
    if (result < 0) return judge_error(read, engine, (int)-result);
    size_t have = read->asked_at + (size_t)result;
    bool stuck = have <= read->have_bytes;
    read->have_bytes = rn_max_u64(have, read->have_bytes);
    read->repeat_count = 0;
    if (have >= read->need_bytes) return end(read);
    read->cut_short = stuck;
    return stuck ? false : submit(read, engine);
}

rn_status rn_file_read_status(const rn_file_read *read) {
    const rn_direct_file *file = read->file;
    uint64_t offset = read->offset + read->have_bytes;
    if (!read->error && !read->cut_short) return RN_OK;
    if (read->error)
        return rn_error_locate(
            rn_fail(RN_IO, "cannot read %s: %s", file->path, strerror(read->error)), file->path,
            offset);
    rn_status status = rn_fail(RN_IO, "%s was cut short while it was being read", file->path);
    rn_error_locate(status, file->path, offset);
    return rn_hint(status, "it had %llu bytes when it was opened; start again with the whole file",
                   (unsigned long long)file->state.size_bytes);
}
