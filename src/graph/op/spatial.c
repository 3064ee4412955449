// spatial.c — see spatial.h.
#include "graph/op/spatial.h"

#include "base/checked.h"

#include <stdio.h>

static uint64_t or_one(uint64_t value) {
    return value ? value : 1;
}

rn_status rn_spatial_want_image(const rn_shaping *s, uint32_t input) {
    rn_shape x = s->in[input].shape;
    RN_TRY(rn_shape_want_number(s, input));
    if (x.rank < 3 || x.rank > 2 + RN_MAX_SPATIAL)
        return rn_shape_fail(s, "an image is (N, S..., C) with 1 to 3 spatial axes");
    return RN_OK;
}

// Windows along one axis; false where none fits or something overflows.
static bool count_windows(uint64_t length, const rn_spatial_windows *w, uint32_t i, uint64_t *out) {
    uint64_t reach, padded, stride = or_one(w->stride[i]);
    if (w->size[i] == 0 || !rn_mul_u64(or_one(w->dilation[i]), w->size[i] - 1, &reach) ||
        !rn_add_u64(length, (uint64_t)w->pad_before[i] + w->pad_after[i], &padded) || padded < 1 ||
        reach > padded - 1)
        return false;
    uint64_t room = padded - 1 - reach;
    *out = room / stride + 1;
    if (w->ceil && room % stride && *out * stride < length + w->pad_before[i]) ++*out;
    return true;
}

rn_status rn_spatial_shape(const rn_shaping *s, rn_shape image, const rn_spatial_windows *windows,
                           uint64_t channels, rn_shape *out) {
    *out = image;
    for (uint32_t i = 0; i + 2 < image.rank; i++)
        if (!count_windows(image.dims[1 + i], windows, i, &out->dims[1 + i]))
            return rn_shape_fail(s, "windows of %llu do not fit into spatial axis %u",
                                 (unsigned long long)windows->size[i], i);
    out->dims[image.rank - 1] = channels;
    return RN_OK;
}

rn_spatial rn_spatial_of(rn_shape image, rn_shape made, const rn_spatial_windows *windows) {
    rn_spatial s = {.rank = image.rank - 2,
                    .n = image.dims[0],
                    .in_channels = image.dims[image.rank - 1],
                    .out_channels = made.dims[made.rank - 1]};
    for (uint32_t i = 0; i < RN_MAX_SPATIAL; i++) {
        bool has = i < s.rank;
        s.in[i] = has ? image.dims[1 + i] : 1;
        s.out[i] = has ? made.dims[1 + i] : 1;
        s.size[i] = has ? windows->size[i] : 1;
        s.stride[i] = has ? or_one(windows->stride[i]) : 1;
        s.dilation[i] = has ? or_one(windows->dilation[i]) : 1;
        s.before[i] = has ? windows->pad_before[i] : 0;
    }
    return s;
}

bool rn_spatial_find(const rn_spatial *s, const uint64_t at[RN_MAX_SPATIAL], uint64_t element,
                     uint64_t *out_pixel) {
    uint64_t pixel = 0, factor = 1;
    for (uint32_t i = RN_MAX_SPATIAL; i-- > 0;) {
        uint64_t place = at[i] * s->stride[i] + element % s->size[i] * s->dilation[i];
        if (place < s->before[i] || place - s->before[i] >= s->in[i]) return false;
        pixel += (place - s->before[i]) * factor;
        factor *= s->in[i];
        element /= s->size[i];
    }
    *out_pixel = pixel;
    return true;
}

void rn_spatial_place(const rn_spatial *s, uint64_t i, uint64_t at[RN_MAX_SPATIAL]) {
    for (uint32_t axis = RN_MAX_SPATIAL; axis-- > 0;) {
        at[axis] = i % s->out[axis];
        i /= s->out[axis];
    }
}

uint64_t rn_spatial_pixels(const uint64_t axes[RN_MAX_SPATIAL]) {
    return axes[0] * axes[1] * axes[2];
}

void rn_spatial_print(const uint32_t *stride, const uint32_t *dilation, char *out, size_t bytes) {
    snprintf(out, bytes, "stride %u %u %u, dilation %u %u %u", stride[0], stride[1], stride[2],
             dilation[0], dilation[1], dilation[2]);
}
