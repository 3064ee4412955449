// calibrate.c — ration calibrate: how fast this machine is, for the times that plans predict.
#include "command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void tell(void *self, const char *what) {
    if (*(const bool *)self) fprintf(stderr, "\r\033[Kmeasuring %s", what);
}

static void print_rates(const rn_rates *r, const char *path) {
    printf("%u thread%s, %s\n", r->threads, r->threads == 1 ? "" : "s", r->cpu_level);
    printf("  f32 products   %6.1f GFLOP/s  a multiply-add counts two\n", r->cpu.flops / 1e9);
    printf("  int8 products  %6.1f GOP/s\n", r->cpu.quantized_flops / 1e9);
    printf("  memory         %6.1f GB/s     weights, for a product of one row\n",
           r->cpu.memory_bytes_second / 1e9);
    printf("  disk           %6.1f GB/s     past the page cache\n", r->cpu.disk_bytes_second / 1e9);
    printf("  a kernel       %6.1f us       at least\n", r->cpu.step_seconds * 1e6);
    printf("Plans with as many threads will use them: kept in %s\n", path);
}

static rn_status write_rates(const rn_rates *r, const char *path) {
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
    rn_json_string(&json, "path", path);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status run(const invocation *in) {
    bool terminal = isatty(STDERR_FILENO);
    const char *disk = rn_settings_text(in->settings, "disk");
    char path[512];
    rn_rates rates;
    rn_rates_options options = {.threads = (uint32_t)rn_settings_count(in->settings, "threads"),
                                .disk_folder = disk[0] ? disk : NULL,
                                .cancel = &interrupted,
                                .progress = tell,
                                .self = &terminal};
    RN_TRY(rn_rates_path(path, sizeof path));
    rn_status s = rn_rates_measure(&options, &rates);
    if (terminal) fprintf(stderr, "\r\033[K");
    if (s != RN_OK) return s;
    RN_TRY(rn_rates_save(&rates, path));
    if (in->json) return write_rates(&rates, path);
    print_rates(&rates, path);
    return RN_OK;
}

const command calibrate_command = {
    .name = "calibrate",
    .usage = "calibrate [options]",
    .summary = "measure this machine, for the times that plans predict",
    .about =
        "Measures products, memory and disk with the program's own kernels and reader, in some\n"
        "seconds and with some 300 MiB of memory and of disk, and keeps the rates in the user's\n"
        "cache folder ($XDG_CACHE_HOME or ~/.cache). Plans made with as many threads use them.\n"
        "The smallest budget of a plan does not depend on them; its time, and with it the choice\n"
        "among moves, does.",
    .example = "ration calibrate --disk /models",
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
