// stage.c — a line that says where a program is and what it holds.
#include "memory/ledger.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/str.h"

#include <ration/log.h>

enum { MAX_LINE_BYTES = 16 << 10 };

static rn_status write_text(rn_sink sink, const char *name, const rn_process_info *info) {
    char time_text[40];
    rn_clock_text(time_text, false);
    RN_TRY(rn_sink_print(sink, "%s stage %s: resident %s", time_text, name,
                         rn_size_format(info->resident_bytes).text));
    for (size_t d = 0; d < rn_device_count(); d++)
        RN_TRY(rn_sink_print(sink, ", %s %s", rn_device_name((rn_device_id)d),
                             rn_size_format(rn_ledger_total((rn_device_id)d).now_bytes).text));
    return rn_sink_print(sink, ", free %s", rn_size_format(rn_process_free_bytes(info)).text);
}

static rn_status write_json(rn_sink sink, const char *name, const rn_process_info *info) {
    char time_text[40];
    rn_json json;
    rn_clock_text(time_text, true);
    rn_json_begin(&json, sink, false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "time", time_text);
    rn_json_string(&json, "stage", name);
    rn_json_u64(&json, "resident_bytes", info->resident_bytes);
    rn_json_u64(&json, "resident_peak_bytes", info->resident_peak_bytes);
    rn_json_u64(&json, "free_bytes", rn_process_free_bytes(info));
    rn_json_object(&json, "ledger");
    for (size_t d = 0; d < rn_device_count(); d++) {
        rn_json_object(&json, rn_device_name((rn_device_id)d));
        rn_json_u64(&json, "total", rn_ledger_total((rn_device_id)d).now_bytes);
        for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
            uint64_t bytes = rn_ledger_read((rn_device_id)d, (rn_purpose)p).now_bytes;
            if (bytes) rn_json_u64(&json, rn_purpose_name((rn_purpose)p), bytes);
        }
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    return json.status;
}

// A stage that cannot be logged is not worth failing for.
void rn_stage(const char *name) {
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_STAGE, .name = name});
    if (!rn_log_wants(RN_LOG_INFO)) return;
    rn_story story = *rn_last_story();
    rn_process_info info;
    rn_buffer line;
    rn_buffer_init(&line, &rn_system_allocator, MAX_LINE_BYTES);
    rn_status s = rn_process_read(&info);
    if (s == RN_OK)
        s = rn_log_form_get() == RN_LOG_JSON ? write_json(rn_buffer_sink(&line), name, &info)
                                             : write_text(rn_buffer_sink(&line), name, &info);
    if (s == RN_OK) rn_log_line(RN_LOG_INFO, (rn_str){line.data, line.bytes});
    rn_buffer_free(&line);
    rn_story_restore(&story);
}
