// models.c — /v1/models: the model and its named adapters, in OpenAI's shape, with what is known as
// "meta".
#include "server/look.h"

#include "base/json.h"
#include "base/str.h"

#include <string.h>

bool rn_look_refuse_kind(rn_engine *engine, rn_problem *out) {
    const char *name = rn_engine_model_name(engine);
    if (rn_engine_diffusion(engine))
        return rn_problem_set(out, 400, "unsupported_model", "model",
                              "'%.80s' draws pictures: ask /v1/images/generations", name);
    return rn_problem_set(out, 400, "unsupported_model", "model",
                          "'%.80s' writes text: a server of an image model draws", name);
}

const rn_model *rn_look_model(rn_engine *engine, rn_problem *out) {
    const rn_model *model = rn_engine_model(engine);
    rn_engine_facts facts;
    if (model) return model;
    rn_engine_get_facts(engine, &facts);
    if (rn_engine_diffusion(engine))
        (void)rn_look_refuse_kind(engine, out);
    else
        (void)rn_phase_refuse(facts.phase, &facts.failure, out);
    return NULL;
}

// What an image model is made of.
static void write_parts(rn_json *json, const rn_diffusion_info *info) {
    rn_json_object(json, "meta");
    rn_json_string(json, "architecture", info->family);
    rn_json_u64(json, "parameters", info->parameters);
    rn_json_u64(json, "weight_bytes", info->weight_bytes);
    rn_json_u64(json, "size", info->size);
    rn_json_u64(json, "size_multiple", info->multiple);
    rn_json_u64(json, "steps", info->steps);
    rn_json_f64(json, "guidance", info->guidance);
    rn_json_string(json, "scheduler", rn_scheduler_name(info->scheduler));
    rn_json_array(json, "parts");
    for (uint32_t i = 0; i < info->part_count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", info->parts[i].name);
        rn_json_string(json, "kind", info->parts[i].kind);
        rn_json_u64(json, "parameters", info->parts[i].parameters);
        rn_json_u64(json, "weight_bytes", info->parts[i].weight_bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

// "loaded", "unloaded" (a request loads it), "failed".
const char *rn_model_state(rn_engine *engine) {
    rn_engine_facts facts;
    rn_engine_get_facts(engine, &facts);
    if (facts.phase == RN_ENGINE_FAILED) return "failed";
    return rn_engine_get_presence(engine).loaded ? "loaded" : "unloaded";
}

static void write_meta(rn_json *json, rn_engine *engine, const rn_engine_facts *facts) {
    const rn_model_info *info = rn_model_get_info(rn_engine_model(engine));
    rn_json_object(json, "meta");
    rn_json_string(json, "state", rn_model_state(engine));
    rn_json_string(json, "architecture", info->architecture);
    rn_json_u64(json, "parameters", info->parameters);
    rn_json_u64(json, "weight_bytes", info->weight_bytes);
    rn_json_string(json, "weights", info->weights);
    rn_json_u64(json, "layers", info->layers);
    rn_json_u64(json, "vocab_size", info->vocab_size);
    rn_json_u64(json, "context", facts->context);
    rn_json_u64(json, "context_trained", info->context);
    if (facts->ranks) rn_json_bool(json, "ranks", true);
    if (facts->embeds && !facts->ranks) rn_json_u64(json, "dimensions", facts->dimensions);
    rn_json_end(json);
}

// adapter NULL: the model itself.
static void write_model(rn_json *json, const rn_server *server, rn_engine *engine,
                        const char *adapter) {
    const char *model = rn_engine_model_name(engine);
    rn_engine_facts facts;
    rn_engine_get_facts(engine, &facts);
    rn_json_object(json, NULL);
    rn_json_string(json, "id", adapter ? adapter : model);
    rn_json_string(json, "object", "model");
    rn_json_i64(json, "created", server->started);
    rn_json_string(json, "owned_by", "ration");
    if (adapter) rn_json_string(json, "parent", model);
    const rn_diffusion *images = rn_engine_diffusion(engine);
    if (images)
        write_parts(json, rn_diffusion_get_info(images));
    else
        write_meta(json, engine, &facts);
    rn_json_end(json);
}

static const char *name_adapter(rn_engine *engine, size_t index) {
    const rn_model *model = rn_engine_model(engine);
    return model ? rn_model_adapter_name(model, index) : NULL;
}

static void write_list(rn_json *json, const rn_server *server) {
    const char *adapter = NULL;
    rn_json_object(json, NULL);
    rn_json_string(json, "object", "list");
    rn_json_array(json, "data");
    for (uint32_t e = 0; e < server->engine_count; e++) {
        rn_engine *engine = server->engines[e];
        write_model(json, server, engine, NULL);
        for (size_t i = 0; (adapter = name_adapter(engine, i)); i++)
            write_model(json, server, engine, adapter);
    }
    rn_json_end(json);
    rn_json_end(json);
}

// What stands behind "/models/"; NULL: the whole list is wanted.
static const char *wanted_name(const char *path) {
    static const char segment[] = "/models/";
    const char *found = strstr(path, segment);
    return found ? found + strlen(segment) : NULL;
}

// The adapter that the name stands for; NULL: the model itself.
static const char *find_adapter(rn_engine *engine, const char *name) {
    const char *adapter = NULL;
    for (size_t i = 0; (adapter = name_adapter(engine, i)); i++)
        if (strcmp(name, adapter) == 0) break;
    return adapter;
}

rn_status rn_handle_models(rn_server *server, const rn_http_request *request,
                           rn_http_answer *answer) {
    const char *name = wanted_name(request->path);
    rn_engine_facts facts;
    rn_json json;
    rn_engine_get_facts(server->engine, &facts);
    if (!rn_engine_model(server->engine) && !rn_engine_diffusion(server->engine)) {
        (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
        return RN_OK;
    }
    rn_engine *engine = name ? rn_server_find(server, rn_str_from(name)) : NULL;
    if (name && !engine) {
        (void)rn_problem_set(&answer->problem, 404, "model_not_found", "model",
                             "there is no model '%.80s'; see /v1/models", name);
        return RN_OK;
    }
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    if (name)
        write_model(&json, server, engine, find_adapter(engine, name));
    else
        write_list(&json, server);
    return rn_json_finish(&json);
}
