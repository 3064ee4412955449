// json.h — what commands print with --json: the library's own writer, and its functions that write
// JSON text embedded.
//
//     rn_json_check(json, rn_ledger_json(rn_json_embed(json, "ledger")));
#ifndef RATION_SUPPORT_JSON_H
#define RATION_SUPPORT_JSON_H

#include "base/json.h"

#endif
