// How programs end: killed, crashed, aborted, forked; and threads, slowly. The file is readable
// each time.
#include "record_killing.h"
#include "memory/ledger.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[512];

static int begin(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s", test_path("crash.rntrace"));
    return 0;
}

static int end(void **state) {
    (void)state;
    return rn_profile_stop() == RN_OK ? 0 : -1;
}

static bool start(void) {
    return rn_profile_start(&(rn_profile_options){.path = path}) == RN_OK;
}

// How much a killed program may lose is measured in record_kill_test.c.
static void killed_at_any_moment_the_file_is_readable(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < 50; round++)
        (void)kill_once(path, round, (unsigned)rand() % 20000);
}

// ---- fatal signals -----------------------------------------------------------------------------

// Sanitizers have their own opinion about these signals; the default is what programs have.
static void crash(int number, void (*how)(void)) {
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(number, SIG_DFL);
    if (!start()) _exit(1);
    rn_profile_begin(rn_profile_name("the last operation"));
    how();
    _exit(2);
}

static void expect_last_words(int number, void (*how)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) crash(number, how);
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(number, WTERMSIG(status));
    reading *r = read_trace(path);
    assert_int_equal(number, find_event(r, RN_TRACE_MARK, RN_MARK_SIGNAL, 0)->bytes);
    const rn_trace_event *last = find_event(r, RN_TRACE_BEGIN, -1, 0);
    assert_non_null(last);
    assert_string_equal("the last operation", name_of(r, last->name));
    assert_int_equal(0, r->damaged);
    close_reading(r);
}

static void call_abort(void) {
    abort();
}

static void touch_nothing(void) {
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)page = 1;
}

static void send_segv(void) {
    (void)raise(SIGSEGV);
}

static void send_fpe(void) {
    (void)raise(SIGFPE);
}

static void a_crash_writes_what_is_there_and_dies_as_before(void **state) {
    (void)state;
    expect_last_words(SIGABRT, call_abort);
    expect_last_words(SIGSEGV, touch_nothing);
    expect_last_words(SIGSEGV, send_segv);
    expect_last_words(SIGFPE, send_fpe);
}

static volatile sig_atomic_t heard;

static void hear(int number) {
    heard = number;
}

static void a_handler_that_was_there_is_called_and_comes_back(void **state) {
    (void)state;
    struct sigaction mine = {.sa_handler = hear}, before, now;
    assert_int_equal(0, sigaction(SIGFPE, &mine, &before));
    assert_true(start());
    assert_int_equal(0, raise(SIGFPE));
    assert_int_equal(SIGFPE, heard);
    assert_true(rn_profile_is_on());
    assert_ok(rn_profile_stop());
    assert_int_equal(0, sigaction(SIGFPE, &before, &now));
    assert_ptr_equal(hear, now.sa_handler);
    reading *r = read_trace(path);
    assert_int_equal(SIGFPE, find_event(r, RN_TRACE_MARK, RN_MARK_SIGNAL, 0)->bytes);
    assert_non_null(strstr(end_of(r), "stopped"));
    close_reading(r);
}

static void signals_may_be_left_alone(void **state) {
    (void)state;
    struct sigaction before, now;
    assert_int_equal(0, sigaction(SIGSEGV, NULL, &before));
    rn_profile_options options = {.path = path, .leave_signals = true};
    assert_ok(rn_profile_start(&options));
    assert_int_equal(0, sigaction(SIGSEGV, NULL, &now));
    assert_memory_equal(&before.sa_handler, &now.sa_handler, sizeof now.sa_handler);
    assert_ok(rn_profile_stop());
}

// ---- forks -------------------------------------------------------------------------------------

static int be_a_child(const char *other) {
    char fd_path[64], target[512] = "";
    if (rn_profile_is_on()) return 1;
    for (int i = 0; i < 20000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, 666);
    rn_profile_flush();
    if (rn_profile_stop() != RN_OK) return 2;
    for (int fd = 3; fd < 100; fd++) { // none of them is the parent's trace
        snprintf(fd_path, sizeof fd_path, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(fd_path, target, sizeof target - 1);
        if (bytes > 0 && strstr(target, "crash.rntrace")) return 3;
    }
    if (rn_profile_start(&(rn_profile_options){.path = other}) != RN_OK) return 4;
    rn_profile_checkpoint("the child's own");
    return rn_profile_stop() == RN_OK ? 0 : 5;
}

static void a_child_leaves_the_file_alone_and_may_have_its_own(void **state) {
    (void)state;
    int status;
    char other[512];
    snprintf(other, sizeof other, "%s", test_path("child.rntrace"));
    assert_true(start());
    rn_profile_checkpoint("before");
    pid_t child = fork();
    if (child == 0) _exit(be_a_child(other));
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status));
    assert_int_equal(0, WEXITSTATUS(status));
    rn_profile_checkpoint("after");
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    assert_int_equal(2, count_events(r, RN_TRACE_MARK, RN_MARK_CHECKPOINT));
    assert_int_equal(1, count_events(r, RN_TRACE_MARK, RN_MARK_FORK));
    assert_int_equal(0, count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER));
    assert_int_equal(0, r->damaged);
    close_reading(r);
    r = read_trace(other);
    assert_int_equal(1, count_events(r, RN_TRACE_MARK, RN_MARK_CHECKPOINT));
    assert_non_null(strstr(end_of(r), "stopped"));
    close_reading(r);
}

static void a_program_that_is_executed_does_not_have_the_file(void **state) {
    (void)state;
    int status;
    assert_true(start());
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "! ls -l /proc/self/fd | grep -q crash.rntrace", (char *)NULL);
        _exit(1);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(rn_profile_stop());
}

// ---- a reader beside the writer
// ------------------------------------------------------------------

static void a_file_can_be_read_while_it_is_written(void **state) {
    (void)state;
    assert_true(start());
    for (uint64_t i = 0; i < 50000; i++) {
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
        if (i % 10000) continue;
        rn_profile_flush();
        reading *r = read_trace(path);
        assert_int_equal(0, r->damaged);
        assert_int_equal(i, find_event(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER, i)->bytes);
        assert_string_equal("", end_of(r));
        close_reading(r);
    }
    assert_ok(rn_profile_stop());
}

// ---- threads -----------------------------------------------------------------------------------

// Its destructor is called again and again, until the system has had enough.
static pthread_key_t stubborn;

static void record_and_stay(void *self) {
    rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, 1);
    (void)pthread_setspecific(stubborn, self);
}

static void *stay(void *self) {
    rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, 0);
    if (self) (void)pthread_setspecific(stubborn, self);
    return NULL;
}

static void run_thread(void *self) {
    pthread_t thread;
    assert_int_equal(0, pthread_create(&thread, NULL, stay, self));
    assert_int_equal(0, pthread_join(thread, NULL));
}

static void destructors_that_record_leave_no_ring_behind(void **state) {
    rn_profile_facts facts;
    assert_true(start());
    run_thread(NULL); // the recorder's own destructor is there
    assert_int_equal(0, pthread_key_create(&stubborn, record_and_stay));
    run_thread(state);
    rn_profile_get_facts(&facts);
    assert_true(facts.ring_bytes < 256 * 1024);
    assert_int_equal(0, pthread_key_delete(stubborn));
    assert_ok(rn_profile_stop());
    reading *r = read_trace(path);
    assert_true(count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER) > 3);
    close_reading(r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(killed_at_any_moment_the_file_is_readable),
        TEST(a_crash_writes_what_is_there_and_dies_as_before),
        TEST(a_handler_that_was_there_is_called_and_comes_back),
        TEST(signals_may_be_left_alone),
        TEST(a_child_leaves_the_file_alone_and_may_have_its_own),
        TEST(a_program_that_is_executed_does_not_have_the_file),
        TEST(a_file_can_be_read_while_it_is_written),
        TEST(destructors_that_record_leave_no_ring_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
