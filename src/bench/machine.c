// machine.c — see machine.h. NVML is loaded at run time, where there is one.
#include "bench/machine.h"

#include "base/clock.h"
#include "base/workers.h"

#include <ration/memory.h>
#include <ration/ration.h>

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

// The value behind "model name" of /proc/cpuinfo.
static void read_cpu(char *out, size_t bytes) {
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, bytes, "%s", value);
        break;
    }
    if (file) fclose(file);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double measure_clock(void) {
    enum { TRIALS = 1001 };
    uint64_t times[TRIALS];
    for (int i = 0; i < TRIALS; i++) {
        uint64_t begin = rn_clock_ns();
        times[i] = rn_clock_ns() - begin;
    }
    qsort(times, TRIALS, sizeof *times, compare);
    return (double)times[TRIALS / 2] * 1e-9;
}

void rn_machine_describe(rn_bench_results *out) {
    struct utsname system;
    rn_process_info process;
    snprintf(out->version, sizeof out->version, "%s", rn_version());
    rn_clock_text(out->date, true);
    read_cpu(out->cpu, sizeof out->cpu);
    if (uname(&system) == 0) {
        snprintf(out->machine, sizeof out->machine, "%.60s", system.machine);
        snprintf(out->system, sizeof out->system, "%.60s %.60s", system.sysname, system.release);
    }
    out->threads = rn_cpu_count();
    if (rn_process_read(&process) == RN_OK) out->machine_bytes = rn_process_whole_bytes(&process);
    out->empty_s = measure_clock();
}

// ---- energy -------------------------------------------------------------------------------------

// Packages are intel-rapl:N; what is within them (:N:M) is part of their sum.
static double read_rapl(void) {
    double joules = NAN;
    DIR *folder = opendir("/sys/class/powercap");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[512];
        unsigned long long microjoules;
        const char *name = entry->d_name;
        if (strncmp(name, "intel-rapl:", 11) != 0 || strchr(name + 11, ':')) continue;
        snprintf(path, sizeof path, "/sys/class/powercap/%s/energy_uj", name);
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%llu", &microjoules) == 1)
            joules = (isnan(joules) ? 0 : joules) + (double)microjoules * 1e-6;
        if (file) fclose(file);
    }
    if (folder) closedir(folder);
    return joules;
}

typedef struct nvml {
    int (*start)(void);
    int (*count)(unsigned *out);
    int (*find)(unsigned index, void **out);
    int (*energy)(void *device, unsigned long long *out_millijoules);
} nvml;

static bool load_nvml(nvml *out) {
    static const char *const names[] = {"nvmlInit_v2", "nvmlDeviceGetCount_v2",
                                        "nvmlDeviceGetHandleByIndex_v2",
                                        "nvmlDeviceGetTotalEnergyConsumption"};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *found[4];
    bool all = library != NULL;
    for (int i = 0; all && i < 4; i++)
        all = (found[i] = dlsym(library, names[i])) != NULL;
    if (all) memcpy(out, found, sizeof found);
    return all;
}

static double read_nvml(void) {
    static nvml library;
    static int state; // 0: not looked for, 1: there, 2: not there
    unsigned count = 0;
    double joules = NAN;
    if (state == 0) state = load_nvml(&library) && library.start() == 0 ? 1 : 2;
    if (state != 1 || library.count(&count) != 0) return NAN;
    for (unsigned i = 0; i < count; i++) {
        void *device = NULL;
        unsigned long long millijoules;
        if (library.find(i, &device) != 0 || library.energy(device, &millijoules) != 0) continue;
        joules = (isnan(joules) ? 0 : joules) + (double)millijoules * 1e-3;
    }
    return joules;
}

rn_energy rn_energy_read(bool with_device) {
    return (rn_energy){read_rapl(), with_device ? read_nvml() : NAN};
}

double rn_energy_between(const rn_energy *begin, const rn_energy *end, char *source, size_t bytes) {
    double host = end->host_j - begin->host_j, device = end->device_j - begin->device_j;
    if (!(host > 0)) host = NAN; // a counter that wrapped, or stands still
    if (!(device > 0)) device = NAN;
    snprintf(source, bytes, "%s%s%s", isnan(host) ? "" : "rapl",
             isnan(host) || isnan(device) ? "" : "+", isnan(device) ? "" : "nvml");
    if (isnan(host)) return device;
    return isnan(device) ? host : host + device;
}
