// labels: threads
// A GPU that another program fills between plan and allocation: a smaller plan, or a refusal with
// numbers; nothing stays behind.
#include "../runtime/recover_attempt.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/cuda.h"

#include <ration/cuda.h>
#include <ration/memory.h>

#define MIB ((uint64_t)1 << 20)

static chain model = {.layers = 8, .width = 1024, .rows = 2}; // 4 MiB each
static fake_cuda *fake;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1};
static rn_device_id cuda0;

static int start(void **state) {
    (void)state;
    chain_open(&model);
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    return fake && rn_device_add("cuda:0", &cuda0) == RN_OK ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    chain_close(&model);
    return 0;
}

static int each(void **state) {
    (void)state;
    fake->capacity_bytes = 256 * MIB;
    fake->device_count = 1;
    fake->has_vmm = fake->has_words = true;
    fake->capability = 90;
    fake->fail_at = 0;
    rn_cuda_images_replace(&with_kernels);
    return 0;
}

static int clean(void **state) {
    (void)state;
    return fake->used_bytes == 0 && fake->context_count == 0 && fake->violations == 0 &&
                   fake->pinned_bytes == 0 && rn_ledger_total(cuda0).now_bytes == 0 &&
                   rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0
               ? 0
               : -1;
}

static void set_capacity(rn_device *device, uint64_t bytes) {
    (void)device;
    fake->capacity_bytes = bytes;
}

static rn_status recover(attempt *a) {
    a->model = &model;
    a->change = set_capacity;
    assert_ok(rn_cuda_device_create(0, 1, &a->device));
    return attempt_recover(a);
}

static void finish(attempt *a) {
    attempt_close(a);
    rn_device_destroy(a->device);
}

// The first plan's 32 MiB and some do not fit 20; what is free is asked in whole granules.
static void a_fuller_gpu_gets_a_smaller_plan(void **state) {
    (void)state;
    attempt a = {.changes = {20 * MIB}};
    assert_ok(recover(&a));
    assert_int_equal(a.plans, 2);
    const rn_plan_summary *s = rn_plan_get_summary(a.plan);
    assert_true(s->streamed_bytes > 0 && s->planned_bytes <= 20 * MIB);
    assert_true(fake->used_bytes <= 20 * MIB);
    finish(&a);
}

static void caches_are_given_back_for_the_asking(void **state) {
    (void)state;
    rn_device *device;
    void *block;
    assert_ok(rn_cuda_device_create(0, 1, &device));
    assert_ok(rn_cuda_allocate(device, 40 * MIB, &block));
    rn_cuda_deallocate(device, block); // the pool keeps it
    assert_int_equal(fake->used_bytes, 40 * MIB);
    assert_int_equal(device->release_caches(device), 40 * MIB);
    assert_int_equal(fake->used_bytes, 0);
    rn_device_destroy(device);
}

static void a_gpu_that_is_full_is_told_with_what_was_free(void **state) {
    (void)state;
    attempt a = {.changes = {MIB}};
    assert_fails(RN_OVER_BUDGET, recover(&a));
    assert_non_null(strstr(rn_last_error()->message, "cuda:0 had no room: "));
    assert_non_null(strstr(rn_last_error()->message, "1.00 MiB free (cuda_out_of_memory)"));
    assert_non_null(strstr(rn_last_error()->hint, "the smallest budget that works is"));
    assert_int_equal(rn_last_refusal()->device, cuda0);
    finish(&a);
}

// Whoever else is there takes whatever is released.
static void a_gpu_that_fills_up_each_time_is_given_up(void **state) {
    (void)state;
    attempt a = {.changes = {24 * MIB, 18 * MIB, 8 * MIB}};
    assert_fails(RN_OVER_BUDGET, recover(&a));
    assert_int_equal(a.plans, RN_RECOVER_TRIES);
    assert_non_null(strstr(rn_last_error()->message, "cuda:0 had no room in 3 tries: "));
    assert_int_equal(rn_last_refusal()->free_bytes, 8 * MIB);
    finish(&a);
}

// Whoever fills the GPU during a run is too late: with weights that stay, and with streamed ones.
static void a_run_takes_nothing_of_a_full_gpu(void **state) {
    (void)state;
    static float y[2 * 1024];
    for (uint64_t budget = 0; budget <= 20 * MIB; budget += 20 * MIB) {
        attempt a = {.options.budget_bytes = budget};
        assert_ok(recover(&a));
        assert_int_equal(rn_plan_get_summary(a.plan)->streamed_bytes > 0, budget > 0);
        fake->capacity_bytes = fake->used_bytes;
        uint64_t takes = fake->take_count;
        for (int run = 0; run < 4; run++) // the second is recorded, the third replayed
            assert_ok(chain_run(&model, a.session, 2, 0, y));
        assert_int_equal(fake->take_count, takes);
        assert_true(budget || fake->graph_launch_count > 0);
        assert_ok(rn_session_reset(a.session)); // as after a failure
        takes = fake->take_count;
        assert_ok(chain_run(&model, a.session, 2, 0, y));
        assert_int_equal(fake->take_count, takes);
        finish(&a);
        fake->capacity_bytes = 256 * MIB;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_fuller_gpu_gets_a_smaller_plan, each, clean),
        cmocka_unit_test_setup_teardown(caches_are_given_back_for_the_asking, each, clean),
        cmocka_unit_test_setup_teardown(a_gpu_that_is_full_is_told_with_what_was_free, each, clean),
        cmocka_unit_test_setup_teardown(a_gpu_that_fills_up_each_time_is_given_up, each, clean),
        cmocka_unit_test_setup_teardown(a_run_takes_nothing_of_a_full_gpu, each, clean),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
