// graph_model.h — a model of tensors for a variant: its graph with the weights' dtype that is asked
// for, and numbers for weights and inputs where no file has them.
#ifndef RN_BENCH_GRAPH_MODEL_H
#define RN_BENCH_GRAPH_MODEL_H

#include <ration/bench.h>
#include <ration/onnx.h>

typedef struct rn_made_block rn_made_block;

typedef struct rn_graph_model {
    rn_onnx *onnx;          // or a builtin model
    rn_checkpoint *weights; // of a builtin one; NULL: made up
    rn_recipe recipe;
    rn_graph *graph; // to look at, and what the recipe builds where weights are converted
    bool converted;  // the graph is its own, and not the ONNX model's
    bool retyped;    // weights have another dtype than in the file
    uint64_t rows;   // of a run; 0: the graph has none
    uint64_t parameters, made_bytes;
    rn_made_block *made;   // held for the session
    char weights_name[32]; // "int8 + q8_0 + f32": what matrices are held as
} rn_graph_model;

// Whether it is an ONNX file or the name of a builtin model without text.
bool rn_graph_model_is(const char *name);
// RN_UNSUPPORTED: weights of this dtype are not possible, or a batch of this size.
RN_MUST_USE rn_status rn_graph_model_open(const char *name, const char *weights_path,
                                          const rn_bench_name *variant, uint64_t batch,
                                          rn_graph_model *out);
void rn_graph_model_close(rn_graph_model *model);
// For a session; what it takes to memory is released by rn_graph_model_release_made.
rn_weight_source rn_graph_model_source(rn_graph_model *model);
// The plain bytes of one weight, until they are released; NULL: the thread's error says why.
const void *rn_graph_model_weight(rn_graph_model *model, const rn_value_info *info, uint64_t bytes);
void rn_graph_model_release_made(rn_graph_model *model);
// Bytes of a value of a run.
uint64_t rn_graph_model_bytes(const rn_graph_model *model, const rn_value_info *info);
// An input: from a .npy file, or numbers between 0 and 1 (zeros where it is not f32).
RN_MUST_USE rn_status rn_graph_model_fill_input(const rn_graph_model *model,
                                                const rn_value_info *info, const char *const *files,
                                                size_t file_count, void *data, uint64_t bytes);

#endif
