// http_loop.c — the thread of all connections. It waits for sockets, for the bell (somebody was
// woken, or it is to end), and looks around ten times a second for those who are late.
//
// A client that is gone and one that has only finished sending look alike while it sleeps (its side
// is closed). The first answers anything it is sent with a reset. So it is sent something that
// means nothing to HTTP/1.1 before an answer: "100 Continue".
#include "server/http_parts.h"

#include "base/clock.h"
#include "base/map.h"
#include "memory/account.h"

#include <ration/log.h>
#include <ration/profile.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND   ((uint64_t)1000000000)
#define TICKS    10 // a second
#define TICK_NS  (SECOND / TICKS)
#define TRIM_AT  256 // connections
#define PATIENCE 4   // times idle_seconds, for a whole request to arrive

enum {
    EVENTS = 64,
    ACCEPTED = 64, // connections, in one go
    STEPS = 64,    // of one connection, in one go: then it is the others' turn
    LINGER_SECONDS = 2,
};

// ---- waiting ------------------------------------------------------------------------------------

static void listen_for(rn_client *client, uint32_t events) {
    if (events == client->events) return;
    struct epoll_event event = {.events = events, .data.ptr = client};
    (void)epoll_ctl(client->http->epoll, EPOLL_CTL_MOD, client->wire.socket, &event);
    client->events = events;
}

static rn_step shake_hands(rn_client *client) {
    rn_wire_news news = rn_wire_shake_hands(&client->wire);
    if (news == RN_WIRE_DONE) client->state = RN_CLIENT_HEAD;
    return news == RN_WIRE_DONE  ? RN_STEP_ON
           : news == RN_WIRE_IN  ? RN_STEP_IN
           : news == RN_WIRE_OUT ? RN_STEP_OUT
                                 : RN_STEP_CLOSE;
}

void rn_http_advance(rn_client *client) {
    static rn_step (*const steps[])(rn_client * client) = {
        [RN_CLIENT_HANDSHAKE] = shake_hands,  [RN_CLIENT_HEAD] = rn_http_read_head,
        [RN_CLIENT_BODY] = rn_http_read_body, [RN_CLIENT_ANSWER] = rn_http_job,
        [RN_CLIENT_SEND] = rn_http_send,      [RN_CLIENT_DISCARD] = rn_http_read_body,
        [RN_CLIENT_LINGER] = rn_http_linger,
    };
    rn_step step = RN_STEP_ON;
    for (int i = 0; step == RN_STEP_ON && i < STEPS; i++)
        step = steps[client->state](client);
    client->has_more = step == RN_STEP_ON;
    client->http->has_more |= client->has_more;
    if (step == RN_STEP_CLOSE)
        rn_http_close(client);
    else if (step == RN_STEP_ON)
        listen_for(client, 0); // after the others
    else if (step == RN_STEP_SLEEP)
        listen_for(client, client->half_closed ? 0 : EPOLLRDHUP);
    else
        listen_for(client, step == RN_STEP_IN ? EPOLLIN : EPOLLOUT);
}

// ---- coming and going ---------------------------------------------------------------------------

static void charge_tls(const rn_client *client, bool comes) {
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};
    if (!client->http->tls) return;
    if (comes)
        rn_ledger_charge(account, client, RN_TLS_BYTES);
    else
        rn_ledger_release(account, client, RN_TLS_BYTES);
}

static void free_record(rn_client *client) {
    rn_http *http = client->http;
    rn_http_place_leave(client);
    *client = (rn_client){.http = http, .next_free = http->free_clients, .wire.socket = -1};
    http->free_clients = client;
    http->in_use--;
}

static void end_gone(rn_client *client) {
    rn_http_request_end(client);
    rn_http_block_give(&client->http->inputs, client->in);
    free_record(client);
}

// The rest of one that sleeps is done after its wake, which cancelling brings about.
void rn_http_close(rn_client *client) {
    rn_http *http = client->http;
    client->state = RN_CLIENT_GONE;
    rn_wire_close(&client->wire);
    charge_tls(client, false);
    atomic_fetch_sub(&http->server->metrics.connections_now, 1);
    if (client->asleep)
        rn_engine_cancel(client->engine, client->job);
    else
        end_gone(client);
}

static rn_client *take_record(rn_http *http) {
    rn_client *client = http->free_clients;
    if (client)
        http->free_clients = client->next_free;
    else if (http->fresh < http->client_count)
        client = &http->clients[http->fresh++];
    if (!client) return NULL;
    *client = (rn_client){.http = http, .wire.socket = -1, .source.file = -1};
    http->in_use++;
    if (http->in_use > http->most_in_use) http->most_in_use = http->in_use;
    return client;
}

// Of the address without its port; of IPv6 the network, which is one client's.
static uint64_t hash_address(const struct sockaddr_storage *address) {
    const void *at = address;
    if (address->ss_family == AF_INET)
        return rn_hash(&((const struct sockaddr_in *)at)->sin_addr, 4, 0);
    const struct in6_addr *wide = &((const struct sockaddr_in6 *)at)->sin6_addr;
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(wide))
        return rn_hash(wide->s6_addr + 12, 4, 0);
    if (address->ss_family == AF_INET6) return rn_hash(wide, 8, 0);
    return 0;
}

static void come(rn_http *http, int socket, const struct sockaddr_storage *address) {
    const int yes = 1;
    rn_client *client = take_record(http);
    if (!client && rn_http_place_free(http)) client = take_record(http);
    if (!client) {
        close(socket);
        return;
    }
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    client->state = http->tls ? RN_CLIENT_HANDSHAKE : RN_CLIENT_HEAD;
    client->address = hash_address(address);
    client->since_ns = client->active_ns = rn_clock_ns();
    client->events = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    bool placed = rn_http_place_enter(client);
    if (!placed || !rn_wire_open(http->tls, socket, &client->wire) ||
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, socket, &event) != 0) {
        client->wire.socket = socket;
        rn_wire_close(&client->wire);
        client->surplus |= !placed;
        http->surplus += !placed; // what leaving takes back
        free_record(client);
        return;
    }
    charge_tls(client, true);
    rn_metrics_add(&http->server->metrics, RN_COUNT_CONNECTIONS, 1);
    atomic_fetch_add(&http->server->metrics.connections_now, 1);
}

static void pause_listening(rn_http *http, bool pause) {
    struct epoll_event event = {.events = pause ? 0 : EPOLLIN, .data.ptr = &http->listening};
    if (http->listening < 0 || pause == http->paused) return;
    (void)epoll_ctl(http->epoll, EPOLL_CTL_MOD, http->listening, &event);
    http->paused = pause;
}

static void accept_some(rn_http *http) {
    for (int i = 0; i < ACCEPTED; i++) {
        struct sockaddr_storage address = {0};
        socklen_t bytes = sizeof address;
        int socket = accept4(http->listening, (struct sockaddr *)&address, &bytes,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            come(http, socket, &address);
            continue;
        }
        bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (is_short && !rn_http_place_free(http)) pause_listening(http, true);
        if (!is_short && errno != ECONNABORTED && errno != EINTR) return;
    }
}

// ---- those that sleep ---------------------------------------------------------------------------

static void probe(rn_client *client, uint64_t now) {
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!client->may_probe || (client->probed_ns && now - client->probed_ns < SECOND)) return;
    client->probed_ns = now;
    (void)!send(client->wire.socket, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void hear_sleeper(rn_client *client, uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) || ((events & EPOLLRDHUP) && client->http->tls)) {
        rn_http_close(client);
        return;
    }
    client->half_closed = true;
    listen_for(client, 0);
    probe(client, rn_clock_ns());
}

static void wake_all(rn_http *http) {
    uint64_t rings;
    (void)!read(http->bell, &rings, sizeof rings);
    pthread_mutex_lock(&http->lock);
    rn_client *list = http->woken;
    http->woken = NULL;
    for (rn_client *client = list; client; client = client->next_woken)
        client->woken = false;
    pthread_mutex_unlock(&http->lock);
    while (list) {
        rn_client *client = list;
        list = client->next_woken;
        client->next_woken = NULL;
        client->asleep = false;
        if (client->state == RN_CLIENT_GONE)
            end_gone(client);
        else
            rn_http_advance(client);
    }
}

// Those who could have gone on, had they been alone.
static void go_on(rn_http *http) {
    if (!http->has_more) return;
    http->has_more = false;
    for (uint32_t i = 0; i < http->fresh; i++)
        if (http->clients[i].has_more) rn_http_advance(&http->clients[i]);
}

// ---- looking around -----------------------------------------------------------------------------

static void cut_off(rn_client *client) {
    static const char text[] = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n"
                               "Connection: close\r\n\r\n";
    bool said = client->in_bytes > 0 || client->state == RN_CLIENT_BODY;
    if (said && !client->http->tls && client->state <= RN_CLIENT_BODY)
        (void)!send(client->wire.socket, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    rn_http_close(client);
}

static bool is_late(const rn_client *client, uint64_t now) {
    uint64_t idle = SECOND * client->http->server->options.limits.idle_seconds;
    if (client->state == RN_CLIENT_LINGER) return now > client->since_ns + LINGER_SECONDS * SECOND;
    if (now > client->active_ns + idle) return true;
    return client->state != RN_CLIENT_SEND && now > client->since_ns + PATIENCE * idle;
}

static void look_at(rn_client *client, uint64_t now) {
    if (client->state == RN_CLIENT_FREE || client->state == RN_CLIENT_GONE) return;
    if (client->asleep) {
        if (client->half_closed) probe(client, now);
        return;
    }
    if (client->unread && !rn_http_is_unread(client)) rn_http_place_settle(client);
    if (is_late(client, now)) cut_off(client);
}

// Memory of connections that are gone stays with malloc, for the next ones: given back once most of
// them are.
static void trim(rn_http *http) {
    if (http->most_in_use < TRIM_AT || http->in_use > http->most_in_use / 2) return;
    http->most_in_use = http->in_use;
    rn_alloc_trim();
}

static void look_around(rn_http *http, uint64_t tick) {
    uint64_t now = rn_clock_ns();
    for (uint32_t i = 0; i < http->fresh; i++)
        look_at(&http->clients[i], now);
    pause_listening(http, false);
    if (tick % (10 * TICKS) == 0) {
        rn_http_block_release(&http->inputs);
        rn_http_block_release(&http->outputs);
    }
    if (tick % TICKS == 0) trim(http);
}

// ---- the thread ---------------------------------------------------------------------------------

static void stop_listening(rn_http *http) {
    if (http->listening >= 0) close(http->listening);
    http->listening = -1;
}

static void cut_all(rn_http *http) {
    for (uint32_t i = 0; i < http->fresh; i++) {
        rn_client *client = &http->clients[i];
        if (client->state != RN_CLIENT_FREE && client->state != RN_CLIENT_GONE)
            rn_http_close(client);
    }
}

static void hear(rn_http *http, const struct epoll_event *event) {
    if (event->data.ptr == &http->listening) {
        if (http->listening >= 0) accept_some(http);
        return;
    }
    if (event->data.ptr == &http->bell) return; // heard in every round
    rn_client *client = event->data.ptr;
    if (client->state == RN_CLIENT_FREE || client->state == RN_CLIENT_GONE) return; // closed before
    if (client->asleep)
        hear_sleeper(client, event->events);
    else
        rn_http_advance(client);
}

void *rn_http_main(void *self) {
    rn_http *http = self;
    struct epoll_event events[EVENTS];
    uint64_t ticks = 0, next_ns = rn_clock_ns() + TICK_NS;
    rn_profile_thread_name("http");
    while (!atomic_load(&http->ending) || http->in_use) {
        uint64_t now = rn_clock_ns();
        int left_ms = now < next_ns ? (int)((next_ns - now) / 1000000) + 1 : 0;
        int count = epoll_wait(http->epoll, events, EVENTS, http->has_more ? 0 : left_ms);
        for (int i = 0; i < count; i++)
            hear(http, &events[i]);
        wake_all(http);
        go_on(http);
        if (atomic_load(&http->closing)) stop_listening(http);
        if (atomic_load(&http->ending)) cut_all(http);
        if (rn_clock_ns() < next_ns) continue;
        next_ns = rn_clock_ns() + TICK_NS;
        look_around(http, ++ticks);
    }
    return NULL;
}

void rn_http_ring(rn_http *http) {
    (void)!write(http->bell, &(uint64_t){1}, sizeof(uint64_t));
}
