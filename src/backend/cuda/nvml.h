// nvml.h — what NVIDIA's management library says of a GPU's memory, where there is one.
#ifndef RN_BACKEND_CUDA_NVML_H
#define RN_BACKEND_CUDA_NVML_H

#include <stdbool.h>
#include <stdint.h>

// Bytes in use on the GPU at this PCI address, by whomever. Needs no context. False: not known.
bool rn_nvml_used(const char *pci_bus_id, uint64_t *out_bytes);
// The same by this process. False: not known, as in a container, which does not see its own number;
// but where only one process uses the GPU, and this one is known to, it is that.
bool rn_nvml_used_here(const char *pci_bus_id, uint64_t *out_bytes);
// The PCI Express link of the GPU at its best: generation (5) and lanes (16). False: not known.
bool rn_nvml_link(const char *pci_bus_id, unsigned *out_generation, unsigned *out_lanes);

#endif
