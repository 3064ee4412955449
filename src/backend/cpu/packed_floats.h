// packed_floats.h — the kernels of products whose weights are numbers in f32: f32, f16, bf16,
// f8_e4m3, int4, nf4 and nf4_dq, a table for each instruction level. Private to the packed product.
//
// For few rows of x weights are widened in registers and used at once. For many, rn_gemm_run
// (gemm.h) takes panels of f32, which `unpack` makes. Both are one chain of fused multiply-adds
// over k and give the same bits. The portable level has no kernels for few rows: its chain is
// gemm's.
#ifndef RN_BACKEND_CPU_PACKED_FLOATS_H
#define RN_BACKEND_CPU_PACKED_FLOATS_H

#include <ration/tensor.h>

typedef enum rn_float_form {
    RN_FLOAT_F32,
    RN_FLOAT_F16,
    RN_FLOAT_BF16,
    RN_FLOAT_E4M3,
    RN_FLOAT_INT4,
    RN_FLOAT_NF4,
    RN_FLOAT_NF4_DQ,
    RN_FLOAT_FORMS
} rn_float_form;

// A few rows of x by a few panels.
typedef struct rn_float_job {
    const uint8_t *weights; // the first panel
    uint64_t panel_bytes;   // from panel to panel
    uint64_t unit_cols;     // int4: a group
    uint64_t unit_bytes;    // int4: of a group
    const float *x;         // (rows, depth)
    uint64_t x_row;         // floats from row to row
    uint64_t depth;         // columns of w
    float *y;               // (rows, cols)
    uint64_t y_row;
    uint32_t cols;     // 1 .. 16 a panel
    const float *bias; // (cols), NULL: none
} rn_float_job;

typedef void rn_float_kernel(const rn_float_job *job);

#define RN_FLOAT_SIZES 3

typedef struct rn_float_kernels {
    uint32_t sizes[RN_FLOAT_SIZES]; // rows of x that a kernel takes, largest first, ending with 1
    uint32_t direct_rows;           // rows of x up to which these kernels are faster; 0: never
    uint32_t panels;                // that `many` takes at once
    rn_float_kernel *direct[RN_FLOAT_FORMS][RN_FLOAT_SIZES]; // one panel
    rn_float_kernel *many[RN_FLOAT_FORMS][RN_FLOAT_SIZES];   // `panels` panels; or NULL
    // Columns [k, k + depth) of a panel, k a multiple of 8: to[depth][16]. unit_cols and unit_bytes
    // are int4's.
    void (*unpack)(rn_float_form form, const uint8_t *panel, uint64_t unit_cols,
                   uint64_t unit_bytes, uint64_t k, uint64_t depth, float *to);
} rn_float_kernels;

extern const rn_float_kernels rn_float_portable;
extern const rn_float_kernels rn_float_avx2;   // x86-64 builds only
extern const rn_float_kernels rn_float_avx512; // x86-64 builds only

#endif
