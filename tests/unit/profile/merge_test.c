// The recordings of several ranks as one timeline: clocks, names, collectives, bad files.
#include "base/str.h"
#include "profile/timeline/merge.h"
#include "support.h"

#include <stdio.h>

// ---- clocks -------------------------------------------------------------------------------------

// A rank whose clock is `ahead` of the true time, with collectives that truly end at `ends`.
static rn_timeline *make_rank(uint64_t start_unix_ns, int64_t ahead, const uint64_t *ends,
                              size_t count, const char *name) {
    rn_timeline *t = NULL;
    uint8_t device;
    uint32_t lane, id;
    assert_ok(rn_timeline_create("a file", "ration trace", &t));
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    assert_ok(
        rn_timeline_add_name(t, rn_str_from(name), RN_STR(RN_COLLECTIVE_GROUP), RN_STR(""), &id));
    t->start_unix_ns = start_unix_ns;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = (uint64_t)((int64_t)ends[i] + ahead);
        assert_ok(rn_timeline_add_op(
            t, &(rn_timeline_op){.begin_ns = end - 50, .end_ns = end, .name = id, .lane = lane}));
    }
    assert_ok(rn_timeline_finish(t));
    return t;
}

static void clocks_are_aligned_by_the_median_of_collectives(void **state) {
    (void)state;
    const uint64_t true_ends[] = {1000, 2000, 3000, 4000, 5000};
    const uint64_t late_once[] = {1003, 1998, 3000, 4900, 5001}; // one thread was not scheduled
    rn_timeline *parts[3] = {make_rank(1000000, 0, true_ends, 5, "all_reduce"),
                             make_rank(1000000, 700, late_once, 5, "all_reduce"),
                             make_rank(1000300, -300, true_ends, 5, "all_reduce")};
    rn_merge_clock clocks[3];
    assert_ok(rn_merge_align(parts, 3, clocks));
    assert_int_equal(0, clocks[0].shift_ns);
    assert_int_equal(-701, clocks[1].shift_ns); // of -703, -698, -700, -1600, -701
    assert_int_equal(5, clocks[1].count);
    assert_int_equal(899, clocks[1].scatter_ns);
    assert_int_equal(300, clocks[2].shift_ns);
    assert_int_equal(0, clocks[2].by_collectives_ns); // the wall clock was right
    assert_int_equal(0, clocks[2].scatter_ns);
    for (int i = 0; i < 3; i++)
        rn_timeline_destroy(parts[i]);
}

static void without_common_collectives_wall_clocks_count(void **state) {
    (void)state;
    const uint64_t ends[] = {1000, 2000};
    rn_timeline *parts[3] = {make_rank(5000, 0, ends, 2, "all_reduce"),
                             make_rank(5400, 0, ends, 2, "barrier"),
                             make_rank(UINT64_MAX - 7, 0, ends, 2, "send 1")};
    rn_merge_clock clocks[3];
    assert_ok(rn_merge_align(parts, 3, clocks));
    assert_int_equal(400, clocks[1].shift_ns);
    assert_int_equal(0, clocks[1].count);
    assert_int_equal(-5008,
                     clocks[2].shift_ns); // before the other one, or a file that lies: no harm
    assert_int_equal(0, clocks[2].count);
    for (int i = 0; i < 3; i++)
        rn_timeline_destroy(parts[i]);
}

// ---- files --------------------------------------------------------------------------------------

// One rank's recording: `count` all-reduces, and the rank where it is told.
static void record_rank(const char *path, int rank, int count) {
    assert_ok(rn_profile_start(&(rn_profile_options){
        .path = path, .command = "train", .snapshot_seconds = -1, .leave_signals = true}));
    if (rank >= 0)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_ANY, rn_profile_name(RN_RANK_COUNTER),
                           (uint64_t)rank);
    for (int i = 0; i < count; i++) {
        rn_profile_begin(rn_profile_label("all_reduce", RN_COLLECTIVE_GROUP, "64 MiB"));
        rn_profile_end();
    }
    assert_ok(rn_profile_stop());
}

static rn_status write_merged(const char *const *paths, size_t count, const char *out) {
    FILE *file = fopen(out, "wb");
    assert_non_null(file);
    rn_status s = rn_timeline_merge(paths, count, rn_sink_file(file));
    assert_int_equal(0, fclose(file));
    return s;
}

static char *keep_path(char out[512], const char *name) {
    snprintf(out, 512, "%s", test_path(name));
    return out;
}

static uint32_t count_ops(const rn_timeline *t, const char *name) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->op_count; i++)
        count += strcmp(t->names[t->ops[i].name].name, name) == 0;
    return count;
}

static void ranks_have_lanes_and_devices_of_their_own(void **state) {
    (void)state;
    char a[512], b[512], out[512];
    record_rank(keep_path(a, "a.rntrace"), 1, 4);
    record_rank(keep_path(b, "b.rntrace"), 0, 4);
    assert_ok(write_merged((const char *[]){a, b}, 2, keep_path(out, "merged.rntrace")));
    rn_timeline *t;
    assert_ok(rn_timeline_open(out, &t));
    assert_string_equal("merged traces", t->format);
    assert_int_equal(2, t->device_count);
    assert_string_equal("rank 0 host", t->devices[0].name);
    assert_string_equal("rank 1 host", t->devices[1].name);
    assert_string_equal("all ranks", t->lanes[0].name);
    assert_int_equal(8, count_ops(t, "all_reduce"));
    assert_int_equal(4, count_ops(t, "all_reduce, all ranks"));
    assert_true(t->has_end);
    assert_non_null(strstr(t->notes[0], "aligned by 4 collectives"));
    // Both are there whole: what each holds at its peak is what it held alone.
    for (int rank = 0; rank < 2; rank++) {
        rn_timeline *alone;
        assert_ok(rn_timeline_open(rank ? a : b, &alone));
        assert_int_equal(rn_timeline_peak(alone, 0).reserved_bytes,
                         rn_timeline_peak(t, (uint8_t)rank).reserved_bytes);
        assert_int_equal(alone->counted_peaks[0].bytes, t->counted_peaks[rank].bytes);
        rn_timeline_destroy(alone);
    }
    rn_timeline_destroy(t);
}

static void the_same_rank_twice_is_refused(void **state) {
    (void)state;
    char a[512], out[512];
    record_rank(keep_path(a, "a.rntrace"), 3, 1);
    assert_ok(write_merged((const char *[]){a, a}, 2, keep_path(out, "merged.rntrace")));
    rn_timeline *t;
    assert_fails(RN_CORRUPT, rn_timeline_open(out, &t));
    assert_non_null(strstr(rn_last_error()->message, "rank 3"));
}

static void only_recordings_are_merged(void **state) {
    (void)state;
    char a[512], out[512], json[512];
    record_rank(keep_path(a, "a.rntrace"), -1, 1);
    test_write(keep_path(json, "x.json"), "{}", 2);
    assert_fails(RN_INVALID,
                 write_merged((const char *[]){a, json}, 2, keep_path(out, "m.rntrace")));
    assert_ok(write_merged((const char *[]){a}, 1, out));
    char twice[512];
    assert_fails(RN_INVALID, write_merged((const char *[]){out}, 1, keep_path(twice, "n.rntrace")));
    assert_fails(RN_INVALID, rn_timeline_merge(NULL, 0, rn_sink_file(stdout)));
    const char *many[RN_MERGE_MOST + 1];
    for (int i = 0; i <= RN_MERGE_MOST; i++)
        many[i] = a;
    assert_fails(RN_INVALID, write_merged(many, RN_MERGE_MOST + 1, twice));
}

// Cut anywhere, and with any byte of the head or of a part's size wrong, it is an error or a
// timeline, never anything else.
static void damaged_files_are_refused(void **state) {
    (void)state;
    char a[512], out[512], cut[512];
    record_rank(keep_path(a, "a.rntrace"), -1, 2);
    assert_ok(write_merged((const char *[]){a, a}, 2, keep_path(out, "m.rntrace")));
    size_t bytes;
    uint8_t *data = test_read(out, &bytes);
    keep_path(cut, "cut.rntrace");
    rn_timeline *t;
    for (size_t at = 0; at < bytes; at += at < 64 ? 1 : 997) {
        test_write(cut, data, at);
        rn_status s = rn_timeline_open(cut, &t);
        assert_true(s == RN_CORRUPT);
    }
    for (size_t at = RN_MERGE_MAGIC_SIZE; at < 24; at++) {
        uint8_t was = data[at];
        data[at] ^= 0xff;
        test_write(cut, data, bytes);
        rn_status s = rn_timeline_open(cut, &t);
        if (s == RN_OK) rn_timeline_destroy(t);
        assert_true(s == RN_OK || s == RN_CORRUPT);
        data[at] = was;
    }
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_are_aligned_by_the_median_of_collectives),
        cmocka_unit_test(without_common_collectives_wall_clocks_count),
        cmocka_unit_test(ranks_have_lanes_and_devices_of_their_own),
        cmocka_unit_test(the_same_rank_twice_is_refused),
        cmocka_unit_test(only_recordings_are_merged),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
