// npy_test.c — headers of .npy files: what is written is read, and what is damaged is refused.
#include "support.h"

#include <ration/npy.h>

static rn_status read_text(const void *text, size_t bytes, rn_npy *out) {
    const char *path = test_path("x.npy");
    test_write(path, text, bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    rn_status s = rn_npy_read_header(file, path, out);
    fclose(file);
    return s;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    const char *path = test_path("y.npy");
    const float values[6] = {1, 2, 3, 4, 5, 6};
    float read[6];
    rn_npy array;
    FILE *file = fopen(path, "w+b");
    assert_non_null(file);
    assert_ok(rn_npy_write_header(file, path, RN_DTYPE_F32, RN_SHAPE(2, 3)));
    assert_int_equal(fwrite(values, 1, sizeof values, file), sizeof values);
    rewind(file);
    assert_ok(rn_npy_read_header(file, path, &array));
    assert_int_equal(array.dtype, RN_DTYPE_F32);
    assert_true(rn_shape_equal(array.shape, RN_SHAPE(2, 3)));
    assert_int_equal(array.bytes, sizeof values);
    assert_int_equal(fread(read, 1, sizeof read, file), sizeof read);
    assert_memory_equal(read, values, sizeof values);
    assert_fails(RN_UNSUPPORTED, rn_npy_write_header(file, path, RN_DTYPE_Q8_0, RN_SHAPE(32)));
    fclose(file);
}

// A header as numpy has it, behind the prefix of version 1.
static rn_status read_header(const char *header, rn_npy *out) {
    char text[512] = "\x93NUMPY\x01";
    size_t bytes = strlen(header);
    text[8] = (char)(bytes & 255);
    text[9] = (char)(bytes >> 8);
    memcpy(text + 10, header, bytes);
    return read_text(text, bytes + 10, out);
}

static void damaged_headers_are_refused(void **state) {
    (void)state;
    static const char *const damaged[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", // no values
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1",
        "{'fortran_order': False, 'shape': (), }\n",
        "{'descr':",
        "\n",
    };
    rn_npy array;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        assert_fails(RN_CORRUPT, read_header(damaged[i], &array));
    assert_fails(RN_UNSUPPORTED,
                 read_header("{'descr': '<f4', 'fortran_order': True, 'shape': (0,), }\n", &array));
    assert_fails(
        RN_UNSUPPORTED,
        read_header("{'descr': '>f4', 'fortran_order': False, 'shape': (0,), }\n", &array));
    assert_ok(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }\n", &array));
    assert_int_equal(array.bytes, 0);
    assert_fails(RN_CORRUPT, read_text("", 0, &array));
    assert_fails(RN_CORRUPT, read_text("\x93NUMPY\x01\x00\x00\x00", 10, &array));
    assert_fails(RN_CORRUPT, read_text("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12, &array));
    assert_fails(RN_CORRUPT, read_text("PK\x03\x04 and so on, an archive", 24, &array));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damaged_headers_are_refused),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
