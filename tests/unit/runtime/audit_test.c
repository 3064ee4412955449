// The audit's two measures agree with every plan that the planner makes, and with none that was
// damaged afterwards.
#include "chain.h"
#include "recount.h"

#include <ration/memory.h>

#include "base/checked.h"

#define ROWS 4

static chain model = {.layers = 6, .width = 64, .rows = ROWS};

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

static rn_session *open_audit(const rn_plan *plan) {
    rn_weight_source source = chain_memory(&model);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.audit = true}, &session));
    return session;
}

// Runs the plan and gives what the audit found.
static rn_session_facts measure(const rn_plan *plan) {
    rn_session *session = open_audit(plan);
    float y[ROWS * 64];
    assert_ok(chain_run(&model, session, ROWS, 3, y));
    rn_session_facts facts = rn_session_get_facts(session);
    rn_session_destroy(session);
    return facts;
}

static bool agrees(const rn_plan *plan, const rn_session_facts *facts) {
    return facts->live_mismatch_step == UINT64_MAX &&
           facts->live_peak_bytes == plan->summary.live_peak_bytes;
}

// A buffer of an intermediate that lives for more than one step.
static rn_plan_buffer *find_long(rn_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        rn_plan_buffer *b = &plan->buffers[i];
        if (b->kind == RN_BUFFER_VALUE && !b->always && b->first_step > 0 &&
            b->first_step < b->last_step && b->last_step + 1 < plan->step_count)
            return b;
    }
    fail_msg("no buffer lives for more than one step");
    return NULL;
}

static void plans_are_measured_as_they_were_predicted(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t budget = chain_budget(&model, rn_cpu_caps(), i, 6);
        rn_plan *plan = chain_plan(&model, rn_cpu_caps(), budget);
        assert_true(rn_plan_is_valid(plan));
        rn_session_facts facts = measure(plan);
        assert_true(agrees(plan, &facts));
        assert_true(facts.resident_peak_bytes > 0);
        assert_true(facts.resident_peak_bytes <=
                    rn_round_up(plan->summary.arena_bytes, RN_PAGE_BYTES));
        rn_plan_destroy(plan);
    }
}

static void fewer_rows_use_no_more_than_planned(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_session *session = open_audit(plan);
    float y[ROWS * 64];
    assert_ok(chain_run(&model, session, ROWS - 1, 3, y));
    rn_session_facts facts = rn_session_get_facts(session);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    assert_true(facts.live_peak_bytes < plan->summary.live_peak_bytes);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

// ---- damage -------------------------------------------------------------------------------------

static void a_sum_that_is_wrong_at_one_step_is_found_there(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    plan->steps[2].live_bytes -= 64;
    rn_session_facts facts = measure(plan);
    assert_int_equal(facts.live_mismatch_step, 2);
    rn_plan_destroy(plan);
}

static void a_lifetime_that_was_shortened_is_found(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_plan_buffer *buffer = find_long(plan);
    uint32_t at = buffer->last_step--;
    recount(plan);
    rn_session_facts facts = measure(plan);
    assert_int_equal(facts.live_mismatch_step, at);
    rn_plan_destroy(plan);
}

// As if the planner believed in the shorter life and gave the bytes to somebody else.
static void a_buffer_on_top_of_another_is_found(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_plan_buffer *buffer = find_long(plan), *other = NULL;
    for (uint32_t i = 0; i < plan->buffer_count && !other; i++)
        if (&plan->buffers[i] != buffer && plan->buffers[i].kind == RN_BUFFER_VALUE &&
            plan->buffers[i].first_step <= buffer->last_step &&
            buffer->first_step <= plan->buffers[i].last_step)
            other = &plan->buffers[i];
    assert_non_null(other);
    other->offset = buffer->offset;
    assert_false(rn_plan_is_valid(plan));
    rn_session_facts facts = measure(plan);
    assert_false(agrees(plan, &facts));
    rn_plan_destroy(plan);
}

static void a_slot_that_holds_another_group_is_found(void **state) {
    (void)state;
    rn_plan *plan = NULL;
    for (uint32_t i = 0; i < 8 && (!plan || plan->slot_count < 2); i++) {
        rn_plan_destroy(plan);
        plan = chain_plan(&model, rn_cpu_caps(), chain_budget(&model, rn_cpu_caps(), i, 8));
    }
    assert_true(plan->slot_count >= 2);
    uint64_t there = plan->buffers[plan->loads[0].buffer].offset;
    plan->buffers[plan->loads[1].buffer].offset = there; // both are there when a run begins
    rn_session_facts facts = measure(plan);
    assert_false(agrees(plan, &facts));
    rn_plan_destroy(plan);
}

static void an_arena_that_is_too_small_shows_in_its_resident_pages(void **state) {
    (void)state;
    rn_plan *plan = chain_plan(&model, rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(&model);
    rn_session *session;
    uint64_t cut = plan->summary.arena_bytes / 2;
    plan->summary.arena_bytes -= cut;
    plan->summary.purpose_bytes[RN_PURPOSE_WEIGHTS] -= cut;
    rn_session_facts facts = measure(plan);
    assert_true(facts.resident_peak_bytes > rn_round_up(plan->summary.arena_bytes, RN_PAGE_BYTES));
    assert_fails(RN_INTERNAL, rn_session_create(plan, &source, NULL, &session)); // unless audited
    rn_plan_destroy(plan);
}

static uint64_t ask_workspace(const rn_call *call) {
    return rn_tensor_bytes(&call->inputs[0]);
}

// The CPU with a relu that wants workspace.
static void use_workspace(rn_device *device, rn_kernel *kernels) {
    memcpy(kernels, device->caps.kernels, RN_OP_COUNT * sizeof *kernels);
    kernels[RN_OP_RELU].workspace = ask_workspace;
    device->caps.kernels = kernels;
}

static void a_workspace_that_was_halved_is_refused_with_the_nodes_name(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    rn_weight_source source = chain_memory(&model);
    rn_session *session;
    rn_device *device;
    float y[ROWS * 64];
    assert_ok(rn_cpu_device_create(1, &device));
    use_workspace(device, kernels);
    rn_plan *plan = chain_plan(&model, &device->caps, 0);
    rn_session_options options = {.device = device, .audit = true};
    assert_ok(rn_session_create(plan, &source, &options, &session));
    assert_ok(chain_run(&model, session, ROWS, 0, y));
    rn_session_facts facts = rn_session_get_facts(session);
    assert_true(agrees(plan, &facts));
    rn_session_destroy(session);

    uint32_t step = 0;
    while (plan->steps[step].workspace == RN_NO_BUFFER ||
           rn_graph_node(plan->graph, plan->steps[step].node)->op != RN_OP_RELU)
        step++;
    plan->buffers[plan->steps[step].workspace].bytes /= 2;
    recount(plan);
    assert_ok(rn_session_create(plan, &source, &options, &session));
    assert_fails(RN_INTERNAL, chain_run(&model, session, ROWS, 0, y));
    assert_non_null(
        strstr(rn_last_error()->message, rn_graph_node(plan->graph, plan->steps[step].node)->name));
    assert_non_null(strstr(rn_last_error()->message, "the plan gave 512 bytes of workspace"));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(device);
}

// ---- guards -------------------------------------------------------------------------------------

static rn_status write_too_far(const rn_call *call) {
    RN_TRY(rn_op_get(RN_OP_RELU)->reference(call));
    ((float *)call->outputs[0].data)[rn_tensor_elements(&call->outputs[0])] = 1;
    return RN_OK;
}

static rn_status write_too_early(const rn_call *call) {
    RN_TRY(rn_op_get(RN_OP_RELU)->reference(call));
    ((float *)call->outputs[0].data)[-1] = 1;
    return RN_OK;
}

// Makes room on both sides of every intermediate.
static void spread(rn_plan *plan) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].always || plan->buffers[i].kind == RN_BUFFER_GROUP)
            end = rn_max_u64(end, plan->buffers[i].offset + plan->buffers[i].bytes);
    end = rn_round_up(end, 64) + 64;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        if (plan->buffers[i].always || plan->buffers[i].kind == RN_BUFFER_GROUP) continue;
        plan->buffers[i].offset = end;
        end += rn_round_up(plan->buffers[i].bytes, 64) + 64;
    }
    plan->summary.purpose_bytes[RN_PURPOSE_OTHER] += end - plan->summary.arena_bytes;
    plan->summary.arena_bytes = end;
}

static void a_kernel_that_writes_outside_is_named(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    rn_status (*const rogues[])(const rn_call *) = {write_too_far, write_too_early};
    rn_weight_source source = chain_memory(&model);
    float y[ROWS * 64], want[ROWS * 64];
    for (int i = -1; i < 2; i++) { // -1: none
        rn_device *device;
        rn_session *session;
        assert_ok(rn_cpu_device_create(1, &device));
        memcpy(kernels, device->caps.kernels, sizeof kernels);
        if (i >= 0) kernels[RN_OP_RELU].run = rogues[i];
        device->caps.kernels = kernels;
        rn_plan *plan = chain_plan(&model, &device->caps, 0);
        spread(plan);
        assert_ok(rn_session_create(
            plan, &source, &(rn_session_options){.device = device, .guard = true}, &session));
        rn_status s = chain_run(&model, session, ROWS, 0, i < 0 ? want : y);
        assert_int_equal(s, i < 0 ? RN_OK : RN_INTERNAL);
        if (i >= 0) assert_non_null(strstr(rn_last_error()->message, "relu"));
        if (i >= 0) assert_non_null(strstr(rn_last_error()->message, "wrote outside"));
        rn_session_destroy(session);
        rn_plan_destroy(plan);
        rn_device_destroy(device);
    }
}

static void guards_do_not_change_the_answer(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&model);
    float want[ROWS * 64], y[ROWS * 64];
    for (uint32_t i = 0; i < 3; i++) {
        rn_plan *plan =
            chain_plan(&model, rn_cpu_caps(), chain_budget(&model, rn_cpu_caps(), 2 - i, 3));
        rn_session *session;
        assert_ok(rn_session_create(plan, &source,
                                    &(rn_session_options){.guard = true, .audit = true}, &session));
        for (int run = 0; run < 2; run++)
            assert_ok(chain_run(&model, session, ROWS, 9, i == 0 ? want : y));
        if (i > 0) assert_memory_equal(y, want, sizeof want);
        assert_int_equal(rn_session_get_facts(session).live_mismatch_step, UINT64_MAX);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_measured_as_they_were_predicted),
        cmocka_unit_test(fewer_rows_use_no_more_than_planned),
        cmocka_unit_test(a_sum_that_is_wrong_at_one_step_is_found_there),
        cmocka_unit_test(a_lifetime_that_was_shortened_is_found),
        cmocka_unit_test(a_buffer_on_top_of_another_is_found),
        cmocka_unit_test(a_slot_that_holds_another_group_is_found),
        cmocka_unit_test(an_arena_that_is_too_small_shows_in_its_resident_pages),
        cmocka_unit_test(a_workspace_that_was_halved_is_refused_with_the_nodes_name),
        cmocka_unit_test(a_kernel_that_writes_outside_is_named),
        cmocka_unit_test(guards_do_not_change_the_answer),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
