// checkpoint_join_test.c — several checkpoints as one, each with a prefix before its names.
#include "model_files.h"

#include "base/fault.h"
#include "io/checkpoint.h"

static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                             "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}";

static rn_checkpoint *open_part(const char *name, float first) {
    const float values[] = {first, first + 1, first + 2};
    rn_checkpoint *part;
    write_safetensors(test_path(name), header, sizeof header - 1, values, sizeof values);
    assert_ok(rn_checkpoint_open(test_path(name), &part));
    return part;
}

static float value_of(const rn_checkpoint *c, const char *name, uint64_t count, uint64_t at) {
    float values[2] = {0};
    const rn_tensor_info *t = rn_checkpoint_find(c, name);
    assert_non_null(t);
    assert_int_equal(t->elements, count);
    assert_ok(rn_checkpoint_load(c, t, RN_DTYPE_F32, values, count * sizeof *values));
    return values[at];
}

static void parts_keep_their_values_under_longer_names(void **state) {
    static const char *const prefixes[] = {"", "text.", "text.2."};
    rn_checkpoint *parts[3], *all;
    (void)state;
    for (int i = 0; i < 3; i++)
        parts[i] = open_part(i == 0 ? "p0" : i == 1 ? "p1" : "p2", (float)(10 * i));
    assert_ok(rn_checkpoint_join((const rn_checkpoint *const *)parts, prefixes, 3, &all));
    for (int i = 0; i < 3; i++) // what they were made of is not needed any more
        rn_checkpoint_close(parts[i]);
    assert_int_equal(rn_checkpoint_count(all), 6);
    assert_int_equal(rn_checkpoint_file_count(all), 3);
    assert_true(value_of(all, "a", 2, 1) == 1 && value_of(all, "b", 1, 0) == 2);
    assert_true(value_of(all, "text.a", 2, 0) == 10 && value_of(all, "text.b", 1, 0) == 12);
    assert_true(value_of(all, "text.2.a", 2, 1) == 21 && value_of(all, "text.2.b", 1, 0) == 22);
    assert_null(rn_checkpoint_find(all, "text.2.c"));
    rn_checkpoint_close(all);
}

static void names_that_meet_and_memory_are_refused(void **state) {
    static const char *const same[] = {"x.", "x."};
    rn_checkpoint *part = open_part("p", 0), *all;
    const rn_checkpoint *parts[] = {part, part};
    (void)state;
    assert_fails(RN_CORRUPT, rn_checkpoint_join(parts, same, 2, &all));
    assert_null(all);
    rn_checkpoint_close(part);
    static const char empty[16] = "\2\0\0\0\0\0\0\0{}";
    assert_ok(rn_checkpoint_open_memory("made", empty, 10, &part));
    assert_fails(RN_UNSUPPORTED,
                 rn_checkpoint_join((const rn_checkpoint *const *)&part, same, 1, &all));
    rn_checkpoint_close(part);
}

static void every_failed_allocation_is_survived(void **state) {
    static const char *const prefixes[] = {"", "text."};
    rn_checkpoint *parts[] = {open_part("p0", 0), open_part("p1", 1)}, *all = NULL;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    (void)state;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_checkpoint_join((const rn_checkpoint *const *)parts, prefixes, 2, &all);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_checkpoint_close(all);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    rn_checkpoint_close(parts[0]);
    rn_checkpoint_close(parts[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_keep_their_values_under_longer_names),
        cmocka_unit_test(names_that_meet_and_memory_are_refused),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
