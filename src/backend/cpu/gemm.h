// gemm.h — C = A Bᵀ + bias in f32 for operands that stand anywhere: rows of lanes over k.
//
// An operand has lanes (rows of A, columns of B) and k's; either the lanes or the k's are
// contiguous, so each of the four transposed forms is a choice of two steps. B may already be in
// panels (tile.h), or be packed by the caller's own function: patches of an image, say.
//
// Every output is one chain over k in order (tile.h): blocks and threads do not change a bit.
#ifndef RN_BACKEND_CPU_GEMM_H
#define RN_BACKEND_CPU_GEMM_H

#include "backend/cpu/tile.h"
#include "graph/op.h"

typedef struct rn_gemm_side {
    const float *data;        // NULL while planning
    size_t lane_step, k_step; // floats; one of them is 1
} rn_gemm_side;

// Packs k's [k, k + depth) of panel `panel` of B: to[k][16]. k is a multiple of 32.
typedef void (*rn_gemm_pack)(const void *source, size_t panel, size_t k, size_t depth, float *to);

typedef struct rn_gemm {
    size_t m, n, k;
    rn_gemm_side a, b;
    const float *b_panels; // B as panels of [k][16], one after the other; or NULL
    bool b_is_panels;      // b_panels holds B (it is NULL while planning)
    rn_gemm_pack pack;     // NULL: b or b_panels holds B
    const void *source;    // of pack
    float *c;              // (m, n)
    size_t c_row;          // floats from row to row
    const float *bias;     // (n) or NULL
    bool resume;           // go on with the sums in C
} rn_gemm;

// Bytes, a multiple of 64; pure in m, n, k, the kind of B and threads.
uint64_t rn_gemm_workspace(const rn_gemm *gemm, uint32_t threads);
// On the call's workers, with `workspace` for call->threads.
void rn_gemm_run(const rn_gemm *gemm, const rn_call *call, void *workspace);

#endif
