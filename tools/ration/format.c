// format.c — file contents made printable.
#include "command.h"

#include <stdio.h>
#include <string.h>

safe_text make_safe(rn_str text) {
    safe_text out;
    size_t room = sizeof out.text - 4, bytes = text.bytes < room ? text.bytes : room;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];
        out.text[i] = c < 0x20 || c == 0x7F ? '?' : (char)c;
    }
    snprintf(out.text + bytes, 4, "%s", bytes < text.bytes ? "..." : "");
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
