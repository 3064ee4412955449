// chain.h — the model of the runtime's tests: a chain of products, y = relu(... relu(x w0ᵀ) w1ᵀ
// ...), with its weights in memory and in a file.
#ifndef RN_TEST_CHAIN_H
#define RN_TEST_CHAIN_H

#include "support.h"

#include <ration/device.h>
#include <ration/plan.h>
#include <ration/session.h>
#include <ration/writer.h>

#include "base/str.h"
#include "plan/plan.h"
#include "runtime/session.h"
#include "tensor/layout.h"
#include "tensor/quant.h"

#include <math.h>

#define CHAIN_LAYERS_MAX 16

typedef struct chain {
    uint32_t layers, width;
    uint64_t rows;
    rn_dtype dtype;                  // of the weights
    void *weights[CHAIN_LAYERS_MAX]; // plain bytes
    rn_plain_components parts;       // of each
    uint64_t weight_bytes;           // of all of them
} chain;

static inline float chain_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
}

static inline rn_status chain_build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const chain *c = self;
    char name[32];
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, c->width));
    for (uint32_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "layer %u", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "layer.%u.weight", i);
        rn_value w = rn_graph_weight(g, name, c->dtype, RN_SHAPE(c->width, c->width));
        x = rn_op_matmul(g, x, w, RN_NO_VALUE);
        if (i + 1 < c->layers) x = rn_op_relu(g, x);
    }
    rn_graph_output(g, x, "y");
    return rn_graph_finish(g);
}

static inline rn_recipe chain_recipe(chain *c) {
    return (rn_recipe){.name = "chain", .self = c, .build = chain_build, .rows = c->rows};
}

// Plain bytes of a (width, width) weight from f32, the parts of int8, int4 and nf4 behind each
// other.
static inline void chain_narrow(const chain *c, const float *values, uint8_t *out) {
    uint64_t n = c->width, count = n * n, group = rn_quant_int4_group(n);
    float *scale = (float *)(out + c->parts.offset[RN_COMPONENT_SCALE]);
    float *shift = (float *)(out + c->parts.offset[RN_COMPONENT_SHIFT]);
    if (c->dtype == RN_DTYPE_INT8) {
        rn_quant_int8_rows(values, n, n, (int8_t *)out, scale);
    } else if (c->dtype == RN_DTYPE_NF4) {
        rn_quant_nf4_blocks(values, count, out, scale);
    } else if (c->dtype == RN_DTYPE_INT4) {
        uint8_t *q = malloc(count);
        uint64_t half = (count / group + 1) / 2;
        rn_quant_int4_groups(values, count / group, group, q, scale, shift);
        for (uint64_t g = 0; g < half; g++)
            rn_quant_int4_pack(q + g * group,
                               g + half < count / group ? q + (g + half) * group : NULL, group,
                               out + g * group);
        free(q);
    } else {
        assert_ok(rn_dtype_from_f32(c->dtype, values, out, count));
    }
}

// Weights of a size that keeps the activations near 1.
static inline void chain_open(chain *c) {
    uint32_t seed = 7;
    uint64_t count = (uint64_t)c->width * c->width;
    float *values = malloc(count * sizeof(float));
    assert_non_null(values);
    if (c->dtype == RN_DTYPE_NONE) c->dtype = RN_DTYPE_F32;
    assert_true(rn_plain_components_of(c->dtype, c->width, c->width, &c->parts));
    c->weight_bytes = c->parts.total_bytes;
    for (uint32_t i = 0; i < c->layers; i++) {
        for (uint64_t k = 0; k < count; k++)
            values[k] = chain_random(&seed) * 2.4f / sqrtf((float)c->width);
        c->weights[i] = calloc(1, c->weight_bytes);
        assert_non_null(c->weights[i]);
        chain_narrow(c, values, c->weights[i]);
    }
    free(values);
}

static inline void chain_close(chain *c) {
    for (uint32_t i = 0; i < c->layers; i++)
        free(c->weights[i]);
}

static inline const void *chain_find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    chain *c = self;
    unsigned layer = 0;
    if (sscanf(name, "layer.%u.weight", &layer) != 1 || layer >= c->layers) return NULL;
    if (dtype != c->dtype || bytes != c->weight_bytes) return NULL;
    return c->weights[layer];
}

static inline rn_weight_source chain_memory(chain *c) {
    return (rn_weight_source){.self = c, .find = chain_find};
}

// The tensors that a weight is in a file.
static inline const char *chain_suffix(rn_dtype dtype, rn_component part) {
    static const char *const suffixes[3][RN_COMPONENT_COUNT] = {
        {"._data", "._scale", ""}, {"._data._data", "._scale", "._shift"}, {"", ".absmax", ""}};
    return dtype < RN_DTYPE_INT8 ? "" : suffixes[dtype - RN_DTYPE_INT8][part];
}

static inline rn_dtype chain_part_dtype(rn_dtype dtype, rn_component part) {
    if (dtype < RN_DTYPE_INT8) return dtype;
    if (part != RN_COMPONENT_DATA) return RN_DTYPE_F32;
    return dtype == RN_DTYPE_INT8 ? RN_DTYPE_I8 : RN_DTYPE_U8;
}

static inline void chain_write(const chain *c, const char *path) {
    rn_write_tensor tensors[CHAIN_LAYERS_MAX * RN_COMPONENT_COUNT];
    uint64_t dims[RN_COMPONENT_COUNT][2];
    char names[CHAIN_LAYERS_MAX * RN_COMPONENT_COUNT][48];
    uint32_t count = 0;
    rn_writer *writer;
    for (uint32_t i = 0; i < c->layers; i++)
        for (int part = 0; part < RN_COMPONENT_COUNT; part++) {
            rn_dtype dtype = chain_part_dtype(c->dtype, (rn_component)part);
            if (c->parts.bytes[part] == 0) continue;
            dims[part][0] = dtype == c->dtype ? c->width : c->parts.bytes[part] / 4;
            dims[part][1] = dtype == c->dtype ? c->width : dtype == RN_DTYPE_F32 ? 1 : 4;
            snprintf(names[count], sizeof names[count], "layer.%u.weight%s", i,
                     chain_suffix(c->dtype, (rn_component)part));
            tensors[count] = (rn_write_tensor){
                .name = rn_str_from(names[count]), .dtype = dtype, .rank = 2, .dims = dims[part]};
            count++;
        }
    assert_ok(rn_writer_create(path, tensors, count, NULL, &writer));
    for (uint32_t i = 0; i < c->layers; i++)
        for (int part = 0; part < RN_COMPONENT_COUNT; part++)
            if (c->parts.bytes[part])
                assert_ok(rn_writer_append(writer, (uint8_t *)c->weights[i] + c->parts.offset[part],
                                           c->parts.bytes[part]));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

static inline rn_plan *chain_plan(chain *c, const rn_device_caps *caps, uint64_t budget) {
    rn_recipe recipe = chain_recipe(c);
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, caps, &(rn_plan_options){.budget_bytes = budget}, &plan));
    return plan;
}

// The i-th of `count` budgets from the smallest that works to one that holds everything.
static inline uint64_t chain_budget(chain *c, const rn_device_caps *caps, uint32_t i,
                                    uint32_t count) {
    rn_plan *roomy = chain_plan(c, caps, 0);
    uint64_t low = rn_plan_get_summary(roomy)->smallest_bytes;
    uint64_t high = rn_plan_get_summary(roomy)->planned_bytes;
    rn_plan_destroy(roomy);
    return low + (high - low) * i / (count - 1);
}

static inline float *chain_input(const chain *c, uint64_t rows, uint32_t seed) {
    float *x = malloc(rows * c->width * sizeof(float));
    assert_non_null(x);
    for (uint64_t i = 0; i < rows * c->width; i++)
        x[i] = chain_random(&seed);
    return x;
}

// Runs x of that seed, in as many runs as the plan's rows make necessary, and gets y.
static inline rn_status chain_run(const chain *c, rn_session *session, uint64_t rows, uint32_t seed,
                                  float *y) {
    float *x = chain_input(c, rows, seed);
    uint64_t most = session->plan->summary.rows, row = c->width * sizeof(float), n = 0;
    rn_status s = RN_OK;
    for (uint64_t at = 0; at < rows && s == RN_OK; at += n) {
        n = rows - at < most ? rows - at : most;
        s = rn_session_set(session, "x", x + at * c->width, n * row);
        if (s == RN_OK) s = rn_session_run(session, n);
        if (s == RN_OK) s = rn_session_get(session, "y", y + at * c->width, n * row);
    }
    free(x);
    return s;
}

#endif
