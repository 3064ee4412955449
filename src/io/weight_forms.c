// weight_forms.c — which weights of a checkpoint are forms, and what they become: from headers, the
// configuration and g_idx.
//
// Every tensor whose name ends as a form's data does is looked at, and its other tensors are found
// by their names. What does not fit together is an error here, before anything is planned.
#include "io/weight_forms_internal.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"
#include "tensor/quant.h"

#include <stdio.h>

enum {
    NAME_BYTES = 512,
    ROOM_BYTES = 1 << 20,      // what is read at once
    WIDE_ROOM_BYTES = 4 << 20, // where rows are columns of the file: longer pieces of each line
};

typedef struct finder {
    rn_checkpoint *checkpoint;
    const rn_forms_config *config;
    rn_str base; // X
} finder;

const char *rn_component_suffix(rn_dtype dtype, rn_component component) {
    static const char *const int8[RN_COMPONENT_COUNT] = {"._data", "._scale"};
    static const char *const int4[RN_COMPONENT_COUNT] = {"._data._data", "._scale", "._shift"};
    static const char *const nf4[RN_COMPONENT_COUNT] = {"", ".absmax"};
    static const char *const nf4_dq[RN_COMPONENT_COUNT] = {"", ".absmax", ".nested_absmax"};
    static const char *const whole[RN_COMPONENT_COUNT] = {""};
    return (dtype == RN_DTYPE_INT8     ? int8
            : dtype == RN_DTYPE_INT4   ? int4
            : dtype == RN_DTYPE_NF4    ? nf4
            : dtype == RN_DTYPE_NF4_DQ ? nf4_dq
                                       : whole)[component];
}

// ---- errors -------------------------------------------------------------------------------------

rn_status rn_form_blame(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor,
                        rn_status s) {
    return rn_error_locate(s, checkpoint->files[tensor->file].info.path, tensor->offset);
}

typedef struct shape_text {
    char text[96];
} shape_text;

static shape_text format_dims(const rn_tensor_info *t) {
    shape_text out = {"("};
    size_t length = 1;
    for (uint32_t i = 0; i < t->rank && length < sizeof out.text - 32; i++)
        length += (size_t)snprintf(out.text + length, sizeof out.text - length, "%s%llu",
                                   i ? ", " : "", (unsigned long long)t->dims[i]);
    snprintf(out.text + length, sizeof out.text - length, "%s)", t->rank > 3 ? "..." : "");
    return out;
}

static rn_status wrong_shape(const finder *f, const rn_tensor_info *t, const rn_weight_form *form) {
    rn_status s =
        rn_fail(RN_CORRUPT, "tensor '%.*s' is %s %s: that is not of a weight (%llu, %llu)",
                RN_STR_ARG(t->name), rn_dtype_get(t->dtype)->name, format_dims(t).text,
                (unsigned long long)form->rows, (unsigned long long)form->cols);
    s = rn_form_blame(f->checkpoint, t, s);
    return rn_hint(s, "the tensors of a quantised weight must be of one conversion, and "
                      "quantization_config in config.json of the same");
}

static rn_status contradicts(const finder *f, const rn_tensor_info *t, const char *what,
                             uint64_t said, uint64_t found) {
    rn_status s =
        rn_fail(RN_CORRUPT, "tensor '%.*s' has %s %llu, quantization_config says %llu",
                RN_STR_ARG(t->name), what, (unsigned long long)found, (unsigned long long)said);
    return rn_hint(rn_form_blame(f->checkpoint, t, s),
                   "config.json and the tensors are of two conversions");
}

static rn_status not_built(const finder *f, const rn_tensor_info *t, const char *what) {
    rn_status s = rn_fail(RN_UNSUPPORTED, "tensor '%.*s' is %s, which cannot be read",
                          RN_STR_ARG(t->name), what);
    return rn_hint(rn_form_blame(f->checkpoint, t, s),
                   "take the model's original weights, or a GGUF file");
}

// ---- tensors ------------------------------------------------------------------------------------

static const rn_tensor_info *find(const finder *f, const char *suffix) {
    char name[NAME_BYTES];
    int length = snprintf(name, sizeof name, "%.*s%s", RN_STR_ARG(f->base), suffix);
    return length < NAME_BYTES ? rn_checkpoint_find(f->checkpoint, name) : NULL;
}

static rn_status need(const finder *f, const rn_tensor_info *data, const char *suffix,
                      const rn_tensor_info **out) {
    *out = find(f, suffix);
    if (*out) return RN_OK;
    rn_status s = rn_fail(RN_NOT_FOUND, "tensor '%.*s' is quantised, but '%.*s%s' is missing",
                          RN_STR_ARG(data->name), RN_STR_ARG(f->base), suffix);
    return rn_hint(rn_form_blame(f->checkpoint, data, s), "the files are incomplete");
}

static bool is_matrix(const rn_tensor_info *t, uint64_t rows, uint64_t cols) {
    return t->rank == 2 && t->dims[0] == rows && t->dims[1] == cols;
}

static bool is_scale_dtype(rn_dtype dtype) {
    return dtype == RN_DTYPE_F32 || dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
}

// ---- what a form becomes ------------------------------------------------------------------------

// Experts of a layer are one weight, whose matrices are runs of bytes.
static bool is_expert(const rn_tensor_info *data) {
    return rn_str_matches(data->name, RN_STR("*.experts.*"));
}

// Whole numbers of 4 or 8 bits. q4_0 and q8_0 have fast products; int4 is exact for any zero where
// its groups, which follow from the columns, lie within the file's.
static rn_dtype choose_integers(const rn_weight_form *f) {
    bool blocks = f->cols % 32 == 0 && f->group % 32 == 0;
    bool half = f->scale->dtype == RN_DTYPE_F16 || f->scale->dtype == RN_DTYPE_BF16;
    if (f->order) return RN_DTYPE_F16;
    if (f->symmetric && half && blocks) return f->bits == 4 ? RN_DTYPE_Q4_0 : RN_DTYPE_Q8_0;
    uint64_t own = is_expert(f->data) ? 0 : rn_quant_int4_group(f->cols);
    if (f->bits == 4 && own && f->group % own == 0 && f->rows % 2 == 0) return RN_DTYPE_INT4;
    return f->bits == 4 && blocks ? RN_DTYPE_U4_B32 : RN_DTYPE_F16;
}

// Groups of a row, from the number of scales; what the configuration says must agree.
static rn_status read_groups(const finder *f, rn_weight_form *form, uint64_t count) {
    if (count == 0 || form->cols == 0 || form->cols % count)
        return wrong_shape(f, form->scale, form);
    form->group_count = count;
    form->group = form->cols / count;
    uint32_t said = f->config->group;
    if (said && said != form->group && !(said > form->cols && count == 1))
        return contradicts(f, form->scale, "groups of", said, form->group);
    return RN_OK;
}

// Numbers in an i32; the configuration's bits, or those of the shapes.
static rn_status check_bits(const finder *f, const rn_tensor_info *data, uint32_t bits) {
    if (f->config->bits && f->config->bits != bits)
        return contradicts(f, data, "bits", f->config->bits, bits);
    if (bits == 4 || bits == 8) return RN_OK;
    char what[40];
    snprintf(what, sizeof what, "of numbers of %u bits", bits);
    return not_built(f, data, what);
}

// g_idx: whether groups are runs of columns after all; every entry must be a group.
static rn_status read_order(const finder *f, rn_weight_form *form, const rn_tensor_info *order) {
    int32_t some[1024];
    if (order->dtype != RN_DTYPE_I32 || order->rank != 1 || order->dims[0] != form->cols)
        return wrong_shape(f, order, form);
    for (uint64_t at = 0; at < form->cols; at += 1024) {
        uint64_t count = rn_min_u64(1024, form->cols - at);
        RN_TRY(rn_checkpoint_read(f->checkpoint, order, at * sizeof *some, some,
                                  count * sizeof *some));
        for (uint64_t k = 0; k < count; k++) {
            if (some[k] < 0 || (uint64_t)some[k] >= form->group_count) {
                rn_status s = rn_fail(RN_CORRUPT, "tensor '%.*s' names group %d of %llu",
                                      RN_STR_ARG(order->name), some[k],
                                      (unsigned long long)form->group_count);
                s = rn_error_locate(s, f->checkpoint->files[order->file].info.path,
                                    order->offset + (at + k) * sizeof *some);
                return rn_hint(s, "the file is damaged, or quantization_config has another "
                                  "group_size");
            }
            if ((uint64_t)some[k] != (at + k) / form->group) form->order = order;
        }
    }
    if (!form->order) form->ordered = order;
    return RN_OK;
}

// ---- forms --------------------------------------------------------------------------------------

// One scale, one a row, or one a tile.
static rn_status read_tiles(const finder *f, rn_weight_form *form) {
    const rn_tensor_info *t = form->scale;
    uint64_t rows = f->config->tile[0] ? f->config->tile[0] : 128;
    uint64_t cols = f->config->tile[1] ? f->config->tile[1] : 128;
    form->scale_rows = 1;
    form->group = form->cols;
    form->group_count = 1;
    if (!is_scale_dtype(t->dtype) && t->dtype != RN_DTYPE_F8_E8M0) return wrong_shape(f, t, form);
    if (t->elements == 1) {
        form->scale_rows = form->rows;
    } else if (t->elements != form->rows || t->dims[0] != form->rows) {
        if (!is_matrix(t, rn_div_up(form->rows, rows), rn_div_up(form->cols, cols)))
            return wrong_shape(f, t, form);
        form->scale_rows = rows;
        form->group = cols;
        form->group_count = t->dims[1];
    }
    return RN_OK;
}

static rn_dtype choose_fp8(const rn_weight_form *f) {
    uint64_t run = f->group_count == 1 ? f->cols : f->group; // of one scale
    if (f->cols % 128 == 0 && run % 128 == 0) return RN_DTYPE_F8_B128;
    return f->cols % 32 == 0 && run % 32 == 0 ? RN_DTYPE_F8_B32 : RN_DTYPE_F32;
}

static rn_status find_fp8(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_FP8, .data = data, .bits = 8};
    form->scale = find(f, ".weight_scale_inv");
    if (!form->scale) form->scale = find(f, ".scale_weight");
    if (!form->scale) RN_TRY(need(f, data, ".weight_scale", &form->scale));
    if (data->rank != 2) return not_built(f, data, "fp8 that is no matrix");
    form->rows = data->dims[0];
    form->cols = data->dims[1];
    RN_TRY(read_tiles(f, form));
    form->dtype = choose_fp8(form);
    return RN_OK;
}

// Of all experts of a layer, each with tiles of its own.
static rn_status find_fp8_stack(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_FP8, .data = data, .bits = 8};
    uint64_t rows = f->config->tile[0] ? f->config->tile[0] : 128;
    uint64_t cols = f->config->tile[1] ? f->config->tile[1] : 128;
    const uint64_t *dims = data->dims;
    RN_TRY(need(f, data, "_scale_inv", &form->scale));
    if (dims[1] % rows) return not_built(f, data, "of experts that are no whole tiles");
    form->cols = dims[2];
    const rn_tensor_info *t = form->scale;
    if (!rn_mul_u64(dims[0], dims[1], &form->rows) || t->rank != 3 || t->dims[0] != dims[0] ||
        t->dims[1] != dims[1] / rows || t->dims[2] != rn_div_up(dims[2], cols) ||
        (!is_scale_dtype(t->dtype) && t->dtype != RN_DTYPE_F8_E8M0))
        return wrong_shape(f, t, form);
    form->scale_rows = rows;
    form->group = cols;
    form->group_count = t->dims[2];
    form->dtype = choose_fp8(form);
    return RN_OK;
}

static rn_status find_int8(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_INT8, .data = data, .bits = 8, .symmetric = true};
    RN_TRY(need(f, data, ".weight_scale", &form->scale));
    if (data->rank != 2) return not_built(f, data, "int8 that is no matrix");
    if (find(f, ".weight_zero_point")) return not_built(f, data, "int8 with zero points");
    form->rows = data->dims[0];
    form->cols = data->dims[1];
    RN_TRY(check_bits(f, data, 8));
    const rn_tensor_info *t = form->scale;
    bool one = t->elements == 1;
    form->scale_rows = one ? form->rows : 1;
    if (!is_scale_dtype(t->dtype) || (!one && (t->rank == 0 || t->dims[0] != form->rows)))
        return wrong_shape(f, t, form);
    RN_TRY(read_groups(f, form, one || form->rows == 0 ? 1 : t->elements / form->rows));
    bool whole = form->group_count == 1 && !is_expert(data);
    form->dtype = whole ? RN_DTYPE_INT8 : choose_integers(form);
    return RN_OK;
}

// weight_shape has two whole numbers: rows and columns before packing.
static rn_status read_shape(const finder *f, const rn_tensor_info *t, rn_weight_form *form) {
    uint64_t dims[2] = {0};
    uint32_t narrow[2];
    form->shape = t;
    if (t->elements != 2 || (t->dtype != RN_DTYPE_I64 && t->dtype != RN_DTYPE_I32))
        return wrong_shape(f, t, form);
    if (t->dtype == RN_DTYPE_I64) {
        RN_TRY(rn_checkpoint_read(f->checkpoint, t, 0, dims, sizeof dims));
    } else {
        RN_TRY(rn_checkpoint_read(f->checkpoint, t, 0, narrow, sizeof narrow));
        dims[0] = narrow[0], dims[1] = narrow[1];
    }
    if (dims[0] != form->rows || dims[1] == 0 || dims[1] / 32 > form->data->dims[1])
        return contradicts(f, t, "rows", form->rows, dims[0]);
    form->cols = dims[1];
    return RN_OK;
}

static rn_status find_packed(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_PACKED, .data = data, .scale_rows = 1};
    const rn_tensor_info *shape = NULL;
    RN_TRY(need(f, data, ".weight_scale", &form->scale));
    RN_TRY(need(f, data, ".weight_shape", &shape));
    if (data->rank != 2 || data->dims[1] == 0) return not_built(f, data, "packed, but no matrix");
    form->rows = data->dims[0];
    RN_TRY(read_shape(f, shape, form));
    form->bits = (uint32_t)rn_min_u64(data->dims[1] * 32 / form->cols, 32);
    RN_TRY(check_bits(f, data, form->bits));
    uint32_t each = 32 / form->bits;
    const rn_tensor_info *t = form->scale;
    if (data->dims[1] != rn_div_up(form->cols, each)) return wrong_shape(f, data, form);
    if (!is_scale_dtype(t->dtype) || t->rank != 2 || t->dims[0] != form->rows)
        return wrong_shape(f, t, form);
    RN_TRY(read_groups(f, form, t->dims[1]));
    form->zero = find(f, ".weight_zero_point");
    form->symmetric = !form->zero;
    if (form->zero && (form->zero->dtype != RN_DTYPE_I32 ||
                       !is_matrix(form->zero, rn_div_up(form->rows, each), form->group_count)))
        return wrong_shape(f, form->zero, form);
    const rn_tensor_info *order = find(f, ".weight_g_idx");
    if (order) RN_TRY(read_order(f, form, order));
    form->dtype = choose_integers(form);
    return RN_OK;
}

// Of gptq and awq: scales and zeros are (groups, rows).
static rn_status read_columns(const finder *f, rn_weight_form *form) {
    const rn_tensor_info *t = form->scale;
    uint32_t each = 32 / form->bits;
    form->scale_rows = 1;
    if (!is_scale_dtype(t->dtype) || t->rank != 2 || t->dims[1] != form->rows || form->rows % each)
        return wrong_shape(f, t, form);
    RN_TRY(read_groups(f, form, t->dims[0]));
    if (form->zero->dtype != RN_DTYPE_I32 ||
        !is_matrix(form->zero, form->group_count, form->rows / each))
        return wrong_shape(f, form->zero, form);
    return RN_OK;
}

static rn_status find_gptq(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    uint32_t bits = f->config->bits ? f->config->bits : 4;
    *form = (rn_weight_form){.kind = RN_FORM_GPTQ,
                             .data = data,
                             .bits = bits,
                             .symmetric = f->config->symmetric,
                             .zero_plus_one = !f->config->zeros_are_true};
    RN_TRY(need(f, data, ".scales", &form->scale));
    RN_TRY(need(f, data, ".qzeros", &form->zero));
    RN_TRY(check_bits(f, data, bits));
    if (data->rank != 2) return not_built(f, data, "gptq, but no matrix");
    form->cols = data->dims[0] * (32 / bits);
    form->rows = data->dims[1];
    RN_TRY(read_columns(f, form));
    const rn_tensor_info *order = find(f, ".g_idx");
    if (order) RN_TRY(read_order(f, form, order));
    form->dtype = choose_integers(form);
    return RN_OK;
}

static rn_status find_awq(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_AWQ, .data = data, .bits = 4};
    RN_TRY(need(f, data, ".scales", &form->scale));
    RN_TRY(need(f, data, ".qzeros", &form->zero));
    RN_TRY(check_bits(f, data, 4));
    if (data->rank != 2) return not_built(f, data, "awq, but no matrix");
    form->cols = data->dims[0];
    form->rows = data->dims[1] * 8;
    RN_TRY(read_columns(f, form));
    form->dtype = choose_integers(form);
    return RN_OK;
}

static rn_status find_nvfp4(const finder *f, const rn_tensor_info *data, rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_NVFP4, .data = data, .bits = 4, .scale_rows = 1};
    RN_TRY(need(f, data, ".weight_scale", &form->scale));
    form->factor = find(f, ".weight_scale_2");
    form->divides = !form->factor;
    if (form->divides) RN_TRY(need(f, data, ".weight_global_scale", &form->factor));
    if (data->rank != 2) return not_built(f, data, "nvfp4 that is no matrix");
    form->rows = data->dims[0];
    form->cols = data->dims[1] * 2;
    form->group = 16;
    form->group_count = form->cols / 16;
    if (form->cols % 16 || !is_matrix(form->scale, form->rows, form->group_count) ||
        form->scale->dtype != RN_DTYPE_F8_E4M3)
        return wrong_shape(f, form->scale, form);
    if (form->factor->elements != 1 || form->factor->dtype != RN_DTYPE_F32)
        return wrong_shape(f, form->factor, form);
    form->dtype = form->cols % 64 ? RN_DTYPE_F32 : RN_DTYPE_FP4_B64;
    return RN_OK;
}

// A scale for 32 numbers of 16 bytes, whatever the axes; `data` and `scale` agree up to the last.
static rn_status find_mxfp4(const finder *f, const rn_tensor_info *data, const char *scale,
                            rn_weight_form *form) {
    *form = (rn_weight_form){.kind = RN_FORM_MXFP4, .data = data, .bits = 4, .scale_rows = 1};
    RN_TRY(need(f, data, scale, &form->scale));
    const rn_tensor_info *t = form->scale;
    if (t->rank < 2 || t->dims[t->rank - 1] == 0) return wrong_shape(f, t, form);
    form->group = 32;
    form->group_count = t->dims[t->rank - 1];
    form->rows = t->elements / form->group_count;
    form->cols = form->group_count * 32;
    bool agree = (t->dtype == RN_DTYPE_U8 || t->dtype == RN_DTYPE_F8_E8M0) &&
                 data->dtype == RN_DTYPE_U8 && data->elements / 16 == t->elements &&
                 data->elements % 16 == 0 && data->rank >= t->rank;
    for (uint32_t i = 0; agree && i + 1 < t->rank; i++)
        agree = data->dims[i] == t->dims[i];
    if (!agree) return wrong_shape(f, t, form);
    form->dtype = RN_DTYPE_MXFP4;
    return RN_OK;
}

// ---- all of a checkpoint ------------------------------------------------------------------------

static bool ends(finder *f, const rn_tensor_info *t, const char *suffix) {
    rn_str end = rn_str_from(suffix);
    f->base = (rn_str){t->name.data, t->name.bytes - (t->name.bytes > end.bytes ? end.bytes : 0)};
    return t->name.bytes > end.bytes && rn_str_ends(t->name, end);
}

static bool has_e4m3_scale(const finder *f) {
    const rn_tensor_info *scale = find(f, ".weight_scale");
    return scale && scale->dtype == RN_DTYPE_F8_E4M3;
}

// The form whose data the tensor is; *out_found false: it is a tensor like any other.
static rn_status find_form(finder *f, const rn_tensor_info *t, rn_weight_form *out,
                           bool *out_found) {
    rn_forms_method method = f->config->method;
    *out_found = true;
    if (ends(f, t, ".qweight"))
        return method == RN_FORMS_AWQ ? find_awq(f, t, out) : find_gptq(f, t, out);
    if (ends(f, t, ".weight_packed")) {
        if (t->dtype == RN_DTYPE_I32) return find_packed(f, t, out);
        return has_e4m3_scale(f) ? find_nvfp4(f, t, out) : find_mxfp4(f, t, ".weight_scale", out);
    }
    if (method == RN_FORMS_MXFP4 && ends(f, t, "_blocks")) return find_mxfp4(f, t, "_scales", out);
    if (t->dtype == RN_DTYPE_F8_E4M3 && t->rank == 3 && ends(f, t, "_proj")) {
        f->base = t->name;
        return find_fp8_stack(f, t, out);
    }
    if (ends(f, t, ".weight")) {
        bool scaled = find(f, ".weight_scale") || find(f, ".scale_weight");
        *out_found = method != RN_FORMS_SCALED || scaled;
        if (!*out_found) return RN_OK;
        // ComfyUI's int8 is of rotated weights.
        if (t->dtype == RN_DTYPE_I8 && find(f, ".comfy_quant"))
            return not_built(f, t, "int8 of ComfyUI's (comfy_quant)");
        if (t->dtype == RN_DTYPE_F8_E4M3) return find_fp8(f, t, out);
        if (t->dtype == RN_DTYPE_F8_E5M2) return not_built(f, t, "f8_e5m2 with scales");
        if (t->dtype == RN_DTYPE_I8) return find_int8(f, t, out);
        if (t->dtype == RN_DTYPE_U8 && has_e4m3_scale(f)) return find_nvfp4(f, t, out);
    }
    *out_found = false;
    return RN_OK;
}

static rn_status name_form(const finder *f, rn_weight_form *form) {
    char name[NAME_BYTES];
    bool bare = rn_str_ends(form->data->name, RN_STR("_blocks")) || form->data->rank == 3;
    int length = snprintf(name, sizeof name, "%.*s%s", RN_STR_ARG(f->base), bare ? "" : ".weight");
    void *copy;
    if (length >= NAME_BYTES) return not_built(f, form->data, "of too long a name");
    RN_TRY(rn_arena_copy(&f->checkpoint->arena, name, (size_t)length, &copy));
    form->name = (rn_str){copy, (size_t)length};
    return RN_OK;
}

static rn_status add_form(const finder *f, rn_weight_forms *forms, rn_weight_form *form) {
    RN_TRY(name_form(f, form));
    if (form->rows == 0 || form->cols == 0) return wrong_shape(f, form->data, form);
    RN_TRY(rn_map_add(&forms->by_name, form->name, forms->count, NULL));
    forms->items[forms->count++] = *form;
    return RN_OK;
}

static rn_status make_room(rn_weight_forms *forms) {
    uint64_t bytes = 0;
    void *room;
    for (size_t i = 0; i < forms->count; i++) {
        const rn_weight_form *f = &forms->items[i];
        bool across = f->kind == RN_FORM_GPTQ || f->kind == RN_FORM_AWQ;
        bytes = rn_max_u64(bytes, rn_form_room_bytes(f, across ? WIDE_ROOM_BYTES : ROOM_BYTES));
    }
    if (bytes > SIZE_MAX / 2) return rn_fail(RN_CORRUPT, "a quantised weight is too large");
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, (size_t)bytes, &room));
    forms->room = room;
    forms->room_bytes = (size_t)bytes;
    return RN_OK;
}

static rn_status find_all(rn_checkpoint *checkpoint, const rn_forms_config *config,
                          rn_weight_forms *forms) {
    finder f = {.checkpoint = checkpoint, .config = config};
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        rn_weight_form form = {0};
        bool found = false;
        RN_TRY(find_form(&f, &checkpoint->tensors[i], &form, &found));
        if (found) RN_TRY(add_form(&f, forms, &form));
    }
    if (forms->count == 0)
        return rn_hint(rn_fail(RN_CORRUPT,
                               "quantization_config says that weights are quantised, but "
                               "no tensor is"),
                       "remove quantization_config from config.json if the weights are plain");
    RN_TRY(make_room(forms));
    return rn_checkpoint_stack_forms(checkpoint);
}

// Room for `most`; closed with the checkpoint from here on.
static rn_status create_forms(rn_checkpoint *checkpoint, size_t most, rn_weight_forms **out) {
    void *block, *items;
    RN_TRY(rn_arena_array(&checkpoint->arena, 1, sizeof(rn_weight_forms), &block));
    RN_TRY(rn_arena_array(&checkpoint->arena, most, sizeof(rn_weight_form), &items));
    *out = block;
    (*out)->items = items;
    rn_map_init(&(*out)->by_name, RN_HOST_IO);
    pthread_mutex_init(&(*out)->mutex, NULL);
    checkpoint->forms = *out;
    return RN_OK;
}

rn_status rn_checkpoint_find_forms(rn_checkpoint *checkpoint, const rn_forms_config *config) {
    rn_weight_forms *forms = NULL;
    if (config->method == RN_FORMS_NONE) return RN_OK;
    RN_TRY(create_forms(checkpoint, checkpoint->tensor_count, &forms));
    return find_all(checkpoint, config, forms);
}

rn_status rn_checkpoint_add_forms(rn_checkpoint *checkpoint, const rn_weight_form *items,
                                  size_t count) {
    rn_weight_forms *forms = NULL;
    if (count == 0) return RN_OK;
    RN_TRY(create_forms(checkpoint, count, &forms));
    for (size_t i = 0; i < count; i++) {
        RN_TRY(rn_map_add(&forms->by_name, items[i].name, i, NULL));
        forms->items[forms->count++] = items[i];
    }
    return make_room(forms);
}

void rn_weight_forms_close(rn_weight_forms *forms) {
    if (!forms) return;
    rn_free(RN_HOST_IO, forms->room, forms->room_bytes);
    rn_map_free(&forms->by_name);
    pthread_mutex_destroy(&forms->mutex);
}

// ---- looking ------------------------------------------------------------------------------------

const rn_weight_form *rn_checkpoint_form(const rn_checkpoint *checkpoint, const char *name) {
    uint64_t index;
    const rn_weight_forms *forms = checkpoint->forms;
    return forms && rn_map_find(&forms->by_name, rn_str_from(name), &index) ? &forms->items[index]
                                                                            : NULL;
}

const rn_weight_form *rn_checkpoint_form_at(const rn_checkpoint *checkpoint, size_t index) {
    const rn_weight_forms *forms = checkpoint->forms;
    return forms && index < forms->count ? &forms->items[index] : NULL;
}

size_t rn_weight_form_tensors(const rn_weight_form *form,
                              const rn_tensor_info *out[RN_FORM_TENSORS]) {
    const rn_tensor_info *all[RN_FORM_TENSORS] = {
        form->data, form->scale, form->zero, form->order, form->factor, form->shape, form->ordered};
    size_t count = 0;
    for (size_t i = 0; i < RN_FORM_TENSORS; i++)
        if (all[i]) out[count++] = all[i];
    return count;
}
