// ladder.h — an ordered list of targets, tried one after the other until one carries the model.
//
//     rn_ladder *ladder;
//     RN_TRY(rn_ladder_parse(text, &ladder)); // "cuda:0,cpu", "auto"
//     rn_ladder_target target;
//     RN_TRY(rn_ladder_start(ladder, &options, &load, &target));
//     ... serve on target.device ...
//     rn_ladder_leave(ladder, NULL); // load.undo, then the device goes
//     rn_ladder_destroy(ladder);
//
// A target that is missing, refuses or fails is written down with its stage, class, meaning and
// hint; everything it took is released, and the ledger must show it, before the next is tried.
// What is really in use, and why, can be asked at any time and from any thread.
#ifndef RATION_LADDER_H
#define RATION_LADDER_H

#include <ration/device.h>
#include <ration/error_class.h>
#include <ration/memory.h>

RN_BEGIN_DECLS

#define RN_LADDER_TARGETS  8
#define RN_LADDER_ATTEMPTS 16 // the latest are kept

typedef struct rn_ladder rn_ladder;

// Targets, separated by commas, the first choice first:
//     cpu                          with rn_ladder_options.threads
//     cuda, cuda:N                 N from 0
//     xla:cpu, xla:cuda, xla:PLUGIN
//                                  a PJRT plugin, by its name or its file; graphs are compiled as a
//                                  whole. ?seq=64&opt=0&device=1... behind it: docs/engines.md
//     neuron, neuron:N-M           AWS Neuron's plugin, with these cores
//     sim, sim:memory=64MiB;fail_launch=3
//                                  for tests; also link=1GB (a second), threads, compile=1 (graphs
//                                  are compiled as a whole), fail_alloc, fail_allocs, fail_copy
//     auto                         cuda, then cpu
// RN_INVALID names the one that is wrong. To be destroyed.
RN_API RN_MUST_USE rn_status rn_ladder_parse(rn_str text, rn_ladder **out);
// NULL-safe. Not while a target is in use.
RN_API void rn_ladder_destroy(rn_ladder *ladder);
RN_API size_t rn_ladder_count(const rn_ladder *ladder);
// "cuda:0"; a plugin without its folder. Lives as long as the ladder.
RN_API const char *rn_ladder_name(const rn_ladder *ladder, size_t index);

// ---- trying targets
// -----------------------------------------------------------------------------------

typedef struct rn_ladder_target {
    size_t index;      // of the target
    const char *name;  // rn_ladder_name
    rn_device *device; // the ladder's; of use until rn_ladder_leave or rn_ladder_advance
} rn_ladder_target;

// What is to be done on a target. Both are called in the thread that calls rn_ladder_start.
typedef struct rn_ladder_load {
    void *self;
    // Brings the model to the device and tries it. The stage "device_ready" has been told; it tells
    // those that follow.
    rn_status (*attempt)(void *self, const rn_ladder_target *target);
    // Gives back all that attempt took, however far it came; also when a target is left that
    // worked.
    void (*undo)(void *self);
} rn_ladder_load;

#define RN_PURPOSE_BIT(purpose) (1u << (purpose))

typedef struct rn_ladder_options {
    bool no_fallback; // the first failure is the answer
    uint32_t threads; // of the CPU; 0: all
    // Purposes (RN_PURPOSE_BIT) that other threads take host memory for meanwhile: nothing can be
    // said about their bytes. `unaccounted` and `profiler` are always among them.
    uint32_t others;
    uint64_t reserved[4]; // zero
} rn_ladder_options;

// Tries each target from the first on. RN_OK: *out is the target in use.
//
// With one target, or with no_fallback, a failure is the attempt's own error. Otherwise it is the
// last one's status, with an error that says what became of each. RN_CANCELLED ends it.
// RN_INTERNAL: an attempt left bytes behind, which are named; no other is tried on top of a leak.
// RN_INVALID: a target is in use.
RN_API RN_MUST_USE rn_status rn_ladder_start(rn_ladder *ladder, const rn_ladder_options *options,
                                             const rn_ladder_load *load, rn_ladder_target *out);
// The same from target `first` on. RN_INVALID: there are not so many.
RN_API RN_MUST_USE rn_status rn_ladder_start_from(rn_ladder *ladder, size_t first,
                                                  const rn_ladder_options *options,
                                                  const rn_ladder_load *load,
                                                  rn_ladder_target *out);
// Leaves the target in use, in order (NULL) or because of a failure, which is written down: undo of
// the load that is in use, the device destroyed, the ledger compared with what it was before the
// attempt. RN_INTERNAL: bytes stayed. RN_OK where no target is in use.
RN_API rn_status rn_ladder_leave(rn_ladder *ladder, const rn_error_info *failure);
// The target in use has failed: leaves it and goes on from the next with the options and load of
// the last start. Fails with the failure itself where there is no next target, or none is wanted.
RN_API RN_MUST_USE rn_status rn_ladder_advance(rn_ladder *ladder, const rn_error_info *failure,
                                               rn_ladder_target *out);

// ---- what became of it --------------------------------------------------------------------------

typedef enum rn_attempt_state {
    RN_ATTEMPT_RUNNING,
    RN_ATTEMPT_IN_USE,
    RN_ATTEMPT_FAILED, // also one that was in use before
    RN_ATTEMPT_LEFT    // was in use, and was left in order
} rn_attempt_state;
RN_API const char *rn_attempt_state_name(rn_attempt_state state); // "in_use"

typedef struct rn_attempt {
    size_t target_index;
    char target[64]; // rn_ladder_name
    rn_attempt_state state;
    char stage[48];                // the last that was reached; "" while it is running
    rn_status status;              // RN_OK unless it failed
    const rn_error_class *failure; // NULL unless it failed
    char message[1024], hint[512]; // "" unless it failed
    double seconds;                // until it was in use, or all was released
    uint64_t peak_bytes;           // taken on its device, at most, until it was in use or failed
    uint64_t returned_bytes;       // released, on all devices; of a failure: the most it held
} rn_attempt;

// All attempts so far; those before the latest RN_LADDER_ATTEMPTS are forgotten.
RN_API uint64_t rn_ladder_attempt_count(const rn_ladder *ladder);
// Copies the latest, oldest first; how many.
RN_API size_t rn_ladder_attempts(const rn_ladder *ladder, rn_attempt out[RN_LADDER_ATTEMPTS]);
// The index of the target in use, or -1.
RN_API int rn_ladder_target_index(const rn_ladder *ladder);
// A JSON object: targets, target_index and target in use (null: none), attempts. Made for answers
// to strangers: folders in messages are left out. Writes from a copy: the sink may be slow.
RN_API RN_MUST_USE rn_status rn_ladder_json(const rn_ladder *ladder, rn_sink sink);

RN_END_DECLS

#endif
