// template_strftime.c — the calendar is the system's (gmtime_r), the words are our own.
#include "text/template/template_strftime.h"

#include <stdio.h>
#include <time.h>

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

// `value` with at least `width` digits, or with none in front where the directive has a '-'.
static rn_status write_number(rn_jinja_run *run, int value, int width, bool bare) {
    char text[16];
    int bytes = snprintf(text, sizeof text, "%0*d", bare ? 1 : width, value);
    return rn_jinja_write(run, (rn_str){text, (size_t)bytes});
}

static rn_status write_word(rn_jinja_run *run, const char *word, bool brief) {
    return rn_jinja_write(run, (rn_str){word, brief ? 3 : strlen(word)});
}

static rn_status write_directive(rn_jinja_run *run, char directive, bool bare,
                                 const struct tm *time) {
    int hour12 = time->tm_hour % 12 == 0 ? 12 : time->tm_hour % 12;
    switch (directive) {
    case 'Y':
        return write_number(run, time->tm_year + 1900, 1, bare);
    case 'y':
        return write_number(run, (time->tm_year + 1900) % 100, 2, bare);
    case 'm':
        return write_number(run, time->tm_mon + 1, 2, bare);
    case 'd':
        return write_number(run, time->tm_mday, 2, bare);
    case 'j':
        return write_number(run, time->tm_yday + 1, 3, bare);
    case 'H':
        return write_number(run, time->tm_hour, 2, bare);
    case 'I':
        return write_number(run, hour12, 2, bare);
    case 'M':
        return write_number(run, time->tm_min, 2, bare);
    case 'S':
        return write_number(run, time->tm_sec, 2, bare);
    case 'B':
    case 'b':
        return write_word(run, months[time->tm_mon], directive == 'b');
    case 'A':
    case 'a':
        return write_word(run, days[time->tm_wday], directive == 'a');
    case 'p':
        return rn_jinja_write(run, time->tm_hour < 12 ? RN_STR("AM") : RN_STR("PM"));
    case '%':
        return rn_jinja_write(run, RN_STR("%"));
    default:
        return rn_jinja_fail(run, RN_UNSUPPORTED, "strftime_now's '%%%c' is not supported",
                             directive);
    }
}

rn_status rn_jinja_strftime(rn_jinja_run *run, rn_str format, rn_str *out) {
    size_t mark = run->out.bytes;
    time_t now = (time_t)run->now;
    struct tm time;
    if (!gmtime_r(&now, &time) || time.tm_year < 1000 - 1900 || time.tm_year > 9999 - 1900)
        return rn_jinja_fail(run, RN_INVALID, "'now' is not within the years 1000 to 9999");
    for (size_t at = 0; at < format.bytes; at++) {
        if (format.data[at] != '%') {
            RN_TRY(rn_jinja_write(run, (rn_str){format.data + at, 1}));
            continue;
        }
        bool bare = at + 1 < format.bytes && format.data[at + 1] == '-';
        at += 1 + bare;
        RN_TRY(
            write_directive(run, (char)(at < format.bytes ? format.data[at] : ' '), bare, &time));
    }
    return rn_jinja_take(run, mark, out);
}
