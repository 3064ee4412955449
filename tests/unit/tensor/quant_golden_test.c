// quant_golden_test.c — int8, int4 and nf4 against what optimum-quanto and bitsandbytes store for
// the same weights, byte for byte (scripts/reference/quant_golden.py makes the file).
#include "support.h"

#include "tensor/quant.h"

#include "golden_file.h"
#include "levels.h"

#include <math.h>

enum { LARGEST = 6 * 256 };

typedef struct weight {
    char name[2];
    uint64_t rows, cols;
    const float *values; // (rows, cols)
} weight;

static golden reference;

static int open_reference(void **unused) {
    (void)unused;
    golden_open("tests/golden/quant_reference.safetensors", &reference);
    return 0;
}

static int close_reference(void **unused) {
    (void)unused;
    golden_close(&reference);
    return 0;
}

static weight get_weight(int i) {
    weight w = {{(char)('a' + i), 0}, 0, 0, NULL};
    char key[16];
    uint64_t shape[2];
    size_t bytes;
    snprintf(key, sizeof key, "%s.input", w.name);
    golden_shape(&reference, key, shape);
    w.rows = shape[0], w.cols = shape[1];
    w.values = golden_tensor(&reference, key, &bytes);
    return w;
}
#define for_each_weight(w)                                                                         \
    for (int w##_index = 0; w##_index < 5; w##_index++)                                            \
        for (weight w = get_weight(w##_index); w.values; w.values = NULL)

static void assert_stored(const weight *w, const char *form, const char *part, const void *got,
                          size_t bytes) {
    char key[128];
    size_t expected_bytes;
    snprintf(key, sizeof key, "%s.%s.%s", w->name, form, part);
    const void *expected = golden_tensor(&reference, key, &expected_bytes);
    assert_int_equal(bytes, expected_bytes);
    if (memcmp(got, expected, bytes) != 0) print_message("%s:\n", key);
    assert_memory_equal(got, expected, bytes);
}

static void int8_equals_quanto(void **unused) {
    (void)unused;
    for_each_level(level) for_each_weight(w) {
        int8_t q[LARGEST];
        float scale[LARGEST], restored[LARGEST];
        uint64_t count = w.rows * w.cols;
        rn_quant_int8_rows(w.values, w.rows, w.cols, q, scale);
        rn_dequant_int8_rows(q, scale, w.rows, w.cols, restored);
        assert_stored(&w, "int8", "weight._data", q, count);
        assert_stored(&w, "int8", "weight._scale", scale, w.rows * sizeof(float));
        assert_stored(&w, "int8", "restored", restored, count * sizeof(float));
    }
}

static void int4_equals_quanto(void **unused) {
    (void)unused;
    for_each_level(level) for_each_weight(w) {
        uint8_t q[LARGEST], packed[LARGEST] = {0};
        float scale[LARGEST], shift[LARGEST], restored[LARGEST];
        uint64_t group = rn_quant_int4_group(w.cols), count = w.rows * w.cols;
        uint64_t groups = count / group, half = (groups + 1) / 2;
        rn_quant_int4_groups(w.values, groups, group, q, scale, shift);
        for (uint64_t g = 0; g < half; g++)
            rn_quant_int4_pack(q + g * group, g + half < groups ? q + (g + half) * group : NULL,
                               group, packed + g * group);
        rn_dequant_int4_groups(q, scale, shift, groups, group, restored);
        assert_stored(&w, "int4", "weight._data._data", packed, half * group);
        assert_stored(&w, "int4", "weight._scale", scale, groups * sizeof(float));
        assert_stored(&w, "int4", "weight._shift", shift, groups * sizeof(float));
        assert_stored(&w, "int4", "restored", restored, count * sizeof(float));
    }
}

static void nf4_equals_bitsandbytes(void **unused) {
    (void)unused;
    for_each_level(level) for_each_weight(w) {
        uint8_t packed[LARGEST];
        float absmax[LARGEST], restored[LARGEST];
        uint64_t count = w.rows * w.cols;
        rn_quant_nf4_blocks(w.values, count, packed, absmax);
        rn_dequant_nf4_blocks(packed, absmax, count, restored);
        assert_stored(&w, "nf4", "weight", packed, (count + 1) / 2);
        assert_stored(&w, "nf4", "weight.absmax", absmax, (count + 63) / 64 * sizeof(float));
        assert_stored(&w, "nf4", "restored", restored, count * sizeof(float));
        assert_stored(&w, "nf4", "weight.quant_map", rn_nf4_table, sizeof rn_nf4_table);
    }
}

typedef struct text {
    char data[256];
    size_t bytes;
} text;

static rn_status append_text(void *self, const char *from, size_t bytes) {
    text *to = self;
    assert_true(to->bytes + bytes <= sizeof to->data);
    memcpy(to->data + to->bytes, from, bytes);
    to->bytes += bytes;
    return RN_OK;
}

static void nf4_state_equals_bitsandbytes(void **unused) {
    (void)unused;
    for_each_weight(w) {
        text state = {{0}, 0};
        const uint64_t shape[2] = {w.rows, w.cols};
        assert_ok(rn_quant_nf4_state(RN_DTYPE_F32, shape, 2, NULL, (rn_sink){&state, append_text}));
        assert_stored(&w, "nf4", "weight.quant_state.bitsandbytes__nf4", state.data, state.bytes);
    }
}

static void nf4_state_names_the_restored_type(void **unused) {
    (void)unused;
    const uint64_t shape[1] = {64};
    text state = {{0}, 0};
    rn_sink sink = {&state, append_text};
    assert_ok(rn_quant_nf4_state(RN_DTYPE_BF16, shape, 1, NULL, sink));
    assert_non_null(strstr(state.data, "\"dtype\": \"bfloat16\", \"shape\": [64]}"));
    assert_fails(RN_INVALID, rn_quant_nf4_state(RN_DTYPE_I8, shape, 1, NULL, sink));
}

// absmax of a matrix, bitsandbytes' codes of it and what it takes them for. Its offset is torch's
// mean, whose additions are in another order than ours.
static void double_quantisation_equals_bitsandbytes(void **unused) {
    enum { BLOCKS = 350, NESTED = 2 };
    size_t bytes;
    (void)unused;
    golden file;
    golden_open("tests/golden/quant_double.safetensors", &file);
    const float *absmax = golden_tensor(&file, "absmax", &bytes);
    assert_int_equal(bytes, BLOCKS * sizeof *absmax);
    const float *offset = golden_tensor(&file, "offset", &bytes);
    const float *nested = golden_tensor(&file, "weight.nested_absmax", &bytes);
    assert_int_equal(bytes, NESTED * sizeof *nested);
    const uint8_t *codes = golden_tensor(&file, "weight.absmax", &bytes);
    const float *restored = golden_tensor(&file, "restored_absmax", &bytes);
    const float *map = golden_tensor(&file, "weight.nested_quant_map", &bytes);
    assert_int_equal(bytes, sizeof rn_dynamic_map);
    assert_memory_equal(map, rn_dynamic_map, bytes);
    float own = rn_quant_nf4_offset(absmax, BLOCKS), own_nested[NESTED + 1];
    uint8_t own_codes[BLOCKS];
    assert_true(fabsf(own - *offset) <= fabsf(*offset) * 0x1p-22f);
    rn_quant_nf4_absmax(absmax, BLOCKS, *offset, own_codes, own_nested);
    own_nested[NESTED] = *offset;
    assert_memory_equal(own_codes, codes, BLOCKS);
    assert_memory_equal(own_nested, nested, NESTED * sizeof *nested);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        float value = rn_dequant_nf4_absmax(codes, own_nested, NESTED, i);
        assert_memory_equal(&value, &restored[i], sizeof value);
    }
    float in_place[BLOCKS]; // codes where absmax was
    memcpy(in_place, absmax, sizeof in_place);
    rn_quant_nf4_absmax(in_place, BLOCKS, *offset, (uint8_t *)in_place, own_nested);
    assert_memory_equal(in_place, codes, BLOCKS);
    golden_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_equals_quanto),
        cmocka_unit_test(int4_equals_quanto),
        cmocka_unit_test(nf4_equals_bitsandbytes),
        cmocka_unit_test(nf4_state_equals_bitsandbytes),
        cmocka_unit_test(nf4_state_names_the_restored_type),
        cmocka_unit_test(double_quantisation_equals_bitsandbytes),
    };
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}
