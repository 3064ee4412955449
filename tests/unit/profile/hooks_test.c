// Calls of another library, redirected: what it allocates is counted, limited and recorded to the
// byte. The library is PCRE2, whose block of match data for n pairs is 16 bytes a pair and a
// constant.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "support.h"
#include "profile/hook/hook_count.h"
#include "profile/hook/hook_table.h"
#include "profile/timeline.h"

#define LIBRARY "libpcre2-8.so*"

static rn_hooks_stats stats(void) {
    rn_hooks_stats out;
    rn_hooks_get_stats(&out);
    return out;
}

static int begin(void **state) {
    rn_hooks_set_filter((rn_hooks_filter){0, 0});
    rn_hooks_set_limit(RN_NO_LIMIT);
    rn_hooks_reset_peak();
    if (rn_hooks_install(LIBRARY) != RN_OK) return -1;
    return test_make_folder(state);
}

static int end(void **state) {
    (void)state;
    bool is_empty = stats().now_bytes == 0 && stats().now_count == 0;
    rn_hooks_remove();
    return is_empty ? 0 : -1;
}

static pcre2_match_data *make(uint32_t pairs) {
    return pcre2_match_data_create(pairs, NULL);
}

static uint64_t bytes_of(uint32_t pairs) {
    uint64_t before = stats().now_bytes;
    pcre2_match_data *data = make(pairs);
    uint64_t bytes = stats().now_bytes - before;
    pcre2_match_data_free(data);
    return bytes;
}

static void counts_what_the_library_asks_for(void **state) {
    (void)state;
    uint64_t one = bytes_of(1);
    assert_true(one > 16);
    assert_int_equal(one + 16 * 999, bytes_of(1000));
    uint64_t total = stats().total_bytes, count = stats().total_count;
    pcre2_match_data *a = make(1000), *b = make(1);
    assert_int_equal(2 * one + 16 * 999, stats().now_bytes);
    assert_int_equal(2, stats().now_count);
    pcre2_match_data_free(a);
    assert_int_equal(one, stats().now_bytes);
    pcre2_match_data_free(b);
    assert_int_equal(2 * one + 16 * 999, stats().peak_bytes);
    assert_int_equal(total + 2 * one + 16 * 999, stats().total_bytes);
    assert_int_equal(count + 2, stats().total_count);
    rn_hooks_reset_peak();
    assert_int_equal(0, stats().peak_bytes);
}

static void what_was_there_before_is_ignored_when_it_goes(void **state) {
    (void)state;
    rn_hooks_remove();
    pcre2_match_data *before = make(10);
    assert_ok(rn_hooks_install(LIBRARY));
    pcre2_match_data *after = make(10);
    pcre2_match_data_free(before);
    assert_int_equal(1, stats().now_count);
    pcre2_match_data_free(after);
}

static void what_was_adopted_is_counted_once_until_it_goes(void **state) {
    (void)state;
    rn_hooks_remove();
    pcre2_match_data *before = make(10);
    assert_ok(rn_hooks_install(LIBRARY));
    uint64_t address = (uint64_t)(uintptr_t)before;
    assert_true(rn_hooks_adopt(address, 200, RN_PURPOSE_WEIGHTS));
    assert_false(rn_hooks_adopt(address, 200, RN_PURPOSE_WEIGHTS));
    assert_int_equal(200, stats().now_bytes);
    pcre2_match_data_free(before);
    assert_int_equal(0, stats().now_bytes);
}

static void removed_is_as_if_never_installed(void **state) {
    (void)state;
    assert_true(stats().slot_count > 0);
    rn_hooks_remove();
    assert_int_equal(0, stats().slot_count);
    pcre2_match_data_free(make(10));
    uint64_t count = stats().total_count;
    pcre2_match_data_free(make(10));
    assert_int_equal(count, stats().total_count);
}

static void what_is_live_when_the_hooks_go_is_forgotten(void **state) {
    (void)state;
    pcre2_match_data *data = make(100);
    uint64_t peak = stats().peak_bytes;
    rn_hooks_set_limit(peak);
    rn_hooks_remove();
    assert_int_equal(0, stats().now_bytes);
    assert_int_equal(0, stats().now_count);
    assert_int_equal(peak, stats().peak_bytes);
    pcre2_match_data_free(data); // not seen
    assert_ok(rn_hooks_install(LIBRARY));
    data = make(100); // there is room again
    assert_non_null(data);
    pcre2_match_data_free(data);
}

static void installing_twice_counts_once(void **state) {
    (void)state;
    uint64_t slots = stats().slot_count, one = bytes_of(1);
    assert_ok(rn_hooks_install(LIBRARY));
    assert_int_equal(slots, stats().slot_count);
    assert_int_equal(one, bytes_of(1));
}

static void a_library_that_is_not_there_is_said(void **state) {
    (void)state;
    assert_true(stats().slot_count > 0); // also where others are watched already
    assert_fails(RN_UNSUPPORTED, rn_hooks_install("libnosuch.so*"));
    assert_non_null(strstr(rn_last_error()->message, "libnosuch.so*"));
    rn_hooks_remove();
    assert_fails(RN_UNSUPPORTED, rn_hooks_install("libnosuch.so*"));
}

static void beyond_the_limit_is_no_memory(void **state) {
    (void)state;
    uint64_t one = bytes_of(1);
    rn_hooks_set_limit(3 * one);
    uint64_t refused = stats().refused_count;
    pcre2_match_data *a = make(1), *b = make(1), *c = make(1);
    assert_non_null(c);
    assert_null(make(1));
    assert_int_equal(refused + 1, stats().refused_count);
    assert_int_equal(3 * one, stats().now_bytes);
    pcre2_match_data_free(a);
    a = make(1);
    assert_non_null(a);
    pcre2_match_data_free(a);
    pcre2_match_data_free(b);
    pcre2_match_data_free(c);
    assert_int_equal(3 * one, stats().peak_bytes);
}

static void small_blocks_are_left_out_by_the_filter(void **state) {
    (void)state;
    rn_hooks_set_filter(RN_HOOKS_TENSORS);
    assert_int_equal(0, bytes_of(100));
    assert_true(bytes_of(8192) > 16 * 8192);
}

// ---- in the file ------------------------------------------------------------------------------

static uint8_t device_called(const rn_timeline *t, const char *name) {
    for (uint32_t i = 0; i < t->device_count; i++)
        if (strcmp(t->devices[i].name, name) == 0) return (uint8_t)i;
    fail_msg("no device %s", name);
    return 0;
}

static void the_recording_has_the_peak_the_labels_and_the_operations(void **state) {
    (void)state;
    const char *path = test_own_path("run.rntrace");
    uint64_t one = bytes_of(1);
    rn_hooks_reset_peak();
    assert_ok(rn_profile_start(&(rn_profile_options){.path = path}));
    rn_hooks_begin(rn_profile_name("step"), RN_PURPOSE_ACTIVATIONS);
    pcre2_match_data *weights = make(1), *other = make(1001);
    assert_true(rn_hooks_label((uint64_t)(uintptr_t)weights, RN_PURPOSE_WEIGHTS,
                               rn_profile_label("layer.weight", "layer", "f32 [4]")));
    assert_false(rn_hooks_label(12345, RN_PURPOSE_WEIGHTS, 0));
    rn_profile_checkpoint("middle");
    pcre2_match_data_free(other);
    rn_hooks_end();
    pcre2_match_data_free(weights);
    assert_ok(rn_profile_stop());

    rn_timeline *t = NULL;
    assert_ok(rn_timeline_open(path, &t));
    uint8_t cpu = device_called(t, "cpu");
    assert_int_equal(stats().peak_bytes, rn_timeline_peak(t, cpu).reserved_bytes);
    assert_int_equal(2 * one + 16000, rn_timeline_peak(t, cpu).reserved_bytes);
    assert_int_equal(2 * one + 16000, t->counted_peaks[cpu].bytes);
    uint64_t by_purpose[RN_PURPOSE_COUNT] = {0}, blocks = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        if (a->device != cpu) continue;
        blocks++;
        by_purpose[a->purpose] += a->bytes;
        assert_true(a->end_ns != RN_STILL_LIVE);
        if (a->purpose == RN_PURPOSE_WEIGHTS)
            assert_string_equal("layer.weight", t->names[a->name].name);
    }
    assert_int_equal(2, blocks);
    assert_int_equal(one, by_purpose[RN_PURPOSE_WEIGHTS]);
    assert_int_equal(one + 16000, by_purpose[RN_PURPOSE_ACTIVATIONS]);
    rn_timeline_destroy(t);
}

static void a_recording_that_begins_later_is_told_what_is_live(void **state) {
    (void)state;
    const char *path = test_own_path("run.rntrace");
    pcre2_match_data *data = make(500);
    uint64_t bytes = stats().now_bytes;
    assert_ok(rn_profile_start(&(rn_profile_options){.path = path}));
    rn_hooks_replay();
    pcre2_match_data_free(data);
    assert_ok(rn_profile_stop());
    rn_timeline *t = NULL;
    assert_ok(rn_timeline_open(path, &t));
    assert_int_equal(bytes, rn_timeline_peak(t, device_called(t, "cpu")).reserved_bytes);
    rn_timeline_destroy(t);
}

static int forget(void **state) {
    (void)state;
    rn_hook_table_clear();
    return 0;
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(counts_what_the_library_asks_for),
        TEST(what_was_there_before_is_ignored_when_it_goes),
        TEST(what_was_adopted_is_counted_once_until_it_goes),
        TEST(removed_is_as_if_never_installed),
        TEST(what_is_live_when_the_hooks_go_is_forgotten),
        TEST(installing_twice_counts_once),
        TEST(a_library_that_is_not_there_is_said),
        TEST(beyond_the_limit_is_no_memory),
        TEST(small_blocks_are_left_out_by_the_filter),
        TEST(the_recording_has_the_peak_the_labels_and_the_operations),
        TEST(a_recording_that_begins_later_is_told_what_is_live),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
