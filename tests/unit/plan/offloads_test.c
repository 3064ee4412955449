// offloads_test.c — what of a training step may be on the host for a while, when it leaves and
// comes back, and how long a step then takes.
#include "plan_fixture.h"

#include "base/checked.h"

enum { BLOCKS = 8, ROWS = 64, WIDTH = 64, BYTES = ROWS * WIDTH * 4 };

// Blocks of a product and a tanh, each trained with momentum; what tanh makes is saved for its
// gradient, and for the gradient of the next block's weight.
static void write_chain(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value weights[BLOCKS], gradients[BLOCKS];
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, WIDTH)), target = x;
    for (int i = 0; i < BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "block %d", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "w%d", i);
        weights[i] = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH));
        x = rn_op_tanh(g, rn_op_matmul(g, x, weights[i], RN_NO_VALUE));
    }
    rn_value loss = rn_op_mse(g, x, target);
    assert_ok(rn_graph_gradient(g, loss, weights, BLOCKS, gradients));
    for (int i = 0; i < BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "velocity %d", i);
        rn_graph_set_place(g, rn_graph_value(g, weights[i])->block, RN_PHASE_UPDATE);
        rn_value velocity =
            rn_graph_state(g, name, RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH), RN_PURPOSE_OPTIMIZER);
        rn_op_sgd(g, weights[i], gradients[i], velocity,
                  (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate"), .momentum = 0.9f});
    }
    rn_graph_output(g, loss, "loss");
}

typedef struct scene {
    worked w;
    rn_case c;
    rn_offloads offloads;
} scene;

// Over a link that brings so many bytes while a byte's share of computing goes on.
static void open_scene(scene *s, rn_share states, rn_share sent, double link_bytes_second) {
    work_out(&s->w, paper_graph(write_chain), 0);
    s->w.caps.own_memory = true;
    s->w.caps.link_bytes_second = link_bytes_second;
    s->c = (rn_case){.graph = s->w.graph, .order = s->w.order};
    assert_ok(rn_offloads_make(&s->w.memory, &s->c, &s->w.binding, &s->w.caps,
                               &(rn_variant){.states = states, .sent = sent}, &s->offloads));
}

static void close_scene(scene *s) {
    worked_free(&s->w);
}

static double step_seconds(const scene *s, bool no_homes) {
    rn_stream stream = {0};
    double *done = calloc(2 * (size_t)s->offloads.count + 1, sizeof *done);
    rn_traffic traffic = {
        .stream = &stream, .offloads = &s->offloads, .no_homes = no_homes, .done = done};
    double seconds = rn_cost_run(&s->w.caps, s->w.binding.until[0], s->w.order.count, &traffic);
    free(done);
    return seconds;
}

static uint32_t block_of(const scene *s, const rn_offload *offload) {
    return rn_graph_value(s->w.graph, s->w.binding.live.storages[offload->storage].value)->block;
}

// ---- what goes ----------------------------------------------------------------------------------

static void states_are_there_for_their_update_alone(void **state) {
    (void)state;
    scene s;
    open_scene(&s, RN_SHARE_ALL, 0, 1e9);
    assert_int_equal(s.offloads.count, BLOCKS);
    assert_int_equal(s.offloads.home_bytes, BLOCKS * WIDTH * WIDTH * 4);
    assert_int_equal(s.offloads.sent_bytes, 0);
    for (uint32_t i = 0; i < s.offloads.count; i++) {
        const rn_offload *t = &s.offloads.list[i];
        assert_true(t->home && t->back == t->away);
        assert_int_equal(rn_graph_node(s.w.graph, s.w.order.nodes[t->back])->op, RN_OP_SGD);
        assert_true(t->due <= t->back && t->away <= t->gone);
    }
    close_scene(&s);
    open_scene(&s, RN_SHARE_HALF, 0, 1e9); // of every other block
    assert_int_equal(s.offloads.count, BLOCKS / 2);
    for (uint32_t i = 0; i < s.offloads.count; i++)
        assert_int_equal(block_of(&s, &s.offloads.list[i]) % 2, 1);
    close_scene(&s);
}

static void saved_values_are_away_around_the_turn(void **state) {
    (void)state;
    scene s;
    open_scene(&s, 0, RN_SHARE_ALL, 1e10);
    assert_true(s.offloads.count >= BLOCKS - 2 && s.offloads.count <= BLOCKS);
    assert_int_equal(s.offloads.sent_bytes, s.offloads.count * BYTES);
    for (uint32_t i = 0; i < s.offloads.count; i++) {
        const rn_offload *t = &s.offloads.list[i];
        assert_true(!t->home && t->away <= t->gone && t->gone < t->due && t->due <= t->back);
        rn_phase before = rn_graph_node(s.w.graph, s.w.order.nodes[t->away])->phase;
        rn_phase after = rn_graph_node(s.w.graph, s.w.order.nodes[t->back])->phase;
        assert_true(before == RN_PHASE_FORWARD && after == RN_PHASE_BACKWARD);
    }
    for (uint32_t i = 1; i < s.offloads.count; i++) // the first to go is the last to come back
        assert_int_equal(s.offloads.by_away[i], s.offloads.by_back[s.offloads.count - 1 - i]);
    close_scene(&s);
    open_scene(&s, 0, RN_SHARE_HALF, 1e10); // of the first half
    assert_true(s.offloads.count > 0 && s.offloads.count < BLOCKS);
    for (uint32_t i = 0; i < s.offloads.count; i++)
        assert_true(block_of(&s, &s.offloads.list[i]) <= (BLOCKS + 1) / 2);
    close_scene(&s);
}

static void what_could_not_be_back_in_time_stays(void **state) {
    (void)state;
    uint32_t first = 0, last = UINT32_MAX;
    for (double link = 1e10; link > 1e5; link /= 10) {
        scene s;
        open_scene(&s, 0, RN_SHARE_ALL, link);
        assert_true(s.offloads.count <= last);
        last = s.offloads.count;
        if (first == 0) first = last;
        close_scene(&s);
    }
    assert_true(last < first);
}

// ---- when ---------------------------------------------------------------------------------------

static uint64_t most_places(const scene *s) {
    uint64_t most = 0;
    for (uint32_t p = 0; p < s->w.order.count; p++) {
        uint64_t now = 0;
        for (uint32_t i = 0; i < s->offloads.count; i++)
            now += s->offloads.list[i].due <= p && p <= s->offloads.list[i].gone;
        most = rn_max_u64(most, now);
    }
    return most;
}

// However slow the link: one is used, two may be on their way, and two on their way back.
static void a_slow_link_does_not_take_more_and_more_places(void **state) {
    (void)state;
    for (double link = 1e11; link > 1e4; link /= 10) {
        scene s;
        open_scene(&s, RN_SHARE_ALL, 0, link);
        assert_int_equal(s.offloads.count, BLOCKS);
        assert_true(most_places(&s) <= 5);
        close_scene(&s);
    }
}

static void at_the_last_moment_only_what_is_used_has_a_place(void **state) {
    (void)state;
    scene late, all;
    open_scene(&late, RN_SHARE_LATE, RN_SHARE_LATE, 1e9);
    open_scene(&all, RN_SHARE_ALL, RN_SHARE_ALL, 1e9);
    for (uint32_t i = 0; i < late.offloads.count; i++) {
        const rn_offload *t = &late.offloads.list[i];
        assert_true(t->due == t->back && t->gone == t->away);
    }
    assert_true(late.offloads.count >= all.offloads.count);
    assert_true(step_seconds(&late, false) > step_seconds(&all, false));
    close_scene(&late);
    close_scene(&all);
}

static void a_fast_link_costs_no_time_and_a_slow_one_its_bytes(void **state) {
    (void)state;
    scene s;
    open_scene(&s, RN_SHARE_ALL, RN_SHARE_ALL, 1e12);
    double computing = s.w.binding.total_seconds[0];
    // But for the last state's way back, when there is nothing left to compute.
    assert_true(step_seconds(&s, false) < 1.1 * computing);
    assert_true(step_seconds(&s, true) == computing);
    close_scene(&s);
    open_scene(&s, RN_SHARE_ALL, RN_SHARE_ALL, 1e5);
    double bytes = (double)(s.offloads.home_bytes + s.offloads.sent_bytes) / 1e5;
    double seconds = step_seconds(&s, false);
    assert_true(seconds > bytes && seconds < 2.1 * (bytes + computing)); // each way side by side
    assert_true(step_seconds(&s, true) <= seconds);
    close_scene(&s);
}

// ---- bytes --------------------------------------------------------------------------------------

static uint64_t peak_of(scene *s) {
    uint64_t peak;
    assert_ok(rn_binding_peak(&s->w.memory, &s->w.binding, &s->offloads, 0, false, s->w.order.count,
                              &peak));
    return peak;
}

static void what_is_away_lowers_the_peak(void **state) {
    (void)state;
    scene all, half, none;
    open_scene(&none, 0, 0, 1e10);
    open_scene(&half, 0, RN_SHARE_HALF, 1e10);
    open_scene(&all, 0, RN_SHARE_ALL, 1e10);
    assert_int_equal(none.offloads.count, 0);
    assert_true(peak_of(&all) < peak_of(&half) && peak_of(&half) < peak_of(&none));
    close_scene(&none);
    close_scene(&half);
    close_scene(&all);
    open_scene(&none, 0, 0, 1e10); // states are not always there, but for a while
    open_scene(&all, RN_SHARE_ALL, 0, 1e10);
    assert_int_equal(all.offloads.away_always_bytes, BLOCKS * WIDTH * WIDTH * 4);
    assert_true(peak_of(&all) - peak_of(&none) < all.offloads.away_always_bytes / 2);
    close_scene(&none);
    close_scene(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_there_for_their_update_alone),
        cmocka_unit_test(saved_values_are_away_around_the_turn),
        cmocka_unit_test(what_could_not_be_back_in_time_stays),
        cmocka_unit_test(a_slow_link_does_not_take_more_and_more_places),
        cmocka_unit_test(at_the_last_moment_only_what_is_used_has_a_place),
        cmocka_unit_test(a_fast_link_costs_no_time_and_a_slow_one_its_bytes),
        cmocka_unit_test(what_is_away_lowers_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
