// sort.c — glibc's qsort merges, in a block from malloc that is up to as large as what it sorts.
// How many items there are is said by files: so the block is charged beforehand.
#include "memory/sort.h"

#include <stdlib.h>

rn_status rn_sort(void *items, size_t count, size_t item_bytes,
                  int (*compare)(const void *left, const void *right)) {
    const rn_account scratch = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_OTHER};
    if (count < 2) return RN_OK;
    RN_TRY(rn_budget_charge(scratch, NULL, (uint64_t)count * item_bytes));
    qsort(items, count, item_bytes, compare);
    rn_ledger_release(scratch, NULL, (uint64_t)count * item_bytes);
    return RN_OK;
}
