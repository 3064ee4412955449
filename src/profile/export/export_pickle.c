// export_pickle.c — a few opcodes of Python's pickle.
#include "profile/export/export_pickle.h"

#include <assert.h>
#include <endian.h>

enum opcode {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    SETITEMS = 'u',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE = 'X',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    BINFLOAT = 'G',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    TUPLE2 = 0x86,
    MEMOIZE = 0x94,
    BINGET = 'h',
    LONG_BINGET = 'j',
};

static void put(rn_pickler *p, enum opcode opcode) {
    rn_out_put(p->out, (uint8_t[]){(uint8_t)opcode}, 1);
}

// An opcode and `bytes` bytes (8 at most) of `value`, little-endian.
static void put_number(rn_pickler *p, uint8_t opcode, uint64_t value, size_t bytes) {
    char *at = rn_out_room(p->out, 9);
    value = htole64(value);
    at[0] = (char)opcode;
    memcpy(at + 1, &value, 8); // what is too much is overwritten next
    p->out->bytes += bytes + 1;
}

void rn_pickler_begin(rn_pickler *p, rn_out *out) {
    *p = (rn_pickler){.out = out};
    put_number(p, PROTO, 4, 1);
}

void rn_pickler_end(rn_pickler *p) {
    put(p, STOP);
}

void rn_pickler_dict(rn_pickler *p) {
    put(p, EMPTY_DICT);
    put(p, MARK);
}

void rn_pickler_dict_end(rn_pickler *p) {
    put(p, SETITEMS);
}

void rn_pickler_list(rn_pickler *p, rn_pickler_list_state *list) {
    list->count = 0;
    put(p, EMPTY_LIST);
    put(p, MARK);
}

void rn_pickler_item(rn_pickler *p, rn_pickler_list_state *list) {
    if (list->count == RN_PICKLER_BATCH) {
        put(p, APPENDS);
        put(p, MARK);
        list->count = 0;
    }
    list->count++;
}

void rn_pickler_list_end(rn_pickler *p) {
    put(p, APPENDS);
}

void rn_pickler_text(rn_pickler *p, rn_str text) {
    assert(text.bytes <= UINT32_MAX);
    if (text.bytes < 256)
        put_number(p, SHORT_BINUNICODE, text.bytes, 1);
    else
        put_number(p, BINUNICODE, text.bytes, 4);
    rn_out_put(p->out, text.data, text.bytes);
}

// LONG1: a count of bytes, and a signed number of that many.
static void put_long(rn_pickler *p, uint64_t value) {
    if (value > INT64_MAX) value = INT64_MAX;
    size_t bytes = (size_t)(64 - __builtin_clzll(value)) / 8 + 1;
    put(p, LONG1);
    put_number(p, (uint8_t)bytes, value, bytes);
}

void rn_pickler_u64(rn_pickler *p, uint64_t value) {
    if (value <= UINT8_MAX)
        put_number(p, BININT1, value, 1);
    else if (value <= UINT16_MAX)
        put_number(p, BININT2, value, 2);
    else if (value <= INT32_MAX)
        put_number(p, BININT, value, 4);
    else
        put_long(p, value);
}

void rn_pickler_f64(rn_pickler *p, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(p, BINFLOAT, __builtin_bswap64(bits), 8);
}

void rn_pickler_bool(rn_pickler *p, bool value) {
    put(p, value ? NEWTRUE : NEWFALSE);
}

void rn_pickler_pair(rn_pickler *p) {
    put(p, TUPLE2);
}

uint32_t rn_pickler_keep(rn_pickler *p) {
    put(p, MEMOIZE);
    return ++p->kept_count;
}

void rn_pickler_again(rn_pickler *p, uint32_t number) {
    if (number <= 256)
        put_number(p, BINGET, number - 1, 1);
    else
        put_number(p, LONG_BINGET, number - 1, 4);
}

void rn_pickler_text_once(rn_pickler *p, uint32_t *number, rn_str text) {
    if (*number) {
        rn_pickler_again(p, *number);
        return;
    }
    rn_pickler_text(p, text);
    *number = rn_pickler_keep(p);
}
