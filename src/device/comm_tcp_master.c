// comm_tcp_master.c — where rank 0 is, and what the ranks of a job know that others do not.
//
// RATION_MASTER=HOST:PORT, or torchrun's MASTER_ADDR and MASTER_PORT (the port behind it where
// torchrun's own agent listens there). RATION_JOB is the job's secret. On one machine (the host is
// a loopback address) there may be none: TORCHELASTIC_RUN_ID then keeps jobs apart.
#include "device/comm_tcp.h"

#include "base/clock.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { SECRET_LEAST = 16 }; // characters, where others can reach the port

static rn_status read_master(rn_tcp_master *m) {
    const char *own = getenv("RATION_MASTER"), *address = getenv("MASTER_ADDR");
    const char *port = getenv("MASTER_PORT"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *colon = own ? strrchr(own, ':') : NULL;
    if (own && (!colon || colon == own))
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
    snprintf(m->port, sizeof m->port, "%lu", number);
    const char *begin = own ? own : address;
    size_t bytes = own ? (size_t)(colon - own) : strlen(address);
    if (begin[0] == '[' && bytes > 2 && begin[bytes - 1] == ']') {
        begin++;
        bytes -= 2;
    }
    if (bytes == 0 || bytes >= sizeof m->host)
        return rn_fail(RN_INVALID, "the name of rank 0's machine has %zu characters", bytes);
    snprintf(m->host, sizeof m->host, "%.*s", (int)bytes, begin);
    return RN_OK;
}

bool rn_tcp_is_loopback(const struct sockaddr_storage *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET) return (ntohl(four->sin_addr.s_addr) >> 24) == 127;
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return six->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static void keep_addresses(rn_tcp_master *m, const struct addrinfo *found) {
    for (; found && m->at_count < RN_TCP_ADDRESSES; found = found->ai_next)
        if (found->ai_family == AF_INET || found->ai_family == AF_INET6)
            memcpy(&m->at[m->at_count++], found->ai_addr, found->ai_addrlen);
}

// A machine often knows its own name as a loopback address, so only the address itself (or
// "localhost") says that the job is local.
static bool is_local(const rn_tcp_master *m) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    struct sockaddr_storage at = {0};
    if (strcmp(m->host, "localhost") == 0) return true;
    if (getaddrinfo(m->host, m->port, &hints, &found) != 0) return false;
    memcpy(&at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return rn_tcp_is_loopback(&at);
}

// A name may not be known yet, while the machines of a job come up.
static rn_status find_addresses(rn_tcp_master *m, uint64_t end_ns) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int error;
    while ((error = getaddrinfo(m->host, m->port, &hints, &found)) != 0) {
        if (rn_clock_ns() >= end_ns)
            return rn_fail(RN_DEVICE, "rank 0's machine '%s' is not known: %s", m->host,
                           gai_strerror(error));
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    keep_addresses(m, found);
    freeaddrinfo(found);
    return m->at_count ? RN_OK : rn_fail(RN_DEVICE, "'%s' has no address", m->host);
}

static rn_status find_secret(rn_tcp_master *m) {
    const char *own = getenv("RATION_JOB"), *run = getenv("TORCHELASTIC_RUN_ID");
    const char *text = own && own[0] ? own : m->local && run ? run : "";
    if (!m->local && strlen(text) < SECRET_LEAST)
        return rn_hint(rn_fail(RN_INVALID,
                               text[0] ? "the job's secret is short: others can reach "
                                         "%s:%s and try"
                                       : "the job has no secret: anybody who reaches "
                                         "%s:%s could be a rank",
                               m->host, m->port),
                       "set RATION_JOB to the same random text on all ranks, of %d characters at "
                       "least: openssl rand -hex 16",
                       SECRET_LEAST);
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, text, strlen(text));
    rn_sha256_end(&hash, m->secret.key);
    return RN_OK;
}

rn_status rn_tcp_master_find(rn_tcp_master *m, uint64_t end_ns) {
    RN_TRY(read_master(m));
    m->local = is_local(m);
    RN_TRY(find_secret(m));
    return find_addresses(m, end_ns);
}
