// phase.c — why a request is not taken in: one answer, whoever is asked.
#include "server/engine.h"

static void set_failed(const rn_error_info *failure, rn_problem *out) {
    const rn_error_class *class = rn_error_classify(failure);
    (void)rn_problem_set(out, 503, "failed", "",
                         "the last target of the ladder failed: %s (%s); %s", class->name,
                         class->meaning, class->hint);
    out->retry_seconds = 30;
}

bool rn_phase_refuse(rn_engine_phase phase, const rn_error_info *failure, rn_problem *out) {
    if (phase == RN_ENGINE_FAILED) {
        set_failed(failure, out);
    } else if (phase == RN_ENGINE_DRAINING) {
        (void)rn_problem_set(out, 503, "draining", "", "the server is about to end");
        out->retry_seconds = 5;
    } else {
        (void)rn_problem_set(out, 503, "loading", "", "the model is being loaded");
        out->retry_seconds = 2;
    }
    return false;
}
