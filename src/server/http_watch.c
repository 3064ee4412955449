// http_watch.c — one thread that looks ten times a second after connections that libmicrohttpd does
// not watch: those that sleep, whose client may have gone, and those that send their request so
// slowly that they never end.
//
// A client that is gone and one that has only finished sending look alike (its side is closed). The
// first answers anything it is sent with a reset. So it is sent something that means nothing to
// HTTP/1.1 before an answer: "100 Continue".
#include "server/http_parts.h"

#include "base/clock.h"
#include "base/workers.h"
#include "memory/account.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FROM     RN_HOST_IO
#define SECOND   ((uint64_t)1000000000)
#define TICK_MS  100
#define TRIM_AT  256 // connections
#define PATIENCE 4   // times idle_seconds, for a whole request to arrive

static void say(int socket, const char *text) {
    (void)!send(socket, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Who is left, from the record at *at on, as many as there is room for; *at moves on.
static nfds_t gather(rn_http *http, bool (*wanted)(const rn_client *client), uint32_t *at) {
    struct rn_http_watch *watch = &http->watch;
    nfds_t count = 0;
    for (; *at < http->fresh && count < http->answers_at_once; ++*at) {
        rn_client *client = &http->clients[*at];
        if (!wanted(client)) continue;
        watch->looked_at[count] = client;
        watch->polled[count++] = (struct pollfd){.fd = client->socket, .events = POLLRDHUP};
    }
    if (!count || poll(watch->polled, count, 0) <= 0) return 0;
    return count;
}

// ---- those that sleep ---------------------------------------------------------------------------

static bool is_asleep(const rn_client *client) {
    return atomic_load(&client->asleep);
}

static void judge(rn_client *client, short events) {
    uint64_t now = rn_clock_ns();
    if (events & (POLLERR | POLLHUP | POLLNVAL)) client->doomed = true;
    if (client->http->server->options.tls_key && (events & POLLRDHUP)) client->doomed = true;
    if (client->doomed || !(events & POLLRDHUP) || !client->may_probe) return;
    if (client->probed_ns && now - client->probed_ns < SECOND) return;
    client->probed_ns = now;
    say(client->socket, "HTTP/1.1 100 Continue\r\n\r\n");
}

// With http->lock: none of them is woken meanwhile, so their sockets are ours.
static void look_at_sleepers(rn_http *http) {
    struct rn_http_watch *watch = &http->watch;
    uint32_t at = 0;
    nfds_t count = gather(http, is_asleep, &at);
    for (nfds_t i = 0; i < count; i++)
        if (watch->polled[i].revents) judge(watch->looked_at[i], watch->polled[i].revents);
    // The lock is released on the way: whose request has ended by then is no longer doomed.
    for (nfds_t i = 0; i < count; i++)
        if (watch->looked_at[i]->doomed) rn_http_ask_cancel(watch->looked_at[i]);
}

// ---- those that dawdle --------------------------------------------------------------------------

static bool is_sending(const rn_client *client) {
    return client->connection && atomic_load(&client->since_ns);
}

static void cut_off(rn_client *client) {
    if (!client->http->server->options.tls_key)
        say(client->socket, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n"
                            "Connection: close\r\n\r\n");
    shutdown(client->socket, SHUT_RDWR);
    atomic_store(&client->since_ns, 0);
}

static void look_at_late(rn_http *http) {
    uint64_t now = rn_clock_ns();
    uint64_t most = PATIENCE * SECOND * http->server->options.limits.idle_seconds;
    for (uint32_t i = 0; i < http->fresh; i++) {
        rn_client *client = &http->clients[i];
        uint64_t since = is_sending(client) ? atomic_load(&client->since_ns) : 0;
        if (since && now > since + most) cut_off(client);
    }
}

// libmicrohttpd overlooks that a client has closed its side where that came together with its last
// bytes. Shutting down what is shut down already changes nothing and makes it look again.
static void nudge_closed(rn_http *http) {
    for (uint32_t at = 0; at < http->fresh;) {
        nfds_t count = gather(http, is_sending, &at);
        for (nfds_t i = 0; i < count; i++)
            if (http->watch.polled[i].revents) shutdown(http->watch.polled[i].fd, SHUT_RD);
    }
}

// Answers that were read meanwhile make room for others.
static void settle_read(rn_http *http) {
    for (uint32_t i = 0; i < http->fresh; i++) {
        rn_client *client = &http->clients[i];
        if (atomic_load(&client->unread) && !rn_http_is_unread(client)) rn_http_settle(client);
    }
}

// libmicrohttpd's memory of connections that are gone stays with malloc, for the next ones: given
// back once most of them are.
static void trim(rn_http *http) {
    struct rn_http_watch *watch = &http->watch;
    if (http->in_use > watch->most_in_use) watch->most_in_use = http->in_use;
    if (watch->most_in_use < TRIM_AT || http->in_use > watch->most_in_use / 2) return;
    watch->most_in_use = http->in_use;
    rn_alloc_trim();
}

// ---- the thread ---------------------------------------------------------------------------------

static void *watch_main(void *self) {
    rn_http *http = self;
    struct pollfd stop = {.fd = http->watch.stop, .events = POLLIN};
    for (uint32_t tick = 1; poll(&stop, 1, TICK_MS) <= 0; tick++) {
        pthread_mutex_lock(&http->lock);
        look_at_sleepers(http);
        settle_read(http);
        if (tick % (1000 / TICK_MS) == 0) {
            look_at_late(http);
            nudge_closed(http);
            trim(http);
        }
        pthread_mutex_unlock(&http->lock);
    }
    return NULL;
}

// Signals are for the program's own threads.
static int start_quietly(rn_http *http) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&http->watch.thread, NULL, watch_main, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

rn_status rn_http_watch_start(rn_http *http) {
    struct rn_http_watch *watch = &http->watch;
    void *block = NULL;
    watch->stop = eventfd(0, EFD_CLOEXEC);
    if (watch->stop < 0) return rn_fail(RN_IO, "the system gives no event descriptor");
    RN_TRY(rn_alloc_zeroed(FROM, http->answers_at_once, sizeof *watch->polled, &block));
    watch->polled = block;
    RN_TRY(rn_alloc_zeroed(FROM, http->answers_at_once, sizeof *watch->looked_at, &block));
    watch->looked_at = block;
    int error = start_quietly(http);
    if (error) return rn_thread_refuse(error, "watching connections");
    watch->started = true;
    return RN_OK;
}

void rn_http_watch_stop(rn_http *http) {
    struct rn_http_watch *watch = &http->watch;
    if (watch->started) {
        (void)!write(watch->stop, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(watch->thread, NULL);
    }
    if (watch->stop >= 0) close(watch->stop);
    rn_free(FROM, watch->polled, http->answers_at_once * sizeof *watch->polled);
    rn_free(FROM, watch->looked_at, http->answers_at_once * sizeof *watch->looked_at);
    *watch = (struct rn_http_watch){.stop = -1};
}
