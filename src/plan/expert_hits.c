// expert_hits.c — a curve of hit rates from a routing trace: what the cache rule would have had.
//
//     trace   |  a third warms up  | part 0 | part 1 | part 2 | part 3 |
//
// For each number of slots every layer is replayed by the rule that runs have (expert_cache.h). Of
// more slots no rate is said to be lower: what the trace has beyond that is noise.
#include "plan/expert_cache.h"

#include "io/route_trace.h"
#include "memory/account.h"

#include <ration/plan.h>

#include <string.h>

enum { PARTS = 4 };

typedef struct part {
    uint64_t needed, misses;
} part;

static rn_status replay_layer(rn_arena *memory, const rn_route_trace *t, uint32_t layer,
                              uint32_t slots, part parts[PARTS]) {
    uint32_t warm = t->tokens / 3, counted = t->tokens - warm;
    rn_expert_cache cache;
    void *misses = NULL;
    RN_TRY(rn_expert_cache_init(memory, t->experts, slots, &cache));
    RN_TRY(rn_arena_array(memory, t->experts, sizeof(rn_expert_miss), &misses));
    for (uint32_t token = 0; token < t->tokens; token++) {
        const int32_t *ids = rn_route_trace_at(t, token, layer);
        uint32_t count = 0, missed = 0;
        while (count < t->k && ids[count] >= 0)
            count++;
        if (count == 0) continue;
        RN_TRY(rn_expert_cache_step(&cache, ids, count, misses, &missed));
        if (token < warm) continue;
        part *of = &parts[(uint64_t)(token - warm) * PARTS / counted];
        of->needed += rn_expert_cache_needed(&cache);
        of->misses += missed;
    }
    return RN_OK;
}

static double rate_of(const part *p) {
    return p->needed ? 1 - (double)p->misses / (double)p->needed : 0;
}

static void set_point(rn_expert_hits *out, uint32_t i, const part parts[PARTS]) {
    part all = {0};
    double low = 1, high = 0;
    for (int k = 0; k < PARTS; k++) {
        double rate = rate_of(&parts[k]);
        all.needed += parts[k].needed;
        all.misses += parts[k].misses;
        if (parts[k].needed && rate < low) low = rate;
        if (rate > high) high = rate;
    }
    double rates[] = {rate_of(&all), low, high};
    double *curves[] = {out->expected, out->low, out->high};
    for (int c = 0; c < 3; c++) {
        double before = i > 0 ? curves[c][i - 1] : 0;
        curves[c][i] = rates[c] > before ? rates[c] : before;
    }
}

static rn_status replay(const rn_route_trace *t, rn_expert_hits *out) {
    for (uint32_t i = 0; i < RN_EXPERT_POINTS; i++) {
        uint32_t slots = (t->experts * i + (RN_EXPERT_POINTS - 1) / 2) / (RN_EXPERT_POINTS - 1);
        part parts[PARTS] = {0};
        for (uint32_t layer = 0; layer < t->layers; layer++) {
            rn_arena memory;
            rn_arena_init(&memory, RN_HOST_OTHER, 0);
            rn_status s = replay_layer(&memory, t, layer, slots, parts);
            rn_arena_free_all(&memory);
            RN_TRY(s);
        }
        set_point(out, i, parts);
    }
    return RN_OK;
}

rn_status rn_expert_hits_read(const char *path, rn_expert_hits *out) {
    rn_route_trace trace = {0};
    memset(out, 0, sizeof *out);
    RN_TRY(rn_route_trace_read(path, RN_HOST_OTHER, &trace));
    rn_status s = replay(&trace, out);
    rn_route_trace_free(&trace);
    return s;
}
