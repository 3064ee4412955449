// fake_engine.h — an engine that says what a test wants it to say, in the place of the real one:
// the linker takes these, and the library's engine stays out of the program. Included once.
#ifndef RN_TEST_FAKE_ENGINE_H
#define RN_TEST_FAKE_ENGINE_H

#include "memory/account.h"
#include "server/server.h"

#include "support.h"

static struct {
    rn_engine_facts facts;
    rn_model *model;
    const char *name, *plan; // plan NULL: there is none yet
    const char *query;       // ?format=
    uint64_t request_bytes;
} fake;

const char *rn_phase_name(rn_engine_phase phase) {
    static const char *const names[] = {"loading", "ready", "draining", "failed"};
    return names[phase];
}

void rn_engine_get_facts(rn_engine *engine, rn_engine_facts *out) {
    (void)engine;
    *out = fake.facts;
}

rn_engine_presence rn_engine_get_presence(rn_engine *engine) {
    (void)engine;
    return (rn_engine_presence){.loaded = true, .loads = 1};
}

const rn_model *rn_engine_model(rn_engine *engine) {
    (void)engine;
    return fake.model;
}

const rn_diffusion *rn_engine_diffusion(rn_engine *engine) {
    (void)engine;
    return NULL; // it writes
}

const char *rn_engine_model_name(rn_engine *engine) {
    (void)engine;
    return fake.name;
}

void rn_engine_ladder_json(rn_engine *engine, rn_json *json, const char *key) {
    (void)engine;
    rn_json_object(json, key);
    rn_json_end(json);
}

uint64_t rn_engine_request_bytes(rn_engine *engine) {
    (void)engine;
    return fake.request_bytes;
}

void rn_engine_each_share(rn_engine *engine, void (*each)(void *self, const rn_rank_share *share),
                          void *self) {
    (void)engine, (void)each, (void)self; // one process
}

rn_status rn_engine_plan_json(rn_engine *engine, rn_sink sink) {
    (void)engine;
    if (!fake.plan) return rn_fail(RN_NOT_FOUND, "there is no plan yet");
    return rn_sink_write(sink, fake.plan, strlen(fake.plan));
}

const char *rn_http_query(const rn_http_request *request, const char *name) {
    (void)request;
    return strcmp(name, "format") == 0 ? fake.query : NULL;
}

// A server that is ready, on the CPU.
static inline void fake_begin(rn_server *server) {
    memset(&fake, 0, sizeof fake);
    memset(server, 0, sizeof *server);
    fake.name = "story";
    fake.facts.phase = RN_ENGINE_READY;
    snprintf(fake.facts.target, sizeof fake.facts.target, "cpu");
    server->started = 1700000000;
    server->engine = (rn_engine *)(void *)&fake; // nobody looks into it
    server->engines = &server->engine;
    server->engine_count = 1;
}

// What a handler answers; the body ends with a zero for the test to read. To be freed.
static inline rn_http_answer fake_ask(rn_server *server, rn_handler handler, const char *path,
                                      const char *body) {
    rn_http_request request = {.method = "GET", .path = path, .body = {body, strlen(body)}};
    rn_http_answer answer = {.status = 200, .type = "application/json", .file = -1};
    rn_buffer_init(&answer.body, RN_HOST_IO, (size_t)64 << 20);
    assert_ok(handler(server, &request, &answer));
    assert_ok(rn_buffer_append(&answer.body, "", 1));
    return answer;
}

#endif
