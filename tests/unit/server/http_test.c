// labels: threads
// What of http*.c stands alone: routes, keys, heads, chunks, the library that is missing; and a
// server before it has a model. More of sockets is in tests/server/http_test.py and attack_test.py.
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
    assert_int_equal(route->kind, RN_REQUEST_CHAT);
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
    assert_true(rn_keys_match(&keys, rn_str_from("Bearer alpha"), &index));
    assert_int_equal(index, 0);
    assert_true(rn_keys_match(&keys, rn_str_from("bearer alphabet"), &index));
    assert_int_equal(index, 2);
    static const char *const wrong[] = {"Bearer alph",  "Bearer alphabe", "Bearer  alpha",
                                        "Bearer Alpha", "Basic alpha",    "alpha",
                                        "Bearer",       "Bearer ",        "",
                                        "Beareralpha",  "Bearer alpha ",  "Bearer beta"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(rn_keys_match(&keys, rn_str_from(wrong[i]), &index));
    assert_false(rn_keys_match(&keys, rn_str_from(NULL), &index));
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
    assert_true(rn_keys_match(&keys, rn_str_from(header), &index));
    snprintf(header, sizeof header, "Bearer %sk", key);
    assert_false(rn_keys_match(&keys, rn_str_from(header), &index));
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

// ---- heads --------------------------------------------------------------------------------------

static char head_room[RN_HTTP_HEAD_BYTES + 4096];
static rn_http_head head;

// The status of a refusal, 200 where it is a head, 0 where more is needed. Comes in pieces of
// `step` bytes.
static uint16_t read_in_steps(const char *text, size_t bytes, size_t step) {
    size_t scanned = 0, head_bytes = 0;
    rn_problem problem = {0};
    assert_true(bytes < sizeof head_room);
    memcpy(head_room, text, bytes);
    rn_head_news news = RN_HEAD_MORE;
    for (size_t have = 0; news == RN_HEAD_MORE && have < bytes;) {
        have = have + step < bytes ? have + step : bytes;
        news = rn_http_head_read(head_room, have, &scanned, &head, &head_bytes, &problem);
    }
    if (news == RN_HEAD_WHOLE) assert_true(head_bytes <= bytes);
    return news == RN_HEAD_WHOLE ? 200 : problem.http;
}

// However it is cut, it is the same.
static uint16_t read_head(const char *text) {
    uint16_t whole = read_in_steps(text, strlen(text), SIZE_MAX / 2);
    assert_int_equal(read_in_steps(text, strlen(text), 1), whole);
    assert_int_equal(read_in_steps(text, strlen(text), 7), whole);
    return whole;
}

static uint16_t read_lines(const char *lines) {
    char text[2048];
    snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n", lines);
    return read_head(text);
}

static void a_head_says_what_is_asked(void **state) {
    (void)state;
    assert_int_equal(read_head("GET /a%20b/c?x=1&y=%26+z&&q HTTP/1.1\r\nHost: b:80\r\n\r\n"), 200);
    assert_string_equal(head.method, "GET");
    assert_string_equal(head.path, "/a b/c");
    assert_memory_equal(head.query.data, "x=1\0y=& z\0\0q\0", head.query.bytes);
    assert_int_equal(head.query.bytes, 13);
    assert_true(rn_str_equal(head.host, RN_STR("b:80")));
    assert_false(head.is_http10 || head.close || head.chunked || head.has_length);
    assert_int_equal(read_head("GET http://c/d HTTP/1.0\r\nHost: b\r\n\r\n"), 200);
    assert_string_equal(head.path, "/d");
    assert_true(rn_str_equal(head.host, RN_STR("c")) && head.is_http10 && head.close);
    assert_int_equal(read_lines("A:\t b \t\r\nCONNECTION: x, Close\r\na: second\r\n"), 200);
    assert_true(head.close && rn_str_equal(rn_http_head_find(&head, "a"), RN_STR("b")));
    assert_null(rn_http_head_find(&head, "b").data);
}

static void a_request_says_how_long_it_is(void **state) {
    (void)state;
    assert_int_equal(read_lines("Content-LENGTH:\t 12\r\nExpect: 100-Continue\r\n"), 200);
    assert_true(head.has_length && head.expects_continue);
    assert_int_equal(head.length, 12);
    assert_int_equal(read_lines("Transfer-Encoding: Chunked\r\n"), 200);
    assert_true(head.chunked);
    static const char *const huge[] = {"Content-Length: 18446744073709551615\r\n",
                                       "Content-Length: 18446744073709551616\r\n",
                                       "Content-Length: 99999999999999999999999999\r\n"};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        assert_int_equal(read_lines(huge[i]), 200);
        assert_true(head.length >= UINT64_MAX / 10);
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
        {"Content-Length:\r\n", 400},
        {"X: a\nContent-Length: 1\r\n", 400},
        {"X: a\rContent-Length: 1\r\n", 400},
        {"X: a\r\r\n", 400},
        {"X: a\x01\r\n", 400},
        {"X\r: a\r\n", 400},
        {": a\r\n", 400},
        {"X(y): a\r\n", 400},
        {"X\r\n", 400},
        {"Content-Len: 5\r\n gth\r\n", 400},
        {" X: a\r\n", 400},
        {"Host: a\r\n", 400}, // the second one
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t http = read_lines(cases[i].text);
        if (http != cases[i].http) fail_msg("%u for %s", http, cases[i].text);
    }
    assert_int_equal(read_head("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_int_equal(read_head("GET / HTTP/1.1\r\n\r\n"), 400); // no Host
    assert_int_equal(read_head("GET / HTTP/1.0\r\n\r\n"), 200);
    static const char zero[] = "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n";
    assert_int_equal(read_in_steps(zero, sizeof zero - 1, 1), 400);
}

static void first_lines_are_taken_by_the_letter(void **state) {
    (void)state;
    static const struct {
        const char *line;
        uint16_t http;
    } cases[] = {
        {"", 400},
        {"GET", 400},
        {"GET /", 400},
        {"GET / HTTP/1.1 ", 400},
        {"GET  / HTTP/1.1", 400},
        {" GET / HTTP/1.1", 400},
        {"GET\t/ HTTP/1.1", 400},
        {"G@T / HTTP/1.1", 400},
        {"GET / http/1.1", 400},
        {"GET / HTTP/1.10", 400},
        {"GET / HTTP/1.2", 505},
        {"GET / HTTP/2.0", 505},
        {"GET a HTTP/1.1", 400},
        {"GET http://a HTTP/1.1", 400},
        {"GET http:///a HTTP/1.1", 400},
        {"GET /%00 HTTP/1.1", 400},
        {"GET /%0a HTTP/1.1", 400},
        {"GET /%4 HTTP/1.1", 400},
        {"GET /%g0 HTTP/1.1", 400},
        {"GET /?%00 HTTP/1.1", 400},
        {"GET /\xc3\xa9 HTTP/1.1", 400},
        {"GET * HTTP/1.1", 200},
        {"GET /%25%2F HTTP/1.1", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s\r\nHost: a\r\n\r\n", cases[i].line);
        uint16_t http = read_head(text);
        if (http != cases[i].http) fail_msg("%u for %s", http, cases[i].line);
    }
}

static void heads_have_a_limit(void **state) {
    (void)state;
    static char text[RN_HTTP_HEAD_BYTES + 64];
    static const char begin[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    for (size_t over = 0; over < 2; over++) { // the second is a byte too long
        memset(text, 'a', sizeof text);
        memcpy(text, begin, sizeof begin - 1);
        strcpy(text + RN_HTTP_HEAD_BYTES - 4 + over, "\r\n\r\n");
        assert_int_equal(read_head(text), over ? 431 : 200);
    }
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "GET /", 5);
    text[sizeof text - 1] = 0;
    assert_int_equal(read_head(text), 414);
    strcpy(text + RN_HTTP_TARGET_BYTES, " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(read_head(text), 414);
    size_t at = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < RN_HTTP_FIELDS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "X: y\r\n");
    strcpy(text + at, "\r\n");
    assert_int_equal(read_head(text), 431);
    strcpy(text + at - 6, "\r\n");
    assert_int_equal(read_head(text), 200);
}

// ---- chunks -------------------------------------------------------------------------------------

// What the chunks hold, in pieces of `step` bytes; *out_used is where they end. NULL: they are no
// chunks, or do not end.
static const char *read_chunks(const char *text, size_t step, size_t *out_used) {
    static char body[512];
    rn_chunks chunks = {.at = 0};
    size_t bytes = strlen(text), at = 0, filled = 0;
    for (rn_chunks_news news = RN_CHUNKS_MORE; news != RN_CHUNKS_END;) {
        rn_str piece = {NULL, 0};
        size_t used = 0, have = bytes - at < step ? bytes - at : step;
        if (have == 0) return NULL;
        news = rn_chunks_take(&chunks, text + at, have, &used, &piece);
        if (news == RN_CHUNKS_WRONG) return NULL;
        if (news == RN_CHUNKS_DATA) {
            memcpy(body + filled, piece.data, piece.bytes);
            filled += piece.bytes;
        }
        at += used;
    }
    body[filled] = 0;
    *out_used = at;
    return body;
}

static void chunks_are_one_body(void **state) {
    (void)state;
    static const struct {
        const char *text, *body;
        size_t left; // behind it
    } cases[] = {
        {"0\r\n\r\n", "", 0},
        {"3\r\nabc\r\n0\r\n\r\nGET /", "abc", 5},
        {"3\r\nabc\r\nA\r\n0123456789\r\n00\r\n\r\n", "abc0123456789", 0},
        {"1;x=y;z=\"q\"\r\n\r\r\n1\r\n\n\r\n0;last\r\nA: b\r\nC: d\r\n\r\nX", "\r\n", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 50; step += 3) {
            size_t used = 0;
            const char *body = read_chunks(cases[i].text, step, &used);
            assert_non_null(body);
            assert_string_equal(body, cases[i].body);
            assert_int_equal(strlen(cases[i].text) - used, cases[i].left);
        }
}

static void chunks_are_taken_by_the_letter(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "3\nabc\r\n0\r\n\r\n",        "3\r\nabc\n0\r\n\r\n",         "3\r\nabc\r\n0\n\r\n",
        "3\r\nabc\r\n0\r\n\n",        "3\r\nabc\r\n0\r\nA: b\n\r\n", "3\r\nabcd\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",     " 3\r\nabc\r\n0\r\n\r\n",      "0x3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",     "\r\n3\r\nabc\r\n0\r\n\r\n",   ";x\r\n0\r\n\r\n",
        "3;\x01\r\nabc\r\n0\r\n\r\n", "fffffffffffffffff\r\n",       "3\r\rabc\r\n0\r\n\r\n",
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t step = 1; step < 40; step += 4)
            if (read_chunks(wrong[i], step, &used)) fail_msg("taken: %s", wrong[i]);
}

// ---- the library, the bytes ---------------------------------------------------------------------

static void a_library_that_is_missing_is_named(void **state) {
    (void)state;
    assert_fails(RN_NOT_FOUND, rn_tls_try("libgnutls.so.nowhere"));
    assert_non_null(strstr(rn_last_error()->message, "libgnutls.so.nowhere"));
    assert_non_null(strstr(rn_last_error()->hint, "libgnutls30"));
}

static void a_library_that_lacks_a_function_says_which(void **state) {
    (void)state;
    assert_fails(RN_UNSUPPORTED, rn_tls_try("libc.so.6"));
    assert_non_null(strstr(rn_last_error()->message, "gnutls_"));
}

static void bytes_grow_with_connections_and_with_tls(void **state) {
    (void)state;
    rn_server_options few = {.limits = {.connections = 1000, .waiting = 128}};
    rn_server_options many = few, safe = few;
    many.limits.connections = 2000;
    safe.tls_key = "key";
    uint64_t each = (rn_http_bytes(&many) - rn_http_bytes(&few)) / 1000;
    assert_in_range(each, RN_HTTP_INPUT_BYTES, 2 * RN_HTTP_INPUT_BYTES);
    assert_true(rn_http_bytes(&safe) > rn_http_bytes(&few) + 1000 * RN_TLS_BYTES - 1);
}

// ---- a server without a model -------------------------------------------------------------------

// On this machine at all; that ours is found is part of the tests.
static bool has_tls(void) {
    void *library = dlopen("libgnutls.so.30", RTLD_LAZY);
    if (library) dlclose(library);
    return library;
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
    rn_server_options options = {.limits = {.connections = 8}};
    rn_server *server, *second;
    assert_ok(rn_server_create(&options, &server));
    options.port = rn_server_port(server);
    assert_fails(RN_IO, rn_server_create(&options, &second));
    assert_non_null(strstr(rn_last_error()->message, "is taken"));
    rn_server_destroy(server);
    static const char *const hosts[] = {"nowhere.example", "1.2.3", "192.0.2.1", ""};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        options.host = hosts[i];
        assert_fails(RN_INVALID, rn_server_create(&options, &second));
    }
}

static void certificates_are_looked_at_before_they_are_used(void **state) {
    (void)state;
    if (!has_tls()) skip_because("no libgnutls.so.30");
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
    assert_fails(RN_INVALID, rn_server_create(&options, &server));
}

static void a_server_without_memory_leaves_nothing_behind(void **state) {
    (void)state;
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
        cmocka_unit_test(a_head_says_what_is_asked),
        cmocka_unit_test(a_request_says_how_long_it_is),
        cmocka_unit_test(what_could_be_two_requests_is_refused),
        cmocka_unit_test(first_lines_are_taken_by_the_letter),
        cmocka_unit_test(heads_have_a_limit),
        cmocka_unit_test(chunks_are_one_body),
        cmocka_unit_test(chunks_are_taken_by_the_letter),
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
