// Temporaries: names that nobody can wait for, and what a killed process left is removed by the
// next, but nothing else.
#include "support.h"
#include "base/file.h"
#include "base/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

// A child that makes a temporary of `path` and is killed.
static void leave(const char *path) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        char name[4096];
        int fd;
        if (rn_temporary_create(path, 0600, name, sizeof name, &fd) != RN_OK) _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// The only entry of the test's folder whose name begins with `start`, or "".
static const char *find_entry(const char *start) {
    static char found[256];
    found[0] = '\0';
    DIR *folder = opendir(test_folder());
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, start, strlen(start)) == 0) {
            assert_string_equal("", found);
            snprintf(found, sizeof found, "%s", entry->d_name);
        }
    closedir(folder);
    return found;
}

static void names_differ_each_time_and_files_are_empty(void **state) {
    (void)state;
    char first[4096], second[4096];
    int fd, other;
    struct stat info;
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("names"));
    assert_ok(rn_temporary_create(path, 0600, first, sizeof first, &fd));
    assert_ok(rn_temporary_create(path, 0600, second, sizeof second, &other));
    assert_string_not_equal(first, second);
    assert_int_equal(strlen(path) + RN_TEMPORARY_SUFFIX_BYTES, strlen(first));
    assert_true(is_there(first) && is_there(second)); // both are held
    assert_int_equal(0, fstat(fd, &info));
    assert_true(info.st_size == 0 && (info.st_mode & 07777) == 0600);
    close(fd);
    close(other);
    rn_temporary_sweep(path);
    assert_true(!is_there(first) && !is_there(second));
}

static void what_a_killed_process_left_goes_with_the_next(void **state) {
    (void)state;
    char name[4096];
    int fd;
    char path[512];
    snprintf(path, sizeof path, "%s", test_path("killed"));
    leave(path);
    char left[512];
    snprintf(left, sizeof left, "%s", test_path(find_entry("killed")));
    assert_true(is_there(left));
    rn_temporary_sweep(test_path("kill")); // of another file
    rn_temporary_sweep(test_path("killed.x"));
    assert_true(is_there(left));
    assert_ok(rn_temporary_create(path, 0600, name, sizeof name, &fd));
    assert_false(is_there(left));
    assert_true(is_there(name));
    close(fd);
    unlink(name);
    leave(path);
    assert_ok(rn_file_replace(path, "new", 3));
    assert_string_equal("killed", find_entry("killed"));
}

static void nothing_else_is_removed(void **state) {
    (void)state;
    const char *others[] = {
        "mine.rn0123456789ab",      "mine.rn0123456789ab.tmp2", "mine.rn0123456789ag.tmp",
        "mine.rn0123456789a.tmp",   "mine.0123456789abcd.tmp",  "mine.12345.tmp",
        "mine.rn0123456789ABC.tmp", "mine2.rn0123456789ab.tmp", "not mine.rn0123456789ab.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        test_write(test_path(others[i]), "x", 1);
    test_write(test_path("victim"), "precious", 8);
    assert_int_equal(0, symlink("victim", test_path("mine.rn000000000001.tmp")));
    assert_int_equal(0, mkdir(test_path("mine.rn000000000002.tmp"), 0700));
    assert_int_equal(0, mkfifo(test_path("mine.rn000000000003.tmp"), 0600));
    test_write(test_path("mine.rn000000000004.tmp"), "x", 1); // with a second name: somebody's
    assert_int_equal(0, link(test_path("mine.rn000000000004.tmp"), test_path("second name")));
    test_write(test_path("mine.rn000000000005.tmp"), "x", 1);
    bool is_root = chown(test_path("mine.rn000000000005.tmp"), 12345, (gid_t)-1) == 0;
    test_write(test_path("mine.rn000000000006.tmp"), "x", 1); // and this one is ours
    rn_temporary_sweep(test_path("mine"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(is_there(test_path(others[i])));
    assert_true(is_there(test_path("mine.rn000000000001.tmp")) && is_there(test_path("victim")));
    assert_true(is_there(test_path("mine.rn000000000002.tmp")));
    assert_true(is_there(test_path("mine.rn000000000003.tmp")));
    assert_true(is_there(test_path("mine.rn000000000004.tmp")));
    assert_true(is_there(test_path("mine.rn000000000005.tmp")) == is_root);
    assert_false(is_there(test_path("mine.rn000000000006.tmp")));
}

static void unnamed_files_get_a_name_of_that_form(void **state) {
    (void)state;
    char name[4096];
    int fd = open(test_folder(), O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) skip_because("no O_TMPFILE in this file system");
    const char *path = test_path("unnamed");
    assert_ok(rn_temporary_name(path, fd, name, sizeof name));
    rn_temporary_sweep(path);
    assert_true(is_there(name)); // held
    close(fd);
    rn_temporary_sweep(path);
    assert_false(is_there(name));
}

static void folders_of_killed_processes_go_unless_something_else_lies_in_them(void **state) {
    (void)state;
    char name[4096], file[4200];
    int fd, status;
    for (int i = 0; i < 2; i++) { // the second has a file of somebody's
        pid_t child = fork();
        if (child == 0) {
            int own;
            if (rn_temporary_folder(test_folder(), "f-", ".x", name, sizeof name, &own) != RN_OK)
                _exit(1);
            snprintf(file, sizeof file, "%s/%s", name, i ? "kept.y" : "removed.x");
            close(open(file, O_WRONLY | O_CREAT | O_EXCL, 0600));
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(child, waitpid(child, &status, 0));
        assert_true(WIFSIGNALED(status));
    }
    char left[512]; // by the second, which removed the first one's
    snprintf(left, sizeof left, "%s", test_path(find_entry("f-")));
    assert_ok(rn_temporary_folder(test_folder(), "f-", ".x", name, sizeof name, &fd));
    snprintf(file, sizeof file, "%s/kept.y", left);
    assert_true(is_there(file) && is_there(name));
    unlink(file);
    char second[4096];
    int other;
    assert_ok(rn_temporary_folder(test_folder(), "f-", ".x", second, sizeof second, &other));
    assert_true(!is_there(left) && is_there(name) && is_there(second));
    close(fd);
    close(other);
    rmdir(name);
    rmdir(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_differ_each_time_and_files_are_empty),
        cmocka_unit_test(what_a_killed_process_left_goes_with_the_next),
        cmocka_unit_test(nothing_else_is_removed),
        cmocka_unit_test(unnamed_files_get_a_name_of_that_form),
        cmocka_unit_test(folders_of_killed_processes_go_unless_something_else_lies_in_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
