// double_quant.h — what bitsandbytes says of a weight of nf4 with double quantisation, beside the
// tensors that are its parts: NAME.quant_state.bitsandbytes__nf4 has the offset of its scales, and
// NAME.nested_quant_map the map of their codes.
#ifndef RN_IO_DOUBLE_QUANT_H
#define RN_IO_DOUBLE_QUANT_H

#include <ration/checkpoint.h>

// What is added to the scales of weight `name`. RN_NOT_FOUND, RN_CORRUPT: there is no such
// description; RN_UNSUPPORTED: blocks are not of 64 and 256, or the codes are of another map.
RN_MUST_USE rn_status rn_double_quant_offset(const rn_checkpoint *checkpoint, const char *name,
                                             float *out_offset);

#endif
