// recover.c — plan, open; refused: release, ask what is free, lower, once more.
//
// The first time the device is taken at its word. The second time an eighth is left out: what is
// free lies in pieces, is rounded up, or was gone again before it could be taken.
#include "runtime/recover.h"

#include "base/checked.h"
#include "device/device.h"
#include "memory/budget.h"

#include <ration/error_class.h>
#include <ration/log.h>

#include <stdio.h>
#include <string.h>

#define SIZE(bytes) rn_size_format(bytes).text

typedef struct attempts {
    const rn_recovery *work;
    uint32_t count;       // of refused ones
    uint64_t asked, free; // by the last; when it was refused, with all caches released
    char told[512];       // "1.5 MiB asked, 1.2 MiB free (over_budget); "
} attempts;

// ---- what is free -------------------------------------------------------------------------------

static bool is_of_device(const rn_device *device, rn_status status) {
    return device && device->caps.own_memory && device->refused_bytes > 0 &&
           (status == RN_NO_MEMORY || status == RN_OVER_BUDGET);
}

static uint64_t find_budget_room(rn_device_id device) {
    uint64_t soft, hard, held = rn_ledger_total(device).now_bytes;
    rn_budget_get(device, &soft, &hard);
    return hard == RN_NO_LIMIT ? hard : hard - rn_min_u64(hard, held);
}

// Without what is held only for later. A device that does not know what is free is taken to have
// what it refused: the refusal may have been of the moment.
static uint64_t find_free(rn_device *device, uint64_t asked) {
    if (device->release_caches) (void)device->release_caches(device);
    uint64_t known = device->free_bytes ? rn_device_free_bytes(device) : asked;
    return rn_min_u64(known, find_budget_room(device->caps.device));
}

// ---- what became of it --------------------------------------------------------------------------

// After a refusal of the device.
static void note(attempts *a) {
    rn_device *device = a->work->device;
    const char *class = rn_error_classify(rn_last_error())->name;
    size_t used = strlen(a->told);
    a->asked = device->refused_bytes;
    a->free = find_free(device, a->asked);
    bool known = device->free_bytes || a->free != a->asked;
    rn_size_text free = known ? rn_size_format(a->free) : (rn_size_text){"?"};
    snprintf(a->told + used, sizeof a->told - used, "%s%s asked, %s free (%s)",
             a->count++ ? "; " : "", SIZE(a->asked), free.text, class);
    rn_log(RN_LOG_WARNING, "recover", "%s refused memory, try %u: %s asked, %s free (%s)",
           device->caps.name, a->count, SIZE(a->asked), free.text, class);
}

// The device refused every plan.
static rn_status refuse(const attempts *a, uint64_t smallest) {
    const rn_device *device = a->work->device;
    rn_refusal refusal = {.device = device->caps.device,
                          .purpose = RN_PURPOSE_WEIGHTS,
                          .requested_bytes = a->asked,
                          .free_bytes = a->free,
                          .budget_bytes = a->free,
                          .smallest_budget_bytes = smallest};
    rn_refusal_keep(&refusal);
    return rn_hint(rn_fail(RN_OVER_BUDGET, "%s had no room in %u tries: %s", device->caps.name,
                           a->count, a->told),
                   "the smallest plan takes %s (%llu bytes): somebody else may hold memory of %s",
                   SIZE(smallest), (unsigned long long)smallest, device->caps.name);
}

// No plan fits what is free: its own error, behind what led to it.
static rn_status refuse_plan(const attempts *a, rn_status status) {
    if (status != RN_OVER_BUDGET) return status;
    rn_error_info error = *rn_last_error();
    (void)rn_fail(status, "%s had no room: %s; then %s", a->work->device->caps.name, a->told,
                  error.message);
    return rn_hint(status, "%s", error.hint);
}

// ---- the loop -----------------------------------------------------------------------------------

static rn_status try_once(const rn_recovery *work, bool *out_planned, uint64_t *out_smallest) {
    const rn_plan *plan = NULL;
    rn_status s = work->plan(work->self, &plan);
    *out_planned = s == RN_OK;
    RN_TRY(s);
    *out_smallest = rn_plan_get_summary(plan)->smallest_bytes;
    if (work->device) work->device->refused_bytes = 0;
    return work->open(work->self);
}

// There is room for what was refused, for the first time: the same once more.
static void lower(const attempts *a) {
    uint64_t less = rn_min_u64(a->free, a->asked);
    if (a->count == 1 && a->free >= a->asked) return;
    a->work->lower(a->work->self, a->count == 1 ? a->free : less - less / 8);
}

rn_status rn_recover(const rn_recovery *work) {
    attempts a = {.work = work};
    for (;;) {
        bool planned = false;
        uint64_t smallest = 0;
        rn_status s = try_once(work, &planned, &smallest);
        if (s == RN_OK) return RN_OK;
        if (!planned) return a.count ? refuse_plan(&a, s) : s;
        if (!is_of_device(work->device, s)) return s;
        rn_error_info error = *rn_last_error();
        work->undo(work->self); // its own share is free for the next try
        (void)rn_error_restore(&error);
        note(&a);
        if (a.count == RN_RECOVER_TRIES) return refuse(&a, smallest);
        lower(&a);
    }
}
