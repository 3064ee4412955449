// format.c — file contents made printable.
#include "command.h"

#include <stdio.h>
#include <string.h>

// Length of the UTF-8 sequence at text[0], or 0 where it is none or stands for a control character.
// Those above U+007F (C2 80 to C2 9F) drive some terminals, too.
static size_t printable_sequence(const unsigned char *text, size_t bytes) {
    unsigned char c = text[0];
    size_t length = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (length == 0 || length > bytes || c < 0x20 || c == 0x7F) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    unsigned char second = length > 1 ? text[1] : 0xA0;
    bool bad = (c == 0xC2 && second < 0xA0) || (c == 0xE0 && second < 0xA0) ||
               (c == 0xED && second > 0x9F) || (c == 0xF0 && second < 0x90) ||
               (c == 0xF4 && second > 0x8F);
    return bad ? 0 : length;
}

safe_text make_safe(rn_str text) {
    safe_text out;
    size_t room = sizeof out.text - 4, at = 0, written = 0;
    while (at < text.bytes) {
        const unsigned char *from = (const unsigned char *)text.data + at;
        size_t length = printable_sequence(from, text.bytes - at), step = length ? length : 1;
        if (written + step > room) break;
        memcpy(out.text + written, length ? (const char *)from : "?", step);
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
