// stream_test.c — the ring: which weight group is where when, and how long a run takes.
#include "plan_fixture.h"

enum { MOST = 64 };

static rn_plan_group groups[MOST];
static rn_group_access accesses[MOST];
static rn_stream_load loads[MOST];
static uint32_t by_last[MOST];
static bool resident[MOST];

// Accesses as (position, weight group) pairs; every weight group takes a second to read.
static rn_group_table table(const uint32_t (*pairs)[2], uint32_t count, uint32_t group_count) {
    for (uint32_t i = 0; i < count; i++)
        accesses[i] = (rn_group_access){pairs[i][0], pairs[i][1]};
    for (uint32_t u = 0; u < group_count; u++) {
        groups[u] = (rn_plan_group){.bytes = 100000000, .file_bytes = 100000000};
        resident[u] = false;
    }
    return (rn_group_table){
        .groups = groups, .accesses = accesses, .group_count = group_count, .access_count = count};
}

static rn_stream empty(void) {
    return (rn_stream){.loads = loads, .by_last = by_last};
}

static void expect_load(const rn_stream *s, uint32_t load, uint32_t group, uint32_t first,
                        uint32_t last) {
    assert_int_equal(s->loads[load].group, group);
    assert_int_equal(s->loads[load].first, first);
    assert_int_equal(s->loads[load].last, last);
}

// ---- uses ---------------------------------------------------------------------------------------

static void each_weight_group_of_a_chain_is_one_load(void **state) {
    (void)state;
    const uint32_t pairs[][2] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}};
    rn_group_table t = table(pairs, 5, 5);
    rn_stream s = empty();
    bool next_run;
    assert_true(rn_stream_walk(&t, resident, 2, &s));
    assert_int_equal(s.load_count, 5);
    assert_int_equal(s.read_bytes, 500000000);
    for (uint32_t u = 0; u < 5; u++)
        expect_load(&s, u, u, u, u);
    assert_int_equal(rn_stream_follower(&s, 1, &next_run), 3);
    assert_false(next_run);
    assert_int_equal(rn_stream_follower(&s, 3, &next_run), 1); // the last one of slot 1
    assert_true(next_run);
    assert_int_equal(rn_stream_follower(&s, 4, &next_run), 0);
    assert_true(next_run);
}

static void a_group_that_is_still_there_is_not_read_again(void **state) {
    (void)state;
    // Unit 0 again while weight group 1 is in the other slot; then again when 1 and 2 have come.
    const uint32_t pairs[][2] = {{0, 0}, {1, 1}, {2, 0}, {3, 2}, {4, 0}, {5, 3}};
    rn_group_table t = table(pairs, 6, 4);
    rn_stream s = empty();
    assert_true(rn_stream_walk(&t, resident, 2, &s));
    assert_int_equal(s.load_count, 5);
    expect_load(&s, 0, 0, 0, 2);
    expect_load(&s, 1, 1, 1, 1);
    expect_load(&s, 2, 2, 3, 3);
    expect_load(&s, 3, 0, 4, 4);
    expect_load(&s, 4, 3, 5, 5);
    // Evicted in the order of their ends.
    const uint32_t ends[] = {1, 0, 2, 3, 4};
    assert_memory_equal(s.by_last, ends, sizeof ends);
}

static void forward_and_backward_are_two_loads(void **state) {
    (void)state;
    const uint32_t pairs[][2] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 1}, {5, 0}};
    rn_group_table t = table(pairs, 6, 3);
    rn_stream s = empty();
    assert_true(rn_stream_walk(&t, resident, 2, &s));
    assert_int_equal(s.load_count, 4); // 0, 1, 2 (both ways), and 0 again: 1 was still there
    expect_load(&s, 1, 1, 1, 4);
    expect_load(&s, 2, 2, 2, 3);
    expect_load(&s, 3, 0, 5, 5);
}

static void a_step_that_reads_more_groups_than_there_are_slots_is_refused(void **state) {
    (void)state;
    const uint32_t pairs[][2] = {{0, 0}, {1, 0}, {1, 1}, {1, 2}, {2, 3}, {3, 4}};
    rn_group_table t = table(pairs, 6, 5);
    rn_stream s = empty();
    assert_false(rn_stream_walk(&t, resident, 2, &s));
    assert_true(rn_stream_walk(&t, resident, 3, &s));
    resident[0] = true;
    assert_true(rn_stream_walk(&t, resident, 2, &s));
}

static void a_ring_that_would_hold_everything_is_refused(void **state) {
    (void)state;
    const uint32_t pairs[][2] = {{0, 0}, {1, 1}, {2, 2}};
    rn_group_table t = table(pairs, 3, 3);
    rn_stream s = empty();
    assert_false(rn_stream_walk(&t, resident, 3, &s));
    assert_true(rn_stream_walk(&t, resident, 2, &s));
}

// ---- time ---------------------------------------------------------------------------------------

static double run_seconds(uint32_t slots, double step_seconds, uint32_t count) {
    uint32_t pairs[MOST][2];
    double until[MOST + 1] = {0}, ready[MOST];
    for (uint32_t i = 0; i < count; i++) {
        pairs[i][0] = pairs[i][1] = i;
        until[i + 1] = until[i] + step_seconds;
    }
    rn_group_table t = table(pairs, count, count);
    rn_stream s = empty();
    rn_device_caps caps = paper_caps(); // 100 MB a second
    if (slots) assert_true(rn_stream_walk(&t, resident, slots, &s));
    rn_traffic traffic = {.groups = groups, .stream = &s, .ready = ready};
    return rn_cost_run(&caps, until, count, &traffic);
}

static void a_run_takes_as_long_as_the_slower_of_computing_and_reading(void **state) {
    (void)state;
    assert_true(run_seconds(0, 0.5, 8) == 4);
    assert_true(run_seconds(2, 0, 8) == 8);    // reading
    assert_true(run_seconds(2, 0.25, 8) == 8); // hidden behind reading
    assert_true(run_seconds(2, 2, 8) == 16);   // reading is hidden
}

static void one_slot_alternates_between_reading_and_computing(void **state) {
    (void)state;
    assert_true(run_seconds(1, 0.5, 8) == 8 * 1.5);
}

static void slots_that_do_not_divide_the_loads_wait_at_the_seam(void **state) {
    (void)state;
    // 3 loads in 2 slots: load 1 has its slot to itself and is read early; load 0 of the next run
    // waits for load 2 to be done: a second in each run in which nothing is computed.
    assert_true(run_seconds(2, 1, 3) == 4);
    assert_true(run_seconds(2, 1, 4) == 4);
}

// ---- the steps of a plan ------------------------------------------------------------------------

static int layers = 7;

static void write_layers(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 600));
    for (int i = 0; i < layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d", i);
        rn_graph_block(g, name);
        rn_value w = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(600, 600));
        x = rn_op_relu(g, rn_op_matmul(g, x, w, RN_NO_VALUE));
    }
    rn_graph_output(g, x, "y");
}

static uint32_t slots_held[8]; // the weight group in each slot

// Carries out READs and EVICTs for three runs; a COMPUTE must find its weight in its slot, and must
// have waited for its READ.
static void walk_ring(const rn_plan *plan) {
    bool ready[MOST] = {0}; // by use: read, and waited for
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].next_run)
            slots_held[plan->loads[plan->steps[i].load].slot] =
                plan->loads[plan->steps[i].load].group;
    for (int run = 0; run < 3; run++)
        for (uint32_t i = 0; i < plan->step_count; i++) {
            const rn_plan_step *step = &plan->steps[i];
            if (step->kind == RN_STEP_READ) {
                const rn_plan_load *load = &plan->loads[step->load];
                assert_int_equal(slots_held[load->slot], UINT32_MAX);
                assert_int_equal(plan->steps[step->after].kind, RN_STEP_EVICT);
                slots_held[load->slot] = load->group;
            } else if (step->kind == RN_STEP_EVICT) {
                assert_true(ready[step->load]);
                ready[step->load] = false;
                slots_held[plan->loads[step->load].slot] = UINT32_MAX;
            } else {
                if (step->after != RN_NO_STEP) ready[plan->steps[step->after].load] = true;
                const rn_node *node = rn_graph_node(plan->graph, step->node);
                uint32_t group = node->op == RN_OP_MATMUL ? plan->places[node->inputs[1]].group : 0;
                if (node->op != RN_OP_MATMUL || plan->groups[group].resident) continue;
                bool found = false;
                for (uint32_t u = 0; u < plan->load_count; u++)
                    found |= plan->loads[u].group == group && ready[u] &&
                             slots_held[plan->loads[u].slot] == group;
                assert_true(found);
            }
        }
}

static void every_compute_finds_its_weights_in_every_run(void **state) {
    (void)state;
    paper_model model = {write_layers};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    uint32_t seen = 0;
    recipe.rows = 64;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &plan));
    uint64_t low = plan->summary.smallest_bytes, high = plan->summary.planned_bytes;
    assert_int_equal(plan->slot_count, 0);
    assert_int_equal(plan->summary.resident_blocks, 7);
    rn_plan_destroy(plan);
    for (uint64_t budget = low; budget < high; budget += (high - low) / 12) {
        assert_ok(rn_plan_make(&recipe, &caps, &(rn_plan_options){.budget_bytes = budget}, &plan));
        assert_true(rn_plan_is_valid(plan));
        assert_true(plan->slot_count > 0);
        seen |= 1u << plan->slot_count;
        walk_ring(plan);
        rn_plan_destroy(plan);
    }
    assert_true(seen & 1u << 1 && seen & ~(1u << 1)); // one slot at the floor, more above
}

// By how much the part of any stretch that stays differs from the part of the whole, in blocks.
static double find_unevenness(const rn_plan *plan) {
    double share = (double)plan->summary.resident_blocks / plan->group_count;
    double sum = 0, least = 0, most = 0;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        sum += plan->groups[u].resident - share;
        if (sum < least) least = sum;
        if (sum > most) most = sum;
    }
    return most - least;
}

static void what_stays_lies_evenly_between_what_is_streamed(void **state) {
    (void)state;
    static const int counts[] = {5, 16, 22, 26, 33, 61};
    paper_model model = {write_layers};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    recipe.rows = 64;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        layers = counts[i];
        for (uint32_t blocks = 1; (int)blocks + 1 < layers; blocks++) {
            rn_plan *plan;
            rn_plan_options options = {.resident_blocks = blocks};
            assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
            assert_int_equal(plan->group_count, layers);
            assert_true(plan->summary.resident_blocks <= blocks);
            assert_true(find_unevenness(plan) < 2.5);
            rn_plan_destroy(plan);
        }
    }
    layers = 7;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_weight_group_of_a_chain_is_one_load),
        cmocka_unit_test(a_group_that_is_still_there_is_not_read_again),
        cmocka_unit_test(forward_and_backward_are_two_loads),
        cmocka_unit_test(a_step_that_reads_more_groups_than_there_are_slots_is_refused),
        cmocka_unit_test(a_ring_that_would_hold_everything_is_refused),
        cmocka_unit_test(a_run_takes_as_long_as_the_slower_of_computing_and_reading),
        cmocka_unit_test(one_slot_alternates_between_reading_and_computing),
        cmocka_unit_test(slots_that_do_not_divide_the_loads_wait_at_the_seam),
        cmocka_unit_test(every_compute_finds_its_weights_in_every_run),
        cmocka_unit_test(what_stays_lies_evenly_between_what_is_streamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
