// address_set.h — which blocks lie where, at one moment of a sweep: the block that an address lies
// in.
//
// Every address that occurs has a rank, known from the beginning. Ranks at which something is live
// are bits; words of 64 bits that are not 0 are bits of the level above, and so on: the nearest
// rank below another is found in a few steps, however many there are. Ranks whose newest block has
// not been found to hold a part are bits of their own: a part that lies over many blocks looks at
// each of them once, not again for every part.
#ifndef RN_PROFILE_ADDRESS_SET_H
#define RN_PROFILE_ADDRESS_SET_H

#include "profile/timeline.h"

#define RN_ADDRESS_LEVELS 6 // 64 ** 6 > 2 ** 32

typedef struct rn_rank_bits {
    uint64_t *words; // of all levels
    uint64_t *levels[RN_ADDRESS_LEVELS];
    size_t word_count;
    int level_count;
} rn_rank_bits;

typedef struct rn_address_set {
    rn_timeline *timeline;
    uint32_t *ranks; // (alloc_count): of (device, address)
    uint32_t rank_count;
    struct rn_address_site *sites; // (rank_count)
    struct rn_address_link *links; // (alloc_count): blocks at one rank, in the order of their begin
    rn_rank_bits live, fresh;      // fresh: the newest live block holds nothing yet
} rn_address_set;

// For the addresses of a timeline whose allocs are in their order. Freed by the caller also where
// it failed.
RN_MUST_USE rn_status rn_address_set_init(rn_address_set *set, rn_timeline *t);
void rn_address_set_free(rn_address_set *set);
// An outer block begins, or ends.
void rn_address_set_add(rn_address_set *set, uint32_t block);
void rn_address_set_remove(rn_address_set *set, uint32_t block);
// The first of the live blocks in which this part begins, or RN_NO_INDEX; all that it lies in
// become arenas.
uint32_t rn_address_set_hold(rn_address_set *set, uint32_t part);

#endif
