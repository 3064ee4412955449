// merge_sort.h — sorting that can be ended: qsort of millions does not come back for half a second.
#ifndef RN_BASE_MERGE_SORT_H
#define RN_BASE_MERGE_SORT_H

#include <ration/status.h>

#include <stddef.h>

// `compare` tells any two items apart, as with qsort. `scratch` has room for as many items. False
// where the thread's stops (base/stop.h) do not let it go on: the items are all there, in some
// order.
RN_MUST_USE bool rn_sort_within(void *items, void *scratch, size_t count, size_t item_bytes,
                                int (*compare)(const void *, const void *));

#endif
