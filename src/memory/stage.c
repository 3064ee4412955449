// stage.c — a line that says where a program is and what it holds, and how it went wrong there.
#include "memory/stage.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error_class.h"
#include "base/str.h"
#include "memory/device_usage.h"
#include "memory/ledger.h"

#include <ration/error_class.h>

#include <pthread.h>
#include <stdio.h>

enum { MAX_LINE_BYTES = 32 << 10 };
#define STAGE_SYMBOL "📊"

// A stage, or what failed there.
typedef struct stage_report {
    const char *stage;
    const rn_error_info *failure; // NULL: the stage was reached
    const char *target;           // where, or NULL
    rn_log_level level;
    rn_process_info process;
} stage_report;

// ---- for people ---------------------------------------------------------------------------------

static rn_status write_memory(rn_sink sink, const rn_process_info *process) {
    RN_TRY(rn_sink_print(sink, "resident %s", rn_size_format(process->resident_bytes).text));
    for (size_t d = 0; d < rn_device_count(); d++) {
        rn_device_usage usage;
        RN_TRY(rn_sink_print(sink, ", %s %s", rn_device_name((rn_device_id)d),
                             rn_size_format(rn_ledger_total((rn_device_id)d).now_bytes).text));
        if (rn_device_usage_read((rn_device_id)d, &usage))
            RN_TRY(rn_sink_print(sink, " (%s: %s)", usage.source,
                                 rn_size_format(usage.used_bytes).text));
    }
    return rn_sink_print(sink, ", free %s", rn_size_format(rn_process_free_bytes(process)).text);
}

static rn_status write_failure(rn_sink sink, const stage_report *report, const char *time_text) {
    const rn_error_class *class = rn_error_classify(report->failure);
    RN_TRY(rn_sink_print(sink, "%s %s failed at stage %s", time_text,
                         rn_log_level_name(report->level), report->stage));
    if (report->target) RN_TRY(rn_sink_print(sink, " on %s", report->target));
    return rn_sink_print(sink, ": %s (%s): %s; hint: %s; ", class->name, class->meaning,
                         report->failure->message, rn_error_hint(report->failure));
}

static rn_status write_text(rn_sink sink, const stage_report *report) {
    char time_text[40];
    rn_clock_text(time_text, false);
    if (rn_log_form_get() == RN_LOG_SYMBOLS)
        RN_TRY(rn_sink_print(sink, "%s ",
                             report->failure ? rn_log_symbol(report->level) : STAGE_SYMBOL));
    if (report->failure)
        RN_TRY(write_failure(sink, report, time_text));
    else
        RN_TRY(rn_sink_print(sink, "%s stage %s%s%s: ", time_text, report->stage,
                             report->target ? " on " : "", report->target ? report->target : ""));
    return write_memory(sink, &report->process);
}

// One line, whatever names and messages hold.
static rn_status flatten(rn_buffer *line) {
    RN_TRY(rn_buffer_append(line, "", 1));
    line->bytes--;
    rn_str_clean(line->data);
    for (char *at = line->data; (at = strchr(at, '\n'));)
        *at = ' ';
    return RN_OK;
}

// ---- for machines -------------------------------------------------------------------------------

static void put_device(rn_json *json, rn_device_id device) {
    rn_json_object(json, rn_device_name(device));
    rn_json_u64(json, "total", rn_ledger_total(device).now_bytes);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        uint64_t bytes = rn_ledger_read(device, (rn_purpose)p).now_bytes;
        if (bytes) rn_json_u64(json, rn_purpose_name((rn_purpose)p), bytes);
    }
    rn_json_end(json);
}

// What drivers say, where they do.
static void put_drivers(rn_json *json) {
    bool any = false;
    for (size_t d = 0; d < rn_device_count(); d++) {
        rn_device_usage usage;
        if (!rn_device_usage_read((rn_device_id)d, &usage)) continue;
        if (!any) rn_json_object(json, "drivers");
        any = true;
        rn_json_object(json, rn_device_name((rn_device_id)d));
        rn_device_usage_json(&usage, json);
        rn_json_end(json);
    }
    if (any) rn_json_end(json);
}

static rn_status write_json(rn_sink sink, const stage_report *report) {
    char time_text[40];
    rn_json json;
    rn_clock_text(time_text, true);
    rn_json_begin(&json, sink, false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "time", time_text);
    if (report->failure) rn_json_string(&json, "level", rn_log_level_name(report->level));
    rn_json_string(&json, report->failure ? "failed_stage" : "stage", report->stage);
    if (report->target) rn_json_string(&json, "target", report->target);
    if (report->failure) rn_error_json(report->failure, &json);
    rn_json_u64(&json, "resident_bytes", report->process.resident_bytes);
    rn_json_u64(&json, "resident_peak_bytes", report->process.resident_peak_bytes);
    rn_json_u64(&json, "free_bytes", rn_process_free_bytes(&report->process));
    rn_json_object(&json, "ledger");
    for (size_t d = 0; d < rn_device_count(); d++)
        put_device(&json, (rn_device_id)d);
    rn_json_end(&json);
    put_drivers(&json);
    rn_json_end(&json);
    return json.status;
}

// ---- telling ------------------------------------------------------------------------------------

static rn_status write_line(rn_buffer *line, const stage_report *report) {
    rn_sink sink = rn_buffer_sink(line);
    if (rn_log_form_get() == RN_LOG_JSON) return write_json(sink, report);
    RN_TRY(write_text(sink, report));
    return flatten(line);
}

// A stage that cannot be logged is not worth failing for.
static void tell(stage_report *report) {
    if (!rn_log_wants(report->level)) return;
    rn_error_info error = *rn_last_error();
    rn_buffer line;
    rn_buffer_init(&line, &rn_system_allocator, MAX_LINE_BYTES);
    rn_status s = rn_process_read(&report->process);
    if (s == RN_OK) s = write_line(&line, report);
    if (s == RN_OK) rn_log_line(report->level, (rn_str){line.data, line.bytes});
    rn_buffer_free(&line);
    rn_error_restore(&error);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rn_stage_name last; // under lock

void rn_stage_on(const char *target, const char *name) {
    pthread_mutex_lock(&lock);
    snprintf(last.text, sizeof last.text, "%s", name);
    pthread_mutex_unlock(&lock);
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_STAGE, .name = name});
    tell(&(stage_report){.stage = name, .target = target, .level = RN_LOG_INFO});
}

void rn_stage(const char *name) {
    rn_stage_on(NULL, name);
}

rn_stage_name rn_stage_last(void) {
    pthread_mutex_lock(&lock);
    rn_stage_name name = last;
    pthread_mutex_unlock(&lock);
    return name;
}

void rn_stage_failed_on(const char *target, rn_log_level level, const char *name,
                        const rn_error_info *error) {
    rn_error_info failure = *error; // it may be the thread's own, which logging passes over
    char mark[128];
    snprintf(mark, sizeof mark, "%.48s failed: %s", name, rn_error_classify(&failure)->name);
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_STAGE, .name = mark});
    tell(&(stage_report){.stage = name, .failure = &failure, .target = target, .level = level});
}

void rn_stage_failed(const char *name, const rn_error_info *error) {
    rn_stage_failed_on(NULL, RN_LOG_ERROR, name, error);
}
