// http_answer.c — answers that are there at once, and what all answers have on.
#include "server/http_parts.h"

#include "base/clock.h"
#include "base/str.h"
#include "memory/account.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FROM         RN_HOST_IO
#define ANSWER_BYTES ((size_t)64 << 20)

// For pages that are whole in themselves.
static const char alone[] = "default-src 'none'; script-src 'unsafe-inline'; style-src "
                            "'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri "
                            "'none'; form-action 'none'; frame-ancestors 'none'";

// ---- heads --------------------------------------------------------------------------------------

static const char *reason_of(unsigned status) {
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Status"; // any text will do
}

static void write_head(rn_head_text *head, const char *a, const char *b, const char *c) {
    size_t room = sizeof head->text - head->bytes;
    int bytes = snprintf(head->text + head->bytes, room, "%s%s%s\r\n", a, b, c);
    if (bytes > 0 && (size_t)bytes < room) head->bytes += (size_t)bytes;
}

void rn_head_add(rn_head_text *head, const char *name, const char *value) {
    write_head(head, name, ": ", value);
}

void rn_head_add_number(rn_head_text *head, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    rn_head_add(head, name, text);
}

// "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale is.
static void add_date(rn_head_text *head) {
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm t = {0};
    time_t now = time(NULL);
    char text[64];
    gmtime_r(&now, &t);
    snprintf(text, sizeof text, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", days + 3 * t.tm_wday,
             t.tm_mday, months + 3 * t.tm_mon, 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
    rn_head_add(head, "Date", text);
}

static void add_origin(const rn_client *client, rn_head_text *head) {
    const char *origin = client->http->server->options.cors_origin;
    if (!origin) return;
    rn_head_add(head, "Access-Control-Allow-Origin", origin);
    rn_head_add(head, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (strcmp(origin, "*") != 0) rn_head_add(head, "Vary", "Origin");
}

void rn_head_begin(const rn_client *client, unsigned status, const char *type, rn_head_text *out) {
    char number[16];
    out->bytes = 0;
    snprintf(number, sizeof number, "HTTP/1.1 %u ", status);
    write_head(out, number, reason_of(status), "");
    add_date(out);
    if (type) rn_head_add(out, "Content-Type", type);
    rn_head_add(out, "Cache-Control", "no-store");
    rn_head_add(out, "X-Content-Type-Options", "nosniff");
    add_origin(client, out);
    if (client->job) rn_head_add(out, "X-Request-Id", client->job->id);
}

// ---- refusals -----------------------------------------------------------------------------------

typedef struct page {
    char text[4096]; // the longest message, each character escaped, fits
    size_t bytes;
} page;

static rn_status write_page(void *self, const char *text, size_t bytes) {
    page *out = self;
    if (bytes > sizeof out->text - out->bytes) return RN_INTERNAL;
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    return RN_OK;
}

// What had entered is counted by the engine when it fails; a probe that hears "not ready" has been
// answered.
static void count(const rn_client *client, uint16_t http) {
    rn_metrics *metrics = &client->http->server->metrics;
    bool is_probe = client->route && !client->route->needs_ready;
    if (http >= 400 && http < 500)
        rn_metrics_add(metrics, http == 429 ? RN_COUNT_REFUSED_429 : RN_COUNT_REFUSED_400, 1);
    if (http == 503 && !client->job && !is_probe) rn_metrics_add(metrics, RN_COUNT_REFUSED_503, 1);
}

static void write_refusal(rn_client *client, const rn_problem *problem, const char *allow,
                          size_t bytes, rn_head_text *out) {
    rn_head_begin(client, problem->http, "application/json", out);
    if (problem->retry_seconds) rn_head_add_number(out, "Retry-After", problem->retry_seconds);
    if (problem->http == 401) rn_head_add(out, "WWW-Authenticate", "Bearer");
    if (problem->http == 405 && allow) rn_head_add(out, "Allow", allow);
    rn_head_add_number(out, "Content-Length", bytes);
    client->close |= atomic_load(&client->http->closing) || rn_http_is_unread(client);
    if (client->close) rn_head_add(out, "Connection", "close");
}

// In one go, from the stack: what the system does not take at once is not sent.
static bool send_now(rn_client *client, const rn_head_text *head, rn_str body) {
    char text[sizeof head->text + 4096 + 2];
    size_t bytes = head->bytes + 2 + body.bytes, sent = 0;
    memcpy(text, head->text, head->bytes);
    memcpy(text + head->bytes, "\r\n", 2);
    memcpy(text + head->bytes + 2, body.data, body.bytes);
    rn_wire_news news = rn_wire_send(&client->wire, text, bytes, &sent);
    client->active_ns = rn_clock_ns();
    return news == RN_WIRE_DONE && sent == bytes;
}

rn_step rn_http_refuse(rn_client *client, const rn_problem *problem, const char *allow) {
    page body = {.bytes = 0};
    rn_head_text head;
    if (rn_problem_write(problem, (rn_sink){&body, write_page}) != RN_OK) return RN_STEP_CLOSE;
    write_refusal(client, problem, allow, body.bytes, &head);
    count(client, problem->http);
    rn_str text = {body.text, client->is_head ? 0 : body.bytes};
    if (!send_now(client, &head, text)) return RN_STEP_CLOSE;
    bool ends = client->close, has_more = client->method && !client->body_ended;
    if (!ends && has_more) {
        rn_http_free_body(client);
        client->state = RN_CLIENT_DISCARD;
        return RN_STEP_ON;
    }
    rn_http_request_end(client);
    return ends ? rn_http_linger_begin(client) : RN_STEP_ON;
}

static rn_step refuse_by_error(rn_client *client) {
    rn_problem problem;
    rn_problem_from_error(&problem, rn_last_error());
    return rn_http_refuse(client, &problem, NULL);
}

rn_step rn_http_preflight(rn_client *client) {
    rn_head_text head;
    rn_head_begin(client, 204, NULL, &head);
    rn_head_add(&head, "Access-Control-Allow-Methods", "GET, POST");
    // "*" has all names but that of the key: clients have some of their own.
    rn_head_add(&head, "Access-Control-Allow-Headers", "Authorization, Content-Type, *");
    rn_head_add(&head, "Access-Control-Max-Age", "600");
    if (client->close) rn_head_add(&head, "Connection", "close");
    if (!send_now(client, &head, (rn_str){"", 0})) return RN_STEP_CLOSE;
    bool ends = client->close;
    rn_http_request_end(client);
    return ends ? rn_http_linger_begin(client) : RN_STEP_ON;
}

// ---- handlers -----------------------------------------------------------------------------------

const char *rn_http_query(const rn_http_request *request, const char *name) {
    size_t bytes = strlen(name);
    const char *at = request->query.data, *end = at + request->query.bytes;
    for (; at && at < end; at += strlen(at) + 1)
        if (strncmp(at, name, bytes) == 0 && at[bytes] == '=') return at + bytes + 1;
    return NULL;
}

// What is answered takes of the request memory, too: else those who ask and do not read could fill
// the memory.
static void *take_memory(void *self, size_t bytes, size_t align) {
    rn_request_memory *memory = self;
    if (!rn_request_memory_take(memory, bytes)) {
        (void)rn_fail(RN_OVER_BUDGET, "the bytes for all requests together are taken");
        return NULL;
    }
    void *block = RN_HOST_IO->alloc(RN_HOST_IO->self, bytes, align);
    if (!block) rn_request_memory_release(memory, bytes);
    return block;
}

static void release_memory(void *self, void *block, size_t bytes) {
    RN_HOST_IO->free(RN_HOST_IO->self, block, bytes);
    rn_request_memory_release(self, bytes);
}

static void dress(const rn_client *client, const rn_http_answer *answer, rn_head_text *head) {
    char text[160];
    rn_head_begin(client, answer->status, answer->type, head);
    if (strncmp(answer->type, "text/html", 9) == 0) {
        rn_head_add(head, "Content-Security-Policy", answer->policy ? answer->policy : alone);
        rn_head_add(head, "Referrer-Policy", "no-referrer");
    }
    if (answer->problem.retry_seconds)
        rn_head_add_number(head, "Retry-After", answer->problem.retry_seconds);
    if (!answer->download) return;
    snprintf(text, sizeof text, "attachment; filename=\"%s\"", answer->download);
    rn_head_add(head, "Content-Disposition", text);
}

// The body stays the client's until the request ends.
static rn_step send_answer(rn_client *client, rn_http_answer *answer) {
    rn_http_source source = {.file = answer->file};
    struct stat facts;
    rn_head_text head;
    if (answer->file >= 0) {
        answer->file = -1;
        client->source.file = source.file; // closed with the request, whatever comes
        if (fstat(source.file, &facts) != 0) return RN_STEP_CLOSE;
        source.bytes = (uint64_t)facts.st_size;
    } else {
        source.memory = answer->borrowed;
        if (!answer->borrowed.data) source.memory = (rn_str){answer->body.data, answer->body.bytes};
        client->answer = answer->body;
        answer->body = (rn_buffer){.from = RN_HOST_IO};
    }
    dress(client, answer, &head);
    return rn_http_send_begin(client, &head, source, source.memory.bytes + source.bytes);
}

rn_step rn_http_handle(rn_client *client) {
    rn_server *server = client->http->server;
    // Lives as long as the answer's body.
    client->answers = (rn_allocator){&server->memory, take_memory, release_memory};
    rn_http_request request = {.method = client->method,
                               .path = client->path,
                               .body = {client->body, client->body_bytes},
                               .query = client->query};
    rn_http_answer answer = {.status = 200, .type = "application/json", .file = -1};
    rn_buffer_init(&answer.body, &client->answers, ANSWER_BYTES);
    rn_status status = client->route->handler(server, &request, &answer);
    rn_step step;
    if (status != RN_OK)
        step = refuse_by_error(client);
    else if (answer.problem.http)
        step = rn_http_refuse(client, &answer.problem, NULL);
    else
        step = send_answer(client, &answer);
    if (answer.file >= 0) close(answer.file);
    rn_buffer_free(&answer.body);
    return step;
}
