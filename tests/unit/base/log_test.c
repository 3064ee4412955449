// labels: threads
// The log: levels, forms, and lines that stay whole whoever writes them.
#include "support.h"
#include "json_check.h"
#include "base/str.h"
#include <ration/log.h>

#include <pthread.h>

// Where the log goes. It needs no lock of its own: that is what is tested.
static char captured[1 << 20];
static size_t captured_bytes;

static rn_status capture(void *self, const char *text, size_t bytes) {
    (void)self;
    if (bytes > sizeof captured - captured_bytes) return rn_fail(RN_IO, "the test's log is full");
    memcpy(captured + captured_bytes, text, bytes);
    captured_bytes += bytes;
    return RN_OK;
}

static void start(rn_log_form form, rn_log_level least) {
    captured_bytes = 0;
    rn_log_set((rn_sink){NULL, capture}, form, least);
}

static int stop(void **state) {
    (void)state;
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
    return 0;
}

// The line that begins at *at; moves on to the next one.
static rn_str next_line(size_t *at) {
    const char *begin = captured + *at;
    const char *end = memchr(begin, '\n', captured_bytes - *at);
    assert_non_null(end);
    *at = (size_t)(end + 1 - captured);
    return (rn_str){begin, (size_t)(end - begin)};
}

static void silent_without_a_sink(void **state) {
    (void)state;
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
    assert_false(rn_log_wants(RN_LOG_ERROR));
    rn_log(RN_LOG_ERROR, "test", "nobody hears this");
    rn_log_line(RN_LOG_ERROR, RN_STR("nor this"));
}

static void levels_below_the_least_are_not_written(void **state) {
    (void)state;
    for (int least = RN_LOG_DEBUG; least <= RN_LOG_OFF; least++) {
        start(RN_LOG_TEXT, (rn_log_level)least);
        for (int level = RN_LOG_DEBUG; level <= RN_LOG_OFF; level++) {
            size_t before = captured_bytes;
            bool expected = level >= least && level < RN_LOG_OFF;
            assert_int_equal(expected, rn_log_wants((rn_log_level)level));
            rn_log((rn_log_level)level, "test", "hello");
            assert_int_equal(expected, captured_bytes > before);
            before = captured_bytes;
            rn_log_line((rn_log_level)level, RN_STR("hello"));
            assert_int_equal(expected, captured_bytes > before);
        }
    }
}

// "12:03:04.123 warning reader: message"
static void text_lines_have_time_level_part_and_message(void **state) {
    (void)state;
    size_t at = 0;
    start(RN_LOG_TEXT, RN_LOG_DEBUG);
    assert_int_equal(RN_LOG_TEXT, rn_log_form_get());
    rn_log(RN_LOG_WARNING, "reader", "read %d of %s", 7, "x.gguf");
    rn_str line = next_line(&at);
    assert_true(rn_str_matches(line, RN_STR("??:??:??.??? warning reader: read 7 of x.gguf")));
    rn_log_line(RN_LOG_INFO, RN_STR("as it is"));
    assert_true(rn_str_equal(RN_STR("as it is"), next_line(&at)));
    assert_int_equal(captured_bytes, at);
}

// "⚠️ 12:03:04.123 warning reader: message"
static void symbols_stand_before_the_text(void **state) {
    (void)state;
    size_t at = 0;
    start(RN_LOG_SYMBOLS, RN_LOG_DEBUG);
    assert_int_equal(RN_LOG_SYMBOLS, rn_log_form_get());
    for (int level = RN_LOG_DEBUG; level < RN_LOG_OFF; level++) {
        char text[64];
        snprintf(text, sizeof text, "%s ??:??:??.??? %s test: \x3f[2J", rn_log_symbol(level),
                 rn_log_level_name(level));
        rn_log((rn_log_level)level, "test", "\x1b[2J");
        rn_str line = next_line(&at);
        assert_true(rn_utf8_valid(line));
        assert_true(rn_str_matches(line, rn_str_from(text)));
    }
    assert_string_equal("⚠️", rn_log_symbol(RN_LOG_WARNING));
    assert_string_equal("❌", rn_log_symbol(RN_LOG_ERROR));
    assert_int_equal(captured_bytes, at);
}

static void json_lines_are_objects(void **state) {
    (void)state;
    size_t at = 0;
    char text[64];
    start(RN_LOG_JSON, RN_LOG_DEBUG);
    assert_int_equal(RN_LOG_JSON, rn_log_form_get());
    rn_log(RN_LOG_ERROR, "convert", "a \"%s\"\n\x1b", "name");
    rn_str line = next_line(&at);
    assert_int_equal(captured_bytes, at);
    assert_true(test_json_valid(line.data, line.bytes));
    assert_true(test_json_get(line.data, line.bytes, "level", text, sizeof text));
    assert_string_equal("error", text);
    assert_true(test_json_get(line.data, line.bytes, "part", text, sizeof text));
    assert_string_equal("convert", text);
    assert_true(test_json_get(line.data, line.bytes, "message", text, sizeof text));
    assert_string_equal("a \"name\"\n\x1b", text);
    assert_true(test_json_get(line.data, line.bytes, "time", text, sizeof text));
    assert_true(rn_str_matches(rn_str_from(text), RN_STR("20*-*-*T??:??:??.???Z")));
}

static void message_is_one_line_whatever_is_in_it(void **state) {
    (void)state;
    size_t at = 0;
    start(RN_LOG_TEXT, RN_LOG_DEBUG);
    rn_log(RN_LOG_INFO, "test", "one\n12:00:00.000 error forged: two\r\x1b[2J\x7f");
    rn_str line = next_line(&at);
    assert_int_equal(captured_bytes, at);
    assert_true(rn_str_ends(line, RN_STR("test: one 12:00:00.000 error forged: two??[2J?")));
}

static void long_messages_are_cut_and_stay_valid(void **state) {
    (void)state;
    static const char fills[] = {'x', '"', '\x01', '\xff'};
    static char text[5000];
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(text, fills[i], sizeof text - 1);
        size_t at = 0;
        start(RN_LOG_JSON, RN_LOG_DEBUG);
        rn_log(RN_LOG_INFO, "test", "%s", text);
        rn_str line = next_line(&at);
        assert_true(test_json_valid(line.data, line.bytes));
        assert_int_equal(captured_bytes, at);
        start(RN_LOG_TEXT, RN_LOG_DEBUG);
        at = 0;
        rn_log(RN_LOG_INFO, "test", "%s", text);
        assert_true(next_line(&at).bytes > 1000);
        assert_int_equal(captured_bytes, at);
    }
    memset(text, 'p', sizeof text - 1);
    for (int form = RN_LOG_TEXT; form <= RN_LOG_SYMBOLS; form++) {
        size_t at = 0;
        start((rn_log_form)form, RN_LOG_DEBUG);
        rn_log(RN_LOG_INFO, text, "a part longer than any line");
        rn_str line = next_line(&at);
        assert_int_equal(captured_bytes, at);
        if (form == RN_LOG_JSON) assert_true(test_json_valid(line.data, line.bytes));
    }
}

static rn_status refuse(void *self, const char *text, size_t bytes) {
    (void)self, (void)text, (void)bytes;
    return rn_fail(RN_IO, "the disk is full");
}

static void failing_sink_leaves_the_story_alone(void **state) {
    (void)state;
    (void)rn_hint(rn_fail(RN_CORRUPT, "the story"), "and its hint");
    rn_log_set((rn_sink){NULL, refuse}, RN_LOG_TEXT, RN_LOG_DEBUG);
    rn_log(RN_LOG_ERROR, "test", "lost");
    rn_log_line(RN_LOG_ERROR, RN_STR("lost"));
    assert_int_equal(RN_CORRUPT, rn_last_error()->status);
    assert_string_equal("the story", rn_last_error()->message);
    assert_string_equal("and its hint", rn_last_error()->hint);
}

// ---- threads ---------------------------------------------------------------------------

enum { THREADS = 8, LINES = 200 };

static void *speak(void *self) {
    int number = *(int *)self;
    for (int i = 0; i < LINES; i++)
        rn_log(RN_LOG_INFO, "thread", "%d:%d:%.*s.", number, i, 20 + i % 30,
               "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    return NULL;
}

static void all_speak(rn_log_form form) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    start(form, RN_LOG_INFO);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(0, pthread_create(&threads[i], NULL, speak, &numbers[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

// Each thread's lines, in its order, none torn, none lost.
static void check_message(const char *message, int next[THREADS]) {
    int number, line, end;
    char letters[64];
    assert_int_equal(3, sscanf(message, "%d:%d:%63[a-z].%n", &number, &line, letters, &end));
    assert_int_equal(strlen(message), end);
    assert_in_range(number, 0, THREADS - 1);
    assert_int_equal(next[number]++, line);
    assert_int_equal(20 + line % 30, strlen(letters));
}

static void text_lines_stay_whole_under_many_threads(void **state) {
    (void)state;
    int next[THREADS] = {0};
    size_t at = 0;
    all_speak(RN_LOG_TEXT);
    for (int i = 0; i < THREADS * LINES; i++) {
        char message[256];
        rn_str line = next_line(&at);
        assert_true(rn_str_matches(line, RN_STR("??:??:??.??? info thread: *")));
        snprintf(message, sizeof message, "%.*s", (int)line.bytes - 26, line.data + 26);
        check_message(message, next);
    }
    assert_int_equal(captured_bytes, at);
}

static void json_lines_stay_whole_under_many_threads(void **state) {
    (void)state;
    int next[THREADS] = {0};
    size_t at = 0;
    all_speak(RN_LOG_JSON);
    for (int i = 0; i < THREADS * LINES; i++) {
        char message[256];
        rn_str line = next_line(&at);
        assert_true(test_json_valid(line.data, line.bytes));
        assert_true(test_json_get(line.data, line.bytes, "message", message, sizeof message));
        check_message(message, next);
    }
    assert_int_equal(captured_bytes, at);
}

static void log_may_be_replaced_while_others_write(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    captured_bytes = 0;
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(0, pthread_create(&threads[i], NULL, speak, &numbers[i]));
    }
    for (int i = 0; i < 200; i++)
        rn_log_set((rn_sink){NULL, i % 3 ? capture : NULL}, (rn_log_form)(i % 2), RN_LOG_DEBUG);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t at = 0; at < captured_bytes;) {
        rn_str line = next_line(&at);
        assert_true(line.data[0] == '{'
                        ? test_json_valid(line.data, line.bytes)
                        : rn_str_matches(line, RN_STR("??:??:??.??? info thread: *.")));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_without_a_sink),
        cmocka_unit_test(levels_below_the_least_are_not_written),
        cmocka_unit_test(text_lines_have_time_level_part_and_message),
        cmocka_unit_test(symbols_stand_before_the_text),
        cmocka_unit_test(json_lines_are_objects),
        cmocka_unit_test(message_is_one_line_whatever_is_in_it),
        cmocka_unit_test(long_messages_are_cut_and_stay_valid),
        cmocka_unit_test(failing_sink_leaves_the_story_alone),
        cmocka_unit_test(text_lines_stay_whole_under_many_threads),
        cmocka_unit_test(json_lines_stay_whole_under_many_threads),
        cmocka_unit_test(log_may_be_replaced_while_others_write),
    };
    return cmocka_run_group_tests(tests, NULL, stop);
}
