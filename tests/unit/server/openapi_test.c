// openapi_test.c — the document describes the routes that there are, and no others.
#include "io/json_read.h"
#include "memory/account.h"
#include "server/http_parts.h"
#include "support.h"

static rn_str document(void) {
    rn_http_answer answer = {.status = 200};
    assert_ok(rn_handle_openapi(NULL, NULL, &answer));
    return answer.borrowed;
}

// "/v1/models/{model}" is "/v1/models/*" in the table.
static bool is_path(rn_str documented, const char *path) {
    const char *brace = memchr(documented.data, '{', documented.bytes);
    size_t bytes = brace ? (size_t)(brace - documented.data) : documented.bytes;
    return strncmp(documented.data, path, bytes) == 0 &&
           strcmp(path + bytes, brace ? "*" : "") == 0;
}

static bool is_method(rn_str documented, const char *method) {
    return rn_str_equal_ignoring_case(documented, rn_str_from(method));
}

static size_t find(rn_str path, rn_str method) {
    size_t count, i = 0;
    const rn_route *routes = rn_routes(&count);
    while (i < count && !(is_path(path, routes[i].path) && is_method(method, routes[i].method)))
        i++;
    return i;
}

static void next_key(rn_json_reader *reader, rn_json_item *out) {
    assert_ok(rn_json_next(reader, out));
}

static void paths_and_routes_are_the_same(void **state) {
    size_t count;
    uint64_t documented = 0;
    rn_json_reader reader;
    rn_json_item key, path, method;
    (void)state;
    rn_routes(&count);
    rn_json_reader_init(&reader, document(), RN_HOST_IO);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    for (next_key(&reader, &key); !rn_str_equal(key.text, RN_STR("paths")); next_key(&reader, &key))
        assert_ok(rn_json_skip(&reader));
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    for (next_key(&reader, &path); path.kind == RN_JSON_KEY; next_key(&reader, &path)) {
        assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
        for (next_key(&reader, &method); method.kind == RN_JSON_KEY; next_key(&reader, &method)) {
            size_t route = find(path.text, method.text);
            if (route == count) fail_msg("%.*s is no route", RN_STR_ARG(path.text));
            documented |= (uint64_t)1 << route;
            assert_ok(rn_json_skip(&reader));
        }
    }
    for (size_t i = 0; i < count; i++)
        if (!(documented >> i & 1)) fail_msg("route %zu is not in the document", i);
    rn_json_reader_free(&reader);
}

static void it_is_json(void **state) {
    rn_json_reader reader;
    (void)state;
    rn_json_reader_init(&reader, document(), RN_HOST_IO);
    assert_ok(rn_json_skip(&reader));
    assert_ok(rn_json_expect(&reader, RN_JSON_END, NULL));
    rn_json_reader_free(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_and_routes_are_the_same),
        cmocka_unit_test(it_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
