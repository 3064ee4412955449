// refusals.c — memory that is refused, a few times for each way in which it is asked for.
//
// A life asks for memory hundreds of times, most of them in loops; refusing each one makes the test
// quadratic and walks the same error path over and over. So a life without refusals comes first, of
// which every allocation's chain of calls is written down.
#include "support.h"

#include "base/fault.h"

#include <ration/memory.h>

#include <execinfo.h>
#include <stdatomic.h>

enum { MOST = 1 << 16, DEPTH = 16 }; // DEPTH: further out, callers only pass a refusal on

static uint64_t chains[MOST]; // a hash of each allocation's callers
static _Atomic uint64_t chain_count;

static uint64_t hash_callers(void) {
    void *frames[DEPTH];
    uint64_t hash = 14695981039346656037u;
    int count = backtrace(frames, DEPTH);
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    return hash;
}

static void write_chain(rn_fault kind) {
    if (kind != RN_FAULT_ALLOC) return;
    uint64_t at = atomic_fetch_add(&chain_count, 1);
    if (at < MOST) chains[at] = hash_callers();
}

static bool is_worth_it(uint64_t n) {
    uint64_t before = 0, after = 0;
    for (uint64_t i = 0; i < n; i++)
        before += chains[i] == chains[n];
    for (uint64_t i = n + 1; i < chain_count; i++)
        after += chains[i] == chains[n];
    return before == 0 || (!TEST_THREADS_ONLY && (before < 2 || after == 0));
}

static void write_down(rn_status (*live)(void)) {
    atomic_store(&chain_count, 0);
    rn_fault_watch(write_chain);
    rn_fault_arm(RN_FAULT_ALLOC, UINT64_MAX);
    rn_status s = live();
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    rn_fault_watch(NULL);
    assert_ok(s);
    assert_in_range(chain_count, 1, MOST);
}

uint64_t survive_refusals(rn_status (*live)(void)) {
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    write_down(live);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    for (uint64_t n = 0; n < chain_count; n++) {
        if (!is_worth_it(n)) continue;
        rn_fault_arm(RN_FAULT_ALLOC, n + 1);
        rn_status s = live();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    return chain_count;
}
