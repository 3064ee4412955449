// ggml_blocks_test.c — ggml's blocks against the bytes and values of its own reference code.
#include "support.h"

#include <ration/tensor.h>

#include "golden_file.h"
#include "levels.h"

#include "base/str.h"

#include <math.h>

#define GOLDEN "formats/quant_golden/ggml_quant_golden.safetensors"

static void open_golden(golden *out) {
    golden_open(test_data_or_skip(GOLDEN), out);
}

static void blocks_widen_to_the_reference_bits(void **unused) {
    (void)unused;
    static const char *const names[] = {"f16",   "bf16",    "q4_0",   "q4_1",   "q5_0",    "q5_1",
                                        "q8_0",  "q2_K",    "q3_K",   "q4_K",   "q5_K",    "q6_K",
                                        "tq1_0", "tq2_0",   "iq4_nl", "iq4_xs", "mxfp4",   "iq1_s",
                                        "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s",  "iq3_xxs", "iq3_s"};
    golden g;
    open_golden(&g);
    for_each_level(level) for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[64];
        size_t source_bytes, bytes;
        uint64_t expected_bytes;
        float values[2048];
        rn_dtype dtype = rn_dtype_parse(rn_str_from(names[i]));
        snprintf(key, sizeof key, "%s.quantized", names[i]);
        const void *source = golden_tensor(&g, key, &source_bytes);
        snprintf(key, sizeof key, "%s.dequantized", names[i]);
        const float *expected = golden_tensor(&g, key, &bytes);
        assert_int_equal(bytes, sizeof values);
        assert_true(rn_dtype_bytes(dtype, 2048, &expected_bytes));
        assert_int_equal(source_bytes, expected_bytes);
        assert_ok(rn_dtype_to_f32(dtype, source, values, 2048));
        assert_memory_equal(values, expected, bytes);
    }
    golden_close(&g);
}

static void narrowing_gives_the_reference_bytes(void **unused) {
    (void)unused;
    static const char *const names[] = {"q8_0", "q4_0", "f16", "bf16"};
    golden g;
    open_golden(&g);
    for_each_level(level) for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[64];
        size_t bytes, input_bytes;
        uint8_t got[4096];
        const float *input = golden_tensor(&g, "input", &input_bytes);
        snprintf(key, sizeof key, "%s.quantized", names[i]);
        const void *expected = golden_tensor(&g, key, &bytes);
        assert_ok(rn_dtype_from_f32(rn_dtype_parse(rn_str_from(names[i])), input, got, 2048));
        assert_memory_equal(got, expected, bytes);
    }
    golden_close(&g);
}

// The blocks that the golden file has none of, made by hand.
static void hand_made_blocks_widen(void **unused) {
    (void)unused;
    float values[256];
    uint8_t q1[18] = {0x00, 0x40, 0x05}; // scale 2, bits 0 and 2
    assert_ok(rn_dtype_to_f32(RN_DTYPE_Q1_0, q1, values, 128));
    assert_true(values[0] == 2 && values[1] == -2 && values[2] == 2 && values[127] == -2);
    uint8_t q2[18] = {0x00, 0x40, 0xe4}; // values 0 1 2 3
    assert_ok(rn_dtype_to_f32(RN_DTYPE_Q2_0, q2, values, 64));
    assert_true(values[0] == -2 && values[1] == 0 && values[2] == 2 && values[3] == 4);
    uint8_t q8_1[36] = {0x00, 0x40, 0xff, 0xff, 3, 0x80};
    assert_ok(rn_dtype_to_f32(RN_DTYPE_Q8_1, q8_1, values, 32));
    assert_true(values[0] == 6 && values[1] == -256 && values[2] == 0);
    uint8_t q8_k[292] = {0x00, 0x00, 0x00, 0x3f, 3, 0xff};
    assert_ok(rn_dtype_to_f32(RN_DTYPE_Q8_K, q8_k, values, 256));
    assert_true(values[0] == 1.5f && values[1] == -0.5f);
    // scales 1, 0, 2^-9, none; part 0: low nibbles 7 (6.0), high 0xa (-1.0)
    uint8_t nvfp4[36] = {0x38, 0x7f, 0x01, 0x00, 0xa7};
    nvfp4[4 + 8] = nvfp4[4 + 16] = 0xa7;
    assert_ok(rn_dtype_to_f32(RN_DTYPE_NVFP4, nvfp4, values, 64));
    assert_true(values[0] == 6 && values[8] == -1 && values[1] == 0);
    assert_true(values[16] == 0 && values[32] == 6 * 0x1p-9f && values[40] == -0x1p-9f);
    // ration's own: the same under a scale of -2, e4m3 under 3, and 4 bits under 1.5 with a zero
    uint8_t fp4[40] = {0, 0, 0, 0xc0};
    memcpy(fp4 + 4, nvfp4, sizeof nvfp4);
    assert_ok(rn_dtype_to_f32(RN_DTYPE_FP4_B64, fp4, values, 64));
    assert_true(values[0] == -12 && values[8] == 2 && values[32] == -12 * 0x1p-9f);
    uint8_t f8[132] = {0, 0, 0x40, 0x40, 0x38, 0xc0};
    f8[131] = 0x01;
    assert_ok(rn_dtype_to_f32(RN_DTYPE_F8_B128, f8, values, 128));
    assert_true(values[0] == 3 && values[1] == -6 && values[127] == 3 * 0x1p-9f);
    uint8_t u4[21] = {0, 0, 0xc0, 0x3f, 16, 0xf1};
    assert_ok(rn_dtype_to_f32(RN_DTYPE_U4_B32, u4, values, 32));
    assert_true(values[0] == 1.5f * -15 && values[16] == -1.5f && values[1] == -24);
}

// A scale of exactly 1 shows the rounding: half away from zero, as roundf.
static void q8_0_rounds_half_away_from_zero(void **unused) {
    (void)unused;
    for_each_level(level) for (int base = -126; base < 126; base++) {
        float values[32] = {127};
        float half = (float)base + 0.5f;
        for (int i = 1; i < 32; i++)
            values[i] = i % 3 == 0   ? half
                        : i % 3 == 1 ? nextafterf(half, 200)
                                     : nextafterf(half, -200);
        uint8_t block[34];
        assert_ok(rn_dtype_from_f32(RN_DTYPE_Q8_0, values, block, 32));
        for (int i = 0; i < 32; i++)
            assert_int_equal((int8_t)block[2 + i], (int)roundf(values[i]));
    }
}

static void q4_0_takes_the_sign_of_the_first_of_equal_peaks(void **unused) {
    (void)unused;
    for_each_level(level) for (int first = 0; first < 32; first++) {
        float values[32];
        uint8_t block[18];
        for (int i = 0; i < 32; i++)
            values[i] = i < first ? 1 : i % 2 == first % 2 ? -8 : 8;
        assert_ok(rn_dtype_from_f32(RN_DTYPE_Q4_0, values, block, 32));
        assert_true(block[0] == 0x00 && block[1] == 0x3c); // the first peak is -8: scale 1
        values[first] = 8;
        assert_ok(rn_dtype_from_f32(RN_DTYPE_Q4_0, values, block, 32));
        assert_true(block[0] == 0x00 && block[1] == 0xbc);
    }
}

static void zero_blocks_stay_zero(void **unused) {
    (void)unused;
    const float zeros[32] = {0, -0.0f};
    for_each_level(level) {
        float values[32];
        uint8_t block[34];
        assert_ok(rn_dtype_from_f32(RN_DTYPE_Q8_0, zeros, block, 32));
        assert_ok(rn_dtype_to_f32(RN_DTYPE_Q8_0, block, values, 32));
        for (int i = 0; i < 32; i++)
            assert_true(values[i] == 0);
        assert_ok(rn_dtype_from_f32(RN_DTYPE_Q4_0, zeros, block, 32));
        assert_ok(rn_dtype_to_f32(RN_DTYPE_Q4_0, block, values, 32));
        for (int i = 0; i < 32; i++)
            assert_true(values[i] == 0);
    }
}

static void nan_spoils_its_block_and_no_other(void **unused) {
    (void)unused;
    for_each_level(level) for (int q4 = 0; q4 < 2; q4++) {
        rn_dtype dtype = q4 ? RN_DTYPE_Q4_0 : RN_DTYPE_Q8_0;
        float values[96], back[96];
        uint8_t blocks[102];
        fill_weights(values, 96, 3);
        values[40] = NAN;
        assert_ok(rn_dtype_from_f32(dtype, values, blocks, 96));
        assert_ok(rn_dtype_to_f32(dtype, blocks, back, 96));
        for (int i = 0; i < 96; i++)
            assert_int_equal(isnan(back[i]) != 0, i / 32 == 1);
    }
}

static void levels_give_identical_blocks(void **unused) {
    (void)unused;
    enum { COUNT = 32 * 512 };
    static float values[COUNT], first[COUNT], back[COUNT];
    static uint8_t blocks[2][COUNT / 32 * 34];
    uint64_t state = 11;
    fill_weights(values, COUNT, 5);
    for (int b = 0; b < COUNT / 32;
         b++) { // sizes of all kinds, awkward values in every other block
        float size = ldexpf(1, (int)(random_bits(&state) % 290) - 150);
        for (int i = 0; i < 32; i++)
            values[b * 32 + i] *= size;
        if (b % 2 == 0)
            values[b * 32 + (int)(random_bits(&state) % 32)] =
                float_of(awkward_bits[random_bits(&state) % AWKWARD_COUNT]);
    }
    for (int q4 = 0; q4 < 2; q4++)
        for_each_level(level) {
            rn_dtype dtype = q4 ? RN_DTYPE_Q4_0 : RN_DTYPE_Q8_0;
            uint8_t *into = blocks[level != RN_CPU_PORTABLE];
            assert_ok(rn_dtype_from_f32(dtype, values, into, COUNT));
            assert_ok(rn_dtype_to_f32(dtype, into, back, COUNT));
            if (level == RN_CPU_PORTABLE) memcpy(first, back, sizeof first);
            assert_memory_equal(blocks[0], into, COUNT / 32 * (q4 ? 18 : 34));
            assert_memory_equal(first, back, sizeof first);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_widen_to_the_reference_bits),
        cmocka_unit_test(narrowing_gives_the_reference_bytes),
        cmocka_unit_test(hand_made_blocks_widen),
        cmocka_unit_test(q8_0_rounds_half_away_from_zero),
        cmocka_unit_test(q4_0_takes_the_sign_of_the_first_of_equal_peaks),
        cmocka_unit_test(zero_blocks_stay_zero),
        cmocka_unit_test(nan_spoils_its_block_and_no_other),
        cmocka_unit_test(levels_give_identical_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
