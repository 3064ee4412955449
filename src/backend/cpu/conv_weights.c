// conv_weights.c — transposes 16 lanes of a few k's in registers, then moves the vectors to where
// the order of taps wants them.
//
// In the file the taps of a (output, channel) pair are neighbours; in a panel, channels (or
// outputs) of a tap are.
#include "backend/cpu/conv_weights.h"

#include "backend/cpu/tile.h"
#include "base/checked.h"

#include <string.h>

enum { DEPTH = 128 }; // k's that are transposed at once

typedef struct lanes {
    const rn_tile_set *set;
    float packed[DEPTH * RN_PANEL];  // [k][16]
    float widened[DEPTH * RN_PANEL]; // [lane][k]
} lanes;

// Elements at + lane * step + [0, depth) of w, for `count` lanes, into `packed`.
static void load(lanes *l, const rn_tensor *w, size_t at, size_t step, uint32_t count,
                 size_t depth) {
    const float *from = w->data;
    if (w->dtype == RN_DTYPE_F32) {
        from += at;
    } else {
        const uint16_t *halves = (const uint16_t *)w->data + at;
        for (uint32_t lane = 0; lane < count; lane++)
            (void)!rn_dtype_to_f32(w->dtype, halves + lane * step, l->widened + lane * depth,
                                   depth);
        from = l->widened;
        step = depth;
    }
    rn_tile_pack(l->set, from, step, 1, count, depth, l->packed, RN_PANEL);
}

// Where tap (h, w) stands among the wanted ones along an axis, or `count`.
static size_t place_on_axis(ptrdiff_t tap, ptrdiff_t first, ptrdiff_t step, size_t count) {
    ptrdiff_t distance = tap - first;
    if (distance % step != 0 || distance / step < 0) return count;
    return distance / step < (ptrdiff_t)count ? (size_t)(distance / step) : count;
}

// Its number among all wanted taps; SIZE_MAX where it is not wanted.
static size_t place_of_tap(const rn_conv_weights *s, size_t tap) {
    const rn_conv_taps *t = &s->taps;
    ptrdiff_t wide = (ptrdiff_t)s->w->shape.dims[3];
    size_t i = place_on_axis((ptrdiff_t)tap / wide, t->first_h, t->step_h, t->count_h);
    size_t j = place_on_axis((ptrdiff_t)tap % wide, t->first_w, t->step_w, t->count_w);
    return i < t->count_h && j < t->count_w ? i * t->count_w + j : SIZE_MAX;
}

typedef struct packing {
    const rn_conv_weights *weights;
    const rn_tile_set *set;
    size_t outputs, channels, taps;
} packing;

// The 16 lanes' k's [at, at + depth) of the file go where (tap, rank) say; rank is the channel or
// output within a tap.
static void place(const packing *p, const lanes *l, size_t tap, size_t rank, size_t depth,
                  float *panel) {
    size_t ranks = p->weights->by_channel ? p->outputs : p->channels;
    for (size_t k = 0; k < depth; k++) {
        size_t to = place_of_tap(p->weights, tap);
        if (to != SIZE_MAX)
            memcpy(panel + (to * ranks + rank) * RN_PANEL, l->packed + k * RN_PANEL,
                   RN_PANEL * sizeof(float));
        if (++tap == p->taps) tap = 0, rank++;
    }
}

// Lanes are channels: for each output, their taps.
static void pack_by_channel(const packing *p, lanes *l, size_t channel, uint32_t count,
                            float *panel) {
    for (size_t output = 0; output < p->outputs; output++)
        for (size_t tap = 0; tap < p->taps; tap += DEPTH) {
            size_t depth = rn_min_u64(p->taps - tap, DEPTH);
            load(l, p->weights->w, (output * p->channels + channel) * p->taps + tap, p->taps, count,
                 depth);
            place(p, l, tap, output, depth, panel);
        }
}

// Lanes are outputs: their whole rows, channel by channel.
static void pack_by_output(const packing *p, lanes *l, size_t output, uint32_t count,
                           float *panel) {
    size_t row = p->channels * p->taps;
    for (size_t k = 0; k < row; k += DEPTH) {
        size_t depth = rn_min_u64(row - k, DEPTH);
        load(l, p->weights->w, output * row + k, row, count, depth);
        place(p, l, k % p->taps, k / p->taps, depth, panel);
    }
}

static size_t panel_depth(const rn_conv_weights *s) {
    return s->taps.count_h * s->taps.count_w * s->w->shape.dims[s->by_channel ? 0 : 1];
}

static void pack_panel(void *arg, size_t index) {
    const packing *p = arg;
    const rn_conv_weights *s = p->weights;
    size_t lane = index * RN_PANEL;
    uint32_t count = (uint32_t)rn_min_u64(s->count - lane, RN_PANEL);
    float *panel = s->panels + lane * panel_depth(s);
    lanes l;
    l.set = p->set;
    if (s->by_channel)
        pack_by_channel(p, &l, s->first + lane, count, panel);
    else
        pack_by_output(p, &l, s->first + lane, count, panel);
}

uint64_t rn_conv_weights_floats(const rn_conv_weights *s) {
    return rn_round_up(s->count, RN_PANEL) * panel_depth(s);
}

void rn_conv_weights_pack(const rn_conv_weights *s, const rn_call *call) {
    const rn_shape *w = &s->w->shape;
    packing p = {s, rn_tile_set_get(), w->dims[0], w->dims[1], w->dims[2] * w->dims[3]};
    rn_call_each(call, (size_t)rn_div_up(s->count, RN_PANEL), pack_panel, &p);
}
