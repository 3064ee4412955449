// labels: threads
// The sim device, and what every device's memory does to the ledger.
#include "support.h"

#include <ration/memory.h>

#include "backend/null/null.h"
#include "backend/sim/sim.h"
#include "base/clock.h"
#include "base/fault.h"

static rn_device *make(const rn_sim_options *options) {
    rn_device *device;
    assert_ok(rn_sim_device_create(options, &device));
    return device;
}

static void memory_is_charged_by_purpose_under_the_devices_own_name(void **state) {
    (void)state;
    rn_device *sim = make(NULL);
    rn_device_id id = sim->caps.device;
    uint64_t bytes[RN_PURPOSE_COUNT] = {
        [RN_PURPOSE_WEIGHTS] = 4096, [RN_PURPOSE_ACTIVATIONS] = 100};
    rn_device_memory memory;
    assert_string_equal(rn_device_name(id), "sim");
    assert_ok(rn_device_memory_take(sim, bytes, &memory));
    assert_int_equal(memory.bytes, 4196);
    assert_int_equal(rn_ledger_read(id, RN_PURPOSE_WEIGHTS).now_bytes, 4096);
    assert_int_equal(rn_ledger_read(id, RN_PURPOSE_ACTIVATIONS).now_bytes, 100);
    assert_true(rn_ledger_is_valid());
    rn_device_memory_release(&memory);
    assert_int_equal(rn_ledger_total(id).now_bytes, 0);
    rn_device_destroy(sim);
}

static void more_than_the_device_has_is_refused_with_a_table(void **state) {
    (void)state;
    rn_device *sim = make(&(rn_sim_options){.memory_bytes = 10000});
    uint64_t bytes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_KV] = 6000};
    rn_device_memory first, second;
    assert_ok(rn_device_memory_take(sim, bytes, &first));
    assert_fails(RN_OVER_BUDGET, rn_device_memory_take(sim, bytes, &second));
    const rn_refusal *refusal = rn_last_refusal();
    assert_int_equal(refusal->device, sim->caps.device);
    assert_int_equal(refusal->requested_bytes, 6000);
    assert_int_equal(refusal->smallest_budget_bytes, 12000);
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 6000);
    rn_device_memory_release(&first);
    assert_ok(rn_device_memory_take(sim, bytes, &second));
    rn_device_memory_release(&second);
    rn_device_destroy(sim);
}

static void the_budget_is_asked_before_the_device(void **state) {
    (void)state;
    rn_device *sim = make(NULL);
    uint64_t bytes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_WEIGHTS] = 2048, [RN_PURPOSE_KV] = 2048};
    rn_device_memory memory;
    assert_ok(rn_budget_set(sim->caps.device, 0, 4095));
    assert_fails(RN_OVER_BUDGET, rn_device_memory_take(sim, bytes, &memory));
    assert_null(memory.base);
    assert_ok(rn_budget_set(sim->caps.device, 0, 4096));
    assert_ok(rn_device_memory_take(sim, bytes, &memory));
    rn_device_memory_release(&memory);
    assert_ok(rn_budget_set(sim->caps.device, 0, RN_NO_LIMIT));
    rn_device_destroy(sim);
}

// ---- commands on it -----------------------------------------------------------------------------

typedef struct bench {
    rn_device *sim;
    rn_device_memory memory;
    rn_queue *queue;
    rn_tensor tensors[3];
    rn_call call;
} bench;

static void open_bench(bench *b, const rn_sim_options *options) {
    uint64_t bytes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = 3 * 64};
    b->sim = make(options);
    assert_ok(rn_device_memory_take(b->sim, bytes, &b->memory));
    assert_ok(b->sim->open_queue(b->sim, RN_QUEUE_COMPUTE, NULL, &b->queue));
    for (int i = 0; i < 3; i++)
        b->tensors[i] =
            (rn_tensor){b->memory.base + 64 * i, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(16)};
    b->call = (rn_call){.op = RN_OP_ADD,
                        .inputs = b->tensors,
                        .outputs = b->tensors + 2,
                        .input_count = 2,
                        .output_count = 1,
                        .threads = 1};
}

static void close_bench(bench *b) {
    rn_queue_destroy(b->queue);
    rn_device_memory_release(&b->memory);
    rn_device_destroy(b->sim);
}

static void launch_add(bench *b) {
    rn_queue_launch(b->queue, &b->sim->caps.kernels[RN_OP_ADD], &b->call);
}

static void uploads_compute_and_come_back(void **state) {
    (void)state;
    bench b;
    float x[16], y[16], sum[16];
    open_bench(&b, NULL);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
        y[i] = 100;
    }
    rn_queue_copy_in(b.queue, b.tensors[0].data, x, sizeof x);
    rn_queue_copy_in(b.queue, b.tensors[1].data, y, sizeof y);
    launch_add(&b);
    rn_queue_copy_out(b.queue, sum, b.tensors[2].data, sizeof sum);
    assert_ok(rn_queue_finish(b.queue));
    for (int i = 0; i < 16; i++)
        assert_true(sum[i] == 100 + (float)i);
    close_bench(&b);
}

static void a_host_pointer_never_reaches_a_kernel(void **state) {
    (void)state;
    bench b;
    float host[16] = {0};
    open_bench(&b, NULL);
    b.tensors[1].data = host;
    launch_add(&b);
    assert_fails(RN_DEVICE, rn_queue_finish(b.queue));
    assert_non_null(strstr(rn_last_error()->message, "argument 1 of add"));
    rn_queue_reset(b.queue);
    rn_queue_copy_in(b.queue, b.memory.base + 3 * 64 - 4, host, 8); // over the end
    assert_fails(RN_DEVICE, rn_queue_finish(b.queue));
    close_bench(&b);
}

static void faults_hit_the_nth_launch_and_the_nth_copy(void **state) {
    (void)state;
    bench b;
    float x[16] = {0};
    open_bench(&b, &(rn_sim_options){.fail_launch = 2, .fail_copy = 3});
    for (int i = 0; i < 2; i++)
        rn_queue_copy_in(b.queue, b.tensors[i].data, x, sizeof x);
    launch_add(&b);
    assert_ok(rn_queue_finish(b.queue));
    launch_add(&b);
    assert_fails(RN_DEVICE, rn_queue_finish(b.queue));
    assert_string_equal(rn_last_error()->message, "sim: this launch is to fail");
    rn_queue_reset(b.queue);
    rn_queue_copy_in(b.queue, b.tensors[0].data, x, sizeof x);
    assert_fails(RN_DEVICE, rn_queue_finish(b.queue));
    assert_string_equal(rn_last_error()->message, "sim: this copy is to fail");
    rn_queue_reset(b.queue);
    launch_add(&b);
    rn_queue_copy_in(b.queue, b.tensors[0].data, x, sizeof x);
    assert_ok(rn_queue_finish(b.queue)); // once each
    close_bench(&b);
}

static void an_allocation_fails_on_demand_and_leaves_the_ledger_alone(void **state) {
    (void)state;
    rn_device *sim = make(&(rn_sim_options){.fail_alloc = 1});
    uint64_t bytes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_WEIGHTS] = 64};
    rn_device_memory memory;
    assert_fails(RN_NO_MEMORY, rn_device_memory_take(sim, bytes, &memory));
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    assert_ok(rn_device_memory_take(sim, bytes, &memory));
    rn_device_memory_release(&memory);
    rn_device_destroy(sim);
}

static void a_slow_link_takes_its_time(void **state) {
    (void)state;
    bench b;
    float x[16] = {0};
    open_bench(&b, &(rn_sim_options){.link_bytes_second = 64 / 0.02, .launch_seconds = 0.01});
    uint64_t begin = rn_clock_ns();
    rn_queue_copy_in(b.queue, b.tensors[0].data, x, sizeof x);
    rn_queue_copy_in(b.queue, b.tensors[1].data, x, sizeof x);
    launch_add(&b);
    assert_ok(rn_queue_finish(b.queue));
    assert_true(rn_clock_ns() - begin >= 50000000);
    close_bench(&b);
}

static void the_null_device_exists_and_can_do_nothing(void **state) {
    (void)state;
    rn_device *null;
    rn_queue *queue;
    assert_ok(rn_null_device_create(false, &null));
    for (int op = 0; op < RN_OP_COUNT; op++)
        assert_null(null->caps.kernels[op].run);
    assert_ok(null->open_queue(null, RN_QUEUE_COPY, NULL, &queue));
    assert_ok(rn_queue_finish(queue));
    rn_queue_destroy(queue);
    rn_device_destroy(null);
}

static void the_nth_allocation_fails_and_nothing_leaks(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_device *sim;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_sim_device_create(&(rn_sim_options){.threads = 2}, &sim);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(fired ? s == RN_NO_MEMORY && !sim : s == RN_OK);
        rn_device_destroy(sim);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        if (!fired) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_charged_by_purpose_under_the_devices_own_name),
        cmocka_unit_test(more_than_the_device_has_is_refused_with_a_table),
        cmocka_unit_test(the_budget_is_asked_before_the_device),
        cmocka_unit_test(uploads_compute_and_come_back),
        cmocka_unit_test(a_host_pointer_never_reaches_a_kernel),
        cmocka_unit_test(faults_hit_the_nth_launch_and_the_nth_copy),
        cmocka_unit_test(an_allocation_fails_on_demand_and_leaves_the_ledger_alone),
        cmocka_unit_test(a_slow_link_takes_its_time),
        cmocka_unit_test(the_null_device_exists_and_can_do_nothing),
        cmocka_unit_test(the_nth_allocation_fails_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
