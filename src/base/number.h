// number.h — decimal numbers, whatever locale the program around us has set: strtod takes its
// point.
#ifndef RN_BASE_NUMBER_H
#define RN_BASE_NUMBER_H

#include <ration/status.h>

#include "base/str.h"

enum { RN_NUMBER_BYTES = 128 }; // a longer text is refused

// All of `text`, as strtod reads it in the C locale. RN_INVALID: it is something else, or too long.
// RN_NO_MEMORY.
RN_MUST_USE rn_status rn_number_read(rn_str text, double *out);

#endif
