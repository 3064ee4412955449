// device.h — what a session runs on. Nothing here is needed where the CPU with all its threads will
// do: a session's default.
#ifndef RATION_DEVICE_H
#define RATION_DEVICE_H

#include <ration/status.h>

RN_BEGIN_DECLS

typedef struct rn_device rn_device;
typedef struct rn_device_caps rn_device_caps; // what a device can do and how fast it is

#define RN_OWN_RATES 8

// How fast a device is; the planner's times follow from it. The first six are above 0.
typedef struct rn_device_rates {
    double flops;               // f32; a multiply-add counts two
    double quantized_flops;     // of int8 products
    double memory_bytes_second; // reading weights
    double disk_bytes_second;
    double link_bytes_second; // host to device
    double step_seconds;      // the fixed cost of a kernel
    // The CPU's: of its speed, what it has while a link reads the host's memory, 0.1 to 1. 0: not
    // known, its own guess stays.
    double beside_link;
    // Of a device with memory of its own. 0: not known, its own guess stays.
    double run_seconds; // the host's part of a run: submitting it, waiting for its end
    double link_share;  // of its link's rate, what is left while the CPU computes, 0.1 to 1
    // What only devices of its kind have, by rn_device_rate_info's numbers.
    double own[RN_OWN_RATES];
} rn_device_rates;

typedef struct rn_rate_info {
    const char *name;  // "attend_flops"
    const char *label; // for people; "": more of what stands before it
    const char *unit;  // "TFLOP/s" ...
    double scale;      // ... so many of 1 in the rate
    const char *note;  // "of 512 rows"
} rn_rate_info;
// Of number `index` of the rates that devices like "cuda:0" have of their own; NULL: they have not
// so many.
RN_API const rn_rate_info *rn_device_rate_info(const char *target, uint32_t index);

// This process's CPUs: threads, kernels, and rates that are modest guesses until they are set.
RN_API const rn_device_caps *rn_cpu_caps(void);
// Measured rates (`ration calibrate`), for plans made from here on. Not while another thread plans.
RN_API void rn_cpu_set_rates(const rn_device_rates *rates);

// The first of the targets that can be opened ("cuda:0,cpu", "auto": see <ration/ladder.h>);
// `threads` of the host (0: all) compute on the CPU, and pack weights for others. Otherwise the
// last one's error. RN_INVALID; RN_DEVICE: no driver, no such GPU; RN_NOT_FOUND, RN_UNSUPPORTED.
RN_API RN_MUST_USE rn_status rn_device_open(const char *targets, uint32_t threads, rn_device **out);
RN_API const char *rn_device_target(const rn_device *device); // "cpu", "cuda:0"
RN_API uint8_t rn_device_number(const rn_device *device);     // its rn_device_id on the ledger
// Whether weights must be brought to it: its memory is not the host's.
RN_API bool rn_device_has_own_memory(const rn_device *device);
// What is free of its own memory now; 0 where that is not known.
RN_API uint64_t rn_device_free_bytes(rn_device *device);

// The CPU with so many threads (0: all). RN_NO_MEMORY, RN_OVER_BUDGET, RN_INVALID.
RN_API RN_MUST_USE rn_status rn_cpu_device_create(uint32_t threads, rn_device **out);
RN_API const rn_device_caps *rn_device_get_caps(const rn_device *device);
// NULL-safe. No session may use it any more.
RN_API void rn_device_destroy(rn_device *device);

RN_END_DECLS

#endif
