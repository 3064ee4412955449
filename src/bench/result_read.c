// result_read.c — results from JSON: of a worker's record, or of a file. Both are hostile.
#include "bench/figures.h"
#include "bench/result.h"

#include "base/file.h"
#include "memory/account.h"

#include <stdlib.h>

static rn_status refuse_value(const rn_figure *f, const rn_json_item *item) {
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
        if (rn_str_equal(item->text, rn_str_from(rn_bench_outcome_name((rn_bench_outcome)i)))) {
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

static rn_status read_reals(rn_json_reader *reader, const rn_figure *f, double *out) {
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
static rn_status read_figure(rn_json_reader *reader, const rn_figure *f, void *base) {
    void *at = (char *)base + f->offset;
    rn_json_item item;
    double number = 0;
    RN_TRY(rn_json_next(reader, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (f->kind == RN_FIGURE_REALS && item.kind == RN_JSON_ARRAY) return read_reals(reader, f, at);
    bool is_text = f->kind == RN_FIGURE_TEXT || f->kind == RN_FIGURE_OUTCOME;
    bool is_flag = item.kind == RN_JSON_TRUE || item.kind == RN_JSON_FALSE;
    if (f->kind == RN_FIGURE_REALS ||
        (f->kind == RN_FIGURE_FLAG ? !is_flag
                                   : item.kind != (is_text ? RN_JSON_STRING : RN_JSON_NUMBER)))
        return refuse_value(f, &item);
    switch (f->kind) {
    case RN_FIGURE_TEXT:
        copy_text(item.text, at, f->bytes);
        return RN_OK;
    case RN_FIGURE_OUTCOME:
        return read_outcome(&item, at);
    case RN_FIGURE_COUNT:
        return rn_json_u64_of(&item, at);
    case RN_FIGURE_FLAG:
        *(bool *)at = item.kind == RN_JSON_TRUE;
        return RN_OK;
    case RN_FIGURE_REAL:
        return read_real(&item, at);
    case RN_FIGURE_SIGNED:
    case RN_FIGURE_REALS:
        break;
    }
    RN_TRY(read_real(&item, &number));
    if (!(number >= INT32_MIN && number <= INT32_MAX)) return refuse_value(f, &item);
    *(int32_t *)at = (int32_t)number;
    return RN_OK;
}

static const rn_figure *find_figure(const rn_figures *table, const char *object, rn_str key) {
    for (size_t i = 0; i < table->count; i++) {
        const rn_figure *f = &table->rows[i];
        bool same = object && f->object ? strcmp(object, f->object) == 0 : object == f->object;
        if (same && rn_str_equal(key, rn_str_from(f->key))) return f;
    }
    return NULL;
}

// The members of an object that `special` takes, or the table has; others are passed over.
typedef rn_status (*member_reader)(rn_json_reader *reader, rn_str key, void *base, bool *out_taken);

static rn_status read_members(rn_json_reader *reader, const rn_figures *table, const char *object,
                              void *base, member_reader special) {
    for (;;) {
        rn_json_item item;
        bool taken = false;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        if (special) RN_TRY(special(reader, item.text, base, &taken));
        if (taken) continue;
        const rn_figure *f = find_figure(table, object, item.text);
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
    const rn_figure pair[] = {
        {NULL, "planned_bytes", RN_FIGURE_COUNT,
         offsetof(rn_bench_memory, planned) + (size_t)purpose * sizeof(uint64_t), 8},
        {NULL, "measured_bytes", RN_FIGURE_COUNT,
         offsetof(rn_bench_memory, measured) + (size_t)purpose * sizeof(uint64_t), 8}};
    bool is_object;
    RN_TRY(begin_object(reader, &is_object));
    return is_object ? read_members(reader, &(rn_figures){pair, 2}, NULL, memory, NULL) : RN_OK;
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
        rn_figures_clear(&rn_figures_of_text, line);
        RN_TRY(read_members(reader, &rn_figures_of_text, NULL, line, NULL));
    }
}

// An object of figures, or the lines of a text model.
static rn_status read_nested(rn_json_reader *reader, rn_str key, void *base, bool *out_taken) {
    bool is_object;
    *out_taken = true;
    if (rn_str_equal(key, RN_STR("texts"))) return read_texts(reader, base);
    for (size_t i = 0; i < rn_figures_of_result.count; i++) {
        const char *object = rn_figures_of_result.rows[i].object;
        if (!object || !rn_str_equal(key, rn_str_from(object))) continue;
        member_reader special = strcmp(object, "host_memory") == 0     ? read_host
                                : strcmp(object, "device_memory") == 0 ? read_device
                                                                       : NULL;
        RN_TRY(begin_object(reader, &is_object));
        if (!is_object) return RN_OK;
        return read_members(reader, &rn_figures_of_result, object, base, special);
    }
    *out_taken = false;
    return RN_OK;
}

rn_status rn_bench_result_read(rn_json_reader *reader, rn_bench_result *result) {
    return read_members(reader, &rn_figures_of_result, NULL, result, read_nested);
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
    if (s == RN_OK) s = read_members(&reader, &rn_figures_of_run, NULL, results, read_special);
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
