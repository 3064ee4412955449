// executable.c — sim as a device that compiles: a graph, a block of the device's memory with every
// value in a place of its own, and the CPU's kernels one after the other.
//
// Nothing is optimised: it is there to show that plans, sessions and the server deal with a device
// that owns its memory and runs whole graphs. What it estimates is what it takes, to the byte.
#include "backend/sim/sim.h"
#include "base/arena.h"
#include "base/checked.h"
#include "device/executable.h"
#include "memory/account.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

typedef struct sim_executable {
    rn_executable base;
    rn_device *device;
    const rn_graph *graph;
    rn_arena memory;    // all tables
    uint64_t *offset;   // (values + 1): of values that own their bytes, in the block
    uint64_t *root;     // (values + 1): whose bytes it is; itself
    uint64_t *within;   // (values + 1): where in the root's bytes
    rn_tensor *tensors; // (the most that a node has)
    uint8_t *block;
    uint64_t block_bytes, workspace_bytes;
} sim_executable;

static sim_executable *cast(rn_executable *executable) {
    return (sim_executable *)((char *)executable - offsetof(sim_executable, base));
}

// ---- what it takes ------------------------------------------------------------------------------

static rn_status refuse(const rn_graph *graph, uint32_t node) {
    return rn_fail(RN_UNSUPPORTED, "sim cannot compile node '%s' (%s)",
                   rn_graph_node(graph, node)->name, rn_op_name(rn_graph_node(graph, node)->op));
}

static uint32_t most_arguments(const rn_graph *graph) {
    uint32_t most = 1;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->input_count + node->output_count > most)
            most = node->input_count + node->output_count;
    }
    return most;
}

// Of intermediates that own their bytes, each in a place of its own, and the largest workspace.
static rn_status count_temporary(const rn_graph *graph, uint64_t rows, uint32_t threads,
                                 rn_tensor *tensors, uint64_t *out_bytes, uint64_t *out_workspace) {
    *out_bytes = *out_workspace = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        const rn_kernel *kernel = &rn_cpu_caps()->kernels[node->op];
        rn_call call;
        rn_graph_bind(graph, n, rows, tensors, &call);
        call.threads = threads;
        bool view = true;
        for (uint32_t i = 0; i < node->output_count; i++) {
            uint64_t offset = 0;
            rn_alias alias = rn_call_alias(&call, i, &offset);
            bool shares = alias.kind == RN_ALIAS_KIND_VIEW || alias.kind == RN_ALIAS_KIND_MUST;
            view &= alias.kind == RN_ALIAS_KIND_VIEW;
            if (shares || rn_graph_value(graph, node->outputs[i])->role == RN_ROLE_OUTPUT) continue;
            if (!rn_add_u64(*out_bytes, rn_round_up(rn_tensor_bytes(&call.outputs[i]), 64),
                            out_bytes))
                return rn_fail(RN_INVALID, "'%s' is more than memory can hold", node->name);
        }
        if (view) continue;
        if (!kernel->run) return refuse(graph, n);
        uint64_t workspace = kernel->workspace ? kernel->workspace(&call) : 0;
        *out_workspace = rn_max_u64(*out_workspace, rn_round_up(workspace, 64));
    }
    return RN_OK;
}

rn_status rn_sim_estimate(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                          uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    uint64_t bytes = 0, workspace = 0;
    rn_arena scratch;
    rn_tensor *tensors;
    RN_TRY(rn_executable_count(graph, rows, purpose_bytes));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s =
        rn_arena_array(&scratch, most_arguments(graph), sizeof *tensors, (void **)&tensors);
    if (s == RN_OK) s = count_temporary(graph, rows, caps->threads, tensors, &bytes, &workspace);
    rn_arena_free_all(&scratch);
    purpose_bytes[RN_PURPOSE_WORKSPACE] += bytes + workspace;
    return s;
}

// ---- compiling ----------------------------------------------------------------------------------

static bool is_given(const rn_graph *graph, rn_value v) {
    return rn_graph_value(graph, v)->producer == RN_NO_NODE && rn_executable_reads(graph, v);
}

static void place(sim_executable *e, rn_value value, uint64_t rows) {
    e->root[value] = value;
    e->offset[value] = e->block_bytes;
    e->block_bytes += rn_round_up(rn_executable_value_bytes(e->graph, value, rows), 64);
}

// Given values first, then what nodes make, then the workspace.
static rn_status place_all(sim_executable *e, uint64_t rows) {
    const rn_graph *graph = e->graph;
    uint64_t temporary;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (is_given(graph, v)) place(e, v, rows);
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        rn_call call;
        rn_graph_bind(graph, n, rows, e->tensors, &call);
        for (uint32_t i = 0; i < node->output_count; i++) {
            uint64_t offset = 0;
            rn_alias alias = rn_call_alias(&call, i, &offset);
            rn_value v = node->outputs[i];
            bool shares = alias.kind == RN_ALIAS_KIND_VIEW || alias.kind == RN_ALIAS_KIND_MUST;
            bool output = rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT;
            if (shares && !output) {
                e->root[v] = e->root[node->inputs[alias.input]];
                e->within[v] = e->within[node->inputs[alias.input]] + offset;
            } else if (shares) {
                return rn_fail(RN_UNSUPPORTED, "sim: output '%s' is a view",
                               rn_graph_value(graph, v)->name);
            } else {
                place(e, v, rows);
            }
        }
    }
    RN_TRY(count_temporary(graph, rows, e->device->caps.threads, e->tensors, &temporary,
                           &e->workspace_bytes));
    e->block_bytes += e->workspace_bytes;
    return RN_OK;
}

static uint8_t *address(const sim_executable *e, rn_value value) {
    return e->block + e->offset[e->root[value]] + e->within[value];
}

static void fill_constants(sim_executable *e) {
    for (rn_value v = 1; v <= rn_graph_value_count(e->graph); v++) {
        const rn_value_info *info = rn_graph_value(e->graph, v);
        uint64_t bytes = rn_executable_value_bytes(e->graph, v, 0);
        if (!is_given(e->graph, v)) continue;
        if (info->role == RN_ROLE_STATE) memset(address(e, v), 0, bytes);
        if (info->role == RN_ROLE_CONSTANT) memcpy(address(e, v), info->constant, bytes);
    }
}

// ---- using it -----------------------------------------------------------------------------------

static rn_status check_bytes(const sim_executable *e, rn_value value, uint64_t bytes) {
    if (bytes == rn_executable_value_bytes(e->graph, value, 0)) return RN_OK;
    return rn_fail(RN_INVALID, "sim: '%s' has another number of bytes",
                   rn_graph_value(e->graph, value)->name);
}

static rn_status put(rn_executable *executable, rn_value value, const void *data, uint64_t bytes) {
    sim_executable *e = cast(executable);
    RN_TRY(check_bytes(e, value, bytes));
    memcpy(address(e, value), data, bytes);
    return RN_OK;
}

static rn_status get(rn_executable *executable, rn_value value, void *data, uint64_t bytes) {
    const sim_executable *e = cast(executable);
    RN_TRY(check_bytes(e, value, bytes));
    memcpy(data, address(e, value), bytes);
    return RN_OK;
}

static rn_status run_node(sim_executable *e, uint32_t n, const rn_execution *run) {
    const rn_node *node = rn_graph_node(e->graph, n);
    rn_call call;
    bool view = true;
    rn_graph_bind(e->graph, n, run->rows, e->tensors, &call);
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        // A part of one row may be a view where that of the largest bucket's rows is none.
        bool shares = e->root[node->outputs[i]] != node->outputs[i];
        view &= shares && rn_call_alias(&call, i, &offset).kind == RN_ALIAS_KIND_VIEW;
    }
    if (view) return RN_OK;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != RN_NO_VALUE) e->tensors[i].data = address(e, node->inputs[i]);
    for (uint32_t i = 0; i < node->output_count; i++)
        e->tensors[node->input_count + i].data = address(e, node->outputs[i]);
    call.scalars = run->scalars;
    call.workers = e->device->workers;
    call.threads = e->device->caps.threads;
    call.workspace = e->block + e->block_bytes - e->workspace_bytes;
    call.workspace_bytes = e->workspace_bytes;
    return rn_cpu_caps()->kernels[node->op].run(&call);
}

static rn_status run(rn_executable *executable, const rn_execution *run) {
    sim_executable *e = cast(executable);
    if (rn_sim_device_fails_launch(e->device))
        return rn_fail(RN_DEVICE, "sim: this launch is to fail");
    for (uint32_t i = 0; i < run->input_count; i++)
        memcpy(address(e, run->inputs[i].value), run->inputs[i].data, run->inputs[i].bytes);
    for (uint32_t n = 0; n < rn_graph_node_count(e->graph); n++) {
        if (run->cancel && atomic_load(run->cancel))
            return rn_fail(RN_CANCELLED, "cancelled while the executable ran");
        RN_TRY(run_node(e, n, run));
    }
    for (uint32_t i = 0; i < run->output_count; i++)
        memcpy(run->outputs[i].data, address(e, run->outputs[i].value), run->outputs[i].bytes);
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

static void destroy(rn_executable *executable) {
    sim_executable *e = cast(executable);
    if (e->block) e->device->free(e->device, e->block, e->block_bytes);
    rn_arena_free_all(&e->memory);
    rn_free(RN_HOST_OTHER, e, sizeof *e);
}

static rn_status build(sim_executable *e, const rn_compile_request *request) {
    uint64_t rows = request->buckets[request->bucket_count - 1], more;
    size_t values = rn_graph_value_count(e->graph) + 1u;
    void *block = NULL;
    RN_TRY(rn_arena_array(&e->memory, values, sizeof *e->offset, (void **)&e->offset));
    RN_TRY(rn_arena_array(&e->memory, values, sizeof *e->root, (void **)&e->root));
    RN_TRY(rn_arena_array(&e->memory, values, sizeof *e->within, (void **)&e->within));
    RN_TRY(rn_arena_array(&e->memory, most_arguments(e->graph), sizeof *e->tensors,
                          (void **)&e->tensors));
    RN_TRY(place_all(e, rows));
    RN_TRY(rn_sim_estimate(&e->device->caps, e->graph, rows, e->base.purpose_bytes));
    more = rn_sim_device_compiled_more(e->device);
    e->base.purpose_bytes[RN_PURPOSE_OTHER] += more;
    rn_account account = {.device = e->device->caps.device, .purpose = RN_PURPOSE_WEIGHTS};
    uint64_t bytes = e->block_bytes;
    e->block_bytes = 0; // nothing is to be released yet
    RN_TRY(e->device->alloc(e->device, account, bytes, &block));
    e->block = block;
    e->block_bytes = bytes;
    fill_constants(e);
    return RN_OK;
}

rn_status rn_sim_compile(rn_device *device, const rn_compile_request *request,
                         rn_executable **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(sim_executable), &block));
    sim_executable *e = block;
    e->base = (rn_executable){.put = put, .get = get, .run = run, .destroy = destroy};
    e->device = device;
    e->graph = request->graph;
    rn_arena_init(&e->memory, RN_HOST_OTHER, 0);
    rn_status s = build(e, request);
    if (s == RN_OK)
        *out = &e->base;
    else
        destroy(&e->base);
    return s;
}
