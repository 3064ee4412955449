// recover_attempt.h — a plan of a chain and a session of it, made as often as rn_recover wants, on
// a device from which somebody takes memory in between.
#ifndef RN_TEST_RECOVER_ATTEMPT_H
#define RN_TEST_RECOVER_ATTEMPT_H

#include "chain.h"

#include "runtime/recover.h"

enum { ATTEMPTS_MOST = 4 };

typedef struct attempt {
    chain *model;
    rn_device *device;
    rn_plan_options options;
    rn_plan *plan;
    rn_session *session;
    uint32_t plans, undone;
    uint64_t changes[ATTEMPTS_MOST]; // what `change` is told after the n-th plan; 0: as before
    void (*change)(rn_device *device, uint64_t bytes);
    uint64_t lowered[ATTEMPTS_MOST];
} attempt;

static inline rn_status attempt_plan(void *self, const rn_plan **out) {
    attempt *a = self;
    rn_recipe recipe = chain_recipe(a->model);
    RN_TRY(rn_plan_make(&recipe, rn_device_get_caps(a->device), &a->options, &a->plan));
    uint64_t bytes = a->plans < ATTEMPTS_MOST ? a->changes[a->plans] : 0;
    a->plans++;
    if (bytes) a->change(a->device, bytes);
    *out = a->plan;
    return RN_OK;
}

static inline rn_status attempt_open(void *self) {
    attempt *a = self;
    rn_weight_source source = chain_memory(a->model);
    rn_session_options options = {.device = a->device};
    return rn_session_create(a->plan, &source, &options, &a->session);
}

static inline void attempt_close(attempt *a) {
    rn_session_destroy(a->session);
    rn_plan_destroy(a->plan);
    a->session = NULL;
    a->plan = NULL;
}

static inline void attempt_undo(void *self) {
    attempt *a = self;
    attempt_close(a);
    a->undone++;
}

static inline void attempt_lower(void *self, uint64_t bytes) {
    attempt *a = self;
    a->lowered[a->plans - 1] = bytes;
    a->options.budget_bytes = bytes ? bytes : 1;
}

static inline rn_status attempt_recover(attempt *a) {
    return rn_recover(&(rn_recovery){.device = a->device,
                                     .self = a,
                                     .plan = attempt_plan,
                                     .open = attempt_open,
                                     .undo = attempt_undo,
                                     .lower = attempt_lower});
}

#endif
