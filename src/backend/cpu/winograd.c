// winograd.c — squares of 4x4 outputs of all images stand in one row; some of them at a time:
//
//     transform their pixels: blocks of as many squares as a tile has rows, 36 matrices each
//     for each strip of outputs (a tile's width): transform its weights; then for each block
//         36 tiles, and the sums of each square transformed into outputs
//
// Transformed weights stay with the thread that made them while it takes blocks of the same strip.
#include "backend/cpu/winograd.h"

#include "backend/cpu/share.h"
#include "backend/cpu/tile.h"
#include "base/checked.h"
#include "base/cpu.h"

#include <string.h>

enum {
    LEAST_CHANNELS = 48,
    PIXEL_FLOATS = 1 << 19, // of transformed pixels at once, about: the second cache
    TRANSFORM = 400,        // multiply-adds that take as long as transforming a square or 3x3 taps
    PAD = 16,               // floats between matrices, lest they fall onto the same cache lines
    HEAD_BYTES = 64,        // of a slot: which strip its weights are of
    WIDENED = 256,          // numbers of a tap that are widened at once: the first cache
    TAPS = 9,
    OUT = RN_WINOGRAD_OUT,
    IN = RN_WINOGRAD_IN,
    ELEMENTS = RN_WINOGRAD_ELEMENTS,
};

typedef struct plan {
    size_t high, wide, squares; // of an image; of all
    size_t block, blocks, some; // squares of a block; blocks of all, and at once
    size_t row, plane;          // floats of transformed pixels: of a square, of a matrix of a block
    size_t width, strips;       // outputs of a strip
    size_t weights, panel;      // floats of a matrix of transformed weights, of a panel's matrices
    size_t sums;                // floats of a matrix of sums
    size_t parts;               // that blocks are cut into, for threads to share
    uint64_t pixels_bytes, slot_bytes;
} plan;

typedef struct job {
    const rn_conv *conv;
    const rn_tile_set *tiles;
    const rn_winograd_set *set;
    plan plan;
    float *zeros;        // (channels)
    float *pixels;       // (some, 36, plane)
    char *slots;         // (threads, slot_bytes): head, weights, sums
    size_t first, count; // blocks at hand
} job;

static const rn_winograd_set *get_set(void) {
#if defined(__x86_64__)
    static const rn_winograd_set *const sets[RN_CPU_LEVEL_COUNT] = {
        [RN_CPU_PORTABLE] = &rn_winograd_portable,
        [RN_CPU_AVX2] = &rn_winograd_avx2,
        [RN_CPU_AVX512] = &rn_winograd_avx512,
    };
    return sets[rn_cpu_level_get()];
#else
    return &rn_winograd_portable;
#endif
}

// ---- sizes --------------------------------------------------------------------------------------

// A square's and a tap's multiply-adds over those of the windows of an image.
static double share_of(const rn_conv *c, double square, double tap) {
    double squares = (double)rn_div_up(c->rows, OUT) * (double)rn_div_up(c->cols, OUT);
    return (square * squares + tap) / (9.0 * (double)c->rows * (double)c->cols);
}

bool rn_winograd_fits(const rn_conv *c) {
    return c->taps_h == 3 && c->taps_w == 3 && c->stride_h == 1 && c->stride_w == 1 &&
           c->channels >= LEAST_CHANNELS && c->channels % RN_PANEL == 0 &&
           c->outputs % RN_PANEL == 0 && c->rows * c->cols > 0 &&
           share_of(c, ELEMENTS, TRANSFORM) < 0.8;
}

double rn_winograd_share(const rn_conv *c) {
    if (!rn_winograd_fits(c)) return 1;
    double pixels = TRANSFORM / (double)c->outputs, sums = TRANSFORM / (double)c->channels;
    return share_of(c, ELEMENTS + pixels + sums, TRANSFORM / (double)c->images);
}

static plan make_plan(const rn_conv *c, const rn_tile_set *set, uint32_t threads) {
    plan p = {.high = rn_div_up(c->rows, OUT), .wide = rn_div_up(c->cols, OUT)};
    p.squares = c->images * p.high * p.wide;
    p.block = rn_div_up(p.high * p.wide, rn_div_up(p.high * p.wide, set->rows));
    p.blocks = rn_div_up(p.squares, p.block);
    p.row = c->channels % 512 == 0 ? c->channels + PAD : c->channels;
    p.plane = p.block * p.row + PAD;
    p.some = rn_min_u64(rn_max_u64(PIXEL_FLOATS / (ELEMENTS * p.plane), 1), p.blocks);
    p.width = RN_PANEL * set->panels;
    p.strips = rn_div_up(c->outputs, p.width);
    p.weights = c->channels * RN_PANEL + PAD;
    p.panel = ELEMENTS * p.weights;
    p.sums = p.block * p.width + PAD;
    p.parts = rn_min_u64(p.some, rn_div_up(4 * (uint64_t)threads, p.strips));
    p.pixels_bytes = (c->channels + p.some * ELEMENTS * p.plane) * sizeof(float);
    p.slot_bytes = HEAD_BYTES + (set->panels * p.panel + ELEMENTS * p.sums) * sizeof(float);
    return p;
}

uint64_t rn_winograd_workspace(const rn_conv *c, uint32_t threads) {
    plan p = make_plan(c, rn_tile_set_get(), threads);
    return p.pixels_bytes + threads * p.slot_bytes;
}

// ---- pixels -------------------------------------------------------------------------------------

typedef struct place {
    size_t image, row, col; // of the first output
} place;

static place place_of(const plan *p, size_t square) {
    size_t image = square / (p->high * p->wide), rest = square % (p->high * p->wide);
    return (place){image, rest / p->wide * OUT, rest % p->wide * OUT};
}

static void transform_square(const job *j, size_t square, float *to) {
    const rn_conv *c = j->conv;
    place at = place_of(&j->plan, square);
    const float *x[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) {
        size_t h = at.row + i / IN - (size_t)c->top, w = at.col + i % IN - (size_t)c->left;
        bool inside = h < c->height && w < c->width; // before the image they wrap: too large
        x[i] = inside ? c->x + ((at.image * c->height + h) * c->width + w) * c->channels : j->zeros;
    }
    j->set->input(x, c->channels, to, j->plan.plane);
}

static void transform_block(void *arg, uint32_t slot, size_t index) {
    const job *j = arg;
    const plan *p = &j->plan;
    (void)slot;
    size_t first = (j->first + index) * p->block, end = rn_min_u64(first + p->block, p->squares);
    float *to = j->pixels + index * ELEMENTS * p->plane;
    for (size_t i = first; i < end; i++)
        transform_square(j, i, to + (i - first) * p->row);
}

// ---- products -----------------------------------------------------------------------------------

// Taps of 16 outputs, n numbers each; of 16 bits they are widened some at a time.
static void transform_panel(const job *j, size_t output, float *to) {
    const rn_conv *c = j->conv;
    size_t n = c->channels * RN_PANEL, first = output * c->channels * TAPS;
    if (c->dtype != RN_DTYPE_F16 && c->dtype != RN_DTYPE_BF16) {
        j->set->weight((const float *)c->panels + first, n, n, to, j->plan.weights);
        return;
    }
    float widened[TAPS * WIDENED];
    for (size_t at = 0; at < n; at += WIDENED) {
        size_t some = rn_min_u64(WIDENED, n - at);
        for (size_t tap = 0; tap < TAPS; tap++)
            (void)!rn_dtype_to_f32(c->dtype, (const uint16_t *)c->panels + first + tap * n + at,
                                   widened + tap * WIDENED, some);
        j->set->weight(widened, WIDENED, some, to + at, j->plan.weights);
    }
}

static float *weights_of(const job *j, uint32_t slot, size_t strip) {
    const rn_conv *c = j->conv;
    const plan *p = &j->plan;
    uint64_t *held = (uint64_t *)(j->slots + slot * p->slot_bytes);
    float *weights = (float *)((char *)held + HEAD_BYTES);
    if (*held == strip) return weights;
    *held = strip;
    for (size_t i = 0; i < j->tiles->panels; i++) {
        size_t output = strip * p->width + i * RN_PANEL;
        if (output >= c->outputs) break;
        transform_panel(j, output, weights + i * p->panel);
    }
    return weights;
}

// A block's outputs of a strip.
static void run_block(const job *j, size_t index, size_t strip, const float *weights, float *sums) {
    const rn_conv *c = j->conv;
    const plan *p = &j->plan;
    size_t first = (j->first + index) * p->block, output = strip * p->width;
    size_t count = rn_min_u64(p->block, p->squares - first);
    const float *pixels = j->pixels + index * ELEMENTS * p->plane;
    rn_tile t = {.a_row = p->row,
                 .a_k = 1,
                 .b_panel = p->panel,
                 .c_row = p->width,
                 .rows = (uint32_t)count,
                 .cols = (uint32_t)rn_min_u64(c->outputs - output, p->width),
                 .outer = 1,
                 .inner = 1,
                 .depth = c->channels};
    for (size_t i = 0; i < ELEMENTS; i++) {
        t.a[0] = pixels + i * p->plane;
        t.a[1] = t.a[0] + j->tiles->group * p->row;
        t.b = weights + i * p->weights;
        t.c[0] = sums + i * p->sums;
        t.c[1] = t.c[0] + j->tiles->group * p->width;
        j->tiles->run(&t);
    }
    for (size_t i = 0; i < count; i++) {
        place at = place_of(p, first + i);
        rn_winograd_square s = {c->y + at.image * c->y_image + at.row * c->y_row +
                                    at.col * c->y_pixel + output,
                                c->y_row, c->y_pixel, rn_min_u64(OUT, c->rows - at.row),
                                rn_min_u64(OUT, c->cols - at.col)};
        j->set->output(sums + i * p->width, p->sums, t.cols, c->bias ? c->bias + output : NULL,
                       c->clamp, &s);
    }
}

static void run_part(void *arg, uint32_t slot, size_t index) {
    const job *j = arg;
    const plan *p = &j->plan;
    size_t strip = index / p->parts, part = index % p->parts;
    float *weights = weights_of(j, slot, strip);
    float *sums = weights + j->tiles->panels * p->panel;
    size_t end = j->count * (part + 1) / p->parts;
    for (size_t i = j->count * part / p->parts; i < end; i++)
        run_block(j, i, strip, weights, sums);
}

void rn_winograd_run(const rn_conv *c, const rn_call *call, void *workspace) {
    const rn_tile_set *tiles = rn_tile_set_get();
    job j = {.conv = c, .tiles = tiles, .set = get_set()};
    j.plan = make_plan(c, tiles, call->threads);
    const plan *p = &j.plan;
    j.zeros = workspace;
    j.pixels = j.zeros + c->channels;
    j.slots = (char *)workspace + p->pixels_bytes;
    memset(j.zeros, 0, c->channels * sizeof *j.zeros);
    for (uint32_t slot = 0; slot < call->threads; slot++)
        *(uint64_t *)(j.slots + slot * p->slot_bytes) = UINT64_MAX; // holds no strip yet
    for (; j.first < p->blocks; j.first += p->some) {
        j.count = rn_min_u64(p->some, p->blocks - j.first);
        rn_share_runs(call, j.count, transform_block, &j);
        rn_share_runs(call, p->strips * p->parts, run_part, &j);
    }
}
