// labels: alone
// /profile: one recording at a time, fetched in every form, never at the price of the budget, and
// gone with the server.
#include "fake_engine.h"

#include "base/fault.h"
#include "profile/trace.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static rn_server server;

static size_t count_files(const char *folder) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

// A folder of the test's own takes the place of the system's.
static int begin(void **state) {
    if (test_make_folder(state) != 0) return -1;
    setenv("TMPDIR", test_own_folder, 1);
    fake_begin(&server);
    return 0;
}

static int end(void **state) {
    (void)state;
    rn_profile_view_end(&server);
    return rn_profile_is_on();
}

static rn_http_answer ask(rn_handler handler, const char *body) {
    static char text[4096];
    rn_http_answer answer = fake_ask(&server, handler, "/profile", body);
    assert_true(answer.body.bytes <= sizeof text);
    memcpy(text, answer.body.data, answer.body.bytes);
    rn_buffer_free(&answer.body);
    answer.body.data = text;
    return answer;
}

static uint16_t start(const char *body) {
    return ask(rn_handle_profile_start, body).problem.http;
}

static uint16_t stop(void) {
    return ask(rn_handle_profile_stop, "").problem.http;
}

static rn_http_answer fetch(const char *format) {
    fake.query = format;
    return ask(rn_handle_profile, "");
}

static void record_something(void) {
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};
    for (int i = 0; i < 100; i++) {
        rn_ledger_charge(account, &server, 4096);
        rn_ledger_release(account, &server, 4096);
    }
}

static void record(void) {
    assert_int_equal(0, start(""));
    record_something();
    assert_int_equal(0, stop());
}

static void a_recording_is_started_stopped_and_fetched(void **state) {
    (void)state;
    assert_int_equal(404, fetch(NULL).problem.http);
    assert_int_equal(409, stop());
    assert_int_equal(0, start(""));
    assert_true(rn_profile_is_on());
    assert_int_equal(409, start(""));
    assert_int_equal(409, fetch(NULL).problem.http);
    record_something();
    rn_http_answer stopped = ask(rn_handle_profile_stop, "");
    assert_non_null(strstr(stopped.body.data, "\"complete\":true"));
    assert_null(strstr(stopped.body.data, test_own_folder));
    assert_int_equal(409, stop());

    char magic[8];
    rn_http_answer trace = fetch(NULL);
    assert_true(trace.file >= 0);
    assert_string_equal("ration.rntrace", trace.download);
    assert_int_equal(8, pread(trace.file, magic, 8, 0));
    assert_memory_equal(RN_TRACE_MAGIC, magic, 8);
    close(trace.file);
    trace = fetch("trace");
    assert_true(trace.file >= 0);
    close(trace.file);
}

// Whether the file, which is closed, holds the text.
static bool holds(int file, const char *text) {
    struct stat status;
    assert_int_equal(0, fstat(file, &status));
    char *bytes = malloc((size_t)status.st_size);
    assert_int_equal(status.st_size, pread(file, bytes, (size_t)status.st_size, 0));
    bool found = memmem(bytes, (size_t)status.st_size, text, strlen(text)) != NULL;
    free(bytes);
    close(file);
    return found;
}

static void no_form_tells_where_the_file_lies(void **state) {
    (void)state;
    record();
    assert_false(holds(fetch("trace").file, test_own_folder));
    for (int form = 0; form < RN_EXPORT_COUNT; form++)
        assert_false(holds(fetch(rn_export_name((rn_export)form)).file, test_own_folder));
    assert_true(holds(fetch("html").file, ".rntrace")); // its name alone is there
}

static void every_form_can_be_fetched_and_leaves_no_file(void **state) {
    (void)state;
    record();
    size_t files = count_files(server.recording.folder);
    for (int form = 0; form < RN_EXPORT_COUNT; form++) {
        rn_http_answer answer = fetch(rn_export_name((rn_export)form));
        struct stat status;
        assert_int_equal(0, answer.problem.http);
        assert_int_equal(0, fstat(answer.file, &status));
        assert_true(status.st_size > 0);
        assert_int_equal(0, status.st_nlink);
        close(answer.file);
    }
    assert_int_equal(files, count_files(server.recording.folder));
    rn_http_answer wrong = fetch("pdf");
    assert_int_equal(400, wrong.problem.http);
    assert_string_equal("format", wrong.problem.field);
}

static void a_form_that_the_budget_does_not_allow_is_refused(void **state) {
    (void)state;
    record();
    fake.facts.budget_bytes = 100 << 20;
    fake.facts.predicted_bytes = 100 << 20;
    assert_int_equal(0, truncate(server.recording.path, 1 << 20));
    rn_http_answer answer = fetch("html");
    assert_int_equal(503, answer.problem.http);
    assert_non_null(strstr(answer.problem.message, "ration profile html"));
    assert_int_equal(-1, answer.file);
    answer = fetch("trace"); // that takes no memory
    assert_int_equal(0, answer.problem.http);
    close(answer.file);
    fake.facts.predicted_bytes = 50 << 20;
    assert_int_equal(0, truncate(server.recording.path, 17 << 20));
    assert_int_equal(503, fetch("html").problem.http);
}

static void no_memory_for_a_form_is_503_and_leaks_nothing(void **state) {
    (void)state;
    record();
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    uint64_t n = 1;
    for (bool fired = true; fired; n++) {
        rn_http_request request = {.method = "GET", .path = "/profile"};
        rn_http_answer answer = {.file = -1};
        fake.query = "json";
        rn_fault_arm(RN_FAULT_ALLOC, n);
        assert_ok(rn_handle_profile(&server, &request, &answer));
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(fired ? 503 : 0, answer.problem.http);
        assert_int_equal(fired, answer.file < 0);
        if (answer.file >= 0) close(answer.file);
        assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    }
    assert_true(n > 3);
}

static void options_are_read_and_wrong_ones_named(void **state) {
    (void)state;
    rn_http_answer answer = ask(rn_handle_profile_start, "{\"ring\": false}");
    assert_int_equal(0, answer.problem.http);
    assert_non_null(strstr(answer.body.data, "\"ring\":false"));
    assert_int_equal(0, stop());
    static const char *const wrong[] = {"{\"ring\": 1}",
                                        "{\"rings\": true}",
                                        "[]",
                                        "{\"ring\": true",
                                        "{} {}",
                                        "nonsense",
                                        "{\"ring\": true, \"ring\": true}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(400, start(wrong[i]));
    assert_false(rn_profile_is_on());
    assert_int_equal(0, start("{}"));
}

static void somebody_elses_recording_is_left_alone(void **state) {
    (void)state;
    assert_ok(rn_profile_start(&(rn_profile_options){.path = test_own_path("other.rntrace")}));
    assert_int_equal(409, start(""));
    assert_int_equal(409, stop());
    rn_profile_view_end(&server);
    assert_true(rn_profile_is_on());
    assert_ok(rn_profile_stop());
}

static void the_end_removes_what_was_ours(void **state) {
    (void)state;
    record();
    assert_int_equal(1, count_files(test_own_folder));
    rn_http_answer trace = fetch(NULL);
    assert_int_equal(0, start("")); // while one is being sent
    char byte;
    assert_int_equal(1, pread(trace.file, &byte, 1, 0));
    close(trace.file);
    rn_profile_view_end(&server);
    assert_false(rn_profile_is_on());
    assert_int_equal(0, count_files(test_own_folder));
}

// As a server leaves it that was killed.
static void what_a_killed_server_left_goes_with_the_next_ones_folder(void **state) {
    (void)state;
    assert_int_equal(0, mkdir(test_own_path("ration-profile-Ab01cd"), 0700));
    test_write(test_own_path("ration-profile-Ab01cd/serve-1.rntrace"), "x", 1);
    assert_int_equal(0, mkdir(test_own_path("elsewhere"), 0700));
    test_write(test_own_path("elsewhere/mine.rntrace"), "x", 1);
    assert_int_equal(0, symlink("elsewhere", test_own_path("ration-profile-zzzzzz")));
    assert_int_equal(0, start(""));
    assert_int_equal(0, stop());
    assert_int_not_equal(0, access(test_own_path("ration-profile-Ab01cd"), F_OK));
    assert_int_equal(0, access(test_own_path("elsewhere/mine.rntrace"), F_OK));
}

static void a_folder_of_the_users_keeps_every_recording(void **state) {
    (void)state;
    server.options.profile_folder = test_own_folder;
    record();
    record();
    rn_profile_view_end(&server);
    assert_int_equal(2, count_files(test_own_folder));
}

static void a_folder_that_is_not_there_is_a_failure_and_no_recording(void **state) {
    (void)state;
    rn_http_request request = {.method = "POST", .path = "/profile/start"};
    rn_http_answer answer = {.file = -1};
    server.options.profile_folder = test_own_path("missing");
    assert_fails(RN_IO, rn_handle_profile_start(&server, &request, &answer));
    assert_false(rn_profile_is_on());
    assert_int_equal(404, fetch(NULL).problem.http);
}

static void a_recording_takes_no_more_than_is_planned(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    assert_int_equal(0, start(""));
    record_something(); // one ring of this thread
    uint64_t one = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes - before;
    assert_true(one > 0 && one < RN_PROFILE_VIEW_BYTES);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_recording_is_started_stopped_and_fetched),
        CASE(no_form_tells_where_the_file_lies),
        CASE(every_form_can_be_fetched_and_leaves_no_file),
        CASE(a_form_that_the_budget_does_not_allow_is_refused),
        CASE(no_memory_for_a_form_is_503_and_leaks_nothing),
        CASE(options_are_read_and_wrong_ones_named),
        CASE(somebody_elses_recording_is_left_alone),
        CASE(the_end_removes_what_was_ours),
        CASE(what_a_killed_server_left_goes_with_the_next_ones_folder),
        CASE(a_folder_of_the_users_keeps_every_recording),
        CASE(a_folder_that_is_not_there_is_a_failure_and_no_recording),
        CASE(a_recording_takes_no_more_than_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
