// place_stop_test.c — placing, reading and planning can be ended anywhere: between two looks lies
// little work, however large the input; what is there by then is a placement, or a clean refusal.
#include "support.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/stop.h"
#include "plan/place.h"
#include "plan/place_csv.h"

#include <ration/device.h>
#include <ration/plan.h>

enum { MANY = 100000, SOME = 3000, MOST_UNITS = 2 * RN_STOP_UNITS };

static rn_place_buffer buffers[MANY];
static uint64_t offsets[MANY];

typedef enum shape { SHORT_AND_LONG, NESTED, CROWDED, SHAPES } shape;

// Most lives short and some long; each within the one before; all over the place.
static void make(shape of, size_t count) {
    uint64_t random = 1;
    for (size_t i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = random >> 33, life = r % 100 ? r / 7 % 20 : r / 7 % count;
        if (of == SHORT_AND_LONG)
            buffers[i] = (rn_place_buffer){i, i + 1 + life, 1 + (r >> 7) % 100000, 0};
        else if (of == NESTED)
            buffers[i] = (rn_place_buffer){i, 2 * count - i, 3 + i % 5, 2};
        else
            buffers[i] = (rn_place_buffer){r % count, r % count + 1 + r / 3 % (count / 10),
                                           1 + (r >> 5) % 1000000, 64};
    }
}

typedef struct script {
    uint64_t looks, end_at;
    rn_stop_answer last;
} script;

static rn_stop_answer follow(void *self) {
    script *s = self;
    return ++s->looks >= s->end_at ? s->last : RN_STOP_GO_ON;
}

static const rn_place_options best = {.effort = RN_PLACE_BEST, .node_limit = UINT64_MAX};

static rn_status place_under(rn_stop *stop, size_t count, rn_placement *out) {
    rn_stop_enter(stop);
    rn_status s = rn_place_in(&rn_system_allocator, buffers, count, &best, offsets, out);
    rn_stop_leave(stop);
    return s;
}

// ---- placing ------------------------------------------------------------------------------------

static void looks_are_close_together_with_many_buffers(void **state) {
    (void)state;
    for (shape of = SHORT_AND_LONG; of < SHAPES; of++) {
        rn_placement p;
        script s = {.end_at = 300, .last = RN_STOP_END};
        rn_stop stop = {.check = follow, .self = &s};
        make(of, MANY);
        assert_ok(place_under(&stop, MANY, &p));
        assert_true(s.looks >= 100);
        assert_in_range(stop.most_units, RN_STOP_UNITS, MOST_UNITS);
    }
}

static void looks_are_close_together_in_a_search(void **state) {
    (void)state;
    rn_placement p;
    script s = {.end_at = 900, .last = RN_STOP_END};
    rn_stop stop = {.check = follow, .self = &s};
    make(CROWDED, 3000);
    assert_ok(place_under(&stop, 3000, &p));
    assert_true(p.node_count > 0 && p.stopped);
    assert_in_range(stop.most_units, RN_STOP_UNITS, MOST_UNITS);
}

// At every look of the setting up, of the first placement, and some way into the others.
static void whenever_it_ends_there_is_a_placement(void **state) {
    (void)state;
    for (shape of = SHORT_AND_LONG; of < SHAPES; of++) {
        uint64_t last = UINT64_MAX;
        make(of, SOME);
        for (uint64_t end_at = 1; end_at <= 40; end_at += end_at < 12 ? 1 : 13) {
            rn_placement p;
            script s = {.end_at = end_at, .last = RN_STOP_END};
            rn_stop stop = {.check = follow, .self = &s};
            assert_ok(place_under(&stop, SOME, &p));
            assert_true(rn_place_is_valid(buffers, SOME, offsets, p.height_bytes));
            assert_true(p.lower_bound_bytes <= p.height_bytes);
            assert_true(p.height_bytes <= last); // more time is never worse
            assert_true(p.stopped == (s.looks >= end_at));
            assert_true(p.optimal || p.stopped || of != NESTED);
            last = p.height_bytes;
        }
    }
}

static void a_late_end_is_better_than_one_upon_the_other(void **state) {
    (void)state;
    rn_placement p;
    make(CROWDED, MANY);
    script s = {.end_at = 300, .last = RN_STOP_END};
    rn_stop stop = {.check = follow, .self = &s};
    assert_ok(place_under(&stop, MANY, &p));
    assert_true(p.stopped);
    assert_true(p.height_bytes < p.lower_bound_bytes / 10 * 11);
}

static void whenever_it_is_cancelled_it_is_a_clean_refusal(void **state) {
    (void)state;
    make(CROWDED, SOME);
    for (uint64_t end_at = 1; end_at <= 40; end_at += 3) {
        rn_placement p;
        script s = {.end_at = end_at, .last = RN_STOP_CANCEL};
        rn_stop stop = {.check = follow, .self = &s};
        assert_fails(RN_CANCELLED, place_under(&stop, SOME, &p));
        assert_in_range(s.looks, end_at, end_at + 1);
    }
}

static rn_place_answer count_looks(void *self) {
    ++*(uint64_t *)self;
    return RN_PLACE_CONTINUE;
}

// The looks of the public interface are the same: for the work of a second there are hundreds.
static void a_caller_is_asked_as_often(void **state) {
    (void)state;
    uint64_t looks = 0;
    rn_placement p;
    rn_place_options options = {
        .effort = RN_PLACE_GREEDY, .check = count_looks, .check_self = &looks};
    rn_stop stop = {.check = NULL};
    make(SHORT_AND_LONG, MANY / 10);
    rn_stop_enter(&stop);
    assert_ok(rn_place_in(&rn_system_allocator, buffers, MANY / 10, &options, offsets, &p));
    rn_stop_leave(&stop);
    assert_int_equal(looks, stop.look_count);
    assert_true(looks > 50 && !p.stopped);
}

// ---- lists of buffers ---------------------------------------------------------------------------

static void reading_and_writing_can_be_ended(void **state) {
    (void)state;
    rn_buffer text, printed;
    rn_place_table table;
    rn_stop stop = {.check = NULL};
    rn_buffer_init(&text, &rn_system_allocator, SIZE_MAX / 2);
    rn_buffer_init(&printed, &rn_system_allocator, SIZE_MAX / 2);
    assert_ok(rn_sink_print(rn_buffer_sink(&text), "id,lower,upper,size\n"));
    for (int i = 0; i < MANY; i++)
        assert_ok(rn_sink_print(rn_buffer_sink(&text), "buffer%d,%d,%d,64\n", i, i, i + 3));
    rn_str csv = {text.data, text.bytes};
    rn_stop_enter(&stop);
    assert_ok(rn_place_csv_parse(csv, &rn_system_allocator, &table));
    rn_stop_leave(&stop);
    assert_true(stop.look_count > 50);
    assert_in_range(stop.most_units, RN_STOP_UNITS, MOST_UNITS);
    script s = {.end_at = 5, .last = RN_STOP_CANCEL};
    stop = (rn_stop){.check = follow, .self = &s};
    rn_stop_enter(&stop);
    assert_fails(RN_CANCELLED, rn_place_csv_print(&table, rn_buffer_sink(&printed)));
    rn_stop_leave(&stop);
    rn_place_table_free(&table);
    rn_buffer_free(&text);
    rn_buffer_free(&printed);
}

// ---- planning -----------------------------------------------------------------------------------

static rn_status plan_under(rn_stop *stop, const rn_recipe *recipe, rn_plan **out) {
    rn_stop_enter(stop);
    rn_status s = rn_plan_make(recipe, rn_cpu_caps(), NULL, out);
    rn_stop_leave(stop);
    return s;
}

static void planning_looks_often_and_can_be_cancelled_anywhere(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_plan *plan;
    assert_ok(rn_builtin_recipe("llama:60x8:train", &recipe));
    rn_stop whole = {.check = NULL};
    assert_ok(plan_under(&whole, &recipe, &plan));
    rn_plan_destroy(plan);
    assert_in_range(whole.most_units, RN_STOP_UNITS, MOST_UNITS);
    assert_true(whole.look_count > 50);
    for (uint64_t end_at = 1; end_at < whole.look_count; end_at += whole.look_count / 8) {
        script s = {.end_at = end_at, .last = RN_STOP_CANCEL};
        rn_stop stop = {.check = follow, .self = &s};
        assert_fails(RN_CANCELLED, plan_under(&stop, &recipe, &plan));
        assert_null(plan);
        assert_int_equal(s.looks, end_at);
    }
    rn_recipe_destroy(&recipe);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_are_close_together_with_many_buffers),
        cmocka_unit_test(looks_are_close_together_in_a_search),
        cmocka_unit_test(whenever_it_ends_there_is_a_placement),
        cmocka_unit_test(a_late_end_is_better_than_one_upon_the_other),
        cmocka_unit_test(whenever_it_is_cancelled_it_is_a_clean_refusal),
        cmocka_unit_test(a_caller_is_asked_as_often),
        cmocka_unit_test(reading_and_writing_can_be_ended),
        cmocka_unit_test(planning_looks_often_and_can_be_cancelled_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
