// conform.c — a row becomes a graph and a run with inputs that are the same every time.
#include "conform.h"

#include "support.h"

#include <math.h>

const conform_table *const conform_tables[] = {&conform_elementwise,
                                               &conform_rows,
                                               &conform_products,
                                               &conform_attention,
                                               &conform_fused,
                                               &conform_reductions,
                                               &conform_moves,
                                               &conform_training,
                                               &conform_any,
                                               &conform_images,
                                               NULL};

// ---- random numbers -----------------------------------------------------------------------------

static uint64_t next(uint64_t *state) { // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float uniform(uint64_t *state, float low, float high) {
    return low + (high - low) * (float)(next(state) >> 40) / 0x1p24f;
}

static void fill_uniform(float *out, uint64_t n, uint64_t *state, float low, float high) {
    for (uint64_t i = 0; i < n; i++)
        out[i] = uniform(state, low, high);
}

// A shuffled ladder: steps of 0.1 with a little noise, its rungs off 0 and +-1.
static void fill_apart(float *out, uint64_t n, uint64_t *state) {
    for (uint64_t i = 0; i < n; i++)
        out[i] = 0.1f * ((float)i - (float)(n / 2)) + 0.05f + uniform(state, -0.01f, 0.01f);
    for (uint64_t i = n; i-- > 1;) {
        uint64_t j = next(state) % (i + 1);
        float swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
}

static void fill_whole(int32_t *out, uint64_t n, uint64_t *state, const conform_input *input) {
    uint64_t span = (uint64_t)(input->high - input->low);
    for (uint64_t i = 0; i < n; i++)
        out[i] = (int32_t)input->low + (int32_t)(next(state) % span);
}

// ---- quantised weights --------------------------------------------------------------------------

// Blocks that begin with an f32 scale; e4m3 is a number everywhere.
static void set_float_scale(rn_dtype dtype, uint8_t *block, uint64_t *state) {
    float scale = uniform(state, 0.0005f, 0.002f);
    memcpy(block, &scale, sizeof scale);
    if (dtype == RN_DTYPE_U4_B32) block[4] %= 16;
    for (uint32_t i = 4; dtype <= RN_DTYPE_F8_B32 && i < rn_dtype_get(dtype)->block_bytes; i++)
        if ((block[i] & 0x7f) == 0x7f) block[i] ^= 1;
}

// Where the f16 scales of a super-block stand, for types that nothing here can quantise to.
static void set_block_scales(rn_dtype dtype, uint8_t *block, uint64_t *state) {
    static const struct {
        rn_dtype dtype;
        int places[2];
    } scales[] = {
        {RN_DTYPE_Q4_1, {0, 2}},    {RN_DTYPE_Q5_0, {0, 0}},     {RN_DTYPE_Q5_1, {0, 2}},
        {RN_DTYPE_Q2_K, {80, 82}},  {RN_DTYPE_Q3_K, {108, 108}}, {RN_DTYPE_Q4_K, {0, 2}},
        {RN_DTYPE_Q5_K, {0, 2}},    {RN_DTYPE_Q6_K, {208, 208}}, {RN_DTYPE_IQ4_NL, {0, 0}},
        {RN_DTYPE_IQ4_XS, {0, 0}},  {RN_DTYPE_Q1_0, {0, 0}},     {RN_DTYPE_Q2_0, {0, 0}},
        {RN_DTYPE_TQ1_0, {52, 52}}, {RN_DTYPE_TQ2_0, {64, 64}},  {RN_DTYPE_IQ1_S, {0, 0}},
        {RN_DTYPE_IQ2_XXS, {0, 0}}, {RN_DTYPE_IQ2_XS, {0, 0}},   {RN_DTYPE_IQ2_S, {0, 0}},
        {RN_DTYPE_IQ3_XXS, {0, 0}}, {RN_DTYPE_IQ3_S, {0, 0}}};
    if (dtype == RN_DTYPE_MXFP4) block[0] = (uint8_t)(116 + next(state) % 4);    // a power of two
    if (dtype == RN_DTYPE_IQ1_M) block[55] = (uint8_t)(0x10 | (block[55] & 15)); // of four nibbles
    if (dtype >= RN_DTYPE_F8_B128 && dtype <= RN_DTYPE_F8_B32) set_float_scale(dtype, block, state);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int j = 0; scales[i].dtype == dtype && j < 2; j++) {
            float scale = uniform(state, 0.0005f, 0.002f);
            assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, &scale, block + scales[i].places[j], 1));
        }
}

static void fill_blocks(const rn_tensor *tensor, uint64_t *state) {
    const rn_dtype_info *type = rn_dtype_get(tensor->dtype);
    uint64_t data_bytes = 0, bytes = rn_tensor_bytes(tensor);
    uint8_t *out = tensor->data;
    assert_true(rn_dtype_bytes(tensor->dtype, rn_tensor_elements(tensor), &data_bytes));
    for (uint64_t i = 0; i < data_bytes; i++)
        out[i] = (uint8_t)next(state);
    for (uint64_t at = 0; at < data_bytes; at += type->block_bytes)
        set_block_scales(tensor->dtype, out + at, state);
    // int8, int4 and nf4 have f32 scales and shifts behind the data, nf4_dq codes and scales.
    uint64_t tail = (data_bytes + 63) / 64 * 64;
    if (tail < bytes)
        fill_uniform((float *)(void *)(out + tail), (bytes - tail) / 4, state, 0.001f, 0.02f);
}

// Through f32, for the types that can be narrowed to.
static bool fill_narrowed(const rn_tensor *tensor, uint64_t *state, float low, float high) {
    uint64_t n = rn_tensor_elements(tensor);
    float *wide = malloc(n * sizeof *wide);
    fill_uniform(wide, n, state, low, high);
    bool done = rn_dtype_from_f32(tensor->dtype, wide, tensor->data, n) == RN_OK;
    free(wide);
    return done;
}

// ---- inputs -------------------------------------------------------------------------------------

static void fill(const conform_input *input, const rn_tensor *tensor, uint64_t seed) {
    uint64_t state = seed, n = rn_tensor_elements(tensor);
    switch (input->fill) {
    case CONFORM_UNIFORM:
        if (!fill_narrowed(tensor, &state, input->low, input->high)) fill_blocks(tensor, &state);
        break;
    case CONFORM_APART:
        fill_apart(tensor->data, n, &state);
        break;
    case CONFORM_WHOLE:
        fill_whole(tensor->data, n, &state, input);
        break;
    case CONFORM_LIST:
        memcpy(tensor->data, input->list, n * sizeof *input->list);
        break;
    }
}

static rn_value enlist(conform_case *c, rn_value value, conform_input input) {
    assert_true(c->input_count < CONFORM_INPUTS);
    input.value = value;
    c->inputs[c->input_count++] = input;
    return value;
}

static const char *name_next(const conform_case *c) {
    static char name[16];
    snprintf(name, sizeof name, "i%u", c->input_count);
    return name;
}

rn_value conform_fixed(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high) {
    return enlist(c, rn_graph_input(c->graph, name_next(c), dtype, shape),
                  (conform_input){.low = low, .high = high});
}

rn_value conform_in(conform_case *c, rn_shape shape, float low, float high) {
    rn_value value = conform_fixed(c, RN_DTYPE_F32, shape, low, high);
    c->inputs[c->input_count - 1].wanted = true;
    return value;
}

rn_value conform_x(conform_case *c, rn_shape shape) {
    return conform_in(c, shape, c->row->low, c->row->high);
}

rn_value conform_apart(conform_case *c, rn_shape shape) {
    return enlist(c, rn_graph_input(c->graph, name_next(c), RN_DTYPE_F32, shape),
                  (conform_input){.fill = CONFORM_APART, .wanted = true});
}

rn_value conform_weight(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high) {
    if (dtype == RN_DTYPE_NONE) dtype = RN_DTYPE_F32;
    return enlist(c, rn_graph_weight(c->graph, name_next(c), dtype, shape),
                  (conform_input){.low = low, .high = high, .wanted = dtype == RN_DTYPE_F32});
}

rn_value conform_state(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high) {
    return enlist(c, rn_graph_state(c->graph, name_next(c), dtype, shape, RN_PURPOSE_OTHER),
                  (conform_input){.low = low, .high = high});
}

rn_value conform_whole(conform_case *c, rn_shape shape, int32_t low, int32_t high) {
    return enlist(c, rn_graph_input(c->graph, name_next(c), RN_DTYPE_I32, shape),
                  (conform_input){.fill = CONFORM_WHOLE, .low = (float)low, .high = (float)high});
}

rn_value conform_list(conform_case *c, rn_shape shape, const int32_t *list) {
    return enlist(c, rn_graph_input(c->graph, name_next(c), RN_DTYPE_I32, shape),
                  (conform_input){.fill = CONFORM_LIST, .list = list});
}

uint32_t conform_scalar(conform_case *c, const char *name, rn_scalar value) {
    uint32_t scalar = rn_graph_scalar(c->graph, name);
    assert_true(scalar != RN_NO_SCALAR);
    c->scalars[scalar] = value;
    return scalar;
}

void conform_result(conform_case *c, rn_value value) {
    assert_true(c->output_count < CONFORM_OUTPUTS);
    c->outputs[c->output_count++] = value;
}

// ---- the graph ----------------------------------------------------------------------------------

static rn_value sum_all(rn_graph *graph, rn_value value) {
    uint32_t rank = rn_graph_value(graph, value)->shape.rank;
    return rank ? rn_op_sum(graph, value, (1u << rank) - 1, false) : value;
}

static rn_value add_loss(conform_case *c) {
    rn_value loss = RN_NO_VALUE;
    for (uint32_t i = 0; i < c->output_count; i++) {
        const rn_value_info *info = rn_graph_value(c->graph, c->outputs[i]);
        assert_int_equal(info->dtype, RN_DTYPE_F32);
        c->factors[i] = conform_fixed(c, RN_DTYPE_F32, info->shape, -1, 1);
        rn_value term = sum_all(c->graph, rn_op_mul(c->graph, c->outputs[i], c->factors[i]));
        loss = i ? rn_op_add(c->graph, loss, term) : term;
    }
    return loss;
}

static void differentiate(conform_case *c) {
    rn_value wanted[CONFORM_INPUTS], gradients[CONFORM_INPUTS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->inputs[i].wanted) wanted[count++] = c->inputs[i].value;
    assert_ok(rn_graph_gradient(c->graph, add_loss(c), wanted, count, gradients));
    for (uint32_t i = 0, at = 0; i < c->input_count; i++)
        if (c->inputs[i].wanted) c->inputs[i].gradient = gradients[at++];
}

static bool wants_gradients(const conform_case *c) {
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->inputs[i].wanted) return true;
    return false;
}

void conform_open(conform_case *c, const conform_row *row, bool backward) {
    *c = (conform_case){.row = row};
    assert_ok(rn_graph_create(&c->graph));
    row->build(c);
    if (rn_graph_finish(c->graph) != RN_OK)
        fail_msg("%s, %s: %s", rn_op_name(row->op), row->what, rn_last_error()->message);
    if (backward && rn_op_get(row->op)->gradient && wants_gradients(c)) differentiate(c);
    assert_ok(rn_graph_finish(c->graph));
}

void conform_close(conform_case *c) {
    rn_graph_destroy(c->graph);
}

bool conform_differentiable(const conform_row *row) {
    conform_case c;
    if (!rn_op_get(row->op)->gradient) return false;
    conform_open(&c, row, false);
    bool wants = wants_gradients(&c);
    conform_close(&c);
    return wants;
}

void conform_run_open(const conform_case *c, uint64_t rows, test_run *run) {
    test_run_open(run, c->graph, rows);
    memcpy(run->scalars, c->scalars, sizeof run->scalars);
    for (uint32_t i = 0; i < c->input_count; i++)
        fill(&c->inputs[i], &run->values[c->inputs[i].value], 1000 * (uint64_t)c->row->op + i);
}
