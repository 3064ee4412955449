// kinds.h — quantised weights that products take as they are: a row a kind.
//
// A product with such a weight rounds its activations to int8 (graph/quantized_product.h has the
// meaning of each kind); CPU kernels read it from panels (tensor/panels.h). Tables, switches and
// names over kinds are made of these rows. To add a kind: a row here, its meaning in
// graph/quantized_product.c, and how a kernel cuts weights and scales out of a unit:
// backend/cpu/packed_int_portable.c and packed_int_vector.h.
#ifndef RN_TENSOR_KINDS_H
#define RN_TENSOR_KINDS_H

// ROW(dtype, name, sum, offset, unit...):
//     sum      how a block of 32 enters the result: RN_INT_... of backend/cpu/packed_ints.h
//     offset   by how much a number in a panel is above the weight's
//     unit     rn_panel_form (tensor/panel_form.h): columns, file bytes, unit bytes | words: in
//              file, in unit, count, flip | 16-bit scale: in file, in unit
#define RN_ROUNDED_KINDS(ROW)                                                                      \
    ROW(INT8, int8, PLAIN, 128, 32, 32, 512, 0, 0, 8, 0x80808080u, RN_NO_HALF, 0)                  \
    ROW(Q8_0, q8_0, SCALED, 128, 32, 34, 544, 2, 32, 8, 0x80808080u, 0, 0)                         \
    ROW(Q4_0, q4_0, SCALED, 8, 32, 18, 288, 2, 32, 4, 0, 0, 0)                                     \
    ROW(Q4_K, q4_k, MINNED, 0, 256, 144, 2304, 0, 0, 36, 0, RN_NO_HALF, 0)                         \
    ROW(Q5_K, q5_k, MINNED, 0, 256, 176, 2816, 0, 0, 44, 0, RN_NO_HALF, 0)                         \
    ROW(Q6_K, q6_k, PARTED, 32, 256, 210, 3360, 0, 0, 52, 0, 208, 3328)

#endif
