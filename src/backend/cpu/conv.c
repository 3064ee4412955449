// conv.c — tasks are bands: a few rows of outputs of one image by some of the output channels.
//
//     copy the rows of x that the band sees, with padding, unless x can be read as it is
//     for each 32 output channels, for each chunk of k: all tiles of the band
//
// Panels of 16 bits are widened a chunk at a time. Small images are taken some together, so that a
// chunk is read (and widened) once for all of them.
//
// A chunk of a panel stays in the first cache while the tiles of the band pass by. A tile's rows
// are neighbouring pixels; where the width leaves just half a tile, the halves of two rows make
// one.
#include "backend/cpu/conv.h"

#include "backend/cpu/share.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/winograd.h"
#include "base/checked.h"

#include <string.h>

enum {
    CHUNK = 512,            // k's of a chunk, about: deeper means fewer visits to y
    COPY_BYTES = 192 << 10, // of a band, about: part of the second cache
    TILES = 8,              // that a band has at least, where the image has them
    HEAD_BYTES = 64,        // of a slot: which band its copy holds
    PIXELS = 96,            // that a chunk of a panel serves at least, where there are as many
};

typedef struct plan {
    size_t pixel, row;    // floats of A from pixel to pixel, from row to row
    bool copy;            // into the slot; else x is read as it is
    size_t band, bands;   // rows of outputs in a band, bands in an image
    size_t strip, strips; // tiles of output channels in a task, tasks for all
    size_t some, groups;  // images that are taken together, groups of them
    uint64_t copy_bytes;  // of a band of an image
    uint64_t slot_bytes;  // head, copies, a chunk of widened panels
} plan;

typedef struct job {
    const rn_conv *conv;
    const rn_tile_set *set;
    plan plan;
    char *workspace; // (threads, slot_bytes)
} job;

// ---- sizes --------------------------------------------------------------------------------------

static bool is_widened(const rn_conv *c) {
    return c->dtype == RN_DTYPE_F16 || c->dtype == RN_DTYPE_BF16;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t seen_rows(const rn_conv *c, size_t rows) {
    return (rows - 1) * c->stride_h + c->taps_h;
}

static size_t seen_cols(const rn_conv *c) {
    return (c->cols - 1) * c->stride_w + c->taps_w;
}

static bool has_padding(const rn_conv *c) {
    return c->top > 0 || c->left > 0 ||
           (ptrdiff_t)seen_rows(c, c->rows) - c->top > (ptrdiff_t)c->height ||
           (ptrdiff_t)seen_cols(c) - c->left > (ptrdiff_t)c->width;
}

// Pixels a multiple of 4 KiB apart fall onto the same few lines of the first cache.
static bool has_conflict(const rn_conv *c) {
    return c->stride_w * c->channels * sizeof(float) % 4096 == 0;
}

static void choose_band(const rn_conv *c, const rn_tile_set *set, uint32_t threads, plan *p) {
    size_t tiles = (size_t)rn_div_up(c->cols, set->rows), line = p->row * sizeof(float);
    size_t fit = line ? COPY_BYTES / line : c->rows;
    p->band = 1;
    if (fit > c->taps_h) p->band = least((fit - c->taps_h) / c->stride_h + 1, c->rows);
    // However deep: of a long pixel a chunk sees a part at a time.
    p->band = least(rn_max_u64(p->band, rn_div_up(PIXELS, c->cols)), c->rows);
    size_t strips = (size_t)rn_div_up(c->outputs, RN_PANEL * set->panels);
    while (c->images * strips * rn_div_up(c->rows, p->band) < 4 * (size_t)threads &&
           p->band * tiles > TILES && p->band > 1)
        p->band = (p->band + 1) / 2;
    p->bands = (size_t)rn_div_up(c->rows, p->band);
    p->band = (size_t)rn_div_up(c->rows, p->bands);
    p->bands = (size_t)rn_div_up(c->rows, p->band);
}

static void choose_strip(const rn_conv *c, const rn_tile_set *set, uint32_t threads, plan *p) {
    size_t tiles = (size_t)rn_div_up(c->outputs, RN_PANEL * set->panels);
    p->strip = tiles;
    while (p->groups * p->bands * rn_div_up(tiles, p->strip) < 4 * (size_t)threads && p->strip > 1)
        p->strip = (p->strip + 1) / 2;
    p->strips = (size_t)rn_div_up(tiles, p->strip);
}

// The longest chunk of k's that take_chunk takes.
static size_t longest_chunk(const rn_conv *c) {
    size_t line = c->taps_w * c->channels;
    return least(rn_max_u64(CHUNK, 1), c->taps_h * line);
}

static size_t widened_floats(const rn_conv *c, const rn_tile_set *set) {
    return set->panels * RN_PANEL * longest_chunk(c);
}

static plan make_plan(const rn_conv *c, const rn_tile_set *set, uint32_t threads) {
    plan p = {.pixel = c->channels, .row = c->width * c->channels};
    p.copy = has_padding(c) || has_conflict(c);
    if (p.copy) {
        if (has_conflict(c)) p.pixel += RN_PANEL;
        p.row = seen_cols(c) * p.pixel;
    }
    choose_band(c, set, threads, &p);
    // Never more for more images than 96 pixels have: a workspace for many serves few.
    p.some = p.bands > 1 ? 1 : (size_t)rn_div_up(PIXELS, c->rows * c->cols);
    p.groups = (size_t)rn_div_up(c->images, p.some);
    choose_strip(c, set, threads, &p);
    if (p.copy) p.copy_bytes = rn_round_up(seen_rows(c, p.band) * p.row * sizeof(float), 64);
    if (p.copy) p.slot_bytes = HEAD_BYTES + p.some * p.copy_bytes;
    if (is_widened(c)) p.slot_bytes += widened_floats(c, set) * sizeof(float);
    return p;
}

uint64_t rn_conv_workspace(const rn_conv *c, uint32_t threads) {
    if (c->images * c->rows * c->cols * c->outputs == 0) return 0;
    if (rn_winograd_fits(c)) return rn_winograd_workspace(c, threads);
    return threads * make_plan(c, rn_tile_set_get(), threads).slot_bytes;
}

// ---- a band of the image ------------------------------------------------------------------------

// Row h of an image, or zeros outside of it, as the outputs of a row see it.
static void copy_row(const rn_conv *c, const plan *p, const float *image, ptrdiff_t h, float *to) {
    size_t cols = seen_cols(c), before = c->left > 0 ? least((size_t)c->left, cols) : 0;
    size_t skip = c->left < 0 ? least((size_t)-c->left, c->width) : 0;
    size_t inside = h < 0 || (size_t)h >= c->height ? 0 : least(c->width - skip, cols - before);
    if (inside == 0) before = cols;
    const float *from = inside ? image + ((size_t)h * c->width + skip) * c->channels : NULL;
    memset(to, 0, before * p->pixel * sizeof *to);
    to += before * p->pixel;
    if (p->pixel == c->channels) {
        if (inside) memcpy(to, from, inside * p->pixel * sizeof *to);
    } else {
        for (size_t i = 0; i < inside; i++)
            memcpy(to + i * p->pixel, from + i * c->channels, c->channels * sizeof *to);
    }
    memset(to + inside * p->pixel, 0, (cols - before - inside) * p->pixel * sizeof *to);
}

// Copies what a band of an image sees.
static void copy_band(const job *j, size_t image, size_t band, float *copy) {
    const rn_conv *c = j->conv;
    const plan *p = &j->plan;
    const float *x = c->x + image * c->height * c->width * c->channels;
    ptrdiff_t h = (ptrdiff_t)(band * p->band * c->stride_h) - c->top;
    size_t rows = seen_rows(c, least(p->band, c->rows - band * p->band));
    for (size_t i = 0; i < rows; i++)
        copy_row(c, p, x, h + (ptrdiff_t)i, copy + i * p->row);
}

// The first float that output (first row of the band, 0) of the group's first image sees.
static const float *see_band(const job *j, uint32_t slot, size_t group, size_t band) {
    const rn_conv *c = j->conv;
    const plan *p = &j->plan;
    size_t image = group * p->some, end = least(image + p->some, c->images);
    ptrdiff_t h = (ptrdiff_t)(band * p->band * c->stride_h) - c->top;
    if (!p->copy)
        return c->x + image * c->height * p->row + h * (ptrdiff_t)p->row -
               c->left * (ptrdiff_t)p->pixel;
    uint64_t *held = (uint64_t *)(j->workspace + slot * p->slot_bytes);
    char *copy = (char *)held + HEAD_BYTES;
    if (*held != group * p->bands + band)
        for (size_t i = image; i < end; i++)
            copy_band(j, i, band, (float *)(copy + (i - image) * p->copy_bytes));
    *held = group * p->bands + band;
    return (float *)copy;
}

// ---- tiles --------------------------------------------------------------------------------------

// Some k's that follow each other: whole rows of taps, else whole taps, else a part of a tap.
static size_t take_chunk(const rn_conv *c, const plan *p, size_t k, rn_tile *t, size_t *out_at) {
    size_t line = c->taps_w * c->channels, row = k / line, tap = k % line / c->channels;
    size_t channel = k % c->channels;
    bool dense = p->pixel == c->channels;
    *out_at = row * p->row + tap * p->pixel + channel;
    t->outer = t->inner = 1;
    if (line <= CHUNK) {
        t->outer = (uint32_t)least(CHUNK / line, c->taps_h - row);
        t->inner = (uint32_t)c->taps_w;
        t->depth = c->channels;
    } else if (c->channels <= CHUNK) {
        t->inner = (uint32_t)least(CHUNK / c->channels, c->taps_w - tap);
        t->depth = c->channels;
    } else {
        size_t part = (size_t)rn_div_up(c->channels, rn_div_up(c->channels, CHUNK));
        t->depth = least(part, c->channels - channel);
    }
    if (dense) {
        t->depth *= t->inner;
        t->inner = 1;
    }
    return t->outer * t->inner * t->depth;
}

typedef struct band {
    const job *job;
    const float *a; // what the band's first output sees
    float *y;       // the band's first output
    size_t rows;
    size_t images, next; // taken together; floats of A from one to the next
    float *widened;      // (a tile's width, longest_chunk)
} band;

// Pixels [col, col + count) of row r; the second group is `other` (of row r + 1), or follows.
static void run_tile(const band *b, rn_tile *t, size_t at, size_t row, size_t col, size_t count,
                     bool paired) {
    const rn_conv *c = b->job->conv;
    const plan *p = &b->job->plan;
    size_t group = b->job->set->group;
    t->a[0] = b->a + at + row * c->stride_h * p->row + col * c->stride_w * p->pixel;
    t->c[0] = b->y + row * c->y_row + col * c->y_pixel;
    t->a[1] = t->a[0] + (paired ? c->stride_h * p->row : group * t->a_row);
    t->c[1] = t->c[0] + (paired ? c->y_row : group * c->y_pixel);
    t->rows = (uint32_t)(paired ? 2 * count : count);
    b->job->set->run(t);
}

static void run_tiles(const band *b, rn_tile *t, size_t at) {
    size_t cols = b->job->conv->cols, rows = b->job->set->rows, rest = cols % rows;
    bool halves = rest == b->job->set->group;
    for (size_t row = 0; row < b->rows; row++) {
        for (size_t col = 0; col + rows <= cols; col += rows)
            run_tile(b, t, at, row, col, rows, false);
        bool paired = halves && row % 2 == 0 && row + 1 < b->rows;
        if (rest && (paired || !halves || row % 2 == 0))
            run_tile(b, t, at, row, cols - rest, rest, paired);
    }
}

// Panels [output, output + cols) from k on, as f32; their distance.
static const float *take_panels(const band *b, size_t output, size_t cols, size_t k, size_t depth,
                                size_t *out_panel) {
    const rn_conv *c = b->job->conv;
    size_t all = c->taps_h * c->taps_w * c->channels, at = output * all + k * RN_PANEL;
    *out_panel = RN_PANEL * all;
    if (!is_widened(c)) return (const float *)c->panels + at;
    for (size_t i = 0; i * RN_PANEL < cols; i++)
        (void)!rn_dtype_to_f32(c->dtype, (const uint16_t *)c->panels + at + i * RN_PANEL * all,
                               b->widened + i * RN_PANEL * depth, RN_PANEL * depth);
    *out_panel = RN_PANEL * depth;
    return b->widened;
}

static void run_images(band b, rn_tile *t, size_t at) {
    for (size_t i = 0; i < b.images; i++) {
        run_tiles(&b, t, at);
        b.a += b.next;
        b.y += b.job->conv->y_image;
    }
}

static void run_strip(const band *b, size_t output) {
    const rn_conv *c = b->job->conv;
    const plan *p = &b->job->plan;
    size_t depth = c->taps_h * c->taps_w * c->channels, k = 0;
    rn_tile t = {.a_row = c->stride_w * p->pixel,
                 .a_k = 1,
                 .c_row = c->y_pixel,
                 .cols = (uint32_t)least(c->outputs - output, RN_PANEL * b->job->set->panels),
                 .outer_step = p->row,
                 .inner_step = p->pixel};
    if (c->clamp) t.low = c->clamp->low, t.high = c->clamp->high;
    do {
        size_t at = 0, taken = depth ? take_chunk(c, p, k, &t, &at) : 0;
        t.b = take_panels(b, output, t.cols, k, taken, &t.b_panel);
        t.resume = k > 0;
        t.bias = c->bias && k + taken == depth ? c->bias + output : NULL;
        t.clamped = c->clamp && k + taken == depth;
        run_images(*b, &t, at);
        k += taken;
    } while (k < depth);
}

static void run_task(void *arg, uint32_t slot, size_t index) {
    const job *j = arg;
    const rn_conv *c = j->conv;
    const plan *p = &j->plan;
    size_t strip = index % p->strips, at = index / p->strips % p->bands;
    size_t group = index / p->strips / p->bands, width = RN_PANEL * j->set->panels;
    size_t end = least((strip + 1) * p->strip * width, c->outputs), image = group * p->some;
    char *room = j->workspace + (slot + 1) * p->slot_bytes; // its end
    band b = {.job = j,
              .a = see_band(j, slot, group, at),
              .rows = least(p->band, c->rows - at * p->band),
              .images = least(p->some, c->images - image),
              .next = p->copy ? p->copy_bytes / sizeof(float) : c->height * p->row};
    if (is_widened(c)) b.widened = (float *)room - widened_floats(c, j->set);
    float *y = c->y + image * c->y_image + at * p->band * c->y_row;
    for (size_t output = strip * p->strip * width; output < end; output += width) {
        b.y = y + output;
        run_strip(&b, output);
    }
}

void rn_conv_run(const rn_conv *c, const rn_call *call, void *workspace) {
    if (c->images * c->rows * c->cols * c->outputs == 0) return;
    if (rn_winograd_fits(c)) {
        rn_winograd_run(c, call, workspace);
        return;
    }
    const rn_tile_set *set = rn_tile_set_get();
    job j = {c, set, make_plan(c, set, call->threads), workspace};
    for (uint32_t slot = 0; j.plan.copy && slot < call->threads; slot++)
        *(uint64_t *)(j.workspace + slot * j.plan.slot_bytes) = UINT64_MAX; // holds no band yet
    rn_share_runs(call, j.plan.groups * j.plan.bands * j.plan.strips, run_task, &j);
}
