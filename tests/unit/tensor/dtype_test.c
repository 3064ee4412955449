// dtype_test.c — the table of element types is complete, unambiguous and right in its sizes.
#include "support.h"

#include <ration/tensor.h>

#include "base/str.h"

static void every_type_has_a_row(void **unused) {
    (void)unused;
    for (int i = 1; i < RN_DTYPE_COUNT; i++) {
        const rn_dtype_info *info = rn_dtype_get((rn_dtype)i);
        assert_non_null(info->name);
        assert_true(info->block_elements > 0);
        assert_true(info->block_bytes > 0);
    }
}

static void names_lead_back_to_their_rows(void **unused) {
    (void)unused;
    for (int i = 1; i < RN_DTYPE_COUNT; i++) {
        const rn_dtype_info *info = rn_dtype_get((rn_dtype)i);
        assert_int_equal(rn_dtype_parse(rn_str_from(info->name)), i);
        if (info->safetensors)
            assert_int_equal(rn_dtype_from_safetensors(rn_str_from(info->safetensors)), i);
        if (info->ggml >= 0) assert_int_equal(rn_dtype_from_ggml((uint32_t)info->ggml), i);
    }
}

static void out_of_range_types_are_none(void **unused) {
    (void)unused;
    assert_ptr_equal(rn_dtype_get(RN_DTYPE_COUNT), rn_dtype_get(RN_DTYPE_NONE));
    assert_ptr_equal(rn_dtype_get((rn_dtype)-1), rn_dtype_get(RN_DTYPE_NONE));
    assert_string_equal(rn_dtype_get(RN_DTYPE_NONE)->name, "none");
}

static void parse_accepts_other_spellings(void **unused) {
    (void)unused;
    assert_int_equal(rn_dtype_parse(RN_STR("FP8")), RN_DTYPE_F8_E4M3);
    assert_int_equal(rn_dtype_parse(RN_STR("Half")), RN_DTYPE_F16);
    assert_int_equal(rn_dtype_parse(RN_STR("float32")), RN_DTYPE_F32);
    assert_int_equal(rn_dtype_parse(RN_STR("bfloat16")), RN_DTYPE_BF16);
    assert_int_equal(rn_dtype_parse(RN_STR("Q4_K")), RN_DTYPE_Q4_K);
    assert_int_equal(rn_dtype_parse(RN_STR("int8")), RN_DTYPE_INT8);
    assert_int_equal(rn_dtype_parse(RN_STR("i8")), RN_DTYPE_I8);
    assert_int_equal(rn_dtype_parse(RN_STR("nf4")), RN_DTYPE_NF4);
}

static void parse_refuses_unknown_names(void **unused) {
    (void)unused;
    assert_int_equal(rn_dtype_parse(RN_STR("none")), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_parse(RN_STR("")), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_parse((rn_str){NULL, 0}), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_parse(RN_STR("bf16 ")), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_parse((rn_str){"f16\0", 4}), RN_DTYPE_NONE);
}

static void safetensors_names_are_exact(void **unused) {
    (void)unused;
    assert_int_equal(rn_dtype_from_safetensors(RN_STR("BF16")), RN_DTYPE_BF16);
    assert_int_equal(rn_dtype_from_safetensors(RN_STR("bf16")), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_from_safetensors(RN_STR("F8_E8M0")), RN_DTYPE_F8_E8M0);
    assert_int_equal(rn_dtype_from_safetensors(RN_STR("Q4_0")), RN_DTYPE_NONE);
    assert_int_equal(rn_dtype_from_safetensors(RN_STR("")), RN_DTYPE_NONE);
}

static void removed_ggml_types_are_unknown(void **unused) {
    (void)unused;
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++)
        assert_int_equal(rn_dtype_from_ggml(removed[i]), RN_DTYPE_NONE);
}

static void bytes_count_whole_blocks(void **unused) {
    (void)unused;
    uint64_t bytes;
    assert_true(rn_dtype_bytes(RN_DTYPE_BF16, 10, &bytes));
    assert_int_equal(bytes, 20);
    assert_true(rn_dtype_bytes(RN_DTYPE_F4, 6, &bytes));
    assert_int_equal(bytes, 3);
    assert_true(rn_dtype_bytes(RN_DTYPE_F6_E2M3, 8, &bytes));
    assert_int_equal(bytes, 6);
    assert_true(rn_dtype_bytes(RN_DTYPE_Q4_K, 512, &bytes));
    assert_int_equal(bytes, 288);
    assert_true(rn_dtype_bytes(RN_DTYPE_Q8_0, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(rn_dtype_bytes(RN_DTYPE_F4, 7, &bytes));
    assert_false(rn_dtype_bytes(RN_DTYPE_Q4_0, 33, &bytes));
    assert_false(rn_dtype_bytes(RN_DTYPE_NONE, 4, &bytes));
}

static void bytes_refuse_to_overflow(void **unused) {
    (void)unused;
    uint64_t bytes;
    assert_true(rn_dtype_bytes(RN_DTYPE_F32, UINT64_MAX / 4, &bytes));
    assert_false(rn_dtype_bytes(RN_DTYPE_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_false(rn_dtype_bytes(RN_DTYPE_Q8_0, UINT64_MAX - 31, &bytes));
}

static void readable_rows_are_those_that_can_be_read(void **unused) {
    (void)unused;
    uint8_t block[512] = {0};
    float values[256];
    for (int i = 0; i < RN_DTYPE_COUNT; i++) {
        const rn_dtype_info *info = rn_dtype_get((rn_dtype)i);
        rn_status expected = info->readable ? RN_OK : RN_UNSUPPORTED;
        assert_int_equal(rn_dtype_to_f32((rn_dtype)i, block, values, info->block_elements),
                         expected);
        if (info->is_float) assert_ok(rn_dtype_from_f32((rn_dtype)i, values, block, 1));
    }
    assert_fails(RN_UNSUPPORTED, rn_dtype_to_f32(RN_DTYPE_COUNT, block, values, 1));
    assert_fails(RN_UNSUPPORTED, rn_dtype_from_f32(RN_DTYPE_COUNT, values, block, 1));
    assert_fails(RN_UNSUPPORTED, rn_dtype_from_f32(RN_DTYPE_IQ2_S, values, block, 256));
}

static void conversion_wants_whole_blocks(void **unused) {
    (void)unused;
    uint8_t block[34] = {0};
    float values[32] = {0};
    assert_fails(RN_INVALID, rn_dtype_to_f32(RN_DTYPE_Q8_0, block, values, 31));
    assert_fails(RN_INVALID, rn_dtype_from_f32(RN_DTYPE_Q8_0, values, block, 31));
    assert_ok(rn_dtype_to_f32(RN_DTYPE_Q8_0, NULL, NULL, 0));
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F32, NULL, NULL, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_a_row),
        cmocka_unit_test(names_lead_back_to_their_rows),
        cmocka_unit_test(out_of_range_types_are_none),
        cmocka_unit_test(parse_accepts_other_spellings),
        cmocka_unit_test(parse_refuses_unknown_names),
        cmocka_unit_test(safetensors_names_are_exact),
        cmocka_unit_test(removed_ggml_types_are_unknown),
        cmocka_unit_test(bytes_count_whole_blocks),
        cmocka_unit_test(bytes_refuse_to_overflow),
        cmocka_unit_test(readable_rows_are_those_that_can_be_read),
        cmocka_unit_test(conversion_wants_whole_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
