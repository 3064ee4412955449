// export_prometheus_test.c — the whole text of a small recording, and labels that need escapes.
#include "export_support.h"

static void a_small_timeline_is_this_text(void **state) {
    (void)state;
    static const char expected[] =
        "# HELP ration_memory_bytes Bytes by device, category and state.\n"
        "# TYPE ration_memory_bytes gauge\n"
        "ration_memory_bytes{device=\"host\",category=\"weights\",state=\"live\"} 4096\n"
        "ration_memory_bytes{device=\"host\",category=\"weights\",state=\"peak\"} 4096\n"
        "ration_memory_bytes{device=\"host\",category=\"activations\",state=\"live\"} 0\n"
        "ration_memory_bytes{device=\"host\",category=\"activations\",state=\"peak\"} 2048\n"
        "ration_memory_bytes{device=\"host\",category=\"workspace\",state=\"live\"} 0\n"
        "ration_memory_bytes{device=\"host\",category=\"workspace\",state=\"peak\"} 1024\n"
        "ration_memory_bytes{device=\"host\",category=\"all\",state=\"reserved\"} 4096\n"
        "ration_memory_bytes{device=\"host\",category=\"all\",state=\"budget\"} 16384\n"
        "ration_memory_bytes{device=\"host\",category=\"all\",state=\"predicted\"} 7168\n"
        "ration_memory_bytes{device=\"cuda:0\",category=\"kv\",state=\"live\"} 512\n"
        "ration_memory_bytes{device=\"cuda:0\",category=\"kv\",state=\"peak\"} 512\n"
        "ration_memory_bytes{device=\"cuda:0\",category=\"all\",state=\"reserved\"} 512\n"
        "# HELP ration_memory_peak_bytes The most bytes reserved at once.\n"
        "# TYPE ration_memory_peak_bytes gauge\n"
        "ration_memory_peak_bytes{device=\"host\"} 12288\n"
        "ration_memory_peak_bytes{device=\"cuda:0\"} 512\n"
        "# HELP ration_memory_predicted_peak_bytes The peak that was planned.\n"
        "# TYPE ration_memory_predicted_peak_bytes gauge\n"
        "ration_memory_predicted_peak_bytes{device=\"host\"} 12288\n"
        "# HELP ration_resident_bytes What the system holds of the process.\n"
        "# TYPE ration_resident_bytes gauge\n"
        "# HELP ration_allocations_total Blocks and parts of arenas that were allocated.\n"
        "# TYPE ration_allocations_total counter\n"
        "ration_allocations_total{device=\"host\",category=\"weights\"} 1\n"
        "ration_allocations_total{device=\"host\",category=\"activations\"} 1\n"
        "ration_allocations_total{device=\"host\",category=\"workspace\"} 1\n"
        "ration_allocations_total{device=\"cuda:0\",category=\"kv\"} 1\n"
        "# HELP ration_allocated_bytes_total Their bytes.\n"
        "# TYPE ration_allocated_bytes_total counter\n"
        "ration_allocated_bytes_total{device=\"host\",category=\"weights\"} 4096\n"
        "ration_allocated_bytes_total{device=\"host\",category=\"activations\"} 2048\n"
        "ration_allocated_bytes_total{device=\"host\",category=\"workspace\"} 1024\n"
        "ration_allocated_bytes_total{device=\"cuda:0\",category=\"kv\"} 512\n"
        "# HELP ration_moved_bytes_total Bytes copied between devices, or read from disk.\n"
        "# TYPE ration_moved_bytes_total counter\n"
        "ration_moved_bytes_total{from=\"disk\",to=\"host\"} 4096\n"
        "# HELP ration_operations_total Operations that were recorded.\n"
        "# TYPE ration_operations_total counter\n"
        "ration_operations_total 3\n"
        "# HELP ration_profile_events_total Events that were recorded.\n"
        "# TYPE ration_profile_events_total counter\n"
        "ration_profile_events_total 12\n"
        "# HELP ration_profile_dropped_events_total Events for which there was no room.\n"
        "# TYPE ration_profile_dropped_events_total counter\n"
        "ration_profile_dropped_events_total 0\n";
    rn_timeline *t = make_small();
    rn_buffer text = export_text(t, RN_EXPORT_PROMETHEUS);
    assert_string_equal(text.data, expected);
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void labels_are_escaped(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    assert_ok(rn_timeline_add_device(t, RN_STR("a\"b\\c\nd\xff"), &device));
    t->counted_peaks[0].bytes = 77; // of what a ring no longer has
    assert_ok(rn_timeline_finish(t));
    rn_buffer text = export_text(t, RN_EXPORT_PROMETHEUS);
    assert_non_null(strstr(
        text.data, "\nration_memory_peak_bytes{device=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\"} 77\n"));
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void an_empty_timeline_has_its_counters(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    rn_buffer text = export_text(t, RN_EXPORT_PROMETHEUS);
    assert_non_null(strstr(text.data, "\nration_operations_total 0\n"));
    assert_null(strchr(text.data, '{'));
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_PROMETHEUS);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    check_torture(RN_EXPORT_PROMETHEUS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_timeline_is_this_text),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(an_empty_timeline_has_its_counters),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
