// writer.h — writing a checkpoint: declare the tensors, stream their bytes, commit.
//
//     rn_write_tensor tensors[] = {{.name = name, .dtype = RN_DTYPE_F32, .rank = 2, .dims = dims}};
//     rn_writer *writer;
//     RN_TRY(rn_writer_create("out.safetensors", tensors, 1, NULL, &writer));
//     rn_status s = rn_writer_append(writer, data, bytes);
//     if (s == RN_OK) s = rn_writer_commit(writer);
//     rn_writer_destroy(writer);
//
// The name's ending decides: .gguf is GGUF version 3, anything else safetensors. The file appears
// whole, at the commit, or not at all. Bytes go past the page cache; memory is a few buffers,
// whatever the file's size.
#ifndef RATION_WRITER_H
#define RATION_WRITER_H

#include <ration/checkpoint.h>

RN_BEGIN_DECLS

typedef struct rn_writer rn_writer;

typedef struct rn_write_tensor {
    rn_str name;
    rn_dtype dtype; // one that the container has; block types want whole blocks in the innermost
                    // dimension
    uint32_t rank;
    const uint64_t *dims; // (rank), outermost first
    bool random; // a small one, written with rn_writer_put in any order (scales beside their data)
} rn_write_tensor;

typedef struct rn_writer_options {
    const rn_metadata *metadata; // (metadata_count); a safetensors file takes text only
    size_t metadata_count;
    size_t buffer_bytes;  // of each of three; 0 means 2 MiB
    uint64_t reserved[4]; // zero
} rn_writer_options;

// GGUF's tensors lie at multiples of 32 bytes, or of 4096 where the metadata has
// "general.alignment" with that number. Lays the file out: header, random tensors of 4 bytes an
// element and more, the others in the order given, the rest of the random ones. RN_UNSUPPORTED
// names the tensor or key that the container cannot hold. Tensors, names and metadata are borrowed
// for this call only.
RN_API RN_MUST_USE rn_status rn_writer_create(const char *path, const rn_write_tensor *tensors,
                                              size_t tensor_count, const rn_writer_options *options,
                                              rn_writer **out);
// The next bytes of the tensors that are not random, in the order given. No call crosses from one
// into the next; padding is the writer's business.
RN_API RN_MUST_USE rn_status rn_writer_append(rn_writer *writer, const void *data, size_t bytes);
// Bytes of random tensor number `tensor`, each of them once.
RN_API RN_MUST_USE rn_status rn_writer_put(rn_writer *writer, size_t tensor, uint64_t offset,
                                           const void *data, size_t bytes);
// Every tensor must be complete.
RN_API RN_MUST_USE rn_status rn_writer_commit(rn_writer *writer);
// NULL-safe; without a commit nothing remains.
RN_API void rn_writer_destroy(rn_writer *writer);
// Size of the finished file.
RN_API uint64_t rn_writer_file_bytes(const rn_writer *writer);
// Memory that a writer with these options holds while it is open, its header not counted.
RN_API size_t rn_writer_held_bytes(const rn_writer_options *options);

RN_END_DECLS

#endif
