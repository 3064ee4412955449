// kernel.h — one op on one device: run it, and say beforehand what it needs.
//
// A back end is a table with a row an op; a row of NULLs is "unsupported". `workspace` is a pure
// function of the call's op, attributes, shapes, dtypes, layouts, threads and slice_rows: data
// pointers are NULL while planning. A kernel never allocates.
#ifndef RN_DEVICE_KERNEL_H
#define RN_DEVICE_KERNEL_H

#include <ration/device.h>

#include "graph/op.h"

typedef struct rn_kernel {
    rn_status (*run)(const rn_call *call);
    uint64_t (*workspace)(const rn_call *call); // NULL: none
} rn_kernel;

typedef struct rn_backend rn_backend; // device/registry.h

// What the planner may know of a device: a plain value, so that planning needs no device.
struct rn_device_caps {
    char name[32];       // "cpu", "sim"
    char hardware[64];   // "NVIDIA H200"; "": the name says all
    rn_device_id device; // of the ledger
    uint32_t threads;
    uint64_t memory_bytes;    // 0: no limit of its own
    const rn_kernel *kernels; // (RN_OP_COUNT); NULL where it compiles
    // Graphs are compiled as a whole (device/executable.h): it has rn_device.compile, and its back
    // end estimates what that takes.
    bool compiles;
    uint64_t most_rows; // of a run, where it compiles; 0: as many as are asked for
    // That run a program together, each with as many bytes, where it compiles; 0 or 1: one. Its
    // budget, and all that is planned and charged, is of all of them.
    uint32_t cores;
    // Executables keep no copies of weights that only make them faster (rn_backend.has_frugal). A
    // plan's caps say what was chosen.
    bool frugal;
    const rn_backend
        *backend; // whose device it is; NULL: nobody's, the common rates are all it has
    // The layout in which input `input` of `op` wants a weight of this dtype; PLAIN for anything
    // else.
    rn_layout (*weight_layout)(const rn_call *call, uint32_t input);
    bool own_memory; // weights must be uploaded; false: the host's memory is the device's
    // A product's weight of one part and at least so many bytes is streamed as its file has it:
    // kernels that want it in panels take it plain, too, with the same result. 0: none. Not for
    // devices of their own memory.
    uint64_t file_layout_bytes;
    // A table of embeddings of one part and at least so many bytes is not held: the rows that a run
    // asks for are read before it. 0: none.
    uint64_t row_table_bytes;
    // Weights of a block are read in weight groups of up to so many bytes; 0: 4 MiB.
    uint64_t group_bytes;
    uint32_t fusions; // rn_fusion: the fused ops that plans for it have (graph/fuse.h); 0: none
    // Measured rates (`ration calibrate`), never 0.
    double flops;               // f32 multiply-adds count two
    double quantized_flops;     // int8 products
    double memory_bytes_second; // reading weights
    double disk_bytes_second;
    double link_bytes_second; // host to device
    double step_seconds;      // fixed cost of a kernel
    double product_rows;      // a product takes as long as one of so many rows more
    double run_seconds;       // the host's part of a run, beside its outputs'
    double beside_link;       // the CPU's: of its speed, what it has while a link is busy; 0: all
    double link_share;        // of its link's rate, what is left while the CPU computes; 0: all
    double message_seconds;   // to another rank: of a short message; 0: not measured
    double message_bytes_second; // ... and of long ones
    double
        own[RN_OWN_RATES]; // what else its back end counts with: rn_backend.rates, and behind them
};

#endif
