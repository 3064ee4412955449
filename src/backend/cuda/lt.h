// lt.h — products of 16-bit matrices by NVIDIA's cuBLASLt, found when the first one is asked for.
//
//     rn_lt_product product = {.m = tokens, .n = 4096, .k = 4096, .batch = 1, .type =
//     RN_DTYPE_BF16,
//                              .out_type = RN_DTYPE_BF16, .x = x, .w = w, .y = y};
//     bool done;
//     RN_TRY(rn_lt_run(call, &product, workspace, bytes, &done)); // !done: our own kernels
//
// The library is never linked and need not be there: $RATION_CUBLASLT ("none": do without), or
// libcublasLt.so.13 or .12. Sums are in f32. The algorithm is a function of the product's sizes,
// types and alignment, chosen once among those that give the same bits in every run (no atomics)
// and fit the workspace; it allocates nothing. What the library itself keeps on the device (code)
// is measured after each first use: (cuda:N, unaccounted).
#ifndef RN_BACKEND_CUDA_LT_H
#define RN_BACKEND_CUDA_LT_H

#include "backend/cuda/driver.h"
#include "graph/op.h"

#include <pthread.h>

typedef struct rn_lt_algorithm { // cublasLtMatmulAlgo_t
    uint64_t data[8];
} rn_lt_algorithm;

typedef struct rn_lt_found { // cublasLtMatmulHeuristicResult_t
    rn_lt_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} rn_lt_found;
_Static_assert(sizeof(rn_lt_found) == 96, "cublasLtMatmulHeuristicResult_t");

typedef struct rn_lt_library {
    void *library;
#define RN_LT(field, symbol, arguments) int(*field) arguments;
#include "backend/cuda/lt.def"
#undef RN_LT
} rn_lt_library;

// Y = X W + bias + addend, row-major: X (m, k) is x or its transpose, W (k, n) is w's transpose, or
// w itself with transpose_w. Y may be the addend.
typedef struct rn_lt_product {
    uint64_t m, n, k, batch;
    uint64_t x_stride, w_stride, y_stride; // elements from row to row; 0: dense
    uint64_t w_batch;                      // elements from one w to the next; 0: one for all
    rn_dtype type, out_type;               // of x and w: bf16 or f16; of bias, addend, y: or f32
    bool transpose_x, transpose_w;         // x is (k, m); w is (k, n)
    const void *x, *w;                     // (batch, ...), dense from batch to batch
    const void *bias;                      // (n) or NULL
    const void *addend;                    // (batch, m, n) or NULL
    void *y;                               // (batch, m, n)
} rn_lt_product;

enum { RN_LT_SHAPES = 1024, RN_LT_PLACES = 4096 };

typedef struct rn_lt_shape { // all that an algorithm depends on, without padding
    uint64_t m, n, k, batch, x_stride, w_stride, y_stride, w_batch, workspace_bytes;
    uint32_t type, out_type, transposes, alignment, has_bias, adds;
} rn_lt_shape;

typedef struct rn_lt_entry {
    rn_lt_shape shape;
    void *of_w, *of_x, *of_y; // layouts
    void *product;            // of a product without a bias, whose address it would have; or NULL
    rn_lt_algorithm algorithm;
    bool is_served; // an algorithm was found
} rn_lt_entry;

// Of a device.
typedef struct rn_lt {
    pthread_mutex_t lock; // of what follows; not held while work is submitted
    bool is_known;        // whether the library is there
    rn_lt_library functions;
    void *handle;        // NULL: it is not
    rn_lt_entry *shapes; // (RN_LT_SHAPES), the first `count` in use; they stay
    uint32_t count;
    uint16_t places[RN_LT_PLACES]; // by hash: the number of a shape and 1; 0: free
} rn_lt;

void rn_lt_init(rn_lt *lt);
void rn_lt_close(rn_lt *lt); // inside the device's context

// What a product's workspace should have: by its sizes alone, with room to align it.
uint64_t rn_lt_workspace(uint64_t m, uint64_t n, uint64_t batch);
// Submits it to the call's stream. *out_done false: the library is absent or has no algorithm for
// this product. RN_DEVICE, RN_NO_MEMORY.
RN_MUST_USE rn_status rn_lt_run(const rn_call *call, const rn_lt_product *product, void *workspace,
                                uint64_t workspace_bytes, bool *out_done);

#endif
