// weight_forms_test.c — weights of several tensors: what is read of them, and what is wrong with
// those that do not fit together. (Whole models of every form:
// tests/golden/quantized_models_test.c.)
#include "support.h"

#include "io/checkpoint.h"
#include "io/weight_forms.h"
#include "tensor/small_float.h"

#include <math.h>

// ---- files in memory ----------------------------------------------------------------------------

enum { MOST_BYTES = 1 << 16 };

typedef struct file {
    char header[4096];
    uint8_t data[MOST_BYTES], whole[MOST_BYTES + 4104];
    size_t header_bytes, data_bytes, bytes;
} file;

static file made;

static void begin(void) {
    made.header_bytes = made.data_bytes = 0;
}

static void *add_shape(const char *name, const char *dtype, uint64_t bytes, const char *shape) {
    assert_true(made.data_bytes + bytes <= MOST_BYTES);
    made.header_bytes +=
        (size_t)snprintf(made.header + made.header_bytes, sizeof made.header - made.header_bytes,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         made.header_bytes ? "," : "{", name, dtype, shape, made.data_bytes,
                         made.data_bytes + (size_t)bytes);
    void *at = made.data + made.data_bytes;
    memset(at, 0, bytes);
    made.data_bytes += bytes;
    return at;
}

// The tensor's bytes, zero.
static void *add(const char *name, const char *dtype, uint64_t element_bytes, uint64_t rows,
                 uint64_t cols) {
    char shape[48];
    snprintf(shape, sizeof shape, cols ? "%llu,%llu" : "%llu", (unsigned long long)rows,
             (unsigned long long)cols);
    return add_shape(name, dtype, element_bytes * rows * (cols ? cols : 1), shape);
}

static rn_checkpoint *open_made(void) {
    rn_checkpoint *c;
    uint64_t length = made.header_bytes + 1;
    memcpy(made.whole, &length, 8);
    memcpy(made.whole + 8, made.header, made.header_bytes);
    made.whole[8 + made.header_bytes] = '}';
    memcpy(made.whole + 9 + made.header_bytes, made.data, made.data_bytes);
    assert_ok(
        rn_checkpoint_open_memory("made", made.whole, 9 + made.header_bytes + made.data_bytes, &c));
    return c;
}

static rn_status ignore(void *self, rn_component component, uint64_t offset, const void *data,
                        uint64_t bytes) {
    (void)self, (void)component, (void)offset, (void)data, (void)bytes;
    return RN_OK;
}

// Finding the forms, or reading "x.weight", fails and says so, with a hint.
static void refuse(rn_forms_config config, rn_status expected, const char *words) {
    rn_checkpoint *c = open_made();
    rn_status s = rn_checkpoint_find_forms(c, &config);
    const rn_weight_form *form = s == RN_OK ? rn_checkpoint_form(c, "x.weight") : NULL;
    if (form) s = rn_weight_form_read(c, form, 0, form->rows, ignore, NULL);
    if (s != expected || !strstr(rn_last_error()->message, words))
        fail_msg("%s (%s) instead of '%s'", rn_status_name(s), rn_last_error()->message, words);
    assert_true(rn_last_error()->hint[0] != '\0');
    rn_checkpoint_close(c);
}

// ---- examples: x.weight (16, 64) in groups of 32 ------------------------------------------------

enum { ROWS = 16, COLS = 64, GROUPS = 2 };

typedef struct gptq {
    uint32_t *qweight; // (8, 16)
    uint32_t *qzeros;  // (2, 2)
    uint16_t *scales;  // (2, 16)
    int32_t *g_idx;    // (64)
} gptq;

static const rn_forms_config as_gptq = {.method = RN_FORMS_GPTQ, .bits = 4, .group = 32};

static gptq make_gptq(void) {
    gptq g;
    begin();
    g.qweight = add("x.qweight", "I32", 4, COLS / 8, ROWS);
    g.qzeros = add("x.qzeros", "I32", 4, GROUPS, ROWS / 8);
    g.scales = add("x.scales", "F16", 2, GROUPS, ROWS);
    g.g_idx = add("x.g_idx", "I32", 4, COLS, 0);
    for (int i = 0; i < COLS / 8 * ROWS; i++)
        g.qweight[i] = (uint32_t)i * 0x9e3779b9u;
    for (int i = 0; i < GROUPS * ROWS / 8; i++)
        g.qzeros[i] = 0x77777777u;
    for (int i = 0; i < GROUPS * ROWS; i++)
        g.scales[i] = rn_f16_narrow(0.25f * (float)(i + 1));
    for (int i = 0; i < COLS; i++)
        g.g_idx[i] = i / 32;
    return g;
}

static void make_fp8(const char *scale, const char *dtype, uint64_t rows, uint64_t cols) {
    begin();
    add("x.weight", "F8_E4M3", 1, 256, 128);
    float *scales = add(scale, dtype, 4, rows, cols);
    for (uint64_t i = 0; i < rows * (cols ? cols : 1); i++)
        scales[i] = (float)(i + 1);
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct kept {
    uint8_t bytes[1 << 15];
    uint64_t end;
} kept;

static rn_status keep(void *self, rn_component component, uint64_t offset, const void *data,
                      uint64_t bytes) {
    kept *k = self;
    assert_int_equal(component, RN_COMPONENT_DATA);
    assert_int_equal(offset, k->end);
    memcpy(k->bytes + offset, data, bytes);
    k->end += bytes;
    return RN_OK;
}

// Value (r, c) of the example, by GPTQ's own rule.
static float gptq_value(const gptq *g, int r, int c) {
    int q = (int)(g->qweight[c / 8 * ROWS + r] >> 4 * (c % 8) & 15);
    int zero = (int)(g->qzeros[c / 32 * 2 + r / 8] >> 4 * (r % 8) & 15) + 1;
    return (float)(q - zero) * rn_f16_widen(g->scales[c / 32 * ROWS + r]);
}

static void check_rows(rn_forms_config config, const gptq *g, rn_dtype dtype, uint64_t first,
                       uint64_t rows) {
    static kept k;
    float values[COLS];
    uint64_t row_bytes;
    rn_checkpoint *c = open_made();
    assert_ok(rn_checkpoint_find_forms(c, &config));
    const rn_weight_form *form = rn_checkpoint_form(c, "x.weight");
    assert_non_null(form);
    assert_int_equal(form->dtype, dtype);
    assert_true(form->rows == ROWS && form->cols == COLS);
    k.end = 0;
    assert_ok(rn_weight_form_read(c, form, first, rows, keep, &k));
    assert_true(rn_dtype_bytes(dtype, COLS, &row_bytes));
    assert_int_equal(k.end, rows * row_bytes);
    for (uint64_t r = 0; r < rows; r++) {
        assert_ok(rn_dtype_to_f32(dtype, k.bytes + r * row_bytes, values, COLS));
        for (int i = 0; i < COLS; i++)
            assert_true(values[i] == gptq_value(g, (int)(first + r), i));
    }
    rn_checkpoint_close(c);
}

static void any_rows_are_read(void **unused) {
    (void)unused;
    gptq g = make_gptq();
    rn_forms_config symmetric = as_gptq;
    symmetric.symmetric = true;
    check_rows(symmetric, &g, RN_DTYPE_Q4_0, 0, ROWS);
    check_rows(symmetric, &g, RN_DTYPE_Q4_0, 5, 7);
    g.qzeros[0] = 0x01234567; // as no symmetric one has it
    check_rows(as_gptq, &g, RN_DTYPE_U4_B32, 0, ROWS);
    check_rows(as_gptq, &g, RN_DTYPE_U4_B32, 15, 1);
}

static void tiles_rows_and_single_scales_are_told_apart(void **unused) {
    (void)unused;
    static const struct {
        uint64_t rows, cols;
        float last; // the scale of row 255
    } scales[] = {{2, 1, 2}, {256, 1, 256}, {1, 0, 1}};
    for (size_t i = 0; i < 3; i++) {
        static kept k;
        float scale;
        make_fp8("x.weight_scale", "F32", scales[i].rows, scales[i].cols);
        rn_checkpoint *c = open_made();
        assert_ok(rn_checkpoint_find_forms(c, &(rn_forms_config){.method = RN_FORMS_FP8}));
        const rn_weight_form *form = rn_checkpoint_form(c, "x.weight");
        assert_int_equal(form->dtype, RN_DTYPE_F8_B128);
        k.end = 0;
        assert_ok(rn_weight_form_read(c, form, 255, 1, keep, &k));
        memcpy(&scale, k.bytes, sizeof scale);
        assert_true(scale == scales[i].last);
        rn_checkpoint_close(c);
    }
}

// ---- what does not fit together -----------------------------------------------------------------

static void missing_tensors_are_named(void **unused) {
    (void)unused;
    begin();
    add("x.weight", "F8_E4M3", 1, 128, 128);
    refuse((rn_forms_config){.method = RN_FORMS_FP8}, RN_NOT_FOUND, "'x.weight_scale' is missing");
    begin();
    add("x.qweight", "I32", 4, 8, 16);
    add("x.scales", "F16", 2, 2, 16);
    refuse(as_gptq, RN_NOT_FOUND, "'x.qzeros' is missing");
    begin();
    add("x.weight_packed", "I32", 4, 16, 8);
    add("x.weight_scale", "F16", 2, 16, 2);
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_NOT_FOUND,
           "'x.weight_shape' is missing");
    begin();
    add("x.weight_packed", "U8", 1, 16, 32);
    add("x.weight_scale", "F8_E4M3", 1, 16, 4);
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_NOT_FOUND,
           "'x.weight_global_scale' is missing");
    begin();
    add("x.weight", "F16", 2, 16, 16);
    refuse(as_gptq, RN_CORRUPT, "no tensor is");
}

static void scales_of_another_shape_are_refused(void **unused) {
    (void)unused;
    make_fp8("x.weight_scale_inv", "F32", 3, 1);
    refuse((rn_forms_config){.method = RN_FORMS_FP8}, RN_CORRUPT,
           "'x.weight_scale_inv' is f32 (3, 1)");
    make_fp8("x.weight_scale_inv", "I32", 2, 1);
    refuse((rn_forms_config){.method = RN_FORMS_FP8}, RN_CORRUPT, "is i32");
    begin();
    add("x.qweight", "I32", 4, 8, 16);
    add("x.qzeros", "I32", 4, 3, 2);
    add("x.scales", "F16", 2, 3, 16); // 3 groups of 64 columns
    refuse(as_gptq, RN_CORRUPT, "'x.scales' is f16 (3, 16)");
    begin();
    add("x.qweight", "I32", 4, 8, 16);
    add("x.qzeros", "I32", 4, 2, 16);
    add("x.scales", "F16", 2, 2, 16);
    refuse(as_gptq, RN_CORRUPT, "'x.qzeros' is i32 (2, 16)");
}

static void configurations_that_contradict_the_tensors_are_refused(void **unused) {
    (void)unused;
    rn_forms_config config = as_gptq;
    make_gptq();
    config.group = 64;
    refuse(config, RN_CORRUPT, "has groups of 32, quantization_config says 64");
    config.group = 32;
    config.bits = 8; // 32 columns then
    refuse(config, RN_CORRUPT, "has groups of 16");
    config.bits = 3;
    refuse(config, RN_UNSUPPORTED, "numbers of 3 bits");
    config = as_gptq;
    config.symmetric = true;
    gptq g = make_gptq();
    g.qzeros[3] = 0x76777777;
    refuse(config, RN_CORRUPT, "the zero of row 14 is 7, not 8");
    begin();
    int64_t *shape = add("x.weight_shape", "I64", 8, 2, 0);
    add("x.weight_packed", "I32", 4, 16, 8);
    add("x.weight_scale", "F16", 2, 16, 2);
    shape[0] = 8, shape[1] = 64;
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_CORRUPT, "has rows 8");
    begin();
    shape = add("x.weight_shape", "I64", 8, 2, 0);
    add("x.weight_packed", "I32", 4, 16, 8);
    add("x.weight_scale", "F16", 2, 16, 2);
    shape[0] = 16, shape[1] = INT64_MAX;
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_CORRUPT, "x.weight_shape");
}

static void groups_that_are_not_there_are_refused(void **unused) {
    (void)unused;
    gptq g = make_gptq();
    g.g_idx[37] = 2;
    refuse(as_gptq, RN_CORRUPT, "'x.g_idx' names group 2 of 2");
    g = make_gptq();
    g.g_idx[0] = -1;
    refuse(as_gptq, RN_CORRUPT, "names group -1");
}

static void scales_that_are_not_finite_are_refused(void **unused) {
    (void)unused;
    gptq g = make_gptq();
    g.scales[20] = 0x7c00;
    refuse(as_gptq, RN_CORRUPT, "'x.scales': the scale of row 4 is inf");
    g = make_gptq();
    g.scales[0] = 0x7e01;
    refuse(as_gptq, RN_CORRUPT, "the scale of row 0 is");
    begin();
    add("x.weight_packed", "U8", 1, 16, 32);
    add("x.weight_scale", "F8_E4M3", 1, 16, 4);
    add("x.weight_global_scale", "F32", 4, 1, 0); // a divisor of 0
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_CORRUPT,
           "'x.weight_global_scale' is not a finite scale");
    begin();
    add("x.weight_packed", "U8", 1, 16, 32);
    uint8_t *exponents = add("x.weight_scale", "U8", 1, 16, 2);
    exponents[31] = 255;
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_CORRUPT,
           "the scale of row 15 is");
    begin();
    add("x.weight", "I8", 1, 16, 64);
    uint16_t *scales = add("x.weight_scale", "BF16", 2, 16, 2);
    scales[2] = 0x4f80; // 2^32: more than the f16 of q8_0 holds
    refuse((rn_forms_config){.method = RN_FORMS_COMPRESSED_TENSORS}, RN_CORRUPT,
           "the scale of row 1 is 4.29497e+09");
}

// ---- experts ------------------------------------------------------------------------------------

#define EXPERT "l.mlp.experts.%d.up_proj"

// Expert `e` of (rows, cols) in fp8, with a scale a row.
static void add_expert(int e, uint64_t rows, uint64_t cols) {
    char name[64];
    snprintf(name, sizeof name, EXPERT ".weight", e);
    uint8_t *data = add(name, "F8_E4M3", 1, rows, cols);
    snprintf(name, sizeof name, EXPERT ".weight_scale", e);
    float *scales = add(name, "F32", 4, rows, 1);
    for (uint64_t i = 0; i < rows * cols; i++)
        data[i] = (uint8_t)(i * 7 + (uint64_t)e) & 0x7b;
    for (uint64_t r = 0; r < rows; r++)
        scales[r] = (float)(10 * e) + (float)r;
}

static void experts_of_a_layer_are_one_weight(void **unused) {
    enum { EXPERTS = 3, EACH = 4, WIDE = 64 };
    static kept one, all, some;
    rn_forms_config config = {.method = RN_FORMS_COMPRESSED_TENSORS};
    (void)unused;
    begin();
    for (int e = EXPERTS; e-- > 0;) // in any order
        add_expert(e, EACH, WIDE);
    rn_checkpoint *c = open_made();
    assert_ok(rn_checkpoint_find_forms(c, &config));
    const rn_weight_form *stack = rn_checkpoint_form(c, "l.mlp.experts.*.up_proj.weight");
    assert_non_null(stack);
    assert_true(stack->expert_count == EXPERTS && stack->rows == EXPERTS * EACH);
    assert_true(stack->cols == WIDE && stack->dtype == RN_DTYPE_F8_B32);
    all.end = some.end = 0;
    assert_ok(rn_weight_form_read(c, stack, 0, stack->rows, keep, &all));
    for (int e = 0; e < EXPERTS; e++) {
        char name[64];
        snprintf(name, sizeof name, EXPERT ".weight", e);
        one.end = 0;
        assert_ok(rn_weight_form_read(c, rn_checkpoint_form(c, name), 0, EACH, keep, &one));
        assert_memory_equal(one.bytes, all.bytes + (size_t)e * one.end, one.end);
    }
    assert_ok(rn_weight_form_read(c, stack, 3, 6, keep, &some)); // of all three
    uint64_t row_bytes = all.end / (EXPERTS * EACH);
    assert_int_equal(some.end, 6 * row_bytes);
    assert_memory_equal(some.bytes, all.bytes + 3 * row_bytes, some.end);
    rn_checkpoint_close(c);
}

static void experts_of_several_kinds_are_refused(void **unused) {
    rn_forms_config config = {.method = RN_FORMS_COMPRESSED_TENSORS};
    (void)unused;
    begin();
    add_expert(0, 4, 64);
    add_expert(1, 4, 128);
    refuse(config, RN_UNSUPPORTED, "'l.mlp.experts.1.up_proj.weight' is f8_b128 (4, 128)");
    begin();
    add_shape("l.mlp.experts.up_proj", "F8_E4M3", 2 * 64 * 32, "2,64,32");
    add_shape("l.mlp.experts.up_proj_scale_inv", "F32", 4 * 4, "2,1,2");
    config = (rn_forms_config){.method = RN_FORMS_FP8, .tile = {32, 32}};
    refuse(config, RN_CORRUPT, "up_proj_scale_inv' is f32 (2, 1, 2)");
    config.tile[0] = 128;
    refuse(config, RN_UNSUPPORTED, "no whole tiles");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rows_are_read),
        cmocka_unit_test(tiles_rows_and_single_scales_are_told_apart),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(scales_of_another_shape_are_refused),
        cmocka_unit_test(configurations_that_contradict_the_tensors_are_refused),
        cmocka_unit_test(groups_that_are_not_there_are_refused),
        cmocka_unit_test(scales_that_are_not_finite_are_refused),
        cmocka_unit_test(experts_of_a_layer_are_one_weight),
        cmocka_unit_test(experts_of_several_kinds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
