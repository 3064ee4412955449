// state_codes.c — see state_codes.h.
#include "graph/state_codes.h"

#include "graph/state_maps.h"

const float rn_state_signed[RN_STATE_CODES] = {RN_STATE_MAP_SIGNED};
const float rn_state_unsigned[RN_STATE_CODES] = {RN_STATE_MAP_UNSIGNED};
