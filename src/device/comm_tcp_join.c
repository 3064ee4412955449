// comm_tcp_join.c — how ranks find each other: rank 0 listens where all know it; the others come,
// say who they are and where they listen themselves, and get the table of all places.
//
//     rank r ── hello ──▶ rank 0        then   rank r ── hello ──▶ rank s, s < r, for messages
//     rank r ◀── table ── rank 0               rank r ── hello ──▶ rank s, s < r, for notices
//
// `ration launch` hands rank 0 a socket that listens already, in RATION_MASTER_SOCKET.
#include "device/comm_tcp.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FROM            RN_HOST_IO
#define REFUSED_SECONDS 10 // at most: the other one may be of a job that is about to end

// A rank's place as rank 0 sees it; loopback: on the machine of rank 0.
typedef struct place {
    uint8_t address[16]; // IPv6, or IPv4 as mapped
    uint32_t port, loopback;
} place;

typedef struct joining {
    rn_comm *comm;
    rn_tcp_peer *peers;
    rn_tcp_master master;
    uint32_t reached; // of rank 0's addresses the one that answered
    uint32_t own_port;
    uint64_t end_ns, refused_ns; // refused_ns: since when; 0: not
    int error;                   // of the last connection that failed; 0: it was not refused
    rn_tcp_door door;
    place *places; // (size)
} joining;

// ---- listening ----------------------------------------------------------------------------------

static socklen_t length_of(const struct sockaddr_storage *address) {
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static void set_port(struct sockaddr_storage *address, uint32_t port) {
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

static uint32_t port_of(const struct sockaddr_storage *address) {
    return ntohs(address->ss_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                               : ((const struct sockaddr_in6 *)address)->sin6_port);
}

// False: errno says why.
static bool listen_at(joining *j, const struct sockaddr_storage *at) {
    int on = 1, off = 0, s = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) return false;
    (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ss_family == AF_INET6) (void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(s, (const struct sockaddr *)at, length_of(at)) == 0 &&
        listen(s, 2 * RN_COMM_RANKS) == 0) {
        j->door.listener = s;
        return true;
    }
    int error = errno;
    close(s);
    errno = error;
    return false;
}

// Of a local job at its loopback address; else at all addresses, of IPv6 and IPv4 where the machine
// has both.
static bool listen_here(joining *j, uint32_t port) {
    struct sockaddr_storage at = {0};
    if (j->master.local) {
        at = j->master.at[0];
        set_port(&at, port);
        return listen_at(j, &at);
    }
    *(struct sockaddr_in6 *)&at =
        (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    set_port(&at, port);
    if (listen_at(j, &at)) return true;
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) return false;
    memset(&at, 0, sizeof at);
    *(struct sockaddr_in *)&at =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    set_port(&at, port);
    return listen_at(j, &at);
}

// `ration launch` listens for its first rank already.
static bool inherit_listener(joining *j) {
    uint32_t given = 0;
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (!getenv("RATION_MASTER") || !rn_comm_variable("RATION_MASTER_SOCKET", &given)) return false;
    if (getsockopt((int)given, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens)
        return false;
    j->door.listener = (int)given;
    (void)fcntl(j->door.listener, F_SETFD, FD_CLOEXEC);
    return true;
}

static rn_status open_door(joining *j) {
    bool first = j->comm->rank == 0;
    uint32_t port = first ? (uint32_t)atoi(j->master.port) : 0;
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    if (!(first && inherit_listener(j)) && !listen_here(j, port))
        return rn_hint(rn_fail(RN_IO, "rank %u cannot listen at port %u: %s", j->comm->rank, port,
                               strerror(errno)),
                       "another port may be free: RATION_MASTER=HOST:PORT or MASTER_PORT");
    if (getsockname(j->door.listener, (struct sockaddr *)&at, &bytes) != 0)
        return rn_fail(RN_IO, "the socket of rank %u does not listen: %s", j->comm->rank,
                       strerror(errno));
    j->own_port = port_of(&at);
    return RN_OK;
}

// Two connections a rank, guests at the door, and what the program itself has open.
static rn_status allow_sockets(const joining *j) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)j->comm->size * RN_TCP_CHANNELS + RN_TCP_GUESTS + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return RN_OK;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted - RN_TCP_GUESTS) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID,
                           "%u ranks by sockets take %llu open files, this process may have %llu",
                           j->comm->size, (unsigned long long)(wanted - RN_TCP_GUESTS),
                           (unsigned long long)limit.rlim_cur),
                   "raise the limit (ulimit -n), or take MPI");
}

// ---- connections --------------------------------------------------------------------------------

static rn_status fail_as_unknown(const joining *j, uint32_t rank) {
    return rn_hint(rn_fail(RN_INVALID, "rank %u at %s:%s is of a job with another secret", rank,
                           j->master.host, j->master.port),
                   "RATION_JOB is to be the same text on all ranks, and no other job at this port");
}

// The error names all ranks that did not come.
static rn_status fail_as_missing(const joining *j, uint32_t channel) {
    char list[200] = "", others[160] = "";
    size_t used = 0;
    uint32_t missing = 0;
    for (uint32_t r = 0; r < j->comm->size; r++) {
        if (r == j->comm->rank || j->peers[r].sockets[channel] >= 0) continue;
        missing++;
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", r);
    }
    if (j->door.unknown)
        snprintf(others, sizeof others, "; %u came with another job's secret, the last from %s",
                 j->door.unknown, j->door.last);
    else if (j->door.strangers)
        snprintf(others, sizeof others, "; %u strangers were turned away", j->door.strangers);
    return rn_hint(rn_fail(RN_DEVICE, "rank%s %s of %u did not come within %g s%s",
                           missing == 1 ? "" : "s", list, j->comm->size, j->comm->timeout_seconds,
                           others),
                   "are all ranks started, with the same RATION_JOB, and is %s:%s reached from "
                   "their machines?",
                   j->master.host, j->master.port);
}

static rn_status fail_as_unreached(const joining *j, uint32_t rank) {
    if (j->refused_ns) return fail_as_unknown(j, rank);
    return rn_hint(rn_fail(RN_DEVICE, "rank %u of %u was not reached%s%s within %g s: %s", rank,
                           j->comm->size, rank ? "" : " at ", rank ? "" : j->master.host,
                           j->comm->timeout_seconds,
                           j->error ? strerror(j->error) : "nothing there answers as a rank"),
                   "is it started, and is there a way to it through network and firewalls? Rank 0 "
                   "listens at port %s, all others at ports that the system chooses",
                   j->master.port);
}

static uint64_t in_seconds(const joining *j, uint64_t seconds) {
    return rn_min_u64(j->end_ns, rn_clock_ns() + seconds * 1000000000);
}

static int try_connect(joining *j, const struct sockaddr_storage *to) {
    int s = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t bytes = sizeof error;
    bool begun = s >= 0 && (connect(s, (const struct sockaddr *)to, length_of(to)) == 0 ||
                            errno == EINPROGRESS);
    j->error = begun ? ETIMEDOUT : errno;
    if (begun && rn_tcp_wait(s, POLLOUT, in_seconds(j, 10)) &&
        getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) {
        j->error = error;
        if (error == 0) return s;
    }
    if (s >= 0) close(s);
    return -1;
}

// Address number `i` to try of a rank; false: there are no more.
static bool address_of(const joining *j, uint32_t rank, uint32_t i, struct sockaddr_storage *out) {
    const place *p = &j->places[rank];
    if (rank == 0) {
        if (i < j->master.at_count) *out = j->master.at[i];
        return i < j->master.at_count;
    }
    if (i > 0) return false;
    *out = j->master.at[j->reached]; // of rank 0's machine, where it is there, too
    bool mapped = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)p->address);
    if (!p->loopback && mapped) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        memcpy(&four.sin_addr, p->address + 12, 4);
        memset(out, 0, sizeof *out);
        memcpy(out, &four, sizeof four);
    } else if (!p->loopback) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        if (out->ss_family == AF_INET6) // of a link-local address: on the same link as rank 0
            six.sin6_scope_id = ((const struct sockaddr_in6 *)out)->sin6_scope_id;
        memcpy(&six.sin6_addr, p->address, 16);
        memset(out, 0, sizeof *out);
        memcpy(out, &six, sizeof six);
    }
    set_port(out, p->port);
    return true;
}

// At one address: -1, or the socket of the rank.
static rn_status connect_at(joining *j, uint32_t rank, uint32_t channel,
                            const struct sockaddr_storage *to) {
    rn_tcp_hello hello = {
        .rank = j->comm->rank, .ranks = j->comm->size, .channel = channel, .port = j->own_port};
    int s = try_connect(j, to);
    if (s < 0) return RN_OK;
    // The other side may be busy with ranks before this one: its greeting can take as long as that.
    rn_tcp_answer answer = rn_tcp_greet(s, &j->master.secret, &hello, rank, j->end_ns);
    if (answer == RN_TCP_WELCOME) {
        j->peers[rank].sockets[channel] = s;
        j->refused_ns = 0;
        return RN_OK;
    }
    close(s);
    if (answer != RN_TCP_UNKNOWN) return RN_OK;
    if (j->refused_ns == 0) j->refused_ns = rn_clock_ns();
    double patience = j->comm->timeout_seconds / 3;
    if (patience > REFUSED_SECONDS) patience = REFUSED_SECONDS;
    bool long_enough = (double)(rn_clock_ns() - j->refused_ns) * 1e-9 > patience;
    return long_enough ? fail_as_unknown(j, rank) : RN_OK;
}

static rn_status connect_to(joining *j, uint32_t rank, uint32_t channel) {
    for (;;) {
        struct sockaddr_storage to;
        for (uint32_t i = 0; address_of(j, rank, i, &to); i++) {
            RN_TRY(connect_at(j, rank, channel, &to));
            if (j->peers[rank].sockets[channel] < 0) continue;
            if (rank == 0) j->reached = i;
            return RN_OK;
        }
        if (rn_clock_ns() >= j->end_ns) return fail_as_unreached(j, rank);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); // it may not listen yet
    }
}

static void note_place(joining *j, const rn_tcp_guest *guest) {
    place *p = &j->places[guest->hello.rank];
    *p = (place){.port = guest->hello.port, .loopback = rn_tcp_is_loopback(&guest->from)};
    if (guest->from.ss_family == AF_INET6) {
        memcpy(p->address, &((const struct sockaddr_in6 *)&guest->from)->sin6_addr, 16);
        return;
    }
    p->address[10] = p->address[11] = 0xff;
    memcpy(p->address + 12, &((const struct sockaddr_in *)&guest->from)->sin_addr, 4);
}

static bool is_closed(int socket) {
    uint8_t byte;
    return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// Of a guest that knows the secret: a number that is taken, or is none, is a mistake in the job.
// One whose first connection broke comes again.
static rn_status take_guest(joining *j, const rn_tcp_guest *guest) {
    const rn_tcp_hello *h = &guest->hello;
    bool fits = h->ranks == j->comm->size && h->rank < h->ranks && h->rank > j->comm->rank &&
                h->channel < RN_TCP_CHANNELS && h->port <= UINT16_MAX;
    int *socket = fits ? &j->peers[h->rank].sockets[h->channel] : NULL;
    if (fits && *socket >= 0 && is_closed(*socket)) {
        close(*socket);
        *socket = -1;
    }
    if (!fits || *socket >= 0) {
        close(guest->socket);
        return rn_hint(rn_fail(RN_INVALID,
                               "a process came as rank %u of %u to rank %u of %u, where that is "
                               "%s",
                               h->rank, h->ranks, j->comm->rank, j->comm->size,
                               h->ranks != j->comm->size ? "another number" : "taken"),
                       "each rank has a number of its own, and all the same number of ranks");
    }
    *socket = guest->socket;
    if (h->channel == RN_TCP_DATA) note_place(j, guest);
    return RN_OK;
}

// From all ranks behind this one.
static rn_status accept_all(joining *j, uint32_t channel) {
    for (uint32_t r = j->comm->rank + 1; r < j->comm->size;) {
        rn_tcp_guest guest;
        if (j->peers[r].sockets[channel] >= 0) {
            r++;
            continue;
        }
        if (!rn_tcp_door_wait(&j->door, j->end_ns, &guest)) return fail_as_missing(j, channel);
        RN_TRY(take_guest(j, &guest));
    }
    return RN_OK;
}

static rn_status share_places(joining *j) {
    size_t bytes = j->comm->size * sizeof(place);
    if (j->comm->rank == 0) {
        RN_TRY(accept_all(j, RN_TCP_DATA));
        for (uint32_t r = 1; r < j->comm->size; r++)
            if (!rn_tcp_move(j->peers[r].sockets[RN_TCP_DATA], j->places, bytes, true,
                             in_seconds(j, 60)))
                return rn_fail(RN_DEVICE, "rank %u of %u is gone", r, j->comm->size);
        return RN_OK;
    }
    RN_TRY(connect_to(j, 0, RN_TCP_DATA));
    if (rn_tcp_move(j->peers[0].sockets[RN_TCP_DATA], j->places, bytes, false, j->end_ns))
        return RN_OK;
    return rn_hint(rn_fail(RN_DEVICE, "rank 0 of %u has not got all ranks within %g s, or is gone",
                           j->comm->size, j->comm->timeout_seconds),
                   "its own message names those that are missing");
}

static rn_status connect_all(joining *j) {
    RN_TRY(share_places(j));
    for (uint32_t r = 0; r < j->comm->rank; r++) {
        if (r > 0) RN_TRY(connect_to(j, r, RN_TCP_DATA));
        RN_TRY(connect_to(j, r, RN_TCP_NOTICES));
    }
    RN_TRY(accept_all(j, RN_TCP_DATA));
    RN_TRY(accept_all(j, RN_TCP_NOTICES));
    int on = 1;
    for (uint32_t r = 0; r < j->comm->size; r++)
        for (int c = 0; c < RN_TCP_CHANNELS && r != j->comm->rank; c++)
            (void)setsockopt(j->peers[r].sockets[c], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return RN_OK;
}

static rn_status join(joining *j) {
    RN_TRY(rn_tcp_master_find(&j->master, j->end_ns));
    RN_TRY(allow_sockets(j));
    RN_TRY(open_door(j));
    return connect_all(j);
}

rn_status rn_tcp_join(rn_comm *comm, rn_tcp_peer *peers) {
    void *block = NULL, *places = NULL;
    size_t bytes = comm->size * sizeof(place);
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(joining), &block));
    joining *j = block;
    rn_status s = rn_alloc_zeroed(FROM, comm->size, sizeof(place), &places);
    j->comm = comm;
    j->peers = peers;
    j->places = places;
    j->end_ns = rn_clock_ns() + (uint64_t)(comm->timeout_seconds * 1e9);
    j->door = (rn_tcp_door){.listener = -1, .rank = comm->rank, .secret = &j->master.secret};
    if (s == RN_OK) s = join(j);
    rn_tcp_door_close(&j->door);
    rn_free(FROM, places, places ? bytes : 0);
    rn_free(FROM, j, sizeof *j);
    return s;
}
