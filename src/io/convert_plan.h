// convert_plan.h — what a conversion will do with every tensor, decided before anything is read or
// written.
#ifndef RN_IO_CONVERT_PLAN_H
#define RN_IO_CONVERT_PLAN_H

#include <ration/convert.h>
#include <ration/writer.h>

#include "base/arena.h"
#include "io/assembled_rows.h"
#include "io/file_type.h"
#include "io/importance.h"
#include "io/translation.h"

#define RN_NO_TENSOR UINT32_MAX

typedef struct rn_convert_item {
    const rn_tensor_info *source;
    size_t index;  // of the source's tensors: of the first, where it is assembled
    size_t number; // of assembled ones with the same index
    // Made of rows of several: `source` is then what they are together, without a place in a file.
    const rn_assembled_tensor *assembled; // or NULL
    rn_assembled_info rows;
    bool is_record;       // one of an expert's matrices, behind all else
    rn_str name;          // in the output
    const uint64_t *dims; // (rank) in the output
    uint32_t rank;
    rn_arrangement arrangement;
    uint64_t head_rows;       // see rn_converted_tensor
    const uint32_t *order;    // the same
    uint64_t region;          // elements that change places among each other; 0: none do
    rn_value_change change;   // of every value
    float add;                // to every value
    const float *importance;  // (importance_sets, columns), or NULL
    uint64_t importance_sets; // each for as many of the rows
    rn_dtype to;              // the source's own for a plain copy
    const char *left_alone;   // static text, or NULL
    uint64_t
        unit; // elements that are quantised together: a row, a group, a block; 1 for plain types
    uint32_t data;         // output tensor that is streamed
    uint32_t scale, shift; // output tensors beside it (absmax is a scale), or RN_NO_TENSOR
    uint32_t state; // nf4_dq: what describes it, known once its scales are; else RN_NO_TENSOR
    uint64_t bytes_out;
} rn_convert_item;

typedef struct rn_convert_plan {
    rn_arena arena;
    rn_convert_item *items; // (item_count), in the order of writing
    size_t item_count;
    rn_write_tensor *tensors; // (tensor_count)
    uint64_t *tensor_bytes;   // (tensor_count)
    const void **constants; // (tensor_count): the bytes of small tensors known beforehand, or NULL
    size_t tensor_count, tensor_capacity;
    rn_metadata *metadata; // (metadata_count)
    size_t metadata_count;
    rn_importances importances;
    const rn_file_type *file_type; // or NULL: one dtype for all
    bool to_gguf, packed;
    bool tensors_only; // see rn_convert_result
} rn_convert_plan;

// A weight whose row is longer than this stays as it is: int8 needs a whole row at once.
#define RN_CONVERT_MAX_UNIT ((uint64_t)128 << 10)

// Bytes that nf4_dq's description has room for; spaces behind it are as good as none.
#define RN_CONVERT_STATE_BYTES 512
// bitsandbytes' description of the weight. `offset` is nf4_dq's; NULL: nf4's.
RN_MUST_USE rn_status rn_convert_describe_nf4(const rn_convert_item *item, const float *offset,
                                              rn_sink sink);

// `translation` is NULL where names and metadata stay as they are; borrowed.
RN_MUST_USE rn_status rn_convert_plan_make(const rn_checkpoint *source, const char *out_path,
                                           const rn_convert_options *options,
                                           const rn_translation *translation, rn_convert_plan *out);
void rn_convert_plan_free(rn_convert_plan *plan);

#endif
