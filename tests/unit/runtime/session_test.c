// What goes into a session and comes out of it: names, sizes, rows, states, micro-batches; and what
// is refused.
#include "chain.h"

#include <ration/memory.h>

#include "backend/null/null.h"
#include "backend/sim/sim.h"
#include "base/fault.h"
#include "graph/graph_internal.h"

#define ROWS 5

static chain model = {.layers = 3, .width = 32, .rows = ROWS};

static int open_all(void **state) {
    (void)state;
    chain_open(&model);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    chain_close(&model);
    return 0;
}

typedef struct fixture {
    rn_plan *plan;
    rn_session *session;
} fixture;

static fixture open_model(void) {
    rn_weight_source source = chain_memory(&model);
    fixture f = {.plan = chain_plan(&model, rn_cpu_caps(), 0)};
    assert_ok(rn_session_create(f.plan, &source, NULL, &f.session));
    return f;
}

static void close_fixture(fixture *f) {
    rn_session_destroy(f->session);
    rn_plan_destroy(f->plan);
}

// ---- rows and sizes -----------------------------------------------------------------------------

static void a_row_is_the_same_among_few_and_among_many(void **state) {
    (void)state;
    fixture f = open_model();
    float all[ROWS * 32], some[ROWS * 32];
    assert_ok(chain_run(&model, f.session, ROWS, 4, all));
    for (uint64_t n = 1; n < ROWS; n++) {
        assert_ok(chain_run(&model, f.session, n, 4, some));
        assert_memory_equal(some, all, n * 32 * sizeof(float));
    }
    close_fixture(&f);
}

static void sizes_and_names_are_checked(void **state) {
    (void)state;
    fixture f = open_model();
    float x[ROWS * 32] = {0}, y[ROWS * 32];
    uint64_t row = 32 * sizeof(float);
    assert_fails(RN_NOT_FOUND, rn_session_set(f.session, "z", x, row));
    assert_fails(RN_INVALID, rn_session_set(f.session, "x", x, row - 1));
    assert_fails(RN_INVALID, rn_session_set(f.session, "x", x, 0));
    assert_fails(RN_INVALID, rn_session_set(f.session, "x", x, (ROWS + 1) * row));
    assert_fails(RN_INVALID, rn_session_run(f.session, 2)); // x was not set
    assert_ok(rn_session_set(f.session, "x", x, 2 * row));
    assert_fails(RN_INVALID, rn_session_run(f.session, 3)); // two rows were
    assert_fails(RN_INVALID, rn_session_run(f.session, 0));
    assert_fails(RN_INVALID, rn_session_run(f.session, ROWS + 1));
    assert_fails(RN_INVALID, rn_session_get(f.session, "y", y, 2 * row)); // before the run
    assert_ok(rn_session_run(f.session, 2));
    assert_fails(RN_INVALID, rn_session_get(f.session, "y", y, 3 * row));
    assert_fails(RN_NOT_FOUND, rn_session_get(f.session, "x", y, 2 * row));
    assert_ok(rn_session_get(f.session, "y", y, 2 * row));
    assert_fails(RN_INVALID, rn_session_run(f.session, 2)); // inputs are given anew for every run
    assert_fails(RN_NOT_FOUND, rn_session_set_scalar(f.session, "rate", 1));
    assert_fails(RN_NOT_FOUND, rn_session_put(f.session, "y", y, 2 * row));
    close_fixture(&f);
}

static void an_output_can_be_looked_at_where_it_lies(void **state) {
    (void)state;
    fixture f = open_model();
    uint64_t bytes = 1;
    float y[ROWS * 32];
    assert_null(rn_session_output(f.session, "y", &bytes)); // no run yet
    assert_int_equal(bytes, 0);
    assert_ok(chain_run(&model, f.session, 2, 1, y));
    const void *there = rn_session_output(f.session, "y", &bytes);
    assert_int_equal(bytes, 2 * 32 * sizeof(float));
    assert_memory_equal(there, y, bytes);
    assert_null(rn_session_output(f.session, "x", &bytes)); // no output
    close_fixture(&f);
}

static void a_weight_can_be_replaced(void **state) {
    (void)state;
    fixture f = open_model();
    float before[ROWS * 32], after[ROWS * 32];
    assert_ok(chain_run(&model, f.session, ROWS, 0, before));
    assert_fails(RN_INVALID, rn_session_put(f.session, "layer.0.weight", model.weights[1], 12));
    assert_ok(rn_session_put(f.session, "layer.0.weight", model.weights[1], model.weight_bytes));
    assert_ok(chain_run(&model, f.session, ROWS, 0, after));
    assert_memory_not_equal(before, after, sizeof before);
    assert_ok(rn_session_put(f.session, "layer.0.weight", model.weights[0], model.weight_bytes));
    assert_ok(chain_run(&model, f.session, ROWS, 0, after));
    assert_memory_equal(before, after, sizeof before);
    close_fixture(&f);
}

// ---- what is refused ----------------------------------------------------------------------------

static const void *find_nothing(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)name;
    (void)dtype;
    (void)bytes;
    return NULL;
}

static void a_missing_weight_is_named(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_session *session;
    assert_fails(RN_NOT_FOUND, rn_session_create(plan, &(rn_weight_source){.find = find_nothing},
                                                 NULL, &session));
    assert_non_null(strstr(rn_last_error()->message, "layer.0.weight"));
    assert_fails(RN_NOT_FOUND, rn_session_create(plan, NULL, NULL, &session));
    rn_plan_destroy(plan);
}

static void a_weight_of_another_type_or_size_is_named(void **state) {
    (void)state;
    chain wide = {.layers = 3, .width = 64, .rows = ROWS};
    chain half = {.layers = 3, .width = 32, .rows = ROWS, .dtype = RN_DTYPE_F16};
    chain few = {.layers = 2, .width = 32, .rows = ROWS};
    chain *others[] = {&wide, &half, &few};
    rn_status expected[] = {RN_INVALID, RN_INVALID, RN_NOT_FOUND};
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    for (int i = 0; i < 3; i++) {
        rn_checkpoint *checkpoint;
        rn_session *session;
        chain_open(others[i]);
        chain_write(others[i], test_path("other.safetensors"));
        assert_ok(rn_checkpoint_open(test_path("other.safetensors"), &checkpoint));
        assert_fails(
            expected[i],
            rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
        assert_non_null(strstr(rn_last_error()->message, "weight"));
        rn_checkpoint_close(checkpoint);
        chain_close(others[i]);
    }
    rn_plan_destroy(plan);
}

static void a_plan_for_another_device_is_refused(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&model);
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_device *null;
    rn_session *session;
    assert_ok(rn_null_device_create(false, &null));
    rn_session_options options = {.device = null};
    assert_fails(RN_INVALID, rn_session_create(plan, &source, &options, &session));
    memcpy(plan->caps.name, "null", sizeof "null");
    assert_fails(RN_UNSUPPORTED, rn_session_create(plan, &source, &options, &session));
    assert_non_null(strstr(rn_last_error()->message, "null has no kernel for matmul"));
    rn_device_destroy(null);
    rn_plan_destroy(plan);
}

static void the_budget_is_kept(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&model);
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_session *session;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held + plan->summary.arena_bytes - 1));
    assert_fails(RN_OVER_BUDGET, rn_session_create(plan, &source, NULL, &session));
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, held);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    rn_plan_destroy(plan);
}

static void the_ledger_shows_what_the_plan_says(void **state) {
    (void)state;
    rn_ledger_line before[RN_PURPOSE_COUNT];
    rn_checkpoint *checkpoint;
    rn_session *session;
    chain_write(&model, test_path("model.safetensors"));
    assert_ok(rn_checkpoint_open(test_path("model.safetensors"), &checkpoint));
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        before[p] = rn_ledger_read(RN_DEVICE_HOST, (rn_purpose)p);
    assert_ok(
        rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
    static const rn_purpose planned[] = {RN_PURPOSE_WEIGHTS, RN_PURPOSE_ACTIVATIONS, RN_PURPOSE_KV,
                                         RN_PURPOSE_WORKSPACE, RN_PURPOSE_STAGING};
    for (size_t i = 0; i < sizeof planned / sizeof planned[0]; i++)
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, planned[i]).now_bytes -
                             before[planned[i]].now_bytes,
                         plan->summary.purpose_bytes[planned[i]]);
    rn_session_destroy(session);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, (rn_purpose)p).now_bytes,
                         before[p].now_bytes);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

// ---- states, constants, scalars, micro-batches --------------------------------------------------

#define PARTS 4

// x (2, 3) summed over its rows, added to a sum; w -= rate * sum once, at the end.
static rn_status build_trainer(void *self, const rn_recipe_options *options, rn_graph **out) {
    static const float one[3] = {1, 1, 1};
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 3));
    rn_value scale = rn_graph_constant(g, "one", RN_DTYPE_F32, RN_SHAPE(3), one);
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value sum = rn_graph_state(g, "sum", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_GRADIENTS);
    rn_value count = rn_graph_state(g, "count", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    rn_graph_output(g, rn_op_mul(g, x, scale), "scaled");
    rn_value added = rn_op_accumulate(g, sum, rn_op_sum(g, x, 1, false));
    rn_graph_set_place(g, 0, RN_PHASE_UPDATE);
    rn_sgd_attrs attrs = {.rate = rn_graph_scalar(g, "rate")};
    rn_op_sgd(g, w, added, RN_NO_VALUE, attrs);
    rn_op_sgd(g, count, scale, RN_NO_VALUE, attrs); // a state that is not a sum: it stays
    return rn_graph_finish(g);
}

static const void *find_w(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static const float w[3] = {10, 20, 30};
    (void)self;
    (void)dtype;
    assert_int_equal(bytes, sizeof w);
    assert_string_equal(name, "w");
    return w;
}

static fixture open_trainer(void) {
    rn_recipe recipe = {.name = "trainer", .build = build_trainer};
    fixture f = {0};
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &f.plan));
    f.plan->summary.micro_batches = PARTS; // as if the planner had cut the batch
    assert_ok(rn_session_create(f.plan, &(rn_weight_source){.find = find_w},
                                &(rn_session_options){.audit = true}, &f.session));
    assert_ok(rn_session_set_scalar(f.session, "rate", 0.5));
    return f;
}

static void micro_batches_add_up_and_update_once(void **state) {
    (void)state;
    fixture f = open_trainer();
    float x[PARTS * 2][3], sums[3] = {0}, w[3], got[3], scaled[2][3];
    for (int i = 0; i < PARTS * 2; i++)
        for (int k = 0; k < 3; k++) {
            x[i][k] = (float)(i * 3 + k);
            sums[k] += x[i][k];
        }
    for (int run = 1; run <= 2; run++) {
        assert_ok(rn_session_set(f.session, "x", x, sizeof x));
        assert_ok(rn_session_run(f.session, 0));
        assert_ok(rn_session_get(f.session, "sum", got, sizeof got));
        assert_ok(rn_session_get(f.session, "w", w, sizeof w));
        for (int k = 0; k < 3; k++) {
            assert_true(got[k] == sums[k]); // of this run alone
            assert_true(w[k] == 10.0f * (float)(k + 1) - 0.5f * (float)run * sums[k]);
        }
        assert_ok(rn_session_get(f.session, "count", got, sizeof got));
        assert_true(got[0] == -0.5f * (float)run);
    }
    assert_ok(rn_session_get(f.session, "scaled", scaled, sizeof scaled));
    assert_memory_equal(scaled, x[PARTS * 2 - 2], sizeof scaled); // the last part's
    assert_int_equal(rn_session_get_facts(f.session).live_mismatch_step, UINT64_MAX);
    close_fixture(&f);
}

static void an_input_as_large_as_one_part_goes_to_each(void **state) {
    (void)state;
    fixture f = open_trainer();
    const float x[2][3] = {{1, 2, 3}, {4, 5, 6}};
    float sum[3];
    assert_ok(rn_session_set(f.session, "x", x, sizeof x));
    assert_ok(rn_session_run(f.session, 0));
    assert_ok(rn_session_get(f.session, "sum", sum, sizeof sum));
    assert_true(sum[0] == 5 * PARTS && sum[1] == 7 * PARTS && sum[2] == 9 * PARTS);
    assert_fails(RN_INVALID, rn_session_set(f.session, "x", x, sizeof x + 4));
    close_fixture(&f);
}

static void states_begin_as_zeros_and_can_be_put(void **state) {
    (void)state;
    fixture f = open_trainer();
    const float x[2][3] = {{0}}, put[3] = {7, 8, 9};
    float got[3];
    assert_ok(rn_session_get(f.session, "count", got, sizeof got));
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0);
    assert_ok(rn_session_put(f.session, "count", put, sizeof put));
    assert_ok(rn_session_put(f.session, "w", put, sizeof put));
    assert_ok(rn_session_set(f.session, "x", x, sizeof x));
    assert_ok(rn_session_run(f.session, 0));
    assert_ok(rn_session_get(f.session, "count", got, sizeof got));
    assert_true(got[0] == 6.5f && got[1] == 7.5f && got[2] == 8.5f);
    assert_ok(rn_session_get(f.session, "w", got, sizeof got));
    assert_memory_equal(got, put, sizeof put);
    assert_ok(rn_session_reset(f.session)); // states stay
    assert_ok(rn_session_get(f.session, "count", got, sizeof got));
    assert_true(got[0] == 6.5f);
    close_fixture(&f);
}

// ---- caches -------------------------------------------------------------------------------------

static rn_status build_cache(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value k = rn_graph_input(g, "k", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 1, 4));
    rn_value sequence = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value position = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value table = rn_graph_input(g, "page_table", RN_DTYPE_I32, RN_SHAPE(2, 2));
    rn_value kv = rn_graph_state(g, "kv", RN_DTYPE_F32, RN_SHAPE(4, 2, 1, 8, 4), RN_PURPOSE_KV);
    kv = rn_op_kv_append(g, kv, k, k, sequence, position, table);
    rn_attention_attrs attrs = {.scale = 1, .causal = true};
    rn_graph_output(g, rn_op_paged_attention(g, k, kv, sequence, position, table, attrs), "y");
    return rn_graph_finish(g);
}

static rn_status run_places(rn_session *session, const int32_t (*places)[2], uint64_t rows) {
    static const int32_t table[2][2] = {{0, 1}, {2, 3}};
    int32_t sequence[6], position[6];
    float k[6][4];
    for (uint64_t i = 0; i < rows; i++) {
        sequence[i] = places[i][0];
        position[i] = places[i][1];
        for (int d = 0; d < 4; d++)
            k[i][d] = (float)(i + 1);
    }
    assert_ok(rn_session_set(session, "k", k, rows * sizeof *k));
    assert_ok(rn_session_set(session, "sequence", sequence, rows * sizeof *sequence));
    assert_ok(rn_session_set(session, "position", position, rows * sizeof *position));
    assert_ok(rn_session_set(session, "page_table", table, sizeof table));
    return rn_session_run(session, rows);
}

// Kernels write the rows of a call side by side: neither would be the last.
static void two_rows_at_one_place_of_a_cache_are_refused(void **state) {
    (void)state;
    static const int32_t apart[][2] = {{0, 0}, {1, 0}, {0, 1}, {0, 2}, {-1, 0}, {-1, 0}};
    static const int32_t equal[][2] = {{0, 3}, {0, 4}, {0, 5}, {1, 4}, {0, 1}, {0, 5}};
    static const int32_t twice[][2] = {{1, 1}, {1, 1}};
    static const int32_t gaps[][2] = {{0, 3}, {0, 5}, {0, 7}, {0, 4}, {0, 6}};
    rn_device *devices[2] = {NULL, NULL};
    assert_ok(rn_sim_device_create(NULL, &devices[1]));
    for (int i = 0; i < 2; i++) {
        rn_recipe recipe = {.name = "cache", .build = build_cache, .rows = 6};
        const rn_device_caps *caps = devices[i] ? rn_device_get_caps(devices[i]) : rn_cpu_caps();
        rn_session_options options = {.device = devices[i]};
        fixture f;
        assert_ok(rn_plan_make(&recipe, caps, NULL, &f.plan));
        assert_ok(rn_session_create(f.plan, &(rn_weight_source){0}, &options, &f.session));
        assert_ok(run_places(f.session, apart, 6));
        assert_fails(RN_INVALID, run_places(f.session, equal, 6));
        assert_string_equal(rn_last_error()->message,
                            "rows 2 and 5 are both position 5 of sequence 0");
        assert_fails(RN_INVALID, run_places(f.session, twice, 2));
        assert_ok(run_places(f.session, gaps, 5)); // nothing is broken by a refusal
        close_fixture(&f);
    }
    rn_device_destroy(devices[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_the_same_among_few_and_among_many),
        cmocka_unit_test(sizes_and_names_are_checked),
        cmocka_unit_test(an_output_can_be_looked_at_where_it_lies),
        cmocka_unit_test(a_weight_can_be_replaced),
        cmocka_unit_test(a_missing_weight_is_named),
        cmocka_unit_test(a_weight_of_another_type_or_size_is_named),
        cmocka_unit_test(a_plan_for_another_device_is_refused),
        cmocka_unit_test(the_budget_is_kept),
        cmocka_unit_test(the_ledger_shows_what_the_plan_says),
        cmocka_unit_test(micro_batches_add_up_and_update_once),
        cmocka_unit_test(an_input_as_large_as_one_part_goes_to_each),
        cmocka_unit_test(states_begin_as_zeros_and_can_be_put),
        cmocka_unit_test(two_rows_at_one_place_of_a_cache_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
