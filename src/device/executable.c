// executable.c — what all executables of a graph hold, whoever compiles it.
#include "device/executable.h"

#include "base/arena.h"
#include "base/checked.h"
#include "memory/account.h"

uint64_t rn_executable_value_bytes(const rn_graph *graph, rn_value value, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return rn_tensor_bytes(&tensor);
}

bool rn_executable_reads(const rn_graph *graph, rn_value value) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] == value) return true;
    }
    return false;
}

rn_status rn_executable_count(const rn_graph *graph, uint64_t rows,
                              uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        bool given = info->producer == RN_NO_NODE && rn_executable_reads(graph, v);
        if (!given && info->role != RN_ROLE_OUTPUT) continue;
        uint64_t *sum = &purpose_bytes[info->purpose];
        uint64_t bytes = rn_executable_value_bytes(graph, v, rows);
        if (!rn_add_u64(*sum, rn_round_up(bytes, 64), sum))
            return rn_fail(RN_INVALID, "'%s' is more than memory can hold", info->name);
    }
    return RN_OK;
}

// ---- a device that compiles ---------------------------------------------------------------------

static rn_status no_block(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    (void)account;
    (void)bytes;
    *out = NULL;
    return rn_fail(RN_UNSUPPORTED, "%s compiles graphs: its memory is its own", device->caps.name);
}

static void free_no_block(rn_device *device, void *block, uint64_t bytes) {
    (void)device;
    (void)block;
    (void)bytes;
}

static rn_status no_queue(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                          rn_queue **out) {
    (void)kind;
    (void)cancel;
    *out = NULL;
    return rn_fail(RN_UNSUPPORTED, "%s compiles graphs: it has no queues", device->caps.name);
}

void rn_executable_device_init(rn_device *device) {
    device->alloc = no_block;
    device->free = free_no_block;
    device->open_queue = no_queue;
}

uint64_t rn_executable_floats(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t product = 0;
    if (!rn_mul_u64(a, b, &product) || !rn_mul_u64(product, c, &product) ||
        !rn_mul_u64(product, sizeof(float), &product))
        return UINT64_MAX / 64;
    return rn_min_u64(product, UINT64_MAX / 64);
}

const rn_argument *rn_argument_find(const rn_argument *given, uint32_t count, rn_value value) {
    for (uint32_t i = 0; i < count; i++)
        if (given[i].value == value) return &given[i];
    return NULL;
}

void rn_executable_count_narrow(const rn_graph *graph, uint64_t *out_half_bytes,
                                uint64_t *out_quantised_bytes) {
    *out_half_bytes = *out_quantised_bytes = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT || !rn_executable_reads(graph, v)) continue;
        uint64_t bytes = rn_executable_value_bytes(graph, v, 0);
        const rn_dtype_info *type = rn_dtype_get(info->dtype);
        if (info->dtype == RN_DTYPE_F16 || info->dtype == RN_DTYPE_BF16)
            *out_half_bytes += bytes;
        else if (type->block_elements > 1 || (type->is_float && type->block_bytes < 2))
            *out_quantised_bytes += bytes;
    }
}

static rn_status list_last(const rn_graph *graph, rn_arena *scratch, uint32_t **out) {
    uint32_t *last; // (values + 1): the node that reads it last, or makes it
    RN_TRY(rn_arena_array(scratch, rn_graph_value_count(graph) + 1u, sizeof *last, (void **)&last));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; i < node->input_count; i++)
            last[node->inputs[i]] = n;
        for (uint32_t i = 0; i < node->output_count; i++)
            last[node->outputs[i]] = n;
    }
    *out = last;
    return RN_OK;
}

static void walk_live(const rn_graph *graph, const rn_live_walk *walk, uint32_t *last) {
    uint64_t live = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        uint64_t made = 0;
        for (uint32_t i = 0; i < node->output_count; i++)
            made += walk->bytes(walk->self, node->outputs[i]);
        live += made;
        walk->visit(walk->self, node, made, live);
        for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
            rn_value v =
                i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
            if (v == RN_NO_VALUE || last[v] != n) continue;
            last[v] = UINT32_MAX; // once
            if (rn_graph_value(graph, v)->producer != RN_NO_NODE)
                live -= walk->bytes(walk->self, v);
        }
    }
}

rn_status rn_executable_walk_live(const rn_graph *graph, const rn_live_walk *walk) {
    uint32_t *last = NULL;
    rn_arena scratch;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = list_last(graph, &scratch, &last);
    if (s == RN_OK) walk_live(graph, walk, last);
    rn_arena_free_all(&scratch);
    return s;
}
