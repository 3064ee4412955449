// offload_run.c — see offload_run.h.
#include "offload_run.h"

#include "base/checked.h"
#include "support.h"

enum { MAX_SPANS = 40, ALIGN = 256, GAP = 256, POISON = 0xff };

// Bytes of the host and their place in the block. Tensors that share bytes share a span.
typedef struct span {
    uint8_t *first, *end;
    uint64_t at;
} span;

typedef struct layout {
    span spans[MAX_SPANS];
    uint32_t count;
    uint64_t bytes; // to the end of the last gap
} layout;

rn_status test_offload_open(rn_device *device, uint64_t bytes, test_offload *out) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = bytes};
    *out = (test_offload){.device = device};
    RN_TRY(device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &out->queue));
    RN_TRY(rn_device_memory_take(device, purposes, &out->memory));
    out->image = malloc(bytes);
    return out->image ? RN_OK : rn_fail(RN_NO_MEMORY, "no memory for the block's image");
}

void test_offload_close(test_offload *offload) {
    rn_queue_destroy(offload->queue);
    rn_device_memory_release(&offload->memory);
    free(offload->image);
    *offload = (test_offload){0};
}

// ---- places -------------------------------------------------------------------------------------

static void add_span(layout *l, void *data, uint64_t bytes) {
    span new = {data, (uint8_t *)data + bytes, 0};
    if (!data || bytes == 0) return;
    for (uint32_t i = 0; i < l->count;) {
        span *old = &l->spans[i];
        if (new.first >= old->end || old->first >= new.end) {
            i++;
            continue;
        }
        if (old->first < new.first) new.first = old->first;
        if (old->end > new.end) new.end = old->end;
        *old = l->spans[--l->count];
    }
    assert_true(l->count < MAX_SPANS);
    l->spans[l->count++] = new;
}

static uint64_t length(const span *s) {
    return (uint64_t)(s->end - s->first);
}

static void lay_out(const rn_call *call, layout *out) {
    *out = (layout){.bytes = GAP};
    for (uint32_t i = 0; i < call->input_count; i++)
        add_span(out, call->inputs[i].data, rn_tensor_bytes(&call->inputs[i]));
    for (uint32_t i = 0; i < call->output_count; i++)
        add_span(out, call->outputs[i].data, rn_tensor_bytes(&call->outputs[i]));
    add_span(out, call->workspace, call->workspace_bytes);
    for (uint32_t i = 0; i < out->count; i++) {
        out->spans[i].at = out->bytes;
        out->bytes = rn_round_up(out->bytes + length(&out->spans[i]) + GAP, ALIGN);
    }
}

static void *there(const test_offload *offload, const layout *l, const void *data) {
    const uint8_t *at = data;
    for (uint32_t i = 0; at && i < l->count; i++)
        if (at >= l->spans[i].first && at < l->spans[i].end)
            return offload->memory.base + l->spans[i].at + (at - l->spans[i].first);
    return NULL;
}

// ---- there and back -----------------------------------------------------------------------------

static rn_status launch(const test_offload *offload, const layout *l, const rn_kernel *kernel,
                        const rn_call *call) {
    rn_tensor tensors[MAX_SPANS];
    rn_call moved = *call;
    uint32_t count = call->input_count + call->output_count;
    assert_true(count <= MAX_SPANS);
    memcpy(tensors, call->inputs, call->input_count * sizeof *tensors);
    memcpy(tensors + call->input_count, call->outputs, call->output_count * sizeof *tensors);
    for (uint32_t i = 0; i < count; i++)
        tensors[i].data = there(offload, l, tensors[i].data);
    moved.inputs = tensors;
    moved.outputs = tensors + call->input_count;
    moved.workspace = there(offload, l, call->workspace);
    rn_queue_copy_in(offload->queue, offload->memory.base, offload->image, l->bytes);
    rn_queue_launch(offload->queue, kernel, &moved);
    rn_queue_copy_out(offload->queue, offload->image, offload->memory.base, l->bytes);
    rn_status s = rn_queue_finish(offload->queue);
    if (s != RN_OK) rn_queue_reset(offload->queue);
    return s;
}

static bool gaps_stand(const test_offload *offload, const layout *l) {
    uint64_t at = 0;
    for (uint32_t i = 0; i <= l->count; i++) {
        uint64_t end = i < l->count ? l->spans[i].at : l->bytes;
        for (; at < end; at++)
            if (offload->image[at] != POISON) return false;
        if (i < l->count) at += length(&l->spans[i]);
    }
    return true;
}

rn_status test_offload_run(test_offload *offload, const rn_kernel *kernel, const rn_call *call) {
    layout l;
    lay_out(call, &l);
    assert_true(l.bytes <= offload->memory.bytes);
    memset(offload->image, POISON, l.bytes);
    for (uint32_t i = 0; i < l.count; i++)
        memcpy(offload->image + l.spans[i].at, l.spans[i].first, length(&l.spans[i]));
    RN_TRY(launch(offload, &l, kernel, call));
    for (uint32_t i = 0; i < l.count; i++)
        memcpy(l.spans[i].first, offload->image + l.spans[i].at, length(&l.spans[i]));
    if (gaps_stand(offload, &l)) return RN_OK;
    return rn_fail(RN_INTERNAL, "%s writes around its tensors", rn_op_name(call->op));
}
