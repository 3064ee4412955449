// call_cost.c — what any device's calls cost by the common rates.
#include "device/call_cost.h"

#include "device/registry.h"

static double max_f64(double a, double b) {
    return a > b ? a : b;
}

rn_cost rn_cost_count(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    rn_cost cost = {0};
    if (op->cost)
        op->cost(call, &cost);
    else
        rn_cost_bytes(call, &cost);
    return cost;
}

double rn_cost_rows(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t cols = y.rank ? y.dims[y.rank - 1] : 1;
    return cols ? (double)rn_shape_elements(y, 1) / (double)cols : 0;
}

// Whether it runs on int8 units.
static bool is_quantized(const rn_call *call) {
    rn_product product;
    if (rn_call_product(call, 0, &product) && product.unquantised_activations) return false;
    for (uint32_t i = 0; i < call->input_count; i++) {
        rn_dtype dtype = call->inputs[i].dtype;
        if (rn_dtype_get(dtype)->block_elements > 1 || dtype == RN_DTYPE_INT8) return true;
    }
    return false;
}

// A product brings its weights to its rows once, which costs as much as some rows more.
static double product_overhead(const rn_device_caps *caps, const rn_call *call) {
    if (!rn_op_is(call->op, RN_TRAIT_PRODUCT)) return 1;
    return 1 + caps->product_rows / max_f64(rn_cost_rows(call), 1);
}

double rn_cost_roofline(const rn_device_caps *caps, const rn_call *call, rn_cost cost) {
    double arithmetic = cost.flops / (is_quantized(call) ? caps->quantized_flops : caps->flops);
    arithmetic *= product_overhead(caps, call);
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return max_f64(arithmetic, memory) + caps->step_seconds;
}

// Whether parts of other ranks come in.
static bool gathers(const rn_call *call) {
    return rn_op_is(call->op, RN_TRAIT_COLLECTIVE) &&
           rn_tensor_bytes(&call->outputs[0]) > rn_tensor_bytes(&call->inputs[0]);
}

// All parts are under way at once, and each rank's comes out of one link.
static double collective_seconds(const rn_device_caps *caps, const rn_call *call) {
    const double guessed_seconds = 30e-6, guessed_bytes_second = 2e9; // sockets of one machine
    double latency = caps->message_seconds > 0 ? caps->message_seconds : guessed_seconds;
    double rate =
        caps->message_bytes_second > 0 ? caps->message_bytes_second : guessed_bytes_second;
    double moved =
        (double)rn_tensor_bytes(&call->outputs[0]) - (double)rn_tensor_bytes(&call->inputs[0]);
    return caps->step_seconds + latency + moved / rate;
}

double rn_cost_call(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    if (gathers(call)) return collective_seconds(caps, call);
    if (caps->backend && caps->backend->cost) return caps->backend->cost(caps, call, workload);
    return rn_cost_roofline(caps, call, rn_cost_count(call));
}
