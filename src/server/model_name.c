// model_name.c — names that clients call a model by, beside the one that it is served with.
#include "base/str.h"
#include "server/request.h"

#include <string.h>

static rn_str before_letter(rn_str text, char letter) {
    const char *at = memchr(text.data, letter, text.bytes);
    return at ? (rn_str){text.data, (size_t)(at - text.data)} : text;
}

bool rn_model_name_answers(rn_str served, rn_str wanted) {
    static const char *const endings[] = {"", "-instruct", "-it", "-chat"};
    const char *slash = memrchr(wanted.data, '/', wanted.bytes);
    if (slash) wanted = (rn_str){slash + 1, wanted.bytes - (size_t)(slash + 1 - wanted.data)};
    rn_str name = before_letter(wanted, ':'), own = before_letter(served, ':');
    rn_str kind = {wanted.data + name.bytes, wanted.bytes - name.bytes};
    rn_str own_kind = {served.data + own.bytes, served.bytes - own.bytes};
    if (kind.bytes && !rn_str_equal_ignoring_case(kind, own_kind) &&
        !rn_str_equal(kind, RN_STR(":latest")))
        return false;
    if (!name.bytes || name.bytes > own.bytes ||
        !rn_str_equal_ignoring_case(name, (rn_str){own.data, name.bytes}))
        return false;
    rn_str rest = {own.data + name.bytes, own.bytes - name.bytes};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (rn_str_equal_ignoring_case(rest, rn_str_from(endings[i]))) return true;
    return false;
}
