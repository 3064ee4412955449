// merges.c — open addressing at two thirds full, probed straight from the inner loop of BPE.
#include "text/merges.h"

#include "base/checked.h"

#include <string.h>

rn_status rn_merges_init(rn_merges *merges, const rn_allocator *from, size_t count, uint64_t seed) {
    size_t slot_count, bytes;
    *merges = (rn_merges){.from = from, .seed = seed};
    if (!rn_add_size(count, count / 2 + 1, &slot_count) || slot_count > UINT32_MAX ||
        !rn_mul_size(slot_count, sizeof *merges->slots, &bytes))
        return rn_fail(RN_CORRUPT, "%zu merges are too many", count);
    void *slots;
    RN_TRY(rn_alloc(from, bytes, &slots));
    memset(slots, 0xFF, bytes);
    merges->slots = slots;
    merges->slot_count = slot_count;
    return RN_OK;
}

void rn_merges_free(rn_merges *merges) {
    rn_free(merges->from, merges->slots, merges->slot_count * sizeof *merges->slots);
    *merges = (rn_merges){.from = merges->from};
}

void rn_merges_add(rn_merges *merges, rn_merge merge) {
    size_t at = rn_merges_home(merges, merge.left, merge.right);
    for (; merges->slots[at].left != RN_NO_MERGE; at = at + 1 == merges->slot_count ? 0 : at + 1)
        if (merges->slots[at].left == merge.left && merges->slots[at].right == merge.right) return;
    merges->slots[at] = merge;
    merges->count++;
}
