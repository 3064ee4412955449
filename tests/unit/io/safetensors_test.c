// safetensors_test.c — headers built by hand: good ones read back whole, broken ones refused with
// file, place and rule.
#include "model_files.h"

#include "base/str.h"

#include <sys/stat.h>
#include <unistd.h>

// ---- opening a header --------------------------------------------------------------------------

#define FILE_NAME "model.safetensors"

static rn_status open_bytes(const char *header, size_t header_bytes, size_t data_bytes,
                            rn_checkpoint **out) {
    write_safetensors(test_path(FILE_NAME), header, header_bytes, NULL, data_bytes);
    rn_status s = rn_checkpoint_open(test_path(FILE_NAME), out);
    if (s != RN_OK) {
        assert_null(*out);
        assert_true(rn_last_error()->message[0] != '\0');
        assert_string_equal(rn_last_error()->path, test_path(FILE_NAME));
        assert_int_equal(held_bytes(), 0);
    }
    return s;
}

static rn_status open_header(const char *header, size_t data_bytes, rn_checkpoint **out) {
    return open_bytes(header, strlen(header), data_bytes, out);
}

static rn_checkpoint *must_open(const char *header, size_t data_bytes) {
    rn_checkpoint *checkpoint;
    assert_ok(open_header(header, data_bytes, &checkpoint));
    return checkpoint;
}

static void close_clean(rn_checkpoint *checkpoint) {
    rn_checkpoint_close(checkpoint);
    assert_int_equal(held_bytes(), 0);
}

typedef struct bad_header {
    const char *header;
    size_t data_bytes;
    const char *words; // in the message
} bad_header;

static void check_refused(const bad_header *bad, size_t count) {
    rn_checkpoint *checkpoint;
    for (size_t i = 0; i < count; i++) {
        rn_status s = open_header(bad[i].header, bad[i].data_bytes, &checkpoint);
        if (s != RN_CORRUPT) fail_msg("case %zu (%s): %s", i, bad[i].header, rn_status_name(s));
        if (!strstr(rn_last_error()->message, bad[i].words))
            fail_msg("case %zu: '%s' lacks '%s'", i, rn_last_error()->message, bad[i].words);
    }
}
#define CHECK_REFUSED(list) check_refused(list, sizeof(list) / sizeof *(list))

// ---- good files --------------------------------------------------------------------------------

static void safetensors_lists_tensors_in_the_order_of_their_bytes(void **state) {
    rn_checkpoint *c =
        must_open("{\"last\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                  "\"first\":{\"data_offsets\":[0,8],\"shape\":[],\"dtype\":\"I64\"},"
                  "\"none\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[8,8]}}  ",
                  32);
    static const char *const names[] = {"first", "none", "last"};
    (void)state;
    assert_int_equal(rn_checkpoint_container(c), RN_CONTAINER_SAFETENSORS);
    assert_string_equal(rn_checkpoint_format(c), "safetensors");
    assert_int_equal(rn_checkpoint_count(c), 3);
    assert_int_equal(rn_checkpoint_total_bytes(c), 32);
    assert_null(rn_checkpoint_tensor(c, 3));
    const rn_checkpoint_file_info *file = rn_checkpoint_file(c, 0);
    assert_int_equal(rn_checkpoint_file_count(c), 1);
    assert_null(rn_checkpoint_file(c, 1));
    assert_string_equal(file->path, test_path(FILE_NAME));
    assert_int_equal(file->bytes, file->data_offset + 32);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(rn_checkpoint_tensor(c, i)->name.data, names[i]);
        assert_ptr_equal(rn_checkpoint_find(c, names[i]), rn_checkpoint_tensor(c, i));
    }
    const rn_tensor_info *last = rn_checkpoint_find(c, "last");
    assert_int_equal(last->dtype, RN_DTYPE_F32);
    assert_int_equal(last->rank, 2);
    assert_int_equal(last->dims[0], 2);
    assert_int_equal(last->dims[1], 3);
    assert_int_equal(last->elements, 6);
    assert_int_equal(last->bytes, 24);
    assert_int_equal(last->offset, file->data_offset + 8);
    assert_int_equal(rn_checkpoint_find(c, "first")->elements, 1);
    assert_int_equal(rn_checkpoint_find(c, "none")->bytes, 0);
    assert_null(rn_checkpoint_find(c, "fir"));
    assert_null(rn_checkpoint_find(c, ""));
    close_clean(c);
}

static void safetensors_may_hold_nothing(void **state) {
    static const char *const headers[] = {"{}", "{ \n\t\r}", "{}      ", "{\"__metadata__\":{}}",
                                          "{\"__metadata__\":null}"};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        rn_checkpoint *c = must_open(headers[i], 0);
        assert_int_equal(rn_checkpoint_count(c), 0);
        assert_int_equal(rn_checkpoint_total_bytes(c), 0);
        assert_int_equal(rn_checkpoint_metadata_count(c), 0);
        close_clean(c);
    }
}

static void safetensors_metadata_is_text(void **state) {
    rn_checkpoint *c =
        must_open("{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\\n\":\"a\\u0000b\","
                  "\"\":\"\"}}",
                  0);
    (void)state;
    assert_int_equal(rn_checkpoint_metadata_count(c), 3);
    const rn_metadata *m = rn_checkpoint_metadata(c, 1);
    assert_int_equal(m->kind, RN_METADATA_TEXT);
    assert_true(rn_str_equal(m->key, RN_STR("\xc3\xa9\n")));
    assert_true(rn_str_equal(m->text, RN_STR("a\0b")));
    assert_true(rn_str_equal(rn_checkpoint_metadata(c, 0)->text, RN_STR("pt")));
    assert_int_equal(rn_checkpoint_metadata(c, 2)->key.bytes, 0);
    assert_null(rn_checkpoint_metadata(c, 3));
    close_clean(c);
}

static void safetensors_names_may_be_empty_or_hold_nul(void **state) {
    rn_checkpoint *c =
        must_open("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
                  "\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                  3);
    (void)state;
    assert_true(rn_str_equal(rn_checkpoint_tensor(c, 0)->name, RN_STR("a\0b")));
    assert_int_equal(rn_checkpoint_tensor(c, 0)->name.data[3], '\0');
    assert_ptr_equal(rn_checkpoint_find(c, "a"), rn_checkpoint_tensor(c, 1));
    assert_ptr_equal(rn_checkpoint_find(c, ""), rn_checkpoint_tensor(c, 2));
    close_clean(c);
}

static void safetensors_knows_every_dtype_of_the_format(void **state) {
    static const struct {
        const char *name;
        rn_dtype dtype;
        unsigned bits;
    } dtypes[] = {
        {"BOOL", RN_DTYPE_BOOL, 8},
        {"F4", RN_DTYPE_F4, 4},
        {"F6_E2M3", RN_DTYPE_F6_E2M3, 6},
        {"F6_E3M2", RN_DTYPE_F6_E3M2, 6},
        {"U8", RN_DTYPE_U8, 8},
        {"I8", RN_DTYPE_I8, 8},
        {"F8_E5M2", RN_DTYPE_F8_E5M2, 8},
        {"F8_E4M3", RN_DTYPE_F8_E4M3, 8},
        {"F8_E8M0", RN_DTYPE_F8_E8M0, 8},
        {"F8_E4M3FNUZ", RN_DTYPE_F8_E4M3FNUZ, 8},
        {"F8_E5M2FNUZ", RN_DTYPE_F8_E5M2FNUZ, 8},
        {"I16", RN_DTYPE_I16, 16},
        {"U16", RN_DTYPE_U16, 16},
        {"F16", RN_DTYPE_F16, 16},
        {"BF16", RN_DTYPE_BF16, 16},
        {"I32", RN_DTYPE_I32, 32},
        {"U32", RN_DTYPE_U32, 32},
        {"F32", RN_DTYPE_F32, 32},
        {"C64", RN_DTYPE_C64, 64},
        {"F64", RN_DTYPE_F64, 64},
        {"I64", RN_DTYPE_I64, 64},
        {"U64", RN_DTYPE_U64, 64},
    };
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char header[128];
        size_t need = dtypes[i].bits * 8 / 8;
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%zu]}}",
                 dtypes[i].name, need);
        rn_checkpoint *c = must_open(header, need);
        assert_int_equal(rn_checkpoint_tensor(c, 0)->dtype, dtypes[i].dtype);
        assert_int_equal(rn_checkpoint_tensor(c, 0)->bytes, need);
        close_clean(c);
    }
}

static void safetensors_takes_a_header_of_many_tensors(void **state) {
    enum { COUNT = 20000 };
    blob header = {0};
    (void)state;
    put_text(&header, "{");
    for (int i = COUNT - 1; i >= 0; i--) // last comes first: sorting and the map must agree
        put_format(&header,
                   "\"block.%d.weight\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":"
                   "[%d,%d]}%s",
                   i, i * 3, i * 3 + 3, i ? "," : "}");
    put(&header, "", 1);
    rn_checkpoint *c = must_open(header.data, COUNT * 3);
    free(header.data);
    assert_int_equal(rn_checkpoint_count(c), COUNT);
    for (int i = 0; i < COUNT; i += 7) {
        char name[32];
        snprintf(name, sizeof name, "block.%d.weight", i);
        assert_ptr_equal(rn_checkpoint_find(c, name), rn_checkpoint_tensor(c, (size_t)i));
    }
    close_clean(c);
}

static void safetensors_allows_any_rank_up_to_a_limit(void **state) {
    for (int rank = 0; rank <= 33; rank++) {
        blob header = {0};
        rn_checkpoint *c;
        put_text(&header, "{\"deep\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[");
        for (int i = 0; i < rank; i++)
            put_text(&header, i ? ",1" : "1");
        put_text(&header, "]}}");
        rn_status s = open_bytes(header.data, header.count, 1, &c);
        free(header.data);
        if (rank <= 32) {
            assert_ok(s);
            assert_int_equal(rn_checkpoint_tensor(c, 0)->rank, rank);
            close_clean(c);
            continue;
        }
        assert_int_equal(s, RN_UNSUPPORTED);
        assert_said("'deep' has more than 32 dimensions");
    }
    (void)state;
}

// ---- broken files ------------------------------------------------------------------------------

#define T(rest) "{\"t\":{" rest "}}"

static void safetensors_refuses_broken_entries(void **state) {
    static const bad_header bad[] = {
        {T("\"shape\":[1],\"data_offsets\":[0,1]"), 1, "'t' lacks dtype"},
        {T("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, "'t' lacks shape"},
        {T("\"dtype\":\"U8\",\"shape\":[1]"), 0, "'t' lacks data_offsets"},
        {T(""), 0, "lacks dtype"},
        {T("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, "twice"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]"), 1, "twice"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"data_offsets\":[0,1]"), 1,
         "twice"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0"), 1, "'x' is unknown"},
        {T("\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, "unknown dtype 'u8'"},
        {T("\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, "unknown dtype"},
        {T("\"dtype\":\"Q4_0\",\"shape\":[32],\"data_offsets\":[0,18]"), 18, "unknown dtype"},
        {T("\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]"), 1, "a number where a string"},
        {T("\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]"), 1, "where an array"},
        {T("\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]"), 0,
         "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, "whole number"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]"), 1, "end of an array"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}"), 1, "where an array"},
        {T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]"), 1, "whole number"},
        {"{\"t\":[]}", 0, "where an object"},
        {"{\"t\":null}", 0, "where an object"},
    };
    (void)state;
    CHECK_REFUSED(bad);
}

static void safetensors_refuses_sizes_that_do_not_add_up(void **state) {
    static const bad_header bad[] = {
        {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,4]"), 4,
         "needs 16 bytes, it has 4"},
        {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "bytes 4 to 0"},
        {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 3, "data section of 3"},
        {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 5, "tensors end at byte"},
        {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8, "leaves a hole"},
        {T("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         "overflows"},
        {T("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]"), 0,
         "overflows"},
        {T("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"), 0,
         "overflows"},
        {T("\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[0,16]"), 16,
         "overflows"},
        {T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "not whole bytes"},
        {T("\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]"), 2, "not whole bytes"},
        {T("\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[18446744073709551615,"
           "18446744073709551615]"),
         0, "overflows"},
        {T("\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]"), 0, "bytes 1 to 1"},
        {"", 0, "begin with '{'"},
        {" {}", 0, "begin with '{'"},
        {"[]", 0, "begin with '{'"},
        {"{}", 1, "tensors end at byte"},
        {"{}{}", 0, "text after the end"},
        {"{\"__metadata__\":[]}", 0, "where an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "where a string"},
        {"{\"__metadata__\":{\"a\":{}}}", 0, "where a string"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is there twice"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "'a' is there twice"},
    };
    (void)state;
    CHECK_REFUSED(bad);
}

// The format's text allows them behind it only; the story says what to do.
static void white_space_in_front_of_the_header_is_refused_with_a_way_out(void **state) {
    static const char *const headers[] = {" {}", "\n{}", "\t {}"};
    rn_checkpoint *c;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        write_safetensors(test_path("blank.safetensors"), headers[i], strlen(headers[i]), "", 0);
        assert_fails(RN_CORRUPT, rn_checkpoint_open(test_path("blank.safetensors"), &c));
        assert_non_null(strstr(rn_last_error()->hint, "blanks behind the header"));
    }
    write_safetensors(test_path("blank.safetensors"), "{} \n", 4, "", 0);
    assert_ok(rn_checkpoint_open(test_path("blank.safetensors"), &c));
    rn_checkpoint_close(c);
}

#define ENTRY(name, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #to "],\"data_offsets\":[" #from "," #to "]}"

static void safetensors_refuses_tensors_that_share_bytes_or_names(void **state) {
    static const bad_header bad[] = {
        {"{" ENTRY("a", 0, 4) "," ENTRY("a", 0, 4) "}", 4, "'a' is there twice"},
        {"{" ENTRY("a", 0, 4) "," ENTRY("b", 0, 4) "}", 4, "overlaps"},
        {"{" ENTRY("a", 0, 4) ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", 6,
         "'b' overlaps"},
        {"{" ENTRY("a", 0, 4) ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[6,8]}}", 8,
         "'b' leaves a hole"},
        {"{" ENTRY("a", 0, 4) ",\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}", 4,
         "'e' overlaps"},
        {"{" ENTRY("x", 0,
                   4) ",\"\\u0078\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}",
         4, "'x' is there twice"},
    };
    (void)state;
    CHECK_REFUSED(bad);
}

static void safetensors_refuses_files_whose_length_lies(void **state) {
    static const uint64_t lengths[] = {
        3, 100000001, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 7, UINT64_MAX};
    rn_checkpoint *c;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        blob file = {0};
        put_u64(&file, lengths[i]);
        put_text(&file, "{}");
        put_file(test_path(FILE_NAME), &file);
        assert_fails(RN_CORRUPT, rn_checkpoint_open(test_path(FILE_NAME), &c));
        assert_said("is it safetensors?");
        assert_string_equal(rn_last_error()->path, test_path(FILE_NAME));
    }
    for (size_t size = 0; size < 8; size++) {
        test_write(test_path(FILE_NAME), "\2\0\0\0\0\0\0", size);
        assert_fails(RN_CORRUPT, rn_checkpoint_open(test_path(FILE_NAME), &c));
        assert_said("too short");
    }
    assert_int_equal(held_bytes(), 0);
}

static void safetensors_errors_count_from_the_start_of_the_file(void **state) {
    rn_checkpoint *c;
    (void)state;
    assert_fails(RN_CORRUPT, open_header("{\"a\" 1}", 0, &c));
    assert_said("missing ':' at byte 13"); // 8 bytes of length, then 5 of the header
    assert_int_equal(rn_last_error()->offset, 13);
    assert_fails(RN_CORRUPT, open_header("{\"a\":1}", 0, &c));
    assert_int_equal(rn_last_error()->offset, 13);
    assert_fails(RN_CORRUPT, open_bytes("{}\0\0", 4, 0, &c)); // NULs are no padding
    assert_int_equal(rn_last_error()->offset, 10);
}

static void hostile_names_do_not_reach_the_terminal(void **state) {
    rn_checkpoint *c;
    (void)state;
    assert_fails(RN_CORRUPT, open_header("{\"\\u001b[31mred\\u0007\":{}}", 0, &c));
    for (const char *at = rn_last_error()->message; *at; at++)
        assert_true((unsigned char)*at >= 0x20);
    assert_said("red");
}

// ---- other kinds of file -----------------------------------------------------------------------

static void foreign_files_are_named_for_what_they_are(void **state) {
    static const struct {
        const char *head;
        const char *words;
    } files[] = {
        {"PK\3\4....", "zip archive"},         {"\x80\2........", "pickle"},
        {"GGML....", "before GGUF"},           {"lmgg....", "before GGUF"},
        {"tjgg....", "before GGUF"},           {"\x89HDF\r\n\x1a\n", "HDF5"},
        {"\x80\5........", "a Python pickle"},
    };
    rn_checkpoint *c;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        test_write(test_path("model.bin"), files[i].head, strlen(files[i].head));
        assert_fails(RN_UNSUPPORTED, rn_checkpoint_open(test_path("model.bin"), &c));
        assert_said(files[i].words);
        assert_true(rn_last_error()->hint[0] != '\0');
    }
}

static void only_regular_files_are_opened(void **state) {
    rn_checkpoint *c;
    (void)state;
    assert_fails(RN_NOT_FOUND, rn_checkpoint_open(test_path("missing.safetensors"), &c));
    assert_string_equal(rn_last_error()->path, test_path("missing.safetensors"));
    assert_fails(RN_NOT_FOUND, rn_checkpoint_open("", &c));
    assert_fails(RN_UNSUPPORTED, rn_checkpoint_open("/dev/null", &c));
    assert_int_equal(mkfifo(test_path("pipe.safetensors"), 0600), 0);
    assert_fails(RN_UNSUPPORTED,
                 rn_checkpoint_open(test_path("pipe.safetensors"), &c)); // no waiting
    unlink(test_path("pipe.safetensors"));
    assert_null(c);
    rn_checkpoint_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_lists_tensors_in_the_order_of_their_bytes),
        cmocka_unit_test(safetensors_may_hold_nothing),
        cmocka_unit_test(safetensors_metadata_is_text),
        cmocka_unit_test(safetensors_names_may_be_empty_or_hold_nul),
        cmocka_unit_test(safetensors_knows_every_dtype_of_the_format),
        cmocka_unit_test(safetensors_takes_a_header_of_many_tensors),
        cmocka_unit_test(safetensors_allows_any_rank_up_to_a_limit),
        cmocka_unit_test(safetensors_refuses_broken_entries),
        cmocka_unit_test(safetensors_refuses_sizes_that_do_not_add_up),
        cmocka_unit_test(white_space_in_front_of_the_header_is_refused_with_a_way_out),
        cmocka_unit_test(safetensors_refuses_tensors_that_share_bytes_or_names),
        cmocka_unit_test(safetensors_refuses_files_whose_length_lies),
        cmocka_unit_test(safetensors_errors_count_from_the_start_of_the_file),
        cmocka_unit_test(hostile_names_do_not_reach_the_terminal),
        cmocka_unit_test(foreign_files_are_named_for_what_they_are),
        cmocka_unit_test(only_regular_files_are_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
