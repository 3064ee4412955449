// models.c — /v1/models: the model and its named adapters, in OpenAI's shape, with what is known as
// "meta".
#include "server/look.h"

#include "base/json.h"

#include <string.h>

static void write_meta(rn_json *json, const rn_model_info *info, const rn_engine_facts *facts) {
    rn_json_object(json, "meta");
    rn_json_string(json, "architecture", info->architecture);
    rn_json_u64(json, "parameters", info->parameters);
    rn_json_u64(json, "weight_bytes", info->weight_bytes);
    rn_json_string(json, "weights", info->weights);
    rn_json_u64(json, "layers", info->layers);
    rn_json_u64(json, "vocab_size", info->vocab_size);
    rn_json_u64(json, "context", facts->context);
    rn_json_u64(json, "context_trained", info->context);
    rn_json_end(json);
}

// adapter NULL: the model itself.
static void write_model(rn_json *json, rn_server *server, const char *adapter,
                        const rn_engine_facts *facts) {
    const char *model = rn_engine_model_name(server->engine);
    rn_json_object(json, NULL);
    rn_json_string(json, "id", adapter ? adapter : model);
    rn_json_string(json, "object", "model");
    rn_json_i64(json, "created", server->started);
    rn_json_string(json, "owned_by", "ration");
    if (adapter) rn_json_string(json, "parent", model);
    write_meta(json, rn_model_get_info(rn_engine_model(server->engine)), facts);
    rn_json_end(json);
}

static void write_list(rn_json *json, rn_server *server, const rn_engine_facts *facts) {
    const char *adapter = NULL;
    rn_json_object(json, NULL);
    rn_json_string(json, "object", "list");
    rn_json_array(json, "data");
    write_model(json, server, NULL, facts);
    for (size_t i = 0; (adapter = rn_model_adapter_name(rn_engine_model(server->engine), i)); i++)
        write_model(json, server, adapter, facts);
    rn_json_end(json);
    rn_json_end(json);
}

// What stands behind "/models/"; NULL: the whole list is wanted.
static const char *wanted_name(const char *path) {
    static const char segment[] = "/models/";
    const char *found = strstr(path, segment);
    return found ? found + strlen(segment) : NULL;
}

// False: there is no such model. *out: the adapter that the name stands for, NULL: the model
// itself.
static bool find_model(rn_server *server, const char *name, const char **out) {
    *out = NULL;
    if (strcmp(name, rn_engine_model_name(server->engine)) == 0) return true;
    for (size_t i = 0; (*out = rn_model_adapter_name(rn_engine_model(server->engine), i)); i++)
        if (strcmp(name, *out) == 0) return true;
    return false;
}

rn_status rn_handle_models(rn_server *server, const rn_http_request *request,
                           rn_http_answer *answer) {
    const char *name = wanted_name(request->path), *adapter = NULL;
    rn_engine_facts facts;
    rn_json json;
    rn_engine_get_facts(server->engine, &facts);
    if (!rn_engine_model(server->engine)) {
        (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
        return RN_OK;
    }
    if (name && !find_model(server, name, &adapter)) {
        (void)rn_problem_set(&answer->problem, 404, "model_not_found", "model",
                             "there is no model '%.80s'; see /v1/models", name);
        return RN_OK;
    }
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    if (name)
        write_model(&json, server, adapter, &facts);
    else
        write_list(&json, server, &facts);
    return rn_json_finish(&json);
}
