// http_job.c — a request that becomes a job. Its connection sleeps while there is nothing to send;
// each sleep ends by exactly one `wake`, and only by that, so nobody is woken who is no longer
// there.
#include "server/http_parts.h"
#include "server/look.h"
#include "server/request_reader.h"

#include "base/map.h"
#include "base/str.h"
#include "memory/account.h"

#include <ration/log.h>

#include <stdatomic.h>

// ---- sleeping -----------------------------------------------------------------------------------

// Called with the job's lock: a wake comes later.
static void fall_asleep(void *self) {
    rn_client *client = self;
    client->asleep = true;
}

// On the engine's thread, or on ours. The bell is rung with the lock: once it is free, the record
// and all around it may be gone.
static void wake(void *self) {
    rn_client *client = self;
    rn_http *http = client->http;
    pthread_mutex_lock(&http->lock);
    if (!client->woken) {
        client->woken = true;
        client->next_woken = http->woken;
        http->woken = client;
        rn_http_ring(http);
    }
    pthread_mutex_unlock(&http->lock);
}

bool rn_http_job_sleep(rn_client *client) {
    return rn_job_sleep(client->job, client->reply.cursor, fall_asleep, client);
}

// ---- beginning ----------------------------------------------------------------------------------

// The body's share of the request memory becomes the job's.
static bool settle_room(rn_client *client, uint64_t *out_bytes, rn_problem *out_problem) {
    rn_request_memory *memory = &client->http->server->memory;
    uint64_t want =
        rn_request_memory_bytes(client->body_bytes) + rn_request_extra_bytes(client->route->kind);
    if (want > client->memory_bytes && !rn_request_memory_take(memory, want - client->memory_bytes))
        return rn_problem_set_full(out_problem);
    if (want < client->memory_bytes) rn_request_memory_release(memory, client->memory_bytes - want);
    client->memory_bytes = 0;
    *out_bytes = want;
    return true;
}

// Whether the model makes what is asked for.
static bool check_kind(rn_request_kind kind, const rn_engine_facts *facts, rn_problem *out) {
    if (rn_request_embeds(kind) == facts->embeds && (kind == RN_REQUEST_RERANK) == facts->ranks)
        return true;
    if (facts->ranks)
        return rn_problem_set(out, 400, "no_embeddings", "",
                              "this model is a reranker: it makes scores; ask /v1/rerank");
    if (kind == RN_REQUEST_RERANK)
        return rn_problem_set(out, 400, "no_reranker", "",
                              "this server's model is no reranker; start it with one whose files "
                              "have a classifier of one label (bge-reranker, ms-marco-MiniLM)");
    if (facts->embeds)
        return rn_problem_set(out, 400, "no_text", "",
                              "this model makes embeddings, not text; ask /v1/embeddings");
    return rn_problem_set(out, 400, "no_embeddings", "",
                          "this server makes text with its model, not embeddings; start it with "
                          "--embeddings, or with a model that is for them");
}

static bool read_drawing(const rn_client *client, const rn_diffusion *images, rn_request *out,
                         rn_problem *out_problem) {
    rn_request_limits limits = {
        .model = rn_str_from(rn_engine_model_name(client->engine)),
        .image_multiple = rn_diffusion_get_info(images)->multiple,
        .strict_model = client->http->server->options.strict_model,
    };
    rn_str body = {client->body, client->body_bytes};
    return rn_request_read(client->route->kind, body, &limits, out, out_problem);
}

// Of several models, by the name that the body has; one that nobody has is anybody's.
static rn_engine *choose_engine(rn_client *client, rn_str body) {
    rn_server *server = client->http->server;
    char name[256];
    rn_engine *engine = NULL;
    if (server->engine_count == 1) return server->engine;
    if (rn_request_find_model(body, name, sizeof name))
        engine = rn_server_find(server, rn_str_from(name));
    return engine ? engine : rn_server_pick(server, client->route->kind);
}

// Of several models this one does not work: the others do.
static bool refuse_failed(rn_engine *engine, const rn_engine_facts *facts, rn_problem *out) {
    rn_problem why;
    rn_problem_from_error(&why, &facts->failure);
    return rn_problem_set(out, 503, "model_failed", "model", "%s cannot be served: %.380s",
                          rn_engine_model_name(engine), why.message);
}

static bool read_request(rn_client *client, rn_request *out, rn_problem *out_problem) {
    rn_str body = {client->body, client->body_bytes};
    rn_engine *engine = choose_engine(client, body);
    const rn_model *model = rn_engine_model(engine);
    rn_engine_facts facts;
    client->engine = engine;
    rn_engine_get_facts(engine, &facts);
    const rn_diffusion *images = rn_engine_diffusion(engine);
    if (!model && !images) return rn_phase_refuse(facts.phase, &facts.failure, out_problem);
    if (!model != (client->route->kind == RN_REQUEST_IMAGE))
        return rn_look_refuse_kind(engine, out_problem);
    if (images) return read_drawing(client, images, out, out_problem);
    if (client->http->server->engine_count > 1 && facts.phase == RN_ENGINE_FAILED)
        return refuse_failed(engine, &facts, out_problem);
    if (!check_kind(client->route->kind, &facts, out_problem)) return false;
    rn_request_limits limits = {
        .vocab_size = rn_model_get_info(model)->vocab_size,
        .choices = facts.sequences_max,
        .model = rn_str_from(rn_engine_model_name(engine)),
        .adapters = model,
        .advice = &rn_model_get_info(model)->sampling,
        .dimensions = rn_model_get_info(model)->dim,
        .has_chat = facts.has_chat,
        .strict_model = client->http->server->options.strict_model,
    };
    return rn_request_read(client->route->kind, body, &limits, out, out_problem);
}

// Once a name, and in all not more often than there are bits.
static bool is_new(rn_server *server, rn_str name) {
    uint64_t hash = rn_hash(name.data, name.bytes, 0), bit = (uint64_t)1 << hash % 64;
    _Atomic uint64_t *word =
        &server->told[hash / 64 % (sizeof server->told / sizeof *server->told)];
    return !(atomic_fetch_or(word, bit) & bit);
}

static void warn_of_unknown(const rn_client *client, const rn_request *request) {
    rn_server *server = client->http->server;
    rn_str served = rn_str_from(rn_engine_model_name(client->engine));
    bool other = request->model.bytes && !request->adapter &&
                 !rn_str_equal(request->model, served) &&
                 !rn_model_name_answers(served, request->model);
    if (request->unknown[0] && is_new(server, rn_str_from(request->unknown)))
        rn_log(RN_LOG_WARNING, "http",
               "requests have a field '%s', which nobody knows here: ignored", request->unknown);
    if (other && is_new(server, request->model))
        rn_log(RN_LOG_WARNING, "http",
               "requests ask for a model '%s', which is not here: '%.200s' answers (--strict-model "
               "refuses them)",
               rn_request_show(request->model).text, served.data);
}

static bool make_job(rn_client *client, rn_problem *out_problem) {
    rn_request_memory *memory = &client->http->server->memory;
    uint64_t bytes = 0;
    rn_request request;
    if (!settle_room(client, &bytes, out_problem)) return false;
    if (!read_request(client, &request, out_problem)) {
        client->memory_bytes = bytes;
        return false;
    }
    warn_of_unknown(client, &request);
    if (rn_job_create(&request, memory, bytes, client->who, wake, client, &client->job) == RN_OK) {
        bool apart = client->http->server->options.prefix_cache == RN_PREFIX_CACHE_KEY;
        client->job->owner = apart ? client->key : 0;
        return true;
    }
    rn_problem_from_error(out_problem, rn_last_error());
    return false;
}

// An adapter is a model of its own to those who ask for it.
static const char *name_of_answer(const rn_client *client) {
    rn_engine *engine = client->engine;
    uint32_t adapter = client->job->request.adapter;
    return adapter ? rn_model_adapter_name(rn_engine_model(engine), adapter - 1)
                   : rn_engine_model_name(engine);
}

static bool enter(rn_client *client, rn_problem *out_problem) {
    if (!make_job(client, out_problem)) return false;
    rn_engine *engine = client->engine;
    rn_http_free_body(client);
    if (!rn_engine_enter(engine, client->job, out_problem)) {
        rn_job_release(client->job);
        rn_job_release(client->job);
        client->job = NULL;
        return false;
    }
    rn_reply_begin(&client->reply, client->job, rn_engine_tokenizer(engine),
                   name_of_answer(client));
    return true;
}

void rn_http_job_end(rn_client *client) {
    rn_job *job = client->job;
    if (!job) return;
    client->job = NULL;
    if (rn_job_get_state(job) < RN_JOB_DONE) rn_engine_cancel(client->engine, job);
    rn_reply_free(&client->reply);
    rn_job_release(job);
}

// ---- answering ----------------------------------------------------------------------------------

static rn_step send_reply(rn_client *client, uint64_t bytes) {
    rn_head_text head;
    rn_head_begin(client, 200, rn_reply_type(&client->reply), &head);
    if (client->job->request.stream) rn_head_add(&head, "X-Accel-Buffering", "no");
    return rn_http_send_begin(client, &head, (rn_http_source){.file = -1, .reply = true}, bytes);
}

static rn_step send_whole(rn_client *client) {
    uint64_t bytes = 0;
    const rn_request *request = &client->job->request;
    if (request->dialect || request->kind == RN_REQUEST_EMBED)
        return send_reply(client, UINT64_MAX); // nobody has counted it
    if (rn_reply_measure(&client->reply, &bytes) == RN_OK) return send_reply(client, bytes);
    rn_problem problem;
    rn_problem_from_error(&problem, rn_last_error());
    return rn_http_refuse(client, &problem, NULL);
}

// As long as a stream merely waits, what goes wrong can still be told by a status.
static bool can_answer(const rn_job *job, rn_job_state state) {
    return state == RN_JOB_DONE || (job->request.stream && state == RN_JOB_RUNNING);
}

rn_step rn_http_job(rn_client *client) {
    rn_problem problem;
    if (!client->job && !enter(client, &problem)) return rn_http_refuse(client, &problem, NULL);
    for (;;) {
        rn_job_state state = rn_job_get_state(client->job);
        if (state == RN_JOB_CANCELLED) return RN_STEP_CLOSE;
        if (state == RN_JOB_FAILED) {
            problem = rn_job_get_problem(client->job);
            return rn_http_refuse(client, &problem, NULL);
        }
        if (can_answer(client->job, state))
            return client->job->request.stream ? send_reply(client, UINT64_MAX)
                                               : send_whole(client);
        if (rn_http_job_sleep(client)) return RN_STEP_SLEEP;
    }
}
