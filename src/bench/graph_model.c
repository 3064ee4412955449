// graph_model.c — see graph_model.h.
#include "bench/graph_model.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/str.h"
#include "graph/activations.h"
#include "graph/op.h"
#include "graph/retype.h"
#include "io/weight_forms.h"
#include "memory/account.h"

#include <ration/npy.h>
#include <ration/quantize.h>

#include <stdio.h>

// ---- another dtype ------------------------------------------------------------------------------

static bool is_half(rn_dtype dtype) {
    return dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
}

static void name_dtypes(const bool used[RN_DTYPE_COUNT], char *out, size_t bytes) {
    size_t length = 0;
    out[0] = 0;
    for (int d = RN_DTYPE_COUNT - 1; d > 0; d--)
        if (used[d] && length < bytes)
            length += (size_t)snprintf(out + length, bytes - length, "%s%s", length ? " + " : "",
                                       rn_dtype_get((rn_dtype)d)->name);
}

static rn_status retype(rn_graph_model *model, const rn_bench_name *variant) {
    rn_dtype dtype = rn_dtype_parse(rn_str_from(variant->weights));
    rn_graph *changed = NULL;
    if (dtype == RN_DTYPE_NONE || dtype == RN_DTYPE_F32) return RN_OK;
    RN_TRY(rn_graph_retype_weights(model->graph, dtype, strcmp(variant->activations, "f32") == 0,
                                   &changed));
    if (!model->converted) model->graph = NULL; // ONNX's own
    rn_graph_destroy(model->graph);
    model->graph = changed;
    model->converted = model->retyped = true;
    return RN_OK;
}

// ---- numbers ------------------------------------------------------------------------------------

struct rn_made_block {
    rn_made_block *next;
    size_t bytes; // of all
    _Alignas(64) uint8_t data[];
};

static rn_status read_weight(const rn_graph_model *m, const rn_value_info *info, uint64_t elements,
                             float *out) {
    const rn_checkpoint *files = m->onnx ? rn_onnx_checkpoint(m->onnx) : m->weights;
    rn_weight_source own = m->onnx ? rn_onnx_weights(m->onnx) : (rn_weight_source){0};
    const void *held = own.find ? own.find(own.self, info->name, RN_DTYPE_F32, elements * 4) : NULL;
    if (held) {
        memcpy(out, held, elements * sizeof *out);
        return RN_OK;
    }
    if (!files) {
        rn_builtin_weight(info, elements, out);
        return RN_OK;
    }
    const rn_tensor_info *tensor = rn_checkpoint_find(files, info->name);
    if (!tensor) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
    return rn_checkpoint_load(files, tensor, RN_DTYPE_F32, out, elements * sizeof *out);
}

static rn_status copy_piece(void *self, rn_component component, uint64_t offset, const void *data,
                            uint64_t bytes) {
    if (component != RN_COMPONENT_DATA) return rn_fail(RN_INTERNAL, "a form of several parts");
    memcpy((uint8_t *)self + offset, data, bytes);
    return RN_OK;
}

static const void *find_made(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    rn_graph_model *m = self;
    rn_value v = rn_graph_find(m->graph, RN_ROLE_WEIGHT, name);
    if (!v) return NULL;
    const rn_value_info *info = rn_graph_value(m->graph, v);
    uint64_t elements = rn_shape_elements(info->shape, 1);
    rn_made_block *block = NULL;
    float *values = NULL;
    size_t all = sizeof *block + bytes + 64;
    if (rn_alloc(RN_HOST_OTHER, all, (void **)&block) != RN_OK) return NULL;
    *block = (rn_made_block){.next = m->made, .bytes = all};
    const rn_weight_form *form =
        m->onnx ? rn_checkpoint_form(rn_onnx_checkpoint(m->onnx), name) : NULL;
    rn_status s = RN_OK;
    if (form) { // stays as the file has it
        s = rn_weight_form_read(rn_onnx_checkpoint(m->onnx), form, 0, form->rows, copy_piece,
                                block->data);
    } else {
        s = rn_alloc(RN_HOST_OTHER, elements * sizeof *values, (void **)&values);
        if (s == RN_OK) s = read_weight(m, info, elements, values);
        uint64_t rows = info->shape.rank >= 2 ? info->shape.dims[0] : 1;
        if (s == RN_OK) s = rn_quantize(dtype, values, rows, elements / rows, block->data, bytes);
        rn_free(RN_HOST_OTHER, values, elements * sizeof *values);
    }
    if (s != RN_OK) {
        rn_free(RN_HOST_OTHER, block, all);
        return NULL;
    }
    m->made = block;
    return block->data;
}

const void *rn_graph_model_weight(rn_graph_model *m, const rn_value_info *info, uint64_t bytes) {
    return find_made(m, info->name, info->dtype, bytes);
}

rn_weight_source rn_graph_model_source(rn_graph_model *m) {
    if (m->onnx && !m->converted) return rn_onnx_weights(m->onnx);
    if (m->weights && !m->retyped) return (rn_weight_source){.checkpoint = m->weights};
    return (rn_weight_source){.self = m, .find = find_made};
}

void rn_graph_model_release_made(rn_graph_model *m) {
    while (m->made) {
        rn_made_block *block = m->made;
        m->made = block->next;
        rn_free(RN_HOST_OTHER, block, block->bytes);
    }
}

// ---- opening ------------------------------------------------------------------------------------

static bool is_onnx(const char *name) {
    size_t bytes = strlen(name);
    return bytes > 5 && strcmp(name + bytes - 5, ".onnx") == 0;
}

bool rn_graph_model_is(const char *name) {
    static const char *const builtin[] = {"mlp", "simple", "resnet18"};
    if (is_onnx(name)) return true;
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, builtin[i]) == 0 && !rn_file_exists(name)) return true;
    return false;
}

static rn_status open_model(const char *name, const char *weights_path, rn_graph_model *m) {
    if (is_onnx(name)) {
        RN_TRY(rn_onnx_open(name, NULL, &m->onnx));
        m->graph = (rn_graph *)(uintptr_t)rn_onnx_graph(m->onnx); // const until it is converted
        return RN_OK;
    }
    RN_TRY(rn_builtin_recipe(name, &m->recipe));
    m->converted = true; // the graph is its own
    RN_TRY(m->recipe.build(m->recipe.self, NULL, &m->graph));
    if (weights_path && *weights_path) return rn_checkpoint_open(weights_path, &m->weights);
    return RN_OK;
}

static void count_parameters(rn_graph_model *m) {
    bool used[RN_DTYPE_COUNT] = {false};
    for (rn_value v = 1; v <= rn_graph_value_count(m->graph); v++) {
        const rn_value_info *info = rn_graph_value(m->graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        m->parameters += rn_shape_elements(info->shape, 1);
        if (info->shape.rank >= 2) used[info->dtype] = true;
        if (m->converted && !m->weights) m->made_bytes += rn_graph_model_bytes(m, info);
    }
    name_dtypes(used, m->weights_name, sizeof m->weights_name);
}

// Graphs without an axis for rows have the batch that they were exported with.
static rn_status set_rows(rn_graph_model *m, uint64_t batch) {
    m->rows = rn_graph_has_rows(m->graph) ? batch : 0;
    for (rn_value v = 1; m->rows == 0 && batch > 1 && v <= rn_graph_value_count(m->graph); v++) {
        const rn_value_info *info = rn_graph_value(m->graph, v);
        if (info->role != RN_ROLE_INPUT || info->shape.rank == 0) continue;
        if (info->shape.dims[0] == batch) return RN_OK;
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the model was exported for a batch of %llu",
                               (unsigned long long)info->shape.dims[0]),
                       "export it with a symbolic first axis for others");
    }
    return RN_OK;
}

static rn_status apply_variant(rn_graph_model *m, const rn_bench_name *variant) {
    rn_dtype held = rn_dtype_parse(rn_str_from(variant->activations));
    if (variant->weights[0]) RN_TRY(retype(m, variant));
    if (is_half(held)) {
        rn_graph *changed = NULL;
        bool halves = strncmp(variant->target, "cuda", 4) == 0; // its kernels take them
        RN_TRY(rn_graph_hold_activations(m->graph, held, halves, &changed));
        if (m->converted) rn_graph_destroy(m->graph);
        m->graph = changed;
        m->converted = true;
    }
    return RN_OK;
}

rn_status rn_graph_model_open(const char *name, const char *weights_path,
                              const rn_bench_name *variant, uint64_t batch, rn_graph_model *m) {
    *m = (rn_graph_model){.onnx = NULL};
    rn_status s = open_model(name, weights_path, m);
    if (s == RN_OK) s = apply_variant(m, variant);
    if (s == RN_OK) count_parameters(m);
    if (s == RN_OK) s = set_rows(m, batch);
    rn_recipe_destroy(&m->recipe);
    m->recipe = (rn_recipe){.self = NULL};
    if (s == RN_OK && m->converted) {
        s = rn_recipe_from_graph(m->graph, m->rows, &m->recipe);
        m->recipe.weights_in_memory = rn_graph_model_source(m).find == find_made;
    } else if (s == RN_OK) {
        s = rn_onnx_make_recipe(m->onnx, m->rows, &m->recipe);
    }
    if (s == RN_OK) m->recipe.least_rows = m->rows;
    if (s != RN_OK) rn_graph_model_close(m);
    return s;
}

void rn_graph_model_close(rn_graph_model *m) {
    rn_graph_model_release_made(m);
    rn_recipe_destroy(&m->recipe);
    if (m->converted) rn_graph_destroy(m->graph);
    rn_checkpoint_close(m->weights);
    rn_onnx_close(m->onnx);
    *m = (rn_graph_model){.onnx = NULL};
}

uint64_t rn_graph_model_bytes(const rn_graph_model *m, const rn_value_info *info) {
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = m->rows;
    return rn_tensor_bytes(&tensor);
}

// ---- inputs -------------------------------------------------------------------------------------

// The values of a .npy file of this dtype and size.
static rn_status read_values(FILE *file, const char *path, rn_dtype dtype, void *data,
                             uint64_t bytes) {
    rn_npy array;
    RN_TRY(rn_npy_read_header(file, path, &array));
    if (array.dtype != dtype || array.bytes != bytes)
        return rn_fail(RN_INVALID, "%s has %llu bytes of %s, the input %llu of %s", path,
                       (unsigned long long)array.bytes, rn_dtype_get(array.dtype)->name,
                       (unsigned long long)bytes, rn_dtype_get(dtype)->name);
    if (fread(data, 1, bytes, file) == bytes) return RN_OK;
    return rn_error_locate(rn_fail(RN_CORRUPT, "%s ends in its data", path), path, RN_NO_OFFSET);
}

static rn_status read_npy(const char *path, rn_dtype dtype, void *data, uint64_t bytes) {
    FILE *file = fopen(path, "rbe");
    if (!file) return rn_file_fail("read", path);
    rn_status s = read_values(file, path, dtype, data, bytes);
    fclose(file);
    return s;
}

rn_status rn_graph_model_fill_input(const rn_graph_model *m, const rn_value_info *info,
                                    const char *const *files, size_t file_count, void *data,
                                    uint64_t bytes) {
    size_t name = strlen(info->name);
    (void)m;
    for (size_t i = 0; i < file_count; i++)
        if (strncmp(files[i], info->name, name) == 0 && files[i][name] == '=')
            return read_npy(files[i] + name + 1, info->dtype, data, bytes);
    memset(data, 0, bytes);
    if (info->dtype == RN_DTYPE_F32) rn_builtin_input(0, bytes / sizeof(float), data);
    return RN_OK;
}
