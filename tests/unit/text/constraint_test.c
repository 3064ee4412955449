// Texts by a schema: which bytes may come, which schemas are refused, and that whatever is drawn at
// random from the allowed tokens is JSON that keeps to its schema.
#include "support.h"

#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "text/constraint/json_machine.h"

#include <ration/constraint.h>
#include <ration/model.h>

// ---- bytes --------------------------------------------------------------------------------------

// How many bytes of the text are allowed; the whole and one more where it may also end there.
static size_t walk(const char *schema, const char *text) {
    static rn_json_machine machine;
    rn_json_rules rules;
    rn_json_state state, next;
    size_t at = 0;
    assert_ok(rn_json_rules_compile(rn_str_from(schema), &rules));
    rn_json_machine_begin(&machine, &rules, &state);
    for (; text[at]; at++) {
        if (!rn_json_machine_step(&machine, &state, (uint8_t)text[at], &next)) break;
        state = next;
    }
    if (!text[at] && rn_json_machine_may_end(&machine, &state)) at++;
    rn_json_rules_free(&rules);
    return at;
}

static bool accepts(const char *schema, const char *text) {
    return walk(schema, text) == strlen(text) + 1;
}

#define ADDRESS                                                                                    \
    "{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"number\":{\"type\":"  \
    "\"integer\",\"minimum\":1,\"maximum\":250},\"flat\":{\"type\":[\"string\",\"null\"]}},"       \
    "\"required\":[\"street\",\"number\"],\"additionalProperties\":false}"

static void texts_keep_to_their_schema(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text;
        bool good;
    } rows[] = {
        {"", "{}", true},
        {"", "[]", false},
        {"", "{\"a\": [1, 2.5e-3, true, null, {\"b\": \"\\u00e4\\n\"}]}", true},
        {"", "{\"a\" : 1}", false}, // no blank before a colon
        {"", "{\"a\":1,}", false},
        {"", "{\n  \"a\": 1,\n  \"b\": []\n}", true},
        {"", "{\"a\":\"\xc3\xa4\xf0\x9f\x98\x80\"}", true},
        {"", "{\"a\":\"\xc3\x28\"}", false},
        {"", "{\"a\":\"\xed\xa0\x80\"}", false}, // half of a pair
        {"", "{\"a\":\"\\ud83d\"}", false},
        {"", "{\"a\":01}", false},
        {"", "{\"a\":-0.5}", true},
        {"", "{\"a\":1.}", false},
        {"", "{\"a\":tru}", false},
        {"{}", "12", true},
        {"true", "\"x\"", true},
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 7}", true},
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 7, \"flat\": null}", true},
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 251}", false},
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 0}", false},
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 250}", true},
        {ADDRESS, "{\"street\": \"Elm\"}", false},
        {ADDRESS, "{\"number\": 7, \"street\": \"Elm\"}", false}, // not in the schema's order
        {ADDRESS, "{\"street\": \"Elm\", \"number\": 7, \"x\": 1}", false},
        {"{\"enum\": [\"red\", \"redder\", 1, 12, null, {\"a\": [1, 2]}]}", "\"redder\"", true},
        {"{\"enum\": [\"red\", \"redder\", 1, 12]}", "\"red\"", true},
        {"{\"enum\": [\"red\", \"redder\", 1, 12]}", "12", true},
        {"{\"enum\": [\"red\", \"redder\", 1, 12]}", "13", false},
        {"{\"enum\": [{\"a\": [1, 2]}]}", "{\"a\":[1,2]}", true},
        {"{\"enum\": [1, \"a\"], \"type\": \"string\"}", "1", false},
        {"{\"const\": \"a\\\"b\"}", "\"a\\\"b\"", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1, 2]", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1]", false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1,2,3,4]", false},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[\"a\"]",
         true},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}",
         "[\"a\",1]", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xc3\xa4\\n\"", true},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd\"", false},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "0.25", true},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "0", false},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "1.0", true},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "1.1", false},
        {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":-1.5}", "-1.75", true},
        {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":-1.5}", "-1.25", false},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}", "10", true},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}", "9", false},
        {"{\"type\":\"integer\",\"minimum\":-150,\"maximum\":-120}", "-131", true},
        {"{\"type\":\"integer\",\"minimum\":-150,\"maximum\":-120}", "-13", false},
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"type\":"
         "\"null\"}},\"required\":[\"a\",\"b\"]},{\"type\":\"object\",\"properties\":{\"a\":{"
         "\"const\":2}},\"required\":[\"a\"]}]}",
         "{\"a\":2}", true},
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"type\":"
         "\"null\"}},\"required\":[\"a\",\"b\"]},{\"type\":\"object\",\"properties\":{\"a\":{"
         "\"const\":2}},\"required\":[\"a\"]}]}",
         "{\"a\":1}", false},
        {"{\"$ref\":\"#/$defs/list\",\"$defs\":{\"list\":{\"type\":\"object\",\"properties\":{"
         "\"head\":{\"type\":\"integer\"},\"tail\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":"
         "\"#/$defs/list\"}]}},\"required\":[\"head\",\"tail\"]}}}",
         "{\"head\":1,\"tail\":{\"head\":2,\"tail\":null}}", true},
        {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":{\"type\":\"string\"}}",
         "{\"name\":1,\"nam\":\"x\",\"names\":\"y\"}", true},
        // Another spelling of a name that has a schema of its own is no further property.
        {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":{\"type\":\"string\"}}",
         "{\"name\":\"x\"}", false},
        {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":{\"type\":\"string\"}}",
         "{\"n\\u0061me\":\"x\"}", false},
        {"{\"type\":\"object\",\"required\":[\"id\"]}", "{\"id\":[],\"x\":1}", true},
        {"{\"type\":\"object\",\"required\":[\"id\"]}", "{\"x\":1,\"id\":[]}", false},
        // A required name without a schema of its own is a further property.
        {"{\"required\":[\"id\"],\"additionalProperties\":{\"type\":\"integer\"}}", "{\"id\":7}",
         true},
        {"{\"required\":[\"id\"],\"additionalProperties\":{\"type\":\"integer\"}}", "{\"id\":[]}",
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (accepts(rows[i].schema, rows[i].text) != rows[i].good)
            fail_msg("%s with %s: %zu bytes", rows[i].schema, rows[i].text,
                     walk(rows[i].schema, rows[i].text));
}

static void schemas_that_cannot_be_kept_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *schema, *says;
    } rows[] = {
        {"{\"type\":", "JSON"},
        {"[]", "a schema must be an object"},
        {"{\"type\":\"thing\"}", "\"type\" must be"},
        {"{\"type\":\"string\",\"pattern\":\"a+\"}", "\"pattern\" is not supported"},
        {"{\"not\":{}}", "\"not\" is not supported"},
        {"{\"enum\":[]}", "no JSON text satisfies"},
        {"false", "no JSON text satisfies"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no JSON text satisfies"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2,\"exclusiveMaximum\":3}",
         "no JSON text satisfies"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no JSON text satisfies"},
        {"{\"type\":\"array\",\"items\":false,\"minItems\":1}", "no JSON text satisfies"},
        {"{\"$ref\":\"#\"}", "no JSON text satisfies"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "no JSON text satisfies"},
        {"{\"$ref\":\"#/$defs/x\"}", "which is not there"},
        {"{\"$ref\":\"http://example.com/s\"}", "refers to"},
        {"{\"allOf\":[{},{}]}", "\"allOf\" of 2"},
        {"{\"type\":\"object\",\"anyOf\":[{}]}", "beside other demands"},
        {"{\"properties\":{\"a\":{},\"a\":{}}}", "twice"},
        {"{\"minLength\":-1}", "0 or more"},
        {"{\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}",
         "no JSON text satisfies"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rn_json_rules rules;
        rn_status s = rn_json_rules_compile(rn_str_from(rows[i].schema), &rules);
        if (s == RN_OK || !strstr(rn_last_error()->message, rows[i].says))
            fail_msg("%s: %s", rows[i].schema, s == RN_OK ? "taken" : rn_last_error()->message);
    }
}

// "oneOf" is taken where a text of one alternative cannot be one of another, and refused elsewhere.
static void of_exclusive_alternatives_only_one_is_true(void **state) {
    (void)state;
#define ONE(a, b) "{\"oneOf\":[" a "," b "]}"
#define KIND(name, more)                                                                           \
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"" name "\"}" more                  \
    "},\"required\":[\"kind\"]}"
#define NEEDS(name, more)                                                                          \
    "{\"type\":\"object\",\"properties\":{\"" name "\":{}},\"required\":[\"" name "\"]" more "}"
    static const struct {
        const char *schema;
        bool good;
    } rows[] = {
        {ONE("{\"type\":\"string\"}", "{\"type\":\"null\"}"), true},
        {ONE("{\"type\":\"integer\"}", "{\"type\":\"number\"}"), false},
        {ONE("{\"type\":\"integer\"}", "{\"minLength\":2}"), false}, // whole numbers satisfy both
        {ONE("{\"type\":\"integer\"}", "{\"type\":\"string\",\"minLength\":2}"), true},
        {ONE("{\"type\":\"number\",\"maximum\":3}", "{\"type\":\"number\",\"exclusiveMinimum\":3}"),
         true},
        {ONE("{\"type\":\"number\",\"maximum\":3}", "{\"type\":\"number\",\"minimum\":3}"), false},
        {ONE("{\"enum\":[1,\"a\"]}", "{\"enum\":[\"b\",null]}"), true},
        {ONE("{\"enum\":[1]}", "{\"enum\":[1.0]}"), false},
        {ONE("{\"enum\":[\"a\"]}", "{\"enum\":[\"\\u0061\"]}"), false},
        {ONE("{\"enum\":[5]}", "{\"type\":\"integer\",\"minimum\":6}"), true},
        {ONE("{\"enum\":[7]}", "{\"type\":\"integer\",\"minimum\":6}"), false},
        {ONE("{\"enum\":[\"a\"]}", "{\"type\":\"string\"}"), false},
        {ONE("{\"enum\":[{\"a\":1,\"b\":2}]}", "{\"enum\":[{\"b\":2,\"a\":1}]}"), false},
        {ONE("{\"type\":\"string\",\"maxLength\":2}", "{\"type\":\"string\",\"minLength\":3}"),
         true},
        {ONE(KIND("cat", ""), KIND("dog", ",\"age\":{\"type\":\"integer\"}")), true},
        {ONE(KIND("cat", ""), KIND("cat", ",\"age\":{\"type\":\"integer\"}")), false},
        {ONE(NEEDS("a", ""), NEEDS("b", "")), true},
        {ONE(NEEDS("a", ",\"additionalProperties\":true"), NEEDS("b", "")), false},
        {ONE(NEEDS("a", ",\"additionalProperties\":{}"),
             NEEDS("b", ",\"additionalProperties\":false")),
         true},
        {ONE("{\"type\":\"object\"}", NEEDS("b", "")), false},
        {ONE("{\"type\":\"array\",\"maxItems\":1}", "{\"type\":\"array\",\"minItems\":2}"), true},
        {ONE("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}",
             "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"),
         false}, // both may be empty
        {ONE("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1}",
             "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1}"),
         true},
        {ONE("{}", "false"), true},
        {ONE("{}", "{\"type\":\"null\"}"), false},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"type\":"
         "\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}}}}}",
         true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rn_json_rules rules;
        rn_status s = rn_json_rules_compile(rn_str_from(rows[i].schema), &rules);
        if ((s == RN_OK) != rows[i].good)
            fail_msg("%s: %s", rows[i].schema, s == RN_OK ? "taken" : rn_last_error()->message);
        if (s == RN_OK)
            rn_json_rules_free(&rules);
        else
            assert_int_equal(s, RN_UNSUPPORTED);
    }
    assert_true(accepts(ONE(KIND("cat", ""), KIND("dog", "")), "{\"kind\":\"dog\"}"));
}

// A megabyte of brackets, long lists, references to references: an answer, not a crash.
static void hostile_schemas_have_limits(void **state) {
    (void)state;
    static char text[RN_SCHEMA_BYTES + 2];
    rn_json_rules rules;
    memset(text, '[', sizeof text);
    assert_int_equal(rn_json_rules_compile((rn_str){text, sizeof text}, &rules), RN_INVALID);
    assert_int_equal(rn_json_rules_compile((rn_str){text, RN_SCHEMA_BYTES}, &rules), RN_INVALID);
    size_t at = 0;
    for (int i = 0; i < 60; i++) // as deep as JSON is read
        at += (size_t)snprintf(text + at, sizeof text - at, "{\"items\":");
    snprintf(text + at, sizeof text - at, "{}%.*s", 60,
             "}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}");
    assert_ok(rn_json_rules_compile(rn_str_from(text), &rules));
    rn_json_rules_free(&rules);
    at = (size_t)snprintf(text, sizeof text, "{\"anyOf\":[false");
    while (at < RN_SCHEMA_BYTES - 16)
        at += (size_t)snprintf(text + at, sizeof text - at, ",false");
    snprintf(text + at, sizeof text - at, "]}");
    assert_true(rn_json_rules_compile(rn_str_from(text), &rules) != RN_OK);
    // Alternatives within alternatives, all alike: 2^20 ways.
    at = (size_t)snprintf(text, sizeof text, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{");
    for (int i = 0; i < 20; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "\"a%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/"
                               "a%d\"}]},",
                               i, i + 1, i + 1);
    snprintf(text + at, sizeof text - at, "\"a20\":{\"type\":\"string\"}}}");
    assert_true(accepts(text, "\"x\""));
    // Alternatives that each name a thousand others.
    at = (size_t)snprintf(text, sizeof text, "{\"oneOf\":[");
    for (int i = 0; at < RN_SCHEMA_BYTES - 64; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "{\"enum\":[%d,\"a%d\"]},", i, i);
    snprintf(text + at, sizeof text - at, "{\"type\":\"null\"}]}");
    assert_int_equal(rn_json_rules_compile(rn_str_from(text), &rules), RN_UNSUPPORTED);
}

// ---- tokens -------------------------------------------------------------------------------------

static uint32_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static uint32_t count_bits(const uint32_t *mask, uint32_t words) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < words; w++)
        count += (uint32_t)__builtin_popcount(mask[w]);
    return count;
}

static uint32_t pick(const uint32_t *mask, uint32_t words, uint32_t index) {
    for (uint32_t w = 0; w < words; w++) {
        uint32_t bits = (uint32_t)__builtin_popcount(mask[w]);
        for (uint32_t b = 0; index < bits && b < 32; b++)
            if (mask[w] >> b & 1 && index-- == 0) return w * 32 + b;
        if (index >= bits) index -= bits;
    }
    fail();
    return 0;
}

// Random tokens, but a quote or bracket often enough that texts end.
static void write_random(const rn_tokenizer *tokenizer, rn_constraint *c, uint64_t seed,
                         const char *schema) {
    uint32_t vocab = rn_tokenizer_get_info(tokenizer)->vocab_size, words = (vocab + 31) / 32;
    static char text[1 << 16];
    size_t bytes = 0;
    const char *closing[] = {"\"", "}", "]", ",", ":", "{\"", "1"};
    for (int step = 0; step < 3000; step++) {
        const uint32_t *mask = rn_constraint_mask(c);
        text[bytes] = 0;
        if (!mask) fail_msg("%s: nothing can follow %s", schema, text);
        uint32_t token = pick(mask, words, draw(&seed) % count_bits(mask, words));
        for (int i = 0; i < 3; i++) {
            const char *want = closing[draw(&seed) % 7];
            uint32_t id = rn_tokenizer_find(tokenizer, rn_str_from(want));
            if (draw(&seed) % 2 && id != RN_NO_TOKEN && mask[id / 32] >> id % 32 & 1) token = id;
        }
        assert_ok(rn_constraint_advance(c, token));
        if (rn_tokenizer_is_end(tokenizer, token)) {
            text[bytes] = 0;
            if (!accepts(schema, text)) fail_msg("%s: %s", schema, text);
            rn_json_reader reader;
            rn_json_reader_init(&reader, (rn_str){text, bytes}, RN_HOST_OTHER);
            rn_json_item item;
            do
                assert_ok(rn_json_next(&reader, &item));
            while (item.kind != RN_JSON_END);
            rn_json_reader_free(&reader);
            return;
        }
        rn_str piece = rn_tokenizer_bytes(tokenizer, token, false);
        assert_true(bytes + piece.bytes < sizeof text - 1);
        memcpy(text + bytes, piece.data, piece.bytes);
        bytes += piece.bytes;
    }
}

static void random_tokens_make_texts_of_the_schema(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "", ADDRESS,
        "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":0.5},\"minItems\":3}",
        "{\"anyOf\":[{\"enum\":[\"a\",\"ab\",\"b\\\"c\"]},{\"type\":\"integer\"},{\"type\":"
        "\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"maxLength\":5}},"
        "\"additionalProperties\":true}]}"};
    rn_model *model;
    rn_vocabulary *vocabulary;
    assert_ok(rn_model_open(NULL, NULL, &model));
    const rn_tokenizer *tokenizer = rn_model_tokenizer(model);
    assert_ok(
        rn_vocabulary_create(tokenizer, rn_tokenizer_get_info(tokenizer)->vocab_size, &vocabulary));
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        rn_constraint *first, *c;
        assert_ok(rn_constraint_create(vocabulary, rn_str_from(schemas[i]), &first));
        for (uint64_t seed = 1; seed <= 12; seed++) {
            assert_ok(rn_constraint_clone(first, &c));
            write_random(tokenizer, c, seed, schemas[i]);
            rn_constraint_destroy(c);
        }
        rn_constraint_destroy(first);
    }
    rn_vocabulary_destroy(vocabulary);
    rn_model_close(model);
}

// A mask that is kept is the mask that is made anew: step by step the same tokens with both.
static void kept_masks_are_those_of_a_new_vocabulary(void **state) {
    (void)state;
    rn_model *model;
    rn_vocabulary *kept, *fresh;
    assert_ok(rn_model_open(NULL, NULL, &model));
    const rn_tokenizer *tokenizer = rn_model_tokenizer(model);
    uint32_t vocab = rn_tokenizer_get_info(tokenizer)->vocab_size, words = (vocab + 31) / 32;
    assert_ok(rn_vocabulary_create(tokenizer, vocab, &kept));
    for (int text = 0; text < 3; text++) {
        rn_constraint *a, *b;
        uint64_t seed = (uint64_t)text / 2; // the first two are the same text
        assert_ok(rn_vocabulary_create(tokenizer, vocab, &fresh));
        assert_ok(rn_constraint_create(kept, RN_STR(ADDRESS), &a));
        assert_ok(rn_constraint_create(fresh, RN_STR(ADDRESS), &b));
        for (int step = 0; step < 40 && !rn_constraint_may_end(a); step++) {
            const uint32_t *mask = rn_constraint_mask(a);
            assert_non_null(mask);
            assert_memory_equal(mask, rn_constraint_mask(b), words * sizeof *mask);
            uint32_t token = pick(mask, words, draw(&seed) % count_bits(mask, words));
            assert_ok(rn_constraint_advance(a, token));
            assert_ok(rn_constraint_advance(b, token));
        }
        rn_constraint_destroy(a);
        rn_constraint_destroy(b);
        rn_vocabulary_destroy(fresh);
    }
    rn_vocabulary_destroy(kept);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_keep_to_their_schema),
        cmocka_unit_test(schemas_that_cannot_be_kept_are_refused),
        cmocka_unit_test(of_exclusive_alternatives_only_one_is_true),
        cmocka_unit_test(hostile_schemas_have_limits),
        cmocka_unit_test(random_tokens_make_texts_of_the_schema),
        cmocka_unit_test(kept_masks_are_those_of_a_new_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
