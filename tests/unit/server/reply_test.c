// reply_test.c — pieces in, bytes out: the shapes that OpenAI's clients read, however small the
// steps in which they are taken.
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/job_choice.h"
#include "server/reply.h"
#include "support.h"

#include <math.h>

// Tokens: a, b, the two bytes of e with an accent, " c", a quote, and one that is special.
enum { A, B, E1, E2, C, QUOTE, END };
static const char vocabulary[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":6,\"content\":\"<end>\",\"special\":true,"
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
    "\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\xC3\x83\":2,"
    "\"\xC2\xA9\":3,\"\xC4\xA0"
    "c\":4,\"\\\"\":5,\"<end>\":6},\"merges\":[]}}";

static rn_tokenizer *tokenizer;
static rn_request_memory memory;
static rn_job *job;
static rn_reply reply;
static char answer[1 << 20];

static int open_tokenizer(void **state) {
    (void)state;
    rn_request_memory_init(&memory, 64 << 20);
    return rn_tokenizer_from_json("test", rn_str_from(vocabulary), &tokenizer) != RN_OK;
}

static int close_tokenizer(void **state) {
    (void)state;
    rn_tokenizer_close(tokenizer);
    return 0;
}

// ---- a job and what becomes of it ---------------------------------------------------------------

static rn_status begin_bytes(rn_request_kind kind, rn_str body, size_t outbox_bytes) {
    static const rn_request_limits limits = {.vocab_size = 7, .choices = 8, .model = RN_STR("m")};
    rn_request request;
    rn_problem problem;
    rn_status s;
    job = NULL;
    if (!rn_request_read(kind, body, &limits, &request, &problem))
        return rn_fail(RN_INVALID, "%s", problem.message);
    assert_true(rn_request_memory_take(&memory, 1));
    RN_TRY(rn_job_create(&request, &memory, 1, 0, NULL, NULL, &job));
    memcpy(job->id, "ID", 3);
    job->created = 5;
    job->usage = (rn_usage){.prompt_tokens = 3, .completion_tokens = 2, .shared_tokens = 1};
    if (!rn_job_open_outbox(job, &memory, outbox_bytes, &s)) return s;
    rn_job_set_state(job, RN_JOB_RUNNING, NULL);
    rn_reply_begin(&reply, job, tokenizer, "m");
    return RN_OK;
}

static void begin(rn_request_kind kind, const char *body) {
    assert_ok(begin_bytes(kind, rn_str_from(body), 1 << 16));
}

static void end(void) {
    rn_reply_free(&reply);
    if (job) {
        rn_job_release(job);
        rn_job_release(job);
    }
    job = NULL;
}

static void put(uint32_t choice, uint32_t token, const char *text) {
    rn_piece piece = {.choice = choice,
                      .has_token = true,
                      .text = rn_str_from(text),
                      .sample = {.token = token, .logprob = -0.5f}};
    piece.sample.top_count = job->request.sampling.logprobs;
    for (uint32_t i = 0; i < piece.sample.top_count; i++)
        piece.sample.top[i] = (rn_token_logprob){i, i == 1 ? -INFINITY : -0.25f};
    assert_true(rn_job_put(job, &piece));
}

static void finish(uint32_t choice, const char *text, rn_finish how) {
    assert_true(
        rn_job_put(job, &(rn_piece){.choice = choice, .finish = how, .text = rn_str_from(text)}));
}

static void done(void) {
    rn_job_set_state(job, RN_JOB_DONE, NULL);
}

// All that there is now, in steps of `step` bytes.
static rn_reply_news take(size_t step) {
    size_t filled = strlen(answer), count;
    rn_reply_news news;
    while ((news = rn_reply_read(&reply, answer + filled, step, &count)) == RN_REPLY_BYTES_MADE) {
        assert_in_range(count, 1, step);
        filled += count;
        answer[filled] = '\0';
        // Either may have grown from half of what it has now.
        assert_true(3 * (reply.buffer.capacity + reply.slice.capacity) / 2 <= RN_REPLY_BYTES);
    }
    assert_int_equal(count, 0);
    return news;
}

// ---- what is expected
// -----------------------------------------------------------------------------

static char expected[1 << 16];

// One more piece of what is expected; ' stands for ".
static void expect(const char *text) {
    size_t filled = strlen(expected);
    for (; *text; text++)
        expected[filled++] = *text == '\'' ? '"' : *text;
    expected[filled] = '\0';
}

static void expect_head(const char *object) {
    expect("{'id':'ID','object':'");
    expect(object);
    expect("','created':5,'model':'m','system_fingerprint':null,'choices':[");
}

static void expect_usage(void) {
    expect("'usage':{'prompt_tokens':3,'completion_tokens':2,'total_tokens':5,"
           "'prompt_tokens_details':{'cached_tokens':1}}}\n");
}

// An event of a chat or completion with one choice.
static void expect_event(const char *object, const char *choice, const char *usage) {
    expect("data: ");
    expect_head(object);
    expect(choice);
    expect("]");
    expect(usage);
    expect("}\n\n");
}

static void begin_quoted(rn_request_kind kind, const char *body) {
    expected[0] = '\0';
    expect(body);
    begin(kind, expected);
    expected[0] = '\0';
}

// The whole object, which is as long as it was measured, in large and small steps alike.
static void assert_object(void) {
    static const size_t steps[] = {1, 7, 100, sizeof answer / 2};
    uint64_t bytes;
    assert_string_equal(rn_reply_type(&reply), "application/json");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        answer[0] = '\0';
        assert_ok(rn_reply_measure(&reply, &bytes));
        assert_int_equal(take(steps[i]), RN_REPLY_END);
        assert_string_equal(answer, expected);
        assert_int_equal(bytes, strlen(expected));
    }
    end();
}

// What is there now is what is expected, and no more.
static void assert_news(size_t step, rn_reply_news news) {
    answer[0] = '\0';
    assert_string_equal(rn_reply_type(&reply), "text/event-stream");
    assert_int_equal(take(step), news);
    assert_string_equal(answer, expected);
    expected[0] = '\0';
}

// ---- objects ------------------------------------------------------------------------------------

static void a_completion_is_one_object(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':'x'}");
    put(0, A, "a");
    put(0, E1, "");
    put(0, E2, "\xC3\xA9");
    put(0, QUOTE, "\"\n");
    finish(0, "!", RN_FINISH_LENGTH);
    done();
    expect_head("text_completion");
    expect("{'index':0,'text':'a\xC3\xA9\\'\\n!','logprobs':null,'finish_reason':'length'}],");
    expect_usage();
    assert_object();
}

static void choices_are_sorted_out(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':['x','y'],'n':2,'echo':true}");
    for (uint32_t i = 4; i-- > 0;) {
        put(i, A, "a");
        put(3 - i, B, i == 2 ? "" : "b");
    }
    for (uint32_t i = 0; i < 4; i++)
        finish(i, "", i == 1 ? RN_FINISH_STOP : RN_FINISH_LENGTH);
    done();
    expect_head("text_completion");
    expect("{'index':0,'text':'xba','logprobs':null,'finish_reason':'length'},");
    expect("{'index':1,'text':'xa','logprobs':null,'finish_reason':'stop'},");
    expect("{'index':2,'text':'yab','logprobs':null,'finish_reason':'length'},");
    expect("{'index':3,'text':'yab','logprobs':null,'finish_reason':'length'}],");
    expect_usage();
    assert_object();
}

static void logprobs_of_a_completion_are_four_lists(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':'x','logprobs':2}");
    put(0, C, " c");
    put(0, E1, "");
    put(0, E2, "\xC3\xA9");
    put(0, A, "a");
    finish(0, "", RN_FINISH_STOP);
    done();
    expect_head("text_completion");
    expect("{'index':0,'text':' c\xC3\xA9");
    expect("a','logprobs':{'tokens':[' c','bytes:\\\\xc3','bytes:\\\\xa9','a'],");
    expect("'token_logprobs':[-0.5,-0.5,-0.5,-0.5],'top_logprobs':[");
    expect("{'a':-0.25,'b':-9999,' c':-0.5},{'a':-0.25,'b':-9999,'bytes:\\\\xc3':-0.5},");
    expect("{'a':-0.25,'b':-9999,'bytes:\\\\xa9':-0.5},{'a':-0.25,'b':-9999}],");
    expect("'text_offset':[0,2,2,3]},'finish_reason':'stop'}],");
    expect_usage();
    assert_object();
}

static void a_chat_is_one_object(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_CHAT, "{'messages':[{'role':'user','content':'x'}]}");
    put(0, A, "a");
    finish(0, "b", RN_FINISH_STOP);
    done();
    expect_head("chat.completion");
    expect("{'index':0,'message':{'role':'assistant','content':'ab','refusal':null},");
    expect("'logprobs':null,'finish_reason':'stop'}],");
    expect_usage();
    assert_object();
}

static void logprobs_of_a_chat_have_bytes(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_CHAT, "{'messages':[{'role':'user','content':'x'}],'logprobs':true,"
                                  "'top_logprobs':1}");
    put(0, E1, "");
    finish(0, "", RN_FINISH_STOP);
    done();
    expect_head("chat.completion");
    expect("{'index':0,'message':{'role':'assistant','content':'','refusal':null},");
    expect("'logprobs':{'content':[{'token':'\\ufffd','logprob':-0.5,'bytes':[195],");
    expect("'top_logprobs':[{'token':'a','logprob':-0.25,'bytes':[97]}]}],'refusal':null},");
    expect("'finish_reason':'stop'}],");
    expect_usage();
    assert_object();
}

static void the_seeds_answer_has_the_prompt(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_GENERATE, "{'prompt':'x \\'y\\''}");
    put(0, A, "a");
    finish(0, "", RN_FINISH_LENGTH);
    done();
    expect("{'text':'a','finish_reason':'length','prompt':'x \\'y\\'','model':'m',");
    expect_usage();
    assert_object();
}

static void several_of_the_seeds_answers_are_a_list(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_GENERATE, "{'prompt':'x','n':2,'logprobs':0}");
    put(1, A, "a");
    finish(0, "", RN_FINISH_STOP);
    finish(1, "", RN_FINISH_STOP);
    done();
    expect("{'choices':[{'index':0,'text':'','logprobs':{'tokens':[],'token_logprobs':[],");
    expect("'top_logprobs':[],'text_offset':[]},'finish_reason':'stop'},");
    expect("{'index':1,'text':'a','logprobs':{'tokens':['a'],'token_logprobs':[-0.5],");
    expect("'top_logprobs':[{'a':-0.5}],'text_offset':[0]},'finish_reason':'stop'}],");
    expect("'prompt':'x','model':'m',");
    expect_usage();
    assert_object();
}

static void echoed_tokens_are_decoded(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':[[0,2,3,6,5],[2]],'echo':true}");
    finish(0, "", RN_FINISH_STOP);
    finish(1, "", RN_FINISH_STOP);
    done();
    expect_head("text_completion");
    expect("{'index':0,'text':'a\xC3\xA9\\'','logprobs':null,'finish_reason':'stop'},");
    expect("{'index':1,'text':'\xEF\xBF\xBD','logprobs':null,'finish_reason':'stop'}],");
    expect_usage();
    assert_object();
}

// ---- streams ------------------------------------------------------------------------------------

static void expect_chunk(const char *delta, const char *finish_reason) {
    char choice[200];
    snprintf(choice, sizeof choice, "{'index':0,'delta':{%s},'logprobs':null,'finish_reason':%s}",
             delta, finish_reason);
    expect_event("chat.completion.chunk", choice, ",'usage':null");
}

static void a_chat_streams_role_pieces_end_and_usage(void **state) {
    static const size_t steps[] = {1, 13, 1000};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        begin_quoted(RN_REQUEST_CHAT, "{'messages':[{'role':'user','content':'x'}],'stream':true,"
                                      "'stream_options':{'include_usage':true}}");
        put(0, A, "a");
        put(0, E1, "");
        finish(0, "b", RN_FINISH_STOP);
        done();
        expect_chunk("'role':'assistant','content':''", "null");
        expect_chunk("'content':'a'", "null");
        expect_chunk("'content':'b'", "null");
        expect_chunk("", "'stop'");
        expect("data: ");
        expect_head("chat.completion.chunk");
        expect("],");
        expect_usage();
        expect("\ndata: [DONE]\n\n");
        assert_news(steps[i], RN_REPLY_END);
        end();
    }
}

static void expect_text(unsigned index, const char *text, const char *finish_reason) {
    char choice[200];
    snprintf(choice, sizeof choice, "{'index':%u,'text':'%s','logprobs':null,'finish_reason':%s}",
             index, text, finish_reason);
    expect_event("text_completion", choice, "");
}

static void a_completion_streams_as_it_comes(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':'xy','stream':true,'n':2,'echo':true}");
    expect_text(0, "xy", "null");
    expect_text(1, "xy", "null");
    assert_news(500, RN_REPLY_NOTHING);
    put(1, A, "a");
    put(0, B, "b");
    expect_text(1, "a", "null");
    expect_text(0, "b", "null");
    assert_news(500, RN_REPLY_NOTHING);
    finish(0, "", RN_FINISH_LENGTH);
    finish(1, "", RN_FINISH_STOP);
    done();
    expect_text(0, "", "'length'");
    expect_text(1, "", "'stop'");
    expect("data: [DONE]\n\n");
    assert_news(500, RN_REPLY_END);
    end();
}

static void expect_offset(unsigned index, const char *text, const char *token, unsigned offset) {
    char choice[300];
    snprintf(choice, sizeof choice,
             "{'index':%u,'text':'%s','logprobs':{'tokens':['%s'],'token_logprobs':[-0.5],"
             "'top_logprobs':[{'%s':-0.5}],'text_offset':[%u]},'finish_reason':null}",
             index, text, token, token, offset);
    expect_event("text_completion", choice, "");
}

static void offsets_in_a_stream_are_of_each_choice(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':'x','stream':true,'n':2,'logprobs':0}");
    put(0, C, " c");
    put(1, A, "a");
    put(0, B, "");
    put(1, B, "b");
    expect_offset(0, " c", " c", 0);
    expect_offset(1, "a", "a", 0);
    expect_offset(0, "", "b", 2);
    expect_offset(1, "b", "b", 1);
    assert_news(500, RN_REPLY_NOTHING);
    end();
}

static void the_seeds_stream_ends_with_usage(void **state) {
    (void)state;
    begin_quoted(RN_REQUEST_GENERATE, "{'prompt':'x','stream':true}");
    put(0, A, "a");
    finish(0, "", RN_FINISH_LENGTH);
    done();
    expect("data: {'text':'a'}\n\ndata: {'text':'','finish_reason':'length'}\n\n");
    expect("data: {'model':'m',");
    expect_usage();
    expect("\n");
    assert_news(10, RN_REPLY_END);
    end();
}

static void a_job_that_fails_on_the_way_says_so(void **state) {
    rn_problem problem;
    (void)state;
    begin_quoted(RN_REQUEST_GENERATE, "{'prompt':'x','stream':true}");
    put(0, A, "a");
    rn_problem_set(&problem, 500, "internal_error", "", "no");
    rn_job_set_state(job, RN_JOB_FAILED, &problem);
    expect("data: {'text':'a'}\n\ndata: {'error':{'message':'no','type':'server_error',");
    expect("'param':null,'code':'internal_error'}}\n\n");
    assert_news(10, RN_REPLY_END);
    end();
}

static void a_job_that_nobody_wants_is_cut_off(void **state) {
    size_t count;
    (void)state;
    begin_quoted(RN_REQUEST_GENERATE, "{'prompt':'x','stream':true}");
    rn_job_set_state(job, RN_JOB_CANCELLED, NULL);
    assert_int_equal(rn_reply_read(&reply, answer, 100, &count), RN_REPLY_BROKEN);
    end();
}

static void an_object_waits_until_the_job_is_done(void **state) {
    size_t count;
    uint64_t bytes;
    (void)state;
    begin_quoted(RN_REQUEST_COMPLETION, "{'prompt':'x'}");
    assert_int_equal(rn_reply_read(&reply, answer, 100, &count), RN_REPLY_NOTHING);
    assert_fails(RN_INTERNAL, rn_reply_measure(&reply, &bytes));
    end();
}

// ---- memory -------------------------------------------------------------------------------------

// Characters of one to four bytes, so that slices would cut some of them.
static void a_long_answer_takes_little_memory(void **state) {
    enum { PROMPT = 200000, TOKENS = 5000 };
    static const char letters[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"; // 10 bytes
    char *body = malloc(PROMPT + 100);
    size_t filled = (size_t)sprintf(body, "{\"prompt\":\"");
    (void)state;
    for (size_t i = 0; i < PROMPT / 10; i++, filled += 10)
        memcpy(body + filled, letters, 10);
    filled += (size_t)sprintf(body + filled, "\",\"n\":2,\"logprobs\":3}");
    assert_ok(begin_bytes(RN_REQUEST_GENERATE, (rn_str){body, filled}, 1 << 20));
    for (size_t i = 0; i < TOKENS; i++)
        put(i % 2, i % 5, letters);
    finish(0, "", RN_FINISH_STOP);
    finish(1, "", RN_FINISH_STOP);
    done();
    uint64_t bytes;
    assert_ok(rn_reply_measure(&reply, &bytes));
    answer[0] = '\0';
    assert_int_equal(take(999), RN_REPLY_END);
    assert_int_equal(strlen(answer), bytes);
    assert_true(rn_utf8_valid(rn_str_from(answer)));
    body[filled - strlen("\",\"n\":2,\"logprobs\":3}")] = '\0';
    assert_non_null(strstr(answer, body + 11));
    assert_true(reply.buffer.capacity <= 16384);
    end();
    free(body);
}

// The longest that text can become: six characters for a byte.
static void a_prompt_of_escapes_fits_the_buffer(void **state) {
    enum { COUNT = 20000 };
    static const char escape[] = "\\u0001";
    char *body = malloc(6 * COUNT + 100);
    size_t filled = (size_t)sprintf(body, "{\"prompt\":\"");
    (void)state;
    for (size_t i = 0; i < COUNT; i++, filled += 6)
        memcpy(body + filled, escape, 6);
    strcpy(body + filled, "\",\"echo\":true,\"stream\":true,\"n\":4}");
    begin(RN_REQUEST_COMPLETION, body);
    answer[0] = '\0';
    assert_int_equal(take(4096), RN_REPLY_NOTHING);
    size_t count = 0;
    for (const char *at = answer; (at = strstr(at, escape)); at += 6)
        count++;
    assert_int_equal(count, 4 * COUNT);
    end();
    free(body);
}

static void run_out(bool *fired, uint64_t nth) {
    static char out[64];
    size_t count;
    rn_reply_news news = RN_REPLY_BYTES_MADE;
    rn_fault_arm(RN_FAULT_ALLOC, nth);
    rn_status s = begin_bytes(
        RN_REQUEST_COMPLETION,
        RN_STR("{\"prompt\":[0,1],\"echo\":false,\"stream\":true,\"logprobs\":1}"), 4096);
    if (s == RN_OK) {
        put(0, A, "a");
        finish(0, "", RN_FINISH_STOP);
        done();
        while (news == RN_REPLY_BYTES_MADE)
            news = rn_reply_read(&reply, out, sizeof out, &count);
    }
    *fired = rn_fault_fired(RN_FAULT_ALLOC);
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_true(*fired == (s != RN_OK || news == RN_REPLY_BROKEN));
    end();
}

static void without_memory_the_connection_is_cut(void **state) {
    bool fired = true;
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t nth = 1; fired; nth++) {
        run_out(&fired, nth);
        assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
        assert_int_equal(atomic_load(&memory.taken_bytes), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_is_one_object),
        cmocka_unit_test(choices_are_sorted_out),
        cmocka_unit_test(logprobs_of_a_completion_are_four_lists),
        cmocka_unit_test(a_chat_is_one_object),
        cmocka_unit_test(logprobs_of_a_chat_have_bytes),
        cmocka_unit_test(the_seeds_answer_has_the_prompt),
        cmocka_unit_test(several_of_the_seeds_answers_are_a_list),
        cmocka_unit_test(echoed_tokens_are_decoded),
        cmocka_unit_test(a_chat_streams_role_pieces_end_and_usage),
        cmocka_unit_test(a_completion_streams_as_it_comes),
        cmocka_unit_test(offsets_in_a_stream_are_of_each_choice),
        cmocka_unit_test(the_seeds_stream_ends_with_usage),
        cmocka_unit_test(a_job_that_fails_on_the_way_says_so),
        cmocka_unit_test(a_job_that_nobody_wants_is_cut_off),
        cmocka_unit_test(an_object_waits_until_the_job_is_done),
        cmocka_unit_test(a_long_answer_takes_little_memory),
        cmocka_unit_test(a_prompt_of_escapes_fits_the_buffer),
        cmocka_unit_test(without_memory_the_connection_is_cut),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
