// gguf_test.c — GGUF files built by hand: every kind of value, tensors of every type, and headers
// that lie.
#include "model_files.h"

#include "base/str.h"
#include "io/gguf.h"

#define FILE_NAME "model.gguf"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, I8 = 24, I64 = 27, F64 = 28 }; // ggml's numbers

static rn_status open_file(blob *file, rn_checkpoint **out) {
    put_file(test_path(FILE_NAME), file);
    rn_status s = rn_checkpoint_open(test_path(FILE_NAME), out);
    if (s != RN_OK) {
        assert_null(*out);
        assert_true(rn_last_error()->message[0] != '\0');
        assert_string_equal(rn_last_error()->path, test_path(FILE_NAME));
        assert_int_equal(held_bytes(), 0);
    }
    return s;
}

static void close_clean(rn_checkpoint *checkpoint) {
    rn_checkpoint_close(checkpoint);
    assert_int_equal(held_bytes(), 0);
}

static void expect_refused(blob *file, rn_status expected, const char *words) {
    rn_checkpoint *c;
    rn_status s = open_file(file, &c);
    if (s != expected) fail_msg("%s instead of '%s'", rn_status_name(s), words);
    assert_said(words);
}

// ---- metadata ----------------------------------------------------------------------------------

static void put_pair(blob *to, const char *key, uint32_t type, const void *value, size_t count) {
    put_string(to, key);
    put_u32(to, type);
    put(to, value, count);
}

static void put_scalars(blob *to) {
    put_pair(to, "u8", RN_GGUF_U8, "\xff", 1);
    put_pair(to, "i8", RN_GGUF_I8, "\xff", 1);
    put_pair(to, "u16", RN_GGUF_U16, &(uint16_t){65535}, 2);
    put_pair(to, "i16", RN_GGUF_I16, &(int16_t){-32768}, 2);
    put_pair(to, "u32", RN_GGUF_U32, &(uint32_t){4294967295u}, 4);
    put_pair(to, "i32", RN_GGUF_I32, &(int32_t){-7}, 4);
    put_pair(to, "f32", RN_GGUF_F32, &(float){0.1f}, 4);
    put_pair(to, "bool", RN_GGUF_BOOL, "\2", 1);
    put_pair(to, "text", RN_GGUF_STRING, "\3\0\0\0\0\0\0\0a\0\xff", 11);
    put_pair(to, "u64", RN_GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    put_pair(to, "i64", RN_GGUF_I64, &(int64_t){INT64_MIN}, 8);
    put_pair(to, "f64", RN_GGUF_F64, &(double){0.1}, 8);
}

static void gguf_reads_every_kind_of_value(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    (void)state;
    put_gguf_start(&file, 3, 0, 12);
    put_scalars(&file);
    assert_ok(open_file(&file, &c));
    assert_int_equal(rn_checkpoint_metadata_count(c), 12);
    static const rn_metadata_kind kinds[] = {RN_METADATA_U64, RN_METADATA_I64,  RN_METADATA_U64,
                                             RN_METADATA_I64, RN_METADATA_U64,  RN_METADATA_I64,
                                             RN_METADATA_F64, RN_METADATA_BOOL, RN_METADATA_TEXT,
                                             RN_METADATA_U64, RN_METADATA_I64,  RN_METADATA_F64};
    static const uint32_t types[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12};
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(rn_checkpoint_metadata(c, i)->kind, kinds[i]);
        assert_int_equal(rn_checkpoint_metadata(c, i)->gguf_type, types[i]);
    }
    assert_int_equal(rn_checkpoint_metadata(c, 0)->value.u64, 255);
    assert_true(rn_checkpoint_metadata(c, 1)->value.i64 == -1);
    assert_int_equal(rn_checkpoint_metadata(c, 2)->value.u64, 65535);
    assert_true(rn_checkpoint_metadata(c, 3)->value.i64 == -32768);
    assert_true(rn_checkpoint_metadata(c, 4)->value.u64 == 4294967295u);
    assert_true(rn_checkpoint_metadata(c, 5)->value.i64 == -7);
    assert_true(rn_checkpoint_metadata(c, 6)->value.f64 == (double)0.1f);
    assert_true(rn_checkpoint_metadata(c, 7)->value.boolean);
    assert_true(rn_str_equal(rn_checkpoint_metadata(c, 8)->text, RN_STR("a\0\xff")));
    assert_true(rn_checkpoint_metadata(c, 9)->value.u64 == UINT64_MAX);
    assert_true(rn_checkpoint_metadata(c, 10)->value.i64 == INT64_MIN);
    assert_true(rn_checkpoint_metadata(c, 11)->value.f64 == 0.1);
    assert_true(rn_str_equal(rn_checkpoint_metadata(c, 9)->key, RN_STR("u64")));
    close_clean(c);
}

static void put_array(blob *to, const char *key, uint32_t type, uint64_t count) {
    put_string(to, key);
    put_u32(to, RN_GGUF_ARRAY);
    put_u32(to, type);
    put_u64(to, count);
}

static void gguf_arrays_are_walked_element_by_element(void **state) {
    static const char *const words[] = {"", "two", "three\n"};
    static const int16_t values[] = {-1, 0, 300};
    blob file = {0};
    rn_checkpoint *c;
    rn_metadata item;
    uint64_t cursor = 0;
    (void)state;
    put_gguf_start(&file, 2, 0, 4);
    put_array(&file, "numbers", RN_GGUF_I16, 3);
    put(&file, values, 6);
    put_array(&file, "words", RN_GGUF_STRING, 3);
    for (size_t i = 0; i < 3; i++)
        put_string(&file, words[i]);
    put_array(&file, "none", RN_GGUF_F64, 0);
    put_pair(&file, "scalar", RN_GGUF_U8, "\5", 1);
    assert_ok(open_file(&file, &c));
    assert_string_equal(rn_checkpoint_format(c), "gguf v2");
    const rn_metadata *numbers = rn_checkpoint_metadata(c, 0);
    assert_int_equal(numbers->kind, RN_METADATA_ARRAY);
    assert_int_equal(numbers->gguf_type, RN_GGUF_I16);
    assert_int_equal(numbers->count, 3);
    assert_int_equal(numbers->raw.bytes, 6);
    for (size_t i = 0; i < 3; i++) {
        assert_true(rn_metadata_next(numbers, &cursor, &item));
        assert_true(item.kind == RN_METADATA_I64 && item.value.i64 == values[i]);
    }
    assert_false(rn_metadata_next(numbers, &cursor, &item));
    cursor = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(rn_metadata_next(rn_checkpoint_metadata(c, 1), &cursor, &item));
        assert_true(rn_str_equal(item.text, rn_str_from(words[i])));
    }
    assert_false(rn_metadata_next(rn_checkpoint_metadata(c, 1), &cursor, &item));
    for (size_t i = 2; i < 4; i++) { // an empty array, and no array at all
        cursor = 0;
        assert_false(rn_metadata_next(rn_checkpoint_metadata(c, i), &cursor, &item));
    }
    close_clean(c);
}

// Longer than the window that the header is read through, so that values lie across its edges.
static void gguf_reads_a_vocabulary_of_many_strings(void **state) {
    enum { COUNT = 30000 };
    blob file = {0};
    rn_checkpoint *c;
    rn_metadata item;
    uint64_t cursor = 0;
    char word[32];
    (void)state;
    put_gguf_start(&file, 3, 0, 2);
    put_array(&file, "tokens", RN_GGUF_STRING, COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(word, sizeof word, "%0*d", i % 17, i);
        put_string(&file, word);
    }
    put_pair(&file, "after", RN_GGUF_U32, &(uint32_t){77}, 4);
    assert_ok(open_file(&file, &c));
    for (int i = 0; i < COUNT; i++) {
        snprintf(word, sizeof word, "%0*d", i % 17, i);
        assert_true(rn_metadata_next(rn_checkpoint_metadata(c, 0), &cursor, &item));
        assert_true(rn_str_equal(item.text, rn_str_from(word)));
    }
    assert_int_equal(rn_checkpoint_metadata(c, 1)->value.u64, 77);
    close_clean(c);
}

// ---- tensors -----------------------------------------------------------------------------------

static void gguf_tensors_have_their_outermost_dimension_first(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    (void)state;
    put_gguf_start(&file, 3, 4, 0);
    put_gguf_tensor(&file, "blk.0.w", 2, (uint64_t[]){64, 3}, Q8_0, 0);   // 204 bytes -> 224
    put_gguf_tensor(&file, "empty", 3, (uint64_t[]){4, 0, 2}, F32, 224);  // none
    put_gguf_tensor(&file, "scalar", 0, NULL, F64, 224);                  // 8 -> 32
    put_gguf_tensor(&file, "deep", 4, (uint64_t[]){2, 3, 5, 7}, I8, 256); // 210 -> 224
    put_padding(&file, 32);
    size_t data = file.count;
    put_zeros(&file, 256 + 224);
    assert_ok(open_file(&file, &c));
    assert_int_equal(rn_checkpoint_container(c), RN_CONTAINER_GGUF);
    assert_int_equal(rn_checkpoint_file(c, 0)->data_offset, data);
    const rn_tensor_info *w = rn_checkpoint_find(c, "blk.0.w"), *deep = rn_checkpoint_tensor(c, 3);
    assert_int_equal(w->dtype, RN_DTYPE_Q8_0);
    assert_int_equal(w->dims[0], 3);
    assert_int_equal(w->dims[1], 64);
    assert_int_equal(w->bytes, 3 * 2 * 34);
    assert_int_equal(w->offset, data);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(deep->dims[i], ((uint64_t[]){7, 5, 3, 2}[i]));
    assert_int_equal(deep->offset, data + 256);
    assert_int_equal(rn_checkpoint_find(c, "empty")->bytes, 0);
    assert_int_equal(rn_checkpoint_find(c, "scalar")->elements, 1);
    assert_int_equal(rn_checkpoint_total_bytes(c), 204 + 8 + 210);
    close_clean(c);
}

// The next tensor says how long it is.
static void unknown_types_are_named_with_their_bytes(void **state) {
    static const struct {
        uint32_t type;
        const char *words;
    } cases[] = {{31, "tensor 't' has type 31, q4_0_4_4 (640 bytes), which ration does not know"},
                 {99, "tensor 't' has type 99 (640 bytes), which ration does not know"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        blob file = {0};
        put_gguf_start(&file, 3, 2, 0);
        put_gguf_tensor(&file, "t", 2, (uint64_t[]){256, 2}, cases[i].type, 0);
        put_gguf_tensor(&file, "u", 1, (uint64_t[]){8}, 0, 640);
        put_padding(&file, 32);
        put_zeros(&file, 640 + 32);
        expect_refused(&file, RN_CORRUPT, cases[i].words);
        assert_true(rn_last_error()->hint[0] != '\0');
    }
}

static void gguf_knows_every_type_of_ggml(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    size_t known = 0;
    (void)state;
    for (uint32_t type = 0; type < 64; type++) {
        rn_dtype dtype = rn_dtype_from_ggml(type);
        uint64_t need = 0;
        if (dtype != RN_DTYPE_NONE) assert_true(rn_dtype_bytes(dtype, 512, &need));
        put_gguf_start(&file, 3, 1, 0);
        put_gguf_tensor(&file, "t", 2, (uint64_t[]){256, 2}, type, 0);
        put_padding(&file, 32);
        put_zeros(&file, dtype == RN_DTYPE_NONE ? 8192 : (need + 31) / 32 * 32);
        if (dtype == RN_DTYPE_NONE) {
            expect_refused(&file, RN_CORRUPT, "which ration does not know");
            continue;
        }
        assert_ok(open_file(&file, &c));
        assert_int_equal(rn_checkpoint_tensor(c, 0)->bytes, need);
        close_clean(c);
        known++;
    }
    assert_int_equal(known, 35);
}

static void gguf_alignment_moves_the_data(void **state) {
    static const uint32_t alignments[] = {1, 8, 32, 64, 4096};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        uint32_t align = alignments[i];
        blob file = {0};
        rn_checkpoint *c;
        uint64_t padded = (12 + align - 1) / align * align;
        put_gguf_start(&file, 3, 2, 1);
        put_pair(&file, "general.alignment", RN_GGUF_U32, &align, 4);
        put_gguf_tensor(&file, "a", 1, (uint64_t[]){3}, F32, 0);
        put_gguf_tensor(&file, "b", 1, (uint64_t[]){3}, F32, padded);
        put_padding(&file, align);
        size_t data = file.count;
        put_zeros(&file, padded * 2);
        assert_ok(open_file(&file, &c));
        assert_int_equal(rn_checkpoint_tensor(c, 1)->offset, data + padded);
        close_clean(c);
    }
}

static void gguf_names_may_hold_nul(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    (void)state;
    put_gguf_start(&file, 3, 2, 0);
    for (uint64_t i = 0; i < 2; i++) { // "a\0b" and "a": not the same
        put_u64(&file, i ? 1 : 3);
        put(&file, "a\0b", i ? 1 : 3);
        put_u32(&file, 1);
        put_u64(&file, 1);
        put_u32(&file, F32);
        put_u64(&file, i * 32);
    }
    put_padding(&file, 32);
    put_zeros(&file, 64);
    assert_ok(open_file(&file, &c));
    assert_true(rn_str_equal(rn_checkpoint_tensor(c, 0)->name, RN_STR("a\0b")));
    assert_ptr_equal(rn_checkpoint_find(c, "a"), rn_checkpoint_tensor(c, 1));
    close_clean(c);
}

static void gguf_takes_a_header_of_many_tensors(void **state) {
    enum { COUNT = 20000 };
    blob file = {0};
    rn_checkpoint *c;
    char name[32];
    (void)state;
    put_gguf_start(&file, 3, COUNT, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "blk.%llu.weight", (unsigned long long)i);
        put_gguf_tensor(&file, name, 1, (uint64_t[]){5}, I8, i * 32);
    }
    put_padding(&file, 32);
    put_zeros(&file, COUNT * 32);
    assert_ok(open_file(&file, &c));
    assert_int_equal(rn_checkpoint_count(c), COUNT);
    assert_ptr_equal(rn_checkpoint_find(c, "blk.12345.weight"), rn_checkpoint_tensor(c, 12345));
    close_clean(c);
}

// ---- broken files ------------------------------------------------------------------------------

static void gguf_refuses_a_bad_prologue(void **state) {
    static const struct {
        uint32_t version;
        uint64_t tensors, pairs;
        rn_status status;
        const char *words;
    } bad[] = {
        {0, 0, 0, RN_UNSUPPORTED, "version 0"},
        {1, 0, 0, RN_UNSUPPORTED, "version 1"},
        {4, 0, 0, RN_UNSUPPORTED, "version 4"},
        {0x03000000, 0, 0, RN_UNSUPPORTED, "big-endian"},
        {3, UINT64_MAX, 0, RN_CORRUPT, "tensors cannot be"},
        {3, 0, UINT64_MAX, RN_CORRUPT, "pairs cannot be"},
        {3, (uint64_t)1 << 60, 0, RN_CORRUPT, "tensors cannot be"},
        {3, 0, (uint64_t)1 << 60, RN_CORRUPT, "pairs cannot be"},
        {3, 5, 0, RN_CORRUPT, "5 tensors cannot be"},
        {3, 0, 9, RN_CORRUPT, "9 metadata pairs cannot be"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        blob file = {0};
        put_gguf_start(&file, bad[i].version, bad[i].tensors, bad[i].pairs);
        put_zeros(&file, 100);
        expect_refused(&file, bad[i].status, bad[i].words);
    }
    blob file = {0};
    put_text(&file, "GGUG");
    put_zeros(&file, 60);
    expect_refused(&file, RN_CORRUPT, "does not begin with");
}

// A good file, cut at every byte: each cut is refused with a place in the file.
static void gguf_refuses_a_file_cut_anywhere(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    (void)state;
    put_gguf_start(&file, 3, 2, 14);
    put_scalars(&file);
    put_array(&file, "words", RN_GGUF_STRING, 2);
    put_string(&file, "one");
    put_string(&file, "two");
    put_array(&file, "numbers", RN_GGUF_U32, 3);
    put_zeros(&file, 12);
    put_gguf_tensor(&file, "a", 2, (uint64_t[]){4, 2}, F32, 0);
    put_gguf_tensor(&file, "b", 1, (uint64_t[]){3}, F16, 32);
    put_padding(&file, 32);
    put_zeros(&file, 64);
    test_write(test_path(FILE_NAME), file.data, file.count);
    assert_ok(rn_checkpoint_open(test_path(FILE_NAME), &c));
    close_clean(c);
    for (size_t cut = 0; cut < file.count; cut++) {
        test_write(test_path(FILE_NAME), file.data, cut);
        rn_status s = rn_checkpoint_open(test_path(FILE_NAME), &c);
        if (s != RN_CORRUPT) fail_msg("cut at %zu: %s", cut, rn_status_name(s));
        assert_true(rn_last_error()->offset <= file.count);
        assert_string_equal(rn_last_error()->path, test_path(FILE_NAME));
    }
    assert_int_equal(held_bytes(), 0);
    free(file.data);
}

static void gguf_refuses_bad_pairs(void **state) {
    static const uint32_t types[] = {13, 255, 0x80000000, UINT32_MAX};
    blob file = {0};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        put_gguf_start(&file, 3, 0, 1);
        put_pair(&file, "k", types[i], "", 0);
        put_zeros(&file, 64);
        expect_refused(&file, RN_CORRUPT, "'k' has value type");
        put_gguf_start(&file, 3, 0, 1);
        put_array(&file, "k", types[i], 1);
        put_zeros(&file, 64);
        expect_refused(&file, RN_CORRUPT, "'k' has value type");
    }
    put_gguf_start(&file, 3, 0, 1);
    put_array(&file, "k", RN_GGUF_ARRAY, 1);
    put_zeros(&file, 64);
    expect_refused(&file, RN_CORRUPT, "value type 9");
    put_gguf_start(&file, 3, 0, 2);
    put_pair(&file, "k", RN_GGUF_U8, "", 1);
    put_pair(&file, "k", RN_GGUF_U8, "", 1);
    expect_refused(&file, RN_CORRUPT, "'k' is there twice");
    put_gguf_start(&file, 3, 0, 1);
    put_pair(&file, "", RN_GGUF_U8, "", 1);
    expect_refused(&file, RN_CORRUPT, "key is empty");
    static const uint64_t counts[] = {100, (uint64_t)1 << 61, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t i = 0; i < 4; i++)
        for (int text = 0; text < 2; text++) {
            put_gguf_start(&file, 3, 0, 1);
            put_array(&file, "k", text ? RN_GGUF_STRING : RN_GGUF_F64, counts[i]);
            put_zeros(&file, 64);
            expect_refused(&file, RN_CORRUPT, "the file ends inside an array");
        }
    put_gguf_start(&file, 3, 0, 1);
    put_u64(&file, UINT64_MAX); // a key's length
    put_zeros(&file, 64);
    expect_refused(&file, RN_CORRUPT, "the file ends inside a key");
}

static void gguf_refuses_bad_alignments(void **state) {
    static const uint32_t values[] = {0, 3, 13, 33, 0x80000001};
    blob file = {0};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        put_gguf_start(&file, 3, 0, 1);
        put_pair(&file, "general.alignment", RN_GGUF_U32, &values[i], 4);
        expect_refused(&file, RN_CORRUPT, "not a power of two");
    }
    put_gguf_start(&file, 3, 0, 1);
    put_pair(&file, "general.alignment", RN_GGUF_I32, &(int32_t){32}, 4);
    expect_refused(&file, RN_CORRUPT, "not a u32");
    put_gguf_start(&file, 3, 0, 1);
    put_pair(&file, "general.alignment", RN_GGUF_U64, &(uint64_t){32}, 8);
    expect_refused(&file, RN_CORRUPT, "not a u32");
    // As large as it can be: there is no room for data, but none is needed.
    rn_checkpoint *c;
    put_gguf_start(&file, 3, 0, 1);
    put_pair(&file, "general.alignment", RN_GGUF_U32, &(uint32_t){0x80000000}, 4);
    assert_ok(open_file(&file, &c));
    close_clean(c);
}

static void refuse_tensor(uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t offset,
                          const char *words) {
    blob file = {0};
    put_gguf_start(&file, 3, 1, 0);
    put_gguf_tensor(&file, "t", rank, dims, type, offset);
    put_padding(&file, 32);
    put_zeros(&file, 256);
    expect_refused(&file, RN_CORRUPT, words);
}

static void gguf_refuses_ranks_above_four(void **state) {
    blob file = {0};
    (void)state;
    refuse_tensor(5, (uint64_t[]){1, 1, 1, 1, 1}, F32, 0, "has 5 dimensions");
    put_gguf_start(&file, 3, 1, 0);
    put_string(&file, "t");
    put_u32(&file, UINT32_MAX); // its dimensions would fill any memory
    put_zeros(&file, 256);
    expect_refused(&file, RN_CORRUPT, "has 4294967295 dimensions");
}

static void gguf_refuses_sizes_that_wrap(void **state) {
    const uint64_t half = (uint64_t)1 << 32, minus = UINT64_MAX;
    (void)state;
    refuse_tensor(1, &minus, F32, 0, "negative dimension");
    refuse_tensor(2, (uint64_t[]){minus, minus}, F32, 0, "negative dimension");
    refuse_tensor(2, (uint64_t[]){half, half}, I8, 0, "overflows");
    refuse_tensor(2, (uint64_t[]){half * 4, half / 4}, F32, 0, "overflows");
    refuse_tensor(1, (uint64_t[]){((uint64_t)1 << 62) + 4}, F32, 0, "overflows");
    refuse_tensor(1, (uint64_t[]){((uint64_t)1 << 42) + 1}, F32, 0, "the tensors end at byte");
    refuse_tensor(1, (uint64_t[]){65}, F32, 0, "the tensors end at byte");
    refuse_tensor(2, (uint64_t[]){33, 32}, Q8_0, 0, "not whole blocks");
    refuse_tensor(1, (uint64_t[]){16}, Q4_0, 0, "not whole blocks");
    refuse_tensor(0, NULL, Q4_0, 0, "not whole blocks");
    refuse_tensor(1, (uint64_t[]){4}, F32, 32, "at offset 32, 0 is expected");
    refuse_tensor(1, (uint64_t[]){4}, F32, minus, "0 is expected");
    refuse_tensor(1, (uint64_t[]){4}, F32, 16, "0 is expected");
}

static void gguf_refuses_tensors_that_share_bytes_or_names(void **state) {
    static const uint64_t offsets[] = {0, 16, 64, 33};
    blob file = {0};
    (void)state;
    for (size_t i = 0; i < 4; i++) { // the second one belongs at 32
        put_gguf_start(&file, 3, 2, 0);
        put_gguf_tensor(&file, "a", 1, (uint64_t[]){8}, F32, 0);
        put_gguf_tensor(&file, "b", 1, (uint64_t[]){8}, F32, offsets[i]);
        put_padding(&file, 32);
        put_zeros(&file, 256);
        expect_refused(&file, RN_CORRUPT, "'b' is at offset");
    }
    put_gguf_start(&file, 3, 2, 0);
    put_gguf_tensor(&file, "a", 1, (uint64_t[]){8}, F32, 0);
    put_gguf_tensor(&file, "a", 1, (uint64_t[]){8}, F32, 32);
    put_padding(&file, 32);
    put_zeros(&file, 64);
    expect_refused(&file, RN_CORRUPT, "'a' is there twice");
}

// 63 bytes as ggml has it; 127 where nothing is said of the model, as stable-diffusion.cpp writes.
static void gguf_names_have_a_length(void **state) {
    static const struct {
        uint64_t pairs;
        size_t most;
    } cases[] = {{1, 63}, {0, 127}};
    blob file = {0};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char name[129] = {0}, words[40];
        size_t most = cases[i / 2].most, length = most + i % 2;
        rn_checkpoint *c;
        memset(name, 'n', length);
        put_gguf_start(&file, 3, 1, cases[i / 2].pairs);
        if (cases[i / 2].pairs) put_pair(&file, "u8", RN_GGUF_U8, "\1", 1);
        put_gguf_tensor(&file, name, 1, (uint64_t[]){8}, F32, 0);
        put_padding(&file, 32);
        put_zeros(&file, 32);
        if (length > most) {
            snprintf(words, sizeof words, "name has %zu bytes", length);
            expect_refused(&file, RN_CORRUPT, words);
            continue;
        }
        assert_ok(open_file(&file, &c));
        close_clean(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_reads_every_kind_of_value),
        cmocka_unit_test(gguf_arrays_are_walked_element_by_element),
        cmocka_unit_test(gguf_reads_a_vocabulary_of_many_strings),
        cmocka_unit_test(gguf_tensors_have_their_outermost_dimension_first),
        cmocka_unit_test(gguf_knows_every_type_of_ggml),
        cmocka_unit_test(unknown_types_are_named_with_their_bytes),
        cmocka_unit_test(gguf_alignment_moves_the_data),
        cmocka_unit_test(gguf_names_may_hold_nul),
        cmocka_unit_test(gguf_takes_a_header_of_many_tensors),
        cmocka_unit_test(gguf_refuses_a_bad_prologue),
        cmocka_unit_test(gguf_refuses_a_file_cut_anywhere),
        cmocka_unit_test(gguf_refuses_bad_pairs),
        cmocka_unit_test(gguf_refuses_bad_alignments),
        cmocka_unit_test(gguf_refuses_ranks_above_four),
        cmocka_unit_test(gguf_refuses_sizes_that_wrap),
        cmocka_unit_test(gguf_refuses_tensors_that_share_bytes_or_names),
        cmocka_unit_test(gguf_names_have_a_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
