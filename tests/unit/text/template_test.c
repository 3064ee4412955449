// template_test.c — our own small templates: what each piece of the language renders, what is
// refused and where, what is limited, and what a failing allocation leaves behind. The texts are
// Jinja's own (jinja2 3.1.6 with transformers' environment).
#include "support.h"

#include <ration/chat.h>
#include <ration/memory.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"

static const rn_chat_message messages[] = {
    {RN_STR("system"), RN_STR(" Be h\xc3\xa9lpful. ")},
    {RN_STR("user"), RN_STR("Hi {{ there }}\nline 2")},
    {RN_STR("assistant"), RN_STR("\xf0\x9f\x98\x80 \"ok\" it's")},
};
static const rn_chat chat = {.messages = messages,
                             .count = 3,
                             .add_generation_prompt = true,
                             .bos_token = RN_STR("<s>"),
                             .eos_token = RN_STR("</s>"),
                             .now = 1721952000};

static rn_status render(rn_str source, const rn_chat *with, rn_buffer *out) {
    rn_chat_template *parsed;
    rn_buffer_init(out, &rn_system_allocator, (size_t)64 << 20);
    RN_TRY(rn_chat_template_parse("t", source, &parsed));
    rn_status s = rn_chat_template_render(parsed, with, rn_buffer_sink(out));
    rn_chat_template_free(parsed);
    return s;
}

typedef struct pair {
    const char *source, *text;
} pair;

static void check_pairs(const pair *pairs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        rn_buffer out;
        rn_status s = render(rn_str_from(pairs[i].source), &chat, &out);
        if (s != RN_OK) fail_msg("%s: %s", pairs[i].source, rn_last_error()->message);
        if (!rn_str_equal((rn_str){out.data, out.bytes}, rn_str_from(pairs[i].text)))
            fail_msg("%s: \"%.*s\" instead of \"%s\"", pairs[i].source, (int)out.bytes, out.data,
                     pairs[i].text);
        rn_buffer_free(&out);
    }
}
#define CHECK(pairs) check_pairs(pairs, sizeof pairs / sizeof pairs[0])

static void check_failure(const char *source, rn_status status, const char *message) {
    rn_buffer out;
    rn_status s = render(rn_str_from(source), &chat, &out);
    if (s != status || strcmp(message, rn_last_error()->message) != 0)
        fail_msg("%s: %s \"%s\" instead of %s \"%s\"", source, rn_status_name(s),
                 s == RN_OK ? "" : rn_last_error()->message, rn_status_name(status), message);
    assert_int_equal(0, out.bytes);
    rn_buffer_free(&out);
}

// ---- the language ------------------------------------------------------------------------

static void chatml_and_its_like_render(void **state) {
    static const pair pairs[] = {
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m['content'] | trim + "
         "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
         "'<|im_start|>assistant\\n' }}{% endif %}",
         "<|im_start|>system\nBe h\xc3\xa9lpful.<|im_end|>\n<|im_start|>user\nHi {{ there }}\nline "
         "2<|im_end|>\n<|im_start|>assistant\n\xf0\x9f\x98\x80 \"ok\" it's<|im_end|>\n"
         "<|im_start|>assistant\n"},
        {"{{ bos_token }}{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{% if "
         "(m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif "
         "%}{{ loop.index ~ m.role[0] }}{% endfor %}{{ eos_token }}",
         "<s>1u2a</s>"},
        {"{%- set ns = namespace(found=false, n=0) -%}\n{%- for m in messages -%}\n    {%- if "
         "m.role == 'user' -%}{%- set ns.found = true -%}{%- set ns.n = ns.n + loop.index -%}"
         "{%- endif -%}\n{%- endfor -%}\n{{ ns.found }} {{ ns.n }}",
         "True 2"},
        {"{{ strftime_now('%d %b %Y, %A %-d %B %H:%M:%S %p') }}",
         "26 Jul 2024, Friday 26 July 00:00:00 AM"},
    };
    (void)state;
    CHECK(pairs);
}

static void white_space_follows_trim_and_lstrip(void **state) {
    static const pair pairs[] = {
        {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
        {"a\n  {%+ if true %}\n  b{% endif +%}\nc", "a\n    b\nc"},
        {"a  {%- if true -%}  b  {%- endif -%}  \n c", "abc"},
        {"a {{- 1 -}} b {{ 2 }} \n", "a1b 2 "},
        {"  {# c #}\nx {#- c -#} y\n{# a\nb #}z", "xy\nz"},
        {"{% raw %} {{ x }} {% endraw %}|{%- raw -%} a {%- endraw -%} b", " {{ x }} |ab"},
        {"a\r\nb\rc\r\n\n", "a\nb\nc\n"},
        {"{{ {'a': {'b': 1}}['a']['b'] }}{{ '%}' }}{{ '}}' }}", "1%}}}"},
        {"x{% set a = 1 %}\n\n  {{ a }}", "x\n  1"},
    };
    (void)state;
    CHECK(pairs);
}

static void values_print_as_python_prints_them(void **state) {
    static const pair pairs[] = {
        {"{{ true }} {{ None }} {{ 1 }} {{ -2.50 }} {{ 1e16 }} {{ 1e15 }} {{ 0.00001 }}",
         "True None 1 -2.5 1e+16 1000000000000000.0 1e-05"},
        {"{{ 7 / 2 }} {{ 4 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 0.1 + 0.2 }} "
         "{{ 5.5 // -2 }} {{ 0x1F + 1_000 }}",
         "3.5 2.0 -4 2 -2 0.30000000000000004 -3.0 1031"},
        {"{{ ['a', \"it's\", 'q\"\\n', none] }} {{ {'k': (1,)} }} {{ () }} {{ range(2, 9, 3) }}",
         "['a', \"it's\", 'q\"\\n', None] {'k': (1,)} () range(2, 9, 3)"},
        {"{{ messages[0] }} {{ ['\\x07\\u200b\\u00e9'] }} {{ {'a': 1}.items() }}",
         "{'role': 'system', 'content': ' Be h\xc3\xa9lpful. '} ['\\x07\\u200b\xc3\xa9'] "
         "dict_items([('a', 1)])"},
        {"{{ nope }}|{{ [nope] }}|{{ nope is defined }}|{{ nope ~ 1 }}|{{ messages[9] }}|"
         "{{ bos_token.x }}|{{ 'a' if false }}|{{ nope == nope2 }}",
         "|[Undefined]|False|1||||True"},
        {"{{ 1 == 1.0 == true }} {{ '1' == 1 }} {{ [1, [2]] == [1.0, [2]] }} {{ (1,) == [1] }} "
         "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ 9007199254740993 == 9007199254740992.0 }}",
         "True False True False True False"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ not 0 }} "
         "{{ 0 or 'x' }} {{ '' and 1 }} {{ 'b' in 'abc' }} {{ 'a' not in {'a': 1} }}",
         "True False True True True x  True False"},
    };
    (void)state;
    CHECK(pairs);
}

static void text_is_counted_and_cut_in_code_points(void **state) {
    static const pair pairs[] = {
        {"{{ messages[2].content[0] }}{{ messages[2].content[::-1] }}",
         "\xf0\x9f\x98\x80s'ti \"ko\" \xf0\x9f\x98\x80"},
        {"{{ 'h\xc3\xa9llo'|length }} {{ 'h\xc3\xa9llo'[1:3] }} {{ 'h\xc3\xa9llo'[-4] }} "
         "{{ 'abc'[5:] }}|{{ 'abcdef'[4:0:-2] }}|{{ 'h\xc3\xa9llo'.find('l') }}",
         "5 \xc3\xa9l \xc3\xa9 |ec|2"},
        {"{{ '\xc3\xa9\xc3\x80'.upper() }} {{ '\xc3\x80"
         "B'|lower }} {{ 'a b-c'.title() }} "
         "{{ \"they're (big)\"|title }} {{ 'heLLo'|capitalize }}",
         "\xc3\x89\xc3\x80 \xc3\xa0"
         "b A B-C They're (Big) Hello"},
        {"{{ ' \xe3\x80\x80x\xc2\xa0 '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'ab'.lstrip('a') }}|"
         "{{ '\\n\\na\\n'.rstrip('\\n') }}|",
         "x|a|b|\n\na|"},
        {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }} "
         "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a</think>b'.split('</think>')[-1] }} "
         "{{ 'x\\r\\ny\\x85z'.splitlines() }}",
         "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c'] ['a,b', 'c'] b ['x', 'y', 'z']"},
        {"{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'aXbX'.replace('X', '', "
         "1) }} {{ 'ab'.replace('', '-') }} {{ '-'.join(['p', 'q']) }} {{ 'abcb'.count('b') }} "
         "{{ 'abc'.removeprefix('a') }} {{ 'ab' * 2 }}",
         "True True abX -a-b- p-q 2 bc abab"},
    };
    (void)state;
    CHECK(pairs);
}

static void filters_and_tests_do_as_jinja_does(void **state) {
    static const pair pairs[] = {
        {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
         "['Hi {{ there }}\\nline 2']"},
        {"{{ messages|rejectattr('role', 'in', ['user', 'system'])|list|length }} "
         "{{ [0, 1, '', 'a']|select|list }} {{ [1, 2, 3]|reject('odd')|join('+') }} "
         "{{ ['a', 'B']|map('upper')|join }}",
         "1 [1, 'a'] 2 AB"},
        {"{{ nope|default('d') }} {{ ''|default('d', true) }} {{ none|d('x') }} {{ []|first }}|"
         "{{ 'abc'|last }} {{ [3, 1, 2]|sort }} {{ ['b', 'A']|sort }} {{ ['a', 'A', "
         "'b']|unique|list "
         "}} {{ [3, 1]|max }} {{ {'b': 1, 'a': 2}|dictsort }} {{ [1, 2]|reverse|list }}",
         "d d None |c [1, 2, 3] ['A', 'b'] ['a', 'b'] 3 [('a', 2), ('b', 1)] [2, 1]"},
        {"{{ '42.9'|int }} {{ 'x'|int(7) }} {{ ' 1_0 '|int }} {{ 2.9|int }} {{ '1.5'|float }} "
         "{{ -3|abs }} {{ 5|string + '!' }} {{ 'aXa'|replace('a', 'b') }} {{ ' x '|trim }} "
         "{{ 'a\\nb\\n\\nc'|indent(2) }}",
         "42 7 10 2 1.5 3 5! bXb x a\n  b\n\n  c"},
        {"{{ {'a': [1, 2.0, none, true], 'b': '\\u00e9\"<\\n'}|tojson }} "
         "{{ {'b': 1, 'a': []}|tojson(indent=2, sort_keys=true) }} "
         "{{ '\\u00e9\\U0001f600'|tojson(ensure_ascii=true) }} "
         "{{ [1, {}]|tojson(separators=(',', ':')) }}",
         "{\"a\": [1, 2.0, null, true], \"b\": \"\xc3\xa9\\\"<\\n\"} {\n  \"a\": [],\n  \"b\": 1\n}"
         " \"\\u00e9\\ud83d\\ude00\" [1,{}]"},
        {"{{ 'a' is string }} {{ messages is iterable }} {{ messages[0] is mapping }} {{ 1 is "
         "number }} {{ true is integer }} {{ tools is none }} {{ 4 is divisibleby 2 }} {{ 1 is not "
         "odd }} {{ 'a' is in 'abc' }} {{ nope is undefined }} {{ 2 is ge(2) }} {{ 'A' is upper }}",
         "True True True True False True True False True True True True"},
        {"{{ '<b>'|safe }}{{ 'x'|safe ~ '<' }}", "<b>x<"},
        {"{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys()|list }} "
         "{% for k, v in {'x': 1}.items() %}{{ k }}={{ v }}{% endfor %} {{ {'items': 5}['items'] "
         "}}",
         "1 2 ['a'] x=1 5"},
    };
    (void)state;
    CHECK(pairs);
}

static void statements_have_jinjas_scopes(void **state) {
    static const pair pairs[] = {
        {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}"
         "{% set x = 3 %}{% endif %}{{ x }}",
         "213"},
        {"{% for i in 'abc' %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}"
         "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle(1, 2) }} {% endfor "
         "%}",
         "1TrueFalse23b1 2FalseFalse13ac2 3FalseTrue03b1 "},
        {"{% for i in range(6) if i is odd %}{{ i }}/{{ loop.length }} {% else %}none{% endfor %}"
         "{% for i in [] %}{% else %}none{% endfor %}",
         "1/3 3/3 5/3 none"},
        {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break "
         "%}{% endif %}{{ i }}{% endfor %}{% for i in [1] %}{% break %}{% else %}e{% endfor %}",
         "02e"},
        {"{% macro m(a, b='B') %}[{{ a }}{{ b }}{{ x }}]{% endmacro %}{% set x = 'X' %}{{ m(1) }}"
         "{{ m(b=2, a=3) }}{{ m() }}",
         "[1BX][32X][BX]"},
        {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210"},
        {"{% set a, b = 1, 'q' %}{{ b }}{% set s %} in {{ a }} {% endset %}[{{ s }}]{% set t | "
         "trim "
         "| upper %} x {% endset %}[{{ t }}]{% filter upper %}y{% endfilter %}",
         "q[ in 1 ][X]Y"},
        {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}{% generation %}g{% set z = 1 %}"
         "{% endgeneration %}{{ z }}",
         "3g"},
        {"{% set ns = namespace(go=true) %}{% for i in [1, 2, 3] if ns.go %}{{ i }}{% set ns.go = "
         "false %}{% endfor %}",
         "1"},
        {"{% set g = [1, 2]|map('string') %}{{ g|join }}{{ g|join }}!", "12!"},
        {"{% if 'x' is defined and 1 in (1, 2) %}a{% elif true %}b{% else %}c{% endif %}", "a"},
    };
    (void)state;
    CHECK(pairs);
}

// ---- what fails --------------------------------------------------------------------------

static void what_is_not_known_is_refused_by_name(void **state) {
    static const pair refusals[] = {
        {"a\n {{ x|groupby('y') }}", "t:2:7: the filter 'groupby' is not supported"},
        {"{{ x is escaped }}", "t:1:9: the test 'escaped' is not supported"},
        {"\xc3\xa9{% include 'x' %}", "t:1:5: the statement 'include' is not supported"},
        {"{% do x %}", "t:1:4: the statement 'do' is not supported"},
        {"{{ 2 ** 3 }}", "t:1:6: '**' is not supported in chat templates"},
        {"{{ f(*x) }}", "t:1:6: '*' and '**' before arguments are not supported in chat templates"},
        {"{{ 'a'.zfill(3) }}", "t:1:7: 'zfill' of a text is not supported"},
        {"{{ 'a'.__class__ }}", "t:1:7: '__class__' of a text is not supported"},
        {"{{ '%s' % 1 }}", "t:1:9: formatting text with '%' is not supported"},
        {"{{ [1]|map('upper') }}", "t:1:8: printing a iterator is not supported"},
        {"{{ 'a'|safe + 'b' }}", "t:1:13: adding to markup is not supported"},
        {"{{ '\xc3\x9f'|upper }}", "t:1:8: the upper case of U+00DF is not supported"},
        {"{{ '\\ud800' }}", "t:1:5: this escape in a string is not supported"},
        {"{{ 9223372036854775807 + 1 }}", "t:1:24: whole numbers beyond 64 bits are not supported"},
        {"{{ lipsum() }}", "t:1:10: 'lipsum' is not supported"},
        {"{{ strftime_now('%c') }}", "t:1:16: strftime_now's '%c' is not supported"},
        {"{% for x in y recursive %}{% endfor %}", "t:1:15: the word 'recursive' is not supported"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        check_failure(refusals[i].source, RN_UNSUPPORTED, refusals[i].text);
}

static void broken_syntax_is_corrupt_with_its_place(void **state) {
    static const pair broken[] = {
        {"{% if x %}", "t:1:11: the template ends too early"},
        {"{{ x", "t:1:5: the template ends inside a tag: expected '}}'"},
        {"{{ 'x }}", "t:1:4: this string has no end"},
        {"{# x", "t:1:3: this comment has no end"},
        {"{{ (1] }}", "t:1:6: unexpected ']'"},
        {"{% endif %}", "t:1:4: unexpected 'endif'"},
        {"{{ 1 2 }}", "t:1:6: unexpected '2 '"},
        {"{% set true = 1 %}", "t:1:8: unexpected 'true'"},
        {"{% break %}", "t:1:4: there is no loop here to leave or continue"},
        {"{{ ! }}", "t:1:4: unexpected character '!'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        check_failure(broken[i].source, RN_CORRUPT, broken[i].text);
    check_failure("\xff", RN_CORRUPT, "t: the template is not UTF-8");
}

static void what_fails_in_jinja_is_invalid(void **state) {
    static const pair failing[] = {
        {"{{ raise_exception('Roles must alternate') }}", "Roles must alternate"},
        {"{{ nope.x }}", "t:1:8: 'nope' is undefined"},
        {"{{ 'a' + nope }}", "t:1:8: 'nope' is undefined"},
        {"{{ 'a' + 1 }}", "t:1:8: a text and a int cannot be combined this way"},
        {"{{ messages.append(1) }}", "t:1:19: 'append' is undefined"},
        {"{{ 1 // 0 }}", "t:1:6: division by zero"},
        {"{{ 1 < 'a' }}", "t:1:6: there is no order between int and text"},
        {"{{ none[1:] }}", "t:1:8: a none cannot be sliced"},
        {"{% for a, b in [[1]] %}{% endfor %}", "t:1:8: 2 names for 1 values"},
        {"{{ nope()|tojson }}", "t:1:8: 'nope' is undefined"},
        {"{{ nope|tojson }}", "t:1:9: a undefined cannot be written as JSON"},
        {"{% set x.y = 1 %}", "t:1:8: 'x' is no namespace: its 'y' cannot be set"},
        {"{{ namespace(_a=1) }}", "t:1:13: a namespace keeps no names with '_' in front"},
        {"{{ 'a'.strip(1) }}", "t:1:13: strip takes text, not a int"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++)
        check_failure(failing[i].source, RN_INVALID, failing[i].text);
    check_failure("\n{{ raise_exception('no') }}", RN_INVALID, "no");
    assert_string_equal("t:2:19: raised by the chat template", rn_last_error()->hint);
}

// Where it stops is not what matters.
static void check_limit(const char *source, const char *message) {
    rn_buffer out;
    rn_status s = render(rn_str_from(source), &chat, &out);
    if (s != RN_INVALID || !strstr(rn_last_error()->message, message))
        fail_msg("%.80s: %s \"%s\" instead of \"%s\"", source, rn_status_name(s),
                 rn_last_error()->message, message);
    assert_int_equal(0, out.bytes);
}

static void limits_end_what_would_not_end(void **state) {
    static const pair hungry[] = {
        {"{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}",
         "the chat template takes too many steps"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the chat template nests too deeply"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor "
         "%}{{ ns.x }}",
         "the chat template nests too deeply"},
        {"{{ ('a' * 10000000) ~ ('b' * 10000000) }}", "the chat template takes too many steps"},
        {"{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(30) %}{% set ns.x = ns.x "
         "~ "
         "ns.x %}{% endfor %}",
         "the chat template writes too much text"},
        {"{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(30) %}{% set ns.x = ns.x "
         "+ "
         "ns.x %}{% endfor %}",
         "the chat template holds too much text at once"},
        {"{{ range(100001) }}", "a range may have at most 100000 items"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof hungry / sizeof hungry[0]; i++)
        check_limit(hungry[i].source, hungry[i].text);
}

static void deep_nesting_is_refused_before_the_stack_ends(void **state) {
    static char source[40000];
    static const char *const openers[] = {"(", "[", "-", "not ", "{% if x %}", "a if b else "};
    (void)state;
    for (size_t i = 0; i < sizeof openers / sizeof openers[0]; i++) {
        size_t bytes = openers[i][0] == '{' ? 0 : (size_t)sprintf(source, "{{ ");
        while (bytes + 20 < sizeof source)
            bytes += (size_t)sprintf(source + bytes, "%s", openers[i]);
        if (openers[i][0] != '{') bytes += (size_t)sprintf(source + bytes, "x }}");
        rn_buffer out;
        assert_fails(RN_UNSUPPORTED, render((rn_str){source, bytes}, &chat, &out));
    }
    size_t bytes = (size_t)sprintf(source, "{{ 1");
    while (bytes + 20 < sizeof source)
        bytes += (size_t)sprintf(source + bytes, "+1");
    strcpy(source + bytes, " }}");
    check_limit(source, "the chat template nests too deeply");
}

// ---- the conversation --------------------------------------------------------------------

static void tokens_without_data_and_no_clock_are_undefined(void **state) {
    const rn_chat bare = {.messages = messages, .count = 1, .eos_token = RN_STR("")};
    rn_buffer out;
    (void)state;
    assert_ok(
        render(RN_STR("{{ bos_token is defined }} {{ eos_token is defined }} {{ strftime_now "
                      "is defined }} {{ tools }} {{ documents }} {{ add_generation_prompt }}"),
               &bare, &out));
    assert_true(
        rn_str_equal(RN_STR("False True False None None False"), (rn_str){out.data, out.bytes}));
    rn_buffer_free(&out);
}

static void messages_that_are_not_utf8_are_invalid(void **state) {
    const rn_chat_message broken = {.role = RN_STR("user"), .content = RN_STR("\xff")};
    const rn_chat with = {&broken, 1, false, RN_STR("<s>"), RN_STR("</s>"), 0};
    rn_buffer out;
    (void)state;
    assert_fails(RN_INVALID, render(RN_STR("x"), &with, &out));
    assert_string_equal("message 1 is not UTF-8", rn_last_error()->message);
}

static void an_empty_conversation_has_no_messages(void **state) {
    const rn_chat empty = {NULL, 0, false, RN_STR("<s>"), RN_STR("</s>"), 0};
    rn_buffer out;
    (void)state;
    assert_ok(render(RN_STR("{{ messages|length }}{{ messages[0] is defined }}"), &empty, &out));
    assert_true(rn_str_equal(RN_STR("0False"), (rn_str){out.data, out.bytes}));
    rn_buffer_free(&out);
}

// ---- memory ------------------------------------------------------------------------------

static void a_template_gives_back_all_it_took(void **state) {
    static const char source[] =
        "{% macro f(a) %}{{ a|upper }}{% endmacro %}{% set ns = namespace(x=[]) %}{% for m in "
        "messages %}{% set c %}{{ m.content|trim }}{% endset %}{% set ns.x = ns.x + [c] %}{{ "
        "f(m.role) ~ c[::-1] }}{% endfor %}{{ ns.x|tojson(indent=1) }}{{ ['b', 'a']|sort }}{{ "
        "messages|map(attribute='role')|join(', ') }}{{ strftime_now('%Y') }}";
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_buffer out;
    (void)state;
    assert_ok(render(RN_STR(source), &chat, &out));
    rn_buffer_free(&out);
    assert_int_equal(held, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    for (uint64_t nth = 1;; nth++) {
        assert_true(nth < 1000);
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = render(RN_STR(source), &chat, &out);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_buffer_free(&out);
        assert_int_equal(held, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
        assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, s);
        if (!fired) break;
    }
}

static rn_status refuse(void *self, const char *text, size_t bytes) {
    (void)self;
    (void)text;
    (void)bytes;
    return rn_fail(RN_IO, "the sink is closed");
}

static void a_sink_that_fails_ends_the_rendering(void **state) {
    rn_chat_template *parsed;
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    (void)state;
    assert_ok(rn_chat_template_parse("t", RN_STR("x"), &parsed));
    assert_fails(RN_IO, rn_chat_template_render(parsed, &chat, (rn_sink){NULL, refuse}));
    rn_chat_template_free(parsed);
    assert_int_equal(held, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_and_its_like_render),
        cmocka_unit_test(white_space_follows_trim_and_lstrip),
        cmocka_unit_test(values_print_as_python_prints_them),
        cmocka_unit_test(text_is_counted_and_cut_in_code_points),
        cmocka_unit_test(filters_and_tests_do_as_jinja_does),
        cmocka_unit_test(statements_have_jinjas_scopes),
        cmocka_unit_test(what_is_not_known_is_refused_by_name),
        cmocka_unit_test(broken_syntax_is_corrupt_with_its_place),
        cmocka_unit_test(what_fails_in_jinja_is_invalid),
        cmocka_unit_test(limits_end_what_would_not_end),
        cmocka_unit_test(deep_nesting_is_refused_before_the_stack_ends),
        cmocka_unit_test(tokens_without_data_and_no_clock_are_undefined),
        cmocka_unit_test(messages_that_are_not_utf8_are_invalid),
        cmocka_unit_test(an_empty_conversation_has_no_messages),
        cmocka_unit_test(a_template_gives_back_all_it_took),
        cmocka_unit_test(a_sink_that_fails_ends_the_rendering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
