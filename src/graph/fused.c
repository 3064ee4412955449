// fused.c — unfolding a fused op, and running what came out.
#include "graph/fused.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

bool rn_fused_is(const rn_graph *graph, rn_value value, rn_role role) {
    bool given = value != RN_NO_VALUE && value <= rn_graph_value_count(graph);
    return given && rn_graph_value(graph, value)->role == role;
}

// ---- unfolding ----------------------------------------------------------------------------------

static void unfold(const rn_call *call, rn_fused *out) {
    memset(out, 0, sizeof *out);
    out->whole = call;
    rn_op_get(call->op)->unfold(call, out);
}

rn_tensor rn_fused_hand(rn_fused *fused, rn_shape shape) {
    uint8_t *front = fused->whole->workspace;
    rn_tensor tensor = {
        .dtype = RN_DTYPE_F32, .shape = shape, .data = front ? front + fused->handed_bytes : NULL};
    fused->handed_bytes += rn_round_up(rn_tensor_bytes(&tensor), 64);
    return tensor;
}

void rn_fused_add(rn_fused *fused, rn_op op, const void *attrs, const rn_tensor *inputs,
                  uint32_t input_count, const rn_tensor *outputs, uint32_t output_count) {
    assert(fused->count < RN_FUSED_CALLS && input_count + output_count <= RN_FUSED_TENSORS);
    rn_tensor *tensors = fused->tensors[fused->count];
    memcpy(tensors, inputs, input_count * sizeof *tensors);
    memcpy(tensors + input_count, outputs, output_count * sizeof *tensors);
    rn_call *part = &fused->calls[fused->count++];
    *part = *fused->whole; // its threads, slices and stream
    part->op = op;
    part->attrs = attrs;
    part->inputs = tensors;
    part->outputs = tensors + input_count;
    part->input_count = input_count;
    part->output_count = output_count;
}

// ---- rules --------------------------------------------------------------------------------------

rn_status rn_fused_shape(const rn_shaping *s, rn_op op, const void *attrs,
                         const struct rn_typed *in, uint32_t input_count, struct rn_typed *out) {
    struct rn_typed results[RN_MAX_OUTPUTS] = {{.dtype = RN_DTYPE_F32}};
    rn_shaping part = *s; // it fails under the whole's name
    part.in = in;
    part.out = results;
    part.input_count = input_count;
    part.attrs = attrs;
    RN_TRY(rn_op_get(op)->shape(&part));
    *out = results[0];
    return RN_OK;
}

void rn_fused_flops(const rn_call *call, rn_cost *out) {
    rn_fused fused;
    unfold(call, &fused);
    for (uint32_t i = 0; i < fused.count; i++) {
        rn_cost part = {0};
        rn_op_get(fused.calls[i].op)->cost(&fused.calls[i], &part);
        out->flops += part.flops;
    }
}

// ---- running ------------------------------------------------------------------------------------

rn_status rn_fused_run(const rn_call *call, rn_status (*run)(const rn_call *part)) {
    rn_fused fused;
    unfold(call, &fused);
    for (uint32_t i = 0; i < fused.count; i++) {
        rn_call *part = &fused.calls[i];
        part->workspace_bytes = call->workspace_bytes - fused.handed_bytes;
        part->workspace = NULL;
        if (part->workspace_bytes)
            part->workspace = (uint8_t *)call->workspace + fused.handed_bytes;
        RN_TRY(run(part));
    }
    return RN_OK;
}

uint64_t rn_fused_workspace(const rn_call *call, uint64_t (*workspace)(const rn_call *part)) {
    rn_fused fused;
    uint64_t most = 0;
    unfold(call, &fused);
    for (uint32_t i = 0; i < fused.count; i++)
        most = rn_max_u64(most, workspace(&fused.calls[i]));
    return fused.handed_bytes + most;
}

static rn_status run_reference(const rn_call *part) {
    return rn_op_get(part->op)->reference(part);
}

static uint64_t reference_workspace(const rn_call *part) {
    const rn_op_info *op = rn_op_get(part->op);
    return op->workspace ? op->workspace(part) : 0;
}

rn_status rn_fused_reference(const rn_call *call) {
    return rn_fused_run(call, run_reference);
}

uint64_t rn_fused_reference_workspace(const rn_call *call) {
    return rn_fused_workspace(call, reference_workspace);
}
