// device_usage.c — the readers of what drivers hold, one a device at most.
#include "memory/device_usage.h"

#include "base/checked.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    rn_device_usage_reader read;
    void *self;
} readers[DEVICES]; // under lock

void rn_device_usage_from(rn_device_id device, rn_device_usage_reader read, void *self) {
    pthread_mutex_lock(&lock);
    readers[device].read = read;
    readers[device].self = self;
    pthread_mutex_unlock(&lock);
}

bool rn_device_usage_read(rn_device_id device, rn_device_usage *out) {
    *out = (rn_device_usage){0};
    pthread_mutex_lock(&lock);
    rn_device_usage_reader read = readers[device].read;
    bool known = read && read(readers[device].self, out);
    pthread_mutex_unlock(&lock);
    return known;
}

void rn_device_usage_add(rn_device_usage *usage, const char *category, uint64_t bytes) {
    uint32_t i = 0;
    if (bytes == 0) return;
    if (!rn_add_u64(usage->used_bytes, bytes, &usage->used_bytes)) usage->used_bytes = UINT64_MAX;
    while (i < usage->category_count && strcmp(usage->categories[i].name, category) != 0)
        i++;
    if (i == RN_USAGE_CATEGORIES) return;
    if (i == usage->category_count) {
        snprintf(usage->categories[i].name, sizeof usage->categories[i].name, "%s", category);
        usage->category_count++;
    }
    if (!rn_add_u64(usage->categories[i].bytes, bytes, &usage->categories[i].bytes))
        usage->categories[i].bytes = UINT64_MAX;
}

void rn_device_usage_json(const rn_device_usage *usage, rn_json *json) {
    rn_json_string(json, "source", usage->source);
    rn_json_u64(json, "used_bytes", usage->used_bytes);
    rn_json_object(json, "categories");
    for (uint32_t i = 0; i < usage->category_count; i++)
        rn_json_u64(json, usage->categories[i].name, usage->categories[i].bytes);
    rn_json_end(json);
}
