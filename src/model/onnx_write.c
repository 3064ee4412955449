// onnx_write.c — a recipe's graph as an ONNX file, its weights in a file beside it.
//
//     model.onnx        the graph (exchange/onnx_export.h)
//     model.onnx.data   weights one behind the other, each on a 4 KiB boundary; an 8-bit one with
//                       its scales behind it
//
// Weights go through one buffer, a band after the other, so the model's size does not matter. The
// data appears first: a model.onnx without its data is never seen.
#include <ration/onnx.h>

#include "base/checked.h"
#include "base/output.h"
#include "exchange/onnx_export.h"
#include "graph/op.h"
#include "io/weight_forms.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAND_ELEMENTS = 256 << 10 }; // of a weight, at once

typedef struct writing {
    const rn_graph *graph;
    const rn_weight_source *weights;
    const rn_onnx_write_options *options;
    rn_output *output;
    uint8_t *band; // as the file has it, then as it is written: f32 at most
    uint64_t band_bytes, written;
    // A weight that becomes 8 bits passes twice: for its scales, then for its codes.
    enum { PLAIN, SCALES, CODES } pass;
    float *scales;                 // (rows of it)
    uint64_t row_elements, passed; // of it, elements so far
} writing;

// ---- weights ------------------------------------------------------------------------------------

static rn_status append(writing *w, const void *data, uint64_t bytes) {
    if (w->options->cancel && *w->options->cancel)
        return rn_fail(RN_CANCELLED, "cancelled while weights were written");
    w->written += bytes;
    return rn_output_append(w->output, data, bytes);
}

// The largest of each row, or codes: in place, since a code is smaller than a number.
static rn_status take_rows(writing *w, float *x, uint64_t elements) {
    int8_t *codes = (int8_t *)x;
    for (uint64_t i = 0; i < elements; i++) {
        float *scale = &w->scales[(w->passed + i) / w->row_elements];
        if (w->pass == SCALES) *scale = fmaxf(*scale, fabsf(x[i]));
        if (w->pass == CODES) codes[i] = (int8_t)lrintf(*scale > 0 ? x[i] / *scale : 0);
    }
    w->passed += elements;
    return w->pass == CODES ? append(w, codes, elements) : RN_OK;
}

// `elements` of a dtype, which is widened where the model has f32.
static rn_status append_band(writing *w, rn_dtype from, rn_dtype to, const void *data,
                             uint64_t elements) {
    uint64_t bytes = 0;
    if (!rn_dtype_bytes(from, elements, &bytes)) return rn_fail(RN_INVALID, "a band is too large");
    if (from == to) return append(w, data, bytes);
    float *wide = (float *)(w->band + w->band_bytes / 2);
    if (w->pass != PLAIN) {
        RN_TRY(rn_dtype_convert(from, data, RN_DTYPE_F32, wide, elements));
        return take_rows(w, wide, elements);
    }
    RN_TRY(rn_dtype_convert(from, data, to, wide, elements));
    if (!rn_dtype_bytes(to, elements, &bytes)) return rn_fail(RN_INVALID, "a band is too large");
    return append(w, wide, bytes);
}

static rn_status refuse_weight(const rn_value_info *info, const char *why) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "weight '%s' (%s) %s", info->name,
                           rn_dtype_get(info->dtype)->name, why),
                   "convert the model to f16 or f32 first (--to f16)");
}

typedef struct form_writing {
    writing *w;
    rn_dtype from, to;
} form_writing;

static rn_status append_piece(void *self, rn_component component, uint64_t offset, const void *data,
                              uint64_t bytes) {
    const form_writing *f = self;
    const rn_dtype_info *info = rn_dtype_get(f->from);
    (void)offset;
    if (component != RN_COMPONENT_DATA) return rn_fail(RN_INTERNAL, "a form of several parts");
    for (uint64_t done = 0; done < bytes;) {
        uint64_t blocks =
            rn_min_u64((bytes - done) / info->block_bytes, BAND_ELEMENTS / info->block_elements);
        RN_TRY(append_band(f->w, f->from, f->to, (const uint8_t *)data + done,
                           blocks * info->block_elements));
        done += blocks * info->block_bytes;
    }
    return RN_OK;
}

// A weight that the file has as several tensors: kinds of one part, a row after the other.
static rn_status write_form(writing *w, const rn_value_info *info, const rn_weight_form *form,
                            rn_dtype to) {
    form_writing f = {w, form->dtype, to};
    if (!rn_dtype_get(form->dtype)->readable)
        return refuse_weight(info, "is of a form that is not written as ONNX");
    uint64_t rows = info->shape.rank ? info->shape.dims[0] : 1;
    return rn_weight_form_read(w->weights->checkpoint, form, info->tensor ? info->first_row : 0,
                               info->tensor ? rows : form->rows, append_piece, &f);
}

static rn_status write_from_file(writing *w, const rn_value_info *info, rn_dtype to) {
    const rn_checkpoint *checkpoint = w->weights->checkpoint;
    const char *name = rn_weight_tensor(info);
    const rn_weight_form *form = checkpoint ? rn_checkpoint_form(checkpoint, name) : NULL;
    if (form) return write_form(w, info, form, to);
    const rn_tensor_info *tensor = checkpoint ? rn_checkpoint_find(checkpoint, name) : NULL;
    if (!tensor) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", name);
    uint64_t elements = rn_shape_elements(info->shape, 0), first = 0, at = 0, band_bytes = 0;
    if (tensor->dtype != to && !rn_dtype_get(tensor->dtype)->readable)
        return refuse_weight(info, "cannot be widened");
    if (info->tensor && info->shape.rank)
        first = info->first_row * (elements / info->shape.dims[0]);
    for (uint64_t done = 0; done < elements;) {
        uint64_t count = rn_min_u64(elements - done, BAND_ELEMENTS);
        if (!rn_dtype_bytes(tensor->dtype, first + done, &at) ||
            !rn_dtype_bytes(tensor->dtype, count, &band_bytes) || band_bytes > w->band_bytes / 2)
            return refuse_weight(info, "has rows that are no whole blocks");
        RN_TRY(rn_checkpoint_read(checkpoint, tensor, at, w->band, band_bytes));
        RN_TRY(append_band(w, tensor->dtype, to, w->band, count));
        done += count;
    }
    return RN_OK;
}

static rn_status pad_to(writing *w, uint64_t offset) {
    static const uint8_t zeros[4096];
    if (w->written > offset || offset - w->written > sizeof zeros)
        return rn_fail(RN_INTERNAL, "a weight has another number of bytes");
    return append(w, zeros, offset - w->written);
}

static rn_status write_numbers(writing *w, const rn_stablehlo_entry *entry) {
    const rn_value_info *info = rn_graph_value(w->graph, entry->value);
    uint64_t bytes = 0, elements = rn_shape_elements(info->shape, 0);
    const void *data = info->constant;
    if (!data && w->weights->find && rn_dtype_bytes(info->dtype, elements, &bytes))
        data = w->weights->find(w->weights->self, info->name, info->dtype, bytes);
    if (!data) return write_from_file(w, info, entry->dtype);
    if (info->dtype != entry->dtype && !rn_dtype_get(info->dtype)->readable)
        return refuse_weight(info, "cannot be widened");
    for (uint64_t done = 0; done < elements; done += BAND_ELEMENTS) {
        uint64_t at = 0;
        if (!rn_dtype_bytes(info->dtype, done, &at))
            return refuse_weight(info, "has rows that are no whole blocks");
        RN_TRY(append_band(w, info->dtype, entry->dtype, (const uint8_t *)data + at,
                           rn_min_u64(elements - done, BAND_ELEMENTS)));
    }
    return RN_OK;
}

// Symmetric: the largest of a row is 127.
static rn_status write_int8(writing *w, const rn_stablehlo_entry *entry, uint64_t offset) {
    uint64_t rows = entry->shape.dims[0];
    void *scales = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, rows, sizeof(float), &scales));
    w->scales = scales;
    w->row_elements = entry->bytes / rows;
    rn_status s = RN_OK;
    for (w->pass = SCALES; s == RN_OK && w->pass <= CODES; w->pass++) {
        w->passed = 0;
        s = write_numbers(w, entry);
        for (uint64_t i = 0; w->pass == SCALES && i < rows; i++)
            w->scales[i] /= 127;
    }
    w->pass = PLAIN;
    if (s == RN_OK) s = pad_to(w, offset + rn_round_up(entry->bytes, RN_PAGE_BYTES));
    if (s == RN_OK) s = append(w, scales, rows * sizeof(float));
    rn_free(RN_HOST_IO, scales, rows * sizeof(float));
    return s;
}

static rn_status write_weight(writing *w, const rn_stablehlo_entry *entry, uint64_t offset) {
    return rn_onnx_export_is_int8(w->graph, entry) ? write_int8(w, entry, offset)
                                                   : write_numbers(w, entry);
}

static rn_status write_data(writing *w, const char *path, const rn_stablehlo_signature *s) {
    uint64_t bytes = rn_onnx_export_offset(w->graph, s, s->argument_count);
    rn_output_options options = {.file_bytes = bytes, .stream_bytes = bytes};
    RN_TRY(rn_output_create(path, &options, RN_HOST_IO, &w->output));
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *entry = &s->arguments[i];
        if (entry->kind != RN_STABLEHLO_WEIGHT && entry->kind != RN_STABLEHLO_CONSTANT) continue;
        RN_TRY(write_weight(w, entry, rn_onnx_export_offset(w->graph, s, i)));
        RN_TRY(pad_to(w, rn_onnx_export_offset(w->graph, s, i + 1)));
    }
    return rn_output_commit(w->output);
}

// ---- the file -----------------------------------------------------------------------------------

static rn_status write_small(const char *path, const rn_buffer *bytes) {
    rn_output *output = NULL;
    rn_output_options options = {.file_bytes = bytes->bytes};
    RN_TRY(rn_output_create(path, &options, RN_HOST_IO, &output));
    rn_status s = rn_output_put(output, 0, bytes->data, bytes->bytes);
    if (s == RN_OK) s = rn_output_commit(output);
    rn_output_destroy(output);
    return s;
}

static rn_status write_files(writing *w, const char *path, rn_arena *memory, rn_buffer *model) {
    rn_stablehlo_signature signature;
    char data[4096];
    const char *name = strrchr(path, '/');
    if ((size_t)snprintf(data, sizeof data, "%s.data", path) >= sizeof data)
        return rn_fail(RN_INVALID, "the path %s is too long", path);
    const char *data_name = name ? data + (name + 1 - path) : data;
    rn_onnx_export_options options = {
        .opset = w->options->opset, .weight_file = data_name, .int8 = w->options->int8};
    RN_TRY(rn_onnx_export(w->graph, &options, model));
    RN_TRY(rn_onnx_export_signature(w->graph, memory, &signature));
    if (options.int8) rn_onnx_export_mark_int8(w->graph, &signature);
    w->band_bytes = 2 * BAND_ELEMENTS * sizeof(double);
    RN_TRY(rn_arena_alloc(memory, w->band_bytes, (void **)&w->band));
    RN_TRY(write_data(w, data, &signature));
    return write_small(path, model);
}

rn_status rn_onnx_write(const rn_recipe *recipe, const rn_weight_source *weights, const char *path,
                        const rn_onnx_write_options *options, uint64_t *out_bytes) {
    static const rn_onnx_write_options defaults;
    writing w = {.weights = weights, .options = options ? options : &defaults};
    rn_graph *graph = NULL;
    rn_buffer model;
    rn_arena memory;
    rn_buffer_init(&model, RN_HOST_IO, SIZE_MAX);
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = recipe->build(recipe->self, &(rn_recipe_options){0}, &graph);
    w.graph = graph;
    if (s == RN_OK) s = write_files(&w, path, &memory, &model);
    if (s == RN_OK && out_bytes) *out_bytes = w.written + model.bytes;
    rn_output_destroy(w.output);
    rn_buffer_free(&model);
    rn_arena_free_all(&memory);
    rn_graph_destroy(graph);
    return s;
}
