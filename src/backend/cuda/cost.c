// cost.c — products with weights in tiles, and attention: what the common rates do not tell.
#include "backend/cuda/cost.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/linear_loss.h"
#include "tensor/tiles.h"

const rn_own_rate rn_cuda_rates[RN_CUDA_RATES] = {
    [RN_CUDA_UNPACK_WEIGHTS] = {.info = {"unpack_weights_second", "unpacking", "G/s", 1e9,
                                         "q4_0 weights, for the same"},
                                .key = "unpack_weights_second",
                                .unit = 1,
                                .from = RN_RATE_FROM_ONE_ROW,
                                .dtype = RN_DTYPE_Q4_0,
                                .what = "unpacking of weights"},
    [RN_CUDA_UNPACK_BYTES] = {.info = {"unpack_bytes_second", "", "G/s", 1e9, "q8_0 weights"},
                              .key = "unpack_bytes_second",
                              .unit = 1,
                              .from = RN_RATE_FROM_ONE_ROW,
                              .dtype = RN_DTYPE_Q8_0,
                              .what = "unpacking of q8_0 weights"},
    [RN_CUDA_ATTEND_FLOPS] = {.info = {"attend_flops", "attention", "TFLOP/s", 1e12, "of 512 rows"},
                              .key = "attend_flops",
                              .unit = 1,
                              .from = RN_RATE_FROM_ATTENTION},
    [RN_CUDA_ATTEND_SECONDS] = {.info = {"attend_seconds", "", "us", 1e-6, "at least"},
                                .key = "attend_ns",
                                .unit = 1e-9,
                                .from = RN_RATE_FROM_ATTENTION_FLOOR},
};

static double max_f64(double a, double b) {
    return a > b ? a : b;
}

// ---- products with weights in tiles -------------------------------------------------------------

// The matrix units of a GPU (tensor/tiles.h). For few rows weights are brought to them as memory
// brings them, or as fast as they can be unpacked; what the units then do with the rows is not
// hidden behind that, so both are counted. One row is packed by the product itself, several by a
// launch before it.

static bool is_tiled(const rn_tensor *input) {
    return rn_tensor_given(input) && input->layout == RN_LAYOUT_TILES;
}

// A table of embeddings that is also a head lies in tiles, too.
static bool has_tiles(const rn_call *call) {
    for (uint32_t i = 0; rn_op_is(call->op, RN_TRAIT_PRODUCT) && i < call->input_count; i++)
        if (is_tiled(&call->inputs[i])) return true;
    return false;
}

static bool is_packed(const rn_tensor *w) {
    return rn_tile_form_of(w->dtype) > RN_TILE_BF16;
}

// What a form takes beside those that are measured: so many times as long to unpack a weight for
// few rows as q4_0's (0: as q8_0's), and to multiply many rows as by q8_0. An H200's.
static const struct form_times {
    double unpack, multiply;
} form_times[RN_TILE_FORM_COUNT] = {
    [RN_TILE_Q8] = {0, 1},      [RN_TILE_I8] = {0, 1},     [RN_TILE_Q4] = {1, 1},
    [RN_TILE_A4] = {1.1, 1},    [RN_TILE_N4] = {1.3, 1.3}, [RN_TILE_I4] = {1.3, 1.2},
    [RN_TILE_F4] = {1.3, 1.2},  [RN_TILE_A5] = {1.2, 1.1}, [RN_TILE_Q6] = {1.35, 1.1},
    [RN_TILE_Q3] = {1.2, 1.1},  [RN_TILE_A2] = {1.2, 1},   [RN_TILE_F8] = {0, 1.15},
    [RN_TILE_V4] = {1.35, 1.1}, [RN_TILE_C2] = {1.4, 1.1}, [RN_TILE_C3] = {1.4, 1.1},
};

// Weights a second; 0: as fast as memory.
static double unpacking_rate(const rn_device_caps *caps, const rn_tensor *w) {
    double times = form_times[rn_tile_form_of(w->dtype)].unpack;
    if (!is_packed(w)) return 0;
    return times > 0 ? caps->own[RN_CUDA_UNPACK_WEIGHTS] / times : caps->own[RN_CUDA_UNPACK_BYTES];
}

// Of the matrix units, with weights like these.
static double products_rate(const rn_device_caps *caps, const rn_tensor *w) {
    if (!is_packed(w)) return caps->flops;
    return caps->quantized_flops / form_times[rn_tile_form_of(w->dtype)].multiply;
}

static double cost_tiled_weight(const rn_device_caps *caps, const rn_tensor *w, double rows) {
    double elements = (double)rn_tensor_elements(w), rate = unpacking_rate(caps, w);
    double bring = (double)rn_tensor_bytes(w) / caps->memory_bytes_second;
    if (rate > 0) bring = max_f64(bring, elements / rate);
    return bring + 2 * rows * elements / products_rate(caps, w);
}

// Weights of one form follow each other in one launch.
static double cost_few_rows(const rn_device_caps *caps, const rn_call *call, rn_cost cost) {
    double rows = rn_cost_rows(call), seconds = rows > 1 ? caps->step_seconds : 0;
    double other_bytes = cost.read_bytes + cost.write_bytes;
    rn_tile_form form = RN_TILE_NONE;
    for (uint32_t i = 0; i < call->input_count; i++) {
        const rn_tensor *w = &call->inputs[i];
        if (!is_tiled(w)) continue;
        if (rn_tile_form_of(w->dtype) != form) seconds += caps->step_seconds;
        form = rn_tile_form_of(w->dtype);
        seconds += cost_tiled_weight(caps, w, rows);
        other_bytes -= (double)rn_tensor_bytes(w);
    }
    return seconds + other_bytes / caps->memory_bytes_second;
}

// Totals go from block to block of a ring, one segment after the other; and the first and the last
// round wait for each other. An H200's.
static double cost_ring(const rn_product_cut *cut) {
    const double hand_seconds = 0.25e-6, token_seconds = 2.6e-9, rounds = 12;
    if (cut->handed == 0) return 0;
    return (cut->handed + rounds) * (hand_seconds + token_seconds * cut->tokens);
}

// Many rows are cut into tiles, and multiprocessors take them in turns: a turn that leaves some of
// them idle takes as long as a full one. What a block waits for are its operands, column by column,
// so it takes as long as its tile's sides are, not as its area; the products' rate is that of tiles
// of 128 x 128. Blocks that run at the same time fill their pipelines and empty them, neither of
// which takes less than a kernel's minimum, and a launch waits for the one before it: on an H200
// the products of a layer one after the other took 20 to 40 us more than each by itself.
//
// `share`: bytes of a weight beside those of 16 bits. Of up to 128 tokens less is waited for where
// it is below 1; of more, multiplying takes as long.
static double cost_cut(const rn_device_caps *caps, const rn_product_cut *cut, double flops,
                       double weight_bytes, double share) {
    enum { SIDE = 128 };
    uint64_t multiprocessors = (uint64_t)caps->own[RN_CUDA_MULTIPROCESSORS];
    double rate = flops / (double)multiprocessors;
    double block = SIDE * (double)cut->columns * (cut->rows * share + cut->tokens) / rate;
    uint64_t turns = rn_div_up(cut->blocks, multiprocessors);
    double seconds = max_f64((double)turns * block, weight_bytes / caps->memory_bytes_second);
    seconds += (1 + 2 * (double)rn_div_up(turns, cut->together)) * caps->step_seconds;
    return seconds + cost_ring(cut);
}

// A launch of its own: x in 32 bits becomes packed rows in 16; for a norm it is read twice.
static double cost_packing(const rn_device_caps *caps, const rn_call *call) {
    rn_product product;
    bool normed = rn_call_product(call, 0, &product) && product.norm != RN_NO_INPUT;
    double bytes = (double)rn_tensor_bytes(&call->inputs[0]) * (normed ? 2.5 : 1.5);
    return 2 * caps->step_seconds + bytes / caps->memory_bytes_second;
}

// The bytes of the weights of the launch, which begin at *input.
static double take_weights(const rn_device_caps *caps, const rn_call *call, uint32_t count,
                           uint32_t *input, double *flops, double *elements) {
    double bytes = 0;
    for (; count > 0 && *input < call->input_count; ++*input) {
        const rn_tensor *w = &call->inputs[*input];
        if (!is_tiled(w)) continue;
        bytes += (double)rn_tensor_bytes(w);
        *elements += (double)rn_tensor_elements(w);
        *flops = products_rate(caps, w);
        count--;
    }
    return bytes;
}

double rn_cuda_cost_product(const rn_device_caps *caps, const rn_call *call,
                            const rn_product_cut *cuts, uint32_t count) {
    rn_cost cost = rn_cost_count(call);
    uint32_t input = 0;
    if (count == 0) return cost_few_rows(caps, call, cost);
    double seconds = cost_packing(caps, call);
    double other_bytes =
        cost.read_bytes + cost.write_bytes - (double)rn_tensor_bytes(&call->inputs[0]);
    for (uint32_t i = 0; i < count; i++) {
        double flops = caps->flops, elements = 0;
        double bytes = take_weights(caps, call, cuts[i].weights, &input, &flops, &elements);
        bool some = rn_cost_rows(call) <= cuts[i].tokens && elements > 0;
        double share = some && bytes < 2 * elements ? bytes / (2 * elements) : 1;
        seconds += cost_cut(caps, &cuts[i], flops, bytes, share);
        other_bytes -= bytes;
    }
    return seconds + other_bytes / caps->memory_bytes_second;
}

static double cost_tiled_product(const rn_device_caps *caps, const rn_call *call) {
    rn_product_cut cuts[RN_PRODUCT_CUTS];
    uint32_t count = 0, multiprocessors = (uint32_t)caps->own[RN_CUDA_MULTIPROCESSORS];
    if (multiprocessors) count = rn_cuda_cut_product(call, multiprocessors, cuts);
    return rn_cuda_cost_product(caps, call, cuts, count);
}

// ---- products in 16 bits ------------------------------------------------------------------------

// Of products of 4096 rows that an H200 took, from 16 to 128256 columns, these are within 15 %: the
// matrix units' time or memory's, whichever is longer, and two launches' (one where it begins, one
// where it ends).
static double cost_half_flops(const rn_device_caps *caps, double flops, double bytes) {
    double rate = caps->own[RN_CUDA_HALF_FLOPS] > 0 ? caps->own[RN_CUDA_HALF_FLOPS] : caps->flops;
    return 2 * caps->step_seconds + max_f64(flops / rate, bytes / caps->memory_bytes_second);
}

// A weight of another type is first rounded to x's, by a launch of its own: written and read again.
static double cost_half_product(const rn_device_caps *caps, const rn_call *call, const rn_tensor *x,
                                const rn_tensor *w) {
    rn_cost cost = rn_cost_count(call);
    double seconds = cost_half_flops(caps, cost.flops, cost.read_bytes + cost.write_bytes);
    if (w->dtype == x->dtype) return seconds;
    double bytes = (double)rn_tensor_bytes(w) + 4 * (double)rn_tensor_elements(w);
    return seconds + caps->step_seconds + bytes / caps->memory_bytes_second;
}

static bool is_half_product(const rn_call *call, rn_product *out) {
    return rn_call_product(call, 0, out) && rn_cuda_is_half(call->inputs[out->x].dtype);
}

// Logits are written, read twice, written as d logits, and read twice more.
static double cost_head_loss(const rn_device_caps *caps, const rn_call *call) {
    const rn_tensor *x = &call->inputs[RN_LCE_X], *w = &call->inputs[RN_LCE_W];
    rn_cost cost = rn_cost_count(call);
    if (!rn_cuda_is_half(x->dtype)) return rn_cost_roofline(caps, call, cost);
    double logits = 2 * (double)x->shape.dims[0] * (double)w->shape.dims[0];
    return cost_half_flops(caps, cost.flops, cost.read_bytes + cost.write_bytes) +
           6 * logits / caps->memory_bytes_second;
}

// ---- attention ----------------------------------------------------------------------------------

// Inputs of ATTEND: q (rows, H, D), k, v, kv (pages, 2, HK,
// tokens, D), sequence, position, page_table (sequences, pages).
//
// One row or a few, or as many as there are sequences: a block for each row, key head and chunk of
// keys, whose launch waits for memory twice (for q, and then for keys); blocks that have no room
// take turns; and a launch that joins the chunks, if there can be several. Many rows: one launch
// appends keys, in the next each block walks along its rows' keys, which takes some time however
// few they are.

// Keys that a row sees, in the middle of a typical job; where none is known, as if all pages were
// full.
static double count_keys(const rn_call *call, double full, rn_workload workload) {
    const rn_attend_attrs *attrs = call->attrs;
    double sequences = max_f64((double)call->inputs[6].shape.dims[0], 1);
    double rows = max_f64((double)call->inputs[0].shape.dims[0] / sequences, 1);
    double prompt = (double)workload.rows / sequences, keys = full - (rows - 1) / 2;
    if (workload.rows) keys = rows > 1 ? prompt / 2 : prompt + (double)workload.passes / 2;
    if (attrs->attention.window && keys > attrs->attention.window) keys = attrs->attention.window;
    return keys < 1 ? 1 : keys < full ? keys : full;
}

static double cost_attend(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    enum { FEW_ROWS = 16, BATCH_ROWS = 256, CHUNK = 256, TOGETHER = 2 };
    const double turn_seconds = 4e-6; // an H200's
    const rn_tensor *q = &call->inputs[0], *kv = &call->inputs[3], *table = &call->inputs[6];
    rn_cost cost = rn_cost_count(call);
    double full = (double)(table->shape.dims[1] * kv->shape.dims[3]);
    double keys = count_keys(call, full, workload);
    double pages = (double)rn_tensor_bytes(kv) * (full > 0 ? 1 - keys / full : 0); // nobody reads
    double memory = (cost.read_bytes + cost.write_bytes - pages) / caps->memory_bytes_second;
    double flops = 4 * (double)rn_tensor_elements(q) * keys, rate = caps->own[RN_CUDA_ATTEND_FLOPS];
    double arithmetic = flops / (rate > 0 ? rate : caps->flops);
    uint64_t rows = q->shape.dims[0], slots = (uint64_t)caps->own[RN_CUDA_MULTIPROCESSORS];
    bool few = rows <= FEW_ROWS || (rows <= BATCH_ROWS && rows <= table->shape.dims[0]);
    uint64_t turns = few && slots ? rn_div_up(rows * kv->shape.dims[2], slots * TOGETHER) : 1;
    double launches = few && full > CHUNK ? 3 : 2;
    return launches * caps->step_seconds + (few ? 0 : caps->own[RN_CUDA_ATTEND_SECONDS]) +
           (turns > 1 ? (double)(turns - 1) * turn_seconds : 0) + max_f64(memory, arithmetic);
}

// Attention over whole tensors and its gradients, by form (flash.c): parts of the products' rate
// that the matrix units reach with 16-bit values, and the plain kernels with all others. An H200's.
// The gradients are counted as five products, of which the matrix units make seven.
static double cost_whole_attention(const rn_device_caps *caps, const rn_call *call) {
    const rn_tensor *q = &call->inputs[0];
    bool backward = call->op == RN_OP_ATTENTION_GRAD;
    bool matrix = q->dtype != RN_DTYPE_F32 && call->inputs[1].dtype == q->dtype &&
                  call->inputs[3].dtype != RN_DTYPE_F32 && q->shape.dims[3] % 8 == 0;
    double part = matrix ? (backward ? 0.65 : 0.8) : (backward ? 0.015 : 0.02);
    rn_cost cost = rn_cost_count(call);
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return (backward ? 3 : 1) * caps->step_seconds +
           max_f64(cost.flops / (caps->flops * part), memory);
}

// ---- convolutions -------------------------------------------------------------------------------

static bool is_conv(rn_op op) {
    return op == RN_OP_CONV2D || op == RN_OP_CONV2D_GRAD_INPUT || op == RN_OP_CONV2D_GRAD_WEIGHT ||
           op == RN_OP_CONV || op == RN_OP_CONV_TRANSPOSE || op == RN_OP_CONV_GRAD_WEIGHT;
}

// Multiply-adds in f32: a part of the products' rate, an H200's.
static double cost_plain_flops(const rn_device_caps *caps, rn_cost cost) {
    const double plain = 0.05;
    double bytes = cost.read_bytes + cost.write_bytes;
    return 2 * caps->step_seconds +
           max_f64(cost.flops / (caps->flops * plain), bytes / caps->memory_bytes_second);
}

// On matrix units as products are; else by multiply-adds.
static double cost_conv(const rn_device_caps *caps, const rn_call *call) {
    rn_cost cost = rn_cost_count(call);
    double bytes = cost.read_bytes + cost.write_bytes;
    bool first = call->op != RN_OP_CONV2D_GRAD_INPUT;
    if (rn_cuda_is_half(call->inputs[first ? 0 : 1].dtype))
        return caps->step_seconds + cost_half_flops(caps, cost.flops, bytes);
    return cost_plain_flops(caps, cost);
}

// ---- any call -----------------------------------------------------------------------------------

double rn_cuda_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    rn_product product;
    if (is_half_product(call, &product))
        return cost_half_product(caps, call, &call->inputs[product.x],
                                 &call->inputs[product.weight]);
    if (call->op == RN_OP_LINEAR_CROSS_ENTROPY) return cost_head_loss(caps, call);
    if (has_tiles(call)) return cost_tiled_product(caps, call);
    if (call->op == RN_OP_ATTEND) return cost_attend(caps, call, workload);
    if (call->op == RN_OP_ATTENTION || call->op == RN_OP_ATTENTION_GRAD)
        return cost_whole_attention(caps, call);
    if (is_conv(call->op)) return cost_conv(caps, call);
    if (call->op == RN_OP_ADAPTED_NORM) return cost_plain_flops(caps, rn_cost_count(call));
    return rn_cost_roofline(caps, call, rn_cost_count(call));
}
