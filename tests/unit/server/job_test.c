// labels: threads
// A job's outbox: pieces come out as they went in, a fast reader never fills it, a slow one is
// waited for, and whoever lets go last takes everything along.
#include "support.h"

#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/job_choice.h"

#include <pthread.h>
#include <stdatomic.h>

static rn_request_memory memory, answers;
static atomic_int woken, drained, suspended;

static void wake(void *self) {
    (void)self;
    woken++;
}
static void drain(void *self) {
    (void)self;
    drained++;
}
static void suspend(void *self) {
    (void)self;
    suspended++;
}

static int begin(void **state) {
    (void)state;
    rn_request_memory_init(&memory, 1 << 20);
    rn_request_memory_init(&answers, 1 << 20);
    woken = drained = suspended = 0;
    return 0;
}

static rn_job *create(bool stream, size_t outbox_bytes) {
    rn_request request = {.kind = RN_REQUEST_CHAT, .prompt_count = 1, .n = 1, .stream = stream};
    rn_job *job;
    rn_status s;
    rn_arena_init(&request.memory, RN_HOST_IO, 256);
    assert_true(rn_request_memory_take(&memory, 1000));
    assert_ok(rn_job_create(&request, &memory, 1000, 7, wake, NULL, &job));
    if (outbox_bytes) assert_true(rn_job_open_outbox(job, &answers, outbox_bytes, &s));
    job->drained = drain;
    return job;
}

static void release_both(rn_job *job) {
    rn_job_release(job);
    rn_job_release(job);
    assert_int_equal(memory.taken_bytes, 0);
    assert_int_equal(answers.taken_bytes, 0);
}

static rn_piece make(uint32_t choice, const char *text, uint32_t token, uint32_t tops) {
    rn_piece piece = {.choice = choice, .has_token = true, .text = rn_str_from(text)};
    piece.sample = (rn_sample){.token = token, .logprob = -1.5f, .top_count = tops};
    for (uint32_t i = 0; i < tops; i++)
        piece.sample.top[i] = (rn_token_logprob){token + i, -(float)i};
    return piece;
}

static void expect(const rn_piece *got, const rn_piece *put) {
    assert_int_equal(got->choice, put->choice);
    assert_int_equal(got->finish, put->finish);
    assert_int_equal(got->has_token, put->has_token);
    assert_true(rn_str_equal(got->text, put->text));
    assert_int_equal(got->sample.token, put->sample.token);
    assert_true(got->sample.logprob == put->sample.logprob);
    assert_int_equal(got->sample.top_count, put->sample.top_count);
    for (uint32_t i = 0; i < put->sample.top_count; i++) {
        assert_int_equal(got->sample.top[i].token, put->sample.top[i].token);
        assert_true(got->sample.top[i].logprob == put->sample.top[i].logprob);
    }
}

// ---- one thread ---------------------------------------------------------------------------------

static void pieces_come_out_as_they_went_in_again_and_again(void **state) {
    (void)state;
    rn_job *job = create(false, 4096);
    rn_piece put[4] = {make(0, "Once", 5, 0), make(1, "", 9, 20), make(0, "\xE2\x82\xAC", 7, 3)};
    put[3] = (rn_piece){.choice = 1, .finish = RN_FINISH_STOP, .text = RN_STR(" held")};
    for (size_t i = 0; i < 4; i++)
        assert_true(rn_job_put(job, &put[i]));
    for (int round = 0; round < 3; round++) {
        size_t cursor = 0;
        rn_piece got;
        for (size_t i = 0; i < 4; i++) {
            assert_true(rn_job_read(job, &cursor, &got));
            expect(&got, &put[i]);
        }
        assert_false(rn_job_read(job, &cursor, &got));
    }
    release_both(job);
}

static void an_outbox_holds_exactly_what_its_pieces_take(void **state) {
    (void)state;
    rn_piece piece = make(0, "four", 1, 2);
    size_t each = rn_piece_bytes(4, 2);
    rn_job *job = create(false, 3 * each);
    for (int i = 0; i < 3; i++)
        assert_true(rn_job_put(job, &piece));
    assert_false(rn_job_put(job, &piece));
    release_both(job);
    job = create(false, 3 * each - 1);
    for (int i = 0; i < 2; i++)
        assert_true(rn_job_put(job, &piece));
    assert_false(rn_job_put(job, &piece));
    release_both(job);
}

static void a_stream_that_is_read_never_fills(void **state) {
    (void)state;
    rn_piece piece = make(0, "word ", 1, 0), got;
    rn_job *job = create(true, 3 * rn_piece_bytes(5, 0));
    size_t cursor = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(rn_job_put(job, &piece));
        assert_true(rn_job_read(job, &cursor, &got));
        expect(&got, &piece);
        assert_false(rn_job_read(job, &cursor, &got));
    }
    release_both(job);
}

static void a_stream_that_is_not_read_fills_and_says_when_there_is_room(void **state) {
    (void)state;
    rn_piece piece = make(0, "word ", 1, 0), got;
    size_t each = rn_piece_bytes(5, 0), cursor = 0;
    rn_job *job = create(true, 3 * each);
    for (int i = 0; i < 3; i++)
        assert_true(rn_job_has_room(job, each) && rn_job_put(job, &piece));
    assert_false(rn_job_has_room(job, each));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(drained, 0);
        assert_true(rn_job_read(job, &cursor, &got));
    }
    assert_false(rn_job_has_room(job, each)); // the reader still looks at the last one
    assert_false(rn_job_read(job, &cursor, &got));
    assert_int_equal(drained, 1);
    assert_true(rn_job_has_room(job, each));
    assert_false(rn_job_read(job, &cursor, &got));
    assert_int_equal(drained, 1);
    release_both(job);
}

static void a_stream_sleeps_until_something_comes(void **state) {
    (void)state;
    rn_piece piece = make(0, "a", 1, 0), got;
    rn_job *job = create(true, 4096);
    size_t cursor = 0;
    assert_true(rn_job_sleep(job, cursor, suspend, NULL));
    assert_int_equal(suspended, 1);
    rn_job_set_state(job, RN_JOB_RUNNING, NULL);
    assert_int_equal(woken, 1);
    assert_true(rn_job_sleep(job, cursor, suspend, NULL));
    assert_true(rn_job_put(job, &piece));
    assert_int_equal(woken, 2);
    assert_true(rn_job_put(job, &piece)); // it is awake
    assert_int_equal(woken, 2);
    assert_false(rn_job_sleep(job, cursor, suspend, NULL));
    while (rn_job_read(job, &cursor, &got))
        ;
    assert_true(rn_job_sleep(job, cursor, suspend, NULL));
    rn_job_set_state(job, RN_JOB_DONE, NULL);
    assert_int_equal(woken, 3);
    assert_false(rn_job_sleep(job, cursor, suspend, NULL));
    assert_int_equal(suspended, 3);
    release_both(job);
}

static void another_sleeps_until_its_end(void **state) {
    (void)state;
    rn_piece piece = make(0, "a", 1, 0);
    rn_job *job = create(false, 4096);
    rn_problem problem = {.http = 500, .message = "broken"};
    assert_true(rn_job_sleep(job, 0, suspend, NULL));
    rn_job_set_state(job, RN_JOB_RUNNING, NULL);
    assert_true(rn_job_put(job, &piece));
    assert_int_equal(woken, 0);
    rn_job_set_state(job, RN_JOB_FAILED, &problem);
    assert_int_equal(woken, 1);
    assert_int_equal(rn_job_get_state(job), RN_JOB_FAILED);
    assert_int_equal(rn_job_get_problem(job).http, 500);
    rn_job_set_state(job, RN_JOB_DONE, NULL); // an end is an end
    assert_int_equal(rn_job_get_state(job), RN_JOB_FAILED);
    release_both(job);
}

static void ids_say_what_was_asked_and_differ(void **state) {
    (void)state;
    rn_job *a = create(false, 0), *b = create(false, 0);
    assert_true(strncmp(a->id, "chatcmpl-", 9) == 0);
    assert_int_equal(strlen(a->id), 9 + 24);
    assert_string_not_equal(a->id, b->id);
    rn_job_release(a);
    rn_job_release(a);
    release_both(b);
}

static void no_room_and_no_memory_are_told_apart(void **state) {
    (void)state;
    rn_status s = RN_OK;
    rn_job *job = create(false, 0);
    assert_false(rn_job_open_outbox(job, &answers, (1 << 20) + 1, &s));
    assert_int_equal(s, RN_OK);
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_false(rn_job_open_outbox(job, &answers, 100, &s));
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_int_equal(s, RN_NO_MEMORY);
    assert_int_equal(answers.taken_bytes, 0);
    release_both(job);
}

static void without_memory_the_ask_and_its_room_go(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_request request = {.prompt_count = 1, .n = 1};
    void *block;
    rn_job *job;
    rn_arena_init(&request.memory, RN_HOST_IO, 256);
    assert_ok(rn_arena_alloc(&request.memory, 100, &block));
    assert_true(rn_request_memory_take(&memory, 1000));
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_job_create(&request, &memory, 1000, 0, wake, NULL, &job));
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_null(job);
    assert_int_equal(memory.taken_bytes, 0);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

// ---- two threads --------------------------------------------------------------------------------

enum { MANY = 20000 };

typedef struct meeting {
    rn_job *job;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool asleep, stalled;
} meeting;

static void meeting_wake(void *self) {
    meeting *m = self;
    pthread_mutex_lock(&m->lock);
    m->asleep = false;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void meeting_drained(void *self) {
    meeting *m = self;
    pthread_mutex_lock(&m->lock);
    m->stalled = false;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void meeting_suspend(void *self) {
    meeting *m = self;
    pthread_mutex_lock(&m->lock);
    m->asleep = true;
    pthread_mutex_unlock(&m->lock);
}

static void wait_until(meeting *m, const bool *flag) {
    pthread_mutex_lock(&m->lock);
    while (*flag)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static void *write_many(void *self) {
    meeting *m = self;
    for (uint32_t i = 0; i < MANY; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", i);
        rn_piece piece = make(0, text, i, i % 4);
        for (;;) {
            pthread_mutex_lock(&m->lock);
            m->stalled = true; // before it is asked: the answer may come at once
            pthread_mutex_unlock(&m->lock);
            if (rn_job_has_room(m->job, rn_piece_bytes(16, 3))) break;
            wait_until(m, &m->stalled);
        }
        assert_true(rn_job_put(m->job, &piece));
    }
    rn_job_set_state(m->job, RN_JOB_DONE, NULL);
    rn_job_release(m->job);
    return NULL;
}

static void a_writer_and_a_reader_meet_in_a_small_outbox(void **state) {
    (void)state;
    meeting m = {.job = create(true, 300)};
    pthread_t writer;
    size_t cursor = 0;
    uint32_t next = 0;
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.changed, NULL);
    m.job->wake = meeting_wake;
    m.job->drained = meeting_drained;
    m.job->self = m.job->drained_self = &m;
    assert_int_equal(pthread_create(&writer, NULL, write_many, &m), 0);
    for (rn_piece got; next < MANY;) {
        while (rn_job_read(m.job, &cursor, &got)) {
            char text[16];
            snprintf(text, sizeof text, "%u", next);
            rn_piece put = make(0, text, next, next % 4);
            expect(&got, &put);
            next++;
        }
        if (next < MANY && rn_job_sleep(m.job, cursor, meeting_suspend, &m))
            wait_until(&m, &m.asleep);
    }
    pthread_join(writer, NULL);
    assert_int_equal(rn_job_get_state(m.job), RN_JOB_DONE);
    rn_job_release(m.job);
    assert_int_equal(answers.taken_bytes, 0);
    pthread_cond_destroy(&m.changed);
    pthread_mutex_destroy(&m.lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pieces_come_out_as_they_went_in_again_and_again, begin),
        cmocka_unit_test_setup(an_outbox_holds_exactly_what_its_pieces_take, begin),
        cmocka_unit_test_setup(a_stream_that_is_read_never_fills, begin),
        cmocka_unit_test_setup(a_stream_that_is_not_read_fills_and_says_when_there_is_room, begin),
        cmocka_unit_test_setup(a_stream_sleeps_until_something_comes, begin),
        cmocka_unit_test_setup(another_sleeps_until_its_end, begin),
        cmocka_unit_test_setup(ids_say_what_was_asked_and_differ, begin),
        cmocka_unit_test_setup(no_room_and_no_memory_are_told_apart, begin),
        cmocka_unit_test_setup(without_memory_the_ask_and_its_room_go, begin),
        cmocka_unit_test_setup(a_writer_and_a_reader_meet_in_a_small_outbox, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
