// image_bands.h — a picture in bands of rows, so that no layer holds more than it must: exact
// tiling.
//
//     statistics of each band ─▶ of the whole picture        group norm, in two passes
//     rows of a band and its neighbours' ─ norm ─ conv ─▶ band   convolutions see their halo
//
// Bands are cut at the same rows whether a picture is computed in bands or whole, and group norm's
// statistics are put together from the bands' in either case: so both give the same bits (products
// of a row are sums of their own), and a planner may choose by the budget alone. What normed copies
// and convolutions hold beside a layer's input and output is then of a band.
#ifndef RN_MODEL_IMAGE_BANDS_H
#define RN_MODEL_IMAGE_BANDS_H

#include "model/image/image_parts.h"

enum { RN_MOST_BANDS = 256 };

typedef struct rn_banding {
    // Of a band, but for the last, which has fewer than twice as many: small bands would be
    // convolved in other ways than large ones, with other roundings. A multiple of 4; pictures of
    // fewer than two bands have one. 0: one band, always.
    uint32_t rows;
    bool cut;   // layers are computed in bands; else only statistics are
    bool again; // and of a picture that was just doubled no band is kept: whoever reads rows of it
                // computes them again, three times in all
} rn_banding;

typedef struct rn_bands {
    rn_value values[RN_MOST_BANDS]; // (count), (N, rows, W, C) from top to bottom
    uint32_t count;
    uint64_t high; // of the whole
    // Where there are no bands (count 0): rows are those of this picture, doubled and convolved. It
    // must be there for as long.
    const struct rn_bands *half;
    rn_value weight, bias;
} rn_bands;

// How many bands a picture of this height has.
uint32_t rn_banding_count(const rn_banding *banding, uint64_t high);

rn_bands rn_bands_of(const rn_image_builder *b, rn_value whole);
rn_value rn_bands_join(rn_image_builder *b, const rn_bands *x);
// The 3x3 convolution `conv` (in to out channels) of the picture, normed by `norm` (with SiLU).
rn_bands rn_bands_norm_conv(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                            const char *norm, rn_group_norm_attrs attrs, const char *conv,
                            uint64_t in, uint64_t out);
// The convolution of the picture twice as high and wide (x must outlive it: `again`); the one of
// half its size, padded behind.
rn_bands rn_bands_double(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                         const char *conv, uint64_t channels);
rn_bands rn_bands_halve(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                        const char *conv, uint64_t channels);
// x + y; where `shortcut` is not NULL, x goes through that 1x1 convolution first.
rn_bands rn_bands_add(rn_image_builder *b, const rn_bands *x, const rn_bands *y,
                      const char *shortcut, uint64_t in, uint64_t out);

#endif
