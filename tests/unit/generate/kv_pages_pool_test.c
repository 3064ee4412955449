// Pages of the KV cache: taken and released, promised, known and found again; never lost, never
// overwritten while somebody has them.
#include "support.h"

#include "memory/account.h"
#include "generate/kv_pages_pool.h"

enum { PAGES = 12, LISTS = 4, MOST = 9, TOKENS = 2 };

// A list with the text that its pages hold.
typedef struct text {
    rn_page_list list;
    int32_t row[MOST];
    uint32_t tokens[MOST * TOKENS];
    uint32_t known; // of its pages
} text;

typedef struct world {
    rn_arena memory;
    rn_page_pool pool;
    text texts[LISTS];
    uint64_t content[PAGES]; // what was last written to a page: a number for a beginning
    uint32_t seed;
} world;

static void begin(world *w, uint32_t page_tokens) {
    memset(w, 0, sizeof *w);
    rn_arena_init(&w->memory, RN_HOST_OTHER, 0);
    assert_ok(rn_page_pool_init(&w->pool, &w->memory, PAGES, page_tokens));
    for (int i = 0; i < LISTS; i++) {
        memset(w->texts[i].row, -1, sizeof w->texts[i].row);
        w->texts[i].list.pages = w->texts[i].row;
    }
}

static void end(world *w) {
    rn_arena_free_all(&w->memory);
}

static uint32_t draw(world *w, uint32_t below) {
    w->seed = w->seed * 1664525u + 1013904223u;
    return (w->seed >> 16) % below;
}

// ---- what must be true --------------------------------------------------------------------------

// A number for the text's first `pages` pages; no two beginnings have the same.
static uint64_t name_of(const text *t, uint32_t pages) {
    uint64_t name = 1;
    for (uint32_t i = 0; i < pages * TOKENS; i++)
        name = name << 2 | t->tokens[i];
    return name;
}

static uint32_t owed_to(const text *t) {
    return t->list.promised > t->list.count ? t->list.promised - t->list.count : 0;
}

static void check_lists(const world *w, uint32_t *held /* (PAGES) */) {
    for (int i = 0; i < LISTS; i++) {
        const text *t = &w->texts[i];
        for (uint32_t j = 0; j < MOST; j++) {
            assert_true((t->row[j] == -1) == (j >= t->list.count));
            if (t->row[j] >= 0) held[t->row[j]]++;
        }
        for (uint32_t j = 0; j < t->known; j++)
            assert_true(w->content[t->row[j]] == name_of(t, j + 1));
    }
}

// Each page is held, free or kept; what is further on in a beginning is forgotten first.
static void check(const world *w) {
    uint32_t held[PAGES] = {0}, places[PAGES] = {0}, owed = 0, kept = 0;
    check_lists(w, held);
    for (uint32_t i = 0; i < w->pool.free_count; i++)
        places[w->pool.free[i]]++;
    const rn_prefix_index *known = &w->pool.known;
    for (int32_t p = known->page_count ? known->oldest : -1; p >= 0; p = known->pages[p].newer) {
        int32_t before = known->pages[p].before;
        assert_true(known->pages[p].is_known);
        assert_true(before < 0 || places[before] == 0);
        places[p]++;
        kept++;
    }
    for (int i = 0; i < PAGES; i++) {
        assert_int_equal(places[i], held[i] == 0);
        assert_int_equal(w->pool.holders[i], held[i]);
    }
    for (int i = 0; i < LISTS; i++)
        owed += owed_to(&w->texts[i]);
    assert_int_equal(kept, known->kept_count);
    assert_int_equal(owed, w->pool.owed);
    assert_true(rn_page_pool_room(&w->pool) >= owed);
}

// ---- what can be done ---------------------------------------------------------------------------

static uint32_t resize(world *w, int which, uint32_t wanted) {
    return rn_page_pool_resize(&w->pool, &w->texts[which].list, wanted);
}

// A list gets a page where one is owed to it, or where more are left than are owed to all.
static void grow(world *w, text *t) {
    bool gets = owed_to(t) || rn_page_pool_room(&w->pool) > w->pool.owed;
    uint32_t count = t->list.count;
    if (count == MOST) return;
    assert_int_equal(rn_page_pool_resize(&w->pool, &t->list, count + 1), count + gets);
    if (gets) w->content[t->row[count]] = 0; // whatever was there is lost
}

static void publish(world *w, text *t) {
    if (t->known == t->list.count) return;
    w->content[t->row[t->known]] = name_of(t, t->known + 1);
    rn_page_pool_publish(&w->pool, &t->list, t->known, t->tokens + t->known * TOKENS);
    t->known++;
}

static bool adopt(world *w, text *t) {
    if (t->known != t->list.count || t->known == MOST) return false;
    bool found = rn_page_pool_adopt(&w->pool, &t->list, t->tokens + t->known * TOKENS);
    t->known += found;
    return found;
}

static void promise(world *w, text *t, uint32_t pages) {
    uint32_t more = pages > t->list.count ? pages - t->list.count : 0, before = t->list.promised;
    bool fits = rn_page_pool_room(&w->pool) - (w->pool.owed - owed_to(t)) >= more;
    assert_int_equal(rn_page_pool_promise(&w->pool, &t->list, pages), fits);
    assert_int_equal(t->list.promised, fits ? pages : before);
}

// Forgets all behind a page, and goes on with another text.
static void rewind_to(world *w, text *t, uint32_t pages) {
    promise(w, t, 0);
    rn_page_pool_resize(&w->pool, &t->list, pages);
    t->known = t->known < t->list.count ? t->known : t->list.count;
    for (uint32_t i = t->list.count * TOKENS; i < MOST * TOKENS; i++)
        t->tokens[i] = draw(w, 5) == 0;
}

// What was taken ahead and holds nothing yet may go back, promised or not.
static void give_up_ahead(world *w, text *t) {
    rn_page_pool_resize(&w->pool, &t->list, t->known);
}

static void act(world *w) {
    text *t = &w->texts[draw(w, LISTS)];
    switch (draw(w, 8)) {
    case 0:
        rewind_to(w, t, draw(w, t->list.count + 1));
        break;
    case 1:
        promise(w, t, draw(w, MOST + 1));
        break;
    case 2:
        give_up_ahead(w, t);
        break;
    case 3:
    case 4:
        grow(w, t);
        break;
    case 5:
        publish(w, t);
        break;
    default:
        (void)adopt(w, t);
        break;
    }
}

// ---- tests --------------------------------------------------------------------------------------

static void a_list_grows_as_far_as_there_are_pages(void **state) {
    (void)state;
    world w;
    begin(&w, 0);
    assert_int_equal(resize(&w, 0, 8), 8);
    assert_int_equal(w.texts[0].row[0], 0);
    assert_int_equal(resize(&w, 1, 6), 4);
    check(&w);
    assert_int_equal(resize(&w, 2, 1), 0);
    assert_int_equal(resize(&w, 0, 7), 7);
    assert_int_equal(resize(&w, 2, 1), 1);
    check(&w);
    assert_int_equal(w.pool.taken_peak, 12);
    end(&w);
}

static void fewer_pages_than_there_was_memory_for(void **state) {
    (void)state;
    world w;
    begin(&w, TOKENS);
    rn_page_pool_shrink(&w.pool, 3);
    assert_int_equal(resize(&w, 0, 8), 3);
    assert_int_equal(w.texts[0].row[2], 2);
    end(&w);
}

static void a_promise_is_kept_and_others_take_the_rest(void **state) {
    (void)state;
    world w;
    begin(&w, 0);
    assert_true(rn_page_pool_promise(&w.pool, &w.texts[0].list, 9));
    assert_false(rn_page_pool_promise(&w.pool, &w.texts[1].list, 4));
    assert_true(rn_page_pool_promise(&w.pool, &w.texts[1].list, 2));
    assert_int_equal(resize(&w, 2, 5), 1); // 12 - 9 - 2
    assert_int_equal(resize(&w, 0, 9), 9);
    assert_int_equal(resize(&w, 1, 3), 2);
    check(&w);
    assert_int_equal(resize(&w, 2, 0), 0);
    assert_int_equal(resize(&w, 1, 3), 3); // beyond its promise, but free
    assert_true(rn_page_pool_promise(&w.pool, &w.texts[0].list, 0));
    assert_int_equal(w.pool.owed, 0);
    check(&w);
    end(&w);
}

static void equal_beginnings_become_one(void **state) {
    (void)state;
    world w;
    begin(&w, TOKENS);
    for (int i = 0; i < 2; i++) {
        resize(&w, i, 3);
        publish(&w, &w.texts[i]);
        publish(&w, &w.texts[i]);
    }
    check(&w);
    assert_int_equal(w.texts[1].row[0], w.texts[0].row[0]);
    assert_int_equal(w.texts[1].row[1], w.texts[0].row[1]);
    assert_int_not_equal(w.texts[1].row[2], w.texts[0].row[2]);
    assert_int_equal(rn_page_pool_taken(&w.pool), 4);
    rewind_to(&w, &w.texts[0], 0);
    rewind_to(&w, &w.texts[1], 0);
    assert_int_equal(w.pool.known.kept_count, 2);
    memset(w.texts[2].tokens, 0, sizeof w.texts[2].tokens);
    assert_true(adopt(&w, &w.texts[2]) && adopt(&w, &w.texts[2]) && !adopt(&w, &w.texts[2]));
    check(&w);
    end(&w);
}

static void room_that_is_owed_is_not_adopted(void **state) {
    (void)state;
    world w;
    begin(&w, TOKENS);
    resize(&w, 0, 1);
    publish(&w, &w.texts[0]);
    resize(&w, 0, 0);
    assert_true(rn_page_pool_promise(&w.pool, &w.texts[1].list, PAGES));
    w.texts[0].known = 0;
    assert_false(adopt(&w, &w.texts[0])); // kept, but the room is another's
    assert_true(adopt(&w, &w.texts[1]));
    assert_true(adopt(&w, &w.texts[0])); // now it costs nothing
    check(&w);
    end(&w);
}

static void what_was_kept_longest_goes_first_and_ends_before_beginnings(void **state) {
    (void)state;
    world w;
    begin(&w, TOKENS);
    for (uint32_t i = 0; i < 2; i++) {
        memset(w.texts[i].tokens, (int)i, sizeof w.texts[i].tokens);
        resize(&w, (int)i, 5);
        while (w.texts[i].known < 5)
            publish(&w, &w.texts[i]);
        rn_page_pool_resize(&w.pool, &w.texts[i].list, 0);
        w.texts[i].known = 0;
    }
    resize(&w, 2, 2); // the two that were never taken
    assert_int_equal(w.pool.known.kept_count, 10);
    resize(&w, 2, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(adopt(&w, &w.texts[0]), i < 2); // three at its end are gone
        assert_true(adopt(&w, &w.texts[1]));
    }
    check(&w);
    end(&w);
}

static void no_order_of_events_loses_or_spoils_a_page(void **state) {
    (void)state;
    uint64_t found = 0, forgotten = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        world w;
        begin(&w, TOKENS);
        w.seed = seed;
        for (int i = 0; i < 800; i++) {
            uint32_t kept = w.pool.known.kept_count;
            uint32_t taken = rn_page_pool_taken(&w.pool);
            act(&w);
            check(&w);
            found += w.pool.known.kept_count < kept && rn_page_pool_taken(&w.pool) > taken;
            forgotten += w.pool.free_count == 0 && w.pool.known.kept_count < kept;
        }
        for (int i = 0; i < LISTS; i++)
            rewind_to(&w, &w.texts[i], 0);
        check(&w);
        assert_int_equal(rn_page_pool_taken(&w.pool), 0);
        end(&w);
    }
    assert_true(found > 1000 && forgotten > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_grows_as_far_as_there_are_pages),
        cmocka_unit_test(fewer_pages_than_there_was_memory_for),
        cmocka_unit_test(a_promise_is_kept_and_others_take_the_rest),
        cmocka_unit_test(equal_beginnings_become_one),
        cmocka_unit_test(room_that_is_owed_is_not_adopted),
        cmocka_unit_test(what_was_kept_longest_goes_first_and_ends_before_beginnings),
        cmocka_unit_test(no_order_of_events_loses_or_spoils_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
