// look.h — what the endpoints that only look have in common.
#ifndef RN_SERVER_LOOK_H
#define RN_SERVER_LOOK_H

#include "server/server.h"

// What may be used of a device at most; 0: no budget. The host's is the whole process's.
uint64_t rn_budget_of(rn_device_id device, const rn_engine_facts *facts);

#endif
