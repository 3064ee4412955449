// registry.h — the back ends of this library: one descriptor each, in one table.
//
//     const rn_backend *backend = rn_backend_find(RN_STR("cuda"));
//     rn_target target = {.backend = backend};
//     RN_TRY(backend->parse(RN_STR("1"), &target)); // target.name is "cuda:1"
//     RN_TRY(backend->open(&target, threads, &device));
//
// Whatever stands above the back ends goes through descriptors and names none of them. The table
// is in src/backend/backends.c; a new back end is a folder there and a row in it.
#ifndef RN_DEVICE_REGISTRY_H
#define RN_DEVICE_REGISTRY_H

#include "base/error_class.h"
#include "base/str.h"
#include "device/call_cost.h"
#include "device/device.h"

#include <stddef.h>

// A rate that one back end alone has: a number of rn_device_caps.own.
typedef struct rn_own_rate {
    rn_rate_info info;
    const char *key; // in the file of rates, ...
    double unit;     // ... as a whole number of these
    // How `ration calibrate` finds it: the rate with which `cost` says what was timed.
    enum {
        RN_RATE_FROM_ONE_ROW,        // products of one row with weights of `dtype`
        RN_RATE_FROM_ATTENTION,      // what more keys take
        RN_RATE_FROM_ATTENTION_FLOOR // in seconds: the rest of what few keys take
    } from;
    rn_dtype dtype;
    const char *what; // for progress, of those from products
} rn_own_rate;

enum { RN_TARGET_OWN_BYTES = 1024 };

// One device that a user named. A plain value.
typedef struct rn_target {
    const rn_backend *backend;
    bool wanted;   // named by the user, not by "auto"
    char name[64]; // for people: "cuda:0"
    // What the back end made of the text behind the colon: copied in and out with memcpy.
    unsigned char own[RN_TARGET_OWN_BYTES];
} rn_target;

struct rn_backend {
    const char *name;   // of its targets, before the colon
    const char *syntax; // of its targets, for hints: "cuda, cuda:N"; NULL: it is not advertised
    uint32_t auto_rank; // "auto" tries those with 1, 2, ... one after the other; 0: it does not
    // This machine's own processor. It is always there, so it is the last resort where a target
    // before it failed.
    bool is_host;
    // Reads the text behind the colon into `out`, whose backend is set, and names it. `text` has no
    // data where there is no colon. RN_INVALID.
    rn_status (*parse)(rn_str text, rn_target *out);
    // `threads` of the host (0: all) compute or pack weights. RN_DEVICE: it is not there;
    // RN_NOT_FOUND: a file of it is not; RN_UNSUPPORTED: this build has nothing to run on it.
    rn_status (*open)(const rn_target *target, uint32_t threads, rn_device **out);
    const rn_error_table *errors; // what its runtime's messages mean; NULL: it has none

    // What an executable of the graph will hold on one of its devices, for runs of up to `rows`
    // rows, by purpose; pure. Of back ends that compile. RN_UNSUPPORTED names a node.
    rn_status (*estimate)(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                          uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
    // What it takes of the process's memory beside that, for itself and for weights on their way;
    // pure. NULL: nothing.
    uint64_t (*host_bytes)(const rn_device_caps *caps, const rn_graph *graph);
    // What of a graph's numbers it computes in other types than the graph has, for people: "" where
    // there is nothing to tell. Of back ends that compile; pure. NULL: it never does.
    void (*describe_numbers)(const rn_device_caps *caps, const rn_graph *graph, char *out,
                             size_t bytes);
    // `estimate` and `compile` know two kinds of executables: a fast one, and one that holds less
    // (rn_device_caps.frugal).
    bool has_frugal;
    // Seconds of a call on one of its devices; pure. NULL: rn_cost_roofline.
    double (*cost)(const rn_device_caps *caps, const rn_call *call, rn_workload workload);
    const rn_own_rate *rates; // (rate_count): the first of caps.own
    uint32_t rate_count;
};

// All of them, NULL behind the last.
extern const rn_backend *const rn_backends[];

// NULL: there is none of this name.
const rn_backend *rn_backend_find(rn_str name);
// Of a device's or target's name: "cuda:0".
const rn_backend *rn_backend_of(const char *target);
// The one that "auto" tries as number `rank`, from 1; NULL: there are not so many.
const rn_backend *rn_backend_auto(uint32_t rank);
// "cpu, cuda, cuda:N and sim", cut where there is no room.
void rn_backend_list_targets(char *out, size_t bytes);

// ---- for those who write `parse` ----------------------------------------------------------------

// Takes what stands before the next `mark` off the front, without spaces around it.
rn_str rn_target_take(rn_str *rest, char mark);
// Up to nine digits. RN_INVALID.
RN_MUST_USE rn_status rn_target_number(rn_str text, uint32_t *out);
// For targets that have nothing behind the colon. RN_INVALID.
RN_MUST_USE rn_status rn_target_parse_plain(rn_str text, rn_target *out);

#endif
