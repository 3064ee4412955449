// ggml_encode_test.c — ggml's blocks made here are ggml's, byte for byte, without and with
// importances (scripts/reference/ggml_golden.py makes the file).
#include "support.h"

#include "tensor/ggml_encode.h"

#include "golden_file.h"
#include "levels.h"

#include <math.h>

static const rn_dtype kinds[] = {
    RN_DTYPE_Q4_0,   RN_DTYPE_Q4_1,   RN_DTYPE_Q5_0,  RN_DTYPE_Q5_1, RN_DTYPE_Q8_0,
    RN_DTYPE_Q2_K,   RN_DTYPE_Q3_K,   RN_DTYPE_Q4_K,  RN_DTYPE_Q5_K, RN_DTYPE_Q6_K,
    RN_DTYPE_IQ4_NL, RN_DTYPE_IQ4_XS, RN_DTYPE_MXFP4,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static golden reference;

static int open_reference(void **unused) {
    (void)unused;
    golden_open("tests/golden/ggml_encoded.safetensors", &reference);
    return 0;
}

static int close_reference(void **unused) {
    (void)unused;
    golden_close(&reference);
    return 0;
}

static void assert_encodes(rn_dtype kind, const char *how, const float *importance) {
    char key[32];
    size_t bytes, row_bytes;
    uint64_t shape[2];
    const float *input = golden_tensor(&reference, "input", &bytes);
    golden_shape(&reference, "input", shape);
    snprintf(key, sizeof key, "%s.%s", rn_dtype_get(kind)->name, how);
    const uint8_t *expected = golden_tensor(&reference, key, &bytes);
    row_bytes = bytes / shape[0];
    uint8_t *got = malloc(bytes);
    assert_ok(rn_ggml_encode_rows(kind, input, shape[0], shape[1], importance, got));
    for (uint64_t r = 0; r < shape[0]; r++) {
        if (memcmp(got + r * row_bytes, expected + r * row_bytes, row_bytes))
            print_message("%s, row %d, %s:\n", key, (int)r, rn_cpu_level_name(rn_cpu_level_get()));
        assert_memory_equal(got + r * row_bytes, expected + r * row_bytes, row_bytes);
    }
    free(got);
}

static void blocks_equal_ggmls(void **unused) {
    (void)unused;
    for_each_level(level) for (int k = 0; k < KINDS; k++) assert_encodes(kinds[k], "plain", NULL);
}

static void weighed_blocks_equal_ggmls(void **unused) {
    (void)unused;
    size_t bytes;
    const float *importance = golden_tensor(&reference, "importance", &bytes);
    for_each_level(level) for (int k = 0; k < KINDS; k++)
        assert_encodes(kinds[k], "weighed", importance);
}

// A block with NaN or infinity is never restored as plausible numbers, and the next one is as ever.
static void spoilt_blocks_do_not_look_sound(void **unused) {
    (void)unused;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float values[512], importance[512], restored[512];
    uint8_t got[512 * 4];
    fill_weights(importance, 512, 3);
    for (int i = 0; i < 512; i++)
        importance[i] = fabsf(importance[i]);
    for_each_level(level) for (int k = 0; k < 2 * 3 * KINDS; k++) {
        rn_dtype kind = kinds[k / 6];
        if (kind == RN_DTYPE_Q8_0 || (kind == RN_DTYPE_Q4_0 && k % 2 == 0)) continue;
        fill_weights(values, 512, 5);
        values[7] = bad[k / 2 % 3];
        assert_ok(rn_ggml_encode_rows(kind, values, 1, 512, k % 2 ? importance : NULL, got));
        assert_ok(rn_dtype_to_f32(kind, got, restored, 512));
        for (int i = 0; i < rn_dtype_get(kind)->block_elements; i++)
            assert_false(isfinite(restored[i]));
        for (int i = 256; i < 512 && k % 2 == 0; i++)
            assert_true(isfinite(restored[i]));
    }
}

static void rows_must_be_whole_blocks(void **unused) {
    (void)unused;
    float values[288] = {0};
    uint8_t got[288];
    assert_int_equal(rn_ggml_encode_rows(RN_DTYPE_Q4_K, values, 1, 288, NULL, got), RN_INVALID);
    assert_ok(rn_ggml_encode_rows(RN_DTYPE_Q5_0, values, 1, 288, NULL, got));
    assert_int_equal(rn_ggml_encode_rows(RN_DTYPE_IQ2_S, values, 1, 256, NULL, got),
                     RN_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_equal_ggmls),
        cmocka_unit_test(weighed_blocks_equal_ggmls),
        cmocka_unit_test(spoilt_blocks_do_not_look_sound),
        cmocka_unit_test(rows_must_be_whole_blocks),
    };
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}
