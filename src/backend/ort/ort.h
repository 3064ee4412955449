// ort.h — ONNX Runtime: a device that compiles graphs as a whole, in the host's memory.
//
//     ort                      the library that is found (library.c)
//     ort:/path/libonnxruntime.so.1
//     ort?opt=3&threads=2      options: how much it rewrites the graph, how many threads it uses
//
// A graph goes to it as ONNX bytes with a symbolic axis for rows, one session for all buckets.
// Weights and states are blocks of ours that it reads and writes in place. What it allocates for
// itself comes from our allocator (allocator.c), which refuses what was not planned.
#ifndef RN_BACKEND_ORT_ORT_H
#define RN_BACKEND_ORT_ORT_H

#include "backend/ort/api.h"
#include "device/executable.h"
#include "device/registry.h"
#include "exchange/stablehlo.h"

extern const rn_backend rn_ort_backend;

// What a target's text says.
typedef struct rn_ort_target {
    char library[512]; // ""; it is looked for
    uint32_t level;    // of optimisation: 0 to 3
    uint32_t threads;  // 0: as many as others use
    uint32_t most_rows;
    bool packs; // weights are initializers, where the budget allows
} rn_ort_target;

// ---- the library (library.c) --------------------------------------------------------------------

// Loads it, once, and makes its environment; `path` "": it is looked for. RN_NOT_FOUND,
// RN_UNSUPPORTED: it is none, or too old.
RN_MUST_USE rn_status rn_ort_load(const char *path, const rn_ort_api **out);
void *rn_ort_env(void);              // once it is loaded
const char *rn_ort_version(void);    // so: "1.31.1"
const void *rn_ort_cpu_memory(void); // so: describes the host's memory
// So: initializers that are given are used where they lie. Before 1.22 they are copied, outside of
// our allocator.
bool rn_ort_shares_initializers(void);
// Makes a status of what a call returned; `doing` is for the error: "running".
RN_MUST_USE rn_status rn_ort_check(rn_ort_status *status, const char *doing);
#define RN_ORT_TRY(call, doing) RN_TRY(rn_ort_check(call, doing))

// ---- errors (errors.c) --------------------------------------------------------------------------

extern const rn_error_table rn_ort_errors;
// As rn_ort_check. The message has the name of the status's code, which its class is found by.
RN_MUST_USE rn_status rn_ort_check_with(const rn_ort_api *api, rn_ort_status *status,
                                        const char *doing);

// ---- its memory (allocator.c) -------------------------------------------------------------------

rn_ort_allocator *rn_ort_allocator_get(void);
// How much it may hold, all sessions together: a session brings its part along and takes it away.
void rn_ort_allow(uint64_t bytes);
void rn_ort_disallow(uint64_t bytes);
// What it holds, and the most that it held since it was last asked.
uint64_t rn_ort_held_bytes(void);
uint64_t rn_ort_take_peak(void);
// What is to happen in this thread until `run` is NULL again: a request that is refused is noted,
// and a run that is under way is told to end; so it is where `cancel` is found set. Every node's
// result is a request, so a run ends behind the node that it is at.
typedef struct rn_ort_run {
    const rn_ort_api *api;
    void *run_options;          // NULL: none is under way
    const _Atomic bool *cancel; // may be NULL
    uint64_t refused_bytes;     // of the last request that was refused
    bool ended;                 // it was told to
} rn_ort_run;
void rn_ort_watch(rn_ort_run *run);

// Addresses to write to instead of those that were refused (stand_in.c); NULL: there are none.
void *rn_ort_stand_in(uint64_t bytes);
bool rn_ort_stand_in_free(void *address); // false: it is none

// Of caps.own: the level of optimisation.
enum { RN_ORT_LEVEL };

// ---- devices ------------------------------------------------------------------------------------

typedef struct rn_ort_device {
    rn_device base;
    rn_ort_target target;
    const rn_ort_api *api;
} rn_ort_device;

RN_MUST_USE rn_status rn_ort_open(const rn_target *target, uint32_t threads, rn_device **out);
RN_MUST_USE rn_status rn_ort_compile(rn_device *device, const rn_compile_request *request,
                                     rn_executable **out);
double rn_ort_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload);
// What our allocator gives at most for packed copies of weights.
uint64_t rn_ort_packed_bytes(const rn_stablehlo_signature *signature);
void rn_ort_describe_numbers(const rn_device_caps *caps, const rn_graph *graph, char *out,
                             size_t bytes);
RN_MUST_USE rn_status rn_ort_estimate(const rn_device_caps *caps, const rn_graph *graph,
                                      uint64_t rows, uint64_t purpose_bytes[RN_PURPOSE_COUNT]);

#endif
