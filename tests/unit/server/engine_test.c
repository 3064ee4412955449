// labels: threads
// The engine with the model that is part of the library: what it answers is what the plain
// generator says, whatever runs beside; what is taken comes back; what fails says so.
#include "support.h"

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "runtime/ladder.h"
#include "server/engine_parts.h"

#include <ration/log.h>

#include <pthread.h>
#include <time.h>

enum { MOST_CHOICES = 4, TEXT = 4096 };

// ---- a server without sockets -------------------------------------------------------------------

typedef struct house {
    rn_server_options options;
    rn_request_memory memory;
    rn_metrics metrics;
    rn_engine *engine;
    uint64_t ledger_bytes; // before
} house;

static const char chat_form[] =
    "{% for m in messages %}<|endoftext|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}";

static house open_house(const rn_server_options *options) {
    house h = {.options = *options, .ledger_bytes = rn_ledger_total(RN_DEVICE_HOST).now_bytes};
    rn_server_limits *l = &h.options.limits;
    if (!l->waiting) l->waiting = 128;
    if (!l->wait_seconds) l->wait_seconds = 600;
    if (!l->idle_seconds) l->idle_seconds = 60;
    if (!l->answer_tokens) l->answer_tokens = 200;
    if (!l->request_bytes) l->request_bytes = 16 << 20;
    if (!h.options.devices) h.options.devices = "cpu";
    h.options.chat_template = chat_form;
    h.options.threads = 2;
    return h;
}

static void create(house *h) {
    rn_request_memory_init(&h->memory, h->options.limits.request_bytes);
    assert_ok(rn_engine_create(&h->options, &h->memory, &h->metrics, NULL, NULL, &h->engine));
}

static const rn_generator_options small = {
    .text = {.context = 128, .page_tokens = 16, .sequences = 4, .rows = 64}};

static void load(house *h) {
    create(h);
    assert_ok(rn_engine_load(h->engine, &small, 0));
}

// With one sequence only.
static void load_alone(house *h) {
    rn_generator_options alone = small;
    alone.text.sequences = 1;
    create(h);
    assert_ok(rn_engine_load(h->engine, &alone, 0));
}

static rn_engine_facts facts_of(house *h) {
    rn_engine_facts facts;
    rn_engine_get_facts(h->engine, &facts);
    return facts;
}

static void close_house(house *h) {
    rn_engine_destroy(h->engine);
    assert_int_equal(h->memory.taken_bytes, 0);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, h->ledger_bytes);
}

// ---- a client -----------------------------------------------------------------------------------

typedef struct client {
    rn_job *job;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool asleep;
    size_t cursor;
    uint32_t slow_us; // before each read
    // What came.
    rn_job_state state;
    rn_problem problem;
    rn_usage usage;
    char text[MOST_CHOICES][TEXT];
    uint32_t tokens[MOST_CHOICES];
    rn_finish finish[MOST_CHOICES];
} client;

static rn_logit_bias forced;

typedef struct constraint {
    rn_request_kind kind;
    const char *prompt;
    uint32_t n, max_tokens;
    float temperature;
    uint64_t seed, client;
    const char *stop;
    bool stream;
    uint32_t logprobs;
    bool forced; // to say one token
    bool keeps;  // of a stream: its pieces are read again at the end
} constraint;

static void wake(void *self) {
    client *c = self;
    pthread_mutex_lock(&c->lock);
    c->asleep = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void suspend(void *self) {
    client *c = self;
    pthread_mutex_lock(&c->lock);
    c->asleep = true;
    pthread_mutex_unlock(&c->lock);
}

static void init_client(client *c) {
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
}

static rn_status build_ask(const constraint *w, rn_request *out) {
    void *block = NULL;
    *out = (rn_request){
        .kind = w->kind,
        .prompt_count = 1,
        .n = w->n ? w->n : 1,
        .max_tokens = w->max_tokens,
        .sampling = {.temperature = w->temperature, .seed = w->seed, .logprobs = w->logprobs},
        .has_seed = true,
        .stream = w->stream,
        .keeps_pieces = w->keeps};
    rn_arena_init(&out->memory, RN_HOST_IO, 512);
    if (w->forced) out->sampling.bias = &forced;
    out->sampling.bias_count = w->forced;
    RN_TRY(rn_arena_array(&out->memory, 1, sizeof(rn_request_prompt), &block));
    out->prompts = block;
    if (w->stop) out->stops[out->stop_count++] = rn_str_from(w->stop);
    if (w->kind != RN_REQUEST_CHAT) {
        out->prompts->text = rn_str_from(w->prompt);
        return RN_OK;
    }
    RN_TRY(rn_arena_array(&out->memory, 1, sizeof(rn_chat_message), &block));
    out->messages = block;
    out->message_count = 1;
    out->messages[0] = (rn_chat_message){.role = RN_STR("user"), .content = rn_str_from(w->prompt)};
    return RN_OK;
}

// False: it did not enter; c->problem says why, and there is no job.
static bool ask(house *h, const constraint *w, client *c) {
    enum { BYTES = 4096 };
    rn_request built;
    init_client(c);
    rn_status s = build_ask(w, &built);
    if (s != RN_OK) {
        rn_request_free(&built);
        rn_problem_from_error(&c->problem, rn_last_error());
        return false;
    }
    assert_true(rn_request_memory_take(&h->memory, BYTES));
    s = rn_job_create(&built, &h->memory, BYTES, w->client, wake, c, &c->job);
    if (s != RN_OK) {
        rn_problem_from_error(&c->problem, rn_last_error());
        return false;
    }
    if (rn_engine_enter(h->engine, c->job, &c->problem)) return true;
    rn_job_release(c->job);
    rn_job_release(c->job);
    c->job = NULL;
    return false;
}

static void keep(client *c, const rn_piece *piece) {
    assert_true(piece->choice < MOST_CHOICES);
    char *text = c->text[piece->choice];
    size_t at = strlen(text);
    assert_true(at + piece->text.bytes < TEXT);
    assert_int_equal(c->finish[piece->choice], RN_FINISH_NONE); // nothing behind the last
    if (piece->text.bytes) memcpy(text + at, piece->text.data, piece->text.bytes);
    c->tokens[piece->choice] += piece->has_token;
    c->finish[piece->choice] = piece->finish;
}

static void pause_us(uint32_t us) {
    if (us) nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
}

// Reads what there is.
static void read_some(client *c) {
    rn_piece piece;
    while (pause_us(c->slow_us), rn_job_read(c->job, &c->cursor, &piece))
        keep(c, &piece);
}

// Until its end.
static void listen(client *c) {
    for (;;) {
        rn_job_state state = rn_job_get_state(c->job);
        if (c->job->request.stream || state == RN_JOB_DONE) read_some(c);
        if (state >= RN_JOB_DONE) break;
        if (!rn_job_sleep(c->job, c->cursor, suspend, c)) continue;
        pthread_mutex_lock(&c->lock);
        while (c->asleep)
            pthread_cond_wait(&c->changed, &c->lock);
        pthread_mutex_unlock(&c->lock);
    }
}

static void leave(client *c) {
    c->state = rn_job_get_state(c->job);
    if (c->state == RN_JOB_FAILED) c->problem = rn_job_get_problem(c->job);
    c->usage = rn_job_get_usage(c->job);
    rn_job_release(c->job);
    c->job = NULL;
}

static void hear_out(client *c) {
    listen(c);
    leave(c);
}

// The same, and the engine has let go of it, too.
static void hear_out_alone(client *c) {
    bool alone = false;
    listen(c);
    while (!alone) {
        pause_us(50);
        pthread_mutex_lock(&c->job->lock);
        alone = c->job->references == 1;
        pthread_mutex_unlock(&c->job->lock);
    }
    leave(c);
}

static const constraint constraints[] = {
    {RN_REQUEST_COMPLETION, "Once upon a time", .max_tokens = 20},
    {RN_REQUEST_COMPLETION, "Lily had a", .n = 3, .max_tokens = 17, .temperature = 0.9f, .seed = 5},
    {RN_REQUEST_GENERATE, "The dog", .max_tokens = 40, .stop = "the", .stream = true},
    {RN_REQUEST_COMPLETION, "", .max_tokens = 9, .temperature = 1.2f, .seed = 77, .stream = true},
    {RN_REQUEST_COMPLETION,
     "One day, a little girl named Lily found a needle in her room. She knew", .max_tokens = 30,
     .stream = true},
    {RN_REQUEST_GENERATE, "Tom and his <|endoftext|> friend", .n = 2, .max_tokens = 12,
     .temperature = 0.7f, .seed = 1},
    {RN_REQUEST_COMPLETION, "Once upon a time", .max_tokens = 1},
    {RN_REQUEST_COMPLETION, "Once upon a time there was a", .max_tokens = 25, .temperature = 0.5f,
     .stop = "\n", .seed = 9},
};
enum { CONSTRAINTS = sizeof constraints / sizeof *constraints };

// ---- what the plain generator says --------------------------------------------------------------

typedef struct spoken {
    char text[TEXT];
    uint32_t tokens;
    rn_finish finish;
    rn_stopper *stopper;
    bool stopped;
} spoken;

static rn_status put_spoken(void *self, const char *text, size_t bytes) {
    spoken *s = self;
    size_t at = strlen(s->text);
    assert_true(at + bytes < TEXT);
    memcpy(s->text + at, text, bytes);
    return RN_OK;
}

static rn_status put_stopped(void *self, const char *text, size_t bytes) {
    spoken *s = self;
    if (s->stopped) return RN_OK;
    return rn_stopper_put(s->stopper, (rn_str){text, bytes}, (rn_sink){s, put_spoken}, &s->stopped);
}

static void speak(const rn_tokenizer *tokenizer, rn_generator *generator, rn_sequence *sequence,
                  uint32_t most, spoken *out) {
    rn_decoder decoder;
    rn_sample sample;
    rn_decoder_begin(&decoder, tokenizer, false);
    decoder.started = true;
    while (out->finish == RN_FINISH_NONE) {
        assert_ok(rn_generator_step(generator));
        while (out->finish == RN_FINISH_NONE && rn_sequence_take(sequence, &sample)) {
            bool end = rn_tokenizer_is_end(tokenizer, sample.token);
            out->tokens += !end;
            if (!end)
                assert_ok(rn_decoder_put(&decoder, sample.token, (rn_sink){out, put_stopped}));
            if (end || out->stopped)
                out->finish = RN_FINISH_STOP;
            else if (out->tokens == most)
                out->finish = RN_FINISH_LENGTH;
        }
    }
    assert_ok(rn_decoder_end(&decoder, (rn_sink){out, put_stopped}));
    if (!out->stopped) assert_ok(rn_stopper_flush(out->stopper, (rn_sink){out, put_spoken}));
}

static rn_model *plain_model;
static rn_generator *plain_generator;

static void say(const constraint *w, uint32_t choice, spoken *out) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(plain_model);
    rn_sampling sampling = {.temperature = w->temperature, .seed = w->seed + choice};
    rn_str stop = rn_str_from(w->stop);
    rn_tokens tokens = {0};
    rn_sequence *sequence;
    memset(out, 0, sizeof *out);
    assert_ok(rn_stopper_create(&stop, w->stop != NULL, &out->stopper));
    assert_ok(rn_tokenizing_encode(tokenizer, rn_str_from(w->prompt), &tokens));
    assert_ok(rn_sequence_create(plain_generator, &sampling, &sequence));
    assert_ok(rn_sequence_feed(sequence, tokens.ids, tokens.count));
    speak(tokenizer, plain_generator, sequence, w->max_tokens, out);
    rn_sequence_destroy(sequence);
    rn_tokens_free(&tokens);
    rn_stopper_destroy(out->stopper);
}

// Said once, remembered for the constraints below.
static const spoken *recall(const constraint *w, uint32_t choice) {
    static spoken said[CONSTRAINTS][MOST_CHOICES], other;
    bool known = w >= constraints && w < constraints + CONSTRAINTS;
    spoken *s = known ? &said[w - constraints][choice] : &other;
    if (!known || s->finish == RN_FINISH_NONE) say(w, choice, s);
    return s;
}

static void expect_spoken(const constraint *w, const client *c) {
    assert_int_equal(c->state, RN_JOB_DONE);
    for (uint32_t i = 0; i < (w->n ? w->n : 1); i++) {
        const spoken *expected = recall(w, i);
        assert_string_equal(c->text[i], expected->text);
        assert_int_equal(c->tokens[i], expected->tokens);
        assert_int_equal(c->finish[i], expected->finish);
    }
}

static int open_plain(void **state) {
    (void)state;
    rn_generator_options options = small;
    options.text.sequences = 1;
    assert_ok(rn_model_open(NULL, NULL, &plain_model));
    assert_ok(rn_generator_create(plain_model, &options, &plain_generator));
    return 0;
}

static int close_plain(void **state) {
    (void)state;
    rn_generator_destroy(plain_generator);
    rn_model_close(plain_model);
    return 0;
}

// ---- answers ------------------------------------------------------------------------------------

static client clients[64];

static void answers_are_what_the_plain_generator_says_whatever_runs_beside(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    uint64_t taken = h.memory.taken_bytes;
    for (size_t i = 0; i < CONSTRAINTS; i++)
        assert_true(ask(&h, &constraints[i], &clients[i]));
    for (size_t i = 0; i < CONSTRAINTS; i++)
        hear_out(&clients[i]);
    for (size_t i = 0; i < CONSTRAINTS; i++)
        expect_spoken(&constraints[i], &clients[i]);
    assert_true(rn_engine_drain(h.engine, 10));
    rn_engine_facts facts = facts_of(&h);
    assert_int_equal(facts.running + facts.waiting + facts.sequences, 0);
    assert_int_equal(facts.generator.kv_pages, 0);
    assert_int_equal(h.memory.taken_bytes, taken);
    assert_int_equal(h.metrics.counts[RN_COUNT_DONE], CONSTRAINTS);
    close_house(&h);
}

static void usage_is_known_with_the_last_piece(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    assert_true(ask(&h, &constraints[1], &clients[0]));
    hear_out(&clients[0]);
    rn_tokens tokens = {0};
    assert_ok(rn_tokenizing_encode(rn_engine_tokenizer(h.engine),
                                   rn_str_from(constraints[1].prompt), &tokens));
    assert_int_equal(clients[0].usage.prompt_tokens, tokens.count);
    assert_int_equal(clients[0].usage.completion_tokens,
                     clients[0].tokens[0] + clients[0].tokens[1] + clients[0].tokens[2]);
    rn_tokens_free(&tokens);
    close_house(&h);
}

static void a_chat_is_answered_by_its_template(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    constraint w = {RN_REQUEST_CHAT, "Tell me of a cat.", .max_tokens = 8};
    load(&h);
    assert_true(ask(&h, &w, &clients[0]));
    hear_out(&clients[0]);
    assert_int_equal(clients[0].state, RN_JOB_DONE);
    assert_true(clients[0].tokens[0] > 0);
    close_house(&h);
}

static const constraint forceful = {
    RN_REQUEST_GENERATE, "A", .n = 2, .max_tokens = 40, .forced = true, .stop = "not this"};

// Three choices with so much to say that no stream's outbox can hold it.
static const constraint talker = {RN_REQUEST_GENERATE, "Once upon a time",  .n = 3,
                                  .max_tokens = 100,   .temperature = 1.0f, .seed = 3,
                                  .stream = true,      .logprobs = 20};

static void wait_until_stalled(rn_job *job) {
    while (!rn_job_is_stalled(job))
        pause_us(1000);
}

static void a_slow_reader_holds_up_itself_only(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    assert_true(ask(&h, &talker, &clients[0]));
    wait_until_stalled(clients[0].job);
    for (size_t i = 1; i < 4; i++) {
        assert_true(ask(&h, &constraints[0], &clients[i]));
        hear_out(&clients[i]);
        expect_spoken(&constraints[0], &clients[i]);
    }
    assert_int_equal(rn_job_get_state(clients[0].job), RN_JOB_RUNNING);
    hear_out(&clients[0]);
    expect_spoken(&talker, &clients[0]);
    close_house(&h);
}

static void who_reads_too_slowly_may_not_keep_others_waiting_for_ever(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    constraint all = {RN_REQUEST_COMPLETION, "Once", .n = 4,
                      .max_tokens = 5}; // every sequence there is
    load(&h);
    assert_true(ask(&h, &talker, &clients[0]));
    wait_until_stalled(clients[0].job);
    pthread_mutex_lock(&h.engine->lock); // its thread sleeps: there is nothing to do
    clients[0].job->blocked_ns = (uint64_t)60 * 1000000000;
    pthread_mutex_unlock(&h.engine->lock);
    assert_true(ask(&h, &all, &clients[1]));
    hear_out(&clients[1]);
    expect_spoken(&all, &clients[1]);
    hear_out(&clients[0]);
    assert_int_equal(clients[0].state, RN_JOB_FAILED);
    assert_int_equal(clients[0].problem.http, 503);
    close_house(&h);
}

// The token that adds most to a text, and one that is no UTF-8, again and again.
static void the_longest_answer_there_can_be_has_room(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    const rn_tokenizer *tokenizer = rn_engine_tokenizer(h.engine);
    uint32_t longest = 0, broken = 0;
    for (uint32_t id = 0; id < 1536; id++) {
        rn_str text = rn_tokenizer_bytes(tokenizer, id, false);
        if (text.bytes > rn_tokenizer_bytes(tokenizer, longest, false).bytes) longest = id;
        if (text.bytes == 1 && text.data[0] == '\x80') broken = id;
    }
    assert_true(broken && rn_tokenizer_bytes(tokenizer, longest, false).bytes > 8);
    for (int i = 0; i < 2; i++) {
        forced = (rn_logit_bias){i ? broken : longest, 100};
        assert_true(ask(&h, &forceful, &clients[0]));
        hear_out(&clients[0]);
        assert_int_equal(clients[0].state, RN_JOB_DONE);
        size_t each = i ? 3 : rn_tokenizer_bytes(tokenizer, longest, false).bytes;
        assert_int_equal(strlen(clients[0].text[1]), forceful.max_tokens * each);
    }
    close_house(&h);
}

// Its outbox is exactly as large as the answer can be, smaller than what another stream asks for
// before each token.
static void a_stream_that_keeps_its_pieces_is_not_held_up(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    for (uint32_t tokens = 1; tokens <= 40; tokens += 13) {
        constraint w = {RN_REQUEST_GENERATE, "A", .max_tokens = tokens, .stream = true,
                        .keeps = true};
        assert_true(ask(&h, &w, &clients[0]));
        hear_out(&clients[0]);
        assert_int_equal(clients[0].state, RN_JOB_DONE);
        assert_int_equal(clients[0].tokens[0], tokens);
    }
    close_house(&h);
}

// ---- leaving ------------------------------------------------------------------------------------

static uint32_t random_state;
static uint32_t random_below(uint32_t limit) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

static void *hear_out_beside(void *self) {
    hear_out(self);
    return NULL;
}

// One reference more, for whoever calls it back.
static rn_job *hold(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    job->references++;
    pthread_mutex_unlock(&job->lock);
    return job;
}

static void many_jobs_come_and_go_and_all_is_given_back(void **state) {
    (void)state;
    enum { JOBS = 24 };
    house h = open_house(&(rn_server_options){0});
    pthread_t threads[JOBS];
    rn_job *held[JOBS];
    uint32_t done = 0;
    random_state = 7;
    load(&h);
    uint64_t taken = h.memory.taken_bytes;
    uint64_t io = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).now_bytes;
    for (size_t i = 0; i < JOBS; i++) {
        constraint w = constraints[random_below(CONSTRAINTS)];
        w.client = random_below(5);
        w.stream = random_below(2);
        assert_true(ask(&h, &w, &clients[i]));
        held[i] = hold(clients[i].job);
        clients[i].slow_us = random_below(3) == 0 ? 300 : 0;
        assert_int_equal(pthread_create(&threads[i], NULL, hear_out_beside, &clients[i]), 0);
    }
    for (size_t i = 0; i < JOBS; i++) {
        if (i % 3 == 0) rn_engine_cancel(h.engine, held[random_below(JOBS)]);
        pause_us(random_below(2000));
    }
    for (size_t i = 0; i < JOBS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(clients[i].state == RN_JOB_DONE || rn_job_is_cancelled(held[i]));
        done += clients[i].state == RN_JOB_DONE;
        rn_job_release(held[i]);
    }
    assert_true(rn_engine_drain(h.engine, 60));
    assert_int_equal(h.metrics.counts[RN_COUNT_DONE], done);
    assert_int_equal(h.metrics.counts[RN_COUNT_CANCELLED], JOBS - done);
    assert_int_equal(h.memory.taken_bytes, taken);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).now_bytes, io);
    assert_int_equal(facts_of(&h).generator.kv_pages, 0);
    close_house(&h);
}

static void a_stalled_stream_that_hangs_up_gives_its_pages_back(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    assert_true(ask(&h, &talker, &clients[0]));
    wait_until_stalled(clients[0].job);
    rn_engine_cancel(h.engine, clients[0].job);
    assert_true(rn_engine_drain(h.engine, 60));
    assert_int_equal(rn_job_get_state(clients[0].job), RN_JOB_CANCELLED);
    assert_int_equal(facts_of(&h).generator.kv_pages, 0);
    leave(&clients[0]);
    close_house(&h);
}

// ---- the line -----------------------------------------------------------------------------------

// The engine's thread, held where it wakes a client.
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached, open;
} gate;

static void stop_at_gate(void *self) {
    (void)self;
    pthread_mutex_lock(&gate.lock);
    gate.reached = true;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

// The engine stands still when this returns; `c` runs.
static void hold_engine(house *h, client *c) {
    static const constraint w = {RN_REQUEST_COMPLETION, "A", .max_tokens = 30, .stream = true,
                                 .client = 99};
    pthread_mutex_init(&gate.lock, NULL);
    pthread_cond_init(&gate.changed, NULL);
    gate.reached = gate.open = false;
    assert_true(ask(h, &w, c));
    pthread_mutex_lock(&c->job->lock);
    c->job->wake = stop_at_gate;
    c->job->sleeping = true;
    pthread_mutex_unlock(&c->job->lock);
    pthread_mutex_lock(&gate.lock);
    while (!gate.reached)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void let_engine_go(void) {
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

// Whoever held the engine is heard out without waking anybody.
static void hear_out_holder(client *c) {
    while (rn_job_get_state(c->job) < RN_JOB_DONE)
        read_some(c);
    leave(c);
}

static void a_full_line_is_told_with_when_to_come_back(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){.limits = {.waiting = 3}});
    load(&h);
    hold_engine(&h, &clients[0]);
    for (size_t i = 1; i <= 3; i++)
        assert_true(ask(&h, &constraints[0], &clients[i]));
    assert_false(ask(&h, &constraints[0], &clients[4]));
    assert_int_equal(clients[4].problem.http, 429);
    assert_in_range(clients[4].problem.retry_seconds, 1, 60);
    // Who is called back leaves at once, although the engine stands still.
    rn_engine_cancel(h.engine, clients[2].job);
    assert_int_equal(rn_job_get_state(clients[2].job), RN_JOB_CANCELLED);
    assert_int_equal(facts_of(&h).waiting, 2);
    assert_true(ask(&h, &constraints[0], &clients[4]));
    let_engine_go();
    for (size_t i = 1; i <= 4; i++)
        hear_out(&clients[i]);
    assert_int_equal(clients[1].state, RN_JOB_DONE);
    assert_int_equal(clients[2].state, RN_JOB_CANCELLED);
    assert_int_equal(clients[4].state, RN_JOB_DONE);
    hear_out_holder(&clients[0]);
    close_house(&h);
}

static void who_waits_too_long_is_told(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){.limits = {.wait_seconds = 100}});
    load_alone(&h);
    hold_engine(&h, &clients[0]);
    for (size_t i = 1; i <= 2; i++)
        assert_true(ask(&h, &constraints[0], &clients[i]));
    pthread_mutex_lock(&h.engine->lock);
    clients[1].job->entered_ns = 0;
    h.engine->swept_ns = 0; // it stands still
    pthread_mutex_unlock(&h.engine->lock);
    let_engine_go();
    for (size_t i = 1; i <= 2; i++)
        hear_out(&clients[i]);
    assert_int_equal(clients[1].state, RN_JOB_FAILED);
    assert_int_equal(clients[1].problem.http, 503);
    assert_int_equal(clients[2].state, RN_JOB_DONE);
    hear_out_holder(&clients[0]);
    close_house(&h);
}

static void clients_are_served_in_turn(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    rn_job *held[4];
    load_alone(&h);
    hold_engine(&h, &clients[0]);
    for (size_t i = 1; i <= 4; i++) {
        constraint w = constraints[0];
        w.client = i == 4 ? 2 : 1;
        assert_true(ask(&h, &w, &clients[i]));
        held[i - 1] = hold(clients[i].job);
    }
    let_engine_go();
    hear_out_holder(&clients[0]);
    for (size_t i = 1; i <= 4; i++)
        hear_out(&clients[i]);
    assert_true(held[0]->started_ns < held[3]->started_ns);
    assert_true(held[3]->started_ns < held[1]->started_ns);
    assert_true(held[1]->started_ns < held[2]->started_ns);
    for (size_t i = 0; i < 4; i++)
        rn_job_release(held[i]);
    close_house(&h);
}

static void long_prompts_are_read_by_another_thread(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    static char text[RN_TOKENIZING_SHORT_BYTES + 2];
    constraint w = {RN_REQUEST_COMPLETION, text, .max_tokens = 5};
    memset(text, ' ', RN_TOKENIZING_SHORT_BYTES + 1);
    load(&h);
    h.engine->tokenizing.spelled_bytes = 1000; // so that it is not refused by its bytes alone
    assert_true(ask(&h, &w, &clients[0]));
    hear_out(&clients[0]);
    assert_int_equal(clients[0].state, RN_JOB_FAILED);
    assert_int_equal(clients[0].problem.http, 400);
    assert_string_equal(clients[0].problem.code, "context_length_exceeded");
    close_house(&h);
}

// ---- the end ------------------------------------------------------------------------------------

static void draining_ends_what_runs_and_what_waits(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    for (size_t i = 0; i < CONSTRAINTS; i++)
        assert_true(ask(&h, &constraints[i], &clients[i]));
    assert_true(rn_engine_drain(h.engine, 100));
    assert_int_equal(facts_of(&h).phase, RN_ENGINE_DRAINING);
    assert_false(ask(&h, &constraints[0], &clients[CONSTRAINTS]));
    assert_int_equal(clients[CONSTRAINTS].problem.http, 503);
    for (size_t i = 0; i < CONSTRAINTS; i++) {
        hear_out(&clients[i]);
        expect_spoken(&constraints[i], &clients[i]);
    }
    close_house(&h);
}

static void what_takes_too_long_is_cut_off(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    assert_true(ask(&h, &talker, &clients[0]));
    wait_until_stalled(clients[0].job); // nobody reads: it would never end
    assert_true(ask(&h, &talker, &clients[1]));
    assert_false(rn_engine_drain(h.engine, 0.01));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rn_job_get_state(clients[i].job), RN_JOB_FAILED);
        leave(&clients[i]);
        assert_int_equal(clients[i].problem.http, 503);
    }
    close_house(&h);
}

static void an_engine_that_goes_takes_its_jobs_along(void **state) {
    (void)state;
    house h = open_house(&(rn_server_options){0});
    load(&h);
    assert_true(ask(&h, &talker, &clients[0]));
    rn_job *job = clients[0].job;
    rn_engine_cancel(h.engine, job); // as connections do when they go
    leave(&clients[0]);
    close_house(&h);
}

// ---- the ladder ---------------------------------------------------------------------------------

static void a_target_that_fails_at_loading_is_left(void **state) {
    (void)state;
    static const char *const ladders[] = {
        "sim:memory=64KiB,cpu", "sim:fail_alloc=1;fail_allocs=3,cpu", "sim:fail_copy=2,cpu",
        "sim:fail_launch=1,cpu", "sim:fail_launch=90,cpu"};
    for (size_t i = 0; i < sizeof ladders / sizeof *ladders; i++) {
        house h = open_house(&(rn_server_options){.devices = ladders[i]});
        rn_attempt attempts[RN_LADDER_ATTEMPTS];
        load(&h);
        rn_engine_facts facts = facts_of(&h);
        assert_int_equal(facts.target_index, 1);
        assert_string_equal(facts.target, "cpu");
        assert_int_equal(rn_ladder_attempts(h.engine->ladder, attempts), 2);
        assert_int_equal(attempts[0].state, RN_ATTEMPT_FAILED);
        assert_int_equal(attempts[1].state, RN_ATTEMPT_IN_USE);
        assert_true(ask(&h, &constraints[0], &clients[0]));
        hear_out(&clients[0]);
        expect_spoken(&constraints[0], &clients[0]);
        close_house(&h);
    }
}

static void without_another_target_loading_fails_and_may_be_tried_again(void **state) {
    (void)state;
    house h =
        open_house(&(rn_server_options){.devices = "sim:fail_launch=1,cpu", .no_fallback = true});
    create(&h);
    assert_fails(RN_DEVICE, rn_engine_load(h.engine, &small, 0));
    assert_int_equal(facts_of(&h).phase, RN_ENGINE_LOADING);
    assert_null(rn_engine_model(h.engine));
    assert_false(ask(&h, &constraints[0], &clients[0]));
    assert_int_equal(clients[0].problem.http, 503);
    h.options.no_fallback = false;
    assert_ok(rn_engine_load(h.engine, &small, 0));
    assert_non_null(rn_engine_model(h.engine));
    close_house(&h);
}

// Called on the engine's thread between two tries of a pass: the next one fails, too.
static uint32_t failures_left;
static rn_device *sim;
static rn_status fail_again(void *self, const char *text, size_t bytes) {
    (void)self;
    rn_str line = {text, bytes};
    if (rn_str_matches(line, RN_STR("*a step failed*")) && failures_left) {
        failures_left--;
        rn_sim_device_arm(sim, 0, 1, 0);
    }
    return RN_OK;
}

// The engine stands still, with something running on the simulated device.
static void hold_on_sim(house *h, client *holder) {
    *h = open_house(&(rn_server_options){.devices = "sim,cpu"});
    load(h);
    assert_string_equal(facts_of(h).target, "sim");
    hold_engine(h, holder);
}

// ... and goes on; its next `count` passes fail.
static void let_fail(house *h, uint32_t count) {
    sim = h->engine->ladder->device;
    failures_left = count - 1;
    rn_sim_device_arm(sim, 0, 1, 0);
    rn_log_set((rn_sink){NULL, fail_again}, RN_LOG_TEXT, RN_LOG_WARNING);
    let_engine_go();
}

static void close_failing_house(house *h) {
    rn_log_set((rn_sink){0}, RN_LOG_TEXT, RN_LOG_OFF);
    close_house(h);
}

static void a_pass_that_fails_twice_is_tried_again(void **state) {
    (void)state;
    house h;
    hold_on_sim(&h, &clients[0]);
    assert_true(ask(&h, &constraints[0], &clients[1]));
    let_fail(&h, 2);
    hear_out(&clients[1]);
    expect_spoken(&constraints[0], &clients[1]);
    hear_out_holder(&clients[0]);
    assert_int_equal(clients[0].state, RN_JOB_DONE);
    assert_string_equal(facts_of(&h).target, "sim");
    assert_int_equal(failures_left, 0);
    close_failing_house(&h);
}

static void a_target_that_fails_while_serving_is_left_and_who_waits_is_served_below(void **state) {
    (void)state;
    house h;
    uint32_t failed = 0;
    hold_on_sim(&h, &clients[CONSTRAINTS]);
    for (size_t i = 0; i < CONSTRAINTS; i++)
        assert_true(ask(&h, &constraints[i], &clients[i]));
    let_fail(&h, 3);
    hear_out_holder(&clients[CONSTRAINTS]);
    assert_int_equal(clients[CONSTRAINTS].problem.http, 500);
    for (size_t i = 0; i < CONSTRAINTS; i++) {
        hear_out(&clients[i]);
        failed += clients[i].state == RN_JOB_FAILED;
        if (clients[i].state == RN_JOB_FAILED)
            assert_int_equal(clients[i].problem.http, 500);
        else
            expect_spoken(&constraints[i], &clients[i]);
    }
    assert_in_range(failed, 0, 3); // as many as ran beside
    assert_string_equal(facts_of(&h).target, "cpu");
    assert_int_equal(facts_of(&h).target_index, 1);
    assert_int_equal(facts_of(&h).phase, RN_ENGINE_READY);
    assert_int_equal(h.metrics.counts[RN_COUNT_FALLBACKS], 1);
    close_failing_house(&h);
}

static void with_no_target_left_the_engine_has_failed_and_says_why(void **state) {
    (void)state;
    house h;
    hold_on_sim(&h, &clients[6]);
    h.engine->ladder->options.no_fallback = true;
    for (size_t i = 0; i < 6; i++)
        assert_true(ask(&h, &constraints[0], &clients[i]));
    let_fail(&h, 3);
    hear_out_holder(&clients[6]);
    for (size_t i = 0; i < 6; i++) {
        hear_out(&clients[i]);
        assert_int_equal(clients[i].state, RN_JOB_FAILED);
    }
    assert_true(rn_engine_drain(h.engine, 10));
    assert_int_equal(facts_of(&h).phase, RN_ENGINE_FAILED);
    assert_int_equal(facts_of(&h).failure.status, RN_DEVICE);
    assert_false(ask(&h, &constraints[0], &clients[0]));
    assert_int_equal(clients[0].problem.http, 503);
    close_failing_house(&h);
}

// ---- without memory -----------------------------------------------------------------------------

static void without_memory_a_job_ends_with_a_status_and_nothing_stays(void **state) {
    (void)state;
    constraint tortured[] = {
        constraints[2], constraints[5], {RN_REQUEST_CHAT, "Hi <|endoftext|>", .max_tokens = 3}};
    house h = open_house(&(rn_server_options){0});
    load(&h);
    uint64_t taken = h.memory.taken_bytes;
    for (size_t i = 0; i < 3; i++) {
        bool fired = true;
        for (uint64_t n = 1; fired; n += TEST_THREADS_ONLY ? 5 : 1) {
            uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
            rn_fault_arm(RN_FAULT_ALLOC, n);
            bool entered = ask(&h, &tortured[i], &clients[0]);
            if (entered) hear_out_alone(&clients[0]);
            fired = rn_fault_fired(RN_FAULT_ALLOC);
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            bool done = entered && clients[0].state == RN_JOB_DONE;
            assert_true(done || clients[0].problem.http == 503);
            assert_true(done || fired);
            assert_int_equal(h.memory.taken_bytes, taken);
            assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        }
    }
    close_house(&h);
}

static void loading_without_memory_leaves_nothing_behind(void **state) {
    (void)state;
    bool fired = true;
    // All of the first, then a sample; ThreadSanitizer gets a sample of all.
    for (uint64_t n = 1; fired; n += !TEST_THREADS_ONLY && n < 40 ? 1 : 1 + n / 5) {
        house h = open_house(&(rn_server_options){0});
        rn_request_memory_init(&h.memory, h.options.limits.request_bytes);
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_engine_create(&h.options, &h.memory, &h.metrics, NULL, NULL, &h.engine);
        if (s == RN_OK) s = rn_engine_load(h.engine, &small, 0);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(s == RN_NO_MEMORY || !fired);
        close_house(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_what_the_plain_generator_says_whatever_runs_beside),
        cmocka_unit_test(usage_is_known_with_the_last_piece),
        cmocka_unit_test(a_chat_is_answered_by_its_template),
        cmocka_unit_test(a_slow_reader_holds_up_itself_only),
        cmocka_unit_test(who_reads_too_slowly_may_not_keep_others_waiting_for_ever),
        cmocka_unit_test(the_longest_answer_there_can_be_has_room),
        cmocka_unit_test(a_stream_that_keeps_its_pieces_is_not_held_up),
        cmocka_unit_test(many_jobs_come_and_go_and_all_is_given_back),
        cmocka_unit_test(a_stalled_stream_that_hangs_up_gives_its_pages_back),
        cmocka_unit_test(a_full_line_is_told_with_when_to_come_back),
        cmocka_unit_test(who_waits_too_long_is_told),
        cmocka_unit_test(clients_are_served_in_turn),
        cmocka_unit_test(long_prompts_are_read_by_another_thread),
        cmocka_unit_test(draining_ends_what_runs_and_what_waits),
        cmocka_unit_test(what_takes_too_long_is_cut_off),
        cmocka_unit_test(an_engine_that_goes_takes_its_jobs_along),
        cmocka_unit_test(a_target_that_fails_at_loading_is_left),
        cmocka_unit_test(without_another_target_loading_fails_and_may_be_tried_again),
        cmocka_unit_test(a_pass_that_fails_twice_is_tried_again),
        cmocka_unit_test(a_target_that_fails_while_serving_is_left_and_who_waits_is_served_below),
        cmocka_unit_test(with_no_target_left_the_engine_has_failed_and_says_why),
        cmocka_unit_test(without_memory_a_job_ends_with_a_status_and_nothing_stays),
        cmocka_unit_test(loading_without_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, open_plain, close_plain);
}
