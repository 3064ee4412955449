// reference.c — the reference loops as a kernel table: the back end that defines all others.
#include "device/reference.h"

#include "base/checked.h"

static rn_status run(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    if (!op->reference) return RN_OK; // a pure view: there is nothing to compute
    return op->reference(call);
}

static uint64_t workspace(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    return op->workspace ? rn_round_up(op->workspace(call), 64) : 0;
}

const rn_kernel rn_reference_kernel = {run, workspace};

const rn_kernel rn_reference_kernels[RN_OP_COUNT] = {
#define RN_OP(NAME, name) [RN_OP_##NAME] = {run, workspace},
#include <ration/ops.def>
#undef RN_OP
};
