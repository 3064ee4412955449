// ollama_view.c — what Ollama's clients ask before they chat: which models are there, and which
// version this is. /api/tags lists models and their adapters, /api/ps those of them that are
// loaded.
#include "server/look.h"

#include "base/json.h"
#include "base/sha256.h"
#include "base/str.h"
#include "text/tool_calls.h"

#include <ration/ration.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

static void write_details(rn_json *json, const rn_model_info *info) {
    char size[32];
    double parameters = (double)info->parameters;
    snprintf(size, sizeof size, parameters >= 1e9 ? "%.1fB" : "%.1fM",
             parameters / (parameters >= 1e9 ? 1e9 : 1e6));
    rn_json_object(json, "details");
    rn_json_string(json, "parent_model", "");
    rn_json_string(json, "format", "ration");
    rn_json_string(json, "family", info->architecture);
    rn_json_array(json, "families");
    rn_json_string(json, NULL, info->architecture);
    rn_json_end(json);
    rn_json_string(json, "parameter_size", size);
    rn_json_string(json, "quantization_level", info->weights);
    rn_json_end(json);
}

// Of the name and the size: the weights are not read for it.
static void write_digest(rn_json *json, const char *name, uint64_t bytes) {
    uint8_t digest[RN_SHA256_BYTES];
    char text[2 * RN_SHA256_BYTES + 1];
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, name, strlen(name));
    rn_sha256_add(&hash, &bytes, sizeof bytes);
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, text);
    rn_json_string(json, "digest", text);
}

static void write_model(rn_json *json, const rn_server *server, rn_engine *engine,
                        const char *name) {
    const rn_model_info *info = rn_model_get_info(rn_engine_model(engine));
    char when[40];
    struct tm utc;
    time_t started = (time_t)server->started;
    gmtime_r(&started, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    rn_json_object(json, NULL);
    rn_json_string(json, "name", name);
    rn_json_string(json, "model", name);
    rn_json_string(json, "modified_at", when);
    rn_json_u64(json, "size", info->weight_bytes);
    write_digest(json, name, info->weight_bytes);
    write_details(json, info);
    rn_json_end(json);
}

static bool refuse_unready(rn_server *server, rn_http_answer *answer) {
    return !rn_look_model(server->engine, &answer->problem);
}

rn_status rn_handle_tags(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    const char *adapter = NULL;
    rn_json json;
    bool running = strcmp(request->path, "/api/ps") == 0;
    if (refuse_unready(server, answer)) return RN_OK;
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "models");
    for (uint32_t e = 0; e < server->engine_count; e++) {
        rn_engine *engine = server->engines[e];
        if (!rn_engine_model(engine) || (running && !rn_engine_get_presence(engine).loaded))
            continue;
        write_model(&json, server, engine, rn_engine_model_name(engine));
        for (size_t i = 0; (adapter = rn_model_adapter_name(rn_engine_model(engine), i)); i++)
            write_model(&json, server, engine, adapter);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_handle_version(rn_server *server, const rn_http_request *request,
                            rn_http_answer *answer) {
    rn_json json;
    (void)server, (void)request;
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "version", rn_version());
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// By "model" in the body; whatever name that is, where there is one model.
rn_status rn_handle_show(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    rn_engine_facts facts;
    rn_json json;
    char name[256];
    rn_engine *engine = NULL;
    if (refuse_unready(server, answer)) return RN_OK;
    if (rn_request_find_model(request->body, name, sizeof name))
        engine = rn_server_find(server, rn_str_from(name));
    if (!engine) engine = server->engine;
    rn_engine_get_facts(engine, &facts);
    const rn_model_info *info = rn_model_get_info(rn_engine_model(engine));
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "modelfile", "");
    rn_json_string(&json, "parameters", "");
    rn_json_text(&json, "template", rn_model_chat_template(rn_engine_model(engine)));
    write_details(&json, info);
    rn_json_object(&json, "model_info");
    rn_json_string(&json, "general.architecture", info->architecture);
    rn_json_u64(&json, "general.parameter_count", info->parameters);
    rn_json_u64(&json, "context_length", facts.context);
    if (facts.embeds && !facts.ranks) rn_json_u64(&json, "embedding_length", facts.dimensions);
    rn_json_end(&json);
    rn_json_array(&json, "capabilities");
    rn_json_string(&json, NULL, facts.ranks ? "rerank" : facts.embeds ? "embedding" : "completion");
    if (!facts.embeds && rn_tool_form_of(rn_model_chat_template(rn_engine_model(engine))))
        rn_json_string(&json, NULL, "tools");
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}
