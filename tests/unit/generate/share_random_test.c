// labels: threads
// Whatever sequences are asked in whatever order, with shared beginnings and too few pages, with
// promises, drafts and steps that fail: each says what a lone one says, to the bit, and no page is
// lost, written while others have it, or owed and not there.
#include "support.h"
#include "tiny_text.h"

#include "../tensor/levels.h"
#include "base/checked.h"

enum { LIVES = 6, CONTEXT = 64, FAMILIES = 3, SEEDS = 12 };

static tiny_text tiny = {.layers = 1, .dim = 128, .vocab = 48};
static const rn_sampling tastes[3] = {
    {.logprobs = 5}, {.temperature = 0.9f, .seed = 3}, {.temperature = 0.7f, .top_p = 0.9f}};
static uint32_t families[FAMILIES][CONTEXT]; // texts that prompts are the beginnings of

typedef struct life {
    rn_sequence *sequence; // NULL: none
    const rn_sampling *taste;
    uint32_t begin; // tokens that it had when it was last fed
    story said;     // since
} life;

typedef struct world {
    rn_generator *generator, *oracle; // one shares; the other has one sequence at a time
    rn_flag cancel;
    life lives[LIVES];
    uint64_t random;
} world;

static uint32_t pick(world *w, uint32_t below) {
    return random_bits(&w->random) % below;
}

// ---- what must hold -----------------------------------------------------------------------------

static void check_sequence(const rn_sequence *s, uint32_t *holders) {
    const rn_generator *g = s->generator;
    uint32_t size = g->text.page_tokens;
    assert_true(s->known * size <= s->read);
    assert_true(s->count == 0 || s->known * size < s->taken);
    assert_in_range(s->pages.count, rn_div_up(s->read, size), rn_div_up(s->count, size));
    for (uint32_t i = 0; i < g->table_pages; i++) {
        int32_t page = s->pages.pages[i];
        assert_true((page == RN_NO_PAGE) == (i >= s->pages.count));
        if (page == RN_NO_PAGE) continue;
        holders[page]++;
        assert_int_equal(rn_prefix_knows(&g->pool.known, page), i < s->known);
    }
}

static void check(const world *w) {
    const rn_page_pool *pool = &w->generator->pool;
    uint32_t holders[LIVES * CONTEXT] = {0}, held = 0, owed = 0;
    for (int i = 0; i < LIVES; i++) {
        const rn_sequence *s = w->lives[i].sequence;
        if (!s) continue;
        check_sequence(s, holders);
        owed += s->pages.promised > s->pages.count ? s->pages.promised - s->pages.count : 0;
    }
    for (uint32_t i = 0; i < pool->page_count; i++) {
        assert_int_equal(holders[i], pool->holders[i]);
        held += holders[i] > 0;
    }
    assert_int_equal(rn_page_pool_taken(pool), held);
    assert_int_equal(pool->owed, owed);
    assert_true(owed <= rn_page_pool_room(pool));
}

// Tells again what it said since it was fed.
static void check_story(world *w, life *l) {
    rn_sequence *lone;
    story wanted = {0};
    size_t count;
    const uint32_t *tokens = rn_sequence_tokens(l->sequence, &count);
    assert_int_equal(count, l->begin + l->said.count);
    if (l->said.count == 0) return;
    assert_ok(rn_sequence_create(w->oracle, l->taste, &lone));
    assert_ok(rn_sequence_feed(lone, tokens, l->begin));
    while (wanted.count < l->said.count) {
        assert_ok(rn_generator_step(w->oracle));
        story_take(&wanted, lone, l->said.count);
    }
    story_expect(&l->said, &wanted);
    rn_sequence_destroy(lone);
    l->said.count = 0;
}

// ---- what they are asked ------------------------------------------------------------------------

static void feed(world *w, life *l, uint32_t count) {
    const uint32_t *family = families[pick(w, FAMILIES)];
    size_t before;
    (void)rn_sequence_tokens(l->sequence, &before);
    if (before + count == 0) count = 1;
    if (count > CONTEXT - before) count = (uint32_t)(CONTEXT - before);
    assert_ok(rn_sequence_feed(l->sequence, family + before, count));
    l->begin = (uint32_t)before + count;
}

static void begin(world *w, life *l) {
    l->taste = &tastes[pick(w, 3)];
    assert_ok(rn_sequence_create(w->generator, l->taste, &l->sequence));
    feed(w, l, 1 + pick(w, CONTEXT - 8));
}

static void end(world *w, life *l) {
    check_story(w, l);
    rn_sequence_destroy(l->sequence);
    l->sequence = NULL;
}

// To the end of a page more often than not.
static void go_back(world *w, life *l) {
    size_t count;
    check_story(w, l);
    (void)rn_sequence_tokens(l->sequence, &count);
    uint32_t to = pick(w, (uint32_t)count + 1), size = w->generator->text.page_tokens;
    rn_sequence_rewind(l->sequence, pick(w, 3) ? to / size * size : to);
    check(w);
    feed(w, l, pick(w, 2) ? 0 : pick(w, 20));
}

static void pause(world *w, life *l) {
    check_story(w, l);
    rn_sequence_pause(l->sequence);
    check(w);
    feed(w, l, pick(w, 2) ? 0 : pick(w, 5));
}

static bool is_promised_its_next(const rn_sequence *s) {
    uint32_t size = s->generator->text.page_tokens;
    return s->pages.promised && s->count <= s->pages.promised * size;
}

static void step(world *w) {
    w->cancel = pick(w, 8) == 0;
    bool had_work = rn_generator_has_work(w->generator), was_cancelled = w->cancel;
    rn_status s = rn_generator_step(w->generator);
    w->cancel = false;
    for (int i = 0; i < LIVES; i++) {
        life *l = &w->lives[i];
        if (!l->sequence) continue;
        if (is_promised_its_next(l->sequence)) {
            assert_false(rn_sequence_is_waiting(l->sequence));
            assert_false(s == RN_OVER_BUDGET && rn_sequence_is_busy(l->sequence));
        }
        assert_null(rn_sequence_failure(l->sequence));
        if (pick(w, 4)) story_take(&l->said, l->sequence, l->said.count + 1 + pick(w, 3));
    }
    if (s == RN_OVER_BUDGET) assert_true(had_work);
    if (s != RN_OK && s != RN_OVER_BUDGET) assert_true(was_cancelled && s == RN_CANCELLED);
    if (s != RN_OVER_BUDGET) return;
    for (int i = 0; i < LIVES; i++)
        if (w->lives[i].sequence && pick(w, 2)) end(w, &w->lives[i]);
}

static void act(world *w) {
    life *l = &w->lives[pick(w, LIVES)];
    uint32_t what = pick(w, 24);
    if (what >= 8)
        step(w);
    else if (!l->sequence)
        begin(w, l);
    else if (what < 2 || rn_sequence_is_full(l->sequence))
        end(w, l);
    else if (what < 4)
        go_back(w, l);
    else if (what < 6)
        pause(w, l);
    else
        (void)rn_sequence_reserve(l->sequence, pick(w, CONTEXT + 10));
}

static void live(uint64_t seed) {
    static const uint32_t sizes[] = {1, 4, 8, 5}, rows[] = {1, 7, 16, 40};
    world *w = calloc(1, sizeof *w);
    w->random = seed * 0x9e3779b97f4a7c15u + 7;
    uint32_t size = sizes[pick(w, 4)], most = LIVES * CONTEXT / size;
    rn_generator_options options = {
        .text = {.context = CONTEXT, .page_tokens = size, .sequences = 1, .rows = 64},
        .speculation = RN_SPECULATE_NEVER};
    assert_ok(rn_generator_create_from(&tiny.maker, &options, &w->oracle));
    options.text.sequences = LIVES;
    options.text.rows = rows[pick(w, 4)];
    options.text.pages = CONTEXT / size + 2 + pick(w, most / 2);
    options.prompt_rows = pick(w, 2) * 5;
    options.speculation = pick(w, 2) ? RN_SPECULATE_ALWAYS : RN_SPECULATE_NEVER;
    options.prefix_caching = true;
    options.session.cancel = &w->cancel;
    assert_ok(rn_generator_create_from(&tiny.maker, &options, &w->generator));
    for (int i = 0; i < 150; i++) {
        act(w);
        check(w);
    }
    for (int i = 0; i < LIVES; i++)
        if (w->lives[i].sequence) end(w, &w->lives[i]);
    check(w);
    rn_generator_destroy(w->generator);
    rn_generator_destroy(w->oracle);
    free(w);
}

static void each_says_what_it_says_alone(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_Q8_0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        tiny.kv_dtype = dtypes[seed % 3];
        live(seed);
    }
}

static int open_tiny(void **state) {
    (void)state;
    for (uint32_t i = 0; i < FAMILIES; i++) {
        story_prompt(i, tiny.vocab, CONTEXT, families[i]);
        memcpy(families[i], families[0], 11 * i * sizeof families[0][0]);
    }
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_says_what_it_says_alone)};
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
