// picture.c — a .png file as an input: which axes of the input are its sides and channels, and how
// pixels become values.
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool is_picture(const char *path) {
    size_t bytes = strlen(path);
    return bytes > 4 && strcmp(path + bytes - 4, ".png") == 0;
}

// "X" or "X,X,X".
static rn_status read_numbers(const invocation *in, const char *option, float out[4]) {
    const char *text = rn_settings_text(in->settings, option), *at = text;
    int count = 0;
    for (char *end; count < 4; at = end + 1) {
        out[count++] = strtof(at, &end);
        if (end == at || !isfinite(out[count - 1]) || (*end && *end != ','))
            return rn_hint(rn_fail(RN_INVALID, "--%s %s: not numbers", option, text),
                           "for example --%s 0.485,0.456,0.406", option);
        if (!*end) break;
    }
    for (int i = count; i < 4; i++)
        out[i] = out[count - 1];
    return RN_OK;
}

static rn_status read_form(const invocation *in, rn_image_form *out) {
    const char *resize = rn_settings_text(in->settings, "resize");
    char *end = NULL;
    out->bgr = rn_settings_bool(in->settings, "bgr");
    out->scale = (float)rn_settings_number(in->settings, "scale");
    out->stretch = strcmp(resize, "stretch") == 0;
    unsigned long size = out->stretch || !resize[0] ? 0 : strtoul(resize, &end, 10);
    if (end && (*end || size == 0 || size > UINT16_MAX))
        return rn_fail(RN_INVALID, "--resize %s: neither a size nor stretch", resize);
    out->resize = (uint32_t)size;
    RN_TRY(read_numbers(in, "mean", out->mean));
    RN_TRY(read_numbers(in, "std", out->std));
    for (int i = 0; i < 4; i++)
        if (out->std[i] == 0) return rn_fail(RN_INVALID, "--std: values cannot be divided by 0");
    return RN_OK;
}

static bool is_channels(uint64_t size) {
    return size == 1 || size == 3 || size == 4;
}

// (C, H, W) or (H, W, C), with a batch of one before it or none.
static rn_status find_axes(const rn_value_info *input, rn_image_form *out) {
    rn_shape s = input->shape;
    const uint64_t *axes = s.dims + (s.rank == 4);
    bool batch = s.rank == 4 && (s.dims[0] == 1 || s.dims[0] == RN_ROWS);
    bool first = is_channels(axes[0]), last = is_channels(axes[2]);
    if ((s.rank != 3 && !batch) || (!first && !last) || axes[1] > UINT16_MAX ||
        axes[first ? 2 : 0] > UINT16_MAX)
        return rn_hint(rn_fail(RN_INVALID, "input '%s' %s is not that of a picture", input->name,
                               rn_shape_format(s).text),
                       "a .npy file has any shape; --dim sets a size that the model leaves open");
    out->channels_last = !first;
    out->channels = (uint32_t)axes[first ? 0 : 2];
    out->height = (uint32_t)axes[first ? 1 : 0];
    out->width = (uint32_t)axes[first ? 2 : 1];
    return RN_OK;
}

// Inputs of bytes are the pixels themselves.
static rn_status convert_values(const float *values, uint64_t count, npy_array *out) {
    uint8_t *bytes = (uint8_t *)out->file.data;
    if (out->dtype != RN_DTYPE_U8)
        return rn_dtype_convert(RN_DTYPE_F32, values, out->dtype, out->file.data, count);
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)fminf(fmaxf(roundf(values[i]), 0), 255);
    return RN_OK;
}

static rn_status fill(const rn_image *image, const rn_image_form *form, npy_array *out) {
    uint64_t count = (uint64_t)form->height * form->width * form->channels;
    text_buffer values = {0};
    RN_TRY(reserve_text(&values, count * sizeof(float)));
    rn_status s = rn_image_values(image, form, (float *)(void *)values.data);
    if (s == RN_OK) s = reserve_text(&out->file, out->bytes);
    if (s == RN_OK) s = convert_values((const float *)(void *)values.data, count, out);
    free_text(&values);
    return s;
}

rn_status read_picture(const invocation *in, const char *path, const rn_value_info *input,
                       npy_array *out) {
    rn_image_form form = {0};
    rn_image image;
    RN_TRY(read_form(in, &form));
    RN_TRY(find_axes(input, &form));
    if (input->dtype == RN_DTYPE_U8) form.scale = 1;
    out->dtype = input->dtype;
    out->shape = input->shape;
    if (out->shape.rank == 4) out->shape.dims[0] = 1;
    if (!rn_dtype_bytes(out->dtype, rn_shape_elements(out->shape, 1), &out->bytes))
        return rn_fail(RN_INVALID, "input '%s' is not that of a picture", input->name);
    RN_TRY(rn_image_read(path, &image));
    rn_status s = fill(&image, &form, out);
    rn_image_free(&image);
    return s;
}
