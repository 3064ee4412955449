// page_space.c — sort by address, sweep once: an allocation behind the end of the piece so far (and
// more than a page behind) begins a new one.
#include "profile/page/page_space.h"

#include "base/checked.h"
#include "profile/timeline/radix.h"

// What is not ours has an account's address, not one of memory.
static bool has_place(const rn_timeline_alloc *alloc) {
    return alloc->address >= RN_TRACE_FIRST_ADDRESS && alloc->bytes &&
           alloc->purpose != RN_PURPOSE_UNACCOUNTED;
}

static size_t collect(const rn_timeline *t, rn_sort_item *out) {
    size_t count = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        if (has_place(alloc)) out[count++] = (rn_sort_item){alloc->address, i};
    }
    return count;
}

// By device, then by address. Equal keys keep their order, so the second sort refines the first.
static rn_status sort(const rn_timeline *t, rn_sort_item *items, size_t count) {
    RN_TRY(rn_radix_sort(t->allocator, items, count));
    for (size_t i = 0; i < count; i++)
        items[i].key = t->allocs[items[i].index].device;
    return rn_radix_sort(t->allocator, items, count);
}

static bool is_apart(const rn_page_piece *piece, const rn_timeline_alloc *next) {
    uint64_t offset = next->address - piece->address;
    return piece->device != next->device ||
           (offset > piece->bytes && offset - piece->bytes > RN_PAGE_BYTES);
}

static rn_page_piece *begin_piece(rn_page_space *space, const rn_timeline_alloc *first) {
    const rn_page_piece *before =
        space->piece_count ? &space->pieces[space->piece_count - 1] : NULL;
    bool follows = before && before->device == first->device;
    rn_page_piece *piece = &space->pieces[space->piece_count++];
    *piece = (rn_page_piece){.address = first->address,
                             .place = follows ? before->place + before->bytes : 1,
                             .device = first->device};
    return piece;
}

// An allocation that would reach beyond the last address ends there.
static void sweep(rn_page_space *space, const rn_timeline *t, const rn_sort_item *sorted,
                  size_t count) {
    rn_page_piece *piece = NULL;
    for (size_t i = 0; i < count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[sorted[i].index];
        if (!piece || is_apart(piece, alloc)) piece = begin_piece(space, alloc);
        uint64_t offset = alloc->address - piece->address, end = 0;
        if (!rn_add_u64(offset, alloc->bytes, &end)) end = UINT64_MAX;
        space->places[sorted[i].index] = piece->place + offset;
        if (end > piece->bytes) piece->bytes = end;
    }
}

static rn_status take_memory(rn_page_space *space, const rn_timeline *t, size_t count) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(space->allocator, t->alloc_count, sizeof *space->places, &block));
    space->places = block;
    space->alloc_count = t->alloc_count;
    RN_TRY(rn_alloc_zeroed(space->allocator, count, sizeof *space->pieces, &block));
    space->pieces = block;
    space->piece_capacity = count;
    return RN_OK;
}

rn_status rn_page_space_open(rn_page_space *space, const rn_timeline *t) {
    *space = (rn_page_space){.allocator = t->allocator};
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(space->allocator, t->alloc_count, sizeof(rn_sort_item), &block));
    rn_sort_item *items = block;
    size_t count = collect(t, items);
    rn_status s = sort(t, items, count);
    if (s == RN_OK) s = take_memory(space, t, count);
    if (s == RN_OK) sweep(space, t, items, count);
    rn_free(space->allocator, items, t->alloc_count * sizeof(rn_sort_item));
    return s;
}

void rn_page_space_close(rn_page_space *space) {
    rn_free(space->allocator, space->places, space->alloc_count * sizeof *space->places);
    rn_free(space->allocator, space->pieces, space->piece_capacity * sizeof *space->pieces);
    *space = (rn_page_space){0};
}
