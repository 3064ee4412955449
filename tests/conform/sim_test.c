// labels: threads
// sim_test.c — every op on the sim device: what a kernel touches is copied there, the kernel is
// launched through a queue, and what it wrote is copied back through another one.
#include "support.h"

#include "backend/cpu/cpu.h"
#include "backend/sim/sim.h"
#include "base/checked.h"
#include "conform.h"

enum { MAX_SPANS = 32 };

// Bytes of the host and their place on the device. Tensors that share bytes share a span.
typedef struct span {
    uint8_t *first, *end;
    uint64_t at;
} span;

typedef struct offload {
    span spans[MAX_SPANS];
    uint32_t count;
    uint64_t bytes;
    rn_device_memory memory;
} offload;

static rn_device *sim;
static rn_queue *compute, *copy;

// ---- there and back -----------------------------------------------------------------------------

static void add_span(offload *t, void *data, uint64_t bytes) {
    span new = {data, (uint8_t *)data + bytes, 0};
    if (!data || bytes == 0) return;
    for (uint32_t i = 0; i < t->count;) {
        span *old = &t->spans[i];
        if (new.first >= old->end || old->first >= new.end) {
            i++;
            continue;
        }
        if (old->first < new.first) new.first = old->first;
        if (old->end > new.end) new.end = old->end;
        *old = t->spans[--t->count];
    }
    assert_true(t->count < MAX_SPANS);
    t->spans[t->count++] = new;
}

static void *there(const offload *t, const void *data) {
    const uint8_t *at = data;
    for (uint32_t i = 0; at && i < t->count; i++)
        if (at >= t->spans[i].first && at < t->spans[i].end)
            return t->memory.base + t->spans[i].at + (at - t->spans[i].first);
    return NULL;
}

static void gather(offload *t, const rn_call *call) {
    for (uint32_t i = 0; i < call->input_count; i++)
        add_span(t, call->inputs[i].data, rn_tensor_bytes(&call->inputs[i]));
    for (uint32_t i = 0; i < call->output_count; i++)
        add_span(t, call->outputs[i].data, rn_tensor_bytes(&call->outputs[i]));
    add_span(t, call->workspace, call->workspace_bytes);
    for (uint32_t i = 0; i < t->count; i++) {
        t->spans[i].at = t->bytes;
        t->bytes += rn_round_up((uint64_t)(t->spans[i].end - t->spans[i].first), 64);
    }
}

static void move_all(const offload *t, bool in) {
    for (uint32_t i = 0; i < t->count; i++) {
        uint64_t bytes = (uint64_t)(t->spans[i].end - t->spans[i].first);
        uint8_t *device = t->memory.base + t->spans[i].at;
        if (in)
            rn_queue_copy_in(copy, device, t->spans[i].first, bytes);
        else
            rn_queue_copy_out(copy, t->spans[i].first, device, bytes);
    }
}

static rn_status launch(const offload *t, const rn_call *call) {
    rn_tensor tensors[MAX_SPANS];
    rn_call moved = *call;
    rn_fence arrived, computed;
    assert_true(call->input_count + call->output_count <= MAX_SPANS);
    memcpy(tensors, call->inputs, call->input_count * sizeof *tensors);
    memcpy(tensors + call->input_count, call->outputs, call->output_count * sizeof *tensors);
    for (uint32_t i = 0; i < call->input_count + call->output_count; i++)
        tensors[i].data = there(t, tensors[i].data);
    moved.inputs = tensors;
    moved.outputs = tensors + call->input_count;
    moved.workspace = there(t, call->workspace);
    rn_fence_init(&arrived), rn_fence_init(&computed);
    move_all(t, true);
    rn_queue_signal(copy, &arrived);
    rn_queue_wait(compute, &arrived);
    rn_queue_launch(compute, &rn_cpu_kernels[call->op], &moved);
    rn_queue_signal(compute, &computed);
    rn_queue_wait(copy, &computed);
    move_all(t, false);
    rn_status s = rn_queue_finish(copy), c = rn_queue_finish(compute);
    rn_fence_free(&arrived), rn_fence_free(&computed);
    return s == RN_OK ? c : s;
}

static rn_status run_there(const rn_call *call) {
    offload t = {.count = 0};
    uint64_t purposes[RN_PURPOSE_COUNT] = {0};
    gather(&t, call);
    purposes[RN_PURPOSE_ACTIVATIONS] = t.bytes;
    RN_TRY(rn_device_memory_take(sim, purposes, &t.memory));
    rn_status s = launch(&t, call);
    rn_device_memory_release(&t.memory);
    return s;
}

// ---- the suite ----------------------------------------------------------------------------------

static rn_kernel kernels[RN_OP_COUNT];

static int open_sim(void **state) {
    (void)state;
    for (int op = 0; op < RN_OP_COUNT; op++)
        kernels[op] = (rn_kernel){run_there, rn_cpu_kernels[op].workspace};
    return rn_sim_device_create(&(rn_sim_options){.memory_bytes = 256 << 20}, &sim) != RN_OK ||
           sim->open_queue(sim, RN_QUEUE_COMPUTE, NULL, &compute) != RN_OK ||
           sim->open_queue(sim, RN_QUEUE_COPY, NULL, &copy) != RN_OK;
}

static int close_sim(void **state) {
    (void)state;
    rn_queue_destroy(compute);
    rn_queue_destroy(copy);
    rn_device_destroy(sim);
    return 0;
}

static void every_op_conforms_on_the_sim_device(void **state) {
    (void)state;
    conform_target target = {
        .kernels = kernels, .weight_layout = rn_cpu_weight_layout, .threads = 1};
    uint32_t wrong = 0;
    conform_why why;
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++)
            if (!conform_kernels(&(*t)->rows[i], &target, &why)) {
                print_error("%s\n", why.text);
                wrong++;
            }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_conforms_on_the_sim_device)};
    return cmocka_run_group_tests(tests, open_sim, close_sim);
}
