// labels: threads
// A server's engine at several budgets, from roomy down to the floor: the same answers, and never
// more on the ledger than was planned; below the floor there is a refusal.
#include "support.h"

#include "base/str.h"
#include "memory/account.h"
#include "server/engine.h"

#include <ration/memory.h>

#include <stdatomic.h>
#include <time.h>

enum { JOBS = 6, TEXT = 1024, ROOM = 4 << 20 };

static const rn_server_options options = {.devices = "cpu",
                                          .threads = 2,
                                          .limits = {.waiting = 16,
                                                     .wait_seconds = 600,
                                                     .body_bytes = 64 << 10,
                                                     .request_bytes = ROOM,
                                                     .answer_tokens = 50}};
static char answers[JOBS][TEXT], got[TEXT];
static rn_request_memory room;
static rn_metrics metrics;

static rn_generator_options make_options(uint64_t budget) {
    uint64_t beside = rn_ledger_total(RN_DEVICE_HOST).now_bytes + ROOM + (64 << 10);
    return (rn_generator_options){.text = {.context = 96, .page_tokens = 16, .sequences = 4},
                                  .plan = {.budget_bytes = budget, .reserved_bytes = beside}};
}

// ---- a client -----------------------------------------------------------------------------------

static rn_job *enter(rn_engine *engine, uint32_t index) {
    static const char *const prompts[] = {"Once upon a time", "The dog", "Lily and Tom"};
    rn_request ask = {.kind = RN_REQUEST_COMPLETION,
                      .prompt_count = 1,
                      .n = 1,
                      .max_tokens = 12 + index,
                      .sampling = {.temperature = index % 2 ? 0.8f : 0, .seed = index},
                      .has_seed = true};
    void *block;
    rn_job *job;
    rn_problem problem;
    rn_arena_init(&ask.memory, RN_HOST_IO, 512);
    assert_ok(rn_arena_array(&ask.memory, 1, sizeof(rn_request_prompt), &block));
    ask.prompts = block;
    ask.prompts->text = rn_str_from(prompts[index % 3]);
    assert_true(rn_request_memory_take(&room, 4096));
    assert_ok(rn_job_create(&ask, &room, 4096, index, NULL, NULL, &job));
    assert_true(rn_engine_enter(engine, job, &problem));
    return job;
}

static void hear_out(rn_job *job, char *text) {
    size_t cursor = 0, bytes = 0;
    rn_piece piece;
    while (rn_job_get_state(job) < RN_JOB_DONE)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(rn_job_get_state(job), RN_JOB_DONE);
    while (rn_job_read(job, &cursor, &piece)) {
        assert_true(bytes + piece.text.bytes < TEXT);
        if (piece.text.bytes) memcpy(text + bytes, piece.text.data, piece.text.bytes);
        bytes += piece.text.bytes;
    }
    text[bytes] = 0;
    rn_job_release(job);
}

// ---- budgets ------------------------------------------------------------------------------------

static rn_engine *create(void) {
    rn_engine *engine;
    rn_request_memory_init(&room, ROOM);
    assert_ok(rn_engine_create(&options, &room, &metrics, NULL, NULL, &engine));
    return engine;
}

// Answers all, within the budget; what the whole was predicted to take.
static uint64_t serve_at(uint64_t budget, bool first) {
    rn_generator_options generator = make_options(budget);
    rn_engine *engine = create();
    rn_engine_facts facts;
    rn_job *jobs[JOBS];
    uint64_t soft, hard;
    rn_ledger_reset_peaks();
    assert_ok(rn_engine_load(engine, &generator, 0));
    rn_engine_get_facts(engine, &facts);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, budget);
    assert_int_equal(facts.budget_bytes, budget);
    assert_true(facts.predicted_bytes <= budget);
    // What is loaded leaves all of the room to requests.
    assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes + ROOM <= facts.predicted_bytes);
    for (uint32_t i = 0; i < JOBS; i++)
        jobs[i] = enter(engine, i);
    for (uint32_t i = 0; i < JOBS; i++) {
        hear_out(jobs[i], first ? answers[i] : got);
        if (!first) assert_string_equal(got, answers[i]);
    }
    assert_true(rn_engine_drain(engine, 60));
    assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes <= facts.predicted_bytes);
    rn_engine_destroy(engine);
    assert_int_equal(room.taken_bytes, 0);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, RN_NO_LIMIT); // as before
    return facts.predicted_bytes;
}

static uint64_t find_floor(void) {
    rn_generator_options generator = make_options(1);
    rn_engine *engine = create();
    assert_fails(RN_OVER_BUDGET, rn_engine_load(engine, &generator, 0));
    uint64_t floor = rn_last_refusal()->smallest_budget_bytes;
    rn_engine_destroy(engine);
    return floor;
}

static void every_budget_gives_the_same_answers_within_it(void **state) {
    (void)state;
    uint64_t ledger = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    uint64_t roomy = serve_at((uint64_t)1 << 30, true), floor = find_floor();
    assert_true(floor < roomy);
    (void)serve_at(roomy, false);
    (void)serve_at(floor + (roomy - floor) / 2, false);
    (void)serve_at(floor, false);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, ledger);
}

static void below_the_floor_nothing_is_loaded(void **state) {
    (void)state;
    uint64_t ledger = rn_ledger_total(RN_DEVICE_HOST).now_bytes, floor = find_floor();
    rn_generator_options generator = make_options(floor - 1);
    rn_engine *engine = create();
    rn_engine_facts facts;
    assert_fails(RN_OVER_BUDGET, rn_engine_load(engine, &generator, 0));
    rn_engine_get_facts(engine, &facts);
    assert_int_equal(facts.phase, RN_ENGINE_LOADING);
    rn_engine_destroy(engine);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_gives_the_same_answers_within_it),
        cmocka_unit_test(below_the_floor_nothing_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
