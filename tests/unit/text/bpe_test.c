// Joining pairs: short and long words give what the plainest possible loop gives.
#include "memory/account.h"
#include "support.h"
#include "text/bpe.h"

enum { LETTERS = 3, JOINED = 60, TOKENS = LETTERS + JOINED };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef struct random_bpe {
    rn_vocab vocab;
    rn_bpe bpe;
    rn_merge merges[JOINED];
} random_bpe;

// Tokens of a, b and c, each made of two earlier ones.
static void make(random_bpe *r, uint32_t seed) {
    static const char *const letters[] = {"a", "b", "c"};
    rn_vocab_init(&r->vocab, RN_HOST_OTHER);
    for (uint32_t id = 0; id < LETTERS; id++)
        assert_ok(rn_vocab_put(&r->vocab, id, rn_str_from(letters[id]), 0));
    size_t count = 0;
    for (uint32_t id = LETTERS; id < TOKENS; id++) {
        char text[64];
        uint32_t left = next_random(&seed) % id, right = next_random(&seed) % id;
        rn_str l = rn_vocab_text(&r->vocab, left), p = rn_vocab_text(&r->vocab, right);
        int bytes = snprintf(text, sizeof text, "%.*s%.*s", RN_STR_ARG(l), RN_STR_ARG(p));
        bool twice = bytes > 20;
        for (uint32_t other = 0; other < id; other++)
            twice = twice || rn_str_equal(rn_vocab_text(&r->vocab, other), rn_str_from(text));
        if (twice) snprintf(text, sizeof text, "#%u", id);
        assert_ok(rn_vocab_put(&r->vocab, id, rn_str_from(text), 0));
        if (!twice) r->merges[count++] = (rn_merge){left, right, (uint32_t)count, id};
    }
    assert_ok(rn_vocab_seal(&r->vocab));
    r->bpe = (rn_bpe){
        .from = RN_HOST_OTHER, .vocab = &r->vocab, .by_bytes = true, .unknown = RN_NO_TOKEN};
    assert_ok(rn_merges_init(&r->bpe.merges, RN_HOST_OTHER, count, seed));
    for (size_t i = 0; i < count; i++)
        rn_merges_add(&r->bpe.merges, r->merges[i]);
    assert_ok(rn_bpe_finish(&r->bpe));
}

static void discard(random_bpe *r) {
    rn_bpe_free(&r->bpe);
    rn_vocab_free(&r->vocab);
}

// Of all pairs the one of the lowest rank, leftmost, until there is none.
static size_t join_plainly(const rn_bpe *bpe, uint32_t *ids, size_t count) {
    for (;;) {
        const rn_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const rn_merge *merge = rn_merges_find(&bpe->merges, ids[i], ids[i + 1]);
            if (!merge || (best && merge->rank >= best->rank)) continue;
            best = merge;
            at = i;
        }
        if (!best) return count;
        ids[at] = best->into;
        count--;
        memmove(&ids[at + 1], &ids[at + 2], (count - at - 1) * sizeof *ids);
    }
}

static void check_word(random_bpe *r, rn_bpe_scratch *scratch, uint32_t *seed, size_t bytes) {
    char word[256];
    uint32_t ids[256];
    rn_tokens got = {0};
    for (size_t i = 0; i < bytes; i++) {
        ids[i] = next_random(seed) % LETTERS;
        word[i] = "abc"[ids[i]];
    }
    size_t count = join_plainly(&r->bpe, ids, bytes);
    assert_ok(rn_bpe_encode(&r->bpe, (rn_str){word, bytes}, scratch, &got));
    assert_int_equal(got.count, count);
    if (count) assert_memory_equal(got.ids, ids, count * sizeof *ids);
    rn_tokens_free(&got);
}

static void words_of_any_length_are_joined_as_the_plain_loop_joins_them(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        random_bpe r;
        rn_bpe_scratch scratch = {0};
        uint32_t random = seed;
        make(&r, seed);
        if (seed % 2) assert_ok(rn_bpe_scratch_prepare(&r.bpe, &scratch, 1 << 20));
        for (size_t bytes = 1; bytes < 200; bytes += 1 + bytes / 8)
            for (int i = 0; i < 10; i++)
                check_word(&r, &scratch, &random, bytes);
        rn_bpe_scratch_free(&r.bpe, &scratch);
        discard(&r);
    }
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
}

static void a_word_of_a_megabyte_is_one_word(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    random_bpe r;
    rn_bpe_scratch scratch = {0};
    rn_tokens got = {0};
    size_t bytes = 0;
    char *word = malloc(BYTES);
    assert_non_null(word);
    make(&r, 3);
    for (size_t i = 0; i < BYTES; i++)
        word[i] = "abc"[i * i % 7 % 3];
    assert_ok(rn_bpe_encode(&r.bpe, (rn_str){word, BYTES}, &scratch, &got));
    for (size_t i = 0; i < got.count; i++) {
        rn_str text = rn_vocab_text(&r.vocab, got.ids[i]);
        assert_memory_equal(text.data, word + bytes, text.bytes);
        bytes += text.bytes;
    }
    assert_int_equal(bytes, BYTES);
    rn_tokens_free(&got);
    rn_bpe_scratch_free(&r.bpe, &scratch);
    discard(&r);
    free(word);
}

// "ab" is a token that no merge makes.
static void a_token_that_merges_do_not_reach_is_taken_only_when_merges_are_ignored(void **state) {
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        rn_vocab vocab;
        rn_bpe_scratch scratch = {0};
        rn_tokens got = {0};
        rn_vocab_init(&vocab, RN_HOST_OTHER);
        assert_ok(rn_vocab_put(&vocab, 0, RN_STR("a"), 0));
        assert_ok(rn_vocab_put(&vocab, 1, RN_STR("b"), 0));
        assert_ok(rn_vocab_put(&vocab, 2, RN_STR("ab"), 0));
        assert_ok(rn_vocab_seal(&vocab));
        rn_bpe bpe = {.from = RN_HOST_OTHER,
                      .vocab = &vocab,
                      .by_bytes = true,
                      .ignore_merges = ignore,
                      .unknown = RN_NO_TOKEN};
        assert_ok(rn_merges_init(&bpe.merges, RN_HOST_OTHER, 0, 1));
        assert_ok(rn_bpe_finish(&bpe));
        for (int i = 0; i < 2; i++) // the second time, it is remembered
            assert_ok(rn_bpe_encode(&bpe, RN_STR("ab"), &scratch, &got));
        assert_int_equal(got.count, ignore ? 2 : 4);
        rn_tokens_free(&got);
        rn_bpe_free(&bpe);
        rn_vocab_free(&vocab);
    }
}

static void ids_twice_and_texts_twice_are_refused(void **state) {
    (void)state;
    rn_vocab vocab;
    rn_vocab_init(&vocab, RN_HOST_OTHER);
    assert_ok(rn_vocab_put(&vocab, 5, RN_STR("a"), 0));
    assert_fails(RN_CORRUPT, rn_vocab_put(&vocab, 5, RN_STR("b"), 0));
    assert_fails(RN_CORRUPT, rn_vocab_put(&vocab, RN_VOCAB_MAX, RN_STR("b"), 0));
    assert_ok(rn_vocab_put(&vocab, 1, RN_STR("a"), RN_TOKEN_APART));
    assert_ok(rn_vocab_put(&vocab, 2, RN_STR("a"), 0));
    assert_fails(RN_CORRUPT, rn_vocab_seal(&vocab));
    assert_int_equal(rn_vocab_text(&vocab, 3).bytes, 0);
    assert_int_equal(rn_vocab_text(&vocab, 300).bytes, 0);
    rn_vocab_free(&vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_any_length_are_joined_as_the_plain_loop_joins_them),
        cmocka_unit_test(a_word_of_a_megabyte_is_one_word),
        cmocka_unit_test(a_token_that_merges_do_not_reach_is_taken_only_when_merges_are_ignored),
        cmocka_unit_test(ids_twice_and_texts_twice_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
