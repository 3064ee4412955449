// ledger_print.c — the ledger as a table and as JSON.
#include "memory/ledger.h"

#include "base/json.h"

static rn_status print_line(rn_sink sink, const char *device, const char *purpose,
                            rn_ledger_line line) {
    return rn_sink_print(sink, "%-10s %-12s %12s %12s %8llu\n", device, purpose,
                         rn_size_format(line.now_bytes).text, rn_size_format(line.peak_bytes).text,
                         (unsigned long long)line.count);
}

typedef struct holder_printer {
    rn_sink sink;
    rn_status status;
    bool any;
} holder_printer;

static bool print_holder(void *self, const char *name, rn_account account, uint64_t bytes) {
    holder_printer *printer = self;
    if (!name) return true;
    if (!printer->any)
        printer->status =
            rn_sink_print(printer->sink, "%-10s %-12s %12s  %s\n", "", "holder", "now", "name");
    printer->any = true;
    if (printer->status == RN_OK)
        printer->status = rn_sink_print(
            printer->sink, "%-10s %-12s %12s  %s\n", rn_device_name(account.device),
            rn_purpose_name((rn_purpose)account.purpose), rn_size_format(bytes).text, name);
    return printer->status == RN_OK;
}

static rn_status print_device(rn_sink sink, rn_device_id device) {
    const char *name = rn_device_name(device);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        rn_ledger_line line = rn_ledger_read(device, (rn_purpose)p);
        if (line.peak_bytes) RN_TRY(print_line(sink, name, rn_purpose_name((rn_purpose)p), line));
    }
    return print_line(sink, name, "total", rn_ledger_total(device));
}

rn_status rn_ledger_print(rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "%-10s %-12s %12s %12s %8s\n", "device", "purpose", "now", "peak",
                         "blocks"));
    for (size_t d = 0; d < rn_device_count(); d++)
        RN_TRY(print_device(sink, (rn_device_id)d));
    holder_printer printer = {.sink = sink};
    for (size_t d = 0; d < rn_device_count() && printer.status == RN_OK; d++)
        rn_ledger_visit_holders((rn_device_id)d, print_holder, &printer);
    return printer.status;
}

static void write_line(rn_json *json, const char *key, rn_ledger_line line) {
    rn_json_object(json, key);
    rn_json_u64(json, "now_bytes", line.now_bytes);
    rn_json_u64(json, "peak_bytes", line.peak_bytes);
    rn_json_u64(json, "count", line.count);
    rn_json_end(json);
}

static bool write_holder(void *self, const char *name, rn_account account, uint64_t bytes) {
    rn_json *json = self;
    if (!name) return true;
    rn_json_object(json, NULL);
    rn_json_string(json, "name", name);
    rn_json_string(json, "purpose", rn_purpose_name((rn_purpose)account.purpose));
    rn_json_u64(json, "bytes", bytes);
    rn_json_end(json);
    return true;
}

rn_status rn_ledger_json(rn_sink sink) {
    rn_json whole, *json = &whole;
    rn_json_begin(json, sink, true);
    rn_json_object(json, NULL);
    for (size_t d = 0; d < rn_device_count(); d++) {
        rn_json_object(json, rn_device_name((rn_device_id)d));
        write_line(json, "total", rn_ledger_total((rn_device_id)d));
        for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
            rn_ledger_line line = rn_ledger_read((rn_device_id)d, (rn_purpose)p);
            if (line.peak_bytes) write_line(json, rn_purpose_name((rn_purpose)p), line);
        }
        rn_json_array(json, "holders");
        rn_ledger_visit_holders((rn_device_id)d, write_holder, json);
        rn_json_end(json);
        rn_json_end(json);
    }
    rn_json_end(json);
    return rn_json_finish(json);
}
