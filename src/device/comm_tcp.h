// comm_tcp.h — ranks that speak by sockets, for the two files that make it up.
//
//     comm_tcp_join.c   who is where: rank 0 listens, the others come and learn of each other
//     comm_tcp.c        messages and notices
#ifndef RN_DEVICE_COMM_TCP_H
#define RN_DEVICE_COMM_TCP_H

#include "device/comm.h"

enum { RN_TCP_DATA, RN_TCP_NOTICES, RN_TCP_CHANNELS };

// Another rank: a connection for messages, and one for notices.
typedef struct rn_tcp_peer {
    int sockets[RN_TCP_CHANNELS];  // -1: none
    rn_message *sends, *receives;  // oldest first
    uint8_t in[sizeof(rn_notice)]; // of a notice that is coming
    uint8_t out[4 * sizeof(rn_notice)];
    size_t in_bytes, out_bytes;
    bool ended; // it said so, or is gone
} rn_tcp_peer;

// Connects this rank with all others: fills peers (comm->size). Sockets then do not block.
// RN_INVALID: variables that are missing or contradict each other; RN_DEVICE: names the ranks that
// did not come within the timeout; RN_IO: the port is in use.
RN_MUST_USE rn_status rn_tcp_join(rn_comm *comm, rn_tcp_peer *peers);

#endif
