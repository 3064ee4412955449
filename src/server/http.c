// http.c — life: a listening socket of our own, libmicrohttpd's thread behind it, a record for each
// connection, and the bytes of it all.
#include "server/http_parts.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "base/workers.h"
#include "memory/account.h"

#include <ration/log.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FROM RN_HOST_IO
#define KIB  ((uint64_t)1 << 10)

enum {
    SURPLUS = 8,           // connections above the limit, to be told so
    BESIDE_JOBS = 128,     // requests under way that are not in the queue: running, looking
    BACKLOG = 512,         // connections that the system keeps until they are taken
    OTHER_FILES = 64,      // descriptors for everything else
    CERTIFICATE = 1 << 20, // bytes of a PEM file, at most
};

// ---- bytes --------------------------------------------------------------------------------------

// libmicrohttpd's record and its malloc's headers; GnuTLS's state for one connection, measured (see
// tests/server/http_memory.py).
#define MHD_BYTES (1 * KIB)
#define TLS_BYTES (24 * KIB)
// The system's records for a socket: tcp_sock, inode, file, entry of epoll, and a packet with
// RN_HTTP_LEFT_BYTES. Its buffers are twice what is asked for.
#define KERNEL_BYTES  (6 * KIB)
#define BUFFERS_BYTES (4 * (uint64_t)RN_HTTP_SOCKET_BYTES)
#define THREADS_BYTES (512 * KIB) // two stacks as far as they are touched, a malloc arena

static uint32_t answers_at_once(const rn_server_limits *limits) {
    return (uint32_t)rn_min_u64((uint64_t)limits->waiting + BESIDE_JOBS, limits->connections);
}

// In our own memory, for each that is there.
static uint64_t connection_bytes(const rn_server_options *options) {
    return RN_HTTP_POOL_BYTES + MHD_BYTES + (options->tls_key ? TLS_BYTES : 0);
}

// A request under way, until its answer is read, has full buffers in the system; others have none:
// what they send is read at once, and nothing is sent to them.
uint64_t rn_http_bytes(const rn_server_options *options) {
    uint64_t clients = (uint64_t)options->limits.connections + SURPLUS;
    uint64_t each = connection_bytes(options) + sizeof(rn_client) + KERNEL_BYTES;
    uint64_t answer = RN_HTTP_PART_BYTES + 2 * KIB + RN_REPLY_BYTES + BUFFERS_BYTES +
                      sizeof(struct pollfd) + sizeof(rn_client *);
    uint64_t keys = options->api_key_count * (uint64_t)RN_KEY_BYTES;
    return clients * each + answers_at_once(&options->limits) * answer + keys + THREADS_BYTES;
}

static void charge(const rn_client *client, bool comes) {
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};
    uint64_t bytes = connection_bytes(&client->http->server->options);
    if (comes)
        rn_ledger_charge(account, client, bytes);
    else
        rn_ledger_release(account, client, bytes);
}

// ---- connections come and go --------------------------------------------------------------------

// Of the address without its port; of IPv6 the network, which is one client's.
static uint64_t hash_address(const struct sockaddr *address) {
    if (address && address->sa_family == AF_INET)
        return rn_hash(&((const struct sockaddr_in *)(const void *)address)->sin_addr, 4, 0);
    if (address && address->sa_family == AF_INET6)
        return rn_hash(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 8, 0);
    return 0;
}

static rn_client *take_record(rn_http *http) {
    rn_client *client = http->free_clients;
    if (client)
        http->free_clients = client->next_free;
    else if (http->fresh < http->client_count)
        client = &http->clients[http->fresh++];
    return client;
}

static void come(rn_http *http, struct MHD_Connection *connection, void **context) {
    const union MHD_ConnectionInfo *socket =
        http->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address =
        http->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    pthread_mutex_lock(&http->lock);
    rn_client *client = take_record(http);
    if (client) {
        client->http = http;
        client->connection = connection;
        client->socket = socket ? socket->connect_fd : -1;
        client->address = hash_address(address ? address->client_addr : NULL);
        client->surplus = ++http->in_use > http->server->options.limits.connections;
        atomic_store(&client->since_ns, rn_clock_ns());
    }
    pthread_mutex_unlock(&http->lock);
    *context = client;
    if (!client) return;
    charge(client, true);
    rn_metrics_add(&http->server->metrics, RN_COUNT_CONNECTIONS, 1);
    atomic_fetch_add(&http->server->metrics.connections_now, 1);
}

static void go(rn_http *http, rn_client *client) {
    rn_http_settle(client);
    charge(client, false);
    atomic_fetch_sub(&http->server->metrics.connections_now, 1);
    pthread_mutex_lock(&http->lock);
    client->connection = NULL;
    client->socket = -1;
    client->next_free = http->free_clients;
    http->free_clients = client;
    http->in_use--;
    pthread_mutex_unlock(&http->lock);
}

static void notice(void *self, struct MHD_Connection *connection, void **context,
                   enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        come(self, connection, context);
    else if (*context)
        go(self, *context);
}

// ---- the listening socket -----------------------------------------------------------------------

static rn_status find_address(const rn_server_options *options, struct addrinfo **out) {
    char port[8];
    const char *host = strcmp(options->host, "localhost") == 0 ? "127.0.0.1" : options->host;
    struct addrinfo wish = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    snprintf(port, sizeof port, "%u", options->port);
    *out = NULL;
    int error = getaddrinfo(host, port, &wish, out);
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

// ---- what libmicrohttpd has to say --------------------------------------------------------------

static _Thread_local char heard[256]; // the last of it; why it does not start

static void hear(void *self, const char *format, va_list arguments) {
    (void)self;
    vsnprintf(heard, sizeof heard, format, arguments);
    heard[strcspn(heard, "\n")] = 0;
    rn_log(RN_LOG_DEBUG, "http", "%s", heard);
}

static rn_status fail_to_start(bool tls) {
    if (strstr(heard, "thread")) return rn_thread_refuse(EAGAIN, "connections");
    return rn_hint(rn_fail(RN_IO, "libmicrohttpd does not start%s%s", heard[0] ? ": " : "", heard),
                   tls ? "does the key belong to the certificate?" : "--log-level debug says more");
}

// Its thread cannot go on, and we do not end the process of others: the thread stays where it is,
// and /health/live stops answering, which is what probes are for.
static void panic(void *self, const char *file, unsigned line, const char *reason) {
    (void)self;
    rn_log(RN_LOG_ERROR, "http", "libmicrohttpd gives up: %s (%s:%u)", reason ? reason : "",
           file ? file : "", line);
    for (;;)
        pause();
}

// ---- life ---------------------------------------------------------------------------------------

static rn_status read_pem(const char *path, const char *what, rn_buffer *out) {
    rn_status s = rn_file_read_all(path, out);
    if (s == RN_OK) s = rn_buffer_append(out, "", 1); // a terminated string
    if (s != RN_OK) return rn_hint(s, "--tls-cert and --tls-key name files in PEM form");
    if (strstr(out->data, what)) return RN_OK;
    return rn_hint(rn_blame(rn_fail(RN_INVALID, "no '-----BEGIN ... %s-----' in it", what), path,
                            RN_NO_OFFSET),
                   "--tls-cert and --tls-key name files in PEM form");
}

static rn_status read_certificate(rn_http *http) {
    const rn_server_options *options = &http->server->options;
    if (!options->tls_key) return RN_OK;
    if (http->mhd->is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "this libmicrohttpd cannot do TLS"),
                       "install one that was built with GnuTLS, or put a proxy in front");
    RN_TRY(read_pem(options->tls_certificate, "CERTIFICATE", &http->certificate));
    return read_pem(options->tls_key, "PRIVATE KEY", &http->certificate_key);
}

// So many connections are so many descriptors; the soft limit is there to be raised.
static void raise_file_limit(uint32_t clients) {
    struct rlimit limit;
    rlim_t want = (rlim_t)clients + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return;
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= want ? want : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < want)
        rn_log(RN_LOG_WARNING, "http", "only %llu files may be open: fewer than %u connections",
               (unsigned long long)limit.rlim_cur, clients - SURPLUS);
}

static rn_status make_records(rn_http *http) {
    const rn_server_limits *limits = &http->server->options.limits;
    void *block = NULL;
    http->client_count = limits->connections + SURPLUS;
    http->answers_at_once = answers_at_once(limits);
    RN_TRY(rn_alloc_zeroed(FROM, http->client_count, sizeof(rn_client), &block));
    http->clients = block;
    raise_file_limit(http->client_count);
    return RN_OK;
}

static unsigned daemon_flags(const rn_http *http) {
    return MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
           MHD_USE_TURBO | (http->server->options.tls_key ? MHD_USE_TLS : 0);
}

static struct MHD_Daemon *start_daemon(rn_http *http, int listening) {
    const rn_server_limits *limits = &http->server->options.limits;
    bool tls = http->server->options.tls_key != NULL;
    struct MHD_OptionItem secure[] = {
        {tls ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, http->certificate_key.data},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, http->certificate.data},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t) "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"},
        {MHD_OPTION_END, 0, NULL}};
    return http->mhd->start_daemon(
        daemon_flags(http), 0, NULL, NULL, rn_http_request_go, http, MHD_OPTION_EXTERNAL_LOGGER,
        hear, (void *)NULL, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)listening,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->client_count,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)RN_HTTP_POOL_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)limits->idle_seconds, MHD_OPTION_NOTIFY_CONNECTION,
        notice, (void *)http, MHD_OPTION_NOTIFY_COMPLETED, rn_http_request_end, (void *)http,
        MHD_OPTION_ARRAY, secure, MHD_OPTION_END);
}

static rn_status start_threads(rn_http *http) {
    int listening = -1;
    sigset_t all, before;
    RN_TRY(open_socket(&http->server->options, &listening));
    read_address(listening, http);
    http->mhd->set_panic_func(panic, NULL);
    heard[0] = 0;
    sigfillset(&all); // signals are for the program's own threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    http->daemon = start_daemon(http, listening);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!http->daemon) {
        close(listening);
        return fail_to_start(http->server->options.tls_key != NULL);
    }
    return rn_http_watch_start(http);
}

rn_status rn_http_start(rn_server *server, rn_http **out) {
    const rn_mhd *mhd = NULL;
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_mhd_get(&mhd));
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_http), &block));
    rn_http *http = block;
    http->server = server;
    http->mhd = mhd;
    http->watch.stop = -1;
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->changed, NULL);
    rn_buffer_init(&http->certificate, FROM, CERTIFICATE);
    rn_buffer_init(&http->certificate_key, FROM, CERTIFICATE);
    rn_status s =
        rn_keys_open(server->options.api_keys, server->options.api_key_count, &http->keys);
    if (s == RN_OK) s = read_certificate(http);
    if (s == RN_OK) s = make_records(http);
    if (s == RN_OK) s = start_threads(http);
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
    if (!http || atomic_exchange(&http->closing, true)) return;
    int listening = http->mhd->quiesce_daemon(http->daemon);
    if (listening >= 0) close(listening);
}

// Who has sent a whole request and has not got all of its answer.
static bool is_owed(rn_http *http) {
    bool owed = false;
    pthread_mutex_lock(&http->lock);
    for (uint32_t i = 0; i < http->fresh && !owed; i++)
        owed = http->clients[i].connection && !atomic_load(&http->clients[i].since_ns);
    pthread_mutex_unlock(&http->lock);
    return owed;
}

void rn_http_flush(rn_http *http, double seconds) {
    uint64_t start = rn_clock_ns();
    while (is_owed(http) && (double)(rn_clock_ns() - start) < seconds * 1e9)
        usleep(5000);
}

static bool cancel_sleepers(rn_http *http) {
    bool any = false;
    for (uint32_t i = 0; i < http->fresh; i++) {
        rn_client *client = &http->clients[i];
        if (!atomic_load(&client->asleep)) continue;
        any = true;
        rn_http_ask_cancel(client);
    }
    return any;
}

// libmicrohttpd cannot end connections that are suspended, and only `wake` may resume them.
static void wake_all(rn_http *http) {
    pthread_mutex_lock(&http->lock);
    atomic_store(&http->ending, true);
    while (cancel_sleepers(http)) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 20000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&http->changed, &http->lock, &soon);
    }
    pthread_mutex_unlock(&http->lock);
}

void rn_http_destroy(rn_http *http) {
    if (!http) return;
    if (http->daemon) {
        rn_http_stop_accepting(http);
        wake_all(http);
    }
    rn_http_watch_stop(http);
    if (http->daemon) http->mhd->stop_daemon(http->daemon);
    rn_free(FROM, http->clients, http->client_count * sizeof(rn_client));
    rn_buffer_free(&http->certificate);
    rn_buffer_free(&http->certificate_key);
    rn_keys_close(&http->keys);
    pthread_mutex_destroy(&http->lock);
    pthread_cond_destroy(&http->changed);
    rn_free(FROM, http, sizeof *http);
}
