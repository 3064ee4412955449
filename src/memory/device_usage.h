// device_usage.h — what a device's driver says that it holds, whoever asked for it: beside what the
// ledger counts, for stage lines, /health and /metrics.
//
//     rn_device_usage usage;
//     if (rn_device_usage_read(device, &usage)) ... usage.used_bytes
//
// A back end whose driver tells gives a reader for its device; no reader, or one that finds
// nothing, is no failure. Readers are called from any thread, one at a time.
#ifndef RN_MEMORY_DEVICE_USAGE_H
#define RN_MEMORY_DEVICE_USAGE_H

#include <ration/memory.h>

#include "base/json.h"

enum { RN_USAGE_CATEGORIES = 16 };

typedef struct rn_device_usage {
    const char *source; // who says so: "sysfs"
    uint64_t used_bytes;
    struct {
        char name[32]; // "tensors"
        uint64_t bytes;
    } categories[RN_USAGE_CATEGORIES]; // (category_count): those that hold something
    uint32_t category_count;
} rn_device_usage;

typedef bool (*rn_device_usage_reader)(void *self, rn_device_usage *out);

// `read` NULL: none any more; it is not running when this returns.
void rn_device_usage_from(rn_device_id device, rn_device_usage_reader read, void *self);
// False: nobody knows.
bool rn_device_usage_read(rn_device_id device, rn_device_usage *out);
// Adds to a category, which is made where there is none. Beyond the last: to the total only.
void rn_device_usage_add(rn_device_usage *usage, const char *category, uint64_t bytes);
// Fields of the object that is open: source, used_bytes, an object of categories.
void rn_device_usage_json(const rn_device_usage *usage, rn_json *json);

#endif
