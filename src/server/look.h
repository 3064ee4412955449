// look.h — what the endpoints that only look have in common.
#ifndef RN_SERVER_LOOK_H
#define RN_SERVER_LOOK_H

#include "server/server.h"

// What may be used of a device at most; 0: no budget. The host's is the whole process's.
// "loaded", "unloaded" (a request loads it), "failed".
const char *rn_model_state(rn_engine *engine);
uint64_t rn_budget_of(rn_device_id device, const rn_engine_facts *facts);

// What is asked for needs a model of the other kind: text, pictures. 400; returns false.
bool rn_look_refuse_kind(rn_engine *engine, rn_problem *out);
// The text model, or NULL: it is not there yet, or pictures are served, and *out says so.
const rn_model *rn_look_model(rn_engine *engine, rn_problem *out);

#endif
