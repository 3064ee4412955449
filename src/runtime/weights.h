// weights.h — brings weights from where they are (a checkpoint's files, memory) to where they are
// used, in the layout that the plan chose.
//
//     file ──reader──▶ staging: pieces ──pack──▶ weight group (resident, or a slot)
//     file ──fetcher──▶ slot           file-layout weights: kernels take the file's bytes
//     files ──io/weight_forms──▶ rows ──pack──▶ weight group    weights of several tensors
//
// There are two lists of weight groups: the resident ones, read once; and the loads of a run, read
// round and round. Within a list the reader runs ahead of the packer by as much as the staging
// holds, across weight groups and runs, whether or not a slot is free already.
//
// One thread at a time.
#ifndef RN_RUNTIME_WEIGHTS_H
#define RN_RUNTIME_WEIGHTS_H

#include <ration/session.h>

#include "base/fetcher.h"
#include "plan/plan.h"

typedef struct rn_weights rn_weights;

typedef enum rn_weight_list { RN_WEIGHTS_RESIDENT, RN_WEIGHTS_STREAMED } rn_weight_list;

// Finds every weight of the plan, in memory or else in the checkpoint, and holds the staging
// (plan.summary.staging_bytes, charged as that) where the source has a checkpoint. RN_NOT_FOUND,
// RN_INVALID name a weight that is missing or has another type or size. `source` is copied; `stop`
// and `cancel` (may be NULL) are looked at between pieces. `workers` (may be NULL) help packing.
RN_MUST_USE rn_status rn_weights_open(const rn_plan *plan, const rn_weight_source *source,
                                      const _Atomic bool *cancel, const _Atomic bool *stop,
                                      rn_workers *workers, rn_weights **out);
void rn_weights_close(rn_weights *weights); // NULL-safe

// Gives the staging back, and all that reading needs beside it, until rn_weights_wake. Nothing is
// read meanwhile.
void rn_weights_rest(rn_weights *weights);
RN_MUST_USE rn_status rn_weights_wake(rn_weights *weights);

// Entries of a list: resident weight groups in the plan's order, loads by number.
uint32_t rn_weights_count(const rn_weights *weights, rn_weight_list list);
// The weight group of an entry.
uint32_t rn_weights_group(const rn_weights *weights, rn_weight_list list, uint32_t entry);
// Reads an entry's weights into `target` (weight group bytes). In order it streams; out of order it
// starts anew. With the last entry of a list the files' identity is checked. RN_IO: a file was cut
// short or changed; RN_CANCELLED.
RN_MUST_USE rn_status rn_weights_fill(rn_weights *weights, rn_weight_list list, uint32_t entry,
                                      uint8_t *target);
// Says which streamed entry comes next and where to, if it may be begun already; false: not yet.
// Called while an entry is being filled, by the same thread.
typedef bool (*rn_weights_ahead)(void *self, uint32_t *out_entry, uint8_t **out_target);
void rn_weights_look_ahead(rn_weights *weights, rn_weights_ahead ahead, void *self);
// Ends all reading that is under way; the next entry begins anew.
void rn_weights_rewind(rn_weights *weights);
// Reads rows of the plan's row_tables[table] into `target`, one behind the other; every id is a row
// of it. Apart from all other reading: any thread.
RN_MUST_USE rn_status rn_weights_rows(rn_weights *weights, uint32_t table, const int32_t *ids,
                                      uint64_t count, uint8_t *target);
// How far behind the beginning of its place a file-layout weight lies.
uint64_t rn_weights_lead(const rn_weights *weights, rn_value value);
// ---- experts on demand ----
// Single matrices of the plan's stacks, read by the caller with a fetcher of his own. Apart from
// all other reading: any one thread.

// Where a range of a matrix is. Bytes that are not in one run of a file are brought by
// rn_weights_copy_matrix.
typedef struct rn_matrix_range {
    uint32_t stack, expert;
    uint64_t first_byte, bytes;
} rn_matrix_range;
// False: it is not in one run of a file.
bool rn_weights_find_matrix(const rn_weights *weights, const rn_matrix_range *range,
                            uint32_t *out_file, uint64_t *out_offset);
// To `target` (range.bytes); first_byte and bytes are whole rows. *out_read: what was read from
// disk, as it has become.
RN_MUST_USE rn_status rn_weights_copy_matrix(rn_weights *weights, const rn_matrix_range *range,
                                             uint8_t *target, uint64_t *out_read);
// From the file's bytes to the layout of the stack's weight, by all workers. RN_INVALID: no such
// rows.
RN_MUST_USE rn_status rn_weights_pack_matrix(rn_weights *weights, const rn_matrix_range *range,
                                             const uint8_t *data, uint8_t *target);
// NULL: nothing is in files. The disk is read whatever the page cache holds: what is said of bytes
// and rates is the disk's.
RN_MUST_USE rn_status rn_weights_open_fetcher(const rn_weights *weights, rn_fetcher **out);
// So many bytes were read from disk.
void rn_weights_count_read(rn_weights *weights, uint64_t bytes);

// Packs plain bytes of one weight.
RN_MUST_USE rn_status rn_weights_pack(const rn_plan *plan, rn_value value, const void *plain,
                                      uint8_t *target);
// From disk since it was opened; of weights of several tensors what they become. Any thread.
uint64_t rn_weights_read_bytes(const rn_weights *weights);

#endif
