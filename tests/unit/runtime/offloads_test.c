// labels: threads
// Training steps of which states and saved values are on the host for a while: the same bits as
// with all of it on the device, the bytes that were predicted in both memories, and nothing left
// behind when something fails on the way.
#include "support.h"
#include "recount.h"

#include <ration/device.h>
#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "train/train_recipe.h"
#include "runtime/session.h"

#include <stdatomic.h>

enum { BATCH = 8, TOKENS = 16, VOCAB = 64, STEPS = 2, BUDGETS = 6 };

// ---- a small model ------------------------------------------------------------------------------

static float noise[64 << 10];

static const void *find_noise(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)name;
    (void)dtype;
    assert_true(bytes <= sizeof noise);
    return noise;
}

static const rn_weight_source source = {.find = find_noise};

static int make_noise(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        seed = seed * 1664525u + 1013904223u;
        noise[i] = 0.2f * ((float)(seed >> 8) / (float)(1 << 24) - 0.45f);
    }
    return 0;
}

// The tokens of a step are the same for any batch that divides BATCH.
static rn_recipe small_of(uint32_t batch, const char *frozen, rn_clip clip) {
    rn_recipe recipe;
    rn_llama_config config = {.layers = 2,
                              .dim = 64,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 128,
                              .vocab = VOCAB,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = BATCH / batch * TOKENS};
    rn_train_options options = {
        .weight_decay = 0.01f, .clip = clip, .max_norm = 1, .frozen = frozen};
    assert_ok(rn_train_recipe(rn_llama_forward(&config), batch, &options, &recipe));
    recipe.weights_in_memory = true;
    return recipe;
}

static rn_recipe small(const char *frozen, rn_clip clip) {
    return small_of(BATCH, frozen, clip);
}

static rn_status step_once(rn_session *session, uint32_t step) {
    int32_t ids[BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++)
        ids[i] = (int32_t)((uint32_t)i * 7 + step) % VOCAB;
    RN_TRY(rn_session_set(session, "tokens", ids, sizeof ids));
    RN_TRY(rn_session_set(session, "targets", ids, sizeof ids));
    RN_TRY(rn_session_set_scalar(session, "rate", 0.01));
    RN_TRY(rn_session_set_scalar(session, "step", step));
    RN_TRY(rn_session_set_scalar(session, "loss_scale", 1.0 / (BATCH * TOKENS)));
    return rn_session_run(session, 0);
}

// ---- answers ------------------------------------------------------------------------------------

typedef struct answer {
    uint8_t *data;
    uint64_t bytes;
} answer;

static void append(answer *a, rn_session *session, rn_value value) {
    uint64_t bytes = rn_session_value_bytes(session, value, 0);
    a->data = realloc(a->data, a->bytes + bytes);
    assert_non_null(a->data);
    const char *name = rn_graph_value(session->plan->graph, value)->name;
    assert_ok(rn_session_get(session, name, a->data + a->bytes, bytes));
    a->bytes += bytes;
}

// The loss, every moment, every trained weight.
static answer collect(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    answer a = {0};
    append(&a, session, rn_graph_find(graph, RN_ROLE_OUTPUT, "loss"));
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        if (node->op != RN_OP_ADAMW) continue;
        append(&a, session, node->inputs[0]);
        append(&a, session, node->inputs[2]);
        append(&a, session, node->inputs[3]);
    }
    return a;
}

static void expect_same(answer got, answer want) {
    assert_int_equal(got.bytes, want.bytes);
    assert_memory_equal(got.data, want.data, want.bytes);
}

// ---- both memories ------------------------------------------------------------------------------

static uint64_t on_host(rn_purpose purpose) {
    return rn_ledger_read(RN_DEVICE_HOST, purpose).now_bytes;
}

static uint64_t planned_on_host(void) {
    return on_host(RN_PURPOSE_WEIGHTS) + on_host(RN_PURPOSE_STAGING) +
           on_host(RN_PURPOSE_OPTIMIZER) + on_host(RN_PURPOSE_ACTIVATIONS);
}

static void check_ledger(const rn_plan *plan, uint64_t host_before) {
    const rn_plan_summary *s = &plan->summary;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        assert_int_equal(rn_ledger_read(plan->caps.device, (rn_purpose)p).now_bytes,
                         s->purpose_bytes[p]);
    assert_int_equal(planned_on_host() - host_before, s->host_bytes);
    assert_int_equal(on_host(RN_PURPOSE_OPTIMIZER), s->host_state_bytes);
    assert_int_equal(on_host(RN_PURPOSE_ACTIVATIONS), s->host_saved_bytes);
    assert_true(s->host_bytes <=
                (plan->options.host_budget_bytes ? plan->options.host_budget_bytes : RN_NO_LIMIT));
}

static answer run_plan(const rn_plan *plan, rn_device *sim) {
    rn_session *session;
    uint64_t host = planned_on_host(), all = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_true(rn_plan_is_valid(plan));
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim, .audit = true},
                                &session));
    check_ledger(plan, host);
    for (uint32_t step = 1; step <= STEPS; step++)
        assert_ok(step_once(session, step));
    check_ledger(plan, host);
    rn_session_facts facts = rn_session_get_facts(session);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    assert_int_equal(facts.live_peak_bytes, plan->summary.live_peak_bytes);
    answer a = collect(session);
    rn_session_destroy(session);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, all);
    assert_int_equal(rn_ledger_total(plan->caps.device).now_bytes, 0);
    return a;
}

static rn_device *open_sim(double link_bytes_second) {
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.link_bytes_second = link_bytes_second; // the plan's; copies take no time here
    return sim;
}

// What the budgets of a sweep brought about.
typedef struct seen {
    uint32_t states, saved, recomputed, streamed, all_at_once, cut;
} seen;

static void note(seen *moves, const rn_plan *plan) {
    const rn_plan_summary *s = &plan->summary;
    moves->states += s->host_states > 0;
    moves->saved += s->host_saved > 0;
    moves->recomputed += s->recomputed_blocks > 0;
    moves->streamed += plan->slot_count > 0;
    moves->all_at_once += s->host_states && s->host_saved && plan->slot_count;
    moves->cut += s->micro_batches > 1;
}

// ---- the same bits ------------------------------------------------------------------------------

// One sample: of several, `exact` would hold one at a time, and have little to save.
static seen sweep(const char *frozen, double link) {
    rn_recipe recipe = small_of(1, frozen, RN_CLIP_NONE);
    rn_device *sim = open_sim(link);
    rn_plan_options options = {.exact = true};
    rn_plan *plan;
    seen moves = {0};
    assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
    uint64_t low = plan->summary.smallest_bytes, high = plan->summary.planned_bytes;
    assert_int_equal(plan->offload_count, 0); // there is room for everything
    answer want = run_plan(plan, sim);
    rn_plan_destroy(plan);
    for (uint64_t i = 0; i < BUDGETS; i++) {
        options.budget_bytes = low + (high - low) * i / BUDGETS;
        assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
        answer got = run_plan(plan, sim);
        expect_same(got, want);
        note(&moves, plan);
        free(got.data);
        rn_plan_destroy(plan);
    }
    options.budget_bytes = low - 1;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &sim->caps, &options, &plan));
    assert_int_equal(rn_last_refusal()->smallest_budget_bytes, low);
    free(want.data);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
    return moves;
}

static void a_step_has_the_same_bits_wherever_its_states_and_saved_values_are(void **state) {
    (void)state;
    seen fast = sweep("", 1e10);
    assert_true(fast.states > 2 && fast.saved > 2 && fast.recomputed == 0);
}

static void over_a_slow_link_blocks_are_rather_computed_again(void **state) {
    (void)state;
    seen slow = sweep("", 1e7);
    assert_true(slow.states > 2 && slow.recomputed > 2 && slow.saved < slow.recomputed);
}

static void weights_may_be_streamed_meanwhile(void **state) {
    (void)state;
    seen moves = sweep("*_proj.weight", 1e9);
    assert_true(moves.streamed > 2 && moves.all_at_once > 0);
}

// With room on the host, and without: as many micro-batches give the same bits.
static void micro_batches_update_states_that_are_on_the_host(void **state) {
    (void)state;
    rn_recipe recipe = small("", RN_CLIP_GLOBAL);
    rn_device *sim = open_sim(1e8);
    rn_plan_options options = {0};
    rn_plan *plan;
    answer answers[BATCH + 1] = {0}; // by the number of micro-batches
    uint32_t compared = 0;
    assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
    uint64_t low = plan->summary.smallest_bytes, high = plan->summary.planned_bytes;
    uint64_t host = plan->summary.host_bytes;
    rn_plan_destroy(plan);
    for (uint64_t i = 0; i < 8; i++) {
        options.host_budget_bytes = i % 2 ? RN_NO_LIMIT : host;
        options.budget_bytes = low + (high - low) * i / 12;
        rn_status s = rn_plan_make(&recipe, &sim->caps, &options, &plan);
        if (s == RN_OVER_BUDGET && i % 2 == 0) continue;
        assert_ok(s);
        assert_true(plan->offload_count == 0 || i % 2);
        answer got = run_plan(plan, sim), *want = &answers[plan->summary.micro_batches];
        bool cut = plan->summary.micro_batches > 1;
        if (want->data) expect_same(got, *want);
        compared += cut && want->data && plan->summary.host_states;
        if (want->data)
            free(got.data);
        else
            *want = got;
        rn_plan_destroy(plan);
    }
    assert_true(compared > 0);
    for (int i = 0; i <= BATCH; i++)
        free(answers[i].data);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
}

// ---- a host with little room --------------------------------------------------------------------

static void a_host_without_room_leaves_other_moves_or_a_refusal(void **state) {
    (void)state;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    rn_recipe recipe = small("", RN_CLIP_NONE);
    rn_device *sim = open_sim(1e10);
    rn_plan_options options = {.exact = true};
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
    uint64_t low = plan->summary.smallest_bytes, high = plan->summary.planned_bytes;
    uint64_t least = plan->summary.host_bytes; // with nothing of the step there
    rn_plan_destroy(plan);
    options.host_budget_bytes = least;
    options.budget_bytes = low;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &sim->caps, &options, &plan));
    assert_non_null(strstr(rn_last_error()->message, "of the host's"));
    char help[64];
    snprintf(help, sizeof help, "bring it down to %s (%llu bytes)", rn_size_format(low).text,
             (unsigned long long)low);
    assert_non_null(strstr(rn_last_error()->hint, help));
    uint64_t lowest = rn_last_refusal()->smallest_budget_bytes;
    assert_true(lowest > low && lowest < high);
    options.budget_bytes = lowest;
    assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
    assert_true(plan->offload_count == 0 && plan->summary.recomputed_blocks > 0);
    rn_plan_destroy(plan);
    options.host_budget_bytes = least + (256 << 10); // for some of it
    assert_ok(rn_plan_make(&recipe, &sim->caps, &options, &plan));
    uint64_t between = plan->summary.smallest_bytes;
    assert_true(between < lowest && between > low);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
}

// ---- a plan with everything in it ---------------------------------------------------------------

static rn_plan *plan_tight(const rn_device_caps *caps) {
    rn_recipe recipe = small("", RN_CLIP_NONE);
    rn_plan_options options = {.exact = true};
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, caps, &options, &plan));
    options.budget_bytes = plan->summary.smallest_bytes;
    rn_plan_destroy(plan);
    assert_ok(rn_plan_make(&recipe, caps, &options, &plan));
    rn_recipe_destroy(&recipe);
    assert_true(plan->summary.host_states > 0 && plan->summary.host_saved > 0);
    return plan;
}

static rn_plan_offload *find_offload(rn_plan *plan, bool home) {
    for (uint32_t i = 0; i < plan->offload_count; i++)
        if (plan->offloads[i].home == home) return &plan->offloads[i];
    fail_msg("no such offload");
    return NULL;
}

static bool is_measured_as_planned(const rn_plan *plan, rn_device *sim) {
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim, .audit = true},
                                &session));
    assert_ok(step_once(session, 1));
    bool same = rn_session_get_facts(session).live_mismatch_step == UINT64_MAX;
    rn_session_destroy(session);
    return same;
}

static void offloads_of_a_damaged_plan_are_found(void **state) {
    (void)state;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    rn_device *sim = open_sim(1e10);
    for (int damage = 0; damage < 8; damage++) {
        rn_plan *plan = plan_tight(&sim->caps);
        rn_plan_offload *saved = find_offload(plan, false), *home = find_offload(plan, true);
        assert_true(rn_plan_is_valid(plan));
        if (damage == 0) assert_true(is_measured_as_planned(plan, sim));
        if (damage == 0) plan->buffers[saved->buffer].last_step = saved->offload_step;
        if (damage == 1) plan->buffers[saved->back].first_step++;
        if (damage == 2) plan->buffers[home->buffer].first_step++;
        if (damage == 3) plan->buffers[home->buffer].last_step--;
        recount(plan);
        if (damage < 4) assert_false(is_measured_as_planned(plan, sim));
        if (damage == 4) plan->steps[saved->gone_step].after = RN_NO_STEP;
        if (damage == 5) plan->steps[home->prefetch_step].after = 0;
        if (damage == 6) saved->host_offset += 1 << 30;
        if (damage == 7) home->back_step = home->prefetch_step;
        assert_false(rn_plan_is_valid(plan));
        rn_plan_destroy(plan);
    }
    rn_device_destroy(sim);
}

// ---- states -------------------------------------------------------------------------------------

static void a_state_on_the_host_can_be_asked_for_and_set(void **state) {
    (void)state;
    rn_device *sim = open_sim(1e10);
    rn_plan *plan = plan_tight(&sim->caps);
    rn_session *session, *other;
    rn_value value = find_offload(plan, true)->value;
    const char *name = rn_graph_value(plan->graph, value)->name;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
    uint64_t bytes = rn_session_value_bytes(session, value, 0);
    assert_non_null(rn_session_home(session, value));
    uint8_t *first = malloc(bytes), *second = malloc(bytes);
    assert_ok(rn_session_get(session, name, first, bytes));
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(first[i], 0);
    assert_ok(step_once(session, 1));
    assert_ok(rn_session_get(session, name, first, bytes));
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &other));
    answer a = collect(session);
    assert_ok(rn_session_put(other, name, first, bytes));
    assert_ok(rn_session_get(other, name, second, bytes));
    assert_memory_equal(first, second, bytes);
    assert_ok(step_once(other, 1)); // from another state: to another one
    answer b = collect(other);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_not_equal(a.data, b.data, a.bytes);
    free(a.data);
    free(b.data);
    free(first);
    free(second);
    rn_session_destroy(other);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

// ---- failures -----------------------------------------------------------------------------------

// Arms the n-th copy or launch of a step; false where it has not so many.
static bool fails_at(rn_session *session, rn_device *sim, uint32_t n, bool copies) {
    rn_sim_device_arm(sim, 0, copies ? 0 : n, copies ? n : 0);
    rn_status s = step_once(session, 1);
    rn_sim_device_arm(sim, 0, 0, 0);
    if (s == RN_OK) return false;
    assert_int_equal(s, RN_DEVICE);
    assert_fails(RN_DEVICE, rn_session_run(session, 0));
    assert_non_null(strstr(rn_last_error()->message, "is to fail"));
    assert_ok(rn_session_reset(session));
    return true;
}

static void a_copy_or_launch_that_fails_is_told_and_survived(void **state) {
    (void)state;
    rn_device *sim = open_sim(1e10);
    rn_plan *plan = plan_tight(&sim->caps);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
    uint64_t host = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (int copies = 0; copies < 2; copies++) {
        uint32_t n = 1;
        while (fails_at(session, sim, n, copies))
            n += 9;
        assert_true(n > 9 * 5);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, host);
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

static const rn_plan *tortured;
static rn_device *torture_device;

static rn_status open_and_step(void) {
    rn_session *session = NULL;
    RN_TRY(rn_session_create(tortured, &source, &(rn_session_options){.device = torture_device},
                             &session));
    rn_status s = step_once(session, 1);
    rn_session_destroy(session);
    return s;
}

static void a_refused_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    torture_device = open_sim(1e10);
    rn_plan *plan = plan_tight(&torture_device->caps);
    tortured = plan;
    assert_true(survive_refusals(open_and_step) > 10);
    assert_int_equal(rn_ledger_total(torture_device->caps.device).now_bytes, 0);
    rn_plan_destroy(plan);
    rn_device_destroy(torture_device);
}

static _Atomic bool cancel;
static _Atomic uint32_t products_until_cancel;

static rn_status cancel_in_product(const rn_call *call) {
    if (atomic_fetch_sub(&products_until_cancel, 1) == 1) atomic_store(&cancel, true);
    return rn_op_get(RN_OP_MATMUL)->reference(call);
}

// The link is slow, so that copies are under way in both directions wherever it happens.
static void cancelling_with_copies_in_flight_gives_all_memory_back(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    rn_device *sim;
    rn_session *session;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.link_bytes_second = 4e8}, &sim));
    sim->caps.link_bytes_second = 1e10;
    memcpy(kernels, sim->caps.kernels, sizeof kernels);
    kernels[RN_OP_MATMUL].run = cancel_in_product;
    sim->caps.kernels = kernels;
    rn_plan *plan = plan_tight(&sim->caps);
    uint64_t host = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint32_t n = 2; n < 40; n += 9) {
        rn_session_options options = {.device = sim, .cancel = &cancel};
        assert_ok(rn_session_create(plan, &source, &options, &session));
        atomic_store(&products_until_cancel, n);
        assert_fails(RN_CANCELLED, step_once(session, 1));
        atomic_store(&cancel, false);
        if (n % 4) { // and goes on, or goes
            assert_ok(rn_session_reset(session));
            assert_ok(step_once(session, 1));
        }
        rn_session_destroy(session);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, host);
        assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    }
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_same_bits_wherever_its_states_and_saved_values_are),
        cmocka_unit_test(over_a_slow_link_blocks_are_rather_computed_again),
        cmocka_unit_test(weights_may_be_streamed_meanwhile),
        cmocka_unit_test(micro_batches_update_states_that_are_on_the_host),
        cmocka_unit_test(a_host_without_room_leaves_other_moves_or_a_refusal),
        cmocka_unit_test(offloads_of_a_damaged_plan_are_found),
        cmocka_unit_test(a_state_on_the_host_can_be_asked_for_and_set),
        cmocka_unit_test(a_copy_or_launch_that_fails_is_told_and_survived),
        cmocka_unit_test(a_refused_allocation_leaves_nothing_behind),
        cmocka_unit_test(cancelling_with_copies_in_flight_gives_all_memory_back),
    };
    return cmocka_run_group_tests(tests, make_noise, NULL);
}
