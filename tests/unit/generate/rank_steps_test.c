// labels: threads
// Ranks as threads, each with a part of a tiny model: they say together, to the bit, what one
// process says; where one of them cannot, none does.
#include "support.h"
#include "tiny_text.h"

#include <ration/comm.h>

#include <pthread.h>

enum { MOST_RANKS = 4, TEXTS = 3, TOKENS = 12 };

static tiny_text tiny = {.layers = 4, .dim = 64, .vocab = 96};
static tiny_text coarse = {.layers = 4, .dim = 64, .vocab = 96, .weights_as = RN_DTYPE_Q8_0};

static int open_tiny(void **state) {
    (void)state;
    tiny_text_open(&tiny, test_path("ranks.safetensors"));
    tiny_text_open(&coarse, test_path("ranks.gguf"));
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    tiny_text_close(&coarse);
    return 0;
}

typedef struct job {
    const tiny_text *text;
    rn_generator_options options;
    uint64_t budgets[MOST_RANKS]; // 0: none
    story stories[TEXTS];
} job;

typedef struct rank {
    job *job;
    rn_comm *comm;
    rn_status status;
    rn_error_info error;
    rn_rank_share shares[MOST_RANKS];
} rank;

// Prompts of several chunks, side by side.
static rn_status tell(rn_generator *g, story *out) {
    rn_sequence *sequences[TEXTS];
    uint32_t ids[STORY_MOST], done = 0;
    for (uint32_t t = 0; t < TEXTS; t++) {
        out[t].count = 0;
        story_prompt(t + 1, 96, 9 + 20 * t, ids);
        RN_TRY(rn_sequence_create(g, NULL, &sequences[t]));
        RN_TRY(rn_sequence_feed(sequences[t], ids, 9 + 20 * t));
    }
    while (done < TEXTS) {
        RN_TRY(rn_generator_step(g));
        done = 0;
        for (uint32_t t = 0; t < TEXTS; t++) {
            story_take(&out[t], sequences[t], TOKENS);
            if (out[t].count == TOKENS) rn_sequence_pause(sequences[t]), done++;
        }
    }
    return RN_OK;
}

static void hear_shares(void *self, const rn_rank_share *shares, uint32_t count) {
    rank *r = self;
    memcpy(r->shares, shares, count * sizeof *shares);
}

static rn_status take_part(rank *r) {
    rn_generator_options o = r->job->options;
    rn_generator *g = NULL;
    o.comm = r->comm;
    o.shared = hear_shares;
    o.planned_self = r;
    o.plan.budget_bytes = r->job->budgets[rn_comm_rank(r->comm)];
    RN_TRY(rn_generator_create_from(&r->job->text->maker, &o, &g));
    bool first = rn_comm_rank(r->comm) == 0;
    rn_status s = first ? tell(g, r->job->stories) : rn_generator_follow(g);
    if (s == RN_OK && rn_plan_get_summary(g->plan)->planned_bytes !=
                          r->shares[rn_comm_rank(r->comm)].planned_bytes)
        s = rn_fail(RN_INTERNAL, "a share is not the plan's");
    rn_generator_destroy(g);
    return s;
}

static void *run_rank(void *self) {
    rank *r = self;
    r->status = take_part(r);
    r->error = *rn_last_error();
    if (r->status == RN_OK)
        rn_comm_close(r->comm);
    else
        rn_comm_abort(r->comm, r->error.message);
    return NULL;
}

static void run_job(job *j, uint32_t ranks, rank out[MOST_RANKS]) {
    rn_comm *comms[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    assert_ok(rn_comm_open_threads(ranks, 60, comms));
    for (uint32_t i = 0; i < ranks; i++) {
        out[i] = (rank){.job = j, .comm = comms[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &out[i]), 0);
    }
    for (uint32_t i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
}

static rn_generator_options base_options(void) {
    return (rn_generator_options){
        .text = {.context = 128, .page_tokens = 8, .sequences = TEXTS, .rows = 16}};
}

static void check_text(const tiny_text *text, rn_split split, uint32_t most_ranks) {
    job j = {.text = text, .options = base_options()};
    story one[TEXTS];
    rank r[MOST_RANKS];
    rn_generator *g = tiny_text_generator(text, &j.options);
    assert_ok(tell(g, one));
    rn_generator_destroy(g);
    j.options.split = split;
    for (uint32_t ranks = 2; ranks <= most_ranks; ranks++) {
        run_job(&j, ranks, r);
        for (uint32_t i = 0; i < ranks; i++)
            assert_ok(r[i].status);
        for (uint32_t t = 0; t < TEXTS; t++)
            story_expect(&j.stories[t], &one[t]);
        assert_int_equal(0, r[0].shares[0].first_block);
        if (split == RN_SPLIT_AUTO) continue; // whatever it was
        assert_int_equal(split, r[0].shares[0].split);
        if (split == RN_SPLIT_HEADS) continue;
        for (uint32_t i = 1; i < ranks; i++)
            assert_int_equal(r[0].shares[i - 1].end_block, r[i].shares[i].first_block);
    }
}

static void several_ranks_say_what_one_says(void **state) {
    (void)state;
    check_text(&tiny, RN_SPLIT_LAYERS, MOST_RANKS);
}

static void so_do_quantised_weights(void **state) {
    (void)state;
    check_text(&coarse, RN_SPLIT_LAYERS, MOST_RANKS);
}

static void and_ranks_that_have_some_heads_each(void **state) {
    (void)state;
    check_text(&tiny, RN_SPLIT_HEADS, 2);
    check_text(&coarse, RN_SPLIT_HEADS, 2);
}

static void and_ranks_that_choose(void **state) {
    (void)state;
    check_text(&tiny, RN_SPLIT_AUTO, MOST_RANKS);
}

static void ranks_must_divide_the_heads(void **state) {
    (void)state;
    job j = {.text = &tiny, .options = base_options()};
    rank r[MOST_RANKS];
    j.options.split = RN_SPLIT_HEADS;
    run_job(&j, 3, r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(RN_INVALID, r[i].status);
        assert_non_null(strstr(r[i].error.message, "3 ranks for 2 key-value heads"));
    }
}

static void more_ranks_than_layers_are_refused(void **state) {
    (void)state;
    static tiny_text small = {.layers = 2, .dim = 64, .vocab = 96};
    rank r[MOST_RANKS];
    tiny_text_open(&small, test_path("small.safetensors"));
    job j = {.text = &small, .options = base_options()};
    run_job(&j, 3, r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(RN_INVALID, r[i].status);
        assert_non_null(strstr(r[i].error.message, "3 ranks for 2 layers"));
    }
    tiny_text_close(&small);
}

static void one_that_does_not_fit_refuses_all(void **state) {
    (void)state;
    job j = {.text = &tiny, .options = base_options(), .budgets = {0, 1 << 10, 0}};
    rank r[MOST_RANKS];
    run_job(&j, 3, r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(RN_OVER_BUDGET, r[i].status);
        assert_non_null(strstr(r[i].error.message, "rank 1 of 3 is over its budget of 1.00 KiB"));
        assert_int_equal(RN_OVER_BUDGET, r[i].shares[1].status);
        assert_int_equal(RN_OK, r[i].shares[0].status);
        assert_true(r[i].shares[1].smallest_budget_bytes > 1 << 10);
    }
}

static void another_model_is_named(void **state) {
    (void)state;
    rn_comm *comms[3];
    rank r[3];
    pthread_t threads[3];
    job same = {.text = &tiny, .options = base_options()},
        other = {.text = &coarse, .options = base_options()};
    assert_ok(rn_comm_open_threads(3, 60, comms));
    for (int i = 0; i < 3; i++) {
        r[i] = (rank){.job = i == 1 ? &other : &same, .comm = comms[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &r[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(RN_INVALID, r[i].status);
        assert_non_null(strstr(r[i].error.message, "the model"));
        assert_non_null(strstr(r[i].error.message, "rank 1"));
    }
}

static void drafts_are_refused(void **state) {
    (void)state;
    job j = {.text = &tiny, .options = base_options()};
    rank r[MOST_RANKS];
    j.options.speculation = RN_SPECULATE_ALWAYS;
    run_job(&j, 2, r);
    assert_int_equal(RN_UNSUPPORTED, r[0].status);
    assert_int_equal(RN_UNSUPPORTED, r[1].status);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_ranks_say_what_one_says),
        cmocka_unit_test(so_do_quantised_weights),
        cmocka_unit_test(and_ranks_that_have_some_heads_each),
        cmocka_unit_test(and_ranks_that_choose),
        cmocka_unit_test(ranks_must_divide_the_heads),
        cmocka_unit_test(more_ranks_than_layers_are_refused),
        cmocka_unit_test(one_that_does_not_fit_refuses_all),
        cmocka_unit_test(another_model_is_named),
        cmocka_unit_test(drafts_are_refused),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
