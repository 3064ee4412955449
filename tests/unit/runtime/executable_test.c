// labels: threads
// Devices that compile graphs: the same bits as kernels, at any number of rows, within what was
// planned; the first blocks on the CPU where the device has no room; and every failure is clean.
#include "chain.h"
#include "tiny_text.h"

#include <ration/memory.h>

#include "backend/null/null.h"
#include "backend/sim/sim.h"
#include "base/fault.h"
#include "graph/cut.h"

#include <stdatomic.h>

enum { LAYERS = 7, WIDTH = 96, ROWS = 80 };

static chain all = {.layers = LAYERS, .width = WIDTH, .rows = ROWS};
static float expected[ROWS * WIDTH];
static rn_device *sim;

static int open_all(void **state) {
    (void)state;
    chain_open(&all);
    chain_write(&all, test_path("chain.safetensors"));
    rn_plan *plan = chain_plan(&all, rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(&all);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    assert_ok(chain_run(&all, session, ROWS, 1, expected));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    return rn_sim_device_create(&(rn_sim_options){.compiles = 1}, &sim) == RN_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    rn_device_destroy(sim);
    chain_close(&all);
    return 0;
}

static uint64_t rows_wanted = ROWS;

static rn_plan *make_plan(const rn_plan_options *options) {
    rn_recipe recipe = chain_recipe(&all);
    recipe.rows = rows_wanted;
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(sim), options, &plan));
    assert_true(rn_plan_is_valid(plan));
    assert_true(plan->compiled);
    return plan;
}

static rn_session *open_session(const rn_plan *plan) {
    rn_weight_source source = chain_memory(&all);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
    return session;
}

static void expect_rows(rn_session *session, uint64_t rows) {
    float y[ROWS * WIDTH];
    assert_ok(chain_run(&all, session, rows, 1, y));
    assert_memory_equal(y, expected, rows * WIDTH * sizeof(float));
}

static uint64_t held(void) {
    return rn_ledger_total(rn_device_number(sim)).now_bytes;
}

// ---- the same numbers ---------------------------------------------------------------------------

static void an_executable_gives_the_bits_of_kernels(void **state) {
    (void)state;
    static const uint64_t rows[] = {1, 2, 7, 8, 9, 63, 64, 65, ROWS, 1};
    rn_plan *plan = make_plan(NULL);
    assert_int_equal(plan->bucket_count, 4);
    rn_session *session = open_session(plan);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_rows(session, rows[i]);
    assert_int_equal(rn_session_get_facts(session).runs, sizeof rows / sizeof rows[0]);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void predicted_is_measured(void **state) {
    (void)state;
    for (uint64_t budget = 0; budget < 2; budget++) {
        rn_plan_options options = {.budget_bytes = 0};
        rn_plan *roomy = make_plan(NULL);
        if (budget) options.budget_bytes = roomy->summary.planned_bytes - 1;
        rn_plan_destroy(roomy);
        rn_plan *plan = make_plan(&options);
        assert_int_equal(held(), 0);
        rn_session *session = open_session(plan);
        assert_int_equal(held(), plan->summary.planned_bytes);
        for (int p = 0; p < RN_PURPOSE_COUNT; p++)
            assert_int_equal(rn_ledger_read(rn_device_number(sim), p).now_bytes,
                             plan->summary.purpose_bytes[p]);
        expect_rows(session, plan->summary.rows);
        assert_int_equal(rn_session_get_facts(session).live_peak_bytes,
                         plan->summary.planned_bytes);
        rn_session_destroy(session);
        assert_int_equal(held(), 0);
        assert_true(budget == 0 || plan->summary.rows < ROWS);
        rn_plan_destroy(plan);
    }
}

// ---- budgets ------------------------------------------------------------------------------------

// Fewer rows first; then, where the CPU may help, its kernels compute the first blocks.
static void every_budget_gives_the_same_numbers(void **state) {
    (void)state;
    rn_plan_options options = {.host_caps = rn_cpu_caps()};
    rows_wanted = 2; // so that weights are most of it
    rn_plan *roomy = make_plan(&options);
    uint64_t low = roomy->summary.smallest_bytes, high = roomy->summary.planned_bytes;
    uint32_t hosts = 0, last = UINT32_MAX;
    rn_plan_destroy(roomy);
    for (uint64_t i = 0; i <= 16; i++) {
        options.budget_bytes = low + (high - low) * i / 16;
        rn_plan *plan = make_plan(&options);
        assert_true(plan->summary.planned_bytes <= options.budget_bytes);
        assert_true(plan->summary.host_blocks <= last);
        last = plan->summary.host_blocks;
        hosts |= 1u << last;
        rn_session *session = open_session(plan);
        assert_int_equal(session->host != NULL, last > 0);
        expect_rows(session, plan->summary.rows);
        expect_rows(session, 1);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
    }
    rows_wanted = ROWS;
    assert_int_equal(last, 0);
    assert_true(__builtin_popcount(hosts) > 4);
}

// A job of few rows: the host's planner sees no use in runs of more.
static void both_sides_have_the_same_rows(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    rn_plan_options options = {.host_caps = rn_cpu_caps()};
    recipe.workload_rows = 5;
    rn_plan *plan = make_plan(&options);
    options.budget_bytes = plan->summary.smallest_bytes + all.weight_bytes;
    rn_plan_destroy(plan);
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(sim), &options, &plan));
    assert_non_null(plan->host);
    assert_true(plan->summary.rows < ROWS);
    assert_int_equal(plan->host->summary.rows, plan->summary.rows);
    assert_true(plan->summary.planned_bytes <= options.budget_bytes);
    rn_session *session = open_session(plan);
    expect_rows(session, plan->summary.rows);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void below_the_floor_there_is_a_refusal(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    for (int exact = 0; exact < 2; exact++) {
        rn_plan_options options = {.host_caps = rn_cpu_caps(), .exact = exact};
        rn_plan *plan = make_plan(&options);
        uint64_t least = plan->summary.smallest_bytes;
        rn_plan_destroy(plan);
        options.budget_bytes = least - 1;
        assert_fails(RN_OVER_BUDGET,
                     rn_plan_make(&recipe, rn_device_get_caps(sim), &options, &plan));
        assert_int_equal(rn_last_refusal()->smallest_budget_bytes, least);
        options.budget_bytes = least;
        plan = make_plan(&options);
        assert_int_equal(plan->host != NULL, !exact);
        rn_plan_destroy(plan);
    }
}

static void a_sweep_shows_the_budgets(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    rn_sweep_row rows[5];
    assert_ok(rn_plan_sweep(&recipe, rn_device_get_caps(sim), NULL, rows, 5));
    for (int i = 0; i < 5; i++) {
        assert_true(rows[i].summary.planned_bytes <= rows[i].budget_bytes);
        if (i) assert_true(rows[i].budget_bytes > rows[i - 1].budget_bytes);
        if (i) assert_true(rows[i].summary.rows >= rows[i - 1].summary.rows);
    }
}

// ---- text ---------------------------------------------------------------------------------------

static void a_text_model_says_the_same(void **state) {
    (void)state;
    static const rn_sampling greedy = {.logprobs = 20};
    tiny_text tiny = {.layers = 4, .dim = 64, .vocab = 96};
    rn_generator_options options = {.text = {.context = 96, .page_tokens = 8, .rows = 16},
                                    .speculation = RN_SPECULATE_NEVER};
    story want, got;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_generator *generator = tiny_text_generator(&tiny, &options);
    assert_ok(story_tell(generator, &greedy, 1, 19, 30, &want));
    rn_generator_destroy(generator);
    options.session.device = sim;
    uint64_t planned = 0, least = 0;
    for (int part = 0; part <= 3; part++) {
        options.device_budget.bytes =
            part ? least + (planned - least) * (uint64_t)(3 - part) / 3 : 0;
        options.device_budget.planned_only = true;
        generator = tiny_text_generator(&tiny, &options);
        const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
        if (part == 0) {
            planned = s->planned_bytes;
            least = s->smallest_bytes;
        }
        if (part == 3) assert_true(s->host_blocks > 0);
        assert_ok(story_tell(generator, &greedy, 1, 19, 30, &got));
        story_expect(&got, &want);
        rn_generator_destroy(generator);
    }
    tiny_text_close(&tiny);
}

// ---- failures -----------------------------------------------------------------------------------

static void an_estimate_that_was_too_low_is_refused_with_both_numbers(void **state) {
    (void)state;
    rn_device *larger;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.compiles = 1, .compiled_more_bytes = 4096},
                                   &larger));
    rn_plan *plan = make_plan(NULL);
    rn_weight_source source = chain_memory(&all);
    rn_session *session;
    assert_fails(
        RN_OVER_BUDGET,
        rn_session_create(plan, &source, &(rn_session_options){.device = larger}, &session));
    assert_non_null(strstr(rn_last_error()->message, "would hold"));
    assert_int_equal(rn_ledger_total(rn_device_number(larger)).now_bytes, 0);
    rn_plan_destroy(plan);
    rn_device_destroy(larger);
}

static void a_failed_run_is_told_and_forgotten_by_a_reset(void **state) {
    (void)state;
    rn_plan *plan = make_plan(NULL);
    rn_session *session = open_session(plan);
    float y[ROWS * WIDTH];
    rn_sim_device_arm(sim, 0, 1, 0);
    assert_fails(RN_DEVICE, chain_run(&all, session, 3, 1, y));
    assert_fails(RN_DEVICE, chain_run(&all, session, 3, 1, y));
    assert_ok(rn_session_reset(session));
    expect_rows(session, 3);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void a_run_can_be_cancelled(void **state) {
    (void)state;
    static rn_flag cancel;
    rn_plan *plan = make_plan(NULL);
    rn_weight_source source = chain_memory(&all);
    rn_session_options options = {.device = sim, .cancel = &cancel};
    rn_session *session;
    float y[ROWS * WIDTH];
    assert_ok(rn_session_create(plan, &source, &options, &session));
    atomic_store(&cancel, true);
    assert_fails(RN_CANCELLED, chain_run(&all, session, 3, 1, y));
    atomic_store(&cancel, false);
    assert_ok(rn_session_reset(session));
    expect_rows(session, 3);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void every_failing_allocation_is_a_clean_failure(void **state) {
    (void)state;
    rn_plan_options options = {.host_caps = rn_cpu_caps()};
    rn_plan *roomy = make_plan(&options);
    rn_recipe recipe = chain_recipe(&all);
    options.budget_bytes = (roomy->summary.smallest_bytes + roomy->summary.planned_bytes) / 3;
    rn_plan_destroy(roomy);
    rn_weight_source source = chain_memory(&all);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_plan *plan = NULL;
        rn_session *session = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_plan_make(&recipe, rn_device_get_caps(sim), &options, &plan);
        if (s == RN_OK)
            s = rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
        assert_int_equal(held(), 0);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        assert_int_equal(s == RN_OK, !fired);
        if (!fired) break;
    }
}

static void what_cannot_be_compiled_is_named(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    rn_weight_source source = chain_memory(&all);
    rn_device *null;
    rn_plan *plan;
    rn_session *session;
    assert_ok(rn_null_device_create(true, &null));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(null), NULL, &plan));
    assert_fails(RN_UNSUPPORTED,
                 rn_session_create(plan, &source, &(rn_session_options){.device = null}, &session));
    assert_non_null(strstr(rn_last_error()->message, "matmul"));
    assert_int_equal(rn_ledger_total(rn_device_number(null)).now_bytes, 0);
    rn_plan_destroy(plan);
    rn_device_destroy(null);
}

// sim, but for the second block.
static rn_status refuse_second_block(const rn_device_caps *caps, const rn_graph *graph,
                                     uint64_t rows, uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    if (rn_graph_find(graph, RN_ROLE_WEIGHT, "layer.1.weight") != RN_NO_VALUE)
        return rn_fail(RN_UNSUPPORTED, "there is no such op as that of layer 1");
    return rn_device_get_caps(sim)->backend->estimate(caps, graph, rows, purpose_bytes);
}

static void blocks_that_are_refused_are_the_hosts(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    rn_device_caps caps = *rn_device_get_caps(sim);
    rn_backend picky = *caps.backend;
    picky.estimate = refuse_second_block;
    caps.backend = &picky;
    rn_plan_options options = {.host_caps = rn_cpu_caps(), .exact = true};
    rn_plan *plan;
    assert_fails(RN_UNSUPPORTED, rn_plan_make(&recipe, &caps, &options, &plan));
    assert_fails(RN_UNSUPPORTED, rn_plan_make(&recipe, &caps, NULL, &plan));
    options.exact = false;
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    assert_non_null(plan->host);
    assert_int_equal(plan->summary.host_blocks, 2);
    assert_int_equal(plan->summary.rows, ROWS);
    bool told = false;
    for (uint32_t i = 0; i < plan->reason_count; i++)
        told |= strstr(plan->reasons[i].text, "no such op") != NULL;
    assert_true(told);
    rn_session *session = open_session(plan);
    expect_rows(session, ROWS);
    expect_rows(session, 1);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void a_plan_needs_its_device(void **state) {
    (void)state;
    rn_plan *plan = make_plan(NULL);
    rn_weight_source source = chain_memory(&all);
    rn_session *session;
    assert_fails(RN_INVALID, rn_session_create(plan, &source, NULL, &session));
    rn_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executable_gives_the_bits_of_kernels),
        cmocka_unit_test(predicted_is_measured),
        cmocka_unit_test(every_budget_gives_the_same_numbers),
        cmocka_unit_test(both_sides_have_the_same_rows),
        cmocka_unit_test(below_the_floor_there_is_a_refusal),
        cmocka_unit_test(a_sweep_shows_the_budgets),
        cmocka_unit_test(a_text_model_says_the_same),
        cmocka_unit_test(an_estimate_that_was_too_low_is_refused_with_both_numbers),
        cmocka_unit_test(a_failed_run_is_told_and_forgotten_by_a_reset),
        cmocka_unit_test(a_run_can_be_cancelled),
        cmocka_unit_test(every_failing_allocation_is_a_clean_failure),
        cmocka_unit_test(what_cannot_be_compiled_is_named),
        cmocka_unit_test(blocks_that_are_refused_are_the_hosts),
        cmocka_unit_test(a_plan_needs_its_device),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
