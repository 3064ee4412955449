// Pages of the KV cache: taken once, given back, never lost.
#include "support.h"

#include "runtime/kv_pages_pool.h"

enum { PAGES = 10, LISTS = 3, MOST = 8 };

typedef struct lists {
    rn_page_pool pool;
    int32_t room[PAGES];
    int32_t pages[LISTS][MOST];
    uint32_t counts[LISTS];
} lists;

static void begin(lists *l) {
    memset(l, -1, sizeof *l);
    memset(l->counts, 0, sizeof l->counts);
    rn_page_pool_init(&l->pool, l->room, PAGES);
}

static uint32_t resize(lists *l, int which, uint32_t wanted) {
    l->counts[which] = rn_page_pool_resize(&l->pool, l->pages[which], l->counts[which], wanted);
    return l->counts[which];
}

// Every page is in one list or free, and -1 stands behind each list.
static void check(const lists *l) {
    uint32_t seen[PAGES] = {0}, taken = 0;
    for (int i = 0; i < LISTS; i++)
        for (uint32_t j = 0; j < MOST; j++) {
            if (j >= l->counts[i]) assert_int_equal(l->pages[i][j], -1);
            if (j < l->counts[i]) seen[l->pages[i][j]]++;
        }
    for (uint32_t i = 0; i < l->pool.free_count; i++)
        seen[l->pool.free[i]]++;
    for (int i = 0; i < LISTS; i++)
        taken += l->counts[i];
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(rn_page_pool_taken(&l->pool), taken);
}

static void a_list_grows_as_far_as_there_are_pages(void **state) {
    (void)state;
    lists l;
    begin(&l);
    assert_int_equal(resize(&l, 0, 6), 6);
    assert_int_equal(l.pages[0][0], 0);
    assert_int_equal(resize(&l, 1, 6), 4);
    check(&l);
    assert_int_equal(resize(&l, 2, 1), 0);
    assert_int_equal(resize(&l, 0, 5), 5);
    assert_int_equal(resize(&l, 2, 1), 1);
    check(&l);
    assert_int_equal(l.pool.taken_peak, 10);
}

static void pages_come_and_go_without_loss(void **state) {
    (void)state;
    lists l;
    uint32_t seed = 1;
    begin(&l);
    for (int i = 0; i < 1000; i++) {
        seed = seed * 1664525u + 1013904223u;
        resize(&l, (int)(seed >> 8) % LISTS, (seed >> 16) % (MOST + 1));
        check(&l);
    }
    for (int i = 0; i < LISTS; i++)
        assert_int_equal(resize(&l, i, 0), 0);
    check(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_grows_as_far_as_there_are_pages),
        cmocka_unit_test(pages_come_and_go_without_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
