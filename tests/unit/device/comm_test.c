// labels: threads
// Ranks as threads: collectives give the same on all of them, and whoever is missing is named.
#include "support.h"

#include <ration/comm.h>
#include <ration/memory.h>

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { MOST = 5 };

typedef struct worker {
    rn_comm *comm;
    rn_status (*work)(struct worker *worker);
    rn_status status;
    rn_error_info error;
    float result;
} worker;

static void *run_worker(void *self) {
    worker *w = self;
    w->status = w->work(w);
    w->error = *rn_last_error();
    if (w->status == RN_OK)
        rn_comm_close(w->comm);
    else
        rn_comm_abort(w->comm, w->error.message);
    return NULL;
}

static void run_ranks(uint32_t ranks, double timeout, rn_status (*work)(worker *),
                      worker workers[MOST]) {
    rn_comm *comms[MOST];
    pthread_t threads[MOST];
    assert_ok(rn_comm_open_threads(ranks, timeout, comms));
    for (uint32_t r = 0; r < ranks; r++) {
        workers[r] = (worker){.comm = comms[r], .work = work};
        assert_int_equal(pthread_create(&threads[r], NULL, run_worker, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
}

static rn_status reduce(worker *w) {
    enum { COUNT = 10007 }; // not a multiple of any number of ranks
    static float values[MOST][COUNT];
    uint32_t rank = rn_comm_rank(w->comm), ranks = rn_comm_size(w->comm);
    for (uint32_t i = 0; i < COUNT; i++)
        values[rank][i] = 1.0f / (float)(1 + i * (rank + 1));
    RN_TRY(rn_comm_all_reduce(w->comm, values[rank], COUNT, RN_DTYPE_F32));
    for (uint32_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < ranks; r++)
            sum += 1.0f / (float)(1 + i * (r + 1));
        if (values[rank][i] != sum) return rn_fail(RN_INTERNAL, "element %u", i);
    }
    return RN_OK;
}

static void sums_are_those_in_the_order_of_ranks(void **state) {
    (void)state;
    for (uint32_t ranks = 1; ranks <= MOST; ranks++) {
        worker workers[MOST];
        run_ranks(ranks, 60, reduce, workers);
        for (uint32_t r = 0; r < ranks; r++)
            assert_int_equal(workers[r].status, RN_OK);
    }
}

static rn_status exchange(worker *w) {
    uint32_t rank = rn_comm_rank(w->comm), ranks = rn_comm_size(w->comm);
    int64_t all[MOST] = {0}, rows[MOST] = {0}, mine = 0, root = rank == 1 ? 42 : 0;
    all[rank] = 100 + rank;
    RN_TRY(rn_comm_all_gather(w->comm, all, sizeof all[0]));
    for (uint32_t r = 0; r < ranks; r++)
        if (all[r] != 100 + r) return rn_fail(RN_INTERNAL, "gathered %lld", (long long)all[r]);
    for (uint32_t r = 0; r < ranks; r++)
        rows[r] = 10 * rank + r;
    RN_TRY(rn_comm_reduce_scatter(w->comm, rows, 1, RN_DTYPE_I64, &mine));
    if (mine != 10 * ranks * (ranks - 1) / 2 + ranks * rank) return rn_fail(RN_INTERNAL, "row");
    RN_TRY(rn_comm_broadcast(w->comm, 1, &root, sizeof root));
    if (root != 42) return rn_fail(RN_INTERNAL, "root");
    if (rank == 0) RN_TRY(rn_comm_send(w->comm, ranks - 1, &root, sizeof root));
    if (rank == ranks - 1) RN_TRY(rn_comm_receive(w->comm, 0, &root, sizeof root));
    return rn_comm_barrier(w->comm);
}

static void gathering_scattering_broadcasting_and_sending_arrive(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= MOST; ranks++) {
        worker workers[MOST];
        run_ranks(ranks, 60, exchange, workers);
        for (uint32_t r = 0; r < ranks; r++)
            assert_int_equal(workers[r].status, RN_OK);
    }
}

// Rank 2 does not come; rank 1 waits for 0, which waits for 2.
static rn_status leave_out(worker *w) {
    uint32_t rank = rn_comm_rank(w->comm), byte = 0;
    if (rank == 2) {
        struct timespec nap = {.tv_sec = 4};
        nanosleep(&nap, NULL);
        return RN_OK;
    }
    return rn_comm_receive(w->comm, rank == 1 ? 0 : 2, &byte, sizeof byte);
}

static void a_rank_that_does_not_come_is_named_by_all_others(void **state) {
    (void)state;
    worker workers[MOST];
    run_ranks(3, 0.5, leave_out, workers);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(workers[r].status, RN_DEVICE);
        assert_non_null(strstr(workers[r].error.message, "rank 2"));
    }
}

static rn_status fail_on_one(worker *w) {
    if (rn_comm_rank(w->comm) == 1) return rn_fail(RN_IO, "the disk is full");
    return rn_comm_barrier(w->comm);
}

static void an_error_of_one_rank_reaches_the_others(void **state) {
    (void)state;
    worker workers[MOST];
    run_ranks(3, 60, fail_on_one, workers);
    assert_non_null(strstr(workers[0].error.message, "rank 1 of 3 failed: the disk is full"));
    assert_non_null(strstr(workers[2].error.message, "rank 1 of 3 failed: the disk is full"));
}

static rn_status compare(worker *w) {
    bool odd = rn_comm_rank(w->comm) == 3;
    rn_comm_item items[] = {{"the model", "abc"}, {"the options", odd ? "--seed 2" : "--seed 1"}};
    return rn_comm_compare(w->comm, items, 2);
}

static void the_rank_with_other_options_is_named(void **state) {
    (void)state;
    worker workers[MOST];
    run_ranks(4, 60, compare, workers);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(workers[r].status, RN_INVALID);
        assert_non_null(strstr(workers[r].error.message, "rank 3 of 4 differs"));
        assert_non_null(strstr(workers[r].error.message, "the options"));
    }
}

static rn_status agree(worker *w) {
    bool bad = rn_comm_rank(w->comm) == 1;
    return rn_comm_agree(w->comm, bad ? rn_fail(RN_OVER_BUDGET, "1 MiB too much") : RN_OK);
}

static void a_refusal_of_one_rank_is_the_refusal_of_all(void **state) {
    (void)state;
    worker workers[MOST];
    run_ranks(3, 60, agree, workers);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(workers[r].status, RN_OVER_BUDGET);
    assert_string_equal(workers[0].error.message, "rank 1 of 3: 1 MiB too much");
    assert_string_equal(workers[1].error.message, "1 MiB too much");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_in_the_order_of_ranks),
        cmocka_unit_test(gathering_scattering_broadcasting_and_sending_arrive),
        cmocka_unit_test(a_rank_that_does_not_come_is_named_by_all_others),
        cmocka_unit_test(an_error_of_one_rank_reaches_the_others),
        cmocka_unit_test(the_rank_with_other_options_is_named),
        cmocka_unit_test(a_refusal_of_one_rank_is_the_refusal_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
