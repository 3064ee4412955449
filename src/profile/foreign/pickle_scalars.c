// pickle_scalars.c — the opcodes that push one number or one text.
#include "profile/foreign/pickle_machine.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

// ---- numbers ------------------------------------------------------------------------------------

static rn_status push_integer(rn_pickle *p, bool negative, uint64_t magnitude) {
    rn_pickle_node *node;
    uint64_t limit = (uint64_t)1 << (63 - TAG_BITS);
    if (magnitude < limit) {
        uint64_t word = (negative ? -magnitude : magnitude) << TAG_BITS;
        return rn_pickle_push(p, (rn_pickle_value){word | TAG_INT});
    }
    RN_TRY(rn_pickle_make_node(p, RN_PICKLE_INT, &node));
    node->integer = magnitude;
    node->is_negative = negative;
    return rn_pickle_push_node(p, node);
}

rn_status rn_pickle_run_word(rn_pickle *p, int tag) {
    return rn_pickle_push(p, (rn_pickle_value){(uint64_t)tag});
}

// BININT1, BININT2; BININT is signed.
rn_status rn_pickle_run_binint(rn_pickle *p, int bytes) {
    uint64_t number;
    RN_TRY(rn_pickle_take_number(p, bytes, &number));
    bool negative = bytes == 4 && number >> 31;
    return push_integer(p, negative, negative ? ((uint64_t)1 << 32) - number : number);
}

// LONG1 and LONG4: two's complement of any length, of which a 64-bit number needs at most nine
// bytes.
rn_status rn_pickle_run_long(rn_pickle *p, int size_bytes) {
    const uint8_t *from;
    uint64_t bytes, number = 0;
    RN_TRY(rn_pickle_take_number(p, size_bytes, &bytes));
    RN_TRY(rn_pickle_take(p, bytes, &from));
    bool negative = bytes && from[bytes - 1] >> 7;
    for (uint64_t i = 0; i < bytes && i < 8; i++)
        number |= (uint64_t)from[i] << (8 * i);
    if (negative && bytes < 8) number |= ~(uint64_t)0 << (8 * bytes);
    if (bytes > 9 || (bytes == 9 && from[8] != 0))
        return rn_pickle_fail(p, "a whole number of more than 64 bits");
    return push_integer(p, negative, negative ? -number : number);
}

bool rn_pickle_decimal(rn_str text, bool *out_negative, uint64_t *out) {
    *out = 0;
    *out_negative = text.bytes && text.data[0] == '-';
    size_t at = *out_negative;
    bool good = at < text.bytes;
    for (; good && at < text.bytes; at++)
        good = text.data[at] >= '0' && text.data[at] <= '9' && rn_mul_u64(*out, 10, out) &&
               rn_add_u64(*out, (uint64_t)(text.data[at] - '0'), out);
    return good;
}

// INT and LONG: "12\n", "12L\n"; and "01\n" is True.
rn_status rn_pickle_run_int_line(rn_pickle *p, int is_long) {
    rn_str line;
    bool negative;
    uint64_t number;
    RN_TRY(rn_pickle_take_line(p, &line));
    if (!is_long && rn_str_equal(line, RN_STR("01"))) return rn_pickle_run_word(p, TAG_TRUE);
    if (!is_long && rn_str_equal(line, RN_STR("00"))) return rn_pickle_run_word(p, TAG_FALSE);
    if (is_long && line.bytes && line.data[line.bytes - 1] == 'L') line.bytes--;
    if (!rn_pickle_decimal(line, &negative, &number))
        return rn_pickle_fail(p, "a bad whole number");
    return push_integer(p, negative, number);
}

static rn_status push_float(rn_pickle *p, double number) {
    rn_pickle_node *node;
    RN_TRY(rn_pickle_make_node(p, RN_PICKLE_FLOAT, &node));
    node->number = number;
    return rn_pickle_push_node(p, node);
}

rn_status rn_pickle_run_binfloat(rn_pickle *p, int unused) {
    const uint8_t *from;
    uint64_t word = 0;
    double number;
    (void)unused;
    RN_TRY(rn_pickle_take(p, 8, &from));
    for (int i = 0; i < 8; i++)
        word = word << 8 | from[i];
    memcpy(&number, &word, sizeof number);
    return push_float(p, number);
}

rn_status rn_pickle_run_float_line(rn_pickle *p, int unused) {
    rn_str line;
    double number;
    (void)unused;
    RN_TRY(rn_pickle_take_line(p, &line));
    if (!rn_foreign_number(line, &number)) return rn_pickle_fail(p, "a bad number");
    return push_float(p, number);
}

// ---- text ---------------------------------------------------------------------------------------

static rn_status push_text(rn_pickle *p, rn_pickle_kind kind, rn_str text) {
    rn_pickle_node *node;
    RN_TRY(rn_pickle_make_node(p, kind, &node));
    node->text = text;
    return rn_pickle_push_node(p, node);
}

static rn_status run_sized(rn_pickle *p, rn_pickle_kind kind, int size_bytes) {
    const uint8_t *from;
    uint64_t bytes;
    RN_TRY(rn_pickle_take_number(p, size_bytes, &bytes));
    RN_TRY(rn_pickle_take(p, bytes, &from));
    return push_text(p, kind, (rn_str){(const char *)from, bytes});
}

rn_status rn_pickle_run_text(rn_pickle *p, int size_bytes) {
    return run_sized(p, RN_PICKLE_TEXT, size_bytes);
}

rn_status rn_pickle_run_bytes(rn_pickle *p, int size_bytes) {
    return run_sized(p, RN_PICKLE_BYTES, size_bytes);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The code point of "\uXXXX" or "\UXXXXXXXX" at `text`, or -1; what is not one stands for itself.
static int64_t read_escape(rn_str text, size_t *out_bytes) {
    size_t digits = text.bytes > 1 && text.data[0] == '\\' ? (text.data[1] == 'u'   ? 4
                                                              : text.data[1] == 'U' ? 8
                                                                                    : 0)
                                                           : 0;
    int64_t code = 0;
    *out_bytes = 2 + digits;
    if (!digits || text.bytes < *out_bytes) return -1;
    for (size_t i = 2; i < *out_bytes; i++) {
        int digit = hex_digit(text.data[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code < 0x110000 && (code < 0xD800 || code > 0xDFFF) ? code : '?';
}

// UNICODE of protocol 0: escapes, and every other byte is a code point below 256.
rn_status rn_pickle_run_text_line(rn_pickle *p, int unused) {
    rn_str line;
    void *block = NULL;
    size_t used = 0, step;
    (void)unused;
    RN_TRY(rn_pickle_take_line(p, &line));
    RN_TRY(rn_arena_array(&p->arena, line.bytes, 2, &block));
    char *out = block;
    for (size_t at = 0; at < line.bytes; at += step) {
        int64_t code = read_escape((rn_str){line.data + at, line.bytes - at}, &step);
        if (code < 0) code = (uint8_t)line.data[at], step = 1;
        used += rn_utf8_encode((uint32_t)code, out + used);
    }
    return push_text(p, RN_PICKLE_TEXT, (rn_str){out, used});
}
