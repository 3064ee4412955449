// http_ask.c — a request that becomes a job. Its connection sleeps (is suspended) while there is
// nothing to send; each sleep ends by exactly one `wake`, and only by that, so nobody is woken who
// is no longer there.
#include "server/http_parts.h"

#include "base/str.h"
#include "memory/account.h"

// ---- sleeping -----------------------------------------------------------------------------------

// Called with the job's lock: a wake comes later.
static void fall_asleep(void *self) {
    rn_client *client = self;
    atomic_store(&client->asleep, true);
    client->http->mhd->suspend_connection(client->connection);
}

// On the engine's thread. The lock keeps the watcher from writing to a socket that is
// libmicrohttpd's again.
static void wake(void *self) {
    rn_client *client = self;
    rn_http *http = client->http;
    pthread_mutex_lock(&http->lock);
    if (atomic_exchange(&client->asleep, false)) http->mhd->resume_connection(client->connection);
    pthread_cond_broadcast(&http->changed);
    pthread_mutex_unlock(&http->lock);
}

// False: there is something to do at once, or all is ending: who fell asleep behind wake_all's back
// would be woken by nobody.
static bool sleep_on_job(rn_client *client) {
    rn_http *http = client->http;
    pthread_mutex_lock(&http->lock);
    bool sleeps = !atomic_load(&http->ending) &&
                  rn_job_sleep(client->job, client->reply.cursor, fall_asleep, client);
    pthread_mutex_unlock(&http->lock);
    return sleeps;
}

void rn_http_ask_cancel(rn_client *client) {
    rn_http *http = client->http;
    if (client->cancelled || !client->job) return;
    client->cancelled = client->pinned = true;
    pthread_mutex_unlock(&http->lock);
    rn_engine_cancel(http->server->engine, client->job);
    pthread_mutex_lock(&http->lock);
    client->pinned = false;
    pthread_cond_broadcast(&http->changed);
}

// ---- beginning ----------------------------------------------------------------------------------

// The body's share of the room becomes the job's.
static bool settle_room(rn_client *client, uint64_t *out_bytes, rn_problem *out_problem) {
    rn_room *room = &client->http->server->room;
    uint64_t want = rn_ask_room_bytes(client->body_bytes);
    if (want > client->room_bytes && !rn_room_take(room, want - client->room_bytes))
        return rn_problem_set_full(out_problem);
    if (want < client->room_bytes) rn_room_give_back(room, client->room_bytes - want);
    client->room_bytes = 0;
    *out_bytes = want;
    return true;
}

static bool read_ask(rn_client *client, rn_ask *out, rn_problem *out_problem) {
    rn_engine *engine = client->http->server->engine;
    const rn_model *model = rn_engine_model(engine);
    rn_engine_facts facts;
    rn_engine_get_facts(engine, &facts);
    if (!model) return rn_phase_refuse(facts.phase, &facts.failure, out_problem);
    rn_ask_limits limits = {
        .vocab_size = rn_model_get_info(model)->vocab_size,
        .choices = facts.sequences_max,
        .max_tokens = client->http->server->options.limits.answer_tokens,
        .model = rn_str_from(rn_engine_model_name(engine)),
    };
    rn_str body = {client->body, client->body_bytes};
    return rn_ask_read(client->route->ask, body, &limits, out, out_problem);
}

static bool make_job(rn_client *client, rn_problem *out_problem) {
    rn_room *room = &client->http->server->room;
    uint64_t bytes = 0;
    rn_ask ask;
    if (!settle_room(client, &bytes, out_problem)) return false;
    if (!read_ask(client, &ask, out_problem)) {
        client->room_bytes = bytes;
        return false;
    }
    if (rn_job_create(&ask, room, bytes, client->who, wake, client, &client->job) == RN_OK) {
        bool apart = client->http->server->options.prefix_cache == RN_PREFIX_CACHE_KEY;
        client->job->owner = apart ? client->key : 0;
        return true;
    }
    rn_problem_from_story(out_problem, rn_last_story());
    return false;
}

static bool enter(rn_client *client, rn_problem *out_problem) {
    rn_engine *engine = client->http->server->engine;
    if (!make_job(client, out_problem)) return false;
    rn_http_free_body(client);
    if (!rn_engine_enter(engine, client->job, out_problem)) {
        rn_job_release(client->job);
        rn_job_release(client->job);
        client->job = NULL;
        return false;
    }
    rn_reply_begin(&client->reply, client->job, rn_engine_tokenizer(engine),
                   rn_engine_model_name(engine));
    return true;
}

void rn_http_ask_end(rn_client *client) {
    rn_http *http = client->http;
    if (!client->job) return;
    pthread_mutex_lock(&http->lock);
    while (client->pinned)
        pthread_cond_wait(&http->changed, &http->lock);
    rn_job *job = client->job;
    client->job = NULL;
    client->doomed = client->cancelled = false;
    pthread_mutex_unlock(&http->lock);
    if (rn_job_get_state(job) < RN_JOB_DONE) rn_engine_cancel(http->server->engine, job);
    rn_reply_free(&client->reply);
    rn_job_release(job);
}

// ---- answering ----------------------------------------------------------------------------------

static ssize_t read_reply(void *self, uint64_t position, char *out, size_t capacity) {
    rn_client *client = self;
    (void)position;
    for (;;) {
        size_t count = 0;
        rn_reply_news news = rn_reply_read(&client->reply, out, capacity, &count);
        if (news == RN_REPLY_BYTES_MADE) return (ssize_t)count;
        if (news == RN_REPLY_END) return MHD_CONTENT_READER_END_OF_STREAM;
        bool cut = news == RN_REPLY_BROKEN || rn_job_get_state(client->job) == RN_JOB_CANCELLED;
        if (cut || atomic_load(&client->http->ending)) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (sleep_on_job(client)) return 0;
    }
}

static enum MHD_Result send_reply(rn_client *client, uint64_t bytes) {
    const rn_mhd *mhd = client->http->mhd;
    struct MHD_Response *response =
        mhd->create_response_from_callback(bytes, RN_HTTP_PART_BYTES, read_reply, client, NULL);
    if (!response) return MHD_NO;
    rn_http_dress(client, response, rn_reply_type(&client->reply));
    if (client->job->ask.stream)
        (void)mhd->add_response_header(response, "X-Accel-Buffering", "no");
    return rn_http_send(client, 200, response);
}

static enum MHD_Result send_whole(rn_client *client) {
    uint64_t bytes = 0;
    if (rn_reply_measure(&client->reply, &bytes) == RN_OK) return send_reply(client, bytes);
    rn_problem problem;
    rn_problem_from_story(&problem, rn_last_story());
    return rn_http_refuse(client, &problem, NULL);
}

// As long as a stream merely waits, what goes wrong can still be told by a status.
static bool can_answer(const rn_job *job, rn_job_state state) {
    return state == RN_JOB_DONE || (job->ask.stream && state == RN_JOB_RUNNING);
}

enum MHD_Result rn_http_ask(rn_client *client) {
    rn_problem problem;
    if (!client->job && !enter(client, &problem)) return rn_http_refuse(client, &problem, NULL);
    for (;;) {
        if (atomic_load(&client->http->ending)) return MHD_NO;
        rn_job_state state = rn_job_get_state(client->job);
        if (state == RN_JOB_CANCELLED) return MHD_NO;
        if (state == RN_JOB_FAILED) {
            problem = rn_job_get_problem(client->job);
            return rn_http_refuse(client, &problem, NULL);
        }
        if (can_answer(client->job, state))
            return client->job->ask.stream ? send_reply(client, MHD_SIZE_UNKNOWN)
                                           : send_whole(client);
        if (sleep_on_job(client)) return MHD_YES;
    }
}
