// budget.c — limits for each device, owners that release, and the refusal's table.
#include "memory/budget.h"
#include "base/json.h"
#include "memory/ledger.h"

#include "base/checked.h"
#include "base/str.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

// Stored inverted, so that zero-initialised memory means "no limit".
typedef struct device_limits {
    _Atomic uint64_t soft_inverted, hard_inverted;
    _Atomic uint64_t process_bytes; // the process's budget that the hard limit is a part of, or 0
} device_limits;

enum { MAX_RECLAIMERS = 64 };

static device_limits limits[RN_DEVICE_MAX];
static pthread_mutex_t reclaimer_lock = PTHREAD_MUTEX_INITIALIZER;
static const rn_reclaimer *reclaimers[MAX_RECLAIMERS]; // under reclaimer_lock
static size_t reclaimer_count;
static _Thread_local rn_refusal thread_refusal;
static _Thread_local bool asking; // this thread holds reclaimer_lock, to ask
static _Thread_local bool muted;  // nobody hears of this thread's refusals

rn_status rn_budget_set(rn_device_id device, uint64_t soft_bytes, uint64_t hard_bytes) {
    if (device >= rn_device_count()) return rn_fail(RN_INVALID, "no device number %u", device);
    if (soft_bytes == 0) soft_bytes = hard_bytes;
    if (soft_bytes > hard_bytes)
        return rn_fail(RN_INVALID, "the soft limit (%s) is above the hard limit (%s)",
                       rn_size_format(soft_bytes).text, rn_size_format(hard_bytes).text);
    atomic_store(&limits[device].soft_inverted, ~soft_bytes);
    atomic_store(&limits[device].hard_inverted, ~hard_bytes);
    atomic_store(&limits[device].process_bytes, 0);
    return RN_OK;
}

void rn_budget_get(rn_device_id device, uint64_t *out_soft_bytes, uint64_t *out_hard_bytes) {
    *out_soft_bytes = ~atomic_load_explicit(&limits[device].soft_inverted, memory_order_relaxed);
    *out_hard_bytes = ~atomic_load_explicit(&limits[device].hard_inverted, memory_order_relaxed);
}

// ---- reclaimers ---------------------------------------------------------------------------

void rn_budget_reclaimer_add(const rn_reclaimer *reclaimer) {
    pthread_mutex_lock(&reclaimer_lock);
    if (reclaimer_count < MAX_RECLAIMERS)
        reclaimers[reclaimer_count++] = reclaimer; // one more is just never asked
    pthread_mutex_unlock(&reclaimer_lock);
}

void rn_budget_reclaimer_remove(const rn_reclaimer *reclaimer) {
    pthread_mutex_lock(&reclaimer_lock);
    for (size_t i = 0; i < reclaimer_count; i++)
        if (reclaimers[i] == reclaimer) {
            reclaimers[i] = reclaimers[--reclaimer_count];
            break;
        }
    pthread_mutex_unlock(&reclaimer_lock);
}

static uint64_t reclaimable(rn_device_id device) {
    uint64_t sum = 0;
    if (asking) return 0;
    pthread_mutex_lock(&reclaimer_lock);
    for (size_t i = 0; i < reclaimer_count; i++)
        if (reclaimers[i]->device == device)
            sum += reclaimers[i]->reclaimable_bytes(reclaimers[i]->self);
    pthread_mutex_unlock(&reclaimer_lock);
    return sum;
}

// Asks owners until what is claimed plus `bytes` is within `limit`, or nobody has more. What they
// release is heard by a profiler, who may need memory to write it down: it gets what is free.
static void ask_reclaimers(rn_device_id device, uint64_t bytes, uint64_t limit) {
    if (asking) return;
    pthread_mutex_lock(&reclaimer_lock);
    asking = true;
    for (size_t i = 0; i < reclaimer_count; i++) {
        uint64_t now = rn_ledger_claimed(device);
        if (bytes <= limit && now <= limit - bytes) break;
        uint64_t over = bytes > limit ? now : now - (limit - bytes);
        if (reclaimers[i]->device == device) reclaimers[i]->release(reclaimers[i]->self, over);
    }
    asking = false;
    pthread_mutex_unlock(&reclaimer_lock);
}

static bool fits(uint64_t now, uint64_t bytes, uint64_t limit) {
    return bytes <= limit && now <= limit - bytes;
}

rn_fit rn_budget_ask(rn_device_id device, uint64_t bytes) {
    uint64_t soft, hard, now = rn_ledger_claimed(device);
    rn_budget_get(device, &soft, &hard);
    if (fits(now, bytes, soft)) return RN_FIT_NOW;
    if (fits(now, bytes, hard)) return RN_FIT_AFTER_EVICT;
    uint64_t back = reclaimable(device);
    return fits(now - rn_min_u64(back, now), bytes, hard) ? RN_FIT_AFTER_EVICT : RN_FIT_NEVER;
}

// ---- refusing -------------------------------------------------------------------------

static bool insert_holder(void *self, const char *name, rn_account account, uint64_t bytes) {
    rn_refusal *refusal = self;
    size_t at = refusal->holder_count;
    while (at > 0 && refusal->holders[at - 1].bytes < bytes)
        at--;
    if (at == RN_REFUSAL_HOLDERS) return true;
    if (refusal->holder_count < RN_REFUSAL_HOLDERS) refusal->holder_count++;
    for (size_t i = refusal->holder_count - 1; i > at; i--)
        refusal->holders[i] = refusal->holders[i - 1];
    snprintf(refusal->holders[at].name, sizeof refusal->holders[at].name, "%s",
             name ? name : "(unnamed)");
    refusal->holders[at].purpose = (rn_purpose)account.purpose;
    refusal->holders[at].bytes = bytes;
    return true;
}

static void tell_refusal(const rn_refusal *refusal) {
    if (muted) return;
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_REFUSAL,
                               .account = {refusal->device, (uint8_t)refusal->purpose, NULL},
                               .bytes = refusal->requested_bytes});
}

rn_status rn_budget_refuse(rn_account account, uint64_t bytes, uint64_t budget_bytes,
                           uint64_t smallest_bytes) {
    uint64_t now = rn_ledger_claimed(account.device);
    rn_refusal *refusal = &thread_refusal;
    *refusal = (rn_refusal){
        .device = account.device,
        .purpose = (rn_purpose)account.purpose,
        .requested_bytes = bytes,
        .free_bytes = budget_bytes > now ? budget_bytes - now : 0,
        .budget_bytes = budget_bytes,
        .smallest_budget_bytes = smallest_bytes,
    };
    rn_ledger_visit_holders(account.device, insert_holder, refusal);
    rn_status s =
        rn_fail(RN_OVER_BUDGET, "%s for %s on %s does not fit: %s of the budget of %s is free",
                rn_size_format(bytes).text, rn_purpose_name(refusal->purpose),
                rn_device_name(account.device), rn_size_format(refusal->free_bytes).text,
                rn_size_format(budget_bytes).text);
    s = rn_hint(s, "the smallest budget that works is %s (%llu bytes)",
                rn_size_format(smallest_bytes).text, (unsigned long long)smallest_bytes);
    tell_refusal(refusal);
    return s;
}

void rn_refusal_keep(const rn_refusal *refusal) {
    thread_refusal = *refusal;
    tell_refusal(refusal);
}

void rn_refusal_restore(const rn_refusal *refusal) {
    thread_refusal = *refusal;
}

void rn_budget_tell_process(uint64_t total_bytes) {
    atomic_store(&limits[RN_DEVICE_HOST].process_bytes, total_bytes);
}

void rn_refusals_mute(bool mute) {
    muted = mute;
}

// Of a process's budget: what will be asked for behind this request, nobody knows here.
static rn_status refuse_process(rn_account account, uint64_t bytes, uint64_t hard, uint64_t process,
                                uint64_t smallest) {
    uint64_t now = rn_ledger_claimed(account.device);
    smallest = rn_budget_needed(smallest);
    (void)rn_budget_refuse(account, bytes, process, smallest);
    thread_refusal.free_bytes = hard - rn_min_u64(hard, now);
    thread_refusal.at_least = true;
    rn_status s = rn_fail(
        RN_OVER_BUDGET,
        "%s for %s on %s does not fit: %s of the budget of %s is free, beside a reserve of %s",
        rn_size_format(bytes).text, rn_purpose_name(thread_refusal.purpose),
        rn_device_name(account.device), rn_size_format(thread_refusal.free_bytes).text,
        rn_size_format(process).text, rn_size_format(process - rn_budget_usable(process)).text);
    return rn_hint(s, "at least %s (%llu bytes) are needed to get this far",
                   rn_size_format(smallest).text, (unsigned long long)smallest);
}

static rn_status refuse(rn_account account, uint64_t bytes, uint64_t hard) {
    uint64_t now = rn_ledger_claimed(account.device), smallest;
    uint64_t kept = now - rn_min_u64(now, reclaimable(account.device));
    uint64_t process = atomic_load(&limits[account.device].process_bytes);
    if (!rn_add_u64(kept, bytes, &smallest)) smallest = RN_NO_LIMIT;
    return process ? refuse_process(account, bytes, hard, process, smallest)
                   : rn_budget_refuse(account, bytes, hard, smallest);
}

rn_status rn_budget_reserve(rn_account account, uint64_t bytes) {
    uint64_t soft, hard;
    rn_budget_get(account.device, &soft, &hard);
    if (rn_ledger_try_reserve(account.device, bytes, soft)) return RN_OK;
    // Caches are not emptied for a request that could not be granted even then.
    if (rn_budget_ask(account.device, bytes) == RN_FIT_NEVER) return refuse(account, bytes, hard);
    ask_reclaimers(account.device, bytes, soft);
    if (rn_ledger_try_reserve(account.device, bytes, hard)) return RN_OK;
    return refuse(account, bytes, hard);
}

rn_status rn_budget_charge(rn_account account, const void *address, uint64_t bytes) {
    RN_TRY(rn_budget_reserve(account, bytes));
    rn_ledger_count(account, address, bytes);
    return RN_OK;
}

const rn_refusal *rn_last_refusal(void) {
    return &thread_refusal;
}

rn_status rn_refusal_print(const rn_refusal *refusal, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "%-16s %s\n%-16s %s\n%-16s %s\n%-16s %s\n%-16s %s\n%-16s %s\n",
                         "requested", rn_size_format(refusal->requested_bytes).text, "purpose",
                         rn_purpose_name(refusal->purpose), "device",
                         rn_device_name(refusal->device), "budget",
                         rn_size_format(refusal->budget_bytes).text, "free",
                         rn_size_format(refusal->free_bytes).text,
                         refusal->at_least ? "budget at least" : "smallest budget",
                         rn_size_format(refusal->smallest_budget_bytes).text));
    RN_TRY(rn_sink_print(sink, "largest holders\n"));
    for (size_t i = 0; i < refusal->holder_count; i++)
        RN_TRY(rn_sink_print(
            sink, "  %12s  %-12s %s\n", rn_size_format(refusal->holders[i].bytes).text,
            rn_purpose_name(refusal->holders[i].purpose), refusal->holders[i].name));
    return RN_OK;
}

rn_status rn_refusal_json(const rn_refusal *refusal, rn_sink sink) {
    rn_json whole, *json = &whole;
    rn_json_begin(json, sink, true);
    rn_json_object(json, NULL);
    rn_json_u64(json, "requested_bytes", refusal->requested_bytes);
    rn_json_string(json, "purpose", rn_purpose_name(refusal->purpose));
    rn_json_string(json, "device", rn_device_name(refusal->device));
    rn_json_u64(json, "budget_bytes", refusal->budget_bytes);
    rn_json_u64(json, "free_bytes", refusal->free_bytes);
    rn_json_u64(json, "smallest_budget_bytes", refusal->smallest_budget_bytes);
    rn_json_bool(json, "at_least", refusal->at_least);
    rn_json_array(json, "holders");
    for (size_t i = 0; i < refusal->holder_count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", refusal->holders[i].name);
        rn_json_string(json, "purpose", rn_purpose_name(refusal->holders[i].purpose));
        rn_json_u64(json, "bytes", refusal->holders[i].bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
    return rn_json_finish(json);
}
