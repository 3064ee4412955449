// toml_quote.c — text as TOML writes it.
#include "io/toml_editor.h"

#include <stdio.h>

// The escape of a character that a string in double quotes cannot hold; NULL for the others.
static const char *escape(unsigned char c, char room[8]) {
    static const char raw[] = "\b\t\n\f\r\"\\", names[] = "btnfr\"\\";
    const char *found = c ? strchr(raw, c) : NULL;
    if (!found && c >= 0x20 && c != 0x7F) return NULL;
    if (found)
        snprintf(room, 8, "\\%c", names[found - raw]);
    else
        snprintf(room, 8, "\\u%04X", c);
    return room;
}

rn_status rn_toml_write_string(rn_buffer *out, rn_str raw) {
    char room[8];
    size_t copied = 0;
    if (!rn_utf8_valid(raw)) return rn_fail(RN_INVALID, "text for TOML is not UTF-8");
    RN_TRY(rn_buffer_append(out, "\"", 1));
    for (size_t i = 0; i < raw.bytes; i++) {
        const char *escaped = escape((unsigned char)raw.data[i], room);
        if (!escaped) continue;
        RN_TRY(rn_buffer_append(out, raw.data + copied, i - copied));
        RN_TRY(rn_buffer_append(out, escaped, strlen(escaped)));
        copied = i + 1;
    }
    if (copied < raw.bytes) RN_TRY(rn_buffer_append(out, raw.data + copied, raw.bytes - copied));
    return rn_buffer_append(out, "\"", 1);
}

static bool is_bare(rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-'))
            return false;
    }
    return name.bytes > 0;
}

rn_status rn_toml_write_name(rn_buffer *out, rn_str name) {
    return is_bare(name) ? rn_buffer_append(out, name.data, name.bytes)
                         : rn_toml_write_string(out, name);
}

rn_status rn_toml_quote(rn_str raw, const rn_allocator *from, char **out_text, size_t *out_bytes) {
    rn_buffer draft;
    void *block = NULL;
    *out_text = NULL;
    *out_bytes = 0;
    rn_buffer_init(&draft, from, RN_TOML_MAX_BYTES);
    rn_status s = rn_toml_write_string(&draft, raw);
    if (s == RN_OK) s = rn_alloc(from, draft.bytes, &block);
    if (s == RN_OK) {
        memcpy(block, draft.data, draft.bytes);
        *out_text = block;
        *out_bytes = draft.bytes;
    }
    rn_buffer_free(&draft);
    return s;
}
