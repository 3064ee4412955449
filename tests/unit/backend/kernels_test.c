// Kernels that share out, reorder or reuse work, at sizes where they do: beside the reference
// loops, and the same bits with threads, in place and for rows alone.
#include "support.h"
#include "backend/cpu/cpu.h"
#include "base/cpu.h"
#include "graph/op/grads.h"
#include "guarded.h"

#include <math.h>

static rn_workers *workers;
static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static void fill(const rn_tensor *t) {
    float *x = t->data;
    for (uint64_t i = 0; i < rn_tensor_elements(t); i++)
        x[i] = (float)draw(4001) / 2000 - 1;
}

static void each_level(void (*test)(void)) {
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        if ((int)rn_cpu_level_get() == level) test();
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

// ---- one op -------------------------------------------------------------------------------------

enum { MOST = 6 };

typedef struct trial {
    rn_op op;
    const void *attrs;
    rn_tensor tensors[MOST]; // inputs, then one output
    test_guard guards[MOST];
    uint32_t inputs;
} trial;

static rn_tensor *add_tensor(trial *t, uint32_t at, rn_dtype dtype, rn_shape shape) {
    rn_tensor *tensor = &t->tensors[at];
    *tensor = (rn_tensor){.dtype = dtype, .shape = shape};
    t->guards[at] = test_guard_make(rn_tensor_bytes(tensor));
    tensor->data = t->guards[at].data;
    return tensor;
}

static void close_trial(trial *t) {
    for (uint32_t i = 0; i <= t->inputs; i++) {
        assert_true(test_guard_intact(&t->guards[i]));
        test_guard_free(&t->guards[i]);
    }
}

typedef enum how { REFERENCE, ALONE, SHARED } how;

static void run(trial *t, how way) {
    rn_call call = {.op = t->op,
                    .attrs = t->attrs,
                    .inputs = t->tensors,
                    .outputs = t->tensors + t->inputs,
                    .input_count = t->inputs,
                    .output_count = 1,
                    .workers = way == SHARED ? workers : NULL,
                    .threads = way == SHARED ? 2 : 1};
    const rn_kernel *kernel = &rn_cpu_kernels[t->op];
    const rn_op_info *op = rn_op_get(t->op);
    if (way == REFERENCE)
        call.workspace_bytes = op->workspace ? op->workspace(&call) : 0;
    else
        call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    assert_ok(way == REFERENCE ? op->reference(&call) : kernel->run(&call));
    assert_true(test_guard_intact(&workspace));
    test_guard_free(&workspace);
}

static void *result(const trial *t) {
    return t->tensors[t->inputs].data;
}

// Runs it all ways; with tolerance 0 the kernel must have the reference's bits.
static void check(trial *t, double tolerance) {
    uint64_t bytes = rn_tensor_bytes(&t->tensors[t->inputs]);
    uint8_t *must = malloc(2 * bytes + 1);
    run(t, REFERENCE);
    memcpy(must, result(t), bytes);
    memset(result(t), 0x77, bytes);
    run(t, ALONE);
    memcpy(must + bytes, result(t), bytes);
    memset(result(t), 0x77, bytes);
    run(t, SHARED);
    assert_memory_equal(must + bytes, result(t), bytes);
    if (tolerance == 0) assert_memory_equal(must, result(t), bytes);
    for (uint64_t i = 0; tolerance > 0 && i < bytes / sizeof(float); i++) {
        float a = ((float *)(void *)must)[i], b = ((float *)result(t))[i];
        assert_true(fabs((double)a - b) <= tolerance * (1 + fabs((double)a)));
    }
    free(must);
}

// ---- permute ------------------------------------------------------------------------------------

static void try_permute(void) {
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_I32, RN_DTYPE_F16};
    for (uint32_t n = 0; n < 200; n++) {
        rn_permute_attrs attrs = {{0}};
        rn_shape x = {.rank = 1 + draw(5)}, y = x;
        for (uint32_t i = 0; i < x.rank; i++) {
            x.dims[i] = 1 + draw(x.rank > 3 ? 5 : 50);
            attrs.axes[i] = (uint8_t)i;
        }
        for (uint32_t i = x.rank; i-- > 1;) {
            uint32_t other = draw(i + 1);
            uint8_t axis = attrs.axes[i];
            attrs.axes[i] = attrs.axes[other];
            attrs.axes[other] = axis;
        }
        for (uint32_t i = 0; i < x.rank; i++)
            y.dims[i] = x.dims[attrs.axes[i]];
        trial t = {.op = RN_OP_PERMUTE, .attrs = &attrs, .inputs = 1};
        rn_tensor *from = add_tensor(&t, 0, dtypes[n % 3], x);
        add_tensor(&t, 1, dtypes[n % 3], y);
        for (uint64_t i = 0; i < rn_tensor_bytes(from); i++)
            ((uint8_t *)from->data)[i] = (uint8_t)draw(256);
        check(&t, 0);
        close_trial(&t);
    }
}

// Both zeros, NaN, and more elements than a piece.
static void try_extremes(void) {
    static const rn_shape shapes[] = {{.rank = 1, .dims = {40000}}, {.rank = 2, .dims = {3, 37}}};
    for (uint32_t n = 0; n < 24; n++) {
        rn_shape x = shapes[n / 2 % 2];
        rn_reduce_as_attrs least = {.function = RN_REDUCE_MIN, .over = {1u << (x.rank - 1), false}};
        rn_reduce_attrs most = least.over;
        trial t = {.op = n % 2 ? RN_OP_MAX : RN_OP_REDUCE, .inputs = 1};
        t.attrs = n % 2 ? (const void *)&most : &least;
        float *from = add_tensor(&t, 0, RN_DTYPE_F32, x)->data;
        add_tensor(&t, 1, RN_DTYPE_F32, x.rank == 1 ? RN_SCALAR : RN_SHAPE(x.dims[0]));
        fill(&t.tensors[0]);
        for (uint64_t i = 0; i < rn_tensor_elements(&t.tensors[0]); i++)
            if (n < 12) from[i] = draw(3) ? (n % 2 ? -1.0f : 1.0f) * (float)draw(2) : -0.0f;
        if (n > 20) from[30] = NAN;
        check(&t, 0);
        close_trial(&t);
    }
}

static void extremes_are_the_reference(void **state) {
    (void)state;
    each_level(try_extremes);
}

static void any_order_of_axes_is_the_reference(void **state) {
    (void)state;
    each_level(try_permute);
}

// ---- sums ---------------------------------------------------------------------------------------

static void try_sum(rn_shape x, uint32_t axes, rn_op op) {
    rn_reduce_attrs attrs = {.axes = axes};
    rn_shape y = {.rank = 0};
    for (uint32_t i = 0; i < x.rank; i++)
        if (!(axes >> i & 1)) y.dims[y.rank++] = x.dims[i];
    trial t = {.op = op, .attrs = &attrs, .inputs = 1};
    fill(add_tensor(&t, 0, RN_DTYPE_F32, x));
    add_tensor(&t, 1, RN_DTYPE_F32, y);
    check(&t, 1e-6);
    close_trial(&t);
}

static void try_sums(void) {
    const rn_shape shapes[] = {RN_SHAPE(1000, 70), RN_SHAPE(3, 40000), RN_SHAPE(2, 7, 7, 65),
                               RN_SHAPE(5, 1, 300, 2), RN_SHAPE(1)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t axes = 0; axes < 1u << shapes[i].rank; axes++)
            try_sum(shapes[i], axes, i % 2 ? RN_OP_MEAN : RN_OP_SUM);
    trial t = {.op = RN_OP_SUM_SQUARES, .inputs = 1};
    fill(add_tensor(&t, 0, RN_DTYPE_F32, RN_SHAPE(70001)));
    add_tensor(&t, 1, RN_DTYPE_F32, RN_SCALAR);
    check(&t, 1e-6);
    close_trial(&t);
}

static void sums_over_any_axes_are_the_reference(void **state) {
    (void)state;
    each_level(try_sums);
}

// Also where a row is long enough to be cut.
static void a_row_alone_has_the_same_sum(void **state) {
    (void)state;
    enum { ROWS = 3, WIDTH = 40007 };
    rn_reduce_attrs attrs = {.axes = 2};
    trial all = {.op = RN_OP_SUM, .attrs = &attrs, .inputs = 1};
    fill(add_tensor(&all, 0, RN_DTYPE_F32, RN_SHAPE(ROWS, WIDTH)));
    add_tensor(&all, 1, RN_DTYPE_F32, RN_SHAPE(ROWS));
    run(&all, SHARED);
    for (uint32_t row = 0; row < ROWS; row++) {
        trial one = {.op = RN_OP_SUM, .attrs = &attrs, .inputs = 1};
        rn_tensor *x = add_tensor(&one, 0, RN_DTYPE_F32, RN_SHAPE(1, WIDTH));
        memcpy(x->data, (float *)all.tensors[0].data + row * WIDTH, WIDTH * sizeof(float));
        add_tensor(&one, 1, RN_DTYPE_F32, RN_SHAPE(1));
        run(&one, SHARED);
        assert_memory_equal((float *)result(&all) + row, result(&one), sizeof(float));
        close_trial(&one);
    }
    close_trial(&all);
}

// ---- embedding_grad -----------------------------------------------------------------------------

static void rows_of_a_table_get_their_places_in_order(void **state) {
    (void)state;
    for (uint64_t vocab = 1; vocab < 60; vocab += 7) {
        rn_embedding_grad_attrs attrs = {vocab};
        trial t = {.op = RN_OP_EMBEDDING_GRAD, .attrs = &attrs, .inputs = 2};
        rn_tensor *ids = add_tensor(&t, 0, RN_DTYPE_I32, RN_SHAPE(5, 40));
        for (int i = 0; i < 200; i++)
            ((int32_t *)ids->data)[i] = (int32_t)draw((uint32_t)vocab);
        fill(add_tensor(&t, 1, RN_DTYPE_F32, RN_SHAPE(5, 40, 33)));
        add_tensor(&t, 2, RN_DTYPE_F32, RN_SHAPE(vocab, 33));
        check(&t, 0);
        close_trial(&t);
    }
}

// ---- rope ---------------------------------------------------------------------------------------

static void try_rope(void) {
    for (uint32_t n = 0; n < 48; n++) {
        uint64_t batch = 1 + n % 4, tokens = 1 + draw(40), heads = 1 + draw(4);
        uint64_t head_dim = 2 + 2 * draw(40);
        rn_rope_attrs attrs = {.pairing = n & 1 ? RN_ROPE_HALVES : RN_ROPE_NEIGHBOURS,
                               .base = 10000,
                               .dims = n & 2 ? 2 + 2 * draw((uint32_t)head_dim / 2) : 0,
                               .inverse = n & 4};
        trial t = {.op = RN_OP_ROPE, .attrs = &attrs, .inputs = 2};
        fill(add_tensor(&t, 0, RN_DTYPE_F32, RN_SHAPE(batch, tokens, heads, head_dim)));
        rn_tensor *positions = add_tensor(&t, 1, RN_DTYPE_I32, RN_SHAPE(batch, tokens));
        for (uint64_t i = 0; i < batch * tokens; i++) // some alike in all sequences, some not
            ((int32_t *)positions->data)[i] =
                n & 8 ? (int32_t)draw(3000) : (int32_t)(i % tokens) + (n & 16 && i > tokens);
        add_tensor(&t, 2, RN_DTYPE_F32, t.tensors[0].shape);
        check(&t, 0);
        uint64_t bytes = rn_tensor_bytes(&t.tensors[0]);
        uint8_t *apart = malloc(bytes);
        memcpy(apart, result(&t), bytes);
        t.tensors[2].data = t.tensors[0].data; // in place
        run(&t, SHARED);
        assert_memory_equal(apart, t.tensors[0].data, bytes);
        free(apart);
        close_trial(&t);
    }
}

static void rotations_have_the_bits_of_the_reference(void **state) {
    (void)state;
    each_level(try_rope);
}

static int make_workers(void **state) {
    (void)state;
    return rn_workers_create(2, &rn_system_allocator, &workers) != RN_OK;
}

static int end_workers(void **state) {
    (void)state;
    rn_workers_destroy(workers);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_axes_is_the_reference),
        cmocka_unit_test(extremes_are_the_reference),
        cmocka_unit_test(sums_over_any_axes_are_the_reference),
        cmocka_unit_test(a_row_alone_has_the_same_sum),
        cmocka_unit_test(rows_of_a_table_get_their_places_in_order),
        cmocka_unit_test(rotations_have_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, make_workers, end_workers);
}
