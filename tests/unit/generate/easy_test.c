// Text in one call: what the explicit calls say, at every budget, with nothing left behind.
#include "support.h"

#include <ration/easy.h>
#include <ration/memory.h>

#include <unistd.h>

typedef struct heard {
    char text[4096];
    size_t bytes, most; // most: of bytes, then it is enough; 0: never
} heard;

static bool hear(void *user, const char *text, size_t bytes) {
    heard *h = user;
    assert_true(bytes > 0 && h->bytes + bytes < sizeof h->text);
    memcpy(h->text + h->bytes, text, bytes);
    h->bytes += bytes;
    h->text[h->bytes] = 0;
    return h->most == 0 || h->bytes < h->most;
}

static rn_status append(void *self, const char *text, size_t bytes) {
    return hear(self, text, bytes) ? RN_OK : RN_INVALID;
}

#define PROMPT "Once upon a time"

// The same by the explicit calls.
static void tell(uint64_t new_tokens, heard *out) {
    rn_model *model = NULL;
    rn_generator *generator = NULL;
    rn_sequence *sequence = NULL;
    rn_tokens tokens = {0};
    rn_answer answer;
    rn_str prompt = {PROMPT, strlen(PROMPT)};
    assert_ok(rn_model_open(NULL, NULL, &model));
    const rn_tokenizer *tokenizer = rn_model_tokenizer(model);
    assert_ok(rn_tokenizer_encode(tokenizer, prompt, RN_ENCODE_BEGIN, &tokens));
    assert_ok(rn_generator_create(model, &(rn_generator_options){0}, &generator));
    assert_ok(rn_sequence_create(generator, NULL, &sequence));
    assert_ok(rn_sequence_answer(sequence, tokenizer, tokens.ids, tokens.count,
                                 &(rn_answer_options){.new_tokens = new_tokens},
                                 (rn_sink){out, append}, &answer));
    assert_int_equal(answer.tokens, new_tokens);
    assert_int_equal(answer.reason, RN_END_LIMIT);
    rn_tokens_free(&tokens);
    rn_generator_destroy(generator);
    rn_model_close(model);
}

static uint64_t held(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes -
           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
}

// ---- text ---------------------------------------------------------------------------------------

static void it_says_what_the_explicit_calls_say(void **state) {
    (void)state;
    heard want = {0}, is = {0};
    rn_plan_summary plan = {0}, predicted;
    rn_answer answer;
    rn_easy_options options = {.new_tokens = 24, .plan = &plan, .answer = &answer};
    tell(24, &want);
    uint64_t before = held();
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    assert_string_equal(is.text, want.text);
    assert_int_equal(answer.tokens, 24);
    assert_int_equal(answer.reason, RN_END_LIMIT);
    assert_int_equal(held(), before);
    options.plan = NULL;
    assert_ok(rn_plan_text(NULL, &options, &predicted));
    assert_int_equal(predicted.planned_bytes, plan.planned_bytes);
    assert_int_equal(held(), before);
}

static void no_options_work(void **state) {
    (void)state;
    heard is = {.most = 20};
    assert_ok(rn_generate_text(NULL, NULL, NULL, hear, &is));
    assert_true(is.bytes >= 20); // and then it was enough
}

// From what the refusal names on, the text is the same; the limit is gone afterwards.
static void the_smallest_budget_that_is_named_works(void **state) {
    (void)state;
    heard want = {0}, is = {0};
    uint64_t soft, hard;
    rn_easy_options options = {.budget_bytes = 1 << 20, .new_tokens = 8, .context = 256};
    rn_plan_summary plan;
    assert_fails(RN_OVER_BUDGET, rn_generate_text(NULL, &options, PROMPT, hear, &is));
    uint64_t smallest = rn_last_refusal()->smallest_budget_bytes;
    assert_int_equal(is.bytes, 0);
    assert_fails(RN_OVER_BUDGET, rn_plan_text(NULL, &options, &plan));
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, RN_NO_LIMIT);
    // Sanitizers' own memory grows with every call: the process is then larger than it was.
    options.budget_bytes = smallest + smallest / 4;
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    tell(8, &want);
    assert_string_equal(is.text, want.text);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, RN_NO_LIMIT);
}

static void a_limit_of_the_program_itself_stays(void **state) {
    (void)state;
    uint64_t soft, hard, limit = (uint64_t)1 << 40;
    heard is = {0};
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, limit));
    rn_easy_options options = {.budget_bytes = (uint64_t)4 << 30, .new_tokens = 2};
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, limit);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
}

static void an_answer_ends_before_a_stop(void **state) {
    (void)state;
    heard want = {0}, is = {0};
    tell(24, &want);
    char word[4] = {want.text[9], want.text[10], want.text[11], 0};
    rn_str stop = {word, 3};
    rn_answer answer;
    rn_easy_options options = {
        .new_tokens = 24, .stops = &stop, .stop_count = 1, .answer = &answer};
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    size_t at = (size_t)(strstr(want.text, word) - want.text);
    assert_int_equal(is.bytes, at);
    assert_memory_equal(is.text, want.text, at);
    assert_int_equal(answer.reason, RN_END_STOP);
}

static void a_device_of_its_own_memory_says_the_same(void **state) {
    (void)state;
    heard want = {0}, is = {0};
    tell(12, &want);
    rn_easy_options options = {.device = "sim", .budget_bytes = 64 << 20, .new_tokens = 12};
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    assert_string_equal(is.text, want.text);
    is.bytes = 0; // the first target cannot be opened
    options.device = "sim:fail_alloc=1;fail_allocs=1000,cpu";
    options.budget_bytes = 0;
    assert_ok(rn_generate_text(NULL, &options, PROMPT, hear, &is));
    assert_string_equal(is.text, want.text);
}

// ---- a conversation -----------------------------------------------------------------------------

// The default model's files beside a template of our own.
static void make_chat_model(void) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char from[4096], here[2048];
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/models/default/%s", here, files[i]);
        assert_int_equal(symlink(from, test_own_path(files[i])), 0);
    }
    static const char form[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    test_write(test_own_path("chat_template.jinja"), form, sizeof form - 1);
}

static void a_conversation_is_written_with_the_models_template(void **state) {
    (void)state;
    rn_chat_message messages[] = {{{"user", 4}, {"Once upon", 9}}, {{"user", 4}, {" a time", 7}}};
    heard want = {0}, is = {0};
    rn_easy_options options = {.new_tokens = 12};
    make_chat_model();
    assert_ok(rn_generate_chat(test_own_folder, &options, messages, 2, hear, &is));
    assert_true(is.bytes > 0);
    assert_fails(RN_NOT_FOUND, rn_generate_chat(NULL, &options, messages, 2, hear, &want));
    assert_non_null(strstr(rn_last_error()->message, "chat template"));
}

// ---- what is refused ----------------------------------------------------------------------------

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    heard is = {0};
    static rn_flag cancel = true;
    rn_easy_options small = {.context = 8}, wrong = {.device = "abacus"},
                    stopped = {.cancel = &cancel};
    char longer[512];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    uint64_t before = held();
    assert_fails(RN_NOT_FOUND, rn_generate_text("no/such/model", NULL, "x", hear, &is));
    assert_fails(RN_INVALID, rn_generate_text(NULL, NULL, "\xff", hear, &is));
    assert_fails(RN_INVALID, rn_generate_text(NULL, &small, longer, hear, &is));
    assert_fails(RN_INVALID, rn_generate_text(NULL, &wrong, "x", hear, &is));
    assert_fails(RN_CANCELLED, rn_generate_text(NULL, &stopped, "x", hear, &is));
    assert_int_equal(is.bytes, 0);
    assert_int_equal(held(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_the_explicit_calls_say),
        cmocka_unit_test(no_options_work),
        cmocka_unit_test(the_smallest_budget_that_is_named_works),
        cmocka_unit_test(a_limit_of_the_program_itself_stays),
        cmocka_unit_test(an_answer_ends_before_a_stop),
        cmocka_unit_test(a_device_of_its_own_memory_says_the_same),
        cmocka_unit_test_setup(a_conversation_is_written_with_the_models_template,
                               test_make_folder),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
