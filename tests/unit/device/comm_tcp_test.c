// Ranks as processes that speak by sockets: collectives as between threads, and a rank that is
// killed is named by the others.
#include "support.h"

#include <ration/comm.h>

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4, COUNT = 300007 };

static void set_number(const char *name, uint32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

// A port that was free a moment ago.
static void choose_port_at(const char *host) {
    char master[64];
    snprintf(master, sizeof master, "%s:%d", host, 20000 + (int)(getpid() % 20000));
    setenv("RATION_MASTER", master, 1);
    setenv("RATION_JOB", "the secret of this job", 1);
}

static void choose_port(void) {
    choose_port_at("127.0.0.1");
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

static rn_status measure(rn_comm *comm) {
    rn_comm_rates rates;
    RN_TRY(rn_comm_measure(comm, 1 << 20, &rates));
    bool right = rates.latency_seconds > 0 && rates.bytes_per_second > 0 &&
                 rates.slowest_rank >= 1 && rates.slowest_rank < rn_comm_size(comm);
    for (int i = 0; i < RN_COMM_SIZES; i++)
        right = right && rates.sizes[i].bytes >= 4096 && rates.sizes[i].bytes <= 1 << 20 &&
                rates.sizes[i].all_reduce_seconds > 0 && rates.sizes[i].all_gather_seconds > 0;
    return right ? rn_comm_barrier(comm) : rn_fail(RN_INTERNAL, "what was measured");
}

// Rank 1 goes without a word; all others say that it was rank 1.
static rn_status lose(rn_comm *comm) {
    if (rn_comm_rank(comm) == 1) raise(SIGKILL);
    rn_status s = rn_comm_barrier(comm);
    bool named = s == RN_DEVICE && strstr(rn_last_error()->message, "rank 1");
    if (!named) fprintf(stderr, "%s\n", rn_last_error()->message);
    return named ? RN_OK : rn_fail(RN_INTERNAL, "it was not named");
}

// Called instead of rn_comm_open's success: see be_rank.
static rn_status differ(rn_comm *comm) {
    (void)comm;
    return rn_fail(RN_INTERNAL, "they met");
}

static int be_odd_rank(uint32_t rank) {
    rn_comm_options options = {.timeout_seconds = 3};
    rn_comm *comm = NULL;
    if (rank == 1) setenv("RATION_JOB", "that of another one", 1);
    rn_status s = rn_comm_open(&options, &comm);
    const rn_error_info *error = rn_last_error();
    bool right = rank ? s == RN_INVALID && strstr(error->message, "another secret")
                      : s == RN_DEVICE && strstr(error->message, "another job's secret");
    if (!right) fprintf(stderr, "rank %u: %s\n", rank, error->message);
    rn_comm_abort(comm, NULL);
    return right ? 0 : 1;
}

static int be_rank(uint32_t rank, uint32_t ranks, rn_status (*work)(rn_comm *)) {
    rn_comm_options options = {.timeout_seconds = 60};
    rn_comm *comm = NULL;
    set_number("RATION_RANK", rank);
    set_number("RATION_RANKS", ranks);
    if (work == differ) return be_odd_rank(rank);
    rn_status s = rn_comm_open(&options, &comm);
    bool right = s == RN_OK && strcmp(rn_comm_kind(comm), "tcp") == 0;
    if (right) s = work(comm);
    if (s != RN_OK) fprintf(stderr, "rank %u: %s\n", rank, rn_last_error()->message);
    if (right && work != lose)
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

static void ranks_meet_at_an_address_of_ipv6(void **state) {
    (void)state;
    int statuses[MOST], s = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    bool has = s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0;
    close(s);
    if (!has) skip_because("no IPv6 here");
    choose_port_at("[::1]");
    run_ranks(3, reduce, statuses);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(statuses[r], 0);
}

// A name, or an address that others reach: all of a machine's addresses are listened at.
static void ranks_meet_at_an_address_that_is_not_the_loopback(void **state) {
    (void)state;
    int statuses[MOST];
    choose_port_at("0.0.0.0"); // as a place to go to: this machine
    run_ranks(3, reduce, statuses);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(statuses[r], 0);
}

// Each says whose secret is not its own.
static void a_rank_with_another_secret_is_refused(void **state) {
    (void)state;
    int statuses[MOST];
    choose_port();
    run_ranks(2, differ, statuses);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[1], 0);
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

static void a_job_that_others_reach_needs_a_secret(void **state) {
    (void)state;
    rn_comm *comm = NULL;
    set_number("RATION_RANK", 0);
    set_number("RATION_RANKS", 2);
    setenv("RATION_MASTER", "192.0.2.1:29500", 1);
    unsetenv("RATION_JOB");
    assert_int_equal(rn_comm_open(NULL, &comm), RN_INVALID);
    assert_non_null(strstr(rn_last_error()->message, "no secret"));
    setenv("RATION_JOB", "short", 1);
    assert_int_equal(rn_comm_open(NULL, &comm), RN_INVALID);
    assert_non_null(strstr(rn_last_error()->message, "short"));
    assert_non_null(strstr(rn_last_error()->hint, "openssl rand"));
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"192.0.2.1", ":29500", "192.0.2.1:0", "192.0.2.1:70000"};
        setenv("RATION_MASTER", bad[i], 1);
        assert_int_equal(rn_comm_open(NULL, &comm), RN_INVALID);
    }
    unsetenv("RATION_RANK");
    unsetenv("RATION_RANKS");
    unsetenv("RATION_MASTER");
}

static void a_port_in_use_is_named(void **state) {
    (void)state;
    rn_comm *comm = NULL;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char master[32];
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s, 1), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &bytes), 0);
    snprintf(master, sizeof master, "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("RATION_MASTER", master, 1);
    set_number("RATION_RANK", 0);
    set_number("RATION_RANKS", 2);
    assert_int_equal(rn_comm_open(NULL, &comm), RN_IO);
    assert_non_null(strstr(rn_last_error()->message, "port"));
    // A rank that comes to something that is no rank waits, and says where it was.
    set_number("RATION_RANK", 1);
    assert_int_equal(rn_comm_open(&(rn_comm_options){.timeout_seconds = 0.5}, &comm), RN_DEVICE);
    assert_non_null(strstr(rn_last_error()->message, "rank 0 of 2 was not reached"));
    close(s);
    unsetenv("RATION_RANK");
    unsetenv("RATION_RANKS");
    unsetenv("RATION_MASTER");
}

// Of one process: what there is to measure without others.
static void speeds_are_measured_by_all_ranks(void **state) {
    (void)state;
    int statuses[MOST];
    rn_comm_rates rates;
    rn_comm *self = NULL;
    assert_ok(rn_comm_open(&(rn_comm_options){.kind = "self"}, &self));
    assert_ok(rn_comm_measure(self, 1 << 20, &rates));
    assert_true(rates.copy_bytes_per_second > 0 && rates.bytes_per_second == 0);
    rn_comm_close(self);
    choose_port();
    run_ranks(3, measure, statuses);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(statuses[r], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_processes_are_in_the_order_of_ranks),
        cmocka_unit_test(ranks_meet_at_an_address_of_ipv6),
        cmocka_unit_test(ranks_meet_at_an_address_that_is_not_the_loopback),
        cmocka_unit_test(a_rank_with_another_secret_is_refused),
        cmocka_unit_test(a_process_that_is_killed_is_named_by_all_others),
        cmocka_unit_test(variables_that_are_missing_are_named),
        cmocka_unit_test(a_job_that_others_reach_needs_a_secret),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(speeds_are_measured_by_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
