// rates_use.c — plans count with the rates of the cache folder, where they are this machine's.
#include "runtime/rates.h"

#include "base/cpu.h"

#include <string.h>

// No file is no failure: *out has no threads and no devices then.
static rn_status load(rn_rates *out) {
    rn_status s = rn_rates_load(NULL, out);
    return s == RN_NOT_FOUND ? RN_OK : s;
}

rn_status rn_rates_use(uint32_t threads, bool *out_measured) {
    rn_rates rates;
    *out_measured = false;
    RN_TRY(load(&rates));
    if (threads == 0) threads = (uint32_t)rn_cpu_count();
    if (rates.threads != threads) return RN_OK;
    if (strcmp(rates.cpu_level, rn_cpu_level_name(rn_cpu_level_get())) != 0) return RN_OK;
    rn_cpu_set_rates(&rates.cpu);
    *out_measured = true;
    return RN_OK;
}

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
    caps->unpack_weights_second = rates->unpack_weights_second;
    caps->unpack_bytes_second = rates->unpack_bytes_second;
    use_known(&caps->attend_flops, rates->attend_flops);
    use_known(&caps->attend_seconds, rates->attend_seconds);
    use_known(&caps->run_seconds, rates->run_seconds);
    use_known(&caps->link_share, rates->link_share);
}

rn_status rn_rates_apply(rn_device *device, bool *out_measured) {
    const rn_device_caps *caps = &device->caps;
    rn_rates rates;
    if (!caps->own_memory) return RN_OK;
    *out_measured = false;
    RN_TRY(load(&rates));
    for (uint32_t i = 0; i < rates.device_count; i++) {
        const rn_rates_device *d = &rates.devices[i];
        if (strcmp(d->name, caps->name) != 0 || strcmp(d->hardware, caps->hardware) != 0) continue;
        rn_device_use_rates(device, &d->rates);
        *out_measured = true;
    }
    return RN_OK;
}
