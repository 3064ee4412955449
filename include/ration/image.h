// image.h — pictures: PNG and JPEG files read, PNG files written, and pixels as the numbers that a
// model takes.
//
//     rn_image image;
//     RN_TRY(rn_image_read("cat.png", &image));
//     rn_status s = rn_image_values(&image, &(rn_image_form){.height = 224, .width = 224}, x);
//     rn_image_free(&image);
//
// Files are not trusted: sizes are held against the bytes that are there before memory is taken,
// and every checksum is checked. Memory is on the ledger (io), so a budget limits it.
#ifndef RATION_IMAGE_H
#define RATION_IMAGE_H

#include <ration/tensor.h>

RN_BEGIN_DECLS

// 8 bits a channel: grey, grey and alpha, RGB, RGBA.
typedef struct rn_image {
    uint32_t width, height, channels; // channels: 1 to 4
    uint8_t *pixels;                  // (height, width, channels)
} rn_image;

// Every kind of PNG: 1 to 16 bits (of 16 the upper 8 are kept), palettes, transparent colours,
// interlaced; and JPEG, where libturbojpeg is installed (else RN_UNSUPPORTED). RN_CORRUPT names
// file and byte.
RN_API RN_MUST_USE rn_status rn_image_read(const char *path, rn_image *out);
RN_API RN_MUST_USE rn_status rn_image_decode(const void *data, uint64_t bytes, rn_image *out);
// Zeroed pixels.
RN_API RN_MUST_USE rn_status rn_image_create(uint32_t width, uint32_t height, uint32_t channels,
                                             rn_image *out);
RN_API void rn_image_free(rn_image *image); // {0} is allowed
// A PNG file, not compressed.
RN_API RN_MUST_USE rn_status rn_image_write(const char *path, const rn_image *image);

// The same with texts (UTF-8) that programs show beside it, as "Software" or "parameters": keys of
// 1 to 79 printable ASCII characters.
typedef struct rn_image_text {
    const char *key, *value;
} rn_image_text;
RN_API RN_MUST_USE rn_status rn_image_write_with(const char *path, const rn_image *image,
                                                 const rn_image_text *texts, size_t text_count);

// How pixels become values: resized, cut out of the middle, (pixel * scale - mean) / std.
typedef struct rn_image_form {
    uint32_t height, width; // of the result
    uint32_t channels;      // 1, 3 or 4; 0: 3
    bool channels_last;     // (height, width, channels) instead of (channels, height, width)
    bool bgr;               // the first channel is blue
    bool stretch;           // to height and width, whatever the picture's shape is
    uint32_t resize;        // the shorter side before the cut; 0: just enough for the cut
    float scale;            // 0: 1/255
    float mean[4], std[4];  // std 0: 1
    uint64_t reserved[4];   // zero
} rn_image_form;

// Resizing is bilinear, over all pixels that a smaller one covers, as Pillow's.
RN_API RN_MUST_USE rn_status rn_image_values(const rn_image *image, const rn_image_form *form,
                                             float *out);

RN_END_DECLS

#endif
