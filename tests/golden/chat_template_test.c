// chat_template_test.c — conversations through third-party templates, character for character as
// transformers renders them (scripts/reference/chat_golden.py). The templates are shared data.
#include "support.h"

#include <ration/chat.h>

#include "base/alloc.h"
#include "io/json_read.h"

enum { MAX_CONVERSATIONS = 32, MAX_MESSAGES = 16 };

typedef struct golden {
    rn_json_reader json;
    char *text; // of the file
    rn_str bos_token, eos_token;
    rn_chat chats[MAX_CONVERSATIONS];
    rn_chat_message messages[MAX_CONVERSATIONS][MAX_MESSAGES];
    char names[MAX_CONVERSATIONS][64];
    size_t count;
    char *kept[MAX_CONVERSATIONS * MAX_MESSAGES * 2 + 8]; // texts, to be freed
    size_t kept_count;
} golden;

// The reader's texts hold until its next one: copies, for the test's end to free.
static rn_str keep(golden *g, rn_str text) {
    char *copy = malloc(text.bytes + 1);
    assert_non_null(copy);
    memcpy(copy, text.data, text.bytes);
    copy[text.bytes] = '\0';
    assert_true(g->kept_count < sizeof g->kept / sizeof g->kept[0]);
    g->kept[g->kept_count++] = copy;
    return (rn_str){copy, text.bytes};
}

static rn_json_item next(golden *g) {
    rn_json_item item;
    assert_ok(rn_json_next(&g->json, &item));
    return item;
}

static void expect_key(golden *g, const char *key) {
    rn_json_item item = next(g);
    assert_int_equal(RN_JSON_KEY, item.kind);
    assert_true(rn_str_equal(item.text, rn_str_from(key)));
}

static rn_str expect_text(golden *g, const char *key) {
    rn_json_item item;
    expect_key(g, key);
    assert_ok(rn_json_expect(&g->json, RN_JSON_STRING, &item));
    return item.text;
}

static void read_messages(golden *g, rn_chat *chat, rn_chat_message *messages) {
    expect_key(g, "messages");
    assert_ok(rn_json_expect(&g->json, RN_JSON_ARRAY, NULL));
    chat->messages = messages;
    while (next(g).kind == RN_JSON_OBJECT) {
        assert_true(chat->count < MAX_MESSAGES);
        rn_chat_message *message = &messages[chat->count++];
        message->role = keep(g, expect_text(g, "role"));
        message->content = keep(g, expect_text(g, "content"));
        assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT_END, NULL));
    }
}

static void read_conversation(golden *g) {
    uint64_t now;
    assert_true(g->count < MAX_CONVERSATIONS);
    rn_chat *chat = &g->chats[g->count];
    rn_str name = expect_text(g, "name");
    snprintf(g->names[g->count], sizeof g->names[0], "%.*s", RN_STR_ARG(name));
    chat->bos_token = g->bos_token;
    chat->eos_token = g->eos_token;
    expect_key(g, "add_generation_prompt");
    chat->add_generation_prompt = next(g).kind == RN_JSON_TRUE;
    expect_key(g, "now");
    rn_json_item item = next(g);
    assert_ok(rn_json_u64_of(&item, &now));
    chat->now = (int64_t)now;
    read_messages(g, chat, g->messages[g->count++]);
    assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT_END, NULL));
}

static void open_golden(golden *g) {
    size_t bytes;
    memset(g, 0, sizeof *g);
    g->text = test_read("tests/golden/chat_golden.json", &bytes);
    rn_json_reader_init(&g->json, (rn_str){g->text, bytes}, &rn_system_allocator);
    assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT, NULL));
    g->bos_token = keep(g, expect_text(g, "bos_token"));
    g->eos_token = keep(g, expect_text(g, "eos_token"));
    expect_key(g, "conversations");
    assert_ok(rn_json_expect(&g->json, RN_JSON_ARRAY, NULL));
    while (next(g).kind == RN_JSON_OBJECT)
        read_conversation(g);
    expect_key(g, "templates");
    assert_ok(rn_json_expect(&g->json, RN_JSON_ARRAY, NULL));
}

static void close_golden(golden *g) {
    rn_json_reader_free(&g->json);
    while (g->kept_count > 0)
        free(g->kept[--g->kept_count]);
    free(g->text);
}

// The chat_template of a tokenizer_config.json, in place of the whole file.
static void pick_template(char **io_text, size_t *io_bytes) {
    rn_json_reader json;
    rn_json_item item;
    rn_json_reader_init(&json, (rn_str){*io_text, *io_bytes}, &rn_system_allocator);
    assert_ok(rn_json_expect(&json, RN_JSON_OBJECT, NULL));
    for (;;) {
        assert_ok(rn_json_expect(&json, RN_JSON_KEY, &item));
        if (rn_str_equal(item.text, RN_STR("chat_template"))) break;
        assert_ok(rn_json_skip(&json));
    }
    assert_ok(rn_json_expect(&json, RN_JSON_STRING, &item));
    char *picked = malloc(item.text.bytes + 1);
    assert_non_null(picked);
    memcpy(picked, item.text.data, item.text.bytes);
    *io_bytes = item.text.bytes;
    rn_json_reader_free(&json);
    free(*io_text);
    *io_text = picked;
}

static rn_chat_template *open_template(const char *file) {
    size_t bytes;
    rn_chat_template *parsed;
    const char *path = test_data(file);
    if (!path) return NULL;
    char *text = test_read(path, &bytes);
    if (strstr(file, ".json")) pick_template(&text, &bytes);
    assert_ok(rn_chat_template_parse(file, (rn_str){text, bytes}, &parsed));
    free(text);
    return parsed;
}

static void compare(const golden *g, size_t index, const char *file, const rn_chat_template *parsed,
                    bool raises, rn_str expected) {
    rn_buffer out;
    rn_buffer_init(&out, &rn_system_allocator, 1 << 20);
    rn_status s = rn_chat_template_render(parsed, &g->chats[index], rn_buffer_sink(&out));
    if (raises) {
        if (s != RN_INVALID) fail_msg("%s, %s: %s", file, g->names[index], rn_status_name(s));
        if (expected.bytes > 0) // what Jinja itself says of undefined values is not ours to repeat
            assert_string_equal(expected.data, rn_last_error()->message);
        assert_int_equal(0, out.bytes);
    } else {
        if (s != RN_OK) fail_msg("%s, %s: %s", file, g->names[index], rn_last_error()->message);
        if (!rn_str_equal(expected, (rn_str){out.data, out.bytes}))
            fail_msg("%s, %s:\n%.*s\ninstead of\n%.*s", file, g->names[index], (int)out.bytes,
                     out.data, RN_STR_ARG(expected));
    }
    rn_buffer_free(&out);
}

// Returns how many conversations were compared; 0 where the template is missing.
static size_t check_template(golden *g) {
    char file[128];
    rn_json_item item;
    rn_str name = expect_text(g, "file");
    snprintf(file, sizeof file, "%.*s", RN_STR_ARG(name));
    rn_chat_template *parsed = open_template(file);
    expect_key(g, "answers");
    assert_ok(rn_json_expect(&g->json, RN_JSON_ARRAY, NULL));
    for (size_t i = 0; i < g->count; i++) {
        assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT, NULL));
        assert_ok(rn_json_expect(&g->json, RN_JSON_KEY, &item));
        bool raises = rn_str_equal(item.text, RN_STR("error"));
        assert_ok(rn_json_expect(&g->json, RN_JSON_STRING, &item));
        rn_str expected = keep(g, item.text);
        if (parsed) compare(g, i, file, parsed, raises, expected);
        free(g->kept[--g->kept_count]);
        assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT_END, NULL));
    }
    assert_ok(rn_json_expect(&g->json, RN_JSON_ARRAY_END, NULL));
    assert_ok(rn_json_expect(&g->json, RN_JSON_OBJECT_END, NULL));
    rn_chat_template_free(parsed);
    return parsed ? g->count : 0;
}

static void templates_render_as_transformers_does(void **state) {
    static golden g;
    size_t compared = 0, missing = 0;
    (void)state;
    open_golden(&g);
    while (next(&g).kind == RN_JSON_OBJECT) {
        size_t here = check_template(&g);
        compared += here;
        missing += here == 0;
    }
    close_golden(&g);
    print_message("%zu conversations rendered as transformers does\n", compared);
    if (missing > 0) skip_because("no test data: %zu chat templates", missing);
}

// ---- tokens -------------------------------------------------------------------------------------

static bool has_special(const rn_tokenizer *tokenizer, rn_str text) {
    rn_tokens tokens = {0};
    bool any = false;
    assert_ok(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_SPECIAL, &tokens));
    for (size_t i = 0; i < tokens.count; i++)
        any = any || rn_tokenizer_is_special(tokenizer, tokens.ids[i]);
    rn_tokens_free(&tokens);
    return any;
}

static rn_str token_text(const rn_tokenizer *tokenizer, uint32_t id) {
    return id == RN_NO_TOKEN ? (rn_str){0} : rn_tokenizer_bytes(tokenizer, id, true);
}

// Whether it was compared: no message has a special token, and the template takes them.
static bool compare_tokens(const rn_tokenizer *tokenizer, const rn_chat_template *parsed,
                           rn_chat chat, const char *what) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    rn_buffer text;
    rn_tokens want = {0}, got = {0};
    for (size_t i = 0; i < chat.count; i++)
        if (has_special(tokenizer, chat.messages[i].content)) return false;
    chat.bos_token = token_text(tokenizer, info->begin);
    chat.eos_token = token_text(tokenizer, info->end);
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    bool takes = rn_chat_template_render(parsed, &chat, rn_buffer_sink(&text)) == RN_OK;
    if (takes && text.bytes > 0) {
        assert_ok(rn_tokenizer_encode(tokenizer, (rn_str){text.data, text.bytes}, RN_ENCODE_SPECIAL,
                                      &want));
        assert_ok(rn_chat_encode(parsed, tokenizer, &chat, &got));
        if (got.count != want.count || memcmp(got.ids, want.ids, got.count * sizeof *got.ids) != 0)
            fail_msg("%s: other tokens than its rendering's", what);
    }
    rn_buffer_free(&text);
    rn_tokens_free(&got);
    rn_tokens_free(&want);
    return takes;
}

static const char *const tokenizers[] = {"tokenizers/llama2",
                                         "tokenizers/llama3",
                                         "tokenizers/phi-3",
                                         "tokenizers/t5-small/tokenizer.json",
                                         "tokenizers/clip",
                                         "tokenizers/mistral/tokenizer.model.v1",
                                         "vocab/ggml-vocab-phi-3.gguf",
                                         "vocab/ggml-vocab-starcoder.gguf",
                                         "vocab/qwen.tiktoken"};

static const char *const templates[] = {
    "HuggingFaceTB-SmolLM3-3B.jinja",       "Mistral-Small-3.2-24B-Instruct-2506.jinja",
    "Qwen-Qwen2.5-7B-Instruct.jinja",       "Qwen-Qwen3-0.6B.jinja",
    "google-gemma-2-2b-it.jinja",           "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "microsoft-Phi-3.5-mini-instruct.jinja"};

static size_t compare_all(const golden *g, const char *path) {
    size_t compared = 0;
    rn_tokenizer *tokenizer;
    assert_ok(rn_tokenizer_open(path, &tokenizer));
    for (size_t t = 0; t < sizeof templates / sizeof *templates; t++) {
        char file[128];
        snprintf(file, sizeof file, "vocab/templates/%s", templates[t]);
        rn_chat_template *parsed = open_template(file);
        for (size_t i = 0; parsed && i < g->count; i++)
            compared += compare_tokens(tokenizer, parsed, g->chats[i], file);
        rn_chat_template_free(parsed);
    }
    rn_tokenizer_close(tokenizer);
    return compared;
}

static void harmless_conversations_have_their_rendering_s_tokens(void **state) {
    static golden g;
    size_t compared = 0;
    (void)state;
    open_golden(&g);
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++)
        if (test_data(tokenizers[i])) compared += compare_all(&g, test_data(tokenizers[i]));
    close_golden(&g);
    if (compared == 0) skip_because("no tokenizers of the shared data");
    print_message("%zu conversations have their rendering's tokens\n", compared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_transformers_does),
        cmocka_unit_test(harmless_conversations_have_their_rendering_s_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
