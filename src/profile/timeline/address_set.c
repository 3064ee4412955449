// address_set.c — an arena is charged once for each purpose, each time with the same address: the
// bytes of the blocks at one rank together are its extent.
#include "profile/timeline/address_set.h"
#include "profile/timeline/radix.h"

// Where blocks lie in each other (a mapping inside another), the nearest below may end before the
// part; a few more are tried.
#define TRIES 4

typedef struct rn_address_site {
    uint32_t first, last; // live blocks
    uint64_t bytes;       // of them
} rn_address_site;

typedef struct rn_address_link {
    uint32_t next, previous;
    bool holds; // a part was found in it
} rn_address_link;

// ---- ranks --------------------------------------------------------------------------------------

static bool is_same_place(const rn_timeline *t, uint32_t a, uint32_t b) {
    return t->allocs[a].device == t->allocs[b].device &&
           t->allocs[a].address == t->allocs[b].address;
}

static void number(rn_address_set *set, const rn_sort_item *order) {
    const rn_timeline *t = set->timeline;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        if (i && !is_same_place(t, order[i].index, order[i - 1].index)) set->rank_count++;
        set->ranks[order[i].index] = set->rank_count;
    }
    set->rank_count++;
}

static rn_status rank(rn_address_set *set, rn_sort_item *order) {
    const rn_timeline *t = set->timeline;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        order[i] = (rn_sort_item){.key = t->allocs[i].address, .index = i};
    RN_TRY(rn_radix_sort(t->allocator, order, t->alloc_count));
    for (uint32_t i = 0; i < t->alloc_count; i++)
        order[i].key = t->allocs[order[i].index].device;
    RN_TRY(rn_radix_sort(t->allocator, order, t->alloc_count));
    number(set, order);
    return RN_OK;
}

static rn_status make_ranks(rn_address_set *set) {
    const rn_timeline *t = set->timeline;
    size_t bytes = t->alloc_count * sizeof(rn_sort_item);
    void *order = NULL;
    RN_TRY(rn_alloc(t->allocator, bytes, &order));
    rn_status s = rank(set, order);
    rn_free(t->allocator, order, bytes);
    return s;
}

// ---- bits ---------------------------------------------------------------------------------------

static rn_status make_bits(const rn_allocator *from, size_t bits, rn_rank_bits *out) {
    size_t offsets[RN_ADDRESS_LEVELS];
    do {
        offsets[out->level_count++] = out->word_count;
        bits = (bits + 63) / 64;
        out->word_count += bits;
    } while (bits > 1);
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(from, out->word_count, sizeof *out->words, &block));
    out->words = block;
    for (int l = 0; l < out->level_count; l++)
        out->levels[l] = out->words + offsets[l];
    return RN_OK;
}

static void set_bit(rn_rank_bits *bits, uint32_t bit) {
    for (int l = 0; l < bits->level_count; l++, bit >>= 6)
        bits->levels[l][bit >> 6] |= (uint64_t)1 << (bit & 63);
}

static void clear_bit(rn_rank_bits *bits, uint32_t bit) {
    for (int l = 0; l < bits->level_count; l++, bit >>= 6)
        if (bits->levels[l][bit >> 6] &= ~((uint64_t)1 << (bit & 63))) return;
}

static uint32_t highest(uint64_t word) {
    return 63 - (uint32_t)__builtin_clzll(word);
}

// The highest bit that is set and not above `bit`, or RN_NO_INDEX.
static uint32_t find_bit(const rn_rank_bits *bits, uint32_t bit) {
    for (int l = 0; l < bits->level_count; l++) {
        uint64_t word = bits->levels[l][bit >> 6] & (UINT64_MAX >> (63 - (bit & 63)));
        if (word) {
            bit = (bit & ~(uint32_t)63) | highest(word);
            while (l--)
                bit = bit << 6 | highest(bits->levels[l][bit]);
            return bit;
        }
        bit >>= 6;
        if (bit-- == 0) return RN_NO_INDEX;
    }
    return RN_NO_INDEX;
}

// The lowest bit that is set above `bit`, or RN_NO_INDEX.
static uint32_t find_above(const rn_rank_bits *bits, uint32_t bit) {
    for (int l = 0; l < bits->level_count; l++, bit >>= 6) {
        uint64_t word = bits->levels[l][bit >> 6] & ~(UINT64_MAX >> (63 - (bit & 63)));
        if (!word) continue;
        bit = (bit & ~(uint32_t)63) | (uint32_t)__builtin_ctzll(word);
        while (l--)
            bit = bit << 6 | (uint32_t)__builtin_ctzll(bits->levels[l][bit]);
        return bit;
    }
    return RN_NO_INDEX;
}

// ---- the set ------------------------------------------------------------------------------------

rn_status rn_address_set_init(rn_address_set *set, rn_timeline *t) {
    *set = (rn_address_set){.timeline = t};
    void *block = NULL;
    RN_TRY(rn_alloc(t->allocator, t->alloc_count * sizeof *set->ranks, &block));
    set->ranks = block;
    RN_TRY(make_ranks(set));
    RN_TRY(rn_alloc(t->allocator, set->rank_count * sizeof *set->sites, &block));
    set->sites = block;
    for (uint32_t r = 0; r < set->rank_count; r++)
        set->sites[r] = (rn_address_site){RN_NO_INDEX, RN_NO_INDEX, 0};
    RN_TRY(rn_alloc(t->allocator, t->alloc_count * sizeof *set->links, &block));
    set->links = block;
    RN_TRY(make_bits(t->allocator, set->rank_count, &set->live));
    return make_bits(t->allocator, set->rank_count, &set->fresh);
}

void rn_address_set_free(rn_address_set *set) {
    const rn_timeline *t = set->timeline;
    rn_free(t->allocator, set->fresh.words, set->fresh.word_count * sizeof *set->fresh.words);
    rn_free(t->allocator, set->live.words, set->live.word_count * sizeof *set->live.words);
    rn_free(t->allocator, set->links, t->alloc_count * sizeof *set->links);
    rn_free(t->allocator, set->sites, set->rank_count * sizeof *set->sites);
    rn_free(t->allocator, set->ranks, t->alloc_count * sizeof *set->ranks);
}

void rn_address_set_add(rn_address_set *set, uint32_t block) {
    rn_address_site *site = &set->sites[set->ranks[block]];
    set->links[block] = (rn_address_link){RN_NO_INDEX, site->last, false};
    if (site->last == RN_NO_INDEX) {
        site->first = block;
        set_bit(&set->live, set->ranks[block]);
    } else {
        set->links[site->last].next = block;
    }
    site->last = block;
    set_bit(&set->fresh, set->ranks[block]);
    site->bytes += set->timeline->allocs[block].bytes;
}

void rn_address_set_remove(rn_address_set *set, uint32_t block) {
    rn_address_site *site = &set->sites[set->ranks[block]];
    rn_address_link link = set->links[block];
    if (link.previous == RN_NO_INDEX)
        site->first = link.next;
    else
        set->links[link.previous].next = link.next;
    if (link.next == RN_NO_INDEX)
        site->last = link.previous;
    else
        set->links[link.next].previous = link.previous;
    site->bytes -= set->timeline->allocs[block].bytes;
    if (site->first == RN_NO_INDEX) clear_bit(&set->live, set->ranks[block]);
    if (site->last == RN_NO_INDEX || set->links[site->last].holds)
        clear_bit(&set->fresh, set->ranks[block]);
}

// From the newest back to one that was found to hold parts before: so were those before it.
static void make_arenas(rn_address_set *set, uint32_t at) {
    for (uint32_t b = set->sites[at].last; b != RN_NO_INDEX && !set->links[b].holds;
         b = set->links[b].previous)
        set->links[b].holds = set->timeline->allocs[b].is_arena = true;
    clear_bit(&set->fresh, at);
}

// Blocks that touch may hold one part together: flat memory, which a pool takes in pieces.
static void make_arenas_behind(rn_address_set *set, uint32_t at, const rn_timeline_alloc *inner) {
    while ((at = find_above(&set->fresh, at)) != RN_NO_INDEX) {
        const rn_timeline_alloc *outer = &set->timeline->allocs[set->sites[at].first];
        bool overlaps =
            outer->device == inner->device && outer->address - inner->address < inner->bytes;
        if (!overlaps) return;
        make_arenas(set, at);
    }
}

uint32_t rn_address_set_hold(rn_address_set *set, uint32_t part) {
    const rn_timeline_alloc *allocs = set->timeline->allocs, *inner = &allocs[part];
    uint32_t at = set->ranks[part];
    for (int i = 0; i < TRIES; i++, at--) {
        at = find_bit(&set->live, at);
        if (at == RN_NO_INDEX) return RN_NO_INDEX;
        const rn_address_site *site = &set->sites[at];
        const rn_timeline_alloc *outer = &allocs[site->first];
        if (outer->device != inner->device) return RN_NO_INDEX;
        if (inner->address - outer->address < site->bytes) {
            make_arenas(set, at);
            make_arenas_behind(set, at, inner);
            return site->first;
        }
        if (at == 0) return RN_NO_INDEX;
    }
    return RN_NO_INDEX;
}
