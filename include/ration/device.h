// device.h — what a session runs on. Nothing here is needed where the CPU with all its threads will
// do: a session's default.
#ifndef RATION_DEVICE_H
#define RATION_DEVICE_H

#include <ration/status.h>

RN_BEGIN_DECLS

typedef struct rn_device rn_device;
typedef struct rn_device_caps rn_device_caps; // what a device can do and how fast it is

// How fast a device is; the planner's times follow from it. Every rate is above 0.
typedef struct rn_device_rates {
    double flops;               // f32; a multiply-add counts two
    double quantized_flops;     // of int8 products
    double memory_bytes_second; // reading weights
    double disk_bytes_second;
    double link_bytes_second; // host to device
    double step_seconds;      // the fixed cost of a kernel
} rn_device_rates;

// This process's CPUs: threads, kernels, and rates that are modest guesses until they are set.
RN_API const rn_device_caps *rn_cpu_caps(void);
// Measured rates (`ration calibrate`), for plans made from here on. Not while another thread plans.
RN_API void rn_cpu_set_rates(const rn_device_rates *rates);

// The CPU with so many threads (0: all). RN_NO_MEMORY, RN_OVER_BUDGET, RN_INVALID.
RN_API RN_MUST_USE rn_status rn_cpu_device_create(uint32_t threads, rn_device **out);
RN_API const rn_device_caps *rn_device_get_caps(const rn_device *device);
// NULL-safe. No session may use it any more.
RN_API void rn_device_destroy(rn_device *device);

RN_END_DECLS

#endif
