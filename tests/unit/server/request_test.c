// request_test.c — requests as clients send them, and as nobody should.
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/request.h"
#include "support.h"

#include <math.h>

static rn_request_limits limits = {.vocab_size = 1000, .choices = 8, .model = RN_STR("tiny")};

static rn_request request;
static rn_problem problem;

static bool read_request(rn_request_kind kind, const char *body) {
    return rn_request_read(kind, rn_str_from(body), &limits, &request, &problem);
}

static void accept(rn_request_kind kind, const char *body) {
    if (!read_request(kind, body)) fail_msg("%s\n%s: %s", body, problem.code, problem.message);
}

static void accept_and_free(rn_request_kind kind, const char *body) {
    accept(kind, body);
    rn_request_free(&request);
}

static void refuse(rn_request_kind kind, const char *body, const char *code, const char *field) {
    if (read_request(kind, body)) fail_msg("taken: %s", body);
    assert_int_equal(problem.http, strcmp(code, "model_not_found") == 0 ? 404 : 400);
    assert_string_equal(problem.code, code);
    assert_string_equal(problem.field, field);
    assert_true(problem.message[0]);
    assert_null(request.memory.current);
}

static void assert_text(rn_str text, const char *expected) {
    assert_true(rn_str_equal(text, rn_str_from(expected)));
}

// A completion with one more field.
static const char *with(const char *field) {
    static char body[4096];
    snprintf(body, sizeof body, "{\"prompt\": \"a\", %s}", field);
    return body;
}

static const char *chat_with(const char *field) {
    static char body[4096];
    snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}",
             field);
    return body;
}

static const char *message_with(const char *fields) {
    static char body[4096];
    snprintf(body, sizeof body, "{\"messages\": [{%s}]}", fields);
    return body;
}

// ---- what is taken ------------------------------------------------------------------------------

static void the_seeds_request_has_the_seeds_defaults(void **state) {
    (void)state;
    accept(RN_REQUEST_GENERATE, "{\"prompt\": \"Once\"}");
    assert_int_equal(request.prompt_count, 1);
    assert_text(request.prompts[0].text, "Once");
    assert_null(request.prompts[0].ids);
    assert_int_equal(request.n, 1);
    assert_int_equal(request.max_tokens, 0);
    assert_float_equal(request.sampling.temperature, 0.7f, 0);
    assert_float_equal(request.sampling.top_p, 0.9f, 0);
    assert_int_equal(request.sampling.top_k, 50);
    assert_float_equal(request.sampling.repetition_penalty, 1.1f, 0);
    assert_false(request.has_seed || request.logprobs || request.stream);
    assert_null(request.model.data);
    rn_request_free(&request);
}

static void a_completion_has_all_its_fields(void **state) {
    (void)state;
    accept(RN_REQUEST_COMPLETION,
           "{\"model\": \"tiny\", \"prompt\": \"h\\u00e9\\n\\ud83d\\ude00\", \"max_tokens\": 7,"
           "\"temperature\": 0.5, \"top_p\": 0.25, \"n\": 2, \"stream\": true,"
           "\"stream_options\": {\"include_usage\": true, \"include_obfuscation\": false},"
           "\"logprobs\": 5, \"echo\": false, \"stop\": [\"a\", \"b\\\"\"],"
           "\"presence_penalty\": -2, \"frequency_penalty\": 2e0, \"best_of\": 2,"
           "\"logit_bias\": {\"5\": -100, \"999\": 1.5}, \"seed\": -3, \"user\": \"me\","
           "\"suffix\": \"\", \"top_k\": 4e1, \"min_p\": 0.125, \"repetition_penalty\": 1.25}");
    assert_text(request.model, "tiny");
    assert_text(request.prompts[0].text, "h\xC3\xA9\n\xF0\x9F\x98\x80");
    assert_int_equal(request.max_tokens, 7);
    assert_int_equal(request.n, 2);
    assert_true(request.stream && request.stream_usage && request.logprobs && request.has_seed);
    assert_int_equal(request.sampling.logprobs, 5);
    assert_int_equal(request.stop_count, 2);
    assert_text(request.stops[0], "a");
    assert_text(request.stops[1], "b\"");
    assert_float_equal(request.sampling.temperature, 0.5f, 0);
    assert_float_equal(request.sampling.top_p, 0.25f, 0);
    assert_float_equal(request.sampling.min_p, 0.125f, 0);
    assert_float_equal(request.sampling.repetition_penalty, 1.25f, 0);
    assert_float_equal(request.sampling.presence_penalty, -2, 0);
    assert_float_equal(request.sampling.frequency_penalty, 2, 0);
    assert_int_equal(request.sampling.top_k, 40);
    assert_true(request.sampling.seed == (uint64_t)-3);
    assert_int_equal(request.sampling.bias_count, 2);
    assert_int_equal(request.sampling.bias[0].token, 5);
    assert_true(isinf(request.sampling.bias[0].bias));
    assert_int_equal(request.sampling.bias[1].token, 999);
    assert_float_equal(request.sampling.bias[1].bias, 1.5f, 0);
    rn_request_free(&request);
}

static void prompts_are_texts_or_tokens_one_or_several(void **state) {
    (void)state;
    accept(RN_REQUEST_COMPLETION, "{\"prompt\": [\"a\", \"\", \"\\u0062c\"]}");
    assert_int_equal(request.prompt_count, 3);
    assert_text(request.prompts[1].text, "");
    assert_text(request.prompts[2].text, "bc");
    rn_request_free(&request);
    accept(RN_REQUEST_COMPLETION, "{\"stop\": \"x\", \"prompt\": [1, 2, 999]}");
    assert_int_equal(request.prompt_count, 1);
    assert_int_equal(request.prompts[0].id_count, 3);
    assert_int_equal(request.prompts[0].ids[2], 999);
    assert_text(request.stops[0], "x");
    rn_request_free(&request);
    accept(RN_REQUEST_COMPLETION, "{\"prompt\": [[1], [2, 3]]}");
    assert_int_equal(request.prompt_count, 2);
    assert_int_equal(request.prompts[0].ids[0], 1);
    assert_int_equal(request.prompts[1].ids[1], 3);
    rn_request_free(&request);
}

static void a_chat_has_messages_in_order(void **state) {
    (void)state;
    accept(RN_REQUEST_CHAT,
           "{\"messages\": [{\"role\": \"developer\", \"content\": \"Be \\\"kind\\\".\"},"
           "{\"content\": [{\"type\": \"text\", \"text\": \"a\\n\"}, {\"text\": \"b\", "
           "\"type\": \"text\"}], \"role\": \"user\", \"name\": \"me\"},"
           "{\"role\": \"assistant\", \"content\": \"c\", \"refusal\": null, \"tool_calls\": []}],"
           "\"max_completion_tokens\": 9, \"logprobs\": true, \"top_logprobs\": 3}");
    assert_int_equal(request.message_count, 3);
    assert_int_equal(request.prompt_count, 1);
    assert_text(request.messages[0].role, "system");
    assert_text(request.messages[0].content, "Be \"kind\".");
    assert_text(request.messages[1].role, "user");
    assert_text(request.messages[1].content, "a\nb");
    assert_text(request.messages[2].content, "c");
    assert_int_equal(request.max_tokens, 9);
    assert_true(request.logprobs);
    assert_int_equal(request.sampling.logprobs, 3);
    rn_request_free(&request);
}

static void null_means_not_given(void **state) {
    (void)state;
    accept(RN_REQUEST_COMPLETION,
           with("\"temperature\": null, \"stop\": null, \"logprobs\": null, \"suffix\": null,"
                "\"n\": null, \"model\": null, \"logit_bias\": null, \"stream_options\": null"));
    assert_float_equal(request.sampling.temperature, 1, 0);
    assert_false(request.logprobs);
    assert_int_equal(request.n, 1);
    rn_request_free(&request);
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": null}", "missing", "prompt");
}

static void what_changes_nothing_is_taken(void **state) {
    static const char *const fields[] = {
        "\"tools\": [], \"functions\": [], \"tool_choice\": \"none\", \"function_call\": \"auto\"",
        "\"response_format\": {\"type\": \"text\"}",
        "\"metadata\": {\"a\": {\"b\": [1, 2]}}, \"store\": false, \"user\": \"\\u0061\"",
        "\"parallel_tool_calls\": true, \"modalities\": [\"text\"], \"service_tier\": \"auto\"",
        "\"prediction\": {\"type\": \"content\", \"content\": \"x\"}, \"audio\": null",
        "\"reasoning_effort\": \"none\", \"verbosity\": \"medium\"",
        "\"max_tokens\": 5, \"max_completion_tokens\": 5",
        "\"prompt_cache_options\": {\"mode\": \"explicit\"}, \"moderation\": null",
    };
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        accept_and_free(RN_REQUEST_CHAT, chat_with(fields[i]));
    accept_and_free(RN_REQUEST_CHAT,
                    message_with("\"role\": \"user\", \"content\": [{\"type\": \"text\","
                                 "\"prompt_cache_breakpoint\": {\"mode\": \"explicit\"},"
                                 "\"text\": \"a\"}]"));
}

static void a_top_p_of_nothing_is_the_best_token_alone(void **state) {
    (void)state;
    accept(RN_REQUEST_COMPLETION, with("\"top_p\": 0, \"temperature\": 1e-300"));
    assert_true(request.sampling.top_p > 0 && request.sampling.top_p < 1e-30f);
    assert_float_equal(request.sampling.temperature, 0, 0);
    rn_request_free(&request);
    accept(RN_REQUEST_COMPLETION, with("\"top_p\": 1e-200, \"temperature\": 1e-44"));
    assert_true(request.sampling.top_p > 0);
    assert_float_equal(request.sampling.temperature, 0, 0);
    rn_request_free(&request);
}

static void whole_numbers_may_be_written_otherwise(void **state) {
    (void)state;
    accept(RN_REQUEST_COMPLETION, with("\"max_tokens\": 1.0e1, \"seed\": 9223372036854775807"));
    assert_int_equal(request.max_tokens, 10);
    assert_true(request.sampling.seed == INT64_MAX);
    rn_request_free(&request);
    accept(RN_REQUEST_COMPLETION, with("\"seed\": -9223372036854775808"));
    assert_true(request.sampling.seed == (uint64_t)INT64_MIN);
    rn_request_free(&request);
}

// ---- what is refused ----------------------------------------------------------------------------

static void what_is_not_json_is_refused_with_its_place(void **state) {
    static const char *const bodies[] = {
        "",
        "{",
        "nul",
        "{\"prompt\": \"a\"",
        "{\"a\" 1}",
        "{\"prompt\": \"\xFF\"}",
        "{,}",
        "{\"prompt\": NaN}",
        "\xEF\xBB\xBF{}",
        "{\"prompt\": \"\\ud800\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        refuse(RN_REQUEST_COMPLETION, bodies[i], "invalid_json", "");
        assert_non_null(strstr(problem.message, "at byte "));
    }
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": \"a\"}x", "invalid_json", "");
    refuse(RN_REQUEST_COMPLETION, "[{}]", "invalid_value", "");
    refuse(RN_REQUEST_COMPLETION, "\"prompt\"", "invalid_value", "");
    refuse(RN_REQUEST_CHAT, "null", "invalid_value", "");
}

static void wrong_types_name_the_field(void **state) {
    (void)state;
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": 5}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": {}}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": []}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [[]]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [\"a\", 1]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [1, \"a\"]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [true]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [[1, [2]]]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_GENERATE, "{\"prompt\": [\"a\"]}", "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, with("\"temperature\": \"1\""), "invalid_value", "temperature");
    refuse(RN_REQUEST_COMPLETION, with("\"max_tokens\": true"), "invalid_value", "max_tokens");
    refuse(RN_REQUEST_COMPLETION, with("\"max_tokens\": 1.5"), "invalid_value", "max_tokens");
    refuse(RN_REQUEST_COMPLETION, with("\"stream\": 1"), "invalid_value", "stream");
    refuse(RN_REQUEST_COMPLETION, with("\"stop\": [1]"), "invalid_value", "stop");
    refuse(RN_REQUEST_COMPLETION, with("\"stop\": {}"), "invalid_value", "stop");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": []"), "invalid_value", "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"x\": 1}"), "invalid_value",
           "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"\": 1}"), "invalid_value", "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"1\": \"\"}"), "invalid_value",
           "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"model\": 5"), "invalid_value", "model");
    refuse(RN_REQUEST_COMPLETION, with("\"user\": 5"), "invalid_value", "user");
    refuse(RN_REQUEST_CHAT, "{\"messages\": \"hi\"}", "invalid_value", "messages");
    refuse(RN_REQUEST_CHAT, "{\"messages\": [\"hi\"]}", "invalid_value", "messages[0]");
    refuse(RN_REQUEST_CHAT, chat_with("\"logprobs\": 5"), "invalid_value", "logprobs");
    refuse(RN_REQUEST_CHAT, chat_with("\"metadata\": []"), "invalid_value", "metadata");
}

static void numbers_out_of_range_name_the_limits(void **state) {
    (void)state;
    refuse(RN_REQUEST_COMPLETION, with("\"top_p\": 1.01"), "out_of_range", "top_p");
    assert_string_equal(problem.message, "top_p is 1.01: it must be from 0 to 1");
    refuse(RN_REQUEST_COMPLETION, with("\"temperature\": -0.1"), "out_of_range", "temperature");
    refuse(RN_REQUEST_COMPLETION, with("\"temperature\": 1e999"), "out_of_range", "temperature");
    refuse(RN_REQUEST_COMPLETION, with("\"max_tokens\": 0"), "out_of_range", "max_tokens");
    assert_string_equal(problem.message, "max_tokens is 0: it must be from 1 to 4294967295");
    refuse(RN_REQUEST_COMPLETION, with("\"max_tokens\": 1e300"), "out_of_range", "max_tokens");
    refuse(RN_REQUEST_COMPLETION, with("\"max_tokens\": 99999999999999999999"), "out_of_range",
           "max_tokens");
    refuse(RN_REQUEST_COMPLETION, with("\"seed\": 9223372036854775808"), "out_of_range", "seed");
    refuse(RN_REQUEST_COMPLETION, with("\"seed\": 1e30"), "out_of_range", "seed");
    refuse(RN_REQUEST_COMPLETION, with("\"top_k\": -1"), "out_of_range", "top_k");
    refuse(RN_REQUEST_COMPLETION, with("\"n\": 9"), "out_of_range", "n");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [\"a\", \"b\", \"c\"], \"n\": 3}", "out_of_range",
           "n");
    refuse(RN_REQUEST_COMPLETION, with("\"logprobs\": 21"), "out_of_range", "logprobs");
    refuse(RN_REQUEST_COMPLETION, with("\"presence_penalty\": 2.5"), "out_of_range",
           "presence_penalty");
    refuse(RN_REQUEST_COMPLETION, with("\"repetition_penalty\": 0"), "out_of_range",
           "repetition_penalty");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"1\": 101}"), "out_of_range",
           "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"1000\": 1}"), "invalid_value",
           "logit_bias");
    refuse(RN_REQUEST_COMPLETION, with("\"stop\": \"\""), "out_of_range", "stop");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [1000]}", "out_of_range", "prompt");
    refuse(RN_REQUEST_COMPLETION, "{\"prompt\": [-1]}", "out_of_range", "prompt");
    refuse(RN_REQUEST_CHAT, chat_with("\"top_logprobs\": 21"), "out_of_range", "top_logprobs");
    refuse(RN_REQUEST_COMPLETION,
           with("\"stop\": [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\","
                "\"9\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\"]"),
           "out_of_range", "stop");
}

static void a_number_of_many_digits_is_refused(void **state) {
    char field[600];
    (void)state;
    memset(field, '1', sizeof field);
    memcpy(field, "\"top_p\": 0.", 11);
    field[sizeof field - 1] = '\0';
    refuse(RN_REQUEST_COMPLETION, with(field), "invalid_value", "top_p");
}

static void pass_over(rn_request_kind kind, const char *body, const char *name) {
    accept(kind, body);
    assert_string_equal(request.unknown, name);
    rn_request_free(&request);
}

static void what_nobody_knows_is_passed_over_and_named(void **state) {
    (void)state;
    pass_over(RN_REQUEST_COMPLETION, with("\"temprature\": 1"), "temprature");
    pass_over(RN_REQUEST_COMPLETION, with("\"messages\": [{\"a\": [1, {}]}], \"x\": 2"),
              "messages");
    pass_over(RN_REQUEST_CHAT, chat_with("\"prompt\": \"a\""), "prompt");
    pass_over(RN_REQUEST_GENERATE, with("\"echo\": true"), "echo");
    pass_over(RN_REQUEST_COMPLETION, with("\"stream_options\": {\"x\": {}}"), "x");
    pass_over(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": \"a\", \"x\": [[]]"),
              "x");
    pass_over(RN_REQUEST_COMPLETION, with("\"n\": 1"), "");
    refuse(RN_REQUEST_COMPLETION, with("\"x\": [1}"), "invalid_json", "");
}

static void a_field_given_twice_is_refused(void **state) {
    (void)state;
    refuse(RN_REQUEST_COMPLETION, with("\"prompt\": \"b\""), "invalid_value", "prompt");
    refuse(RN_REQUEST_COMPLETION, with("\"n\": null, \"n\": 1"), "invalid_value", "n");
    refuse(RN_REQUEST_COMPLETION, with("\"n\": 1, \"\\u006e\": 1"), "invalid_value", "n");
    refuse(RN_REQUEST_COMPLETION, with("\"logit_bias\": {\"1\": 1, \"01\": 2}"), "invalid_value",
           "logit_bias");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"role\": \"user\""), "invalid_value",
           "messages[0].role");
    refuse(RN_REQUEST_CHAT, message_with("\"content\": \"\", \"content\": \"\""), "invalid_value",
           "messages[0].content");
}

static void a_format_is_text_or_json_with_or_without_a_schema(void **state) {
    (void)state;
    accept(RN_REQUEST_CHAT, chat_with("\"response_format\": {\"type\": \"json_object\"}"));
    assert_true(request.json && request.schema.bytes == 0);
    rn_request_free(&request);
    accept(RN_REQUEST_COMPLETION,
           with("\"response_format\": {\"json_schema\": {\"name\": \"x\", \"schema\": {\"a\": "
                "[\"\\u0061\"]}, \"strict\": true}, \"type\": \"json_schema\"}"));
    assert_true(request.json);
    assert_text(request.schema, "{\"a\": [\"\\u0061\"]}"); // as it was written
    rn_request_free(&request);
    accept_and_free(RN_REQUEST_CHAT, chat_with("\"response_format\": {\"type\": \"text\"}"));
    refuse(RN_REQUEST_CHAT, chat_with("\"response_format\": {}"), "missing",
           "response_format.type");
    refuse(RN_REQUEST_CHAT, chat_with("\"response_format\": {\"type\": \"json_schema\"}"),
           "missing", "response_format.json_schema");
    refuse(RN_REQUEST_CHAT,
           chat_with("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {}}"),
           "missing", "response_format.json_schema.schema");
}

static void tools_and_their_calls_stay_as_they_were_written(void **state) {
    (void)state;
    accept(RN_REQUEST_CHAT,
           chat_with("\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                     "\"parameters\": {}}}], \"tool_choice\": {\"type\": \"function\", "
                     "\"function\": {\"name\": \"f\"}}"));
    assert_text(request.tools, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                               "\"parameters\": {}}}]");
    assert_int_equal(request.tool_choice, RN_TOOL_CHOICE_REQUIRED);
    assert_text(request.tool_name, "f");
    rn_request_free(&request);
    accept(RN_REQUEST_CHAT,
           message_with("\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": "
                        "\"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
                        "\"arguments\": \"{}\"}}]"));
    assert_non_null(request.messages[0].tools);
    assert_int_equal(request.messages[0].tools->calls.data[0], '[');
    rn_request_free(&request);
    accept(RN_REQUEST_CHAT,
           message_with("\"role\": \"tool\", \"content\": \"7\", \"tool_call_id\": \"1\""));
    assert_text(request.messages[0].tools->call_id, "1");
    rn_request_free(&request);
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"assistant\", \"content\": null"), "missing",
           "messages[0].content");
}

static void what_cannot_be_done_is_refused_by_name(void **state) {
    (void)state;
    refuse(RN_REQUEST_COMPLETION, with("\"best_of\": 2"), "unsupported_value", "best_of");
    refuse(RN_REQUEST_COMPLETION, with("\"suffix\": \"x\""), "unsupported_value", "suffix");
    refuse(RN_REQUEST_COMPLETION, with("\"echo\": true, \"logprobs\": 1"), "unsupported_value",
           "echo");
    refuse(RN_REQUEST_CHAT, chat_with("\"tools\": [{}]"), "missing", "tools");
    refuse(RN_REQUEST_CHAT, chat_with("\"tools\": [{\"type\": \"search\"}]"), "unsupported_value",
           "tools");
    refuse(RN_REQUEST_CHAT, chat_with("\"tools\": [{\"function\": {\"name\": \"a b\"}}]"),
           "invalid_value", "tools");
    refuse(RN_REQUEST_CHAT, chat_with("\"tool_choice\": \"perhaps\""), "unsupported_value",
           "tool_choice");
    refuse(RN_REQUEST_CHAT, chat_with("\"tool_choice\": {}"), "missing", "tool_choice");
    refuse(RN_REQUEST_CHAT, chat_with("\"response_format\": {\"type\": \"grammar\"}"),
           "unsupported_value", "response_format.type");
    refuse(RN_REQUEST_CHAT, chat_with("\"modalities\": [\"audio\"]"), "unsupported_value",
           "modalities");
    refuse(RN_REQUEST_CHAT, chat_with("\"store\": true"), "unsupported_value", "store");
    refuse(RN_REQUEST_CHAT, chat_with("\"audio\": {}"), "unsupported_value", "audio");
    refuse(RN_REQUEST_CHAT, chat_with("\"moderation\": {}"), "unsupported_value", "moderation");
    refuse(RN_REQUEST_CHAT, chat_with("\"reasoning_effort\": \"high\""), "unsupported_value",
           "reasoning_effort");
    refuse(RN_REQUEST_CHAT, chat_with("\"stream_options\": {\"include_obfuscation\": true}"),
           "unsupported_value", "stream_options.include_obfuscation");
    refuse(RN_REQUEST_CHAT, chat_with("\"top_logprobs\": 3"), "invalid_value", "top_logprobs");
    refuse(RN_REQUEST_CHAT, chat_with("\"max_tokens\": 3, \"max_completion_tokens\": 4"),
           "invalid_value", "max_completion_tokens");
}

static void messages_are_checked_one_by_one(void **state) {
    (void)state;
    refuse(RN_REQUEST_CHAT, "{\"messages\": []}", "missing", "messages");
    refuse(RN_REQUEST_CHAT, "{}", "missing", "messages");
    refuse(RN_REQUEST_CHAT, message_with(""), "missing", "messages[0].role");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\""), "missing", "messages[0].content");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"king\", \"content\": \"\""), "invalid_value",
           "messages[0].role");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": null"), "missing",
           "messages[0].content");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": []"), "missing",
           "messages[0].content");
    refuse(RN_REQUEST_CHAT,
           message_with("\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
                        "{\"type\": \"image_url\", \"image_url\": {}}]"),
           "unsupported_value", "messages[0].content[1].type");
    assert_non_null(strstr(problem.message, "image_url"));
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": [{\"image_url\": {}}]"),
           "unsupported_value", "messages[0].content[0]");
    refuse(RN_REQUEST_CHAT,
           message_with("\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\","
                        "\"prompt_cache_breakpoint\": {} nonsense"),
           "invalid_json", "");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": [{\"type\": \"text\"}]"),
           "missing", "messages[0].content[0].text");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"user\", \"content\": [\"a\"]"),
           "invalid_value", "messages[0].content[0]");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"assistant\", \"tool_calls\": [{}]"),
           "missing", "messages[0].tool_calls");
    refuse(RN_REQUEST_CHAT, message_with("\"role\": \"tool\", \"tool_call_id\": 5"),
           "invalid_value", "messages[0].tool_call_id");
}

static void another_model_is_not_found_where_names_are_strict(void **state) {
    (void)state;
    accept_and_free(RN_REQUEST_COMPLETION, with("\"model\": \"gpt-4\""));
    limits.strict_model = true;
    accept_and_free(RN_REQUEST_COMPLETION, with("\"model\": \"tiny\""));
    accept_and_free(RN_REQUEST_COMPLETION, with("\"model\": \"Tiny:latest\""));
    refuse(RN_REQUEST_COMPLETION, with("\"model\": \"gpt-4\""), "model_not_found", "model");
    refuse(RN_REQUEST_COMPLETION, with("\"model\": \"\""), "model_not_found", "model");
    limits.strict_model = false;
}

static void a_model_answers_to_shorter_names(void **state) {
    (void)state;
    rn_str served = RN_STR("qwen2.5-coder-1.5b-instruct:q4_k_m");
    static const char *const good[] = {"qwen2.5-coder-1.5b", "Qwen2.5-Coder-1.5B-Instruct",
                                       "qwen2.5-coder-1.5b:latest", "qwen2.5-coder-1.5b:Q4_K_M",
                                       "Qwen/Qwen2.5-Coder-1.5B"};
    static const char *const bad[] = {"",      "qwen2.5", "qwen2.5-coder-1.5b:q8_0",
                                      "Qwen/", ":q4_k_m", "qwen2.5-coder-1.5b-instruct-x",
                                      "/",     "coder",   "qwen2.5-coder-1.5b-instruct:q4"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(rn_model_name_answers(served, rn_str_from(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(rn_model_name_answers(served, rn_str_from(bad[i])));
    assert_true(rn_model_name_answers(RN_STR("tiny"), RN_STR("any/TINY")));
}

// ---- memory -------------------------------------------------------------------------------------

enum { HOSTILE_BYTES = 1 << 20 };

static char *hostile; // (HOSTILE_BYTES)
static uint64_t worst;

// `head`, then `unit` as often as it goes, then `tail`: whatever comes of it, the bound holds,
// while it is read, too.
static bool flood(rn_request_kind kind, const char *head, const char *unit, const char *tail) {
    size_t bytes = strlen(head), unit_bytes = strlen(unit), tail_bytes = strlen(tail);
    memcpy(hostile, head, bytes);
    for (; bytes + unit_bytes + tail_bytes + 1 <= HOSTILE_BYTES; bytes += unit_bytes)
        memcpy(hostile + bytes, unit, unit_bytes);
    if (*tail && unit_bytes && hostile[bytes - 1] == ',') bytes--;
    memcpy(hostile + bytes, tail, tail_bytes);
    bytes += tail_bytes;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_ledger_reset_peaks();
    bool taken = rn_request_read(kind, (rn_str){hostile, bytes}, &limits, &request, &problem);
    worst = rn_ledger_total(RN_DEVICE_HOST).peak_bytes - before;
    assert_true(worst <= 2 * bytes + RN_REQUEST_FIXED_BYTES);
    assert_true(request.memory.held_bytes <= 2 * bytes + RN_REQUEST_FIXED_BYTES);
    if (!taken) assert_true(problem.http == 400 && problem.message[0]);
    rn_request_free(&request);
    assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
    return taken;
}

static void hostile_bodies_stay_within_their_memory(void **state) {
    (void)state;
    hostile = malloc(HOSTILE_BYTES);
    assert_false(flood(RN_REQUEST_CHAT, "", "[", ""));
    assert_false(flood(RN_REQUEST_CHAT, "{\"messages\":", "[", ""));
    assert_false(flood(RN_REQUEST_CHAT, "{\"metadata\":", "{\"a\":", ""));
    assert_false(flood(RN_REQUEST_CHAT, "{\"messages\":[", "{},", "]}"));
    assert_false(
        flood(RN_REQUEST_CHAT, "{\"messages\":[", "{\"role\":\"user\",\"content\":\"\"},", "]}"));
    assert_non_null(strstr(problem.message, "1024"));
    assert_true(flood(RN_REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[",
                      "{\"type\":\"text\",\"text\":\"\"},", "]}]}"));
    assert_true(flood(RN_REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"",
                      "\\u0000", "\"}]}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"", "\\n", "\"}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"\\n", "a", "\"}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"", "\xF0\x9F\x98\x80", "\"}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":[", "1,", "]}"));
    assert_false(flood(RN_REQUEST_COMPLETION, "{\"prompt\":[", "[1],", "]}"));
    assert_false(flood(RN_REQUEST_COMPLETION, "{\"prompt\":[", "\"\",", "]}"));
    assert_false(
        flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"\",\"logit_bias\":{", "\"0\":1,", "}}"));
    assert_false(flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"\",\"stop\":\"", "a", "\"}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":\"\",\"user\":\"", "\\u0041", "\"}"));
    assert_false(flood(RN_REQUEST_COMPLETION, "{\"", "\\u0041", "\":1}"));
    assert_false(flood(RN_REQUEST_COMPLETION, "{\"n\":", "1", "}"));
    assert_true(flood(RN_REQUEST_COMPLETION, "{\"prompt\":[1", " ", "]}"));
    free(hostile);
}

// Half of it tokens, half of it text with escapes: the most that a body can leave behind.
static void tokens_and_text_together_stay_within_their_memory(void **state) {
    static const char between[] = "],\"user\":\"\\n", end[] = "\"}";
    (void)state;
    hostile = malloc(HOSTILE_BYTES);
    size_t half = HOSTILE_BYTES / 2, bytes = 12;
    memcpy(hostile, "{\"prompt\":[1", bytes);
    for (; bytes < half; bytes += 2)
        memcpy(hostile + bytes, ",1", 2);
    memcpy(hostile + bytes, between, sizeof between - 1);
    bytes += sizeof between - 1;
    memset(hostile + bytes, 'a', HOSTILE_BYTES - bytes);
    memcpy(hostile + HOSTILE_BYTES - 2, end, 2);
    rn_ledger_reset_peaks();
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_true(rn_request_read(RN_REQUEST_COMPLETION, (rn_str){hostile, HOSTILE_BYTES}, &limits,
                                &request, &problem));
    assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes - before <=
                2 * (uint64_t)HOSTILE_BYTES + RN_REQUEST_FIXED_BYTES);
    rn_request_free(&request);
    free(hostile);
}

static void no_memory_is_no_fault_of_the_request(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t nth = 1;; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        bool taken = read_request(RN_REQUEST_COMPLETION, with("\"stop\": [\"\\n\"], \"n\": 2"));
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(taken != fired);
        if (fired) assert_int_equal(problem.http, 503);
        if (taken) rn_request_free(&request);
        assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
        if (!fired) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seeds_request_has_the_seeds_defaults),
        cmocka_unit_test(a_completion_has_all_its_fields),
        cmocka_unit_test(prompts_are_texts_or_tokens_one_or_several),
        cmocka_unit_test(a_chat_has_messages_in_order),
        cmocka_unit_test(null_means_not_given),
        cmocka_unit_test(what_changes_nothing_is_taken),
        cmocka_unit_test(a_top_p_of_nothing_is_the_best_token_alone),
        cmocka_unit_test(whole_numbers_may_be_written_otherwise),
        cmocka_unit_test(what_is_not_json_is_refused_with_its_place),
        cmocka_unit_test(wrong_types_name_the_field),
        cmocka_unit_test(numbers_out_of_range_name_the_limits),
        cmocka_unit_test(a_number_of_many_digits_is_refused),
        cmocka_unit_test(what_nobody_knows_is_passed_over_and_named),
        cmocka_unit_test(a_field_given_twice_is_refused),
        cmocka_unit_test(a_format_is_text_or_json_with_or_without_a_schema),
        cmocka_unit_test(tools_and_their_calls_stay_as_they_were_written),
        cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
        cmocka_unit_test(messages_are_checked_one_by_one),
        cmocka_unit_test(another_model_is_not_found_where_names_are_strict),
        cmocka_unit_test(a_model_answers_to_shorter_names),
        cmocka_unit_test(hostile_bodies_stay_within_their_memory),
        cmocka_unit_test(tokens_and_text_together_stay_within_their_memory),
        cmocka_unit_test(no_memory_is_no_fault_of_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
