// comm.h — how ranks reach each other: one row a way, below the collectives of <ration/comm.h>.
//
//     comm.c            collectives, timeouts, who is missing: from messages alone
//     comm_self.c       one rank                comm_threads.c  ranks as threads of this process
//     comm_mpi.c        MPI, found at run time   comm_tcp*.c     sockets
//
// An implementation has messages between two ranks, which arrive in the order of their sending, and
// *notices*, short messages beside them that are never waited for.
#ifndef RN_DEVICE_COMM_H
#define RN_DEVICE_COMM_H

#include <ration/comm.h>

#include "base/str.h"
#include "graph/op/rank_sum.h"

#include <stdbool.h>

// A message on its way. It lies in the caller's memory until it is done.
typedef struct rn_message {
    uint32_t peer;
    bool sends, done;
    uint8_t *data;
    uint64_t bytes;
    uint64_t moved;          // so far; the implementation's
    struct rn_message *next; // the implementation's
    uint64_t own[2];         // the implementation's
} rn_message;

typedef enum rn_notice_kind {
    RN_NOTICE_NONE,
    RN_NOTICE_WAITS,  // for rank `about`, for longer than the timeout
    RN_NOTICE_FAILED, // with `text`; about: itself, or the rank that it lost
    RN_NOTICE_BYE,
    RN_NOTICE_GONE // never sent: the connection was closed without a word
} rn_notice_kind;

// As it is sent between processes of one binary.
typedef struct rn_notice {
    uint32_t kind, about;
    char text[248];
} rn_notice;

typedef struct rn_comm_table {
    const char *name;
    // Fills comm->rank, size, own and described.
    rn_status (*open)(rn_comm *comm, const rn_comm_options *options);
    void (*close)(rn_comm *comm);
    // Begins to send or to receive. Messages are matched in their order, and must agree in bytes.
    rn_status (*begin)(rn_comm *comm, rn_message *message);
    // Makes progress, without waiting; sets message->done. RN_DEVICE: the peer is gone; then
    // comm->culprit is set.
    rn_status (*test)(rn_comm *comm, rn_message *message);
    // Does not wait.
    void (*notify)(rn_comm *comm, uint32_t to, const rn_notice *notice);
    // The next notice of a rank; false: there is none.
    bool (*look)(rn_comm *comm, uint32_t from, rn_notice *out);
    // This rank has failed: messages that it began are the caller's to free. NULL: nobody else
    // looks at them.
    void (*forget)(rn_comm *comm);
} rn_comm_table;

enum { RN_COMM_RANKS = 4096 }; // at most
#define RN_NO_RANK UINT32_MAX

struct rn_comm {
    const rn_comm_table *table;
    uint32_t rank, size;
    double timeout_seconds;
    void *own;
    char described[160];
    char hint[256];        // of a missing rank; "": none
    rn_notice *heard;      // (size): what each rank said last, of its end or of whom it waits for
    uint32_t culprit;      // whom the connection was lost to; RN_NO_RANK
    rn_error_info failure; // the first one: all calls after it fail alike
    uint64_t calls;        // collectives so far
};

extern const rn_comm_table *const rn_comm_tables[]; // NULL behind the last
extern const rn_comm_table rn_comm_self, rn_comm_threads, rn_comm_mpi, rn_comm_tcp;

// For implementations: a communicator whose rank and size are set by now. rn_comm_drop frees one
// without telling anybody.
RN_MUST_USE rn_status rn_comm_create(const rn_comm_table *table, const rn_comm_options *options,
                                     rn_comm **out);
RN_MUST_USE rn_status rn_comm_prepare(rn_comm *comm); // once they are: what all of them have
void rn_comm_drop(rn_comm *comm);

// Waits for several messages that were begun. RN_DEVICE as the public header says.
RN_MUST_USE rn_status rn_comm_wait(rn_comm *comm, rn_message *messages, uint32_t count);
RN_MUST_USE rn_status rn_comm_begin(rn_comm *comm, rn_message *message);
// data[i] += other[i], as all sums of ranks are made.
RN_MUST_USE rn_status rn_comm_add(rn_dtype dtype, void *data, const void *other, uint64_t count);
// What calls of collectives get (graph/op/rank_sum.h), comm_sum.c.
rn_call_ranks rn_comm_call_ranks(rn_comm *comm);
// Numbers in a launcher's variables; false: not set, or no number.
bool rn_comm_variable(const char *name, uint32_t *out);

#endif
