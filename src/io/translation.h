// translation.h — what a model's tensors and metadata are called in another container: made by who
// knows models (model/text/), carried out by the conversion.
#ifndef RN_IO_TRANSLATION_H
#define RN_IO_TRANSLATION_H

#include <ration/writer.h>

#include "io/weight_forms.h"

// How values change places. Rope turns pairs within each head: (i, i + half) in Hugging Face's
// files, neighbours (2i, 2i + 1) in some of GGUF's, whose rows of q and k are permuted so.
typedef enum rn_arrangement {
    RN_ARRANGED,              // as they are
    RN_ARRANGE_AS_NEIGHBOURS, // rows of each head: i goes to 2i, i + half to 2i + 1
    RN_ARRANGE_AS_HALVES,     // and back
    RN_ARRANGE_TRANSPOSED,    // (in, out) becomes (out, in)
    RN_ARRANGE_ROWS,          // blocks of rows in another order
    RN_ARRANGE_COLUMNS        // blocks of columns
} rn_arrangement;

// What becomes of every value: rates of forgetting, which one container holds as logarithms.
typedef enum rn_value_change {
    RN_VALUES_KEPT,
    RN_VALUES_NEG_EXP,
    RN_VALUES_LOG_NEG
} rn_value_change;

// What a tensor of the source is in the output.
typedef struct rn_converted_tensor {
    rn_str name; // without bytes: it is left out
    rn_arrangement arrangement;
    uint64_t head_rows;    // of a head or a block, where rows (or columns) change places
    const uint32_t *order; // (blocks) of RN_ARRANGE_ROWS and _COLUMNS: the source's for each of the
                           // output's
    const uint64_t *dims;  // (rank) in the output, of as many elements; NULL: as they are
    uint32_t rank;
    uint64_t skip_rows; // at the beginning, which are left out
    rn_value_change change;
    float add; // to every value: norms that one container holds less one
    // Not the tensor but the quantised weight that it is a part of: for who makes the translation,
    // which has it among `assembled`.
    const rn_weight_form *form;
} rn_converted_tensor;

// Some rows of a tensor: all its axes but the last taken together.
typedef struct rn_converted_rows {
    size_t tensor;                   // of the source, ...
    const rn_checkpoint *checkpoint; // ... or a weight that a quantised checkpoint keeps as
    const rn_weight_form *form;      // several tensors, of which `tensor` is one
    bool of_one;                     // a row is one element: vectors
    uint64_t first, step, count;     // rows first, first + step, ...
    bool transposed;                 // (count, columns) becomes (columns, count)
} rn_converted_rows;

// What of rows of mxfp4 is taken.
typedef enum rn_row_part {
    RN_ROWS_WHOLE,
    RN_ROWS_CODES,    // two a byte, neighbours together: u8 (columns / 2), as Hugging Face has them
    RN_ROWS_EXPONENTS // of their blocks: u8 (columns / 32)
} rn_row_part;

// A tensor that is made of rows of others: the stack of a layer's experts, or one expert of it.
typedef struct rn_assembled_tensor {
    rn_str name;
    const uint64_t *dims; // (rank)
    uint32_t rank;
    rn_row_part part;
    const rn_converted_rows *rows; // (count), one behind the other; or groups of `in_turn` that
    size_t count;                  // give a row each in turn. Rows of one group are as many.
    uint32_t in_turn;              // 1 or 2
    bool is_record;                // it lies behind all that is none, in the order given
} rn_assembled_tensor;

typedef struct rn_translation {
    const rn_converted_tensor *tensors;   // (tensors of the source), in its order
    const rn_assembled_tensor *assembled; // (assembled_count): further ones
    size_t assembled_count;
    const rn_metadata *metadata; // (metadata_count): the output's
    size_t metadata_count;
    const rn_write_tensor *constants; // (constant_count): further tensors of f32, small ones,
    const float *const *values;       // (constant_count) and their values
    size_t constant_count;
} rn_translation;

#endif
