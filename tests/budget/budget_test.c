// The signature: each builtin model, tiny, at budgets from roomy down to the floor. The answer does
// not change by a bit; the live bytes that the kernels' arguments show are the plan's, step by
// step; the ledger shows what the plan says and stays within the budget; and below the floor there
// is a refusal, not a run.
#include "support.h"

#include <ration/device.h>
#include <ration/memory.h>
#include <ration/session.h>
#include <ration/writer.h>

#include "base/checked.h"
#include "base/str.h"
#include "graph/fuse.h"
#include "train/train_recipe.h"
#include "plan/plan.h"

#define BOOKS ((uint64_t)1 << 20) // a session's tables and the audit's: not planned, in the reserve
#define STEPS 2                   // of training

static uint32_t fusions; // of the plans' device

static const rn_device_caps *device_caps(void) {
    static rn_device_caps caps;
    caps = *rn_cpu_caps();
    caps.fusions = fusions;
    return &caps;
}

// ---- made-up weights ----------------------------------------------------------------------------

static float noise(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
}

// Small for matrices, around 1 for what scales or divides.
static void make_weight(const rn_value_info *info, float *out, uint64_t count) {
    uint32_t seed = 1;
    for (const char *c = info->name; *c; c++)
        seed = seed * 31 + (uint8_t)*c;
    bool scales = info->shape.rank == 1 && !strstr(info->name, "bias");
    for (uint64_t i = 0; i < count; i++)
        out[i] = scales ? 1 + 0.1f * noise(&seed) : 0.1f * noise(&seed);
}

static void append_weight(rn_writer *writer, const rn_value_info *info) {
    uint64_t count = rn_shape_elements(info->shape, 1), bytes;
    float *values = malloc(count * sizeof(float));
    void *data = malloc(count * sizeof(float));
    make_weight(info, values, count);
    assert_true(rn_dtype_bytes(info->dtype, count, &bytes));
    assert_ok(rn_dtype_from_f32(info->dtype, values, data, count));
    assert_ok(rn_writer_append(writer, data, bytes));
    free(values);
    free(data);
}

static void write_weights(const rn_graph *graph, const char *path) {
    rn_write_tensor tensors[256];
    rn_value weights[256];
    uint32_t count = 0;
    rn_writer *writer;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        assert_true(count < 256);
        tensors[count] = (rn_write_tensor){.name = rn_str_from(info->name),
                                           .dtype = info->dtype,
                                           .rank = info->shape.rank,
                                           .dims = info->shape.dims};
        weights[count++] = v;
    }
    assert_ok(rn_writer_create(path, tensors, count, NULL, &writer));
    for (uint32_t i = 0; i < count; i++)
        append_weight(writer, rn_graph_value(graph, weights[i]));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

// ---- inputs -------------------------------------------------------------------------------------

static bool has_rows(const rn_value_info *info) {
    return info->shape.rank && info->shape.dims[0] == RN_ROWS;
}

// Element `at` of an i32 input, when `first` rows came before and this run has n.
static int32_t whole_number(const char *name, uint64_t at, uint64_t first, uint64_t n) {
    if (strcmp(name, "rows") == 0) return (int32_t)(n - 1);
    if (strcmp(name, "sequence") == 0) return 0;
    if (strcmp(name, "position") == 0) return (int32_t)(first + at);
    if (strcmp(name, "page_table") == 0) return (int32_t)at;
    return (int32_t)((first + at) * 7 % 10); // tokens, targets
}

// Inputs of micro-batches are borrowed until the run returns.
enum { MOST_INPUTS = 16 };
static float *given[MOST_INPUTS];
static uint32_t given_count;

static void release_inputs(void) {
    while (given_count)
        free(given[--given_count]);
}

static void set_input(rn_session *session, const rn_value_info *info, uint64_t first, uint64_t n) {
    uint64_t count = rn_shape_elements(info->shape, n);
    uint32_t seed = 5;
    float *data = malloc(count * sizeof(float));
    for (uint64_t i = 0; has_rows(info) && i < first * (count / n); i++)
        (void)noise(&seed);
    for (uint64_t i = 0; i < count; i++)
        if (info->dtype == RN_DTYPE_F32)
            data[i] = noise(&seed);
        else
            ((int32_t *)data)[i] = whole_number(info->name, i, has_rows(info) ? first : 0, n);
    assert_true(given_count < MOST_INPUTS);
    given[given_count++] = data;
    assert_ok(rn_session_set(session, info->name, data, count * sizeof(float)));
}

static void set_scalars(rn_session *session, const rn_graph *graph, uint32_t step) {
    for (uint32_t i = 0; i < rn_graph_scalar_count(graph); i++) {
        const char *name = rn_graph_scalar_name(graph, i);
        double value = strcmp(name, "step") == 0 ? step : 0.01;
        assert_ok(rn_session_set_scalar(session, name, value));
    }
}

// ---- answers ------------------------------------------------------------------------------------

typedef struct answer {
    uint8_t *data;
    uint64_t bytes;
} answer;

static void append(answer *a, rn_session *session, const rn_value_info *info, uint64_t n) {
    uint64_t bytes = 0;
    assert_true(rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, n), &bytes));
    a->data = realloc(a->data, a->bytes + bytes);
    assert_non_null(a->data);
    assert_ok(rn_session_get(session, info->name, a->data + a->bytes, bytes));
    a->bytes += bytes;
}

// Rows as they come; whatever else there is (a loss, states, trained weights) at the end.
static void collect(answer *a, rn_session *session, const rn_graph *graph, uint64_t n, bool last) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role == RN_ROLE_OUTPUT && (last || has_rows(info))) append(a, session, info, n);
        if (info->role == RN_ROLE_STATE && last) append(a, session, info, n);
    }
    for (uint32_t i = 0; last && i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        if (node->op == RN_OP_ADAMW) append(a, session, rn_graph_value(graph, node->inputs[0]), n);
    }
}

static void set_inputs(rn_session *session, const rn_graph *graph, uint64_t first, uint64_t n) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_INPUT)
            set_input(session, rn_graph_value(graph, v), first, n);
}

// All rows of the recipe, in runs as large as the plan allows; or a few training steps.
static answer run_all(rn_session *session, const rn_plan *plan, uint64_t rows) {
    answer a = {0};
    uint64_t most = plan->summary.rows, n = 0;
    for (uint64_t at = 0; rows && at < rows; at += n) {
        n = rn_min_u64(most, rows - at);
        set_inputs(session, plan->graph, at, n);
        assert_ok(rn_session_run(session, n));
        release_inputs();
        collect(&a, session, plan->graph, n, at + n == rows);
    }
    for (uint32_t step = 1; !rows && step <= STEPS; step++) {
        set_inputs(session, plan->graph, 0, 1);
        set_scalars(session, plan->graph, step);
        assert_ok(rn_session_run(session, 0));
        release_inputs();
        collect(&a, session, plan->graph, 1, step == STEPS);
    }
    return a;
}

// ---- a budget -----------------------------------------------------------------------------------

static const rn_purpose planned[] = {
    RN_PURPOSE_WEIGHTS,   RN_PURPOSE_KV,        RN_PURPOSE_ACTIVATIONS, RN_PURPOSE_GRADIENTS,
    RN_PURPOSE_OPTIMIZER, RN_PURPOSE_WORKSPACE, RN_PURPOSE_STAGING};

enum { PLANNED = sizeof planned / sizeof planned[0] };

static void read_ledger(uint64_t bytes[PLANNED]) {
    for (int i = 0; i < PLANNED; i++)
        bytes[i] = rn_ledger_read(RN_DEVICE_HOST, planned[i]).now_bytes;
}

static void check_ledger(const rn_plan *plan, const uint64_t before[PLANNED]) {
    uint64_t now[PLANNED];
    read_ledger(now);
    for (int i = 0; i < PLANNED; i++)
        assert_int_equal(now[i] - before[i], plan->summary.purpose_bytes[planned[i]]);
}

static void check_facts(const rn_plan *plan, const rn_session_facts *facts) {
    const rn_plan_summary *s = &plan->summary;
    if (facts->live_mismatch_step != UINT64_MAX)
        fail_msg("at a plan of %llu bytes, step %llu has other live bytes than planned",
                 (unsigned long long)s->planned_bytes,
                 (unsigned long long)facts->live_mismatch_step);
    assert_int_equal(facts->live_peak_bytes, s->live_peak_bytes);
    assert_true(facts->resident_peak_bytes <= rn_round_up(s->arena_bytes, RN_PAGE_BYTES));
    assert_true(facts->resident_peak_bytes > 0);
}

static answer run_at(const rn_recipe *recipe, const rn_checkpoint *weights, uint64_t budget,
                     rn_plan_summary *out_summary) {
    rn_plan *plan;
    rn_session *session;
    assert_ok(rn_plan_make(recipe, device_caps(),
                           &(rn_plan_options){.budget_bytes = budget, .exact = true}, &plan));
    assert_true(rn_plan_is_valid(plan));
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes, before[PLANNED];
    read_ledger(before);
    if (budget) assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held + budget + BOOKS));
    assert_ok(rn_session_create(plan, &(rn_weight_source){.checkpoint = weights},
                                &(rn_session_options){.audit = true}, &session));
    check_ledger(plan, before);
    answer a = run_all(session, plan, recipe->rows);
    rn_session_facts facts = rn_session_get_facts(session);
    check_facts(plan, &facts);
    *out_summary = plan->summary;
    rn_session_destroy(session);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, held);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    rn_plan_destroy(plan);
    return a;
}

static void expect_refusal(const rn_recipe *recipe, uint64_t floor) {
    rn_plan *plan;
    assert_fails(RN_OVER_BUDGET,
                 rn_plan_make(recipe, device_caps(),
                              &(rn_plan_options){.budget_bytes = floor - 1, .exact = true}, &plan));
    assert_null(plan);
    assert_int_equal(rn_last_refusal()->smallest_budget_bytes, floor);
    assert_true(rn_last_refusal()->holder_count > 0);
}

// Which moves the budgets brought about.
typedef struct seen {
    bool streamed, recomputed, chunked;
} seen;

static seen run_at_all_budgets(rn_recipe *recipe, uint32_t budgets) {
    rn_graph *graph;
    rn_checkpoint *weights;
    rn_plan_summary roomy, summary;
    seen moves = {0};
    assert_ok(recipe->build(recipe->self, &(rn_recipe_options){0}, &graph));
    write_weights(graph, test_path("weights.gguf"));
    rn_graph_destroy(graph);
    assert_ok(rn_checkpoint_open(test_path("weights.gguf"), &weights));
    answer want = run_at(recipe, weights, 0, &roomy);
    uint64_t floor = roomy.smallest_bytes, span = roomy.planned_bytes - floor;
    for (uint32_t i = 0; i < budgets; i++) {
        uint64_t budget = roomy.planned_bytes - span * i / (budgets - 1);
        answer got = run_at(recipe, weights, budget, &summary);
        assert_true(summary.planned_bytes <= budget);
        assert_int_equal(summary.smallest_bytes, floor);
        assert_int_equal(got.bytes, want.bytes);
        assert_memory_equal(got.data, want.data, want.bytes);
        moves.streamed |= summary.streamed_bytes > 0;
        moves.recomputed |= summary.recomputed_blocks > 0;
        moves.chunked |= summary.rows < roomy.rows;
        free(got.data);
    }
    expect_refusal(recipe, floor);
    free(want.data);
    rn_checkpoint_close(weights);
    rn_recipe_destroy(recipe);
    return moves;
}

// ---- the models ---------------------------------------------------------------------------------

static const rn_train_options train = {.weight_decay = 0.01f};

static void the_mlp_keeps_its_answer_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(
        rn_mlp_recipe(&(rn_mlp_config){.in = 48, .hidden = 96, .out = 10, .rows = 24}, &recipe));
    seen moves = run_at_all_budgets(&recipe, 9);
    assert_true(moves.streamed && moves.chunked);
}

static void training_the_mlp_keeps_its_weights_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_mlp_config config = {.in = 48, .hidden = 64, .out = 10};
    assert_ok(rn_train_recipe(rn_mlp_forward(&config), 4, &train, &recipe));
    (void)run_at_all_budgets(&recipe, 5);
}

static void the_small_cnn_keeps_its_answer_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(rn_simple_recipe(
        &(rn_simple_config){.size = 8, .channels = 8, .classes = 10, .rows = 6}, &recipe));
    seen moves = run_at_all_budgets(&recipe, 6);
    assert_true(moves.chunked);
}

static void training_the_small_cnn_keeps_its_weights_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_simple_config config = {.size = 8, .channels = 8, .classes = 10};
    assert_ok(rn_train_recipe(rn_simple_forward(&config), 4, &train, &recipe));
    (void)run_at_all_budgets(&recipe, 5);
}

static void resnet18_keeps_its_answer_at_every_budget(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(rn_resnet_recipe(&(rn_resnet_config){.size = 32, .classes = 10, .rows = 2}, &recipe));
    seen moves = run_at_all_budgets(&recipe, 4);
    assert_true(moves.streamed);
}

static rn_llama_config llama(rn_dtype weights) {
    return (rn_llama_config){.layers = 4,
                             .dim = 64,
                             .heads = 4,
                             .kv_heads = 2,
                             .ffn = 96,
                             .vocab = 64,
                             .weight_dtype = weights,
                             .kv_dtype = weights == RN_DTYPE_F32 ? RN_DTYPE_F32 : RN_DTYPE_F16,
                             .context = 32,
                             .page_tokens = 8,
                             .sequences = 1,
                             .logit_rows = 1,
                             .rows = 13,
                             .tokens = 8};
}

static void a_llama_keeps_its_answer_at_every_budget(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_Q8_0};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        rn_llama_config config = llama(dtypes[i]);
        rn_recipe recipe;
        assert_ok(rn_llama_recipe(&config, &recipe));
        seen moves = run_at_all_budgets(&recipe, 7);
        assert_true(moves.streamed && moves.chunked);
    }
}

static void training_a_llama_keeps_its_weights_at_every_budget(void **state) {
    (void)state;
    rn_llama_config config = llama(RN_DTYPE_F32);
    rn_recipe recipe;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 4, &train, &recipe));
    seen moves = run_at_all_budgets(&recipe, 7);
    assert_true(moves.recomputed);
}

// The numbers are others than with f32, and the same at every budget.
static void activations_of_16_bits_keep_their_answer_at_every_budget(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_BF16, RN_DTYPE_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        rn_llama_config config = llama(RN_DTYPE_F32);
        rn_recipe recipe;
        config.activations = dtypes[i]; // from block to block
        fusions = i == 0 ? RN_FUSE_ALL : 0;
        assert_ok(rn_llama_recipe(&config, &recipe));
        seen moves = run_at_all_budgets(&recipe, 4);
        assert_true(moves.streamed);
        assert_ok(rn_train_recipe(rn_llama_forward(&config), 4, &train, &recipe));
        moves = run_at_all_budgets(&recipe, 7);
        assert_true(moves.recomputed);
    }
    fusions = 0;
}

// What is frozen needs no gradient and may pass through the ring, forward and backward.
static void fine_tuning_streams_what_is_frozen(void **state) {
    (void)state;
    rn_llama_config config = llama(RN_DTYPE_F32);
    rn_train_options options = {.weight_decay = 0.01f, .frozen = "*_proj.weight"};
    rn_recipe recipe;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 4, &options, &recipe));
    seen moves = run_at_all_budgets(&recipe, 6);
    assert_true(moves.streamed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mlp_keeps_its_answer_at_every_budget),
        cmocka_unit_test(training_the_mlp_keeps_its_weights_at_every_budget),
        cmocka_unit_test(the_small_cnn_keeps_its_answer_at_every_budget),
        cmocka_unit_test(training_the_small_cnn_keeps_its_weights_at_every_budget),
        cmocka_unit_test(resnet18_keeps_its_answer_at_every_budget),
        cmocka_unit_test(a_llama_keeps_its_answer_at_every_budget),
        cmocka_unit_test(training_a_llama_keeps_its_weights_at_every_budget),
        cmocka_unit_test(activations_of_16_bits_keep_their_answer_at_every_budget),
        cmocka_unit_test(fine_tuning_streams_what_is_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
