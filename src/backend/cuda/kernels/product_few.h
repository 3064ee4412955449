// product_few.h — how products of 1 to 16 rows are launched: plain C, read by the host and by the
// kernels, so that both mean the same shared memory.
//
// Blocks stay for the whole product ("persistent"): block b of G takes every G-th tile of 16 output
// rows; of these, its warps take the segments of 512 columns in turn. Weights come by bulk copies
// into a ring of stages that each warp has for itself; partial sums of segments meet in shared
// memory.
//
// What makes a ring fast, with what was measured on an H200 (products of one row of a 7B model):
// - copies of 4 KB and more: f16 reached 42 % of a device copy's bytes a second with 16 warps and
//   three copies of 2 KB each, 96 % with 8 warps and five of 4 KB;
// - weights that are asked for before griddepcontrol.wait bridge the gap between two kernels. But x
//   comes through the same memory, behind them: with a whole ring ahead, x of a q4_0 gate and up
//   was there 4.2 us after the wait, and with none ahead after 1.5. Large weights need the bridge,
//   small ones cannot afford it: `ahead` and `normed`;
// - one block a multiprocessor. Where two have room, the next kernel could fill its ring beside it
//   (1,458 us a pass of q4_0, where one at a time took 1,660), but blocks go wherever there is
//   room: beside attention's 8 blocks, 8 multiprocessors got two of a product's, and it took twice
//   as long;
// - few instructions: q4_0 and int4 are bound by them as much as by memory. All that is the same
//   for every block of a launch is reckoned by the host (rn_few_plan). Kinds with a table were
//   bound by the permutations that look it up (nf4: 410 tokens a second of a 7B, where q4_0 made
//   633), so here they have a table of pairs in shared memory (513), which gives the same bits.
//
// Where there are no bulk copies (the image's code for sm_80) a warp keeps its loads in registers.
#ifndef RN_CUDA_KERNELS_PRODUCT_FEW_H
#define RN_CUDA_KERNELS_PRODUCT_FEW_H

#include "backend/cuda/kernels/args.h"
#include "tensor/tiles.h"

#ifdef __CUDACC__
#define RN_FEW_INLINE static __host__ __device__ constexpr
#else
#define RN_FEW_INLINE static inline
#endif

enum {
    RN_FEW_ROWS = 16,       // at most
    RN_FEW_COLS = 32768,    // at most: x of one row is held in shared memory
    RN_FEW_PARTIAL = 16384, // bytes of partial sums that are aimed at
    RN_FEW_NORM_WARPS = 16, // floats of shared memory for the norm's sum
    RN_FEW_SHARED = 233472, // bytes that the blocks of a multiprocessor share (sm_90)
    RN_FEW_RESERVED = 1024, // of these, that each block takes for itself
    RN_FEW_TABLE = 32768,   // bytes of a table of pairs (forms.cuh), beside a ring
};

// How a form's weights stream.
typedef struct rn_few_config {
    uint32_t warps;  // of a block
    uint32_t tiles;  // of a stage, which is one copy; in registers: on their way (1, 2, 4)
    uint32_t stages; // of a warp's ring, where they have room; 0: registers
    uint32_t blocks; // of a multiprocessor
    uint32_t ahead;  // stages that are asked for before the kernel before has ended
    uint32_t normed; // the same, where x is normed as it is read
    uint32_t staged; // bytes of packed x that are held in shared memory at most; more: the L1 reads
} rn_few_config;

RN_FEW_INLINE uint32_t rn_few_tile_bytes(uint32_t form) {
    return form <= RN_TILE_BF16                       ? 4096
           : form == RN_TILE_Q8 || form == RN_TILE_F8 ? 2176
           : form == RN_TILE_I8                       ? 2048
           : form == RN_TILE_A4 || form == RN_TILE_V4 ? 1280
           : form == RN_TILE_C2 || form == RN_TILE_C3 ? 1184
           : form == RN_TILE_Q6                       ? 1696
           : form == RN_TILE_A5                       ? 1536
           : form == RN_TILE_Q3                       ? 928
           : form == RN_TILE_A2                       ? 704
                                                      : 1152;
}

// Whether weights are looked up in shared memory.
RN_FEW_INLINE bool rn_few_has_table(uint32_t form) {
    return form == RN_TILE_N4 || form == RN_TILE_I4 || form == RN_TILE_F4 || form >= RN_TILE_V4;
}

// The numbers that decide the speed, and nothing else: no bit of a result depends on them.
RN_FEW_INLINE rn_few_config rn_few_config_of(uint32_t form, uint32_t tokens, bool has_ring) {
    const rn_few_config registers = {8, 2, 0, 2, 0, 0, 0}, registers_4 = {8, 4, 0, 2, 0, 0, 0};
    // On an H200, for 1, 8 and 16 tokens.
    const rn_few_config halves[3] = {
        {8, 2, 3, 1, 9, 9, 65536}, {16, 1, 3, 1, 1, 0, 65536}, {16, 1, 3, 1, 1, 0, 65536}};
    const rn_few_config bytes[3] = {
        {16, 2, 2, 1, 1, 1, 131072}, {16, 2, 2, 1, 1, 0, 131072}, {8, 2, 4, 1, 1, 0, 131072}};
    const rn_few_config five_bits[3] = {
        {16, 2, 3, 1, 1, 0, 65536}, {16, 2, 3, 1, 1, 0, 65536}, {16, 2, 2, 1, 1, 0, 131072}};
    const rn_few_config nibbles[3] = {
        {16, 4, 2, 1, 1, 0, 65536}, {16, 4, 2, 1, 1, 0, 65536}, {16, 2, 2, 1, 1, 0, 131072}};
    const rn_few_config crumbs[3] = {
        {16, 4, 2, 1, 1, 0, 65536}, {16, 4, 2, 1, 1, 0, 65536}, {16, 4, 2, 1, 1, 0, 131072}};
    uint32_t which = tokens == 1 ? 0 : tokens == 8 ? 1 : 2, tile = rn_few_tile_bytes(form);
    if (!has_ring) return form == RN_TILE_Q4 || rn_few_has_table(form) ? registers_4 : registers;
    return tile == 4096                         ? halves[which]
           : tile >= 2048                       ? bytes[which]
           : tile >= 1536 || form == RN_TILE_V4 ? five_bits[which] // beside a table
           : tile >= 1152                       ? nibbles[which]
                                                : crumbs[which];
}

// Columns of the matrix units that tokens take: 1 (alone), 8 or 16.
RN_FEW_INLINE uint32_t rn_few_tokens(uint32_t rows) {
    return rows == 1 ? 1 : rows <= 8 ? 8 : 16;
}

RN_FEW_INLINE uint32_t rn_few_ceil(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

// Tiles of 16 outputs that are dealt out to blocks: with a gate, the gate's, each with its up's.
RN_FEW_INLINE uint32_t rn_few_row_tiles(const rn_product_args *args) {
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (args->gated ? 1 : args->count); i++)
        tiles += rn_few_ceil(args->weights[i].rows, RN_TILE_ROWS);
    return tiles;
}

RN_FEW_INLINE uint32_t rn_few_blocks(rn_few_config config, const rn_product_args *args,
                                     uint32_t multiprocessors) {
    uint32_t tiles = rn_few_row_tiles(args), most = config.blocks * multiprocessors;
    return tiles < most ? tiles : most;
}

// What a block is told, so that none has to divide before it can ask for weights: its work and its
// shared memory.
typedef struct rn_few_plan {
    uint32_t tile_cols;         // of a row of tiles
    uint32_t segments, last;    // of such a row; tiles of the last one
    uint32_t tiles, more_tiles; // row tiles of a block; the first `more_tiles` blocks have one more
    uint32_t ends[RN_PRODUCT_MOST - 1];       // row tile at which the next weight begins
    uint32_t turn_tiles[2], turn_segments[2]; // by which a warp goes on; [1]: two warps, two tiles
    uint32_t batch_tiles; // whose partial sums are held at once; with a gate both count
    uint32_t stages;      // of a warp's ring
    uint32_t ahead;       // of these, asked for before the kernel before has ended
    uint32_t is_staged;   // packed x is held
    uint32_t x, partial, norm, x_barriers, barriers, table; // offsets; the ring is at 0
    uint32_t bytes;
} rn_few_plan;

typedef struct rn_few_args {
    rn_product_args product;
    rn_few_plan plan;
} rn_few_args;

// A batch is as many tiles as there is room and, for one row, as many as there are threads for
// their outputs.
RN_FEW_INLINE uint32_t rn_few_batch(uint32_t warps, uint32_t segments, const rn_product_args *args,
                                    uint32_t blocks) {
    uint32_t pair = args->gated || args->rows > 1 ? 2 : 1; // that are not parted
    uint32_t room = RN_FEW_PARTIAL / (segments * RN_TILE_ROWS * 4 * rn_few_tokens(args->rows));
    uint32_t tiles = rn_few_ceil(rn_few_row_tiles(args), blocks); // that a block has
    uint32_t count = room / pair;
    if (!args->gated) tiles = rn_few_ceil(tiles, pair);
    if (count > 2 * warps) count = 2 * warps;
    if (count > tiles) count = tiles;
    return (count ? count : 1) * pair;
}

// Bytes of x in 16 bits: of one row, always held, or packed, where that is staged.
RN_FEW_INLINE uint32_t rn_few_x_bytes(rn_few_config config, const rn_product_args *args) {
    uint32_t cols = rn_few_ceil(args->cols, RN_TILE_COLS) * RN_TILE_COLS;
    uint32_t bytes = cols * 2 * rn_few_tokens(args->rows);
    return args->rows == 1 || bytes <= config.staged ? bytes : 0;
}

// The ring takes what the rest leaves of a block's part of the multiprocessor's memory.
RN_FEW_INLINE void rn_few_place_all(rn_few_config config, const rn_product_args *args,
                                    rn_few_plan *plan) {
    uint32_t stage = config.warps * rn_few_tile_bytes(args->form) * config.tiles; // of all warps
    uint32_t x_bytes = rn_few_x_bytes(config, args);
    uint32_t partial_bytes =
        plan->batch_tiles * plan->segments * RN_TILE_ROWS * 4 * rn_few_tokens(args->rows);
    uint32_t table_bytes = config.stages && rn_few_has_table(args->form) ? RN_FEW_TABLE : 0;
    uint32_t rest =
        x_bytes + partial_bytes + table_bytes + RN_FEW_NORM_WARPS * 4 + plan->segments * 8;
    uint32_t all = RN_FEW_SHARED / config.blocks - RN_FEW_RESERVED;
    uint32_t stages = rest < all ? (all - rest) / (stage + config.warps * 8) : 0;
    plan->stages = stages < config.stages ? stages : config.stages;
    plan->is_staged = args->rows > 1 && x_bytes != 0;
    plan->table = plan->stages * stage;
    plan->x = plan->table + table_bytes;
    plan->partial = plan->x + x_bytes;
    plan->norm = plan->partial + partial_bytes;
    plan->x_barriers = plan->norm + RN_FEW_NORM_WARPS * 4;
    plan->barriers = plan->x_barriers + plan->segments * 8;
    plan->bytes = plan->barriers + plan->stages * config.warps * 8;
}

RN_FEW_INLINE rn_few_plan rn_few_plan_of(rn_few_config config, const rn_product_args *args,
                                         uint32_t blocks) {
    rn_few_plan plan = {0, 0, 0, 0, 0, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t row_tiles = rn_few_row_tiles(args), end = 0;
    plan.tile_cols = rn_few_ceil(args->cols, RN_TILE_COLS);
    plan.segments = rn_few_ceil(args->cols, RN_PRODUCT_SEGMENT);
    plan.last = plan.tile_cols - 4 * (plan.segments - 1);
    plan.tiles = row_tiles / blocks;
    plan.more_tiles = row_tiles % blocks;
    for (uint32_t i = 0; i + 1 < RN_PRODUCT_MOST; i++) {
        end += i + 1 < args->count ? rn_few_ceil(args->weights[i].rows, RN_TILE_ROWS) : 0;
        plan.ends[i] = i + 1 < args->count ? end : UINT32_MAX;
    }
    for (uint32_t pairs = 0; pairs < 2; pairs++) {
        uint32_t warps = config.warps >> pairs;
        plan.turn_tiles[pairs] = warps / plan.segments << pairs;
        plan.turn_segments[pairs] = warps % plan.segments;
    }
    plan.batch_tiles = rn_few_batch(config.warps, plan.segments, args, blocks);
    plan.ahead = args->norm && args->rows == 1 ? config.normed : config.ahead;
    rn_few_place_all(config, args, &plan);
    return plan;
}

// What to launch: kernel number RN_CUDA_PRODUCT_FEW_F16_1 + `kernel` (kernels.def lists them by
// form, then 1, 8, 16 tokens). has_ring: rn_cuda_traits.has_wgmma. Launch it `early`: it waits by
// itself. Nothing but the tiles of weights and a steady norm is read before that: everything else
// may have been made by a kernel of the same run, other norms and biases as well.
typedef struct rn_few_launch {
    uint32_t kernel, blocks, threads;
    rn_few_plan plan; // with plan.bytes of shared memory
} rn_few_launch;

RN_FEW_INLINE rn_few_launch rn_few_launch_of(const rn_product_args *args, uint32_t multiprocessors,
                                             bool has_ring) {
    uint32_t tokens = rn_few_tokens(args->rows);
    rn_few_config config = rn_few_config_of(args->form, tokens, has_ring);
    uint32_t kernel = 3 * (args->form - RN_TILE_F16) + (tokens == 1 ? 0 : tokens == 8 ? 1 : 2);
    uint32_t blocks = rn_few_blocks(config, args, multiprocessors);
    rn_few_launch launch = {kernel, blocks, 32 * config.warps,
                            rn_few_plan_of(config, args, blocks)};
    return launch;
}

// Whether these kernels serve the product: rows, columns, and shared memory of a block, with a
// stage at least where there is a ring.
RN_FEW_INLINE bool rn_few_serves(const rn_product_args *args, uint32_t multiprocessors,
                                 bool has_ring, uint32_t shared_most) {
    if (args->rows < 1 || args->rows > RN_FEW_ROWS || args->cols > RN_FEW_COLS) return false;
    rn_few_config config = rn_few_config_of(args->form, rn_few_tokens(args->rows), has_ring);
    uint32_t blocks = rn_few_blocks(config, args, multiprocessors);
    if (blocks == 0) return false; // no outputs
    rn_few_plan plan = rn_few_plan_of(config, args, blocks);
    return plan.bytes <= shared_most && (plan.stages > 0 || config.stages == 0);
}

#endif
