// reader.h — reads lists of file ranges in order, past the page cache, ahead of its consumer.
//
//     rn_reader *reader;
//     RN_TRY(rn_reader_create(&(rn_reader_file){.path = "model.safetensors"}, 1, NULL, &reader));
//     rn_reader_piece piece;
//     rn_status status = rn_reader_start(reader, extents, extent_count);
//     for (;;) {
//         if (status == RN_OK) status = rn_reader_next(reader, &piece);
//         if (status != RN_OK || piece.bytes == 0) break;
//         pack(piece.extent, piece.offset_in_extent, piece.data, piece.bytes);
//         rn_reader_release(reader, &piece);
//     }
//     rn_reader_destroy(reader);
//
// The list is cut into requests, each read into one slot of a fixed block: there are
// buffer_bytes / request_bytes slots, and every free one is kept reading. A large extent takes
// several requests; neighbouring small extents of a file share one.
//
//     file     ....|eeeeeeeeeeeeeeeeeee|ff|gg|.......|h|....   extents e, f, g, h
//     requests   [        1        ][    2   ]      [ 3 ]      rounded outwards to 4 KiB
//     pieces        eeeeeeeeeeeeeeee eee ff gg       h         handed out in this order
//
// A request whose pages are all in the page cache is copied from there; any other goes to the disk
// with O_DIRECT and leaves the cache as it was. A file system without O_DIRECT is read plainly,
// without reading ahead, and the pages of such a request are dropped again.
//
// Memory: one block of at most buffer_bytes, and bookkeeping that depends on the number of slots
// and files alone (some 150 bytes a slot). All of it comes from the allocator in the options.
//
// Threads: one thread at a time calls a reader; which one may change from call to call. Requests
// are made in start, next and release only, so a consumer that stays away longer than the slots
// last lets the disk idle.
#ifndef RN_BASE_READER_H
#define RN_BASE_READER_H

#include "base/alloc.h"
#include "base/extents.h"

typedef struct rn_reader rn_reader;

typedef enum rn_reader_engine {
    RN_READER_AUTO,    // io_uring, or threads where the system forbids it
    RN_READER_URING,   // or RN_UNSUPPORTED
    RN_READER_THREADS, // a few threads, one pread each
} rn_reader_engine;

// The fastest of 1 to 16 MiB and of 256 KiB to 4 MiB on a virtual disk (bench/read_bench): more in
// flight only pushes the data out of the processor's caches before it is used.
#define RN_READER_BUFFER_BYTES  ((size_t)4 << 20)
#define RN_READER_REQUEST_BYTES ((size_t)512 << 10)

// {0} is the default everywhere.
typedef struct rn_reader_options {
    size_t buffer_bytes;  // all slots together; 0: RN_READER_BUFFER_BYTES
    size_t request_bytes; // 0: RN_READER_REQUEST_BYTES, or a quarter of a smaller buffer; a
                          // multiple of 4 KiB, at most the buffer and 1 GiB
    rn_reader_engine engine;
    bool ignore_page_cache;        // go to the disk even for cached pages
    bool avoid_direct;             // treat every file system as one without O_DIRECT
    const rn_allocator *allocator; // NULL: the system's; must outlive the reader
    const _Atomic bool *cancel;    // NULL: never; must outlive the reader
} rn_reader_options;

typedef struct rn_reader_file {
    const char *path; // copied
    int fd;           // above 0: has the file open already; it is that one that is read
} rn_reader_file;

// A run of bytes of one extent. An extent of at most request_bytes - 4 KiB comes in one piece (on a
// disk with larger blocks: request_bytes less one block). `data` has its file offset's alignment,
// up to 4 KiB: a tensor on a 64-byte boundary of the file lies on one in memory.
typedef struct rn_reader_piece {
    const uint8_t *data; // (bytes), until released
    size_t bytes;        // 0: the list is finished
    uint32_t extent;     // index into the list
    uint32_t slot;       // the reader's own
    uint64_t offset_in_extent;
} rn_reader_piece;

typedef struct rn_reader_stats {
    // Bytes read since creation, rounding and gaps included.
    uint64_t direct_bytes; // past the page cache
    uint64_t cached_bytes; // copied from the page cache
    uint64_t plain_bytes;  // not cached, but read through it: no O_DIRECT there
    uint64_t request_count;
    uint32_t slot_count;
    size_t request_bytes;
    rn_reader_engine engine;   // the one at work, never AUTO
    const char *engine_reason; // why it is not the other one; static or lives with the reader
} rn_reader_stats;

// Opens the files and starts the engine. RN_NOT_FOUND, RN_IO, RN_UNSUPPORTED (not a regular file,
// io_uring demanded but forbidden), RN_INVALID (options), RN_NO_MEMORY or the allocator's refusal.
RN_MUST_USE rn_status rn_reader_create(const rn_reader_file *files, uint32_t file_count,
                                       const rn_reader_options *options, rn_reader **out);
// NULL-safe. Waits for the requests in flight; pieces still held become invalid.
void rn_reader_destroy(rn_reader *reader);

// Begins a list; `extents` is borrowed until the list is finished, replaced or the reader
// destroyed. May be called at any time, also after a failure: the list before is given up and
// pieces still held become invalid. RN_CORRUPT: an extent ends past its file; the error has the
// path and the extent's offset. RN_INVALID: no such file index.
RN_MUST_USE rn_status rn_reader_start(rn_reader *reader, const rn_extent *extents,
                                      uint32_t extent_count);

// Waits for the next piece; at the end of the list piece->bytes is 0 (nothing to release). Pieces
// of up to slot_count - 1 requests may be held at once; asking for more is RN_INVALID instead of a
// deadlock, and goes on once a piece is released. RN_IO: reading failed or the file was cut short;
// path and offset are in the error. RN_CANCELLED: *cancel was true. After these two the same comes
// again until the next start; pieces held stay valid.
RN_MUST_USE rn_status rn_reader_next(rn_reader *reader, rn_reader_piece *out_piece);

// Gives a piece back, in any order; each piece once. Clears it. An empty piece is ignored.
void rn_reader_release(rn_reader *reader, rn_reader_piece *piece);

// RN_IO, with the file's name, when the content of one of the files was changed since it was
// opened; see base/file_state.h.
RN_MUST_USE rn_status rn_reader_check(const rn_reader *reader);

rn_reader_stats rn_reader_get_stats(const rn_reader *reader);

#endif
