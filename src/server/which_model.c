// which_model.c — of several models, the one that a request is for.
#include "base/str.h"
#include "server/server.h"

static bool is_called(rn_engine *engine, rn_str name) {
    const rn_model *model = rn_engine_model(engine);
    const char *adapter = NULL;
    if (rn_str_equal(name, rn_str_from(rn_engine_model_name(engine)))) return true;
    for (size_t i = 0; model && (adapter = rn_model_adapter_name(model, i)); i++)
        if (rn_str_equal(name, rn_str_from(adapter))) return true;
    return false;
}

rn_engine *rn_server_find(rn_server *server, rn_str name) {
    for (uint32_t i = 0; i < server->engine_count; i++)
        if (is_called(server->engines[i], name)) return server->engines[i];
    for (uint32_t i = 0; i < server->engine_count; i++)
        if (rn_model_name_answers(rn_str_from(rn_engine_model_name(server->engines[i])), name))
            return server->engines[i];
    return NULL;
}

rn_engine *rn_server_pick(rn_server *server, rn_request_kind kind) {
    rn_engine_facts facts;
    for (uint32_t i = 0; i < server->engine_count; i++) {
        rn_engine_get_facts(server->engines[i], &facts);
        if (facts.phase != RN_ENGINE_FAILED && facts.embeds == rn_request_embeds(kind) &&
            facts.ranks == (kind == RN_REQUEST_RERANK))
            return server->engines[i];
    }
    return server->engine;
}

rn_engine *rn_server_loaded(rn_server *server) {
    for (uint32_t i = 0; i < server->engine_count; i++)
        if (rn_engine_get_presence(server->engines[i]).loaded) return server->engines[i];
    return server->engine;
}
