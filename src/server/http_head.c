// http_head.c — lines are looked at byte by byte as they come; what they say is read when all of
// them are there.
//
//     GET /v1/models?a=b HTTP/1.1 CRLF      method SP target SP version
//     Host: localhost CRLF                  name ":" blanks value blanks
//     CRLF
#include "server/http_head.h"

#include "base/checked.h"
#include "base/str.h"

#include <string.h>

enum { CHUNK_LINE_BYTES = 256, TRAILER_BYTES = 4096, METHOD_BYTES = 32 };

static rn_head_news refuse(rn_problem *out, uint16_t status, const char *code, const char *why) {
    (void)rn_problem_set(out, status, code, "", "%s", why);
    return RN_HEAD_WRONG;
}

static rn_head_news refuse_bad(rn_problem *out, const char *why) {
    return refuse(out, 400, "bad_request", why);
}

// ---- bytes --------------------------------------------------------------------------------------

static bool is_control(char c) {
    return ((unsigned char)c < ' ' && c != '\t') || c == 127;
}

// RFC 9110, 5.6.2.
static bool is_token(rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == 0 || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return name.bytes > 0;
}

static rn_str trim(rn_str text) {
    while (text.bytes && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = (rn_str){text.data + 1, text.bytes - 1};
    while (text.bytes && strchr(" \t", text.data[text.bytes - 1]))
        text.bytes--;
    return text;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// What comes in while the head is not whole: a fault is told as soon as it is there.
static const char *find_fault(const char *data, size_t at, size_t bytes) {
    for (; at < bytes; at++) {
        if (data[at] == '\n' && (at == 0 || data[at - 1] != '\r')) return "a line ends without CR";
        if (at > 0 && data[at - 1] == '\r' && data[at] != '\n') return "a CR stands in a line";
        if (is_control(data[at]) && data[at] != '\r' && data[at] != '\n')
            return "the head has control characters";
    }
    return NULL;
}

// ---- the first line -----------------------------------------------------------------------------

// Where it stands; *bytes becomes shorter. A zero would end what it is part of. '+' is a blank in
// queries.
static bool decode(char *text, size_t *bytes, bool is_query) {
    size_t to = 0;
    for (size_t at = 0; at < *bytes; at++, to++) {
        text[to] = is_query && text[at] == '+' ? ' ' : text[at];
        if (text[at] != '%') continue;
        int high = at + 2 < *bytes ? hex_value(text[at + 1]) : -1;
        int low = high >= 0 ? hex_value(text[at + 2]) : -1;
        if (low < 0 || is_control((char)(high << 4 | low))) return false;
        text[to] = (char)(high << 4 | low);
        at += 2;
    }
    *bytes = to;
    return true;
}

// Each pair for itself: a '&' that was encoded divides nothing.
static bool decode_query(char *text, size_t *bytes) {
    size_t to = 0;
    for (size_t at = 0; at < *bytes;) {
        char *pair = text + at, *end = memchr(pair, '&', *bytes - at);
        size_t length = end ? (size_t)(end - pair) : *bytes - at, used = length;
        if (!decode(pair, &length, true)) return false;
        memmove(text + to, pair, length);
        to += length;
        text[to++] = 0; // where the '&' or the blank behind the target stood, or before it
        at += used + 1;
    }
    *bytes = to;
    return true;
}

// "http://host/path" is what proxies are asked; its host is the one that counts.
static const char *read_target(char *target, size_t bytes, rn_http_head *out) {
    static const rn_str schemes[] = {RN_STR("http://"), RN_STR("https://")};
    for (size_t i = 0; i < 2; i++) {
        if (bytes < schemes[i].bytes || memcmp(target, schemes[i].data, schemes[i].bytes) != 0)
            continue;
        char *host = target + schemes[i].bytes;
        bytes -= schemes[i].bytes;
        char *end = memchr(host, '/', bytes);
        if (!end || end == host) return "the target has no path";
        out->host = (rn_str){host, (size_t)(end - host)};
        bytes -= out->host.bytes;
        target = end;
        break;
    }
    char *mark = memchr(target, '?', bytes);
    size_t path = mark ? (size_t)(mark - target) : bytes;
    size_t query = mark ? bytes - path - 1 : 0;
    if (mark && !decode_query(mark + 1, &query)) return "the query is not well encoded";
    if (target[0] != '/' && !(path == 1 && target[0] == '*')) return "the target is no path";
    if (!decode(target, &path, false)) return "the path is not well encoded";
    target[path] = 0;
    out->path = target;
    if (mark) out->query = (rn_str){mark + 1, query};
    return NULL;
}

static rn_head_news read_first_line(char *line, size_t bytes, rn_http_head *out,
                                    rn_problem *out_problem) {
    if (bytes > RN_HTTP_TARGET_BYTES)
        return refuse(out_problem, 414, "target_too_long", "the target of the request is too long");
    char *first = memchr(line, ' ', bytes);
    size_t method = first ? (size_t)(first - line) : 0;
    char *target = first ? first + 1 : NULL;
    char *last = first ? memchr(target, ' ', bytes - method - 1) : NULL;
    if (!last || last == target || method > METHOD_BYTES || !is_token((rn_str){line, method}))
        return refuse_bad(out_problem, "the first line is no METHOD TARGET VERSION");
    rn_str version = {last + 1, (size_t)(line + bytes - last - 1)};
    if (version.bytes != 8 || memcmp(version.data, "HTTP/", 5) != 0 || version.data[6] != '.')
        return refuse_bad(out_problem, "the first line is no METHOD TARGET VERSION");
    if (version.data[5] != '1' || (version.data[7] != '0' && version.data[7] != '1'))
        return refuse(out_problem, 505, "version_not_supported", "this server speaks HTTP/1.1");
    out->is_http10 = version.data[7] == '0';
    for (const char *at = target; at < last; at++)
        if (*at <= ' ' || *at > '~') return refuse_bad(out_problem, "the target is not encoded");
    *first = *last = 0;
    out->method = line;
    const char *fault = read_target(target, (size_t)(last - target), out);
    return fault ? refuse_bad(out_problem, fault) : RN_HEAD_WHOLE;
}

// ---- headers ------------------------------------------------------------------------------------

static rn_head_news read_field(rn_str line, rn_http_head *out, rn_problem *out_problem) {
    const char *colon = memchr(line.data, ':', line.bytes);
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return refuse_bad(out_problem, "a header goes on in the next line");
    if (!colon) return refuse_bad(out_problem, "a header has no value");
    rn_str name = {line.data, (size_t)(colon - line.data)};
    if (!is_token(name))
        return refuse_bad(out_problem, "a header's name has characters that names do not have");
    if (out->field_count == RN_HTTP_FIELDS)
        return refuse(out_problem, 431, "headers_too_large", "there are too many headers");
    rn_str value = {colon + 1, line.bytes - name.bytes - 1};
    out->fields[out->field_count++] = (rn_http_field){name, trim(value)};
    return RN_HEAD_WHOLE;
}

static size_t count_fields(const rn_http_head *head, const char *name, rn_str *out_value) {
    size_t count = 0;
    *out_value = (rn_str){NULL, 0};
    for (uint32_t i = 0; i < head->field_count; i++) {
        if (!rn_str_equal_ignoring_case(head->fields[i].name, rn_str_from(name))) continue;
        if (count++ == 0) *out_value = head->fields[i].value;
    }
    return count;
}

rn_str rn_http_head_find(const rn_http_head *head, const char *name) {
    rn_str value;
    (void)count_fields(head, name, &value);
    return value;
}

// Whether a list ("keep-alive, close") has the word.
static bool has_word(rn_str list, rn_str word) {
    while (list.bytes) {
        const char *comma = memchr(list.data, ',', list.bytes);
        size_t bytes = comma ? (size_t)(comma - list.data) : list.bytes;
        if (rn_str_equal_ignoring_case(trim((rn_str){list.data, bytes}), word)) return true;
        size_t used = bytes + (comma != NULL);
        list = (rn_str){list.data + used, list.bytes - used};
    }
    return false;
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

// How long it is, and whose.
static rn_head_news read_framing(rn_http_head *out, rn_problem *out_problem) {
    rn_str host, length, encoding, ignored;
    size_t lengths = count_fields(out, "Content-Length", &length);
    size_t encodings = count_fields(out, "Transfer-Encoding", &encoding);
    if (count_fields(out, "Host", &host) > 1)
        return refuse_bad(out_problem, "there are two Host headers");
    if (lengths > 1) return refuse_bad(out_problem, "there are two Content-Length headers");
    if (encodings > 1) return refuse_bad(out_problem, "there are two Transfer-Encoding headers");
    if (lengths && encodings)
        return refuse_bad(out_problem, "there are both Content-Length and Transfer-Encoding");
    if (encodings && out->is_http10)
        return refuse_bad(out_problem, "HTTP/1.0 has no Transfer-Encoding");
    if (lengths && !read_number(length, &out->length))
        return refuse_bad(out_problem, "Content-Length is no number of bytes");
    if (encodings && !rn_str_equal_ignoring_case(encoding, RN_STR("chunked")))
        return refuse(out_problem, 501, "unknown_encoding",
                      "a body may be sent as it is or chunked, not otherwise encoded");
    if (!host.data && !out->is_http10) return refuse_bad(out_problem, "there is no Host header");
    if (!out->host.data) out->host = host;
    out->has_length = lengths > 0;
    out->chunked = encodings > 0;
    out->close = out->is_http10;
    if (count_fields(out, "Connection", &ignored))
        for (uint32_t i = 0; i < out->field_count; i++)
            if (rn_str_equal_ignoring_case(out->fields[i].name, RN_STR("Connection")))
                out->close |= has_word(out->fields[i].value, RN_STR("close"));
    out->expects_continue =
        rn_str_equal_ignoring_case(rn_http_head_find(out, "Expect"), RN_STR("100-continue")) &&
        !out->is_http10;
    return RN_HEAD_WHOLE;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_head_news read_lines(char *data, size_t bytes, rn_http_head *out,
                               rn_problem *out_problem) {
    *out = (rn_http_head){.field_count = 0};
    for (size_t at = 0; at + 2 < bytes;) { // the last two are the empty line's
        char *line = data + at;
        size_t length = (size_t)((char *)memchr(line, '\r', bytes - at) - line);
        rn_head_news news = at == 0 ? read_first_line(line, length, out, out_problem)
                                    : read_field((rn_str){line, length}, out, out_problem);
        if (news != RN_HEAD_WHOLE) return news;
        at += length + 2;
    }
    return read_framing(out, out_problem);
}

rn_head_news rn_http_head_read(char *data, size_t bytes, size_t *scanned, rn_http_head *out,
                               size_t *out_bytes, rn_problem *out_problem) {
    size_t from = *scanned > 3 ? *scanned - 3 : 0;
    const char *end = memmem(data + from, bytes - from, "\r\n\r\n", 4);
    size_t whole = end ? (size_t)(end - data) + 4 : bytes;
    size_t counted = whole < RN_HTTP_HEAD_BYTES ? whole : RN_HTTP_HEAD_BYTES;
    const char *fault = find_fault(data, *scanned, counted);
    *scanned = bytes;
    if (fault) return refuse_bad(out_problem, fault);
    if (whole > RN_HTTP_HEAD_BYTES || (!end && bytes == RN_HTTP_HEAD_BYTES)) {
        if (!memchr(data, '\n', RN_HTTP_TARGET_BYTES))
            return refuse(out_problem, 414, "target_too_long",
                          "the target of the request is too long");
        return refuse(out_problem, 431, "headers_too_large",
                      "the headers have more than 8192 bytes");
    }
    if (!end) return RN_HEAD_MORE;
    *out_bytes = whole;
    return read_lines(data, whole, out, out_problem);
}

// ---- chunks -------------------------------------------------------------------------------------

//     SIZE ─ digits ─┬─ ";" EXTENSION ─┬─ CR LF ─▶ data ─▶ CR LF ─▶ SIZE
//                    └─────────────────┘   └─ 0: LINE ─ text CR LF ─▶ LINE ... LINE ─ CR LF ─▶ end
enum {
    SIZE,
    DIGITS,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    LINE,
    TEXT,
    TEXT_LF,
    LAST_LF,
    END
};

static bool take_size_byte(rn_chunks *c, char byte) {
    int digit = hex_value(byte);
    if (++c->line_bytes > CHUNK_LINE_BYTES) return false;
    if (digit >= 0 && c->at <= DIGITS) {
        if (c->left >> 56) return false; // more than any body may have
        c->left = c->left << 4 | (uint64_t)digit;
        c->at = DIGITS;
        return true;
    }
    if (c->at == SIZE) return false;
    if (byte == '\r')
        c->at = SIZE_LF;
    else if (c->at == DIGITS ? byte == ';' : !is_control(byte))
        c->at = EXTENSION;
    else
        return false;
    return true;
}

static bool take_trailer_byte(rn_chunks *c, char byte) {
    if (++c->line_bytes > TRAILER_BYTES) return false;
    if (byte == '\r')
        c->at = c->at == LINE ? LAST_LF : TEXT_LF;
    else
        c->at = TEXT;
    return byte == '\r' || !is_control(byte);
}

static bool take_byte(rn_chunks *c, char byte) {
    switch (c->at) {
    case SIZE:
    case DIGITS:
    case EXTENSION:
        return take_size_byte(c, byte);
    case SIZE_LF:
        c->at = c->left ? DATA : LINE;
        c->line_bytes = 0;
        return byte == '\n';
    case DATA_CR:
        c->at = DATA_LF;
        return byte == '\r';
    case DATA_LF:
        c->at = SIZE;
        return byte == '\n';
    case LINE:
    case TEXT:
        return take_trailer_byte(c, byte);
    case TEXT_LF:
        c->at = LINE;
        return byte == '\n';
    default: // LAST_LF
        c->at = END;
        return byte == '\n';
    }
}

rn_chunks_news rn_chunks_take(rn_chunks *c, const char *data, size_t bytes, size_t *used,
                              rn_str *out_data) {
    *used = 0;
    while (*used < bytes && c->at != END) {
        if (c->at == DATA) {
            size_t count = (size_t)rn_min_u64(bytes - *used, c->left);
            *out_data = (rn_str){data + *used, count};
            *used += count;
            c->left -= count;
            if (c->left == 0) c->at = DATA_CR;
            return RN_CHUNKS_DATA;
        }
        if (!take_byte(c, data[(*used)++])) return RN_CHUNKS_WRONG;
    }
    return c->at == END ? RN_CHUNKS_END : RN_CHUNKS_MORE;
}
