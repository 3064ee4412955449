// page_cache_test.c — what is cached, seen by both system calls.
#include "support.h"
#include "base/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGE  4096u
#define PAGES 1200u // more than one mincore window

static int open_file(size_t bytes) {
    const char *path = test_path("cached");
    char *data = calloc(1, bytes);
    test_write(path, data, bytes);
    free(data);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
    return fd;
}

// False where the file system keeps its pages (one in memory, for example).
static bool drop(int fd) {
    assert_int_equal(fsync(fd), 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return !rn_page_cache_holds(rn_page_cache_probe(fd), fd, 0, 1);
}

static void check_view(rn_page_cache_view view) {
    int fd = open_file(PAGES * PAGE - 100);
    char byte;
    assert_true(rn_page_cache_holds(view, fd, 0, PAGES * PAGE - 100));
    if (!drop(fd)) {
        close(fd);
        skip_because("the folder for tests is in memory");
    }
    assert_false(rn_page_cache_holds(view, fd, 0, PAGES * PAGE - 100));
    // One page comes back: it alone is held, whichever of its bytes are asked for.
    assert_int_equal(pread(fd, &byte, 1, 7 * PAGE), 1);
    assert_true(rn_page_cache_holds(view, fd, 7 * PAGE, PAGE));
    assert_true(rn_page_cache_holds(view, fd, 7 * PAGE + 5, 1));
    assert_false(rn_page_cache_holds(view, fd, 7 * PAGE, PAGE + 1));
    assert_false(rn_page_cache_holds(view, fd, 7 * PAGE - 1, 2));
    // Asking again did not bring more in.
    assert_false(rn_page_cache_holds(view, fd, 900 * PAGE, 1));
    close(fd);
}

static void page_cache_is_seen_by_cachestat(void **state) {
    (void)state;
    int fd = open_file(PAGE);
    rn_page_cache_view view = rn_page_cache_probe(fd);
    close(fd);
    if (view != RN_PAGE_CACHE_CACHESTAT) skip_because("a kernel without cachestat");
    check_view(RN_PAGE_CACHE_CACHESTAT);
}

static void page_cache_is_seen_by_mincore_for_own_files(void **state) {
    (void)state;
    check_view(RN_PAGE_CACHE_MINCORE);
}

static void page_cache_that_is_hidden_holds_nothing(void **state) {
    (void)state;
    int fd = open_file(PAGE);
    assert_false(rn_page_cache_holds(RN_PAGE_CACHE_HIDDEN, fd, 0, PAGE));
    close(fd);
}

static void page_cache_doubts_are_answered_with_no(void **state) {
    (void)state;
    assert_int_equal(rn_page_cache_probe(-1), RN_PAGE_CACHE_HIDDEN);
    assert_false(rn_page_cache_holds(RN_PAGE_CACHE_CACHESTAT, -1, 0, PAGE));
    assert_false(rn_page_cache_holds(RN_PAGE_CACHE_MINCORE, -1, 0, PAGE));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_cache_is_seen_by_cachestat),
        cmocka_unit_test(page_cache_is_seen_by_mincore_for_own_files),
        cmocka_unit_test(page_cache_that_is_hidden_holds_nothing),
        cmocka_unit_test(page_cache_doubts_are_answered_with_no),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
