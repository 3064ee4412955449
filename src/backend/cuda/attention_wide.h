// attention_wide.h — attention of a head of more dims than a kernel keeps in registers, by
// products.
#ifndef RN_BACKEND_CUDA_ATTENTION_WIDE_H
#define RN_BACKEND_CUDA_ATTENTION_WIDE_H

#include "graph/op.h"

enum { RN_ATTENTION_DIMS = 256 }; // at most, elsewhere

bool rn_attention_is_wide(const rn_call *call); // an ATTENTION call
uint64_t rn_attention_wide_workspace(const rn_call *call);
// RN_UNSUPPORTED: several heads, or a mask.
RN_MUST_USE rn_status rn_attention_wide(const rn_call *call);
// Of an ATTENTION_GRAD call: all queries at once.
uint64_t rn_attention_wide_grad_workspace(const rn_call *call);
RN_MUST_USE rn_status rn_attention_wide_grad(const rn_call *call);

#endif
