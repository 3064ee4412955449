// checkpointed.c — see <ration/checkpointed.h>.
//
//     disabled   forward ─▶ saved ─────────────────────────▶ backward
//     enabled    forward ─▶ (nothing) ... forward ─▶ saved ─▶ backward
#include <ration/checkpointed.h>

#include "base/reserved.h"
#include "memory/account.h"

#define FROM (&rn_host_allocators[RN_PURPOSE_ACTIVATIONS])

struct rn_checkpointed {
    rn_function function;
    rn_array inputs[RN_FUNCTION_ARRAYS]; // of the last forward pass: borrowed
    void *saved;                         // (function.saved_bytes), or NULL
    bool enabled, went_forward;
};

rn_status rn_checkpointed_create(const rn_function *function, rn_checkpointed **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_check_reserved(function->reserved, "rn_function"));
    if (!function->forward || !function->backward)
        return rn_fail(RN_INVALID, "a function to be checkpointed needs both its passes");
    if (function->input_count > RN_FUNCTION_ARRAYS || function->output_count > RN_FUNCTION_ARRAYS)
        return rn_fail(RN_UNSUPPORTED, "a function of %u inputs and %u outputs: up to %d are built",
                       function->input_count, function->output_count, RN_FUNCTION_ARRAYS);
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_checkpointed), &block));
    *out = block;
    (*out)->function = *function;
    (*out)->enabled = true;
    return RN_OK;
}

static void forget(rn_checkpointed *call) {
    if (call->saved) rn_free(FROM, call->saved, call->function.saved_bytes);
    call->saved = NULL;
    call->went_forward = false;
}

void rn_checkpointed_destroy(rn_checkpointed *call) {
    if (!call) return;
    forget(call);
    rn_free(RN_HOST_OTHER, call, sizeof *call);
}

void rn_checkpointed_set_enabled(rn_checkpointed *call, bool enabled) {
    call->enabled = enabled;
}

bool rn_checkpointed_enabled(const rn_checkpointed *call) {
    return call->enabled;
}

uint64_t rn_checkpointed_held_bytes(const rn_checkpointed *call) {
    return call->saved ? call->function.saved_bytes : 0;
}

static rn_status save(rn_checkpointed *call) {
    if (call->function.saved_bytes == 0) return RN_OK;
    return rn_alloc(FROM, call->function.saved_bytes, &call->saved);
}

rn_status rn_checkpointed_forward(rn_checkpointed *call, const rn_array *inputs,
                                  const rn_array *outputs) {
    forget(call);
    if (!call->enabled) RN_TRY(save(call));
    for (uint32_t i = 0; i < call->function.input_count; i++)
        call->inputs[i] = inputs[i];
    rn_status s = call->function.forward(call->function.self, inputs, outputs, call->saved);
    if (s != RN_OK) forget(call);
    call->went_forward = s == RN_OK;
    return s;
}

// The outputs are not wanted again.
static rn_status go_again(rn_checkpointed *call) {
    rn_array outputs[RN_FUNCTION_ARRAYS] = {{0}};
    if (call->saved || call->function.saved_bytes == 0) return RN_OK;
    RN_TRY(save(call));
    return call->function.forward(call->function.self, call->inputs, outputs, call->saved);
}

rn_status rn_checkpointed_backward(rn_checkpointed *call, const rn_array *out_gradients,
                                   const rn_array *in_gradients) {
    if (!call->went_forward)
        return rn_fail(RN_INVALID, "there was no forward pass to go back through");
    rn_status s = go_again(call);
    if (s == RN_OK)
        s = call->function.backward(call->function.self, call->inputs, out_gradients, in_gradients,
                                    call->saved);
    forget(call);
    return s;
}
