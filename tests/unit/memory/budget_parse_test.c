// Budgets as users write them.
#include "support.h"
#include "base/str.h"
#include <ration/memory.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static rn_budget_spec parse(const char *text) {
    rn_budget_spec spec;
    assert_ok(rn_budget_parse(rn_str_from(text), &spec));
    return spec;
}

static void expect_entry(const rn_budget_spec *spec, size_t i, const char *device, uint64_t bytes,
                         bool planned_only) {
    assert_true(i < spec->count);
    assert_string_equal(device, spec->entries[i].device);
    assert_int_equal(bytes, spec->entries[i].bytes);
    assert_int_equal(planned_only, spec->entries[i].planned_only);
}

static void bare_size_is_for_the_host(void **state) {
    (void)state;
    rn_budget_spec spec = parse("2GiB");
    assert_int_equal(1, spec.count);
    expect_entry(&spec, 0, "host", 2 * GIB, false);
    spec = parse("4096");
    expect_entry(&spec, 0, "host", 4096, false);
}

static void devices_may_be_named(void **state) {
    (void)state;
    rn_budget_spec spec = parse("host=8GiB,cuda:0=4GiB,cuda:1=800MB");
    assert_int_equal(3, spec.count);
    expect_entry(&spec, 0, "host", 8 * GIB, false);
    expect_entry(&spec, 1, "cuda:0", 4 * GIB, false);
    expect_entry(&spec, 2, "cuda:1", 800000000, false);
    spec = parse("1G,cuda:0=2G");
    assert_int_equal(2, spec.count);
    expect_entry(&spec, 0, "host", GIB, false);
}

static void plus_counts_planned_bytes_only(void **state) {
    (void)state;
    rn_budget_spec spec = parse("+512MiB");
    expect_entry(&spec, 0, "host", 512 * MIB, true);
    spec = parse("host=1G,cuda:0=+512MiB");
    expect_entry(&spec, 0, "host", GIB, false);
    expect_entry(&spec, 1, "cuda:0", 512 * MIB, true);
}

static void percentages_are_of_what_the_process_may_use(void **state) {
    (void)state;
    rn_process_info info;
    assert_ok(rn_process_read(&info));
    uint64_t whole = rn_process_whole_bytes(&info);
    rn_budget_spec spec = parse("100%");
    expect_entry(&spec, 0, "host", whole, false);
    spec = parse("75%");
    expect_entry(&spec, 0, "host", (uint64_t)((unsigned __int128)whole * 75 / 100), false);
    spec = parse("+50%");
    expect_entry(&spec, 0, "host", whole / 2, true);
    spec = parse("host=50%,cuda:0=1G");
    expect_entry(&spec, 0, "host", whole / 2, false);
}

static void what_is_no_budget_is_refused_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "it is empty"},
        {"host=", "it is empty"},
        {"+", "it is empty"},
        {"1G,", "it is empty"},
        {",1G", "it is empty"},
        {"much", "not a size"},
        {"-1G", "not a size"},
        {"++1G", "not a size"},
        {"host=1G=2G", "not a size"},
        {"cuda:0=50%", "a percentage is for the host only"},
        {"101%", "more than the whole"},
        {"=1G", "names no device"},
        {"a-name-of-24-characters.=1G", "names no device"},
        {"host=1G,host=2G", "names host twice"},
        {"1G,host=2G", "names host twice"},
        {"1G,2G", "names host twice"},
        {"0", "holds nothing"},
        {"0.5B", "holds nothing"},
        {"0%", "holds nothing"},
        {"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1", "at most 8 devices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_budget_spec spec;
        if (rn_budget_parse(rn_str_from(cases[i].text), &spec) != RN_INVALID)
            fail_msg("'%s' was taken", cases[i].text);
        if (!strstr(rn_last_error()->message, cases[i].message))
            fail_msg("'%s': %s", cases[i].text, rn_last_error()->message);
    }
    rn_budget_spec spec;
    assert_fails(RN_INVALID, rn_budget_parse((rn_str){NULL, 0}, &spec));
}

static void as_many_devices_as_there_are_places(void **state) {
    (void)state;
    rn_budget_spec spec = parse("a=1,b=2,c=3,d=4,e=5,f=6,g=7,a-name-of-23-characters=8");
    assert_int_equal(RN_BUDGET_ENTRIES, spec.count);
    expect_entry(&spec, 6, "g", 7, false);
    expect_entry(&spec, 7, "a-name-of-23-characters", 8, false);
}

static void only_the_bytes_given_are_read(void **state) {
    (void)state;
    rn_budget_spec spec;
    const char text[] = {'2', 'G', ',', 'x', '=', '1'};
    assert_ok(rn_budget_parse((rn_str){text, 2}, &spec));
    expect_entry(&spec, 0, "host", 2 * GIB, false);
    assert_ok(rn_budget_parse((rn_str){text, 6}, &spec));
    expect_entry(&spec, 1, "x", 1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bare_size_is_for_the_host),
        cmocka_unit_test(devices_may_be_named),
        cmocka_unit_test(plus_counts_planned_bytes_only),
        cmocka_unit_test(percentages_are_of_what_the_process_may_use),
        cmocka_unit_test(what_is_no_budget_is_refused_with_a_reason),
        cmocka_unit_test(as_many_devices_as_there_are_places),
        cmocka_unit_test(only_the_bytes_given_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
