// conv_channels.c — each number of the file has its place; the ends of odd pieces go byte by byte.
#include "tensor/conv_channels.h"

#include "base/checked.h"

#include <string.h>

enum { WIDTH = sizeof(uint16_t) };

static bool count_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    *out_bytes = 0;
    return (dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16) && rn_mul_u64(rows, cols, out_bytes) &&
           rn_mul_u64(*out_bytes, WIDTH, out_bytes);
}

static rn_channels_packer *packer_in(rn_packer_room *room) {
    return (rn_channels_packer *)(void *)room;
}

static rn_status begin(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims, uint32_t rank,
                       rn_workers *workers, uint8_t *target) {
    rn_channels_packer *p = packer_in(room);
    uint64_t cols = 0;
    (void)workers;
    *p = (rn_channels_packer){.target = target};
    if (rank != 4 || !rn_mul_u64(dims[2], dims[3], &p->taps) ||
        !rn_mul_u64(dims[1], p->taps, &cols) || !count_bytes(dtype, dims[0], cols, &p->total))
        return rn_fail(RN_INVALID, "channels last are for f16 and bf16 (O, C, KH, KW)");
    p->channels = dims[1];
    return RN_OK;
}

// Byte of the target where number `index` of the file begins.
static uint64_t place_of(const rn_channels_packer *p, uint64_t index) {
    uint64_t tap = index % p->taps, channel = index / p->taps % p->channels;
    uint64_t output = index / p->taps / p->channels;
    return ((output * p->taps + tap) * p->channels + channel) * WIDTH;
}

// Whole numbers from one place in a channel to the end of it, or of the piece.
static uint64_t take_taps(const rn_channels_packer *p, uint64_t index, const uint8_t *from,
                          uint64_t numbers) {
    uint64_t count = rn_min_u64(p->taps - index % p->taps, numbers);
    uint8_t *to = p->target + place_of(p, index);
    for (uint64_t i = 0; i < count; i++, to += p->channels * WIDTH)
        memcpy(to, from + i * WIDTH, WIDTH);
    return count;
}

static rn_status take(rn_packer_room *room, rn_component part, uint64_t offset, const void *data,
                      uint64_t bytes) {
    rn_channels_packer *p = packer_in(room);
    const uint8_t *from = data;
    (void)part; // there is one
    if (offset != p->done || bytes > p->total - offset)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    for (uint64_t some; bytes > 0; offset += some, from += some, bytes -= some) {
        uint64_t odd = offset % WIDTH;
        if (odd == 0 && bytes >= WIDTH) {
            some = take_taps(p, offset / WIDTH, from, bytes / WIDTH) * WIDTH;
        } else {
            some = rn_min_u64(WIDTH - odd, bytes);
            memcpy(p->target + place_of(p, offset / WIDTH) + odd, from, some);
        }
    }
    p->done = offset;
    return RN_OK;
}

const rn_layout_info rn_conv_channels_layout = {
    .name = "channels last",
    .bytes = count_bytes,
    .begin = begin,
    .take = take,
};
