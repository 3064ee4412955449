// result.c — a row a figure: written and read by the same table.
//
//     {"format": "ration-bench-1", "model": ..., "results": [
//         {"name": "cpu+int8", "status": "success", ..., "latency": {"p50_s": ...}, ...}]}
//
// alma's keys stand among ours: device, batch_size, throughput, data_dtype and status in any
// version, total_elapsed_time and total_samples, total_inf_time (until its 0.3.10), and of a
// failure error and traceback. They are derived from ours, so the reader passes them over.
#include "bench/result.h"

#include "base/file.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum kind { TEXT, COUNT, SIGNED, REAL, REALS, FLAG, OUTCOME } kind;

typedef struct figure {
    const char *object; // of the result: "latency"; NULL: the result itself
    const char *key;
    kind kind;
    size_t offset, bytes;
} figure;

#define AT(object, key, kind, member)                                                              \
    {                                                                                              \
        object, key, kind, offsetof(rn_bench_result, member),                                      \
            sizeof(((rn_bench_result *)NULL)->member)                                              \
    }

// Figures of one object stand together.
static const figure figures[] = {
    AT(NULL, "name", TEXT, name),
    AT(NULL, "asked", TEXT, asked),
    AT(NULL, "outcome", OUTCOME, outcome),
    AT(NULL, "engine", TEXT, engine),
    AT(NULL, "device", TEXT, device),
    AT(NULL, "weights", TEXT, weights),
    AT(NULL, "activations", TEXT, activations),
    AT(NULL, "mode", TEXT, mode),
    AT(NULL, "data_dtype", TEXT, data_dtype),
    AT(NULL, "batch_size", COUNT, batch),
    AT(NULL, "threads", COUNT, threads),
    AT(NULL, "budget_bytes", COUNT, budget_bytes),
    AT(NULL, "throughput", REAL, throughput),
    AT(NULL, "load_s", REAL, load_s),
    AT(NULL, "compile_s", REAL, compile_s),
    AT(NULL, "first_s", REAL, first_s),
    AT(NULL, "elapsed_s", REAL, elapsed_s),
    AT(NULL, "resident_peak_bytes", COUNT, resident_peak_bytes),
    AT(NULL, "limit_bytes", COUNT, limit_bytes),
    AT(NULL, "left_bytes", COUNT, left_bytes),
    AT(NULL, "read_bytes", COUNT, read_bytes),
    AT(NULL, "joules", REAL, joules),
    AT(NULL, "joules_source", TEXT, joules_source),
    AT(NULL, "command", TEXT, command),
    AT("latency", "samples", COUNT, latency.samples),
    AT("latency", "warm_up", COUNT, latency.warm_up),
    AT("latency", "steady", FLAG, latency.steady),
    AT("latency", "min_s", REAL, latency.min_s),
    AT("latency", "p50_s", REAL, latency.p50_s),
    AT("latency", "p50_low_s", REAL, latency.p50_low_s),
    AT("latency", "p50_high_s", REAL, latency.p50_high_s),
    AT("latency", "p90_s", REAL, latency.p90_s),
    AT("latency", "p99_s", REAL, latency.p99_s),
    AT("latency", "max_s", REAL, latency.max_s),
    AT("latency", "mean_s", REAL, latency.mean_s),
    AT("latency", "total_s", REAL, latency.total_s),
    AT("latency", "loop_s", REAL, latency.loop_s),
    AT("latency", "processes", COUNT, latency.processes),
    AT("latency", "between", REAL, latency.between),
    AT("latency", "floors_s", REALS, latency.floors_s),
    AT("accuracy", "reference", TEXT, accuracy.reference),
    AT("accuracy", "values", COUNT, accuracy.values),
    AT("accuracy", "max_abs", REAL, accuracy.max_abs),
    AT("accuracy", "max_rel", REAL, accuracy.max_rel),
    AT("accuracy", "cosine", REAL, accuracy.cosine),
    AT("accuracy", "top1", REAL, accuracy.top1),
    AT("speedup", "ratio", REAL, speedup),
    AT("speedup", "low", REAL, speedup_low),
    AT("speedup", "high", REAL, speedup_high),
    AT("failure", "signal", SIGNED, failure.signal),
    AT("failure", "exit_code", SIGNED, failure.exit_code),
    AT("failure", "status", TEXT, failure.status),
    AT("failure", "stage", TEXT, failure.stage),
    AT("failure", "message", TEXT, failure.message),
    AT("failure", "hint", TEXT, failure.hint),
    AT("failure", "log", TEXT, failure.log),
    AT("host_memory", "planned_bytes", COUNT, host.planned_bytes),
    AT("host_memory", "measured_bytes", COUNT, host.measured_bytes),
    AT("host_memory", "peak_bytes", COUNT, host.peak_bytes),
    AT("device_memory", "planned_bytes", COUNT, device_memory.planned_bytes),
    AT("device_memory", "measured_bytes", COUNT, device_memory.measured_bytes),
    AT("device_memory", "peak_bytes", COUNT, device_memory.peak_bytes),
};

#define RUN(key, kind, member)                                                                     \
    {                                                                                              \
        NULL, key, kind, offsetof(rn_bench_results, member),                                       \
            sizeof(((rn_bench_results *)NULL)->member)                                             \
    }

static const figure run_figures[] = {
    RUN("model", TEXT, model),
    RUN("parameters", COUNT, parameters),
    RUN("baseline", TEXT, baseline),
    RUN("sweep", TEXT, sweep),
    RUN("tier", TEXT, tier),
    RUN("version", TEXT, version),
    RUN("date", TEXT, date),
    RUN("machine", TEXT, machine),
    RUN("cpu", TEXT, cpu),
    RUN("system", TEXT, system),
    RUN("threads", COUNT, threads),
    RUN("machine_bytes", COUNT, machine_bytes),
    RUN("empty_s", REAL, empty_s),
    RUN("elapsed_s", REAL, elapsed_s),
    RUN("cancelled", FLAG, cancelled),
};

#define TEXT_LINE(key, kind, member)                                                               \
    { NULL, key, kind, offsetof(rn_bench_text, member), sizeof(((rn_bench_text *)NULL)->member) }

static const figure text_figures[] = {
    TEXT_LINE("test", TEXT, test),
    TEXT_LINE("tokens", COUNT, tokens),
    TEXT_LINE("depth", COUNT, depth),
    TEXT_LINE("tokens_per_s", REAL, tokens_per_s),
    TEXT_LINE("tokens_per_s_low", REAL, tokens_per_s_low),
    TEXT_LINE("tokens_per_s_high", REAL, tokens_per_s_high),
};

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

static const char *const outcome_names[RN_BENCH_OUTCOME_COUNT] = {
    "success", "wrong",     "refused",   "failed",   "crashed",
    "killed",  "no_memory", "timed_out", "cancelled"};

const char *rn_bench_outcome_name(rn_bench_outcome outcome) {
    return (unsigned)outcome < RN_BENCH_OUTCOME_COUNT ? outcome_names[outcome] : "unknown";
}

// ---- unknown ------------------------------------------------------------------------------------

static void clear_figures(const figure *table, size_t count, void *base) {
    for (size_t i = 0; i < count; i++) {
        void *at = (char *)base + table[i].offset;
        if (table[i].kind == COUNT) *(uint64_t *)at = RN_BENCH_UNKNOWN;
        bool is_real = table[i].kind == REAL || table[i].kind == REALS;
        for (size_t k = 0; is_real && k < table[i].bytes / sizeof(double); k++)
            ((double *)at)[k] = NAN;
    }
}

void rn_bench_result_clear(rn_bench_result *r) {
    *r = (rn_bench_result){0};
    clear_figures(figures, COUNT_OF(figures), r);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        r->host.planned[p] = r->host.measured[p] = r->device_memory.planned[p] =
            r->device_memory.measured[p] = RN_BENCH_UNKNOWN;
    r->failure.exit_code = -1;
    r->latency.samples = r->latency.warm_up = 0;
}

rn_status rn_bench_results_create(size_t count, rn_bench_results **out) {
    rn_bench_results *results;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *results, (void **)&results));
    rn_status s =
        rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *results->items, (void **)&results->items);
    if (s != RN_OK) {
        rn_free(RN_HOST_OTHER, results, sizeof *results);
        return s;
    }
    clear_figures(run_figures, COUNT_OF(run_figures), results);
    results->count = count;
    for (size_t i = 0; i < count; i++)
        rn_bench_result_clear(&results->items[i]);
    *out = results;
    return RN_OK;
}

void rn_bench_results_destroy(rn_bench_results *results) {
    if (!results) return;
    rn_free(RN_HOST_OTHER, results->items, results->count * sizeof *results->items);
    rn_free(RN_HOST_OTHER, results, sizeof *results);
}

// ---- writing ------------------------------------------------------------------------------------

static void write_count(rn_json *json, const char *key, uint64_t value) {
    if (value == RN_BENCH_UNKNOWN)
        rn_json_null(json, key);
    else
        rn_json_u64(json, key, value);
}

// Until the first that is not known.
static void write_reals(const figure *f, const double *at, rn_json *json) {
    rn_json_array(json, f->key);
    for (size_t k = 0; k < f->bytes / sizeof *at && !isnan(at[k]); k++)
        rn_json_f64(json, NULL, at[k]);
    rn_json_end(json);
}

static void write_figure(const figure *f, const void *base, rn_json *json) {
    const void *at = (const char *)base + f->offset;
    switch (f->kind) {
    case TEXT:
        if (*(const char *)at)
            rn_json_string(json, f->key, at);
        else
            rn_json_null(json, f->key);
        break;
    case COUNT:
        write_count(json, f->key, *(const uint64_t *)at);
        break;
    case SIGNED:
        rn_json_i64(json, f->key, *(const int32_t *)at);
        break;
    case REAL:
        rn_json_f64(json, f->key, *(const double *)at);
        break;
    case REALS:
        write_reals(f, at, json);
        break;
    case FLAG:
        rn_json_bool(json, f->key, *(const bool *)at);
        break;
    case OUTCOME:
        rn_json_string(json, f->key, rn_bench_outcome_name(*(const rn_bench_outcome *)at));
        break;
    }
}

static void write_purposes(const rn_bench_memory *memory, rn_json *json) {
    rn_json_object(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        if (memory->planned[p] == RN_BENCH_UNKNOWN && memory->measured[p] == RN_BENCH_UNKNOWN)
            continue;
        rn_json_object(json, rn_purpose_name((rn_purpose)p));
        write_count(json, "planned_bytes", memory->planned[p]);
        write_count(json, "measured_bytes", memory->measured[p]);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static bool has_failed(const rn_bench_result *r) {
    return r->outcome != RN_BENCH_SUCCESS && r->outcome != RN_BENCH_WRONG;
}

static void write_alma(const rn_bench_result *r, rn_json *json) {
    rn_json_string(json, "status", has_failed(r) ? "error" : "success");
    if (has_failed(r)) {
        rn_json_string(json, "error", r->failure.message);
        rn_json_string(json, "traceback", r->failure.log);
        return;
    }
    rn_json_f64(json, "total_elapsed_time", r->latency.loop_s);
    rn_json_f64(json, "total_inf_time", r->latency.total_s);
    write_count(json, "total_samples",
                r->batch == RN_BENCH_UNKNOWN ? r->batch : r->latency.samples * r->batch);
}

// Objects of which nothing is known are left out.
static bool leaves_out(const rn_bench_result *r, const char *object) {
    return strcmp(object, "failure") == 0       ? r->outcome == RN_BENCH_SUCCESS
           : strcmp(object, "accuracy") == 0    ? !r->accuracy.reference[0]
           : strcmp(object, "latency") == 0     ? r->latency.samples == 0
           : strcmp(object, "speedup") == 0     ? isnan(r->speedup)
           : strcmp(object, "host_memory") == 0 ? r->host.peak_bytes == RN_BENCH_UNKNOWN
                                                : r->device_memory.peak_bytes == RN_BENCH_UNKNOWN;
}

// The figures of one object, from figure `i` on; the next object's first figure.
static size_t write_object(const rn_bench_result *r, size_t i, rn_json *json) {
    const char *object = figures[i].object;
    bool empty = leaves_out(r, object);
    if (empty)
        rn_json_null(json, object);
    else
        rn_json_object(json, object);
    for (; i < COUNT_OF(figures) && strcmp(figures[i].object, object) == 0; i++)
        if (!empty) write_figure(&figures[i], r, json);
    if (empty) return i;
    if (strcmp(object, "host_memory") == 0) write_purposes(&r->host, json);
    if (strcmp(object, "device_memory") == 0) write_purposes(&r->device_memory, json);
    rn_json_end(json);
    return i;
}

void rn_bench_result_write(const rn_bench_result *r, rn_json *json, const char *key) {
    size_t i = 0;
    rn_json_object(json, key);
    for (; !figures[i].object; i++)
        write_figure(&figures[i], r, json);
    write_alma(r, json);
    while (i < COUNT_OF(figures))
        i = write_object(r, i, json);
    rn_json_array(json, "texts");
    for (size_t k = 0; k < r->text_count; k++) {
        rn_json_object(json, NULL);
        for (size_t f = 0; f < COUNT_OF(text_figures); f++)
            write_figure(&text_figures[f], &r->texts[k], json);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

rn_status rn_bench_results_write(const rn_bench_results *results, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "format", "ration-bench-1");
    for (size_t i = 0; i < COUNT_OF(run_figures); i++)
        write_figure(&run_figures[i], results, &json);
    rn_json_array(&json, "results");
    for (size_t i = 0; i < results->count; i++)
        rn_bench_result_write(&results->items[i], &json, NULL);
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// ---- reading ------------------------------------------------------------------------------------

static rn_status refuse_value(const figure *f, const rn_json_item *item) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "'%s' is %s", f->key, rn_json_kind_name(item->kind)),
                           "", item->offset);
}

static void copy_text(rn_str text, char *out, size_t bytes) {
    size_t count = text.bytes < bytes - 1 ? text.bytes : bytes - 1;
    memcpy(out, text.data, count);
    out[count] = 0;
    rn_str_clean(out);
}

static rn_status read_outcome(const rn_json_item *item, rn_bench_outcome *out) {
    for (int i = 0; i < RN_BENCH_OUTCOME_COUNT; i++)
        if (rn_str_equal(item->text, rn_str_from(outcome_names[i]))) {
            *out = (rn_bench_outcome)i;
            return RN_OK;
        }
    return rn_error_locate(
        rn_fail(RN_CORRUPT, "there is no outcome '%.*s'", RN_STR_ARG(item->text)), "",
        item->offset);
}

static rn_status read_real(const rn_json_item *item, double *out) {
    char digits[64];
    if (item->text.bytes >= sizeof digits)
        return rn_error_locate(rn_fail(RN_CORRUPT, "a number of %zu digits", item->text.bytes), "",
                               item->offset);
    copy_text(item->text, digits, sizeof digits);
    *out = strtod(digits, NULL);
    return RN_OK;
}

static rn_status read_reals(rn_json_reader *reader, const figure *f, double *out) {
    rn_json_item item;
    for (size_t k = 0;; k++) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_NUMBER || k == f->bytes / sizeof *out)
            return rn_error_locate(rn_fail(RN_CORRUPT, "'%s' is no list of up to %zu numbers",
                                           f->key, f->bytes / sizeof *out),
                                   "", item.offset);
        RN_TRY(read_real(&item, &out[k]));
    }
}

// null: not known, which the figure is already.
static rn_status read_figure(rn_json_reader *reader, const figure *f, void *base) {
    void *at = (char *)base + f->offset;
    rn_json_item item;
    double number = 0;
    RN_TRY(rn_json_next(reader, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (f->kind == REALS && item.kind == RN_JSON_ARRAY) return read_reals(reader, f, at);
    bool is_text = f->kind == TEXT || f->kind == OUTCOME;
    bool is_flag = item.kind == RN_JSON_TRUE || item.kind == RN_JSON_FALSE;
    if (f->kind == REALS ||
        (f->kind == FLAG ? !is_flag : item.kind != (is_text ? RN_JSON_STRING : RN_JSON_NUMBER)))
        return refuse_value(f, &item);
    switch (f->kind) {
    case TEXT:
        copy_text(item.text, at, f->bytes);
        return RN_OK;
    case OUTCOME:
        return read_outcome(&item, at);
    case COUNT:
        return rn_json_u64_of(&item, at);
    case FLAG:
        *(bool *)at = item.kind == RN_JSON_TRUE;
        return RN_OK;
    case REAL:
        return read_real(&item, at);
    case SIGNED:
    case REALS:
        break;
    }
    RN_TRY(read_real(&item, &number));
    if (!(number >= INT32_MIN && number <= INT32_MAX)) return refuse_value(f, &item);
    *(int32_t *)at = (int32_t)number;
    return RN_OK;
}

static const figure *find_figure(const figure *table, size_t count, const char *object,
                                 rn_str key) {
    for (size_t i = 0; i < count; i++) {
        bool same = object && table[i].object ? strcmp(object, table[i].object) == 0
                                              : object == table[i].object;
        if (same && rn_str_equal(key, rn_str_from(table[i].key))) return &table[i];
    }
    return NULL;
}

// The members of an object that `special` takes, or the table has; others are passed over.
typedef rn_status (*member_reader)(rn_json_reader *reader, rn_str key, void *base, bool *out_taken);

static rn_status read_members(rn_json_reader *reader, const figure *table, size_t count,
                              const char *object, void *base, member_reader special) {
    for (;;) {
        rn_json_item item;
        bool taken = false;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        if (special) RN_TRY(special(reader, item.text, base, &taken));
        if (taken) continue;
        const figure *f = find_figure(table, count, object, item.text);
        RN_TRY(f ? read_figure(reader, f, base) : rn_json_skip(reader));
    }
}

// Begins an object; *out: it is one, and not null.
static rn_status begin_object(rn_json_reader *reader, bool *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(reader, &item));
    *out = item.kind == RN_JSON_OBJECT;
    if (*out || item.kind == RN_JSON_NULL) return RN_OK;
    return rn_error_locate(
        rn_fail(RN_CORRUPT, "an object is wanted, not %s", rn_json_kind_name(item.kind)), "",
        item.offset);
}

static rn_status read_purpose(rn_json_reader *reader, rn_bench_memory *memory, int purpose) {
    const figure pair[] = {
        {NULL, "planned_bytes", COUNT,
         offsetof(rn_bench_memory, planned) + (size_t)purpose * sizeof(uint64_t), 8},
        {NULL, "measured_bytes", COUNT,
         offsetof(rn_bench_memory, measured) + (size_t)purpose * sizeof(uint64_t), 8}};
    bool is_object;
    RN_TRY(begin_object(reader, &is_object));
    return is_object ? read_members(reader, pair, 2, NULL, memory, NULL) : RN_OK;
}

static rn_status read_purposes(rn_json_reader *reader, rn_bench_memory *memory) {
    bool is_object;
    RN_TRY(begin_object(reader, &is_object));
    while (is_object) {
        rn_json_item item;
        int p = 0;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        while (p < RN_PURPOSE_COUNT &&
               !rn_str_equal(item.text, rn_str_from(rn_purpose_name((rn_purpose)p))))
            p++;
        RN_TRY(p < RN_PURPOSE_COUNT ? read_purpose(reader, memory, p) : rn_json_skip(reader));
    }
    return RN_OK;
}

static rn_status read_host(rn_json_reader *reader, rn_str key, void *base, bool *out_taken) {
    *out_taken = rn_str_equal(key, RN_STR("purposes"));
    return *out_taken ? read_purposes(reader, &((rn_bench_result *)base)->host) : RN_OK;
}

static rn_status read_device(rn_json_reader *reader, rn_str key, void *base, bool *out_taken) {
    *out_taken = rn_str_equal(key, RN_STR("purposes"));
    return *out_taken ? read_purposes(reader, &((rn_bench_result *)base)->device_memory) : RN_OK;
}

static rn_status read_texts(rn_json_reader *reader, rn_bench_result *r) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (r->text_count = 0;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT || r->text_count == RN_BENCH_TEXTS)
            return rn_error_locate(
                rn_fail(RN_CORRUPT, "'texts' has more than %d lines, or no lines", RN_BENCH_TEXTS),
                "", item.offset);
        rn_bench_text *line = &r->texts[r->text_count++];
        *line = (rn_bench_text){0};
        clear_figures(text_figures, COUNT_OF(text_figures), line);
        RN_TRY(read_members(reader, text_figures, COUNT_OF(text_figures), NULL, line, NULL));
    }
}

// An object of figures, or the lines of a text model.
static rn_status read_nested(rn_json_reader *reader, rn_str key, void *base, bool *out_taken) {
    bool is_object;
    *out_taken = true;
    if (rn_str_equal(key, RN_STR("texts"))) return read_texts(reader, base);
    for (size_t i = 0; i < COUNT_OF(figures); i++) {
        const char *object = figures[i].object;
        if (!object || !rn_str_equal(key, rn_str_from(object))) continue;
        member_reader special = strcmp(object, "host_memory") == 0     ? read_host
                                : strcmp(object, "device_memory") == 0 ? read_device
                                                                       : NULL;
        RN_TRY(begin_object(reader, &is_object));
        if (!is_object) return RN_OK;
        return read_members(reader, figures, COUNT_OF(figures), object, base, special);
    }
    *out_taken = false;
    return RN_OK;
}

rn_status rn_bench_result_read(rn_json_reader *reader, rn_bench_result *result) {
    return read_members(reader, figures, COUNT_OF(figures), NULL, result, read_nested);
}

// ---- a file -------------------------------------------------------------------------------------

enum { MOST_RESULTS = 4096, MOST_FILE_BYTES = 64 << 20 };

static rn_status add_item(rn_bench_results *results) {
    size_t count = results->count + 1;
    rn_bench_result *items;
    if (results->count == MOST_RESULTS)
        return rn_fail(RN_CORRUPT, "more than %d results", MOST_RESULTS);
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *items, (void **)&items));
    if (results->count) memcpy(items, results->items, results->count * sizeof *items);
    rn_free(RN_HOST_OTHER, results->items, results->count * sizeof *items);
    results->items = items;
    rn_bench_result_clear(&items[results->count]);
    results->count = count;
    return RN_OK;
}

static rn_status read_items(rn_json_reader *reader, rn_bench_results *results) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT)
            return rn_error_locate(
                rn_fail(RN_CORRUPT, "a result is %s", rn_json_kind_name(item.kind)), "",
                item.offset);
        RN_TRY(add_item(results));
        RN_TRY(rn_bench_result_read(reader, &results->items[results->count - 1]));
    }
}

static rn_status read_special(rn_json_reader *reader, rn_str key, void *base, bool *out_taken) {
    rn_json_item item;
    *out_taken = true;
    if (rn_str_equal(key, RN_STR("results"))) return read_items(reader, base);
    if (!rn_str_equal(key, RN_STR("format"))) {
        *out_taken = false;
        return RN_OK;
    }
    RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
    if (rn_str_equal(item.text, RN_STR("ration-bench-1"))) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "the format is '%.*s', not ration-bench-1",
                   RN_STR_ARG(item.text));
}

static rn_status read_all(rn_str text, rn_bench_results *results) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, text, RN_HOST_IO);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    if (s == RN_OK)
        s = read_members(&reader, run_figures, COUNT_OF(run_figures), NULL, results, read_special);
    if (s == RN_OK) s = rn_json_expect(&reader, RN_JSON_END, NULL);
    rn_json_reader_free(&reader);
    return s;
}

rn_status rn_bench_results_read(const char *path, rn_bench_results **out) {
    rn_bench_results *results = NULL;
    rn_buffer file;
    *out = NULL;
    rn_buffer_init(&file, RN_HOST_IO, MOST_FILE_BYTES);
    rn_status s = rn_file_read_all(path, &file);
    if (s == RN_OK) s = rn_bench_results_create(0, &results);
    if (s == RN_OK) {
        s = read_all((rn_str){file.data, file.bytes}, results);
        s = rn_error_locate(s, path, rn_last_error()->offset);
    }
    rn_buffer_free(&file);
    if (s == RN_OK)
        *out = results;
    else
        rn_bench_results_destroy(results);
    return s;
}

// ---- visiting -----------------------------------------------------------------------------------

static const char *print_figure(const figure *f, const void *base, char *out, size_t bytes) {
    const void *at = (const char *)base + f->offset;
    switch (f->kind) {
    case TEXT:
        return *(const char *)at ? at : NULL;
    case OUTCOME:
        return rn_bench_outcome_name(*(const rn_bench_outcome *)at);
    case FLAG:
        return *(const bool *)at ? "true" : "false";
    case COUNT:
        if (*(const uint64_t *)at == RN_BENCH_UNKNOWN) return NULL;
        snprintf(out, bytes, "%llu", (unsigned long long)*(const uint64_t *)at);
        return out;
    case REAL:
        if (isnan(*(const double *)at)) return NULL;
        snprintf(out, bytes, "%.9g", *(const double *)at);
        for (char *c = out; *c; c++)
            if (*c == ',') *c = '.'; // in locales that a program around us may have set
        return out;
    case SIGNED:
    case REALS:
        break;
    }
    snprintf(out, bytes, "%d", *(const int32_t *)at);
    return out;
}

rn_status rn_bench_result_visit(const rn_bench_result *r, void *self, rn_bench_visit *visit) {
    for (size_t i = 0; i < COUNT_OF(figures); i++) {
        char number[32];
        const figure *f = &figures[i];
        if (f->kind == REALS) continue;
        RN_TRY(visit(self, f->object, f->key, print_figure(f, r, number, sizeof number)));
    }
    return RN_OK;
}
