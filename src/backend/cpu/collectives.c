// collectives.c — ops that ranks call together. Each rank's part travels as one message; rows are
// put together here.
#include "backend/cpu/cpu.h"

#include "base/checked.h"
#include "graph/op/rank_sum.h"

#include <string.h>

// All parts, one rank's behind the other's; of one row that is the result.
uint64_t rn_cpu_all_gather_workspace(const rn_call *call) {
    return rn_round_up(rn_tensor_bytes(&call->outputs[0]), 64);
}

rn_status rn_cpu_all_gather(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0];
    const rn_call_ranks *all = call->ranks;
    const rn_all_gather_attrs *attrs = call->attrs;
    uint64_t count = rn_tensor_elements(x), bytes = rn_tensor_bytes(x), rows = x->shape.dims[0];
    uint64_t row = bytes / rows;
    uint8_t *out = call->outputs[0].data, *parts = rows == 1 ? out : call->workspace;
    if (!all) return rn_op_get(call->op)->reference(call);
    if (attrs->ranks != all->ranks)
        return rn_fail(RN_INTERNAL, "parts of %u ranks, but there are %u", attrs->ranks,
                       all->ranks);
    memcpy(parts + all->rank * bytes, x->data, bytes);
    RN_TRY(all->gather(all->self, parts, count * all->ranks, count,
                       rn_dtype_get(x->dtype)->block_bytes));
    for (uint64_t i = 0; i < rows && rows > 1; i++)
        for (uint32_t r = 0; r < all->ranks; r++)
            memcpy(out + (i * all->ranks + r) * row, parts + r * bytes + i * row, row);
    return RN_OK;
}
