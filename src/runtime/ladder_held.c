// ladder_held.c — the ledger before an attempt and after it: what stayed, and where.
#include "runtime/ladder.h"

// What is measured and what the recorder needs for itself is no attempt's doing; a driver's context
// stays until the process ends.
static bool is_looked_at(const rn_held *held, size_t device, int purpose) {
    if (purpose == RN_PURPOSE_UNACCOUNTED) return false;
    return device != RN_DEVICE_HOST ||
           (purpose != RN_PURPOSE_PROFILER && !(held->others & RN_PURPOSE_BIT(purpose)));
}

static uint64_t read_line(size_t device, int purpose) {
    return rn_ledger_read((rn_device_id)device, (rn_purpose)purpose).now_bytes;
}

void rn_held_read(uint32_t others, rn_held *out) {
    *out = (rn_held){.others = others};
    for (size_t d = 0; d < rn_device_count(); d++)
        for (int p = 0; p < RN_PURPOSE_COUNT; p++)
            out->bytes[d][p] = read_line(d, p);
}

rn_held_more rn_held_compare(const rn_held *before) {
    rn_held_more more = {0};
    for (size_t d = 0; d < rn_device_count(); d++)
        for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
            uint64_t now = read_line(d, p), then = before->bytes[d][p];
            if (!is_looked_at(before, d, p) || now <= then) continue;
            more.bytes += now - then;
            if (now - then <= more.line_bytes) continue;
            more.line_bytes = now - then;
            more.device = (rn_device_id)d;
            more.purpose = (rn_purpose)p;
        }
    return more;
}
