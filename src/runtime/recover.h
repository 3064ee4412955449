// recover.h — a device that had no room for what was planned: plan again with what is really free.
//
// A plan is made from what was free then. Somebody else may have taken it since, or a driver holds
// more than it told. So where the device itself refuses, its caches are released, it is asked
// what is free now, and a smaller plan is made and opened: for a training step that may be one of
// more micro-batches. After a few tries it is a refusal with all their numbers.
#ifndef RN_RUNTIME_RECOVER_H
#define RN_RUNTIME_RECOVER_H

#include <ration/session.h>

enum { RN_RECOVER_TRIES = 3 };

// What is to come about.
typedef struct rn_recovery {
    rn_device *device; // NULL: the CPU
    void *self;
    // Makes the plan; *out is borrowed until undo.
    rn_status (*plan)(void *self, const rn_plan **out);
    // Takes the memory: a session of the plan.
    rn_status (*open)(void *self);
    // Gives back what both took, however far they came: before the next try.
    void (*undo)(void *self);
    // Plans from here on may hold so many bytes on the device.
    void (*lower)(void *self, uint64_t bytes);
} rn_recovery;

// Plans and opens. What fails on the first try for any other reason than the memory of a device of
// its own is returned as it is: a plan's refusal, the host's memory, a file. RN_OVER_BUDGET, with
// rn_last_refusal(): it was refused as often as that, or no plan fits what is free; the error has
// what was asked and what was free in each try, and the smallest that works. The caller releases
// what is there after a failure.
RN_MUST_USE rn_status rn_recover(const rn_recovery *work);

// A budget that leaves a plan no more than `bytes` of the device.
void rn_device_budget_lower(rn_device *device, uint64_t bytes, rn_device_budget *budget);

#endif
