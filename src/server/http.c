// http.c — life: a listening socket, a record for each connection, one thread, and the bytes of it
// all.
#include "server/http_parts.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/workers.h"
#include "memory/account.h"

#include <ration/log.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FROM RN_HOST_IO
#define KIB  ((uint64_t)1 << 10)

enum {
    BESIDE_JOBS = 128, // requests under way that are not in the queue: running, looking
    BACKLOG = 512,     // connections that the system keeps until they are taken
    OTHER_FILES = 64,  // descriptors for everything else
};

// ---- bytes --------------------------------------------------------------------------------------

// The system's records for a socket: tcp_sock, inode, file, entry of epoll, and a packet with
// RN_HTTP_LEFT_BYTES. Its buffers are twice what is asked for.
#define KERNEL_BYTES  (6 * KIB)
#define BUFFERS_BYTES (4 * (uint64_t)RN_HTTP_SOCKET_BYTES)
#define BLOCK_BYTES   256         // malloc's own, for the blocks of a connection
#define THREAD_BYTES  (256 * KIB) // its stack as far as it is touched

static uint32_t answers_at_once(const rn_server_limits *limits) {
    return (uint32_t)rn_min_u64((uint64_t)limits->waiting + BESIDE_JOBS, limits->connections);
}

// A request under way, until its answer is read, has full buffers in the system; others have none:
// what they send is read at once, and nothing is sent to them.
uint64_t rn_http_bytes(const rn_server_options *options) {
    uint64_t clients = (uint64_t)options->limits.connections + RN_HTTP_SURPLUS;
    uint64_t each = RN_HTTP_INPUT_BYTES + BLOCK_BYTES + sizeof(rn_client) + KERNEL_BYTES +
                    (options->tls_key ? RN_TLS_BYTES : 0);
    uint64_t answer = RN_HTTP_OUTPUT_BYTES + RN_REPLY_BYTES + BUFFERS_BYTES;
    uint64_t keys = options->api_key_count * (uint64_t)RN_KEY_BYTES;
    return clients * each + answers_at_once(&options->limits) * answer + keys + THREAD_BYTES;
}

// ---- the listening socket -----------------------------------------------------------------------

static rn_status find_address(const rn_server_options *options, struct addrinfo **out) {
    char port[8];
    const char *host = strcmp(options->host, "localhost") == 0 ? "127.0.0.1" : options->host;
    struct addrinfo constraint = {.ai_socktype = SOCK_STREAM,
                                  .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    snprintf(port, sizeof port, "%u", options->port);
    *out = NULL;
    int error = getaddrinfo(host, port, &constraint, out);
    if (error == 0) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "'%s' is no address to listen at: %s", options->host,
                           gai_strerror(error)),
                   "an address of this machine, 127.0.0.1 for programs on it, 0.0.0.0 or :: for "
                   "everybody");
}

static rn_status fail_to_listen(const rn_server_options *o) {
    int error = errno;
    if (error == EADDRINUSE)
        return rn_hint(rn_fail(RN_IO, "port %u of %s is taken", o->port, o->host),
                       "another program listens there; choose another with --port, or 0 for any");
    if (error == EACCES)
        return rn_hint(rn_fail(RN_IO, "port %u may not be used", o->port),
                       "ports below 1024 are for the system; choose another with --port");
    if (error == EADDRNOTAVAIL)
        return rn_hint(rn_fail(RN_INVALID, "%s is no address of this machine", o->host),
                       "127.0.0.1 for programs on it, 0.0.0.0 or :: for everybody");
    return rn_fail(RN_IO, "cannot listen at %s, port %u: %s", o->host, o->port, strerror(error));
}

// Buffers are bounded, so that the system's memory for all connections is; a connection inherits
// them. Segments are as short as a network's: on the loopback one would fill a buffer, and each
// would wait for an acknowledgement that the other side delays.
static bool bind_socket(int fd, const struct addrinfo *address) {
    const int yes = 1, bytes = RN_HTTP_SOCKET_BYTES, segment = 1460;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    return bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
}

static void read_address(int fd, rn_http *http) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name = {0};
    socklen_t bytes = sizeof name;
    getsockname(fd, &name.any, &bytes);
    bool wide = name.any.sa_family == AF_INET6;
    http->port = ntohs(wide ? name.v6.sin6_port : name.v4.sin_port);
    http->is_local = wide ? IN6_IS_ADDR_LOOPBACK(&name.v6.sin6_addr)
                          : ntohl(name.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static rn_status open_socket(const rn_server_options *options, int *out) {
    struct addrinfo *address;
    RN_TRY(find_address(options, &address));
    rn_status s = RN_OK;
    *out = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*out < 0 || !bind_socket(*out, address)) {
        s = fail_to_listen(options);
        if (*out >= 0) close(*out);
        *out = -1;
    }
    freeaddrinfo(address);
    return s;
}

// ---- life ---------------------------------------------------------------------------------------

// So many connections are so many descriptors; the soft limit is there to be raised.
static void raise_file_limit(uint32_t clients) {
    struct rlimit limit;
    rlim_t want = (rlim_t)clients + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return;
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= want ? want : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < want)
        rn_log(RN_LOG_WARNING, "http", "only %llu files may be open: fewer than %u connections",
               (unsigned long long)limit.rlim_cur, clients - RN_HTTP_SURPLUS);
}

// A quarter is left for others.
static uint32_t share(uint32_t given, uint32_t all) {
    return given ? given : all - all / 4;
}

static rn_status make_records(rn_http *http) {
    const rn_server_limits *limits = &http->server->options.limits;
    void *block = NULL;
    http->client_count = limits->connections + RN_HTTP_SURPLUS;
    http->answers_at_once = answers_at_once(limits);
    http->per_address = share(limits->per_address, limits->connections);
    http->per_client = share(limits->per_address, http->answers_at_once);
    RN_TRY(rn_alloc_zeroed(FROM, http->client_count, sizeof(rn_client), &block));
    http->clients = block;
    raise_file_limit(http->client_count);
    return RN_OK;
}

static bool listen_to(rn_http *http, int *fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(http->epoll, EPOLL_CTL_ADD, *fd, &event) == 0;
}

// Signals are for the program's own threads.
static rn_status start_thread(rn_http *http) {
    sigset_t all, before;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->epoll < 0 || http->bell < 0 || !listen_to(http, &http->listening) ||
        !listen_to(http, &http->bell))
        return rn_fail(RN_IO, "the system gives no descriptors for connections: %s",
                       strerror(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&http->thread, NULL, rn_http_main, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return rn_thread_refuse(error, "connections");
    http->started = true;
    return RN_OK;
}

static rn_status open_all(rn_http *http) {
    const rn_server_options *options = &http->server->options;
    RN_TRY(rn_keys_open(options->api_keys, options->api_key_count, &http->keys));
    if (options->tls_key)
        RN_TRY(rn_tls_open(options->tls_certificate, options->tls_key, &http->tls));
    RN_TRY(make_records(http));
    RN_TRY(open_socket(options, &http->listening));
    read_address(http->listening, http);
    return start_thread(http);
}

rn_status rn_http_start(rn_server *server, rn_http **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_http), &block));
    rn_http *http = block;
    http->server = server;
    http->listening = http->epoll = http->bell = -1;
    http->inputs.bytes = RN_HTTP_INPUT_BYTES;
    http->outputs.bytes = RN_HTTP_OUTPUT_BYTES;
    pthread_mutex_init(&http->lock, NULL);
    rn_status s = open_all(http);
    if (s != RN_OK)
        rn_http_destroy(http);
    else
        *out = http;
    return s;
}

uint16_t rn_http_port(const rn_http *http) {
    return http->port;
}

// ---- the end ------------------------------------------------------------------------------------

void rn_http_stop_accepting(rn_http *http) {
    if (!http || !http->started || atomic_exchange(&http->closing, true)) return;
    rn_http_ring(http);
}

void rn_http_flush(rn_http *http, double seconds) {
    uint64_t start = rn_clock_ns();
    while (atomic_load(&http->owed) && (double)(rn_clock_ns() - start) < seconds * 1e9)
        usleep(5000);
}

static void close_file(int fd) {
    if (fd >= 0) close(fd);
}

void rn_http_destroy(rn_http *http) {
    if (!http) return;
    rn_error_info error = *rn_last_error();
    if (http->started) {
        atomic_store(&http->closing, true);
        atomic_store(&http->ending, true);
        rn_http_ring(http);
        pthread_join(http->thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        rn_http_block_release(&http->inputs);
        rn_http_block_release(&http->outputs);
    }
    close_file(http->listening);
    close_file(http->epoll);
    close_file(http->bell);
    rn_free(FROM, http->clients, http->client_count * sizeof(rn_client));
    rn_tls_close(http->tls);
    rn_keys_close(&http->keys);
    pthread_mutex_destroy(&http->lock);
    rn_free(FROM, http, sizeof *http);
    (void)rn_error_restore(&error);
}
