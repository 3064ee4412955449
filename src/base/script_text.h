// script_text.h — JSON inside a page's <script> element.
//
// A browser ends such an element at "</", whatever is around it, so the JSON is written without any
// '<': inside a JSON text, \u003c is the same letter, and outside of texts JSON has none.
#ifndef RN_BASE_SCRIPT_TEXT_H
#define RN_BASE_SCRIPT_TEXT_H

#include <ration/text.h>

// A sink for JSON that writes to *to, which must outlive it.
rn_sink rn_script_text(rn_sink *to);

#endif
