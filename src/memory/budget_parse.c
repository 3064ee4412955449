// budget_parse.c — "host=8GiB,cuda:0=4GiB" and its shorter forms.
#include <ration/memory.h>

#include "base/str.h"

#include <stdio.h>

static uint64_t whole_bytes(void) {
    rn_process_info info;
    return rn_process_read(&info) == RN_OK ? rn_process_whole_bytes(&info) : 0;
}

static rn_status parse_entry(rn_str text, rn_budget_spec *spec) {
    if (spec->count == RN_BUDGET_ENTRIES)
        return rn_fail(RN_INVALID, "a budget names at most %d devices", RN_BUDGET_ENTRIES);
    size_t last = spec->count;
    if (text.bytes == 0) return rn_size_parse(text, 0, &spec->entries[last].bytes); // says "empty"
    const char *equals = memchr(text.data, '=', text.bytes);
    rn_str device = equals ? (rn_str){text.data, (size_t)(equals - text.data)} : RN_STR("host");
    rn_str size = equals ? (rn_str){equals + 1, text.bytes - device.bytes - 1} : text;
    if (device.bytes == 0 || device.bytes >= sizeof spec->entries[0].device)
        return rn_fail(RN_INVALID, "'%.*s' names no device", RN_STR_ARG(text));
    for (size_t i = 0; i < spec->count; i++)
        if (rn_str_equal(device, rn_str_from(spec->entries[i].device)))
            return rn_fail(RN_INVALID, "the budget names %s twice", spec->entries[i].device);
    if (size.bytes && size.data[0] == '+') {
        spec->entries[last].planned_only = true;
        size = (rn_str){size.data + 1, size.bytes - 1};
    }
    bool of_whole = size.bytes && size.data[size.bytes - 1] == '%';
    if (of_whole && !rn_str_equal(device, RN_STR("host")))
        return rn_fail(RN_INVALID, "'%.*s': a percentage is for the host only", RN_STR_ARG(text));
    RN_TRY(rn_size_parse(size, of_whole ? whole_bytes() : 0, &spec->entries[last].bytes));
    if (spec->entries[last].bytes == 0)
        return rn_hint(rn_fail(RN_INVALID, "a budget of nothing holds nothing"),
                       "for example 2GiB");
    memcpy(spec->entries[last].device, device.data, device.bytes);
    spec->count++;
    return RN_OK;
}

rn_status rn_budget_parse(rn_str text, rn_budget_spec *out) {
    *out = (rn_budget_spec){.count = 0};
    while (true) {
        const char *comma = text.bytes ? memchr(text.data, ',', text.bytes) : NULL;
        rn_str entry = comma ? (rn_str){text.data, (size_t)(comma - text.data)} : text;
        RN_TRY(parse_entry(entry, out));
        if (!comma) return RN_OK;
        text = (rn_str){comma + 1, text.bytes - entry.bytes - 1};
    }
}
