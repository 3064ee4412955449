// reference.h — the reference loops of graph/op/*.c as a kernel table.
#ifndef RN_DEVICE_REFERENCE_H
#define RN_DEVICE_REFERENCE_H

#include "device/kernel.h"

// Any op by its reference loop; back ends use it in rows where speed does not matter.
extern const rn_kernel rn_reference_kernel;
extern const rn_kernel rn_reference_kernels[RN_OP_COUNT];

#endif
