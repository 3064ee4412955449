// png.c — chunks, then one compressed stream of filtered lines, then pixels.
//
//     signature | length type data crc | ...      types: IHDR PLTE tRNS IDAT ... IEND
//
// The data of all IDAT chunks is moved together inside of the file's bytes, decoded into lines,
// each with a byte for its filter before it, and unfiltered in place. Adam7 has seven such pictures
// one behind the other. The size of it all follows from the header, and is held against what so
// many compressed bytes can be at most before memory is taken.
#include "io/png.h"

#include "base/checked.h"
#include "io/inflate.h"
#include "memory/account.h"

#include <string.h>

enum { MOST_SIDE = 1 << 20, PASSES = 7, CHUNK_BYTES = 12 };
enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

typedef struct png {
    uint8_t *data;
    size_t bytes;
    uint32_t width, height;
    uint8_t depth, kind;
    bool interlaced, has_palette, has_key;
    uint8_t palette[256][4];
    uint16_t key[3];   // the colour that is transparent
    size_t begin, end; // the compressed stream
} png;

static rn_status fail_at(size_t offset, const char *what) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "PNG: %s", what), NULL, offset);
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

// Four bits at a time: a table of 16.
static uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t bytes) {
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc = table[(crc ^ data[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ data[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

// ---- chunks -------------------------------------------------------------------------------------

static uint32_t channels_of(uint8_t kind) {
    return kind == RGB ? 3 : kind == GREY_ALPHA ? 2 : kind == RGB_ALPHA ? 4 : 1;
}

static bool is_depth(uint8_t kind, uint8_t depth) {
    if (kind == GREY) return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    if (kind == PALETTE) return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    return (kind == RGB || kind == GREY_ALPHA || kind == RGB_ALPHA) && (depth == 8 || depth == 16);
}

static rn_status read_header(png *p, const uint8_t *at, uint32_t length, size_t offset) {
    if (length != 13) return fail_at(offset, "its header has another size");
    p->width = read_u32(at);
    p->height = read_u32(at + 4);
    p->depth = at[8];
    p->kind = at[9];
    p->interlaced = at[12];
    if (p->width == 0 || p->height == 0 || p->width > MOST_SIDE || p->height > MOST_SIDE)
        return fail_at(offset, "a side is zero or too long");
    if (!is_depth(p->kind, p->depth) || at[10] || at[11] || at[12] > 1)
        return fail_at(offset, "its header is not one of PNG");
    return RN_OK;
}

static rn_status read_palette(png *p, const uint8_t *at, uint32_t length, size_t offset) {
    if (length == 0 || length % 3 || length > sizeof(uint8_t[256][3]) || p->has_palette)
        return fail_at(offset, "its palette is damaged");
    for (uint32_t i = 0; i < length / 3; i++)
        memcpy(p->palette[i], at + 3 * (size_t)i, 3);
    p->has_palette = true;
    return RN_OK;
}

static rn_status read_transparency(png *p, const uint8_t *at, uint32_t length, size_t offset) {
    uint32_t channels = channels_of(p->kind);
    if (p->kind == PALETTE && length <= 256) {
        for (uint32_t i = 0; i < length; i++)
            p->palette[i][3] = at[i];
    } else if ((p->kind == GREY || p->kind == RGB) && length == 2 * channels) {
        for (uint32_t i = 0; i < channels; i++)
            p->key[i] = (uint16_t)(at[2 * i] << 8 | at[2 * i + 1]);
    } else {
        return fail_at(offset, "its transparency is damaged");
    }
    p->has_key = true;
    return RN_OK;
}

// Moves the data to the end of what was moved before.
static void join_data(png *p, size_t at, uint32_t length) {
    if (p->end == 0) p->begin = p->end = at;
    memmove(p->data + p->end, p->data + at, length);
    p->end += length;
}

static rn_status read_chunk(png *p, size_t offset, uint32_t length, bool *out_end) {
    const uint8_t *type = p->data + offset + 4, *at = p->data + offset + 8;
    bool first = offset == 8;
    if (first != (memcmp(type, "IHDR", 4) == 0))
        return fail_at(offset, "its header is not the first chunk");
    if (first) return read_header(p, at, length, offset);
    if (memcmp(type, "PLTE", 4) == 0) return read_palette(p, at, length, offset);
    if (memcmp(type, "tRNS", 4) == 0) return read_transparency(p, at, length, offset);
    *out_end = memcmp(type, "IEND", 4) == 0;
    if (memcmp(type, "IDAT", 4) == 0)
        join_data(p, offset + 8, length);
    else if (!*out_end && !(type[0] & 32))
        return rn_error_locate(rn_fail(RN_UNSUPPORTED, "PNG: chunk %02x%02x%02x%02x is not known",
                                       type[0], type[1], type[2], type[3]),
                               NULL, offset);
    return RN_OK;
}

static rn_status read_chunks(png *p) {
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    bool end = false;
    if (p->bytes < 8 || memcmp(p->data, signature, 8) != 0) return fail_at(0, "it is no PNG file");
    for (int i = 0; i < 256; i++)
        p->palette[i][3] = 255;
    for (size_t at = 8; !end;) {
        if (p->bytes - at < CHUNK_BYTES) return fail_at(at, "it ends early");
        uint32_t length = read_u32(p->data + at);
        if (length > p->bytes - at - CHUNK_BYTES)
            return fail_at(at, "a chunk ends behind the file");
        if (crc32_of(0, p->data + at + 4, (size_t)length + 4) !=
            read_u32(p->data + at + 8 + length))
            return fail_at(at, "a chunk's checksum is wrong");
        RN_TRY(read_chunk(p, at, length, &end));
        at += CHUNK_BYTES + (size_t)length;
    }
    if (p->end == 0) return fail_at(8, "it has no pixels");
    if (p->kind == PALETTE && !p->has_palette) return fail_at(8, "it has no palette");
    return RN_OK;
}

// ---- lines --------------------------------------------------------------------------------------

// The pixels of a pass: those at (x0 + i dx, y0 + j dy).
typedef struct pass {
    uint32_t x0, y0, dx, dy, width, height;
    size_t line; // bytes, without the filter's
} pass;

static pass pass_of(const png *p, int number) {
    static const uint8_t steps[PASSES][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                             {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    pass s = {.dx = 1, .dy = 1};
    if (p->interlaced)
        s = (pass){.x0 = steps[number][0],
                   .y0 = steps[number][1],
                   .dx = steps[number][2],
                   .dy = steps[number][3]};
    s.width = (p->width + s.dx - 1 - s.x0) / s.dx;
    s.height = (p->height + s.dy - 1 - s.y0) / s.dy;
    if (p->width <= s.x0) s.width = 0;
    if (p->height <= s.y0) s.height = 0;
    s.line = ((size_t)s.width * channels_of(p->kind) * p->depth + 7) / 8;
    return s;
}

static uint64_t lines_bytes(const png *p) {
    uint64_t bytes = 0;
    for (int i = 0; i < (p->interlaced ? PASSES : 1); i++) {
        pass s = pass_of(p, i);
        if (s.width) bytes += (uint64_t)s.height * (s.line + 1);
    }
    return bytes;
}

static uint8_t paeth(int a, int b, int c) {
    int from_a = b > c ? b - c : c - b, from_b = a > c ? a - c : c - a;
    int both = a + b - 2 * c, from_c = both < 0 ? -both : both;
    return (uint8_t)(from_a <= from_b && from_a <= from_c ? a : from_b <= from_c ? b : c);
}

// `above` is the line before, or zeros.
static bool unfilter(uint8_t filter, uint8_t *line, const uint8_t *above, size_t bytes,
                     size_t pixel) {
    for (size_t i = 0; i < bytes; i++) {
        uint8_t a = i < pixel ? 0 : line[i - pixel], b = above ? above[i] : 0,
                c = i < pixel || !above ? 0 : above[i - pixel];
        uint8_t by = filter == 0   ? 0
                     : filter == 1 ? a
                     : filter == 2 ? b
                     : filter == 3 ? (uint8_t)((a + b) / 2)
                                   : paeth(a, b, c);
        line[i] = (uint8_t)(line[i] + by);
    }
    return filter <= 4;
}

// ---- pixels -------------------------------------------------------------------------------------

static uint32_t sample_at(const uint8_t *line, size_t i, uint32_t depth) {
    if (depth == 16) return (uint32_t)line[2 * i] << 8 | line[2 * i + 1];
    if (depth == 8) return line[i];
    size_t bit = i * depth;
    return (uint32_t)line[bit / 8] >> (8 - depth - bit % 8) & ((1u << depth) - 1);
}

static uint8_t to_8_bits(uint32_t sample, uint32_t depth) {
    return (uint8_t)(depth == 16 ? sample >> 8 : sample * (255 / ((1u << depth) - 1)));
}

static void write_pixel(const png *p, const uint8_t *line, uint32_t x, uint32_t channels,
                        uint8_t *out) {
    uint32_t own = channels_of(p->kind);
    bool hidden = p->has_key;
    if (p->kind == PALETTE) {
        memcpy(out, p->palette[sample_at(line, x, p->depth)], channels);
        return;
    }
    for (uint32_t c = 0; c < own; c++) {
        uint32_t sample = sample_at(line, (size_t)x * own + c, p->depth);
        if (p->has_key && sample != p->key[c]) hidden = false;
        out[c] = to_8_bits(sample, p->depth);
    }
    if (channels > own) out[own] = hidden ? 0 : 255;
}

static rn_status write_pass(const png *p, const pass *s, uint8_t **lines, rn_image *out) {
    size_t pixel = ((size_t)channels_of(p->kind) * p->depth + 7) / 8;
    uint8_t *above = NULL, *at = *lines;
    for (uint32_t y = 0; s->width && y < s->height; y++, at += s->line + 1) {
        if (!unfilter(at[0], at + 1, above, s->line, pixel))
            return fail_at(p->begin, "a line's filter is not known");
        above = at + 1;
        uint8_t *row =
            out->pixels + ((size_t)(s->y0 + y * s->dy) * out->width + s->x0) * out->channels;
        for (uint32_t x = 0; x < s->width; x++)
            write_pixel(p, at + 1, x, out->channels, row + (size_t)x * s->dx * out->channels);
    }
    *lines = at;
    return RN_OK;
}

static rn_status decode_lines(const png *p, uint8_t *lines, size_t bytes, rn_image *out) {
    uint32_t channels = p->kind == PALETTE ? 3 : channels_of(p->kind);
    rn_status s = rn_inflate(p->data + p->begin, p->end - p->begin, lines, bytes);
    if (s != RN_OK) return rn_error_locate(s, NULL, p->begin);
    RN_TRY(rn_image_create(p->width, p->height, channels + p->has_key, out));
    for (int i = 0; i < (p->interlaced ? PASSES : 1) && s == RN_OK; i++) {
        pass own = pass_of(p, i);
        s = write_pass(p, &own, &lines, out);
    }
    if (s != RN_OK) rn_image_free(out);
    return s;
}

rn_status rn_png_decode(uint8_t *data, size_t bytes, rn_image *out) {
    png p = {.data = data, .bytes = bytes};
    void *lines = NULL;
    *out = (rn_image){0};
    RN_TRY(read_chunks(&p));
    uint64_t need = lines_bytes(&p);
    if (need / RN_INFLATE_MOST_RATIO > p.end - p.begin)
        return fail_at(p.begin, "so few bytes cannot be so many pixels");
    RN_TRY(rn_alloc(RN_HOST_IO, (size_t)need, &lines));
    rn_status s = decode_lines(&p, lines, (size_t)need, out);
    rn_free(RN_HOST_IO, lines, (size_t)need);
    return s;
}

// ---- writing ------------------------------------------------------------------------------------

typedef struct encoder {
    rn_sink sink;
    uint32_t crc;
    rn_status status;
} encoder;

static void put(encoder *e, const void *data, size_t bytes) {
    e->crc = crc32_of(e->crc, data, bytes);
    if (e->status == RN_OK) e->status = e->sink.write(e->sink.self, data, bytes);
}

static void put_u32(encoder *e, uint32_t value) {
    put(e,
        (uint8_t[]){(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                    (uint8_t)value},
        4);
}

static void begin_chunk(encoder *e, const char *type, uint32_t length) {
    put_u32(e, length);
    e->crc = 0;
    put(e, type, 4);
}

// A line is a chunk and a stored block of its own, so nothing is held; the checksum goes along.
static void put_lines(encoder *e, const rn_image *image) {
    enum { BASE = 65521, MOST = 65535 };
    size_t line = (size_t)image->width * image->channels;
    uint32_t a = 1, b = 0;
    begin_chunk(e, "IDAT", 2);
    put(e, "\x78\x01", 2);
    put_u32(e, e->crc);
    for (uint32_t y = 0; y < image->height; y++)
        for (size_t at = 0; at < line + 1;) {
            size_t n = line + 1 - at < MOST ? line + 1 - at : MOST;
            const uint8_t *row = image->pixels + y * line;
            begin_chunk(e, "IDAT", (uint32_t)n + 5);
            put(e, (uint8_t[]){0, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)},
                5);
            if (at == 0) put(e, "", 1), b = (b + a) % BASE; // no filter
            for (size_t i = at ? at - 1 : 0; i + 1 < at + n; i++) {
                a = (a + row[i]) % BASE;
                b = (b + a) % BASE;
            }
            put(e, row + (at ? at - 1 : 0), at ? n : n - 1);
            put_u32(e, e->crc);
            at += n;
        }
    begin_chunk(e, "IDAT", 9);
    put(e, "\x01\x00\x00\xff\xff", 5); // an empty last block
    put_u32(e, b << 16 | a);
    put_u32(e, e->crc);
}

// An iTXt chunk: key, not compressed, no language, UTF-8.
static rn_status put_text(encoder *e, const rn_image_text *text) {
    size_t key = strlen(text->key), value = strlen(text->value);
    bool sound = key > 0 && key < 80;
    for (size_t i = 0; i < key; i++)
        sound = sound && text->key[i] >= ' ' && text->key[i] < 127;
    if (!sound || value > 1 << 24)
        return rn_fail(RN_INVALID, "PNG: no text can have the key '%.80s'", text->key);
    begin_chunk(e, "iTXt", (uint32_t)(key + value + 5));
    put(e, text->key, key + 1);
    put(e, "\0\0\0\0", 4);
    put(e, text->value, value);
    put_u32(e, e->crc);
    return RN_OK;
}

rn_status rn_png_encode(const rn_image *image, const rn_image_text *texts, size_t text_count,
                        rn_sink sink) {
    static const uint8_t kinds[] = {0, GREY, GREY_ALPHA, RGB, RGB_ALPHA};
    encoder e = {.sink = sink};
    if (image->channels == 0 || image->channels > 4 || image->width == 0 || image->height == 0 ||
        image->width > MOST_SIDE || image->height > MOST_SIDE)
        return rn_fail(RN_INVALID, "PNG: a picture has 1 to 4 channels and pixels");
    put(&e, "\x89PNG\r\n\x1a\n", 8);
    begin_chunk(&e, "IHDR", 13);
    put_u32(&e, image->width);
    put_u32(&e, image->height);
    put(&e, (uint8_t[]){8, kinds[image->channels], 0, 0, 0}, 5);
    put_u32(&e, e.crc);
    for (size_t i = 0; i < text_count; i++)
        RN_TRY(put_text(&e, &texts[i]));
    put_lines(&e, image);
    begin_chunk(&e, "IEND", 0);
    put_u32(&e, e.crc);
    return e.status;
}
