// labels: gpu
// cuda_varlen_test.c — texts packed into one call of varlen_attention on the first GPU: nearly what
// the reference says, the bits that they have alone, for heads of every size; a span that cannot be
// gives NaN in its own row.
#include "support.h"

#include "backend/cuda/rows.h"
#include "graph/op.h"
#include "gpu.h"

#include <math.h>

enum { HEADS = 4, KV_HEADS = 2, TEXTS = 6, MOST = 300, MOST_DIMS = 256, REACH = 6 };
static const int32_t lengths[TEXTS] = {3, 1, 130, 31, 64, 65};

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 64 << 20);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

typedef struct scene {
    float q[MOST * HEADS * MOST_DIMS], k[MOST * KV_HEADS * MOST_DIMS],
        v[MOST * KV_HEADS * MOST_DIMS];
    float y[MOST * HEADS * MOST_DIMS], bias[HEADS * (2 * REACH + 1)];
    int32_t span[MOST * 2];
    uint64_t rows, dims;
} scene;

static void fill(float *to, uint64_t count, uint32_t *seed) {
    for (uint64_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        to[i] = (float)(*seed >> 8) / (1 << 23) - 1;
    }
}

// Text number `text`, whose numbers are its own, behind what is there.
static void append(scene *s, uint32_t text) {
    uint32_t seed = 77 + text;
    int32_t first = (int32_t)s->rows, end = first + lengths[text];
    for (; s->rows < (uint64_t)end; s->rows++) {
        fill(s->q + s->rows * HEADS * s->dims, HEADS * s->dims, &seed);
        fill(s->k + s->rows * KV_HEADS * s->dims, KV_HEADS * s->dims, &seed);
        fill(s->v + s->rows * KV_HEADS * s->dims, KV_HEADS * s->dims, &seed);
        s->span[2 * s->rows] = first;
        s->span[2 * s->rows + 1] = end;
    }
}

static void run(scene *s, rn_attention_attrs attrs, bool biased, bool by_reference) {
    for (int i = 0; i < HEADS * (2 * REACH + 1); i++)
        s->bias[i] = (float)(i % 7) / 4;
    rn_shape q = RN_SHAPE(s->rows, HEADS, s->dims), k = RN_SHAPE(s->rows, KV_HEADS, s->dims);
    rn_tensor in[5] = {
        {s->q, RN_DTYPE_F32, RN_LAYOUT_PLAIN, q},
        {s->k, RN_DTYPE_F32, RN_LAYOUT_PLAIN, k},
        {s->v, RN_DTYPE_F32, RN_LAYOUT_PLAIN, k},
        {s->span, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, 2)},
    };
    rn_tensor out = {s->y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, q};
    if (biased)
        in[4] = (rn_tensor){s->bias, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(HEADS, 2 * REACH + 1)};
    rn_call call = {.op = RN_OP_VARLEN_ATTENTION,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 5,
                    .output_count = 1,
                    .threads = 1};
    if (by_reference)
        assert_ok(rn_op_get(call.op)->reference(&call));
    else
        assert_ok(test_offload_run(&gpu.offload, &rn_cuda_kernels[call.op], &call));
}

static void expect_near(const scene *is, const scene *must) {
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < is->rows * HEADS * is->dims; i++) {
        double d = (double)is->y[i] - (double)must->y[i];
        apart += d * d;
        size += (double)must->y[i] * (double)must->y[i];
    }
    if (!(sqrt(apart / size) <= 1e-5))
        fail_msg("heads of %d: off by %g", (int)is->dims, sqrt(apart / size));
}

static void check_packing(uint64_t dims, rn_attention_attrs attrs, bool biased) {
    static scene packed, alone, must;
    packed.rows = 0, packed.dims = alone.dims = dims;
    for (uint32_t t = 0; t < TEXTS; t++)
        append(&packed, t);
    must = packed;
    run(&must, attrs, biased, true);
    run(&packed, attrs, biased, false);
    expect_near(&packed, &must);
    const float *y = packed.y;
    for (uint32_t t = 0; t < TEXTS; t++) {
        size_t count = (size_t)lengths[t] * HEADS * dims;
        alone.rows = 0;
        append(&alone, t);
        run(&alone, attrs, biased, false);
        assert_memory_equal(y, alone.y, count * sizeof *y);
        y += count;
    }
}

static void texts_have_the_bits_that_they_have_alone(void **state) {
    (void)state;
    static const uint64_t dims[] = {7, 32, 48, 64, 96, 128, 256};
    test_gpu_want(&gpu);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        check_packing(dims[i], (rn_attention_attrs){0}, i % 2);
        check_packing(dims[i], (rn_attention_attrs){.causal = true, .window = 70}, i % 2);
    }
    check_packing(64, (rn_attention_attrs){.window = 5, .cap = 3}, true);
    check_packing(64, (rn_attention_attrs){.causal = true}, false);
}

static void a_span_that_cannot_be_gives_nan(void **state) {
    (void)state;
    static const int32_t wrong[][2] = {{-1, 4}, {4, 2}, {0, MOST + 1}, {5, 9}, {INT32_MIN, 1}};
    static scene packed, must;
    test_gpu_want(&gpu);
    must.rows = 0, must.dims = 64;
    for (uint32_t t = 0; t < TEXTS; t++)
        append(&must, t);
    packed = must;
    run(&must, (rn_attention_attrs){0}, false, false);
    packed.span[2 * 2] = packed.span[2 * 2 + 1] = 9; // none
    for (int i = 0; i < 5; i++)
        memcpy(&packed.span[2 * (10 + i)], wrong[i], sizeof wrong[i]);
    run(&packed, (rn_attention_attrs){0}, false, false);
    for (uint64_t i = 0; i < packed.rows * HEADS * 64; i++) {
        uint64_t row = i / (HEADS * 64);
        if (row == 2)
            assert_true(packed.y[i] == 0);
        else if (row >= 10 && row < 15)
            assert_true(isnan(packed.y[i]));
        else
            assert_true(packed.y[i] == must.y[i]);
    }
}

static void heads_that_are_too_large_are_refused(void **state) {
    (void)state;
    rn_shape shape = RN_SHAPE(1, 1, MOST_DIMS + 1);
    rn_attention_attrs attrs = {0};
    rn_tensor in[5] = {{NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape},
                       {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape},
                       {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape},
                       {NULL, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(1, 2)}};
    rn_tensor out = {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape};
    rn_call call = {.op = RN_OP_VARLEN_ATTENTION,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 5,
                    .output_count = 1,
                    .threads = 1};
    assert_fails(RN_UNSUPPORTED, rn_cuda_varlen_attention(&call));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_that_are_too_large_are_refused),
        cmocka_unit_test(texts_have_the_bits_that_they_have_alone),
        cmocka_unit_test(a_span_that_cannot_be_gives_nan),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
