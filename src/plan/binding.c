// binding.c — a graph with its rows bound to a number: what each node costs and needs beside its
// tensors, asked of the device's kernels before anything exists.
#include "plan/planner.h"

#include "base/checked.h"
#include "graph/fuse.h"
#include "graph/halves.h"

const uint32_t rn_plan_slices[RN_PLAN_SLICES] = {0, 64, 8, 1};

// ---- one node -----------------------------------------------------------------------------------

rn_status rn_binder_init(rn_arena *memory, const rn_graph *graph, rn_binder *out) {
    uint32_t most = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        uint32_t count = node->input_count + node->output_count;
        most = count > most ? count : most;
    }
    *out = (rn_binder){.graph = graph, .rows = 1};
    return rn_arena_array(memory, most, sizeof *out->tensors, (void **)&out->tensors);
}

rn_call rn_binder_bind(rn_binder *b, uint32_t node) {
    rn_call call;
    rn_graph_bind(b->graph, node, b->rows, b->tensors, &call);
    if (b->caps) call.threads = b->caps->threads;
    const rn_node *n = rn_graph_node(b->graph, node);
    for (uint32_t i = 0; b->layouts && i < n->input_count; i++)
        b->tensors[i].layout = b->layouts[n->inputs[i]];
    return call;
}

rn_alias rn_binder_alias(rn_binder *b, uint32_t node, uint32_t output, uint64_t *out_offset) {
    const rn_op_info *op = rn_op_get(rn_graph_node(b->graph, node)->op);
    *out_offset = 0;
    if (!op->alias_of && op->alias[output].kind != RN_ALIAS_KIND_MAY) return op->alias[output];
    rn_call call = rn_binder_bind(b, node);
    return rn_call_alias(&call, output, out_offset);
}

bool rn_binder_is_view(rn_binder *b, uint32_t node) {
    uint64_t offset;
    for (uint32_t i = 0; i < rn_graph_node(b->graph, node)->output_count; i++)
        if (rn_binder_alias(b, node, i, &offset).kind != RN_ALIAS_KIND_VIEW) return false;
    return true;
}

rn_status rn_plan_value_bytes(const rn_graph *graph, rn_value value, uint64_t rows,
                              rn_layout layout, uint64_t *out) {
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = layout, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    uint64_t elements = rn_tensor_elements(&tensor);
    *out = 0;
    if (elements == 0) return RN_OK;
    *out = elements > RN_PLAN_VALUE_BYTES ? UINT64_MAX : rn_tensor_bytes(&tensor);
    if (*out <= RN_PLAN_VALUE_BYTES) return RN_OK;
    return rn_fail(RN_INVALID, "'%s' %s %s with %llu rows has no sensible size", info->name,
                   rn_shape_format(info->shape).text, rn_dtype_get(info->dtype)->name,
                   (unsigned long long)rows);
}

// ---- all nodes ----------------------------------------------------------------------------------

typedef struct binding_work {
    rn_binder binder;
    const rn_device_caps *caps;
    const rn_plan_order *order;
    const rn_group_table *groups;
    rn_workload workload;
    rn_binding *binding;
} binding_work;

// Slicing pays for each slice: it is begun like a step of its own. Rows of queries are all axes of
// the first input but the last two, heads and their width.
static double count_slices(const rn_call *call, uint32_t slice_rows) {
    const rn_shape *q = &call->inputs[0].shape;
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 2 < q->rank; i++)
        rows *= q->dims[i];
    return (double)rn_div_up(rows, slice_rows);
}

// What the kernel wants in each slice, with its weights in these layouts.
static rn_status ask_workspace(binding_work *w, uint32_t position, const rn_layout *layouts,
                               uint64_t *const out[RN_PLAN_SLICES]) {
    uint32_t number = w->order->nodes[position];
    w->binder.layouts = layouts;
    rn_call call = rn_binder_bind(&w->binder, number);
    const rn_kernel *kernel = &w->caps->kernels[call.op];
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++) {
        call.slice_rows = rn_plan_slices[s];
        out[s][position] = kernel->workspace ? kernel->workspace(&call) : 0;
        if (out[s][position] > RN_PLAN_VALUE_BYTES)
            return rn_fail(RN_INVALID, "%s asks for too much workspace",
                           rn_graph_node(w->binder.graph, number)->name);
    }
    return RN_OK;
}

static rn_status bind_position(binding_work *w, uint32_t position) {
    rn_binding *b = w->binding;
    uint32_t number = w->order->nodes[position];
    b->is_view[position] = rn_binder_is_view(&w->binder, number);
    if (b->is_view[position]) return RN_OK;
    rn_call call = rn_binder_bind(&w->binder, number);
    if (!w->caps->kernels[call.op].run)
        return rn_fail(RN_UNSUPPORTED, "%s has no kernel for %s", w->caps->name,
                       rn_graph_node(w->binder.graph, number)->name);
    if (rn_call_has_halves(&call) && !(w->caps->fusions & RN_FUSE_HALVES))
        return rn_fail(RN_UNSUPPORTED, "%s has no kernel for %s with values of 16 bits",
                       w->caps->name, rn_graph_node(w->binder.graph, number)->name);
    double seconds = rn_cost_call(w->caps, &call, w->workload);
    RN_TRY(ask_workspace(w, position, w->groups->slot_layout_of, b->slot_workspace));
    RN_TRY(ask_workspace(w, position, w->groups->layout_of, b->workspace));
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++) {
        b->seconds[s][position] = seconds;
        if (b->workspace[s][position] < b->workspace[0][position])
            b->seconds[s][position] +=
                w->caps->step_seconds * count_slices(&call, rn_plan_slices[s]);
    }
    return RN_OK;
}

uint64_t rn_binding_workspace(const rn_binding *b, uint32_t slice, bool streams,
                              uint32_t position) {
    uint64_t resident = b->workspace[slice][position];
    return streams ? rn_max_u64(resident, b->slot_workspace[slice][position]) : resident;
}

static rn_status count_outputs(const binding_work *w, uint64_t *out_bytes) {
    const rn_graph *graph = w->binder.graph;
    *out_bytes = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        uint64_t bytes = 0;
        if (rn_graph_value(graph, v)->role != RN_ROLE_OUTPUT) continue;
        RN_TRY(rn_plan_value_bytes(graph, v, w->binder.rows, RN_LAYOUT_PLAIN, &bytes));
        *out_bytes += bytes;
    }
    return RN_OK;
}

// The host's part of a run comes at its end, when nothing is computed.
static rn_status add_host_part(binding_work *w) {
    rn_binding *b = w->binding;
    uint32_t last = w->order->count - 1;
    uint64_t bytes = 0;
    if (w->caps->run_seconds <= 0) return RN_OK;
    while (b->is_view[last])
        last--;
    RN_TRY(count_outputs(w, &bytes));
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++)
        b->seconds[s][last] += rn_cost_outputs(w->caps, bytes);
    return RN_OK;
}

static uint32_t count_views(const rn_binding *b, uint32_t positions) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < positions; p++)
        count += b->is_view[p];
    return count;
}

// A slice is worth looking at where some step needs less than with all coarser ones.
static void find_slices(rn_binding *b, uint32_t positions) {
    b->slices[0] = true;
    for (uint32_t s = 1, coarser = 0; s < RN_PLAN_SLICES; s++) {
        for (uint32_t p = 0; p < positions && !b->slices[s]; p++)
            b->slices[s] = b->workspace[s][p] < b->workspace[coarser][p];
        if (b->slices[s]) coarser = s;
    }
}

static void add_seconds(rn_binding *b, const rn_graph *graph, const rn_plan_order *order) {
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++)
        b->until[s][0] = 0;
    for (uint32_t p = 0; p < order->count; p++) {
        for (uint32_t s = 0; s < RN_PLAN_SLICES; s++)
            b->until[s][p + 1] = b->total_seconds[s] += b->seconds[s][p];
        if (rn_graph_node(graph, order->nodes[p])->phase == RN_PHASE_UPDATE)
            b->update_seconds += b->seconds[0][p];
    }
}

rn_status rn_binding_make(rn_arena *memory, const rn_graph *graph, const rn_device_caps *caps,
                          const rn_plan_order *order, const rn_group_table *groups, uint64_t rows,
                          rn_workload workload, rn_binding *out) {
    *out = (rn_binding){.rows = rows};
    binding_work w = {
        .caps = caps, .order = order, .groups = groups, .workload = workload, .binding = out};
    RN_TRY(rn_arena_array(memory, order->count, sizeof *out->is_view, (void **)&out->is_view));
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++) {
        RN_TRY(rn_arena_array(memory, order->count, sizeof(double), (void **)&out->seconds[s]));
        RN_TRY(rn_arena_array(memory, (size_t)order->count + 1, sizeof(double),
                              (void **)&out->until[s]));
        RN_TRY(rn_arena_array(memory, order->count, sizeof(uint64_t), (void **)&out->workspace[s]));
        RN_TRY(rn_arena_array(memory, order->count, sizeof(uint64_t),
                              (void **)&out->slot_workspace[s]));
    }
    RN_TRY(rn_binder_init(memory, graph, &w.binder));
    w.binder.caps = caps;
    w.binder.layouts = groups->layout_of;
    w.binder.rows = rows;
    for (uint32_t p = 0; p < order->count; p++) {
        RN_TRY(rn_stop_try(2 * RN_STOP_NODE_UNITS));
        RN_TRY(bind_position(&w, p));
    }
    if (order->count == count_views(out, order->count))
        return rn_fail(RN_INVALID, "the graph computes nothing: all its nodes are views");
    RN_TRY(add_host_part(&w));
    find_slices(out, order->count);
    add_seconds(out, graph, order);
    out->is_made = true;
    return RN_OK;
}
