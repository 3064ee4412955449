// format.c — file contents made printable.
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Length of the sequence at text[0], or 0 where it is none or stands for a control character. Those
// above U+007F (C2 80 to C2 9F) drive some terminals, too.
static size_t printable_sequence(const char *text, size_t bytes) {
    unsigned char first = (unsigned char)text[0];
    size_t length = rn_utf8_sequence(text, bytes);
    bool control = first < 0x20 || first == 0x7F ||
                   (length == 2 && first == 0xC2 && (unsigned char)text[1] < 0xA0);
    return control ? 0 : length;
}

safe_text make_safe(rn_str text) {
    safe_text out;
    size_t room = sizeof out.text - 4, at = 0, written = 0;
    while (at < text.bytes) {
        const char *from = text.data + at;
        size_t length = printable_sequence(from, text.bytes - at), step = length ? length : 1;
        if (written + step > room) break;
        memcpy(out.text + written, length ? from : "?", step);
        written += step;
        at += step;
    }
    snprintf(out.text + written, 4, "%s", at < text.bytes ? "..." : "");
    return out;
}

safe_text format_shape(const rn_tensor_info *tensor) {
    safe_text out;
    size_t at = (size_t)snprintf(out.text, sizeof out.text, "[");
    for (uint32_t i = 0; i < tensor->rank && at < sizeof out.text - 32; i++)
        at += (size_t)snprintf(out.text + at, sizeof out.text - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)tensor->dims[i]);
    snprintf(out.text + at, sizeof out.text - at, "]");
    return out;
}

void default_profile_name(const char *begin, const char *ending, char out[4096]) {
    char text[32];
    struct tm local;
    time_t now = time(NULL);
    localtime_r(&now, &local);
    strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local);
    snprintf(out, 4096, "%s_%s%s", begin, text, ending);
}

rn_status parse_time(const char *option, const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    double unit = strcmp(end, "ms") == 0                      ? 1e-3
                  : strcmp(end, "us") == 0                    ? 1e-6
                  : strcmp(end, "s") == 0 || (!*end && *text) ? 1
                  : strcmp(end, "min") == 0                   ? 60
                                                              : 0;
    if (end == text || unit == 0 || !(*out >= 0) || *out > 1e9)
        return rn_hint(rn_fail(RN_INVALID, "--%s '%s' is no time", option, text),
                       "seconds, or with a unit: 1.5, 1.5s, 200ms, 30us, 2min");
    *out *= unit;
    return RN_OK;
}
