// Small files: read whole, replaced whole, and failures that name the file.
#include "support.h"
#include "base/fault.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Entries of the test's folder whose names hold `part`.
static size_t count_entries(const char *part) {
    size_t count = 0;
    DIR *folder = opendir(test_folder());
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strstr(entry->d_name, part) != NULL;
    closedir(folder);
    return count;
}

static void expect_content(const char *path, const char *text) {
    size_t bytes;
    char *found = test_read(path, &bytes);
    assert_non_null(found);
    assert_int_equal(strlen(text), bytes);
    assert_memory_equal(text, found, bytes);
    free(found);
}

// ---- reading ---------------------------------------------------------------------------

static void open_gives_the_size(void **state) {
    (void)state;
    int fd;
    uint64_t bytes;
    test_write(test_path("five"), "12345", 5);
    assert_ok(rn_file_open(test_path("five"), &fd, &bytes));
    assert_int_equal(5, bytes);
    close(fd);
    test_write(test_path("empty"), "", 0);
    assert_ok(rn_file_open(test_path("empty"), &fd, &bytes));
    assert_int_equal(0, bytes);
    close(fd);
    assert_ok(rn_file_open(test_path("five"), &fd, NULL));
    close(fd);
}

static void missing_files_are_not_found(void **state) {
    (void)state;
    int fd = 3;
    uint64_t bytes;
    const char *path = test_path("nowhere");
    assert_fails(RN_NOT_FOUND, rn_file_open(path, &fd, &bytes));
    assert_int_equal(-1, fd);
    assert_string_equal(path, rn_last_error()->path);
    assert_non_null(strstr(rn_last_error()->message, path));
    assert_non_null(strstr(rn_last_error()->message, "No such file"));
    assert_string_equal("check the path", rn_last_error()->hint);
    assert_fails(RN_NOT_FOUND, rn_file_open("", &fd, &bytes));
    test_write(test_path("plain"), "x", 1);
    assert_fails(RN_NOT_FOUND, rn_file_open(test_path("plain/below"), &fd, &bytes));
}

static void only_regular_files_are_opened(void **state) {
    (void)state;
    int fd;
    uint64_t bytes;
    mkfifo(test_path("pipe"), 0600); // nobody writes to it: opening must not wait
    const char *const paths[] = {test_folder(), "/dev/null", test_path("pipe")};
    for (size_t i = 0; i < 3; i++) {
        assert_fails(RN_UNSUPPORTED, rn_file_open(paths[i], &fd, &bytes));
        assert_int_equal(-1, fd);
        assert_string_equal(paths[i], rn_last_error()->path);
        assert_non_null(strstr(rn_last_error()->message, "not a regular file"));
    }
}

static void links_to_files_are_files(void **state) {
    (void)state;
    int fd;
    uint64_t bytes;
    test_write(test_path("target"), "abc", 3);
    assert_int_equal(0, symlink("target", test_path("link")));
    assert_ok(rn_file_open(test_path("link"), &fd, &bytes));
    assert_int_equal(3, bytes);
    close(fd);
}

static void exact_bytes_are_read_from_anywhere(void **state) {
    (void)state;
    int fd;
    char piece[4];
    test_write(test_path("digits"), "0123456789", 10);
    assert_ok(rn_file_open(test_path("digits"), &fd, NULL));
    for (size_t offset = 0; offset + 4 <= 10; offset++) {
        assert_ok(rn_file_read_at(fd, "digits", offset, piece, 4));
        assert_memory_equal(&"0123456789"[offset], piece, 4);
    }
    assert_ok(rn_file_read_at(fd, "digits", 10, piece, 0));
    close(fd);
}

static void file_that_ends_too_early_is_corrupt(void **state) {
    (void)state;
    int fd;
    char piece[8];
    test_write(test_path("short"), "0123456789", 10);
    assert_ok(rn_file_open(test_path("short"), &fd, NULL));
    assert_fails(RN_CORRUPT, rn_file_read_at(fd, "short", 6, piece, 8));
    assert_non_null(strstr(rn_last_error()->message, "ends 4 bytes too early"));
    assert_string_equal("short", rn_last_error()->path);
    assert_int_equal(10, rn_last_error()->offset);
    assert_fails(RN_CORRUPT, rn_file_read_at(fd, "short", 1000, piece, 1));
    assert_fails(RN_IO, rn_file_read_at(fd, "short", UINT64_MAX, piece, 1));
    close(fd);
    assert_fails(RN_IO, rn_file_read_at(fd, "closed", 0, piece, 1));
}

static void whole_files_are_read_up_to_the_cap(void **state) {
    (void)state;
    static char text[40000];
    rn_buffer buffer;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 / 3);
    test_write(test_path("whole"), text, sizeof text);
    rn_buffer_init(&buffer, &rn_system_allocator, sizeof text);
    assert_ok(rn_file_read_all(test_path("whole"), &buffer));
    assert_int_equal(sizeof text, buffer.bytes);
    assert_memory_equal(text, buffer.data, sizeof text);
    rn_buffer_free(&buffer);
    rn_buffer_init(&buffer, &rn_system_allocator, sizeof text - 1);
    assert_fails(RN_INVALID, rn_file_read_all(test_path("whole"), &buffer));
    assert_non_null(strstr(rn_last_error()->message, "40000 bytes; at most 39999"));
    assert_int_equal(0, buffer.bytes);
    rn_buffer_free(&buffer);
    rn_buffer_init(&buffer, &rn_system_allocator, 10);
    assert_fails(RN_NOT_FOUND, rn_file_read_all(test_path("nowhere"), &buffer));
    assert_fails(RN_UNSUPPORTED, rn_file_read_all(test_folder(), &buffer));
    rn_buffer_free(&buffer);
}

static void every_failing_read_is_reported_with_its_place(void **state) {
    (void)state;
    static char text[40000];
    test_write(test_path("pieces"), text, sizeof text);
    for (uint64_t nth = 1;; nth++) {
        rn_buffer buffer;
        rn_buffer_init(&buffer, &rn_system_allocator, sizeof text);
        rn_fault_arm(RN_FAULT_READ, nth);
        rn_status s = rn_file_read_all(test_path("pieces"), &buffer);
        bool fired = rn_fault_fired(RN_FAULT_READ);
        rn_fault_arm(RN_FAULT_READ, 0);
        rn_buffer_free(&buffer);
        assert_int_equal(fired ? RN_IO : RN_OK, s);
        if (!fired) break;
        assert_int_equal((nth - 1) * (16 << 10), rn_last_error()->offset);
        assert_string_equal(test_path("pieces"), rn_last_error()->path);
        assert_non_null(strstr(rn_last_error()->message, "cannot read"));
    }
}

// ---- writing ---------------------------------------------------------------------------

static void bytes_are_written_where_they_belong(void **state) {
    (void)state;
    const char *path = test_path("written");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_ok(rn_file_write_at(fd, path, 3, "def", 3));
    assert_ok(rn_file_write_at(fd, path, 0, "abc", 3));
    assert_ok(rn_file_write_at(fd, path, 1, "", 0));
    close(fd);
    expect_content(path, "abcdef");
    fd = open(path, O_RDONLY);
    assert_fails(RN_IO, rn_file_write_at(fd, path, 2, "x", 1));
    assert_int_equal(2, rn_last_error()->offset);
    close(fd);
}

static void full_disk_comes_with_a_hint(void **state) {
    (void)state;
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) skip_because("no /dev/full");
    assert_fails(RN_IO, rn_file_write_at(fd, "/dev/full", 0, "x", 1));
    assert_non_null(strstr(rn_last_error()->message, "No space left"));
    assert_non_null(strstr(rn_last_error()->hint, "free some space"));
    close(fd);
}

static void replacing_makes_a_file_or_changes_it(void **state) {
    (void)state;
    const char *path = test_path("replaced");
    assert_ok(rn_file_replace(path, "first", 5));
    expect_content(path, "first");
    assert_ok(rn_file_replace(path, "the second, longer one", 22));
    expect_content(path, "the second, longer one");
    assert_ok(rn_file_replace(path, "", 0));
    expect_content(path, "");
    assert_int_equal(1, count_entries("replaced"));
}

static void replacing_keeps_the_mode(void **state) {
    (void)state;
    const char *path = test_path("modes");
    const mode_t modes[] = {0600, 0644, 0666, 0640, 0400, 0777};
    struct stat info;
    mode_t mask = umask(022);
    test_write(path, "x", 1);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod(path, modes[i]);
        assert_ok(rn_file_replace(path, "y", 1));
        assert_int_equal(0, stat(path, &info));
        assert_int_equal(modes[i], info.st_mode & 07777);
    }
    umask(027); // a new file obeys the mask
    assert_ok(rn_file_replace(test_path("new mode"), "y", 1));
    assert_int_equal(0, stat(test_path("new mode"), &info));
    assert_int_equal(0640, info.st_mode & 07777);
    umask(mask);
}

static void replacing_through_a_link_changes_its_target(void **state) {
    (void)state;
    char target[8];
    assert_int_equal(0, mkdir(test_path("dotfiles"), 0700));
    test_write(test_path("dotfiles/config"), "old", 3);
    assert_int_equal(0, symlink("dotfiles/config", test_path("config")));
    assert_ok(rn_file_replace(test_path("config"), "new", 3));
    expect_content(test_path("dotfiles/config"), "new");
    assert_true(readlink(test_path("config"), target, sizeof target) > 0); // still a link
}

static void failed_replacement_leaves_the_old_file_and_no_other(void **state) {
    (void)state;
    const char *path = test_path("survivor");
    test_write(path, "old", 3);
    rn_fault_arm(RN_FAULT_WRITE, 1);
    assert_fails(RN_IO, rn_file_replace(path, "new", 3));
    assert_true(rn_fault_fired(RN_FAULT_WRITE));
    assert_non_null(strstr(rn_last_error()->message, "survivor"));
    expect_content(path, "old");
    assert_int_equal(1, count_entries("survivor"));

    assert_int_equal(0, mkdir(test_path("survivor.d"), 0700)); // a folder cannot be replaced
    assert_fails(RN_IO, rn_file_replace(test_path("survivor.d"), "new", 3));
    assert_int_equal(2, count_entries("survivor"));
    assert_fails(RN_NOT_FOUND, rn_file_replace(test_path("no folder/file"), "new", 3));
}

// Whoever knew the name could have the file written anywhere: here through every name that this
// process would have used before names were random.
static void planted_link_is_not_followed(void **state) {
    (void)state;
    char planted[4096];
    const char *path = test_path("planted");
    test_write(test_path("victim"), "precious", 8);
    snprintf(planted, sizeof planted, "%s.%d.tmp", path, (int)getpid());
    assert_int_equal(0, symlink("victim", planted));
    assert_ok(rn_file_replace(path, "new", 3));
    expect_content(path, "new");
    expect_content(test_path("victim"), "precious");
    unlink(planted);
}

// A child that the system ends in the middle of writing, by its limit on the size of files.
static void be_killed_while_replacing(const char *path) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4, 4});
    signal(SIGXFSZ, SIG_DFL);
    _exit(rn_file_replace(path, "much longer", 11) != RN_OK);
}

static void what_a_killed_replacement_left_is_removed(void **state) {
    (void)state;
    int status;
    const char *path = test_path("leftover");
    test_write(path, "old", 3);
    pid_t child = fork();
    if (child == 0) be_killed_while_replacing(path);
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    expect_content(path, "old");
    assert_int_equal(2, count_entries("leftover"));
    assert_ok(rn_file_replace(path, "new", 3));
    expect_content(path, "new");
    assert_int_equal(1, count_entries("leftover"));
}

static void paths_too_long_are_refused(void **state) {
    (void)state;
    static char path[5000], joined[16];
    memset(path, 'a', sizeof path - 1);
    assert_fails(RN_INVALID, rn_file_replace(path, "x", 1));
    assert_ok(rn_path_join("folder", "12345678", joined, sizeof joined));
    assert_string_equal("folder/12345678", joined);
    assert_fails(RN_INVALID, rn_path_join("folder", "123456789", joined, sizeof joined));
    assert_non_null(strstr(rn_last_error()->message, "folder/123456789"));
}

// ---- asking ----------------------------------------------------------------------------

static void existence_and_folders_are_told_apart(void **state) {
    (void)state;
    test_write(test_path("there"), "", 0);
    assert_true(rn_file_exists(test_path("there")));
    assert_false(rn_file_is_folder(test_path("there")));
    assert_true(rn_file_exists(test_folder()));
    assert_true(rn_file_is_folder(test_folder()));
    assert_false(rn_file_exists(test_path("not there")));
    assert_false(rn_file_is_folder(test_path("not there")));
}

static void system_errors_become_stories(void **state) {
    (void)state;
    static const struct {
        int error;
        rn_status status;
        const char *hint;
    } cases[] = {
        {ENOENT, RN_NOT_FOUND, "check the path"},
        {ENOTDIR, RN_NOT_FOUND, "check the path"},
        {EACCES, RN_IO, "check the permissions"},
        {ENOSPC, RN_IO, "free some space on that file system"},
        {EIO, RN_IO, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        errno = cases[i].error;
        assert_fails(cases[i].status, rn_file_fail("paint", "wall"));
        assert_string_equal(cases[i].hint, rn_last_error()->hint);
        assert_string_equal("wall", rn_last_error()->path);
        assert_memory_equal("cannot paint wall: ", rn_last_error()->message, 19);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_gives_the_size),
        cmocka_unit_test(missing_files_are_not_found),
        cmocka_unit_test(only_regular_files_are_opened),
        cmocka_unit_test(links_to_files_are_files),
        cmocka_unit_test(exact_bytes_are_read_from_anywhere),
        cmocka_unit_test(file_that_ends_too_early_is_corrupt),
        cmocka_unit_test(whole_files_are_read_up_to_the_cap),
        cmocka_unit_test(every_failing_read_is_reported_with_its_place),
        cmocka_unit_test(bytes_are_written_where_they_belong),
        cmocka_unit_test(full_disk_comes_with_a_hint),
        cmocka_unit_test(replacing_makes_a_file_or_changes_it),
        cmocka_unit_test(replacing_keeps_the_mode),
        cmocka_unit_test(replacing_through_a_link_changes_its_target),
        cmocka_unit_test(failed_replacement_leaves_the_old_file_and_no_other),
        cmocka_unit_test(planted_link_is_not_followed),
        cmocka_unit_test(what_a_killed_replacement_left_is_removed),
        cmocka_unit_test(paths_too_long_are_refused),
        cmocka_unit_test(existence_and_folders_are_told_apart),
        cmocka_unit_test(system_errors_become_stories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
