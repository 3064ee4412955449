// labels: gpu
// cuda_attention_test.c — attention over whole tensors and its gradients on the first GPU: nearly
// what the reference makes of the same inputs, for every form of values, heads and visible keys;
// the same bits again; and a gradient that nobody wants is not written.
//
// How near: with f32 values all is f32. With 16-bit values y has one rounding of p and one of its
// own, a gradient two more (ds, and y within delta): four of 2^-9 (bf16) or 2^-12 (f16) each at
// most, relative to the whole.
#include "support.h"

#include "backend/cuda/rows.h"
#include "graph/op.h"
#include "gpu.h"
#include "tensor/small_float.h"

#include <math.h>

enum { MOST = 1 << 18, MOST_ROWS = 1 << 12 }; // elements of a tensor; queries of all heads

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 64 << 20);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

// ---- a case -------------------------------------------------------------------------------------

typedef struct sizes {
    uint64_t batch, queries, keys, heads, kv_heads, dims;
} sizes;

enum { NO_DOCUMENTS, PACKED, ANY }; // documents in order, or beginnings without any
typedef struct scene {
    sizes of;
    rn_attention_attrs attrs;
    int documents;
    rn_dtype type, out_type;
} scene;

enum { Q, K, V, DY, Y, DQ, DK, DV, TENSORS };
static float wide[TENSORS][MOST]; // what the reference reads and makes
static union {
    float f32[MOST];
    uint16_t half[MOST];
} there[TENSORS]; // what the device does
static float logsumexp[2][MOST_ROWS];
static int32_t documents[MOST_ROWS];
static uint8_t workspace[4 << 20];

static float next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 23) - 1;
}

// Numbers that the type has.
static void fill(int tensor, uint64_t count, rn_dtype type) {
    uint32_t seed = 77 + (uint32_t)tensor;
    assert_true(count <= MOST);
    for (uint64_t i = 0; i < count; i++) {
        float x = next(&seed);
        if (type == RN_DTYPE_F32) there[tensor].f32[i] = x;
        if (type == RN_DTYPE_BF16) x = rn_bf16_widen(there[tensor].half[i] = rn_bf16_narrow(x));
        if (type == RN_DTYPE_F16) x = rn_f16_widen(there[tensor].half[i] = rn_f16_narrow(x));
        wide[tensor][i] = x;
    }
}

static void fill_documents(const scene *s) {
    uint32_t seed = 5;
    for (uint64_t i = 0; i < s->of.batch * s->of.queries; i++) {
        int32_t t = (int32_t)(i % s->of.queries);
        documents[i] = t / 37 * 37;
        if (s->documents == ANY)
            documents[i] = (int32_t)((next(&seed) + 1) / 2 * (float)(t + 3)) - 1;
    }
}

static rn_tensor tensor_of(const scene *s, int tensor, bool by_reference) {
    rn_dtype type = tensor < Y ? s->type : s->out_type;
    bool of_keys = tensor == K || tensor == V || tensor == DK || tensor == DV;
    rn_shape shape = of_keys ? RN_SHAPE(s->of.batch, s->of.keys, s->of.kv_heads, s->of.dims)
                             : RN_SHAPE(s->of.batch, s->of.queries, s->of.heads, s->of.dims);
    void *data = by_reference ? (void *)wide[tensor] : (void *)&there[tensor];
    return (rn_tensor){data, by_reference ? RN_DTYPE_F32 : type, RN_LAYOUT_PLAIN, shape};
}

static void run(const rn_call *call, bool by_reference) {
    const rn_kernel *kernel = &rn_cuda_kernels[call->op];
    rn_call given = *call;
    given.threads = 1;
    given.workspace = workspace;
    given.workspace_bytes = !by_reference && kernel->workspace ? kernel->workspace(call) : 0;
    assert_true(given.workspace_bytes <= sizeof workspace);
    if (by_reference)
        assert_ok(rn_op_get(call->op)->reference(&given));
    else
        assert_ok(test_offload_run(&gpu.offload, kernel, &given));
}

// Forward, and then backward from the y and the logsumexp that forward made. `skipped`: an output
// of the gradient that is not wanted, or -1.
static void run_both(const scene *s, bool by_reference, int skipped) {
    rn_shape rows = RN_SHAPE(s->of.batch, s->of.heads, s->of.queries);
    rn_tensor mask = {0};
    if (s->documents)
        mask = (rn_tensor){documents, RN_DTYPE_I32, RN_LAYOUT_PLAIN,
                           RN_SHAPE(s->of.batch, s->of.queries)};
    rn_tensor total = {logsumexp[by_reference], RN_DTYPE_F32, RN_LAYOUT_PLAIN, rows};
    rn_tensor in[7] = {tensor_of(s, Q, by_reference), tensor_of(s, K, by_reference),
                       tensor_of(s, V, by_reference), mask,
                       tensor_of(s, Y, by_reference), total,
                       tensor_of(s, DY, by_reference)};
    rn_tensor y[2] = {in[4], total};
    rn_tensor out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = tensor_of(s, DQ + i, by_reference);
        if (i == skipped) out[i] = (rn_tensor){.shape = out[i].shape};
    }
    run(&(rn_call){.op = RN_OP_ATTENTION,
                   .attrs = &s->attrs,
                   .inputs = in,
                   .outputs = y,
                   .input_count = 4,
                   .output_count = 2},
        by_reference);
    run(&(rn_call){.op = RN_OP_ATTENTION_GRAD,
                   .attrs = &s->attrs,
                   .inputs = in,
                   .outputs = out,
                   .input_count = 7,
                   .output_count = 3},
        by_reference);
}

static double distance(const scene *s, int tensor) {
    rn_tensor t = tensor_of(s, tensor, false);
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < rn_tensor_elements(&t); i++) {
        float x = t.dtype == RN_DTYPE_F32   ? there[tensor].f32[i]
                  : t.dtype == RN_DTYPE_F16 ? rn_f16_widen(there[tensor].half[i])
                                            : rn_bf16_widen(there[tensor].half[i]);
        double d = (double)x - (double)wide[tensor][i];
        apart += d * d;
        size += (double)wide[tensor][i] * (double)wide[tensor][i];
    }
    // Of one key, dq and dk are differences of equal numbers: measured by a hundredth of the
    // inputs.
    return sqrt(apart / fmax(size, 1e-4 * (double)rn_tensor_elements(&t)));
}

static void check(const scene *s) {
    static const char *names[TENSORS] = {"q", "k", "v", "dy", "y", "dq", "dk", "dv"};
    uint64_t of_queries = s->of.batch * s->of.queries * s->of.heads * s->of.dims;
    uint64_t of_keys = s->of.batch * s->of.keys * s->of.kv_heads * s->of.dims;
    double limit = s->type == RN_DTYPE_F32   ? 1e-5
                   : s->type == RN_DTYPE_F16 ? 4.0 / 4096
                                             : 4.0 / 512;
    fill(Q, of_queries, s->type);
    fill(DY, of_queries, s->type);
    fill(K, of_keys, s->type);
    fill(V, of_keys, s->type);
    fill_documents(s);
    run_both(s, true, -1);
    run_both(s, false, -1);
    for (int i = Y; i < TENSORS; i++)
        if (!(distance(s, i) <= limit))
            fail_msg("%s of %s, (%d, %d to %d, %d / %d heads of %d)%s, window %u, documents %d: "
                     "off by %g",
                     names[i], rn_dtype_get(s->type)->name, (int)s->of.batch, (int)s->of.queries,
                     (int)s->of.keys, (int)s->of.heads, (int)s->of.kv_heads, (int)s->of.dims,
                     s->attrs.causal ? ", causal" : "", s->attrs.window, s->documents,
                     distance(s, i));
    for (uint64_t i = 0; i < s->of.batch * s->of.heads * s->of.queries; i++)
        if (logsumexp[0][i] != logsumexp[1][i] && // -inf
            !(fabsf(logsumexp[0][i] - logsumexp[1][i]) <= 1e-4f))
            fail_msg("logsumexp %d is %g, not %g", (int)i, (double)logsumexp[0][i],
                     (double)logsumexp[1][i]);
}

// ---- tests --------------------------------------------------------------------------------------

static const rn_attention_attrs all = {0}, causal = {.causal = true},
                                window = {.causal = true, .window = 70},
                                scaled = {.causal = true, .scale = 0.3f};

static void results_are_near_the_reference(void **state) {
    (void)state;
    static const rn_dtype types[] = {RN_DTYPE_BF16, RN_DTYPE_F16, RN_DTYPE_F32};
    static const uint64_t dims[] = {64, 96, 128, 256, 40, 7, 80, 160};
    test_gpu_want(&gpu);
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
            uint64_t d = dims[j];
            rn_dtype type = types[i];
            check(&(scene){{1, 1, 1, 2, 1, d}, causal, NO_DOCUMENTS, type, type});
            check(&(scene){{1, 17, 17, 2, 2, d}, scaled, NO_DOCUMENTS, type, RN_DTYPE_F32});
            check(&(scene){{2, 65, 65, 2, 1, d}, all, PACKED, type, type});
            check(&(scene){{1, 200, 200, 4, 2, d}, causal, PACKED, type, type});
            check(&(scene){{1, 300, 300, 2, 1, d}, all, NO_DOCUMENTS, type, type}); // several tiles
            check(&(scene){{1, 200, 200, 4, 1, d}, window, NO_DOCUMENTS, type, RN_DTYPE_F32});
        }
}

static void queries_and_keys_differ_in_number(void **state) {
    (void)state;
    test_gpu_want(&gpu);
    check(&(scene){{1, 33, 290, 2, 1, 128}, causal, NO_DOCUMENTS, RN_DTYPE_BF16, RN_DTYPE_BF16});
    check(&(scene){{1, 290, 70, 2, 1, 64}, causal, NO_DOCUMENTS, RN_DTYPE_BF16, RN_DTYPE_BF16});
    check(&(scene){{1, 290, 70, 2, 1, 64}, causal, NO_DOCUMENTS, RN_DTYPE_F32, RN_DTYPE_F32});
    check(&(scene){{2, 130, 257, 1, 1, 128}, all, NO_DOCUMENTS, RN_DTYPE_BF16, RN_DTYPE_F32});
}

// Of an image's pixels to words, and of a VAE's middle, whose one head has all channels: that has
// no gradient here.
static void images_attend(void **state) {
    (void)state;
    static const rn_dtype types[] = {RN_DTYPE_BF16, RN_DTYPE_F16, RN_DTYPE_F32};
    static const uint64_t dims[] = {40, 64, 80, 160};
    test_gpu_want(&gpu);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        check(
            &(scene){{2, 144, 77, 2, 2, dims[i]}, all, NO_DOCUMENTS, RN_DTYPE_BF16, RN_DTYPE_BF16});
    for (int i = 0; i < 3; i++) {
        scene s = {{2, 70, 93, 1, 1, 512}, all, NO_DOCUMENTS, types[i], types[i]};
        fill(Q, 2 * 70 * 512, s.type);
        fill(K, 2 * 93 * 512, s.type);
        fill(V, 2 * 93 * 512, s.type);
        for (int by_reference = 0; by_reference < 2; by_reference++) {
            rn_tensor in[4] = {tensor_of(&s, Q, by_reference),
                               tensor_of(&s, K, by_reference),
                               tensor_of(&s, V, by_reference),
                               {0}};
            rn_tensor y[2] = {
                tensor_of(&s, Y, by_reference),
                {logsumexp[by_reference], RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(2, 1, 70)}};
            run(&(rn_call){.op = RN_OP_ATTENTION,
                           .attrs = &s.attrs,
                           .inputs = in,
                           .outputs = y,
                           .input_count = 4,
                           .output_count = 2},
                by_reference);
        }
        double limit = i == 0 ? 4.0 / 512 : i == 1 ? 4.0 / 4096 : 1e-5, off = distance(&s, Y);
        if (!(off <= limit)) fail_msg("512 dims of %s: off by %g", rn_dtype_get(s.type)->name, off);
        for (int j = 0; j < 2 * 70; j++)
            assert_true(fabsf(logsumexp[0][j] - logsumexp[1][j]) <= 1e-4f);
    }
}

// Where a document begins is not to be trusted.
static void documents_may_begin_anywhere(void **state) {
    (void)state;
    test_gpu_want(&gpu);
    check(&(scene){{1, 300, 300, 2, 1, 64}, causal, ANY, RN_DTYPE_BF16, RN_DTYPE_BF16});
    check(&(scene){{1, 300, 300, 2, 1, 64}, window, ANY, RN_DTYPE_F16, RN_DTYPE_F16});
    check(&(scene){{1, 300, 300, 2, 1, 64}, all, ANY, RN_DTYPE_F32, RN_DTYPE_F32});
}

static void the_same_call_gives_the_same_bits(void **state) {
    (void)state;
    static uint8_t before[TENSORS][sizeof there[0]];
    scene s = {{1, 300, 300, 2, 1, 128}, causal, PACKED, RN_DTYPE_BF16, RN_DTYPE_BF16};
    test_gpu_want(&gpu);
    memset(there, 0, sizeof there); // behind the tensors, too
    check(&s);
    memcpy(before, there, sizeof before);
    for (int again = 0; again < 5; again++) {
        for (int i = Y; i < TENSORS; i++)
            memset(&there[i], 0, sizeof there[i]);
        run_both(&s, false, -1);
        assert_memory_equal(before[Y], &there[Y], (TENSORS - Y) * sizeof there[0]);
    }
}

static void a_gradient_may_be_left_out(void **state) {
    (void)state;
    static uint8_t before[TENSORS][sizeof there[0]];
    test_gpu_want(&gpu);
    for (int type = 0; type < 2; type++) {
        rn_dtype dtype = type ? RN_DTYPE_F32 : RN_DTYPE_BF16;
        scene s = {{1, 70, 70, 2, 1, 64}, causal, NO_DOCUMENTS, dtype, dtype};
        check(&s);
        memcpy(before, there, sizeof before);
        for (int skipped = 0; skipped < 3; skipped++) {
            run_both(&s, false, skipped);
            assert_memory_equal(before, there, sizeof before);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_near_the_reference),
        cmocka_unit_test(queries_and_keys_differ_in_number),
        cmocka_unit_test(images_attend),
        cmocka_unit_test(documents_may_begin_anywhere),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(a_gradient_may_be_left_out),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
