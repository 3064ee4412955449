// place_shelf.c — lists of placed items by offset, one for every stretch of time.
//
// To find a gap, all placed items that share a moment with the new one are walked by rising offset.
// One list of everything would be walked past thousands of strangers, so time is cut into halves,
// quarters, ... and each stretch has a list of the items that touch it. A new item looks into the
// shortest stretch that holds its whole life, and is entered wherever it touches:
//
//     level 2  |---------------- all ----------------|
//     level 1  |------- 0 -------|------- 1 -------|
//     level 0  |-- 0 --|-- 1 --|-- 2 --|-- 3 --|          x: looks into level 1, stretch 0; is
//                 xxxxxxxxx                              entered in level 0 (0, 1), 1 (0), 2
//
// Long lives cost an entry in many lists; the finest level is chosen such that there are at most
// ENTRIES_PER_ITEM for each item. A list is a chain of chunks, so that entering in the middle moves
// few bytes.
#include "plan/place_shelf.h"

#include "base/checked.h"

#include <string.h>

enum { CHUNK_ENTRIES = 64, ENTRIES_PER_ITEM = 8, NO_CHUNK = UINT32_MAX };

typedef struct entry {
    uint32_t lower, upper;
    uint64_t offset, top;
} entry;

typedef struct chunk {
    uint32_t count, next;
    entry entries[CHUNK_ENTRIES]; // by offset
} chunk;

struct rn_place_shelf {
    const rn_allocator *from;
    uint32_t origin;           // the first moment
    uint32_t finest, coarsest; // levels: a stretch of level l is 2^l moments
    uint32_t level_lists[33];  // (level): index of its first list
    uint32_t *heads;           // (list_count): chunk, or NO_CHUNK
    chunk *chunks;             // (chunk_count)
    size_t list_count, chunk_count, chunks_used;
};

static uint64_t count_entries(const rn_place_item *items, size_t count, uint32_t origin,
                              uint32_t level) {
    uint64_t entries = 0;
    for (size_t i = 0; i < count; i++) {
        entries +=
            ((items[i].upper - 1 - origin) >> level) - ((items[i].lower - origin) >> level) + 1;
        (void)rn_stop_round(i); // the first item to be put down will hear of it
    }
    return entries;
}

// Chooses the levels and sets the number of entries in all lists.
static uint64_t choose_levels(rn_place_shelf *shelf, const rn_place_item *items, size_t count) {
    uint32_t origin = UINT32_MAX, upper = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].lower < origin) origin = items[i].lower;
        if (items[i].upper > upper) upper = items[i].upper;
    }
    uint32_t moments = upper - origin;
    shelf->origin = origin;
    while ((uint64_t)moments > UINT64_C(1) << shelf->coarsest)
        shelf->coarsest++;
    uint64_t total = count;
    shelf->finest = shelf->coarsest;
    while (shelf->finest > 0) {
        uint64_t more = count_entries(items, count, origin, shelf->finest - 1);
        if (total + more > (uint64_t)count * ENTRIES_PER_ITEM) break;
        total += more;
        shelf->finest--;
    }
    for (uint32_t level = shelf->finest; level <= shelf->coarsest; level++) {
        shelf->level_lists[level] = (uint32_t)shelf->list_count;
        shelf->list_count += ((moments - 1) >> level) + 1;
    }
    return total;
}

rn_status rn_place_shelf_create(const rn_allocator *from, const rn_place_item *items, size_t count,
                                rn_place_shelf **out) {
    rn_place_shelf *shelf;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof *shelf, (void **)&shelf));
    shelf->from = from;
    uint64_t entries = choose_levels(shelf, items, count);
    // A chunk is split when it is full, so all but the first of a list are at least half full.
    shelf->chunk_count = shelf->list_count + entries / (CHUNK_ENTRIES / 2);
    rn_status s = rn_alloc(from, shelf->list_count * sizeof *shelf->heads, (void **)&shelf->heads);
    if (s == RN_OK)
        s = rn_alloc(from, shelf->chunk_count * sizeof *shelf->chunks, (void **)&shelf->chunks);
    if (s == RN_OK) rn_place_shelf_clear(shelf);
    if (s == RN_OK)
        *out = shelf;
    else
        rn_place_shelf_destroy(shelf);
    return s;
}

void rn_place_shelf_destroy(rn_place_shelf *shelf) {
    if (!shelf) return;
    rn_free(shelf->from, shelf->heads, shelf->list_count * sizeof *shelf->heads);
    rn_free(shelf->from, shelf->chunks, shelf->chunk_count * sizeof *shelf->chunks);
    rn_free(shelf->from, shelf, sizeof *shelf);
}

void rn_place_shelf_clear(rn_place_shelf *shelf) {
    memset(shelf->heads, 0xff, shelf->list_count * sizeof *shelf->heads);
    shelf->chunks_used = 0;
}

// ---- finding ------------------------------------------------------------------------------------

static bool is_ended(uint32_t units) {
    return rn_stop_spend(units) != RN_STOP_GO_ON;
}

typedef struct fit {
    uint64_t cursor; // everything met so far ends here or below
    uint64_t offset, left_over;
    bool found;
} fit;

// Looks at the room below `ceiling`; true ends the walk.
static bool try_gap(fit *f, const rn_place_item *item, uint64_t ceiling, bool tight) {
    uint64_t offset = rn_round_up(f->cursor, item->align);
    if (ceiling < offset || ceiling - offset < item->bytes) return false;
    uint64_t left_over = ceiling - offset - item->bytes;
    if (!f->found || left_over < f->left_over) {
        f->found = true;
        f->offset = offset;
        f->left_over = left_over;
    }
    return !tight;
}

static bool find_gap(const rn_place_shelf *shelf, uint32_t list, const rn_place_item *item,
                     bool tight, uint64_t *out_offset) {
    fit f = {.cursor = 0};
    for (uint32_t c = shelf->heads[list]; c != NO_CHUNK; c = shelf->chunks[c].next) {
        const chunk *at = &shelf->chunks[c];
        if (is_ended(at->count)) return false;
        for (uint32_t i = 0; i < at->count; i++) {
            const entry *e = &at->entries[i];
            if (e->lower >= item->upper || e->upper <= item->lower) continue;
            if (e->offset > f.cursor && try_gap(&f, item, e->offset, tight)) {
                *out_offset = f.offset;
                return true;
            }
            f.cursor = rn_max_u64(f.cursor, e->top);
        }
    }
    *out_offset = f.found ? f.offset : rn_round_up(f.cursor, item->align);
    return true;
}

// ---- entering -----------------------------------------------------------------------------------

static uint32_t take_chunk(rn_place_shelf *shelf, uint32_t next) {
    uint32_t c = (uint32_t)shelf->chunks_used++;
    shelf->chunks[c].count = 0;
    shelf->chunks[c].next = next;
    return c;
}

static void split_chunk(rn_place_shelf *shelf, chunk *full) {
    uint32_t c = take_chunk(shelf, full->next);
    chunk *upper = &shelf->chunks[c];
    full->count = CHUNK_ENTRIES / 2;
    upper->count = CHUNK_ENTRIES - CHUNK_ENTRIES / 2;
    memcpy(upper->entries, full->entries + full->count, upper->count * sizeof(entry));
    full->next = c;
}

static bool enter(rn_place_shelf *shelf, uint32_t list, entry e) {
    if (shelf->heads[list] == NO_CHUNK) shelf->heads[list] = take_chunk(shelf, NO_CHUNK);
    chunk *at = &shelf->chunks[shelf->heads[list]];
    while (at->next != NO_CHUNK && shelf->chunks[at->next].entries[0].offset <= e.offset) {
        if (is_ended(4)) return false;
        at = &shelf->chunks[at->next];
    }
    if (at->count == CHUNK_ENTRIES) {
        split_chunk(shelf, at);
        if (shelf->chunks[at->next].entries[0].offset <= e.offset) at = &shelf->chunks[at->next];
    }
    uint32_t i = at->count;
    while (i > 0 && at->entries[i - 1].offset > e.offset)
        i--;
    memmove(&at->entries[i + 1], &at->entries[i], (at->count - i) * sizeof e);
    at->entries[i] = e;
    at->count++;
    return !is_ended(CHUNK_ENTRIES / 4);
}

bool rn_place_shelf_put(rn_place_shelf *shelf, const rn_place_item *item, bool tight,
                        uint64_t *out_offset) {
    uint32_t first = item->lower - shelf->origin, last = item->upper - 1 - shelf->origin;
    uint32_t level = shelf->finest;
    while (first >> level != last >> level)
        level++;
    uint32_t list = shelf->level_lists[level] + (first >> level);
    if (!find_gap(shelf, list, item, tight, out_offset)) return false;
    entry e = {item->lower, item->upper, *out_offset, *out_offset + item->bytes};
    for (level = shelf->finest; level <= shelf->coarsest; level++)
        for (uint32_t i = first >> level; i <= last >> level; i++)
            if (!enter(shelf, shelf->level_lists[level] + i, e)) return false;
    return true;
}
