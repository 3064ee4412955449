// http_request.c — a request's way.
//
//     head ─▶ host, route, key, place, length, site, type, phase ─▶ body, taking request memory as
//     it grows
//          ─▶ counted as under way ─▶ answer
//
// What is refused at the head is told at once. A short body is then thrown away as it comes, so
// that the connection can go on; behind a long one, and where the client waits to be told ("Expect:
// 100-continue"), the connection is closed.
#include "server/http_parts.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include "memory/account.h"

#include <arpa/inet.h>
#include <strings.h>
#include <unistd.h>

#define FROM        RN_HOST_IO
#define SHORT_BYTES ((uint64_t)64 << 10) // of a body that is thrown away rather than cut off
#define THROW_BYTES ((uint64_t)64 << 20) // of one without a length that has grown too long

// ---- bytes --------------------------------------------------------------------------------------

// There is always room behind a head.
static rn_step receive(rn_client *client) {
    size_t bytes = 0;
    if (!client->in) client->in = rn_http_block_take(&client->http->inputs);
    if (!client->in) return RN_STEP_CLOSE;
    rn_wire_news news = rn_wire_receive(&client->wire, client->in + client->in_bytes,
                                        RN_HTTP_INPUT_BYTES - client->in_bytes, &bytes);
    client->in_bytes += bytes;
    if (news == RN_WIRE_DONE) {
        client->active_ns = rn_clock_ns();
        return RN_STEP_ON;
    }
    if (client->in_bytes == 0) {
        rn_http_block_give(&client->http->inputs, client->in);
        client->in = NULL;
    }
    return news == RN_WIRE_IN ? RN_STEP_IN : news == RN_WIRE_OUT ? RN_STEP_OUT : RN_STEP_CLOSE;
}

// Takes bytes behind the first `at` out.
static void drop(rn_client *client, size_t at, size_t bytes) {
    memmove(client->in + at, client->in + at + bytes, client->in_bytes - at - bytes);
    client->in_bytes -= bytes;
}

// ---- the body -----------------------------------------------------------------------------------

void rn_http_free_body(rn_client *client) {
    rn_free(FROM, client->body, client->body_capacity);
    client->body = NULL;
    client->body_bytes = client->body_capacity = 0;
    rn_request_memory_release(&client->http->server->memory, client->memory_bytes);
    client->memory_bytes = 0;
}

// Three times the bytes of the request memory: enough for the body while it is copied to a larger
// block, and for what is made of it later (rn_request_memory_bytes).
static bool grow_body(rn_client *client, size_t bytes, rn_problem *out_problem) {
    rn_request_memory *memory = &client->http->server->memory;
    size_t capacity = client->body_capacity ? client->body_capacity : 2048;
    uint64_t limit = client->http->server->options.limits.body_bytes;
    if (client->length) limit = client->length;
    while (capacity < bytes)
        capacity *= 2;
    if (capacity > limit) capacity = (size_t)limit;
    uint64_t more = 3 * (uint64_t)(capacity - client->body_capacity);
    if (!rn_request_memory_take(memory, more)) return rn_problem_set_full(out_problem);
    client->memory_bytes += more;
    void *block = NULL;
    if (rn_alloc(FROM, capacity, &block) != RN_OK) {
        rn_problem_from_error(out_problem, rn_last_error());
        return false;
    }
    if (client->body_bytes) memcpy(block, client->body, client->body_bytes);
    rn_free(FROM, client->body, client->body_capacity);
    client->body = block;
    client->body_capacity = capacity;
    return true;
}

static bool refuse_length(const rn_client *client, rn_problem *out) {
    uint64_t limit = client->http->server->options.limits.body_bytes;
    return rn_problem_set(out, 413, "body_too_large", "",
                          "a request may have %s (%llu bytes), no more", rn_size_format(limit).text,
                          (unsigned long long)limit);
}

static bool take_piece(rn_client *client, rn_str piece, rn_problem *out) {
    size_t bytes = client->body_bytes + piece.bytes;
    if (bytes > client->http->server->options.limits.body_bytes) return refuse_length(client, out);
    if (bytes > client->body_capacity && !grow_body(client, bytes, out)) return false;
    memcpy(client->body + client->body_bytes, piece.data, piece.bytes);
    client->body_bytes = bytes;
    return true;
}

// The next piece of what is there; false: it is no body.
static bool next_piece(rn_client *client, size_t *out_used, rn_str *out_piece) {
    const char *data = client->in + client->head_bytes;
    size_t bytes = client->in_bytes - client->head_bytes;
    *out_piece = (rn_str){NULL, 0};
    if (client->chunked) {
        rn_chunks_news news = rn_chunks_take(&client->chunks, data, bytes, out_used, out_piece);
        client->body_ended = news == RN_CHUNKS_END;
        return news != RN_CHUNKS_WRONG;
    }
    *out_used = bytes < client->left ? bytes : (size_t)client->left;
    *out_piece = (rn_str){data, *out_used};
    client->left -= *out_used;
    client->body_ended = client->left == 0;
    return true;
}

static rn_step refuse_chunk(rn_client *client) {
    rn_problem problem;
    if (client->state == RN_CLIENT_DISCARD) return RN_STEP_CLOSE; // it has its answer
    (void)rn_problem_set(&problem, 400, "bad_request", "", "the body is not chunked as it should");
    client->close = true;
    return rn_http_refuse(client, &problem, NULL);
}

// Clients that wait for it send their body now.
static rn_step tell_continue(rn_client *client) {
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t sent = 0;
    client->expects_continue = false;
    rn_wire_news news = rn_wire_send(&client->wire, text, sizeof text - 1, &sent);
    return news == RN_WIRE_DONE && sent == sizeof text - 1 ? RN_STEP_ON : RN_STEP_CLOSE;
}

// ---- the head -----------------------------------------------------------------------------------

static bool check_key(rn_client *client, const rn_http_head *head, rn_problem *out) {
    const rn_keys *keys = &client->http->keys;
    size_t index = 0;
    client->who = client->address;
    client->key = 0;
    if (!keys->count || !client->route || client->route->open) return true;
    if (rn_keys_match(keys, rn_http_head_find(head, "Authorization"), &index)) {
        client->who = rn_hash(&index, sizeof index, 1);
        client->key = (uint32_t)index + 1;
        return true;
    }
    return rn_problem_set(out, 401, "invalid_api_key", "",
                          "this server wants a key: Authorization: Bearer KEY");
}

// The name of "name:8000" or "[::1]:8000".
static rn_str host_name(rn_str host) {
    bool wide = host.bytes && host.data[0] == '[';
    const char *end = host.bytes ? memchr(host.data, wide ? ']' : ':', host.bytes) : NULL;
    size_t bytes = end ? (size_t)(end - host.data) : host.bytes;
    if (!wide) return (rn_str){host.data, bytes};
    return (rn_str){host.data + 1, end ? bytes - 1 : 0};
}

// An address, "localhost", "a.localhost", or what the server was told that it is called: no name
// that a stranger could own, or could make somebody's network resolve.
static bool is_own_name(const rn_http *http, rn_str host) {
    const rn_server_options *options = &http->server->options;
    static const rn_str local = RN_STR(".localhost");
    rn_str name = host_name(host);
    char text[64];
    struct in6_addr address;
    for (size_t i = 0; i < options->host_name_count; i++)
        if (rn_str_equal_ignoring_case(name, rn_str_from(options->host_names[i]))) return true;
    if (rn_str_equal_ignoring_case(name, RN_STR("localhost"))) return true;
    if (name.bytes > local.bytes &&
        rn_str_equal_ignoring_case((rn_str){name.data + name.bytes - local.bytes, local.bytes},
                                   local))
        return true;
    if (name.bytes >= sizeof text) return false;
    memcpy(text, name.data, name.bytes);
    text[name.bytes] = 0;
    return inet_pton(host.data[0] == '[' ? AF_INET6 : AF_INET, text, &address) == 1;
}

// A page may have its own site's name point to this machine, and is then no stranger to a browser.
// That is what a server for this machine only looks out for; a page has no key, and a certificate
// would not fit its name.
static bool check_host(const rn_client *client, const rn_http_head *head, rn_problem *out) {
    const rn_http *http = client->http;
    if (!head->host.bytes || !http->is_local || http->keys.count || http->tls) return true;
    if (is_own_name(http, head->host)) return true;
    return rn_problem_set(
        out, 403, "foreign_host", "",
        "this server answers to localhost and to addresses only (--host-name adds "
        "a name, with an --api-key any will do)");
}

static rn_str cut(rn_str *rest, char mark) {
    const char *end = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes, used = bytes + (end != NULL);
    rn_str first = {rest->data, bytes};
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    while (first.bytes && strchr(" \t", first.data[0]))
        first = (rn_str){first.data + 1, first.bytes - 1};
    while (first.bytes && strchr(" \t", first.data[first.bytes - 1]))
        first.bytes--;
    return first;
}

static bool is_json(const rn_http_head *head) {
    rn_str rest = rn_http_head_find(head, "Content-Type");
    return rn_str_equal_ignoring_case(cut(&rest, ';'), RN_STR("application/json"));
}

// Browsers say whose page asks; old ones, and all where the connection is not safe, say at least
// that a page does, and ask before they send JSON as such for another's page.
static bool is_foreign(const rn_http_head *head) {
    rn_str site = rn_http_head_find(head, "Sec-Fetch-Site");
    if (site.data)
        return rn_str_equal(site, RN_STR("cross-site")) || rn_str_equal(site, RN_STR("same-site"));
    return rn_http_head_find(head, "Origin").data && !is_json(head);
}

// What a page of another site may not read it may not have done for it either: else any page could
// keep a server on its visitor's machine busy.
static bool check_site(const rn_client *client, const rn_http_head *head, rn_problem *out) {
    const char *allowed = client->http->server->options.cors_origin;
    if (!is_foreign(head)) return true;
    rn_str origin = rn_http_head_find(head, "Origin");
    if (allowed && (strcmp(allowed, "*") == 0 || rn_str_equal(origin, rn_str_from(allowed))))
        return true;
    return rn_problem_set(out, 403, "cross_origin", "",
                          "pages of other sites may not ask this server (--cors lets them)");
}

// JSON is UTF-8. What is ASCII is that, too.
static bool is_utf8(rn_str name) {
    if (name.bytes >= 2 && name.data[0] == '"' && name.data[name.bytes - 1] == '"')
        name = (rn_str){name.data + 1, name.bytes - 2};
    return rn_str_equal_ignoring_case(name, RN_STR("utf-8")) ||
           rn_str_equal_ignoring_case(name, RN_STR("utf8")) ||
           rn_str_equal_ignoring_case(name, RN_STR("us-ascii"));
}

// What curl and old programs say of any body, without meaning it.
static bool is_unsaid(rn_str type) {
    return type.bytes == 0 ||
           rn_str_equal_ignoring_case(type, RN_STR("application/x-www-form-urlencoded")) ||
           rn_str_equal_ignoring_case(type, RN_STR("text/plain"));
}

// "application/json; charset=utf-8" is JSON, and what does not say is read as such.
static bool check_type(const rn_http_head *head, rn_problem *out) {
    rn_str rest = rn_http_head_find(head, "Content-Type");
    rn_str encoding = rn_http_head_find(head, "Content-Encoding");
    if (encoding.bytes && !rn_str_equal_ignoring_case(encoding, RN_STR("identity")))
        return rn_problem_set(out, 415, "unsupported_media_type", "",
                              "the body must be sent as it is, without Content-Encoding");
    rn_str type = cut(&rest, ';');
    if (!is_unsaid(type) && !rn_str_equal_ignoring_case(type, RN_STR("application/json")))
        return rn_problem_set(out, 415, "unsupported_media_type", "",
                              "the body must be JSON (Content-Type: application/json)");
    while (rest.bytes) {
        rn_str value = cut(&rest, ';'), name = cut(&value, '=');
        if (rn_str_equal_ignoring_case(name, RN_STR("charset")) && !is_utf8(value))
            return rn_problem_set(out, 415, "unsupported_media_type", "",
                                  "the body must be UTF-8, as JSON is");
    }
    return true;
}

static bool check_phase(const rn_client *client, rn_problem *out) {
    rn_engine_facts facts;
    if (!client->route->needs_ready) return true;
    rn_engine_get_facts(client->http->server->engine, &facts);
    return facts.phase == RN_ENGINE_READY || rn_phase_refuse(facts.phase, &facts.failure, out);
}

// A probe must learn that the server lives, however crowded it is.
static bool is_probe(const rn_route *route) {
    return route && (route->handler == rn_handle_live || route->handler == rn_handle_ready);
}

// Who is not let in takes nobody's place.
static bool check_place(rn_client *client, rn_problem *out) {
    if (is_probe(client->route)) return true;
    return rn_http_place_claim(client, out) && rn_http_place_has_room(client, out);
}

static bool is_preflight(const rn_client *client, const char *allow) {
    return allow[0] && strcmp(client->method, "OPTIONS") == 0 &&
           client->http->server->options.cors_origin;
}

static bool check_head(rn_client *client, const rn_http_head *head, char allow[64],
                       rn_problem *out) {
    if (!check_host(client, head, out)) return false;
    client->route = rn_route_find(client->method, client->path, allow, out);
    if (!client->route && !is_preflight(client, allow)) return false;
    if (!check_key(client, head, out) || !check_place(client, out)) return false;
    if (head->length > client->http->server->options.limits.body_bytes)
        return refuse_length(client, out);
    if (!client->route || strcmp(client->method, "POST") != 0) return true;
    return check_site(client, head, out) && check_type(head, out) && check_phase(client, out);
}

static rn_step take_head(rn_client *client, const rn_http_head *head) {
    rn_problem problem;
    char allow[64] = "";
    client->method = head->method;
    client->path = head->path;
    client->query = head->query;
    client->is_http10 = head->is_http10;
    client->is_head = strcmp(head->method, "HEAD") == 0;
    client->close = head->close;
    client->chunked = head->chunked;
    client->expects_continue = head->expects_continue;
    client->length = client->left = head->length;
    client->body_ended = !head->chunked && head->length == 0;
    client->may_probe = !head->is_http10 && !client->http->tls;
    client->state = RN_CLIENT_BODY;
    if (check_head(client, head, allow, &problem)) return RN_STEP_ON;
    if (head->chunked || head->length > SHORT_BYTES || head->expects_continue) client->close = true;
    return rn_http_refuse(client, &problem, allow);
}

// An empty line may stand before a request.
static void skip_empty_line(rn_client *client) {
    while (client->in_bytes >= 2 && client->in[0] == '\r' && client->in[1] == '\n') {
        drop(client, 0, 2);
        client->scanned = 0;
    }
}

rn_step rn_http_read_head(rn_client *client) {
    rn_http_head head;
    rn_problem problem;
    skip_empty_line(client);
    if (client->in_bytes == 0) return receive(client);
    rn_head_news news = rn_http_head_read(client->in, client->in_bytes, &client->scanned, &head,
                                          &client->head_bytes, &problem);
    if (news == RN_HEAD_MORE) return receive(client);
    if (news == RN_HEAD_WHOLE) return take_head(client, &head);
    client->close = true;
    return rn_http_refuse(client, &problem, NULL);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_step take_end(rn_client *client) {
    rn_problem problem;
    client->owed = true;
    atomic_fetch_add(&client->http->owed, 1);
    if (!client->route) return rn_http_preflight(client); // what else has none was refused
    if (!is_probe(client->route)) {
        if (!rn_http_place_has_room(client, &problem))
            return rn_http_refuse(client, &problem, NULL);
        rn_http_place_count(client);
    }
    if (client->route->handler) return rn_http_handle(client);
    client->state = RN_CLIENT_ANSWER;
    return RN_STEP_ON;
}

static rn_step end_body(rn_client *client) {
    if (client->state == RN_CLIENT_BODY) return take_end(client);
    rn_http_request_end(client);
    return RN_STEP_ON;
}

rn_step rn_http_read_body(rn_client *client) {
    rn_problem problem;
    rn_str piece;
    size_t used = 0;
    bool taken = true;
    if (client->body_ended) return end_body(client);
    if (client->in_bytes == client->head_bytes) {
        rn_step step = client->expects_continue ? tell_continue(client) : RN_STEP_ON;
        return step == RN_STEP_ON ? receive(client) : step;
    }
    if (!next_piece(client, &used, &piece)) return refuse_chunk(client);
    if (client->state == RN_CLIENT_BODY && piece.bytes) taken = take_piece(client, piece, &problem);
    if (client->state == RN_CLIENT_DISCARD) client->thrown_bytes += piece.bytes;
    drop(client, client->head_bytes, used);
    if (client->thrown_bytes > THROW_BYTES) return RN_STEP_CLOSE;
    return taken ? RN_STEP_ON : rn_http_refuse(client, &problem, NULL);
}

static void end_answer(rn_client *client) {
    rn_http_job_end(client);
    rn_http_free_body(client);
    rn_buffer_free(&client->answer);
    if (client->source.file >= 0) close(client->source.file);
    client->source = (rn_http_source){.file = -1};
    rn_http_block_give(&client->http->outputs, client->out);
    client->out = NULL;
    client->out_bytes = client->sent = 0;
    if (client->owed) atomic_fetch_sub(&client->http->owed, 1);
    client->owed = false;
}

void rn_http_request_end(rn_client *client) {
    bool gone = client->state == RN_CLIENT_GONE;
    end_answer(client);
    if (client->in) drop(client, 0, client->head_bytes);
    client->head_bytes = client->scanned = 0;
    client->method = client->path = NULL;
    client->query = (rn_str){NULL, 0};
    client->route = NULL;
    client->close = client->half_closed = client->body_ended = false;
    client->is_head = client->is_http10 = false;
    client->chunks = (rn_chunks){.at = 0};
    client->length = client->left = client->thrown_bytes = client->probed_ns = 0;
    client->since_ns = rn_clock_ns();
    if (!gone) client->state = RN_CLIENT_HEAD;
    if (gone || !rn_http_is_unread(client))
        rn_http_place_settle(client);
    else
        client->unread = client->counted;
}
