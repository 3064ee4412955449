// place_sweep.c — the first placement: time goes by, buffers come and go, and a simple allocator
// gives each the bytes of one that has gone. It neither looks ahead nor back, so its heights are
// some tens of per cent above the bound; but it takes a few steps a buffer, however many there are.
//
//     blocks    |##a##|..free..|##b##|....free, without end....      neighbours in a list
//     free ones of size [2^k (1 + j/16), 2^k (1 + (j + 1)/16)) hang in list (k, j)
//
// A request takes the first block of the next list up, whose blocks are all large enough; the
// largest requests, and those that find nothing, go to the end.
#include "plan/place.h"

#include "base/checked.h"

enum { STEPS = 16, POWERS = 64, LISTS = STEPS * POWERS, NONE = UINT32_MAX };

typedef struct block {
    uint64_t offset, bytes;
    uint32_t below, above; // neighbours
    uint32_t prev, next;   // in its list, where it is free
    bool is_free;
} block;

typedef struct sweep {
    block *blocks;       // (2 * count + 4): no two neighbours are free, but for a moment
    uint32_t *block_of;  // (count)
    uint32_t *leaving;   // (slots + 1): the first item that ends then, or NONE
    uint32_t *next_item; // (count): ... and the next one
    uint32_t heads[LISTS];
    uint64_t powers;        // bit k: some list (k, j) is not empty
    uint16_t steps[POWERS]; // bit j
    uint32_t last;          // the free block without end; in no list
    uint32_t unused;        // chain of blocks through `next`
} sweep;

// The list of the largest blocks that are not larger: of those in it, all have at least its bound.
static uint32_t list_of(uint64_t bytes) {
    uint32_t power = 63 - (uint32_t)__builtin_clzll(bytes);
    uint32_t step = power >= 4 ? (uint32_t)(bytes >> (power - 4)) & (STEPS - 1)
                               : (uint32_t)(bytes << (4 - power)) & (STEPS - 1);
    return power * STEPS + step;
}

static void hang(sweep *w, uint32_t at) {
    block *b = &w->blocks[at];
    uint32_t list = list_of(b->bytes);
    b->is_free = true;
    b->prev = NONE;
    b->next = w->heads[list];
    if (b->next != NONE) w->blocks[b->next].prev = at;
    w->heads[list] = at;
    w->powers |= UINT64_C(1) << (list / STEPS);
    w->steps[list / STEPS] |= (uint16_t)(1u << (list % STEPS));
}

static void unhang(sweep *w, uint32_t at) {
    block *b = &w->blocks[at];
    uint32_t list = list_of(b->bytes);
    b->is_free = false;
    if (b->prev != NONE) w->blocks[b->prev].next = b->next;
    if (b->next != NONE) w->blocks[b->next].prev = b->prev;
    if (w->heads[list] == at) w->heads[list] = b->next;
    if (w->heads[list] != NONE) return;
    w->steps[list / STEPS] &= (uint16_t) ~(1u << (list % STEPS));
    if (!w->steps[list / STEPS]) w->powers &= ~(UINT64_C(1) << (list / STEPS));
}

// A free block that surely holds `bytes`; the last one where no list has any.
static uint32_t find(const sweep *w, uint64_t bytes) {
    uint32_t list = list_of(bytes) + 1;
    if (list >= LISTS) return w->last;
    uint32_t power = list / STEPS, steps = w->steps[power] & (0xffffu << (list % STEPS));
    if (!steps) {
        uint64_t powers = power == 63 ? 0 : w->powers & (UINT64_MAX << (power + 1));
        if (!powers) return w->last;
        power = (uint32_t)__builtin_ctzll(powers);
        steps = w->steps[power];
    }
    return w->heads[power * STEPS + (uint32_t)__builtin_ctz(steps)];
}

static uint32_t take_unused(sweep *w) {
    uint32_t at = w->unused;
    w->unused = w->blocks[at].next;
    return at;
}

// Cuts `bytes` off the front of a block that is in no list; returns them as a block below it.
static uint32_t cut_front(sweep *w, uint32_t at, uint64_t bytes) {
    uint32_t front = take_unused(w);
    block *b = &w->blocks[at];
    w->blocks[front] = (block){b->offset, bytes, b->below, at, NONE, NONE, false};
    if (b->below != NONE) w->blocks[b->below].above = front;
    b->below = front;
    b->offset += bytes;
    b->bytes -= bytes;
    return front;
}

static uint64_t take(sweep *w, uint32_t id, const rn_place_item *item) {
    uint32_t at = find(w, item->bytes + item->align - 1);
    if (at != w->last) unhang(w, at);
    uint64_t offset = rn_round_up(w->blocks[at].offset, item->align);
    uint64_t pad = offset - w->blocks[at].offset;
    if (pad) hang(w, cut_front(w, at, pad));
    if (at == w->last || w->blocks[at].bytes > item->bytes) {
        uint32_t rest = at;
        at = cut_front(w, rest, item->bytes);
        if (rest != w->last) hang(w, rest);
    }
    w->block_of[id] = at;
    return offset;
}

// Makes one of a block and the one above it.
static void join(sweep *w, uint32_t at) {
    block *b = &w->blocks[at];
    uint32_t gone = b->above;
    const block *upper = &w->blocks[gone];
    b->bytes += upper->bytes;
    b->above = upper->above;
    if (b->above != NONE) w->blocks[b->above].below = at;
    if (w->last == gone) w->last = at;
    w->blocks[gone].next = w->unused;
    w->unused = gone;
}

static void release(sweep *w, uint32_t id) {
    uint32_t at = w->block_of[id], above = w->blocks[at].above;
    bool joins = above == w->last || w->blocks[above].is_free;
    if (joins && above != w->last) unhang(w, above);
    if (joins) join(w, at);
    uint32_t below = w->blocks[at].below;
    if (below != NONE && w->blocks[below].is_free) {
        unhang(w, below);
        join(w, below);
        at = below;
    }
    if (at != w->last) hang(w, at);
}

// ---- all of it ----------------------------------------------------------------------------------

static void reset(sweep *w, const rn_place_problem *p) {
    uint32_t count = (uint32_t)p->count;
    for (uint32_t i = 0; i < LISTS; i++)
        w->heads[i] = NONE;
    for (uint32_t i = 0; i < 2 * count + 4; i++) {
        w->blocks[i].next = i + 1;
        (void)rn_stop_round(i); // run will hear of it
    }
    w->unused = 0;
    w->last = take_unused(w);
    w->blocks[w->last] = (block){0, INT64_MAX, NONE, NONE, NONE, NONE, false};
    for (uint32_t t = 0; t < p->slots; t++)
        w->leaving[t] = NONE;
    for (uint32_t i = 0; i < count; i++) {
        w->next_item[i] = w->leaving[p->items[i].upper];
        w->leaving[p->items[i].upper] = i;
        (void)rn_stop_round(i);
    }
}

// To be late is no reason to end: the others fall back on this.
static bool is_cancelled(void) {
    enum { STEP_UNITS = 8 };
    return rn_stop_spend(STEP_UNITS) == RN_STOP_CANCEL;
}

static rn_status run(sweep *w, const rn_place_problem *p, uint64_t *out_offsets) {
    uint32_t next = 0;
    reset(w, p);
    for (uint32_t t = 0; t < p->slots; t++) {
        for (uint32_t i = w->leaving[t]; i != NONE; i = w->next_item[i]) {
            if (is_cancelled()) return RN_CANCELLED;
            release(w, i);
        }
        for (; next < p->count && p->items[next].lower == t; next++) {
            if (is_cancelled()) return RN_CANCELLED;
            out_offsets[next] = take(w, next, &p->items[next]);
        }
    }
    return RN_OK;
}

rn_status rn_place_sweep(const rn_allocator *from, const rn_place_problem *p,
                         uint64_t *out_offsets) {
    sweep *w;
    size_t blocks = 2 * p->count + 4;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof *w, (void **)&w));
    rn_status s = rn_alloc(from, blocks * sizeof *w->blocks, (void **)&w->blocks);
    if (s == RN_OK) s = rn_alloc(from, p->count * sizeof *w->block_of, (void **)&w->block_of);
    if (s == RN_OK) s = rn_alloc(from, p->slots * sizeof *w->leaving, (void **)&w->leaving);
    if (s == RN_OK) s = rn_alloc(from, p->count * sizeof *w->next_item, (void **)&w->next_item);
    if (s == RN_OK) s = run(w, p, out_offsets);
    rn_free(from, w->blocks, blocks * sizeof *w->blocks);
    rn_free(from, w->block_of, p->count * sizeof *w->block_of);
    rn_free(from, w->leaving, p->slots * sizeof *w->leaving);
    rn_free(from, w->next_item, p->count * sizeof *w->next_item);
    rn_free(from, w, sizeof *w);
    return s;
}
