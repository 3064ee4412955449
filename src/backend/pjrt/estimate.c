// estimate.c — what a program will take, before there is one: its arguments and results to the
// byte, and its temporary memory from the graph.
#include "backend/pjrt/pjrt.h"

#include "base/arena.h"
#include "base/checked.h"
#include "memory/account.h"

#include <stdio.h>

// ---- how it is written
// ----------------------------------------------------------------------------

// The dtype of most bytes of weights; kinds that StableHLO does not have count as bf16.
static rn_dtype find_most(const rn_graph *graph) {
    uint64_t whole = 0, half[2] = {0}; // elements of f32; of f16, of bf16 and the rest
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT || info->shape.rank < 2) continue;
        uint64_t elements = rn_shape_elements(info->shape, 1);
        if (info->dtype == RN_DTYPE_F32)
            whole += elements;
        else
            half[info->dtype != RN_DTYPE_F16] += elements;
    }
    if (whole >= half[0] + half[1]) return RN_DTYPE_F32;
    return half[0] > half[1] ? RN_DTYPE_F16 : RN_DTYPE_BF16;
}

rn_stablehlo_options rn_pjrt_options(const rn_device_caps *caps, const rn_graph *graph,
                                     uint64_t rows) {
    rn_stablehlo_options options = {.rows = rows,
                                    .products = (rn_dtype)caps->own[RN_PJRT_PRODUCTS],
                                    .widened = (rn_dtype)caps->own[RN_PJRT_WIDENED],
                                    .partitions = caps->cores};
    if (!options.products) options.products = caps->own_memory ? find_most(graph) : RN_DTYPE_F32;
    if (!options.widened) options.widened = options.products;
    options.merge = caps->own_memory;
    // XLA's CPU compiler converts all weights of 16 bits anew in every run, and turns all kernels.
    options.turn_kernels = !caps->own_memory;
    options.widen_all = !caps->own_memory && options.widened == RN_DTYPE_F32;
    return options;
}

// ---- arguments and results ----------------------------------------------------------------------

// A weight that is widened must be readable as the file has it.
static rn_status check_weight(const rn_graph *graph, rn_value value, rn_dtype dtype) {
    const rn_value_info *info = rn_graph_value(graph, value);
    if (info->dtype == dtype || rn_dtype_get(info->dtype)->readable) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "XLA has no %s, and '%s' cannot be widened",
                   rn_dtype_get(info->dtype)->name, info->name);
}

static rn_status add(uint64_t *sum, uint64_t bytes) {
    if (rn_add_u64(*sum, rn_round_up(bytes, 64), sum)) return RN_OK;
    return rn_fail(RN_INVALID, "the program is more than memory can hold");
}

// On all cores.
static rn_status add_port(uint64_t *sum, const rn_stablehlo_entry *port, uint32_t cores) {
    for (uint32_t c = 0; c < cores; c++)
        RN_TRY(add(sum, rn_pjrt_part_bytes(port, cores)));
    return RN_OK;
}

static rn_status count_ports(const rn_graph *graph, const rn_stablehlo_signature *s, uint32_t cores,
                             uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *port = &s->arguments[i];
        rn_purpose purpose = RN_PURPOSE_OTHER;
        for (uint32_t k = 0; k < port->part_count; k++)
            RN_TRY(check_weight(graph, port->parts[k], port->dtype));
        if (port->kind == RN_STABLEHLO_WEIGHT)
            RN_TRY(check_weight(graph, port->value, port->dtype));
        if (port->kind != RN_STABLEHLO_SCALAR)
            purpose = rn_graph_value(graph, port->value)->purpose;
        RN_TRY(add_port(&purpose_bytes[purpose], port, cores));
    }
    for (uint32_t i = 0; i < s->result_count; i++) {
        const rn_stablehlo_entry *port = &s->results[i];
        if (port->kind != RN_STABLEHLO_STATE) // it takes the place of its argument
            RN_TRY(
                add_port(&purpose_bytes[rn_graph_value(graph, port->value)->purpose], port, cores));
    }
    return RN_OK;
}

// ---- temporary memory ---------------------------------------------------------------------------

// XLA fuses what is element by element and shares memory over time, so most of it is the values
// between nodes and, while a node runs, what its program holds as a whole: the scores of attention
// and the pages that it gathers; and a weight in the dtype of a product. The factors are calibrated
// with XLA's CPU compiler (docs/engines.md): never too low there, and where another compiler takes
// more, a session is refused with both numbers.
enum { SCORES = 2, PAGES = 4, TAPS = 6 };
// Where the plugin's memory is the host's, so is its compiler's, and the code that it makes: what
// the process was seen to take for the programs of all buckets.
#define COMPILER_BYTES ((uint64_t)80 << 20)
#define NODE_BYTES     ((uint64_t)320 << 10)
#define POOL_BYTES     ((uint64_t)128 << 20)

static const uint64_t *dims_of(const rn_graph *graph, rn_value value) {
    return rn_graph_value(graph, value)->shape.dims;
}

// q (ROWS, H, D), kv (pages, 2, HK, page_tokens, D), table (sequences, max_pages).
static uint64_t count_pages(const rn_graph *graph, rn_value q, rn_value kv, rn_value table,
                            uint64_t rows) {
    const uint64_t *qd = dims_of(graph, q), *kd = dims_of(graph, kv), *td = dims_of(graph, table);
    uint64_t keys = td[1] * kd[3], heads = qd[1];
    uint64_t gathered = td[0] > 1 && rows <= td[0] ? rows : 1; // sequences at a time
    return SCORES * rn_executable_floats(rows, heads, keys) +
           PAGES * rn_executable_floats(gathered, keys, kd[1] * kd[2] * kd[4]);
}

static uint64_t count_within(const rn_graph *graph, const rn_node *node, uint64_t rows) {
    const rn_value *in = node->inputs;
    const uint64_t *q = dims_of(graph, in[0]);
    switch (node->op) {
    case RN_OP_PAGED_ATTENTION:
        return count_pages(graph, in[0], in[1], in[4], rows);
    case RN_OP_ATTEND:
        return count_pages(graph, in[0], in[3], in[6], rows);
    case RN_OP_VARLEN_ATTENTION:
        return SCORES * rn_executable_floats(rows, rows, q[1]);
    case RN_OP_ATTENTION:
        return SCORES * rn_executable_floats((q[0] == RN_ROWS ? rows : q[0]) * q[1],
                                             dims_of(graph, in[1])[1], q[2]);
    case RN_OP_GRID_SAMPLE: // what is read at the places around each, and their places
        return TAPS *
               rn_executable_floats(
                   1, 1, rn_shape_elements(rn_graph_value(graph, node->outputs[0])->shape, rows));
    default:
        return 0;
    }
}

static bool rearranges(rn_op op) {
    return op == RN_OP_CONV2D || op == RN_OP_CONV || op == RN_OP_CONV_CLAMP ||
           op == RN_OP_CONV_TRANSPOSE || op == RN_OP_RNN;
}

// Whether the program makes another form of the weight, as a whole: the dtype of products, or a
// kernel of a convolution or a recurrence with its axes in another order.
static bool is_remade(const rn_graph *graph, rn_value value, rn_op op,
                      const rn_stablehlo_options *options) {
    const rn_value_info *info = rn_graph_value(graph, value);
    const rn_dtype_info *type = rn_dtype_get(info->dtype);
    bool half = info->dtype == RN_DTYPE_F16 || info->dtype == RN_DTYPE_BF16;
    bool whole = !type->is_float && type->block_elements == 1; // i8 and the like
    bool given_once = info->role == RN_ROLE_WEIGHT || info->role == RN_ROLE_CONSTANT;
    if (!given_once || info->shape.rank < 2) return false;
    if (whole) return true;
    if (rearranges(op) && !rn_stablehlo_is_turned(graph, options, value)) return true;
    rn_dtype given = info->dtype == RN_DTYPE_F32 || (half && !options->widen_all)
                         ? info->dtype
                         : options->widened;
    return given != options->products;
}

// XLA's CPU compiler does so with all of them at once.
static uint64_t count_remade(const rn_graph *graph, const rn_node *node,
                             const rn_stablehlo_options *options) {
    uint64_t bytes = 0;
    if (node->op == RN_OP_EMBEDDING || node->op == RN_OP_GATHER) return 0; // some of its rows
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == RN_NO_VALUE) continue;
        const rn_value_info *info = rn_graph_value(graph, node->inputs[i]);
        if (is_remade(graph, node->inputs[i], node->op, options))
            bytes += rn_executable_floats(rn_shape_elements(info->shape, 1), 1, 1);
    }
    return bytes;
}

// A value as the program computes it: f32, but for wide indices.
static uint64_t live_bytes(const rn_graph *graph, rn_value value, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(graph, value);
    bool wide = info->dtype == RN_DTYPE_F64 || info->dtype == RN_DTYPE_I64;
    if (info->role == RN_ROLE_STATE || info->role == RN_ROLE_OUTPUT) return 0;
    return rn_round_up(rn_executable_floats(rn_shape_elements(info->shape, rows), wide ? 2 : 1, 1),
                       64);
}

typedef struct counting {
    const rn_graph *graph;
    const rn_stablehlo_options *options;
    uint64_t most, remade;
} counting;

static uint64_t count_value(void *self, rn_value value) {
    const counting *c = self;
    return live_bytes(c->graph, value, c->options->rows);
}

static void count_node(void *self, const rn_node *node, uint64_t made_bytes, uint64_t live) {
    counting *c = self;
    (void)made_bytes;
    c->remade += count_remade(c->graph, node, c->options);
    c->most = rn_max_u64(c->most, live + count_within(c->graph, node, c->options->rows));
}

// The most that lives at once, with what the node that runs then holds within.
static rn_status count_temporary(const rn_graph *graph, const rn_stablehlo_options *options,
                                 uint64_t *out) {
    counting c = {.graph = graph, .options = options};
    rn_live_walk walk = {.bytes = count_value, .visit = count_node, .self = &c};
    RN_TRY(rn_executable_walk_live(graph, &walk));
    *out = c.most + c.remade;
    return RN_OK;
}

rn_status rn_pjrt_count_program(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                                uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    rn_stablehlo_options options = rn_pjrt_options(caps, graph, rows);
    rn_stablehlo_signature signature;
    rn_arena scratch;
    uint64_t temporary = 0;
    uint32_t cores = caps->cores > 1 ? caps->cores : 1;
    RN_TRY(rn_stablehlo_check(graph, &options));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = rn_stablehlo_signature_make(graph, &options, &scratch, &signature);
    if (s == RN_OK) s = count_ports(graph, &signature, cores, purpose_bytes);
    // XLA's CPU compiler scatters into copies of the states, all of them at once.
    uint32_t copies = !caps->own_memory + (caps->own[RN_PJRT_TWICE] != 0);
    for (uint32_t i = 0; s == RN_OK && i < signature.result_count; i++)
        if (signature.results[i].kind == RN_STABLEHLO_STATE)
            s = add(&purpose_bytes[RN_PURPOSE_WORKSPACE],
                    copies * cores * rn_pjrt_part_bytes(&signature.results[i], cores));
    rn_arena_free_all(&scratch);
    if (s == RN_OK) s = count_temporary(graph, &options, &temporary);
    // Its CPU compiler does not share all that could be: 1.6 times were seen of what is alive.
    temporary += temporary / (caps->own_memory ? 20 : 4) + (uint64_t)caps->own[RN_PJRT_LEAST];
    // Between nodes a core may have all of a value: what is divided is the compiler's to know.
    for (uint32_t c = 0; s == RN_OK && c < cores; c++)
        s = add(&purpose_bytes[RN_PURPOSE_WORKSPACE], temporary);
    return s;
}

// A pool does not split a chunk where less than 128 MiB would be left, and rounds all of them.
rn_status rn_pjrt_count_beside(const rn_device_caps *caps, const rn_graph *graph,
                               uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    uint64_t context = (uint64_t)caps->own[RN_PJRT_CONTEXT], sum = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        RN_TRY(add(&sum, purpose_bytes[p]));
    if (!caps->own_memory)
        RN_TRY(add(&purpose_bytes[RN_PURPOSE_OTHER],
                   COMPILER_BYTES + NODE_BYTES * rn_graph_node_count(graph)));
    if (context == 0) return RN_OK;
    uint64_t cores = caps->cores > 1 ? caps->cores : 1;
    RN_TRY(add(&purpose_bytes[RN_PURPOSE_OTHER], sum / 50 + cores * POOL_BYTES));
    return add(&purpose_bytes[RN_PURPOSE_UNACCOUNTED], cores * context);
}

rn_status rn_pjrt_estimate(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                           uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    RN_TRY(rn_pjrt_count_program(caps, graph, rows, purpose_bytes));
    return rn_pjrt_count_beside(caps, graph, purpose_bytes);
}

// The plugin itself, and what is remade here on its way: the largest of the weights that are put
// together or turned, once more where it is widened before.
uint64_t rn_pjrt_count_host(const rn_device_caps *caps, const rn_graph *graph) {
    rn_stablehlo_options options = rn_pjrt_options(caps, graph, 1);
    rn_stablehlo_signature signature = {0};
    uint64_t largest = 0;
    rn_arena scratch;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    if (rn_stablehlo_signature_make(graph, &options, &scratch, &signature) == RN_OK)
        for (uint32_t i = 0; i < signature.argument_count; i++) {
            const rn_stablehlo_entry *port = &signature.arguments[i];
            uint64_t times = port->part_count ? 1 : 0;
            if (port->turned)
                times = rn_graph_value(graph, port->value)->dtype == port->dtype ? 1 : 2;
            largest = rn_max_u64(largest, times * port->bytes);
        }
    rn_arena_free_all(&scratch);
    return largest + (uint64_t)caps->own[RN_PJRT_HOST];
}

void rn_pjrt_describe_numbers(const rn_device_caps *caps, const rn_graph *graph, char *out,
                              size_t bytes) {
    rn_stablehlo_options options = rn_pjrt_options(caps, graph, 1);
    uint64_t half = 0, quantised = 0;
    rn_executable_count_narrow(graph, &half, &quantised);
    bool rounds = options.products == RN_DTYPE_BF16 || options.products == RN_DTYPE_F16;
    uint64_t widened = quantised + (options.widen_all ? half : 0);
    out[0] = 0;
    if (rounds)
        snprintf(out, bytes, "products round their operands to %s and sum in f32",
                 rn_dtype_get(options.products)->name);
    size_t used = strlen(out);
    if (widened)
        snprintf(out + used, bytes - used, "%s%s of narrower weights are widened to %s",
                 used ? "; " : "", rn_size_format(widened).text,
                 rn_dtype_get(options.widened)->name);
}
