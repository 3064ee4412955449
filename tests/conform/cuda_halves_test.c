// labels: gpu
// cuda_halves_test.c — the ops of a training step on the first GPU, with values of f32, bf16 and
// f16 in any mix, against the reference of the same (rounded) inputs (graph/halves.h).
//
// Every row of the conformance tables, forward and backward, and rows of real sizes. Both sides
// compute in f32 or better and round once, so two halves are at most neighbours: 2^-7 of the
// element for bf16 (8 bits, of which the first is given), 2^-10 for f16. What cancels or is summed
// in another order is off by 1e-5 of the largest element (conform_facts.c: SUM). Products and
// attention have tests of their own.
//
// Everything is run twice, and once more in place where the op may: the same bits.
#include "support.h"

#include "backend/cuda/rows.h"
#include "conform_trial.h"
#include "graph/halves.h"
#include "graph/op/grads.h"
#include "gpu.h"

#include <math.h>

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 192 << 20);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

// ---- a call with halves -------------------------------------------------------------------------

typedef struct mix {
    rn_dtype input, output; // in the place of f32
} mix;

static const mix mixes[] = {{RN_DTYPE_F32, RN_DTYPE_F32},
                            {RN_DTYPE_BF16, RN_DTYPE_F32},
                            {RN_DTYPE_F32, RN_DTYPE_BF16},
                            {RN_DTYPE_BF16, RN_DTYPE_BF16},
                            {RN_DTYPE_F16, RN_DTYPE_F16}};

// A node's tensors in memory of their own.
typedef struct attempt {
    rn_tensor tensors[TEST_MAX_TENSORS]; // inputs, then outputs
    test_guard guards[TEST_MAX_TENSORS], workspace;
    rn_call call;
} attempt;

static bool is_tested(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    // A product in disguise, whose weight is rounded to x's type: cuda_half_test.c.
    if (call->op == RN_OP_LINEAR_CROSS_ENTROPY) return false;
    // The same of convolutions: cuda_conv_test.c.
    if (call->op == RN_OP_CONV2D || call->op == RN_OP_CONV2D_GRAD_INPUT ||
        call->op == RN_OP_CONV2D_GRAD_WEIGHT || call->op == RN_OP_CONV ||
        call->op == RN_OP_CONV_TRANSPOSE || call->op == RN_OP_CONV_GRAD_WEIGHT)
        return false;
    return rn_cuda_kernels[call->op].run && op->reference &&
           !(op->traits & (RN_TRAIT_PRODUCT | RN_TRAIT_ATTENTION | RN_TRAIT_RECURRENT |
                           RN_TRAIT_APPEND | RN_TRAIT_VIEW));
}

static void place_input(attempt *a, uint32_t i, const test_guard *before, mix m) {
    rn_tensor *t = &a->tensors[i];
    if (!rn_tensor_given(t)) return;
    if (t->dtype == RN_DTYPE_F32 && rn_op_takes_half(a->call.op, i)) t->dtype = m.input;
    a->guards[i] = test_guard_make(rn_tensor_bytes(t));
    t->data = a->guards[i].data;
    const void *from = before[i].data;
    if (before[i].bytes == a->guards[i].bytes) // as it was
        memcpy(t->data, from, before[i].bytes);
    else
        assert_ok(rn_dtype_from_f32(t->dtype, from, t->data, rn_tensor_elements(t)));
}

// `in_place`: an output that overwrites its input, where it may; RN_MAX_OUTPUTS: none.
static void place_output(attempt *a, uint32_t i, mix m, uint32_t in_place) {
    rn_tensor *t = &a->tensors[a->call.input_count + i];
    uint64_t offset = 0;
    if (t->dtype == RN_DTYPE_F32 && rn_op_makes_half(a->call.op, i)) t->dtype = m.output;
    rn_alias alias = rn_call_alias(&a->call, i, &offset);
    if (alias.kind == RN_ALIAS_KIND_MUST || i == in_place) {
        t->data = a->tensors[alias.input].data;
        return;
    }
    a->guards[a->call.input_count + i] = test_guard_make(rn_tensor_bytes(t));
    t->data = a->guards[a->call.input_count + i].data;
}

static void open_attempt(attempt *a, const test_run *run, uint32_t node, const test_guard *before,
                         mix m, uint32_t in_place) {
    *a = (attempt){0};
    test_run_bind(run, node, a->tensors, &a->call);
    for (uint32_t i = 0; i < a->call.input_count; i++)
        place_input(a, i, before, m);
    for (uint32_t i = 0; i < a->call.output_count; i++)
        place_output(a, i, m, in_place);
}

static void close_attempt(attempt *a) {
    for (uint32_t i = 0; i < TEST_MAX_TENSORS; i++)
        test_guard_free(&a->guards[i]);
    test_guard_free(&a->workspace);
}

static void set_workspace(attempt *a, uint64_t bytes) {
    a->workspace = test_guard_make(bytes);
    a->call.workspace = a->workspace.data;
    a->call.workspace_bytes = bytes;
}

static rn_status run_here(attempt *a) {
    set_workspace(a, rn_reference_workspace(&a->call));
    return rn_reference_run(&a->call);
}

static rn_status run_there(attempt *a) {
    const rn_kernel *kernel = &rn_cuda_kernels[a->call.op];
    set_workspace(a, kernel->workspace ? kernel->workspace(&a->call) : 0);
    return test_offload_run(&gpu.offload, kernel, &a->call);
}

// ---- comparing ----------------------------------------------------------------------------------

static bool are_near(const rn_tensor *must, const rn_tensor *is, conform_why *why) {
    uint64_t n = rn_tensor_elements(must), bytes = rn_tensor_bytes(must);
    const rn_dtype_info *type = rn_dtype_get(must->dtype);
    if (memcmp(must->data, is->data, bytes) == 0) return true;
    snprintf(why->text, sizeof why->text, "the bytes differ");
    if (!type->is_float || type->block_elements > 1) return false;
    float *wide = malloc(2 * n * sizeof *wide), largest = 0;
    assert_non_null(wide);
    assert_ok(rn_dtype_to_f32(must->dtype, is->data, wide, n));
    assert_ok(rn_dtype_to_f32(must->dtype, must->data, wide + n, n));
    for (uint64_t i = 0; i < n; i++)
        if (isfinite(wide[n + i])) largest = fmaxf(largest, fabsf(wide[n + i]));
    float step = must->dtype == RN_DTYPE_BF16  ? 0x1p-7f
                 : must->dtype == RN_DTYPE_F16 ? 0x1p-10f
                                               : 0;
    bool near = true;
    for (uint64_t i = 0; near && i < n; i++) {
        float x = wide[i], y = wide[n + i];
        if (x == y || (isnan(x) && isnan(y))) continue;
        near = fabsf(x - y) <= step * fabsf(y) + 1e-5f * largest;
        if (!near)
            snprintf(why->text, sizeof why->text, "element %llu is %g, not %g (the largest is %g)",
                     (unsigned long long)i, (double)x, (double)y, (double)largest);
    }
    free(wide);
    return near;
}

static bool outputs_near(const attempt *must, const attempt *is, bool same, conform_why *why) {
    for (uint32_t i = 0; i < must->call.output_count; i++) {
        const rn_tensor *y = &must->tensors[must->call.input_count + i];
        const rn_tensor *x = &is->tensors[must->call.input_count + i];
        bool optional = rn_op_get(must->call.op)->optional_outputs >> i & 1;
        if (optional && test_guard_fresh(y->data, rn_tensor_bytes(y))) continue; // no such result
        if (same ? memcmp(x->data, y->data, rn_tensor_bytes(y)) == 0 : are_near(y, x, why))
            continue;
        if (same)
            snprintf(why->text, sizeof why->text, "output %u has other bits the second time", i);
        return false;
    }
    return true;
}

static bool may_overwrite(const attempt *a, uint32_t output) {
    uint64_t offset = 0;
    rn_alias alias = rn_call_alias(&a->call, output, &offset);
    if (alias.kind != RN_ALIAS_KIND_MAY) return false;
    const rn_tensor *from = &a->tensors[alias.input],
                    *to = &a->tensors[a->call.input_count + output];
    return rn_tensor_given(from) && rn_tensor_bytes(from) == rn_tensor_bytes(to);
}

// Once more with the same inputs: the same bits.
static bool try_again(const attempt *first, const test_run *run, uint32_t node,
                      const test_guard *before, mix m, uint32_t in_place, conform_why *why) {
    attempt again;
    open_attempt(&again, run, node, before, m, in_place);
    bool good = run_there(&again) == RN_OK;
    if (!good)
        snprintf(why->text, sizeof why->text, "again: %.400s", rn_last_error()->message);
    else
        good = outputs_near(first, &again, true, why);
    close_attempt(&again);
    return good;
}

static bool try_mix(const test_run *run, uint32_t node, const test_guard *before, mix m,
                    conform_why *why) {
    attempt here, there;
    open_attempt(&here, run, node, before, m, RN_MAX_OUTPUTS);
    open_attempt(&there, run, node, before, m, RN_MAX_OUTPUTS);
    bool good = run_here(&here) == RN_OK && run_there(&there) == RN_OK;
    if (!good)
        snprintf(why->text, sizeof why->text, "%.400s", rn_last_error()->message);
    else
        good = outputs_near(&here, &there, false, why) &&
               try_again(&there, run, node, before, m, RN_MAX_OUTPUTS, why);
    for (uint32_t i = 0; good && i < there.call.output_count; i++)
        if (may_overwrite(&there, i)) good = try_again(&there, run, node, before, m, i, why);
    close_attempt(&here);
    close_attempt(&there);
    return good;
}

static bool try_node(test_run *run, uint32_t node, conform_why *why) {
    test_guard before[TEST_MAX_TENSORS];
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    bool good = true;
    conform_snapshot(run, node, before);
    test_run_node(run, node);
    test_run_bind(run, node, tensors, &call);
    const rn_op_info *op = rn_op_get(call.op);
    size_t count = op->half_inputs || op->half_outputs ? sizeof mixes / sizeof *mixes : 1;
    for (size_t i = 0; good && is_tested(&call) && !conform_is_view(run, node) && i < count; i++) {
        good = try_mix(run, node, before, mixes[i], why);
        if (!good) {
            conform_why what = *why;
            snprintf(why->text, sizeof why->text, "%s to %s: %.400s",
                     rn_dtype_get(mixes[i].input)->name, rn_dtype_get(mixes[i].output)->name,
                     what.text);
        }
    }
    conform_snapshot_free(before);
    return good;
}

static uint32_t try_rows(const conform_table *table) {
    uint32_t wrong = 0;
    for (size_t i = 0; i < table->count; i++) {
        const conform_row *row = &table->rows[i];
        conform_why why = {{0}};
        conform_case c;
        test_run run;
        conform_open(&c, row, true);
        conform_run_open(&c, row->rows, &run);
        for (uint32_t n = 0; n < rn_graph_node_count(c.graph); n++)
            if (!try_node(&run, n, &why)) {
                print_error("%s, %s: %s: %s\n", rn_op_name(row->op), row->what,
                            rn_graph_node(c.graph, n)->name, why.text);
                wrong++;
                break;
            }
        test_run_close(&run);
        conform_close(&c);
    }
    return wrong;
}

// ---- real sizes ---------------------------------------------------------------------------------

static void norm(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -1, 1);
    rn_value weight = conform_weight(c, RN_DTYPE_F32, c->row->shapes[1], 0.5f, 1.5f);
    rn_value y = rn_op_rmsnorm(c->graph, x, weight, 1e-5f);
    if (c->row->op == RN_OP_LAYERNORM) {
        rn_value bias = conform_weight(c, RN_DTYPE_F32, c->row->shapes[1], -1, 1);
        y = rn_op_layernorm(c->graph, x, weight, bias, 1e-5f);
    }
    conform_result(c, y);
}

static void softmax(conform_case *c) {
    conform_result(c, rn_op_softmax(c->graph, conform_in(c, c->row->shapes[0], -4, 4)));
}

static void gated(conform_case *c) {
    rn_value gate = conform_in(c, c->row->shapes[0], -6, 6);
    rn_value up = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_gated(c->graph, gate, up, (rn_activation)c->row->variant));
}

static void losses(conform_case *c) {
    uint64_t rows = c->row->shapes[0].dims[0], classes = c->row->shapes[0].dims[1];
    static int32_t targets[64];
    for (uint64_t i = 0; i < rows; i++)
        targets[i] = i % 5 == 3 ? -100 : (int32_t)((i * 7919 + classes - 1) % classes);
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_value logits = conform_in(c, c->row->shapes[0], -8, 8);
    conform_result(
        c, rn_op_cross_entropy(c->graph, logits, conform_list(c, RN_SHAPE(rows), targets), attrs));
}

static void lookup(conform_case *c) {
    rn_value table = conform_weight(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    // Ids repeat: there are more places than words.
    rn_value ids = conform_whole(c, c->row->shapes[1], 0, (int32_t)c->row->shapes[0].dims[0]);
    conform_result(c, rn_op_embedding(c->graph, table, ids));
}

static void turn(conform_case *c) {
    rn_rope_attrs attrs = {.base = 500000, .pairing = (rn_rope_pairing)c->row->variant};
    rn_value x = conform_in(c, c->row->shapes[0], -1, 1);
    rn_value positions = conform_whole(c, c->row->shapes[1], 0, 131072);
    conform_result(c, rn_op_rope(c->graph, x, positions, attrs));
}

static void adamw(conform_case *c) {
    rn_adamw_attrs attrs = {.beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-6f,
                            .weight_decay = 0.1f,
                            .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2}),
                            .step = conform_scalar(c, "step", (rn_scalar){.f64 = 3})};
    rn_shape shape = c->row->shapes[0];
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value m = conform_state(c, RN_DTYPE_F32, shape, -0.5f, 0.5f);
    rn_value v = conform_state(c, RN_DTYPE_F32, shape, 0.1f, 0.5f);
    rn_op_adamw(c->graph, weight, gradient, m, v, attrs);
}

static void squares(conform_case *c) {
    conform_result(c, rn_op_sum_squares(c->graph, conform_in(c, c->row->shapes[0], -1, 1)));
}

static void sums(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -1, 1);
    conform_result(c, rn_op_sum(c->graph, x, (uint32_t)c->row->variant, false));
}

static const conform_row large[] = {
    {.op = RN_OP_RMSNORM,
     .what = "large",
     .build = norm,
     .shapes = {RN_SHAPE(515, 4096), RN_SHAPE(4096)}},
    {.op = RN_OP_RMSNORM,
     .what = "8192 columns",
     .build = norm,
     .shapes = {RN_SHAPE(20, 8192), RN_SHAPE(8192)}},
    {.op = RN_OP_RMSNORM,
     .what = "wide",
     .build = norm,
     .shapes = {RN_SHAPE(33, 14336), RN_SHAPE(14336)}},
    {.op = RN_OP_RMSNORM,
     .what = "heads",
     .build = norm,
     .shapes = {RN_SHAPE(9001, 128), RN_SHAPE(128)}},
    {.op = RN_OP_RMSNORM,
     .what = "odd",
     .build = norm,
     .shapes = {RN_SHAPE(77, 1001), RN_SHAPE(1001)}},
    {.op = RN_OP_RMSNORM,
     .what = "sums in the workspace",
     .build = norm,
     .shapes = {RN_SHAPE(5, 40000), RN_SHAPE(40000)}},
    {.op = RN_OP_LAYERNORM,
     .what = "large",
     .build = norm,
     .shapes = {RN_SHAPE(301, 1024), RN_SHAPE(1024)}},
    {.op = RN_OP_LAYERNORM,
     .what = "odd",
     .build = norm,
     .shapes = {RN_SHAPE(300, 515), RN_SHAPE(515)}},
    {.op = RN_OP_SOFTMAX, .what = "large", .build = softmax, .shapes = {RN_SHAPE(64, 5000)}},
    {.op = RN_OP_SOFTMAX, .what = "odd", .build = softmax, .shapes = {RN_SHAPE(300, 333)}},
    {.op = RN_OP_GATED, .what = "silu", .build = gated, .shapes = {RN_SHAPE(70, 14336)}},
    {.op = RN_OP_GATED,
     .what = "gelu_tanh",
     .build = gated,
     .shapes = {RN_SHAPE(70, 1001)},
     .variant = RN_ACTIVATION_GELU_TANH},
    {.op = RN_OP_GATED,
     .what = "gelu",
     .build = gated,
     .shapes = {RN_SHAPE(70, 1001)},
     .variant = RN_ACTIVATION_GELU},
    {.op = RN_OP_CROSS_ENTROPY,
     .what = "128256 classes",
     .build = losses,
     .shapes = {RN_SHAPE(12, 128256)}},
    {.op = RN_OP_CROSS_ENTROPY,
     .what = "50257 classes",
     .build = losses,
     .shapes = {RN_SHAPE(19, 50257)}},
    {.op = RN_OP_CROSS_ENTROPY,
     .what = "1003 classes",
     .build = losses,
     .shapes = {RN_SHAPE(64, 1003)}},
    {.op = RN_OP_EMBEDDING,
     .what = "ids repeat",
     .build = lookup,
     .shapes = {RN_SHAPE(1000, 520), RN_SHAPE(4099)}},
    {.op = RN_OP_EMBEDDING,
     .what = "one word",
     .build = lookup,
     .shapes = {RN_SHAPE(1, 2050), RN_SHAPE(700)}},
    {.op = RN_OP_ROPE,
     .what = "halves",
     .build = turn,
     .shapes = {RN_SHAPE(130, 32, 128), RN_SHAPE(130)},
     .variant = RN_ROPE_HALVES},
    {.op = RN_OP_ROPE,
     .what = "neighbours",
     .build = turn,
     .shapes = {RN_SHAPE(130, 8, 64), RN_SHAPE(130)},
     .variant = RN_ROPE_NEIGHBOURS},
    {.op = RN_OP_ADAMW, .what = "large", .build = adamw, .shapes = {RN_SHAPE(1000003)}},
    {.op = RN_OP_SUM_SQUARES, .what = "large", .build = squares, .shapes = {RN_SHAPE(1024, 1024)}},
    {.op = RN_OP_SUM,
     .what = "columns",
     .build = sums,
     .shapes = {RN_SHAPE(515, 1030)},
     .variant = 1},
    {.op = RN_OP_SUM, .what = "rows", .build = sums, .shapes = {RN_SHAPE(30, 8192)}, .variant = 2},
};

// ---- the tests ----------------------------------------------------------------------------------

static void every_op_takes_and_makes_halves(void **state) {
    (void)state;
    test_gpu_want(&gpu);
    uint32_t wrong = 0;
    for (const conform_table *const *t = conform_tables; *t; t++)
        wrong += try_rows(*t);
    assert_int_equal(wrong, 0);
}

static void real_sizes_too(void **state) {
    (void)state;
    test_gpu_want(&gpu);
    assert_int_equal(try_rows(&(conform_table){large, sizeof large / sizeof *large}), 0);
}

// Targets are not looked at on the host: the loss is no number, and neither is the row's gradient.
static void a_target_that_is_no_class_gives_nan(void **state) {
    (void)state;
    test_gpu_want(&gpu);
    float logits[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}}, loss, lse[2], count = 2, one = 1, d[2][4];
    int32_t targets[2] = {1, 4};
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    double workspace[16];
    rn_tensor in[] = {{logits, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(2, 4)},
                      {targets, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(2)},
                      {lse, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(2)},
                      {&count, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR},
                      {&one, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR}};
    rn_tensor out[] = {{&loss, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR},
                       {lse, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(2)},
                       {&count, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR}};
    rn_call call = {.op = RN_OP_CROSS_ENTROPY,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = out,
                    .input_count = 2,
                    .output_count = 3,
                    .workspace = workspace,
                    .workspace_bytes = sizeof workspace,
                    .threads = 1};
    assert_ok(test_offload_run(&gpu.offload, &rn_cuda_kernels[call.op], &call));
    assert_true(isnan(loss));
    assert_true(count == 2);
    rn_tensor slopes = {d, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(2, 4)};
    call.op = RN_OP_CROSS_ENTROPY_GRAD;
    call.input_count = 5, call.outputs = &slopes, call.output_count = 1;
    call.workspace = NULL, call.workspace_bytes = 0;
    assert_ok(test_offload_run(&gpu.offload, &rn_cuda_kernels[call.op], &call));
    for (int i = 0; i < 4; i++) {
        assert_false(isnan(d[0][i]));
        assert_true(isnan(d[1][i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_takes_and_makes_halves),
        cmocka_unit_test(real_sizes_too),
        cmocka_unit_test(a_target_that_is_no_class_gives_nan),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
