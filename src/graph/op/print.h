// print.h — attributes as text, piece by piece.
#ifndef RN_GRAPH_OP_PRINT_H
#define RN_GRAPH_OP_PRINT_H

#include <ration/api.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Appends to the terminated text in out (bytes); cuts what has no room.
static inline void RN_PRINTF(3, 4) rn_print_more(char *out, size_t bytes, const char *format, ...) {
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, bytes - used, format, args);
    va_end(args);
}

#endif
