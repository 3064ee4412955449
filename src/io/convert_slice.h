// convert_slice.h — converts one chunk of a tensor on all threads, straight into the writer's
// buffers.
#ifndef RN_IO_CONVERT_SLICE_H
#define RN_IO_CONVERT_SLICE_H

#include "io/convert_plan.h"
#include "io/writer.h"

#include "base/workers.h"
#include "tensor/quant.h"

#include <stdatomic.h>

enum {
    RN_SLICE_ELEMENTS = 32 << 10, // a slice's f32 values and their restored twins stay in the cache
    RN_SLICE_MOST = 512,          // of one chunk
    RN_SLICE_SCRATCH_BYTES = 2 * sizeof(float) + 8, // of a thread, for each of its elements
};

// One chunk being worked on. Slice s covers units [s * slice_units, ...). A slice's result goes
// straight to its place in the writer's buffers, except for the first half of int4, which waits in
// `low` for the second.
typedef struct rn_convert_job {
    const rn_convert_item *item;
    const uint8_t *source; // the chunk's bytes, or NULL: they are in `region`
    const float *region;   // values that change places: the tensor's from region_start on
    uint64_t first_unit;   // of the chunk, in the tensor
    uint64_t elements, unit_count;
    rn_output_span spans[2]; // where the chunk's bytes go
    uint8_t *low;            // int4: the first half's values, one a byte
    bool is_low;             // int4: fills `low`
    float *scale, *shift;    // (unit_count)
    uint8_t *scratch;        // (threads, scratch_elements, RN_SLICE_SCRATCH_BYTES)
    uint64_t scratch_elements;
    // The job's own.
    uint64_t slice_units;
    size_t slice_count;
    _Atomic size_t next_slice;
    _Atomic int failed; // an rn_status
    rn_quant_error errors[RN_SLICE_MOST];
} rn_convert_job;

// Units of one slice: whole ones, about RN_SLICE_ELEMENTS elements. Depends on the tensor alone.
uint64_t rn_slice_units(const rn_convert_item *item);
// Bytes of that many elements in the source, and in the output's data tensor. For int4 that is of
// the first half's elements, whose bytes the second half shares.
uint64_t rn_slice_source_bytes(const rn_convert_item *item, uint64_t elements);
uint64_t rn_slice_data_bytes(const rn_convert_item *item, uint64_t elements);

// Runs the job; the errors of what was rounded are added to *error in the order of the slices.
RN_MUST_USE rn_status rn_convert_job_run(rn_convert_job *job, rn_workers *workers,
                                         rn_quant_error *error);
// Copies bytes to their place in the job's spans.
void rn_convert_job_copy(const rn_convert_job *job, uint64_t offset, const uint8_t *from,
                         uint64_t bytes);

#endif
