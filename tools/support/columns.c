// columns.c — see columns.h.
#include "support/columns.h"

#include <utf8proc.h>

unsigned rn_letter_columns(uint32_t letter) {
    int columns = utf8proc_charwidth((utf8proc_int32_t)letter);
    return columns > 0 ? (unsigned)columns : 0;
}
