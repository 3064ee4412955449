// kinds.h — quantised weights that products take as they are: a row a kind.
//
// A product with such a weight rounds its activations to int8 (graph/quantized_product.h has the
// meaning of each kind); CPU kernels read it from panels (tensor/panels.h). Tables, switches and
// names over kinds are made of these rows. To add a kind: a row here, its meaning in
// graph/quantized_product.c, and how a kernel cuts weights and scales out of a unit:
// backend/cpu/packed_int_weights.h. (The portable kernel reads by the meaning.)
#ifndef RN_TENSOR_KINDS_H
#define RN_TENSOR_KINDS_H

// ROW(dtype, name, sum, offset, most, unit...):
//     sum      how a block of 32 enters the result: RN_INT_... of backend/cpu/packed_ints.h
//     offset   by how much a number as kernels multiply it is above the weight's
//     most     the largest such number
//     unit     rn_panel_form (tensor/panel_form.h): columns, file bytes, unit bytes | words: in
//              file, in unit, count, flip | scale: bytes, in file, in unit
// What most files hold, what many hold, and what few do: the CPU has kernels for more numbers of
// rows at once for the first (backend/cpu/packed_int_vector.h), since each takes long to compile.
#define RN_ROUNDED_KINDS_MOST(ROW)                                                                 \
    ROW(INT8, int8, PLAIN, 128, 255, 32, 32, 512, 0, 0, 8, 0x80808080u, 0, 0, 0)                   \
    ROW(Q8_0, q8_0, BYTES, 128, 255, 32, 34, 544, 2, 32, 8, 0x80808080u, 2, 0, 0)                  \
    ROW(Q4_0, q4_0, SCALED, 8, 15, 32, 18, 288, 2, 32, 4, 0, 2, 0, 0)                              \
    ROW(Q4_K, q4_k, MINNED, 0, 15, 256, 144, 2304, 0, 0, 36, 0, 0, 0, 0)                           \
    ROW(Q5_K, q5_k, MINNED, 0, 31, 256, 176, 2816, 0, 0, 44, 0, 0, 0, 0)                           \
    ROW(Q6_K, q6_k, PARTED, 32, 63, 256, 210, 3360, 0, 0, 52, 0, 2, 208, 3328)
#define RN_ROUNDED_KINDS_MANY(ROW)                                                                 \
    ROW(Q5_0, q5_0, SCALED, 16, 31, 32, 22, 352, 2, 32, 5, 0, 2, 0, 0)                             \
    ROW(Q4_1, q4_1, MINNED, 0, 15, 32, 20, 320, 0, 0, 5, 0, 0, 0, 0)                               \
    ROW(Q5_1, q5_1, MINNED, 0, 31, 32, 24, 384, 0, 0, 6, 0, 0, 0, 0)                               \
    ROW(IQ4_NL, iq4_nl, BYTES, 128, 255, 32, 18, 288, 2, 32, 4, 0, 2, 0, 0)                        \
    ROW(MXFP4, mxfp4, SCALED, 12, 24, 32, 17, 272, 1, 16, 4, 0, 1, 0, 0)                           \
    ROW(Q2_K, q2_k, PARTED_MINNED, 0, 3, 256, 84, 1344, 0, 0, 21, 0, 0, 0, 0)                      \
    ROW(Q3_K, q3_k, PARTED, 4, 7, 256, 110, 1760, 0, 0, 27, 0, 2, 108, 1728)                       \
    ROW(IQ4_XS, iq4_xs, BYTES, 128, 255, 256, 136, 2176, 0, 0, 34, 0, 0, 0, 0)
#define RN_ROUNDED_KINDS_FEW(ROW)                                                                  \
    ROW(NVFP4, nvfp4, PARTED, 12, 24, 64, 36, 576, 0, 0, 9, 0, 0, 0, 0)                            \
    ROW(Q1_0, q1_0, SCALED, 1, 2, 128, 18, 288, 2, 32, 4, 0, 2, 0, 0)                              \
    ROW(Q2_0, q2_0, SCALED, 1, 3, 64, 18, 288, 2, 32, 4, 0, 2, 0, 0)                               \
    ROW(TQ1_0, tq1_0, SCALED, 1, 2, 256, 54, 864, 0, 0, 13, 0, 2, 52, 832)                         \
    ROW(TQ2_0, tq2_0, SCALED, 1, 3, 256, 66, 1056, 0, 0, 16, 0, 2, 64, 1024)
#define RN_ROUNDED_KINDS(ROW)                                                                      \
    RN_ROUNDED_KINDS_MOST(ROW) RN_ROUNDED_KINDS_MANY(ROW) RN_ROUNDED_KINDS_FEW(ROW)

#endif
