// backend.c — the CPU's descriptor.
#include "backend/cpu/cpu.h"

static rn_status open_cpu(const rn_target *target, uint32_t threads, rn_device **out) {
    (void)target;
    return rn_cpu_device_create(threads, out);
}

const rn_backend rn_cpu_backend = {
    .name = "cpu",
    .syntax = "cpu",
    .auto_rank = 2,
    .is_host = true,
    .parse = rn_target_parse_plain,
    .open = open_cpu,
    .cost = rn_cpu_cost,
};
