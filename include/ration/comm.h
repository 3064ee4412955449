// comm.h — several processes that work together: who is there, and what they tell each other.
//
//     rn_comm *comm;
//     RN_TRY(rn_comm_open(&(rn_comm_options){0}, &comm)); // as the launcher's variables say
//     RN_TRY(rn_comm_all_reduce(comm, sums, count, RN_DTYPE_F32));
//     rn_comm_close(comm);
//
// A *rank* is one of the processes, by its number from 0. A *collective* is an operation that all
// ranks call, in the same order and with the same sizes. Sums are in the order of ranks, whatever
// the implementation: every rank has the same bits, and so has every other run.
//
// No call waits for longer than the timeout. It then fails on all ranks that wait, with RN_DEVICE
// and the number of the rank that did not come. A rank that ends by an error tells the others.
// One thread at a time.
#ifndef RATION_COMM_H
#define RATION_COMM_H

#include <ration/status.h>
#include <ration/tensor.h>

RN_BEGIN_DECLS

typedef struct rn_comm rn_comm;

typedef struct rn_comm_options {
    // "self" (one rank), "mpi" (MPI, loaded at run time) or "tcp" (sockets). NULL or "auto": what
    // the launcher's variables say; "self" without any.
    const char *kind;
    double timeout_seconds; // 0: 300
    // Of "mpi": the library; NULL: $RATION_MPI_LIBRARY, or what fits the launcher.
    const char *library;
    uint64_t reserved[4]; // zero
} rn_comm_options;

// What the launcher says by its variables: mpirun (Open MPI, MPICH), srun; torchrun and ration
// launch, whose ranks speak by sockets ("tcp").
typedef struct rn_comm_launch {
    const char *launcher; // for people; NULL: none
    const char *kind;     // what "auto" opens
    uint32_t rank, ranks;
    uint32_t local_rank, local_ranks; // of this machine; local_ranks 0: not known
} rn_comm_launch;
RN_API rn_comm_launch rn_comm_find_launch(void);

// RN_INVALID: no such kind, or variables that contradict each other; RN_NOT_FOUND: no MPI library;
// RN_DEVICE: the others did not come, or each rank came up alone (the library is not the
// launcher's).
RN_API RN_MUST_USE rn_status rn_comm_open(const rn_comm_options *options, rn_comm **out);
// Says goodbye to the others and waits for theirs, as long as the timeout. NULL-safe.
RN_API void rn_comm_close(rn_comm *comm);
// Ends with an error, which the others get to know: their next (or present) wait fails with it.
// `why` may be NULL. NULL-safe.
RN_API void rn_comm_abort(rn_comm *comm, const char *why);

RN_API uint32_t rn_comm_rank(const rn_comm *comm); // NULL: 0
RN_API uint32_t rn_comm_size(const rn_comm *comm); // NULL: 1
RN_API const char *rn_comm_kind(const rn_comm *comm);
// For people: "Open MPI 4.1.4, 4 ranks".
RN_API const char *rn_comm_describe(const rn_comm *comm);

// Several ranks as threads of one process: out[0 .. ranks - 1] are to be used and closed by a
// thread each.
RN_API RN_MUST_USE rn_status rn_comm_open_threads(uint32_t ranks, double timeout_seconds,
                                                  rn_comm **out);

// ---- collectives --------------------------------------------------------------------------------

RN_API RN_MUST_USE rn_status rn_comm_barrier(rn_comm *comm);
RN_API RN_MUST_USE rn_status rn_comm_broadcast(rn_comm *comm, uint32_t root, void *data,
                                               uint64_t bytes);
// data: (count) of f32, f64, bf16, i32 or i64: the sum over ranks, in the order of ranks.
RN_API RN_MUST_USE rn_status rn_comm_all_reduce(rn_comm *comm, void *data, uint64_t count,
                                                rn_dtype dtype);
// data: (size, count); out: (count): row `rank` of the sum. out may be that row of data. The rest
// of data is left in no particular state.
RN_API RN_MUST_USE rn_status rn_comm_reduce_scatter(rn_comm *comm, void *data, uint64_t count,
                                                    rn_dtype dtype, void *out);
// data: (size, bytes), of which row `rank` is given by the caller.
RN_API RN_MUST_USE rn_status rn_comm_all_gather(rn_comm *comm, void *data, uint64_t bytes);
RN_API RN_MUST_USE rn_status rn_comm_send(rn_comm *comm, uint32_t to, const void *data,
                                          uint64_t bytes);
RN_API RN_MUST_USE rn_status rn_comm_receive(rn_comm *comm, uint32_t from, void *data,
                                             uint64_t bytes);

// Whether all others are still there, as far as is known now; nothing is waited for. RN_DEVICE as
// above: of a rank that has nothing to say to them for a while.
RN_API RN_MUST_USE rn_status rn_comm_look(rn_comm *comm);
// As rn_comm_receive, for as long as it takes: of a rank that waits to be told what to do. The
// timeout does not count, the end of another rank does.
RN_API RN_MUST_USE rn_status rn_comm_receive_idle(rn_comm *comm, uint32_t from, void *data,
                                                  uint64_t bytes);

// ---- the start of a job -------------------------------------------------------------------------

// Compares texts of all ranks ("model: ...", "options: ..."): RN_INVALID on all of them names the
// first item that differs and the ranks that differ from most others.
typedef struct rn_comm_item {
    const char *name, *text;
} rn_comm_item;
RN_API RN_MUST_USE rn_status rn_comm_compare(rn_comm *comm, const rn_comm_item *items,
                                             uint32_t count);
// Whether a step succeeded on all ranks: `status` and the thread's last error are this rank's.
// Where any failed, all fail: with their own error, or with one that names the first rank that
// failed and has its message.
RN_API RN_MUST_USE rn_status rn_comm_agree(rn_comm *comm, rn_status status);

// ---- how fast it is -----------------------------------------------------------------------------

enum { RN_COMM_SIZES = 5 };
typedef struct rn_comm_rates {
    double latency_seconds;  // of a message of a few bytes, one way; of all ranks to rank 0 ...
    double bytes_per_second; // ... and of large ones: the slowest
    uint32_t slowest_rank;   // whose bandwidth that is
    double copy_bytes_per_second; // of this rank's memory, for comparison
    struct {
        uint64_t bytes; // of f32
        double all_reduce_seconds, all_gather_seconds;
    } sizes[RN_COMM_SIZES];
} rn_comm_rates;
// The best of several, each at most `bytes` (0: 64 MiB), of which twice as many are taken for the
// while. Called by all ranks, which get the same but for copy_bytes_per_second. Of one rank all but
// that is 0.
RN_API RN_MUST_USE rn_status rn_comm_measure(rn_comm *comm, uint64_t bytes, rn_comm_rates *out);

RN_END_DECLS

#endif
