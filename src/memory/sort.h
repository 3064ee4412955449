// sort.h — sorting, with the memory that it takes on the ledger.
#ifndef RN_MEMORY_SORT_H
#define RN_MEMORY_SORT_H

#include <ration/memory.h>

// RN_OVER_BUDGET: nothing was moved. RN_CANCELLED: the thread's stops (base/stop.h) ended it; the
// items are all there, in some order.
RN_MUST_USE rn_status rn_sort(void *items, size_t count, size_t item_bytes,
                              int (*compare)(const void *left, const void *right));

#endif
