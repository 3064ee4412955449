// labels: threads
// What was recorded, seen through the reader: the two sides of trace.h agree.
#include "support.h"
#include "memory/ledger.h"
#include "profile/timeline.h"

#include <pthread.h>

#define KIB ((uint64_t)1 << 10)

static const rn_account kv = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};

enum { STEPS = 4000, SLOTS = 32 };

static void *charge_in_operations(void *seed_at) {
    uint64_t seed = *(const uint64_t *)seed_at, held[SLOTS] = {0};
    for (int i = 0; i < STEPS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (seed >> 59) % SLOTS;
        rn_profile_begin(rn_profile_name("step"));
        if (held[slot]) rn_ledger_release(kv, &held[slot], held[slot]);
        held[slot] = held[slot] ? 0 : 1 + (seed >> 20) % 100000;
        if (held[slot]) rn_ledger_charge(kv, &held[slot], held[slot]);
        rn_profile_end();
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (held[slot]) rn_ledger_release(kv, &held[slot], held[slot]);
    return NULL;
}

static uint64_t record_two_threads(rn_profile_options options) {
    pthread_t other;
    uint64_t seeds[2] = {11, 22};
    options.leave_signals = true;
    assert_ok(rn_profile_start(&options));
    rn_ledger_reset_peaks();
    assert_int_equal(0, pthread_create(&other, NULL, charge_in_operations, &seeds[0]));
    charge_in_operations(&seeds[1]);
    assert_int_equal(0, pthread_join(other, NULL));
    uint64_t peak = rn_ledger_total(RN_DEVICE_HOST).peak_bytes;
    assert_ok(rn_profile_stop());
    return peak;
}

static void a_recording_is_read_back(void **state) {
    (void)state;
    rn_timeline *t;
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("a.rntrace"));
    uint64_t peak = record_two_threads((rn_profile_options){.path = path, .command = "test"});
    assert_ok(rn_timeline_open(path, &t));
    assert_true(t->has_end);
    assert_string_equal("stopped", t->reason);
    assert_string_equal("spill", t->mode);
    assert_string_equal("test", t->command);
    assert_int_equal(0, t->dropped_count);
    assert_int_equal(0, t->note_count);
    assert_int_equal(2 * STEPS, t->op_count);
    assert_int_equal(peak, t->counted_peaks[RN_DEVICE_HOST].bytes);
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].purpose == RN_PURPOSE_KV) {
            assert_int_not_equal(RN_STILL_LIVE, t->allocs[i].end_ns);
            assert_false(t->allocs[i].before);
        }
    rn_timeline_destroy(t);
}

static void a_ring_is_read_back_from_what_it_kept(void **state) {
    (void)state;
    rn_timeline *t;
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("ring.rntrace"));
    rn_ledger_charge(kv, NULL, 12345);
    uint64_t peak = record_two_threads((rn_profile_options){
        .path = path, .limit_bytes = 256 * KIB, .keep_newest = true, .ring_bytes = 16 * KIB});
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).now_bytes;
    assert_ok(rn_timeline_open(path, &t));
    assert_string_equal("ring", t->mode);
    assert_true(t->op_count > 100 && t->op_count < 2 * STEPS);
    assert_int_equal(peak, t->counted_peaks[RN_DEVICE_HOST].bytes);
    rn_timeline_level level = rn_timeline_level_at(t, RN_DEVICE_HOST, t->end_ns);
    assert_int_equal(held, level.purpose_bytes[RN_PURPOSE_KV]);
    rn_timeline_destroy(t);
    rn_ledger_release(kv, NULL, 12345);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_is_read_back),
        cmocka_unit_test(a_ring_is_read_back_from_what_it_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
