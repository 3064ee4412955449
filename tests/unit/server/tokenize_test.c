// labels: alone
// tokenize_test.c — texts to tokens and back, as a client asks for it.
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/server.h"
#include "support.h"

// The engine's: the library's own stays out of this program.
static const rn_tokenizer *tokenizer;
const rn_tokenizer *rn_engine_tokenizer(rn_engine *engine) {
    (void)engine;
    return tokenizer;
}

void rn_engine_get_facts(rn_engine *engine, rn_engine_facts *out) {
    (void)engine;
    *out = (rn_engine_facts){.phase = RN_ENGINE_LOADING};
}

static rn_server server;
static rn_model *model;
static rn_http_answer answer;

enum { ROOM_BYTES = 16 << 20 };

static int open_model(void **state) {
    (void)state;
    rn_request_memory_init(&server.memory, ROOM_BYTES);
    if (rn_model_open(NULL, NULL, &model) != RN_OK) return 1;
    tokenizer = rn_model_tokenizer(model);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rn_model_close(model);
    return 0;
}

static rn_status ask(rn_handler handler, rn_str body) {
    rn_http_request request = {.method = "POST", .path = "/", .body = body};
    rn_buffer_free(&answer.body);
    answer = (rn_http_answer){.status = 200, .file = -1};
    rn_buffer_init(&answer.body, RN_HOST_IO, (size_t)64 << 20);
    uint64_t taken = atomic_load(&server.memory.taken_bytes);
    rn_status s = handler(&server, &request, &answer);
    assert_int_equal(atomic_load(&server.memory.taken_bytes), taken);
    return s;
}

static const char *ask_text(rn_handler handler, const char *body) {
    assert_ok(ask(handler, rn_str_from(body)));
    if (answer.problem.http) fail_msg("%s: %s", body, answer.problem.message);
    assert_ok(rn_buffer_append(&answer.body, "", 1));
    return answer.body.data;
}

static void refuse(rn_handler handler, const char *body, int http, const char *field) {
    assert_ok(ask(handler, rn_str_from(body)));
    assert_int_equal(answer.problem.http, http);
    assert_string_equal(answer.problem.field, field);
    assert_int_equal(answer.body.bytes, 0);
}

static void a_text_becomes_tokens(void **state) {
    static const char *const names[] = {"text", "content", "prompt"};
    char body[64], expected[256];
    rn_tokens tokens = {0};
    (void)state;
    assert_ok(rn_tokenizer_encode(tokenizer, RN_STR("Once upon"), RN_ENCODE_PLAIN, &tokens));
    assert_int_equal(tokens.count, 2);
    snprintf(expected, sizeof expected, "{\"tokens\":[%u,%u],\"count\":2}\n", tokens.ids[0],
             tokens.ids[1]);
    for (size_t i = 0; i < 3; i++) {
        snprintf(body, sizeof body, "{\"%s\": \"Once upon\"}", names[i]);
        assert_string_equal(ask_text(rn_handle_tokenize, body), expected);
    }
    snprintf(expected, sizeof expected,
             "{\"tokens\":[{\"id\":%u,\"piece\":\"Once\"},{\"id\":%u,\"piece\":\" upon\"}],"
             "\"count\":2}\n",
             tokens.ids[0], tokens.ids[1]);
    assert_string_equal(
        ask_text(rn_handle_tokenize, "{\"with_pieces\": true, \"text\": \"Once\\u0020upon\"}"),
        expected);
    assert_non_null(strstr(
        ask_text(rn_handle_tokenize, "{\"with_pieces\": true, \"text\": \"\\u00e9\"}"), "[195]"));
    assert_non_null(
        strstr(ask_text(rn_handle_tokenize, "{\"text\": \"Once upon\", \"add_special\": true}"),
               rn_tokenizer_get_info(tokenizer)->adds_begin ? "\"count\":3" : "\"count\":2"));
    rn_tokens_free(&tokens);
}

// Every byte is somebody's token, so any text comes back as it was.
static void tokens_become_the_text_again(void **state) {
    static const char text[] = "A \\\"cat\\\" \xE2\x82\xAC\\n\\u0001";
    char body[512];
    (void)state;
    snprintf(body, sizeof body, "{\"text\": \"%s\"}", text);
    const char *tokens = ask_text(rn_handle_tokenize, body);
    const char *end = strstr(tokens, ",\"count\"");
    snprintf(body, sizeof body, "%.*s}", (int)(end - tokens), tokens);
    char expected[128];
    snprintf(expected, sizeof expected, "{\"text\":\"%s\"}\n", text);
    assert_string_equal(ask_text(rn_handle_detokenize, body), expected);
    assert_string_equal(ask_text(rn_handle_detokenize, "{\"tokens\": []}"), "{\"text\":\"\"}\n");
}

static void bad_requests_are_refused_by_field(void **state) {
    (void)state;
    refuse(rn_handle_tokenize, "{}", 400, "text");
    refuse(rn_handle_tokenize, "[]", 400, "");
    refuse(rn_handle_tokenize, "{\"text\": 5}", 400, "text");
    refuse(rn_handle_tokenize, "{\"text\": \"a\", \"prompt\": \"a\"}", 400, "prompt");
    refuse(rn_handle_tokenize, "{\"text\": \"a\", \"add_special\": 1}", 400, "add_special");
    refuse(rn_handle_tokenize, "{\"text\": \"a\", \"x\": 1}", 400, "x");
    refuse(rn_handle_tokenize, "{\"text\": \"a\", \"with_pieces\": true, \"with_pieces\": true}",
           400, "with_pieces");
    refuse(rn_handle_tokenize, "{\"text\": \"a\"", 400, "");
    refuse(rn_handle_detokenize, "{}", 400, "tokens");
    refuse(rn_handle_detokenize, "{\"tokens\": \"a\"}", 400, "tokens");
    refuse(rn_handle_detokenize, "{\"tokens\": [-1]}", 400, "tokens");
    refuse(rn_handle_detokenize, "{\"tokens\": [99999999]}", 400, "tokens");
    refuse(rn_handle_detokenize, "{\"tokens\": [1], \"tokens\": [1]}", 400, "tokens");
    refuse(rn_handle_detokenize, "{\"tokens\": [1], \"text\": 1}", 400, "text");
}

static void long_texts_are_too_large(void **state) {
    enum { BYTES = (64 << 10) + 100 };
    char *body = malloc(4 * BYTES);
    (void)state;
    sprintf(body, "{\"text\": \"%0*d\"}", 64 << 10, 0);
    (void)ask_text(rn_handle_tokenize, body);
    sprintf(body, "{\"text\": \"%0*d\"}", (64 << 10) + 1, 0);
    refuse(rn_handle_tokenize, body, 413, "text");
    size_t filled = (size_t)sprintf(body, "{\"tokens\": [0");
    for (size_t i = 0; i < 64 << 10; i++, filled += 2)
        memcpy(body + filled, ",0", 2);
    memcpy(body + filled, "]}", 3);
    refuse(rn_handle_detokenize, body, 413, "tokens");
    free(body);
}

static void without_room_it_is_asked_to_come_again(void **state) {
    (void)state;
    assert_true(rn_request_memory_take(&server.memory, ROOM_BYTES));
    refuse(rn_handle_tokenize, "{\"text\": \"Once upon\"}", 429, "");
    assert_true(answer.problem.retry_seconds > 0);
    rn_request_memory_release(&server.memory, ROOM_BYTES);
    const rn_tokenizer *kept = tokenizer;
    tokenizer = NULL;
    refuse(rn_handle_tokenize, "{\"text\": \"a\"}", 503, "");
    refuse(rn_handle_detokenize, "{\"tokens\": []}", 503, "");
    tokenizer = kept;
}

// One word of 64 KiB is the worst: a symbol and two entries of a heap for each byte.
static void what_encoding_holds_is_taken_of_the_room(void **state) {
    enum { TEXT = 64 << 10 };
    (void)state;
    char *body = malloc(TEXT + 32);
    assert_non_null(body);
    sprintf(body, "{\"text\": \"%0*d\"}", TEXT, 0);
    assert_true(
        rn_request_memory_take(&server.memory, ROOM_BYTES / 2)); // as the engine does, for answers
    refuse(rn_handle_tokenize, body, 413, "text");
    rn_request_memory_release(&server.memory, ROOM_BYTES / 2);
    rn_ledger_reset_peaks();
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    (void)ask_text(rn_handle_tokenize, body);
    uint64_t most = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).peak_bytes - before;
    assert_true(most > TEXT && most <= atomic_load(&server.memory.peak_bytes));
    free(body);
}

static void torture(rn_handler handler, const char *body) {
    bool fired = true;
    rn_buffer_free(&answer.body);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t nth = 1; fired; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = ask(handler, rn_str_from(body));
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(fired == (s != RN_OK || answer.problem.http == 503));
        rn_buffer_free(&answer.body);
        assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
    }
}

static void without_memory_nothing_is_lost(void **state) {
    (void)state;
    torture(rn_handle_tokenize, "{\"text\": \"Once upon a time\\n\"}");
    torture(rn_handle_detokenize, "{\"tokens\": [1, 2, 3]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_becomes_tokens),
        cmocka_unit_test(tokens_become_the_text_again),
        cmocka_unit_test(bad_requests_are_refused_by_field),
        cmocka_unit_test(long_texts_are_too_large),
        cmocka_unit_test(what_encoding_holds_is_taken_of_the_room),
        cmocka_unit_test(without_room_it_is_asked_to_come_again),
        cmocka_unit_test(without_memory_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
