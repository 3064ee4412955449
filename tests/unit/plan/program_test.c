// program_test.c — several graphs under one budget: one shared region, the rest overlapping.
#include "plan_fixture.h"

#include "base/checked.h"
#include "base/fault.h"
#include "printed.h"

#include <ration/program.h>

#include <stdio.h>

enum { WIDE = 64, BATCH = 8 };
enum { WEIGHT_BYTES = WIDE * WIDE * 4, ROW_BYTES = BATCH * WIDE * 4 };

// ---- graphs -------------------------------------------------------------------------------------

// x (8, 64) -> x w, with a state that counts: one weight "w", one state "count".
static void write_first(rn_graph *g, uint32_t micro_batches) {
    (void)micro_batches;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(BATCH, WIDE));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(WIDE, WIDE));
    rn_value count = rn_graph_state(g, "count", RN_DTYPE_F32, RN_SHAPE(BATCH, WIDE), RN_PURPOSE_KV);
    rn_value y = rn_op_matmul(g, x, w, RN_NO_VALUE);
    rn_graph_output(g, rn_op_add(g, y, count), "y");
}

// The same weight, one of its own, another state, and a longer way to go.
static void write_second(rn_graph *g, uint32_t micro_batches) {
    (void)micro_batches;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(BATCH, WIDE));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(WIDE, WIDE));
    rn_value own = rn_graph_weight(g, "own", RN_DTYPE_F32, RN_SHAPE(WIDE, WIDE));
    rn_value seen = rn_graph_state(g, "seen", RN_DTYPE_F32, RN_SHAPE(WIDE), RN_PURPOSE_KV);
    rn_value y = rn_op_matmul(g, x, w, RN_NO_VALUE);
    y = rn_op_matmul(g, rn_op_relu(g, y), own, RN_NO_VALUE);
    rn_graph_output(g, rn_op_add(g, y, seen), "y");
}

static void write_other_shape(rn_graph *g, uint32_t micro_batches) {
    (void)micro_batches;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(BATCH, WIDE));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(2 * WIDE, WIDE));
    rn_graph_output(g, rn_op_matmul(g, x, w, RN_NO_VALUE), "y");
}

static paper_model first_model = {write_first}, second_model = {write_second},
                   other_model = {write_other_shape};

static rn_recipe in_memory(paper_model *model) {
    rn_recipe recipe = paper_recipe(model);
    recipe.weights_in_memory = true;
    return recipe;
}

static rn_program *make(const rn_program_phase *phases, uint32_t count, uint64_t budget_bytes) {
    rn_device_caps caps = paper_caps();
    rn_program *program = NULL;
    rn_plan_options options = {.budget_bytes = budget_bytes};
    assert_ok(rn_program_make(phases, count, &caps, &options, &program));
    for (uint32_t i = 0; i < count; i++)
        if (rn_program_plan(program, i)) assert_true(rn_plan_is_valid(rn_program_plan(program, i)));
    return program;
}

static const rn_plan_buffer *buffer_of(const rn_plan *plan, rn_role role, const char *name,
                                       uint64_t *out_offset) {
    rn_value value = rn_graph_find(plan->graph, role, name);
    assert_true(value != RN_NO_VALUE && plan->places[value].buffer != RN_NO_BUFFER);
    const rn_plan_buffer *buffer = &plan->buffers[plan->places[value].buffer];
    *out_offset = buffer->offset + plan->places[value].offset;
    return buffer;
}

// ---- bytes --------------------------------------------------------------------------------------

// Counted by hand. The first phase has the larger state, so it lays out the region: w, count, and
// the other phase's seen.
static void the_peak_is_the_shared_region_and_the_largest_rest(void **state) {
    (void)state;
    rn_recipe first = in_memory(&first_model), second = in_memory(&second_model);
    rn_program_phase phases[] = {{.name = "first", .recipe = &first},
                                 {.name = "second", .recipe = &second, .runs = 3},
                                 {.name = "save", .bytes = 1000}};
    rn_program *program = make(phases, 3, 0);
    const rn_program_summary *s = rn_program_get_summary(program);
    uint64_t shared = WEIGHT_BYTES + ROW_BYTES + 4 * WIDE;
    assert_int_equal(s->shared_bytes, shared);
    // first: x and x w, then x w and the sum. second: own, x and x w, and so on; relu in place.
    rn_program_phase_summary a = rn_program_get_phase(program, 0),
                             b = rn_program_get_phase(program, 1),
                             c = rn_program_get_phase(program, 2);
    assert_int_equal(a.own_bytes, 2 * ROW_BYTES);
    assert_int_equal(b.own_bytes, WEIGHT_BYTES + 2 * ROW_BYTES);
    assert_int_equal(c.own_bytes, 1000);
    assert_int_equal(b.load_bytes, WEIGHT_BYTES);
    assert_int_equal(a.load_bytes, 0);
    assert_int_equal(s->planned_bytes, shared + b.own_bytes);
    assert_int_equal(s->arena_bytes, s->planned_bytes);
    assert_int_equal(s->largest_phase, 1);
    assert_true(s->seconds >= a.seconds + 3 * b.seconds);
    rn_program_destroy(program);
}

static void every_phase_has_shared_values_in_the_same_place(void **state) {
    (void)state;
    rn_recipe first = in_memory(&first_model), second = in_memory(&second_model);
    rn_program_phase phases[] = {{.name = "first", .recipe = &first},
                                 {.name = "second", .recipe = &second}};
    rn_program *program = make(phases, 2, 0);
    const rn_plan *a = rn_program_plan(program, 0), *b = rn_program_plan(program, 1);
    uint64_t in_a, in_b;
    buffer_of(a, RN_ROLE_WEIGHT, "w", &in_a);
    buffer_of(b, RN_ROLE_WEIGHT, "w", &in_b);
    assert_int_equal(in_a, in_b);
    // What one of them does not use is held in its plan, and nothing else is in the region.
    uint64_t shared = rn_program_get_summary(program)->shared_bytes;
    for (int p = 0; p < 2; p++) {
        const rn_plan *plan = rn_program_plan(program, (uint32_t)p);
        uint64_t always = 0;
        for (uint32_t i = 0; i < plan->buffer_count; i++) {
            const rn_plan_buffer *buffer = &plan->buffers[i];
            if (buffer->offset >= shared) continue;
            assert_true(buffer->always && buffer->offset + buffer->bytes <= shared);
            always += buffer->bytes;
        }
        assert_int_equal(always, shared);
    }
    rn_program_destroy(program);
}

static void phases_of_different_models_share_nothing(void **state) {
    (void)state;
    rn_recipe target = in_memory(&first_model), draft = in_memory(&first_model);
    rn_program_phase phases[] = {{.name = "target", .recipe = &target, .model = "target"},
                                 {.name = "draft", .recipe = &draft, .model = "draft"}};
    rn_program *program = make(phases, 2, 0);
    const rn_program_summary *s = rn_program_get_summary(program);
    assert_int_equal(s->shared_bytes, 2 * ROW_BYTES); // both states
    assert_int_equal(s->planned_bytes, s->shared_bytes + WEIGHT_BYTES + 2 * ROW_BYTES);
    rn_program_destroy(program);
}

static void a_name_of_two_shapes_is_refused(void **state) {
    (void)state;
    rn_device_caps caps = paper_caps();
    rn_recipe first = in_memory(&first_model), other = in_memory(&other_model);
    rn_program_phase phases[] = {{.name = "first", .recipe = &first},
                                 {.name = "other", .recipe = &other}};
    rn_program *program = NULL;
    assert_fails(RN_INVALID, rn_program_make(phases, 2, &caps, NULL, &program));
    assert_non_null(strstr(rn_last_error()->message, "'w'"));
    phases[1].model = "other";
    assert_ok(rn_program_make(phases, 2, &caps, NULL, &program));
    rn_program_destroy(program);
    assert_fails(RN_INVALID, rn_program_make(phases, 0, &caps, NULL, &program));
    rn_program_phase none = {.name = "save", .bytes = 1};
    assert_fails(RN_INVALID, rn_program_make(&none, 1, &caps, NULL, &program));
}

static void one_phase_is_planned_as_a_plan_is(void **state) {
    (void)state;
    rn_device_caps caps = paper_caps();
    rn_recipe recipe;
    assert_ok(rn_builtin_recipe("llama:4x64:train", &recipe));
    rn_program_phase phase = {.name = "step", .recipe = &recipe};
    rn_plan *alone;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &alone));
    uint64_t budgets[] = {0, alone->summary.smallest_bytes + (64 << 10)};
    for (int i = 0; i < 2; i++) {
        rn_plan *plan;
        rn_plan_options options = {.budget_bytes = budgets[i]};
        rn_program *program = make(&phase, 1, budgets[i]);
        assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
        assert_int_equal(rn_program_get_summary(program)->planned_bytes,
                         plan->summary.planned_bytes);
        assert_true(rn_program_get_summary(program)->seconds == plan->summary.seconds);
        rn_plan_destroy(plan);
        rn_program_destroy(program);
    }
    rn_plan_destroy(alone);
    rn_recipe_destroy(&recipe);
}

// ---- budgets ------------------------------------------------------------------------------------

// A training step and inference over the same weights, as text models have them.
static void open_pair(rn_recipe out[2]) {
    assert_ok(rn_builtin_recipe("llama:4x64:train", &out[0]));
    assert_ok(rn_builtin_recipe("llama:4x64", &out[1]));
}

static void a_refusal_names_the_phase_and_the_smallest_budget(void **state) {
    (void)state;
    rn_device_caps caps = paper_caps();
    rn_recipe pair[2];
    open_pair(pair);
    rn_program_phase phases[] = {{.name = "step", .recipe = &pair[0]},
                                 {.name = "sample", .recipe = &pair[1]},
                                 {.name = "save", .bytes = 64 << 20}};
    for (uint32_t count = 1; count <= 3; count++) {
        rn_program *program = NULL;
        rn_plan_options options = {.budget_bytes = 1 << 20};
        assert_fails(RN_OVER_BUDGET, rn_program_make(phases, count, &caps, &options, &program));
        assert_non_null(strstr(rn_last_error()->message, "phase '"));
        uint64_t smallest = rn_last_refusal()->smallest_budget_bytes;
        options.budget_bytes = smallest - 1;
        assert_fails(RN_OVER_BUDGET, rn_program_make(phases, count, &caps, &options, &program));
        if (count == 3) assert_non_null(strstr(rn_last_error()->message, "phase 'save'"));
        options.budget_bytes = smallest;
        assert_ok(rn_program_make(phases, count, &caps, &options, &program));
        assert_int_equal(rn_program_get_summary(program)->planned_bytes, smallest);
        rn_program_destroy(program);
    }
    for (int i = 0; i < 2; i++)
        rn_recipe_destroy(&pair[i]);
}

static void check_sweep(const rn_program_phase *phases, uint32_t count) {
    enum { ROWS = 9 };
    rn_device_caps caps = paper_caps();
    rn_program_sweep_row rows[ROWS];
    assert_ok(rn_program_sweep(phases, count, &caps, NULL, rows, ROWS));
    for (int i = 0; i < ROWS; i++) {
        assert_true(rows[i].summary.planned_bytes <= rows[i].budget_bytes);
        if (i == 0) continue;
        assert_true(rows[i].budget_bytes >= rows[i - 1].budget_bytes);
        assert_true(rows[i].summary.seconds <= rows[i - 1].summary.seconds);
    }
    assert_true(rows[0].budget_bytes < rows[ROWS - 1].budget_bytes);
}

static void a_larger_budget_is_never_slower(void **state) {
    (void)state;
    rn_recipe pair[2];
    open_pair(pair);
    rn_program_phase training[] = {{.name = "step", .recipe = &pair[0], .runs = 100},
                                   {.name = "sample", .recipe = &pair[1], .runs = 10}};
    check_sweep(training, 2);
    rn_program_phase twice[] = {{.name = "long", .recipe = &pair[1]},
                                {.name = "short", .recipe = &pair[1], .runs = 5}};
    check_sweep(twice, 2);
    for (int i = 0; i < 2; i++)
        rn_recipe_destroy(&pair[i]);
}

// Frozen weights of several phases are held once where they fit, and streamed by each where they
// do not; a weight is never in the region and in a phase's own part.
static void frozen_weights_are_shared_or_streamed(void **state) {
    (void)state;
    rn_recipe pair[2];
    open_pair(pair);
    rn_program_phase twice[] = {{.name = "long", .recipe = &pair[1]},
                                {.name = "short", .recipe = &pair[1], .runs = 5}};
    rn_program *roomy = make(twice, 2, 0);
    assert_true(rn_program_get_summary(roomy)->shared_bytes > 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rn_program_get_phase(roomy, i).streamed_bytes, 0);
        assert_int_equal(rn_program_get_phase(roomy, i).load_bytes, 0);
    }
    uint64_t smallest = rn_program_get_summary(roomy)->smallest_budget_bytes;
    rn_program_destroy(roomy);
    rn_program *tight = make(twice, 2, smallest + (64 << 10));
    assert_true(rn_program_get_phase(tight, 0).streamed_bytes > 0);
    assert_true(rn_program_get_phase(tight, 1).streamed_bytes > 0);
    rn_program_destroy(tight);
    for (int i = 0; i < 2; i++)
        rn_recipe_destroy(&pair[i]);
}

// Whoever lays out the region: what one phase trains, the others read from there, never from files.
static void trained_weights_are_in_the_region_for_every_phase(void **state) {
    (void)state;
    static const char *const names[2] = {"llama:2x64:train=sgd", "llama:2x64"};
    rn_device_caps caps = paper_caps();
    caps.row_table_bytes = 1; // embeddings are gathered where they are not held
    for (int turned = 0; turned < 2; turned++) {
        rn_recipe recipes[2];
        rn_program *program = NULL;
        for (int i = 0; i < 2; i++)
            assert_ok(rn_builtin_recipe(names[i ^ turned], &recipes[i]));
        rn_program_phase phases[] = {{.name = "a", .recipe = &recipes[0]},
                                     {.name = "b", .recipe = &recipes[1]}};
        assert_ok(rn_program_make(phases, 2, &caps, NULL, &program));
        for (uint32_t p = 0; p < 2; p++) {
            const rn_plan *plan = rn_program_plan(program, p);
            assert_true(rn_plan_is_valid(plan));
            assert_int_equal(plan->row_table_count, 0);
            for (uint32_t u = 0; u < plan->group_count; u++)
                assert_true(plan->groups[u].resident &&
                            (plan->groups[u].shared || plan->groups[u].sharable));
            for (rn_value v = 1; v <= plan->value_count; v++)
                if (rn_graph_value(plan->graph, v)->role == RN_ROLE_WEIGHT)
                    assert_true(plan->places[v].layout == RN_LAYOUT_PLAIN);
        }
        rn_program_destroy(program);
        for (int i = 0; i < 2; i++)
            rn_recipe_destroy(&recipes[i]);
    }
}

// ---- showing ------------------------------------------------------------------------------------

static uint32_t count_of(const char *text, const char *part) {
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static void a_program_is_shown_phase_by_phase(void **state) {
    (void)state;
    rn_recipe first = in_memory(&first_model), second = in_memory(&second_model);
    rn_program_phase phases[] = {{.name = "draw", .recipe = &first, .runs = 20},
                                 {.name = "show", .recipe = &second},
                                 {.name = "save", .bytes = 1000}};
    rn_program *program = make(phases, 3, 0);
    assert_ok(rn_program_print(program, printed_sink()));
    printed_end();
    assert_int_equal(count_of(printed.data, "phase draw: "), 1);
    assert_int_equal(count_of(printed.data, "phase show: "), 1);
    assert_int_equal(count_of(printed.data, "\nsave "), 1);
    assert_non_null(strstr(printed.data, "show needs the most"));

    assert_ok(rn_program_json(program, printed_sink()));
    printed_json_check();
    assert_int_equal(count_of(printed.data, "\"own_bytes\""), 3);
    assert_int_equal(count_of(printed.data, "\"plan\""), 2);

    assert_ok(rn_program_html(program, printed_sink()));
    printed_end();
    assert_int_equal(count_of(printed.data, "<svg"), 1);
    assert_int_equal(count_of(printed.data, "<g transform=\"translate("), 2);
    rn_program_destroy(program);
}

// ---- failing ------------------------------------------------------------------------------------

static void what_fails_leaves_nothing_behind(void **state) {
    (void)state;
    rn_device_caps caps = paper_caps();
    rn_recipe first = in_memory(&first_model), second = in_memory(&second_model);
    rn_program_phase phases[] = {{.name = "first", .recipe = &first},
                                 {.name = "second", .recipe = &second}};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_program *program = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_program_make(phases, 2, &caps, NULL, &program);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_true(fired == (program == NULL));
        rn_program_destroy(program);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        if (!fired) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_the_shared_region_and_the_largest_rest),
        cmocka_unit_test(every_phase_has_shared_values_in_the_same_place),
        cmocka_unit_test(phases_of_different_models_share_nothing),
        cmocka_unit_test(a_name_of_two_shapes_is_refused),
        cmocka_unit_test(one_phase_is_planned_as_a_plan_is),
        cmocka_unit_test(a_refusal_names_the_phase_and_the_smallest_budget),
        cmocka_unit_test(a_larger_budget_is_never_slower),
        cmocka_unit_test(frozen_weights_are_shared_or_streamed),
        cmocka_unit_test(trained_weights_are_in_the_region_for_every_phase),
        cmocka_unit_test_setup_teardown(a_program_is_shown_phase_by_phase, printed_begin,
                                        printed_free),
        cmocka_unit_test(what_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
