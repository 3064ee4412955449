// summary_test.c — which block a tensor belongs to, the order of names with numbers, and the
// totals.
#include "model_files.h"

#include <ration/summary.h>

#include "base/fault.h"
#include "base/str.h"

static void a_block_ends_with_the_first_number_between_dots(void **state) {
    static const char *const names[][2] = {
        {"model.layers.3.self_attn.q_proj.weight", "model.layers.3"},
        {"blk.12.attn_q.weight", "blk.12"},
        {"model.embed_tokens.weight", "model.embed_tokens"},
        {"lm_head.weight", "lm_head"},
        {"weight", "weight"},
        {"", ""},
        {"output.3", "output"}, // not between dots
        {"3.weight", "3"},      // not between dots either, but the name without its last part
        {"a.3.4.weight", "a.3"},
        {"a.3x.4.weight", "a.3x.4"},
        {"a..weight", "a."},
        {"a.", "a"},
        {".weight", ".weight"}, // an empty block would say nothing
        {"down_blocks.0.resnets.1.conv1.weight", "down_blocks.0"},
        {"a.00.b", "a.00"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rn_str block = rn_block_of(rn_str_from(names[i][0]));
        if (!rn_str_equal(block, rn_str_from(names[i][1])))
            fail_msg("%s is in '%.*s', not in '%s'", names[i][0], RN_STR_ARG(block), names[i][1]);
    }
    assert_int_equal(rn_block_of((rn_str){NULL, 0}).bytes, 0);
    assert_true(rn_str_equal(rn_block_of(RN_STR("a\0.1.b")), RN_STR("a\0.1")));
}

static void names_compare_by_the_value_of_their_numbers(void **state) {
    static const char *const rising[] = {
        "",
        ".",
        "1",
        "2",
        "10",
        "010a",
        "11",
        "99999999999999999999",
        "99999999999999999999a",
        "100000000000000000000",
        "a",
        "a.",
        "a.2",
        "a.2.b",
        "a.03",
        "a.10",
        "a.10.b",
        "a.x",
        "a1b2",
        "a1b10",
        "a2",
        "aa",
        "b",
    };
    const size_t count = sizeof rising / sizeof *rising;
    (void)state;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            int order = rn_natural_compare(rn_str_from(rising[i]), rn_str_from(rising[k]));
            if ((order > 0) - (order < 0) != (i > k) - (i < k))
                fail_msg("'%s' against '%s': %d", rising[i], rising[k], order);
        }
    assert_true(rn_natural_compare(RN_STR("a\0b"), RN_STR("a")) > 0);
    assert_true(rn_natural_compare(RN_STR("\xff"), RN_STR("a")) > 0);
    assert_int_equal(rn_natural_compare((rn_str){NULL, 0}, RN_STR("")), 0);
}

// ---- totals ------------------------------------------------------------------------------------

static rn_checkpoint *open_model(void) {
    rn_checkpoint *c;
    blob header = {0};
    uint64_t at = 0;
    put_text(&header, "{");
    for (int i = 0; i < 12; i++, at += 8)
        put_format(&header,
                   "\"model.layers.%d.w\":{\"dtype\":\"F32\",\"shape\":[2],"
                   "\"data_offsets\":[%d,%d]},",
                   11 - i, (int)at, (int)at + 8);
    put_format(&header,
               "\"model.layers.3.b\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[%d,%d]},",
               (int)at, (int)at);
    put_format(&header,
               "\"model.layers.3.c\":{\"dtype\":\"F16\",\"shape\":[80],\"data_offsets\":[%d,%d]}}",
               (int)at, (int)at + 160);
    write_safetensors(test_path("m.safetensors"), header.data, header.count, NULL, at + 160);
    free(header.data);
    assert_ok(rn_checkpoint_open(test_path("m.safetensors"), &c));
    return c;
}

static void totals_add_up_in_natural_order(void **state) {
    rn_checkpoint *c = open_model();
    rn_summary s;
    (void)state;
    assert_ok(rn_summary_make(c, &s));
    assert_int_equal(s.block_count, 12);
    for (size_t i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%zu", i);
        assert_true(rn_str_equal(s.blocks[i].name, rn_str_from(name)));
        assert_int_equal(s.blocks[i].tensors, i == 3 ? 3 : 1);
        assert_int_equal(s.blocks[i].elements, i == 3 ? 82 : 2);
        assert_int_equal(s.blocks[i].bytes, i == 3 ? 168 : 8);
    }
    assert_int_equal(s.dtype_count, 2);
    assert_true(rn_str_equal(s.dtypes[0].name, RN_STR("f16"))); // the larger one
    assert_int_equal(s.dtypes[0].tensors, 2);
    assert_int_equal(s.dtypes[0].bytes, 160);
    assert_int_equal(s.dtypes[1].tensors, 12);
    assert_int_equal(s.elements, 104);
    assert_int_equal(s.bytes, 256);
    rn_summary_free(&s);
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

static void a_model_without_tensors_has_an_empty_summary(void **state) {
    rn_checkpoint *c;
    rn_summary s;
    (void)state;
    write_safetensors(test_path("m.safetensors"), "{}", 2, NULL, 0);
    assert_ok(rn_checkpoint_open(test_path("m.safetensors"), &c));
    assert_ok(rn_summary_make(c, &s));
    assert_int_equal(s.block_count + s.dtype_count + s.bytes, 0);
    rn_summary_free(&s);
    rn_checkpoint_close(c);
}

static void a_summary_survives_every_failing_allocation(void **state) {
    rn_checkpoint *c = open_model();
    uint64_t before = held_bytes();
    bool fired = true;
    (void)state;
    for (uint64_t n = 1; fired; n++) {
        rn_summary s;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status status = rn_summary_make(c, &s);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        assert_int_equal(status, fired ? RN_NO_MEMORY : RN_OK);
        rn_summary_free(&s);
        assert_int_equal(held_bytes(), before);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    rn_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_ends_with_the_first_number_between_dots),
        cmocka_unit_test(names_compare_by_the_value_of_their_numbers),
        cmocka_unit_test(totals_add_up_in_natural_order),
        cmocka_unit_test(a_model_without_tensors_has_an_empty_summary),
        cmocka_unit_test(a_summary_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
