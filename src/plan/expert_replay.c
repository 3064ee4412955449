// expert_replay.c — layer by layer: layers do not know of each other.
#include "plan/expert_replay.h"

static rn_status replay_layer(rn_arena *memory, const rn_expert_choices *c, uint32_t layer,
                              uint32_t slots, uint32_t warm, rn_expert_replay *sum) {
    rn_expert_cache cache;
    void *misses = NULL;
    RN_TRY(rn_expert_cache_init(memory, c->experts, slots, &cache));
    RN_TRY(rn_arena_array(memory, c->experts, sizeof(rn_expert_miss), &misses));
    for (uint32_t t = 0; t < c->tokens; t++) {
        const int32_t *ids = c->ids + ((size_t)t * c->layers + layer) * c->k;
        uint32_t count = 0, missed = 0;
        while (count < c->k && ids[count] >= 0)
            count++;
        if (count == 0) continue;
        RN_TRY(rn_expert_cache_step(&cache, ids, count, misses, &missed));
        if (t < warm) continue;
        sum->needed += rn_expert_cache_needed(&cache);
        sum->misses += missed;
    }
    return RN_OK;
}

rn_status rn_expert_replay_run(const rn_allocator *allocator, const rn_expert_choices *c,
                               const uint32_t *slots, uint32_t warm, rn_expert_replay *out) {
    *out = (rn_expert_replay){.counted = c->tokens > warm ? c->tokens - warm : 0};
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        rn_arena memory;
        rn_arena_init(&memory, allocator, 0);
        rn_status s = replay_layer(&memory, c, layer, slots[layer], warm, out);
        rn_arena_free_all(&memory);
        RN_TRY(s);
    }
    return RN_OK;
}
