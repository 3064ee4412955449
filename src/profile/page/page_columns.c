// page_columns.c — what is small by its rule, then in the narrowest form, in place; then packed if
// that is shorter; then three bytes to four letters by two lookups of 12 bits.
#include "profile/page/page_columns.h"
#include "profile/page/page_lz.h"

#include <string.h>

enum { CHUNK_BYTES = 48 << 10, CHUNK_LETTERS = CHUNK_BYTES / 3 * 4 };

typedef struct rn_page_base64 {
    char pairs[4096][2]; // the letters of 12 bits
    char letters[CHUNK_LETTERS];
} rn_page_base64;

static void fill_pairs(rn_page_base64 *base64) {
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 4096; i++) {
        base64->pairs[i][0] = alphabet[i >> 6];
        base64->pairs[i][1] = alphabet[i & 63];
    }
}

rn_status rn_page_columns_open(rn_page_columns *c, const rn_allocator *allocator, size_t capacity,
                               rn_sink sink) {
    *c = (rn_page_columns){.sink = sink, .allocator = allocator};
    void *block = NULL;
    RN_TRY(rn_alloc(allocator, sizeof *c->base64, &block));
    c->base64 = block;
    fill_pairs(c->base64);
    rn_status s = rn_alloc(allocator, RN_PAGE_LZ_SLOTS * sizeof *c->slots, &block);
    if (s == RN_OK) {
        c->slots = block;
        s = rn_alloc_zeroed(allocator, capacity, sizeof *c->values, &block);
    }
    if (s != RN_OK) {
        rn_page_columns_close(c);
        return s;
    }
    c->values = block;
    c->capacity = capacity;
    return RN_OK;
}

void rn_page_columns_close(rn_page_columns *c) {
    rn_free(c->allocator, c->base64, sizeof *c->base64);
    rn_free(c->allocator, c->slots, RN_PAGE_LZ_SLOTS * sizeof *c->slots);
    rn_free(c->allocator, c->values, c->capacity * sizeof *c->values);
    *c = (rn_page_columns){0};
}

// ---- numbers to small numbers ---------------------------------------------------------------

// How many bytes a number takes in the form "v".
static size_t varying_width(uint64_t value) {
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

static uint64_t without_sign(uint64_t value) {
    return value << 1 ^ (0 - (value >> 63));
}

static const char *const rule_names[] = {"plain",  "difference",  "near-last",  "near-row",
                                         "signed", "behind-edge", "before-edge"};

// From the last to the first: each still finds the one before as it was.
static void apply(rn_page_rule rule, uint64_t *values, size_t count) {
    for (size_t i = count; i-- > 0;) {
        uint64_t last = i ? values[i - 1] : 0, value = values[i];
        switch (rule) {
        case RN_PAGE_PLAIN:
            break;
        case RN_PAGE_DIFFERENCE:
            values[i] = value - last;
            break;
        case RN_PAGE_NEAR_LAST:
            values[i] = without_sign(value - last);
            break;
        case RN_PAGE_NEAR_ROW:
            values[i] = without_sign(value - i);
            break;
        case RN_PAGE_SIGNED:
            values[i] = without_sign(value);
            break;
        case RN_PAGE_BEHIND_EDGE: // see apply_edges
        case RN_PAGE_BEFORE_EDGE:
            break;
        }
    }
}

// The edge from which `value` is counted, from `edge` on; edge_count where there is none.
static size_t find_edge(const rn_page_columns *c, rn_page_rule rule, uint64_t value, size_t edge) {
    if (rule == RN_PAGE_BEFORE_EDGE) {
        while (edge < c->edge_count && c->edges[edge] < value)
            edge++;
        return edge;
    }
    while (edge + 1 < c->edge_count && c->edges[edge + 1] <= value)
        edge++;
    return edge < c->edge_count && c->edges[edge] <= value ? edge : c->edge_count;
}

// Whether edges make the numbers shorter than differences do, and there is one for each.
static bool have_edges(const rn_page_columns *c, rn_page_rule rule, size_t count) {
    size_t edge = 0, last_edge = 0, by_edges = 0, by_differences = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < count; i++, last_edge = edge) {
        uint64_t value = c->values[i];
        edge = find_edge(c, rule, value, edge);
        if (edge == c->edge_count || value < last) return false;
        uint64_t offset = value < c->edges[edge] ? c->edges[edge] - value : value - c->edges[edge];
        by_edges += varying_width(edge - last_edge) + varying_width(offset);
        by_differences += varying_width(value - last);
        last = value;
    }
    return count && by_edges - count < by_differences; // steps are mostly alike: they pack well
}

static void apply_edges(const rn_page_columns *c, rn_page_rule rule, size_t count) {
    size_t edge = 0, last_edge = 0;
    for (size_t i = 0; i < count; i++, last_edge = edge) {
        uint64_t value = c->values[i];
        edge = find_edge(c, rule, value, edge);
        c->values[i] = edge - last_edge;
        c->values[count + i] =
            value < c->edges[edge] ? c->edges[edge] - value : value - c->edges[edge];
    }
}

// ---- small numbers to bytes -----------------------------------------------------------------

static size_t fixed_width(uint64_t value) {
    return value == 0            ? 0
           : value <= UINT8_MAX  ? 1
           : value <= UINT16_MAX ? 2
           : value <= UINT32_MAX ? 4
                                 : 8;
}

// In place: no number is written behind where it was read, because none takes more than 8 bytes.
static void pack_fixed(uint64_t *values, size_t count, size_t width) {
    unsigned char *to = (unsigned char *)values;
    for (size_t i = 0; i < count; i++, to += width) {
        uint64_t value = values[i];
        double number = (double)value;
        if (width == 8) memcpy(&value, &number, 8);
        for (size_t byte = 0; byte < width; byte++)
            to[byte] = (unsigned char)(value >> 8 * byte);
    }
}

static void pack_varying(uint64_t *values, size_t count) {
    unsigned char *to = (unsigned char *)values;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = values[i];
        for (; value >= 128; value >>= 7)
            *to++ = (unsigned char)(value | 128);
        *to++ = (unsigned char)value;
    }
}

typedef struct form {
    const char *name;
    size_t bytes;
} form;

// Numbers from 2^56 take more than 8 bytes when they vary, so those never do.
static form pack(uint64_t *values, size_t count) {
    static const char *const names[] = {"0", "u1", "u2", 0, "u4", 0, 0, 0, "f8"};
    uint64_t all = 0; // as wide as the widest
    size_t varying_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        all |= values[i];
        varying_bytes += varying_width(values[i]);
    }
    size_t width = fixed_width(all);
    if (varying_bytes < width * count && all >> 53 == 0) {
        pack_varying(values, count);
        return (form){"v", varying_bytes};
    }
    pack_fixed(values, count, width);
    return (form){names[width], width * count};
}

// ---- bytes to letters -----------------------------------------------------------------------

// The last chunk may end with one or two bytes. Returns the letters.
static size_t encode(rn_page_base64 *base64, const unsigned char *from, size_t bytes) {
    char *to = base64->letters;
    for (; bytes >= 3; bytes -= 3, from += 3, to += 4) {
        unsigned three = (unsigned)from[0] << 16 | (unsigned)from[1] << 8 | from[2];
        memcpy(to, base64->pairs[three >> 12], 2);
        memcpy(to + 2, base64->pairs[three & 4095], 2);
    }
    if (bytes > 0) {
        unsigned rest = (unsigned)from[0] << 16 | (bytes > 1 ? (unsigned)from[1] << 8 : 0);
        memcpy(to, base64->pairs[rest >> 12], 2);
        memcpy(to + 2, base64->pairs[rest & 4095], 2);
        to[3] = '=';
        if (bytes == 1) to[2] = '=';
        to += 4;
    }
    return (size_t)(to - base64->letters);
}

static rn_status write_base64(rn_page_columns *c, const unsigned char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t part = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        size_t letters = encode(c->base64, from + at, part);
        RN_TRY(rn_sink_write(c->sink, c->base64->letters, letters));
    }
    return RN_OK;
}

// Into a block of its own, which is NULL where that would not be shorter by a little.
static rn_status compress(const rn_page_columns *c, size_t bytes, uint8_t **out,
                          size_t *out_bytes) {
    enum { LEAST_BYTES = 64 };
    void *block = NULL;
    *out = NULL;
    *out_bytes = 0;
    if (bytes < LEAST_BYTES || bytes > UINT32_MAX) return RN_OK;
    RN_TRY(rn_alloc(c->allocator, bytes, &block));
    *out_bytes = rn_page_lz_pack((const uint8_t *)c->values, bytes, block, bytes - bytes / 16 - 16,
                                 c->slots);
    if (*out_bytes)
        *out = block;
    else
        rn_free(c->allocator, block, bytes);
    return RN_OK;
}

static rn_status write_packed(rn_page_columns *c, size_t bytes) {
    uint8_t *packed;
    size_t packed_bytes;
    RN_TRY(compress(c, bytes, &packed, &packed_bytes));
    if (!packed) {
        RN_TRY(rn_sink_print(c->sink, ">"));
        return write_base64(c, (const unsigned char *)c->values, bytes);
    }
    rn_status s = rn_sink_print(c->sink, " data-packed=\"%zu\">", bytes);
    if (s == RN_OK) s = write_base64(c, packed, packed_bytes);
    rn_free(c->allocator, packed, bytes);
    return s;
}

rn_status rn_page_columns_write(rn_page_columns *c, const char *name, size_t count,
                                rn_page_rule rule) {
    bool by_edges = rule == RN_PAGE_BEHIND_EDGE || rule == RN_PAGE_BEFORE_EDGE;
    if (by_edges && !have_edges(c, rule, count)) rule = RN_PAGE_DIFFERENCE;
    by_edges = by_edges && rule != RN_PAGE_DIFFERENCE;
    if (by_edges)
        apply_edges(c, rule, count);
    else
        apply(rule, c->values, count);
    form packed = pack(c->values, by_edges ? 2 * count : count);
    RN_TRY(rn_sink_print(c->sink,
                         "<script type=\"text/plain\" data-column=\"%s\" data-form=\"%s\" "
                         "data-count=\"%zu\" data-rule=\"%s\"",
                         name, packed.name, count, rule_names[rule]));
    RN_TRY(write_packed(c, packed.bytes));
    return rn_sink_write(c->sink, "</script>\n", 10);
}
