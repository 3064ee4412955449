// weights_internal.h — weights on their way, for the files that bring them.
//
//     weights.c       life; filling an entry       weights_list.c   what is to be read for an entry
//     weights_pack.c  file bytes to a layout       weights_rows.c   single rows of a table
#ifndef RN_RUNTIME_WEIGHTS_INTERNAL_H
#define RN_RUNTIME_WEIGHTS_INTERNAL_H

#include "runtime/weights.h"

#include "io/checkpoint.h"
#include "io/weight_forms.h"
#include "tensor/layout.h"

// A component of a weight, as an extent of a file.
typedef struct rn_component_of {
    rn_value value;
    rn_component component;
    rn_dtype narrow;     // F16, BF16: what an f32 weight is in the file; else NONE
    uint64_t first_byte; // of the component that the extent begins with: of a stack of tensors
} rn_component_of;

// Raw weights of an entry.
typedef struct rn_file_weight {
    rn_value value;
    uint32_t file;
    uint64_t offset, bytes;
} rn_file_weight;

typedef struct rn_group_list {
    uint32_t *groups;            // (count): the weight group of an entry
    uint32_t *first;             // (count + 1): an entry's first extent
    rn_extent *extents;          // (first[count]): what comes through the staging
    rn_component_of *components; // (first[count])
    uint32_t *first_file_weight; // (count + 1): an entry's first file-layout weight
    rn_file_weight
        *file_weights; // (first_file_weight[count]): what is read straight into its place
    uint32_t count;
    uint32_t extent_count, file_weight_count; // while it is being made
} rn_group_list;

// A table whose rows are read on demand.
typedef struct rn_row_source {
    const uint8_t *plain;       // in memory, or NULL: in a file
    const rn_weight_form *form; // of several tensors, or NULL: rows as they are
    uint32_t file;
    uint64_t offset, row_bytes;
} rn_row_source;

// Where the matrices of a stack are, one by one.
typedef struct rn_stack_source {
    const uint8_t *plain;       // in memory, or NULL
    const rn_weight_form *form; // of several tensors, or NULL
    uint64_t first_row;         // of the form
    uint32_t file;              // of a tensor that has all of them, one behind the other
    uint64_t offset;
    const rn_tensor_info **tensors; // (experts): of one for each, or NULL
} rn_stack_source;

// A weight on its way: its components follow each other in the list, the data first.
typedef struct rn_packing {
    rn_value value;
    rn_layout layout;
    uint8_t *target;
    rn_plain_components components;
    rn_dtype narrow;       // as rn_component_of
    rn_packer_room packer; // of a layout that is not plain
} rn_packing;

// An entry whose file-layout weights are being read.
typedef struct rn_fetching {
    bool begun;
    uint32_t entry;
    uint8_t *target;
    rn_fetch *items; // (the most that an entry has)
    rn_fetch_batch batch;
} rn_fetching;

struct rn_weights {
    const rn_plan *plan;
    rn_weight_source source;
    const _Atomic bool *cancel, *stop;
    rn_workers *workers;  // or NULL
    rn_allocator staging; // large blocks to staging, the reader's bookkeeping to io
    rn_reader *reader;    // NULL: nothing is in files
    rn_fetcher *fetcher;  // NULL: nothing is file_weights, no table is in a file
    const void **plain;   // (values + 1): bytes in memory; NULL: in the checkpoint
    rn_dtype *narrow;     // (values + 1): of `plain`, where that is to be widened; else NONE
    const rn_weight_form **forms; // (values + 1): of several tensors; NULL: as it is
    float *offsets;               // (values + 1): nf4_dq: io/double_quant.h
    rn_arena memory;
    rn_group_list lists[2];
    rn_row_source *tables;   // (the plan's row_table_count)
    rn_stack_source *stacks; // (the plan's stack_count)
    bool reading;            // the reader is at `list`, before `entry`
    rn_weight_list list;
    uint32_t entry, base; // base: the extent at which the reader's list began
    rn_packing packing;
    rn_fetching fetching[2]; // [turn]: the entry that is being filled; the other one: ahead of it
    uint32_t turn;
    rn_weights_ahead ahead; // or NULL
    void *ahead_self;
    _Atomic uint64_t read_bytes;
};

// ---- weights_list.c -----------------------------------------------------------------------------

// Finds every weight of the plan, in memory or in the checkpoint, and lists what is to be read.
RN_MUST_USE rn_status rn_weights_make_lists(rn_weights *weights);
// Where in its first page a file-layout weight of this offset begins: as in the file, but never at
// an address that kernels could not read numbers from.
uint64_t rn_file_weight_lead(uint64_t file_offset);

// ---- weights_pack.c -----------------------------------------------------------------------------

// Rows and columns of a weight; (1, elements) for a vector.
void rn_matrix_of(const rn_value_info *info, uint64_t *rows, uint64_t *cols);
RN_MUST_USE rn_status rn_weight_components(const rn_value_info *info, rn_plain_components *out);
// `workers`, where a layout can use them, share long pieces out; NULL: alone.
RN_MUST_USE rn_status rn_packing_begin(const rn_plan *plan, rn_value value, uint8_t *target,
                                       rn_workers *workers, rn_packing *out);
// The next `bytes` bytes of a component, from `offset` on.
RN_MUST_USE rn_status rn_packing_take(rn_packing *packing, rn_component component, uint64_t offset,
                                      const void *data, uint64_t bytes);

#endif
