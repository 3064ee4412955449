// A safetensors file that lies in memory.
#include "model_files.h"

#include "base/fault.h"
#include "io/checkpoint.h"

static void build_file(blob *file) {
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                         "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[8,10]}}";
    float values[2] = {1.5f, -2};
    uint16_t half = 0x3c00;
    *file = (blob){0};
    put_u64(file, strlen(header));
    put_text(file, header);
    put(file, values, sizeof values);
    put(file, &half, sizeof half);
}

static void tensors_are_read_where_they_lie(void **state) {
    (void)state;
    blob file;
    rn_checkpoint *c;
    float values[2];
    build_file(&file);
    assert_ok(rn_checkpoint_open_memory("built in", file.data, file.count, &c));
    assert_int_equal(rn_checkpoint_count(c), 2);
    const rn_tensor_info *a = rn_checkpoint_find(c, "a");
    assert_ok(rn_checkpoint_load(c, a, RN_DTYPE_F32, values, sizeof values));
    assert_true(values[0] == 1.5f && values[1] == -2);
    const rn_tensor_info *b = rn_checkpoint_find(c, "b");
    assert_ptr_equal(rn_checkpoint_memory(c, b), file.data + file.count - 2);
    assert_string_equal(rn_checkpoint_file(c, 0)->path, "built in");
    rn_checkpoint_close(c);
    free(file.data);
}

static void a_tensor_of_a_file_has_no_place_in_memory(void **state) {
    (void)state;
    blob file;
    rn_checkpoint *c;
    build_file(&file);
    put_file(test_path("f.safetensors"), &file);
    assert_ok(rn_checkpoint_open(test_path("f.safetensors"), &c));
    assert_null(rn_checkpoint_memory(c, rn_checkpoint_find(c, "a")));
    rn_checkpoint_close(c);
}

static void what_is_cut_short_is_corrupt(void **state) {
    (void)state;
    blob file;
    rn_checkpoint *c;
    build_file(&file);
    for (size_t bytes = 0; bytes < file.count; bytes++) {
        char *exact = malloc(bytes + !bytes); // so that a sanitizer sees a byte too many
        memcpy(exact, file.data, bytes);
        assert_fails(RN_CORRUPT, rn_checkpoint_open_memory("built in", exact, bytes, &c));
        assert_null(c);
        assert_string_equal(rn_last_error()->path, "built in");
        free(exact);
    }
    free(file.data);
}

static void a_failing_allocation_leaves_nothing(void **state) {
    (void)state;
    blob file;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    build_file(&file);
    for (uint64_t n = 1; fired; n++) {
        rn_checkpoint *c;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_checkpoint_open_memory("built in", file.data, file.count, &c);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_checkpoint_close(c);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    free(file.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read_where_they_lie),
        cmocka_unit_test(a_tensor_of_a_file_has_no_place_in_memory),
        cmocka_unit_test(what_is_cut_short_is_corrupt),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
