// calibrate.h — how fast this machine is: measured once, kept in the user's cache folder, and read
// by every plan.
//
//     rn_rates rates;
//     RN_TRY(rn_rates_measure(NULL, &rates));
//     RN_TRY(rn_rates_measure_device(gpu, NULL, &rates)); // a device with memory of its own
//     RN_TRY(rn_rates_save(&rates, NULL));
//
// and whoever plans:
//
//     rn_rates_source source = rn_rates_use(threads); // the CPU's
//     RN_TRY(rn_device_open("cuda", threads, &gpu));
//     source = rn_rates_apply(gpu);                   // its own
#ifndef RATION_CALIBRATE_H
#define RATION_CALIBRATE_H

#include <ration/checkpoint.h>
#include <ration/device.h>

RN_BEGIN_DECLS

#define RN_RATES_DEVICES 8

// A device with memory of its own. Its disk is the host's.
typedef struct rn_rates_device {
    char name[32];     // "cuda:0"
    char hardware[64]; // "NVIDIA H200"; another card in the same place is not this one
    rn_device_rates rates;
} rn_rates_device;

typedef struct rn_rates {
    uint32_t threads;   // that were measured
    char cpu_level[16]; // "avx512"
    bool quick;         // for a tenth of a second only, and cpu.disk_bytes_second may be 0
    rn_device_rates cpu;
    rn_rates_device devices[RN_RATES_DEVICES];
    uint32_t device_count;
} rn_rates;

typedef struct rn_rates_options {
    uint32_t threads;        // 0: one for each CPU
    const char *disk_folder; // NULL: the cache folder
    const volatile bool *cancel;
    // Told before each measurement; may be NULL.
    void (*progress)(void *self, const char *what);
    void *self;
    uint64_t reserved[4]; // zero
} rn_rates_options;

// The CPU and the disk; *out has no devices. Takes some seconds, 1.2 GiB of memory (at most half of
// what is free, or a little more), and for a moment 256 MiB on the disk. RN_CANCELLED.
RN_API RN_MUST_USE rn_status rn_rates_measure(const rn_rates_options *options, rn_rates *out);
// Adds the device to `rates`, in the place of one of the same name; where there is no room, in that
// of the first; and to the CPU's rates what that device's link costs `threads` of them. Takes some
// seconds, 1.1 GiB of the device's memory, and of the host's as much as above and 256 MiB that are
// pinned where the device can. RN_INVALID where its memory is the host's, RN_CANCELLED,
// RN_NO_MEMORY, RN_OVER_BUDGET, RN_DEVICE: `rates` stay as they were.
RN_API RN_MUST_USE rn_status rn_rates_measure_device(rn_device *device,
                                                     const rn_rates_options *options,
                                                     rn_rates *rates);
// $XDG_CACHE_HOME/ration/rates.json, or ~/.cache/ration/rates.json. RN_NOT_FOUND where neither
// variable is set.
RN_API RN_MUST_USE rn_status rn_rates_path(char *out, size_t bytes);
// `path` may be NULL: the usual one; folders are made.
RN_API RN_MUST_USE rn_status rn_rates_save(const rn_rates *rates, const char *path);
// RN_NOT_FOUND where there is no file; RN_CORRUPT where it is not one of ours.
RN_API RN_MUST_USE rn_status rn_rates_load(const char *path, rn_rates *out);

// What plans count with.
typedef enum rn_rates_source {
    RN_RATES_GUESSED,   // modest for any machine of the last ten years: times are rough
    RN_RATES_QUICK,     // rn_rates_measure_quick
    RN_RATES_CALIBRATED // rn_rates_measure
} rn_rates_source;
RN_API const char *rn_rates_source_name(rn_rates_source source); // "quick"

// Lets plans for the CPU count with the rates of the cache folder, where they were measured with as
// many threads (0: one for each CPU) and at the same instruction level. A file that cannot be read
// or is damaged is a warning in the log, and no rates. Not while somebody plans.
RN_API rn_rates_source rn_rates_use(uint32_t threads);
// After rn_rates_use the same for plans for this device, where its name and its hardware are those
// of the cache folder. A device whose memory is the host's is left as it is: it counts with what
// rn_rates_use found.
RN_API rn_rates_source rn_rates_apply(rn_device *device);

typedef struct rn_rates_quick_options {
    uint64_t room_bytes; // of the host's memory, at most, meanwhile; 0: 40 MiB. Below 8 MiB nothing
                         // is measured
    const rn_checkpoint *checkpoint; // the disk is timed with its first file, past the page cache;
                                     // NULL: it stays a guess
    uint64_t reserved[4];            // zero
} rn_rates_quick_options;
// Where plans for the CPU count with guesses: measures it for about a tenth of a second, on this
// device, which plans of the process and of the device count with from here on, and keeps that in
// the cache folder, unless a calibration is there or the folder cannot be written. What cannot be
// measured stays a guess: that is no failure. Says in the log what it found. A device with memory
// of its own: as rn_rates_apply. Not while somebody plans.
RN_API rn_rates_source rn_rates_measure_quick(rn_device *device,
                                              const rn_rates_quick_options *options);
// Plans for this device count with these from here on.
RN_API void rn_device_use_rates(rn_device *device, const rn_device_rates *rates);

RN_END_DECLS

#endif
