// Ranks on paper: collectives, shares of a pipeline, ZeRO's bytes against the formulas.
#include "support.h"

#include <ration/device.h>
#include <ration/ranks.h>

static rn_link link_of(const char *text) {
    rn_link link;
    assert_ok(rn_link_parse(text, &link));
    return link;
}

static void near(double expected, double got) {
    assert_true(got > expected * (1 - 1e-12) - 1e-15 && got < expected * (1 + 1e-12) + 1e-15);
}

static void a_link_is_read(void **state) {
    (void)state;
    rn_link link = link_of("20us,12.5GB,tree");
    near(20e-6, link.latency_seconds);
    near(12.5e9, link.bytes_per_second);
    assert_int_equal(RN_TOPOLOGY_TREE, link.topology);
    assert_int_equal(RN_TOPOLOGY_RING, link_of("1ms,1GiB/s").topology);
    static const char *const wrong[] = {
        "",         "5us",       "5,1GB",        "-1us,1GB",       "nanus,1GB",
        "5us,0",    "5us,fast",  "5us,1GB,mesh", "5us,1GB,ring,2", ",,",
        "5us,-1GB", "5 us,1GB,", "1e99s,1GB"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(RN_INVALID, rn_link_parse(wrong[i], &link));
    assert_fails(RN_INVALID, rn_link_parse("1e99s,1GB", &link));
    char text[200];
    memset(text, '1', sizeof text - 1), text[sizeof text - 1] = 0;
    assert_fails(RN_INVALID, rn_link_parse(text, &link));
}

static void collectives_cost_what_the_formulas_say(void **state) {
    (void)state;
    rn_link ring = link_of("1us,1GB,ring"), tree = link_of("1us,1GB,tree");
    near(0, rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, &ring, 1, 1000000));
    near(2 * (3e-6 + 0.75e-3), rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, &ring, 4, 1000000));
    near(3e-6 + 0.75e-3, rn_collective_seconds(RN_COLLECTIVE_ALL_GATHER, &ring, 4, 1000000));
    near(2e-6 + 0.75e-3, rn_collective_seconds(RN_COLLECTIVE_REDUCE_SCATTER, &tree, 4, 1000000));
    near(1e-6 + 1e-3, rn_collective_seconds(RN_COLLECTIVE_SEND, &ring, 4, 1000000));
    // 1,024 ranks and little to send: the ring is latency.
    assert_true(rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, &ring, 1024, 1000) >
                50 * rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, &tree, 1024, 1000));
}

static uint64_t largest_share(const uint64_t *bytes, const uint32_t *first, uint32_t ranks) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t sum = 0;
        assert_true(first[r] < first[r + 1]);
        for (uint32_t i = first[r]; i < first[r + 1]; i++)
            sum += bytes[i];
        if (sum > most) most = sum;
    }
    return most;
}

// All ways to cut `count` blocks from `at` on.
static uint64_t best_by_trying(const uint64_t *bytes, uint32_t count, uint32_t ranks) {
    if (ranks == 1) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum += bytes[i];
        return sum;
    }
    uint64_t best = UINT64_MAX, sum = 0;
    for (uint32_t i = 0; i + ranks <= count; i++) {
        sum += bytes[i];
        uint64_t rest = best_by_trying(bytes + i + 1, count - i - 1, ranks - 1);
        uint64_t most = sum > rest ? sum : rest;
        if (most < best) best = most;
    }
    return best;
}

static void blocks_are_dealt_as_evenly_as_can_be(void **state) {
    (void)state;
    uint32_t seed = 3, first[9];
    for (int round = 0; round < 300; round++) {
        uint64_t bytes[9];
        for (int i = 0; i < 9; i++) {
            seed = seed * 1664525 + 1013904223;
            bytes[i] = (seed >> 20) % 50; // some are 0: a block without weights
        }
        for (uint32_t ranks = 1; ranks <= 8; ranks++) {
            assert_ok(rn_ranks_split(bytes, 9, ranks, first));
            assert_int_equal(0, first[0]);
            assert_int_equal(9, first[ranks]);
            assert_int_equal(best_by_trying(bytes, 9, ranks), largest_share(bytes, first, ranks));
        }
    }
    uint64_t two[2] = {1, 2}, huge[2] = {UINT64_MAX, 1};
    assert_fails(RN_INVALID, rn_ranks_split(two, 2, 3, first));
    assert_fails(RN_INVALID, rn_ranks_split(two, 2, 0, first));
    assert_fails(RN_INVALID, rn_ranks_split(huge, 2, 1, first));
}

// Whether some cut gives every rank no more than its room.
static bool some_cut_fits(const uint64_t *bytes, uint32_t count, const uint64_t *room,
                          uint32_t ranks) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i + ranks <= count; i++) {
        sum += bytes[i];
        if (sum > room[0]) return false;
        bool last = ranks == 1 && i + 1 == count;
        if (last || (ranks > 1 && some_cut_fits(bytes + i + 1, count - i - 1, room + 1, ranks - 1)))
            return true;
    }
    return false;
}

static void rooms_are_kept_where_they_can_be(void **state) {
    (void)state;
    uint32_t seed = 5, first[9];
    for (int round = 0; round < 300; round++) {
        uint64_t bytes[8], room[4];
        for (int i = 0; i < 8; i++) {
            seed = seed * 1664525 + 1013904223;
            bytes[i] = 1 + (seed >> 20) % 50;
        }
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525 + 1013904223;
            room[i] = (seed >> 20) % 150;
        }
        for (uint32_t ranks = 1; ranks <= 4; ranks++) {
            assert_ok(rn_ranks_split_within(bytes, 8, room, ranks, first));
            bool fits = true;
            assert_int_equal(0, first[0]);
            assert_int_equal(8, first[ranks]);
            for (uint32_t r = 0; r < ranks; r++) {
                uint64_t sum = 0;
                assert_true(first[r] < first[r + 1]);
                for (uint32_t b = first[r]; b < first[r + 1]; b++)
                    sum += bytes[b];
                fits = fits && sum <= room[r];
            }
            assert_int_equal(some_cut_fits(bytes, 8, room, ranks), fits);
        }
    }
    uint64_t four[4] = {10, 10, 10, 10}, rooms[2] = {20, 10}; // too little: 27 and 13 of 40
    assert_ok(rn_ranks_split_within(four, 4, rooms, 2, first));
    assert_int_equal(3, first[1]);
}

static rn_plan *plan_of(const char *name, rn_recipe *recipe) {
    rn_plan *plan = NULL;
    assert_ok(rn_builtin_recipe(name, recipe));
    assert_ok(rn_plan_make(recipe, rn_cpu_caps(), &(rn_plan_options){0}, &plan));
    return plan;
}

static void zero_divides_what_its_stage_says(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_plan *plan = plan_of("llama:2x64:train", &recipe);
    const rn_plan_summary *p = rn_plan_get_summary(plan);
    rn_link link = link_of("1us,1GB");
    rn_ranks_row one[RN_RANKS_TRAIN_ROWS], four[RN_RANKS_TRAIN_ROWS];
    assert_ok(rn_ranks_for_training(plan, &link, 1, one));
    assert_ok(rn_ranks_for_training(plan, &link, 4, four));
    for (int i = 0; i < RN_RANKS_TRAIN_ROWS; i++) { // one rank divides nothing and sends nothing
        assert_int_equal(one[0].rank_bytes, one[i].rank_bytes);
        assert_int_equal(0, one[i].traffic_bytes);
        near(p->seconds, one[i].seconds);
    }
    uint64_t states = p->purpose_bytes[RN_PURPOSE_OPTIMIZER], psi = p->weight_bytes;
    assert_true(states > 0);
    assert_int_equal(one[0].rank_bytes, four[0].rank_bytes);
    assert_int_equal(four[0].rank_bytes - (states - (states + 3) / 4), four[1].rank_bytes);
    assert_true(four[2].rank_bytes < four[1].rank_bytes && four[3].rank_bytes < four[2].rank_bytes);
    // Traffic: 2, 2, 2 and 3 times the parameters, of which a rank sends (N - 1) / N.
    assert_int_equal(2 * psi * 3 / 4, four[0].traffic_bytes);
    assert_int_equal(four[0].traffic_bytes, four[1].traffic_bytes);
    assert_int_equal(four[0].traffic_bytes, four[2].traffic_bytes);
    assert_int_equal(3 * psi * 3 / 4, four[3].traffic_bytes);
    near(p->seconds + rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, &link, 4, psi),
         four[0].seconds);
    assert_true(four[3].least_seconds <= four[3].seconds && four[3].least_seconds >= p->seconds);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static void text_is_divided_by_layers_or_heads(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_plan *plan = plan_of("llama:4x64", &recipe);
    const rn_plan_summary *p = rn_plan_get_summary(plan);
    rn_text_shape shape = {.dim = 64, .ffn = 128, .layers = 4, .heads = 4, .kv_heads = 2};
    rn_link link = link_of("1us,1GB");
    rn_ranks_row one[RN_RANKS_TEXT_ROWS], two[RN_RANKS_TEXT_ROWS], five[RN_RANKS_TEXT_ROWS];
    assert_ok(rn_ranks_for_text(plan, &shape, &link, 1, one));
    assert_ok(rn_ranks_for_text(plan, &shape, &link, 2, two));
    assert_ok(rn_ranks_for_text(plan, &shape, &link, 5, five));
    for (int i = 0; i < RN_RANKS_TEXT_ROWS; i++) {
        assert_true(one[i].possible && two[i].possible && !five[i].possible);
        assert_int_equal(p->planned_bytes, one[i].rank_bytes);
        near(p->decode_seconds, one[i].seconds);
        near(p->prefill_seconds, one[i].prompt_seconds);
        assert_true(two[i].rank_bytes < one[i].rank_bytes);
    }
    near(p->decode_seconds + 1e-6 + 256e-9, two[0].seconds);               // one hop
    near(p->decode_seconds / 2 + 4 * 2 * (2e-6 + 256e-9), two[1].seconds); // two sums a layer
    assert_string_equal("4 layers, 5 ranks", five[0].why);
    assert_string_equal("2 key-value heads, 5 ranks", five[1].why);
    assert_fails(RN_INVALID, rn_ranks_for_text(plan, &shape, &link, 0, one));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_is_read),
        cmocka_unit_test(collectives_cost_what_the_formulas_say),
        cmocka_unit_test(blocks_are_dealt_as_evenly_as_can_be),
        cmocka_unit_test(rooms_are_kept_where_they_can_be),
        cmocka_unit_test(zero_divides_what_its_stage_says),
        cmocka_unit_test(text_is_divided_by_layers_or_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
