// conv_boxes.c — a convolution on matrix units: which tile, how many splits, the launch.
//
// The choice is a function of the sizes alone, for a GPU with as many multiprocessors as Hopper
// has: the workspace is planned without a device. How a sum is split does not depend on the number
// of images either: an image's bits are the same whatever is computed beside it.
#include "backend/cuda/conv.h"
#include "backend/cuda/tensor_map.h"

#include "base/checked.h"

enum { PROCESSORS = 132, SPLITS_MOST = 32, SIDE_MOST = 256 };
enum { IMAGES = 2 }; // that splits are chosen for: with and without the text

// In the order of kernels.def.
typedef struct tile {
    uint32_t pixels, outputs;
    uint32_t step_cycles;  // of 64 channels of a tap
    uint32_t other_cycles; // before the first and after the last
    uint32_t shared_bytes;
} tile;

static const tile tiles[] = {
    {256, 160, 1400, 5000, 214720}, {256, 128, 1300, 4500, 198208}, {128, 160, 850, 3500, 222944},
    {128, 128, 780, 3000, 198240},  {128, 64, 640, 2500, 198016},   {128, 16, 560, 2000, 148672},
};
enum { TILE_COUNT = sizeof tiles / sizeof *tiles };

typedef struct choice {
    uint32_t tile, splits;
    rn_conv_box box;
    uint64_t pairs, output_tiles; // pairs of boxes; tiles of outputs of a group
    double cycles;
} choice;

rn_conv_box rn_conv_choose_box(uint64_t n, uint64_t h, uint64_t w, uint32_t pixels, uint32_t most_h,
                               uint32_t most_w) {
    rn_conv_box best = {0};
    uint64_t fewest = UINT64_MAX;
    for (uint32_t bw = 1; bw <= pixels && bw <= most_w && (bw == 1 || bw / 2 < w); bw++) {
        uint32_t bh = (uint32_t)rn_min_u64(rn_min_u64(pixels / bw, h), most_h);
        uint32_t bn = bh == h ? (uint32_t)rn_min_u64(pixels / (bw * bh), n) : 1;
        bn = (uint32_t)rn_min_u64(bn, SIDE_MOST);
        rn_conv_box box = {bn, bh, bw, rn_div_up(n, bn), rn_div_up(h, bh), rn_div_up(w, bw)};
        uint64_t count = box.tiles_n * box.tiles_h * box.tiles_w;
        bool squarer = bw <= 2 * bh; // fewer pixels around it
        if (count < fewest || (count == fewest && squarer)) best = box, fewest = count;
    }
    return best;
}

// Cycles of a tile with so many splits; c has its box.
static double count_cycles(const rn_conv_product *p, const choice *c, uint32_t splits) {
    const tile *t = &tiles[c->tile];
    uint64_t steps = p->taps * rn_div_up(p->channels, RN_CONV_STEP);
    uint64_t blocks = c->pairs * RN_CONV_CLUSTER * c->output_tiles * p->groups * splits;
    double cycles = (double)rn_div_up(blocks, PROCESSORS) *
                    ((double)rn_div_up(steps, splits) * t->step_cycles + (double)t->other_cycles);
    double numbers = (double)(p->batch * p->out_h * p->out_w) * (double)(p->outputs * p->groups);
    if (splits > 1) cycles += 5000 + numbers * 4 * 2 * splits / 2500; // written and read again
    return cycles;
}

static choice begin_tile(const rn_conv_product *p, uint32_t number) {
    const tile *t = &tiles[number];
    choice c = {.tile = number};
    c.box = rn_conv_choose_box(p->batch, p->out_h, p->out_w, t->pixels, SIDE_MOST / p->stride_h,
                               SIDE_MOST / p->stride_w);
    c.pairs = rn_div_up(c.box.tiles_n * c.box.tiles_h * c.box.tiles_w, RN_CONV_CLUSTER);
    c.output_tiles = rn_div_up(p->outputs, t->outputs);
    return c;
}

// The best tile; of all splits, or of `splits` alone.
static choice choose_among(const rn_conv_product *p, uint32_t splits) {
    static const uint32_t all[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, SPLITS_MOST};
    uint64_t steps = p->taps * rn_div_up(p->channels, RN_CONV_STEP);
    choice best = {.cycles = -1};
    for (uint32_t i = 0; i < TILE_COUNT; i++) {
        choice c = begin_tile(p, i);
        for (uint32_t s = 0; s < sizeof all / sizeof *all; s++) {
            if (all[s] > 1 && steps < 4 * (uint64_t)all[s]) break;
            if (splits && all[s] != splits) continue;
            c.splits = all[s];
            c.cycles = count_cycles(p, &c, all[s]);
            if (best.cycles < 0 || c.cycles < best.cycles) best = c;
        }
    }
    return best;
}

static choice choose(const rn_conv_product *p) {
    rn_conv_product usual = *p;
    usual.batch = IMAGES;
    return choose_among(p, choose_among(&usual, 0).splits);
}

static uint64_t count_numbers(const rn_conv_product *p) {
    return p->batch * p->out_h * p->out_w * p->outputs * p->groups;
}

uint64_t rn_conv_product_workspace(const rn_conv_product *p) {
    choice c = choose(p);
    return c.splits > 1 ? count_numbers(p) * c.splits * sizeof(float) : 0;
}

// ---- running ------------------------------------------------------------------------------------

static rn_status draw_maps(const rn_call *call, const rn_conv_product *p, const choice *c,
                           rn_conv_args *args) {
    uint64_t all = p->channels * p->groups;
    rn_boxed x = {
        .data = p->x,
        .dtype = p->type,
        .rank = 5,
        .dims = {p->channels, p->groups, p->in_w, p->in_h, p->batch},
        .strides = {1, p->channels, all, all * p->in_w, all * p->in_w * p->in_h},
        .box = {RN_CONV_STEP, 1, c->box.w * p->stride_w, c->box.h * p->stride_h, c->box.n},
        .steps = {1, 1, p->stride_w, p->stride_h, 1}};
    rn_boxed w = {.data = p->w,
                  .dtype = p->type,
                  .rank = 3,
                  .dims = {p->channels, rn_max_u64(p->taps, 1), p->outputs * p->groups},
                  .strides = {1, p->channels, p->channels * rn_max_u64(p->taps, 1)},
                  .box = {RN_CONV_STEP, 1, tiles[c->tile].outputs / RN_CONV_CLUSTER},
                  .steps = {1, 1, 1}};
    RN_TRY(rn_tensor_map_draw(call, &x, &args->x));
    return rn_tensor_map_draw(call, &w, &args->w);
}

static void fill(const rn_conv_product *p, const choice *c, rn_conv_args *a) {
    bool split = c->splits > 1;
    uint64_t outputs = p->outputs * p->groups;
    *a = (rn_conv_args){.y = split ? p->partial : p->y,
                        .y_n = split ? p->out_h * p->out_w * outputs : p->y_n,
                        .y_h = split ? p->out_w * outputs : p->y_h,
                        .y_w = split ? outputs : p->y_w,
                        .y_split = count_numbers(p),
                        .batch = (uint32_t)p->batch,
                        .out_h = (uint32_t)p->out_h,
                        .out_w = (uint32_t)p->out_w,
                        .box_n = c->box.n,
                        .box_h = c->box.h,
                        .box_w = c->box.w,
                        .tiles_n = (uint32_t)c->box.tiles_n,
                        .tiles_h = (uint32_t)c->box.tiles_h,
                        .tiles_w = (uint32_t)c->box.tiles_w,
                        .outputs = (uint32_t)outputs,
                        .outputs_each = (uint32_t)p->outputs,
                        .output_tiles = (uint32_t)c->output_tiles,
                        .groups = (uint32_t)p->groups,
                        .channel_steps = (uint32_t)rn_div_up(p->channels, RN_CONV_STEP),
                        .taps = p->taps,
                        .splits = c->splits,
                        .stride_h = p->stride_h,
                        .stride_w = p->stride_w,
                        .y_type = split ? RN_PLAIN_F32 : rn_cuda_plain_type(p->y_type)};
    for (uint32_t i = 0; i < p->taps; i++) {
        a->tap_h[i] = p->tap_h[i];
        a->tap_w[i] = p->tap_w[i];
    }
    if (split) return;
    a->addend = p->addend;
    if (!p->bias || !rn_tensor_given(p->bias)) return;
    a->bias = p->bias->data;
    a->bias_type = rn_cuda_plain_type(p->bias->dtype);
}

static rn_status add_splits(const rn_call *call, const rn_conv_product *p, const choice *c) {
    rn_conv_total_args args = {.partial = p->partial,
                               .addend = p->addend,
                               .y = p->y,
                               .y_n = p->y_n,
                               .y_h = p->y_h,
                               .y_w = p->y_w,
                               .pixels = p->batch * p->out_h * p->out_w,
                               .out_h = (uint32_t)p->out_h,
                               .out_w = (uint32_t)p->out_w,
                               .outputs = (uint32_t)(p->outputs * p->groups),
                               .splits = c->splits,
                               .y_type = rn_cuda_plain_type(p->y_type)};
    if (p->bias && rn_tensor_given(p->bias)) {
        args.bias = p->bias->data;
        args.bias_type = rn_cuda_plain_type(p->bias->dtype);
    }
    return rn_cuda_launch(call, RN_CUDA_CONV_TOTAL,
                          rn_cuda_spread(call, args.pixels * rn_div_up(args.outputs, 4)), &args);
}

rn_status rn_conv_product_run(const rn_call *call, const rn_conv_product *p) {
    rn_conv_args args;
    choice c = choose(p);
    if (count_numbers(p) == 0) return RN_OK;
    uint64_t blocks = c.pairs * RN_CONV_CLUSTER * c.output_tiles * p->groups;
    if (blocks > INT32_MAX || p->batch > INT32_MAX || p->outputs * p->groups > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED,
                       "CUDA: a convolution of %llu images of %llu x %llu pixels is "
                       "too large",
                       (unsigned long long)p->batch, (unsigned long long)p->out_h,
                       (unsigned long long)p->out_w);
    fill(p, &c, &args);
    RN_TRY(draw_maps(call, p, &c, &args));
    rn_cuda_kernel first =
        p->type == RN_DTYPE_BF16 ? RN_CUDA_CONV_BF16_256_160 : RN_CUDA_CONV_F16_256_160;
    rn_cuda_grid grid = {(uint32_t)blocks,
                         1,
                         c.splits,
                         .threads = RN_CONV_THREADS,
                         .shared_bytes = tiles[c.tile].shared_bytes,
                         .early = true};
    RN_TRY(rn_cuda_launch(call, (rn_cuda_kernel)(first + c.tile), grid, &args));
    return c.splits > 1 ? add_splits(call, p, &c) : RN_OK;
}
