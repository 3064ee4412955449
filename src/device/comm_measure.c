// comm_measure.c — how fast ranks reach each other: messages to and fro between rank 0 and each of
// the others, then collectives of all. The least of several times: what else runs only adds to it.
#include "device/comm.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_IO
enum {
    SMALL = 64,        // bytes
    SMALL_TURNS = 200, // to and fro
    LARGE_TURNS = 3,
    COLLECTIVE_TURNS = 4,
};

static double since(uint64_t begin_ns) {
    return (double)(rn_clock_ns() - begin_ns) * 1e-9;
}

// To the other rank and back, the least of `turns`; of one way.
static rn_status time_messages(rn_comm *comm, uint32_t peer, uint8_t *data, uint64_t bytes,
                               uint32_t turns, double *out) {
    double least = 1e30;
    for (uint32_t i = 0; i < turns; i++) {
        uint64_t begin = rn_clock_ns();
        if (comm->rank == 0) {
            RN_TRY(rn_comm_send(comm, peer, data, bytes));
            RN_TRY(rn_comm_receive(comm, peer, data, bytes));
        } else {
            RN_TRY(rn_comm_receive(comm, 0, data, bytes));
            RN_TRY(rn_comm_send(comm, 0, data, bytes));
        }
        double seconds = since(begin) / 2;
        if (seconds < least) least = seconds;
    }
    *out = least;
    return RN_OK;
}

// Rank 0 with each of the others in turn, which meanwhile have nothing to do.
static rn_status measure_pairs(rn_comm *comm, uint8_t *data, uint64_t bytes, rn_comm_rates *out) {
    for (uint32_t peer = 1; peer < comm->size; peer++) {
        double small = 0, large = 0;
        if (comm->rank == 0 || comm->rank == peer) {
            RN_TRY(time_messages(comm, peer, data, SMALL, SMALL_TURNS, &small));
            RN_TRY(time_messages(comm, peer, data, bytes, LARGE_TURNS, &large));
        }
        double rate = large > small ? (double)bytes / (large - small) : 0;
        if (small > out->latency_seconds) out->latency_seconds = small;
        if (out->bytes_per_second == 0 || rate < out->bytes_per_second) {
            out->bytes_per_second = rate;
            out->slowest_rank = peer;
        }
        RN_TRY(rn_comm_barrier(comm));
    }
    return RN_OK;
}

static rn_status measure_size(rn_comm *comm, uint8_t *data, uint64_t bytes, double *out_reduce,
                              double *out_gather) {
    *out_reduce = *out_gather = 1e30;
    for (uint32_t i = 0; i < COLLECTIVE_TURNS; i++) {
        RN_TRY(rn_comm_barrier(comm));
        uint64_t begin = rn_clock_ns();
        RN_TRY(rn_comm_all_reduce(comm, data, bytes / sizeof(float), RN_DTYPE_F32));
        double reduce = since(begin);
        RN_TRY(rn_comm_barrier(comm));
        begin = rn_clock_ns();
        RN_TRY(rn_comm_all_gather(comm, data, bytes / comm->size));
        double gather = since(begin);
        if (reduce < *out_reduce) *out_reduce = reduce;
        if (gather < *out_gather) *out_gather = gather;
    }
    return RN_OK;
}

static rn_status measure_collectives(rn_comm *comm, uint8_t *data, uint64_t most,
                                     rn_comm_rates *out) {
    static const uint64_t sizes[RN_COMM_SIZES] = {4096, 65536, 1 << 20, 16 << 20, 64 << 20};
    for (uint32_t i = 0; i < RN_COMM_SIZES; i++) {
        uint64_t bytes = rn_min_u64(sizes[i], most);
        out->sizes[i].bytes = bytes;
        RN_TRY(measure_size(comm, data, bytes, &out->sizes[i].all_reduce_seconds,
                            &out->sizes[i].all_gather_seconds));
    }
    return RN_OK;
}

static double measure_copy(uint8_t *data, uint64_t bytes) {
    double least = 1e30;
    for (int i = 0; i < 4; i++) {
        uint64_t begin = rn_clock_ns();
        memcpy(data + bytes, data, bytes);
        double seconds = since(begin);
        if (seconds < least) least = seconds;
    }
    return (double)bytes / least;
}

rn_status rn_comm_measure(rn_comm *comm, uint64_t bytes, rn_comm_rates *out) {
    void *block = NULL;
    uint64_t ranks = rn_comm_size(comm);
    bytes = rn_round_down(bytes ? bytes : 64 << 20, sizeof(float) * ranks);
    *out = (rn_comm_rates){0};
    if (bytes < 4096)
        return rn_fail(RN_INVALID, "%llu bytes are too few to measure", (unsigned long long)bytes);
    RN_TRY(rn_alloc_zeroed(FROM, 2, bytes, &block));
    uint8_t *data = block;      // zeros: sums of them stay finite
    memset(data, 0, 2 * bytes); // pages, not promises
    out->copy_bytes_per_second = measure_copy(data, bytes);
    rn_status s = ranks > 1 ? measure_pairs(comm, data, bytes, out) : RN_OK;
    if (s == RN_OK && ranks > 1) s = measure_collectives(comm, data, bytes, out);
    double copy = out->copy_bytes_per_second;
    if (s == RN_OK && ranks > 1) s = rn_comm_broadcast(comm, 0, out, sizeof *out);
    out->copy_bytes_per_second = copy;
    rn_free(FROM, block, 2 * bytes);
    return s;
}
