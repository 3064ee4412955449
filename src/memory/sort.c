// sort.c — base/merge_sort.h with a scratch of its own: as large as what is sorted, whose size
// files say.
#include "memory/sort.h"

#include "base/checked.h"
#include "base/merge_sort.h"
#include "memory/account.h"

rn_status rn_sort(void *items, size_t count, size_t item_bytes,
                  int (*compare)(const void *left, const void *right)) {
    void *scratch = NULL;
    size_t bytes = count * item_bytes; // of what is in memory: it does not wrap
    if (count < 2) return RN_OK;
    RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &scratch));
    bool done = rn_sort_within(items, scratch, count, item_bytes, compare);
    rn_free(RN_HOST_OTHER, scratch, bytes);
    return done ? RN_OK : rn_fail(RN_CANCELLED, "sorting was interrupted");
}
