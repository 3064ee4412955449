// plan_view.c — /plan: the plan that is being carried out, as `ration plan --json` prints it.
#include "server/look.h"

rn_status rn_handle_plan(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    (void)request;
    rn_status s = rn_engine_plan_json(rn_server_loaded(server), rn_buffer_sink(&answer->body));
    if (s != RN_NOT_FOUND) return s;
    rn_engine_facts facts;
    rn_engine_get_facts(server->engine, &facts);
    (void)rn_phase_refuse(facts.phase, &facts.failure, &answer->problem);
    return RN_OK;
}
