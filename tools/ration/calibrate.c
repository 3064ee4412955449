// calibrate.c — ration calibrate: how fast this machine is, for the times that plans predict.
#include "rank_job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void tell(void *self, const char *what) {
    if (*(const bool *)self) fprintf(stderr, "\r\033[Kmeasuring %s", what);
}

// ---- output -------------------------------------------------------------------------------------

static void print_cpu(const rn_rates *r) {
    printf("%u thread%s, %s\n", r->threads, r->threads == 1 ? "" : "s", r->cpu_level);
    printf("  f32 products   %6.1f GFLOP/s  a multiply-add counts two\n", r->cpu.flops / 1e9);
    printf("  int8 products  %6.1f GOP/s\n", r->cpu.quantized_flops / 1e9);
    printf("  memory         %6.1f GB/s     weights, for a product of one row\n",
           r->cpu.memory_bytes_second / 1e9);
    printf("  disk           %6.1f GB/s     past the page cache\n", r->cpu.disk_bytes_second / 1e9);
    printf("  a kernel       %6.1f us       at least\n", r->cpu.step_seconds * 1e6);
}

// Rates that only devices of its kind have.
static void print_own(const rn_rates_device *d) {
    const rn_rate_info *info;
    for (uint32_t i = 0; (info = rn_device_rate_info(d->name, i)); i++)
        if (d->rates.own[i] > 0)
            printf("  %-14s %6.1f %-8s %s\n", info->label, d->rates.own[i] / info->scale,
                   info->unit, info->note);
}

static void print_device(const rn_device_rates *host, const rn_rates_device *d) {
    printf("%s%s%s\n", d->name, d->hardware[0] ? ", " : "", d->hardware);
    if (d->rates.flops < 1e12) {
        printf("  products       %6.1f GFLOP/s\n", d->rates.flops / 1e9);
    } else {
        printf("  bf16 products  %6.1f TFLOP/s  of 512 rows, in whole tiles\n",
               d->rates.flops / 1e12);
        printf("  q8_0 products  %6.1f TFLOP/s\n", d->rates.quantized_flops / 1e12);
    }
    printf("  memory         %6.1f GB/s     weights, for a product of one row\n",
           d->rates.memory_bytes_second / 1e9);
    print_own(d);
    printf("  link           %6.1f GB/s     from the host\n", d->rates.link_bytes_second / 1e9);
    if (d->rates.link_share > 0)
        printf("  beside link    %6.0f %%        of the CPU's speed, %.0f %% of the link's\n",
               host->beside_link * 100, d->rates.link_share * 100);
    printf("  a kernel       %6.1f us       at least\n", d->rates.step_seconds * 1e6);
    if (d->rates.run_seconds > 0)
        printf("  a run          %6.1f us       of the host's\n", d->rates.run_seconds * 1e6);
}

static void print_rates(const rn_rates *r, const rn_rates_device *device, const char *path) {
    print_cpu(r);
    if (device) print_device(&r->cpu, device);
    printf("Plans with as many threads%s%s will use them: kept in %s\n",
           device ? ", and those for " : "", device ? device->name : "", path);
}

static void write_known(rn_json *json, const char *key, double rate) {
    if (rate > 0) rn_json_f64(json, key, rate);
}

static void write_device(const rn_rates_device *d, rn_json *json) {
    rn_json_object(json, "device");
    rn_json_string(json, "name", d->name);
    rn_json_string(json, "hardware", d->hardware);
    rn_json_f64(json, "flops", d->rates.flops);
    rn_json_f64(json, "quantized_flops", d->rates.quantized_flops);
    rn_json_f64(json, "memory_bytes_second", d->rates.memory_bytes_second);
    rn_json_f64(json, "link_bytes_second", d->rates.link_bytes_second);
    rn_json_f64(json, "step_seconds", d->rates.step_seconds);
    write_known(json, "run_seconds", d->rates.run_seconds);
    write_known(json, "link_share", d->rates.link_share);
    const rn_rate_info *info;
    for (uint32_t i = 0; (info = rn_device_rate_info(d->name, i)); i++)
        write_known(json, info->name, d->rates.own[i]);
    rn_json_end(json);
}

static rn_status write_rates(const rn_rates *r, const rn_rates_device *device, const char *path) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "threads", r->threads);
    rn_json_string(&json, "cpu_level", r->cpu_level);
    rn_json_f64(&json, "flops", r->cpu.flops);
    rn_json_f64(&json, "quantized_flops", r->cpu.quantized_flops);
    rn_json_f64(&json, "memory_bytes_second", r->cpu.memory_bytes_second);
    rn_json_f64(&json, "disk_bytes_second", r->cpu.disk_bytes_second);
    rn_json_f64(&json, "step_seconds", r->cpu.step_seconds);
    write_known(&json, "beside_link", r->cpu.beside_link);
    if (device) write_device(device, &json);
    rn_json_string(&json, "path", path);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// ---- measuring ----------------------------------------------------------------------------------

// Devices that were measured before stay, and what their link costs as many threads; a file that
// cannot be read is made anew.
static void keep_devices(const char *path, rn_rates *rates) {
    rn_rates old;
    if (rn_rates_load(path, &old) != RN_OK) return;
    memcpy(rates->devices, old.devices, sizeof old.devices);
    rates->device_count = old.device_count;
    if (old.threads == rates->threads) rates->cpu.beside_link = old.cpu.beside_link;
    for (uint32_t i = 0; i < old.device_count; i++)
        rates->devices[i].rates.disk_bytes_second = rates->cpu.disk_bytes_second;
}

static const rn_rates_device *find(const rn_rates *rates, const rn_device *device) {
    for (uint32_t i = 0; device && i < rates->device_count; i++)
        if (strcmp(rates->devices[i].name, rn_device_target(device)) == 0)
            return &rates->devices[i];
    return NULL;
}

static rn_status measure(const invocation *in, rn_device *device, const char *path, rn_rates *out) {
    bool terminal = isatty(STDERR_FILENO);
    const char *disk = rn_settings_text(in->settings, "disk");
    rn_rates_options options = {.threads = (uint32_t)rn_settings_count(in->settings, "threads"),
                                .disk_folder = disk[0] ? disk : NULL,
                                .cancel = &interrupted,
                                .progress = tell,
                                .self = &terminal};
    rn_status s = rn_rates_measure(&options, out);
    if (s == RN_OK) keep_devices(path, out);
    if (s == RN_OK && device) s = rn_rates_measure_device(device, &options, out);
    if (terminal) fprintf(stderr, "\r\033[K");
    return s;
}

static rn_status run_with(const invocation *in, rn_device *device) {
    char path[512];
    rn_rates rates;
    RN_TRY(rn_rates_path(path, sizeof path));
    RN_TRY(measure(in, device, path, &rates));
    RN_TRY(rn_rates_save(&rates, path));
    const rn_rates_device *found = find(&rates, device);
    if (in->json) return write_rates(&rates, found, path);
    print_rates(&rates, found, path);
    return RN_OK;
}

bool use_rates(const invocation *in, uint32_t threads) {
    bool measured = strcmp(rn_settings_text(in->settings, "rates"), "measured") == 0;
    if (measured) (void)rn_rates_use(threads);
    return measured;
}

// A device that cannot be opened is told before anything is measured. The CPU always is.
static rn_status run(const invocation *in) {
    rn_device *device = NULL;
    uint32_t threads = (uint32_t)rn_settings_count(in->settings, "threads");
    if (has_ranks()) return calibrate_ranks(in);
    RN_TRY(rn_device_open(device_targets(in), threads, &device));
    rn_status s = run_with(in, strcmp(rn_device_target(device), "cpu") ? device : NULL);
    rn_device_destroy(device);
    return s;
}

const command calibrate_command = {
    .name = "calibrate",
    .usage = "calibrate [options]",
    .summary = "measure this machine, for the times that plans predict",
    .about =
        "Measures products, memory and disk with the program's own kernels and reader, in some\n"
        "seconds, with 1.2 GiB of memory (less where there is less) and 256 MiB of disk, and "
        "keeps\n"
        "the rates in the user's cache folder ($XDG_CACHE_HOME or ~/.cache). Plans made with as\n"
        "many threads use them. The smallest budget of a plan does not depend on them; its time,\n"
        "and with it the choice among moves, does. Until then run, plan and serve measure the CPU\n"
        "for a tenth of a second when a plan fits, and keep that for the next start (--rates).\n"
        "\n"
        "With --device a device that has memory of its own is measured as well: its products, its\n"
        "memory, attention, the link from the host, what the CPU and the link have of their speed\n"
        "while both are at work, what a kernel costs that does nearly nothing, and what such a "
        "run\n"
        "costs the host. That takes some seconds more, 1.1 GiB of its memory and 256 MiB more of\n"
        "the host's. Plans for the same device use what was kept, until there is\n"
        "other hardware in its place. A device that compiles graphs (xla, neuron, ort) is "
        "measured\n"
        "by executables: its products, its memory, what a node and what a run cost.\n\n"
        "As several ranks (ration launch -n 2 ration calibrate, or mpirun, srun, torchrun) it\n"
        "measures how fast they reach each other instead: messages, sums and gathers of all, and\n"
        "prints what `ration plan --link` takes. Nothing is kept. --soak finds links that are not\n"
        "reliable.",
    .example = "ration calibrate --disk /models",
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
