// labels: threads
// Ranges of files read straight to their places: every byte, whatever the offset, the engine and
// the file system; and what happens when a file is not as it should be.
#include "support.h"

#include "base/checked.h"
#include "base/fault.h"
#include "base/fetcher.h"

#include <stdlib.h>
#include <unistd.h>

enum { FILE_BYTES = (3 << 20) + 777 };

static uint8_t content(uint64_t at) {
    return (uint8_t)(at * 31 + (at >> 8) * 7 + (at >> 16));
}

static const char *make_file(const char *name) {
    const char *path = test_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint64_t i = 0; i < FILE_BYTES; i++)
        fputc(content(i), file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static rn_fetcher *open_one(const char *path, rn_reader_options options) {
    rn_fetcher *fetcher;
    assert_ok(rn_fetcher_create(&(rn_reader_file){.path = path}, 1, &options, &fetcher));
    return fetcher;
}

static void finish(rn_fetcher *fetcher, rn_fetch_batch *batch) {
    while (!rn_fetcher_is_done(batch)) {
        rn_fetcher_feed(fetcher, batch);
        rn_fetcher_wait(fetcher);
    }
}

static rn_status fetch(rn_fetcher *fetcher, const rn_fetch *items, uint32_t count) {
    static rn_fetch_batch batch;
    batch = (rn_fetch_batch){.items = items, .count = count};
    rn_fetcher_begin(fetcher, &batch);
    finish(fetcher, &batch);
    return rn_fetcher_status(&batch);
}

// A page behind the room is not touched.
static rn_fetch make_item(uint64_t offset, uint64_t bytes) {
    uint64_t room = rn_fetch_room(bytes);
    uint8_t *target = aligned_alloc(RN_PAGE_BYTES, room + RN_PAGE_BYTES);
    memset(target, 0xa5, room + RN_PAGE_BYTES);
    return (rn_fetch){.offset = offset, .bytes = bytes, .target = target};
}

static void check_item(const rn_fetch *item) {
    const uint8_t *at = item->target + item->offset % RN_PAGE_BYTES;
    const uint8_t *behind = item->target + rn_fetch_room(item->bytes);
    for (uint64_t i = 0; i < item->bytes; i++)
        if (at[i] != content(item->offset + i))
            fail_msg("byte %d of the range at %d is wrong", (int)i, (int)item->offset);
    for (uint64_t i = 0; i < RN_PAGE_BYTES; i++)
        assert_int_equal(behind[i], 0xa5);
    free(item->target);
}

static const struct {
    uint64_t offset, bytes;
} ranges[] = {{0, 1},
              {0, 4096},
              {1, 4095},
              {1, 4096},
              {4095, 2},
              {100, 0},
              {777, 1 << 20},
              {(512 << 10) - 1, 2 << 20},
              {FILE_BYTES - 1, 1},
              {FILE_BYTES - 5000, 5000},
              {0, FILE_BYTES}};
enum { RANGES = sizeof ranges / sizeof ranges[0] };

static const rn_reader_options ways[] = {
    {.engine = RN_READER_AUTO},
    {.engine = RN_READER_AUTO, .ignore_page_cache = true},
    {.engine = RN_READER_THREADS, .ignore_page_cache = true},
    {.engine = RN_READER_THREADS, .avoid_direct = true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void every_byte_comes_to_its_place(void **state) {
    (void)state;
    const char *path = make_file("whole");
    for (int way = 0; way < WAYS; way++) {
        rn_fetcher *fetcher = open_one(path, ways[way]);
        rn_fetch items[RANGES];
        for (int i = 0; i < RANGES; i++)
            items[i] = make_item(ranges[i].offset, ranges[i].bytes);
        assert_ok(fetch(fetcher, items, RANGES));
        for (int i = 0; i < RANGES; i++)
            check_item(&items[i]);
        assert_ok(rn_fetcher_check(fetcher));
        rn_fetcher_destroy(fetcher);
    }
}

static void one_batch_may_follow_another_before_it_ends(void **state) {
    (void)state;
    static rn_fetch_batch batches[2];
    rn_fetcher *fetcher = open_one(make_file("two"), ways[1]);
    rn_fetch items[2] = {make_item(5, 3 << 20), make_item(9000, 2 << 20)};
    for (int i = 0; i < 2; i++) {
        batches[i] = (rn_fetch_batch){.items = &items[i], .count = 1};
        rn_fetcher_begin(fetcher, &batches[i]);
        rn_fetcher_feed(fetcher, &batches[i]);
    }
    finish(fetcher, &batches[0]);
    finish(fetcher, &batches[1]);
    for (int i = 0; i < 2; i++) {
        assert_ok(rn_fetcher_status(&batches[i]));
        check_item(&items[i]);
    }
    rn_fetcher_destroy(fetcher);
}

static void what_is_forgotten_is_waited_for(void **state) {
    (void)state;
    static rn_fetch_batch batch;
    rn_fetcher *fetcher = open_one(make_file("drained"), ways[1]);
    rn_fetch item = make_item(0, FILE_BYTES);
    for (int i = 0; i < 3; i++) {
        batch = (rn_fetch_batch){.items = &item, .count = 1};
        rn_fetcher_begin(fetcher, &batch);
        rn_fetcher_feed(fetcher, &batch);
        if (i < 2) rn_fetcher_drain(fetcher);
    }
    rn_fetcher_destroy(fetcher); // waits as well
    free(item.target);
}

static void a_range_past_the_end_is_named(void **state) {
    (void)state;
    const char *path = make_file("past");
    rn_fetcher *fetcher = open_one(path, ways[0]);
    rn_fetch item = make_item(FILE_BYTES - 10, 11);
    uint8_t byte;
    assert_fails(RN_CORRUPT, fetch(fetcher, &item, 1));
    assert_string_equal(rn_last_error()->path, path);
    assert_int_equal(rn_last_error()->offset, FILE_BYTES - 10);
    assert_fails(RN_CORRUPT, rn_fetcher_read_now(fetcher, 0, FILE_BYTES, &byte, 1));
    assert_fails(RN_INVALID, rn_fetcher_read_now(fetcher, 1, 0, &byte, 1));
    rn_fetcher_destroy(fetcher);
    free(item.target);
}

static void a_file_that_was_cut_short_is_named(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        const char *path = make_file("short");
        rn_fetcher *fetcher = open_one(path, ways[way]);
        rn_fetch item = make_item(100, FILE_BYTES - 100);
        uint8_t bytes[10];
        assert_int_equal(truncate(path, 1 << 20), 0);
        assert_fails(RN_IO, fetch(fetcher, &item, 1));
        assert_string_equal(rn_last_error()->path, path);
        assert_int_equal(rn_last_error()->offset, 1 << 20);
        assert_fails(RN_IO, rn_fetcher_read_now(fetcher, 0, (1 << 20) - 5, bytes, 10));
        assert_int_equal(rn_last_error()->offset, 1 << 20);
        assert_fails(RN_IO, rn_fetcher_check(fetcher));
        rn_fetcher_destroy(fetcher);
        free(item.target);
    }
}

static void a_few_bytes_can_be_had_at_once(void **state) {
    (void)state;
    rn_fetcher *fetcher = open_one(make_file("now"), ways[0]);
    uint8_t bytes[5000];
    for (uint64_t at = 0; at < 20000; at += 4999) {
        assert_ok(rn_fetcher_read_now(fetcher, 0, at, bytes, sizeof bytes));
        for (uint64_t i = 0; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], content(at + i));
    }
    rn_fault_arm(RN_FAULT_READ, 1);
    assert_fails(RN_IO, rn_fetcher_read_now(fetcher, 0, 0, bytes, 1));
    rn_fault_arm(RN_FAULT_READ, 0);
    rn_fetcher_destroy(fetcher);
}

static void every_read_that_fails_fails_its_batch_alone(void **state) {
    (void)state;
    rn_fetcher *fetcher = open_one(make_file("faults"), ways[1]);
    for (uint64_t n = 1, fired = 1; fired; n++) {
        rn_fetch item = make_item(3, FILE_BYTES - 3);
        rn_fault_arm(RN_FAULT_READ, n);
        rn_status s = fetch(fetcher, &item, 1);
        fired = rn_fault_fired(RN_FAULT_READ);
        rn_fault_arm(RN_FAULT_READ, 0);
        assert_int_equal(s, fired ? RN_IO : RN_OK);
        assert_ok(fetch(fetcher, &item, 1)); // the next one is well
        check_item(&item);
    }
    rn_fetcher_destroy(fetcher);
}

static void every_allocation_that_fails_leaves_nothing_behind(void **state) {
    (void)state;
    const char *path = make_file("torture");
    for (uint64_t n = 1, fired = 1; fired; n++) {
        rn_fetcher *fetcher;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_fetcher_create(&(rn_reader_file){.path = path}, 1, NULL, &fetcher);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_fetcher_destroy(fetcher);
    }
    rn_fetcher *fetcher;
    assert_fails(RN_NOT_FOUND, rn_fetcher_create(&(rn_reader_file){.path = test_path("missing")}, 1,
                                                 NULL, &fetcher));
    assert_null(fetcher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_to_its_place),
        cmocka_unit_test(one_batch_may_follow_another_before_it_ends),
        cmocka_unit_test(what_is_forgotten_is_waited_for),
        cmocka_unit_test(a_range_past_the_end_is_named),
        cmocka_unit_test(a_file_that_was_cut_short_is_named),
        cmocka_unit_test(a_few_bytes_can_be_had_at_once),
        cmocka_unit_test(every_read_that_fails_fails_its_batch_alone),
        cmocka_unit_test(every_allocation_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
