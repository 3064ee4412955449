// labels: threads
// One tokenizer, several threads: the same ids as one thread alone.
#include "tiny_tokenizer.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200 };

static const char text[] = "hello hell he o'hello  world 123 hellohello \xC3\xA9";

typedef struct encoder {
    const rn_tokenizer *tokenizer;
    const rn_tokens *want;
    int wrong;
} encoder;

static void *encode_often(void *self) {
    encoder *e = self;
    for (int round = 0; round < ROUNDS; round++) {
        rn_tokens got = {0};
        rn_status s = rn_tokenizer_encode(e->tokenizer, RN_STR(text), 0, &got);
        e->wrong += s != RN_OK || got.count != e->want->count ||
                    memcmp(got.ids, e->want->ids, got.count * sizeof *got.ids) != 0;
        rn_tokens_free(&got);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    rn_tokenizer *alone, *shared;
    rn_tokens want = {0};
    pthread_t threads[THREADS];
    encoder encoders[THREADS];
    assert_ok(tiny_open(TINY_STEPS, "", &alone));
    assert_ok(tiny_open(TINY_STEPS, "", &shared));
    assert_ok(rn_tokenizer_encode(alone, RN_STR(text), 0, &want));
    for (int i = 0; i < THREADS; i++) {
        encoders[i] = (encoder){shared, &want, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &encoders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(encoders[i].wrong, 0);
    }
    rn_tokens_free(&want);
    rn_tokenizer_close(shared);
    rn_tokenizer_close(alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
