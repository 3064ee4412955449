// names_test.c — variants by name: ours, alma's, and those that nobody has.
#include "support.h"

#include "base/str.h"

#include <ration/bench.h>

static void names_become_canonical(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"cpu", "cpu", "ration"},
        {"cpu+int8", "cpu+int8", "ration"},
        {"cpu+avx2+bf16", "cpu+bf16+avx2", "ration"}, // axes have one order
        {"cpu+af32+int8", "cpu+int8+af32", "ration"},
        {"cpu+fp16", "cpu+f16", "ration"},
        {"xla:cpu+f32", "xla:cpu+f32", "xla"},
        {"ort+O3", "ort+O3", "ort"},
        {"cuda:1+bf16+graph", "cuda:1+bf16+graph", "cuda"},
        {"eager", "eager", "eager"},
        {"torch:cuda+compile", "torch:cuda+compile", "torch"},
        {"empty", "empty", "empty"},
        {"EAGER", "eager", "eager"},
        {"ONNX_CPU", "ort", "ort"},
        {"FP16+EAGER", "eager+f16", "eager"},
        {"COMPILE_OPENXLA", "xla:cuda", "xla"},
        {"OPTIMUM_QUANTO_WI8", "cpu+int8+af32", "ration"},
        {"OPTIMIM_QUANTO_Wf8E5M2+COMPILE_CUDAGRAPHS", "cuda+f8_e5m2+graph", "cuda"},
        {"OPTIMUM_QUANTO_Wf8E5M2+COMPILE_CUDAGRAPHS", "cuda+f8_e5m2+graph", "cuda"},
        {"BF16+COMPILE_CUDAGRAPHS", "cuda+bf16+graph", "cuda"},
        {"0", "eager", "eager"},
        {"2", "ort", "ort"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_bench_name name;
        assert_ok(rn_bench_name_parse(rn_str_from(cases[i][0]), &name));
        assert_string_equal(name.name, cases[i][1]);
        assert_string_equal(name.engine, cases[i][2]);
    }
}

static void unknown_names_are_refused_with_the_nearest(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"COMPILE_INDUCTOR", "COMPILE_INDUCTOR_DEFAULT"}, // the seed's own, which alma drops
        {"OPENVINO", "COMPILE_OPENVINO"},
        {"eagre", "eager"},
        {"cpu+int88", "cpu+int8"},
        {"ONNX_CUP", "ONNX_CPU"},
    };
    static const char *const others[] = {"",       "+",    "cpu+",     "cpu+int8+int8",
                                         "cpu+O3", "auto", "cpu,ort",  "cpu++int8",
                                         "FP16",   "94",   "cpu+graph"};
    rn_bench_name name;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(RN_NOT_FOUND, rn_bench_name_parse(rn_str_from(cases[i][0]), &name));
        if (!strstr(rn_last_error()->hint, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], rn_last_error()->hint);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_fails(RN_NOT_FOUND, rn_bench_name_parse(rn_str_from(others[i]), &name));
}

static void each_of_almas_names_means_something_or_says_why_not(void **state) {
    (void)state;
    size_t count = 0;
    const char *name, *meaning, *reason;
    for (; (name = rn_bench_alias(count, &meaning, &reason)); count++) {
        rn_bench_name parsed;
        char text[80];
        snprintf(text, sizeof text, "%s", name);
        rn_status s = rn_bench_name_parse(rn_str_from(text), &parsed);
        assert_true((meaning != NULL) != (reason != NULL));
        if (meaning) {
            char wanted[80];
            snprintf(wanted, sizeof wanted, "%s", meaning);
            assert_ok(s);
            assert_string_equal(parsed.name, wanted);
        } else {
            assert_int_equal(s, RN_UNSUPPORTED);
            assert_true(rn_last_error()->hint[0]);
        }
    }
    assert_int_equal(count, 94);
}

static void a_tier_is_what_is_here(void **state) {
    (void)state;
    rn_bench_name one[64], two[64], three[64];
    size_t first = rn_bench_tier(1, NULL, false, one, 64);
    size_t second = rn_bench_tier(2, NULL, false, two, 64);
    size_t third = rn_bench_tier(3, NULL, false, three, 64);
    assert_true(first >= 4 && second > first && third > second);
    for (size_t i = 0; i < first; i++)
        assert_string_equal(one[i].name, two[i].name);
    assert_int_equal(rn_bench_tier(1, NULL, false, one, 2), 2);
    size_t cpu = rn_bench_tier(3, "cpu", false, three, 64);
    for (size_t i = 0; i < cpu; i++)
        assert_string_equal(three[i].target, "cpu"); // the device is what was asked for
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_canonical),
        cmocka_unit_test(unknown_names_are_refused_with_the_nearest),
        cmocka_unit_test(each_of_almas_names_means_something_or_says_why_not),
        cmocka_unit_test(a_tier_is_what_is_here),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
