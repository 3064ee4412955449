// expert_bench.c — cache policies for experts, replayed on routing traces.
//
//     build/release/bench/expert_bench TRACE [expert-bytes]
//
// For caches of 3 to 50 % of all experts: the share of choices that were there (hit %, after a
// third of the text), by the library's own rule (plan/expert_cache.h) and, for comparison only, by
// least recently used and least frequently used a layer, and by Belady's rule, which knows the
// future and bounds all others. With the bytes of an expert: what a token reads from disk.
#include "base/alloc.h"
#include "io/route_trace.h"
#include "plan/expert_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum policy { LRU, LFU, BELADY } policy;

// One layer by another policy; the state is small and on the heap.
typedef struct layer_state {
    uint64_t *score; // (experts): last use, uses, or next use
    bool *held, *runs;
} layer_state;

static uint64_t next_use(const rn_route_trace *t, uint32_t layer, uint32_t from, int32_t expert) {
    for (uint32_t token = from; token < t->tokens; token++) {
        const int32_t *ids = rn_route_trace_at(t, token, layer);
        for (uint32_t i = 0; i < t->k; i++)
            if (ids[i] == expert) return token;
    }
    return UINT32_MAX;
}

// The held expert that is worth least and does not run; -1: none.
static int find_worst(const layer_state *s, uint32_t experts, policy p) {
    int worst = -1;
    for (uint32_t e = 0; e < experts; e++) {
        if (!s->held[e] || s->runs[e]) continue;
        bool worse = worst < 0 ||
                     (p == BELADY ? s->score[e] > s->score[worst] : s->score[e] < s->score[worst]);
        if (worse) worst = (int)e;
    }
    return worst;
}

static void replay_token(const rn_route_trace *t, layer_state *s, policy p, uint32_t layer,
                         uint32_t token, uint32_t slots, uint32_t *held, rn_expert_replay *sum) {
    const int32_t *ids = rn_route_trace_at(t, token, layer);
    memset(s->runs, 0, t->experts);
    for (uint32_t i = 0; i < t->k && ids[i] >= 0; i++) {
        s->runs[ids[i]] = p != BELADY; // the others keep what runs
        s->score[ids[i]] = p == LRU   ? token
                           : p == LFU ? s->score[ids[i]] + 1
                                      : next_use(t, layer, token + 1, ids[i]);
        sum->needed++;
        sum->misses += !s->held[ids[i]];
    }
    for (uint32_t i = 0; i < t->k && ids[i] >= 0; i++) {
        if (s->held[ids[i]]) continue;
        int worst = *held >= slots ? find_worst(s, t->experts, p) : -1;
        bool passes = worst < 0 || (p == BELADY && s->score[worst] <= s->score[ids[i]]);
        if (*held >= slots && passes) continue;
        if (worst >= 0)
            s->held[worst] = false;
        else
            ++*held;
        s->held[ids[i]] = true;
    }
}

static rn_expert_replay replay_other(const rn_route_trace *t, policy p, uint32_t slots,
                                     uint32_t warm) {
    rn_expert_replay sum = {0};
    for (uint32_t layer = 0; layer < t->layers; layer++) {
        layer_state s = {calloc(t->experts, sizeof(uint64_t)), calloc(t->experts, sizeof(bool)),
                         calloc(t->experts, sizeof(bool))};
        uint32_t held = 0;
        for (uint32_t token = 0; s.score && s.held && s.runs && token < t->tokens; token++) {
            rn_expert_replay one = {0};
            replay_token(t, &s, p, layer, token, slots, &held, &one);
            sum.needed += token >= warm ? one.needed : 0;
            sum.misses += token >= warm ? one.misses : 0;
        }
        free(s.score);
        free(s.held);
        free(s.runs);
    }
    return sum;
}

static double hit_percent(const rn_expert_replay *r) {
    return r->needed ? 100.0 * (double)(r->needed - r->misses) / (double)r->needed : 0;
}

static rn_status print_row(const rn_route_trace *t, uint32_t experts, double share,
                           uint64_t expert_bytes) {
    uint32_t slots = (uint32_t)(share * experts + 0.5), warm = t->tokens / 3;
    uint32_t *all = calloc(t->layers, sizeof *all);
    rn_expert_replay ours;
    if (!all) return rn_fail(RN_NO_MEMORY, "no memory");
    for (uint32_t i = 0; i < t->layers; i++)
        all[i] = slots;
    rn_expert_choices choices = {t->ids, t->tokens, t->layers, t->k, experts};
    rn_status s = rn_expert_replay_run(&rn_system_allocator, &choices, all, warm, &ours);
    free(all);
    RN_TRY(s);
    rn_expert_replay lru = replay_other(t, LRU, slots, warm),
                     lfu = replay_other(t, LFU, slots, warm),
                     best = replay_other(t, BELADY, slots, warm);
    printf("%6.2f %% %5u %8.1f %8.1f %8.1f %8.1f", 100 * share, slots, hit_percent(&ours),
           hit_percent(&lru), hit_percent(&lfu), hit_percent(&best));
    if (expert_bytes)
        printf(" %10.1f", (double)ours.misses * (double)expert_bytes / ours.counted / 1e6);
    printf("\n");
    return RN_OK;
}

int main(int argc, char **argv) {
    static const double shares[] = {0.03125, 0.0625, 0.125, 0.25, 0.5, 0.75, 1};
    rn_route_trace trace;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: expert_bench TRACE [expert-bytes]\n");
        return 2;
    }
    uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (rn_route_trace_read(argv[1], &rn_system_allocator, &trace) != RN_OK) {
        fprintf(stderr, "%s\n", rn_last_error()->message);
        return 1;
    }
    uint32_t experts = 1;
    while (experts < trace.experts)
        experts *= 2;
    printf("%s: %u tokens, %u layers, %u of %u experts\n", argv[1], trace.tokens, trace.layers,
           trace.k, experts);
    printf("  cache  slots     ours      LRU      LFU   Belady%s\n", bytes ? "  MB/token" : "");
    trace.experts = experts;
    rn_status s = RN_OK;
    for (size_t i = 0; i < sizeof shares / sizeof *shares && s == RN_OK; i++)
        s = print_row(&trace, experts, shares[i], bytes);
    rn_route_trace_free(&trace);
    return s == RN_OK ? 0 : 1;
}
