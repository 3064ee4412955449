// template_case.h — upper and lower case, as Python's str has them.
#ifndef RN_TEXT_TEMPLATE_CASE_H
#define RN_TEXT_TEMPLATE_CASE_H

#include "text/template/template_run.h"

// RN_UNSUPPORTED for letters whose other case is several letters, or depends on their place.
RN_MUST_USE rn_status rn_jinja_upper(rn_jinja_run *run, rn_str text, rn_str *out);
RN_MUST_USE rn_status rn_jinja_lower(rn_jinja_run *run, rn_str text, rn_str *out);
// The first letter of the text, or of each word, is upper case, the others are lower case. A word
// begins behind one of `breaks`, or where that is NULL, behind anything but a letter. ASCII only.
RN_MUST_USE rn_status rn_jinja_capitalize(rn_jinja_run *run, rn_str text, rn_str *out);
RN_MUST_USE rn_status rn_jinja_title(rn_jinja_run *run, rn_str text, const char *breaks,
                                     rn_str *out);

#endif
