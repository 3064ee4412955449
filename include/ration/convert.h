// convert.h — from one checkpoint to another: other dtypes, quantised weights, another container.
//
//     rn_convert_options options = {.to = RN_DTYPE_INT4, .budget_bytes = 256 << 20};
//     rn_convert_result result;
//     RN_TRY(rn_convert("models/llama-1b", "llama-1b-int4.safetensors", &options, &result));
//
// Streams: reading, quantising and writing overlap, and no more than the budget is held, whatever
// the model's size. The output appears whole or not at all.
#ifndef RATION_CONVERT_H
#define RATION_CONVERT_H

#include <ration/checkpoint.h>

RN_BEGIN_DECLS

// What became of one tensor.
typedef struct rn_convert_row {
    rn_str name;
    rn_dtype from, to;
    const char *left_alone;       // why it was not converted; NULL where it was
    uint64_t bytes_in, bytes_out; // out: with scales and the like
    bool measured;                // errors below are known: something was rounded
    double mean_error, max_error; // of |original - restored|
    double relative_error;        // |original - restored| / |original|, 2-norms
} rn_convert_row;

// How files are read; AUTO takes io_uring where the system allows it.
typedef enum rn_io_engine { RN_IO_AUTO, RN_IO_URING, RN_IO_THREADS } rn_io_engine;

typedef struct rn_convert_options {
    rn_dtype to; // a plain float, int8, int4, nf4, nf4_dq or one of ggml's blocks; RN_DTYPE_NONE
                 // changes the container only
    // Names, in the input or in the output, that keep their type ('*' and '?' match). Quantising to
    // one dtype leaves embeddings, norms and routers of experts alone as well, unless they are
    // blocks of a GGUF file that safetensors cannot hold.
    const char *const *exclude;
    size_t exclude_count;
    bool no_default_excludes;
    // A GGUF file with a record an expert: its matrices are tensors of their own, one behind the
    // other, each at a multiple of 4096 bytes (docs/models.md). Of mixtures of experts only, and
    // not for llama.cpp. Without it experts are in stacks, whatever the input has.
    bool packed;
    uint64_t budget_bytes; // the most that the conversion allocates; 0 means 256 MiB
    size_t thread_count;   // 0: one for each CPU
    rn_io_engine io_engine;
    const volatile bool *cancel; // set to true by anybody to stop with RN_CANCELLED; may be NULL
    void *self;                  // for the functions below, which may be NULL
    void (*progress)(void *self, uint64_t done_bytes, uint64_t total_bytes);
    void (*row)(void *self, const rn_convert_row *row); // after each tensor
    // Instead of `to`: one of llama.cpp's file types, "q4_k_m", whose rules say which tensor gets
    // which kind; or NULL. See rn_convert_parse_target.
    const char *file_type;
    // The path of an importance matrix that llama-imatrix measured (GGUF, or the older
    // imatrix.dat): ggml's quantisers weigh errors by it; or NULL. RN_INVALID: it is of another
    // model.
    const char *importances;
    uint64_t reserved[4]; // zero
} rn_convert_options;

typedef struct rn_convert_result {
    size_t converted_count, left_count;
    uint64_t bytes_in, bytes_out; // tensors' bytes read, file bytes written
    double seconds;
    uint64_t buffer_bytes; // held for reading, working and writing
    const char *engine;    // how it read: "io_uring" or "threads"
    bool tensors_only;     // a GGUF file without architecture and vocabulary: no model to llama.cpp
    size_t requantised_count; // of converted_count: were quantised before, so that losses add up
    size_t weighed_count;     // of converted_count: by importances
} rn_convert_result;

// What a person calls a target: sets `file_type` or `to`. llama.cpp's names are file types, and so
// are the kinds that it gives a file (q4_1, q5_0, q5_1, q6_k, ...); f16, int8, q8_0, q4_0, mxfp4
// and the like are one dtype for all. False: it is neither.
RN_API bool rn_convert_parse_target(rn_str name, rn_convert_options *options);

// The ending of `out_path` decides the container: .gguf or .safetensors. In GGUF norms and vectors
// are f32, as llama.cpp wants them. RN_UNSUPPORTED names a pair that does not go together, or says
// that a transformers model (a config.json beside the files) does not become a GGUF model here;
// RN_OVER_BUDGET says the smallest budget that works. One
// conversion at a time in a process: while it runs, the host's budget is at most its own.
RN_API RN_MUST_USE rn_status rn_convert(const char *in_path, const char *out_path,
                                        const rn_convert_options *options,
                                        rn_convert_result *out_result);

RN_END_DECLS

#endif
