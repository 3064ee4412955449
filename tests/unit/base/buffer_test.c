// The growing buffer and its cap.
#include "support.h"
#include "base/buffer.h"
#include "base/fault.h"

static void appended_bytes_stand_one_after_another(void **state) {
    (void)state;
    rn_buffer buffer;
    static char expected[100000];
    size_t bytes = 0;
    rn_buffer_init(&buffer, &rn_system_allocator, sizeof expected);
    assert_null(buffer.data);
    for (uint32_t i = 0; bytes < sizeof expected; i++) {
        char piece[700];
        size_t now = i * 37 % sizeof piece;
        if (now > sizeof expected - bytes) now = sizeof expected - bytes;
        memset(piece, (int)(i % 256), sizeof piece);
        memcpy(expected + bytes, piece, now);
        assert_ok(rn_buffer_append(&buffer, piece, now));
        bytes += now;
        assert_int_equal(bytes, buffer.bytes);
        assert_true(buffer.capacity <= sizeof expected);
    }
    assert_memory_equal(expected, buffer.data, bytes);
    rn_buffer_free(&buffer);
    assert_null(buffer.data);
    assert_int_equal(0, buffer.capacity);
    rn_buffer_free(&buffer);
}

static void nothing_may_be_appended_from_nowhere(void **state) {
    (void)state;
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 0);
    assert_ok(rn_buffer_append(&buffer, NULL, 0));
    assert_null(buffer.data);
    assert_fails(RN_INVALID, rn_buffer_append(&buffer, "a", 1));
    rn_buffer_free(&buffer);
}

static void growing_past_the_cap_fails_and_changes_nothing(void **state) {
    (void)state;
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 10);
    assert_ok(rn_buffer_append(&buffer, "12345678", 8));
    assert_int_equal(10, buffer.capacity); // never more than the cap
    assert_fails(RN_INVALID, rn_buffer_append(&buffer, "abc", 3));
    assert_non_null(strstr(rn_last_error()->message, "limit of 10 bytes"));
    assert_fails(RN_INVALID, rn_buffer_append(&buffer, "abc", SIZE_MAX));
    assert_int_equal(8, buffer.bytes);
    assert_ok(rn_buffer_append(&buffer, "90", 2));
    assert_memory_equal("1234567890", buffer.data, 10);
    assert_fails(RN_INVALID, rn_buffer_append(&buffer, "x", 1));
    rn_buffer_free(&buffer);
}

static void freed_buffer_may_be_filled_again(void **state) {
    (void)state;
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 1000);
    for (int i = 0; i < 3; i++) {
        assert_ok(rn_buffer_append(&buffer, "again", 5));
        assert_int_equal(5, buffer.bytes);
        rn_buffer_free(&buffer);
    }
}

static void sink_appends_here(void **state) {
    (void)state;
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 8);
    assert_ok(rn_sink_print(rn_buffer_sink(&buffer), "%d%s", 12, "ab"));
    assert_ok(rn_sink_write(rn_buffer_sink(&buffer), "c\0", 2));
    assert_memory_equal("12abc\0", buffer.data, buffer.bytes);
    assert_int_equal(6, buffer.bytes);
    assert_fails(RN_INVALID, rn_sink_print(rn_buffer_sink(&buffer), "%s", "too long"));
    rn_buffer_free(&buffer);
}

static void failed_growth_keeps_what_is_there(void **state) {
    (void)state;
    bool fired = true;
    for (uint64_t nth = 1; fired; nth++) {
        rn_buffer buffer;
        size_t good = 0;
        rn_buffer_init(&buffer, &rn_system_allocator, 1 << 20);
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        for (int i = 0; i < 64; i++) {
            char piece[100];
            memset(piece, (int)good, sizeof piece);
            rn_status s = rn_buffer_append(&buffer, piece, sizeof piece);
            if (s != RN_OK) assert_int_equal(RN_NO_MEMORY, s);
            good += s == RN_OK;
        }
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        assert_int_equal(fired ? 63 : 64, good);
        assert_int_equal(good * 100, buffer.bytes);
        for (size_t i = 0; i < buffer.bytes; i++)
            assert_int_equal(i / 100, buffer.data[i]);
        rn_buffer_free(&buffer);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appended_bytes_stand_one_after_another),
        cmocka_unit_test(nothing_may_be_appended_from_nowhere),
        cmocka_unit_test(growing_past_the_cap_fails_and_changes_nothing),
        cmocka_unit_test(freed_buffer_may_be_filled_again),
        cmocka_unit_test(sink_appends_here),
        cmocka_unit_test(failed_growth_keeps_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
