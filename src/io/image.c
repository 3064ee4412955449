// image.c — pictures: files, and pixels as a model's values.
//
// A picture is resized in two passes, lines and then columns, each pixel of the result the mean of
// those it covers, weighted by a triangle; both passes end in 8 bits. Then it is cut, and its
// channels become those that are asked for: grey three times, or RGB's luminance; alpha is dropped.
#include <ration/image.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/reserved.h"
#include "io/jpeg.h"
#include "io/png.h"
#include "memory/account.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t bytes_of(const rn_image *image) {
    return (uint64_t)image->width * image->height * image->channels;
}

rn_status rn_image_create(uint32_t width, uint32_t height, uint32_t channels, rn_image *out) {
    uint64_t pixels, bytes;
    void *block = NULL;
    *out = (rn_image){0};
    if (!rn_mul_u64(width, height, &pixels) || !rn_mul_u64(pixels, channels, &bytes) || !bytes ||
        channels > 4)
        return rn_fail(RN_INVALID, "there is no picture of %u x %u and %u channels", width, height,
                       channels);
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, bytes, &block));
    *out = (rn_image){width, height, channels, block};
    return RN_OK;
}

void rn_image_free(rn_image *image) {
    rn_free(RN_HOST_IO, image->pixels, bytes_of(image));
    *image = (rn_image){0};
}

rn_status rn_image_decode(const void *data, uint64_t bytes, rn_image *out) {
    void *copy = NULL;
    *out = (rn_image){0};
    RN_TRY(rn_alloc(RN_HOST_IO, bytes + !bytes, &copy));
    if (bytes) memcpy(copy, data, bytes);
    rn_status s = rn_jpeg_is(copy, bytes) ? rn_jpeg_decode(copy, bytes, out)
                                          : rn_png_decode(copy, bytes, out);
    rn_free(RN_HOST_IO, copy, bytes + !bytes);
    return s;
}

static rn_status read_open(int fd, const char *path, uint64_t bytes, rn_image *out) {
    void *data = NULL;
    RN_TRY(rn_alloc(RN_HOST_IO, bytes + !bytes, &data));
    rn_status s = rn_file_read_at(fd, path, 0, data, bytes);
    if (s == RN_OK)
        s = rn_jpeg_is(data, bytes) ? rn_jpeg_decode(data, bytes, out)
                                    : rn_png_decode(data, bytes, out);
    rn_free(RN_HOST_IO, data, bytes + !bytes);
    return s;
}

rn_status rn_image_read(const char *path, rn_image *out) {
    int fd = -1;
    uint64_t bytes = 0;
    *out = (rn_image){0};
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = read_open(fd, path, bytes, out);
    close(fd);
    return s == RN_OK ? RN_OK : rn_error_locate(s, path, rn_last_error()->offset);
}

rn_status rn_image_write(const char *path, const rn_image *image) {
    return rn_image_write_with(path, image, NULL, 0);
}

rn_status rn_image_write_with(const char *path, const rn_image *image, const rn_image_text *texts,
                              size_t text_count) {
    FILE *file = fopen(path, "wb");
    if (!file) return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    rn_status s = rn_png_encode(image, texts, text_count, rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK)
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    return s;
}

// ---- resizing -----------------------------------------------------------------------------------

// Along one axis: `count` samples `step` apart become `want`, for each of `lines`.
typedef struct axis {
    uint32_t count, want, lines, channels;
    size_t from_step, from_line, to_step, to_line;
} axis;

static void resize_axis(const axis *a, const uint8_t *from, uint8_t *to) {
    double scale = (double)a->count / a->want, support = scale > 1 ? scale : 1;
    for (uint32_t i = 0; i < a->want; i++) {
        double centre = (i + 0.5) * scale;
        int64_t first = (int64_t)(centre - support + 0.5), last = (int64_t)(centre + support + 0.5);
        double sum = 0;
        first = first < 0 ? 0 : first;
        last = last > a->count ? a->count : last;
        for (int64_t k = first; k < last; k++)
            sum += fmax(0, 1 - fabs(((double)k - centre + 0.5) / support));
        for (size_t line = 0; line < a->lines; line++)
            for (uint32_t c = 0; c < a->channels; c++) {
                const uint8_t *x = from + line * a->from_line + c;
                double value = 0;
                for (int64_t k = first; k < last; k++)
                    value += fmax(0, 1 - fabs(((double)k - centre + 0.5) / support)) *
                             x[(size_t)k * a->from_step];
                to[line * a->to_line + i * a->to_step + c] = (uint8_t)(value / sum + 0.5);
            }
    }
}

static rn_status resize(const rn_image *x, uint32_t width, uint32_t height, rn_image *out) {
    rn_image wide;
    size_t c = x->channels;
    *out = (rn_image){0};
    RN_TRY(rn_image_create(width, x->height, x->channels, &wide));
    rn_status s = rn_image_create(width, height, x->channels, out);
    if (s == RN_OK) {
        axis columns = {x->width, width, x->height, x->channels, c, x->width * c, c, width * c};
        axis lines = {x->height, height, width, x->channels, width * c, c, width * c, c};
        resize_axis(&columns, x->pixels, wide.pixels);
        resize_axis(&lines, wide.pixels, out->pixels);
    }
    rn_image_free(&wide);
    return s;
}

// The size before the cut, which it has at least.
static rn_status find_size(const rn_image *image, const rn_image_form *f, uint32_t *out_width,
                           uint32_t *out_height) {
    enum { MOST = 1 << 16 };
    uint32_t shorter = image->width < image->height ? image->width : image->height;
    double by = f->resize
                    ? (double)f->resize / shorter
                    : fmax((double)f->width / image->width, (double)f->height / image->height);
    double width = image->width * by, height = image->height * by;
    if (f->stretch) width = f->width, height = f->height;
    if (f->width == 0 || f->height == 0 || fmax(width, height) > MOST)
        return rn_fail(RN_INVALID, "a picture cannot be resized to %.0f x %.0f", width, height);
    // As torchvision: the longer side is cut to a whole number. Just enough is not too little.
    *out_width = (uint32_t)(width + 1e-6), *out_height = (uint32_t)(height + 1e-6);
    if (*out_width < f->width || *out_height < f->height)
        return rn_hint(rn_fail(RN_INVALID, "a picture of %u x %u has no %u x %u to cut out",
                               *out_width, *out_height, f->width, f->height),
                       "a larger --resize");
    return RN_OK;
}

// ---- values -------------------------------------------------------------------------------------

static uint8_t channel_of(const uint8_t *pixel, uint32_t have, uint32_t want, uint32_t c) {
    bool grey = have < 3;
    if (c == 3) return have == 2 || have == 4 ? pixel[have - 1] : 255;
    if (grey) return pixel[0];
    if (want > 1) return pixel[c];
    return (uint8_t)((pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u) >> 16);
}

static void write_values(const rn_image *x, const rn_image_form *f, float *out) {
    uint32_t channels = f->channels ? f->channels : 3;
    uint32_t left = (x->width - f->width + 1) / 2, top = (x->height - f->height + 1) / 2;
    float scale = f->scale != 0 ? f->scale : 1.0f / 255;
    for (uint32_t c = 0; c < channels; c++) {
        uint32_t source = f->bgr && channels > 1 && c < 3 ? 2 - c : c;
        float by = f->std[c] != 0 ? f->std[c] : 1;
        for (uint32_t i = 0; i < f->height; i++)
            for (uint32_t j = 0; j < f->width; j++) {
                const uint8_t *pixel =
                    x->pixels + ((size_t)(top + i) * x->width + left + j) * x->channels;
                size_t at = f->channels_last ? ((size_t)i * f->width + j) * channels + c
                                             : ((size_t)c * f->height + i) * f->width + j;
                float value = (float)channel_of(pixel, x->channels, channels, source);
                out[at] = (value * scale - f->mean[c]) / by;
            }
    }
}

rn_status rn_image_values(const rn_image *image, const rn_image_form *form, float *out) {
    uint32_t width = 0, height = 0;
    rn_image resized;
    RN_TRY(rn_check_reserved(form->reserved, "rn_image_form"));
    if (form->channels > 4 || form->channels == 2)
        return rn_fail(RN_INVALID, "a model takes 1, 3 or 4 channels, not %u", form->channels);
    RN_TRY(find_size(image, form, &width, &height));
    if (width == image->width && height == image->height) {
        write_values(image, form, out);
        return RN_OK;
    }
    RN_TRY(resize(image, width, height, &resized));
    write_values(&resized, form, out);
    rn_image_free(&resized);
    return RN_OK;
}
