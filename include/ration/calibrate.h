// calibrate.h — how fast this machine is: measured once, kept in the user's cache folder, and read
// by every plan.
#ifndef RATION_CALIBRATE_H
#define RATION_CALIBRATE_H

#include <ration/device.h>

RN_BEGIN_DECLS

typedef struct rn_rates {
    uint32_t threads;   // that were measured
    char cpu_level[16]; // "avx512"
    rn_device_rates cpu;
} rn_rates;

typedef struct rn_rates_options {
    uint32_t threads;        // 0: one for each CPU
    const char *disk_folder; // NULL: the cache folder
    const volatile bool *cancel;
    // Told before each measurement; may be NULL.
    void (*progress)(void *self, const char *what);
    void *self;
} rn_rates_options;

// Takes some seconds, some 300 MiB of memory, and for a moment 256 MiB on the disk.
RN_API RN_MUST_USE rn_status rn_rates_measure(const rn_rates_options *options, rn_rates *out);
// $XDG_CACHE_HOME/ration/rates.json, or ~/.cache/ration/rates.json. RN_NOT_FOUND where neither
// variable is set.
RN_API RN_MUST_USE rn_status rn_rates_path(char *out, size_t bytes);
// `path` may be NULL: the usual one; folders are made.
RN_API RN_MUST_USE rn_status rn_rates_save(const rn_rates *rates, const char *path);
// RN_NOT_FOUND where there is no file; RN_CORRUPT where it is not one of ours.
RN_API RN_MUST_USE rn_status rn_rates_load(const char *path, rn_rates *out);

// Lets plans for the CPU count with the rates of the cache folder, where they were measured with as
// many threads (0: one for each CPU) and at the same instruction level. *out_measured says whether;
// where not, plans count with modest guesses. RN_CORRUPT as above. Not while somebody plans.
RN_API RN_MUST_USE rn_status rn_rates_use(uint32_t threads, bool *out_measured);

RN_END_DECLS

#endif
