// product_many.h — which kernel multiplies more than 16 rows, and how it is launched. Plain C, read
// by the host and by the kernels' checks.
//
//     family    a block's tile         blocks     for
//     MMA       16 x 32 a warp         any        devices without wgmma; any rows > 1
//     SOME_32   128 rows x 32 tokens   alone      up to 32 tokens
//     SOME_64   128 x 64               alone      up to 64
//     SOME_128  128 x 128              alone      up to 128
//     NARROW    64 x 128               in pairs   more: neighbours in tokens share weights
//     MANY      128 x 128              in pairs   (whichever leaves the fewest multiprocessors
//     WIDE      192 x 128              in pairs   idle; gated products are MANY's)
//
// Families SOME take segments of 512 columns apart where there are too few tiles for all
// multiprocessors: then sums of segments go to rn_product_args.partial, and rn_product_join adds
// them in order. All families give the same bits.
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
    RN_SOME_BLOCKS = 264,    // that SOME_32 and SOME_64 want at once
    RN_SOME_BLOCKS_128 = 132,
    RN_MMA_TOKENS = 32, // of a warp
    RN_JOIN_THREADS = 256,
    RN_PACK_BLOCKS = 528, // at most, without a norm
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
    uint32_t join_x, join_y; // rn_product_join of RN_JOIN_THREADS afterwards; 0: none. Then
                             // `partial` must be given, else it must be NULL
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

// Parts along segments of a SOME launch of so many tokens. It does not know the device: the
// workspace depends on it.
static inline uint32_t rn_some_parts(const rn_product_args *a, uint32_t tokens) {
    uint32_t segments = rn_many_ceil(a->cols, RN_PRODUCT_SEGMENT);
    uint32_t wanted = tokens > 64 ? RN_SOME_BLOCKS_128 : RN_SOME_BLOCKS;
    uint32_t blocks = rn_many_row_blocks(a, 2); // 0: weights without rows
    if (blocks == 0 || wanted / blocks < 2 || segments < 2) return 1;
    wanted /= blocks;
    uint32_t each = rn_many_ceil(segments, wanted);
    return rn_many_ceil(segments, each);
}

// Bytes of `partial` for just so many tokens.
static inline uint64_t rn_some_bytes(const rn_product_args *a, uint32_t tokens) {
    if (rn_some_parts(a, tokens) == 1) return 0;
    uint64_t all = 0;
    for (uint32_t i = 0; i < a->count; i++)
        all += a->weights[i].rows;
    return 4 * (uint64_t)rn_many_ceil(a->cols, RN_PRODUCT_SEGMENT) * tokens * all;
}

// Bytes of `partial` that suffice on any device for a->rows rows, and for fewer: what is planned
// for many must do for some. 0: none is wanted. Reads rows, cols, count, gated and the weights'
// rows.
static inline uint64_t rn_many_workspace(const rn_product_args *a) {
    uint32_t most = a->rows < RN_MANY_TOKENS ? a->rows : RN_MANY_TOKENS;
    uint64_t some = rn_some_bytes(a, most < 64 ? most : 64), more = rn_some_bytes(a, most);
    return some > more ? some : more;
}

static inline rn_many_launch rn_many_mma(const rn_product_args *a) {
    return (rn_many_launch){.family = RN_FAMILY_MMA,
                            .x = rn_many_ceil(a->rows, RN_MMA_TOKENS),
                            .y = rn_many_ceil(rn_many_groups(a, 16), 4),
                            .z = 1,
                            .threads = 128};
}

static inline rn_many_launch rn_many_some(const rn_product_args *a) {
    rn_many_launch l = {.x = 1, .y = rn_many_row_blocks(a, 2), .z = rn_some_parts(a, a->rows)};
    l.threads = 384;
    bool big = a->rows > 64;
    l.family = big ? RN_FAMILY_SOME_128 : a->rows > 32 ? RN_FAMILY_SOME_64 : RN_FAMILY_SOME_32;
    l.shared_bytes = big ? RN_MANY_SHARED : RN_SOME_SHARED;
    if (l.z == 1) return l;
    uint32_t columns = 0;
    for (uint32_t i = 0; i < (a->gated ? 1 : a->count); i++)
        columns += a->weights[i].rows;
    l.join_x = rn_many_ceil(columns, RN_JOIN_THREADS);
    l.join_y = a->rows;
    return l;
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

// The launch for a->rows > 1. Reads what rn_many_workspace reads.
static inline rn_many_launch rn_many_pick(const rn_product_args *a, uint32_t multiprocessors,
                                          bool has_wgmma) {
    if (!has_wgmma) return rn_many_mma(a);
    return a->rows <= RN_MANY_TOKENS ? rn_many_some(a) : rn_many_best(a, multiprocessors);
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
