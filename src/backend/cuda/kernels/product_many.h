// product_many.h — which kernel multiplies more than 16 rows, and how it is launched. Plain C, read
// by the host and by the kernels' checks.
//
//     family    a block's tile         blocks     for
//     MMA       16 x 32 a warp         any        devices without wgmma; any rows > 1
//     SOME_32   128 rows x 32 tokens   in rings   up to 32 tokens
//     SOME_64   128 x 64               in rings   up to 64
//     SOME_128  128 x 128              in rings   up to 128
//     NARROW    64 x 128               in pairs   more: neighbours in tokens share weights
//     MANY      128 x 128              in pairs   (whichever leaves the fewest multiprocessors
//     WIDE      192 x 128              in pairs   idle; gated products are MANY's)
//
// Where families SOME have too few tiles for all multiprocessors, the blocks of a ring (a cluster
// along z) share a tile: each takes one segment of 512 columns after the other in turn, adds it to
// the total that the block before hands it, and hands that on. All families give the same bits.
//
// A kernel's number is that of its family's first (kernels.def has the forms in rn_tile_form's
// order, beginning with F16): RN_CUDA_PRODUCT_MANY_F16 + form - RN_TILE_F16.
#ifndef RN_CUDA_KERNELS_PRODUCT_MANY_H
#define RN_CUDA_KERNELS_PRODUCT_MANY_H

#include "args.h"

#include <stdbool.h>

enum {
    RN_MANY_SHARED = 231424, // bytes of shared memory: one block a multiprocessor
    RN_SOME_SHARED = 115712, // two blocks a multiprocessor
    RN_MANY_GROUP = 64,      // rows of a warpgroup
    RN_MANY_TOKENS = 128,    // of a tile
    RN_MANY_CLUSTER = 2,     // blocks of a cluster, along tokens
    RN_RING_MOST = 4,        // blocks of a ring
    RN_MMA_TOKENS = 32,      // of a warp
    RN_PACK_BLOCKS = 528,    // at most, without a norm
};

typedef enum rn_many_family {
    RN_FAMILY_MMA,
    RN_FAMILY_SOME_32,
    RN_FAMILY_SOME_64,
    RN_FAMILY_SOME_128,
    RN_FAMILY_NARROW,
    RN_FAMILY_MANY,
    RN_FAMILY_WIDE,
    RN_FAMILY_COUNT
} rn_many_family;

typedef struct rn_many_launch {
    rn_many_family family;
    uint32_t x, y, z, threads, shared_bytes; // all may begin early (griddepcontrol)
    uint32_t ring;                           // blocks along z that are one cluster: z
} rn_many_launch;

static inline uint32_t rn_many_ceil(uint32_t n, uint32_t unit) {
    return (n + unit - 1) / unit;
}

// Rows of the launch in groups of `unit`: of all weights one after the other, or, gated, of both at
// once.
static inline uint32_t rn_many_groups(const rn_product_args *a, uint32_t unit) {
    uint32_t groups = 0;
    for (uint32_t i = 0; i < (a->gated ? 1 : a->count); i++)
        groups += rn_many_ceil(a->weights[i].rows, unit);
    return groups;
}

// Blocks along rows where each has `groups` warpgroups of 64 rows.
static inline uint32_t rn_many_row_blocks(const rn_product_args *a, uint32_t groups) {
    uint32_t all = rn_many_groups(a, RN_MANY_GROUP);
    return a->gated ? all : rn_many_ceil(all, groups);
}

// How many blocks share a tile, where so many of them fit on a multiprocessor at once: as many as
// have room at the same time. Rings of more than two do not fit everywhere on a device (of an
// H200's 132 multiprocessors 126 have room for rings of three, 120 for rings of four).
static inline uint32_t rn_some_ring(const rn_product_args *a, uint32_t multiprocessors,
                                    uint32_t together) {
    uint32_t segments = rn_many_ceil(a->cols, RN_PRODUCT_SEGMENT);
    uint32_t blocks = rn_many_row_blocks(a, 2); // 0: weights without rows
    for (uint32_t ring = RN_RING_MOST; ring > 1; ring--) {
        uint32_t room = ring == 2 ? multiprocessors / 2 : multiprocessors * 10 / 11 / ring;
        if (blocks && ring <= segments && blocks <= room * together) return ring;
    }
    return 1;
}

static inline rn_many_launch rn_many_mma(const rn_product_args *a) {
    return (rn_many_launch){.family = RN_FAMILY_MMA,
                            .x = rn_many_ceil(a->rows, RN_MMA_TOKENS),
                            .y = rn_many_ceil(rn_many_groups(a, 16), 4),
                            .z = 1,
                            .threads = 128};
}

// A launch of NARROW (1), MANY (2) or WIDE (3).
static inline rn_many_launch rn_many_tiled(const rn_product_args *a, uint32_t groups) {
    uint32_t tokens = rn_many_ceil(a->rows, RN_MANY_TOKENS);
    return (rn_many_launch){.family = (rn_many_family)(RN_FAMILY_NARROW + groups - 1),
                            .x = rn_many_ceil(tokens, RN_MANY_CLUSTER) * RN_MANY_CLUSTER,
                            .y = rn_many_row_blocks(a, groups),
                            .z = 1,
                            .threads = 128 * (groups + 1),
                            .shared_bytes = RN_MANY_SHARED};
}

// What a launch takes, in thirds of a warpgroup's tile: rounds of the device. A warpgroup alone
// reads more for what it does, and waits more.
static inline uint64_t rn_many_cost(const rn_many_launch *l, uint32_t multiprocessors) {
    uint64_t blocks = (uint64_t)l->x * l->y;
    uint32_t slots = multiprocessors > 2 ? multiprocessors / 2 * 2 : 2;
    uint32_t each = l->family == RN_FAMILY_NARROW ? 5 : l->family == RN_FAMILY_MANY ? 6 : 9;
    return (blocks + slots - 1) / slots * each;
}

static inline rn_many_launch rn_many_best(const rn_product_args *a, uint32_t multiprocessors) {
    rn_many_launch best = rn_many_tiled(a, 2);
    if (a->gated) return best;
    for (uint32_t groups = 1; groups <= 3; groups += 2) {
        rn_many_launch other = rn_many_tiled(a, groups);
        if (rn_many_cost(&other, multiprocessors) < rn_many_cost(&best, multiprocessors))
            best = other;
    }
    return best;
}

// A ring's blocks would lie two on a multiprocessor and leave others idle: where there is room for
// all, each has one to itself.
static inline rn_many_launch rn_many_some(const rn_product_args *a, uint32_t multiprocessors) {
    bool big = a->rows > 64;
    rn_many_launch l = {.x = 1, .y = rn_many_row_blocks(a, 2), .threads = 384};
    l.family = big ? RN_FAMILY_SOME_128 : a->rows > 32 ? RN_FAMILY_SOME_64 : RN_FAMILY_SOME_32;
    l.z = l.ring = rn_some_ring(a, multiprocessors, 1);
    l.shared_bytes = big || l.ring > 1 ? RN_MANY_SHARED : RN_SOME_SHARED;
    if (!big && l.ring == 1) l.z = l.ring = rn_some_ring(a, multiprocessors, 2);
    return l;
}

// The launch for a->rows > 1. Reads rows, cols, count, gated and the weights' rows.
static inline rn_many_launch rn_many_pick(const rn_product_args *a, uint32_t multiprocessors,
                                          bool has_wgmma) {
    if (!has_wgmma) return rn_many_mma(a);
    return a->rows <= RN_MANY_TOKENS ? rn_many_some(a, multiprocessors)
                                     : rn_many_best(a, multiprocessors);
}

// Blocks of rn_pack (RN_NORM_THREADS threads each): one a row, for a norm; without one as many as
// have a strip for each warp, for nothing but the way to memory takes time. And the bytes that it
// writes.
static inline uint32_t rn_pack_blocks(uint32_t rows) {
    return rn_many_ceil(rows, 8) * 8;
}
static inline uint32_t rn_pack_plain_blocks(uint32_t rows, uint32_t cols) {
    uint32_t strips = rn_many_ceil(rows, 8) * 2 * rn_many_ceil(cols, 128) * 4; // of pack.cu
    uint32_t blocks = rn_many_ceil(strips, RN_NORM_THREADS / 32);
    return blocks < RN_PACK_BLOCKS ? blocks : RN_PACK_BLOCKS;
}
static inline uint64_t rn_pack_bytes(uint32_t rows, uint32_t cols) {
    return 2 * (uint64_t)rn_pack_blocks(rows) * rn_many_ceil(cols, 128) * 128;
}

#endif
