// http_answer.c — answers that are there at once, and what all answers have on.
#include "server/http_parts.h"

#include "base/str.h"
#include "memory/account.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_BYTES ((size_t)64 << 20)

// For pages that are whole in themselves.
static const char alone[] = "default-src 'none'; script-src 'unsafe-inline'; style-src "
                            "'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri "
                            "'none'; form-action 'none'; frame-ancestors 'none'";

static void add(const rn_client *client, struct MHD_Response *response, const char *name,
                const char *value) {
    (void)client->http->mhd->add_response_header(response, name, value);
}

static void add_number(const rn_client *client, struct MHD_Response *response, const char *name,
                       uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    add(client, response, name, text);
}

static void add_origin(const rn_client *client, struct MHD_Response *response) {
    const char *origin = client->http->server->options.cors_origin;
    if (!origin) return;
    add(client, response, "Access-Control-Allow-Origin", origin);
    add(client, response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (strcmp(origin, "*") != 0) add(client, response, "Vary", "Origin");
}

void rn_http_dress(const rn_client *client, struct MHD_Response *response, const char *type) {
    if (type) add(client, response, "Content-Type", type);
    add(client, response, "Cache-Control", "no-store");
    add(client, response, "X-Content-Type-Options", "nosniff");
    add_origin(client, response);
    if (client->job) add(client, response, "X-Request-Id", client->job->id);
    if (client->close || atomic_load(&client->http->closing))
        add(client, response, "Connection", "close");
}

enum MHD_Result rn_http_send(rn_client *client, unsigned status, struct MHD_Response *response) {
    const rn_mhd *mhd = client->http->mhd;
    if (!response) return MHD_NO;
    client->may_probe = false;
    atomic_store(&client->since_ns, 0);
    enum MHD_Result result = mhd->queue_response(client->connection, status, response);
    mhd->destroy_response(response);
    return result;
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

struct MHD_Response *rn_http_refusal(const rn_client *client, const rn_problem *problem,
                                     const char *allow) {
    page text = {.bytes = 0};
    if (rn_problem_write(problem, (rn_sink){&text, write_page}) != RN_OK) return NULL;
    struct MHD_Response *response = client->http->mhd->create_response_from_buffer(
        text.bytes, text.text, MHD_RESPMEM_MUST_COPY);
    if (!response) return NULL;
    rn_http_dress(client, response, "application/json");
    if (problem->retry_seconds) add_number(client, response, "Retry-After", problem->retry_seconds);
    if (problem->http == 401) add(client, response, "WWW-Authenticate", "Bearer");
    if (problem->http == 405 && allow) add(client, response, "Allow", allow);
    count(client, problem->http);
    return response;
}

enum MHD_Result rn_http_refuse(rn_client *client, const rn_problem *problem, const char *allow) {
    return rn_http_send(client, problem->http, rn_http_refusal(client, problem, allow));
}

static enum MHD_Result refuse_by_story(rn_client *client) {
    rn_problem problem;
    rn_problem_from_story(&problem, rn_last_story());
    return rn_http_refuse(client, &problem, NULL);
}

enum MHD_Result rn_http_preflight(rn_client *client) {
    struct MHD_Response *response =
        client->http->mhd->create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    rn_http_dress(client, response, NULL);
    add(client, response, "Access-Control-Allow-Methods", "GET, POST");
    // "*" has all names but that of the key: clients have some of their own.
    add(client, response, "Access-Control-Allow-Headers", "Authorization, Content-Type, *");
    add(client, response, "Access-Control-Max-Age", "600");
    return rn_http_send(client, 204, response);
}

// ---- handlers -----------------------------------------------------------------------------------

const char *rn_http_query(const rn_http_request *request, const char *name) {
    const rn_mhd *mhd = NULL;
    if (rn_mhd_get(&mhd) != RN_OK || !request->connection) return NULL;
    struct MHD_Connection *connection = (struct MHD_Connection *)(uintptr_t)request->connection;
    return mhd->lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

// What is answered takes of the room, too: else those who ask and do not read could fill the
// memory.
static void *take_room(void *self, size_t bytes, size_t align) {
    rn_room *room = self;
    if (!rn_room_take(room, bytes)) {
        (void)rn_fail(RN_OVER_BUDGET, "the bytes for all requests together are taken");
        return NULL;
    }
    void *block = RN_HOST_IO->alloc(RN_HOST_IO->self, bytes, align);
    if (!block) rn_room_give_back(room, bytes);
    return block;
}

static void give_room(void *self, void *block, size_t bytes) {
    RN_HOST_IO->free(RN_HOST_IO->self, block, bytes);
    rn_room_give_back(self, bytes);
}

// Closes the file where it fails.
static struct MHD_Response *make_file_response(const rn_mhd *mhd, int file) {
    struct stat facts;
    struct MHD_Response *response = NULL;
    if (fstat(file, &facts) == 0)
        response = mhd->create_response_from_fd64((uint64_t)facts.st_size, file);
    if (!response) close(file);
    return response;
}

// A body that is lent stays the client's until the request ends.
static struct MHD_Response *make_response(rn_client *client, rn_http_answer *answer) {
    const rn_mhd *mhd = client->http->mhd;
    if (answer->file >= 0) return make_file_response(mhd, answer->file);
    rn_str body = {answer->body.data, answer->body.bytes};
    if (answer->borrowed.data) body = answer->borrowed;
    client->answer = answer->body;
    answer->body = (rn_buffer){.from = RN_HOST_IO};
    // Lent, never written to; the function's type has no const.
    return mhd->create_response_from_buffer(body.bytes, (void *)(uintptr_t)body.data,
                                            MHD_RESPMEM_PERSISTENT);
}

static void dress_answer(rn_client *client, const rn_http_answer *answer,
                         struct MHD_Response *response) {
    char text[160];
    rn_http_dress(client, response, answer->type);
    if (strncmp(answer->type, "text/html", 9) == 0) {
        add(client, response, "Content-Security-Policy", answer->policy ? answer->policy : alone);
        add(client, response, "Referrer-Policy", "no-referrer");
    }
    if (answer->problem.retry_seconds)
        add_number(client, response, "Retry-After", answer->problem.retry_seconds);
    if (!answer->download) return;
    snprintf(text, sizeof text, "attachment; filename=\"%s\"", answer->download);
    add(client, response, "Content-Disposition", text);
}

static enum MHD_Result send_answer(rn_client *client, rn_http_answer *answer) {
    if (answer->problem.http) {
        if (answer->file >= 0) close(answer->file);
        return rn_http_refuse(client, &answer->problem, NULL);
    }
    struct MHD_Response *response = make_response(client, answer);
    if (!response) return MHD_NO;
    dress_answer(client, answer, response);
    return rn_http_send(client, answer->status, response);
}

enum MHD_Result rn_http_handle(rn_client *client, const char *method, const char *path) {
    rn_server *server = client->http->server;
    // Lives as long as the answer's body.
    client->answers = (rn_allocator){&server->room, take_room, give_room};
    rn_http_request request = {
        method, path, {client->body, client->body_bytes}, client->connection};
    rn_http_answer answer = {.status = 200, .type = "application/json", .file = -1};
    rn_buffer_init(&answer.body, &client->answers, ANSWER_BYTES);
    rn_status status = client->route->handler(server, &request, &answer);
    if (status != RN_OK && answer.file >= 0) close(answer.file);
    enum MHD_Result result =
        status == RN_OK ? send_answer(client, &answer) : refuse_by_story(client);
    rn_buffer_free(&answer.body);
    return result;
}
