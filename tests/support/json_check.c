// json_check.c — recursive descent over (at, end); every read_ function steps past what it read or
// returns false.
#include "support.h"
#include "json_check.h"

#include <ctype.h>

enum { MAX_DEPTH = 64, MAX_KEYS = 256, MAX_TEXT = 8192 };

typedef struct reader {
    const unsigned char *at, *end;
    int depth;
} reader;

typedef struct text {
    char data[MAX_TEXT];
    size_t bytes;
} text;

static bool read_value(reader *r);

static void skip_space(reader *r) {
    while (r->at < r->end && memchr(" \t\r\n", *r->at, 4))
        r->at++;
}

static bool read_char(reader *r, char c) {
    if (r->at == r->end || *r->at != (unsigned char)c) return false;
    r->at++;
    return true;
}

static bool read_word(reader *r, const char *word) {
    size_t bytes = strlen(word);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0) return false;
    r->at += bytes;
    return true;
}

static bool read_digits(reader *r) {
    const unsigned char *begin = r->at;
    while (r->at < r->end && isdigit(*r->at))
        r->at++;
    return r->at > begin;
}

static bool read_number(reader *r) {
    read_char(r, '-');
    if (!read_char(r, '0') && !read_digits(r)) return false;
    if (read_char(r, '.') && !read_digits(r)) return false;
    if (!read_char(r, 'e') && !read_char(r, 'E')) return true;
    if (!read_char(r, '+')) read_char(r, '-');
    return read_digits(r);
}

// ---- strings ---------------------------------------------------------------------------

static bool keep(text *out, char c) {
    if (out->bytes + 1 >= sizeof out->data) return false;
    out->data[out->bytes++] = c;
    out->data[out->bytes] = '\0';
    return true;
}

static bool keep_code(text *out, uint32_t code) {
    if (code < 0x80) return keep(out, (char)code);
    if (code < 0x800)
        return keep(out, (char)(0xC0 + code / 64)) && keep(out, (char)(0x80 + code % 64));
    if (code < 0x10000)
        return keep(out, (char)(0xE0 + code / 4096)) && keep(out, (char)(0x80 + code / 64 % 64)) &&
               keep(out, (char)(0x80 + code % 64));
    return keep(out, (char)(0xF0 + code / 262144)) && keep(out, (char)(0x80 + code / 4096 % 64)) &&
           keep(out, (char)(0x80 + code / 64 % 64)) && keep(out, (char)(0x80 + code % 64));
}

static bool read_hex4(reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        if (r->at == r->end || !isxdigit(*r->at)) return false;
        *out = *out * 16 + (uint32_t)(isdigit(*r->at) ? *r->at - '0' : tolower(*r->at) - 'a' + 10);
    }
    return true;
}

static bool read_escape(reader *r, text *out) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    if (r->at == r->end) return false;
    char c = (char)*r->at++;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) return keep(out, meanings[letter - letters]);
    if (c != 'u' || !read_hex4(r, &code) || (code >= 0xDC00 && code < 0xE000)) return false;
    if (code < 0xD800 || code >= 0xE000) return keep_code(out, code);
    if (!read_word(r, "\\u") || !read_hex4(r, &low) || low < 0xDC00 || low >= 0xE000) return false;
    return keep_code(out, 0x10000 + (code - 0xD800) * 1024 + (low - 0xDC00));
}

// One character beyond ASCII: the bits, then whether they could have been written shorter.
static bool read_utf8(reader *r, text *out) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    unsigned char lead = *r->at++;
    int tails = lead >= 0xF0 && lead < 0xF8 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC0 || lead >= 0xF8) return false;
    uint32_t code = lead & (0x3Fu >> tails);
    for (int i = 0; i < tails; i++, r->at++) {
        if (r->at == r->end || *r->at < 0x80 || *r->at > 0xBF) return false;
        code = code * 64 + (*r->at & 0x3Fu);
    }
    bool surrogate = code >= 0xD800 && code < 0xE000;
    return code >= least[tails] && code < 0x110000 && !surrogate && keep_code(out, code);
}

static bool read_string(reader *r, text *out) {
    out->bytes = 0;
    out->data[0] = '\0';
    if (!read_char(r, '"')) return false;
    while (r->at < r->end) {
        bool good = true;
        if (*r->at == '"') return read_char(r, '"');
        if (*r->at < 0x20) return false;
        if (*r->at == '\\') {
            r->at++;
            good = read_escape(r, out);
        } else {
            good = *r->at < 0x80 ? keep(out, (char)*r->at++) : read_utf8(r, out);
        }
        if (!good) return false;
    }
    return false;
}

// ---- objects and arrays ----------------------------------------------------------------

static bool read_key(reader *r, text *out) {
    skip_space(r);
    if (!read_string(r, out)) return false;
    skip_space(r);
    return read_char(r, ':');
}

static bool read_array(reader *r) {
    skip_space(r);
    if (read_char(r, ']')) return true;
    do {
        if (!read_value(r)) return false;
    } while (read_char(r, ','));
    return read_char(r, ']');
}

static bool read_object(reader *r) {
    char *keys[MAX_KEYS];
    size_t count = 0;
    bool good = true;
    text key;
    skip_space(r);
    if (read_char(r, '}')) return true;
    do {
        good = count < MAX_KEYS && read_key(r, &key);
        for (size_t i = 0; good && i < count; i++)
            good = strcmp(keys[i], key.data) != 0;
        if (good) keys[count++] = strdup(key.data);
        good = good && read_value(r);
    } while (good && read_char(r, ','));
    for (size_t i = 0; i < count; i++)
        free(keys[i]);
    return good && read_char(r, '}');
}

static bool read_value(reader *r) {
    text ignored;
    bool good = false;
    skip_space(r);
    if (r->at == r->end || ++r->depth > MAX_DEPTH) return false;
    if (*r->at == '"')
        good = read_string(r, &ignored);
    else if (read_char(r, '{'))
        good = read_object(r);
    else if (read_char(r, '['))
        good = read_array(r);
    else
        good =
            read_word(r, "true") || read_word(r, "false") || read_word(r, "null") || read_number(r);
    r->depth--;
    skip_space(r);
    return good;
}

// ---- for the tests ---------------------------------------------------------------------

static reader over(const char *json, size_t bytes) {
    return (reader){.at = (const unsigned char *)json, .end = (const unsigned char *)json + bytes};
}

bool test_json_valid(const char *json, size_t bytes) {
    reader r = over(json, bytes);
    return read_value(&r) && r.at == r.end;
}

// Steps to the member or item called `name`.
static bool enter(reader *r, const char *name) {
    text key;
    skip_space(r);
    bool array = read_char(r, '[');
    if (!array && !read_char(r, '{')) return false;
    for (size_t i = 0;; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if (!array && !read_key(r, &key)) return false;
        if (strcmp(name, array ? number : key.data) == 0) return true;
        if (!read_value(r) || !read_char(r, ',')) return false;
    }
}

bool test_json_get(const char *json, size_t bytes, const char *path, char *out, size_t capacity) {
    reader r = over(json, bytes);
    char name[128];
    text value = {.bytes = 0};
    while (*path) {
        size_t length = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        if (!enter(&r, name)) return false;
        path += length + (path[length] == '/');
    }
    skip_space(&r);
    const unsigned char *begin = r.at;
    bool string = r.at < r.end && *r.at == '"';
    if (string ? !read_string(&r, &value) : !read_value(&r)) return false;
    size_t length = string ? value.bytes : (size_t)(r.at - begin);
    while (!string && isspace(begin[length - 1])) // what stands behind the value was read, too
        length--;
    if (length >= capacity) return false;
    memcpy(out, string ? value.data : (const char *)begin, length);
    out[length] = '\0';
    return true;
}

uint64_t test_json_u64(const char *json, size_t bytes, const char *path) {
    char number[64], *end;
    if (!test_json_get(json, bytes, path, number, sizeof number)) fail_msg("nothing at %s", path);
    uint64_t value = strtoull(number, &end, 10);
    if (end == number || (*end && !isspace((unsigned char)*end)))
        fail_msg("%s at %s is no whole number", number, path);
    return value;
}
