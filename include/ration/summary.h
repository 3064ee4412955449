// summary.h — a checkpoint's totals by block (layer) and by dtype.
#ifndef RATION_SUMMARY_H
#define RATION_SUMMARY_H

#include <ration/checkpoint.h>

RN_BEGIN_DECLS

typedef struct rn_summary_line {
    rn_str name; // a block ("model.layers.3") or a dtype; borrowed from the checkpoint
    uint64_t tensors, elements, bytes;
} rn_summary_line;

typedef struct rn_summary {
    rn_summary_line *blocks; // (block_count), in natural order: layer 2 before layer 10
    size_t block_count, block_capacity;
    rn_summary_line dtypes[RN_DTYPE_COUNT]; // (dtype_count), largest first
    size_t dtype_count;
    uint64_t elements, bytes;
} rn_summary;

// A tensor's block is its name up to and with the first number that stands between dots ("blk.3"),
// or without one, its name without the last part ("model.embed_tokens").
RN_API rn_str rn_block_of(rn_str tensor_name);
RN_API RN_MUST_USE rn_status rn_summary_make(const rn_checkpoint *checkpoint, rn_summary *out);
RN_API void rn_summary_free(rn_summary *summary);
// Compares names with numbers by value; like strcmp.
RN_API int rn_natural_compare(rn_str a, rn_str b);

RN_END_DECLS

#endif
