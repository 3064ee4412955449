// rates_use.c — plans count with the rates of the cache folder, where they are this machine's.
#include "runtime/rates.h"

#include "base/cpu.h"

#include <ration/log.h>

#include <string.h>

// What plans for the CPU count with. Changed by the threads that plan only, one at a time.
static struct {
    bool asked; // for kept rates
    rn_rates_source source;
    rn_device_rates quick; // what a short measurement found; disk 0: not known
} in_use;

const char *rn_rates_source_name(rn_rates_source source) {
    static const char *const names[] = {"guessed", "quick", "calibrated"};
    return names[source];
}

// ---- the CPU ------------------------------------------------------------------------------------

void rn_rates_use_cpu(const rn_rates *rates, rn_device *device) {
    rn_device_rates cpu = rates->cpu;
    in_use.source = rates->quick ? RN_RATES_QUICK : RN_RATES_CALIBRATED;
    in_use.quick = cpu;
    if (cpu.disk_bytes_second == 0) cpu.disk_bytes_second = rn_cpu_caps()->disk_bytes_second;
    rn_cpu_set_rates(&cpu);
    if (device) rn_device_use_rates(device, &cpu);
}

bool rn_rates_are_wanted(bool has_disk, rn_device_rates *out_known) {
    if (in_use.source == RN_RATES_CALIBRATED) return false;
    *out_known = in_use.source == RN_RATES_QUICK ? in_use.quick : (rn_device_rates){0};
    return in_use.source == RN_RATES_GUESSED || (has_disk && in_use.quick.disk_bytes_second == 0);
}

// A file that is there but of no use is told, and does without.
rn_rates_source rn_rates_use(uint32_t threads) {
    rn_rates rates;
    in_use.asked = true;
    in_use.source = RN_RATES_GUESSED;
    rn_status s = rn_rates_load(NULL, &rates);
    if (s != RN_OK && s != RN_NOT_FOUND)
        rn_log(RN_LOG_WARNING, "rates", "%s%s%s: the kept rates are not used; hint: %s",
               rn_last_error()->path, rn_last_error()->path[0] ? ": " : "",
               rn_last_error()->message, "ration calibrate makes the file anew");
    if (s != RN_OK) return RN_RATES_GUESSED;
    if (threads == 0) threads = (uint32_t)rn_cpu_count();
    bool alike = strcmp(rates.cpu_level, rn_cpu_level_name(rn_cpu_level_get())) == 0;
    if (rates.threads == threads && alike) rn_rates_use_cpu(&rates, NULL);
    return in_use.source;
}

// ---- a device -----------------------------------------------------------------------------------

// A file of an earlier version does not have it.
static void use_known(double *rate, double known) {
    if (known > 0) *rate = known;
}

void rn_device_use_rates(rn_device *device, const rn_device_rates *rates) {
    rn_device_caps *caps = &device->caps;
    caps->flops = rates->flops;
    caps->quantized_flops = rates->quantized_flops;
    caps->memory_bytes_second = rates->memory_bytes_second;
    caps->disk_bytes_second = rates->disk_bytes_second;
    caps->link_bytes_second = rates->link_bytes_second;
    caps->step_seconds = rates->step_seconds;
    use_known(&caps->run_seconds, rates->run_seconds);
    use_known(&caps->link_share, rates->link_share);
    for (uint32_t i = 0; caps->backend && i < caps->backend->rate_count; i++)
        use_known(&caps->own[i], rates->own[i]);
}

rn_rates_source rn_rates_apply(rn_device *device) {
    const rn_device_caps *caps = &device->caps;
    rn_rates_source source = RN_RATES_GUESSED;
    rn_rates rates;
    if (!caps->own_memory) source = in_use.source;
    if (!caps->own_memory && !caps->compiles) return source;
    if (!in_use.asked || rn_rates_load(NULL, &rates) != RN_OK) return source; // it was told why
    for (uint32_t i = 0; i < rates.device_count; i++) {
        const rn_rates_device *d = &rates.devices[i];
        if (strcmp(d->name, caps->name) != 0 || strcmp(d->hardware, caps->hardware) != 0) continue;
        rn_device_use_rates(device, &d->rates);
        source = RN_RATES_CALIBRATED;
    }
    return source;
}
