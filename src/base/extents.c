// extents.c — requests out of extents.
//
// A request begins at the cursor's file offset, rounded down, and ends at most limit_bytes further
// on. If the rest of the extent there does not fit, the request is all of that window, or as many
// whole grains as it holds. If it fits, the extents that follow are taken in as long as each is of
// the same file, begins inside the window no further than a small gap from what is wanted so far,
// and ends inside it. Reading a gap costs less than a request of its own.
#include "base/extents.h"
#include "base/checked.h"

#include <assert.h>

static rn_extent_cursor settle(rn_extents list, rn_extent_cursor at) {
    while (at.extent < list.count && at.passed_bytes == list.items[at.extent].bytes)
        at = (rn_extent_cursor){at.extent + 1, 0};
    return at;
}

rn_extent_cursor rn_extents_begin(rn_extents list) {
    return settle(list, (rn_extent_cursor){0, 0});
}

rn_extent_cursor rn_extents_advance(rn_extents list, rn_extent_cursor at, uint64_t bytes) {
    at.passed_bytes += bytes;
    assert(at.passed_bytes <= list.items[at.extent].bytes);
    return settle(list, at);
}

// How much of an extent, from `passed` on, goes into `room` bytes.
static uint64_t fill(const rn_extent *extent, uint64_t passed, uint64_t room) {
    if (extent->bytes - passed <= room) return extent->bytes - passed;
    uint64_t end = passed + room;
    uint64_t whole = extent->grain_bytes ? end - end % extent->grain_bytes : end;
    return whole > passed ? whole - passed : room;
}

rn_extent_request rn_extents_take(rn_extents list, const uint64_t *align_bytes, size_t limit_bytes,
                                  rn_extent_cursor *cursor) {
    const rn_extent *extent = &list.items[cursor->extent];
    uint32_t file = extent->file;
    uint64_t from = extent->offset + cursor->passed_bytes;
    uint64_t begin = rn_round_down(from, align_bytes[file]);
    uint64_t left = extent->bytes - cursor->passed_bytes;
    uint64_t room = limit_bytes - (from - begin); // after `from`
    uint64_t end = from + fill(extent, cursor->passed_bytes, room);

    *cursor = rn_extents_advance(list, *cursor, end - from);
    while (left <= room && cursor->extent < list.count) {
        extent = &list.items[cursor->extent];
        if (extent->file != file || extent->offset < begin) break;
        if (extent->offset > end && extent->offset - end > RN_EXTENT_GAP_BYTES) break;
        uint64_t within = extent->offset - begin;
        if (within > limit_bytes || extent->bytes > limit_bytes - within) break;
        end = rn_max_u64(end, extent->offset + extent->bytes);
        *cursor = rn_extents_advance(list, *cursor, extent->bytes);
    }
    return (rn_extent_request){file, begin, end - begin};
}
