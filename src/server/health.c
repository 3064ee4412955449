// health.c — is it alive, does it take requests, and how is it: what probes ask, and what the page
// at / draws once a second. It reads counters and small files of the system, nothing else.
#include "server/look.h"

#include "base/clock.h"
#include "base/json.h"
#include "memory/device_usage.h"

#include <ration/ration.h>

#include <string.h>

uint64_t rn_budget_of(rn_device_id device, const rn_engine_facts *facts) {
    uint64_t soft = 0, hard = 0;
    if (device == RN_DEVICE_HOST && facts->budget_bytes) return facts->budget_bytes;
    rn_budget_get(device, &soft, &hard);
    return hard == RN_NO_LIMIT ? 0 : hard;
}

// ---- alive, ready -------------------------------------------------------------------------------

static rn_status write_status(rn_http_answer *answer, const char *status) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "status", status);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_handle_live(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    (void)server, (void)request;
    return write_status(answer, "alive");
}

rn_status rn_handle_ready(rn_server *server, const rn_http_request *request,
                          rn_http_answer *answer) {
    (void)request;
    rn_engine_facts facts;
    rn_engine_get_facts(server->engine, &facts);
    if (facts.phase == RN_ENGINE_READY) return write_status(answer, rn_phase_name(facts.phase));
    (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
    return RN_OK;
}

// ---- how it is ----------------------------------------------------------------------------------

static void write_purposes(rn_json *json, rn_device_id device) {
    rn_json_object(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        rn_ledger_line line = rn_ledger_read(device, (rn_purpose)p);
        if (line.peak_bytes) rn_json_u64(json, rn_purpose_name((rn_purpose)p), line.now_bytes);
    }
    rn_json_end(json);
}

static void write_limit(rn_json *json, const char *key, uint64_t bytes) {
    if (bytes && bytes != RN_NO_LIMIT)
        rn_json_u64(json, key, bytes);
    else
        rn_json_null(json, key);
}

static void write_device(rn_json *json, rn_device_id device, const rn_engine_facts *facts) {
    rn_ledger_line total = rn_ledger_total(device);
    rn_json_object(json, NULL);
    rn_json_string(json, "device", rn_device_name(device));
    rn_json_u64(json, "bytes", total.now_bytes);
    rn_json_u64(json, "peak_bytes", total.peak_bytes);
    write_limit(json, "budget_bytes", rn_budget_of(device, facts));
    write_purposes(json, device);
    rn_device_usage usage;
    if (rn_device_usage_read(device, &usage)) {
        rn_json_object(json, "driver");
        rn_device_usage_json(&usage, json);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_memory(rn_json *json, rn_server *server, const rn_engine_facts *facts) {
    rn_process_info process = {0};
    (void)!rn_process_read(&process);
    rn_json_object(json, "memory");
    write_limit(json, "budget_bytes", facts->budget_bytes);
    write_limit(json, "predicted_peak_bytes", facts->predicted_bytes);
    rn_json_u64(json, "resident_bytes", process.resident_bytes);
    rn_json_u64(json, "resident_peak_bytes", process.resident_peak_bytes);
    write_limit(json, "container_limit_bytes",
                process.cgroup_version ? process.cgroup_limit_bytes : RN_NO_LIMIT);
    rn_json_u64(json, "streamed_bytes", facts->streamed_bytes);
    rn_json_u64(json, "requests_bytes", rn_engine_request_bytes(server->engine));
    rn_json_u64(json, "requests_limit_bytes", server->memory.total_bytes);
    rn_json_array(json, "devices");
    for (size_t d = 0; d < rn_device_count(); d++)
        if (d == RN_DEVICE_HOST || rn_ledger_total((rn_device_id)d).peak_bytes)
            write_device(json, (rn_device_id)d, facts);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_kv(rn_json *json, const rn_engine_facts *facts) {
    const rn_generator_facts *g = &facts->generator;
    rn_json_object(json, "kv");
    rn_json_u64(json, "pages_used", g->kv_pages);
    rn_json_u64(json, "pages_kept", g->kv_pages_kept);
    rn_json_u64(json, "pages_total", g->kv_pages_total);
    rn_json_u64(json, "page_bytes", g->kv_page_bytes);
    rn_json_u64(json, "page_tokens", facts->page_tokens);
    rn_json_end(json);
}

// Experts on demand: the slots of each layer, and what runs have read so far.
static void write_experts(rn_json *json, const rn_engine_facts *facts) {
    const rn_session_facts *s = &facts->generator.session;
    if (facts->expert_layers == 0) return;
    rn_json_object(json, "experts");
    rn_json_u64(json, "layers", facts->expert_layers);
    rn_json_u64(json, "of_a_layer", facts->experts);
    rn_json_u64(json, "slots", facts->expert_slots);
    rn_json_u64(json, "slot_bytes", facts->expert_slot_bytes);
    rn_json_u64(json, "needed", s->experts_needed);
    rn_json_u64(json, "missed", s->experts_missed);
    if (s->experts_needed)
        rn_json_f64(json, "hit_rate", 1 - (double)s->experts_missed / (double)s->experts_needed);
    rn_json_u64(json, "read_bytes", s->expert_read_bytes);
    rn_json_end(json);
}

static void write_queue(rn_json *json, rn_server *server, const rn_engine_facts *facts) {
    rn_json_object(json, "queue");
    rn_json_u64(json, "running", facts->running);
    rn_json_u64(json, "waiting", facts->waiting);
    rn_json_u64(json, "waiting_limit", server->options.limits.waiting);
    rn_json_u64(json, "sequences", facts->sequences);
    rn_json_u64(json, "sequences_limit", facts->sequences_max);
    rn_json_u64(json, "connections", atomic_load(&server->metrics.connections_now));
    rn_json_u64(json, "connections_limit", server->options.limits.connections);
    rn_json_end(json);
}

// The message may name files; rn_problem_from_error leaves their folders out.
static void write_failure(rn_json *json, const rn_error_info *error) {
    const rn_error_class *class = rn_error_classify(error);
    rn_problem problem = {0};
    rn_problem_from_error(&problem, error);
    rn_json_object(json, "failure");
    rn_json_string(json, "class", class->name);
    rn_json_string(json, "meaning", class->meaning);
    rn_json_string(json, "hint", class->hint);
    rn_json_string(json, "message", problem.message);
    rn_json_end(json);
}

static void write_target(rn_json *json, rn_engine *engine, const rn_engine_facts *facts) {
    size_t bytes = strcspn(facts->target, ":");
    if (facts->target[0]) {
        rn_json_string(json, "device", facts->target);
        rn_json_text(json, "device_type", (rn_str){facts->target, bytes});
        rn_json_u64(json, "target_index", facts->target_index);
    } else {
        rn_json_null(json, "device");
        rn_json_null(json, "device_type");
        rn_json_null(json, "target_index");
    }
    if (facts->program[0]) rn_json_string(json, "program", facts->program);
    rn_engine_ladder_json(engine, json, "ladder");
}

// Of several models: which are loaded, and what is promised to each.
static void write_models(rn_json *json, const rn_server *server) {
    rn_json_array(json, "models");
    for (uint32_t i = 0; i < server->engine_count; i++) {
        rn_engine *engine = server->engines[i];
        rn_engine_presence presence = rn_engine_get_presence(engine);
        rn_engine_facts facts;
        rn_engine_get_facts(engine, &facts);
        rn_json_object(json, NULL);
        rn_json_string(json, "name", rn_engine_model_name(engine));
        rn_json_string(json, "state", rn_model_state(engine));
        write_limit(json, "share_bytes", presence.share_bytes);
        rn_json_u64(json, "loads", presence.loads);
        rn_json_u64(json, "running", facts.running);
        rn_json_u64(json, "waiting", facts.waiting);
        rn_json_bool(json, "embeddings", facts.embeds && !facts.ranks);
        rn_json_bool(json, "rerank", facts.ranks);
        if (facts.phase == RN_ENGINE_FAILED) write_failure(json, &facts.failure);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_rank(void *self, const rn_rank_share *share) {
    rn_json *json = self;
    bool limited = share->budget_bytes != RN_NO_LIMIT;
    rn_json_object(json, NULL);
    rn_json_u64(json, "rank", share->rank);
    rn_json_string(json, "split", share->split == RN_SPLIT_HEADS ? "heads" : "layers");
    rn_json_string(json, "first_block", share->first_name);
    rn_json_string(json, "last_block", share->last_name);
    rn_json_string(json, "device", share->device);
    write_limit(json, "budget_bytes", limited ? share->budget_bytes : 0);
    rn_json_u64(json, "planned_bytes", share->planned_bytes);
    rn_json_object(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (share->purpose_bytes[p])
            rn_json_u64(json, rn_purpose_name((rn_purpose)p), share->purpose_bytes[p]);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_ranks(rn_json *json, rn_engine *engine) {
    rn_json_array(json, "ranks");
    rn_engine_each_share(engine, write_rank, json);
    rn_json_end(json);
}

static void write_health(rn_json *json, rn_server *server, const rn_engine_facts *facts) {
    uint64_t now = rn_clock_ns();
    rn_json_object(json, NULL);
    rn_json_string(json, "status", rn_phase_name(facts->phase));
    rn_engine *shown = rn_server_loaded(server);
    rn_json_string(json, "model", rn_engine_model_name(shown));
    if (server->engine_count > 1) write_models(json, server);
    write_target(json, shown, facts);
    if (facts->phase == RN_ENGINE_FAILED) write_failure(json, &facts->failure);
    write_memory(json, server, facts);
    write_ranks(json, shown);
    write_kv(json, facts);
    write_experts(json, facts);
    write_queue(json, server, facts);
    rn_json_u64(json, "context", facts->context);
    rn_json_bool(json, "chat", facts->has_chat);
    rn_json_bool(json, "embeddings", facts->embeds && !facts->ranks);
    rn_json_bool(json, "rerank", facts->ranks);
    rn_json_bool(json, "images", rn_engine_diffusion(server->engine) != NULL);
    rn_json_f64(json, "tokens_per_second", rn_rate_get(&server->metrics.new_tokens, now));
    rn_json_f64(json, "uptime_seconds", (double)(now - server->started_ns) * 1e-9);
    rn_json_string(json, "version", rn_version());
    rn_json_end(json);
}

// 503 unless requests are taken in; the body says how it is in any case.
rn_status rn_handle_health(rn_server *server, const rn_http_request *request,
                           rn_http_answer *answer) {
    (void)request;
    rn_engine_facts facts;
    rn_json json;
    rn_engine_get_facts(rn_server_loaded(server), &facts);
    if (facts.phase != RN_ENGINE_READY) {
        (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
        answer->status = answer->problem.http;
        answer->problem.http = 0; // the body says more than a problem can
    }
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    write_health(&json, server, &facts);
    return rn_json_finish(&json);
}
