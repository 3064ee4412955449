// machine.h — what a result was measured on.
#ifndef RN_BENCH_MACHINE_H
#define RN_BENCH_MACHINE_H

#include <ration/bench.h>

// Version, date, names and sizes; and empty_s: what reading the clock twice takes, which is the
// harness's own part of each sample.
void rn_machine_describe(rn_bench_results *out);

// ---- energy -------------------------------------------------------------------------------------

// Joules since some moment, summed over all processor packages (RAPL) and GPUs (NVML) that tell.
typedef struct rn_energy {
    double host_j, device_j; // NAN: nobody tells
} rn_energy;
rn_energy rn_energy_read(bool with_device);
// Between two readings; NAN where nobody tells, never 0. `source` says who did: "rapl", "nvml".
double rn_energy_between(const rn_energy *begin, const rn_energy *end, char *source, size_t bytes);

#endif
