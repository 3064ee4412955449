// http_place.c — who stays when there are many. A connection on which the server waits for its
// client can be closed at any time, and is, for the sake of one that asks for something: so those
// who say nothing keep nobody out. What is being answered is never given up for another.
//
//     comes ─▶ within --connections and --per-address ─▶ regular
//           └▶ else surplus, RN_HTTP_SURPLUS of them: the one that waits longest makes room
//
// A surplus connection that asks for a probe is answered. One that asks for anything else, with a
// key where keys are needed, takes the place of the regular one that has waited longest (of its own
// address, if that has too many); if none waits it is told to come again.
#include "server/http_parts.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

// ---- connections --------------------------------------------------------------------------------

static bool is_address_full(const rn_client *client) {
    const rn_http *http = client->http;
    uint32_t count = 0;
    for (uint32_t i = 0; i < http->fresh; i++) {
        const rn_client *other = &http->clients[i];
        count += other != client && other->state != RN_CLIENT_FREE && !other->surplus &&
                 other->address == client->address;
    }
    return count >= http->per_address;
}

// Nothing is lost with it but what its client has begun to send; those go last.
static int rank_of(const rn_client *client) {
    switch (client->state) {
    case RN_CLIENT_HANDSHAKE:
    case RN_CLIENT_HEAD:
    case RN_CLIENT_DISCARD:
    case RN_CLIENT_LINGER:
        return 1;
    case RN_CLIENT_BODY:
        return 2;
    default:
        return 0; // busy
    }
}

static bool goes_before(const rn_client *a, const rn_client *b) {
    if (!b || rank_of(a) != rank_of(b)) return !b || rank_of(a) < rank_of(b);
    return a->since_ns < b->since_ns;
}

static rn_client *find_silent(const rn_http *http, bool surplus, const rn_client *like) {
    rn_client *found = NULL;
    for (uint32_t i = 0; i < http->fresh; i++) {
        rn_client *client = &http->clients[i];
        if (client->surplus != surplus || rank_of(client) == 0) continue;
        if (like && client->address != like->address) continue;
        if (goes_before(client, found)) found = client;
    }
    return found;
}

bool rn_http_place_free(rn_http *http) {
    rn_client *silent = find_silent(http, true, NULL);
    if (!silent) silent = find_silent(http, false, NULL);
    if (silent) rn_http_close(silent);
    return silent;
}

bool rn_http_place_enter(rn_client *client) {
    rn_http *http = client->http;
    client->surplus =
        http->regular >= http->server->options.limits.connections || is_address_full(client);
    if (client->surplus && http->surplus == RN_HTTP_SURPLUS) {
        rn_client *silent = find_silent(http, true, NULL);
        if (silent == client || !silent) return false;
        rn_http_close(silent);
    }
    ++*(client->surplus ? &http->surplus : &http->regular);
    return true;
}

void rn_http_place_leave(rn_client *client) {
    --*(client->surplus ? &client->http->surplus : &client->http->regular);
    client->surplus = false;
}

bool rn_http_place_claim(rn_client *client, rn_problem *out) {
    rn_http *http = client->http;
    const rn_server_limits *limits = &http->server->options.limits;
    if (!client->surplus) return true;
    bool of_address = is_address_full(client);
    bool crowded = http->regular >= limits->connections;
    rn_client *silent =
        crowded || of_address ? find_silent(http, false, of_address ? client : NULL) : NULL;
    if (silent) rn_http_close(silent);
    if (silent || (!crowded && !of_address)) {
        rn_http_place_leave(client);
        http->regular++;
        return true;
    }
    if (of_address)
        (void)rn_problem_set(out, 429, "too_many_connections", "",
                             "%u connections of one address are busy", http->per_address);
    else
        (void)rn_problem_set(out, 503, "too_many_connections", "", "all %u connections are taken",
                             limits->connections);
    out->retry_seconds = 1;
    client->close = true;
    return false;
}

// ---- requests under way -------------------------------------------------------------------------

static uint32_t count_of(const rn_client *client) {
    const rn_http *http = client->http;
    uint32_t count = 0;
    for (uint32_t i = 0; i < http->fresh; i++)
        count += http->clients[i].counted && http->clients[i].who == client->who;
    return count;
}

// Where there are keys, those without one may look at the page; they get a small share.
static bool are_strangers_many(const rn_client *client) {
    const rn_http *http = client->http;
    uint32_t count = 0;
    if (http->keys.count == 0 || client->key) return false;
    for (uint32_t i = 0; i < http->fresh; i++)
        count += http->clients[i].counted && !http->clients[i].key;
    return count >= (http->answers_at_once + 7) / 8;
}

bool rn_http_place_has_room(const rn_client *client, rn_problem *out) {
    const rn_http *http = client->http;
    uint32_t most = http->per_client;
    if (client->counted) return true; // its last answer's place
    if (http->open_requests >= http->answers_at_once || are_strangers_many(client))
        (void)rn_problem_set(out, 429, "too_many_requests", "", "%u requests are under way",
                             http->open_requests);
    else if (count_of(client) >= most)
        (void)rn_problem_set(out, 429, "too_many_requests", "",
                             "%u requests of this client are under way", most);
    else
        return true;
    out->retry_seconds = 1;
    return false;
}

void rn_http_place_count(rn_client *client) {
    if (!client->counted) client->http->open_requests++;
    client->counted = true;
    client->unread = false;
}

void rn_http_place_settle(rn_client *client) {
    if (client->counted) client->http->open_requests--;
    client->counted = client->unread = false;
}

bool rn_http_is_unread(const rn_client *client) {
    int bytes = 0;
    return ioctl(client->wire.socket, SIOCOUTQ, &bytes) == 0 && bytes > RN_HTTP_LEFT_BYTES;
}
