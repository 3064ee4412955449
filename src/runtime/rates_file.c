// rates_file.c — measured rates in the user's cache folder, as a small JSON object of whole
// numbers:
//
//     {"threads": 2, "cpu_level": "avx512", "flops": 61000000000, ..., "step_ns": 1800,
//      "devices": {"cuda:0": {"hardware": "NVIDIA H200", "flops": 520000000000000, ...}}}
//
// A device's own rates have the names that its back end gives them (device/registry.h). Files from
// before there were devices have none. A device has no disk: it is the host's. What was
// measured for a tenth of a second only (rates_quick.c) has "quick": 1, and maybe no disk.
#include "runtime/rates.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 16384 };

// ---- where --------------------------------------------------------------------------------------

rn_status rn_rates_path(char *out, size_t bytes) {
    char folder[400];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return rn_path_join(cache, "ration/rates.json", out, bytes);
    if (!home || home[0] != '/')
        return rn_hint(rn_fail(RN_NOT_FOUND, "there is no cache folder"),
                       "set HOME or XDG_CACHE_HOME");
    RN_TRY(rn_path_join(home, ".cache", folder, sizeof folder));
    return rn_path_join(folder, "ration/rates.json", out, bytes);
}

rn_status rn_rates_make_folders(const char *path) {
    char folder[512];
    size_t bytes = strlen(path);
    if (bytes >= sizeof folder) return rn_fail(RN_INVALID, "the path %s is too long", path);
    memcpy(folder, path, bytes + 1);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) return rn_file_fail("make", folder);
        *slash = '/';
    }
    return RN_OK;
}

// ---- fields -------------------------------------------------------------------------------------

typedef struct field {
    const char *name;
    size_t offset; // in rn_device_rates
    double unit;   // of the number in the file
    bool of_disk;  // the host's alone
    bool optional; // 0: not there
} field;

#define RATE(name) offsetof(rn_device_rates, name)
static const field fields[] = {
    {"flops", RATE(flops), 1, false, false},
    {"quantized_flops", RATE(quantized_flops), 1, false, false},
    {"memory_bytes_second", RATE(memory_bytes_second), 1, false, false},
    {"disk_bytes_second", RATE(disk_bytes_second), 1, true, false},
    {"link_bytes_second", RATE(link_bytes_second), 1, false, false},
    {"step_ns", RATE(step_seconds), 1e-9, false, false},
    {"beside_link_percent", RATE(beside_link), 0.01, false, true},
    {"run_ns", RATE(run_seconds), 1e-9, false, true},
    {"link_share_percent", RATE(link_share), 0.01, false, true},
};
#undef RATE
enum { FIELD_COUNT = sizeof fields / sizeof *fields };
#define MOST ((uint64_t)1 << 60) // of any of them

static double *number_of(rn_device_rates *of, const field *f) {
    return (double *)((char *)of + f->offset);
}

// ---- saving -------------------------------------------------------------------------------------

static uint64_t round_rate(double value) {
    return value < 1 ? 1 : value < (double)MOST ? (uint64_t)(value + 0.5) : MOST;
}

static void write_fields(rn_device_rates of, bool is_host, rn_json *json) {
    for (int i = 0; i < FIELD_COUNT; i++) {
        double value = *number_of(&of, &fields[i]);
        if ((fields[i].of_disk && !is_host) || value == 0) continue;
        rn_json_u64(json, fields[i].name, round_rate(value / fields[i].unit));
    }
}

// What the device's back end has beside them.
static void write_own(const rn_rates_device *device, rn_json *json) {
    const rn_backend *backend = rn_backend_of(device->name);
    for (uint32_t i = 0; backend && i < backend->rate_count; i++) {
        double value = device->rates.own[i];
        if (value != 0)
            rn_json_u64(json, backend->rates[i].key, round_rate(value / backend->rates[i].unit));
    }
}

static void write_devices(const rn_rates *rates, rn_json *json) {
    if (rates->device_count == 0) return;
    rn_json_object(json, "devices");
    for (uint32_t i = 0; i < rates->device_count; i++) {
        rn_json_object(json, rates->devices[i].name);
        rn_json_string(json, "hardware", rates->devices[i].hardware);
        write_fields(rates->devices[i].rates, false, json);
        write_own(&rates->devices[i], json);
        rn_json_end(json);
    }
    rn_json_end(json);
}

void rn_rates_round(rn_rates *rates) {
    for (int i = 0; i < FIELD_COUNT; i++) {
        double *value = number_of(&rates->cpu, &fields[i]);
        if (*value != 0) *value = (double)round_rate(*value / fields[i].unit) * fields[i].unit;
    }
}

static rn_status write_rates(const rn_rates *rates, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "threads", rates->threads);
    rn_json_string(&json, "cpu_level", rates->cpu_level);
    if (rates->quick) rn_json_u64(&json, "quick", 1);
    write_fields(rates->cpu, true, &json);
    write_devices(rates, &json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_rates_save(const rn_rates *rates, const char *path) {
    char usual[512];
    rn_buffer text;
    if (!path) RN_TRY(rn_rates_path(usual, sizeof usual));
    if (!path) path = usual;
    RN_TRY(rn_rates_make_folders(path));
    rn_buffer_init(&text, RN_HOST_OTHER, MAX_FILE);
    rn_status s = write_rates(rates, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_file_replace(path, text.data, text.bytes);
    rn_buffer_free(&text);
    return s;
}

// ---- loading ------------------------------------------------------------------------------------

static rn_status read_number(rn_json_reader *reader, const char *name, uint64_t most,
                             uint64_t *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(reader, &item));
    RN_TRY(rn_json_u64_of(&item, out));
    if (*out == 0 || *out > most) return rn_fail(RN_CORRUPT, "%s is out of range", name);
    return RN_OK;
}

static rn_status copy_text(rn_str text, const char *name, char *out, size_t bytes) {
    if (text.bytes >= bytes) return rn_fail(RN_CORRUPT, "%s is too long", name);
    memcpy(out, text.data, text.bytes);
    out[text.bytes] = 0;
    if (strlen(out) < text.bytes) return rn_fail(RN_CORRUPT, "%s ends in its middle", name);
    return RN_OK;
}

static rn_status read_text(rn_json_reader *reader, const char *name, char *out, size_t bytes) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
    return copy_text(item.text, name, out, bytes);
}

// What has no such name is a later version's. `backend` may be NULL.
static rn_status read_field(rn_json_reader *reader, rn_str key, const rn_backend *backend,
                            rn_device_rates *of) {
    uint64_t number;
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (!rn_str_equal(key, rn_str_from(fields[i].name))) continue;
        RN_TRY(read_number(reader, fields[i].name, MOST, &number));
        *number_of(of, &fields[i]) = (double)number * fields[i].unit;
        return RN_OK;
    }
    for (uint32_t i = 0; backend && i < backend->rate_count; i++) {
        const rn_own_rate *rate = &backend->rates[i];
        if (!rn_str_equal(key, rn_str_from(rate->key))) continue;
        RN_TRY(read_number(reader, rate->key, MOST, &number));
        of->own[i] = (double)number * rate->unit;
        return RN_OK;
    }
    return rn_json_skip(reader);
}

static rn_status check_fields(rn_device_rates *of, bool has_disk, const char *whose) {
    for (int i = 0; i < FIELD_COUNT; i++) {
        bool wanted = !fields[i].optional && (has_disk || !fields[i].of_disk);
        if (wanted && *number_of(of, &fields[i]) == 0)
            return rn_fail(RN_CORRUPT, "%s%s is missing", whose, fields[i].name);
    }
    return RN_OK;
}

static rn_status read_device(rn_json_reader *reader, rn_rates_device *of) {
    const rn_backend *backend = rn_backend_of(of->name);
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        rn_json_item item;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return check_fields(&of->rates, false, "a device's ");
        if (rn_str_equal(item.text, RN_STR("hardware")))
            RN_TRY(read_text(reader, "hardware", of->hardware, sizeof of->hardware));
        else
            RN_TRY(read_field(reader, item.text, backend, &of->rates));
    }
}

static rn_status begin_device(rn_rates *rates, rn_str name, rn_rates_device **out) {
    if (rates->device_count == RN_RATES_DEVICES)
        return rn_fail(RN_CORRUPT, "there are more than %d devices", RN_RATES_DEVICES);
    *out = &rates->devices[rates->device_count];
    RN_TRY(copy_text(name, "a device's name", (*out)->name, sizeof(*out)->name));
    if (!(*out)->name[0]) return rn_fail(RN_CORRUPT, "a device has no name");
    for (uint32_t i = 0; i < rates->device_count; i++)
        if (strcmp(rates->devices[i].name, (*out)->name) == 0)
            return rn_fail(RN_CORRUPT, "%s is there twice", (*out)->name);
    rates->device_count++;
    return RN_OK;
}

static rn_status read_devices(rn_json_reader *reader, rn_rates *rates) {
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        rn_json_item item;
        rn_rates_device *device = NULL;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        RN_TRY(begin_device(rates, item.text, &device));
        RN_TRY(read_device(reader, device));
    }
}

static rn_status read_key(rn_json_reader *reader, rn_str key, rn_rates *rates) {
    uint64_t number;
    if (rn_str_equal(key, RN_STR("cpu_level")))
        return read_text(reader, "cpu_level", rates->cpu_level, sizeof rates->cpu_level);
    if (rn_str_equal(key, RN_STR("devices"))) return read_devices(reader, rates);
    if (rn_str_equal(key, RN_STR("quick"))) {
        RN_TRY(read_number(reader, "quick", 1, &number));
        rates->quick = true;
        return RN_OK;
    }
    if (!rn_str_equal(key, RN_STR("threads"))) return read_field(reader, key, NULL, &rates->cpu);
    RN_TRY(read_number(reader, "threads", UINT32_MAX, &number));
    rates->threads = (uint32_t)number;
    return RN_OK;
}

static rn_status read_rates(rn_json_reader *reader, rn_rates *rates) {
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        rn_json_item item;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        RN_TRY(read_key(reader, item.text, rates));
    }
    RN_TRY(rn_json_expect(reader, RN_JSON_END, NULL));
    if (rates->threads == 0) return rn_fail(RN_CORRUPT, "threads is missing");
    if (!rates->cpu_level[0]) return rn_fail(RN_CORRUPT, "cpu_level is missing");
    RN_TRY(check_fields(&rates->cpu, !rates->quick, ""));
    for (uint32_t i = 0; i < rates->device_count; i++)
        rates->devices[i].rates.disk_bytes_second = rates->cpu.disk_bytes_second;
    return RN_OK;
}

static rn_status parse(rn_str text, rn_rates *rates) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, text, RN_HOST_OTHER);
    rn_status s = read_rates(&reader, rates);
    rn_json_reader_free(&reader);
    return s;
}

rn_status rn_rates_load(const char *path, rn_rates *out) {
    char usual[512];
    rn_buffer text;
    *out = (rn_rates){0};
    if (!path) RN_TRY(rn_rates_path(usual, sizeof usual));
    if (!path) path = usual;
    rn_buffer_init(&text, RN_HOST_OTHER, MAX_FILE);
    rn_status s = rn_file_read_all(path, &text);
    if (s == RN_INVALID) s = rn_fail(RN_CORRUPT, "it is no small file");
    if (s == RN_OK) s = parse((rn_str){text.data, text.bytes}, out);
    if (s == RN_CORRUPT)
        s = rn_hint(rn_error_locate(s, path, rn_last_error()->offset),
                    "ration calibrate makes it anew");
    rn_buffer_free(&text);
    return s;
}
