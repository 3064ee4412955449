// labels: alone
// The endpoints that only look: what they answer in each phase, and that no path of the machine is
// ever told.
#include "fake_engine.h"

#include "base/fault.h"
#include "io/json_read.h"

static rn_server server;

static void assert_is_json(const rn_http_answer *answer) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, (rn_str){answer->body.data, answer->body.bytes - 1}, RN_HOST_IO);
    assert_ok(rn_json_skip(&reader));
    assert_ok(rn_json_expect(&reader, RN_JSON_END, NULL));
    rn_json_reader_free(&reader);
}

// Asks and frees the answer; the body stays for looking at.
static rn_http_answer ask(rn_handler handler, const char *path) {
    static char body[1 << 16];
    rn_http_answer answer = fake_ask(&server, handler, path, "");
    assert_true(answer.body.bytes <= sizeof body);
    memcpy(body, answer.body.data, answer.body.bytes);
    if (answer.body.bytes > 1) assert_is_json(&answer);
    rn_buffer_free(&answer.body);
    answer.body.data = body;
    return answer;
}

static void assert_says(const rn_http_answer *answer, const char *text) {
    if (!strstr(answer->body.data, text)) fail_msg("no %s in %s", text, answer->body.data);
}

static void live_is_always_200(void **state) {
    (void)state;
    fake_begin(&server);
    for (int phase = RN_ENGINE_LOADING; phase <= RN_ENGINE_FAILED; phase++) {
        fake.facts.phase = (rn_engine_phase)phase;
        rn_http_answer answer = ask(rn_handle_live, "/health/live");
        assert_int_equal(200, answer.status);
        assert_int_equal(0, answer.problem.http);
    }
}

static void ready_is_503_with_a_time_unless_requests_are_taken(void **state) {
    (void)state;
    fake_begin(&server);
    for (int phase = RN_ENGINE_LOADING; phase <= RN_ENGINE_FAILED; phase++) {
        fake.facts.phase = (rn_engine_phase)phase;
        rn_http_answer answer = ask(rn_handle_ready, "/health/ready");
        bool ready = phase == RN_ENGINE_READY;
        assert_int_equal(ready ? 0 : 503, answer.problem.http);
        assert_int_equal(ready, answer.problem.retry_seconds == 0);
        if (!ready) assert_string_equal(rn_phase_name(fake.facts.phase), answer.problem.code);
    }
}

static void health_tells_what_the_page_draws(void **state) {
    (void)state;
    fake_begin(&server);
    fake.facts.budget_bytes = 1 << 20;
    fake.facts.generator.kv_pages_kept = 3;
    fake.facts.waiting = 9;
    snprintf(fake.facts.target, sizeof fake.facts.target, "cuda:0");
    rn_http_answer answer = ask(rn_handle_health, "/health");
    assert_int_equal(200, answer.status);
    assert_int_equal(0, answer.problem.retry_seconds);
    static const char *const parts[] = {"\"status\":\"ready\"",
                                        "\"model\":\"story\"",
                                        "\"device\":\"cuda:0\"",
                                        "\"device_type\":\"cuda\"",
                                        "\"target_index\":0",
                                        "\"ladder\":{",
                                        "\"budget_bytes\":1048576",
                                        "\"purposes\":{",
                                        "\"resident_bytes\":",
                                        "\"pages_kept\":3",
                                        "\"waiting\":9",
                                        "\"tokens_per_second\":0",
                                        "\"uptime_seconds\":",
                                        "\"predicted_peak_bytes\":null"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_says(&answer, parts[i]);
}

static void health_is_503_while_loading_and_says_so(void **state) {
    (void)state;
    fake_begin(&server);
    fake.facts.phase = RN_ENGINE_LOADING;
    fake.facts.target[0] = '\0';
    rn_http_answer answer = ask(rn_handle_health, "/health");
    assert_int_equal(503, answer.status);
    assert_int_equal(0, answer.problem.http); // the body is the answer
    assert_true(answer.problem.retry_seconds > 0);
    assert_says(&answer, "\"status\":\"loading\"");
    assert_says(&answer, "\"device\":null");
}

static void a_failure_is_told_with_class_and_hint_but_without_paths(void **state) {
    (void)state;
    fake_begin(&server);
    fake.facts.phase = RN_ENGINE_FAILED;
    (void)rn_error_locate(rn_fail(RN_IO, "cannot read /srv/secret/model.gguf: it is gone"),
                          "/srv/secret/model.gguf", 5);
    (void)rn_hint(RN_IO, "look into /srv/secret");
    fake.facts.failure = *rn_last_error();
    rn_http_answer answer = ask(rn_handle_health, "/health");
    assert_int_equal(503, answer.status);
    assert_says(&answer, "\"class\":\"");
    assert_says(&answer, "\"meaning\":\"");
    assert_says(&answer, "it is gone");
    assert_null(strstr(answer.body.data, "secret"));
    answer = ask(rn_handle_ready, "/health/ready");
    assert_null(strstr(answer.problem.message, "secret"));
}

static void the_list_of_models_has_one_with_meta(void **state) {
    (void)state;
    fake_begin(&server);
    assert_ok(rn_model_open(NULL, NULL, &fake.model));
    rn_http_answer answer = ask(rn_handle_models, "/v1/models");
    assert_says(&answer, "{\"object\":\"list\",\"data\":[{\"id\":\"story\",\"object\":\"model\"");
    assert_says(&answer, "\"parameters\":");
    answer = ask(rn_handle_models, "/v1/models/story");
    assert_says(&answer, "{\"id\":\"story\",\"object\":\"model\"");
    answer = ask(rn_handle_models, "/v1/models/gpt-4");
    assert_int_equal(404, answer.problem.http);
    assert_string_equal("model_not_found", answer.problem.code);
    answer = ask(rn_handle_models, "/v1/models/");
    assert_int_equal(404, answer.problem.http);
    rn_model_close(fake.model);
}

static void a_name_with_slashes_is_found_too(void **state) {
    (void)state;
    fake_begin(&server);
    fake.name = "meta/models/llama";
    assert_ok(rn_model_open(NULL, NULL, &fake.model));
    rn_http_answer answer = ask(rn_handle_models, "/v1/models/meta/models/llama");
    assert_says(&answer, "\"id\":\"meta/models/llama\"");
    rn_model_close(fake.model);
}

static void models_and_plan_are_503_before_there_are_any(void **state) {
    (void)state;
    fake_begin(&server);
    fake.facts.phase = RN_ENGINE_LOADING;
    assert_int_equal(503, ask(rn_handle_models, "/v1/models").problem.http);
    assert_int_equal(503, ask(rn_handle_plan, "/plan").problem.http);
    fake.plan = "{\"steps\":[]}";
    rn_http_answer answer = ask(rn_handle_plan, "/plan");
    assert_int_equal(0, answer.problem.http);
    assert_string_equal(fake.plan, answer.body.data);
}

// Wherever memory runs out, there is a status and nothing stays.
static void no_memory_is_a_status(void **state) {
    (void)state;
    static rn_handler *const handlers[] = {rn_handle_health, rn_handle_metrics, rn_handle_models};
    fake_begin(&server);
    assert_ok(rn_model_open(NULL, NULL, &fake.model));
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        for (uint64_t n = 1;; n++) {
            rn_http_request request = {.method = "GET", .path = "/"};
            rn_http_answer answer = {.file = -1};
            rn_buffer_init(&answer.body, RN_HOST_IO, 1 << 20);
            rn_fault_arm(RN_FAULT_ALLOC, n);
            rn_status s = handlers[i](&server, &request, &answer);
            bool fired = rn_fault_fired(RN_FAULT_ALLOC);
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            rn_buffer_free(&answer.body);
            assert_int_equal(fired, s != RN_OK);
            assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
            if (!fired) break;
        }
    rn_model_close(fake.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_is_always_200),
        cmocka_unit_test(ready_is_503_with_a_time_unless_requests_are_taken),
        cmocka_unit_test(health_tells_what_the_page_draws),
        cmocka_unit_test(health_is_503_while_loading_and_says_so),
        cmocka_unit_test(a_failure_is_told_with_class_and_hint_but_without_paths),
        cmocka_unit_test(the_list_of_models_has_one_with_meta),
        cmocka_unit_test(a_name_with_slashes_is_found_too),
        cmocka_unit_test(models_and_plan_are_503_before_there_are_any),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
