// The driver's table, its codes and its memory as a pool's source, over a driver of our own.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/source.h"
#include "memory/account.h"
#include "memory/pool.h"

#define MIB ((size_t)1 << 20)

static fake_cuda *fake;

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    return fake ? 0 : -1;
}

static void a_machine_without_the_library_is_told_so(void **state) {
    (void)state;
    rn_cuda_driver driver;
    assert_fails(RN_UNSUPPORTED, rn_cuda_driver_load("/nowhere/libcuda.so.1", &driver));
    assert_non_null(strstr(rn_last_error()->message, "no CUDA driver"));
    assert_non_null(strstr(rn_last_error()->hint, "RATION_CUDA_DRIVER"));
    assert_null(driver.library);
}

static void a_library_that_is_no_driver_is_told_what_it_lacks(void **state) {
    (void)state;
    rn_cuda_driver driver;
    assert_fails(RN_UNSUPPORTED, rn_cuda_driver_load("libm.so.6", &driver));
    assert_non_null(strstr(rn_last_error()->message, "has no cuGetErrorName"));
}

static void a_driver_without_devices_may_be_asked_again(void **state) {
    (void)state;
    const rn_cuda_driver *driver;
    fake->device_count = 0;
    assert_fails(RN_UNSUPPORTED, rn_cuda_driver_get(&driver));
    assert_non_null(strstr(rn_last_error()->hint, "nvidia-smi"));
    fake->device_count = 1;
    assert_ok(rn_cuda_driver_get(&driver));
    assert_int_equal(12040, driver->version);
    assert_true(driver->has_vmm);
}

static void codes_become_statuses_with_a_story(void **state) {
    (void)state;
    const rn_cuda_driver *driver;
    assert_ok(rn_cuda_driver_get(&driver));
    assert_ok(rn_cuda_check(driver, 0, "nothing"));
    assert_fails(RN_NO_MEMORY, rn_cuda_check(driver, 2, "taking a chunk"));
    assert_string_equal("taking a chunk: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory",
                        rn_last_error()->message);
    assert_fails(RN_UNSUPPORTED, rn_cuda_check(driver, 100, "x"));
    assert_fails(RN_INVALID, rn_cuda_check(driver, 101, "x"));
    assert_fails(RN_DEVICE, rn_cuda_check(driver, 700, "x"));
    assert_fails(RN_DEVICE, rn_cuda_check(driver, 12345, "x"));
    assert_non_null(strstr(rn_last_error()->message, "unknown code (12345)"));
}

static void a_device_is_entered_and_left(void **state) {
    (void)state;
    rn_cuda_device device;
    assert_fails(RN_INVALID, rn_cuda_device_open(7, &device));
    assert_ok(rn_cuda_device_open(0, &device));
    assert_string_equal("cuda:0", rn_device_name(device.id));
    assert_int_equal(fake->capacity_bytes, device.total_bytes);
    assert_int_equal(2 * MIB, device.part_bytes);
    assert_ok(rn_cuda_enter(&device));
    assert_int_equal(1, fake->pushed_count);
    rn_cuda_leave(&device);
    assert_int_equal(0, fake->pushed_count);
    rn_cuda_device_close(&device);
    assert_int_equal(0, fake->context_count);
}

static void exercise_pool(rn_cuda_device *device, size_t least) {
    rn_cuda_source source;
    rn_pool *pool;
    rn_pool_block a, b;
    assert_ok(rn_cuda_source_open(device, NULL, &rn_system_allocator, &source));
    assert_ok(
        rn_pool_create_in(&rn_system_allocator, rn_cuda_source_functions(&source), NULL, &pool));
    assert_ok(rn_pool_alloc(pool, 3 * MIB, 0, &a));
    assert_ok(rn_pool_alloc(pool, 40 * MIB, 0, &b));
    memset((void *)(uintptr_t)a.address, 1, a.bytes); // both are really there
    memset((void *)(uintptr_t)b.address, 2, b.bytes);
    assert_int_equal(fake->used_bytes, device->reserved_bytes);
    assert_int_equal(fake->used_bytes, rn_ledger_total(device->id).now_bytes);
    rn_pool_free(pool, b);
    rn_pool_trim(pool, 0);
    assert_int_equal(least, fake->used_bytes);
    assert_int_equal(least, rn_ledger_read(device->id, RN_PURPOSE_OTHER).now_bytes);
    assert_true(fake->is_backed(a.address, a.bytes));
    rn_pool_free(pool, a);
    rn_pool_destroy(pool);
    rn_cuda_source_close(&source);
    assert_int_equal(0, fake->used_bytes);
    assert_int_equal(0, fake->reserved_address_bytes);
    assert_int_equal(0, rn_ledger_total(device->id).now_bytes);
    assert_int_equal(0, fake->violations);
}

static void flat_memory_grows_and_shrinks_by_parts(void **state) {
    (void)state;
    rn_cuda_device device;
    assert_ok(rn_cuda_device_open(0, &device));
    exercise_pool(&device, 4 * MIB);
    rn_cuda_device_close(&device);
}

static void a_large_device_has_larger_parts(void **state) {
    (void)state;
    rn_cuda_device device;
    uint64_t before = fake->capacity_bytes;
    fake->capacity_bytes = 16384 * 2 * MIB - 2 * MIB;
    assert_ok(rn_cuda_device_open(0, &device));
    assert_int_equal(2 * MIB, device.part_bytes);
    rn_cuda_device_close(&device);
    fake->capacity_bytes = 16384 * 8 * MIB;
    assert_ok(rn_cuda_device_open(0, &device));
    assert_int_equal(16 * MIB, device.part_bytes);
    exercise_pool(&device, 16 * MIB);
    rn_cuda_device_close(&device);
    fake->capacity_bytes = before;
}

static void without_virtual_memory_chunks_serve(void **state) {
    (void)state;
    rn_cuda_device device;
    fake->has_vmm = false;
    assert_ok(rn_cuda_device_open(0, &device));
    assert_int_equal(0, device.part_bytes);
    exercise_pool(&device, 64 * MIB);
    rn_cuda_device_close(&device);
    fake->has_vmm = true;
}

static void every_failing_call_leaves_nothing_behind(void **state) {
    (void)state;
    rn_cuda_device device;
    assert_ok(rn_cuda_device_open(0, &device));
    uint64_t n = 0;
    rn_status status;
    do {
        rn_cuda_source source;
        uint64_t address = 0;
        fake->fail_at = ++n;
        status = rn_cuda_source_open(&device, NULL, &rn_system_allocator, &source);
        if (status == RN_OK) {
            rn_pool_source functions = rn_cuda_source_functions(&source);
            status = functions.grow(&source, 6 * MIB, &address);
            if (status == RN_OK) functions.release(&source, address, 6 * MIB);
            rn_cuda_source_close(&source);
        }
        if (status != RN_OK) assert_int_equal(RN_NO_MEMORY, status);
        assert_int_equal(0, fake->used_bytes);
        assert_int_equal(0, fake->reserved_address_bytes);
        assert_int_equal(0, fake->pushed_count);
        assert_int_equal(0, rn_ledger_total(device.id).now_bytes);
    } while (status != RN_OK);
    assert_int_equal(1 + 3 * 2 + 1 + 1, n); // reserve, three parts created and mapped, access
    fake->fail_at = 0;
    rn_cuda_device_close(&device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_the_library_is_told_so),
        cmocka_unit_test(a_library_that_is_no_driver_is_told_what_it_lacks),
        cmocka_unit_test(a_driver_without_devices_may_be_asked_again),
        cmocka_unit_test(codes_become_statuses_with_a_story),
        cmocka_unit_test(a_device_is_entered_and_left),
        cmocka_unit_test(flat_memory_grows_and_shrinks_by_parts),
        cmocka_unit_test(a_large_device_has_larger_parts),
        cmocka_unit_test(without_virtual_memory_chunks_serve),
        cmocka_unit_test(every_failing_call_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
