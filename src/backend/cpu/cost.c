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
    [RN_DTYPE_Q4_0] = {{2.2, 7.5, 0.96}, {0.8, 4.4, 0.54}, {1.7, 7.1, 0.91}},
    [RN_DTYPE_Q4_1] = {{2.3, 9.5, 1.20}, {1.0, 5.3, 0.58}, {2.6, 9.3, 1.15}},
    [RN_DTYPE_Q5_0] = {{4.7, 12.5, 1.60}, {1.5, 5.3, 0.57}, {3.2, 9.1, 0.98}},
    [RN_DTYPE_Q5_1] = {{4.9, 15.8, 1.93}, {1.7, 6.0, 0.58}, {3.8, 11.0, 1.14}},
    [RN_DTYPE_Q8_0] = {{2.2, 7.8, 0.96}, {1.2, 7.5, 1.03}, {2.2, 7.1, 0.99}},
    [RN_DTYPE_Q2_K] = {{2.0, 10.2, 1.32}, {1.2, 6.4, 0.72}, {3.4, 13.3, 1.54}},
    [RN_DTYPE_Q3_K] = {{1.9, 8.2, 1.04}, {1.7, 6.3, 0.62}, {4.4, 14.9, 1.07}},
    [RN_DTYPE_Q4_K] = {{1.8, 9.2, 1.16}, {1.0, 5.4, 0.57}, {2.8, 10.5, 1.07}},
    [RN_DTYPE_Q5_K] = {{2.2, 9.4, 1.22}, {1.5, 6.1, 0.58}, {3.9, 12.5, 1.08}},
    [RN_DTYPE_Q6_K] = {{2.0, 8.2, 1.03}, {1.4, 6.1, 0.62}, {3.9, 12.1, 1.26}},
    [RN_DTYPE_IQ4_NL] = {{2.7, 9.1, 1.19}, {1.4, 8.1, 0.97}, {2.4, 7.6, 0.93}},
    [RN_DTYPE_IQ4_XS] = {{2.6, 8.5, 1.19}, {1.7, 8.1, 1.01}, {2.5, 8.1, 0.91}},
    [RN_DTYPE_TQ1_0] = {{4.9, 12.7, 1.60}, {1.6, 5.6, 0.54}, {3.8, 10.6, 0.82}},
    [RN_DTYPE_TQ2_0] = {{1.3, 5.9, 0.73}, {0.8, 4.6, 0.50}, {1.9, 7.2, 0.91}},
    [RN_DTYPE_MXFP4] = {{2.7, 8.6, 1.16}, {1.1, 4.8, 0.54}, {2.4, 9.0, 0.91}},
    [RN_DTYPE_NVFP4] = {{2.8, 9.2, 1.15}, {1.1, 6.0, 0.62}, {2.7, 9.1, 1.25}},
    [RN_DTYPE_Q1_0] = {{3.5, 10.1, 1.27}, {1.0, 4.2, 0.52}, {2.1, 8.2, 0.86}},
    [RN_DTYPE_Q2_0] = {{3.9, 10.5, 1.35}, {1.8, 5.6, 0.53}, {4.5, 9.4, 0.87}},
    [RN_DTYPE_INT8] = {{2.1, 7.1, 0.93}, {1.1, 7.1, 0.97}, {1.7, 5.7, 0.99}},
    [RN_DTYPE_INT4] = {{6.9, 12.8, 0.93}, {3.6, 11.4, 1.02}, {3.6, 11.0, 0.94}},
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

double rn_cpu_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    (void)workload;
    rn_cost cost = rn_cost_count(call);
    rn_product product;
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
