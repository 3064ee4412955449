#include "support.h"

#include "base/buffer.h"
#include "server/problem.h"

static char *write_text(const rn_problem *problem) {
    static char text[8192];
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, sizeof text - 1);
    assert_ok(rn_problem_write(problem, rn_buffer_sink(&buffer)));
    memcpy(text, buffer.data, buffer.bytes);
    text[buffer.bytes] = 0;
    rn_buffer_free(&buffer);
    return text;
}

static void a_problem_reads_as_clients_expect_it(void **state) {
    (void)state;
    rn_problem problem;
    assert_false(rn_problem_set(&problem, 400, "out_of_range", "top_p", "top_p is %g", 2.0));
    assert_string_equal(write_text(&problem),
                        "{\"error\":{\"message\":\"top_p is 2\",\"type\":\"invalid_request_error\","
                        "\"param\":\"top_p\",\"code\":\"out_of_range\"}}\n");
    rn_problem_set(&problem, 429, "queue_full", "", "full");
    assert_string_equal(write_text(&problem),
                        "{\"error\":{\"message\":\"full\",\"type\":\"rate_limit_error\","
                        "\"param\":null,\"code\":\"queue_full\"}}\n");
}

static void the_longest_problem_fits_where_answers_are_formed(void **state) {
    (void)state;
    rn_problem problem;
    char message[2000], field[200];
    memset(message, 1, sizeof message - 1); // "\u0001": six bytes each
    message[sizeof message - 1] = 0;
    memset(field, 2, sizeof field - 1);
    field[sizeof field - 1] = 0;
    rn_problem_set(&problem, 400, "invalid_value", field, "%s", message);
    assert_in_range(strlen(write_text(&problem)), 6 * 511, 4096);
}

static void every_status_has_a_type(void **state) {
    (void)state;
    assert_string_equal(rn_problem_type(401), "authentication_error");
    assert_string_equal(rn_problem_type(404), "invalid_request_error");
    assert_string_equal(rn_problem_type(413), "invalid_request_error");
    assert_string_equal(rn_problem_type(429), "rate_limit_error");
    assert_string_equal(rn_problem_type(500), "server_error");
    assert_string_equal(rn_problem_type(503), "unavailable_error");
}

static void a_failure_becomes_a_status(void **state) {
    (void)state;
    static const struct {
        rn_status status;
        uint16_t http;
    } cases[] = {{RN_INVALID, 400}, {RN_OVER_BUDGET, 503}, {RN_NO_MEMORY, 503},
                 {RN_IO, 500},      {RN_CORRUPT, 500},     {RN_DEVICE, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_problem problem;
        (void)rn_fail(cases[i].status, "because");
        rn_problem_from_error(&problem, rn_last_error());
        assert_int_equal(problem.http, cases[i].http);
        assert_string_equal(problem.message, "because");
        assert_int_equal(problem.retry_seconds != 0, cases[i].http == 503);
    }
}

static void no_path_of_the_machine_is_told(void **state) {
    (void)state;
    static const struct {
        const char *message, *told;
    } cases[] = {
        {"cannot open /srv/models/a b.gguf: no", "cannot open a file b.gguf: no"},
        {"'/etc/x' is not a model", "'a file' is not a model"},
        {"/a/b", "a file"},
        {"in ../up/there and ~/home", "in a file and a file"},
        {"models/secret is broken", "a file is broken"},
        {"12 tokens/s, 1/2 of it / all", "12 tokens/s, 1/2 of it / all"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_problem problem;
        (void)rn_error_locate(rn_fail(RN_IO, "%s", cases[i].message), "models/secret",
                              RN_NO_OFFSET);
        rn_problem_from_error(&problem, rn_last_error());
        assert_string_equal(problem.message, cases[i].told);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_problem_reads_as_clients_expect_it),
        cmocka_unit_test(the_longest_problem_fits_where_answers_are_formed),
        cmocka_unit_test(every_status_has_a_type),
        cmocka_unit_test(a_failure_becomes_a_status),
        cmocka_unit_test(no_path_of_the_machine_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
