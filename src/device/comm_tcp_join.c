// comm_tcp_join.c — how ranks find each other: rank 0 listens where all know it; the others come,
// say who they are and where they listen themselves, and get the table of all places.
//
//     rank r ── hello ──▶ rank 0        then   rank r ── hello ──▶ rank s, s < r, for messages
//     rank r ◀── table ── rank 0               rank r ── hello ──▶ rank s, s < r, for notices
//
// Where that is: RATION_MASTER=HOST:PORT, or torchrun's MASTER_ADDR and MASTER_PORT (the port
// behind it where torchrun's own agent listens there). `ration launch` hands rank 0 a socket that
// listens already, in RATION_MASTER_SOCKET. A connection that does not know the job's key
// (RATION_JOB, TORCHELASTIC_RUN_ID) is closed.
#include "device/comm_tcp.h"

#include "base/clock.h"
#include "base/sha256.h"
#include "memory/account.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FROM  RN_HOST_IO
#define MAGIC "rncomm1"

typedef struct hello {
    char magic[8];
    uint8_t key[RN_SHA256_BYTES];
    uint32_t rank, ranks, channel;
    uint32_t port; // where it listens
} hello;

// A rank's place as rank 0 sees it; loopback: on the machine of rank 0.
typedef struct place {
    uint8_t address[16]; // IPv6, or IPv4 as mapped
    uint32_t port, loopback;
} place;

typedef struct joining {
    rn_comm *comm;
    rn_tcp_peer *peers;
    uint8_t key[RN_SHA256_BYTES];
    char host[256], port[16];
    struct sockaddr_storage master;
    socklen_t master_bytes;
    int listener;
    uint32_t own_port;
    uint64_t end_ns;
    place *places; // (size)
} joining;

// ---- waiting ------------------------------------------------------------------------------------

static int left_ms(const joining *j, double most_seconds) {
    uint64_t now = rn_clock_ns();
    double left = now < j->end_ns ? (double)(j->end_ns - now) * 1e-9 : 0;
    return (int)((left < most_seconds ? left : most_seconds) * 1e3);
}

static bool wait_for(int socket, short events, int ms) {
    struct pollfd poll_for = {.fd = socket, .events = events};
    int n;
    do
        n = poll(&poll_for, 1, ms);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static bool move_all(const joining *j, int socket, void *data, size_t bytes, bool sends,
                     double seconds) {
    uint8_t *at = data;
    while (bytes) {
        if (!wait_for(socket, sends ? POLLOUT : POLLIN, left_ms(j, seconds))) return false;
        ssize_t n = sends ? send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                          : recv(socket, at, bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n < 0) continue;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

// ---- places -------------------------------------------------------------------------------------

static rn_status read_master(joining *j) {
    const char *own = getenv("RATION_MASTER"), *address = getenv("MASTER_ADDR");
    const char *port = getenv("MASTER_PORT"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *colon = own ? strrchr(own, ':') : NULL;
    if (own && (!colon || colon == own || (size_t)(colon - own) >= sizeof j->host))
        return rn_fail(RN_INVALID, "RATION_MASTER is no HOST:PORT: '%.200s'", own);
    if (!own && (!address || !port))
        return rn_hint(rn_fail(RN_INVALID, "nothing says where rank 0 listens"),
                       "set RATION_MASTER=HOST:PORT, or MASTER_ADDR and MASTER_PORT");
    const char *digits = own ? colon + 1 : port;
    char *end = NULL;
    unsigned long number = strtoul(digits, &end, 10);
    if (!own && agent && strcmp(agent, "True") == 0) number++;
    if (digits[0] < '0' || digits[0] > '9' || *end || number == 0 || number > 65535)
        return rn_fail(RN_INVALID, "'%.40s' is no port", digits);
    snprintf(j->port, sizeof j->port, "%lu", number);
    const char *begin = own ? own : address;
    int bytes = own ? (int)(colon - own) : (int)strlen(address);
    if (begin[0] == '[' && bytes > 2 && begin[bytes - 1] == ']') {
        begin++;
        bytes -= 2;
    }
    snprintf(j->host, sizeof j->host, "%.*s", bytes, begin);
    return RN_OK;
}

// A name may not be known yet, while the machines of a job come up.
static rn_status find_master(joining *j) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int error;
    while ((error = getaddrinfo(j->host, j->port, &hints, &found)) != 0) {
        if (left_ms(j, 1) == 0)
            return rn_fail(RN_DEVICE, "rank 0's machine '%s' is not known: %s", j->host,
                           gai_strerror(error));
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    memcpy(&j->master, found->ai_addr, found->ai_addrlen);
    j->master_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return RN_OK;
}

static bool is_loopback(const struct sockaddr_storage *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET) return (ntohl(four->sin_addr.s_addr) >> 24) == 127;
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return six->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
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

// On the machine alone where rank 0 is reached by its loopback address.
static rn_status listen_here(joining *j) {
    const char *given = getenv("RATION_MASTER_SOCKET");
    bool first = j->comm->rank == 0;
    struct sockaddr_storage at = j->master;
    socklen_t bytes = sizeof at;
    int on = 1;
    if (first && given && getenv("RATION_MASTER")) {
        j->listener = atoi(given);
        (void)fcntl(j->listener, F_SETFD, FD_CLOEXEC);
    } else {
        j->listener = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (at.ss_family == AF_INET && !is_loopback(&at))
            ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_ANY);
        if (at.ss_family == AF_INET6 && !is_loopback(&at))
            ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_any;
        if (!first) set_port(&at, 0);
        if (j->listener < 0 ||
            setsockopt(j->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            bind(j->listener, (struct sockaddr *)&at, j->master_bytes) != 0 ||
            listen(j->listener, 2 * RN_COMM_RANKS) != 0)
            return rn_hint(rn_fail(RN_IO, "rank %u cannot listen at port %s: %s", j->comm->rank,
                                   first ? j->port : "0", strerror(errno)),
                           "another port may be free: RATION_MASTER=HOST:PORT or MASTER_PORT");
    }
    if (getsockname(j->listener, (struct sockaddr *)&at, &bytes) != 0)
        return rn_fail(RN_IO, "the socket of rank %u does not listen: %s", j->comm->rank,
                       strerror(errno));
    j->own_port = port_of(&at);
    return RN_OK;
}

// ---- connections --------------------------------------------------------------------------------

// NULL of a rank that did not come; the error names all of them.
static rn_status fail_as_missing(const joining *j, uint32_t channel) {
    char list[200] = "";
    size_t used = 0;
    uint32_t missing = 0;
    for (uint32_t r = 0; r < j->comm->size; r++) {
        if (r == j->comm->rank || j->peers[r].sockets[channel] >= 0) continue;
        missing++;
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", r);
    }
    return rn_hint(rn_fail(RN_DEVICE, "rank%s %s of %u did not come within %g s",
                           missing == 1 ? "" : "s", list, j->comm->size, j->comm->timeout_seconds),
                   "are all ranks started, and is %s:%s reached from their machines?", j->host,
                   j->port);
}

static int try_connect(const joining *j, const struct sockaddr_storage *to) {
    int s = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t bytes = sizeof error;
    if (s < 0) return -1;
    bool begun =
        connect(s, (const struct sockaddr *)to, j->master_bytes) == 0 || errno == EINPROGRESS;
    if (begun && wait_for(s, POLLOUT, left_ms(j, 10)) &&
        getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
        return s;
    close(s);
    return -1;
}

static rn_status connect_to(joining *j, uint32_t rank, uint32_t channel) {
    struct sockaddr_storage to = j->master;
    hello h = {
        .rank = j->comm->rank, .ranks = j->comm->size, .channel = channel, .port = j->own_port};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.key, j->key, sizeof h.key);
    if (rank > 0) {
        const place *p = &j->places[rank];
        if (!p->loopback && to.ss_family == AF_INET)
            memcpy(&((struct sockaddr_in *)&to)->sin_addr, p->address + 12, 4);
        else if (!p->loopback)
            memcpy(&((struct sockaddr_in6 *)&to)->sin6_addr, p->address, 16);
        set_port(&to, p->port);
    }
    for (;;) {
        int s = try_connect(j, &to);
        if (s >= 0 && move_all(j, s, &h, sizeof h, true, 10)) {
            j->peers[rank].sockets[channel] = s;
            return RN_OK;
        }
        if (s >= 0) close(s);
        if (left_ms(j, 1) == 0) return fail_as_missing(j, channel);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); // it may not listen yet
    }
}

static void note_place(joining *j, const hello *h, const struct sockaddr_storage *from) {
    place *p = &j->places[h->rank];
    *p = (place){.port = h->port, .loopback = is_loopback(from)};
    if (from->ss_family == AF_INET6)
        memcpy(p->address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    else
        memcpy(p->address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
}

// One connection: strangers are closed.
static rn_status accept_one(joining *j) {
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;
    hello h = {{0}, {0}, 0, 0, 0, 0};
    int s = accept4(j->listener, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0) return RN_OK;
    if (!move_all(j, s, &h, sizeof h, false, 5) || memcmp(h.magic, MAGIC, sizeof h.magic) != 0 ||
        memcmp(h.key, j->key, sizeof h.key) != 0) {
        close(s);
        return RN_OK;
    }
    if (h.ranks != j->comm->size || h.rank >= h.ranks || h.rank <= j->comm->rank ||
        h.channel >= RN_TCP_CHANNELS || j->peers[h.rank].sockets[h.channel] >= 0) {
        close(s);
        return rn_hint(rn_fail(RN_INVALID,
                               "a process came as rank %u of %u to rank %u of %u, where that is "
                               "%s",
                               h.rank, h.ranks, j->comm->rank, j->comm->size,
                               h.ranks != j->comm->size ? "another number" : "taken"),
                       "each rank has a number of its own, and all the same number of ranks");
    }
    j->peers[h.rank].sockets[h.channel] = s;
    if (h.channel == RN_TCP_DATA) note_place(j, &h, &from);
    return RN_OK;
}

// From all ranks behind this one.
static rn_status accept_all(joining *j, uint32_t channel) {
    for (uint32_t r = j->comm->rank + 1; r < j->comm->size;) {
        if (j->peers[r].sockets[channel] >= 0) {
            r++;
            continue;
        }
        if (!wait_for(j->listener, POLLIN, left_ms(j, 3600))) return fail_as_missing(j, channel);
        RN_TRY(accept_one(j));
    }
    return RN_OK;
}

static rn_status share_places(joining *j) {
    size_t bytes = j->comm->size * sizeof(place);
    if (j->comm->rank == 0) {
        RN_TRY(accept_all(j, RN_TCP_DATA));
        for (uint32_t r = 1; r < j->comm->size; r++)
            if (!move_all(j, j->peers[r].sockets[RN_TCP_DATA], j->places, bytes, true, 60))
                return rn_fail(RN_DEVICE, "rank %u of %u is gone", r, j->comm->size);
        return RN_OK;
    }
    RN_TRY(connect_to(j, 0, RN_TCP_DATA));
    if (move_all(j, j->peers[0].sockets[RN_TCP_DATA], j->places, bytes, false, 86400)) return RN_OK;
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

static void make_key(uint8_t out[RN_SHA256_BYTES]) {
    const char *own = getenv("RATION_JOB"), *torch = getenv("TORCHELASTIC_RUN_ID");
    const char *text = own ? own : torch ? torch : "";
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, text, strlen(text));
    rn_sha256_end(&hash, out);
}

rn_status rn_tcp_join(rn_comm *comm, rn_tcp_peer *peers) {
    joining j = {.comm = comm, .peers = peers, .listener = -1};
    void *block = NULL;
    j.end_ns = rn_clock_ns() + (uint64_t)(comm->timeout_seconds * 1e9);
    make_key(j.key);
    RN_TRY(read_master(&j));
    RN_TRY(rn_alloc_zeroed(FROM, comm->size, sizeof(place), &block));
    j.places = block;
    rn_status s = find_master(&j);
    if (s == RN_OK) s = listen_here(&j);
    if (s == RN_OK) s = connect_all(&j);
    if (j.listener >= 0) close(j.listener);
    rn_free(FROM, block, comm->size * sizeof(place));
    return s;
}
