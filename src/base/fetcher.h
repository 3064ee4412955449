// fetcher.h — reads ranges of files straight into memory that is there already: no buffers of its
// own, no copy.
//
//     rn_fetch_batch batch = {.items = items, .count = count};
//     rn_fetcher_begin(fetcher, &batch);
//     while (!rn_fetcher_is_done(&batch)) {
//         rn_fetcher_feed(fetcher, &batch); // and then another one, if there is room
//         rn_fetcher_wait(fetcher);
//     }
//     RN_TRY(rn_fetcher_status(&batch));
//
// Direct reads want pages: a range is read with the pages around it, so its target is page-aligned
// and has rn_fetch_room(bytes) bytes; the range then begins at target + offset % 4096.
//
//     file    ..|..rrrr|rrrrrr|rr....|..          r: the range; |: pages
//     target    |..rrrr|rrrrrr|rr....|
//
// Requests go out in order, several at a time, and come back in any. With two batches under way the
// disk has work while the last requests of the first one come back.
//
// Threads: one at a time. rn_fetcher_read_now is apart: any thread, at any time.
#ifndef RN_BASE_FETCHER_H
#define RN_BASE_FETCHER_H

#include "base/reader.h"

typedef struct rn_fetcher rn_fetcher;

// Measured on a virtual disk, into 128 MiB of memory: 32 of 512 KiB 4.5 GB/s, 16 of them 4.3, 8 of
// them 4.0; 16 of 1 MiB 3.6.
#define RN_FETCH_REQUEST_BYTES ((size_t)512 << 10)
#define RN_FETCH_DEPTH         32 // requests in flight

typedef struct rn_fetch {
    uint32_t file;
    uint64_t offset, bytes;
    uint8_t *target; // page-aligned, (rn_fetch_room(bytes))
} rn_fetch;

// Whatever the offset.
uint64_t rn_fetch_room(uint64_t bytes);

// Some ranges that are read together. Stays where it is while it is under way.
typedef struct rn_fetch_batch {
    const rn_fetch *items; // (count), until it is done
    uint32_t count;
    // The rest is the fetcher's.
    uint32_t item; // where the next request begins: so many bytes behind
    uint64_t passed_bytes;
    uint32_t in_flight;
    uint64_t made;   // requests so far
    uint64_t failed; // which of them the error is of
    rn_error_info
        error; // of the first one that failed, in the order of the items; status RN_OK: none
} rn_fetch_batch;

// engine, ignore_page_cache, avoid_direct and allocator of the options count.
RN_MUST_USE rn_status rn_fetcher_create(const rn_reader_file *files, uint32_t file_count,
                                        const rn_reader_options *options, rn_fetcher **out);
// NULL-safe. Waits for the requests in flight.
void rn_fetcher_destroy(rn_fetcher *fetcher);

// A range that ends past its file fails the batch: RN_CORRUPT with path and offset.
void rn_fetcher_begin(rn_fetcher *fetcher, rn_fetch_batch *batch);
// Makes requests while there is room for some; none for a batch that has failed.
void rn_fetcher_feed(rn_fetcher *fetcher, rn_fetch_batch *batch);
// Whether all of the batch's requests have been made.
bool rn_fetcher_is_fed(const rn_fetch_batch *batch);
// Whether all of them are back, or the batch has failed and none is under way.
bool rn_fetcher_is_done(const rn_fetch_batch *batch);
// RN_IO: reading failed or the file was cut short; path and offset are in the error.
RN_MUST_USE rn_status rn_fetcher_status(const rn_fetch_batch *batch);
// Waits for one result, of any batch. Nothing where nothing is under way.
void rn_fetcher_wait(rn_fetcher *fetcher);
// Waits for all that is under way: batches may be forgotten then.
void rn_fetcher_drain(rn_fetcher *fetcher);

// Reads a few bytes here and now, through the page cache, to any address.
RN_MUST_USE rn_status rn_fetcher_read_now(const rn_fetcher *fetcher, uint32_t file, uint64_t offset,
                                          void *to, uint64_t bytes);

// RN_IO, with the file's name, when the content of one of the files was changed since it was
// opened; see base/file_state.h.
RN_MUST_USE rn_status rn_fetcher_check(const rn_fetcher *fetcher);

#endif
