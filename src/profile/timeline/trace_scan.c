// trace_scan.c — from block to block; where there is none, 64 bytes on.
//
// In a ring file the newest block lies somewhere in the middle, and behind it what is left of an
// older one that it has half overwritten: a hole that belongs there. Older blocks behind that are
// whole, and in order by their sequence.
#include "profile/timeline/trace_scan.h"
#include "profile/timeline/radix.h"

#include <string.h>

typedef struct scanner {
    rn_scan *scan;
    const uint8_t *data; // (bytes)
    uint64_t bytes, at;
    uint64_t newest, newest_end; // sequence of the newest block, and where it ends
    bool in_hole;
    uint64_t hole_at;
    uint64_t wasted_bytes; // payloads that were summed and are not whole
} scanner;

static rn_status append(rn_scan *scan, const rn_scan_block *block) {
    if (scan->count == scan->capacity) {
        size_t more = scan->capacity ? scan->capacity * 2 : 64;
        void *grown = NULL;
        RN_TRY(rn_alloc(scan->from, more * sizeof *block, &grown));
        if (scan->count) memcpy(grown, scan->blocks, scan->count * sizeof *block);
        rn_free(scan->from, scan->blocks, scan->capacity * sizeof *block);
        scan->blocks = grown;
        scan->capacity = more;
    }
    scan->blocks[scan->count++] = *block;
    return RN_OK;
}

// The header of a whole block here.
static bool is_block(scanner *s, rn_trace_block *out) {
    const uint8_t *at = s->data + s->at;
    if (!rn_trace_is_header(at)) return false;
    memcpy(out, at, sizeof *out);
    if (out->payload_bytes > s->bytes - s->at - sizeof *out) return false;
    if (rn_trace_is_whole(out, at + sizeof *out)) return true;
    s->wasted_bytes += out->payload_bytes;
    return false;
}

static rn_status take(scanner *s, const rn_trace_block *block) {
    rn_scan_block found = {block->sequence, block->round, s->at + sizeof *block,
                           block->kind,     block->lane,  block->payload_bytes};
    if (s->in_hole) s->scan->hole_count++;
    s->in_hole = false;
    s->at += rn_trace_block_bytes(block->payload_bytes);
    if (s->scan->count == 0 || block->sequence >= s->newest) {
        s->newest = block->sequence;
        s->newest_end = s->at;
    }
    return append(s->scan, &found);
}

// Damaged blocks lie one behind another: together they are no longer than the file. Headers that
// each claim the same bytes would make the sums of a small file take hours.
static rn_status refuse_overlap(void) {
    return rn_hint(rn_fail(RN_CORRUPT, "the blocks of this trace overlap"),
                   "no program has recorded it like this: it was made to be hard to read");
}

static rn_status scan_all(scanner *s) {
    uint64_t overwritten = UINT64_MAX; // where a hole behind the newest block begins
    while (s->at < s->bytes && s->bytes - s->at >= RN_TRACE_ALIGN) {
        rn_trace_block block;
        if (is_block(s, &block)) {
            if (s->in_hole && s->hole_at == s->newest_end && block.sequence < s->newest)
                overwritten = s->hole_at;
            RN_TRY(take(s, &block));
            continue;
        }
        if (s->wasted_bytes / 4 > s->bytes) return refuse_overlap();
        if (!s->in_hole) s->hole_at = s->at;
        s->in_hole = true;
        s->at += RN_TRACE_ALIGN;
    }
    if (overwritten == s->newest_end) s->scan->hole_count--;
    s->scan->is_cut = s->in_hole || s->at != s->bytes;
    return RN_OK;
}

static rn_status order(rn_scan *scan, rn_sort_item *items, rn_scan_block *copy) {
    for (size_t i = 0; i < scan->count; i++)
        items[i] = (rn_sort_item){.key = scan->blocks[i].sequence, .index = (uint32_t)i};
    RN_TRY(rn_radix_sort(scan->from, items, scan->count));
    memcpy(copy, scan->blocks, scan->count * sizeof *copy);
    size_t kept = 0;
    for (size_t i = 0; i < scan->count; i++)
        if (i == 0 || items[i].key != items[i - 1].key) scan->blocks[kept++] = copy[items[i].index];
    scan->count = kept;
    return RN_OK;
}

static rn_status sort(rn_scan *scan) {
    size_t count = scan->count;
    if (count > UINT32_MAX) return rn_fail(RN_UNSUPPORTED, "%zu blocks are too many", count);
    void *items = NULL, *copy = NULL;
    rn_status s = rn_alloc(scan->from, count * sizeof(rn_sort_item), &items);
    if (s == RN_OK) s = rn_alloc(scan->from, count * sizeof *scan->blocks, &copy);
    if (s == RN_OK) s = order(scan, items, copy);
    rn_free(scan->from, copy, count * sizeof *scan->blocks);
    rn_free(scan->from, items, count * sizeof(rn_sort_item));
    return s;
}

static rn_status refuse(const uint8_t *data, uint64_t bytes) {
    rn_trace_block block;
    bool is_trace = bytes >= sizeof block && memcmp(data, RN_TRACE_MAGIC, 8) == 0;
    if (is_trace) memcpy(&block, data, sizeof block);
    if (is_trace && block.version > RN_TRACE_VERSION && block.version < 1000)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a trace of version %u; this program reads %d",
                               block.version, RN_TRACE_VERSION),
                       "look at it with the program that has recorded it");
    return rn_hint(rn_fail(RN_CORRUPT, "there is no whole block of a trace in it"),
                   "it is not a trace, or was cut before its first block was written");
}

rn_status rn_trace_scan(const rn_allocator *from, const uint8_t *data, uint64_t bytes,
                        rn_scan *out) {
    *out = (rn_scan){.from = from};
    scanner s = {.scan = out, .data = data, .bytes = bytes};
    rn_status status = scan_all(&s);
    if (status == RN_OK && out->count == 0) status = refuse(data, bytes);
    if (status == RN_OK) status = sort(out);
    if (status != RN_OK) rn_trace_scan_free(out);
    return status;
}

void rn_trace_scan_free(rn_scan *scan) {
    rn_free(scan->from, scan->blocks, scan->capacity * sizeof *scan->blocks);
    *scan = (rn_scan){.from = scan->from};
}
