// neuron.c — the memory of Neuron's cores as its driver's files have it.
//
// A file holds one number. In a category `total` is what is held now, whatever the name says.
#include "backend/pjrt/neuron.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_DEVICES = 64, MOST_CORES = 32 };

static const char *const categories[] = {
    "collectives",    "constants",    "dma_rings",
    "driver_memory",  "model_code",   "model_shared_scratchpad",
    "notifications",  "tensors",      "nonshared_scratchpad",
    "runtime_memory", "uncategorized"};

bool rn_neuron_names(const char *cores, uint32_t core) {
    const char *at = cores;
    if (!*at) return true;
    while (*at) {
        char *end;
        unsigned long low = strtoul(at, &end, 10), high = low;
        if (end == at) return false;
        if (*end == '-') {
            at = end + 1;
            high = strtoul(at, &end, 10);
            if (end == at) return false;
        }
        if (core >= low && core <= high) return true;
        if (*end != ',') return false;
        at = end + 1;
    }
    return false;
}

// False: there is no such file, or no number in it.
static bool read_number(const char *path, uint64_t *out) {
    char text[32];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    if (bytes <= 0 || text[0] < '0' || text[0] > '9') return false;
    text[bytes] = 0;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || (*end && *end != '\n')) return false;
    *out = number;
    return true;
}

// False: the core has no files.
static bool read_core(const char *root, uint32_t device, uint32_t core, rn_device_usage *out) {
    char path[600];
    bool any = false;
    uint64_t bytes, total = 0;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        snprintf(path, sizeof path,
                 "%s/neuron%u/neuron_core%u/stats/memory_usage/device_mem/%s/total", root, device,
                 core, categories[i]);
        if (!read_number(path, &bytes)) continue;
        rn_device_usage_add(out, categories[i], bytes);
        total += bytes;
        any = true;
    }
    // A driver whose categories are not known here has the sum all the same.
    snprintf(path, sizeof path, "%s/neuron%u/neuron_core%u/stats/memory_usage/device_mem/total",
             root, device, core);
    if (!read_number(path, &bytes)) return any;
    if (bytes > total) rn_device_usage_add(out, "other", bytes - total);
    return true;
}

static bool is_folder(const char *root, uint32_t device, uint32_t core) {
    char path[600];
    snprintf(path, sizeof path, "%s/neuron%u/neuron_core%u", root, device, core);
    return access(path, F_OK) == 0;
}

bool rn_neuron_read_sysfs(const char *cores, rn_device_usage *out) {
    const char *told = getenv("RATION_NEURON_SYSFS");
    const char *root = told && told[0] ? told : "/sys/devices/virtual/neuron_device";
    uint32_t number = 0;
    bool any = false;
    *out = (rn_device_usage){.source = "sysfs"};
    for (uint32_t d = 0; d < MOST_DEVICES && is_folder(root, d, 0); d++)
        for (uint32_t c = 0; c < MOST_CORES && is_folder(root, d, c); c++, number++)
            if (rn_neuron_names(cores, number)) any |= read_core(root, d, c, out);
    return any;
}
