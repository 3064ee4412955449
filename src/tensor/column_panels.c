// column_panels.c — every byte of the file has its place; floats go in runs of up to 16 columns,
// bytes four rows at a time where a piece has them whole.
#include "tensor/column_panels.h"

#include "base/checked.h"

#include <string.h>

enum { LANES = 16, GROUP = 4, LINE = 64 };

static bool is_byte(rn_dtype dtype) {
    return dtype == RN_DTYPE_I8 || dtype == RN_DTYPE_U8;
}

bool rn_column_panels_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_column_panels *out) {
    uint64_t depth = 0, bytes = 0;
    *out = (rn_column_panels){.dtype = dtype, .rows = rows, .cols = cols};
    if (dtype != RN_DTYPE_F32 && !is_byte(dtype)) return false;
    out->count = rn_div_up(cols, LANES);
    out->head_bytes = is_byte(dtype) ? LANES * sizeof(int32_t) : 0;
    if (!rn_align_u64(rows, is_byte(dtype) ? RN_BYTE_DEPTH : 1, &depth)) return false;
    return rn_mul_u64(depth, is_byte(dtype) ? LANES : LINE, &bytes) &&
           rn_add_u64(bytes, out->head_bytes, &out->panel_bytes) &&
           rn_mul_u64(out->panel_bytes, out->count, &bytes);
}

// ---- bytes --------------------------------------------------------------------------------------

// Four rows of 16 columns.
static void put_group(const uint8_t *from, uint64_t step, uint8_t flip, uint8_t *to,
                      uint32_t *sums) {
    for (int j = 0; j < LANES; j++) {
        uint8_t a = from[j] ^ flip, b = from[step + (uint64_t)j] ^ flip;
        uint8_t c = from[2 * step + (uint64_t)j] ^ flip, d = from[3 * step + (uint64_t)j] ^ flip;
        to[4 * j] = a, to[4 * j + 1] = b, to[4 * j + 2] = c, to[4 * j + 3] = d;
        sums[j] += (uint32_t)((int8_t)a + (int8_t)b + (int8_t)c + (int8_t)d);
    }
}

static void put_byte(uint8_t byte, uint64_t k, uint32_t lane, uint8_t *to, uint32_t *sums) {
    to[k / GROUP * LINE + lane * GROUP + k % GROUP] = byte;
    sums[lane] += (uint32_t)(int8_t)byte;
}

void rn_byte_panel_pack(const uint8_t *from, uint64_t step, uint64_t rows, uint32_t count,
                        uint8_t flip, void *panel) {
    uint32_t *sums = panel;
    uint8_t *to = (uint8_t *)panel + LANES * sizeof(int32_t);
    uint64_t whole = count == LANES ? rn_round_down(rows, GROUP) : 0;
    uint64_t depth = rn_round_up(rows, RN_BYTE_DEPTH);
    memset(sums, 0, LANES * sizeof(int32_t));
    memset(to + whole * LANES, 0, (depth - whole) * LANES);
    for (uint64_t k = 0; k < whole; k += GROUP)
        put_group(from + k * step, step, flip, to + k * LANES, sums);
    for (uint64_t k = whole; k < rows; k++)
        for (uint32_t j = 0; j < count; j++)
            put_byte(from[k * step + j] ^ flip, k, j, to, sums);
}

// ---- from a file's bytes ------------------------------------------------------------------------

typedef struct packer {
    rn_column_panels panels;
    uint8_t *target;
    uint64_t row_bytes, done, total; // bytes of a row, taken, of the file's tensor
    rn_workers *workers;
} packer;
_Static_assert(sizeof(packer) <= sizeof(rn_packer_room), "a layout's packer fits its room");

static void take_floats(const packer *p, uint64_t offset, const uint8_t *from, uint64_t bytes) {
    for (uint64_t take; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t k = offset / p->row_bytes, at = offset % p->row_bytes;
        take = rn_min_u64(rn_min_u64(LINE - at % LINE, p->row_bytes - at), bytes);
        memcpy(p->target + at / LINE * p->panels.panel_bytes + k * LINE + at % LINE, from, take);
    }
}

// Four whole rows, the first a multiple of four.
static void take_group(const packer *p, uint64_t k, const uint8_t *from, uint8_t flip) {
    uint64_t cols = p->panels.cols, whole = rn_round_down(cols, LANES);
    uint8_t *panel = p->target;
    for (uint64_t j = 0; j < whole; j += LANES, panel += p->panels.panel_bytes)
        put_group(from + j, cols, flip, panel + p->panels.head_bytes + k * LANES,
                  (uint32_t *)(void *)panel);
    for (uint64_t j = whole; j < cols; j++)
        for (uint64_t i = 0; i < GROUP; i++)
            put_byte(from[i * cols + j] ^ flip, k + i, (uint32_t)(j - whole),
                     panel + p->panels.head_bytes, (uint32_t *)(void *)panel);
}

static void take_bytes(const packer *p, uint64_t offset, const uint8_t *from, uint64_t bytes) {
    uint64_t cols = p->panels.cols, take;
    uint8_t flip = p->panels.dtype == RN_DTYPE_U8 ? 0x80 : 0;
    for (; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t k = offset / cols, at = offset % cols;
        take = GROUP * cols;
        if (at == 0 && k % GROUP == 0 && bytes >= take) {
            take_group(p, k, from, flip);
            continue;
        }
        take = rn_min_u64(cols - at, bytes);
        for (uint64_t j = at; j < at + take; j++) {
            uint8_t *panel = p->target + j / LANES * p->panels.panel_bytes;
            put_byte(from[j - at] ^ flip, k, (uint32_t)(j % LANES), panel + p->panels.head_bytes,
                     (uint32_t *)(void *)panel);
        }
    }
}

// Every float has one place, so that threads may take parts of a piece; sums of bytes are one
// thread's.
typedef struct share {
    const packer *packer;
    uint64_t offset, bytes;
    const uint8_t *from;
} share;

enum { PART_BYTES = 256 << 10 };

static void take_share(void *arg, size_t index) {
    const share *s = arg;
    uint64_t at = index * PART_BYTES;
    take_floats(s->packer, s->offset + at, s->from + at, rn_min_u64(PART_BYTES, s->bytes - at));
}

static packer *packer_in(rn_packer_room *room) {
    return (packer *)(void *)room;
}

static rn_status take(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes) {
    packer *p = packer_in(room);
    (void)part; // there is one
    if (offset != p->done || bytes > p->total - offset)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    p->done += bytes;
    if (is_byte(p->panels.dtype)) {
        take_bytes(p, offset, data, bytes);
    } else if (p->workers && bytes > PART_BYTES) {
        share s = {p, offset, bytes, data};
        rn_workers_run(p->workers, (size_t)rn_div_up(bytes, PART_BYTES), take_share, &s);
    } else {
        take_floats(p, offset, data, bytes);
    }
    return RN_OK;
}

// ---- the layout ---------------------------------------------------------------------------------

static bool count_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    rn_column_panels panels;
    *out_bytes = 0;
    if (!rn_column_panels_of(dtype, rows, cols, &panels)) return false;
    *out_bytes = panels.panel_bytes * panels.count;
    return true;
}

// Clears what no piece will write, and sums.
static rn_status begin(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target) {
    packer *p = packer_in(room);
    *p = (packer){.target = target, .workers = workers};
    if (rank != 2 || !rn_column_panels_of(dtype, dims[0], dims[1], &p->panels))
        return rn_fail(RN_INVALID, "panels of columns are for f32, i8 and u8 (K, N)");
    const rn_column_panels *of = &p->panels;
    p->row_bytes = of->cols * (is_byte(dtype) ? 1 : sizeof(float));
    p->total = of->rows * p->row_bytes;
    uint64_t filled = rn_round_down(of->rows, RN_BYTE_DEPTH) * LANES;
    for (uint64_t i = 0; is_byte(dtype) && i < of->count; i++) {
        uint8_t *panel = target + i * of->panel_bytes;
        memset(panel, 0, of->head_bytes);
        memset(panel + of->head_bytes + filled, 0, of->panel_bytes - of->head_bytes - filled);
    }
    if (of->cols % LANES) memset(target + (of->count - 1) * of->panel_bytes, 0, of->panel_bytes);
    return RN_OK;
}

const rn_layout_info rn_column_panels_layout = {
    .name = "column panels",
    .bytes = count_bytes,
    .begin = begin,
    .take = take,
    .takes_plain = true,
};
