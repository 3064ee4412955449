// http_frame.c — where one request ends and the next begins must be the same to us and to a proxy
// in front of us; else one client's body becomes another's request. libmicrohttpd is lenient about
// it (it takes the first of two lengths), so what is ambiguous is refused here.
//
// Before 1.0 it is lenient about lines, too: it ends them at a bare LF, glues a folded line to the
// header's name, and stops at a zero. It cuts lines where they stand, which shows what they were:
//
//     Content-Length: 12\r\n        key            value
//                                   |              |
//                                   Content-Length0 1200Next-Header...
//
#include "server/http_parts.h"

#include "base/checked.h"
#include "base/str.h"

typedef struct lines {
    const char *fault; // the first one found
    bool cut_in_place; // by a libmicrohttpd before 1.0
    const char *end;   // of the value before
    size_t bytes;
    int hosts, lengths, encodings;
    rn_str length, encoding;
    bool expects_continue;
} lines;

// RFC 9110, 5.6.2.
static bool is_token(rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == 0 || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return name.bytes > 0;
}

static bool has_controls(rn_str value) {
    for (size_t i = 0; i < value.bytes; i++)
        if (((unsigned char)value.data[i] < ' ' && value.data[i] != '\t') || value.data[i] == 127)
            return true;
    return false;
}

// A folded line's text was glued to the name, elsewhere in memory.
static bool is_one_line(rn_str key, rn_str value) {
    const char *at = key.data + key.bytes + 1;
    if (value.data < at || (size_t)(value.data - at) > RN_HTTP_POOL_BYTES) return false;
    while (at < value.data && (*at == ' ' || *at == '\t'))
        at++;
    return at == value.data;
}

static const char *find_cut_fault(const lines *all, rn_str key, rn_str value) {
    if (all->end && all->end[2] == 0) return "a header has control characters";
    if (!is_one_line(key, value)) return "a header goes on in the next line";
    if (value.data[value.bytes + 1] != 0) return "a header's line ends without CR";
    return NULL;
}

static const char *find_fault(const lines *all, rn_str key, rn_str value) {
    if (!value.data) return "a header has no value";
    if (!is_token(key)) return "a header's name has characters that names do not have";
    if (has_controls(value)) return "a header has control characters";
    return all->cut_in_place ? find_cut_fault(all, key, value) : NULL;
}

static enum MHD_Result look(void *self, enum MHD_ValueKind kind, const char *key, size_t key_bytes,
                            const char *data, size_t bytes) {
    lines *all = self;
    rn_str name = {key, key_bytes}, value = {data, bytes};
    (void)kind;
    all->bytes += key_bytes + bytes + 4;
    all->fault = find_fault(all, name, value);
    if (all->fault) return MHD_NO;
    all->end = value.data + value.bytes;
    if (rn_str_equal_ignoring_case(name, RN_STR("Host"))) all->hosts++;
    if (rn_str_equal_ignoring_case(name, RN_STR("Content-Length"))) {
        all->lengths++;
        all->length = value;
    }
    if (rn_str_equal_ignoring_case(name, RN_STR("Transfer-Encoding"))) {
        all->encodings++;
        all->encoding = value;
    }
    if (rn_str_equal_ignoring_case(name, RN_STR("Expect")))
        all->expects_continue |= rn_str_equal_ignoring_case(value, RN_STR("100-continue"));
    return MHD_YES;
}

// Numbers that are too large stay so.
static bool read_number(rn_str text, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        if (!rn_mul_u64(*out, 10, out) || !rn_add_u64(*out, (uint64_t)(text.data[i] - '0'), out))
            *out = UINT64_MAX / 10;
    }
    return text.bytes > 0;
}

static const char *find_ambiguity(const lines *all, bool is_http10) {
    if (all->fault) return all->fault;
    if (all->hosts > 1) return "there are two Host headers";
    if (all->lengths > 1) return "there are two Content-Length headers";
    if (all->encodings > 1) return "there are two Transfer-Encoding headers";
    if (all->lengths && all->encodings)
        return "there are both Content-Length and Transfer-Encoding";
    if (all->encodings && is_http10) return "HTTP/1.0 has no Transfer-Encoding";
    return NULL;
}

bool rn_framing_read(const rn_http *http, struct MHD_Connection *connection, const char *version,
                     rn_framing *out, rn_problem *out_problem) {
    lines all = {.cut_in_place = http->mhd->get_version()[0] == '0'};
    http->mhd->get_connection_values_n(connection, MHD_HEADER_KIND, look, &all);
    const char *fault = find_ambiguity(&all, strcmp(version, "HTTP/1.0") == 0);
    *out = (rn_framing){.has_length = all.lengths > 0,
                        .chunked = all.encodings > 0,
                        .expects_continue = all.expects_continue};
    if (!fault && out->has_length && !read_number(all.length, &out->length))
        fault = "Content-Length is no number of bytes";
    if (fault) return rn_problem_set(out_problem, 400, "bad_request", "", "%s", fault);
    if (all.bytes > RN_HTTP_HEAD_BYTES)
        return rn_problem_set(out_problem, 431, "headers_too_large", "",
                              "the headers have %zu bytes, more than %u", all.bytes,
                              RN_HTTP_HEAD_BYTES);
    if (out->chunked && !rn_str_equal_ignoring_case(all.encoding, RN_STR("chunked")))
        return rn_problem_set(out_problem, 501, "unknown_encoding", "",
                              "a body may be sent as it is or chunked, not otherwise encoded");
    return true;
}
