// cost.h — what a call costs on a GPU, for plans: pure, so that they are made where there is none.
#ifndef RN_BACKEND_CUDA_COST_H
#define RN_BACKEND_CUDA_COST_H

#include "device/registry.h"

// Numbers of rn_device_caps.own: rates that are measured, then what the device is.
enum {
    RN_CUDA_UNPACK_WEIGHTS, // weights a second, of four bits in tiles; 0: as fast as memory
    RN_CUDA_UNPACK_BYTES,   // ... of eight bits
    RN_CUDA_ATTEND_FLOPS,   // attention of many rows; 0: as products
    RN_CUDA_ATTEND_SECONDS, // what that takes at least, beside its kernels
    RN_CUDA_RATES,
    RN_CUDA_MULTIPROCESSORS = RN_CUDA_RATES, // among which products are cut; 0: as if evenly
    RN_CUDA_HALF_FLOPS // of products in 16 bits of plain matrices (lt.h); 0: as of tiles
};
extern const rn_own_rate rn_cuda_rates[RN_CUDA_RATES];

// How one launch of a product is cut into tiles: a block has a tile of weights' rows and tokens,
// and walks along columns. What it must bring for each column are the tile's two sides.
typedef struct rn_product_cut {
    uint64_t blocks;
    uint64_t columns;      // that a block walks along
    uint32_t rows, tokens; // of a tile
    uint32_t together;     // blocks that a multiprocessor has at once
    uint32_t weights;      // that the launch takes, of those in tiles: in their order
    uint32_t handed; // segments whose sums go round among blocks that share a tile; 0: none does
} rn_product_cut;
enum { RN_PRODUCT_CUTS = 3 };

// The launches of a product with weights in tiles on a GPU with wgmma, at most RN_PRODUCT_CUTS; 0:
// it is not cut into tiles (few rows). Reads no data. In product.c.
uint32_t rn_cuda_cut_product(const rn_call *call, uint32_t multiprocessors, rn_product_cut *out);

// rn_backend.cost
double rn_cuda_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload);
// Of a product with weights in tiles that is cut into these launches; 0: not into tiles.
double rn_cuda_cost_product(const rn_device_caps *caps, const rn_call *call,
                            const rn_product_cut *cuts, uint32_t count);

#endif
