// request_embed_test.c — requests for embeddings: every form of input, of three APIs; what is wrong
// is named.
#include "base/str.h"
#include "server/request.h"
#include "support.h"

static rn_problem problem;

static bool read_as(rn_request_kind kind, const char *body, rn_request *out) {
    rn_request_limits limits = {
        .vocab_size = 100, .choices = 2, .model = RN_STR("m"), .dimensions = 8};
    return rn_request_read(kind, rn_str_from(body), &limits, out, &problem);
}

static void texts_and_tokens(void **state) {
    rn_request r;
    (void)state;
    assert_true(read_as(RN_REQUEST_EMBED, "{\"input\":[\"a\",\"\",\"bc\"],\"model\":\"x\"}", &r));
    assert_int_equal(r.prompt_count, 3); // more than answers at once
    assert_true(rn_str_equal(r.prompts[2].text, RN_STR("bc")));
    assert_true(r.kind == RN_REQUEST_EMBED && !r.base64 && !r.truncates && r.dimensions == 0);
    rn_request_free(&r);
    assert_true(read_as(RN_REQUEST_EMBED,
                        "{\"input\":[1,2],\"encoding_format\":\"base64\",\"dimensions\":8,"
                        "\"truncate\":true,\"user\":\"u\"}",
                        &r));
    assert_true(r.prompt_count == 1 && r.prompts[0].id_count == 2 && r.prompts[0].ids[1] == 2);
    assert_true(r.base64 && r.truncates && r.dimensions == 8);
    rn_request_free(&r);
    assert_true(read_as(RN_REQUEST_EMBED, "{\"input\":[[1],[2,3]]}", &r));
    assert_true(r.prompt_count == 2 && r.prompts[1].id_count == 2);
    rn_request_free(&r);
}

static void ollamas(void **state) {
    rn_request r;
    (void)state;
    assert_true(read_as(RN_REQUEST_OLLAMA_EMBED,
                        "{\"model\":\"m:latest\",\"input\":\"a\",\"options\":{\"num_ctx\":1},"
                        "\"keep_alive\":\"5m\"}",
                        &r));
    assert_true(r.kind == RN_REQUEST_EMBED && r.dialect == RN_DIALECT_OLLAMA_EMBED);
    assert_true(r.truncates && !r.stream && rn_str_equal(r.model, RN_STR("m")));
    rn_request_free(&r);
    assert_true(read_as(RN_REQUEST_OLLAMA_EMBEDDINGS, "{\"prompt\":\"a\"}", &r));
    assert_true(r.dialect == RN_DIALECT_OLLAMA_EMBEDDINGS && r.prompt_count == 1);
    rn_request_free(&r);
}

static void what_is_wrong_is_named(void **state) {
    static const struct {
        rn_request_kind kind;
        const char *body, *field;
    } wrong[] = {
        {RN_REQUEST_EMBED, "{}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":null}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":[]}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":[[]]}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":[\"a\",1]}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":[100]}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":5}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":\"a\",\"input\":\"b\"}", "input"},
        {RN_REQUEST_EMBED, "{\"input\":\"a\",\"dimensions\":9}", "dimensions"},
        {RN_REQUEST_EMBED, "{\"input\":\"a\",\"dimensions\":0}", "dimensions"},
        {RN_REQUEST_EMBED, "{\"input\":\"a\",\"encoding_format\":\"x\"}", "encoding_format"},
        {RN_REQUEST_EMBED, "{\"input\":\"a\",\"truncate\":1}", "truncate"},
        {RN_REQUEST_OLLAMA_EMBED, "{\"input\":\"a\",\"options\":[]}", "options"},
        {RN_REQUEST_OLLAMA_EMBEDDINGS, "{\"prompt\":[\"a\"]}", "prompt"},
        {RN_REQUEST_OLLAMA_EMBEDDINGS, "{\"input\":\"a\"}", "prompt"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rn_request r;
        if (read_as(wrong[i].kind, wrong[i].body, &r)) fail_msg("taken: %s", wrong[i].body);
        assert_int_equal(problem.http, 400);
        assert_string_equal(problem.field, wrong[i].field);
    }
}

// As many texts as may be, of the shortest kind, take no more than is promised.
static void most_texts(void **state) {
    static char body[16 + 3 * (RN_REQUEST_INPUTS + 1) + 16];
    rn_request r;
    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        char *at = body + sprintf(body, "{\"input\":[");
        for (int i = 0; i < RN_REQUEST_INPUTS + extra; i++)
            at += sprintf(at, "%s\"\"", i ? "," : "");
        strcpy(at, "]}");
        assert_true(read_as(RN_REQUEST_EMBED, body, &r) == !extra);
        if (extra) break;
        assert_int_equal(r.prompt_count, RN_REQUEST_INPUTS);
        assert_true(r.memory.held_bytes <=
                    2 * strlen(body) + RN_REQUEST_FIXED_BYTES + RN_REQUEST_INPUT_BYTES);
        rn_request_free(&r);
    }
    assert_string_equal(problem.code, "out_of_range");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_tokens),
        cmocka_unit_test(ollamas),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(most_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
