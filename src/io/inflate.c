// inflate.c — blocks of literals and copies, coded by canonical Huffman codes.
//
// A code is kept as the number of codes of each length and the symbols in the order of their codes:
// decoding takes a bit at a time and needs no table. Codes of more symbols than their lengths allow
// are refused; those of fewer are too, but for a single code of distances.
#include "io/inflate.h"

#include <string.h>

enum { MOST_BITS = 15, LITERALS = 288, DISTANCES = 30, LENGTH_CODES = 19, END_OF_BLOCK = 256 };

typedef struct code {
    uint16_t counts[MOST_BITS + 1];
    uint16_t symbols[LITERALS];
} code;

typedef struct inflater {
    const uint8_t *data;
    size_t bytes, at;
    uint64_t bits; // the next ones, lowest first
    uint32_t bit_count;
    uint8_t *out;
    size_t out_bytes, written;
    bool cut; // bits were asked for behind the end
} inflater;

static rn_status fail(const inflater *f, const char *what) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "compressed data: %s", what), NULL, f->at);
}

static uint32_t take(inflater *f, uint32_t count) {
    while (f->bit_count < count) {
        f->cut |= f->at == f->bytes;
        f->bits |= (uint64_t)(f->at < f->bytes ? f->data[f->at++] : 0) << f->bit_count;
        f->bit_count += 8;
    }
    uint32_t value = (uint32_t)(f->bits & ((1ull << count) - 1));
    f->bits >>= count;
    f->bit_count -= count;
    return value;
}

// False: the lengths are those of no code.
static bool make_code(const uint8_t *lengths, uint32_t count, code *out) {
    uint16_t begin[MOST_BITS + 2] = {0};
    int32_t left = 1;
    memset(out->counts, 0, sizeof out->counts);
    for (uint32_t i = 0; i < count; i++)
        out->counts[lengths[i]]++;
    for (int i = 1; i <= MOST_BITS; i++) {
        left = left * 2 - out->counts[i];
        if (left < 0) return false;
        begin[i + 1] = (uint16_t)(begin[i] + out->counts[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (lengths[i]) out->symbols[begin[lengths[i]]++] = (uint16_t)i;
    uint32_t used = count - out->counts[0];
    return left == 0 || used == 0 || (used == 1 && out->counts[1] == 1);
}

// UINT32_MAX: no such code.
static uint32_t take_symbol(inflater *f, const code *c) {
    int32_t value = 0, first = 0, index = 0;
    for (int length = 1; length <= MOST_BITS; length++) {
        int32_t count = c->counts[length];
        value |= (int32_t)take(f, 1);
        if (value - count < first) return c->symbols[index + (value - first)];
        index += count;
        first = (first + count) * 2;
        value *= 2;
    }
    return UINT32_MAX;
}

// ---- blocks -------------------------------------------------------------------------------------

static rn_status copy_stored(inflater *f) {
    (void)take(f, f->bit_count % 8); // the rest of the byte
    uint32_t length = take(f, 16), check = take(f, 16);
    if (f->cut || length != (check ^ 0xffff)) return fail(f, "a stored block's length is damaged");
    f->at -= f->bit_count / 8; // whole bytes that were taken ahead
    f->bits = f->bit_count = 0;
    if (length > f->bytes - f->at) return fail(f, "a stored block is cut short");
    if (length > f->out_bytes - f->written) return fail(f, "there is more than was announced");
    if (length) memcpy(f->out + f->written, f->data + f->at, length);
    f->at += length;
    f->written += length;
    return RN_OK;
}

// A copy of what was written before; bytes of the copy itself may be part of it.
static rn_status copy_match(inflater *f, uint32_t symbol, const code *distances) {
    static const uint16_t lengths[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                         15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                         67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t begins[DISTANCES] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    symbol -= END_OF_BLOCK + 1;
    if (symbol >= 29) return fail(f, "a length has no meaning");
    uint32_t extra = symbol < 8 || symbol == 28 ? 0 : (symbol - 4) / 4;
    uint32_t length = lengths[symbol] + take(f, extra);
    uint32_t at = take_symbol(f, distances);
    if (at >= DISTANCES) return fail(f, "a distance has no meaning");
    uint32_t distance = begins[at] + take(f, at < 4 ? 0 : (at - 2) / 2);
    if (f->cut) return fail(f, "it ends early");
    if (distance > f->written) return fail(f, "a copy reaches before the beginning");
    if (length > f->out_bytes - f->written) return fail(f, "there is more than was announced");
    for (uint32_t i = 0; i < length; i++, f->written++)
        f->out[f->written] = f->out[f->written - distance];
    return RN_OK;
}

static rn_status read_coded(inflater *f, const code *literals, const code *distances) {
    for (;;) {
        uint32_t symbol = take_symbol(f, literals);
        if (f->cut) return fail(f, "it ends early");
        if (symbol == END_OF_BLOCK) return RN_OK;
        if (symbol == UINT32_MAX) return fail(f, "a code has no meaning");
        if (symbol > END_OF_BLOCK) {
            RN_TRY(copy_match(f, symbol, distances));
        } else {
            if (f->written == f->out_bytes) return fail(f, "there is more than was announced");
            f->out[f->written++] = (uint8_t)symbol;
        }
    }
}

static rn_status read_fixed(inflater *f) {
    uint8_t lengths[LITERALS];
    code literals, distances;
    for (uint32_t i = 0; i < LITERALS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    (void)make_code(lengths, LITERALS, &literals);
    memset(lengths, 5, DISTANCES);
    (void)make_code(lengths, DISTANCES, &distances); // two of its codes have no meaning
    return read_coded(f, &literals, &distances);
}

// The lengths of both codes' symbols, themselves coded: 16 repeats the one before, 17 and 18 are
// zeros.
static rn_status read_lengths(inflater *f, const code *lengths_code, uint32_t count, uint8_t *out) {
    for (uint32_t at = 0; at < count;) {
        uint32_t symbol = take_symbol(f, lengths_code), times = 1;
        uint8_t value = (uint8_t)symbol;
        if (f->cut || symbol > 18) return fail(f, "a code's length is damaged");
        if (symbol == 16) {
            if (at == 0) return fail(f, "the first length repeats none");
            value = out[at - 1];
            times = 3 + take(f, 2);
        } else if (symbol > 16) {
            value = 0;
            times = symbol == 17 ? 3 + take(f, 3) : 11 + take(f, 7);
        }
        if (times > count - at) return fail(f, "there are more lengths than codes");
        memset(out + at, value, times);
        at += times;
    }
    return RN_OK;
}

static rn_status read_dynamic(inflater *f) {
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + 32] = {0}, small[LENGTH_CODES] = {0};
    code literals, distances;
    uint32_t literal_count = take(f, 5) + 257, distance_count = take(f, 5) + 1,
             small_count = take(f, 4) + 4;
    if (literal_count > 286 || distance_count > DISTANCES)
        return fail(f, "a block has too many codes");
    for (uint32_t i = 0; i < small_count; i++)
        small[order[i]] = (uint8_t)take(f, 3);
    if (f->cut || !make_code(small, LENGTH_CODES, &literals))
        return fail(f, "the code of lengths is none");
    RN_TRY(read_lengths(f, &literals, literal_count + distance_count, lengths));
    if (lengths[END_OF_BLOCK] == 0) return fail(f, "a block has no end");
    if (!make_code(lengths, literal_count, &literals) ||
        !make_code(lengths + literal_count, distance_count, &distances))
        return fail(f, "the lengths are those of no code");
    return read_coded(f, &literals, &distances);
}

// ---- the stream ---------------------------------------------------------------------------------

uint32_t rn_adler32(const uint8_t *data, size_t bytes) {
    enum { BASE = 65521, STRIDE = 5552 }; // so many sums fit 32 bits
    uint32_t a = 1, b = 0;
    for (size_t at = 0; at < bytes;) {
        size_t end = bytes - at < STRIDE ? bytes : at + STRIDE;
        for (; at < end; at++) {
            a += data[at];
            b += a;
        }
        a %= BASE;
        b %= BASE;
    }
    return b << 16 | a;
}

rn_status rn_inflate(const uint8_t *data, size_t bytes, uint8_t *out, size_t out_bytes) {
    inflater f = {.data = data, .bytes = bytes, .at = 2, .out = out, .out_bytes = out_bytes};
    if (bytes < 6 || (data[0] & 15) != 8 || (data[0] << 8 | data[1]) % 31 || data[1] & 32)
        return rn_error_locate(rn_fail(RN_CORRUPT, "compressed data: it is no zlib stream"), NULL,
                               0);
    for (bool last = false; !last;) {
        last = take(&f, 1);
        uint32_t kind = take(&f, 2);
        if (f.cut) return fail(&f, "it ends early");
        if (kind == 3) return fail(&f, "a block is of no kind");
        RN_TRY(kind == 0 ? copy_stored(&f) : kind == 1 ? read_fixed(&f) : read_dynamic(&f));
    }
    if (f.written != out_bytes) return fail(&f, "there is less than was announced");
    (void)take(&f, f.bit_count % 8);
    uint32_t check = 0;
    for (int i = 0; i < 4; i++)
        check = check << 8 | take(&f, 8);
    if (f.cut || check != rn_adler32(out, out_bytes)) return fail(&f, "its checksum is wrong");
    return RN_OK;
}
