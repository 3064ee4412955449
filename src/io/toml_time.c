// toml_time.c — dates and times, as RFC 3339 writes them.
//
//     1979-05-27T07:32:00.999999-07:00     a space may stand for the T
//     |--date--| |-----time----||-offset|
#include "io/toml_parser.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool rn_toml_at_time(const rn_toml_parser *p) {
    const char *c = p->text + p->at;
    if (!is_digit(c[0]) || !is_digit(c[1])) return false;
    return c[2] == ':' || (is_digit(c[2]) && is_digit(c[3]) && c[4] == '-');
}

// Exactly `digits` digits with a value in [least, most]; passes them.
static rn_status read_field(rn_toml_parser *p, const char *name, int digits, int least, int most,
                            int *out) {
    size_t begin = p->at;
    *out = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        if (!is_digit(p->text[p->at]))
            return rn_toml_fail_at(p, p->at, "expected %d digits for the %s", digits, name);
        *out = *out * 10 + (p->text[p->at] - '0');
    }
    if (*out >= least && *out <= most) return RN_OK;
    return rn_toml_fail_at(p, begin, "the %s is %d, outside %d to %d", name, *out, least, most);
}

static rn_status pass(rn_toml_parser *p, char mark, const char *where) {
    if (p->text[p->at] != mark)
        return rn_toml_fail_at(p, p->at, "expected '%c' in this %s", mark, where);
    p->at++;
    return RN_OK;
}

static int days_in_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static rn_status read_date(rn_toml_parser *p, rn_toml_time *time) {
    RN_TRY(read_field(p, "year", 4, 0, 9999, &time->year));
    RN_TRY(pass(p, '-', "date"));
    RN_TRY(read_field(p, "month", 2, 1, 12, &time->month));
    RN_TRY(pass(p, '-', "date"));
    int most = days_in_month(time->year, time->month);
    return read_field(p, "day of this month", 2, 1, most, &time->day);
}

static rn_status read_fraction(rn_toml_parser *p, rn_toml_time *time) {
    if (p->text[p->at] != '.') return RN_OK;
    p->at++;
    if (!is_digit(p->text[p->at]))
        return rn_toml_fail_at(p, p->at, "expected digits for the fraction of a second");
    for (int unit = 100000000; is_digit(p->text[p->at]); unit /= 10, p->at++)
        time->nanosecond += (p->text[p->at] - '0') * unit;
    return RN_OK;
}

static rn_status read_clock(rn_toml_parser *p, rn_toml_time *time) {
    RN_TRY(read_field(p, "hour", 2, 0, 23, &time->hour));
    RN_TRY(pass(p, ':', "time"));
    RN_TRY(read_field(p, "minute", 2, 0, 59, &time->minute));
    if (p->text[p->at] != ':') {
        rn_status s = rn_toml_fail_at(p, p->at, "expected ':' and the seconds of this time");
        return rn_hint(s, "TOML times have seconds: 07:32:00");
    }
    p->at++;
    RN_TRY(read_field(p, "second", 2, 0, 60, &time->second)); // 60: a leap second
    return read_fraction(p, time);
}

static rn_status read_offset(rn_toml_parser *p, rn_toml_time *time) {
    char mark = p->text[p->at++];
    int hours, minutes;
    if (mark == 'Z' || mark == 'z') return RN_OK;
    RN_TRY(read_field(p, "offset's hour", 2, 0, 23, &hours));
    RN_TRY(pass(p, ':', "offset"));
    RN_TRY(read_field(p, "offset's minute", 2, 0, 59, &minutes));
    time->offset_minutes = (hours * 60 + minutes) * (mark == '-' ? -1 : 1);
    return RN_OK;
}

static bool at_offset(const rn_toml_parser *p) {
    char c = p->text[p->at];
    return c == 'Z' || c == 'z' || c == '+' || c == '-';
}

rn_status rn_toml_parse_time(rn_toml_parser *p, rn_toml_value *value) {
    rn_toml_time *time = &value->time;
    if (p->text[p->at + 2] == ':') {
        value->type = RN_TOML_LOCAL_TIME;
        return read_clock(p, time);
    }
    value->type = RN_TOML_LOCAL_DATE;
    RN_TRY(read_date(p, time));
    const char *c = p->text + p->at;
    if (*c != 'T' && *c != 't' && !(*c == ' ' && is_digit(c[1]))) return RN_OK;
    p->at++;
    value->type = RN_TOML_LOCAL_DATETIME;
    RN_TRY(read_clock(p, time));
    if (!at_offset(p)) return RN_OK;
    value->type = RN_TOML_OFFSET_DATETIME;
    return read_offset(p, time);
}
