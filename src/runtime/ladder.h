// ladder.h — the ladder's inside: what was held before an attempt, the record.
#ifndef RN_RUNTIME_LADDER_H
#define RN_RUNTIME_LADDER_H

#include <ration/ladder.h>

#include "base/json.h"
#include "device/registry.h"

#include <pthread.h>

// ---- what the ledger says (ladder_held.c) -------------------------------------------------------

typedef struct rn_held {
    uint32_t others; // purposes of the host that are not looked at, as bits
    uint64_t bytes[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
} rn_held;

void rn_held_read(uint32_t others, rn_held *out);
// What is held now above `before`: the sum over all lines, and the line with most of it.
typedef struct rn_held_more {
    uint64_t bytes;
    rn_device_id device;
    rn_purpose purpose;
    uint64_t line_bytes;
} rn_held_more;
rn_held_more rn_held_compare(const rn_held *before);

// ---- the ladder ---------------------------------------------------------------------------------

struct rn_ladder {
    size_t count;
    rn_target targets[RN_LADDER_TARGETS];
    // The starting thread's own.
    rn_ladder_options options;
    rn_ladder_load load;
    rn_device *device; // of the target in use, or NULL
    rn_held before;    // its attempt
    // Anybody's, under lock.
    pthread_mutex_t lock;
    int target_index; // in use, or -1
    uint64_t attempt_count;
    rn_attempt attempts[RN_LADDER_ATTEMPTS]; // number n lies at n % RN_LADDER_ATTEMPTS
};

// A new attempt begins. The latest one is changed by copying it, changing, and putting it back.
void rn_ladder_begin_attempt(rn_ladder *ladder, size_t index);
void rn_ladder_get_latest(const rn_ladder *ladder, rn_attempt *out);
// ... and says which target is in use from here on (-1: none).
void rn_ladder_put_latest(rn_ladder *ladder, const rn_attempt *attempt, int target_index);
// rn_ladder_json under `key`.
void rn_ladder_write_json(const rn_ladder *ladder, rn_json *json, const char *key);

#endif
