// plan_test.c — whole plans: what they hold, why, when they are refused, and what may not be done.
#include "plan_fixture.h"

#include "base/fault.h"
#include "train/train_recipe.h"

#include <math.h>

static rn_plan *make(const rn_recipe *recipe, rn_plan_options options) {
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    assert_ok(rn_plan_make(recipe, &caps, &options, &plan));
    assert_true(rn_plan_is_valid(plan));
    return plan;
}

static rn_recipe builtin(const char *name) {
    rn_recipe recipe;
    assert_ok(rn_builtin_recipe(name, &recipe));
    return recipe;
}

static const char *reason(const rn_plan *plan, const char *move) {
    for (uint32_t i = 0; i < plan->reason_count; i++)
        if (strcmp(plan->reasons[i].move, move) == 0) return plan->reasons[i].text;
    return "";
}

static bool says(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

static uint64_t smallest_of(const rn_recipe *recipe, rn_plan_options options) {
    rn_plan *plan = make(recipe, options);
    uint64_t smallest = plan->summary.smallest_bytes;
    rn_plan_destroy(plan);
    return smallest;
}

// ---- inference ----------------------------------------------------------------------------------

static void without_a_limit_everything_stays_and_all_rows_run_at_once(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x64");
    rn_plan *plan = make(&recipe, (rn_plan_options){0});
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    assert_int_equal(s->rows, recipe.rows);
    assert_int_equal(s->streamed_bytes, 0);
    assert_int_equal(s->resident_blocks, s->block_count);
    assert_int_equal(s->staging_bytes, RN_PLAN_STAGING_BYTES);
    assert_int_equal(s->micro_batches, 1);
    assert_int_equal(plan->step_count, rn_graph_node_count(rn_plan_graph(plan)));
    assert_true(says(reason(plan, "stream"), "all weights are resident"));
    assert_string_equal(reason(plan, "chunk"), "");
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static void a_tight_budget_streams_weights_and_says_so(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x256");
    rn_plan_options options = {.budget_bytes = smallest_of(&recipe, (rn_plan_options){0})};
    rn_plan *plan = make(&recipe, options);
    assert_int_equal(plan->summary.planned_bytes, options.budget_bytes);
    assert_true(plan->slot_count > 0);
    assert_true(plan->summary.streamed_bytes > 0);
    assert_true(plan->summary.resident_blocks < plan->summary.block_count);
    assert_true(says(reason(plan, "stream"), "are read in each run"));
    assert_true(says(reason(plan, "chunk"), "rows a run instead of 512"));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static void write_nothing_to_read(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 1024));
    rn_graph_output(g, rn_op_softmax(g, rn_op_exp(g, x)), "y");
}

static void a_graph_without_weights_needs_no_staging(void **state) {
    (void)state;
    paper_model model = {write_nothing_to_read};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = 100;
    rn_plan *plan = make(&recipe, (rn_plan_options){0});
    assert_int_equal(plan->summary.staging_bytes, 0);
    // softmax is written over exp, or beside it: at most three of x's size.
    assert_true(plan->summary.arena_bytes <= 3 * 100 * 4096);
    assert_int_equal(plan->summary.live_peak_bytes, plan->summary.arena_bytes);
    assert_true(plan->summary.optimal);
    // One row at a time is the least.
    assert_true(plan->summary.smallest_bytes <= 3 * 4096);
    rn_plan_destroy(plan);
}

static void fewer_rows_take_more_runs(void **state) {
    (void)state;
    paper_model model = {write_nothing_to_read};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = 100;
    recipe.workload_rows = 1000;
    rn_plan *roomy = make(&recipe, (rn_plan_options){0});
    rn_plan *half =
        make(&recipe, (rn_plan_options){.budget_bytes = roomy->summary.planned_bytes - 1});
    assert_int_equal(half->summary.rows, 50);
    assert_true(says(reason(half, "chunk"), "50 rows a run instead of 100: 20 runs for 1000 rows"));
    assert_true(half->summary.seconds > roomy->summary.seconds);
    rn_plan_destroy(roomy);
    rn_plan_destroy(half);
}

// ---- passes -------------------------------------------------------------------------------------

// Wide rows, and a weight that is as large as some hundred of them.
static void write_wide(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 512));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "block %d", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "w%d", i);
        x = rn_op_matmul(g, x, rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(512, 512)),
                         RN_NO_VALUE);
    }
    rn_graph_output(g, x, "y");
}

// Where bytes are for one or the other: many rows a run make a prompt quick, resident weights make
// every row quick that comes after it.
static void rows_that_follow_one_by_one_want_weights_that_stay(void **state) {
    (void)state;
    paper_model model = {write_wide};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = 512;
    recipe.workload_rows = 4096;
    rn_plan_options options = {.budget_bytes = RN_PLAN_STAGING_BYTES + (9 << 19)};
    rn_plan *prompt = make(&recipe, options);
    recipe.decode_steps = 10000;
    rn_plan *passes = make(&recipe, options);
    assert_int_equal(prompt->summary.decode_steps, 0);
    assert_int_equal(passes->summary.decode_steps, 10000);
    assert_true(prompt->summary.rows > passes->summary.rows);
    assert_true(prompt->summary.streamed_bytes > passes->summary.streamed_bytes);
    assert_true(prompt->summary.prefill_seconds <= passes->summary.prefill_seconds);
    assert_true(prompt->summary.decode_seconds > passes->summary.decode_seconds);
    rn_plan_destroy(prompt);
    rn_plan_destroy(passes);
}

// A run on a device costs the host something, and what comes out of it crosses the link: 512
// numbers of each row.
static void a_run_costs_what_the_host_does_for_it(void **state) {
    (void)state;
    paper_model model = {write_wide};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *before = NULL, *after = NULL;
    recipe.rows = 32;
    recipe.workload_rows = 96;
    recipe.decode_steps = 10;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &before));
    caps.run_seconds = 1e-3;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &after));
    const rn_plan_summary *a = &before->summary, *b = &after->summary;
    double one = rn_cost_outputs(&caps, 4 * 512), all = rn_cost_outputs(&caps, 4 * 512 * 32);
    assert_true(one > 1e-3 && all > one);
    assert_true(fabs(b->decode_seconds - a->decode_seconds - one) < 1e-12);
    assert_true(fabs(b->prefill_seconds - a->prefill_seconds - 3 * all) < 1e-12);
    assert_true(fabs(after->tail_seconds - before->tail_seconds - one) <
                1e-12); // it comes at the end
    assert_int_equal(a->planned_bytes, b->planned_bytes);
    rn_plan_destroy(before);
    rn_plan_destroy(after);
}

// A step of many sequences has a row of each, in as many runs as that takes. Where weights are
// streamed it is counted as one of one row: what takes time then is their way.
static void a_step_has_a_row_of_each_sequence(void **state) {
    (void)state;
    paper_model model = {write_wide};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = 32;
    recipe.workload_rows = 96;
    recipe.decode_steps = 10;
    rn_plan *one = make(&recipe, (rn_plan_options){0});
    recipe.decode_rows = 96;
    rn_plan *all = make(&recipe, (rn_plan_options){0});
    const rn_plan_summary *s = &all->summary;
    assert_true(s->decode_seconds > one->summary.decode_seconds);
    assert_true(fabs(s->decode_seconds - s->prefill_seconds) < 1e-12); // three runs each
    assert_true(fabs(s->seconds - 11 * s->decode_seconds) < 1e-12);
    assert_int_equal(s->planned_bytes, one->summary.planned_bytes);
    rn_plan_destroy(one);
    rn_plan_destroy(all);
}

// ---- slices -------------------------------------------------------------------------------------

static uint64_t sliced_workspace(const rn_call *call) {
    return (call->slice_rows ? call->slice_rows : 256) * 4096ull;
}

static void write_attention(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 256, 1, 8));
    rn_value y = rn_op_attention(g, x, x, x, RN_NO_VALUE, (rn_attention_attrs){.causal = true});
    rn_graph_output(g, y, "y");
}

static void attention_is_sliced_where_that_makes_it_fit(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    memcpy(kernels, paper_kernels(), sizeof kernels);
    kernels[RN_OP_ATTENTION].workspace = sliced_workspace;
    paper_model model = {write_attention};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    caps.kernels = kernels;
    uint64_t before = UINT64_MAX;
    double seconds = 0;
    uint32_t rows = 0; // none; then fewer and fewer
    for (int i = 0; i == 0 || rows != 1; i++) {
        rn_plan_options options = {.budget_bytes = before == UINT64_MAX ? 0 : before - 1};
        assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
        assert_true(rn_plan_is_valid(plan));
        assert_true(i == 0 ? plan->summary.slice_rows == 0
                           : plan->summary.slice_rows > 0 &&
                                 (i == 1 || plan->summary.slice_rows < rows));
        rows = plan->summary.slice_rows;
        assert_true(plan->summary.seconds > seconds);
        assert_true(i == 0 || says(reason(plan, "slice"), "query rows at once"));
        before = plan->summary.planned_bytes;
        seconds = plan->summary.seconds;
        rn_plan_destroy(plan);
    }
    rn_plan_options options = {.budget_bytes = before - 1};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
}

static void attention_is_sliced_where_somebody_asks_for_it(void **state) {
    (void)state;
    static const uint32_t asked[] = {1000, 64, 63, 8, 3, 1}, taken[] = {64, 64, 8, 8, 1, 1};
    static rn_kernel kernels[RN_OP_COUNT];
    memcpy(kernels, paper_kernels(), sizeof kernels);
    kernels[RN_OP_ATTENTION].workspace = sliced_workspace;
    paper_model model = {write_attention};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    caps.kernels = kernels;
    for (int i = 0; i < 6; i++) {
        rn_plan_options options = {.slice_rows = asked[i]};
        assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
        assert_int_equal(plan->summary.slice_rows, taken[i]);
        rn_plan_destroy(plan);
    }
    // A kernel that takes no workspace has nothing to slice.
    caps.kernels = paper_kernels();
    rn_plan_options options = {.slice_rows = 8};
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    assert_int_equal(plan->summary.slice_rows, 0);
    rn_plan_destroy(plan);
}

// ---- training -----------------------------------------------------------------------------------

// As many in each layer; what is told is what the graph has more of.
static void cheap_values_of_every_layer_are_computed_again(void **state) {
    (void)state;
    static const char *const models[] = {"llama:1x64:train", "llama:2x64:train",
                                         "llama:4x64:train"};
    long count[3];
    for (int i = 0; i < 3; i++) {
        rn_recipe recipe = builtin(models[i]);
        rn_plan *plan = make(&recipe, (rn_plan_options){.exact = true});
        count[i] = strtol(reason(plan, "cheap"), NULL, 10);
        assert_true(count[i] > 0);
        rn_plan_destroy(plan);
        rn_recipe_destroy(&recipe);
    }
    assert_true(count[1] > count[0]);
    assert_int_equal(count[2] - count[1], 2 * (count[1] - count[0]));
}

static void training_recomputes_blocks_and_cuts_the_batch_as_far_as_needed(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x64:train");
    uint32_t most = recipe.max_micro_batches;
    recipe.max_micro_batches = 1;
    rn_plan *roomy = make(&recipe, (rn_plan_options){0});
    assert_int_equal(roomy->summary.recomputed_blocks, 0);
    assert_true(says(reason(roomy, "order"), "right behind its gradient"));
    assert_true(says(reason(roomy, "cheap"), "cheap values are computed again"));
    rn_plan *tight =
        make(&recipe, (rn_plan_options){.budget_bytes = roomy->summary.planned_bytes - 1});
    assert_true(tight->summary.recomputed_blocks > 0);
    assert_int_equal(tight->summary.micro_batches, 1);
    recipe.max_micro_batches = most;
    assert_true(rn_graph_node_count(tight->graph) > rn_graph_node_count(roomy->graph));
    assert_true(says(reason(tight, "recompute"), "computed again in the backward pass"));
    uint64_t smallest = smallest_of(&recipe, (rn_plan_options){0});
    rn_plan *floor = make(&recipe, (rn_plan_options){.budget_bytes = smallest});
    assert_true(floor->summary.micro_batches > 1);
    assert_true(says(reason(floor, "micro-batch"), "agrees to rounding"));
    assert_true(says(reason(floor, "order"), "are kept through the step"));
    rn_plan_destroy(roomy);
    rn_plan_destroy(tight);
    rn_plan_destroy(floor);
    rn_recipe_destroy(&recipe);
}

// One order of sums, that of single samples, at every budget; never below what is possible without.
static void exact_plans_are_cut_alike_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x64:train");
    rn_device_caps caps = paper_caps();
    uint64_t free_floor = smallest_of(&recipe, (rn_plan_options){0});
    uint64_t exact_floor = smallest_of(&recipe, (rn_plan_options){.exact = true});
    uint64_t budgets[] = {0, exact_floor};
    rn_plan *plan;
    assert_true(free_floor <= exact_floor);
    for (int i = 0; i < 2; i++) {
        plan = make(&recipe, (rn_plan_options){.budget_bytes = budgets[i], .exact = true});
        assert_int_equal(plan->summary.micro_batches, recipe.max_micro_batches);
        rn_plan_destroy(plan);
    }
    rn_plan_options options = {.budget_bytes = exact_floor - 1, .exact = true};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    assert_null(plan);
    rn_recipe_destroy(&recipe);
}

static void batch_statistics_are_cut_only_by_permission(void **state) {
    (void)state;
    rn_recipe recipe = builtin("simple:train");
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    assert_true(recipe.batch_statistics);
    uint64_t floor = smallest_of(&recipe, (rn_plan_options){0});
    uint64_t lossy = smallest_of(&recipe, (rn_plan_options){.allow_lossy = true});
    assert_true(lossy < floor);
    rn_plan_options options = {.budget_bytes = lossy};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    assert_true(says(rn_last_error()->hint, "with lossy moves allowed"));
    options.exact = true;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    assert_true(says(rn_last_error()->hint, "without exact and with lossy moves allowed"));
    plan = make(&recipe, (rn_plan_options){.budget_bytes = lossy, .allow_lossy = true});
    assert_true(plan->summary.micro_batches > 1);
    assert_true(says(reason(plan, "micro-batch"), "allowed"));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

// Two layers, trained with clipping by the global norm or without.
static bool clips;
static void write_clipped(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value weights[4], gradients[4], norm = RN_NO_VALUE;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 64)), y = x;
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d", i);
        rn_graph_block(g, name);
        weights[i] = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(64, 64));
        y = rn_op_tanh(g, rn_op_matmul(g, y, weights[i], RN_NO_VALUE));
    }
    assert_ok(rn_graph_gradient(g, rn_op_mse(g, y, x), weights, 4, gradients));
    rn_graph_set_place(g, 0, RN_PHASE_UPDATE);
    if (clips) norm = rn_graph_global_norm(g, gradients, 4);
    for (int i = 0; i < 4; i++) {
        rn_value gradient = clips ? rn_graph_clip(g, gradients[i], norm, 1) : gradients[i];
        rn_op_sgd(g, weights[i], gradient, RN_NO_VALUE,
                  (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate")});
    }
}

static void a_global_norm_keeps_all_gradients_and_says_so(void **state) {
    (void)state;
    paper_model model = {write_clipped};
    rn_recipe recipe = paper_recipe(&model);
    const uint64_t gradient = 64 * 64 * 4;
    clips = false;
    rn_plan *fused = make(&recipe, (rn_plan_options){0});
    clips = true;
    rn_plan *kept = make(&recipe, (rn_plan_options){0});
    assert_true(says(reason(kept, "order"), "the updates need all 4 gradients first"));
    assert_true(says(reason(kept, "order"), "64.0 KiB are kept"));
    assert_true(says(reason(fused, "order"), "3 of 4 updates run before"));
    // One gradient at a time against all four.
    assert_true(fused->summary.live_peak_bytes < 4 * gradient + 2 * gradient);
    assert_true(kept->summary.live_peak_bytes >= 4 * gradient + 4 * gradient);
    rn_plan_destroy(fused);
    rn_plan_destroy(kept);
}

static void trained_weights_never_leave(void **state) {
    (void)state;
    rn_recipe recipe = builtin("mlp:train");
    rn_plan_options options = {.budget_bytes = smallest_of(&recipe, (rn_plan_options){0})};
    rn_plan *plan = make(&recipe, options);
    assert_int_equal(plan->slot_count, 0);
    for (uint32_t u = 0; u < plan->group_count; u++)
        assert_true(plan->groups[u].resident);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static void frozen_weights_are_streamed_forward_and_backward(void **state) {
    (void)state;
    rn_llama_config config = {.layers = 8,
                              .dim = 64,
                              .heads = 2,
                              .kv_heads = 2,
                              .ffn = 128,
                              .vocab = 32,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = 4};
    rn_train_options train = {.frozen = "*proj*"};
    rn_recipe recipe;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 1, &train, &recipe));
    rn_plan_options options = {.budget_bytes = smallest_of(&recipe, (rn_plan_options){0})};
    rn_plan *plan = make(&recipe, options);
    uint32_t streamed = 0;
    for (uint32_t u = 0; u < plan->group_count; u++)
        streamed += !plan->groups[u].resident;
    assert_true(plan->slot_count > 0 && streamed > 4);
    assert_true(plan->load_count > streamed + streamed / 2);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

// ---- refusal ------------------------------------------------------------------------------------

static void a_refusal_shows_the_frugal_plan(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x256");
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    uint64_t smallest = smallest_of(&recipe, (rn_plan_options){0});
    rn_plan_options options = {.budget_bytes = smallest - 1};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    const rn_refusal *r = rn_last_refusal();
    assert_int_equal(r->smallest_budget_bytes, smallest);
    assert_int_equal(r->requested_bytes, smallest);
    assert_int_equal(r->budget_bytes, smallest - 1);
    assert_true(r->holder_count >= 3);
    bool has_staging = false, has_kv = false;
    for (size_t i = 0; i < r->holder_count; i++) {
        assert_true(i == 0 || r->holders[i].bytes <= r->holders[i - 1].bytes);
        has_staging |= r->holders[i].purpose == RN_PURPOSE_STAGING;
        has_kv |= r->holders[i].purpose == RN_PURPOSE_KV;
    }
    assert_true(has_staging && has_kv);
    assert_true(says(rn_last_error()->message, "llama:4x256"));
    options.budget_bytes = smallest;
    rn_plan_destroy(make(&recipe, options));
    rn_recipe_destroy(&recipe);
}

static void a_devices_own_memory_is_a_limit_too(void **state) {
    (void)state;
    rn_recipe recipe = builtin("mlp");
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    caps.memory_bytes = 1 << 20;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, NULL, &plan));
    assert_int_equal(rn_last_refusal()->budget_bytes, 1 << 20);
    rn_recipe_destroy(&recipe);
}

// A large weight and two small ones, a block each.
static void write_uneven(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 256));
    rn_graph_block(g, "a");
    rn_value w = rn_graph_weight(g, "large", RN_DTYPE_F32, RN_SHAPE(256, 256));
    x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    rn_graph_block(g, "b");
    w = rn_graph_weight(g, "small.0", RN_DTYPE_F32, RN_SHAPE(16, 256));
    x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    rn_graph_block(g, "c");
    w = rn_graph_weight(g, "small.1", RN_DTYPE_F32, RN_SHAPE(16, 16));
    rn_graph_output(g, rn_op_matmul(g, x, w, RN_NO_VALUE), "y");
}

// Copies of small ones take less than a second stage for the large one would.
static void the_hosts_smallest_budget_may_be_one_with_copies(void **state) {
    (void)state;
    paper_model model = {.write = write_uneven};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan_options options = {.offload = "small.*", .host_budget_bytes = 1};
    rn_plan *plan;
    recipe.rows = 2;
    caps.own_memory = true;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    options.host_budget_bytes = rn_last_refusal()->smallest_budget_bytes;
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    assert_true(plan->from_host);
    assert_int_equal(plan->summary.host_bytes, options.host_budget_bytes);
    rn_plan_destroy(plan);
    options.host_budget_bytes--;
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
}

static void write_no_nodes(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4));
}

static void write_only_views(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4));
    rn_graph_output(g, rn_op_reshape(g, x, RN_SHAPE(2, 2)), "y");
}

static void graphs_that_compute_nothing_and_missing_kernels_are_refused(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    paper_model model = {write_no_nodes};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    assert_fails(RN_INVALID, rn_plan_make(&recipe, &caps, NULL, &plan));
    model.write = write_only_views;
    assert_fails(RN_INVALID, rn_plan_make(&recipe, &caps, NULL, &plan));
    model.write = write_nothing_to_read;
    memcpy(kernels, paper_kernels(), sizeof kernels);
    kernels[RN_OP_SOFTMAX].run = NULL;
    caps.kernels = kernels;
    assert_fails(RN_UNSUPPORTED, rn_plan_make(&recipe, &caps, NULL, &plan));
    assert_true(says(rn_last_error()->message, "softmax"));
}

// ---- sweep --------------------------------------------------------------------------------------

static void a_sweep_goes_from_the_smallest_to_the_roomiest(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:4x256");
    rn_device_caps caps = paper_caps();
    rn_sweep_row rows[6];
    assert_ok(rn_plan_sweep(&recipe, &caps, NULL, rows, 6));
    assert_int_equal(rows[0].budget_bytes, rows[0].summary.smallest_bytes);
    assert_int_equal(rows[5].budget_bytes, rows[5].summary.planned_bytes);
    assert_int_equal(rows[5].summary.streamed_bytes, 0);
    for (int i = 0; i < 6; i++) {
        rn_plan *plan = make(&recipe, (rn_plan_options){.budget_bytes = rows[i].budget_bytes});
        assert_memory_equal(&plan->summary, &rows[i].summary, sizeof rows[i].summary);
        assert_true(i == 0 || rows[i].summary.seconds <= rows[i - 1].summary.seconds);
        rn_plan_destroy(plan);
    }
    assert_ok(rn_plan_sweep(&recipe, &caps, NULL, rows, 1));
    assert_int_equal(rows[0].budget_bytes, rows[0].summary.planned_bytes);
    rn_recipe_destroy(&recipe);
}

// ---- the checker --------------------------------------------------------------------------------

static void the_checker_sees_what_is_wrong(void **state) {
    (void)state;
    rn_recipe recipe = builtin("llama:2x256");
    rn_plan_options options = {.budget_bytes = smallest_of(&recipe, (rn_plan_options){0})};
    rn_plan *plan = make(&recipe, options);
    rn_plan_buffer *longest = NULL;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        rn_plan_buffer *b = &plan->buffers[i];
        if (b->kind == RN_BUFFER_VALUE && !b->always && b->last_step > b->first_step) longest = b;
    }
    assert_non_null(longest);
    longest->last_step--; // a lifetime that is too short
    assert_false(rn_plan_is_valid(plan));
    longest->last_step++;
    uint64_t offset = longest->offset;
    longest->offset = 0; // on top of the states
    assert_false(rn_plan_is_valid(plan));
    longest->offset = offset;
    longest->bytes -= 64;
    assert_false(rn_plan_is_valid(plan));
    longest->bytes += 64;
    plan->summary.planned_bytes++;
    assert_false(rn_plan_is_valid(plan));
    plan->summary.planned_bytes--;
    plan->loads[0].slot++;
    assert_false(rn_plan_is_valid(plan));
    plan->loads[0].slot--;
    plan->steps[plan->loads[0].read_step].next_run = false;
    assert_false(rn_plan_is_valid(plan));
    plan->steps[plan->loads[0].read_step].next_run = true;
    assert_true(rn_plan_is_valid(plan));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

// ---- torture ------------------------------------------------------------------------------------

static void torture(const char *name, uint64_t budget, rn_status expected) {
    rn_recipe recipe = builtin(name);
    rn_device_caps caps = paper_caps();
    rn_plan_options options = {.budget_bytes = budget};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_plan *plan = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_plan_make(&recipe, &caps, &options, &plan);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (!fired) {
            assert_int_equal(s, expected);
            assert_true(n > 10);
            rn_plan_destroy(plan);
            break;
        }
        assert_fails(RN_NO_MEMORY, s);
        assert_null(plan);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    rn_recipe_destroy(&recipe);
}

static void every_failing_allocation_is_a_clean_failure(void **state) {
    (void)state;
    torture("mlp", 0, RN_OK);
    torture("mlp:train", 0, RN_OK);
    torture("simple:train", 1000, RN_OVER_BUDGET);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_everything_stays_and_all_rows_run_at_once),
        cmocka_unit_test(a_tight_budget_streams_weights_and_says_so),
        cmocka_unit_test(a_graph_without_weights_needs_no_staging),
        cmocka_unit_test(fewer_rows_take_more_runs),
        cmocka_unit_test(rows_that_follow_one_by_one_want_weights_that_stay),
        cmocka_unit_test(a_run_costs_what_the_host_does_for_it),
        cmocka_unit_test(a_step_has_a_row_of_each_sequence),
        cmocka_unit_test(attention_is_sliced_where_that_makes_it_fit),
        cmocka_unit_test(attention_is_sliced_where_somebody_asks_for_it),
        cmocka_unit_test(cheap_values_of_every_layer_are_computed_again),
        cmocka_unit_test(training_recomputes_blocks_and_cuts_the_batch_as_far_as_needed),
        cmocka_unit_test(exact_plans_are_cut_alike_at_every_budget),
        cmocka_unit_test(batch_statistics_are_cut_only_by_permission),
        cmocka_unit_test(a_global_norm_keeps_all_gradients_and_says_so),
        cmocka_unit_test(trained_weights_never_leave),
        cmocka_unit_test(frozen_weights_are_streamed_forward_and_backward),
        cmocka_unit_test(a_refusal_shows_the_frugal_plan),
        cmocka_unit_test(a_devices_own_memory_is_a_limit_too),
        cmocka_unit_test(the_hosts_smallest_budget_may_be_one_with_copies),
        cmocka_unit_test(graphs_that_compute_nothing_and_missing_kernels_are_refused),
        cmocka_unit_test(a_sweep_goes_from_the_smallest_to_the_roomiest),
        cmocka_unit_test(the_checker_sees_what_is_wrong),
        cmocka_unit_test(every_failing_allocation_is_a_clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
