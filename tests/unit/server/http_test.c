// labels: threads
// What of http*.c stands alone: routes, keys, framing, the library that is missing; and a server
// before it has a model. More of sockets is in tests/server/http_test.py.
#include "support.h"

#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/http_parts.h"

#include <dlfcn.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- routes -------------------------------------------------------------------------------------

static void a_path_and_a_method_find_their_route(void **state) {
    (void)state;
    rn_problem problem;
    char allow[64];
    const rn_route *route = rn_route_find("POST", "/v1/chat/completions", allow, &problem);
    assert_non_null(route);
    assert_int_equal(route->ask, RN_ASK_CHAT);
    assert_null(route->handler);
    assert_true(route->needs_ready);
    assert_ptr_equal(rn_route_find("GET", "/health", allow, &problem)->handler, rn_handle_health);
    assert_ptr_equal(rn_route_find("HEAD", "/health", allow, &problem)->handler, rn_handle_health);
    assert_ptr_equal(rn_route_find("GET", "/v1/models/a/b", allow, &problem)->handler,
                     rn_handle_models);
}

static void what_is_not_there_is_404_and_what_does_not_do_is_405(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *allow;
        uint16_t http;
    } cases[] = {
        {"GET", "/nothing", "", 404},         {"GET", "", "", 404},
        {"GET", "/health/", "", 404},         {"GET", "/healthy", "", 404},
        {"POST", "/v1/model", "", 404},       {"DELETE", "/health", "GET, HEAD", 405},
        {"get", "/health", "GET, HEAD", 405}, {"GET", "/generate", "POST", 405},
        {"HEAD", "/generate", "POST", 405},   {"OPTIONS", "/generate", "POST", 405},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_problem problem;
        char allow[64];
        assert_null(rn_route_find(cases[i].method, cases[i].path, allow, &problem));
        assert_int_equal(problem.http, cases[i].http);
        assert_string_equal(allow, cases[i].allow);
    }
}

static void only_probes_and_the_page_are_open_to_all(void **state) {
    (void)state;
    size_t count;
    const rn_route *routes = rn_routes(&count);
    for (size_t i = 0; i < count; i++)
        if (routes[i].open) {
            assert_string_equal(routes[i].method, "GET");
            assert_true(strncmp(routes[i].path, "/health/", 8) == 0 ||
                        routes[i].handler == rn_handle_page);
        }
}

// ---- keys ---------------------------------------------------------------------------------------

static void a_key_is_known_by_all_of_it(void **state) {
    (void)state;
    const char *const list[] = {"alpha", "beta-0123456789", "alphabet"};
    rn_keys keys;
    size_t index;
    assert_ok(rn_keys_open(list, 3, &keys));
    assert_true(rn_keys_match(&keys, "Bearer alpha", &index));
    assert_int_equal(index, 0);
    assert_true(rn_keys_match(&keys, "bearer alphabet", &index));
    assert_int_equal(index, 2);
    static const char *const wrong[] = {"Bearer alph",  "Bearer alphabe", "Bearer  alpha",
                                        "Bearer Alpha", "Basic alpha",    "alpha",
                                        "Bearer",       "Bearer ",        "",
                                        "Beareralpha",  "Bearer alpha ",  "Bearer beta"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(rn_keys_match(&keys, wrong[i], &index));
    assert_false(rn_keys_match(&keys, NULL, &index));
    rn_keys_close(&keys);
}

static void a_key_may_be_as_long_as_there_is_room(void **state) {
    (void)state;
    char key[RN_KEY_BYTES + 8], header[RN_KEY_BYTES + 32];
    const char *const list[] = {key};
    rn_keys keys;
    size_t index;
    memset(key, 'k', sizeof key);
    key[RN_KEY_BYTES] = 0;
    assert_fails(RN_INVALID, rn_keys_open(list, 1, &keys));
    key[RN_KEY_BYTES - 1] = 0;
    assert_ok(rn_keys_open(list, 1, &keys));
    snprintf(header, sizeof header, "Bearer %s", key);
    assert_true(rn_keys_match(&keys, header, &index));
    snprintf(header, sizeof header, "Bearer %sk", key);
    assert_false(rn_keys_match(&keys, header, &index));
    rn_keys_close(&keys);
}

static void keys_that_cannot_be_sent_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"", " ", " a", "a ", "a\tb", "a\n", "caf\xc3\xa9"};
    rn_keys keys;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(RN_INVALID, rn_keys_open(&wrong[i], 1, &keys));
    assert_ok(rn_keys_open(NULL, 0, &keys));
    rn_keys_close(&keys);
}

static void keys_without_memory_are_a_status(void **state) {
    (void)state;
    const char *const list[] = {"alpha"};
    rn_keys keys;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_keys_open(list, 1, &keys));
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

// ---- framing ------------------------------------------------------------------------------------

// A stand-in for libmicrohttpd's way with headers: lines are cut where they stand.
static const char *head_text; // lines, with CR LF
static char head_room[16384];

static char *cut(char *at, char what) {
    char *found = strchr(at, what);
    assert_non_null(found);
    *found = 0;
    return found + 1;
}

static const char *say_version(void) {
    return "0.9.75";
}

static int give_headers(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                        MHD_KeyValueIteratorN iterate, void *self) {
    (void)connection;
    memset(head_room, 0, sizeof head_room);
    strcpy(head_room, head_text);
    for (char *at = head_room; *at;) {
        char *next = strchr(at, '\n') + 1;
        if (next[-2] == '\r') next[-2] = 0;
        next[-1] = 0;
        char *value = cut(at, ':');
        value += strspn(value, " \t");
        if (iterate(self, kind, at, strlen(at), value, strlen(value)) != MHD_YES) break;
        at = next;
    }
    return 0;
}

static uint16_t read_framing(const char *version, const char *text, rn_framing *out) {
    static const rn_mhd mhd = {.get_connection_values_n = give_headers, .get_version = say_version};
    rn_http http = {.mhd = &mhd};
    rn_problem problem = {0};
    head_text = text;
    return rn_framing_read(&http, NULL, version, out, &problem) ? 200 : problem.http;
}

static void a_request_says_how_long_it_is(void **state) {
    (void)state;
    rn_framing framing;
    assert_int_equal(read_framing("HTTP/1.1", "Host: a\r\n", &framing), 200);
    assert_false(framing.has_length || framing.chunked || framing.expects_continue);
    assert_int_equal(read_framing("HTTP/1.1",
                                  "host: a\r\nContent-LENGTH:\t 12\r\nExpect: 100-Continue\r\n",
                                  &framing),
                     200);
    assert_true(framing.has_length && framing.expects_continue);
    assert_int_equal(framing.length, 12);
    assert_int_equal(read_framing("HTTP/1.1", "Transfer-Encoding: Chunked\r\n", &framing), 200);
    assert_true(framing.chunked);
    static const char *const huge[] = {"Content-Length: 18446744073709551615\r\n",
                                       "Content-Length: 18446744073709551616\r\n",
                                       "Content-Length: 99999999999999999999999999\r\n"};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        assert_int_equal(read_framing("HTTP/1.1", huge[i], &framing), 200);
        assert_true(framing.length >= UINT64_MAX / 10);
    }
}

static void what_could_be_two_requests_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint16_t http;
    } cases[] = {
        {"Content-Length: 1\r\nContent-Length: 1\r\n", 400},
        {"Content-Length: 1\r\nContent-Length: 2\r\n", 400},
        {"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400},
        {"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400},
        {"Transfer-Encoding: gzip, chunked\r\n", 501},
        {"Transfer-Encoding: xchunked\r\n", 501},
        {"Transfer-Encoding : chunked\r\n", 400},
        {"Content-Length: +1\r\n", 400},
        {"Content-Length: 1, 1\r\n", 400},
        {"Content-Length: 0x1\r\n", 400},
        {"Content-Length: 1 \r\n", 400},
        {"Content-Length:\r\n", 400},
        {"X: a\nContent-Length: 1\r\n", 400},
        {"X: a\rContent-Length: 1\r\n", 400},
        {"X\r: a\r\n", 400},
        {": a\r\n", 400},
        {"X(y): a\r\n", 400},
        {"Host: a\r\nHost: a\r\n", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_framing framing;
        uint16_t http = read_framing("HTTP/1.1", cases[i].text, &framing);
        if (http != cases[i].http) fail_msg("%u for %s", http, cases[i].text);
    }
    rn_framing framing;
    assert_int_equal(read_framing("HTTP/1.0", "Transfer-Encoding: chunked\r\n", &framing), 400);
}

// libmicrohttpd moves a name that it glues a folded line to.
static int give_folded(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                       MHD_KeyValueIteratorN iterate, void *self) {
    static char room[64] = "Content-Len\0 5\0\0gth\0\0........Content-Length";
    (void)connection;
    return iterate(self, kind, room + 29, 14, room + 13, 1);
}

static void a_folded_line_is_refused(void **state) {
    (void)state;
    static const rn_mhd mhd = {.get_connection_values_n = give_folded, .get_version = say_version};
    rn_http http = {.mhd = &mhd};
    rn_framing framing;
    rn_problem problem = {0};
    assert_false(rn_framing_read(&http, NULL, "HTTP/1.1", &framing, &problem));
    assert_int_equal(problem.http, 400);
}

static void heads_have_a_limit(void **state) {
    (void)state;
    static char text[RN_HTTP_HEAD_BYTES + 64];
    rn_framing framing;
    memset(text, 'a', sizeof text);
    memcpy(text, "X: ", 3);
    strcpy(text + RN_HTTP_HEAD_BYTES - 2, "\r\n"); // the line is as long as is allowed
    assert_int_equal(read_framing("HTTP/1.1", text, &framing), 200);
    strcpy(text + RN_HTTP_HEAD_BYTES - 2, "a\r\n");
    assert_int_equal(read_framing("HTTP/1.1", text, &framing), 431);
}

// ---- the library, the bytes ---------------------------------------------------------------------

static void a_library_that_is_missing_is_named(void **state) {
    (void)state;
    rn_mhd mhd;
    assert_fails(RN_NOT_FOUND, rn_mhd_load("libmicrohttpd.so.nowhere", &mhd));
    assert_non_null(strstr(rn_last_story()->message, "libmicrohttpd.so.nowhere"));
    assert_non_null(strstr(rn_last_story()->hint, "libmicrohttpd12"));
}

static void a_library_that_lacks_a_function_says_which(void **state) {
    (void)state;
    rn_mhd mhd;
    assert_fails(RN_UNSUPPORTED, rn_mhd_load("libc.so.6", &mhd));
    assert_non_null(strstr(rn_last_story()->message, "MHD_start_daemon"));
    assert_null(mhd.library);
}

static void bytes_grow_with_connections_and_with_tls(void **state) {
    (void)state;
    rn_server_options few = {.limits = {.connections = 1000, .waiting = 128}};
    rn_server_options many = few, safe = few;
    many.limits.connections = 2000;
    safe.tls_key = "key";
    uint64_t each = (rn_http_bytes(&many) - rn_http_bytes(&few)) / 1000;
    assert_in_range(each, RN_HTTP_POOL_BYTES, 2 * RN_HTTP_POOL_BYTES);
    assert_true(rn_http_bytes(&safe) > rn_http_bytes(&few) + 1000 * RN_HTTP_POOL_BYTES);
}

// ---- a server without a model -------------------------------------------------------------------

// On this machine at all; that ours is found is part of the tests.
static void want_library(void) {
    void *library = dlopen("libmicrohttpd.so.12", RTLD_LAZY);
    if (!library) skip_because("no libmicrohttpd.so.12");
    dlclose(library);
}

// The whole answer, in a static buffer.
static const char *ask_server(const rn_server *server, const char *request) {
    static char answer[8192];
    size_t bytes = 0;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(rn_server_port(server)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    for (ssize_t got = 1; got > 0; bytes += (size_t)(got > 0 ? got : 0))
        got = recv(fd, answer + bytes, sizeof answer - 1 - bytes, 0);
    answer[bytes] = 0;
    close(fd);
    return answer;
}

static void before_the_model_is_there_probes_are_told_and_others_wait(void **state) {
    (void)state;
    want_library();
    rn_server_options options = {.limits = {.connections = 8}};
    rn_server *server;
    assert_ok(rn_server_create(&options, &server));
    const char *live = ask_server(server, "GET /health/live HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(live, " 200 "));
    assert_non_null(strstr(ask_server(server, "GET /health/ready HTTP/1.0\r\n\r\n"), " 503 "));
    const char *waits = ask_server(
        server, "POST /generate HTTP/1.0\r\nContent-Length: 15\r\n\r\n{\"prompt\": \"a\"}");
    assert_non_null(strstr(waits, " 503 "));
    assert_non_null(strstr(waits, "Retry-After: "));
    assert_non_null(strstr(waits, "\"code\":\"loading\""));
    assert_int_equal(server->metrics.counts[RN_COUNT_REFUSED_503], 1);
    rn_server_destroy(server);
}

static void an_address_that_cannot_be_had_is_told_plainly(void **state) {
    (void)state;
    want_library();
    rn_server_options options = {.limits = {.connections = 8}};
    rn_server *server, *second;
    assert_ok(rn_server_create(&options, &server));
    options.port = rn_server_port(server);
    assert_fails(RN_IO, rn_server_create(&options, &second));
    assert_non_null(strstr(rn_last_story()->message, "is taken"));
    rn_server_destroy(server);
    static const char *const hosts[] = {"nowhere.example", "1.2.3", "192.0.2.1", ""};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        options.host = hosts[i];
        assert_fails(RN_INVALID, rn_server_create(&options, &second));
    }
}

static void certificates_are_looked_at_before_they_are_used(void **state) {
    (void)state;
    want_library();
    rn_server *server;
    rn_server_options options = {.tls_certificate = "tests/server/http_certificate.pem",
                                 .tls_key = "tests/server/http_key.pem",
                                 .limits = {.connections = 8}};
    assert_ok(rn_server_create(&options, &server));
    rn_server_destroy(server);
    options.tls_key = options.tls_certificate;
    assert_fails(RN_INVALID, rn_server_create(&options, &server));
    options.tls_key = "tests/server/nowhere.pem";
    assert_fails(RN_NOT_FOUND, rn_server_create(&options, &server));
    test_write(test_path("key.pem"), "-----BEGIN PRIVATE KEY-----\nno\n", 31);
    options.tls_key = test_path("key.pem");
    assert_fails(RN_IO, rn_server_create(&options, &server));
}

static void a_server_without_memory_leaves_nothing_behind(void **state) {
    (void)state;
    want_library();
    const char *const keys[] = {"alpha"};
    rn_server_options options = {
        .api_keys = keys, .api_key_count = 1, .limits = {.connections = 2048}};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_server *server = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status status = rn_server_create(&options, &server);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (status == RN_OK) rn_server_destroy(server);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        if (!fired) break;
        assert_int_equal(status, RN_NO_MEMORY);
    }
}

static size_t count_entries(const char *folder) {
    size_t count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static void a_server_that_has_ended_leaves_no_file_and_no_thread(void **state) {
    (void)state;
    want_library();
    rn_server_options options = {.limits = {.connections = 8}};
    size_t files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int i = 0; i < 20; i++) {
        rn_server *server;
        assert_ok(rn_server_create(&options, &server));
        assert_non_null(strstr(ask_server(server, "GET / HTTP/1.0\r\n\r\n"), " 200 "));
        rn_server_destroy(server);
    }
    assert_int_equal(count_entries("/proc/self/fd"), files);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_and_a_method_find_their_route),
        cmocka_unit_test(what_is_not_there_is_404_and_what_does_not_do_is_405),
        cmocka_unit_test(only_probes_and_the_page_are_open_to_all),
        cmocka_unit_test(a_key_is_known_by_all_of_it),
        cmocka_unit_test(a_key_may_be_as_long_as_there_is_room),
        cmocka_unit_test(keys_that_cannot_be_sent_are_refused),
        cmocka_unit_test(keys_without_memory_are_a_status),
        cmocka_unit_test(a_request_says_how_long_it_is),
        cmocka_unit_test(what_could_be_two_requests_is_refused),
        cmocka_unit_test(a_folded_line_is_refused),
        cmocka_unit_test(heads_have_a_limit),
        cmocka_unit_test(a_library_that_is_missing_is_named),
        cmocka_unit_test(a_library_that_lacks_a_function_says_which),
        cmocka_unit_test(bytes_grow_with_connections_and_with_tls),
        cmocka_unit_test(before_the_model_is_there_probes_are_told_and_others_wait),
        cmocka_unit_test(an_address_that_cannot_be_had_is_told_plainly),
        cmocka_unit_test(certificates_are_looked_at_before_they_are_used),
        cmocka_unit_test(a_server_without_memory_leaves_nothing_behind),
        cmocka_unit_test(a_server_that_has_ended_leaves_no_file_and_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
