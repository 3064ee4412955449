// template_case.c — one code point to one code point by utf8proc, which agrees with Python on all
// of them; Python's exceptions (ß is SS, Σ at a word's end is ς) are refused.
#include "text/template/template_case.h"

#include "text/template/template_text.h"

#include <utf8proc.h>

static bool is_between(uint32_t c, uint32_t first, uint32_t last) {
    return c >= first && c <= last;
}

// A superset of the letters whose upper case is several: all of the ligatures, and the Greek
// letters with several marks.
static bool has_long_upper(uint32_t c) {
    return c == 0xdf || c == 0x149 || c == 0x1f0 || c == 0x390 || c == 0x3b0 || c == 0x587 ||
           is_between(c, 0x1e96, 0x1e9a) || is_between(c, 0x1f50, 0x1f56) ||
           is_between(c, 0x1f80, 0x1fff) || is_between(c, 0xfb00, 0xfb17);
}

static bool has_odd_lower(uint32_t c) {
    return c == 0x130 || c == 0x3a3;
}

static rn_status map(rn_jinja_run *run, rn_str text, bool upper, rn_str *out) {
    rn_jinja_made mapped;
    RN_TRY(rn_jinja_work(run, text.bytes));
    RN_TRY(rn_jinja_make_text(run, 2 * text.bytes, &mapped)); // two bytes may become three
    rn_taint taint = rn_jinja_taint_of(run, text);
    *out = (rn_str){mapped.text, 0};
    for (size_t at = 0, bytes; at < text.bytes; at += bytes) {
        uint32_t c = rn_jinja_decode(text, at, &bytes);
        if (upper ? has_long_upper(c) : has_odd_lower(c))
            return rn_jinja_fail(run, RN_UNSUPPORTED, "the %s case of U+%04X is not supported",
                                 upper ? "upper" : "lower", (unsigned)c);
        utf8proc_int32_t to =
            upper ? utf8proc_toupper((utf8proc_int32_t)c) : utf8proc_tolower((utf8proc_int32_t)c);
        size_t end = out->bytes + rn_utf8_encode((uint32_t)to, mapped.text + out->bytes);
        for (; out->bytes < end; out->bytes++)
            rn_jinja_made_of(&mapped, out->bytes, rn_taint_from(taint, at), 1);
    }
    return RN_OK;
}

rn_status rn_jinja_upper(rn_jinja_run *run, rn_str text, rn_str *out) {
    return map(run, text, true, out);
}

rn_status rn_jinja_lower(rn_jinja_run *run, rn_str text, rn_str *out) {
    return map(run, text, false, out);
}

static bool is_letter(char c) {
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

static rn_status copy_ascii(rn_jinja_run *run, rn_str text, char **out) {
    if (!rn_jinja_text_is_ascii(text))
        return rn_jinja_fail(run, RN_UNSUPPORTED,
                             "title case of other than ASCII letters is not supported");
    rn_jinja_made made;
    RN_TRY(rn_jinja_make_text(run, text.bytes, &made));
    rn_jinja_made_of(&made, 0, rn_jinja_taint_of(run, text), text.bytes);
    *out = made.text;
    for (size_t i = 0; i < text.bytes; i++)
        (*out)[i] = (char)(is_letter(text.data[i]) ? text.data[i] | 32 : text.data[i]);
    return RN_OK;
}

rn_status rn_jinja_capitalize(rn_jinja_run *run, rn_str text, rn_str *out) {
    char *copy = NULL;
    RN_TRY(copy_ascii(run, text, &copy));
    if (text.bytes > 0 && is_letter(copy[0])) copy[0] = (char)(copy[0] & ~32);
    *out = (rn_str){copy, text.bytes};
    return RN_OK;
}

rn_status rn_jinja_title(rn_jinja_run *run, rn_str text, const char *breaks, rn_str *out) {
    char *copy = NULL;
    bool begins = true;
    RN_TRY(copy_ascii(run, text, &copy));
    for (size_t i = 0; i < text.bytes; i++) {
        if (begins && is_letter(copy[i])) copy[i] = (char)(copy[i] & ~32);
        begins = breaks ? copy[i] != '\0' && strchr(breaks, copy[i]) != NULL : !is_letter(copy[i]);
    }
    *out = (rn_str){copy, text.bytes};
    return RN_OK;
}
