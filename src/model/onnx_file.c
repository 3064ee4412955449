// onnx_file.c — rn_onnx: an ONNX file opened, its graph written as ours, its initializers as a
// checkpoint.
#include <ration/onnx.h>

#include "base/file.h"
#include "base/str.h"
#include "exchange/onnx_import.h"
#include "io/onnx_bytes.h"
#include "memory/account.h"

#include <stdio.h>
#include <unistd.h>

#define FROM RN_HOST_OTHER

struct rn_onnx {
    rn_graph *graph;
    rn_checkpoint *checkpoint;
    rn_checkpoint *weights; // in other types; NULL: the checkpoint's
    rn_arena memory;        // names
    rn_onnx_info info;
    char name[64];                  // of the file
    const char **inputs, **outputs; // (input_count), (output_count)
    const bool *bound;              // (input_count)
    size_t input_count, output_count;
};

static rn_status copy_names(rn_onnx *o, const rn_onnx_value *values, size_t count, const bool *take,
                            const char ***out, size_t *out_count) {
    void *names = NULL;
    RN_TRY(rn_arena_array(&o->memory, count, sizeof(char *), &names));
    *out = names;
    for (size_t i = 0; i < count; i++) {
        void *copy = NULL;
        if (take && !take[i]) continue;
        RN_TRY(rn_arena_copy(&o->memory, values[i].name.data, values[i].name.bytes, &copy));
        (*out)[(*out_count)++] = copy;
    }
    return RN_OK;
}

static rn_status keep(rn_onnx *o, const rn_onnx_model *model, const rn_imported *imported) {
    const rn_onnx_graph_proto *g = model->graph;
    void *producer = NULL, *bound = NULL;
    size_t at = 0;
    RN_TRY(rn_arena_copy(&o->memory, model->producer.data, model->producer.bytes, &producer));
    RN_TRY(rn_arena_array(&o->memory, g->input_count, sizeof(bool), &bound));
    RN_TRY(copy_names(o, g->inputs, g->input_count, imported->given, &o->inputs, &o->input_count));
    RN_TRY(copy_names(o, g->outputs, g->output_count, NULL, &o->outputs, &o->output_count));
    o->bound = bound;
    o->info = (rn_onnx_info){
        .producer = producer, .nodes = g->node_count, .folded_bytes = imported->folded_bytes};
    for (size_t i = 0; i < g->input_count; i++) {
        if (!imported->given[i]) continue;
        ((bool *)bound)[at++] = imported->bound[i];
        o->info.bound_inputs += imported->bound[i];
    }
    for (size_t i = 0; i < model->opset_count; i++)
        if (model->opsets[i].domain.bytes == 0 ||
            rn_str_equal(model->opsets[i].domain, RN_STR("ai.onnx")))
            o->info.opset = model->opsets[i].version;
    for (rn_value v = 1; v <= rn_graph_value_count(o->graph); v++) {
        const rn_value_info *info = rn_graph_value(o->graph, v);
        uint64_t bytes = 0, elements = rn_shape_elements(info->shape, 1);
        if (info->role != RN_ROLE_WEIGHT || !rn_dtype_bytes(info->dtype, elements, &bytes))
            continue;
        o->info.parameters += elements;
        o->info.weight_bytes += bytes;
    }
    return RN_OK;
}

static bool has_symbol(const rn_onnx_graph_proto *g, const char *name) {
    for (size_t i = 0; i < g->input_count; i++)
        for (uint32_t k = 0; k < g->inputs[i].rank; k++)
            if (rn_str_equal(g->inputs[i].dims[k].param, rn_str_from(name))) return true;
    return false;
}

// A size for a symbol that no input has is a mistake.
static rn_status check_dims(const rn_onnx_model *model, const rn_onnx_options *options) {
    for (size_t i = 0; options && i < options->dim_count; i++)
        if (!has_symbol(model->graph, options->dims[i].name))
            return rn_fail(RN_INVALID, "no input has an axis called '%s'", options->dims[i].name);
    return RN_OK;
}

static rn_status import_bytes(rn_onnx *o, rn_str bytes, const rn_onnx_options *options) {
    rn_onnx_model *model = NULL;
    rn_imported imported = {0};
    RN_TRY(rn_onnx_parse(bytes, &model));
    rn_status s = check_dims(model, options);
    if (s == RN_OK)
        s = rn_onnx_import(model, o->checkpoint, o->weights, options, &o->memory, &imported);
    o->graph = imported.graph;
    if (s == RN_OK) s = rn_checkpoint_add_forms(o->checkpoint, imported.forms, imported.form_count);
    if (s == RN_OK) s = keep(o, model, &imported);
    rn_onnx_free(model);
    return s;
}

static rn_status read_file(rn_onnx *o, const char *path, const rn_onnx_options *options) {
    int fd = -1;
    uint64_t file_bytes = 0;
    rn_onnx_bytes bytes;
    RN_TRY(rn_checkpoint_open(path, &o->checkpoint));
    if (options && options->weights) RN_TRY(rn_checkpoint_open(options->weights, &o->weights));
    RN_TRY(rn_file_open(path, &fd, &file_bytes));
    rn_status s = rn_onnx_bytes_read(fd, path, file_bytes, &bytes);
    if (s == RN_OK) s = import_bytes(o, bytes.bytes, options);
    rn_error_info error = *rn_last_error();
    rn_onnx_bytes_free(&bytes);
    close(fd);
    if (s == RN_OK) return RN_OK;
    s = rn_error_restore(&error);
    return error.path[0] ? s : rn_error_locate(s, path, error.offset);
}

rn_status rn_onnx_open(const char *path, const rn_onnx_options *options, rn_onnx **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof **out, &block));
    rn_onnx *o = block;
    rn_arena_init(&o->memory, FROM, 4096);
    const char *slash = strrchr(path, '/');
    snprintf(o->name, sizeof o->name, "%.63s", slash ? slash + 1 : path);
    rn_status s = read_file(o, path, options);
    if (s == RN_OK)
        *out = o;
    else
        rn_onnx_close(o);
    return s;
}

void rn_onnx_close(rn_onnx *onnx) {
    if (!onnx) return;
    rn_error_info error = *rn_last_error();
    rn_graph_destroy(onnx->graph);
    rn_checkpoint_close(onnx->checkpoint);
    rn_checkpoint_close(onnx->weights);
    rn_arena_free_all(&onnx->memory);
    rn_free(FROM, onnx, sizeof *onnx);
    (void)rn_error_restore(&error);
}

// ---- looking ------------------------------------------------------------------------------------

const rn_graph *rn_onnx_graph(const rn_onnx *onnx) {
    return onnx->graph;
}

const rn_checkpoint *rn_onnx_checkpoint(const rn_onnx *onnx) {
    return onnx->weights ? onnx->weights : onnx->checkpoint;
}

rn_status rn_onnx_make_recipe(const rn_onnx *onnx, uint64_t rows, rn_recipe *out) {
    bool has_rows = rn_graph_has_rows(onnx->graph);
    RN_TRY(rn_recipe_from_graph(onnx->graph, !has_rows ? 0 : rows ? rows : 1, out));
    out->least_rows = out->rows; // a caller sets all of them at once
    snprintf(out->name, sizeof out->name, "%s", onnx->name);
    return RN_OK;
}

rn_weight_source rn_onnx_weights(const rn_onnx *onnx) {
    return (rn_weight_source){.checkpoint = rn_onnx_checkpoint(onnx)};
}

const rn_onnx_info *rn_onnx_get_info(const rn_onnx *onnx) {
    return &onnx->info;
}

const char *rn_onnx_input_name(const rn_onnx *onnx, size_t index) {
    return index < onnx->input_count ? onnx->inputs[index] : NULL;
}

bool rn_onnx_input_is_bound(const rn_onnx *onnx, size_t index) {
    return index < onnx->input_count && onnx->bound[index];
}

const char *rn_onnx_output_name(const rn_onnx *onnx, size_t index) {
    return index < onnx->output_count ? onnx->outputs[index] : NULL;
}
