// planner_test.c — placement of the shared instances: those of others' benchmarks that are known to
// fit their capacity, and the buffers of real networks.
#include "support.h"

#include <ration/place.h>

typedef struct instance {
    const char *name;
    uint64_t capacity_bytes; // 0: the bound, as near as `percent`
    double percent;
} instance;

static void check(const instance *x) {
    char name[128];
    rn_place_table t;
    rn_placement p;
    snprintf(name, sizeof name, "planner/%s.csv", x->name);
    const char *path = test_data_or_skip(name);
    assert_ok(rn_place_table_read(path, &t));
    rn_place_options options = {.capacity_bytes = x->capacity_bytes, .node_limit = 500000};
    assert_ok(rn_place(t.buffers, t.count, &options, t.offsets, &p));
    assert_true(rn_place_is_valid(t.buffers, t.count, t.offsets, p.height_bytes));
    if (x->capacity_bytes)
        assert_true(p.fits);
    else
        assert_true((double)p.height_bytes <= (double)p.lower_bound_bytes * (1 + x->percent / 100));
    rn_place_table_free(&t);
}

static void hard_instances_fit_their_capacity(void **state) {
    (void)state;
    static const instance all[] = {{"A.1048576", 1048576, 0},
                                   {"B.1048576", 1048576, 0},
                                   {"C.1048576", 1048576, 0},
                                   {"D.1048576", 1048576, 0},
                                   {"E.1048576", 1048576, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(&all[i]);
}

// Those that the search was not written with; of MiniMalloc's repository, where they are there.
static void hard_instances_that_were_not_seen_fit_their_capacity(void **state) {
    (void)state;
    static const char *const names[] = {"F", "G", "H", "I", "J", "K"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s.1048576", names[i]);
        check(&(instance){name, 1048576, 0});
    }
}

static void the_small_example_fits_twelve(void **state) {
    (void)state;
    check(&(instance){"input.12", 12, 0});
}

static void networks_come_near_the_bound_without_search(void **state) {
    (void)state;
    check(&(instance){"resnet50", 0, 1});
    check(&(instance){"G_1", 0, 0});
}

static void resnet50_reaches_the_bound_with_search(void **state) {
    (void)state;
    check(&(instance){"resnet50", 1515472556, 0});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard_instances_fit_their_capacity),
        cmocka_unit_test(hard_instances_that_were_not_seen_fit_their_capacity),
        cmocka_unit_test(the_small_example_fits_twelve),
        cmocka_unit_test(networks_come_near_the_bound_without_search),
        cmocka_unit_test(resnet50_reaches_the_bound_with_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
