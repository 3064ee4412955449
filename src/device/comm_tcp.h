// comm_tcp.h — ranks that speak by sockets, for the four files that make it up.
//
//     comm_tcp_master.c where rank 0 is, and the job's secret
//     comm_tcp_hello.c  who is at the other end of a connection: both sides show that they know the
//                       job's secret, without saying it
//     comm_tcp_join.c   who is where: rank 0 listens, the others come and learn of each other
//     comm_tcp.c        messages and notices
//
// The network is not trusted to say who somebody is: connections that do not know the secret are
// closed and cost a place in a short list for a few seconds, nothing else. Once all ranks are there
// nobody listens any more. What is said is not encrypted: whoever can change packets on their way
// can change a job.
#ifndef RN_DEVICE_COMM_TCP_H
#define RN_DEVICE_COMM_TCP_H

#include "base/sha256.h"
#include "device/comm.h"

#include <netinet/in.h>

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
// RN_INVALID: variables that are missing or contradict each other, or another job's secret;
// RN_DEVICE: names the ranks that did not come within the timeout; RN_IO: the port is in use.
RN_MUST_USE rn_status rn_tcp_join(rn_comm *comm, rn_tcp_peer *peers);

// ---- rank 0 (comm_tcp_master.c) -----------------------------------------------------------------

enum { RN_TCP_ADDRESSES = 8 }; // of rank 0's machine, at most

typedef struct rn_tcp_secret {
    uint8_t key[RN_SHA256_BYTES];
} rn_tcp_secret;

typedef struct rn_tcp_master {
    char host[256], port[16];
    bool local; // all ranks are on one machine: it was given as a loopback address
    struct sockaddr_storage at[RN_TCP_ADDRESSES];
    uint32_t at_count;
    rn_tcp_secret secret;
} rn_tcp_master;
RN_MUST_USE rn_status rn_tcp_master_find(rn_tcp_master *out, uint64_t end_ns);
bool rn_tcp_is_loopback(const struct sockaddr_storage *address);

// ---- greetings (comm_tcp_hello.c) ---------------------------------------------------------------

enum {
    RN_TCP_NONCE = 32,
    RN_TCP_GUESTS = 128,   // connections that have not shown yet who they are, at most
    RN_TCP_PATIENCE_S = 5, // and for how long
};

typedef struct rn_tcp_challenge {
    char magic[8];
    uint8_t nonce[RN_TCP_NONCE];
} rn_tcp_challenge;

// Who comes.
typedef struct rn_tcp_hello {
    char magic[8];
    uint8_t nonce[RN_TCP_NONCE];
    uint32_t rank, ranks, channel;
    uint32_t port; // where it listens
    uint8_t mac[RN_SHA256_BYTES];
} rn_tcp_hello;

// A connection that has not shown yet who it is.
typedef struct rn_tcp_guest {
    int socket;
    uint64_t end_ns; // then it is closed
    struct sockaddr_storage from;
    rn_tcp_challenge challenge;
    rn_tcp_hello hello;
    size_t bytes; // of the hello so far
} rn_tcp_guest;

// Where a rank listens.
typedef struct rn_tcp_door {
    int listener; // -1: none
    uint32_t rank;
    const rn_tcp_secret *secret;
    rn_tcp_guest guests[RN_TCP_GUESTS]; // oldest first
    uint32_t guest_count;
    uint32_t strangers; // closed so far: no rank of any job, or no word
    uint32_t unknown;   // closed so far: ranks with another secret ...
    char last[64];      // ... the last one's address
} rn_tcp_door;

// Who comes next and knows the secret: its hello, address and socket, which is the caller's. False:
// nobody until `end_ns`.
bool rn_tcp_door_wait(rn_tcp_door *door, uint64_t end_ns, rn_tcp_guest *out);
void rn_tcp_door_close(rn_tcp_door *door); // and all guests

typedef enum rn_tcp_answer {
    RN_TCP_WELCOME,
    RN_TCP_NOBODY,  // it was closed, or is not what was looked for
    RN_TCP_UNKNOWN, // a rank, of another secret
} rn_tcp_answer;
// On a new connection to rank `to`: waits for its challenge until end_ns. Fills in hello's magic,
// nonce and mac.
rn_tcp_answer rn_tcp_greet(int socket, const rn_tcp_secret *secret, rn_tcp_hello *hello,
                           uint32_t to, uint64_t end_ns);

// Bytes to or from a socket that does not block, until end_ns. False: not all of them.
bool rn_tcp_move(int socket, void *data, size_t bytes, bool sends, uint64_t end_ns);
// poll, for no longer than until end_ns. False: nothing until then.
bool rn_tcp_wait(int socket, short events, uint64_t end_ns);

#endif
