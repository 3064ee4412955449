// embedding_grad.c — each thread takes rows of the table and looks for the places that have their
// ids: so nobody shares a row, and the places of a row come in order.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/embedding.h"

#include <string.h>

enum { TASKS = 16 };

static void add_rows(void *arg, size_t index) {
    const rn_call *call = arg;
    const int32_t *ids = call->inputs[0].data;
    const float *dy = call->inputs[1].data; // (ids, C)
    float *dtable = call->outputs[0].data;  // (V, C)
    uint64_t vocab = call->outputs[0].shape.dims[0], channels = call->outputs[0].shape.dims[1];
    uint64_t share = rn_div_up(vocab, TASKS), first = rn_min_u64(index * share, vocab);
    uint64_t end = rn_min_u64(first + share, vocab), count = rn_tensor_elements(&call->inputs[0]);
    memset(dtable + first * channels, 0, (end - first) * channels * sizeof *dtable);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = (uint64_t)ids[i];
        if (id >= first && id < end)
            rn_spans_get()->add_into(dy + i * channels, dtable + id * channels, channels);
    }
}

rn_status rn_cpu_embedding_grad(const rn_call *call) {
    RN_TRY(rn_embedding_check(call->inputs[0].data, rn_tensor_elements(&call->inputs[0]),
                              call->outputs[0].shape.dims[0]));
    rn_call_each(call, TASKS, add_rows, (void *)call);
    return RN_OK;
}
