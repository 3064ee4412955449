// conv_panels.c — each float of the file has its place; whole floats go by rows, the ends of odd
// pieces byte by byte.
#include "tensor/conv_panels.h"

#include "base/checked.h"

#include <string.h>

enum { LANES = 16 };

bool rn_conv_panels_bytes(uint64_t outputs, uint64_t channels, uint64_t taps, uint64_t *out_bytes) {
    uint64_t depth = 0, rows = 0;
    *out_bytes = 0;
    return rn_mul_u64(channels, taps, &depth) && rn_mul_u64(depth, sizeof(float), &depth) &&
           rn_align_u64(outputs, LANES, &rows) && rn_mul_u64(rows, depth, out_bytes);
}

rn_status rn_conv_packer_begin(rn_conv_packer *p, uint64_t outputs, uint64_t channels,
                               uint64_t taps, void *target) {
    uint64_t bytes;
    *p = (rn_conv_packer){outputs, channels, taps, target, 0, 0};
    if (!rn_conv_panels_bytes(outputs, channels, taps, &bytes))
        return rn_fail(RN_INVALID, "a convolution of %llu outputs, %llu channels is too large",
                       (unsigned long long)outputs, (unsigned long long)channels);
    uint64_t panel = LANES * channels * taps * sizeof(float);
    p->total = outputs * channels * taps * sizeof(float);
    if (outputs % LANES && panel) memset(p->target + bytes - panel, 0, panel);
    return RN_OK;
}

// Byte of the target where float `index` of the file begins.
static uint64_t place_of(const rn_conv_packer *p, uint64_t index) {
    uint64_t depth = p->channels * p->taps, output = index / depth, at = index % depth;
    uint64_t k = at % p->taps * p->channels + at / p->taps;
    return ((output / LANES * depth + k) * LANES + output % LANES) * sizeof(float);
}

// Whole floats from one place in a channel to the end of it, or of the piece.
static uint64_t take_taps(const rn_conv_packer *p, uint64_t index, const uint8_t *from,
                          uint64_t floats) {
    uint64_t count = rn_min_u64(p->taps - index % p->taps, floats);
    uint64_t step = p->channels * LANES * sizeof(float);
    uint8_t *to = p->target + place_of(p, index);
    for (uint64_t i = 0; i < count; i++, to += step)
        memcpy(to, from + i * sizeof(float), sizeof(float));
    return count;
}

rn_status rn_conv_packer_take(rn_conv_packer *p, uint64_t offset, const void *data,
                              uint64_t bytes) {
    const uint8_t *from = data;
    if (offset != p->done || bytes > p->total - offset)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    for (uint64_t take; bytes > 0; offset += take, from += take, bytes -= take) {
        uint64_t part = offset % sizeof(float);
        if (part == 0 && bytes >= sizeof(float)) {
            take =
                take_taps(p, offset / sizeof(float), from, bytes / sizeof(float)) * sizeof(float);
        } else {
            take = rn_min_u64(sizeof(float) - part, bytes);
            memcpy(p->target + place_of(p, offset / sizeof(float)) + part, from, take);
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
    return dtype == RN_DTYPE_F32 && rn_conv_panels_bytes(rows, cols, 1, out_bytes);
}

static rn_conv_packer *packer_in(rn_packer_room *room) {
    return (rn_conv_packer *)(void *)room;
}

static rn_status begin(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target) {
    (void)workers;
    if (dtype != RN_DTYPE_F32 || rank != 4)
        return rn_fail(RN_INVALID, "a convolution's panels are for f32 (O, C, KH, KW)");
    return rn_conv_packer_begin(packer_in(room), dims[0], dims[1], dims[2] * dims[3], target);
}

static rn_status take(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes) {
    (void)part; // f32 has one
    return rn_conv_packer_take(packer_in(room), offset, data, bytes);
}

const rn_layout_info rn_conv_panels_layout = {
    .name = "conv panels",
    .bytes = count_bytes,
    .begin = begin,
    .take = take,
};
