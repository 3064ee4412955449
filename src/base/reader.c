// reader.c — order and slots: requests go out in order, come back in any, are handed on in order.
//
//     free slots ──fill──▶ [ready][reading][ready]… ──next──▶ pieces ──release──▶ free slots
//                           first             last
//
// A slot is in the free list, or in the ordered list, or spent: handed out whole, waiting for its
// pieces to come back. Two cursors walk the list of extents: `planned`, where the next request
// begins, and `handed`, where the next piece begins. Each slot remembers where the list goes on
// after it.
//
// Everything runs on the consumer's thread; an engine only carries reads, and what it reports is
// judged by file_read.c. An error stays with its slot until the consumer gets there, so the pieces
// before it still arrive.
#include "base/reader.h"
#include "base/checked.h"
#include "base/file_read.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define SLOT_COUNT_MAX    1024
#define REQUEST_BYTES_MAX ((size_t)1 << 30)
#define HUGE_PAGE_BYTES   ((size_t)2 << 20)

typedef enum slot_state { SLOT_FREE, SLOT_READING, SLOT_READY, SLOT_SPENT } slot_state;

typedef struct read_slot {
    struct read_slot *next; // in the free or the ordered list
    uint8_t *buffer;        // (request_bytes)
    slot_state state;
    rn_file_read read;
    rn_extent_cursor end; // where the list goes on
    uint32_t held_count;  // pieces with the consumer
} read_slot;

struct rn_reader {
    rn_reader_options options; // with the defaults filled in
    rn_direct_file *files;     // (file_count)
    uint64_t *align_bytes;     // (file_count)
    uint32_t file_count;
    uint32_t open_count; // files to close
    uint8_t *block;      // (slot_count * request_bytes)
    read_slot *slots;    // (slot_count)
    read_slot *free, *first, *last;
    rn_read_engine *engine;
    uint32_t in_flight;

    rn_extents list;
    rn_extent_cursor planned, handed;
    bool failing;        // an error is known: no new requests
    rn_error_info error; // the failure that next repeats; status RN_OK: none
    rn_error_info engine_error;
    rn_reader_stats stats;
};

// ---- lists of slots ----------------------------------------------------------------------------

static void put_free(rn_reader *reader, read_slot *slot) {
    slot->state = SLOT_FREE;
    slot->next = reader->free;
    reader->free = slot;
}

static read_slot *take_free(rn_reader *reader) {
    read_slot *slot = reader->free;
    reader->free = slot->next;
    slot->next = NULL;
    return slot;
}

static void put_last(rn_reader *reader, read_slot *slot) {
    if (reader->last)
        reader->last->next = slot;
    else
        reader->first = slot;
    reader->last = slot;
}

static void take_first(rn_reader *reader) {
    reader->first = reader->first->next;
    if (!reader->first) reader->last = NULL;
}

static void free_all(rn_reader *reader) {
    reader->free = reader->first = reader->last = NULL;
    for (uint32_t i = reader->stats.slot_count; i > 0; i--)
        put_free(reader, &reader->slots[i - 1]);
}

// ---- reading -----------------------------------------------------------------------------------

static bool has_failed(const read_slot *slot) {
    return slot->read.error || slot->read.cut_short;
}

// The read is over, well or not: books the bytes.
static void finish_slot(rn_reader *reader, read_slot *slot) {
    const rn_file_read *read = &slot->read;
    slot->state = SLOT_READY;
    if (has_failed(slot))
        reader->failing = true;
    else if (read->cached)
        reader->stats.cached_bytes += read->have_bytes;
    else if (read->direct)
        reader->stats.direct_bytes += read->have_bytes;
    else
        reader->stats.plain_bytes += read->have_bytes;
}

static void begin_slot(rn_reader *reader, read_slot *slot) {
    rn_extent_request request = rn_extents_take(reader->list, reader->align_bytes,
                                                reader->stats.request_bytes, &reader->planned);
    slot->state = SLOT_READING;
    slot->end = reader->planned;
    slot->held_count = 0;
    slot->read = (rn_file_read){
        .file = &reader->files[request.file],
        .buffer = slot->buffer,
        .offset = request.offset,
        .need_bytes = request.need_bytes,
        .tag = (uint32_t)(slot - reader->slots),
    };
    put_last(reader, slot);
    reader->stats.request_count++;
    if (rn_file_read_begin(&slot->read, reader->engine, reader->options.ignore_page_cache))
        reader->in_flight++;
    else
        finish_slot(reader, slot);
}

static void fill(rn_reader *reader) {
    while (!reader->failing && reader->free && reader->planned.extent < reader->list.count)
        begin_slot(reader, take_free(reader));
}

static void judge(rn_reader *reader, rn_read_result result) {
    read_slot *slot = &reader->slots[result.tag];
    if (rn_file_read_judge(&slot->read, reader->engine, result.result)) return;
    reader->in_flight--;
    finish_slot(reader, slot);
}

static void drain(rn_reader *reader) {
    reader->failing = true;
    while (reader->in_flight > 0) {
        rn_read_result result = reader->engine->pop(reader->engine);
        reader->in_flight--;
        reader->slots[result.tag].state = SLOT_READY;
    }
}

// ---- handing out -------------------------------------------------------------------------------

static rn_status keep_failure(rn_reader *reader, rn_status status) {
    reader->failing = true;
    reader->error = *rn_last_error();
    return status;
}

static bool cancelled(const rn_reader *reader) {
    return reader->options.cancel && atomic_load(reader->options.cancel);
}

static rn_status wait_first(rn_reader *reader) {
    for (;;) {
        if (cancelled(reader)) return rn_fail(RN_CANCELLED, "reading was cancelled");
        if (reader->first->state == SLOT_READY) break;
        judge(reader, reader->engine->pop(reader->engine));
    }
    return rn_file_read_status(&reader->first->read);
}

static rn_reader_piece cut_piece(rn_reader *reader) {
    read_slot *slot = reader->first;
    const rn_extent *extent = &reader->list.items[reader->handed.extent];
    uint64_t from = extent->offset + reader->handed.passed_bytes;
    uint64_t left = extent->bytes - reader->handed.passed_bytes;
    size_t within = from - slot->read.offset;
    rn_reader_piece piece = {
        .data = slot->buffer + within,
        .bytes = rn_min_u64(left, slot->read.need_bytes - within),
        .extent = reader->handed.extent,
        .slot = (uint32_t)(slot - reader->slots),
        .offset_in_extent = reader->handed.passed_bytes,
    };
    slot->held_count++;
    reader->handed = rn_extents_advance(reader->list, reader->handed, piece.bytes);
    if (rn_extent_cursor_equal(reader->handed, slot->end)) {
        slot->state = SLOT_SPENT;
        take_first(reader);
    }
    return piece;
}

rn_status rn_reader_next(rn_reader *reader, rn_reader_piece *out_piece) {
    *out_piece = (rn_reader_piece){.extent = reader->list.count};
    if (reader->error.status != RN_OK) return rn_error_restore(&reader->error);
    if (reader->handed.extent == reader->list.count) return RN_OK;
    fill(reader);
    if (!reader->first)
        return rn_fail(RN_INVALID, "all %u slots of the reader are held; release a piece first",
                       reader->stats.slot_count);
    rn_status status = wait_first(reader);
    if (status != RN_OK) return keep_failure(reader, status);
    *out_piece = cut_piece(reader);
    return RN_OK;
}

void rn_reader_release(rn_reader *reader, rn_reader_piece *piece) {
    if (piece->bytes == 0) return;
    assert(piece->slot < reader->stats.slot_count);
    read_slot *slot = &reader->slots[piece->slot];
    assert(slot->held_count > 0);
    *piece = (rn_reader_piece){0};
    if (--slot->held_count > 0 || slot->state != SLOT_SPENT) return;
    put_free(reader, slot);
    fill(reader);
}

// ---- a list ------------------------------------------------------------------------------------

static rn_status check_extent(const rn_reader *reader, uint32_t index, const rn_extent *extent) {
    if (extent->file >= reader->file_count)
        return rn_fail(RN_INVALID, "extent %u is of file %u, the reader has %u", index,
                       extent->file, reader->file_count);
    const rn_direct_file *file = &reader->files[extent->file];
    uint64_t end;
    if (rn_add_u64(extent->offset, extent->bytes, &end) && end <= file->state.size_bytes)
        return RN_OK;
    rn_status status =
        rn_fail(RN_CORRUPT, "%s has %llu bytes; %llu bytes from %llu on are not in it", file->path,
                (unsigned long long)file->state.size_bytes, (unsigned long long)extent->bytes,
                (unsigned long long)extent->offset);
    rn_error_locate(status, file->path, extent->offset);
    return rn_hint(status, "the file is incomplete or damaged: fetch it again");
}

rn_status rn_reader_start(rn_reader *reader, const rn_extent *extents, uint32_t extent_count) {
    drain(reader);
    free_all(reader);
    reader->list = (rn_extents){0};
    reader->planned = reader->handed = (rn_extent_cursor){0};
    reader->error.status = RN_OK;
    for (uint32_t i = 0; i < extent_count; i++) {
        rn_status status = check_extent(reader, i, &extents[i]);
        if (status != RN_OK) return keep_failure(reader, status);
    }
    reader->failing = false;
    reader->list = (rn_extents){extents, extent_count};
    reader->planned = reader->handed = rn_extents_begin(reader->list);
    fill(reader);
    return RN_OK;
}

// ---- the reader --------------------------------------------------------------------------------

static rn_status choose_sizes(rn_reader *reader) {
    rn_reader_options *options = &reader->options;
    if (options->buffer_bytes == 0) options->buffer_bytes = RN_READER_BUFFER_BYTES;
    if (options->request_bytes == 0) {
        size_t quarter = rn_round_down(options->buffer_bytes / 4, RN_PAGE_BYTES);
        options->request_bytes =
            rn_min_u64(RN_READER_REQUEST_BYTES, rn_max_u64(quarter, RN_PAGE_BYTES));
    }
    size_t request = options->request_bytes;
    if (request % RN_PAGE_BYTES != 0 || request > REQUEST_BYTES_MAX)
        return rn_fail(RN_INVALID, "a request of %zu bytes: use a multiple of 4 KiB, at most 1 GiB",
                       request);
    if (request > options->buffer_bytes)
        return rn_fail(RN_INVALID, "a read buffer of %zu bytes has no room for a request of %zu",
                       options->buffer_bytes, request);
    reader->stats.request_bytes = request;
    reader->stats.slot_count = rn_min_u64(options->buffer_bytes / request, SLOT_COUNT_MAX);
    return RN_OK;
}

static rn_status open_files(rn_reader *reader, const rn_reader_file *files) {
    const rn_reader_options *options = &reader->options;
    uint32_t count = reader->file_count;
    RN_TRY(
        rn_alloc_zeroed(options->allocator, count, sizeof *reader->files, (void **)&reader->files));
    RN_TRY(rn_alloc_zeroed(options->allocator, count, sizeof *reader->align_bytes,
                           (void **)&reader->align_bytes));
    for (uint32_t i = 0; i < count; i++) {
        reader->open_count++;
        RN_TRY(rn_direct_file_open(files[i].path, files[i].fd, !options->avoid_direct,
                                   options->request_bytes, options->allocator, &reader->files[i]));
        reader->align_bytes[i] = reader->files[i].align_bytes;
    }
    return RN_OK;
}

// A direct read names its memory page by page, so large pages make short lists: 4.4 instead of
// 2.8 GB/s and half the kernel's time on a virtual disk (512 KiB requests, 8 in flight). Only a
// hint: a refusal does no harm.
static void ask_huge_pages(void *block, size_t bytes) {
    if (bytes >= HUGE_PAGE_BYTES) (void)madvise(block, bytes, MADV_HUGEPAGE);
}

static rn_status make_slots(rn_reader *reader) {
    const rn_allocator *allocator = reader->options.allocator;
    size_t count = reader->stats.slot_count, bytes = reader->stats.request_bytes;
    RN_TRY(rn_alloc_zeroed(allocator, count, sizeof *reader->slots, (void **)&reader->slots));
    RN_TRY(rn_alloc_aligned(allocator, count * bytes, RN_PAGE_BYTES, (void **)&reader->block));
    ask_huge_pages(reader->block, count * bytes);
    for (size_t i = 0; i < count; i++)
        reader->slots[i].buffer = reader->block + i * bytes;
    free_all(reader);
    return RN_OK;
}

static rn_status use_threads(rn_reader *reader, const char *reason) {
    reader->stats.engine = RN_READER_THREADS;
    reader->stats.engine_reason = reason;
    return rn_read_engine_threads(reader->options.allocator, reader->stats.slot_count,
                                  &reader->engine);
}

static rn_status start_engine(rn_reader *reader) {
    if (reader->options.engine == RN_READER_THREADS)
        return use_threads(reader, "threads asked for");
    rn_status status =
        rn_read_engine_uring(reader->options.allocator, reader->stats.slot_count, &reader->engine);
    reader->stats.engine = RN_READER_URING;
    reader->stats.engine_reason = "io_uring is allowed";
    if (status != RN_UNSUPPORTED) return status;
    if (reader->options.engine == RN_READER_URING)
        return rn_hint(status, "choose the automatic engine: it reads with threads instead");
    reader->engine_error = *rn_last_error();
    return use_threads(reader, reader->engine_error.message);
}

rn_status rn_reader_create(const rn_reader_file *files, uint32_t file_count,
                           const rn_reader_options *options, rn_reader **out) {
    rn_reader *reader;
    rn_reader_options chosen = options ? *options : (rn_reader_options){0};
    *out = NULL;
    if (!chosen.allocator) chosen.allocator = &rn_system_allocator;
    RN_TRY(rn_alloc_zeroed(chosen.allocator, 1, sizeof *reader, (void **)&reader));
    reader->options = chosen;
    reader->file_count = file_count;
    rn_status status = choose_sizes(reader);
    if (status == RN_OK) status = open_files(reader, files);
    if (status == RN_OK) status = make_slots(reader);
    if (status == RN_OK) status = start_engine(reader);
    if (status == RN_OK)
        *out = reader;
    else
        rn_reader_destroy(reader);
    return status;
}

void rn_reader_destroy(rn_reader *reader) {
    if (!reader) return;
    const rn_allocator *allocator = reader->options.allocator;
    size_t count = reader->stats.slot_count;
    if (reader->engine) {
        drain(reader);
        reader->engine->destroy(reader->engine);
    }
    for (uint32_t i = 0; i < reader->open_count; i++)
        rn_direct_file_close(&reader->files[i], allocator);
    rn_free(allocator, reader->block, count * reader->stats.request_bytes);
    rn_free(allocator, reader->slots, count * sizeof *reader->slots);
    rn_free(allocator, reader->align_bytes, reader->file_count * sizeof *reader->align_bytes);
    rn_free(allocator, reader->files, reader->file_count * sizeof *reader->files);
    rn_free(allocator, reader, sizeof *reader);
}

rn_status rn_reader_check(const rn_reader *reader) {
    for (uint32_t i = 0; i < reader->file_count; i++)
        RN_TRY(rn_direct_file_check(&reader->files[i]));
    return RN_OK;
}

rn_reader_stats rn_reader_get_stats(const rn_reader *reader) {
    return reader->stats;
}
