// memory.h — the ledger counts every byte, the budget bounds them, scopes and stages say when.
//
// Memory is a property of the process: the system charges it to the process and kills the process.
// So there is one ledger. Every allocation of host, pinned, device or mapped memory is charged to
// an account, which is a (device, purpose) pair and, where one is useful, a named holder:
//
//     rn_holder *holder;
//     RN_TRY(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, "llama-1b", &holder));
//     rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, holder};
//     RN_TRY(rn_budget_charge(account, block, bytes)); // refused, or counted
//     ...
//     rn_ledger_release(account, block, bytes);
//     rn_holder_close(holder);
//
// Everything here may be called from any thread.
#ifndef RATION_MEMORY_H
#define RATION_MEMORY_H

#include <ration/text.h>

RN_BEGIN_DECLS

// ---- devices, purposes, accounts ------------------------------------------------------

typedef uint8_t rn_device_id;
#define RN_DEVICE_HOST ((rn_device_id)0)
#define RN_DEVICE_ANY  ((rn_device_id)255) // scopes only: all devices together
#define RN_DEVICE_MAX  16
#define RN_NO_LIMIT    UINT64_MAX

typedef enum rn_purpose {
    RN_PURPOSE_WEIGHTS,
    RN_PURPOSE_KV,
    RN_PURPOSE_ACTIVATIONS,
    RN_PURPOSE_GRADIENTS,
    RN_PURPOSE_OPTIMIZER,
    RN_PURPOSE_WORKSPACE,
    RN_PURPOSE_STAGING,
    RN_PURPOSE_IO,
    RN_PURPOSE_PROFILER,
    RN_PURPOSE_UNACCOUNTED, // not ours: the process image, a driver's context; measured, not
                            // allocated
    RN_PURPOSE_OTHER,
    RN_PURPOSE_STATE, // what a layer keeps of a sequence beside keys and values: of a fixed size
    RN_PURPOSE_COUNT
} rn_purpose;

typedef struct rn_holder rn_holder;

typedef struct rn_account {
    rn_device_id device;
    uint8_t purpose;   // an rn_purpose
    rn_holder *holder; // or NULL
} rn_account;

RN_API const char *rn_purpose_name(rn_purpose purpose);
// Device 0 is "host". Adding a name again gives its number again. RN_INVALID when the table is
// full.
RN_API RN_MUST_USE rn_status rn_device_add(const char *name, rn_device_id *out);
RN_API const char *rn_device_name(rn_device_id device);
RN_API size_t rn_device_count(void);

// A holder is a name under which bytes appear in tables and refusals. Closed when it holds nothing.
RN_API RN_MUST_USE rn_status rn_holder_open(rn_device_id device, rn_purpose purpose,
                                            const char *name, rn_holder **out);
RN_API void rn_holder_close(rn_holder *holder);
RN_API uint64_t rn_holder_bytes(const rn_holder *holder);

// ---- ledger ---------------------------------------------------------------------------

typedef struct rn_ledger_line {
    uint64_t now_bytes, peak_bytes;
    uint64_t count; // live charges; exact when no other thread is charging
} rn_ledger_line;

// Counts bytes that exist, without asking the budget. `address` identifies the block for profilers;
// may be NULL.
RN_API void rn_ledger_charge(rn_account account, const void *address, uint64_t bytes);
RN_API void rn_ledger_release(rn_account account, const void *address, uint64_t bytes);
RN_API rn_ledger_line rn_ledger_read(rn_device_id device, rn_purpose purpose);
RN_API rn_ledger_line rn_ledger_total(rn_device_id device);
// Peaks begin anew from what is held now.
RN_API void rn_ledger_reset_peaks(void);
// A table for people: a line for each (device, purpose) that was ever used, then the holders.
RN_API RN_MUST_USE rn_status rn_ledger_print(rn_sink sink);
// The same as a JSON object.
RN_API RN_MUST_USE rn_status rn_ledger_json(rn_sink sink);
// Whether sums agree (holders within their line, lines within their device). Only while nobody
// charges.
RN_API bool rn_ledger_is_valid(void);

typedef enum rn_event_kind {
    RN_EVENT_CHARGE,
    RN_EVENT_RELEASE,
    RN_EVENT_SCOPE_BEGIN,
    RN_EVENT_SCOPE_END,
    RN_EVENT_STAGE,
    RN_EVENT_PART_CHARGE,  // a part of what was charged before is handed out: a pool's block
    RN_EVENT_PART_RELEASE, // ... and comes back; what is charged stays as it is
    RN_EVENT_REFUSAL,      // the budget said no; bytes: requested
    RN_EVENT_NO_MEMORY     // the system said no; bytes: requested
} rn_event_kind;

typedef struct rn_event {
    rn_event_kind kind;
    rn_account account;  // all but scopes and stages
    const void *address; // CHARGE, RELEASE, and of parts
    uint64_t bytes;      // as account
    const char *name;    // scope or stage
} rn_event;

// The profiler's hook: called on the thread where it happens, after counting. A measured line
// (unaccounted) that changes is released with its old value and charged with the new one, always at
// one address. One listener; NULL removes it. After removing, calls already under way on other
// threads may still arrive.
typedef void (*rn_listener)(void *self, const rn_event *event);
RN_API void rn_ledger_listen(rn_listener listener, void *self);

// ---- budget ---------------------------------------------------------------------------

// "Does not fit now" is an answer, not an error.
typedef enum rn_fit {
    RN_FIT_NOW,         // there is room below the soft limit
    RN_FIT_AFTER_EVICT, // there is room once owners have released what they can
    RN_FIT_NEVER        // not while what is held now is held
} rn_fit;

// Above soft, owners are asked to release; above hard, charges are refused. RN_NO_LIMIT for none;
// soft 0 means the same as hard.
RN_API RN_MUST_USE rn_status rn_budget_set(rn_device_id device, uint64_t soft_bytes,
                                           uint64_t hard_bytes);
RN_API void rn_budget_get(rn_device_id device, uint64_t *out_soft_bytes, uint64_t *out_hard_bytes);
RN_API rn_fit rn_budget_ask(rn_device_id device, uint64_t bytes);
// Charges, or refuses with RN_OVER_BUDGET and a refusal (below). Asks owners to release first.
RN_API RN_MUST_USE rn_status rn_budget_charge(rn_account account, const void *address,
                                              uint64_t bytes);

// An owner of bytes that can be released: a cache, a prefetch window.
typedef struct rn_reclaimer {
    const char *name;
    rn_device_id device;
    void *self;
    uint64_t (*reclaimable_bytes)(void *self); // what it could release now
    uint64_t (*release)(void *self,
                        uint64_t want_bytes); // releases about that much, says how much
} rn_reclaimer;

// `reclaimer` is borrowed until removed. Its functions must not charge, nor add or remove
// reclaimers.
RN_API void rn_budget_reclaimer_add(const rn_reclaimer *reclaimer);
RN_API void rn_budget_reclaimer_remove(const rn_reclaimer *reclaimer);

#define RN_REFUSAL_HOLDERS 8
typedef struct rn_refusal {
    rn_device_id device;
    rn_purpose purpose;
    uint64_t requested_bytes, free_bytes, budget_bytes;
    uint64_t smallest_budget_bytes; // with which this request would have been granted
    bool at_least; // of a process's budget, before there is a plan: more may be asked for later
    size_t holder_count;
    struct {
        char name[64];
        rn_purpose purpose;
        uint64_t bytes;
    } holders[RN_REFUSAL_HOLDERS]; // largest first
} rn_refusal;

// The calling thread's last refusal; zeros before the first.
RN_API const rn_refusal *rn_last_refusal(void);
RN_API RN_MUST_USE rn_status rn_refusal_print(const rn_refusal *refusal, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_refusal_json(const rn_refusal *refusal, rn_sink sink);

// ---- a budget for the whole process ---------------------------------------------------

// Of a process's budget, what its ledger may come to hold: all but a reserve for what nobody counts
// (stacks, the C library's own, page tables), which is 4 MiB and a 256th of the budget.
RN_API uint64_t rn_budget_usable(uint64_t total_bytes);
// The smallest budget, in whole pages, of which so much is usable. RN_NO_LIMIT: there is none.
RN_API uint64_t rn_budget_needed(uint64_t usable_bytes);

// A budget where none is given: nine tenths of what the machine and the cgroup have left now. Never
// 0, which would be no limit.
RN_API RN_MUST_USE rn_status rn_budget_measure(uint64_t *out_bytes);

// How a process's budget is divided, for a plan.
typedef struct rn_budget_shares {
    uint64_t total_bytes;   // given: the budget
    uint64_t process_bytes; // given: 0, or what an earlier split said. What is not on the ledger:
                            // the image, libraries, a driver; measured and rounded up (to 4 MiB; a
                            // quarter where it is large), so that the next process counts the same
    uint64_t held_bytes;    // on the ledger by now, without the process
    uint64_t reserve_bytes; // total - rn_budget_usable(total)
    uint64_t plan_bytes;    // the rest; 0: nothing is left
} rn_budget_shares;
// Charges the process's share as outside. It stays as given while no more is measured than half of
// the reserve's 4 MiB above it: a program that splits at its start and again before it plans has
// one figure for all its plans.
RN_API RN_MUST_USE rn_status rn_budget_split(rn_budget_shares *shares);
// A program's first act, once it has split its budget: limits the host's ledger to what is usable
// of it. From then on whatever is read or built is refused before it takes more, and refusals speak
// of the whole budget. However small that is, 8 MiB may be taken beside what is held now: so
// headers can be read and the refusal of a plan can say what would be enough.
RN_API RN_MUST_USE rn_status rn_budget_set_process(uint64_t total_bytes);

// A budget as a user writes it: "2GiB", "75%", "host=8GiB,cuda:0=4GiB", "+512MiB" (planned bytes
// only).
#define RN_BUDGET_ENTRIES 8
typedef struct rn_budget_spec {
    size_t count;
    struct {
        char device[24]; // "host" for a bare size
        uint64_t bytes;
        bool planned_only; // "+": counts planned bytes, not the process image
    } entries[RN_BUDGET_ENTRIES];
} rn_budget_spec;
RN_API RN_MUST_USE rn_status rn_budget_parse(rn_str text, rn_budget_spec *out);

// ---- the process as the system sees it ------------------------------------------------

typedef struct rn_process_info {
    uint64_t resident_bytes, resident_peak_bytes;
    uint64_t page_table_bytes;
    uint64_t machine_bytes, machine_available_bytes;
    int cgroup_version;          // 0 none, 1 or 2
    uint64_t cgroup_limit_bytes; // RN_NO_LIMIT when unlimited; the smallest on the way to the root
    uint64_t cgroup_used_bytes;  // by the process's own group, its page cache included
    uint64_t
        cgroup_free_bytes; // the same; the least room on the way, idle page cache counted as free
} rn_process_info;

RN_API RN_MUST_USE rn_status rn_process_read(rn_process_info *out);
// The smaller of the machine's memory and the cgroup's limit: what "75%" is a part of.
RN_API uint64_t rn_process_whole_bytes(const rn_process_info *info);
// The smaller of what the machine has available and what the cgroup has left.
RN_API uint64_t rn_process_free_bytes(const rn_process_info *info);
// Measures what is resident but not in the ledger and charges it to (host, outside).
RN_API RN_MUST_USE rn_status rn_process_charge_unaccounted(void);

// ---- scopes ---------------------------------------------------------------------------

typedef struct rn_scope_stats {
    uint64_t peak_allocated;  // most bytes held at once, above what was held at the beginning
    uint64_t total_allocated; // sum of all charges
    uint64_t num_allocations;
    int64_t delta; // held at the end minus held at the beginning
} rn_scope_stats;

// Caller-allocated; the fields are the library's.
typedef struct rn_scope {
    const char *name;
    struct rn_scope *outer;
    rn_device_id device;
    int64_t held;
    rn_scope_stats stats;
} rn_scope;

// Counts what this thread, and loops that it gives to workers, charges and releases on `device` (or
// RN_DEVICE_ANY) until the end. Scopes nest on a thread; each has its own exact peak. `name` is
// borrowed.
RN_API void rn_scope_begin(rn_scope *scope, const char *name, rn_device_id device);
RN_API rn_scope_stats rn_scope_end(rn_scope *scope);

// ---- stages ---------------------------------------------------------------------------

// One log line: time, resident memory, the ledger by device, what is free; and a marker in the
// profile. To be called at the moment a stage ends: what is told is the memory of that moment. The
// library itself tells "config_loaded", "tokenizer_loaded" (rn_model_open), "device_ready" (a
// ladder, on each target that it tries), "plan_made", "model_loaded_cpu" or on a device with memory
// of its own "model_on_device" (rn_generator_create), there "inputs_on_device" (a session's first
// run), and a server "test_forward_pass", "warm_up", "model_saved" and "server_ready"; the program
// tells "start" and "final_cleanup".
RN_API void rn_stage(const char *name);
// The same for a failure at or behind a stage, as an error: stage, the error's class, what that
// means and what to do (error_class.h), and the memory. The marker is "NAME failed: CLASS".
RN_API void rn_stage_failed(const char *name, const rn_error_info *error);

typedef struct rn_stage_name {
    char text[48];
} rn_stage_name;
// The last that rn_stage was told by any thread; "" before the first.
RN_API rn_stage_name rn_stage_last(void);

RN_END_DECLS

#endif
