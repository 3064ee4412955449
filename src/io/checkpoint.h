// checkpoint.h — an opened checkpoint from the inside, and what the format readers add to it.
#ifndef RN_IO_CHECKPOINT_H
#define RN_IO_CHECKPOINT_H

#include <ration/checkpoint.h>

#include "base/arena.h"
#include "base/fetcher.h"
#include "base/file_state.h"
#include "base/map.h"

// More dimensions than any file in the wild has; a header that claims more is refused.
#define RN_MAX_FILE_RANK 32

typedef struct rn_opened_file {
    rn_checkpoint_file_info info;
    int fd;                 // -1: the file is
    const uint8_t *memory;  // (info.bytes) here
    rn_file_state state;    // of fd, before its header was read
    uint64_t charged_bytes; // of a file in memory that is this checkpoint's own
} rn_opened_file;

typedef struct rn_weight_forms rn_weight_forms; // io/weight_forms_internal.h

struct rn_checkpoint {
    rn_container container;
    char format[24];
    uint64_t alignment;      // GGUF: of tensor offsets
    rn_arena arena;          // names, dims, metadata, paths
    rn_map by_name;          // name -> index into tensors
    rn_map by_key;           // safetensors: metadata key -> the file that has it first
    rn_tensor_info *tensors; // (tensor_count), room for tensor_capacity
    size_t tensor_count, tensor_capacity;
    rn_metadata *metadata; // (metadata_count), room for metadata_capacity
    size_t metadata_count, metadata_capacity;
    rn_opened_file *files; // (file_count)
    size_t file_count, file_capacity;
    uint64_t total_bytes;
    rn_weight_forms *forms; // weights of several tensors (io/weight_forms.h), or NULL
};

void rn_weight_forms_close(rn_weight_forms *forms); // NULL-safe; the memory itself is the arena's

// Opens `path` and adds it; *out_index is the file's number.
RN_MUST_USE rn_status rn_checkpoint_add_file(rn_checkpoint *checkpoint, const char *path,
                                             uint32_t *out_index);
// Adds a file in memory (memfd), which is the checkpoint's from then on; its bytes are charged.
RN_MUST_USE rn_status rn_checkpoint_add_memory(rn_checkpoint *checkpoint, int fd, uint64_t bytes,
                                               uint32_t *out_index);
// Adds a tensor whose name (in the arena), dims (copied), dtype, file and offset are set; elements
// and bytes are computed, with every product checked, and the name must be new.
RN_MUST_USE rn_status rn_checkpoint_add_tensor(rn_checkpoint *checkpoint, rn_tensor_info tensor);
RN_MUST_USE rn_status rn_checkpoint_add_metadata(rn_checkpoint *checkpoint,
                                                 const rn_metadata *metadata);

// Exactly `bytes` bytes at `offset`.
RN_MUST_USE rn_status rn_opened_file_read(const rn_opened_file *file, uint64_t offset, void *target,
                                          size_t bytes);

// A safetensors file that lies in memory, which must stay. `name` is for messages. It cannot be
// streamed or mapped.
RN_MUST_USE rn_status rn_checkpoint_open_memory(const char *name, const void *data, size_t bytes,
                                                rn_checkpoint **out);
// Where a tensor of such a checkpoint lies; NULL for one of a file.
const void *rn_checkpoint_memory(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor);

// A checkpoint over the files of several, each of which is opened again; names of tensors get the
// part's prefix in front. RN_UNSUPPORTED: a part in memory, or with weights of several tensors
// (io/weight_forms.h).
RN_MUST_USE rn_status rn_checkpoint_join(const rn_checkpoint *const *parts,
                                         const char *const *prefixes, size_t count,
                                         rn_checkpoint **out);

// A reader over all of the checkpoint's files, with the same numbers.
RN_MUST_USE rn_status rn_checkpoint_open_reader(const rn_checkpoint *checkpoint,
                                                const rn_reader_options *options, rn_reader **out);

// The same for reading straight into memory.
RN_MUST_USE rn_status rn_checkpoint_open_fetcher(const rn_checkpoint *checkpoint,
                                                 const rn_reader_options *options,
                                                 rn_fetcher **out);

// The readers of formats: file `index` has been added. Names of tensors get `prefix` in front.
RN_MUST_USE rn_status rn_safetensors_read(rn_checkpoint *checkpoint, uint32_t index);
RN_MUST_USE rn_status rn_safetensors_read_as(rn_checkpoint *checkpoint, uint32_t index,
                                             rn_str prefix);
RN_MUST_USE rn_status rn_gguf_read(rn_checkpoint *checkpoint, uint32_t index);
RN_MUST_USE rn_status rn_onnx_read(rn_checkpoint *checkpoint, uint32_t index);
// A folder or a shard index: adds and reads all files.
RN_MUST_USE rn_status rn_model_folder_read(rn_checkpoint *checkpoint, const char *path);
RN_MUST_USE rn_status rn_shard_index_read(rn_checkpoint *checkpoint, const char *path);

#endif
