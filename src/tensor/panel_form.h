// panel_form.h — how a row's file bytes turn into a lane of a panel, for the types where that is a
// matter of moving 32-bit words: all but f16 and bf16 (16-bit words) and int4. Private to
// src/tensor.
//
// `file_bytes` of a row's file bytes make its lane of a unit. Word d of them (at file_dwords_at)
// goes to the unit's 64 bytes number d (at unit_dwords_at), exclusive-or `flip`; a scale of 8 or 16
// bits, if there is one, goes to the lanes of that width at unit_scale_at.
#ifndef RN_TENSOR_PANEL_FORM_H
#define RN_TENSOR_PANEL_FORM_H

#include "tensor/kinds.h"
#include "tensor/panels.h"

// int4: scales, shifts, then the nibbles.
#define RN_INT4_NIBBLES_AT 128

typedef struct rn_panel_form {
    uint16_t cols, file_bytes, unit_bytes; // of a unit; cols 0: no such form
    uint16_t file_dwords_at, unit_dwords_at, dwords;
    uint32_t flip;
    uint16_t scale_bytes, file_scale_at, unit_scale_at; // scale_bytes 0: none, 1 or 2
} rn_panel_form;

// Of the types that are no rows of tensor/kinds.h:
//                   columns, file bytes, unit bytes | dwords: in file, in unit, count, flip | scale
#define RN_PANEL_FORM_F32                                                                          \
    { 1, 4, 64, 0, 0, 1, 0, 0, 0, 0 }
#define RN_PANEL_FORM_F16                                                                          \
    { 8, 16, 256, 0, 0, 0, 0, 0, 0, 0 }
#define RN_PANEL_FORM_BF16                                                                         \
    { 8, 16, 256, 0, 0, 0, 0, 0, 0, 0 }
#define RN_PANEL_FORM_F8_E4M3                                                                      \
    { 32, 32, 512, 0, 0, 8, 0, 0, 0, 0 }
#define RN_PANEL_FORM_NF4                                                                          \
    { 64, 32, 576, 0, 64, 8, 0, 0, 0, 0 }

// Codes of absmax, a byte a lane, then nf4's words.
#define RN_PANEL_FORM_NF4_DQ                                                                       \
    { 64, 32, 528, 0, 16, 8, 0, 0, 0, 0 }

extern const rn_panel_form rn_panel_forms[RN_DTYPE_COUNT];

#endif
