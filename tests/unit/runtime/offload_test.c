// labels: threads
// Weights offloaded by name, loaded on demand, cleared; blocks swapped: the same bits whatever
// stays, what stays is what was asked, and the ledger has what was planned.
#include "chain.h"

#include <ration/log.h>
#include <ration/memory.h>
#include <ration/offload.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "device/device.h"

enum { ROWS = 3, LAYERS = 9, WIDTH = 96 };

static chain small = {.layers = LAYERS, .width = WIDTH, .rows = ROWS};
static float *expected;
static rn_device *sim;
static rn_recipe recipe;
static rn_weight_source weights;

static int open_all(void **state) {
    (void)state;
    rn_session *session;
    chain_open(&small);
    recipe = chain_recipe(&small);
    weights = chain_memory(&small);
    rn_plan *plan = chain_plan(&small, rn_cpu_caps(), 0);
    assert_ok(rn_session_create(plan, &weights, NULL, &session));
    expected = malloc(ROWS * WIDTH * sizeof *expected);
    assert_ok(chain_run(&small, session, ROWS, 0, expected));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    return rn_sim_device_create(NULL, &sim) == RN_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    rn_device_destroy(sim);
    free(expected);
    chain_close(&small);
    return 0;
}

static uint64_t on_device(void) {
    return rn_ledger_total(sim->caps.device).now_bytes;
}

static void expect_y(rn_session *session) {
    float y[ROWS * WIDTH];
    assert_ok(chain_run(&small, session, ROWS, 0, y));
    assert_memory_equal(y, expected, sizeof y);
}

// ---- the planner's part -------------------------------------------------------------------------

static rn_plan *plan_with(const rn_plan_options *options) {
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(sim), options, &plan));
    assert_true(rn_plan_is_valid(plan));
    return plan;
}

static bool stays(const rn_plan *plan, uint32_t layer) {
    char name[32];
    snprintf(name, sizeof name, "layer.%u.weight", layer);
    rn_value value = rn_graph_find(plan->graph, RN_ROLE_WEIGHT, name);
    assert_int_not_equal(value, RN_NO_VALUE);
    return plan->groups[plan->places[value].group].resident;
}

static uint32_t count_staying(const rn_plan *plan) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < LAYERS; i++)
        count += stays(plan, i);
    return count;
}

static void what_is_named_stays_or_goes_at_every_budget(void **state) {
    (void)state;
    rn_plan *roomy = plan_with(NULL);
    uint64_t most = rn_plan_get_summary(roomy)->planned_bytes;
    uint64_t group = most / LAYERS;
    rn_plan_destroy(roomy);
    for (uint64_t budget = most + group; budget > most / 2; budget -= group / 2) {
        rn_plan *plan = plan_with(&(rn_plan_options){.budget_bytes = budget,
                                                     .keep = "layer.3.*,layer.5.weight",
                                                     .offload = "layer.?.weight"});
        assert_true(stays(plan, 3) && stays(plan, 5));
        assert_int_equal(count_staying(plan), 2); // the rest matches, and keeping counts for more
        rn_plan_destroy(plan);
    }
    rn_plan *plan = plan_with(&(rn_plan_options){.offload = "layer.2.weight,layer.7.*"});
    assert_false(stays(plan, 2) || stays(plan, 7));
    assert_int_equal(count_staying(plan), LAYERS - 2);
    assert_string_equal(plan->options.offload, "layer.2.weight,layer.7.*");
    rn_plan_destroy(plan);
}

// Small weights share a weight group with their neighbours, but not with those of another fate.
static void names_within_a_block_are_told_apart(void **state) {
    (void)state;
    rn_recipe llama;
    rn_plan *plan;
    rn_plan_options options = {.keep = "*norm*,*.1.*.k_proj.*", .offload = "*mlp*,*.k_proj.*"};
    assert_ok(rn_builtin_recipe("llama:3x64", &llama));
    assert_ok(rn_plan_make(&llama, rn_device_get_caps(sim), &options, &plan));
    uint64_t most = rn_plan_get_summary(plan)->planned_bytes;
    uint64_t least = rn_plan_get_summary(plan)->smallest_bytes;
    rn_plan_destroy(plan);
    for (uint64_t budget = most; budget >= least; budget -= (most - least) / 5 + 1) {
        options.budget_bytes = budget;
        assert_ok(rn_plan_make(&llama, rn_device_get_caps(sim), &options, &plan));
        assert_true(rn_plan_is_valid(plan));
        for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++) {
            const rn_value_info *info = rn_graph_value(plan->graph, v);
            if (info->role != RN_ROLE_WEIGHT || plan->places[v].group == RN_NO_LOAD) continue;
            bool resident = plan->groups[plan->places[v].group].resident;
            bool kept = strstr(info->name, "norm") || strstr(info->name, ".1.self_attn.k_proj");
            if (kept) assert_true(resident);
            if (!kept && (strstr(info->name, "mlp") || strstr(info->name, "k_proj")))
                assert_false(resident);
        }
        rn_plan_destroy(plan);
    }
    rn_recipe_destroy(&llama);
}

// One that passes through alone would never leave its slot: another goes with it.
static void a_single_one_has_company(void **state) {
    (void)state;
    rn_plan *plan = plan_with(&(rn_plan_options){.offload = "layer.4.weight"});
    assert_false(stays(plan, 4));
    assert_int_equal(count_staying(plan), LAYERS - 2);
    rn_plan_destroy(plan);
}

static void limits_of_blocks_and_bytes_are_kept(void **state) {
    (void)state;
    rn_plan *plan;
    for (uint32_t blocks = 1; blocks < LAYERS - 1; blocks++) {
        plan = plan_with(&(rn_plan_options){.resident_blocks = blocks});
        assert_int_equal(count_staying(plan), blocks);
        assert_int_equal(rn_plan_get_summary(plan)->resident_blocks, blocks);
        uint64_t bytes = plan->resident_bytes;
        rn_plan_destroy(plan);
        plan = plan_with(&(rn_plan_options){.resident_bytes = bytes});
        assert_int_equal(count_staying(plan), blocks);
        rn_plan_destroy(plan);
        plan = plan_with(&(rn_plan_options){.resident_bytes = bytes - 1});
        assert_int_equal(count_staying(plan), blocks - 1);
        rn_plan_destroy(plan);
    }
    plan = plan_with(&(rn_plan_options){.resident_blocks = RN_NO_BLOCKS});
    assert_int_equal(count_staying(plan), 0);
    rn_plan_destroy(plan);
    plan = plan_with(&(rn_plan_options){.resident_blocks = LAYERS});
    assert_int_equal(count_staying(plan), LAYERS);
    rn_plan_destroy(plan);
    plan = plan_with(&(rn_plan_options){.resident_blocks = 2, .keep = "layer.8.*"});
    assert_true(stays(plan, 8));
    assert_int_equal(count_staying(plan), 2);
    rn_plan_destroy(plan);
}

static void what_makes_no_sense_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        rn_plan_options options;
        rn_status status;
        const char *text;
    } cases[] = {
        {{.keep = "layer.1.weight,embed*"}, RN_INVALID, "no weight is called 'embed*'"},
        {{.offload = "layer.10.weight"}, RN_INVALID, "no weight is called 'layer.10.weight'"},
        {{.keep = "layer.1.*,layer.2.*", .resident_blocks = 1}, RN_INVALID, "layer.1.*,layer.2.*"},
        {{.keep = "*", .resident_bytes = 1000}, RN_INVALID, "('*')"},
    };
    rn_plan *plan;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_status s = rn_plan_make(&recipe, rn_device_get_caps(sim), &cases[i].options, &plan);
        assert_fails(cases[i].status, s);
        assert_non_null(strstr(rn_last_error()->message, cases[i].text));
        assert_null(plan);
    }
}

static void a_keep_list_that_does_not_fit_is_named(void **state) {
    (void)state;
    rn_plan *all = plan_with(NULL), *plan;
    rn_plan_options options = {.budget_bytes = rn_plan_get_summary(all)->planned_bytes / 2,
                               .keep = "layer.*"};
    rn_plan_destroy(all);
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, rn_device_get_caps(sim), &options, &plan));
    assert_non_null(strstr(rn_last_error()->message, "for 'layer.0.weight' and 8 more to be kept"));
    assert_string_equal(rn_last_refusal()->holders[0].name, "weights to be kept");
    options.budget_bytes = rn_last_refusal()->smallest_budget_bytes;
    plan = plan_with(&options);
    rn_plan_destroy(plan);
    options.budget_bytes /= 2;
    options.keep = NULL; // without the list there is room
    plan = plan_with(&options);
    rn_plan_destroy(plan);
}

// ---- the manager --------------------------------------------------------------------------------

static rn_session *session_of(rn_offload_manager *manager) {
    rn_session *session;
    assert_ok(rn_offload_session(manager, &session));
    return session;
}

static bool is_resident(const rn_offload_manager *manager, const char *name) {
    bool resident;
    assert_ok(rn_offload_is_resident(manager, name, &resident));
    return resident;
}

static void expect_ledger(const rn_offload_manager *manager) {
    rn_offload_info info = rn_offload_get_info(manager);
    assert_int_equal(on_device(), info.device_bytes);
    assert_int_equal(info.device_bytes,
                     rn_plan_get_summary(rn_offload_plan(manager))->planned_bytes);
    assert_int_equal(info.resident_weights + info.offloaded_weights, LAYERS);
}

static void names_are_offloaded_loaded_and_cleared(void **state) {
    (void)state;
    rn_offload_manager *manager;
    rn_offload_given given;
    assert_ok(rn_offload_manager_create(&recipe, &weights, sim, NULL, &manager));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, LAYERS);
    expect_y(session_of(manager));
    uint64_t whole = on_device();

    assert_ok(rn_offload_weights(manager, "layer.*", "layer.0.weight,layer.8.weight"));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, 2);
    assert_true(is_resident(manager, "layer.0.weight") && !is_resident(manager, "layer.1.weight"));
    assert_true(on_device() < whole / 2);
    expect_ledger(manager);
    expect_y(session_of(manager));

    assert_ok(rn_offload_load(manager, "layer.4.weight"));
    assert_ok(rn_offload_load(manager, "layer.5.weight"));
    assert_true(is_resident(manager, "layer.4.weight") && is_resident(manager, "layer.5.weight"));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, 4);
    expect_ledger(manager);
    expect_y(session_of(manager));

    uint64_t before = on_device();
    assert_ok(rn_offload_clear_inactive(manager, &given));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, 2);
    assert_true(given.device_bytes > 0 && given.device_bytes == before - on_device());
    expect_ledger(manager);
    expect_y(session_of(manager));

    assert_ok(rn_offload_load(manager, "layer.?.weight")); // all of them
    assert_int_equal(on_device(), whole);
    expect_y(session_of(manager));
    rn_offload_manager_destroy(manager);
    assert_int_equal(on_device(), 0);
}

// What the planner found room for goes, too, and it is measured.
static void clearing_leaves_the_keep_list_only(void **state) {
    (void)state;
    rn_offload_manager *manager;
    rn_offload_given given;
    assert_ok(rn_offload_manager_create(&recipe, &weights, sim,
                                        &(rn_plan_options){.keep = "layer.2.*"}, &manager));
    uint64_t whole = on_device();
    assert_int_equal(rn_offload_get_info(manager).resident_weights, LAYERS);
    assert_ok(rn_offload_clear_inactive(manager, &given));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, 1);
    assert_true(is_resident(manager, "layer.2.weight"));
    assert_int_equal(given.device_bytes, whole - on_device());
    expect_y(session_of(manager));
    rn_offload_manager_destroy(manager);
}

static void a_refused_change_changes_nothing(void **state) {
    (void)state;
    rn_offload_manager *manager;
    rn_plan *all = plan_with(NULL);
    rn_plan_options options = {.budget_bytes = rn_plan_get_summary(all)->planned_bytes / 2};
    rn_plan_destroy(all);
    bool resident;
    assert_ok(rn_offload_manager_create(&recipe, &weights, sim, &options, &manager));
    rn_session *session = session_of(manager);
    uint64_t held = on_device();
    assert_fails(RN_OVER_BUDGET, rn_offload_load(manager, "layer.*"));
    assert_fails(RN_INVALID, rn_offload_load(manager, "nothing"));
    assert_fails(RN_INVALID, rn_offload_weights(manager, "nothing", NULL));
    assert_fails(RN_NOT_FOUND, rn_offload_is_resident(manager, "nothing", &resident));
    assert_ptr_equal(session, session_of(manager));
    assert_int_equal(on_device(), held);
    expect_y(session);
    rn_offload_manager_destroy(manager);
}

static void a_fuller_device_gets_a_smaller_plan_and_then_a_larger_one(void **state) {
    (void)state;
    enum { ROOM = 64 << 20 };
    rn_plan *all = plan_with(NULL);
    uint64_t whole = rn_plan_get_summary(all)->planned_bytes;
    rn_plan_destroy(all);
    rn_offload_manager *manager;
    rn_device *device;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.memory_bytes = ROOM}, &device));
    rn_sim_device_take_away(device, ROOM - whole / 2);
    assert_ok(rn_offload_manager_create(&recipe, &weights, device, NULL, &manager));
    rn_offload_info info = rn_offload_get_info(manager);
    assert_true(info.device_bytes <= whole / 2 && info.offloaded_weights > 0);
    assert_int_equal(info.free_bytes, whole / 2 - info.device_bytes);
    expect_y(session_of(manager));
    rn_sim_device_take_away(device, 0);
    assert_ok(rn_offload_load(manager, "layer.0.*"));
    assert_int_equal(rn_offload_get_info(manager).resident_weights, LAYERS);
    rn_offload_manager_destroy(manager);
    rn_device_destroy(device);
}

// ---- states -------------------------------------------------------------------------------------

// y = (x + what was put) w1 w2 w3: a state beside weights.
static rn_status build_counter(void *self, const rn_recipe_options *options, rn_graph **out) {
    rn_graph *g;
    (void)self, (void)options;
    RN_TRY(rn_graph_create(&g));
    *out = g;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 4));
    rn_value sum = rn_graph_state(g, "sum", RN_DTYPE_F32, RN_SHAPE(4, 4), RN_PURPOSE_KV);
    rn_value y = rn_op_add(g, x, sum);
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        rn_graph_block(g, name);
        rn_value w = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(4, 4));
        y = rn_op_matmul(g, y, w, RN_NO_VALUE);
    }
    rn_graph_output(g, y, "y");
    return rn_graph_finish(g);
}

static const void *find_identity(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static const float identity[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    (void)self, (void)name, (void)dtype;
    return bytes == sizeof identity ? identity : NULL;
}

static void states_are_carried_over(void **state) {
    (void)state;
    const rn_recipe counter = {.name = "counter", .build = build_counter};
    const rn_weight_source source = {.find = find_identity};
    float x[16], sum[16], y[16];
    rn_offload_manager *manager;
    assert_ok(rn_offload_manager_create(&counter, &source, sim, NULL, &manager));
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
        sum[i] = 100;
    }
    assert_ok(rn_session_put(session_of(manager), "sum", sum, sizeof sum));
    assert_ok(rn_offload_weights(manager, "w0,w2", NULL));
    assert_false(is_resident(manager, "w0") || is_resident(manager, "w2"));
    assert_ok(rn_offload_clear_inactive(manager, NULL));
    rn_session *session = session_of(manager);
    assert_ok(rn_session_set(session, "x", x, sizeof x));
    assert_ok(rn_session_run(session, 0));
    assert_ok(rn_session_get(session, "y", y, sizeof y));
    for (int i = 0; i < 16; i++)
        assert_true(y[i] == 100 + (float)i);
    rn_offload_manager_destroy(manager);
}

static void what_trains_is_none_of_its_business(void **state) {
    (void)state;
    rn_recipe training;
    rn_offload_manager *manager;
    assert_ok(rn_builtin_recipe("mlp:train", &training));
    assert_fails(RN_UNSUPPORTED,
                 rn_offload_manager_create(&training, &weights, NULL, NULL, &manager));
    assert_null(manager);
    rn_recipe_destroy(&training);
    assert_ok(rn_builtin_recipe("mlp:train", &training));
    rn_plan *plan;
    assert_fails(RN_INVALID,
                 rn_plan_make(&training, rn_cpu_caps(), &(rn_plan_options){.offload = "*"}, &plan));
    assert_non_null(strstr(rn_last_error()->message, "cannot be offloaded"));
    rn_recipe_destroy(&training);
}

// ---- the swapper --------------------------------------------------------------------------------

static rn_block_swapper *swap_with(rn_device *device, const rn_plan_options *options) {
    rn_block_swapper *swapper;
    assert_ok(rn_block_swapper_create(&recipe, &weights, device, options, &swapper));
    return swapper;
}

// Every block once, in order; streamed ones are brought before they are needed and freed after.
static void expect_schedule(const rn_block_swapper *swapper, uint32_t blocks) {
    rn_swap rows[LAYERS];
    uint32_t count, staying = 0;
    assert_ok(rn_block_swapper_schedule(swapper, rows, LAYERS, &count));
    assert_int_equal(count, LAYERS);
    for (uint32_t i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %u", i);
        assert_string_equal(rows[i].block, name);
        snprintf(name, sizeof name, "layer.%u.weight", i);
        assert_string_equal(rows[i].weight, name);
        assert_true(rows[i].weights == 1 && rows[i].bytes >= small.weight_bytes);
        staying += rows[i].resident;
        if (rows[i].resident) continue;
        assert_true(rows[i].brought_before || rows[i].brought_step < rows[i].needed_step);
        assert_true(rows[i].needed_step < rows[i].freed_step);
    }
    assert_int_equal(staying, blocks);
}

static void swapped_blocks_give_the_same_bits_at_every_number(void **state) {
    (void)state;
    rn_device *devices[] = {sim, NULL};
    for (int d = 0; d < 2; d++)
        for (uint32_t blocks = 0; blocks <= LAYERS; blocks++) {
            rn_plan_options options = {.resident_blocks = blocks ? blocks : RN_NO_BLOCKS};
            rn_block_swapper *swapper = swap_with(devices[d], &options);
            const rn_plan_summary *s = rn_plan_get_summary(rn_block_swapper_plan(swapper));
            float *x = chain_input(&small, s->rows, 0), y[ROWS * WIDTH];
            uint64_t bytes = s->rows * WIDTH * sizeof(float);
            assert_int_equal(s->rows, ROWS);
            for (int run = 0; run < 3; run++) {
                rn_session *session = rn_block_swapper_session(swapper);
                assert_ok(rn_session_set(session, "x", x, bytes));
                assert_ok(rn_block_swapper_forward(swapper, s->rows));
                assert_ok(rn_session_get(session, "y", y, bytes));
                assert_memory_equal(y, expected, bytes);
            }
            if (d == 0) assert_int_equal(on_device(), s->planned_bytes);
            // With one block less than all of them, its ring would never turn.
            expect_schedule(swapper, blocks == LAYERS - 1 ? LAYERS - 2 : blocks);
            free(x);
            rn_block_swapper_destroy(swapper);
        }
    assert_int_equal(on_device(), 0);
}

static rn_status append(void *self, const char *text, size_t bytes) {
    char *out = self;
    size_t used = strlen(out);
    assert_true(used + bytes < 8192);
    memcpy(out + used, text, bytes);
    out[used + bytes] = 0;
    return RN_OK;
}

static void the_schedule_can_be_shown(void **state) {
    (void)state;
    static char table[8192], text[8192];
    rn_block_swapper *swapper = swap_with(sim, &(rn_plan_options){.resident_blocks = 4});
    assert_ok(rn_block_swapper_print(swapper, (rn_sink){table, append}));
    assert_non_null(strstr(table, "brought"));
    assert_non_null(strstr(table, "layer 8"));
    assert_non_null(strstr(table, "stays"));
    assert_non_null(strstr(table, "slot 0"));
    assert_ok(rn_block_swapper_json(swapper, (rn_sink){text, append}));
    assert_non_null(strstr(text, "\"brought_before\""));
    assert_non_null(strstr(text, "\"block\""));
    rn_block_swapper_destroy(swapper);
}

// ---- refused memory -----------------------------------------------------------------------------

static rn_status live(void) {
    rn_offload_manager *manager = NULL;
    rn_session *session;
    rn_status s = rn_offload_manager_create(&recipe, &weights, sim, NULL, &manager);
    if (s == RN_OK) s = rn_offload_weights(manager, "layer.*", "layer.0.*");
    if (s == RN_OK) s = rn_offload_load(manager, "layer.3.*");
    if (s == RN_OK) s = rn_offload_clear_inactive(manager, NULL);
    if (s == RN_OK) s = rn_offload_session(manager, &session);
    rn_offload_manager_destroy(manager);
    return s;
}

static rn_status live_swapping(void) {
    rn_block_swapper *swapper = NULL;
    uint32_t count;
    rn_status s = rn_block_swapper_create(&recipe, &weights, sim,
                                          &(rn_plan_options){.resident_blocks = 3}, &swapper);
    if (s == RN_OK) s = rn_block_swapper_schedule(swapper, NULL, 0, &count);
    rn_block_swapper_destroy(swapper);
    return s;
}

static void no_refused_allocation_is_fatal(void **state) {
    (void)state;
    assert_true(survive_refusals(live) > 60);
    assert_true(survive_refusals(live_swapping) > 20);
    assert_int_equal(on_device(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_named_stays_or_goes_at_every_budget),
        cmocka_unit_test(names_within_a_block_are_told_apart),
        cmocka_unit_test(a_single_one_has_company),
        cmocka_unit_test(limits_of_blocks_and_bytes_are_kept),
        cmocka_unit_test(what_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(a_keep_list_that_does_not_fit_is_named),
        cmocka_unit_test(names_are_offloaded_loaded_and_cleared),
        cmocka_unit_test(clearing_leaves_the_keep_list_only),
        cmocka_unit_test(a_refused_change_changes_nothing),
        cmocka_unit_test(a_fuller_device_gets_a_smaller_plan_and_then_a_larger_one),
        cmocka_unit_test(states_are_carried_over),
        cmocka_unit_test(what_trains_is_none_of_its_business),
        cmocka_unit_test(swapped_blocks_give_the_same_bits_at_every_number),
        cmocka_unit_test(the_schedule_can_be_shown),
        cmocka_unit_test(no_refused_allocation_is_fatal),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
