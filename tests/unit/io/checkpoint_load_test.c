// checkpoint_load_test.c — one tensor at a time: raw bytes, values as any type, the file's own
// pages.
//
// Values are held against loops that know nothing of staging buffers and tiles: for integers, bool
// and f64 arithmetic in long double (64 bits of mantissa: exact for all of them), for the rest one
// block at a time.
#include "model_files.h"

#include <math.h>
#include <unistd.h>

enum { BLOCK = 256 }; // a multiple of every type's block

static bool is_writable(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    char target[2048];
    float zeros[BLOCK] = {0};
    uint64_t bytes;
    if (!rn_dtype_bytes(dtype, BLOCK, &bytes) || info->block_elements > BLOCK) return false;
    return rn_dtype_from_f32(dtype, zeros, target, BLOCK) == RN_OK;
}

static bool is_wide(rn_dtype dtype) {
    return dtype == RN_DTYPE_F64 || (dtype >= RN_DTYPE_I64 && dtype <= RN_DTYPE_BOOL);
}

// ---- a file with one tensor of random bytes ----------------------------------------------------

typedef struct sample {
    rn_checkpoint *checkpoint;
    const rn_tensor_info *tensor;
    uint8_t *bytes; // (tensor->bytes), what the file holds
} sample;

static void write_sample(rn_dtype dtype, uint64_t elements, const void *data, uint64_t count) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    blob file = {0};
    if (info->safetensors) {
        char header[160];
        int length =
            snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                     info->safetensors, (unsigned long long)elements, (unsigned long long)count);
        write_safetensors(test_path("sample"), header, (size_t)length, data, count);
        return;
    }
    put_gguf_start(&file, 3, 1, 0);
    put_gguf_tensor(&file, "t", 1, &elements, (uint32_t)info->ggml, 0);
    put_padding(&file, 32);
    put(&file, data, count);
    put_padding(&file, 32);
    put_file(test_path("sample"), &file);
}

static sample open_sample(rn_dtype dtype, uint64_t elements) {
    sample s = {0};
    uint64_t count, state = dtype * 1000u + elements;
    assert_true(rn_dtype_bytes(dtype, elements, &count));
    s.bytes = malloc(count + 1);
    for (uint64_t i = 0; i < count; i++)
        s.bytes[i] = (uint8_t)draw(&state);
    write_sample(dtype, elements, s.bytes, count);
    assert_ok(rn_checkpoint_open(test_path("sample"), &s.checkpoint));
    s.tensor = rn_checkpoint_find(s.checkpoint, "t");
    assert_int_equal(s.tensor->bytes, count);
    return s;
}

static void close_sample(sample *s) {
    rn_checkpoint_close(s->checkpoint);
    free(s->bytes);
    assert_int_equal(held_bytes(), 0);
}

// ---- the oracle --------------------------------------------------------------------------------

static long double read_wide(rn_dtype dtype, const uint8_t *at) {
    switch (dtype) {
    case RN_DTYPE_F64:
        return *(const double *)at;
    case RN_DTYPE_I64:
        return *(const int64_t *)at;
    case RN_DTYPE_I32:
        return *(const int32_t *)at;
    case RN_DTYPE_I16:
        return *(const int16_t *)at;
    case RN_DTYPE_I8:
        return *(const int8_t *)at;
    case RN_DTYPE_U64:
        return *(const uint64_t *)at;
    case RN_DTYPE_U32:
        return *(const uint32_t *)at;
    case RN_DTYPE_U16:
        return *(const uint16_t *)at;
    case RN_DTYPE_U8:
        return *at;
    default:
        return *at != 0;
    }
}

static long double clamped(long double value, long double low, long double high) {
    if (isnan(value)) return 0;
    value = rintl(value); // to nearest even
    return value < low ? low : value > high ? high : value;
}

static void write_wide(rn_dtype dtype, long double value, uint8_t *at) {
    const long double top = 18446744073709551615.0L;
    switch (dtype) {
    case RN_DTYPE_F64:
        *(double *)at = (double)value;
        break;
    case RN_DTYPE_I64:
        *(int64_t *)at = (int64_t)clamped(value, (long double)INT64_MIN, (long double)INT64_MAX);
        break;
    case RN_DTYPE_I32:
        *(int32_t *)at = (int32_t)clamped(value, INT32_MIN, INT32_MAX);
        break;
    case RN_DTYPE_I16:
        *(int16_t *)at = (int16_t)clamped(value, INT16_MIN, INT16_MAX);
        break;
    case RN_DTYPE_I8:
        *(int8_t *)at = (int8_t)clamped(value, INT8_MIN, INT8_MAX);
        break;
    case RN_DTYPE_U64:
        *(uint64_t *)at = (uint64_t)clamped(value, 0, top);
        break;
    case RN_DTYPE_U32:
        *(uint32_t *)at = (uint32_t)clamped(value, 0, UINT32_MAX);
        break;
    case RN_DTYPE_U16:
        *(uint16_t *)at = (uint16_t)clamped(value, 0, UINT16_MAX);
        break;
    case RN_DTYPE_U8:
        *at = (uint8_t)clamped(value, 0, UINT8_MAX);
        break;
    default:
        *at = value != 0;
        break;
    }
}

static void convert_by_blocks(rn_dtype from, const uint8_t *source, rn_dtype to, uint8_t *target,
                              uint64_t elements) {
    float block[BLOCK];
    uint64_t in_bytes, out_bytes;
    for (uint64_t i = 0; i < elements; i += BLOCK) {
        uint64_t now = elements - i < BLOCK ? elements - i : BLOCK;
        assert_ok(rn_dtype_to_f32(from, source, block, now));
        assert_ok(rn_dtype_from_f32(to, block, target, now));
        assert_true(rn_dtype_bytes(from, now, &in_bytes) && rn_dtype_bytes(to, now, &out_bytes));
        source += in_bytes;
        target += out_bytes;
    }
}

static void convert_by_oracle(rn_dtype from, const uint8_t *source, rn_dtype to, uint8_t *target,
                              uint64_t elements) {
    size_t in = rn_dtype_get(from)->block_bytes, out = rn_dtype_get(to)->block_bytes;
    if (!is_wide(from) || !is_wide(to)) {
        convert_by_blocks(from, source, to, target, elements);
        return;
    }
    for (uint64_t i = 0; i < elements; i++)
        write_wide(to, read_wide(from, source + i * in), target + i * out);
}

// ---- every type to every type ------------------------------------------------------------------

static void check_pair(const sample *s, rn_dtype to) {
    uint64_t count;
    assert_true(rn_dtype_bytes(to, s->tensor->elements, &count));
    uint8_t *expected = malloc(count), *got = malloc(count + 1);
    got[count] = 0xA5;
    if (to == s->tensor->dtype)
        memcpy(expected, s->bytes, count);
    else
        convert_by_oracle(s->tensor->dtype, s->bytes, to, expected, s->tensor->elements);
    assert_ok(rn_checkpoint_load(s->checkpoint, s->tensor, to, got, count));
    if (memcmp(expected, got, count) != 0)
        fail_msg("%s to %s differs", rn_dtype_get(s->tensor->dtype)->name, rn_dtype_get(to)->name);
    assert_int_equal(got[count], 0xA5);
    free(expected);
    free(got);
}

static size_t load_all_pairs(rn_dtype from, uint64_t elements) {
    size_t pairs = 0;
    sample s = open_sample(from, elements);
    for (rn_dtype to = RN_DTYPE_NONE + 1; to < RN_DTYPE_COUNT; to++) {
        if (!is_writable(to)) continue;
        check_pair(&s, to);
        pairs++;
    }
    close_sample(&s);
    return pairs;
}

static void every_readable_type_loads_as_every_writable_one(void **state) {
    size_t pairs = 0;
    (void)state;
    for (rn_dtype from = RN_DTYPE_NONE + 1; from < RN_DTYPE_COUNT; from++) {
        const rn_dtype_info *info = rn_dtype_get(from);
        bool in_files = info->safetensors || info->ggml >= 0;
        if (info->readable && in_files) pairs += load_all_pairs(from, 20 * BLOCK);
    }
    print_message("%zu pairs\n", pairs);
    assert_true(pairs > 500);
}

// Staging is a mebibyte: these go through it in several steps, none of them even.
static void tensors_larger_than_the_staging_buffer_load_whole(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_F64,  RN_DTYPE_F32,  RN_DTYPE_I8,
                                      RN_DTYPE_Q8_0, RN_DTYPE_Q6_K, RN_DTYPE_Q1_0};
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const rn_dtype_info *info = rn_dtype_get(dtypes[i]);
        uint64_t elements = (uint64_t)(1 << 20) / info->block_bytes * info->block_elements;
        sample s = open_sample(dtypes[i], elements / BLOCK * BLOCK + 3 * BLOCK);
        check_pair(&s, RN_DTYPE_F32);
        check_pair(&s, RN_DTYPE_Q8_0);
        check_pair(&s, RN_DTYPE_U8);
        check_pair(&s, dtypes[i] == RN_DTYPE_F32    ? RN_DTYPE_BF16
                       : dtypes[i] == RN_DTYPE_Q8_0 ? RN_DTYPE_Q4_0
                                                    : RN_DTYPE_F16);
        close_sample(&s);
    }
}

static void odd_counts_and_no_elements_at_all_load(void **state) {
    static const uint64_t counts[] = {0, 1, 7, 255, 2049};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        sample s = open_sample(RN_DTYPE_BF16, counts[i]);
        check_pair(&s, RN_DTYPE_F32);
        check_pair(&s, RN_DTYPE_F16);
        check_pair(&s, RN_DTYPE_BF16);
        close_sample(&s);
    }
}

// ---- saturation, by example --------------------------------------------------------------------

typedef struct casting {
    rn_dtype from, to;
    const void *source, *expected;
    uint64_t count;
} casting;

static void check_casting(const casting *c) {
    uint8_t got[256];
    uint64_t bytes;
    assert_true(rn_dtype_bytes(c->to, c->count, &bytes));
    assert_ok(rn_dtype_convert(c->from, c->source, c->to, got, c->count));
    if (memcmp(got, c->expected, bytes) != 0)
        fail_msg("%s to %s", rn_dtype_get(c->from)->name, rn_dtype_get(c->to)->name);
}

static void integers_keep_their_value_or_saturate(void **state) {
    static const int64_t i64[] = {INT64_MIN, INT64_MIN + 1,          -129,     -128, -1, 0, 1, 127,
                                  128,       ((int64_t)1 << 53) + 1, INT64_MAX};
    static const uint64_t u64[] = {0, 1, 255, 256, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    static const double f64[] = {NAN,   -INFINITY, INFINITY, -0.0,   0.5,     1.5,
                                 2.5,   -0.5,      -1.5,     0x1p63, -0x1p63, 0x1p64,
                                 1e300, -1e300,    126.5,    127.5,  -128.5};
    const casting castings[] = {
        {RN_DTYPE_I64, RN_DTYPE_I8, i64,
         (int8_t[]){-128, -128, -128, -128, -1, 0, 1, 127, 127, 127, 127}, 11},
        {RN_DTYPE_I64, RN_DTYPE_U64, i64,
         (uint64_t[]){0, 0, 0, 0, 0, 0, 1, 127, 128, ((uint64_t)1 << 53) + 1, INT64_MAX}, 11},
        {RN_DTYPE_I64, RN_DTYPE_F64, i64,
         (double[]){-0x1p63, -0x1p63, -129, -128, -1, 0, 1, 127, 128, 0x1p53, 0x1p63}, 11},
        {RN_DTYPE_I64, RN_DTYPE_BOOL, i64, (uint8_t[]){1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1}, 11},
        {RN_DTYPE_U64, RN_DTYPE_I64, u64,
         (int64_t[]){0, 1, 255, 256, INT64_MAX, INT64_MAX, INT64_MAX}, 7},
        {RN_DTYPE_U64, RN_DTYPE_U8, u64, (uint8_t[]){0, 1, 255, 255, 255, 255, 255}, 7},
        {RN_DTYPE_F64, RN_DTYPE_I64, f64,
         (int64_t[]){0, INT64_MIN, INT64_MAX, 0, 0, 2, 2, 0, -2, INT64_MAX, INT64_MIN, INT64_MAX,
                     INT64_MAX, INT64_MIN, 126, 128, -128},
         17},
        {RN_DTYPE_F64, RN_DTYPE_U64, f64,
         (uint64_t[]){0, 0, UINT64_MAX, 0, 0, 2, 2, 0, 0, (uint64_t)1 << 63, 0, UINT64_MAX,
                      UINT64_MAX, 0, 126, 128, 0},
         17},
        {RN_DTYPE_F64, RN_DTYPE_I8, f64,
         (int8_t[]){0, -128, 127, 0, 0, 2, 2, 0, -2, 127, -128, 127, 127, -128, 126, 127, -128},
         17},
        {RN_DTYPE_BOOL, RN_DTYPE_U8, "\0\1\2\xff", "\0\1\1\1", 4},
        {RN_DTYPE_BOOL, RN_DTYPE_I64, "\0\x80", (int64_t[]){0, 1}, 2},
        {RN_DTYPE_U8, RN_DTYPE_I8, "\0\x7f\x80\xff", "\0\x7f\x7f\x7f", 4},
        {RN_DTYPE_I8, RN_DTYPE_U16, "\xff\x7f", (uint16_t[]){0, 127}, 2},
        {RN_DTYPE_F32, RN_DTYPE_I8, (float[]){300, -300, 2.5f, -0.5f, NAN},
         (int8_t[]){127, -128, 2, 0, 0}, 5},
        {RN_DTYPE_F32, RN_DTYPE_U8, (float[]){300, -1, 0.5f, 1.5f}, "\xff\0\0\2", 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof castings / sizeof *castings; i++)
        check_casting(&castings[i]);
}

// ---- what is refused ---------------------------------------------------------------------------

static void loading_refuses_a_target_of_another_size(void **state) {
    sample s = open_sample(RN_DTYPE_F16, 100);
    char target[1024];
    (void)state;
    assert_fails(RN_INVALID, rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_F32, target, 399));
    assert_said("'t' as f32 does not have 399 bytes");
    assert_fails(RN_INVALID, rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_F32, target, 401));
    assert_fails(RN_INVALID, rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_F16, target, 199));
    assert_fails(RN_INVALID, rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_NONE, target, 0));
    assert_fails(RN_INVALID, // 100 elements are not whole blocks of 32
                 rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_Q8_0, target, 136));
    close_sample(&s);
}

static void loading_refuses_types_without_numbers(void **state) {
    char target[4096];
    (void)state;
    for (rn_dtype dtype = RN_DTYPE_NONE + 1; dtype < RN_DTYPE_INT8; dtype++) {
        if (rn_dtype_get(dtype)->readable) continue;
        sample s = open_sample(dtype, BLOCK);
        assert_fails(RN_UNSUPPORTED,
                     rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_F32, target, BLOCK * 4));
        assert_said(rn_dtype_get(dtype)->name);
        assert_ok(rn_checkpoint_load(s.checkpoint, s.tensor, dtype, target, s.tensor->bytes));
        assert_memory_equal(target, s.bytes, s.tensor->bytes); // as itself it may be copied
        close_sample(&s);
    }
    sample s = open_sample(RN_DTYPE_F32, BLOCK);
    for (rn_dtype dtype = RN_DTYPE_NONE + 1; dtype < RN_DTYPE_COUNT; dtype++) {
        uint64_t bytes;
        if (is_writable(dtype) || !rn_dtype_bytes(dtype, BLOCK, &bytes)) continue;
        assert_fails(RN_UNSUPPORTED,
                     rn_checkpoint_load(s.checkpoint, s.tensor, dtype, target, bytes));
    }
    close_sample(&s);
}

static void reads_stay_within_their_tensor(void **state) {
    static const struct {
        uint64_t offset;
        size_t bytes;
        bool good;
    } reads[] = {
        {0, 0, true},
        {0, 200, true},
        {199, 1, true},
        {200, 0, true},
        {13, 100, true},
        {0, 201, false},
        {200, 1, false},
        {201, 0, false},
        {1, 200, false},
        {100, 101, false},
        {UINT64_MAX, 1, false},
        {1, SIZE_MAX, false},
        {UINT64_MAX, SIZE_MAX, false},
    };
    sample s = open_sample(RN_DTYPE_F16, 100);
    uint8_t target[256];
    (void)state;
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        rn_status status =
            rn_checkpoint_read(s.checkpoint, s.tensor, reads[i].offset, target, reads[i].bytes);
        assert_int_equal(status, reads[i].good ? RN_OK : RN_INVALID);
        if (reads[i].good && reads[i].bytes)
            assert_memory_equal(target, s.bytes + reads[i].offset, reads[i].bytes);
        if (!reads[i].good) assert_said("tensor 't' has 200 bytes");
    }
    close_sample(&s);
}

static void a_file_cut_after_opening_is_noticed(void **state) {
    sample s = open_sample(RN_DTYPE_F16, 100);
    char target[400];
    (void)state;
    assert_int_equal(truncate(test_path("sample"), (off_t)s.tensor->offset + 100), 0);
    assert_ok(rn_checkpoint_read(s.checkpoint, s.tensor, 0, target, 100));
    assert_fails(RN_CORRUPT, rn_checkpoint_read(s.checkpoint, s.tensor, 0, target, 101));
    assert_said("ends 1 bytes too early");
    assert_fails(RN_CORRUPT, rn_checkpoint_load(s.checkpoint, s.tensor, RN_DTYPE_F32, target, 400));
    assert_string_equal(rn_last_error()->path, test_path("sample"));
    close_sample(&s);
}

// ---- mapping -----------------------------------------------------------------------------------

static void a_mapping_shows_the_bytes_and_is_charged(void **state) {
    static const uint64_t counts[] = {1, 100, 5000, 300000};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        sample s = open_sample(RN_DTYPE_F16, counts[i]);
        rn_mapping map;
        uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes;
        assert_ok(rn_checkpoint_map(s.checkpoint, s.tensor, &map));
        assert_int_equal(map.bytes, s.tensor->bytes);
        assert_memory_equal(map.data, s.bytes, map.bytes);
        uint64_t charged = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes - before;
        assert_true(charged >= s.tensor->bytes && charged < s.tensor->bytes + 4096);
        rn_mapping_release(&map);
        assert_null(map.data);
        rn_mapping_release(&map); // twice does nothing
        close_sample(&s);
    }
}

static void an_empty_tensor_maps_to_nothing(void **state) {
    sample s = open_sample(RN_DTYPE_F32, 0);
    rn_mapping map;
    (void)state;
    assert_ok(rn_checkpoint_map(s.checkpoint, s.tensor, &map));
    assert_int_equal(map.bytes, 0);
    assert_null(map.data);
    rn_mapping_release(&map);
    close_sample(&s);
}

static void a_mapping_is_held_against_the_budget(void **state) {
    sample s = open_sample(RN_DTYPE_F32, 100000);
    rn_mapping map;
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held_bytes() + 300000));
    assert_fails(RN_OVER_BUDGET, rn_checkpoint_map(s.checkpoint, s.tensor, &map));
    assert_null(map.data);
    rn_mapping_release(&map);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    assert_ok(rn_checkpoint_map(s.checkpoint, s.tensor, &map));
    rn_mapping_release(&map);
    close_sample(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_readable_type_loads_as_every_writable_one),
        cmocka_unit_test(tensors_larger_than_the_staging_buffer_load_whole),
        cmocka_unit_test(odd_counts_and_no_elements_at_all_load),
        cmocka_unit_test(integers_keep_their_value_or_saturate),
        cmocka_unit_test(loading_refuses_a_target_of_another_size),
        cmocka_unit_test(loading_refuses_types_without_numbers),
        cmocka_unit_test(reads_stay_within_their_tensor),
        cmocka_unit_test(a_file_cut_after_opening_is_noticed),
        cmocka_unit_test(a_mapping_shows_the_bytes_and_is_charged),
        cmocka_unit_test(an_empty_tensor_maps_to_nothing),
        cmocka_unit_test(a_mapping_is_held_against_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
