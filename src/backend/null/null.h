// null.h — a back end that can do nothing: the skeleton to copy for a new one (see README.md).
#ifndef RN_BACKEND_NULL_NULL_H
#define RN_BACKEND_NULL_NULL_H

#include "device/registry.h"

// Not advertised: nothing runs on it.
extern const rn_backend rn_null_backend;

// A row an op; NULL is "unsupported", and every row is.
extern const rn_kernel rn_null_kernels[RN_OP_COUNT];

// With kernels, or one that compiles graphs as a whole (device/executable.h).
RN_MUST_USE rn_status rn_null_device_create(bool compiles, rn_device **out);

#endif
