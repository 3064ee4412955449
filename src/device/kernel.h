// kernel.h — one op on one device: run it, and say beforehand what it needs.
//
// A back end is a table with a row an op; a row of NULLs is "unsupported". `workspace` is a pure
// function of the call's op, attributes, shapes, dtypes, layouts, threads and slice_rows: data
// pointers are NULL while planning. A kernel never allocates.
#ifndef RN_DEVICE_KERNEL_H
#define RN_DEVICE_KERNEL_H

#include "graph/op.h"

typedef struct rn_kernel {
    rn_status (*run)(const rn_call *call);
    uint64_t (*workspace)(const rn_call *call); // NULL: none
} rn_kernel;

// How one launch of a product is cut into tiles: a block has a tile of weights' rows and tokens,
// and walks along columns. What it must bring for each column are the tile's two sides.
typedef struct rn_product_cut {
    uint64_t blocks;
    uint64_t columns;       // that a block walks along
    uint32_t rows, tokens;  // of a tile
    uint32_t together;      // blocks that a multiprocessor has at once
    uint32_t weights;       // that the launch takes, of those in tiles: in their order
    uint64_t partial_bytes; // of sums of parts, which another launch joins; 0: there are no parts
} rn_product_cut;
enum { RN_PRODUCT_CUTS = 3 };

// What the planner may know of a device: a plain value, so that planning needs no device.
typedef struct rn_device_caps {
    char name[32];       // "cpu", "sim"
    char hardware[64];   // "NVIDIA H200"; "": the name says all
    rn_device_id device; // of the ledger
    uint32_t threads;
    uint64_t memory_bytes;    // 0: no limit of its own
    const rn_kernel *kernels; // (RN_OP_COUNT)
    // The layout in which input `input` of `op` wants a weight of this dtype; PLAIN for anything
    // else.
    rn_layout (*weight_layout)(const rn_call *call, uint32_t input);
    bool own_memory; // weights must be uploaded; false: the host's memory is the device's
    // A product's weight of one part and at least so many bytes is streamed as its file has it:
    // kernels that want it in panels take it plain, too, with the same result. 0: none. Not for
    // devices of their own memory.
    uint64_t raw_weight_bytes;
    // A table of embeddings of one part and at least so many bytes is not held: the rows that a run
    // asks for are read before it. 0: none.
    uint64_t row_table_bytes;
    // Weights of a block are read in units of up to so many bytes; 0: 4 MiB.
    uint64_t unit_bytes;
    bool fuses;               // has kernels for PROJECT* and ATTEND: graphs are rewritten (fuse.h)
    uint32_t multiprocessors; // among which products are cut; 0: as if evenly
    // The launches of a product with weights in tiles, at most RN_PRODUCT_CUTS; 0: it is not cut
    // into tiles (few rows). Reads no data. NULL: as if evenly.
    uint32_t (*cut_product)(const rn_call *call, uint32_t multiprocessors, rn_product_cut *out);
    // Measured rates (`ration calibrate`), never 0.
    double flops;               // f32 multiply-adds count two
    double quantized_flops;     // int8 products
    double memory_bytes_second; // reading weights
    double disk_bytes_second;
    double link_bytes_second;     // host to device
    double step_seconds;          // fixed cost of a kernel
    double product_rows;          // a product takes as long as one of so many rows more
    double unpack_weights_second; // of weights of four bits in tiles; 0: as fast as memory
    double unpack_bytes_second;   // of weights of eight bits in tiles; 0: as fast as memory
    double attend_flops;          // attention of many rows where it fuses; 0: as products
    double attend_seconds;        // what that takes at least, beside its kernels
    double run_seconds;           // the host's part of a run, beside its outputs'
    double beside_link; // the CPU's: of its speed, what it has while a link is busy; 0: all
    double link_share;  // of its link's rate, what is left while the CPU computes; 0: all
} rn_device_caps;

#endif
