// calibrate_ranks.c — ration calibrate as several ranks: how fast they reach each other. The
// machine itself is for one process alone to measure.
#include "rank_job.h"

#include <stdio.h>
#include <time.h>

static void print_sizes(const rn_comm_rates *r) {
    printf("  %12s%14s%14s%14s\n", "", "all-reduce", "all-gather", "5 x bytes/s");
    for (uint32_t i = 0; i < RN_COMM_SIZES; i++)
        printf("  %12s%14s%14s%9.2f GB/s\n", rn_size_format(r->sizes[i].bytes).text,
               rn_time_format(r->sizes[i].all_reduce_seconds).text,
               rn_time_format(r->sizes[i].all_gather_seconds).text,
               5 * (double)r->sizes[i].bytes / r->sizes[i].all_reduce_seconds / 1e9);
}

static void print_rates(const rn_comm *comm, const rn_comm_rates *r) {
    printf("%s\n", rn_comm_describe(comm));
    printf("  latency        %6.1f us       of a message, to the rank that is farthest\n",
           r->latency_seconds * 1e6);
    printf("  bandwidth      %6.2f GB/s     one way, to rank %u, which has least\n",
           r->bytes_per_second / 1e9, r->slowest_rank);
    printf("  copy           %6.2f GB/s     within the memory of rank 0\n",
           r->copy_bytes_per_second / 1e9);
    print_sizes(r);
    printf("For ration plan: --link %.3gus,%.0fMB\n", r->latency_seconds * 1e6,
           r->bytes_per_second / 1e6);
}

static rn_status write_rates(const rn_comm *comm, const rn_comm_rates *r) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "ranks", rn_comm_size(comm));
    rn_json_string(&json, "kind", rn_comm_kind(comm));
    rn_json_string(&json, "about", rn_comm_describe(comm));
    rn_json_f64(&json, "latency_seconds", r->latency_seconds);
    rn_json_f64(&json, "bytes_per_second", r->bytes_per_second);
    rn_json_u64(&json, "slowest_rank", r->slowest_rank);
    rn_json_f64(&json, "copy_bytes_per_second", r->copy_bytes_per_second);
    rn_json_array(&json, "sizes");
    for (uint32_t i = 0; i < RN_COMM_SIZES; i++) {
        rn_json_object(&json, NULL);
        rn_json_u64(&json, "bytes", r->sizes[i].bytes);
        rn_json_f64(&json, "all_reduce_seconds", r->sizes[i].all_reduce_seconds);
        rn_json_f64(&json, "all_gather_seconds", r->sizes[i].all_gather_seconds);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// ---- soaking ------------------------------------------------------------------------------------

enum { SOAK_COUNT = 1 << 16 };

// Sums whose results are known, of numbers that differ from rank to rank and from turn to turn.
static rn_status sum_once(rn_comm *comm, float *values, uint32_t turn) {
    uint32_t rank = rn_comm_rank(comm), ranks = rn_comm_size(comm);
    for (uint32_t i = 0; i < SOAK_COUNT; i++)
        values[i] = (float)((i + turn) % 1000 + rank);
    RN_TRY(rn_comm_all_reduce(comm, values, SOAK_COUNT, RN_DTYPE_F32));
    for (uint32_t i = 0; i < SOAK_COUNT; i++) {
        float expected = (float)((i + turn) % 1000 * ranks + ranks * (ranks - 1) / 2);
        if (values[i] != expected)
            return rn_fail(RN_CORRUPT, "sum %u, element %u: %g came, %g is right", turn, i,
                           (double)values[i], (double)expected);
    }
    return RN_OK;
}

// Until rank 0's clock says so.
static rn_status soak(rn_comm *comm, double seconds, uint32_t *out_turns) {
    static float values[SOAK_COUNT];
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    bool goes_on = seconds > 0;
    while (goes_on) {
        RN_TRY(sum_once(comm, values, (*out_turns)++));
        clock_gettime(CLOCK_MONOTONIC, &now);
        double since =
            (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) * 1e-9;
        goes_on = since < seconds && !interrupted;
        RN_TRY(rn_comm_broadcast(comm, 0, &goes_on, sizeof goes_on));
    }
    return RN_OK;
}

rn_status calibrate_ranks(const invocation *in) {
    rn_comm *comm = NULL;
    rn_comm_rates rates;
    double seconds = 0;
    uint32_t turns = 0;
    RN_TRY(parse_time("soak", rn_settings_text(in->settings, "soak"), &seconds));
    RN_TRY(open_ranks(in, &comm));
    rn_status s = soak(comm, seconds, &turns);
    if (s == RN_OK) s = rn_comm_measure(comm, 0, &rates);
    if (s == RN_OK && turns && rn_comm_rank(comm) == 0 && !in->json)
        printf("%u sums of %u ranks in %g s, all of them right\n", turns, rn_comm_size(comm),
               seconds);
    if (s == RN_OK && rn_comm_rank(comm) == 0)
        s = in->json ? write_rates(comm, &rates) : (print_rates(comm, &rates), RN_OK);
    return close_ranks(comm, s);
}
