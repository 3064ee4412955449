// ollama_view.c — what Ollama's clients ask before they chat: which models are there, and which
// version this is. /api/tags and /api/ps list the same: the one that is loaded, and its adapters.
#include "server/look.h"

#include "base/json.h"
#include "base/sha256.h"
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

static void write_model(rn_json *json, rn_server *server, const char *name) {
    const rn_model_info *info = rn_model_get_info(rn_engine_model(server->engine));
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
    rn_engine_facts facts;
    if (rn_engine_model(server->engine)) return false;
    rn_engine_get_facts(server->engine, &facts);
    (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
    return true;
}

rn_status rn_handle_tags(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    const char *adapter = NULL;
    rn_json json;
    (void)request;
    if (refuse_unready(server, answer)) return RN_OK;
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "models");
    write_model(&json, server, rn_engine_model_name(server->engine));
    for (size_t i = 0; (adapter = rn_model_adapter_name(rn_engine_model(server->engine), i)); i++)
        write_model(&json, server, adapter);
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

// Whatever name is asked for: there is one model.
rn_status rn_handle_show(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    rn_engine_facts facts;
    rn_json json;
    (void)request;
    if (refuse_unready(server, answer)) return RN_OK;
    rn_engine_get_facts(server->engine, &facts);
    const rn_model_info *info = rn_model_get_info(rn_engine_model(server->engine));
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "modelfile", "");
    rn_json_string(&json, "parameters", "");
    rn_json_text(&json, "template", rn_model_chat_template(rn_engine_model(server->engine)));
    write_details(&json, info);
    rn_json_object(&json, "model_info");
    rn_json_string(&json, "general.architecture", info->architecture);
    rn_json_u64(&json, "general.parameter_count", info->parameters);
    rn_json_u64(&json, "context_length", facts.context);
    rn_json_end(&json);
    rn_json_array(&json, "capabilities");
    rn_json_string(&json, NULL, "completion");
    if (rn_tool_form_of(rn_model_chat_template(rn_engine_model(server->engine))))
        rn_json_string(&json, NULL, "tools");
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}
