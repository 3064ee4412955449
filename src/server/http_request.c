// http_request.c — a request's way. libmicrohttpd calls once with the head, then with pieces of the
// body, then once (and again after each wake) when all of it is there.
//
//     head ─▶ framing, route, key, type, length, phase ─▶ body, taking room as it grows ─▶ answer
//
// What is refused at the head is refused before its body is sent where the client waits to be told
// ("Expect: 100-continue"), or where the body is long: then the connection is closed behind the
// answer. A short body is read and thrown away, so that the connection can go on.
#include "server/http_parts.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include "memory/account.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <strings.h>
#include <sys/ioctl.h>

#define FROM        RN_HOST_IO
#define SHORT_BYTES ((uint64_t)64 << 10) // of a body that is thrown away rather than cut off
#define THROW_BYTES ((uint64_t)64 << 20) // of one without a length that has grown too long

const char *rn_http_header(const rn_client *client, const char *name) {
    return client->http->mhd->lookup_connection_value(client->connection, MHD_HEADER_KIND, name);
}

// ---- the body -----------------------------------------------------------------------------------

void rn_http_free_body(rn_client *client) {
    rn_free(FROM, client->body, client->body_capacity);
    client->body = NULL;
    client->body_bytes = client->body_capacity = 0;
    rn_room_give_back(&client->http->server->room, client->room_bytes);
    client->room_bytes = 0;
}

static enum MHD_Result refuse_later(rn_client *client, const rn_problem *problem,
                                    const char *allow) {
    rn_http_free_body(client);
    client->refusal = rn_http_refusal(client, problem, allow);
    client->refusal_status = problem->http;
    return client->refusal ? MHD_YES : MHD_NO;
}

// Three times the bytes of the room: enough for the body while it is copied to a larger block, and
// for what is made of it later (rn_ask_room_bytes).
static bool grow_body(rn_client *client, size_t bytes, rn_problem *out_problem) {
    rn_room *room = &client->http->server->room;
    size_t capacity = client->body_capacity ? client->body_capacity : 2048;
    uint64_t limit = client->http->server->options.limits.body_bytes;
    if (client->length) limit = client->length;
    while (capacity < bytes)
        capacity *= 2;
    if (capacity > limit) capacity = (size_t)limit;
    uint64_t more = 3 * (uint64_t)(capacity - client->body_capacity);
    if (!rn_room_take(room, more)) return rn_problem_set_full(out_problem);
    client->room_bytes += more;
    void *block = NULL;
    if (rn_alloc(FROM, capacity, &block) != RN_OK) {
        rn_problem_from_story(out_problem, rn_last_story());
        return false;
    }
    if (client->body_bytes) memcpy(block, client->body, client->body_bytes);
    rn_free(FROM, client->body, client->body_capacity);
    client->body = block;
    client->body_capacity = capacity;
    return true;
}

static void set_too_long(const rn_client *client, rn_problem *out) {
    uint64_t limit = client->http->server->options.limits.body_bytes;
    rn_problem_set(out, 413, "body_too_large", "", "a request may have %s (%llu bytes), no more",
                   rn_size_format(limit).text, (unsigned long long)limit);
}

static enum MHD_Result take_body(rn_client *client, const char *data, size_t *bytes) {
    size_t count = *bytes;
    rn_problem problem;
    *bytes = 0;
    if (client->refusal) {
        client->thrown_bytes += count;
        return client->thrown_bytes <= THROW_BYTES ? MHD_YES : MHD_NO;
    }
    if (client->body_bytes + count > client->http->server->options.limits.body_bytes) {
        set_too_long(client, &problem);
        return refuse_later(client, &problem, NULL);
    }
    if (client->body_bytes + count > client->body_capacity &&
        !grow_body(client, client->body_bytes + count, &problem))
        return refuse_later(client, &problem, NULL);
    memcpy(client->body + client->body_bytes, data, count);
    client->body_bytes += count;
    return MHD_YES;
}

// ---- the head -----------------------------------------------------------------------------------

static bool check_key(rn_client *client, rn_problem *out) {
    const rn_keys *keys = &client->http->keys;
    size_t index = 0;
    client->who = client->address;
    client->key = 0;
    if (!keys->count || !client->route || client->route->open) return true;
    if (rn_keys_match(keys, rn_http_header(client, "Authorization"), &index)) {
        client->who = rn_hash(&index, sizeof index, 1);
        client->key = (uint32_t)index + 1;
        return true;
    }
    return rn_problem_set(out, 401, "invalid_api_key", "",
                          "this server wants a key: Authorization: Bearer KEY");
}

// "localhost", "box:8000", "host.docker.internal", "127.0.0.1:8000", "[::1]": no name that a
// stranger could own.
static bool is_local_name(const char *host) {
    static const char *const local[] = {"localhost", "local", "internal"};
    char name[256];
    struct in6_addr address;
    bool wide = host[0] == '[';
    if (wide) host++;
    size_t bytes = strcspn(host, wide ? "]" : ":");
    if (bytes >= sizeof name) return false;
    memcpy(name, host, bytes);
    name[bytes] = 0;
    if (inet_pton(wide ? AF_INET6 : AF_INET, name, &address) == 1) return true;
    const char *last = strrchr(name, '.');
    for (size_t i = 0; last && i < sizeof local / sizeof *local; i++)
        if (strcasecmp(last + 1, local[i]) == 0) return true;
    return !last;
}

// A page may have its own site's name point to this machine, and is then no stranger to a browser.
// That is what a server for this machine only looks out for; a page has no key, and a certificate
// would not fit its name.
static bool check_host(const rn_client *client, const char *version, rn_problem *out) {
    const rn_http *http = client->http;
    const char *host = rn_http_header(client, "Host");
    if (!host && strcmp(version, "HTTP/1.0") != 0)
        return rn_problem_set(out, 400, "bad_request", "", "there is no Host header");
    if (!host || !http->is_local || http->keys.count || http->server->options.tls_key) return true;
    if (is_local_name(host)) return true;
    return rn_problem_set(
        out, 403, "foreign_host", "",
        "this server answers to localhost only: its own machine's (a proxy in front "
        "sends Host: localhost, or there is an --api-key)");
}

// Browsers say whose page asks; old ones, and all where the connection is not safe, say at least
// that a page does, and ask before they send JSON as such for another's page.
static bool is_foreign(const rn_client *client) {
    const char *site = rn_http_header(client, "Sec-Fetch-Site");
    if (site) return strcmp(site, "cross-site") == 0 || strcmp(site, "same-site") == 0;
    return rn_http_header(client, "Origin") && !rn_http_header(client, "Content-Type");
}

// What a page of another site may not read it may not have done for it either: else any page could
// keep a server on its visitor's machine busy.
static bool check_site(const rn_client *client, rn_problem *out) {
    const char *allowed = client->http->server->options.cors_origin;
    const char *origin = rn_http_header(client, "Origin");
    if (!is_foreign(client)) return true;
    if (allowed && (strcmp(allowed, "*") == 0 || (origin && strcmp(allowed, origin) == 0)))
        return true;
    return rn_problem_set(out, 403, "cross_origin", "",
                          "pages of other sites may not ask this server (--cors lets them)");
}

// "application/json; charset=utf-8" is JSON, and so is what does not say.
static bool check_type(const rn_client *client, rn_problem *out) {
    rn_str type = rn_str_from(rn_http_header(client, "Content-Type"));
    if (!type.bytes) return true;
    const char *end = memchr(type.data, ';', type.bytes);
    if (end) type.bytes = (size_t)(end - type.data);
    while (type.bytes && strchr(" \t", type.data[type.bytes - 1]))
        type.bytes--;
    if (rn_str_equal_ignoring_case(type, RN_STR("application/json"))) return true;
    return rn_problem_set(out, 415, "unsupported_media_type", "",
                          "the body must be JSON (Content-Type: application/json)");
}

static bool check_phase(const rn_client *client, rn_problem *out) {
    rn_engine_facts facts;
    if (!client->route->needs_ready) return true;
    rn_engine_get_facts(client->http->server->engine, &facts);
    return facts.phase == RN_PHASE_READY || rn_phase_refuse(facts.phase, &facts.failure, out);
}

static bool check_length(const rn_client *client, const rn_framing *framing, rn_problem *out) {
    if (framing->length <= client->http->server->options.limits.body_bytes) return true;
    set_too_long(client, out);
    return false;
}

// A probe must learn that the server lives, however crowded it is.
static bool is_probe(const rn_route *route) {
    return route && (route->handler == rn_handle_live || route->handler == rn_handle_ready);
}

static bool check_crowd(rn_client *client, rn_problem *out) {
    const rn_http *http = client->http;
    bool many = atomic_load(&http->open_requests) > http->answers_at_once;
    if ((!client->surplus && !many) || is_probe(client->route)) return true;
    rn_problem_set(out, client->surplus ? 503 : 429, "too_many_connections", "",
                   client->surplus ? "all %u connections are taken" : "%u requests are under way",
                   client->surplus ? http->server->options.limits.connections
                                   : http->answers_at_once);
    out->retry_seconds = 1;
    client->close = true;
    return false;
}

static bool is_preflight(const rn_client *client, const char *method, const char *allow) {
    return allow[0] && strcmp(method, "OPTIONS") == 0 && client->http->server->options.cors_origin;
}

static bool check_route(rn_client *client, const char *method, const char *path, char allow[64],
                        rn_problem *out) {
    client->route = rn_route_find(method, path, allow, out);
    return client->route || is_preflight(client, method, allow);
}

static bool check_head(rn_client *client, const char *method, const char *path,
                       const rn_framing *framing, char allow[64], rn_problem *out) {
    if (!check_route(client, method, path, allow, out)) return false;
    if (!check_crowd(client, out)) return false;
    if (!check_key(client, out) || !check_length(client, framing, out)) return false;
    if (!client->route || strcmp(method, "POST") != 0) return true;
    return check_site(client, out) && check_type(client, out) && check_phase(client, out);
}

bool rn_http_is_unread(const rn_client *client) {
    int bytes = 0;
    return ioctl(client->socket, SIOCOUTQ, &bytes) == 0 && bytes > RN_HTTP_LEFT_BYTES;
}

void rn_http_settle(rn_client *client) {
    if (atomic_exchange(&client->unread, false)) atomic_fetch_sub(&client->http->open_requests, 1);
}

static void begin(rn_client *client, const char *version) {
    const rn_http *http = client->http;
    rn_http_settle(client);
    client->may_probe = strcmp(version, "HTTP/1.1") == 0 && !http->server->options.tls_key;
    rn_buffer_init(&client->answer, FROM, 0);
    atomic_fetch_add(&client->http->open_requests, 1);
}

static enum MHD_Result take_head(rn_client *client, const char *method, const char *path,
                                 const char *version) {
    rn_framing framing;
    rn_problem problem;
    char allow[64] = "";
    begin(client, version);
    if (!rn_framing_read(client->http, client->connection, version, &framing, &problem)) {
        client->close = true;
        return rn_http_refuse(client, &problem, NULL);
    }
    client->length = framing.length;
    if (check_host(client, version, &problem) &&
        check_head(client, method, path, &framing, allow, &problem))
        return MHD_YES;
    bool is_short = !framing.chunked && framing.length <= SHORT_BYTES && !framing.expects_continue;
    if (is_short) return refuse_later(client, &problem, allow);
    client->close = true;
    return rn_http_refuse(client, &problem, allow);
}

// ---- all of it ----------------------------------------------------------------------------------

static enum MHD_Result take_end(rn_client *client, const char *method, const char *path) {
    atomic_store(&client->since_ns, 0);
    if (client->refusal) {
        struct MHD_Response *refusal = client->refusal;
        client->refusal = NULL;
        return rn_http_send(client, client->refusal_status, refusal);
    }
    if (!client->route) return rn_http_preflight(client); // what else has none was refused
    if (client->route->handler) return rn_http_handle(client, method, path);
    return rn_http_ask(client);
}

enum MHD_Result rn_http_request_go(void *self, struct MHD_Connection *connection, const char *path,
                                   const char *method, const char *version, const char *data,
                                   size_t *data_bytes, void **request) {
    rn_http *http = self;
    rn_client *client = *request;
    if (client && *data_bytes) return take_body(client, data, data_bytes);
    if (client) return take_end(client, method, path);
    const union MHD_ConnectionInfo *info =
        http->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    client = info ? info->socket_context : NULL;
    if (!client) return MHD_NO;
    *request = client;
    return take_head(client, method, path, version);
}

void rn_http_request_end(void *self, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code) {
    rn_client *client = *request;
    rn_http *http = self;
    (void)connection;
    (void)code;
    if (!client) return;
    rn_http_ask_end(client);
    rn_http_free_body(client);
    rn_buffer_free(&client->answer);
    if (client->refusal) http->mhd->destroy_response(client->refusal);
    client->refusal = NULL;
    client->close = false;
    client->route = NULL;
    client->thrown_bytes = 0;
    client->probed_ns = 0;
    atomic_store(&client->since_ns, rn_clock_ns());
    atomic_store(&client->unread, true);
    if (!rn_http_is_unread(client)) rn_http_settle(client);
    *request = NULL;
}
