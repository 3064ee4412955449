// packer.c — file bytes to panels, in pieces of any length, beside a disk.
//
// Where four rows that are neighbours in a panel lie whole in a piece, 4 x 4 words (16-bit: 8 x 8)
// are transposed at a time, so that each row of the transposed goes out in one store:
//
//     row r    a0 a1 a2 a3            unit, word 0:  .. a0 b0 c0 d0 ..
//     row r+1  b0 b1 b2 b3     -->          word 1:  .. a1 b1 c1 d1 ..
//     row r+2  c0 c1 c2 c3                  word 2:  .. a2 b2 c2 d2 ..
//     row r+3  d0 d1 d2 d3                  word 3:  .. a3 b3 c3 d3 ..
//
// Rows that a piece splits go word by word, units that it splits byte by byte: every byte of a file
// has one place in the panels (int4: two nibbles), so nothing is kept from piece to piece.
#include "tensor/panel_form.h"

#include "base/checked.h"
#include "tensor/quant.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <string.h>

typedef uint32_t word4 __attribute__((vector_size(16)));
typedef uint16_t half8 __attribute__((vector_size(16)));

// ---- words --------------------------------------------------------------------------------------

static word4 load_words(const uint8_t *from) {
    word4 words;
    memcpy(&words, from, sizeof words);
    return words;
}

static void store_words(uint8_t *to, word4 words) {
    memcpy(to, &words, sizeof words);
}

// A store that does not fill the caches, where there is one; stream_end before others may read.
static inline void stream_words(uint8_t *to, word4 words) {
#if defined(__SSE2__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)words);
#else
    store_words(to, words);
#endif
}

static inline void stream_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// Four words of four rows: word i of all rows goes to `to` + 64 i.
static inline void transpose_words(word4 a, word4 b, word4 c, word4 d, uint32_t flip, uint8_t *to) {
    word4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) ^ flip;
    word4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) ^ flip;
    word4 AB = __builtin_shufflevector(a, b, 2, 6, 3, 7) ^ flip;
    word4 CD = __builtin_shufflevector(c, d, 2, 6, 3, 7) ^ flip;
    store_words(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    store_words(to + 64, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    store_words(to + 128, __builtin_shufflevector(AB, CD, 0, 1, 4, 5));
    store_words(to + 192, __builtin_shufflevector(AB, CD, 2, 3, 6, 7));
}

// One word of four rows that are `step` bytes apart.
static inline word4 word4_of(const uint8_t *from, uint64_t step) {
    uint32_t words[4];
    for (uint64_t r = 0; r < 4; r++)
        memcpy(&words[r], from + r * step, sizeof words[r]);
    return (word4){words[0], words[1], words[2], words[3]};
}

static inline void pack_scale(const rn_panel_form *form, const uint8_t *from, int lane,
                              uint8_t *unit) {
    const uint64_t width = form->scale_bytes;
    memcpy(unit + form->unit_scale_at + width * (uint64_t)lane, from + form->file_scale_at, width);
}

// A unit of four rows that are `step` bytes apart; `unit` is that of the first row's lane.
static inline void pack_unit_of_four(const rn_panel_form *form, const uint8_t *from, uint64_t step,
                                     int lane, uint8_t *unit) {
    const uint8_t *words = from + form->file_dwords_at;
    uint8_t *to = unit + form->unit_dwords_at + 4 * lane;
    int d = 0;
    for (; d + 4 <= form->dwords; d += 4, words += 16, to += 256)
        transpose_words(load_words(words), load_words(words + step), load_words(words + 2 * step),
                        load_words(words + 3 * step), form->flip, to);
    for (; d < form->dwords; d++, words += 4, to += 64)
        store_words(to, word4_of(words, step) ^ form->flip);
    for (int r = 0; r < 4; r++)
        pack_scale(form, from + (uint64_t)r * step, lane + r, unit);
}

static void pack_unit(const rn_panel_form *form, const uint8_t *from, int lane, uint8_t *unit) {
    uint8_t *to = unit + form->unit_dwords_at + 4 * lane;
    for (int d = 0; d < form->dwords; d++, to += 64) {
        uint32_t word;
        memcpy(&word, from + form->file_dwords_at + 4 * d, sizeof word);
        word ^= form->flip;
        memcpy(to, &word, sizeof word);
    }
    pack_scale(form, from, lane, unit);
}

static void pack_byte(const rn_panel_form *form, unsigned at, uint8_t byte, int lane,
                      uint8_t *unit) {
    const unsigned width = form->scale_bytes;
    if (at - form->file_scale_at < width) {
        unit[form->unit_scale_at + width * (unsigned)lane + (at - form->file_scale_at)] = byte;
        return;
    }
    unsigned d = at - form->file_dwords_at;
    unit[form->unit_dwords_at + d / 4 * 64 + 4 * (unsigned)lane + d % 4] =
        byte ^ (uint8_t)form->flip;
}

// ---- f16, bf16 ----------------------------------------------------------------------------------

#define HALVES_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HALVES_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

// Interleaves the first four with the last four; three times is a transposition.
static inline void interleave(const half8 from[8], half8 to[8]) {
    for (int i = 0; i < 4; i++) {
        to[2 * i] = HALVES_LOW(from[i], from[i + 4]);
        to[2 * i + 1] = HALVES_HIGH(from[i], from[i + 4]);
    }
}

// A unit (8 columns) of eight rows.
static void pack_halves_of_eight(const uint8_t *from, uint64_t step, int lane, uint8_t *unit) {
    half8 a[8], b[8];
    for (int r = 0; r < 8; r++)
        memcpy(&a[r], from + (uint64_t)r * step, sizeof a[r]);
    interleave(a, b);
    interleave(b, a);
    interleave(a, b);
    for (int k = 0; k < 8; k++)
        memcpy(unit + 32 * k + 2 * lane, &b[k], sizeof b[k]);
}

static void pack_halves(const uint8_t *from, int lane, uint8_t *unit) {
    for (int k = 0; k < 8; k++)
        memcpy(unit + 32 * k + 2 * lane, from + 2 * k, 2);
}

// ---- data in rows -------------------------------------------------------------------------------

// How a dtype's rows go: `together` rows at once, whole units.
typedef struct method {
    const rn_panel_form *form;
    bool halves;
    int together;
} method;

// Four of f32's units, so that they make a square.
static const rn_panel_form f32_by_four = {4, 16, 256, 0, 0, 4, 0, 0, 0, 0};

static method method_of(rn_dtype dtype) {
    if (dtype == RN_DTYPE_F32) return (method){&f32_by_four, false, 4};
    bool halves = dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
    return (method){&rn_panel_forms[dtype], halves, halves ? 8 : 4};
}

static uint8_t *first_unit(const rn_packer *p, uint64_t row) {
    return p->target + row / RN_PANEL_ROWS * p->panels.panel_bytes + p->panels.head_bytes;
}

// Bytes [begin, end) of one unit of one row.
static void take_bytes(method m, const uint8_t *from, unsigned begin, unsigned end, int lane,
                       uint8_t *unit) {
    for (unsigned at = begin; at < end; at++) {
        if (m.halves)
            unit[at / 2 * 32 + 2 * (unsigned)lane + at % 2] = from[at - begin];
        else
            pack_byte(m.form, at, from[at - begin], lane, unit);
    }
}

// Bytes [begin, end) of one row.
static void take_row(const rn_packer *p, method m, uint64_t row, uint64_t begin, uint64_t end,
                     const uint8_t *from) {
    uint64_t unit_file = m.form->file_bytes;
    uint8_t *units = first_unit(p, row);
    int lane = (int)(row % RN_PANEL_ROWS);
    while (begin < end) {
        uint64_t u = begin / unit_file, at = begin % unit_file;
        uint64_t take = rn_min_u64(unit_file - at, end - begin);
        uint8_t *unit = units + u * m.form->unit_bytes;
        if (take < unit_file)
            take_bytes(m, from, (unsigned)at, (unsigned)(at + take), lane, unit);
        else if (m.halves)
            pack_halves(from, lane, unit);
        else
            pack_unit(m.form, from, lane, unit);
        begin += take;
        from += take;
    }
}

// Units [0, units) of `m.together` rows. Called with each form by name, so that loops over a unit's
// words are of constant length.
static inline __attribute__((always_inline)) void take_units_of(const rn_panel_form form,
                                                                bool halves, const uint8_t *from,
                                                                uint64_t units, uint64_t step,
                                                                int lane, uint8_t *to) {
    for (uint64_t u = 0; u < units; u++, from += form.file_bytes, to += form.unit_bytes) {
        if (halves)
            pack_halves_of_eight(from, step, lane, to);
        else
            pack_unit_of_four(&form, from, step, lane, to);
    }
}

static void take_whole_units(rn_dtype dtype, const uint8_t *from, uint64_t units, uint64_t step,
                             int lane, uint8_t *to) {
    switch (dtype) {
#define FORM(name, halves)                                                                         \
    case RN_DTYPE_##name:                                                                          \
        take_units_of((rn_panel_form)RN_PANEL_FORM_##name, halves, from, units, step, lane, to);   \
        break;
        FORM(F16, true)
        FORM(BF16, true)
        FORM(F8_E4M3, false)
        FORM(NF4, false)
        FORM(NF4_DQ, false)
#undef FORM
#define FORM(DTYPE, name, sum, offset, most, ...)                                                  \
    case RN_DTYPE_##DTYPE:                                                                         \
        take_units_of((rn_panel_form){__VA_ARGS__}, false, from, units, step, lane, to);           \
        break;
        RN_ROUNDED_KINDS(FORM)
#undef FORM
    default:
        take_units_of(f32_by_four, false, from, units, step, lane, to);
    }
}

// `m.together` whole rows, neighbours in one panel. What is left of them behind the last whole unit
// goes row by row.
static void take_rows(const rn_packer *p, method m, uint64_t row, uint64_t row_bytes,
                      const uint8_t *from) {
    uint64_t whole = row_bytes / m.form->file_bytes, done = whole * m.form->file_bytes;
    take_whole_units(p->panels.dtype, from, whole, row_bytes, (int)(row % RN_PANEL_ROWS),
                     first_unit(p, row));
    for (int r = 0; done < row_bytes && r < m.together; r++)
        take_row(p, m, row + (uint64_t)r, done, row_bytes, from + (uint64_t)r * row_bytes + done);
}

// All rows of an f32 panel: whole lines go out one after the other, past the caches, which have no
// use for a weight that will be multiplied later.
static void take_f32_panel(const rn_packer *p, uint64_t row, uint64_t row_bytes,
                           const uint8_t *from) {
    uint8_t *to = first_unit(p, row);
    uint64_t cols = row_bytes / sizeof(float), whole = cols & ~(uint64_t)3;
    for (uint64_t c = 0; c < whole; c += 4, from += 16, to += 256) {
        word4 unit[16]; // column c + i of all rows: unit[4 i .. 4 i + 3]
        for (int lane = 0; lane < RN_PANEL_ROWS; lane += 4)
            transpose_words(load_words(from + (uint64_t)lane * row_bytes),
                            load_words(from + (uint64_t)(lane + 1) * row_bytes),
                            load_words(from + (uint64_t)(lane + 2) * row_bytes),
                            load_words(from + (uint64_t)(lane + 3) * row_bytes), 0,
                            (uint8_t *)unit + 4 * lane);
        for (int i = 0; i < 16; i++)
            stream_words(to + 16 * i, unit[i]);
    }
    stream_end();
    for (uint64_t r = 0; whole < cols && r < RN_PANEL_ROWS; r++)
        take_row(p, method_of(RN_DTYPE_F32), row + r, whole * sizeof(float), row_bytes,
                 from + r * row_bytes);
}

static void take_data(const rn_packer *p, uint64_t offset, const uint8_t *from, uint64_t bytes) {
    method m = method_of(p->panels.dtype);
    uint64_t row_bytes = p->parts.bytes[RN_COMPONENT_DATA] / p->panels.rows;
    uint64_t group_bytes = row_bytes * (uint64_t)m.together, take;
    for (; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t row = offset / row_bytes, at = offset % row_bytes;
        take = row_bytes * RN_PANEL_ROWS;
        if (p->panels.dtype == RN_DTYPE_F32 && at == 0 && bytes >= take &&
            row % RN_PANEL_ROWS == 0) {
            take_f32_panel(p, row, row_bytes, from);
        } else if (at == 0 && bytes >= group_bytes && row % (uint64_t)m.together == 0) {
            take_rows(p, m, row, row_bytes, from);
            take = group_bytes;
        } else {
            take = rn_min_u64(row_bytes - at, bytes);
            take_row(p, m, row, at, at + take, from);
        }
    }
}

// Every byte has one place, so that threads may take parts of a piece: whole panels, where the
// piece begins with one.
typedef struct share {
    const rn_packer *packer;
    uint64_t offset, bytes, part_bytes;
    const uint8_t *from;
} share;

static void take_share(void *arg, size_t index) {
    const share *s = arg;
    uint64_t at = index * s->part_bytes;
    take_data(s->packer, s->offset + at, s->from + at, rn_min_u64(s->part_bytes, s->bytes - at));
}

static void share_data(const rn_packer *p, uint64_t offset, const uint8_t *from, uint64_t bytes) {
    enum { LEAST = 64 << 10 }; // worth a thread's while
    uint64_t panel = p->parts.bytes[RN_COMPONENT_DATA] / p->panels.rows * RN_PANEL_ROWS;
    share s = {p, offset, bytes, panel * rn_div_up(LEAST, panel), from};
    size_t count = rn_div_up(bytes, s.part_bytes);
    if (p->workers && count > 1)
        rn_workers_run(p->workers, count, take_share, &s);
    else
        take_data(p, offset, from, bytes);
}

// ---- int4 ---------------------------------------------------------------------------------------

// Where the nibbles of flat group g begin.
static uint8_t *nibbles_of(const rn_packer *p, uint64_t g) {
    uint64_t row = g / p->panels.units, unit = g % p->panels.units;
    return first_unit(p, row) + unit * p->panels.unit_bytes + RN_INT4_NIBBLES_AT +
           row % RN_PANEL_ROWS * 4;
}

static void put_nibble(uint8_t *nibbles, uint64_t k, uint8_t q) {
    uint8_t *byte = nibbles + k / 8 * 64 + k % 4;
    *byte = k % 8 < 4 ? q : (uint8_t)(*byte | q << 4);
}

// Eight nibbles, one a byte, to their word.
static uint32_t join_nibbles(uint64_t bytes) {
    return (uint32_t)bytes | (uint32_t)(bytes >> 32) << 4;
}

// Columns [k, end) of the groups `low` and `high` (NULL: there is none).
static void take_nibbles(uint8_t *low, uint8_t *high, uint64_t k, uint64_t end,
                         const uint8_t *from) {
    while (k < end) {
        if (k % 8 == 0 && end - k >= 8) {
            uint64_t bytes, mask = 0x0f0f0f0f0f0f0f0fu;
            memcpy(&bytes, from, sizeof bytes);
            uint32_t words[2] = {join_nibbles(bytes & mask), join_nibbles(bytes >> 4 & mask)};
            memcpy(low + k * 8, &words[0], sizeof words[0]);
            if (high) memcpy(high + k * 8, &words[1], sizeof words[1]);
            k += 8;
            from += 8;
        } else {
            put_nibble(low, k, *from & 15);
            if (high) put_nibble(high, k, *from >> 4);
            k++;
            from++;
        }
    }
}

// The low nibbles, or with `shift` 4 the high ones, of 32 columns, as four words.
static inline word4 join_32(const uint8_t *from, int shift) {
    word4 a = load_words(from) >> shift & 0x0f0f0f0f,
          b = load_words(from + 16) >> shift & 0x0f0f0f0f;
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) | __builtin_shufflevector(a, b, 1, 3, 5, 7)
                                                           << 4;
}

// A whole group (a multiple of 32 columns) of four neighbouring rows, low and high.
static void take_four_groups(uint8_t *low, uint8_t *high, uint64_t group, uint64_t step,
                             const uint8_t *from) {
    for (uint64_t k = 0; k < group; k += 32, from += 32, low += 256, high += 256)
        for (int shift = 0; shift <= 4; shift += 4)
            transpose_words(join_32(from, shift), join_32(from + step, shift),
                            join_32(from + 2 * step, shift), join_32(from + 3 * step, shift), 0,
                            shift ? high : low);
}

// The file's row i holds group i and group half + i. Four rows of the weight go at once where both
// of their fours are neighbours in a panel.
static void take_int4(const rn_packer *p, uint64_t offset, const uint8_t *from, uint64_t bytes) {
    uint64_t group = p->panels.unit_cols, units = p->panels.units;
    uint64_t groups = p->panels.rows * units, half = rn_div_up(groups, 2), take;
    uint64_t row_bytes = units * group; // of two of the weight's rows
    bool paired = group % 32 == 0 && groups % 2 == 0 && half % (4 * units) == 0;
    for (; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t g = offset / group, k = offset % group;
        if (paired && offset % (4 * row_bytes) == 0 && bytes >= 4 * row_bytes) {
            for (uint64_t u = 0; u < units; u++)
                take_four_groups(nibbles_of(p, g + u), nibbles_of(p, g + u + half), group,
                                 row_bytes, from + u * group);
            take = 4 * row_bytes;
            continue;
        }
        take = rn_min_u64(group - k, bytes);
        uint8_t *high = g + half < groups ? nibbles_of(p, g + half) : NULL;
        take_nibbles(nibbles_of(p, g), high, k, k + take, from);
    }
}

// ---- scales and shifts --------------------------------------------------------------------------

// Bytes [begin, end) of the floats of one row, one a unit.
static void take_units(const rn_packer *p, rn_component part, uint64_t row, uint64_t begin,
                       uint64_t end, const uint8_t *from) {
    uint8_t *to = p->target + row / RN_PANEL_ROWS * p->panels.panel_bytes +
                  row % RN_PANEL_ROWS * 4 + (part == RN_COMPONENT_SHIFT ? 64 : 0);
    to += begin / 4 * p->panels.unit_bytes;
    while (begin < end) {
        uint64_t at = begin % 4, take = rn_min_u64(4 - at, end - begin);
        if (take == 4)
            memcpy(to, from, 4);
        else
            memcpy(to + at, from, take);
        begin += take;
        from += take;
        to += begin % 4 == 0 ? p->panels.unit_bytes : 0;
    }
}

// nf4_dq: codes of absmax, in flat order; a byte of each unit of each row.
static void take_codes(const rn_packer *p, uint64_t block, const uint8_t *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++, block++) {
        uint64_t row = block / p->panels.units, unit = block % p->panels.units;
        first_unit(p, row)[unit * p->panels.unit_bytes + row % RN_PANEL_ROWS] = from[i];
    }
}

// Bytes [at, at + count) of float `index` of nf4_dq's scales of codes, to the heads of all panels
// that have such codes; behind the last scale comes the offset, for all.
static void take_nested(const rn_packer *p, uint64_t index, uint64_t at, const uint8_t *from,
                        uint64_t count) {
    const rn_panels *g = &p->panels;
    uint64_t blocks = RN_PANEL_ROWS * g->units, panel = 0, end = g->count;
    bool offset = (index + 1) * sizeof(float) == p->parts.bytes[RN_COMPONENT_SHIFT];
    if (!offset) {
        panel = index * RN_NF4_NESTED / blocks;
        end = rn_min_u64(end, rn_div_up((index + 1) * RN_NF4_NESTED, blocks));
    }
    for (; panel < end; panel++) {
        rn_nf4_dq_head *head = (rn_nf4_dq_head *)(void *)(p->target + panel * g->panel_bytes);
        float *to = offset ? &head->offset : &head->nested[index - panel * blocks / RN_NF4_NESTED];
        memcpy((uint8_t *)to + at, from, count);
    }
}

static void take_double(const rn_packer *p, rn_component part, uint64_t offset, const uint8_t *from,
                        uint64_t bytes) {
    if (part == RN_COMPONENT_SCALE) {
        take_codes(p, offset, from, bytes);
        return;
    }
    for (uint64_t take; bytes > 0; offset += take, from += take, bytes -= take) {
        take = rn_min_u64(sizeof(float) - offset % sizeof(float), bytes);
        take_nested(p, offset / sizeof(float), offset % sizeof(float), from, take);
    }
}

// int8 has one float a row, in the head, where the others' first unit is; int4 and nf4 one a unit.
static void take_floats(const rn_packer *p, rn_component part, uint64_t offset, const uint8_t *from,
                        uint64_t bytes) {
    uint64_t row_bytes = p->panels.dtype == RN_DTYPE_INT8 ? 4 : 4 * p->panels.units;
    for (uint64_t take; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t at = offset % row_bytes;
        take = rn_min_u64(row_bytes - at, bytes);
        take_units(p, part, offset / row_bytes, at, at + take, from);
    }
}

// ---- the packer ---------------------------------------------------------------------------------

// What no piece writes: lanes without a row, columns behind the last, the rest of 64 bytes.
static void clear_padding(const rn_packer *p) {
    const rn_panels *g = &p->panels;
    uint64_t begin = g->head_bytes + (g->units - 1) * g->unit_bytes;
    bool partial =
        g->cols % g->unit_cols != 0 || (g->dtype == RN_DTYPE_INT4 && g->unit_cols % 8 != 0);
    if (!partial) begin = g->head_bytes + g->units * g->unit_bytes;
    if (g->rows % RN_PANEL_ROWS != 0)
        memset(p->target + (g->count - 1) * g->panel_bytes, 0, g->panel_bytes);
    for (uint64_t i = 0; i < g->count && begin < g->panel_bytes; i++)
        memset(p->target + i * g->panel_bytes + begin, 0, g->panel_bytes - begin);
}

static void begin_heads(const rn_packer *p) {
    const rn_panels *g = &p->panels;
    for (uint64_t i = 0; i < g->count; i++) {
        rn_nf4_dq_head *head = (rn_nf4_dq_head *)(void *)(p->target + i * g->panel_bytes);
        memset(head, 0, g->head_bytes);
        head->phase = (uint32_t)(i * RN_PANEL_ROWS * g->units % RN_NF4_NESTED);
        head->units = (uint32_t)g->units;
        head->bytes = (uint32_t)g->head_bytes;
    }
}

rn_status rn_packer_begin(rn_packer *p, rn_dtype dtype, uint64_t rows, uint64_t cols,
                          void *target) {
    uint64_t bytes;
    *p = (rn_packer){.target = target};
    if (!rn_panels_of(dtype, rows, cols, &p->panels) ||
        !rn_panels_bytes(dtype, rows, cols, &bytes) ||
        !rn_plain_components_of(dtype, rows, cols, &p->parts))
        return rn_fail(RN_INVALID, "a weight (%llu, %llu) of %s has no panels",
                       (unsigned long long)rows, (unsigned long long)cols,
                       rn_dtype_get(dtype)->name);
    if (bytes > 0) clear_padding(p);
    if (dtype == RN_DTYPE_NF4_DQ) begin_heads(p);
    return RN_OK;
}

rn_status rn_packer_take(rn_packer *p, rn_component part, uint64_t offset, const void *data,
                         uint64_t bytes) {
    if ((unsigned)part >= RN_COMPONENT_COUNT || offset != p->done[part] ||
        bytes > p->parts.bytes[part] - offset)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    if (bytes == 0) return RN_OK;
    p->done[part] += bytes;
    if (part != RN_COMPONENT_DATA && p->panels.dtype == RN_DTYPE_NF4_DQ)
        take_double(p, part, offset, data, bytes);
    else if (part != RN_COMPONENT_DATA)
        take_floats(p, part, offset, data, bytes);
    else if (p->panels.dtype == RN_DTYPE_INT4)
        take_int4(p, offset, data, bytes);
    else
        share_data(p, offset, data, bytes);
    return RN_OK;
}

bool rn_packer_is_done(const rn_packer *p) {
    return memcmp(p->done, p->parts.bytes, sizeof p->done) == 0;
}

// ---- the layout ---------------------------------------------------------------------------------

_Static_assert(sizeof(rn_packer) <= sizeof(rn_packer_room), "a packer has room");

static rn_packer *packer_in(rn_packer_room *room) {
    return (rn_packer *)(void *)room;
}

static rn_status begin(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target) {
    rn_packer *p = packer_in(room);
    if (rank != 2) return rn_fail(RN_INVALID, "panels are for matrices");
    RN_TRY(rn_packer_begin(p, dtype, dims[0], dims[1], target));
    p->workers = workers;
    return RN_OK;
}

static rn_status take(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes) {
    return rn_packer_take(packer_in(room), part, offset, data, bytes);
}

static uint64_t rows_together(rn_dtype dtype) {
    (void)dtype;
    return RN_PANEL_ROWS;
}

const rn_layout_info rn_panels_layout = {
    .name = "panels",
    .bytes = rn_panels_bytes,
    .begin = begin,
    .take = take,
    .rows_together = rows_together,
    .takes_plain = true,
};
