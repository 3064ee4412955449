// Calls of tools in what a model says: found in any form, in pieces of any length; what is no call
// stays text.
#include "support.h"

#include "base/str.h"
#include "text/tool_calls.h"

typedef struct heard {
    char text[512]; // "said|f({...})|said": calls between bars
    size_t bytes;
} heard;

static void add(heard *h, rn_str text) {
    assert_true(h->bytes + text.bytes < sizeof h->text);
    memcpy(h->text + h->bytes, text.data, text.bytes);
    h->bytes += text.bytes;
    h->text[h->bytes] = 0;
}

static rn_status hear_text(void *self, rn_str text) {
    add(self, text);
    return RN_OK;
}

static rn_status hear_call(void *self, rn_str name, rn_str arguments) {
    add(self, RN_STR("|"));
    add(self, name);
    add(self, RN_STR("("));
    add(self, arguments);
    add(self, RN_STR(")|"));
    return RN_OK;
}

static void expect(rn_tool_form form, bool inside, const char *said, const char *wanted) {
    for (size_t step = 1; step < 20; step += step < 4 ? 1 : 6) {
        heard h = {.text = ""};
        rn_tool_reader reader;
        rn_tool_sink sink = {&h, hear_text, hear_call};
        rn_str rest = rn_str_from(said);
        assert_ok(rn_tool_reader_init(&reader, form, inside));
        while (rest.bytes) {
            size_t bytes = step < rest.bytes ? step : rest.bytes;
            assert_ok(rn_tool_reader_put(&reader, (rn_str){rest.data, bytes}, sink));
            rest = (rn_str){rest.data + bytes, rest.bytes - bytes};
        }
        assert_ok(rn_tool_reader_end(&reader, sink));
        assert_string_equal(h.text, wanted);
        rn_tool_reader_free(&reader);
    }
}

static void a_template_says_how_its_model_calls(void **state) {
    (void)state;
    assert_int_equal(rn_tool_form_of(RN_STR("{{ messages }}")), RN_TOOLS_NONE);
    assert_int_equal(rn_tool_form_of(RN_STR("{% if tools %}<tool_call>{% endif %}")),
                     RN_TOOLS_HERMES);
    assert_int_equal(rn_tool_form_of(RN_STR("{% if tools %}[TOOL_CALLS]{% endif %}")),
                     RN_TOOLS_MISTRAL);
    assert_int_equal(rn_tool_form_of(RN_STR("{% if tools %}\"parameters\"{% endif %}")),
                     RN_TOOLS_LLAMA);
}

static void calls_between_marks(void **state) {
    (void)state;
    expect(RN_TOOLS_HERMES, false, "Just text < 5 <tool", "Just text < 5 <tool");
    expect(
        RN_TOOLS_HERMES, false,
        "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}</x>\"}}\n</tool_call>\n"
        "<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>\n",
        "I look.|f({\"a\": \"}</x>\"})||g({})|");
    expect(RN_TOOLS_HERMES, false, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", // not closed
           "|f({})|");
    expect(RN_TOOLS_HERMES, true, "{\"name\": \"f\", \"arguments\": {\"x\": [1]}}",
           "|f({\"x\": [1]})|");
}

static void what_is_no_call_stays_text(void **state) {
    (void)state;
    expect(RN_TOOLS_HERMES, false, "a<tool_call>{\"name\": \"f\", }</tool_call>b",
           "a<tool_call>{\"name\": \"f\", }</tool_call>b");
    expect(RN_TOOLS_HERMES, false, "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>");
    expect(RN_TOOLS_LLAMA, false, "{\"answer\": 42}", "{\"answer\": 42}");
    expect(RN_TOOLS_LLAMA, false, "{\"name\": \"f\", \"parameters\": {",
           "{\"name\": \"f\", \"parameters\": {");
    expect(RN_TOOLS_MISTRAL, false, "[1, 2]", "[1, 2]");
}

static void a_whole_answer_without_marks(void **state) {
    (void)state;
    expect(RN_TOOLS_HERMES, false, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
           "|f({\"a\": 1})|");
    expect(RN_TOOLS_HERMES, false,
           "```json\n{\n  \"name\": \"f\",\n  \"arguments\": {\"a\": 1}\n}\n```\n",
           "|f({\"a\": 1})|");
    expect(RN_TOOLS_HERMES, false,
           " ```\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}```",
           "|f({})||g({})|");
    // Code, other objects, and calls that somebody talks about are text.
    expect(RN_TOOLS_HERMES, false, "```c\nint a;\n```", "```c\nint a;\n```");
    expect(RN_TOOLS_HERMES, false, "```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```");
    expect(RN_TOOLS_HERMES, false, "{\"name\": \"Ada\"}", "{\"name\": \"Ada\"}");
    expect(RN_TOOLS_HERMES, false, "``", "``");
    expect(RN_TOOLS_HERMES, false,
           "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\nThat was it.",
           "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\nThat was it.");
}

static void whole_answers_that_are_calls(void **state) {
    (void)state;
    expect(RN_TOOLS_LLAMA, false, " {\"name\": \"f\", \"parameters\": {\"a\": 1}}",
           "|f({\"a\": 1})|");
    expect(RN_TOOLS_LLAMA, false,
           "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
           "|f({})||g({})|");
    expect(RN_TOOLS_LLAMA, false, "Hello {\"name\"", "Hello {\"name\"");
    expect(RN_TOOLS_MISTRAL, false,
           "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
           "|f({\"a\": 1})||g({})|");
    expect(RN_TOOLS_MISTRAL, false, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]",
           "|f({})|");
}

static rn_status count_text(void *self, rn_str text) {
    *(size_t *)self += text.bytes;
    return RN_OK;
}

// More than is ever held: text after all, every byte of it.
static void a_call_without_end_becomes_text(void **state) {
    (void)state;
    static char part[4096];
    size_t bytes = 0, said = strlen("<tool_call>");
    rn_tool_reader reader;
    rn_tool_sink sink = {&bytes, count_text, NULL};
    memset(part, 'x', sizeof part);
    assert_ok(rn_tool_reader_init(&reader, RN_TOOLS_HERMES, false));
    assert_ok(rn_tool_reader_put(&reader, RN_STR("<tool_call>"), sink));
    for (int i = 0; i < 2 * RN_TOOL_HELD_BYTES / 4096; i++, said += sizeof part)
        assert_ok(rn_tool_reader_put(&reader, (rn_str){part, sizeof part}, sink));
    assert_ok(rn_tool_reader_end(&reader, sink));
    assert_int_equal(bytes, said);
    assert_int_equal(reader.calls, 0);
    rn_tool_reader_free(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_says_how_its_model_calls),
        cmocka_unit_test(calls_between_marks),
        cmocka_unit_test(what_is_no_call_stays_text),
        cmocka_unit_test(a_whole_answer_without_marks),
        cmocka_unit_test(whole_answers_that_are_calls),
        cmocka_unit_test(a_call_without_end_becomes_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
