// Sizes as people write and read them, and sinks.
#include "support.h"
#include "base/buffer.h"
#include "base/str.h"

#include <locale.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)

// ---- parsing ---------------------------------------------------------------------------

static void expect_size(const char *text, uint64_t whole, uint64_t expected) {
    uint64_t bytes = ~expected;
    rn_status s = rn_size_parse(rn_str_from(text), whole, &bytes);
    if (s != RN_OK) fail_msg("'%s': %s", text, rn_last_error()->message);
    if (bytes != expected)
        fail_msg("'%s' is %llu, not %llu", text, (unsigned long long)bytes,
                 (unsigned long long)expected);
}

static void expect_refusal(const char *text, uint64_t whole, const char *why) {
    uint64_t bytes = 1;
    rn_status s = rn_size_parse(rn_str_from(text), whole, &bytes);
    if (s != RN_INVALID) fail_msg("'%s' was taken for %llu", text, (unsigned long long)bytes);
    const rn_error_info *story = rn_last_error();
    if (!strstr(story->message, why)) fail_msg("'%s': %s", text, story->message);
    assert_non_null(strstr(story->message, text));
    assert_non_null(strstr(story->hint, "2GiB"));
    assert_int_equal(0, bytes);
}

static void plain_numbers_are_bytes(void **state) {
    (void)state;
    expect_size("0", 0, 0);
    expect_size("1", 0, 1);
    expect_size("4096", 0, 4096);
    expect_size("4096b", 0, 4096);
    expect_size("4096 B", 0, 4096);
    expect_size("007", 0, 7);
    expect_size("12.", 0, 12);
    expect_size("12.9", 0, 12); // no part of a byte
}

static void letters_and_ib_are_powers_of_1024(void **state) {
    (void)state;
    static const struct {
        const char *letter;
        uint64_t bytes;
    } units[] = {{"k", KIB}, {"m", MIB}, {"g", GIB}, {"t", TIB}};
    for (size_t i = 0; i < 4; i++) {
        const char *forms[] = {"3%s", "3%sib", "3%siB", "3 %s", "3  %sIB", "3.0%s", "03%s"};
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            char text[32];
            const char upper[2] = {(char)(units[i].letter[0] - 32), '\0'};
            const char *spellings[] = {units[i].letter, upper};
            for (size_t c = 0; c < 2; c++) {
                // The forms are the test's own.
                const char *mark = strstr(forms[f], "%s");
                snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - forms[f]), forms[f],
                         spellings[c], mark + 2);
                expect_size(text, 0, 3 * units[i].bytes);
            }
        }
    }
    expect_size("2GiB", 0, 2 * GIB);
    expect_size("1.5G", 0, GIB + GIB / 2);
    expect_size(".5K", 0, 512);
    expect_size("0.25T", 0, TIB / 4);
}

static void kb_and_its_like_are_powers_of_1000(void **state) {
    (void)state;
    expect_size("1KB", 0, 1000);
    expect_size("800MB", 0, 800000000);
    expect_size("2gb", 0, 2000000000);
    expect_size("3 Tb", 0, 3000000000000);
    expect_size("1.5kB", 0, 1500);
}

static void decimal_fractions_are_exact(void **state) {
    (void)state;
    expect_size("1.001MB", 0, 1001000); // 1.001 * 1e6 is less than that in floating point
    expect_size("4.35KB", 0, 4350);
    expect_size("1.1GB", 0, 1100000000);
    expect_size("0.57KB", 0, 570);
    expect_size("0.000000000001TB", 0, 1);
    expect_size("0.0000000000009TB", 0, 0);
    expect_size("0.1K", 0, 102);
    for (uint64_t n = 0; n < 1000; n++) {
        char text[32];
        snprintf(text, sizeof text, "%llu.%03lluKB", (unsigned long long)(n * 7),
                 (unsigned long long)n);
        expect_size(text, 0, n * 7000 + n);
    }
}

static void numbers_above_2_to_the_53_stay_exact(void **state) {
    (void)state;
    expect_size("9007199254740993", 0, 9007199254740993);
    expect_size("9007199254740993 b", 0, 9007199254740993);
    expect_size("9007199254740.993KB", 0, 9007199254740993);
    expect_size("8388607.5T", 0, 8388607 * TIB + TIB / 2);
    expect_size("9007199254740991K", 0, 9007199254740991 * KIB);
    expect_size("1152921504606846977", 0, 1152921504606846977);
    expect_size("9223372036854775807", 0, INT64_MAX);
    expect_size("0000000000000000000000000000000000000000005", 0, 5);
}

static void sizes_of_2_to_the_63_and_more_are_too_large(void **state) {
    (void)state;
    expect_refusal("9223372036854775808", 0, "too large");
    expect_refusal("18446744073709551616", 0, "too large"); // 0 in 64 bits
    expect_refusal("8388608T", 0, "too large");
    expect_refusal("9007199254740992K", 0, "too large");
    expect_refusal("16777216.5T", 0, "too large");
    expect_refusal("99999999999999999999999999999999999999999999GB", 0, "too large");
}

static void percentages_are_of_the_whole(void **state) {
    (void)state;
    expect_size("75%", 1000, 750);
    expect_size("75 %", 1001, 750);
    expect_size("100%", 12345, 12345);
    expect_size("0%", 12345, 0);
    expect_size("12.5%", 64 * GIB, 8 * GIB);
    expect_size("0.1%", 1000, 1);
    expect_size("57%", 100, 57);
    expect_size("29%", 100, 29);
    expect_size("100%", UINT64_MAX / 2, UINT64_MAX / 2);
    expect_size("50%", UINT64_MAX, UINT64_MAX / 2);
    expect_refusal("101%", 1000, "more than the whole");
    expect_refusal("100.001%", 1000, "more than the whole");
    expect_refusal("75%", 0, "no whole");
}

static void what_is_no_size_is_refused_with_a_reason(void **state) {
    (void)state;
    uint64_t bytes;
    expect_refusal("", 1000, "empty");
    assert_fails(RN_INVALID, rn_size_parse((rn_str){NULL, 0}, 1000, &bytes));
    expect_refusal("-1", 1000, "positive number");
    expect_refusal("+1", 1000, "positive number");
    expect_refusal(" 1", 1000, "positive number");
    expect_refusal(".", 1000, "positive number");
    expect_refusal(".K", 1000, "positive number");
    expect_refusal("1.2.3", 1000, "positive number");
    expect_refusal("..5", 1000, "positive number");
    expect_refusal("GiB", 1000, "positive number");
    expect_refusal("nan", 1000, "positive number");
    expect_refusal("1,5G", 1000, "unit is unknown");
    expect_refusal("1e3", 1000, "unit is unknown");
    expect_refusal("0x10", 1000, "unit is unknown");
    expect_refusal("5 parsecs", 1000, "unit is unknown");
    expect_refusal("5P", 1000, "unit is unknown");
    expect_refusal("5%%", 1000, "unit is unknown");
    expect_refusal("5GiBs", 1000, "unit is unknown");
    expect_refusal("1 G iB", 1000, "unit is unknown");
    assert_fails(RN_INVALID, rn_size_parse((rn_str){"5\0K", 3}, 1000, &bytes));
}

static void only_the_bytes_given_are_read(void **state) {
    (void)state;
    uint64_t bytes;
    const char text[] = {'1', '2', '3', 'K'};
    assert_ok(rn_size_parse((rn_str){text, 2}, 0, &bytes));
    assert_int_equal(12, bytes);
    assert_ok(rn_size_parse((rn_str){text, 4}, 0, &bytes));
    assert_int_equal(123 * KIB, bytes);
}

static void decimal_point_does_not_depend_on_the_locale(void **state) {
    (void)state;
    test_write_decimal_commas();
    expect_size("1.5K", 0, 1536);
    expect_refusal("1,5K", 0, "unit is unknown");
    setlocale(LC_NUMERIC, "C");
}

// ---- formatting ------------------------------------------------------------------------

static void sizes_are_written_with_three_figures(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {12, "12 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {10 * 1024, "10.0 KiB"},
        {100 * 1024, "100 KiB"},
        {1000 * 1024, "1000 KiB"},
        {3 * (GIB / 2), "1.50 GiB"},
        {TIB, "1.00 TiB"},
        {TIB * 1024, "1.00 PiB"},
        {TIB * 1024 * 1024, "1.00 EiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cases[i].text, rn_size_format(cases[i].bytes).text);
}

static void times_are_written_with_three_figures(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {
        {0, "0.00 us"},    {1.5e-6, "1.50 us"}, {123e-6, "123 us"}, {1e-3, "1.00 ms"},
        {0.778, "778 ms"}, {1, "1.00 s"},       {45.678, "45.7 s"}, {119, "119 s"},
        {120, "2.00 min"}, {7199, "120 min"},   {7200, "2.00 h"},   {36e4, "100 h"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cases[i].text, rn_time_format(cases[i].seconds).text);
}

static void whole_sizes_can_be_read_back(void **state) {
    (void)state;
    for (int shift = 0; shift <= 43; shift++)
        expect_size(rn_size_format((uint64_t)1 << shift).text, 0, (uint64_t)1 << shift);
}

// ---- sinks -----------------------------------------------------------------------------

static void file_sink_writes_what_it_is_given(void **state) {
    (void)state;
    size_t bytes;
    const char *path = test_path("sink");
    FILE *file = fopen(path, "wb");
    rn_sink sink = rn_sink_file(file);
    assert_ok(rn_sink_write(sink, "a\0b", 3));
    assert_ok(rn_sink_write(sink, NULL, 0));
    assert_ok(rn_sink_print(sink, "%d-%s", 42, "x"));
    assert_ok(rn_sink_print(sink, "%s", ""));
    fclose(file);
    char *text = test_read(path, &bytes);
    assert_int_equal(7, bytes);
    assert_memory_equal("a\0b42-x", text, 7);
    free(text);
}

static void failing_file_is_an_io_failure(void **state) {
    (void)state;
    FILE *file = fopen("/dev/full", "wb");
    if (!file) skip_because("no /dev/full");
    setvbuf(file, NULL, _IONBF, 0);
    assert_fails(RN_IO, rn_sink_print(rn_sink_file(file), "hello"));
    assert_non_null(strstr(rn_last_error()->message, "No space left"));
    fclose(file);
}

static void long_printed_text_is_cut_never_overrun(void **state) {
    (void)state;
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 1 << 16);
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    assert_ok(rn_sink_print(rn_buffer_sink(&buffer), "%s", text));
    assert_int_equal(2047, buffer.bytes);
    assert_memory_equal(text, buffer.data, buffer.bytes);
    rn_buffer_free(&buffer);
}

static void counts_are_written_without_exponents(void **state) {
    (void)state;
    static const struct {
        uint64_t count;
        const char *text;
    } cases[] = {{0, "0"},
                 {999, "999"},
                 {1000, "1.00 thousand"},
                 {260032, "260 thousand"},
                 {999499, "999 thousand"},
                 {999500, "1.00 million"},
                 {1943232, "1.94 million"},
                 {1780000000, "1.78 billion"},
                 {7241732096, "7.24 billion"},
                 {2000000000000, "2.00 trillion"},
                 {UINT64_MAX, "18446744 trillion"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(cases[i].text, rn_count_format(cases[i].count).text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_numbers_are_bytes),
        cmocka_unit_test(letters_and_ib_are_powers_of_1024),
        cmocka_unit_test(kb_and_its_like_are_powers_of_1000),
        cmocka_unit_test(decimal_fractions_are_exact),
        cmocka_unit_test(numbers_above_2_to_the_53_stay_exact),
        cmocka_unit_test(sizes_of_2_to_the_63_and_more_are_too_large),
        cmocka_unit_test(percentages_are_of_the_whole),
        cmocka_unit_test(what_is_no_size_is_refused_with_a_reason),
        cmocka_unit_test(only_the_bytes_given_are_read),
        cmocka_unit_test(decimal_point_does_not_depend_on_the_locale),
        cmocka_unit_test(sizes_are_written_with_three_figures),
        cmocka_unit_test(times_are_written_with_three_figures),
        cmocka_unit_test(whole_sizes_can_be_read_back),
        cmocka_unit_test(file_sink_writes_what_it_is_given),
        cmocka_unit_test(failing_file_is_an_io_failure),
        cmocka_unit_test(long_printed_text_is_cut_never_overrun),
        cmocka_unit_test(counts_are_written_without_exponents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
