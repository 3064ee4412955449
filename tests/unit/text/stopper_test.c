// Stop strings: every way of cutting the text gives the same result, and nothing waits that is
// certain.
#include "support.h"

#include <ration/generate.h>
#include <ration/memory.h>

#include "base/fault.h"
#include "base/str.h"

typedef struct output {
    char text[256];
    size_t bytes;
} output;

static rn_status append(void *self, const char *text, size_t bytes) {
    output *o = self;
    assert_true(o->bytes + bytes < sizeof o->text);
    memcpy(o->text + o->bytes, text, bytes);
    o->text[o->bytes += bytes] = 0;
    return RN_OK;
}

static rn_status refuse(void *self, const char *text, size_t bytes) {
    (void)self, (void)text, (void)bytes;
    return rn_fail(RN_IO, "full");
}

static rn_stopper *make(const char *const *stops, size_t count) {
    rn_str strings[8];
    rn_stopper *stopper;
    for (size_t i = 0; i < count; i++)
        strings[i] = rn_str_from(stops[i]);
    assert_ok(rn_stopper_create(strings, count, &stopper));
    return stopper;
}

static bool put(rn_stopper *stopper, const char *text, output *o) {
    bool stopped = false;
    assert_ok(rn_stopper_put(stopper, rn_str_from(text), (rn_sink){o, append}, &stopped));
    return stopped;
}

// The text in two pieces, and byte by byte; flushed where there was no stop.
static void check(const char *const *stops, size_t count, const char *text, const char *expected,
                  bool stops_there) {
    size_t bytes = strlen(text);
    for (size_t cut = 0; cut <= bytes + 1; cut++) {
        rn_stopper *stopper = make(stops, count);
        output o = {0};
        bool stopped = false;
        for (size_t at = 0, n; at < bytes; at += n) {
            char piece[256] = "";
            n = cut > bytes ? 1 : at < cut ? cut - at : bytes - at;
            memcpy(piece, text + at, n);
            stopped = put(stopper, piece, &o);
        }
        if (!stopped) assert_ok(rn_stopper_flush(stopper, (rn_sink){&o, append}));
        assert_string_equal(o.text, expected);
        assert_int_equal(stopped, stops_there);
        rn_stopper_destroy(stopper);
    }
}

static void text_ends_where_a_stop_string_begins(void **state) {
    (void)state;
    check((const char *[]){"</s>"}, 1, "one</s>two", "one", true);
    check((const char *[]){"</s>"}, 1, "one</", "one</", false);
    check((const char *[]){"\n\n", "User:"}, 2, "a\nb\n\nc", "a\nb", true);
    check((const char *[]){"\n\n", "User:"}, 2, "aUser: UsUser:", "a", true);
    check((const char *[]){"x"}, 1, "", "", false);
    check(NULL, 0, "all of it", "all of it", false);
}

static void overlapping_beginnings_are_not_lost(void **state) {
    (void)state;
    check((const char *[]){"aab"}, 1, "aaab", "a", true);
    check((const char *[]){"abac"}, 1, "ababac", "ab", true);
    check((const char *[]){"aaa"}, 1, "aabaaa", "aab", true);
    check((const char *[]){"<end>", "<ender"}, 2, "x<ende", "x<ende", false);
    check((const char *[]){"<|im_end|>", "<|im_start|>"}, 2, "hi<|im_<|im_start|>", "hi<|im_",
          true);
}

static void the_first_complete_stop_counts_and_of_two_the_longer(void **state) {
    (void)state;
    check((const char *[]){"abcd", "bc"}, 2, "xabcd", "xa", true);
    check((const char *[]){"bc", "abc"}, 2, "xabcd", "x", true);
}

static void what_is_certain_is_written_at_once(void **state) {
    (void)state;
    rn_stopper *stopper = make((const char *[]){"STOP", "TOPS"}, 2);
    output o = {0};
    assert_false(put(stopper, "hello", &o));
    assert_string_equal(o.text, "hello");
    assert_false(put(stopper, " S", &o));
    assert_string_equal(o.text, "hello ");
    assert_false(put(stopper, "TO", &o));
    assert_string_equal(o.text, "hello ");
    assert_false(put(stopper, "T", &o)); // only the last T may begin TOPS
    assert_string_equal(o.text, "hello STO");
    assert_true(put(stopper, "OPS and more", &o));
    assert_string_equal(o.text, "hello STO");
    assert_true(put(stopper, "more", &o));
    assert_ok(rn_stopper_flush(stopper, (rn_sink){&o, append}));
    assert_string_equal(o.text, "hello STO");
    rn_stopper_destroy(stopper);
}

static void a_failing_sink_is_told(void **state) {
    (void)state;
    rn_stopper *stopper = make((const char *[]){"stop"}, 1);
    bool stopped;
    assert_fails(RN_IO, rn_stopper_put(stopper, RN_STR("text"), (rn_sink){NULL, refuse}, &stopped));
    rn_stopper_destroy(stopper);
}

static void an_empty_or_endless_stop_string_is_refused(void **state) {
    (void)state;
    rn_stopper *stopper;
    char many[300];
    memset(many, 'a', sizeof many);
    assert_fails(RN_INVALID, rn_stopper_create(&(rn_str){"", 0}, 1, &stopper));
    assert_null(stopper);
    assert_fails(RN_INVALID, rn_stopper_create(&(rn_str){many, sizeof many}, 1, &stopper));
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_stopper_create(&(rn_str){"a", 1}, 1, &stopper));
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_null(stopper);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_where_a_stop_string_begins),
        cmocka_unit_test(overlapping_beginnings_are_not_lost),
        cmocka_unit_test(the_first_complete_stop_counts_and_of_two_the_longer),
        cmocka_unit_test(what_is_certain_is_written_at_once),
        cmocka_unit_test(a_failing_sink_is_told),
        cmocka_unit_test(an_empty_or_endless_stop_string_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
