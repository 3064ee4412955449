// onnx_import.h — an ONNX graph written as ours.
//
// Node by node, in the file's order: each row of the table of ops (onnx_ops.c) adds nodes to the
// graph; shapes come from the graph's own rules. A result that depends on constants alone is
// computed at once by the reference loops and goes on as a constant (onnx_fold.c), so shapes that a
// model computes are numbers when Reshape asks for them. What nothing reads is left out at the end.
#ifndef RN_EXCHANGE_ONNX_IMPORT_H
#define RN_EXCHANGE_ONNX_IMPORT_H

#include <ration/onnx.h>

#include "io/onnx.h"
#include "io/weight_forms.h"

typedef struct rn_imported {
    rn_graph *graph; // finished; the caller's
    uint64_t folded_bytes;
    // Of the inputs of the file's graph, in `memory`:
    const bool *bound; // the graph depends on its value
    const bool *given; // it is no initializer's name, as old files have them
    // Weights of several initializers, in `memory`: the checkpoint's, once they are added to it.
    const rn_weight_form *forms; // (form_count)
    size_t form_count;
} rn_imported;

// `checkpoint` has the model's initializers; NULL: those that are not small cannot be looked at.
// `weights` has them in other types (rn_onnx_options.weights); NULL: `checkpoint`.
// The model's bytes must stay while this runs.
RN_MUST_USE rn_status rn_onnx_import(const rn_onnx_model *model, const rn_checkpoint *checkpoint,
                                     const rn_checkpoint *weights, const rn_onnx_options *options,
                                     rn_arena *memory, rn_imported *out);

// Number `index` of the names of ops that can be read, with their domain's prefix; NULL behind the
// last.
const char *rn_onnx_op_name(size_t index);

#endif
