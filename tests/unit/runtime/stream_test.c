// labels: threads
// Weights that do not stay: whatever the slots, the source and the device, the same bits; and what
// happens when reading fails.
#include "chain.h"

#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "memory/account.h"

#include <stdatomic.h>
#include <unistd.h>

#define ROWS 3

static chain small = {.layers = 9, .width = 96, .rows = ROWS};
static float *expected[2]; // y of seeds 0 and 1

// Weights are packed into their slots; or file_layout, however small.
static const rn_device_caps *packed_caps(void) {
    static rn_device_caps caps;
    caps = *rn_cpu_caps();
    caps.file_layout_bytes = 0;
    return &caps;
}

static const rn_device_caps *raw_caps(void) {
    static rn_device_caps caps;
    caps = *rn_cpu_caps();
    caps.file_layout_bytes = 1;
    return &caps;
}

static uint64_t y_bytes(const chain *c) {
    return ROWS * c->width * sizeof(float);
}

// What the chain gives with everything resident, from memory.
static void find_expected(chain *c, float *y[2]) {
    rn_plan *plan = chain_plan(c, rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(c);
    rn_session *session;
    assert_int_equal(rn_plan_get_summary(plan)->streamed_bytes, 0);
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    for (uint32_t seed = 0; seed < 2; seed++) {
        y[seed] = malloc(y_bytes(c));
        assert_ok(chain_run(c, session, ROWS, seed, y[seed]));
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static int open_all(void **state) {
    (void)state;
    chain_open(&small);
    chain_write(&small, test_path("small.safetensors"));
    find_expected(&small, expected);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    free(expected[0]);
    free(expected[1]);
    chain_close(&small);
    return 0;
}

static void expect_y(const chain *c, rn_session *session, uint32_t seed, const float *want) {
    float *y = malloc(y_bytes(c));
    assert_ok(chain_run(c, session, ROWS, seed, y));
    assert_memory_equal(y, want, y_bytes(c));
    free(y);
}

static rn_checkpoint *open_small(void) {
    rn_checkpoint *checkpoint;
    assert_ok(rn_checkpoint_open(test_path("small.safetensors"), &checkpoint));
    return checkpoint;
}

// ---- the same bits ------------------------------------------------------------------------------

static uint32_t count_raw(const rn_plan *plan) {
    uint32_t count = 0;
    for (rn_value v = 1; v <= plan->value_count; v++)
        count += plan->places[v].file_layout;
    return count;
}

// Returns the numbers of slots that occurred, a bit each.
static uint32_t run_at_all_budgets(rn_device *device, const rn_device_caps *caps,
                                   const rn_weight_source *source) {
    uint32_t slots_seen = 0;
    for (uint32_t i = 0; i < 8; i++) {
        rn_plan *plan = chain_plan(&small, caps, chain_budget(&small, caps, i, 8));
        rn_session *session;
        slots_seen |= 1u << plan->slot_count;
        assert_true(rn_plan_is_valid(plan));
        assert_int_equal(count_raw(plan) > 0, caps->file_layout_bytes == 1 && plan->slot_count > 0);
        assert_ok(rn_session_create(
            plan, source, &(rn_session_options){.device = device, .audit = true}, &session));
        for (uint32_t run = 0; run < 3; run++)
            expect_y(&small, session, run % 2, expected[run % 2]);
        rn_session_facts facts = rn_session_get_facts(session);
        assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
        assert_int_equal(facts.live_peak_bytes, plan->summary.live_peak_bytes);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
    }
    assert_true(slots_seen & 1); // nothing streamed
    assert_true(slots_seen > 1); // something streamed
    return slots_seen;
}

static void a_file_streams_through_any_number_of_slots(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_small();
    rn_weight_source source = {.checkpoint = checkpoint};
    uint32_t seen = run_at_all_budgets(NULL, packed_caps(), &source);
    assert_true(__builtin_popcount(seen) >= 3); // rings of several sizes
    run_at_all_budgets(NULL, raw_caps(), &source);
    rn_checkpoint_close(checkpoint);
}

static void memory_streams_as_well(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&small);
    run_at_all_budgets(NULL, packed_caps(), &source);
    run_at_all_budgets(NULL, raw_caps(), &source);
}

static void a_device_with_its_own_memory_gives_the_same_bits(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_small();
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.link_bytes_second = 200e6}, &sim));
    run_at_all_budgets(sim, &sim->caps, &(rn_weight_source){.checkpoint = checkpoint});
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    rn_device_destroy(sim);
    rn_checkpoint_close(checkpoint);
}

static uint64_t on_host(rn_purpose purpose) {
    return rn_ledger_read(RN_DEVICE_HOST, purpose).now_bytes;
}

// Bit 0: nothing is streamed; 1: from disk, through stages; 2: from copies.
static uint32_t expect_host(rn_device *sim, const rn_weight_source *source,
                            const rn_plan_options *options) {
    rn_recipe recipe = chain_recipe(&small);
    uint64_t staging = on_host(RN_PURPOSE_STAGING), copies = on_host(RN_PURPOSE_WEIGHTS);
    rn_session *session;
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, &sim->caps, options, &plan));
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    assert_ok(rn_session_create(plan, source, &(rn_session_options){.device = sim}, &session));
    for (uint32_t run = 0; run < 3; run++)
        expect_y(&small, session, run % 2, expected[run % 2]);
    copies = on_host(RN_PURPOSE_WEIGHTS) - copies;
    assert_int_equal(copies, s->host_weight_bytes);
    assert_int_equal(on_host(RN_PURPOSE_STAGING) - staging + copies, s->host_bytes);
    assert_true(!options->host_budget_bytes || s->host_bytes <= options->host_budget_bytes);
    uint32_t way = 1u << (plan->load_count ? 1 + plan->from_host : 0);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    return way;
}

static void what_the_host_holds_is_what_the_plan_says(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_small();
    rn_weight_source source = {.checkpoint = checkpoint};
    rn_recipe recipe = chain_recipe(&small);
    rn_device *sim;
    rn_plan *plan;
    uint32_t ways = 0;
    assert_ok(rn_sim_device_create(NULL, &sim));
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &sim->caps,
                                              &(rn_plan_options){.host_budget_bytes = 1}, &plan));
    uint64_t least = rn_last_refusal()->smallest_budget_bytes;
    for (uint32_t i = 0; i < 8; i++) {
        rn_plan_options options = {.budget_bytes = chain_budget(&small, &sim->caps, i, 8)};
        ways |= expect_host(sim, &source, &options);
        options.host_budget_bytes = least + small.weight_bytes * 3 / 2;
        ways |= expect_host(sim, &source, &options);
    }
    assert_int_equal(ways, 7);
    rn_device_destroy(sim);
    rn_checkpoint_close(checkpoint);
}

static void check_what_is_read_is_what_the_plan_says(const rn_device_caps *caps) {
    rn_checkpoint *checkpoint = open_small();
    rn_plan *plan = chain_plan(&small, caps, chain_budget(&small, caps, 0, 2));
    uint64_t resident = 0, ahead = 0, streamed = rn_plan_get_summary(plan)->streamed_bytes;
    rn_session *session;
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].resident) resident += plan->groups[i].file_bytes;
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].next_run)
            ahead += plan->groups[plan->loads[plan->steps[i].load].group].file_bytes;
    assert_ok(
        rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
    assert_int_equal(rn_session_get_facts(session).read_bytes, resident);
    expect_y(&small, session, 0, expected[0]);
    rn_session_settle(session);
    uint64_t runs = rn_session_get_facts(session).runs;
    assert_true(streamed > 0 && ahead > 0);
    assert_int_equal(rn_session_get_facts(session).read_bytes, resident + runs * streamed + ahead);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

static void what_is_read_is_what_the_plan_says(void **state) {
    (void)state;
    check_what_is_read_is_what_the_plan_says(packed_caps());
    check_what_is_read_is_what_the_plan_says(raw_caps());
}

// ---- quantised weights --------------------------------------------------------------------------

static void other_dtypes_stream_to_the_same_bits(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F16,  RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_Q4_0,
                                      RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        chain c = {.layers = 5, .width = 192, .rows = ROWS, .dtype = dtypes[i]};
        rn_checkpoint *checkpoint;
        rn_session *session;
        float *want[2];
        bool own = dtypes[i] >= RN_DTYPE_INT8; // several tensors a weight
        const char *path = test_path(own ? "other.safetensors" : "other.gguf");
        chain_open(&c);
        chain_write(&c, path);
        find_expected(&c, want);
        assert_ok(rn_checkpoint_open(path, &checkpoint));
        rn_plan *plan = chain_plan(&c, raw_caps(), chain_budget(&c, raw_caps(), 0, 2));
        assert_true(plan->slot_count > 0);
        assert_int_equal(count_raw(plan) > 0, !own);
        assert_ok(
            rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
        for (uint32_t run = 0; run < 2; run++)
            expect_y(&c, session, run, want[run]);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
        rn_checkpoint_close(checkpoint);
        free(want[0]);
        free(want[1]);
        chain_close(&c);
    }
}

// ---- failures -----------------------------------------------------------------------------------

// 12 MiB of weights, more than the staging holds: a run cannot have read them all ahead.
static void
check_a_file_that_shrinks_stops_the_run_with_name_and_offset(const rn_device_caps *caps) {
    chain c = {.layers = 12, .width = 512, .rows = ROWS};
    rn_checkpoint *checkpoint;
    rn_session *session;
    const char *path = test_path("large.safetensors");
    float *y = malloc(ROWS * 512 * sizeof(float));
    chain_open(&c);
    chain_write(&c, path);
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    rn_plan *plan = chain_plan(&c, caps, chain_budget(&c, caps, 0, 2));
    assert_ok(
        rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
    assert_ok(chain_run(&c, session, ROWS, 0, y));
    assert_int_equal(truncate(path, 6 << 20), 0);
    rn_status s = RN_OK;
    for (int run = 0; run < 3 && s == RN_OK; run++)
        s = chain_run(&c, session, ROWS, 0, y);
    assert_int_equal(s, RN_IO);
    assert_string_equal(rn_last_error()->path, path);
    assert_true(rn_last_error()->offset >= (6 << 20) - (512 << 10));
    assert_true(rn_last_error()->offset != RN_NO_OFFSET);
    assert_fails(RN_IO, rn_session_run(session, ROWS)); // the same story again
    assert_string_equal(rn_last_error()->path, path);
    assert_ok(rn_session_reset(session));
    s = RN_OK;
    for (int run = 0; run < 3 && s == RN_OK; run++)
        s = chain_run(&c, session, ROWS, 0, y);
    assert_int_equal(s, RN_IO); // the file is still short
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
    chain_close(&c);
    free(y);
}

static void a_file_that_shrinks_stops_the_run_with_name_and_offset(void **state) {
    (void)state;
    check_a_file_that_shrinks_stops_the_run_with_name_and_offset(packed_caps());
    check_a_file_that_shrinks_stops_the_run_with_name_and_offset(raw_caps());
}

static void check_a_file_that_changes_stops_the_run_with_its_name(const rn_device_caps *caps) {
    const char *path = test_path("changing.safetensors");
    rn_checkpoint *checkpoint;
    rn_session *session;
    float *y = malloc(y_bytes(&small));
    chain_write(&small, path);
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    rn_plan *plan = chain_plan(&small, caps, chain_budget(&small, caps, 0, 2));
    assert_ok(
        rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
    assert_ok(chain_run(&small, session, ROWS, 0, y));
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fputc(1, file), 1);
    fclose(file);
    rn_status s = RN_OK;
    for (int run = 0; run < 3 && s == RN_OK; run++)
        s = chain_run(&small, session, ROWS, 0, y);
    assert_int_equal(s, RN_IO);
    assert_non_null(strstr(rn_last_error()->message, "changing.safetensors"));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
    free(y);
}

static void a_file_that_changes_stops_the_run_with_its_name(void **state) {
    (void)state;
    check_a_file_that_changes_stops_the_run_with_its_name(packed_caps());
    check_a_file_that_changes_stops_the_run_with_its_name(raw_caps());
}

static void check_every_read_that_fails_is_survived(const rn_device_caps *caps) {
    rn_checkpoint *checkpoint = open_small();
    rn_plan *plan = chain_plan(&small, caps, chain_budget(&small, caps, 0, 2));
    rn_weight_source source = {.checkpoint = checkpoint};
    float *y = malloc(y_bytes(&small));
    uint32_t failed_create = 0, failed_run = 0;
    for (uint64_t n = 1;; n++) {
        rn_session *session;
        rn_fault_arm(RN_FAULT_READ, n);
        rn_status s = rn_session_create(plan, &source, NULL, &session);
        failed_create += s != RN_OK;
        bool made = s == RN_OK;
        for (int run = 0; made && s == RN_OK && run < 2; run++) {
            s = chain_run(&small, session, ROWS, 0, y);
            failed_run += s != RN_OK;
        }
        bool fired = rn_fault_fired(RN_FAULT_READ);
        rn_fault_arm(RN_FAULT_READ, 0);
        assert_true(s == RN_OK || s == RN_IO);
        if (made) {
            assert_ok(rn_session_reset(session));
            expect_y(&small, session, 1, expected[1]);
            expect_y(&small, session, 0, expected[0]);
        }
        rn_session_destroy(session);
        if (!fired) break;
    }
    assert_true(failed_run > 0);
    free(y);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

static void every_read_that_fails_is_survived(void **state) {
    (void)state;
    check_every_read_that_fails_is_survived(packed_caps());
    check_every_read_that_fails_is_survived(raw_caps());
}

static void check_every_allocation_that_fails_leaves_nothing_behind(const rn_device_caps *caps) {
    rn_checkpoint *checkpoint = open_small();
    rn_plan *plan = chain_plan(&small, caps, chain_budget(&small, caps, 0, 2));
    rn_weight_source source = {.checkpoint = checkpoint};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_session *session;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_session_create(
            plan, &source, &(rn_session_options){.audit = true, .guard = true}, &session);
        float *y = malloc(y_bytes(&small));
        if (s == RN_OK) s = chain_run(&small, session, ROWS, 0, y);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        if (!fired) assert_memory_equal(y, expected[0], y_bytes(&small));
        free(y);
        rn_session_destroy(session);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        if (!fired) break;
    }
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

static void every_allocation_that_fails_leaves_nothing_behind(void **state) {
    (void)state;
    check_every_allocation_that_fails_leaves_nothing_behind(packed_caps());
    check_every_allocation_that_fails_leaves_nothing_behind(raw_caps());
}

static _Atomic bool cancel;
static uint32_t relus_until_cancel;

static rn_status cancel_in_relu(const rn_call *call) {
    if (--relus_until_cancel == 0) atomic_store(&cancel, true);
    return rn_op_get(RN_OP_RELU)->reference(call);
}

static void cancelling_stops_a_run_at_any_step(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT];
    rn_checkpoint *checkpoint = open_small();
    rn_device *device;
    rn_session *session;
    float *y = malloc(y_bytes(&small));
    assert_ok(rn_cpu_device_create(2, &device));
    memcpy(kernels, device->caps.kernels, sizeof kernels);
    kernels[RN_OP_RELU].run = cancel_in_relu;
    device->caps.kernels = kernels;
    device->caps.file_layout_bytes = 1;
    rn_plan *plan = chain_plan(&small, &device->caps, chain_budget(&small, &device->caps, 0, 2));
    assert_ok(rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint},
                                &(rn_session_options){.device = device, .cancel = &cancel},
                                &session));
    for (uint32_t n = 1; n < small.layers; n++) {
        relus_until_cancel = n;
        assert_fails(RN_CANCELLED, chain_run(&small, session, ROWS, 0, y));
        relus_until_cancel = 0;
        atomic_store(&cancel, false);
        assert_fails(RN_CANCELLED, rn_session_run(session, 1)); // until it is reset
        assert_ok(rn_session_reset(session));
        expect_y(&small, session, 1, expected[1]);
    }
    free(y);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(device);
    rn_checkpoint_close(checkpoint);
}

static void a_cancelled_session_does_not_begin(void **state) {
    (void)state;
    _Atomic bool cancelled = true;
    rn_checkpoint *checkpoint = open_small();
    rn_plan *plan = chain_plan(&small, rn_cpu_caps(), 0);
    rn_session *session;
    assert_fails(RN_CANCELLED,
                 rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint},
                                   &(rn_session_options){.cancel = &cancelled}, &session));
    assert_null(session);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

static void faults_of_a_device_poison_the_session_until_it_is_reset(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_small();
    rn_weight_source source = {.checkpoint = checkpoint};
    rn_device *sim;
    rn_session *session;
    float *y = malloc(y_bytes(&small));
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = chain_plan(&small, &sim->caps, chain_budget(&small, &sim->caps, 0, 2));
    assert_true(plan->slot_count > 0);
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
    for (uint32_t n = 1; n < 40; n++) {
        rn_sim_device_arm(sim, 0, n % 2 ? n : 0, n % 2 ? 0 : n);
        rn_status s = RN_OK;
        for (int run = 0; run < 4 && s == RN_OK; run++)
            s = chain_run(&small, session, ROWS, 0, y);
        assert_int_equal(s, RN_DEVICE);
        assert_fails(RN_DEVICE, rn_session_run(session, ROWS));
        assert_non_null(strstr(rn_last_error()->message, "is to fail"));
        assert_ok(rn_session_reset(session));
        rn_sim_device_arm(sim, 0, 0, 0);
        expect_y(&small, session, 1, expected[1]);
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
    rn_checkpoint_close(checkpoint);
    free(y);
}

static void a_device_that_is_too_small_refuses(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&small);
    rn_device *sim;
    rn_session *session;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = chain_plan(&small, &sim->caps, 0);
    rn_device_destroy(sim);
    assert_ok(rn_sim_device_create(&(rn_sim_options){.memory_bytes = plan->summary.arena_bytes - 1},
                                   &sim));
    assert_fails(RN_OVER_BUDGET,
                 rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
    assert_int_equal(rn_last_refusal()->device, sim->caps.device);
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_streams_through_any_number_of_slots),
        cmocka_unit_test(memory_streams_as_well),
        cmocka_unit_test(a_device_with_its_own_memory_gives_the_same_bits),
        cmocka_unit_test(what_the_host_holds_is_what_the_plan_says),
        cmocka_unit_test(what_is_read_is_what_the_plan_says),
        cmocka_unit_test(other_dtypes_stream_to_the_same_bits),
        cmocka_unit_test(a_file_that_shrinks_stops_the_run_with_name_and_offset),
        cmocka_unit_test(a_file_that_changes_stops_the_run_with_its_name),
        cmocka_unit_test(every_read_that_fails_is_survived),
        cmocka_unit_test(every_allocation_that_fails_leaves_nothing_behind),
        cmocka_unit_test(cancelling_stops_a_run_at_any_step),
        cmocka_unit_test(a_cancelled_session_does_not_begin),
        cmocka_unit_test(faults_of_a_device_poison_the_session_until_it_is_reset),
        cmocka_unit_test(a_device_that_is_too_small_refuses),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
