// fetcher.c — requests of a bounded size, each a place in a table of RN_FETCH_DEPTH.
#include "base/fetcher.h"
#include "base/checked.h"
#include "base/fault.h"
#include "base/file_read.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct request {
    rn_file_read read;
    rn_fetch_batch *batch; // NULL: free
    uint64_t number;       // in its batch
} request;

struct rn_fetcher {
    rn_reader_options options;
    rn_direct_file *files; // (file_count)
    uint32_t file_count;
    uint32_t open_count; // files to close
    rn_read_engine *engine;
    uint32_t in_flight;
    request requests[RN_FETCH_DEPTH];
};

// Up to a page before it, up to a page behind it.
uint64_t rn_fetch_room(uint64_t bytes) {
    return rn_round_up(bytes, RN_PAGE_BYTES) + RN_PAGE_BYTES;
}

// ---- batches ------------------------------------------------------------------------------------

// Requests come back in any order; which failure is told must not depend on it.
static void keep_failure(rn_fetch_batch *batch, rn_status status, uint64_t number) {
    if (status == RN_OK) return;
    if (batch->error.status != RN_OK && batch->failed <= number) return;
    batch->failed = number;
    batch->error = *rn_last_error();
}

static rn_status check_range(const rn_fetcher *f, uint32_t file, uint64_t offset, uint64_t bytes) {
    uint64_t end;
    if (file >= f->file_count)
        return rn_fail(RN_INVALID, "there is no file %u: the fetcher has %u", file, f->file_count);
    const rn_direct_file *of = &f->files[file];
    if (rn_add_u64(offset, bytes, &end) && end <= of->state.size_bytes) return RN_OK;
    rn_status status =
        rn_fail(RN_CORRUPT, "%s has %llu bytes; %llu bytes from %llu on are not in it", of->path,
                (unsigned long long)of->state.size_bytes, (unsigned long long)bytes,
                (unsigned long long)offset);
    rn_error_locate(status, of->path, offset);
    return rn_hint(status, "the file is incomplete or damaged: fetch it again");
}

// Items of no bytes are stepped over.
static void step_over(rn_fetch_batch *b) {
    while (b->item < b->count && b->passed_bytes >= b->items[b->item].bytes) {
        b->item++;
        b->passed_bytes = 0;
    }
}

void rn_fetcher_begin(rn_fetcher *f, rn_fetch_batch *batch) {
    batch->item = batch->in_flight = 0;
    batch->passed_bytes = batch->made = 0;
    batch->error.status = RN_OK;
    for (uint32_t i = 0; i < batch->count; i++)
        keep_failure(
            batch,
            check_range(f, batch->items[i].file, batch->items[i].offset, batch->items[i].bytes), i);
    step_over(batch);
}

bool rn_fetcher_is_fed(const rn_fetch_batch *batch) {
    return batch->item == batch->count || batch->error.status != RN_OK;
}

bool rn_fetcher_is_done(const rn_fetch_batch *batch) {
    return rn_fetcher_is_fed(batch) && batch->in_flight == 0;
}

rn_status rn_fetcher_status(const rn_fetch_batch *batch) {
    return batch->error.status == RN_OK ? RN_OK : rn_error_restore(&batch->error);
}

// ---- requests -----------------------------------------------------------------------------------

static void end_request(request *r) {
    rn_fetch_batch *batch = r->batch;
    r->batch = NULL;
    batch->in_flight--;
    keep_failure(batch, rn_file_read_status(&r->read), r->number);
}

// The next request of an item ends at a multiple of the request's size in the file: so the next one
// begins with a page, in the file as in memory.
static void begin_request(rn_fetcher *f, request *r, rn_fetch_batch *b) {
    const rn_fetch *item = &b->items[b->item];
    uint64_t first = rn_round_down(item->offset, RN_PAGE_BYTES);
    uint64_t from = rn_round_down(item->offset + b->passed_bytes, RN_PAGE_BYTES);
    uint64_t end = rn_min_u64(rn_round_down(from, RN_FETCH_REQUEST_BYTES) + RN_FETCH_REQUEST_BYTES,
                              item->offset + item->bytes);
    *r = (request){.batch = b, .number = b->made++};
    r->read = (rn_file_read){.file = &f->files[item->file],
                             .buffer = item->target + (from - first),
                             .offset = from,
                             .need_bytes = end - from,
                             .tag = (uint32_t)(r - f->requests)};
    b->in_flight++;
    b->passed_bytes = end - item->offset;
    step_over(b);
    if (rn_file_read_begin(&r->read, f->engine, f->options.ignore_page_cache))
        f->in_flight++;
    else
        end_request(r);
}

void rn_fetcher_feed(rn_fetcher *f, rn_fetch_batch *batch) {
    for (uint32_t i = 0; i < RN_FETCH_DEPTH && !rn_fetcher_is_fed(batch); i++)
        if (!f->requests[i].batch) begin_request(f, &f->requests[i], batch);
}

void rn_fetcher_wait(rn_fetcher *f) {
    if (f->in_flight == 0) return;
    rn_read_result result = f->engine->pop(f->engine);
    request *r = &f->requests[result.tag];
    if (rn_file_read_judge(&r->read, f->engine, result.result)) return;
    f->in_flight--;
    end_request(r);
}

void rn_fetcher_drain(rn_fetcher *f) {
    while (f->in_flight > 0)
        rn_fetcher_wait(f);
}

// ---- here and now -------------------------------------------------------------------------------

static rn_status fail_now(const rn_direct_file *file, uint64_t offset, bool cut_short, int error) {
    rn_file_read read = {.file = (rn_direct_file *)(uintptr_t)file,
                         .offset = offset,
                         .cut_short = cut_short,
                         .error = error};
    return rn_file_read_status(&read);
}

rn_status rn_fetcher_read_now(const rn_fetcher *f, uint32_t file, uint64_t offset, void *to,
                              uint64_t bytes) {
    RN_TRY(check_range(f, file, offset, bytes));
    const rn_direct_file *of = &f->files[file];
    if (rn_fault_hit(RN_FAULT_READ)) return fail_now(of, offset, false, EIO);
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got =
            pread(of->plain_fd, (uint8_t *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return fail_now(of, offset + done, got == 0, got == 0 ? 0 : errno);
        done += (uint64_t)got;
    }
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

// A file whose blocks are larger than a page would be read beyond the room: it is read plainly.
static rn_status open_files(rn_fetcher *f, const rn_reader_file *files) {
    const rn_reader_options *options = &f->options;
    RN_TRY(
        rn_alloc_zeroed(options->allocator, f->file_count, sizeof *f->files, (void **)&f->files));
    for (; f->open_count < f->file_count;) {
        rn_direct_file *file = &f->files[f->open_count];
        const rn_reader_file *from = &files[f->open_count++];
        RN_TRY(rn_direct_file_open(from->path, from->fd, !options->avoid_direct, RN_PAGE_BYTES,
                                   options->allocator, file));
    }
    return RN_OK;
}

static rn_status start_engine(rn_fetcher *f) {
    rn_status s = RN_UNSUPPORTED;
    if (f->options.engine != RN_READER_THREADS)
        s = rn_read_engine_uring(f->options.allocator, RN_FETCH_DEPTH, &f->engine);
    if (s != RN_UNSUPPORTED || f->options.engine == RN_READER_URING) return s;
    return rn_read_engine_threads(f->options.allocator, RN_FETCH_DEPTH, &f->engine);
}

rn_status rn_fetcher_create(const rn_reader_file *files, uint32_t file_count,
                            const rn_reader_options *options, rn_fetcher **out) {
    rn_fetcher *f = NULL;
    rn_reader_options chosen = options ? *options : (rn_reader_options){0};
    *out = NULL;
    if (!chosen.allocator) chosen.allocator = &rn_system_allocator;
    RN_TRY(rn_alloc_zeroed(chosen.allocator, 1, sizeof *f, (void **)&f));
    f->options = chosen;
    f->file_count = file_count;
    rn_status s = open_files(f, files);
    if (s == RN_OK) s = start_engine(f);
    if (s == RN_OK)
        *out = f;
    else
        rn_fetcher_destroy(f);
    return s;
}

void rn_fetcher_destroy(rn_fetcher *f) {
    if (!f) return;
    const rn_allocator *allocator = f->options.allocator;
    if (f->engine) {
        rn_fetcher_drain(f);
        f->engine->destroy(f->engine);
    }
    for (uint32_t i = 0; i < f->open_count; i++)
        rn_direct_file_close(&f->files[i], allocator);
    rn_free(allocator, f->files, f->file_count * sizeof *f->files);
    rn_free(allocator, f, sizeof *f);
}

rn_status rn_fetcher_check(const rn_fetcher *f) {
    for (uint32_t i = 0; i < f->file_count; i++)
        RN_TRY(rn_direct_file_check(&f->files[i]));
    return RN_OK;
}
