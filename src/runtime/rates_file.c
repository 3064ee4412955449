// rates_file.c — measured rates in the user's cache folder, as a small JSON object of whole
// numbers:
//
//     {"threads": 2, "cpu_level": "avx512", "flops": 61000000000, ..., "step_ns": 1800}
#include "runtime/rates.h"

#include "base/cpu.h"
#include "base/file.h"
#include "base/str.h"
#include "base/workers.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_FILE = 4096 };

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
    size_t offset;
    double unit; // of the number in the file
} field;

static const field fields[] = {
    {"flops", offsetof(rn_device_rates, flops), 1},
    {"quantized_flops", offsetof(rn_device_rates, quantized_flops), 1},
    {"memory_bytes_second", offsetof(rn_device_rates, memory_bytes_second), 1},
    {"disk_bytes_second", offsetof(rn_device_rates, disk_bytes_second), 1},
    {"link_bytes_second", offsetof(rn_device_rates, link_bytes_second), 1},
    {"step_ns", offsetof(rn_device_rates, step_seconds), 1e-9},
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };
#define MOST ((uint64_t)1 << 60) // of any of them

static double *number_of(rn_rates *rates, const field *f) {
    return (double *)((char *)&rates->cpu + f->offset);
}

// ---- saving -------------------------------------------------------------------------------------

static uint64_t round_rate(double value) {
    return value < 1 ? 1 : value < (double)MOST ? (uint64_t)(value + 0.5) : MOST;
}

static rn_status write_rates(rn_rates rates, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "threads", rates.threads);
    rn_json_string(&json, "cpu_level", rates.cpu_level);
    for (int i = 0; i < FIELD_COUNT; i++)
        rn_json_u64(&json, fields[i].name,
                    round_rate(*number_of(&rates, &fields[i]) / fields[i].unit));
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
    rn_status s = write_rates(*rates, rn_buffer_sink(&text));
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

static rn_status read_level(rn_json_reader *reader, rn_rates *rates) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
    if (item.text.bytes >= sizeof rates->cpu_level)
        return rn_fail(RN_CORRUPT, "cpu_level is too long");
    memcpy(rates->cpu_level, item.text.data, item.text.bytes);
    rates->cpu_level[item.text.bytes] = 0;
    return RN_OK;
}

static rn_status read_field(rn_json_reader *reader, rn_str key, rn_rates *rates) {
    uint64_t number;
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (!rn_str_equal(key, rn_str_from(fields[i].name))) continue;
        RN_TRY(read_number(reader, fields[i].name, MOST, &number));
        *number_of(rates, &fields[i]) = (double)number * fields[i].unit;
        return RN_OK;
    }
    if (rn_str_equal(key, RN_STR("cpu_level"))) return read_level(reader, rates);
    if (!rn_str_equal(key, RN_STR("threads"))) return rn_json_skip(reader);
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
        RN_TRY(read_field(reader, item.text, rates));
    }
    RN_TRY(rn_json_expect(reader, RN_JSON_END, NULL));
    if (rates->threads == 0) return rn_fail(RN_CORRUPT, "threads is missing");
    if (!rates->cpu_level[0]) return rn_fail(RN_CORRUPT, "cpu_level is missing");
    for (int i = 0; i < FIELD_COUNT; i++)
        if (*number_of(rates, &fields[i]) == 0)
            return rn_fail(RN_CORRUPT, "%s is missing", fields[i].name);
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
        s = rn_hint(rn_blame(s, path, rn_last_story()->offset), "ration calibrate makes it anew");
    rn_buffer_free(&text);
    return s;
}

rn_status rn_rates_use(uint32_t threads, bool *out_measured) {
    rn_rates rates;
    rn_status s = rn_rates_load(NULL, &rates);
    *out_measured = false;
    if (s == RN_NOT_FOUND) return RN_OK;
    if (s != RN_OK) return s;
    if (threads == 0) threads = (uint32_t)rn_cpu_count();
    if (rates.threads != threads) return RN_OK;
    if (strcmp(rates.cpu_level, rn_cpu_level_name(rn_cpu_level_get())) != 0) return RN_OK;
    rn_cpu_set_rates(&rates.cpu);
    *out_measured = true;
    return RN_OK;
}
