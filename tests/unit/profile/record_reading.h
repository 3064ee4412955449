// record_reading.h — a trace file taken apart block by block, with nothing but trace.h: what the
// recorder's tests look at.
#ifndef RN_TEST_RECORD_READING_H
#define RN_TEST_RECORD_READING_H

#include "support.h"
#include "profile/trace.h"

enum { MAX_BLOCKS = 1 << 16 };

typedef struct reading {
    uint8_t *data;
    size_t bytes;
    const rn_trace_block *blocks[MAX_BLOCKS]; // whole ones, by sequence
    size_t count, damaged;
} reading;

static inline const void *payload_of(const rn_trace_block *block) {
    return block + 1;
}

static int by_sequence(const void *a, const void *b) {
    uint64_t x = (*(const rn_trace_block *const *)a)->sequence;
    uint64_t y = (*(const rn_trace_block *const *)b)->sequence;
    return (x > y) - (x < y);
}

static reading *read_trace(const char *path) {
    reading *r = calloc(1, sizeof *r);
    r->data = test_read(path, &r->bytes);
    for (size_t at = 0; at + RN_TRACE_ALIGN <= r->bytes;) {
        const rn_trace_block *block = (const void *)(r->data + at);
        bool header = rn_trace_is_header(block);
        uint64_t bytes = header ? rn_trace_block_bytes(block->payload_bytes) : RN_TRACE_ALIGN;
        bool whole =
            header && bytes <= r->bytes - at && rn_trace_is_whole(block, payload_of(block));
        if (whole && r->count < MAX_BLOCKS)
            r->blocks[r->count++] = block;
        else
            r->damaged++;
        at += whole ? bytes : RN_TRACE_ALIGN;
    }
    qsort(r->blocks, r->count, sizeof *r->blocks, by_sequence);
    return r;
}

static inline void close_reading(reading *r) {
    free(r->data);
    free(r);
}

// Calls `visit` with each event in the order of blocks.
typedef void (*event_visit)(void *self, const rn_trace_block *block, const rn_trace_event *event);
static inline void each_event(const reading *r, event_visit visit, void *self) {
    for (size_t i = 0; i < r->count; i++) {
        const rn_trace_block *block = r->blocks[i];
        const rn_trace_event *events = payload_of(block);
        if (block->kind != RN_TRACE_EVENTS) continue;
        for (size_t e = 0; e < block->payload_bytes / sizeof *events; e++)
            visit(self, block, &events[e]);
    }
}

// The nth (from 0) event of a kind and, where `purpose` is not negative, of that purpose.
typedef struct event_search {
    int kind, purpose;
    size_t nth, seen;
    const rn_trace_event *found;
    uint32_t lane;
} event_search;

static inline void search_event(void *self, const rn_trace_block *block,
                                const rn_trace_event *event) {
    event_search *s = self;
    if (event->kind != s->kind || (s->purpose >= 0 && event->purpose != s->purpose)) return;
    if (s->seen++ != s->nth) return;
    s->found = event;
    s->lane = block->lane;
}

static inline const rn_trace_event *find_event(const reading *r, int kind, int purpose,
                                               size_t nth) {
    event_search s = {.kind = kind, .purpose = purpose, .nth = nth};
    each_event(r, search_event, &s);
    return s.found;
}

static inline size_t count_events(const reading *r, int kind, int purpose) {
    event_search s = {.kind = kind, .purpose = purpose, .nth = SIZE_MAX};
    each_event(r, search_event, &s);
    return s.seen;
}

// Texts of NAMES (`field` 0 name, 1 group, 2 detail) or LANES (0); "" where there is none. The last
// one counts.
static inline const char *find_text(const reading *r, rn_trace_block_kind kind, uint32_t id,
                                    int field) {
    static char out[8][2048];
    static int next;
    char *text = out[next++ % 8];
    text[0] = '\0';
    for (size_t i = 0; i < r->count; i++) {
        if (r->blocks[i]->kind != (uint32_t)kind) continue;
        const char *at = payload_of(r->blocks[i]), *end = at + r->blocks[i]->payload_bytes;
        while (at < end) {
            uint32_t this_id, bytes;
            memcpy(&this_id, at, 4);
            at += kind == RN_TRACE_LANES ? 8 : 4;
            for (int f = 0; f < (kind == RN_TRACE_NAMES ? 3 : 1); f++, at += bytes) {
                memcpy(&bytes, at, 4);
                at += 4;
                if (this_id == id && f == field)
                    snprintf(text, sizeof out[0], "%.*s", (int)bytes, at);
            }
        }
    }
    return text;
}

static inline const char *name_of(const reading *r, uint32_t id) {
    return find_text(r, RN_TRACE_NAMES, id, 0);
}

typedef struct total_record {
    uint32_t device, purpose;
    int64_t bytes, blocks;
} total_record;

// Of the last TOTALS block; zeros where it says nothing.
static inline total_record last_total(const reading *r, uint32_t device, uint32_t purpose) {
    total_record found = {device, purpose, 0, 0};
    for (size_t i = r->count; i-- > 0;) {
        const rn_trace_block *block = r->blocks[i];
        const total_record *records = payload_of(block);
        if (block->kind != RN_TRACE_TOTALS) continue;
        for (size_t t = 0; t < block->payload_bytes / sizeof *records; t++)
            if (records[t].device == device && records[t].purpose == purpose) found = records[t];
        return found;
    }
    return found;
}

// The text of the END block, or "".
static inline const char *end_of(const reading *r) {
    static char text[512];
    text[0] = '\0';
    if (r->count && r->blocks[r->count - 1]->kind == RN_TRACE_END)
        snprintf(text, sizeof text, "%.*s", (int)r->blocks[r->count - 1]->payload_bytes,
                 (const char *)payload_of(r->blocks[r->count - 1]));
    return text;
}

#endif
