// labels: threads
// A GPU as a device, over a driver of our own: what can be missing, memory, budget, what is
// outside.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cost.h"
#include "backend/cuda/rows.h"
#include "base/fault.h"
#include "graph/fuse.h"

#include <ration/cuda.h>
#include <ration/memory.h>

#define MIB ((uint64_t)1 << 20)

static fake_cuda *fake;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1}, without_kernels;
static rn_device_id cuda0;

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    return fake && rn_device_add("cuda:0", &cuda0) == RN_OK ? 0 : -1;
}

static int each(void **state) {
    (void)state;
    fake->capacity_bytes = 256 * MIB;
    fake->device_count = 2;
    fake->has_vmm = fake->has_words = true;
    fake->fail_at = 0;
    fake->fail_code = 2;
    fake->capability = 90;
    fake->shared_most = fake->shared_fixed = 0;
    fake->image_code = 0;
    fake->module_bytes = 0;
    rn_cuda_images_replace(&with_kernels);
    rn_cuda_set_pinned_limit(0);
    return rn_budget_set(cuda0, 0, RN_NO_LIMIT) == RN_OK ? 0 : -1;
}

static uint64_t host_bytes(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes;
}

static bool is_clean(void) {
    return fake->used_bytes == 0 && fake->reserved_address_bytes == 0 && fake->event_count == 0 &&
           fake->context_count == 0 && fake->pushed_count == 0 && fake->violations == 0 &&
           fake->stream_count == 0 && fake->module_count == 0 && fake->graph_count == 0 &&
           fake->pinned_bytes == 0 && rn_cuda_pinned_bytes() == 0 && rn_ledger_is_valid() &&
           rn_ledger_total(cuda0).now_bytes == 0 && host_bytes() == 0;
}

// Whatever a test did, everything is back.
static int clean(void **state) {
    (void)state;
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    return is_clean() ? 0 : -1;
}

static rn_device *create(void) {
    rn_device *device;
    assert_ok(rn_cuda_device_create(0, 1, &device));
    return device;
}

static uint64_t line(rn_purpose purpose) {
    return rn_ledger_read(cuda0, purpose).now_bytes;
}

static rn_status take(rn_device *device, uint64_t bytes, rn_device_memory *out) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_WEIGHTS] = bytes};
    return rn_device_memory_take(device, purposes, out);
}

// ---- what can be missing ------------------------------------------------------------------------

static void wrong_number_is_told_with_the_count(void **state) {
    (void)state;
    rn_device *device;
    assert_fails(RN_NOT_FOUND, rn_cuda_device_create(2, 1, &device));
    assert_string_equal("there is no cuda:2: the driver counts 2", rn_last_error()->message);
    assert_null(device);
    assert_fails(RN_NOT_FOUND, rn_cuda_device_create(-1, 1, &device));
}

static void library_without_kernels_says_so(void **state) {
    (void)state;
    rn_device *device;
    rn_cuda_images_replace(&without_kernels);
    assert_fails(RN_UNSUPPORTED, rn_cuda_device_create(0, 1, &device));
    assert_non_null(strstr(rn_last_error()->message, "built without CUDA kernels: make cuda"));
    assert_int_equal(0, fake->context_count);
}

static void old_gpu_is_refused_with_its_capability(void **state) {
    (void)state;
    rn_device *device;
    fake->capability = 75;
    assert_fails(RN_UNSUPPORTED, rn_cuda_device_create(0, 1, &device));
    assert_non_null(strstr(rn_last_error()->message, "its compute capability is 7.5"));
}

static void old_driver_is_refused_by_what_it_lacks(void **state) {
    (void)state;
    rn_device *device;
    const rn_cuda_driver old = {.version = 11020,
                                .lacks = {[RN_CUDA_NEED_MODELS] = "cuLaunchKernelEx"}};
    assert_fails(RN_UNSUPPORTED, rn_cuda_driver_need_models(&old));
    assert_string_equal("the CUDA driver (11.2) is too old: it has no cuLaunchKernelEx",
                        rn_last_error()->message);
    fake->image_code = 222; // kernels newer than the driver
    assert_fails(RN_UNSUPPORTED, rn_cuda_device_create(0, 1, &device));
    assert_non_null(strstr(rn_last_error()->message, "loading the kernels of test"));
    assert_non_null(strstr(rn_last_error()->hint, "newer NVIDIA driver"));
}

static void device_knows_what_it_is_like(void **state) {
    (void)state;
    rn_device *device = create();
    const rn_device_caps *caps = rn_device_get_caps(device);
    assert_string_equal("cuda:0", caps->name);
    assert_int_equal(cuda0, caps->device);
    assert_true(caps->own_memory && caps->fusions == (RN_FUSE_ALL | RN_FUSE_HALVES));
    assert_int_equal(64 * MIB, caps->group_bytes);
    assert_int_equal(1, caps->threads);
    assert_true(caps->flops > 0 && caps->quantized_flops > 0 && caps->link_bytes_second > 0 &&
                caps->disk_bytes_second > 0 && caps->step_seconds > 0);
    assert_true(caps->own[RN_CUDA_ATTEND_FLOPS] > 0 &&
                caps->own[RN_CUDA_ATTEND_FLOPS] < caps->flops &&
                caps->own[RN_CUDA_ATTEND_SECONDS] > 0 && caps->run_seconds > 0);
    assert_ptr_equal(&rn_cuda_backend, caps->backend);
    assert_true(rn_gpu_of(device)->traits.multiprocessors > 0);
    assert_true(rn_gpu_of(device)->traits.multiprocessors == caps->own[RN_CUDA_MULTIPROCESSORS]);
    assert_true(caps->memory_bytes_second == 2 * 1e9 * 1024 / 8 * 0.85);
    assert_true(rn_gpu_of(device)->traits.has_wgmma);
    rn_device_destroy(device);
}

// ---- memory -------------------------------------------------------------------------------------

static void block_is_mapped_in_granules_and_really_returned(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    assert_ok(take(device, 5 * MIB + 100, &memory));
    memset(memory.base, 1, memory.bytes); // it is really there
    assert_int_equal(6 * MIB, fake->used_bytes);
    assert_int_equal(5 * MIB + 100, line(RN_PURPOSE_WEIGHTS));
    assert_int_equal(MIB - 100, line(RN_PURPOSE_UNACCOUNTED));
    assert_int_equal(MIB - 100, rn_cuda_device_unaccounted(device));
    assert_true(rn_gpu_holds(rn_gpu_of(device), memory.base));
    assert_false(rn_gpu_holds(rn_gpu_of(device), &memory));
    rn_device_memory_release(&memory);
    assert_int_equal(0, fake->used_bytes);
    assert_int_equal(0, rn_ledger_total(cuda0).now_bytes);
    rn_device_destroy(device);
}

static void same_without_virtual_memory(void **state) {
    (void)state;
    fake->has_vmm = false;
    rn_device *device = create();
    rn_device_memory a, b;
    assert_ok(take(device, 3 * MIB, &a));
    assert_ok(take(device, MIB, &b));
    memset(b.base, 1, b.bytes);
    assert_int_equal(6 * MIB, fake->used_bytes);
    assert_true(rn_gpu_holds(rn_gpu_of(device), a.base));
    assert_true(rn_gpu_holds(rn_gpu_of(device), b.base));
    assert_false(rn_gpu_holds(rn_gpu_of(device), &b));
    rn_device_memory_release(&a);
    rn_device_memory_release(&b);
    rn_device_destroy(device);
}

static void blocks_of_any_order_find_room_again(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory[8] = {0};
    for (uint32_t i = 0; i < 400; i++) {
        rn_device_memory *one = &memory[i * 5 % 8];
        rn_device_memory_release(one);
        assert_ok(take(device, (i * 37 % 29 + 1) * MIB - i, one));
        one->base[0] = one->base[one->bytes - 1] = 1;
    }
    for (int i = 0; i < 8; i++)
        rn_device_memory_release(&memory[i]);
    rn_device_destroy(device);
}

static void memory_that_somebody_else_holds_is_told_with_numbers(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    fake->used_bytes += 200 * MIB;
    assert_fails(RN_NO_MEMORY, take(device, 100 * MIB, &memory));
    assert_non_null(strstr(rn_last_error()->message, "56.0 MiB of the 256 MiB of cuda:0 are free"));
    rn_gpu_memory_info info;
    assert_ok(rn_cuda_memory_info(device, &info));
    assert_int_equal(256 * MIB, info.total_bytes);
    assert_int_equal(56 * MIB, info.free_bytes);
    assert_int_equal(56 * MIB, rn_device_free_bytes(device));
    assert_int_equal(200 * MIB, info.others_bytes);
    assert_int_equal(0, info.used_bytes);
    assert_fails(RN_NO_MEMORY, take(device, (uint64_t)1 << 60, &memory));
    fake->used_bytes -= 200 * MIB;
    rn_device_destroy(device);
}

// Neither the block nor what it would have been rounded up by, nor a chunk of the pool.
static void what_the_driver_refuses_is_in_no_peak(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    rn_account staging = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_STAGING};
    void *block = NULL;
    rn_ledger_reset_peaks();
    uint64_t peak = rn_ledger_total(cuda0).peak_bytes;
    uint64_t outside = rn_ledger_read(cuda0, RN_PURPOSE_UNACCOUNTED).peak_bytes;
    fake->used_bytes += 200 * MIB; // of another process: the ledger does not know
    assert_fails(RN_NO_MEMORY, take(device, 99 * MIB, &memory));
    assert_fails(RN_NO_MEMORY, rn_cuda_allocate(device, 99 * MIB, &block));
    fake->used_bytes -= 200 * MIB;
    assert_int_equal(peak, rn_ledger_total(cuda0).peak_bytes);
    assert_int_equal(outside, rn_ledger_read(cuda0, RN_PURPOSE_UNACCOUNTED).peak_bytes);
    uint64_t host = rn_ledger_total(RN_DEVICE_HOST).peak_bytes;
    fake->fail_at = 1;
    assert_fails(RN_NO_MEMORY, rn_device_host_take(device, staging, 64 * MIB, &block));
    assert_int_equal(0, fake->fail_at);
    assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes < host + 64 * MIB);
    rn_device_destroy(device);
}

static void budget_counts_rounding_too(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    assert_ok(rn_budget_set(cuda0, 0, 6 * MIB));
    assert_fails(RN_OVER_BUDGET, take(device, 7 * MIB, &memory));
    assert_ok(rn_budget_set(cuda0, 0, 6 * MIB - 1)); // the block fits, its granules do not
    device->refused_bytes = 0;
    assert_fails(RN_OVER_BUDGET, take(device, 5 * MIB, &memory));
    assert_int_equal(5 * MIB, device->refused_bytes); // who recovers knows what had no room
    assert_int_equal(0, rn_ledger_total(cuda0).now_bytes);
    assert_ok(rn_budget_set(cuda0, 0, 6 * MIB));
    assert_ok(take(device, 5 * MIB, &memory));
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
}

// ---- outside ------------------------------------------------------------------------------------

static void what_kernels_take_is_outside(void **state) {
    (void)state;
    rn_device_memory memory;
    uint64_t bytes;
    fake->module_bytes = 3 * MIB;
    rn_device *device = create();
    assert_int_equal(4 * MIB, rn_cuda_device_unaccounted(device)); // whole granules
    assert_int_equal(4 * MIB, line(RN_PURPOSE_UNACCOUNTED));
    assert_ok(take(device, 10 * MIB, &memory));
    fake->used_bytes += 5 * MIB; // the driver takes more, later
    assert_ok(rn_cuda_device_measure(device, &bytes));
    assert_int_equal(8 * MIB, bytes);
    assert_int_equal(8 * MIB, line(RN_PURPOSE_UNACCOUNTED));
    assert_int_equal(18 * MIB, rn_ledger_total(cuda0).now_bytes);
    fake->used_bytes -= 5 * MIB;
    rn_device *second = create(); // of the same GPU: one line for both
    assert_ok(rn_cuda_device_measure(device, &bytes));
    assert_int_equal(6 * MIB, bytes);
    rn_device_destroy(second);
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
}

// ---- the pool -----------------------------------------------------------------------------------

static void allocating_counts_now_and_peak(void **state) {
    (void)state;
    rn_device *device = create();
    void *a, *b, *nothing;
    assert_ok(rn_cuda_allocate(device, 1000, &a));
    assert_ok(rn_cuda_allocate(device, 3 * MIB, &b));
    assert_ok(rn_cuda_allocate(device, 0, &nothing));
    assert_null(nothing);
    memset(b, 1, 3 * MIB);
    assert_int_equal(3 * MIB + 1000, rn_cuda_current_bytes(device));
    assert_true(rn_gpu_holds(rn_gpu_of(device), b));
    rn_cuda_deallocate(device, b);
    assert_int_equal(1000, rn_cuda_current_bytes(device));
    assert_int_equal(3 * MIB + 1000, rn_cuda_peak_bytes(device));
    rn_cuda_deallocate(device, NULL);
    rn_cuda_deallocate(device, &a); // not the pool's
    rn_cuda_deallocate(device, b);  // not any more
    uint64_t held = fake->used_bytes;
    assert_true(rn_cuda_clear_caches(device) > 0);
    assert_true(fake->used_bytes < held);
    assert_int_equal(fake->used_bytes, line(RN_PURPOSE_OTHER));
    rn_cuda_deallocate(device, a);
    rn_cuda_clear_caches(device);
    assert_int_equal(0, fake->used_bytes);
    rn_device_destroy(device);
}

static void cache_makes_way_for_a_block(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    void *a;
    assert_ok(rn_cuda_allocate(device, 100 * MIB, &a));
    rn_cuda_deallocate(device, a);
    assert_true(fake->used_bytes >= 100 * MIB);
    assert_ok(take(device, 200 * MIB, &memory));
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
}

// ---- pinned memory ------------------------------------------------------------------------------

static void pinned_memory_has_its_own_limit(void **state) {
    (void)state;
    const rn_account staging = {RN_DEVICE_HOST, RN_PURPOSE_STAGING, NULL};
    rn_device *device = create();
    void *a, *b;
    uint64_t before = host_bytes();
    assert_true(rn_cuda_pinned_limit() > 0);
    rn_cuda_set_pinned_limit(10 * MIB);
    assert_ok(device->alloc_host(device, staging, 8 * MIB, &a));
    assert_int_equal(8 * MIB, fake->pinned_bytes);
    assert_int_equal(before + 8 * MIB, host_bytes());
    assert_fails(RN_OVER_BUDGET, device->alloc_host(device, staging, 3 * MIB, &b));
    assert_non_null(strstr(rn_last_error()->hint, "limit of pinned memory"));
    assert_fails(RN_OVER_BUDGET, device->alloc_host(device, staging, UINT64_MAX, &b));
    fake->fail_at = 1;
    assert_fails(RN_NO_MEMORY, device->alloc_host(device, staging, MIB, &b));
    assert_int_equal(8 * MIB, rn_cuda_pinned_bytes());
    device->free_host(device, staging, a, 8 * MIB);
    assert_int_equal(before, host_bytes());
    rn_device_destroy(device);
}

// ---- failures at every place --------------------------------------------------------------------

static rn_status live(void) {
    rn_device *device;
    rn_device_memory memory = {0};
    void *block = NULL;
    RN_TRY(rn_cuda_device_create(0, 1, &device));
    rn_status status = take(device, 3 * MIB, &memory);
    if (status == RN_OK) status = rn_cuda_allocate(device, MIB, &block);
    rn_cuda_deallocate(device, block);
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
    return status;
}

static void no_allocation_that_fails_leaves_anything(void **state) {
    (void)state;
    assert_true(survive_refusals(live) > 3);
}

static void no_call_that_fails_leaves_anything(void **state) {
    (void)state;
    rn_status status;
    uint64_t n = 0;
    do {
        fake->fail_at = ++n;
        status = live();
        assert_true(is_clean());
        if (status != RN_OK) assert_int_equal(RN_NO_MEMORY, status);
    } while (status != RN_OK);
    assert_true(n > 5);
    fake->fail_at = 0;
}

static void lost_device_gives_its_charges_back(void **state) {
    (void)state;
    rn_device *device = create();
    rn_device_memory memory;
    void *block;
    assert_ok(take(device, 5 * MIB, &memory));
    assert_ok(rn_cuda_allocate(device, MIB, &block));
    fake->die(719);
    rn_device_memory more;
    rn_gpu_memory_info info;
    uint64_t bytes;
    assert_fails(RN_DEVICE, take(device, MIB, &more));
    assert_int_equal(0, device->refused_bytes); // it is not full, it is gone
    assert_fails(RN_DEVICE, rn_cuda_memory_info(device, &info));
    assert_fails(RN_DEVICE, rn_cuda_device_measure(device, &bytes));
    rn_queue *queue;
    assert_fails(RN_DEVICE, device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &queue));
    rn_device_memory_release(&memory);
    rn_cuda_deallocate(device, block);
    rn_device_destroy(device);
    assert_int_equal(0, rn_ledger_total(cuda0).now_bytes);
    fake->die(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, each, clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(wrong_number_is_told_with_the_count),
        TEST(library_without_kernels_says_so),
        TEST(old_gpu_is_refused_with_its_capability),
        TEST(old_driver_is_refused_by_what_it_lacks),
        TEST(device_knows_what_it_is_like),
        TEST(block_is_mapped_in_granules_and_really_returned),
        TEST(same_without_virtual_memory),
        TEST(blocks_of_any_order_find_room_again),
        TEST(memory_that_somebody_else_holds_is_told_with_numbers),
        TEST(budget_counts_rounding_too),
        TEST(what_kernels_take_is_outside),
        TEST(what_the_driver_refuses_is_in_no_peak),
        TEST(allocating_counts_now_and_peak),
        TEST(cache_makes_way_for_a_block),
        TEST(pinned_memory_has_its_own_limit),
        TEST(no_allocation_that_fails_leaves_anything),
        TEST(no_call_that_fails_leaves_anything),
        TEST(lost_device_gives_its_charges_back),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
