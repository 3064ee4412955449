// settings.h — checking a value without setting it.
#ifndef RATION_SUPPORT_SETTINGS_H
#define RATION_SUPPORT_SETTINGS_H

#include "support/options.h"

// RN_INVALID with what is wrong; the message does not say where it came from.
RN_MUST_USE rn_status rn_option_check(const rn_option *option, rn_str value);

// true, yes, on, 1 and their opposites.
bool rn_option_parse_bool(rn_str text, bool *out);

#endif
