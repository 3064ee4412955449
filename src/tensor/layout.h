// layout.h — how a weight's bytes lie in memory: as in the file, or rearranged for a kernel.
//
// There is one kernel layout for each (dtype, device). On the CPU a product's weight (N, K) is kept
// in panels: 16 output rows side by side, so that a vector lane is an output row. Pure functions;
// the formats are drawn in tensor/panels.h and tensor/tiles.h. A layout is a descriptor: a back end
// with one of its own defines it in its folder and returns it from rn_device_caps.weight_layout.
#ifndef RN_TENSOR_LAYOUT_H
#define RN_TENSOR_LAYOUT_H

#include <ration/tensor.h>

#include "base/workers.h"

#include <stddef.h>

// The tensors that a weight is in its file. All but int8, int4, nf4 and nf4_dq have
// the data alone.
typedef enum rn_component {
    RN_COMPONENT_DATA,
    RN_COMPONENT_SCALE, // f32: int8 (rows), int4 (groups), nf4 (blocks of 64; absmax); u8: nf4_dq
    RN_COMPONENT_SHIFT, // f32: int4 (groups); nf4_dq: scales of absmax, and what shifts it
    RN_COMPONENT_COUNT
} rn_component;

// ---- layouts ------------------------------------------------------------------------------------

// What a layout's packer keeps between two pieces: its own affair.
typedef union rn_packer_room {
    max_align_t align;
    unsigned char bytes[512];
} rn_packer_room;

typedef struct rn_layout_info {
    const char *name;
    // As rn_layout_bytes.
    bool (*bytes)(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes);
    // Begins to pack a weight at `target` (`bytes` of it, on a 64-byte boundary). `workers` share
    // long pieces out; NULL: alone. RN_INVALID where there is no such layout.
    rn_status (*begin)(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target);
    // The next bytes of a part as the file has them: pieces of a part come in order, parts in any.
    // RN_INVALID for any other.
    rn_status (*take)(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes);
    // Rows of the file's data that are packed fastest together; NULL: it does not matter.
    uint64_t (*rows_together)(rn_dtype dtype);
    // Kernels that want a weight of one part so take it plain, too, with the same result.
    bool takes_plain;
} rn_layout_info;

// NULL: plain.
typedef const rn_layout_info *rn_layout;

// Dense rows, as files have them; int8, int4, nf4 and nf4_dq with their scales behind the data,
// each part on a 64-byte boundary.
#define RN_LAYOUT_PLAIN ((rn_layout)NULL)
// (N, K) in panels of 16 rows, tensor/panels.h.
extern const rn_layout_info rn_panels_layout;
#define RN_LAYOUT_PANELS (&rn_panels_layout)
// f32, i8 or u8 (K, N) in panels of 16 columns, tensor/column_panels.h.
extern const rn_layout_info rn_column_panels_layout;
#define RN_LAYOUT_COLUMN_PANELS (&rn_column_panels_layout)
// f32, f16 or bf16 (O, C, KH, KW) in panels of 16 outputs, tensor/conv_panels.h.
//
// Here rows are O, cols are C * KH * KW.
extern const rn_layout_info rn_conv_panels_layout;
#define RN_LAYOUT_CONV_PANELS (&rn_conv_panels_layout)
// f16 or bf16 (O, C, KH, KW) as (O, KH, KW, C), tensor/conv_channels.h.
extern const rn_layout_info rn_conv_channels_layout;
#define RN_LAYOUT_CONV_CHANNELS (&rn_conv_channels_layout)
// (N, K) as the matrix units of GPUs take it, tensor/tiles.h.
extern const rn_layout_info rn_tiles_layout;
#define RN_LAYOUT_TILES (&rn_tiles_layout)

const char *rn_layout_name(rn_layout layout);
// Bytes of a (rows, cols) matrix (rows = 1 for anything of another rank), scales included; false
// where it overflows, is not in whole blocks, or the dtype has no such layout.
bool rn_layout_bytes(rn_layout layout, rn_dtype dtype, uint64_t rows, uint64_t cols,
                     uint64_t *out_bytes);

// Where each part lies in the PLAIN form, and how long it is (as in the file, tensor/quant.h).
typedef struct rn_plain_components {
    uint64_t offset[RN_COMPONENT_COUNT]; // each a multiple of 64
    uint64_t bytes[RN_COMPONENT_COUNT];  // 0: there is no such part
    uint64_t total_bytes;                // to the end of the last part
} rn_plain_components;

// False as rn_layout_bytes is.
bool rn_plain_components_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_plain_components *out);

#endif
