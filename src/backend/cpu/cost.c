// cost.c — seconds of products on the CPU, which differ from kind to kind of weight: plans count
// with them. Everything else is bound by the common rates (device/call_cost.h).
//
// A product of one row takes its time to cut weights out of their bits, one of many multiplies what
// was cut once. Both are counted in units of one weight by one of many rows, of q8_0 where
// activations are rounded and of f32 where they are not: that is what the rates of this machine
// say. `bench/product_bench costs` measures the table; 2026-11 on a Xeon with AVX-512 and VNNI,
// whose slower levels were chosen by RATION_CPU.
#include "backend/cpu/cpu.h"

#include "backend/cpu/packed_product.h"
#include "base/cpu.h"
#include "graph/quantized_product.h"

#include <math.h>

enum { FEW = 8 };

// Units a weight: of a product of 1 row, of FEW rows, and of each row more.
typedef struct units {
    float one, few, more; // all 0: not known
} units;

// By level: portable, AVX2, AVX-512.
static const units measured[RN_DTYPE_COUNT][3] = {
    [RN_DTYPE_F32] = {{0.9, 7.3, 0.94}, {1.7, 9.0, 1.03}, {3.0, 6.9, 0.97}},
    [RN_DTYPE_F16] = {{4.2, 10.7, 0.91}, {2.2, 9.7, 0.96}, {2.7, 12.3, 0.93}},
    [RN_DTYPE_BF16] = {{2.4, 8.7, 0.95}, {2.2, 9.7, 0.96}, {2.7, 12.2, 0.93}},
    [RN_DTYPE_F8_E4M3] = {{4.2, 10.7, 0.91}, {11.4, 20.1, 0.97}, {9.9, 16.6, 0.93}},
    [RN_DTYPE_Q4_0] = {{2.2, 7.5, 0.96}, {1.0, 5.1, 0.61}, {1.7, 7.1, 0.91}},
    [RN_DTYPE_Q4_1] = {{2.3, 9.5, 1.20}, {1.2, 5.8, 0.64}, {2.6, 9.3, 1.15}},
    [RN_DTYPE_Q5_0] = {{4.7, 12.5, 1.60}, {1.8, 6.1, 0.60}, {3.2, 9.1, 0.98}},
    [RN_DTYPE_Q5_1] = {{4.9, 15.8, 1.93}, {2.1, 6.6, 0.64}, {3.8, 11.0, 1.14}},
    [RN_DTYPE_Q8_0] = {{2.2, 7.8, 0.96}, {1.4, 8.7, 1.00}, {2.2, 7.1, 0.99}},
    [RN_DTYPE_Q2_K] = {{2.0, 10.2, 1.32}, {1.4, 7.4, 0.76}, {3.2, 13.1, 1.27}},
    [RN_DTYPE_Q3_K] = {{1.9, 8.2, 1.04}, {2.0, 7.3, 0.75}, {4.4, 14.9, 1.07}},
    [RN_DTYPE_Q4_K] = {{1.8, 9.2, 1.16}, {1.2, 6.1, 0.64}, {2.8, 10.5, 1.07}},
    [RN_DTYPE_Q5_K] = {{2.2, 9.4, 1.22}, {1.7, 6.7, 0.65}, {3.9, 12.5, 1.08}},
    [RN_DTYPE_Q6_K] = {{2.0, 8.2, 1.03}, {1.7, 7.0, 0.74}, {3.9, 12.1, 1.26}},
    [RN_DTYPE_IQ4_NL] = {{2.7, 9.1, 1.19}, {1.8, 9.2, 1.01}, {2.4, 7.6, 0.93}},
    [RN_DTYPE_IQ4_XS] = {{2.6, 8.5, 1.19}, {2.0, 9.5, 1.00}, {2.5, 8.1, 0.91}},
    [RN_DTYPE_TQ1_0] = {{4.9, 12.7, 1.60}, {2.0, 6.8, 0.60}, {3.8, 10.6, 0.82}},
    [RN_DTYPE_TQ2_0] = {{1.3, 5.9, 0.73}, {0.9, 5.5, 0.62}, {1.9, 7.2, 0.91}},
    [RN_DTYPE_MXFP4] = {{2.7, 8.6, 1.16}, {1.3, 5.6, 0.61}, {2.4, 9.0, 0.91}},
    [RN_DTYPE_NVFP4] = {{2.8, 9.2, 1.15}, {1.5, 6.8, 0.75}, {2.7, 9.1, 1.25}},
    [RN_DTYPE_Q1_0] = {{3.5, 10.1, 1.27}, {1.2, 5.7, 0.61}, {2.1, 8.2, 0.86}},
    [RN_DTYPE_Q2_0] = {{3.9, 10.5, 1.35}, {2.3, 6.6, 0.64}, {4.5, 9.4, 0.87}},
    [RN_DTYPE_IQ2_XXS] = {{3.4, 11.3, 1.13}, {4.9, 21.6, 1.91}, {15.7, 83.3, 7.39}},
    [RN_DTYPE_IQ2_XS] = {{3.4, 11.4, 1.13}, {4.8, 25.3, 1.88}, {16.0, 97.9, 7.29}},
    [RN_DTYPE_IQ2_S] = {{3.3, 11.1, 1.13}, {4.8, 21.3, 1.92}, {17.2, 82.9, 7.35}},
    [RN_DTYPE_IQ3_XXS] = {{3.5, 11.5, 1.13}, {5.5, 23.5, 1.98}, {21.8, 88.2, 7.31}},
    [RN_DTYPE_IQ3_S] = {{3.6, 11.5, 1.12}, {6.4, 24.2, 1.92}, {24.9, 93.2, 7.44}},
    [RN_DTYPE_IQ1_S] = {{2.7, 10.6, 1.13}, {5.1, 27.8, 2.00}, {17.9, 105.0, 7.23}},
    [RN_DTYPE_IQ1_M] = {{2.7, 10.8, 1.13}, {5.2, 23.6, 1.90}, {18.6, 91.0, 7.34}},
    [RN_DTYPE_U4_B32] = {{1.5, 9.4, 1.14}, {4.3, 17.3, 1.91}, {16.8, 66.8, 7.45}},
    [RN_DTYPE_FP4_B64] = {{3.4, 11.4, 1.14}, {7.7, 20.3, 1.92}, {29.0, 79.1, 7.37}},
    [RN_DTYPE_INT8] = {{2.1, 7.1, 0.93}, {1.3, 8.4, 0.97}, {1.7, 5.7, 0.99}},
    [RN_DTYPE_INT4] = {{6.9, 12.8, 0.93}, {3.6, 11.4, 1.02}, {3.6, 11.0, 0.94}},
    [RN_DTYPE_NF4_DQ] = {{3.1, 8.7, 0.91}, {5.2, 15.2, 1.06}, {3.3, 10.8, 0.93}}, // nf4's
    [RN_DTYPE_NF4] = {{3.1, 8.7, 0.91}, {5.2, 15.2, 1.06}, {3.3, 10.8, 0.93}},
};

// The level whose kernels multiply: rounded products of AVX-512 machines without VNNI are AVX2's.
static units units_of(rn_dtype dtype, bool rounded) {
    rn_cpu_level level = rn_cpu_level_get();
    if (level == RN_CPU_AVX512 && rounded && !rn_cpu_has_vnni()) level = RN_CPU_AVX2;
    return measured[dtype][level];
}

static double count_units(units u, double rows) {
    if (rows <= FEW) return u.one + (u.few - u.one) * fmax(rows - 1, 0) / (FEW - 1);
    return u.few + u.more * (rows - FEW);
}

// Seconds of both. Few rows by floats wait for memory alone or not at all: the rate of memory is
// theirs. More of them are multiplied once weights are widened, so that nothing overlaps. Cutting
// bits and waiting overlap in part: between the longer one and the sum.
static double overlap(double arithmetic, double memory, bool rounded, double rows) {
    if (rounded) return pow(pow(arithmetic, 1.6) + pow(memory, 1.6), 1 / 1.6);
    if (rows <= (double)rn_packed_floats_few()) return fmax(arithmetic, memory);
    return arithmetic + memory;
}

static double conv_share(const rn_call *call) {
    switch (call->op) {
    case RN_OP_CONV2D:
        return rn_cpu_conv2d_share(call);
    case RN_OP_CONV2D_GRAD_INPUT:
        return rn_cpu_conv2d_grad_input_share(call);
    case RN_OP_CONV_CLAMP:
        return rn_cpu_conv_clamp_share(call);
    default:
        return 1;
    }
}

// Products of bytes (product.c) in units of q8_0's, as above: bench/product_bench says what one is.
// With AMX `more` is that of its tiles, which few rows do without.
static units byte_units(void) {
    static const units levels[3] = {
        {0.19f, 0.93f, 0.13f}, {2.8f, 5.2f, 0.41f}, {2.4f, 10.1f, 1.2f}};
    rn_cpu_level level = rn_cpu_level_get();
    if (level == RN_CPU_AVX512 && !rn_cpu_has_vnni()) level = RN_CPU_AVX2;
    units u = levels[level];
    if (rn_cpu_has_amx()) u.more = 0.24f;
    return u;
}

static bool is_product_of_bytes(const rn_call *call) {
    bool product = call->op == RN_OP_PRODUCT || call->op == RN_OP_PRODUCT_SCALED;
    rn_dtype b = product ? call->inputs[1].dtype : RN_DTYPE_NONE;
    return b == RN_DTYPE_I8 || b == RN_DTYPE_U8;
}

static double byte_cost(const rn_device_caps *caps, const rn_call *call, rn_cost cost) {
    const rn_tensor *b = &call->inputs[1], *y = &call->outputs[0];
    uint64_t n = b->shape.dims[b->shape.rank - 1], k = b->shape.dims[b->shape.rank - 2];
    double rows = n ? (double)(rn_tensor_elements(y) / n) : 0, weights = (double)n * (double)k;
    double arithmetic = count_units(byte_units(), rows) * 2 / caps->quantized_flops * weights;
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return overlap(arithmetic, memory, true, rows) + caps->step_seconds;
}

// As many products as matrices are touched, each with its share of the rows.
static double experts_cost(const rn_device_caps *caps, const rn_call *call, const rn_expert_call *e,
                           rn_cost cost) {
    const rn_tensor *w = &call->inputs[e->weight];
    bool quantized = rn_product_is_quantized(w->dtype);
    bool rounded = quantized && !e->unquantised_activations;
    units u = units_of(w->dtype, rounded);
    if (u.one == 0 || quantized != rounded) return rn_cost_roofline(caps, call, cost);
    double choices = rn_cost_rows(call), touched = fmin(choices, e->experts);
    double rows = touched > 0 ? choices / touched : 0, unit = 2 / caps->flops;
    double weights = touched * (double)e->count * (double)w->shape.dims[1];
    if (rounded) unit = 2 / caps->quantized_flops;
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return overlap(count_units(u, rows) * unit * weights, memory, rounded, rows) +
           caps->step_seconds;
}

double rn_cpu_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    (void)workload;
    rn_cost cost = rn_cost_count(call);
    cost.flops *= conv_share(call);
    rn_product product;
    if (is_product_of_bytes(call)) return byte_cost(caps, call, cost);
    rn_expert_call experts;
    if (rn_call_experts(call, &experts)) return experts_cost(caps, call, &experts, cost);
    if (!rn_call_product(call, 0, &product) || product.transposed)
        return rn_cost_roofline(caps, call, cost);
    const rn_tensor *w = &call->inputs[product.weight];
    bool quantized = rn_product_is_quantized(w->dtype);
    bool rounded = quantized && !product.unquantised_activations;
    units u = units_of(w->dtype, rounded);
    if (w->shape.rank != 2 || u.one == 0 || quantized != rounded)
        return rn_cost_roofline(caps, call, cost);
    double unit = 2 / (rounded ? caps->quantized_flops : caps->flops);
    double rows = rn_cost_rows(call);
    double arithmetic = count_units(u, rows) * unit * (double)rn_tensor_elements(w);
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return overlap(arithmetic, memory, rounded, rows) + caps->step_seconds;
}
