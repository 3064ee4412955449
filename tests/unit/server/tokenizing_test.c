// What clients ask becomes tokens: conversations that cannot forge special tokens, limits with
// their numbers, and memory for everything that is held meanwhile.
#include "support.h"

#include "base/buffer.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/tokenizing.h"
#include "server/job_choice.h"

#include <ration/memory.h>
#include <ration/model.h>

static rn_model *model; // the one that is part of the library
static rn_request_memory memory;

static int open_model(void **state) {
    (void)state;
    assert_ok(rn_model_open(NULL, NULL, &model));
    rn_request_memory_init(&memory, 16 << 20);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rn_model_close(model);
    return 0;
}

// ---- conversations ------------------------------------------------------------------------------

typedef struct house {
    const char *tokenizer, *form; // shared data; NULL: the model's own, and a form of ours
    rn_tokenizer *opened;
    const rn_tokenizer *tokens;
    rn_chat_template *parsed;
} house;

static const char own_form[] = "{% for m in messages %}<|endoftext|>{{ m['role'] }}: "
                               "{{ m['content'] | trim }}<|endoftext|>\n{% endfor %}";

// Skips the rest of a test where the data is not here; the first house needs none.
static void open_house(house *h) {
    h->tokens = rn_model_tokenizer(model);
    if (!h->tokenizer) {
        assert_ok(rn_chat_template_parse("form", rn_str_from(own_form), &h->parsed));
        return;
    }
    char path[512];
    size_t bytes;
    const char *form = test_data_or_skip(h->form);
    snprintf(path, sizeof path, "%s", test_data_or_skip(h->tokenizer));
    assert_ok(rn_tokenizer_open(path, &h->opened));
    h->tokens = h->opened;
    char *text = test_read(form, &bytes);
    assert_ok(rn_chat_template_parse("form", (rn_str){text, bytes}, &h->parsed));
    free(text);
}

static void close_house(house *h) {
    rn_chat_template_free(h->parsed);
    if (h->opened) rn_tokenizer_close(h->opened);
}

static house houses[] = {
    {NULL, NULL},
    {"tokenizers/llama3", "vocab/templates/meta-llama-Llama-3.1-8B-Instruct.jinja"},
    {"tokenizers/phi-3", "vocab/templates/microsoft-Phi-3.5-mini-instruct.jinja"},
};
enum { HOUSES = sizeof houses / sizeof *houses };

static rn_tokens encode(const house *h, const char *user) {
    rn_chat_message messages[] = {{.role = RN_STR("system"), .content = RN_STR("Be kind.")},
                                  {.role = RN_STR("user"), .content = rn_str_from(user)}};
    rn_tokens tokens = {0};
    bool too_long;
    assert_ok(rn_tokenizing_encode_chat(h->tokens, h->parsed,
                                        &(rn_request){.messages = messages, .message_count = 2},
                                        1 << 20, &tokens, &too_long));
    return tokens;
}

static size_t count_special(const house *h, const rn_tokens *tokens) {
    size_t count = 0;
    for (size_t i = 0; i < tokens->count; i++)
        count += rn_tokenizer_is_special(h->tokens, tokens->ids[i]);
    return count;
}

// Whether the text stands in what the tokens say, special tokens left out.
static bool says(const house *h, const rn_tokens *tokens, const char *text) {
    rn_decoder decoder;
    rn_buffer said;
    rn_buffer_init(&said, &rn_system_allocator, 1 << 20);
    rn_decoder_begin(&decoder, h->tokens, false);
    for (size_t i = 0; i < tokens->count; i++)
        assert_ok(rn_decoder_put(&decoder, tokens->ids[i], rn_buffer_sink(&said)));
    assert_ok(rn_buffer_append(&said, "", 1));
    bool found = strstr(said.data, text) != NULL;
    rn_buffer_free(&said);
    return found;
}

static void harmless_messages_are_encoded_as_rendered(void **state) {
    (void)state;
    static const char *const texts[] = {"Hello, world!", "", "  a < b | c > d \n",
                                        "\xF3\xB0\x80\x81 and \xE2\x82\xAC"};
    for (size_t i = 0; i < HOUSES; i++) {
        house h = houses[i];
        open_house(&h);
        const rn_tokenizer_info *info = rn_tokenizer_get_info(h.tokens);
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            rn_tokens got = encode(&h, texts[t]), expected = {0};
            rn_chat_message messages[] = {
                {.role = RN_STR("system"), .content = RN_STR("Be kind.")},
                {.role = RN_STR("user"), .content = rn_str_from(texts[t])}};
            rn_chat chat = {.messages = messages,
                            .count = 2,
                            .add_generation_prompt = true,
                            .bos_token = rn_tokenizer_bytes(h.tokens, info->begin, true),
                            .eos_token = rn_tokenizer_bytes(h.tokens, info->end, true),
                            .now = 1700000000};
            rn_buffer text;
            rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
            assert_ok(rn_chat_template_render(h.parsed, &chat, rn_buffer_sink(&text)));
            assert_ok(rn_tokenizer_encode(h.tokens, (rn_str){text.data, text.bytes},
                                          RN_ENCODE_SPECIAL, &expected));
            // Templates write today's date; only its digits may differ.
            assert_int_equal(count_special(&h, &got), count_special(&h, &expected));
            if (i != 1) {
                assert_int_equal(got.count, expected.count);
                assert_memory_equal(got.ids, expected.ids, got.count * sizeof *got.ids);
            }
            rn_buffer_free(&text);
            rn_tokens_free(&got);
            rn_tokens_free(&expected);
        }
        close_house(&h);
    }
}

static void no_message_can_say_a_special_token(void **state) {
    (void)state;
    for (size_t i = 0; i < HOUSES; i++) {
        house h = houses[i];
        open_house(&h);
        rn_tokens harmless = encode(&h, "before x behind");
        size_t expected = count_special(&h, &harmless), tried = 0;
        uint32_t vocab = rn_tokenizer_get_info(h.tokens)->vocab_size;
        for (uint32_t id = 0; id < vocab && tried < 20; id++) {
            if (!rn_tokenizer_is_special(h.tokens, id)) continue;
            rn_str spelled = rn_tokenizer_bytes(h.tokens, id, true);
            char text[512];
            snprintf(text, sizeof text, "before %.*s behind %.*s", RN_STR_ARG(spelled),
                     RN_STR_ARG(spelled));
            rn_tokens got = encode(&h, text);
            assert_int_equal(count_special(&h, &got), expected);
            snprintf(text, sizeof text, "%.*s", RN_STR_ARG(spelled));
            assert_true(says(&h, &got, text));
            rn_tokens_free(&got);
            tried++;
        }
        assert_true(tried > 0);
        rn_tokens_free(&harmless);
        close_house(&h);
    }
}

static void two_messages_cannot_say_one_together(void **state) {
    (void)state;
    static const char form[] = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
    static const char whole[] = "<|endoftext|>";
    house h = {.tokens = rn_model_tokenizer(model)};
    assert_ok(rn_chat_template_parse("form", rn_str_from(form), &h.parsed));
    for (size_t cut = 1; cut + 1 < sizeof whole; cut++)
        for (size_t more = 0; more < 2; more++) { // also behind a false start
            char first[32];
            snprintf(first, sizeof first, "%s%.*s", more ? "a<|end" : "", (int)cut, whole);
            rn_chat_message messages[] = {
                {.role = RN_STR("user"), .content = rn_str_from(first)},
                {.role = RN_STR("user"), .content = rn_str_from(whole + cut)}};
            rn_tokens got = {0};
            bool too_long;
            assert_ok(rn_tokenizing_encode_chat(
                h.tokens, h.parsed, &(rn_request){.messages = messages, .message_count = 2},
                1 << 20, &got, &too_long));
            assert_int_equal(count_special(&h, &got), 0);
            assert_true(says(&h, &got, whole));
            rn_tokens_free(&got);
        }
    rn_chat_template_free(h.parsed);
}

static void characters_that_stand_for_tokens_may_stand_in_a_message(void **state) {
    (void)state;
    static const char text[] = "\xF3\xB0\x80\x80 \xF3\xBF\xBF\xBB<|endoftext|>\xF3\xBF\xBF\xBC "
                               "\xF3\xB0\x80\x81<|";
    house h = houses[0];
    open_house(&h);
    rn_tokens got = encode(&h, text);
    assert_int_equal(count_special(&h, &got), 4); // the form's own
    assert_true(says(&h, &got, text));
    rn_tokens_free(&got);
    close_house(&h);
}

static void prompts_spell_special_tokens_out_and_are_never_empty(void **state) {
    (void)state;
    const rn_tokenizer *tokenizer = rn_model_tokenizer(model);
    house h = {.tokens = tokenizer};
    rn_tokens tokens = {0};
    assert_ok(rn_tokenizing_encode(tokenizer, RN_STR("a<|endoftext|>b"), &tokens));
    assert_true(says(&h, &tokens, "a<|endoftext|>b"));
    rn_tokens_free(&tokens);
    assert_ok(rn_tokenizing_encode(tokenizer, (rn_str){0}, &tokens));
    assert_int_equal(tokens.count, 1);
    rn_tokens_free(&tokens);
}

// ---- memory -------------------------------------------------------------------------------------

// The most that encoding holds beyond what rn_tokenizing_work_bytes says; negative: less.
static int64_t excess(const rn_tokenizer *tokenizer, rn_str text) {
    rn_scope scope;
    rn_tokens tokens = {0};
    rn_scope_begin(&scope, "encode", RN_DEVICE_HOST);
    assert_ok(rn_tokenizing_encode(tokenizer, text, &tokens));
    int64_t peak = (int64_t)rn_scope_end(&scope).peak_allocated;
    rn_tokens_free(&tokens);
    size_t word = rn_tokenizing_longest_word(tokenizer, text);
    return peak - (int64_t)rn_tokenizing_work_bytes(text.bytes, word);
}

static void encoding_holds_no_more_than_is_taken_for_it(void **state) {
    (void)state;
    static const char *const files[] = {NULL,
                                        "tokenizers/llama2",
                                        "tokenizers/llama3",
                                        "tokenizers/phi-3",
                                        "tokenizers/t5-small/tokenizer.json",
                                        "tokenizers/clip",
                                        "tokenizers/sentencepiece/test_model.model"};
    static const char *const words[] = {
        "a", " ", "ab", "hello world, ", "a b", "\xE2\x82\xAC", "<|", "\n", "\xC3\xA9\xCC\x81",
        "0"};
    enum { BYTES = 48 << 10 };
    static char text[BYTES];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const rn_tokenizer *tokenizer = rn_model_tokenizer(model);
        rn_tokenizer *opened = NULL;
        if (files[i]) assert_ok(rn_tokenizer_open(test_data_or_skip(files[i]), &opened));
        if (opened) tokenizer = opened;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
            size_t bytes = strlen(words[w]), whole = BYTES / bytes * bytes;
            for (size_t at = 0; at < whole; at++)
                text[at] = words[w][at % bytes];
            int64_t more = excess(tokenizer, (rn_str){text, whole});
            int64_t short_more = excess(tokenizer, (rn_str){text, 3000 / bytes * bytes});
            if (short_more > more) more = short_more;
            if (more > 0)
                fail_msg("%s, \"%s\": %lld bytes more", files[i] ? files[i] : "default", words[w],
                         (long long)more);
        }
        if (opened) rn_tokenizer_close(opened);
    }
}

// ---- limits -------------------------------------------------------------------------------------

static rn_tokenizing make_intake(void) {
    rn_tokenizing tokenizing = {.tokenizer = rn_model_tokenizer(model),
                                .memory = &memory,
                                .answers_bytes = 1 << 20,
                                .vocab_size = 1536,
                                .context = 128,
                                .page_tokens = 16,
                                .pages = 16,
                                .sequences = 4,
                                .answer_tokens = 100};
    rn_tokenizing_measure(&tokenizing);
    return tokenizing;
}

typedef struct question {
    rn_request_kind kind;
    const char *text;
    const uint32_t *ids;
    size_t id_count;
    uint32_t n, max_tokens, logprobs;
    bool stream;
} question;

static rn_job *make_job(const question *q) {
    void *block;
    rn_job *job;
    rn_request request = {.kind = q->kind,
                          .prompt_count = 1,
                          .n = q->n ? q->n : 1,
                          .max_tokens = q->max_tokens,
                          .sampling = {.logprobs = q->logprobs},
                          .stream = q->stream};
    rn_arena_init(&request.memory, RN_HOST_IO, 512);
    assert_ok(rn_arena_array(&request.memory, 1, sizeof(rn_request_prompt), &block));
    request.prompts = block;
    *request.prompts = (rn_request_prompt){rn_str_from(q->text), q->ids, q->id_count};
    assert_ok(rn_arena_array(&request.memory, 1, sizeof(rn_chat_message), &block));
    request.messages = block;
    *request.messages = (rn_chat_message){.role = RN_STR("user"), .content = rn_str_from(q->text)};
    request.message_count = q->kind == RN_REQUEST_CHAT;
    assert_true(rn_request_memory_take(&memory, 1000));
    assert_ok(rn_job_create(&request, &memory, 1000, 0, NULL, NULL, &job));
    return job;
}

static void end_job(rn_job *job) {
    rn_job_release(job);
    rn_job_release(job);
    assert_int_equal(memory.taken_bytes, 0);
}

static void refused(const rn_tokenizing *tokenizing, question q, uint16_t http, const char *code,
                    const char *field, const char *number) {
    rn_problem problem = {0};
    rn_job *job = make_job(&q);
    assert_false(rn_tokenizing_read(tokenizing, job, &problem));
    assert_int_equal(problem.http, http);
    assert_string_equal(problem.code, code);
    assert_string_equal(problem.field, field);
    if (!strstr(problem.message, number)) fail_msg("%s: no %s", problem.message, number);
    end_job(job);
}

static char long_text[200 << 10];

static void what_never_fits_is_refused_with_the_numbers(void **state) {
    (void)state;
    rn_tokenizing tokenizing = make_intake();
    static const uint32_t ids[200] = {1, 2, 1536};
    memset(long_text, 'x', sizeof long_text - 1);
    static char words[513];
    for (size_t i = 0; i < 512; i++)
        words[i] = i % 4 ? 'q' : ' ';
    const char *length = "context_length_exceeded";
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, long_text}, 400, length, "prompt",
            "204799");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, words}, 400, length, "prompt", "128");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, NULL, ids, 200}, 400, "out_of_range",
            "prompt", "1536");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, NULL, ids + 3, 150}, 400, length,
            "prompt", "150");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, NULL, ids, 0}, 400, "invalid_value",
            "prompt", "empty");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, "a", .n = 5}, 400, "out_of_range", "n",
            "4");
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, "a", .n = 4, .max_tokens = 100}, 400,
            "too_large", "max_tokens", "28");
    refused(&tokenizing, (question){RN_REQUEST_CHAT, "a"}, 400, "no_chat_template", "messages", "");
    tokenizing.answers_bytes = 1000;
    refused(&tokenizing, (question){RN_REQUEST_COMPLETION, "a", .max_tokens = 90}, 400, "too_large",
            "max_tokens", "1000 B");
}

static void what_a_template_raises_is_told(void **state) {
    (void)state;
    rn_chat_template *form;
    rn_tokenizing tokenizing = make_intake();
    assert_ok(rn_chat_template_parse(
        "form", RN_STR("{{ raise_exception('roles must alternate') }}"), &form));
    tokenizing.form = form;
    refused(&tokenizing, (question){RN_REQUEST_CHAT, "a"}, 400, "invalid_value", "messages",
            "roles must alternate");
    rn_chat_template_free(form);
}

static void what_a_template_makes_too_long_is_refused_for_its_length(void **state) {
    (void)state;
    rn_chat_template *form;
    rn_tokenizing tokenizing = make_intake();
    tokenizing.spelled_bytes = 2; // of 128 tokens
    assert_ok(rn_chat_template_parse(
        "form", RN_STR("{% for i in range(300) %}{{ messages[0].content }}{% endfor %}"), &form));
    tokenizing.form = form;
    refused(&tokenizing, (question){RN_REQUEST_CHAT, "a"}, 400, "context_length_exceeded",
            "messages", "128");
    refused(&tokenizing, (question){RN_REQUEST_CHAT, "<|endoftext|>"}, 400,
            "context_length_exceeded", "messages", "128");
    rn_chat_template_free(form);
}

static void without_room_there_is_a_429(void **state) {
    (void)state;
    rn_tokenizing tokenizing = make_intake();
    rn_problem problem = {0};
    rn_job *job = make_job(&(question){RN_REQUEST_COMPLETION, "a"});
    assert_true(rn_request_memory_take(&memory, (16 << 20) - 1000));
    assert_false(rn_tokenizing_read(&tokenizing, job, &problem));
    assert_int_equal(problem.http, 429);
    assert_true(problem.retry_seconds > 0);
    rn_request_memory_release(&memory, (16 << 20) - 1000);
    end_job(job);
}

static void an_answer_s_length_follows_from_what_was_asked(void **state) {
    (void)state;
    static const struct {
        question asked;
        uint32_t max_tokens;
    } rows[] = {{{RN_REQUEST_COMPLETION, "a"}, 16},
                {{RN_REQUEST_GENERATE, "a"}, 100},
                {{RN_REQUEST_CHAT, "a"}, 100},
                {{RN_REQUEST_COMPLETION, "a", .max_tokens = 7}, 7},
                {{RN_REQUEST_COMPLETION, "a", .max_tokens = 101}, 100}, // the server's most
                {{RN_REQUEST_GENERATE, "a"}, 100}};
    rn_tokenizing tokenizing = make_intake();
    rn_chat_template *form;
    assert_ok(rn_chat_template_parse("form", rn_str_from(own_form), &form));
    tokenizing.form = form;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rn_problem problem;
        rn_job *job = make_job(&rows[i].asked);
        assert_true(rn_tokenizing_read(&tokenizing, job, &problem));
        assert_int_equal(job->max_tokens, rows[i].max_tokens);
        end_job(job);
    }
    static const uint32_t ids[120] = {0};
    rn_problem problem;
    rn_job *job = make_job(&(question){RN_REQUEST_COMPLETION, NULL, ids, 120});
    assert_true(rn_tokenizing_read(&tokenizing, job, &problem));
    assert_int_equal(job->max_tokens, 8); // what is left
    end_job(job);
    job = make_job(&(question){RN_REQUEST_COMPLETION, NULL, ids, 120, .max_tokens = 9});
    assert_true(rn_tokenizing_read(&tokenizing, job, &problem));
    assert_int_equal(job->max_tokens, 8);
    end_job(job);
    rn_chat_template_free(form);
}

// The most that reading a conversation holds beyond what it takes of the request memory; negative:
// less.
static int64_t chat_excess(const house *h, const char *text) {
    static const uint64_t ample = (uint64_t)1 << 30;
    rn_tokenizing tokenizing = make_intake();
    rn_problem problem = {0};
    rn_scope scope;
    tokenizing.tokenizer = h->tokens;
    tokenizing.form = h->parsed;
    tokenizing.context = 1 << 20;
    tokenizing.pages = UINT32_MAX;
    rn_request_memory_init(&memory, ample);
    rn_job *job = make_job(&(question){RN_REQUEST_CHAT, text});
    rn_scope_begin(&scope, "read", RN_DEVICE_HOST);
    if (!rn_tokenizing_read(&tokenizing, job, &problem)) fail_msg("%s", problem.message);
    int64_t peak = (int64_t)rn_scope_end(&scope).peak_allocated;
    int64_t taken = (int64_t)memory.peak_bytes - 1000; // the request itself
    end_job(job);
    rn_request_memory_init(&memory, 16 << 20);
    return peak - taken;
}

static void a_conversation_holds_no_more_than_is_taken_for_it(void **state) {
    (void)state;
    static const char *const words[] = {"hello world, ",
                                        "<|endoftext|>",
                                        "<|eot_id|>",
                                        "<|end|> ",
                                        "\xF3\xB0\x80\x81 <|eot_id|>",
                                        "\xF3\xB0\x80\x81",
                                        "\n",
                                        "<"};
    enum { BYTES = 24 << 10 };
    static char text[BYTES + 1];
    for (size_t i = 0; i < HOUSES; i++) {
        house h = houses[i];
        open_house(&h);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
            size_t bytes = strlen(words[w]), whole = BYTES / bytes * bytes;
            for (size_t at = 0; at < whole; at++)
                text[at] = words[w][at % bytes];
            text[whole] = 0;
            int64_t more = chat_excess(&h, text);
            text[2000 / bytes * bytes] = 0;
            int64_t short_more = chat_excess(&h, text);
            if (more > 0 || short_more > 0)
                fail_msg("form %zu, \"%s\": %lld or %lld bytes more", i, words[w], (long long)more,
                         (long long)short_more);
        }
        close_house(&h);
    }
}

static void seeds_that_nobody_chose_differ(void **state) {
    (void)state;
    rn_tokenizing tokenizing = make_intake();
    rn_problem problem;
    rn_job *a = make_job(&(question){RN_REQUEST_COMPLETION, "a"});
    rn_job *b = make_job(&(question){RN_REQUEST_COMPLETION, "a"});
    assert_true(rn_tokenizing_read(&tokenizing, a, &problem) &&
                rn_tokenizing_read(&tokenizing, b, &problem));
    assert_int_not_equal(a->request.sampling.seed, b->request.sampling.seed);
    rn_job_release(a);
    rn_job_release(a);
    end_job(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(harmless_messages_are_encoded_as_rendered),
        cmocka_unit_test(no_message_can_say_a_special_token),
        cmocka_unit_test(two_messages_cannot_say_one_together),
        cmocka_unit_test(characters_that_stand_for_tokens_may_stand_in_a_message),
        cmocka_unit_test(prompts_spell_special_tokens_out_and_are_never_empty),
        cmocka_unit_test(encoding_holds_no_more_than_is_taken_for_it),
        cmocka_unit_test(a_conversation_holds_no_more_than_is_taken_for_it),
        cmocka_unit_test(what_never_fits_is_refused_with_the_numbers),
        cmocka_unit_test(what_a_template_raises_is_told),
        cmocka_unit_test(what_a_template_makes_too_long_is_refused_for_its_length),
        cmocka_unit_test(without_room_there_is_a_429),
        cmocka_unit_test(an_answer_s_length_follows_from_what_was_asked),
        cmocka_unit_test(seeds_that_nobody_chose_differ),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
