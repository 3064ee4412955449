// state_codes.c — see state_codes.h.
#include "graph/state_codes.h"

#include "tensor/dynamic_map.h"

#include <pthread.h>

const float rn_state_unsigned[RN_STATE_CODES] = {RN_DYNAMIC_MAP_UNSIGNED};

static rn_state_steps tables;

static void make_tables(void) {
    for (uint32_t i = 0; i < RN_STATE_BUCKETS; i++) {
        tables.with_sign[i] = rn_state_step(rn_state_signed, 127, i);
        tables.without[i] = rn_state_step(rn_state_unsigned, 0, i);
    }
}

const rn_state_steps *rn_state_steps_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
    return &tables;
}
