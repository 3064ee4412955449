// file_read.h — one range of a file on its way into memory, whatever happens to it underway.
//
// An engine (read_engine.h) reports what came; here it is judged: short reads go on, interrupted
// ones are repeated, a file system that refuses O_DIRECT after all is read plainly. A range whose
// pages are all in the page cache is copied from there; any other goes past it, and where there is
// no O_DIRECT the pages that it brought into the cache are dropped again.
#ifndef RN_BASE_FILE_READ_H
#define RN_BASE_FILE_READ_H

#include "base/direct_file.h"
#include "base/read_engine.h"

typedef struct rn_file_read {
    rn_direct_file *file;
    uint8_t *buffer;   // page-aligned, need_bytes rounded up to the file's alignment
    uint64_t offset;   // in the file, a multiple of its alignment
    size_t need_bytes; // > 0, all of them inside the file
    uint32_t tag;      // of the engine's result
    // The rest is its own.
    size_t have_bytes; // read so far, from the buffer's start
    size_t asked_at;   // where in the buffer the read in flight begins
    uint32_t repeat_count;
    bool cached;    // all of it was in the page cache when asked
    bool direct;    // the read in flight goes past the page cache
    bool cut_short; // the file ended too early
    int error;      // errno, or 0
} rn_file_read;

// Begins to read: true when a result will come from the engine, false when it is over already.
// `ignore_cache`: go to the disk even for cached pages.
bool rn_file_read_begin(rn_file_read *read, rn_read_engine *engine, bool ignore_cache);
// Takes the engine's result. True when another one will come, false when it is over.
bool rn_file_read_judge(rn_file_read *read, rn_read_engine *engine, int64_t result);
// Of a read that is over: RN_OK, or RN_IO with the file's path and the offset of what is missing.
RN_MUST_USE rn_status rn_file_read_status(const rn_file_read *read);

#endif
