// offload.h — weights that are not on the device all the time: by name, or by a number of blocks.
//
//     rn_offload_manager *manager;
//     RN_TRY(rn_offload_manager_create(&recipe, &weights, device, NULL, &manager));
//     RN_TRY(rn_offload_weights(manager, "layers.*", "layers.0.*,layers.1.*")); // two layers stay
//     RN_TRY(rn_offload_load(manager, "layers.7.*"));                           // a third one
//     RN_TRY(rn_offload_session(manager, &session));                            // set, run, get
//     RN_TRY(rn_offload_clear_inactive(manager, &given));                       // two are left
//     rn_offload_manager_destroy(manager);
//
//     rn_plan_options options = {.resident_blocks = 8};
//     RN_TRY(rn_block_swapper_create(&recipe, &weights, device, &options, &swapper));
//     RN_TRY(rn_block_swapper_print(swapper, rn_sink_file(stdout)));
//     RN_TRY(rn_block_swapper_forward(swapper, rows));
//
// Both are doors to the planner (rn_plan_options: keep, offload, resident_blocks, resident_bytes),
// which decides what passes through the device when, and to a session, which does it. What comes
// out is the same to the bit, whatever stays. Where the device's memory is the host's, what does
// not stay is read from the files. For inference: what is trained never leaves. One thread at a
// time.
#ifndef RATION_OFFLOAD_H
#define RATION_OFFLOAD_H

#include <ration/session.h>

RN_BEGIN_DECLS

// ---- by name ------------------------------------------------------------------------------------

typedef struct rn_offload_manager rn_offload_manager;

// A model on a device (NULL: the CPU), loaded as the planner finds best within the options (NULL:
// everything stays). Recipe, weights, device and the texts in options must outlive it.
// RN_OVER_BUDGET, RN_INVALID: no plan; RN_UNSUPPORTED: the recipe trains; and what a session may
// fail with. A device that is fuller than the plan knew is planned for anew.
RN_API RN_MUST_USE rn_status rn_offload_manager_create(const rn_recipe *recipe,
                                                       const rn_weight_source *weights,
                                                       rn_device *device,
                                                       const rn_plan_options *options,
                                                       rn_offload_manager **out);
RN_API void rn_offload_manager_destroy(rn_offload_manager *manager); // NULL-safe

// What follows changes what stays, by another plan and another session: what the session's states
// hold is carried over, inputs that were set and outputs are not. Where there is no such plan
// (RN_INVALID, RN_OVER_BUDGET), all is as before. Where its session fails, there is none until one
// of these calls succeeds.

// Patterns as in rn_plan_options, in the place of those before: `offload` need not stay, but for
// those of `keep`. Each may be NULL. What was loaded on demand stays loaded.
RN_API RN_MUST_USE rn_status rn_offload_weights(rn_offload_manager *manager, const char *offload,
                                                const char *keep);
// These stay from here on, too, until the next rn_offload_clear_inactive.
RN_API RN_MUST_USE rn_status rn_offload_load(rn_offload_manager *manager, const char *names);

typedef struct rn_offload_given {
    uint64_t device_bytes; // on the ledger's lines of the device
    uint64_t host_bytes;   // on the host's: copies, staging
    uint64_t cache_bytes;  // that the device held for later (rn_cuda_clear_caches)
} rn_offload_given;
// Nothing but the keep list stays from here on: neither what was loaded on demand, nor what the
// planner found room for. What was released, where it is less than before; `out` may be NULL.
RN_API RN_MUST_USE rn_status rn_offload_clear_inactive(rn_offload_manager *manager,
                                                       rn_offload_given *out);

// The session to run, good until the next change; opened where there is none.
RN_API RN_MUST_USE rn_status rn_offload_session(rn_offload_manager *manager, rn_session **out);
RN_API const rn_plan *rn_offload_plan(const rn_offload_manager *manager);
// RN_NOT_FOUND: there is no such weight.
RN_API RN_MUST_USE rn_status rn_offload_is_resident(const rn_offload_manager *manager,
                                                    const char *name, bool *out);

typedef struct rn_offload_info {
    uint32_t resident_weights, offloaded_weights;
    uint64_t resident_bytes, offloaded_bytes; // on the device; in files or on the host
    uint64_t ring_bytes;                      // slots through which weights pass
    uint64_t device_bytes, host_bytes;        // of the session, as planned; 0 where there is none
    uint64_t free_bytes;                      // of the device's own memory; 0: not known
} rn_offload_info;
RN_API rn_offload_info rn_offload_get_info(const rn_offload_manager *manager);

// ---- by blocks ----------------------------------------------------------------------------------

typedef struct rn_block_swapper rn_block_swapper;

// As above, with options.resident_blocks or options.resident_bytes (or a budget) as the limit.
RN_API RN_MUST_USE rn_status rn_block_swapper_create(const rn_recipe *recipe,
                                                     const rn_weight_source *weights,
                                                     rn_device *device,
                                                     const rn_plan_options *options,
                                                     rn_block_swapper **out);
RN_API void rn_block_swapper_destroy(rn_block_swapper *swapper); // NULL-safe

// Weights that are brought together, once. Steps are those of the plan (rn_plan_json).
typedef struct rn_swap {
    const char *block, *weight; // names, while the swapper lives; the first weight's
    uint32_t weights;           // how many
    uint64_t bytes;             // on the device
    bool resident;              // brought when it was loaded, and it stays
    uint32_t slot;              // of the ring, where it does not
    uint32_t brought_step;      // from here on it is brought ...
    bool brought_before;        // ... in the run before
    uint32_t needed_step;       // the first that reads it
    uint32_t freed_step;        // its slot is free for the next
} rn_swap;

// In the order in which they are needed; *out_count of them, of which `room` at most are written.
RN_API RN_MUST_USE rn_status rn_block_swapper_schedule(const rn_block_swapper *swapper,
                                                       rn_swap *out, uint32_t room,
                                                       uint32_t *out_count);
// The same as a table, and as a JSON array.
RN_API RN_MUST_USE rn_status rn_block_swapper_print(const rn_block_swapper *swapper, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_block_swapper_json(const rn_block_swapper *swapper, rn_sink sink);

// For inputs and outputs: rn_session_set before, rn_session_get after.
RN_API rn_session *rn_block_swapper_session(const rn_block_swapper *swapper);
RN_API const rn_plan *rn_block_swapper_plan(const rn_block_swapper *swapper);
// rn_session_run: blocks are brought while those before them compute.
RN_API RN_MUST_USE rn_status rn_block_swapper_forward(rn_block_swapper *swapper, uint64_t rows);

RN_END_DECLS

#endif
