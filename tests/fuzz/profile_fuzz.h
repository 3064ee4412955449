// profile_fuzz.h — what the fuzzers of profile readers share: a timeline that is read keeps its
// promises, one that is not has a story, and nothing is held afterwards.
#ifndef RN_PROFILE_FUZZ_H
#define RN_PROFILE_FUZZ_H

#include <ration/memory.h>

#include "base/str.h"
#include "fuzz_file.h"
#include "profile/timeline.h"

typedef rn_status (*profile_reader)(const char *path, const uint8_t *data, uint64_t bytes,
                                    rn_timeline **out);

static inline void check_names(const rn_timeline *t) {
    for (uint32_t i = 0; i < t->name_count; i++) {
        require(rn_utf8_valid(rn_str_from(t->names[i].name)));
        require(rn_utf8_valid(rn_str_from(t->names[i].group)));
        require(rn_utf8_valid(rn_str_from(t->names[i].detail)));
    }
}

static inline void check_timeline(const rn_timeline *t) {
    rn_timeline_walk walk;
    rn_timeline_walk_begin(&walk, t, RN_DEVICE_ANY);
    uint64_t last_ns = 0;
    while (rn_timeline_walk_next(&walk)) {
        require(walk.level.time_ns >= last_ns);
        last_ns = walk.level.time_ns;
    }
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        require(t->allocs[i].end_ns >= t->allocs[i].begin_ns);
        require(t->allocs[i].device < t->device_count);
    }
    for (uint32_t i = 0; i < t->op_count; i++)
        require(t->ops[i].end_ns >= t->ops[i].begin_ns && t->ops[i].lane < t->lane_count);
    check_names(t);
}

static inline int fuzz_profile(profile_reader read, const uint8_t *data, size_t size) {
    rn_timeline *t = NULL;
    rn_status s = read("fuzz", data, size, &t);
    if (s == RN_OK) s = rn_timeline_finish(t);
    if (s == RN_OK)
        check_timeline(t);
    else
        require((s == RN_CORRUPT || s == RN_UNSUPPORTED) && rn_last_error()->message[0]);
    rn_timeline_destroy(t);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}

#endif
