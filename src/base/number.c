// number.c — see number.h.
#include "base/number.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

rn_status rn_number_read(rn_str text, double *out) {
    char digits[RN_NUMBER_BYTES], *end = NULL;
    *out = 0;
    if (text.bytes == 0) return rn_fail(RN_INVALID, "there is no number");
    if (text.bytes >= sizeof digits)
        return rn_fail(RN_INVALID, "a number of %zu characters: at most %zu are read", text.bytes,
                       sizeof digits - 1);
    memcpy(digits, text.data, text.bytes);
    digits[text.bytes] = 0;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return rn_fail(RN_NO_MEMORY, "the system has no memory for the C locale");
    double value = strtod_l(digits, &end, plain);
    freelocale(plain);
    if (end != digits + text.bytes) return rn_fail(RN_INVALID, "'%s' is no number", digits);
    *out = value;
    return RN_OK;
}
