// neuron.h — what Neuron's driver says about the memory of cores (neuron.c), and, where the driver
// has no files for that, what neuron-monitor says (neuron_monitor.c). Never seen on a device.
#ifndef RN_BACKEND_PJRT_NEURON_H
#define RN_BACKEND_PJRT_NEURON_H

#include "base/str.h"
#include "memory/device_usage.h"

// Whether a list such as "0-1,4" names the core; an empty list names all.
bool rn_neuron_names(const char *cores, uint32_t core);

// What the named cores hold, from the files of the driver:
//     $RATION_NEURON_SYSFS [/sys/devices/virtual/neuron_device]
//       neuron0/neuron_core0/stats/memory_usage/device_mem/tensors/total
// Cores are numbered through all devices. False: there are no such files.
bool rn_neuron_read_sysfs(const char *cores, rn_device_usage *out);

// ---- neuron-monitor -----------------------------------------------------------------------------

// What a line of it says of the named cores, all processes together. False: it is no such line.
bool rn_neuron_read_line(const char *cores, rn_str line, rn_device_usage *out);

// A child process ($RATION_NEURON_MONITOR [neuron-monitor]) whose newest line is kept. It ends with
// this process. NULL: it cannot be started.
typedef struct rn_neuron_monitor rn_neuron_monitor;
rn_neuron_monitor *rn_neuron_monitor_start(const char *cores);
void rn_neuron_monitor_stop(rn_neuron_monitor *monitor); // NULL-safe
// False: it has said nothing that can be read yet.
bool rn_neuron_monitor_read(rn_neuron_monitor *monitor, rn_device_usage *out);

#endif
