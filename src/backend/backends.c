// backends.c — the back ends that this library has: a row each, in the order in which help names
// them.
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/null/null.h"
#include "backend/ort/ort.h"
#include "backend/pjrt/pjrt.h"
#include "backend/sim/sim.h"

const rn_backend *const rn_backends[] = {
    &rn_cpu_backend, &rn_cuda_backend, &rn_xla_backend,  &rn_neuron_backend,
    &rn_ort_backend, &rn_sim_backend,  &rn_null_backend, NULL,
};
