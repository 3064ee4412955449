// checkpoint.h — a model's files, opened: what tensors there are and where, nothing read but
// headers.
//
//     rn_checkpoint *model;
//     RN_TRY(rn_checkpoint_open("models/llama-1b", &model)); // a folder, a shard index, one file
//     const rn_tensor_info *norm = rn_checkpoint_find(model, "model.norm.weight");
//     RN_TRY(rn_checkpoint_load(model, norm, RN_DTYPE_F32, buffer, buffer_bytes));
//     rn_checkpoint_close(model);
//
// Reads safetensors (one file, shards with an index, a Hugging Face folder), GGUF version 2 and 3,
// and the initializers of ONNX files (with external data in the file's folder). Files are not
// trusted: RN_CORRUPT names the file, the offset and the rule that was broken. An open checkpoint
// does not change and may be used from several threads.
#ifndef RATION_CHECKPOINT_H
#define RATION_CHECKPOINT_H

#include <ration/tensor.h>

RN_BEGIN_DECLS

typedef struct rn_checkpoint rn_checkpoint;

typedef enum rn_container {
    RN_CONTAINER_SAFETENSORS,
    RN_CONTAINER_GGUF,
    RN_CONTAINER_ONNX // the initializers of a model
} rn_container;

typedef struct rn_tensor_info {
    rn_str name; // also NUL-terminated; may hold NUL bytes
    rn_dtype dtype;
    uint32_t rank;
    const uint64_t *dims; // (rank), outermost first
    uint64_t elements, bytes;
    uint32_t file;   // index, see rn_checkpoint_file
    uint64_t offset; // from the start of that file
} rn_tensor_info;

typedef struct rn_checkpoint_file_info {
    const char *path;
    uint64_t bytes;
    uint64_t data_offset; // where the tensors' bytes begin
} rn_checkpoint_file_info;

typedef enum rn_metadata_kind {
    RN_METADATA_TEXT,
    RN_METADATA_U64,
    RN_METADATA_I64,
    RN_METADATA_F64,
    RN_METADATA_BOOL,
    RN_METADATA_ARRAY
} rn_metadata_kind;

typedef struct rn_metadata {
    rn_str key;
    rn_metadata_kind kind;
    uint32_t gguf_type; // the value's type in GGUF; of the elements for arrays; 8 (string) in
                        // safetensors
    rn_str text;        // TEXT
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        bool boolean;
    } value;
    uint64_t count; // ARRAY: elements
    rn_str raw;     // ARRAY: the elements as they stand in the file
} rn_metadata;

// `path`: a .safetensors, .gguf or .onnx file, a *.safetensors.index.json, or a folder that holds
// one of them.
RN_API RN_MUST_USE rn_status rn_checkpoint_open(const char *path, rn_checkpoint **out);
RN_API void rn_checkpoint_close(rn_checkpoint *checkpoint);

RN_API rn_container rn_checkpoint_container(const rn_checkpoint *checkpoint);
// "safetensors", "gguf v3".
RN_API const char *rn_checkpoint_format(const rn_checkpoint *checkpoint);
// Tensors are in file order: by file, then by offset.
RN_API size_t rn_checkpoint_count(const rn_checkpoint *checkpoint);
RN_API const rn_tensor_info *rn_checkpoint_tensor(const rn_checkpoint *checkpoint, size_t index);
// NULL where there is none of that name.
RN_API const rn_tensor_info *rn_checkpoint_find(const rn_checkpoint *checkpoint, const char *name);
RN_API uint64_t rn_checkpoint_total_bytes(const rn_checkpoint *checkpoint);
RN_API size_t rn_checkpoint_file_count(const rn_checkpoint *checkpoint);
RN_API const rn_checkpoint_file_info *rn_checkpoint_file(const rn_checkpoint *checkpoint,
                                                         size_t index);
RN_API size_t rn_checkpoint_metadata_count(const rn_checkpoint *checkpoint);
RN_API const rn_metadata *rn_checkpoint_metadata(const rn_checkpoint *checkpoint, size_t index);
// Element by element through an ARRAY: *cursor begins at 0; false at the end.
RN_API bool rn_metadata_next(const rn_metadata *array, uint64_t *cursor, rn_metadata *out_element);

// ---- reading --------------------------------------------------------------------------

// `bytes` raw bytes from `offset` within the tensor.
RN_API RN_MUST_USE rn_status rn_checkpoint_read(const rn_checkpoint *checkpoint,
                                                const rn_tensor_info *tensor, uint64_t offset,
                                                void *target, size_t bytes);
// The whole tensor as `dtype`, converted on the way through a small staging buffer. target_bytes
// must be exactly what the tensor has in that dtype.
RN_API RN_MUST_USE rn_status rn_checkpoint_load(const rn_checkpoint *checkpoint,
                                                const rn_tensor_info *tensor, rn_dtype dtype,
                                                void *target, size_t target_bytes);

// The tensor's bytes in the file itself, read-only, paged in when touched. Charged to (host,
// weights).
typedef struct rn_mapping {
    const void *data; // (bytes)
    size_t bytes;
    void *map; // the library's
    size_t map_bytes;
} rn_mapping;
RN_API RN_MUST_USE rn_status rn_checkpoint_map(const rn_checkpoint *checkpoint,
                                               const rn_tensor_info *tensor, rn_mapping *out);
RN_API void rn_mapping_release(rn_mapping *mapping);

typedef struct rn_stream_options {
    const rn_tensor_info *const *tensors; // (tensor_count), or NULL for all; read in file order
    size_t tensor_count;
    rn_dtype dtype;              // convert to this on the way; RN_DTYPE_NONE leaves the bytes alone
    size_t buffer_bytes;         // at most this much is held; 0 means 16 MiB, the least is 256 KiB
    const volatile bool *cancel; // set to true by anybody to stop with RN_CANCELLED; may be NULL
    uint64_t reserved[4];        // zero
} rn_stream_options;

// Called with the tensors' bytes in file order, each tensor in one or more consecutive pieces.
// `offset` is in bytes of what the callback gets (after conversion). Another status than RN_OK ends
// the stream with it.
typedef rn_status (*rn_stream_piece)(void *self, const rn_tensor_info *tensor, uint64_t offset,
                                     const void *data, size_t bytes);
// Reads past the page cache with several requests in flight.
RN_API RN_MUST_USE rn_status rn_checkpoint_stream(const rn_checkpoint *checkpoint,
                                                  const rn_stream_options *options,
                                                  rn_stream_piece piece, void *self);

RN_END_DECLS

#endif
