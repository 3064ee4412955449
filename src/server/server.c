// server.c — a server's life: listening first, so that probes get an answer; then the model; then
// serving until somebody says stop.
#include "server/server.h"

#include "base/clock.h"
#include "base/reserved.h"
#include "memory/account.h"
#include "server/job_queue.h"

#include <ration/log.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FROM RN_HOST_OTHER
#define MIB  ((uint64_t)1 << 20)

// ---- options ------------------------------------------------------------------------------------

static uint32_t either(uint32_t given, uint32_t otherwise) {
    return given ? given : otherwise;
}

static void resolve_limits(rn_server_limits *l) {
    l->connections = either(l->connections, 2048);
    l->waiting = either(l->waiting, 128);
    l->body_bytes = l->body_bytes ? l->body_bytes : MIB;
    l->request_bytes = l->request_bytes ? l->request_bytes : 16 * MIB;
    l->answer_tokens = either(l->answer_tokens, 1024);
    l->idle_seconds = either(l->idle_seconds, 60);
    l->wait_seconds = either(l->wait_seconds, 600);
    l->gap_ms = either(l->gap_ms, 500);
}

static rn_status check_limits(const rn_server_limits *l) {
    enum { MOST_CONNECTIONS = 65536, MOST_WAITING = 65536, MOST_SECONDS = 1 << 20 };
    const uint64_t most_bytes = (uint64_t)1 << 40;
    if (l->connections > MOST_CONNECTIONS || l->waiting > MOST_WAITING)
        return rn_fail(RN_INVALID, "%u connections and %u waiting requests: at most %d of each",
                       l->connections, l->waiting, MOST_CONNECTIONS);
    if (l->idle_seconds > MOST_SECONDS || l->wait_seconds > MOST_SECONDS)
        return rn_fail(RN_INVALID, "a timeout of more than %d seconds", MOST_SECONDS);
    if (l->body_bytes > most_bytes || l->request_bytes > most_bytes)
        return rn_fail(RN_INVALID, "more than %s for requests", rn_size_format(most_bytes).text);
    // The body, what is read from it, and its tokens are there at the same time; half of the
    // request memory is for answers.
    uint64_t least = 2 * rn_request_memory_bytes(l->body_bytes);
    if (l->request_bytes >= least) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "%s for all requests together, but bodies of %s need %s",
                           rn_size_format(l->request_bytes).text,
                           rn_size_format(l->body_bytes).text, rn_size_format(least).text),
                   "more for all (--request-memory), or smaller bodies (--max-body)");
}

static rn_status resolve(rn_server_options *o) {
    resolve_limits(&o->limits);
    if (!o->host) o->host = "127.0.0.1";
    if (!o->devices) o->devices = "auto";
    if (!o->tls_certificate != !o->tls_key)
        return rn_hint(rn_fail(RN_INVALID, "TLS needs a certificate and its key"),
                       "give both --tls-cert and --tls-key, or neither");
    return check_limits(&o->limits);
}

// ---- life ---------------------------------------------------------------------------------------

// What engine `index` is given: of the first model's own settings, the others have none.
static void set_options(const rn_server *server, uint32_t index, rn_server_options *out) {
    *out = server->options;
    if (index == 0) return;
    out->model_path = server->options.more_models[index - 1].path;
    out->model_name = server->options.more_models[index - 1].name;
    out->model = (rn_model_options){0};
    out->chat_template = out->save_folder = NULL;
    out->embeddings = false;
}

static rn_status open_engines(rn_server *server) {
    void *engines = NULL, *each = NULL;
    uint32_t count = 1 + (uint32_t)server->options.more_model_count;
    RN_TRY(rn_alloc_zeroed(FROM, count, sizeof *server->engines, &engines));
    server->engines = engines;
    server->engine_count = count;
    RN_TRY(rn_alloc_zeroed(FROM, count, sizeof *server->each, &each));
    server->each = each;
    for (uint32_t i = 0; i < count; i++) {
        set_options(server, i, &server->each[i]);
        RN_TRY(rn_engine_create(&server->each[i], &server->memory, &server->metrics,
                                count > 1 ? &server->roster : NULL, server->engines[0],
                                &server->engines[i]));
    }
    server->engine = server->engines[0];
    return RN_OK;
}

// The first one last: the others use what it has.
static void close_engines(rn_server *server) {
    for (uint32_t i = 0; server->engines && i < server->engine_count; i++)
        rn_engine_stop(server->engines[i]);
    for (uint32_t i = server->engine_count; server->engines && i-- > 0;)
        rn_engine_destroy(server->engines[i]);
    rn_free(FROM, server->engines, server->engine_count * sizeof *server->engines);
    rn_free(FROM, server->each, server->engine_count * sizeof *server->each);
}

static rn_status open_parts(rn_server *server) {
    if (server->options.more_model_count >= RN_ROSTER_MODELS)
        return rn_fail(RN_INVALID, "%zu models in one server: at most %d",
                       server->options.more_model_count + 1, RN_ROSTER_MODELS);
    rn_request_memory_init(&server->memory, server->options.limits.request_bytes);
    RN_TRY(open_engines(server));
    return rn_http_start(server, &server->http);
}

typedef struct address {
    char text[320];
} address;

// "http://[::1]:8000"
static address address_of(const rn_server *server) {
    const rn_server_options *o = &server->options;
    bool wide = strchr(o->host, ':') != NULL;
    address out;
    snprintf(out.text, sizeof out.text, "http%s://%s%s%s:%u", o->tls_key ? "s" : "",
             wide ? "[" : "", o->host, wide ? "]" : "", rn_server_port(server));
    return out;
}

rn_status rn_server_create(const rn_server_options *options, rn_server **out) {
    void *block = NULL;
    *out = NULL;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_server_options"));
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_server), &block));
    rn_server *server = block;
    if (options) server->options = *options;
    server->started = (int64_t)time(NULL);
    server->started_ns = rn_clock_ns();
    rn_roster_init(&server->roster);
    rn_status s = resolve(&server->options);
    if (s == RN_OK) s = open_parts(server);
    if (s != RN_OK) {
        rn_server_destroy(server);
        return s;
    }
    rn_log(RN_LOG_INFO, "server", "opening %s (503 until the model is loaded)",
           address_of(server).text);
    *out = server;
    return RN_OK;
}

// Connections first: they hold jobs, and jobs are the engine's until they end.
void rn_server_destroy(rn_server *server) {
    if (!server) return;
    rn_error_info error = *rn_last_error();
    rn_http_destroy(server->http);
    close_engines(server);
    rn_roster_free(&server->roster);
    rn_profile_view_end(server);
    rn_free(FROM, server, sizeof *server);
    (void)rn_error_restore(&error);
}

uint16_t rn_server_port(const rn_server *server) {
    return rn_http_port(server->http);
}

uint64_t rn_server_own_bytes(const rn_server *server) {
    const rn_server_limits *limits = &server->options.limits;
    return rn_http_bytes(&server->options) + limits->request_bytes +
           server->engine_count * limits->waiting * sizeof(rn_job_queue_client) +
           RN_PROFILE_VIEW_BYTES;
}

// ---- serving ------------------------------------------------------------------------------------

// "budget 4 GiB", "budget 40 GiB of cuda:0 and 16 GiB of the host"
static void write_budget(const rn_engine_facts *facts, char *out, size_t bytes) {
    rn_size_text host = rn_size_format(facts->budget_bytes);
    if (facts->budget_bytes == 0)
        snprintf(out, bytes, "no budget");
    else if (facts->device_budget_bytes)
        snprintf(out, bytes, "budget %s of %s and %s of the host",
                 rn_size_format(facts->device_budget_bytes).text, facts->target, host.text);
    else
        snprintf(out, bytes, "budget %s", host.text);
}

// All that somebody who starts a server wants to see, in one line.
static void log_ready(const rn_server *server) {
    rn_engine_facts facts;
    char budget[160], what[96];
    rn_engine_get_facts(server->engine, &facts);
    write_budget(&facts, budget, sizeof budget);
    if (facts.ranks)
        snprintf(what, sizeof what, "scores of texts (/v1/rerank), with the query %u tokens",
                 facts.context);
    else if (facts.embeds)
        snprintf(what, sizeof what, "embeddings of %u dimensions, texts of %u tokens",
                 facts.dimensions, facts.context);
    else if (rn_engine_diffusion(server->engine))
        snprintf(what, sizeof what, "pictures");
    else
        snprintf(what, sizeof what, "context %u tokens, %u request%s in parallel", facts.context,
                 facts.sequences_max, facts.sequences_max == 1 ? "" : "s");
    rn_log(RN_LOG_INFO, "server", "ready: %s on %s, %s, %s, listening on %s",
           rn_engine_model_name(server->engine), facts.target, budget, what,
           address_of(server).text);
}

static bool is_failed(rn_engine *engine, rn_engine_facts *out) {
    rn_engine_get_facts(engine, out);
    return out->phase == RN_ENGINE_FAILED;
}

// A line a model.
static void log_models(const rn_server *server) {
    rn_engine_facts facts;
    for (uint32_t i = 0; i < server->engine_count; i++) {
        rn_engine *engine = server->engines[i];
        rn_engine_presence presence = rn_engine_get_presence(engine);
        if (is_failed(engine, &facts)) continue; // it was told
        rn_log(RN_LOG_INFO, "server", "model %s: %s, a share of %s%s", rn_engine_model_name(engine),
               facts.ranks    ? "scores"
               : facts.embeds ? "embeddings"
                              : "text",
               rn_size_format(presence.share_bytes).text,
               presence.loaded ? "" : ", loaded when it is asked for");
    }
}

static rn_status load_several(rn_server *server, const rn_generator_options *generator) {
    rn_engine_facts facts;
    RN_TRY(rn_engines_load(server->engines, server->engine_count, generator,
                           rn_server_own_bytes(server)));
    for (uint32_t i = server->engine_count; i-- > 0;)
        if (!is_failed(server->engines[i], &facts)) server->engine = server->engines[i];
    log_models(server);
    return RN_OK;
}

rn_status rn_server_load(rn_server *server, const rn_generator_options *generator) {
    if (server->engine_count > 1)
        RN_TRY(load_several(server, generator));
    else
        RN_TRY(rn_engine_load(server->engine, generator, rn_server_own_bytes(server)));
    rn_stage("server_ready");
    log_ready(server);
    return RN_OK;
}

static bool has_failed(rn_server *server) {
    rn_engine_facts facts;
    for (uint32_t i = 0; i < server->engine_count; i++)
        if (!is_failed(server->engines[i], &facts)) return false;
    (void)rn_error_restore(&facts.failure);
    return true;
}

static void sleep_a_little(void) {
    nanosleep(&(struct timespec){0, 50000000}, NULL); // a signal ends it
}

rn_status rn_server_run(rn_server *server, const rn_flag *stop, double drain_seconds) {
    while (!*stop) {
        if (has_failed(server)) return rn_last_error()->status;
        sleep_a_little();
    }
    rn_log(RN_LOG_INFO, "server", "asked to stop; ending what runs, for at most %g s",
           drain_seconds);
    uint64_t start = rn_clock_ns();
    rn_http_stop_accepting(server->http);
    bool in_time = true;
    for (uint32_t i = 0; i < server->engine_count; i++) {
        double left = drain_seconds - (double)(rn_clock_ns() - start) / 1e9;
        in_time &= rn_engine_drain(server->engines[i], left > 0 ? left : 0);
    }
    if (!in_time)
        rn_log(RN_LOG_WARNING, "server", "some requests did not end in time and were cut off");
    // What has been made by then may take the rest of the time to go out, a second at least.
    double left = drain_seconds - (double)(rn_clock_ns() - start) / 1e9;
    rn_http_flush(server->http, left > 1 ? left : 1);
    return RN_OK;
}
