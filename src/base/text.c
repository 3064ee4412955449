// text.c — sinks, and sizes as people read and write them.
#include "base/checked.h"
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

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

// Three digits, more where the number is a thousand and above.
static int decimals_of(double value) {
    return value < 10 ? 2 : value < 100 ? 1 : 0;
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
        snprintf(out.text, sizeof out.text, "%.*f %s", decimals_of(value), value, units[unit]);
    return out;
}

rn_time_text rn_time_format(double seconds) {
    static const struct {
        const char *name;
        double seconds, most; // used for spans below `most`
    } units[] = {
        {"us", 1e-6, 1e-3}, {"ms", 1e-3, 1}, {"s", 1, 120}, {"min", 60, 7200}, {"h", 3600, 0}};
    rn_time_text out;
    size_t unit = 0;
    while (unit < 4 && !(seconds < units[unit].most))
        unit++;
    double value = seconds / units[unit].seconds;
    snprintf(out.text, sizeof out.text, "%.*f %s", decimals_of(value), value, units[unit].name);
    return out;
}

rn_count_text rn_count_format(uint64_t count) {
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    rn_count_text out;
    size_t unit = 0;
    double value = (double)count;
    for (; unit < 4 && value >= (unit ? 999.5 : 1000); unit++)
        value /= 1000;
    snprintf(out.text, sizeof out.text, "%.*f%s", unit ? decimals_of(value) : 0, value,
             units[unit]);
    return out;
}

// The factor of a unit, or 0 where it is not one.
static uint64_t unit_factor(rn_str unit) {
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"b", 1},
        {"k", (uint64_t)1 << 10},
        {"kib", (uint64_t)1 << 10},
        {"m", (uint64_t)1 << 20},
        {"mib", (uint64_t)1 << 20},
        {"g", (uint64_t)1 << 30},
        {"gib", (uint64_t)1 << 30},
        {"t", (uint64_t)1 << 40},
        {"tib", (uint64_t)1 << 40},
        {"kb", 1000},
        {"mb", 1000000},
        {"gb", 1000000000},
        {"tb", 1000000000000},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (rn_str_equal_ignoring_case(unit, rn_str_from(units[i].name))) return units[i].factor;
    return 0;
}

static rn_status bad_size(rn_str text, const char *why) {
    rn_status s = rn_fail(RN_INVALID, "'%.*s' is not a size: %s", RN_STR_ARG(text), why);
    return rn_hint(s, "write sizes like 2GiB, 1.5G, 800MB, 4096 or 75%%");
}

// whole + parts / PARTS. Integers, because 1.001 * 1e6 is less than 1001000 in floating point and
// because strtod's decimal point depends on the locale.
typedef struct decimal {
    uint64_t whole; // UINT64_MAX where it is that or more
    uint64_t parts; // digits beyond the fifteenth are dropped
} decimal;
#define PARTS ((uint64_t)1000000000000000)

// Digits with at most one point; returns the end of the number, or NULL.
static const char *scan_number(const char *at, const char *end, decimal *out) {
    bool any = false, after_point = false;
    uint64_t place = PARTS;
    *out = (decimal){0, 0};
    for (; at < end; at++) {
        if (*at == '.' && !after_point) {
            after_point = true;
            continue;
        }
        if (*at < '0' || *at > '9') break;
        uint64_t digit = (uint64_t)(*at - '0');
        any = true;
        if (after_point)
            out->parts += digit * (place /= 10);
        else if (!rn_mul_u64(out->whole, 10, &out->whole) ||
                 !rn_add_u64(out->whole, digit, &out->whole))
            out->whole = UINT64_MAX;
    }
    return any && !(at < end && *at == '.') ? at : NULL;
}

rn_status rn_size_parse(rn_str text, uint64_t whole_bytes, uint64_t *out_bytes) {
    decimal number;
    *out_bytes = 0;
    if (text.bytes == 0) return bad_size(text, "it is empty");
    const char *end = text.data + text.bytes;
    const char *at = scan_number(text.data, end, &number);
    if (!at) return bad_size(text, "it does not start with a positive number");
    while (at < end && *at == ' ')
        at++;
    rn_str unit = {at, (size_t)(end - at)};
    bool percent = rn_str_equal(unit, RN_STR("%"));
    uint64_t factor = percent ? whole_bytes : unit_factor(unit);
    if (percent && whole_bytes == 0)
        return bad_size(text, "there is no whole to take a part of here");
    if (factor == 0) return bad_size(text, "the unit is unknown");
    if (percent && (number.whole > 100 || (number.whole == 100 && number.parts)))
        return bad_size(text, "it is more than the whole");
    if (!percent && number.whole > INT64_MAX / factor) return bad_size(text, "it is too large");
    // At most 2^64 * 101 * PARTS, which is less than 2^121.
    unsigned __int128 product = ((unsigned __int128)number.whole * PARTS + number.parts) * factor;
    product /= percent ? 100 * PARTS : PARTS;
    if (product > INT64_MAX) return bad_size(text, "it is too large");
    *out_bytes = (uint64_t)product;
    return RN_OK;
}
