// Texts packed into one call of varlen_attention have the bits that they have alone, at every level
// of the CPU, whatever they are packed with; spans that cannot be are refused.
#include "support.h"
#include "backend/cpu/cpu.h"
#include "base/cpu.h"

enum { HEADS = 4, KV_HEADS = 2, DIMS = 16, TEXTS = 5, MOST = 300, REACH = 6 };
static const int32_t lengths[TEXTS] = {3, 1, 130, 64, 65};

typedef struct scene {
    float q[MOST * HEADS * DIMS], k[MOST * KV_HEADS * DIMS], v[MOST * KV_HEADS * DIMS];
    float y[MOST * HEADS * DIMS], bias[HEADS * (2 * REACH + 1)];
    int32_t span[MOST * 2];
    uint64_t rows;
} scene;

// Text number `text`, whose numbers are its own, behind what is there.
static void append(scene *s, uint32_t text) {
    uint32_t seed = 77 + text;
    int32_t first = (int32_t)s->rows, end = first + lengths[text];
    for (; s->rows < (uint64_t)end; s->rows++) {
        float *to[] = {s->q + s->rows * HEADS * DIMS, s->k + s->rows * KV_HEADS * DIMS,
                       s->v + s->rows * KV_HEADS * DIMS};
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < (i ? KV_HEADS : HEADS) * DIMS; j++) {
                seed = seed * 1664525u + 1013904223u;
                to[i][j] = (float)(seed >> 8) / (1 << 23) - 1;
            }
        s->span[2 * s->rows] = first;
        s->span[2 * s->rows + 1] = end;
    }
}

static rn_status run(scene *s, rn_attention_attrs attrs, bool biased) {
    static char workspace[1 << 16];
    for (int i = 0; i < HEADS * (2 * REACH + 1); i++)
        s->bias[i] = (float)(i % 7) / 4;
    rn_tensor in[5] = {
        {s->q, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, HEADS, DIMS)},
        {s->k, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, KV_HEADS, DIMS)},
        {s->v, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, KV_HEADS, DIMS)},
        {s->span, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, 2)},
    };
    rn_tensor out = {s->y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(s->rows, HEADS, DIMS)};
    if (biased)
        in[4] = (rn_tensor){s->bias, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(HEADS, 2 * REACH + 1)};
    rn_call call = {.op = RN_OP_VARLEN_ATTENTION,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 5,
                    .output_count = 1,
                    .threads = 1,
                    .workspace = workspace};
    call.workspace_bytes = rn_cpu_kernels[call.op].workspace(&call);
    assert_true(call.workspace_bytes <= sizeof workspace);
    return rn_cpu_kernels[call.op].run(&call);
}

static void check_packing(rn_attention_attrs attrs, bool biased) {
    static scene packed, alone;
    packed.rows = 0;
    for (uint32_t t = 0; t < TEXTS; t++)
        append(&packed, t);
    assert_ok(run(&packed, attrs, biased));
    const float *y = packed.y;
    for (uint32_t t = 0; t < TEXTS; t++) {
        size_t count = (size_t)lengths[t] * HEADS * DIMS;
        alone.rows = 0;
        append(&alone, t);
        assert_ok(run(&alone, attrs, biased));
        assert_memory_equal(y, alone.y, count * sizeof *y);
        y += count;
    }
}

static void a_text_has_the_bits_it_has_alone(void **state) {
    (void)state;
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        check_packing((rn_attention_attrs){0}, false);
        check_packing((rn_attention_attrs){.causal = true}, false);
        check_packing((rn_attention_attrs){.window = 9}, false);
        check_packing((rn_attention_attrs){0}, true);
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

static void spans_that_do_not_hold_their_row_are_refused(void **state) {
    static scene s;
    static const int32_t wrong[][2] = {{-1, 3}, {0, 4}, {2, 3}, {0, 1}, {3, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.rows = 0;
        append(&s, 0);
        assert_ok(run(&s, (rn_attention_attrs){0}, false));
        memcpy(s.span + 2, wrong[i], sizeof wrong[i]); // row 1 of 3
        assert_fails(RN_INVALID, run(&s, (rn_attention_attrs){0}, false));
    }
}

static void a_row_of_no_text_gives_zeros(void **state) {
    static scene s;
    (void)state;
    append(&s, 0);
    s.span[2] = s.span[3] = 0;
    s.y[HEADS * DIMS] = 7;
    assert_ok(run(&s, (rn_attention_attrs){0}, false));
    for (int i = 0; i < HEADS * DIMS; i++)
        assert_true(s.y[HEADS * DIMS + i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_the_bits_it_has_alone),
        cmocka_unit_test(spans_that_do_not_hold_their_row_are_refused),
        cmocka_unit_test(a_row_of_no_text_gives_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
