// template_strftime.h — dates in the words of the C locale, whatever the program's locale is.
#ifndef RN_TEXT_TEMPLATE_STRFTIME_H
#define RN_TEXT_TEMPLATE_STRFTIME_H

#include "text/template/template_run.h"

// run->now by Python's format; directives beyond the common ones are refused by name.
RN_MUST_USE rn_status rn_jinja_strftime(rn_jinja_run *run, rn_str format, rn_str *out);

#endif
