// Ranks as processes that speak by sockets: collectives as between threads, and a rank that is
// killed is named by the others.
#include "support.h"

#include <ration/comm.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4, COUNT = 300007 };

static void set_number(const char *name, uint32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

// A port that was free a moment ago.
static void choose_port(void) {
    char master[32];
    snprintf(master, sizeof master, "127.0.0.1:%d", 20000 + (int)(getpid() % 20000));
    setenv("RATION_MASTER", master, 1);
    setenv("RATION_JOB", master, 1);
}

static rn_status reduce(rn_comm *comm) {
    static float values[COUNT];
    uint32_t rank = rn_comm_rank(comm), ranks = rn_comm_size(comm);
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = 1.0f / (float)(1 + i * (rank + 1));
    RN_TRY(rn_comm_all_reduce(comm, values, COUNT, RN_DTYPE_F32));
    for (uint32_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < ranks; r++)
            sum += 1.0f / (float)(1 + i * (r + 1));
        if (values[i] != sum) return rn_fail(RN_INTERNAL, "element %u", i);
    }
    return rn_comm_barrier(comm);
}

// Rank 1 goes without a word; all others say that it was rank 1.
static rn_status lose(rn_comm *comm) {
    if (rn_comm_rank(comm) == 1) raise(SIGKILL);
    rn_status s = rn_comm_barrier(comm);
    bool named = s == RN_DEVICE && strstr(rn_last_error()->message, "rank 1");
    return named ? RN_OK : rn_fail(RN_INTERNAL, "it was not named");
}

static int be_rank(uint32_t rank, uint32_t ranks, rn_status (*work)(rn_comm *)) {
    rn_comm_options options = {.timeout_seconds = 60};
    rn_comm *comm = NULL;
    set_number("RATION_RANK", rank);
    set_number("RATION_RANKS", ranks);
    rn_status s = rn_comm_open(&options, &comm);
    bool right = s == RN_OK && strcmp(rn_comm_kind(comm), "tcp") == 0;
    if (right) s = work(comm);
    if (s != RN_OK) fprintf(stderr, "rank %u: %s\n", rank, rn_last_error()->message);
    if (right && work == reduce)
        rn_comm_close(comm);
    else
        rn_comm_abort(comm, NULL);
    return right && s == RN_OK ? 0 : 1;
}

// Statuses of the ranks' processes.
static void run_ranks(uint32_t ranks, rn_status (*work)(rn_comm *), int out[MOST]) {
    pid_t processes[MOST];
    for (uint32_t r = 0; r < ranks; r++) {
        processes[r] = fork();
        assert_true(processes[r] >= 0);
        if (processes[r] == 0) _exit(be_rank(r, ranks, work));
    }
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(waitpid(processes[r], &out[r], 0), processes[r]);
}

static void sums_of_processes_are_in_the_order_of_ranks(void **state) {
    (void)state;
    choose_port();
    for (uint32_t ranks = 2; ranks <= MOST; ranks++) {
        int statuses[MOST];
        run_ranks(ranks, reduce, statuses);
        for (uint32_t r = 0; r < ranks; r++)
            assert_int_equal(statuses[r], 0);
    }
}

static void a_process_that_is_killed_is_named_by_all_others(void **state) {
    (void)state;
    int statuses[MOST];
    choose_port();
    run_ranks(3, lose, statuses);
    assert_true(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[2], 0);
}

static void variables_that_are_missing_are_named(void **state) {
    (void)state;
    rn_comm *comm = NULL;
    unsetenv("RATION_MASTER");
    set_number("RATION_RANK", 0);
    set_number("RATION_RANKS", 2);
    assert_int_equal(rn_comm_open(NULL, &comm), RN_INVALID);
    assert_non_null(strstr(rn_last_error()->hint, "RATION_MASTER"));
    set_number("RATION_RANK", 2);
    assert_int_equal(rn_comm_open(NULL, &comm), RN_INVALID);
    unsetenv("RATION_RANK");
    unsetenv("RATION_RANKS");
    assert_int_equal(rn_comm_open(&(rn_comm_options){.kind = "tcp"}, &comm), RN_INVALID);
    assert_null(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_processes_are_in_the_order_of_ranks),
        cmocka_unit_test(a_process_that_is_killed_is_named_by_all_others),
        cmocka_unit_test(variables_that_are_missing_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
