// weight_forms.h — weights that a quantised Hugging Face checkpoint keeps as several tensors, seen
// as one weight of a kind that products take.
//
//     RN_TRY(rn_checkpoint_find_forms(checkpoint, &config));       // once, before it is shared
//     const rn_weight_form *form = rn_checkpoint_form(checkpoint,
//     "model.layers.0.mlp.up_proj.weight"); RN_TRY(rn_weight_form_read(checkpoint, form, 0,
//     form->rows, take, self));
//
// o, i are the weight's rows and columns, g the columns of a group, n = 32 / bits numbers an i32:
//
//     form     tensors of X.weight                                               becomes
//     fp8      X.weight e4m3 (o, i), X.weight_scale_inv or X.weight_scale:        f8_b128, f8_b32
//              tiles (o/128, i/128), rows (o, 1) or one, which ComfyUI calls
//              X.scale_weight; or of all experts of a
//              layer X e4m3 (E, o, i), X_scale_inv (E, o/128, i/128)
//     int8     X.weight i8 (o, i), X.weight_scale (o, i/g)                        int8 | q8_0
//     packed   X.weight_packed i32 (o, i/n), X.weight_scale (o, i/g),             q4_0, q8_0 |
//              X.weight_shape (2), X.weight_zero_point i32 (o/n, i/g) or none     int4, u4_b32
//     gptq     X.qweight i32 (i/n, o), X.qzeros i32 (i/g, o/n),                   the same;
//              X.scales (i/g, o), X.g_idx i32 (i) or none                         out of order: f16
//     awq      X.qweight i32 (i, o/8), X.qzeros i32 (i/g, o/8), X.scales (i/g, o)  int4, u4_b32
//     nvfp4    X.weight or X.weight_packed u8 (o, i/2), X.weight_scale e4m3        fp4_b64
//              (o, i/16), X.weight_scale_2 (a factor) or X.weight_global_scale (a divisor)
//     mxfp4    X_blocks u8 (..., i/32, 16), X_scales u8 (..., i/32), of X;         mxfp4
//              or X.weight_packed u8 (o, i/2), X.weight_scale e8m0 (o, i/32)
//     nbits    u8 (o, i/g, g/2), scales f32 or f16 (o * i/g), zeros u8, two a      q4_0, u4_b32
//              byte, (o, i/g/2) or none: ONNX Runtime's MatMulNBits, whose graph
//              names them (rn_checkpoint_add_forms)
//     linear   i8 or u8 (o, i), scale f32: one, (o) or (i); zero of the data's     f32
//              dtype and the scale's shape, or none: ONNX's DequantizeLinear of a
//              weight, whose graph names them
//
// The numbers are the same to the last bit, but where a symmetric 4- or 8-bit form has bf16 scales
// below 2^-17 (they become f16) and where it says f16. Shapes that have no whole blocks of the kind
// become f32. What a weight becomes depends on headers, the configuration and g_idx alone, so that
// plans are exact; scales and zeros are looked at when they are read.
//
// Experts are forms of their own, and together one with the name "....experts.*....": its rows are
// theirs, one expert behind the other. They become kinds whose matrices are runs of bytes (not
// int4, not int8), so that such a stack is one weight.
#ifndef RN_IO_WEIGHT_FORMS_H
#define RN_IO_WEIGHT_FORMS_H

#include <ration/checkpoint.h>

#include "tensor/layout.h"

// What follows a weight's name in the name of one of its tensors, as rn_convert writes int8, int4
// (optimum-quanto's words), nf4 and nf4_dq (bitsandbytes'): "._scale". "" is the weight's own name,
// NULL says that the kind has no such component.
const char *rn_component_suffix(rn_dtype dtype, rn_component component);

// Who wrote the checkpoint: "quantization_config" of config.json.
typedef enum rn_forms_method {
    RN_FORMS_NONE, // no such weights: nothing is looked for
    RN_FORMS_FP8,  // also fbgemm's
    RN_FORMS_COMPRESSED_TENSORS,
    RN_FORMS_GPTQ,
    RN_FORMS_AWQ,
    RN_FORMS_MODELOPT,
    RN_FORMS_MXFP4,
    RN_FORMS_SCALED // files of image models: what has a scale beside it is a form, all else is
                    // plain
} rn_forms_method;

typedef struct rn_forms_config {
    rn_forms_method method;
    uint32_t bits;       // 0: it is not said
    uint32_t group;      // columns; 0: not said, or a whole row
    uint32_t tile[2];    // fp8: rows and columns of a scale; 0: not said
    bool symmetric;      // gptq: every zero is the middle
    bool zeros_are_true; // gptq_v2: files have zeros as they are, not one less
} rn_forms_config;

typedef enum rn_form_kind {
    RN_FORM_FP8,
    RN_FORM_INT8,
    RN_FORM_PACKED,
    RN_FORM_GPTQ,
    RN_FORM_AWQ,
    RN_FORM_NVFP4,
    RN_FORM_MXFP4,
    RN_FORM_NBITS,
    RN_FORM_LINEAR,
    RN_FORM_KINDS
} rn_form_kind;

typedef struct rn_weight_form {
    rn_str name; // X.weight
    rn_form_kind kind;
    rn_dtype dtype;       // what it becomes
    uint64_t rows, cols;  // all but the last axis of mxfp4's blocks are rows
    uint64_t group;       // columns of a scale
    uint64_t group_count; // of a row
    uint64_t scale_rows;  // rows that a scale is for: 1; fp8: of a tile
    uint32_t bits;
    bool symmetric;     // no zeros are read: they are the middle
    bool zero_plus_one; // gptq
    bool divides;       // by `factor`
    // NULL: there is none. `order` is g_idx, where groups are not runs of columns.
    const rn_tensor_info *data, *scale, *zero, *order, *factor, *shape;
    const rn_tensor_info *ordered; // g_idx, where they are
    // A stack: those of its experts, and all else as the first has it, but rows and name.
    const struct rn_weight_form *const *experts; // (expert_count), or NULL
    uint32_t expert_count;
} rn_weight_form;

// Finds the checkpoint's forms and holds what reading them needs (up to some MiB, charged to io).
// RN_NOT_FOUND, RN_CORRUPT, RN_UNSUPPORTED name the tensor. Once, before anybody else uses the
// checkpoint.
RN_MUST_USE rn_status rn_checkpoint_find_forms(rn_checkpoint *checkpoint,
                                               const rn_forms_config *config);
// Forms that a model's graph names: `items` with names that live as long as the checkpoint. In
// place of rn_checkpoint_find_forms, before anybody else uses the checkpoint.
RN_MUST_USE rn_status rn_checkpoint_add_forms(rn_checkpoint *checkpoint,
                                              const rn_weight_form *items /* (count) */,
                                              size_t count);
// NULL: the weight is no such form.
const rn_weight_form *rn_checkpoint_form(const rn_checkpoint *checkpoint, const char *name);
// The number `index` of them; NULL behind the last.
const rn_weight_form *rn_checkpoint_form_at(const rn_checkpoint *checkpoint, size_t index);
// The tensors of a form that is no stack, at most RN_FORM_TENSORS; returns how many.
#define RN_FORM_TENSORS 7
size_t rn_weight_form_tensors(const rn_weight_form *form,
                              const rn_tensor_info *out[RN_FORM_TENSORS]);

// Bytes of a component as tensor/layout.h has it for the form's dtype, in order.
typedef rn_status (*rn_form_piece)(void *self, rn_component component, uint64_t offset,
                                   const void *data, uint64_t bytes);
// Rows [first, first + rows) in pieces; of int8 and int4 all rows. RN_CORRUPT: a scale that is not
// finite, zeros that contradict the configuration. RN_IO: the file has changed. Any thread, one
// after the other.
RN_MUST_USE rn_status rn_weight_form_read(const rn_checkpoint *checkpoint,
                                          const rn_weight_form *form, uint64_t first, uint64_t rows,
                                          rn_form_piece piece, void *self);

#endif
