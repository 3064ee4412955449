// conv_panels.c — each number of the file has its place; whole ones go by rows, the ends of odd
// pieces byte by byte.
#include "tensor/conv_panels.h"

#include "base/checked.h"

#include <string.h>

enum { LANES = 16 };

static uint64_t width_of(rn_dtype dtype) {
    if (dtype == RN_DTYPE_F32) return sizeof(float);
    return dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16 ? sizeof(uint16_t) : 0;
}

bool rn_conv_panels_bytes(rn_dtype dtype, uint64_t outputs, uint64_t channels, uint64_t taps,
                          uint64_t *out_bytes) {
    uint64_t depth = 0, rows = 0, width = width_of(dtype);
    *out_bytes = 0;
    return width > 0 && rn_mul_u64(channels, taps, &depth) && rn_mul_u64(depth, width, &depth) &&
           rn_align_u64(outputs, LANES, &rows) && rn_mul_u64(rows, depth, out_bytes);
}

rn_status rn_conv_packer_begin(rn_conv_packer *p, rn_dtype dtype, uint64_t outputs,
                               uint64_t channels, uint64_t taps, void *target) {
    uint64_t bytes, width = width_of(dtype);
    *p = (rn_conv_packer){outputs, channels, taps, width, target, 0, 0};
    if (!rn_conv_panels_bytes(dtype, outputs, channels, taps, &bytes))
        return rn_fail(RN_INVALID, "a convolution of %llu outputs, %llu channels is too large",
                       (unsigned long long)outputs, (unsigned long long)channels);
    uint64_t panel = LANES * channels * taps * width;
    p->total = outputs * channels * taps * width;
    if (outputs % LANES && panel) memset(p->target + bytes - panel, 0, panel);
    return RN_OK;
}

// Byte of the target where number `index` of the file begins.
static uint64_t place_of(const rn_conv_packer *p, uint64_t index) {
    uint64_t depth = p->channels * p->taps, output = index / depth, at = index % depth;
    uint64_t k = at % p->taps * p->channels + at / p->taps;
    return ((output / LANES * depth + k) * LANES + output % LANES) * p->width;
}

// Taps of a channel; a width that is known lets the compiler move a number at once.
static inline void move_taps(uint8_t *to, uint64_t step, const uint8_t *from, uint64_t count,
                             uint64_t width) {
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * step, from + i * width, width);
}

// Whole numbers from one place in an output to the end of it, or of the piece.
static uint64_t take_numbers(const rn_conv_packer *p, uint64_t index, const uint8_t *from,
                             uint64_t numbers) {
    uint64_t depth = p->channels * p->taps, width = p->width;
    uint64_t step = p->channels * LANES * width;
    uint64_t count = rn_min_u64(depth - index % depth, numbers);
    uint8_t *to = p->target + place_of(p, index);
    uint64_t tap = index % p->taps;
    for (uint64_t done = 0, some; done < count; done += some, from += some * width) {
        some = rn_min_u64(p->taps - tap, count - done);
        if (width == sizeof(float))
            move_taps(to, step, from, some, sizeof(float));
        else
            move_taps(to, step, from, some, sizeof(uint16_t));
        to += LANES * width;
        to -= tap * step; // the next channel begins at its first tap
        tap = 0;
    }
    return count;
}

rn_status rn_conv_packer_take(rn_conv_packer *p, uint64_t offset, const void *data,
                              uint64_t bytes) {
    const uint8_t *from = data;
    if (offset != p->done || bytes > p->total - offset)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    for (uint64_t take; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t width = p->width, part = offset % width;
        if (part == 0 && bytes >= width) {
            take = take_numbers(p, offset / width, from, bytes / width) * width;
        } else {
            take = rn_min_u64(width - part, bytes);
            memcpy(p->target + place_of(p, offset / width) + part, from, take);
        }
    }
    p->done = offset;
    return RN_OK;
}

bool rn_conv_packer_is_done(const rn_conv_packer *p) {
    return p->done == p->total;
}

// ---- the layout ---------------------------------------------------------------------------------

static bool count_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    return rn_conv_panels_bytes(dtype, rows, cols, 1, out_bytes);
}

static rn_conv_packer *packer_in(rn_packer_room *room) {
    return (rn_conv_packer *)(void *)room;
}

static rn_status begin(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target) {
    (void)workers;
    if (width_of(dtype) == 0 || rank != 4)
        return rn_fail(RN_INVALID,
                       "a convolution's panels are for f32, f16 or bf16 (O, C, KH, KW)");
    return rn_conv_packer_begin(packer_in(room), dtype, dims[0], dims[1], dims[2] * dims[3],
                                target);
}

static rn_status take(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes) {
    (void)part; // there is one
    return rn_conv_packer_take(packer_in(room), offset, data, bytes);
}

const rn_layout_info rn_conv_panels_layout = {
    .name = "conv panels",
    .bytes = count_bytes,
    .begin = begin,
    .take = take,
};
