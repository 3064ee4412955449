// recount.h — for tests that damage a plan.
#ifndef RN_TEST_RECOUNT_H
#define RN_TEST_RECOUNT_H

#include "base/checked.h"
#include "plan/plan.h"

// After a change of buffers: the sums as the planner would have written them.
static inline void recount(rn_plan *plan) {
    plan->summary.live_peak_bytes = 0;
    for (uint32_t s = 0; s < plan->step_count; s++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < plan->buffer_count; i++)
            if (plan->buffers[i].first_step <= s && s <= plan->buffers[i].last_step)
                live += plan->buffers[i].bytes;
        plan->steps[s].live_bytes = live;
        plan->summary.live_peak_bytes = rn_max_u64(plan->summary.live_peak_bytes, live);
    }
}

#endif
