// text.c — sinks, and sizes as people read and write them.
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static rn_status write_file(void *self, const char *text, size_t bytes) {
    if (fwrite(text, 1, bytes, self) == bytes) return RN_OK;
    return rn_fail(RN_IO, "cannot write output: %s", strerror(errno));
}

rn_sink rn_sink_file(void *stdio_file) {
    return (rn_sink){stdio_file, write_file};
}

rn_status rn_sink_write(rn_sink sink, const char *text, size_t bytes) {
    return bytes ? sink.write(sink.self, text, bytes) : RN_OK;
}

rn_status rn_sink_print(rn_sink sink, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (bytes < 0) return rn_fail(RN_INTERNAL, "bad format");
    if ((size_t)bytes >= sizeof text)
        bytes = sizeof text - 1; // one printed item is cut, never overrun
    return rn_sink_write(sink, text, (size_t)bytes);
}

rn_size_text rn_size_format(uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    rn_size_text out;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(out.text, sizeof out.text, "%llu B", (unsigned long long)bytes);
    else
        snprintf(out.text, sizeof out.text, "%.*f %s",
                 value < 10    ? 2
                 : value < 100 ? 1
                               : 0,
                 value, units[unit]);
    return out;
}

// The factor of a unit, or 0 where it is not one.
static double unit_factor(rn_str unit) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},         {"b", 1},      {"k", 0x1p10},   {"kib", 0x1p10}, {"m", 0x1p20},
        {"mib", 0x1p20}, {"g", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40},   {"tib", 0x1p40},
        {"kb", 1e3},     {"mb", 1e6},   {"gb", 1e9},     {"tb", 1e12},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (rn_str_equal_ignoring_case(unit, rn_str_from(units[i].name))) return units[i].factor;
    return 0;
}

static rn_status bad_size(rn_str text, const char *why) {
    rn_status s = rn_fail(RN_INVALID, "'%.*s' is not a size: %s", RN_STR_ARG(text), why);
    return rn_hint(s, "write sizes like 2GiB, 1.5G, 800MB, 4096 or 75%%");
}

// Digits with at most one point; returns the end of the number, or NULL.
static const char *scan_number(const char *at, const char *end, double *out) {
    char digits[32];
    size_t count = 0, points = 0;
    for (; at < end && count < sizeof digits - 1; at++) {
        if (*at == '.')
            points++;
        else if (*at < '0' || *at > '9')
            break;
        digits[count++] = *at;
    }
    digits[count] = '\0';
    if (count == points || points > 1) return NULL;
    *out = strtod(digits, NULL); // the program never sets a locale
    return at;
}

rn_status rn_size_parse(rn_str text, uint64_t whole_bytes, uint64_t *out_bytes) {
    const char *end = text.data + text.bytes;
    double number;
    *out_bytes = 0;
    if (text.bytes == 0) return bad_size(text, "it is empty");
    const char *at = scan_number(text.data, end, &number);
    if (!at) return bad_size(text, "it does not start with a positive number");
    while (at < end && *at == ' ')
        at++;
    rn_str unit = {at, (size_t)(end - at)};
    double factor = unit_factor(unit);
    if (rn_str_equal(unit, RN_STR("%"))) {
        if (whole_bytes == 0) return bad_size(text, "there is no whole to take a part of here");
        if (number > 100) return bad_size(text, "it is more than the whole");
        factor = (double)whole_bytes / 100;
    }
    if (factor == 0) return bad_size(text, "the unit is unknown");
    if (number * factor >= 0x1p63) return bad_size(text, "it is too large");
    // Plain byte counts stay exact above 2^53.
    if (factor == 1 && !memchr(text.data, '.', text.bytes)) {
        char digits[32];
        size_t count = (size_t)(at - text.data) < 31 ? (size_t)(at - text.data) : 31;
        memcpy(digits, text.data, count);
        digits[count] = '\0';
        *out_bytes = strtoull(digits, NULL, 10);
        return RN_OK;
    }
    *out_bytes = (uint64_t)floor(number * factor);
    return RN_OK;
}
