// reference.c — the reference loops as a kernel table: the back end that defines all others.
#include "device/reference.h"

#include "base/checked.h"
#include "graph/halves.h"

static uint64_t workspace(const rn_call *call) {
    return rn_round_up(rn_reference_workspace(call), 64);
}

const rn_kernel rn_reference_kernel = {rn_reference_run, workspace};

const rn_kernel rn_reference_kernels[RN_OP_COUNT] = {
#define RN_OP(NAME, name) [RN_OP_##NAME] = {rn_reference_run, workspace},
#include <ration/ops.def>
#undef RN_OP
};
