// labels: threads
// The story: complete, clean, one for each thread.
#include "support.h"

#include <pthread.h>

static void every_status_has_its_own_name(void **state) {
    (void)state;
    for (int i = 0; i < RN_STATUS_COUNT; i++) {
        assert_memory_equal("RN_", rn_status_name((rn_status)i), 3);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(rn_status_name((rn_status)i), rn_status_name((rn_status)j));
    }
    assert_string_equal("RN_OK", rn_status_name(RN_OK));
    assert_string_equal("RN_OVER_BUDGET", rn_status_name(RN_OVER_BUDGET));
    assert_string_equal("RN_UNKNOWN", rn_status_name(RN_STATUS_COUNT));
    assert_string_equal("RN_UNKNOWN", rn_status_name((rn_status)-1));
}

static void *look_at_first_story(void *out) {
    *(rn_error_info *)out = *rn_last_error();
    return NULL;
}

static void story_is_empty_before_the_first_failure(void **state) {
    (void)state;
    rn_error_info story;
    pthread_t thread;
    (void)rn_fail(RN_IO, "on another thread");
    assert_int_equal(0, pthread_create(&thread, NULL, look_at_first_story, &story));
    pthread_join(thread, NULL);
    assert_int_equal(RN_OK, story.status);
    assert_string_equal("", story.message);
    assert_string_equal("", story.hint);
    assert_string_equal("", story.path);
    assert_string_equal("", story.source_file);
    assert_true(story.offset == RN_NO_OFFSET);
}

static void failing_says_what_and_where(void **state) {
    (void)state;
    int line = __LINE__ + 1;
    rn_status s = rn_fail(RN_CORRUPT, "header is %d bytes, file has %d", 12, 7);
    assert_int_equal(RN_CORRUPT, s);
    const rn_error_info *story = rn_last_error();
    assert_int_equal(RN_CORRUPT, story->status);
    assert_string_equal("header is 12 bytes, file has 7", story->message);
    assert_int_equal(line, story->source_line);
    assert_non_null(strstr(story->source_file, "status_test.c"));
    assert_true(story->offset == RN_NO_OFFSET);
}

static void hint_and_blame_add_to_the_story(void **state) {
    (void)state;
    rn_status s = rn_fail(RN_NOT_FOUND, "no such tensor");
    assert_int_equal(RN_NOT_FOUND, rn_hint(s, "try one of %d others", 3));
    assert_int_equal(RN_NOT_FOUND, rn_error_locate(s, "model.gguf", 4096));
    const rn_error_info *story = rn_last_error();
    assert_string_equal("no such tensor", story->message);
    assert_string_equal("try one of 3 others", story->hint);
    assert_string_equal("model.gguf", story->path);
    assert_int_equal(4096, story->offset);
    assert_int_equal(RN_NOT_FOUND, rn_error_locate(s, NULL, 1));
    assert_string_equal("", story->path);
}

static void hint_and_blame_leave_success_alone(void **state) {
    (void)state;
    (void)rn_error_locate(rn_hint(rn_fail(RN_IO, "old"), "old hint"), "old path", 5);
    assert_int_equal(RN_OK, rn_hint(RN_OK, "new hint"));
    assert_int_equal(RN_OK, rn_error_locate(RN_OK, "new path", 6));
    assert_string_equal("old hint", rn_last_error()->hint);
    assert_string_equal("old path", rn_last_error()->path);
    assert_int_equal(5, rn_last_error()->offset);
}

static void new_failure_forgets_the_old_one(void **state) {
    (void)state;
    (void)rn_error_locate(rn_hint(rn_fail(RN_IO, "a longer message than the next"), "h"), "p", 5);
    (void)rn_fail(RN_INVALID, "short");
    assert_int_equal(RN_INVALID, rn_last_error()->status);
    assert_string_equal("short", rn_last_error()->message);
    assert_string_equal("", rn_last_error()->hint);
    assert_string_equal("", rn_last_error()->path);
    assert_true(rn_last_error()->offset == RN_NO_OFFSET);
}

static void control_characters_never_reach_the_story(void **state) {
    (void)state;
    // Escape sequences, carriage returns, DEL, and U+009B (CSI in one character); line breaks and
    // other characters beyond ASCII stay.
    const char *hostile = "a\x1b[2J\rb\tc\x7f"
                          "d\xc2\x9b"
                          "e\nf\xc3\xa9g\xe2\x82\xac";
    const char *clean = "a?[2J?b?c?d??e\nf\xc3\xa9g\xe2\x82\xac";
    rn_status s = rn_fail(RN_CORRUPT, "%s", hostile);
    (void)rn_hint(s, "%s", hostile);
    (void)rn_error_locate(s, hostile, 0);
    assert_string_equal(clean, rn_last_error()->message);
    assert_string_equal(clean, rn_last_error()->hint);
    assert_string_equal(clean, rn_last_error()->path);
}

static void long_texts_are_cut_and_terminated(void **state) {
    (void)state;
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    rn_status s = rn_fail(RN_INVALID, "%s", text);
    (void)rn_hint(s, "%s", text);
    (void)rn_error_locate(s, text, 0);
    const rn_error_info *story = rn_last_error();
    assert_int_equal(sizeof story->message - 1, strlen(story->message));
    assert_int_equal(sizeof story->hint - 1, strlen(story->hint));
    assert_int_equal(sizeof story->path - 1, strlen(story->path));
}

static int evaluations;

static rn_status evaluate(rn_status s) {
    evaluations++;
    return s;
}

static rn_status try_two(rn_status first, rn_status second, int *out_reached) {
    *out_reached = 0;
    RN_TRY(evaluate(first));
    *out_reached = 1;
    RN_TRY(evaluate(second));
    *out_reached = 2;
    return RN_OK;
}

static void try_returns_the_first_failure(void **state) {
    (void)state;
    int reached;
    evaluations = 0;
    assert_int_equal(RN_OK, try_two(RN_OK, RN_OK, &reached));
    assert_int_equal(2, reached);
    assert_int_equal(RN_IO, try_two(RN_OK, RN_IO, &reached));
    assert_int_equal(1, reached);
    assert_int_equal(RN_DEVICE, try_two(RN_DEVICE, RN_IO, &reached));
    assert_int_equal(0, reached);
    assert_int_equal(2 + 2 + 1, evaluations); // each expression once
}

// ---- threads ---------------------------------------------------------------------------

enum { THREADS = 8, ROUNDS = 2000 };
static pthread_barrier_t barrier;

typedef struct teller {
    int number;
    int wrong;
    rn_error_info last;
} teller;

static void *tell(void *self) {
    teller *t = self;
    char expected[64];
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        (void)rn_hint(rn_fail((rn_status)(1 + t->number), "thread %d, round %d", t->number, i),
                      "hint %d", t->number);
        snprintf(expected, sizeof expected, "thread %d, round %d", t->number, i);
        t->wrong += strcmp(expected, rn_last_error()->message) != 0;
        t->wrong += rn_last_error()->status != (rn_status)(1 + t->number);
    }
    t->last = *rn_last_error();
    return NULL;
}

static void each_thread_has_its_own_story(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    teller tellers[THREADS];
    (void)rn_fail(RN_INTERNAL, "mine");
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        tellers[i] = (teller){.number = i};
        assert_int_equal(0, pthread_create(&threads[i], NULL, tell, &tellers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(0, tellers[i].wrong);
    }
    pthread_barrier_destroy(&barrier);
    assert_string_equal("mine", rn_last_error()->message);

    // A worker's failure, handed on.
    assert_int_equal((rn_status)(1 + 3), rn_error_restore(&tellers[3].last));
    assert_string_equal("thread 3, round 1999", rn_last_error()->message);
    assert_string_equal("hint 3", rn_last_error()->hint);
    assert_int_equal(1 + 3, rn_last_error()->status);
    assert_int_equal((rn_status)(1 + 3), rn_error_restore(rn_last_error()));
    assert_string_equal("hint 3", rn_last_error()->hint);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_name),
        cmocka_unit_test(story_is_empty_before_the_first_failure),
        cmocka_unit_test(failing_says_what_and_where),
        cmocka_unit_test(hint_and_blame_add_to_the_story),
        cmocka_unit_test(hint_and_blame_leave_success_alone),
        cmocka_unit_test(new_failure_forgets_the_old_one),
        cmocka_unit_test(control_characters_never_reach_the_story),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(try_returns_the_first_failure),
        cmocka_unit_test(each_thread_has_its_own_story),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
