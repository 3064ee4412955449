// script_text.c — see the header.
#include "base/script_text.h"

#include <string.h>

static rn_status write_without_less(void *self, const char *text, size_t bytes) {
    rn_sink to = *(rn_sink *)self;
    const char *end = text + bytes;
    while (text < end) {
        const char *less = memchr(text, '<', (size_t)(end - text));
        const char *stop = less ? less : end;
        if (stop > text) RN_TRY(rn_sink_write(to, text, (size_t)(stop - text)));
        if (less) RN_TRY(rn_sink_write(to, "\\u003c", 6));
        text = less ? less + 1 : end;
    }
    return RN_OK;
}

rn_sink rn_script_text(rn_sink *to) {
    return (rn_sink){to, write_without_less};
}
